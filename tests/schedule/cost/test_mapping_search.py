"""Which of some timed mappings is proposed, and in which order the others follow."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from fuser.ir.device_info import H200
from fuser.schedule.cost.estimate import CLOSE
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
def test_what_surely_takes_longer_is_not_asked(seed: int) -> None:
    rng = random.Random(seed)
    groups = [[(after_launch(rng.uniform(1, 3)), f"{k}{n}") for n in range(3)] for k in range(30)]
    bounds = [min(group)[0] * rng.uniform(0.7, 1) for group in groups]
    asked: list[int] = []

    def times_of(place: int) -> Iterator[Timed[str]]:
        asked.append(place)
        return iter(groups[place])

    best = preferred(times_within_bounds(bounds, times_of, H200), by_name, H200)
    assert best == preferred((timed for group in groups for timed in group), by_name, H200)
    assert len(asked) < len(groups)
