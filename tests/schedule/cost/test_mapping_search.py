"""Which of some timed mappings is proposed, and in which order the others follow."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from fuser.ir.device_info import H200
from fuser.schedule.cost.estimate import CLOSE, tie_threshold
from fuser.schedule.cost.mapping_search import Timed, preferred, ranked, times_within_bounds


def by_name(timed: Timed[str]) -> str:
    return timed[1]


def after_launch(time: float) -> float:
    return H200.launch + time


def test_of_close_times_the_preference_decides() -> None:
    close, apart = after_launch(CLOSE - 0.01), after_launch(CLOSE + 0.01)
    times = [(after_launch(1.0), "c"), (close, "b"), (apart, "a")]
    assert preferred(times, by_name, H200) == (close, "b")
    assert ranked(times, by_name, H200) == ((close, "b"), (after_launch(1.0), "c"), (apart, "a"))


def test_nothing_is_preferred_of_nothing() -> None:
    assert preferred((), by_name, H200) is None
    assert ranked((), by_name, H200) == ()


@pytest.mark.parametrize("seed", range(20))
def test_what_takes_longer_or_is_not_preferred_is_not_asked(seed: int) -> None:
    rng = random.Random(seed)
    groups = [[(after_launch(rng.uniform(1, 3)), f"{k:02}.{n}") for n in range(3)] for k in range(30)]
    # Some close to the fastest.
    fastest = min(groups)[0][0]
    groups += [[(fastest + rng.uniform(0, 0.05), f"{k:02}.0")] for k in range(30, 60)]
    bounds = [min(group)[0] * rng.uniform(0.99, 1) for group in groups]
    ranks = [(rng.randrange(5),) for _ in groups]
    asked: list[int] = []

    def times_of(place: int) -> Iterator[Timed[str]]:
        asked.append(place)
        return iter(groups[place])

    def preference(timed: Timed[str]) -> tuple[int, str]:
        return *ranks[int(timed[1][:2])], timed[1]

    likely = times_within_bounds(bounds, times_of, ranks.__getitem__, H200)
    everything = [timed for group in groups for timed in group]
    found = preferred(likely, preference, H200)
    assert found == preferred(everything, preference, H200)
    limit = tie_threshold(min(everything)[0], H200)
    assert len(asked) <= sum(bound <= limit for bound in bounds) < len(groups)


@pytest.mark.parametrize(("ranks", "asked"), [((0, 1, 1), [0]), ((1, 0, 0), [0, 1, 2]), ((1, 1, 0), [0, 2])])
def test_of_close_times_those_that_are_not_preferred_are_not_asked(ranks: tuple[int, ...], asked: list[int]) -> None:
    times = [after_launch(1.0), after_launch(1.01), after_launch(1.02)]
    found: list[int] = []

    def times_of(place: int) -> Iterator[Timed[str]]:
        found.append(place)
        yield times[place], str(place)

    assert list(times_within_bounds(times, times_of, lambda place: (ranks[place],), H200))
    assert found == asked
