"""What searches for a mapping share: times of mappings, which of them is proposed, and why.

A search enumerates mappings, and `estimate` says how long each takes. Times that are close are not told apart: among mappings
that take about as long as the fastest one, a *preference* of each kind of mappings decides, by a key of which the least wins.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Generic, TypeVar

from fuser.ir.device_info import DeviceInfo
from fuser.ir.integers.number_trace import searched
from fuser.records import record
from fuser.schedule.cost.estimate import TimeModel, Work, estimate, tie_threshold

MAX_EXPLAINED = 5
"""Mappings that `explain` shows."""
MAX_REMEMBERED = 4096
"""Spaces whose best mappings are kept."""

S = TypeVar("S")
M = TypeVar("M")
T = TypeVar("T")
Timed = tuple[float, M]
"""A mapping with the microseconds that it should take."""


def preferred(times: Iterable[Timed[M]], preference: Callable[[Timed[M]], Any], device: DeviceInfo) -> Timed[M] | None:
    """The mapping to propose; None if there is none."""
    found = list(times)
    limit = tie_threshold(min((time for time, _ in found), default=math.inf), device)
    return min((timed for timed in found if timed[0] <= limit), key=preference, default=None)


def ranked(
    times: Iterable[Timed[M]], preference: Callable[[Timed[M]], Any], device: DeviceInfo
) -> tuple[Timed[M], ...]:
    """The mapping to propose, then the others, the fastest first."""
    found = sorted(times)
    best = preferred(found, preference, device)
    return () if best is None else (best, *(timed for timed in found if timed is not best))


def times_within_bounds(
    bounds: Sequence[float],
    times_of: Callable[[int], Iterable[Timed[M]]],
    rank_of: Callable[[int], tuple[Any, ...]],
    device: DeviceInfo,
) -> Iterator[Timed[M]]:
    """Times of the fastest mapping and of the one that `preferred` chooses, and of few others.

    bounds     microseconds that the mappings of each place take at least
    times_of   their times
    rank_of    what they have in common of the key of the preference, whose first parts that are
    """
    places = sorted(range(len(bounds)), key=bounds.__getitem__)
    least, asked = math.inf, 0
    close: list[tuple[float, int]] = []
    while asked < len(places) and bounds[places[asked]] <= least:
        for timed in times_of(places[asked]):
            least = min(least, timed[0])
            close.append((timed[0], places[asked]))
            yield timed
        asked += 1
    # Nothing is faster. Of those that may be about as fast, one that is preferred leaves no others to ask for.
    limit = tie_threshold(least, device)
    best = min((rank_of(place) for time, place in close if time <= limit), default=())
    left = itertools.takewhile(lambda place: bounds[place] <= limit, places[asked:])
    for rank, place in sorted((rank_of(place), place) for place in left):
        if rank > best:
            return
        for timed in times_of(place):
            if timed[0] <= limit:
                best = rank
            yield timed


@record(eq=False)
class MappingSearch(Generic[S, M]):
    """A kind of mappings of segments, each of which is described by a *space*.

    mappings     all that fit on a device
    work_of      what one of them asks of the machine
    preference   its key; see the head of this module
    heading      the space, in sentences
    words        a mapping in words
    likely       times of all mappings that may be the one to propose, where that takes less than the times of all
    compared     times of the mappings that are compared at all, where these are some of them
    """

    mappings: Callable[[S, DeviceInfo], Iterable[M]]
    work_of: Callable[[S, M, DeviceInfo], Work]
    preference: Callable[[S, Timed[M], DeviceInfo], Any]
    heading: Callable[[S], Iterable[str]]
    words: Callable[[S, M], str]
    likely: Callable[[S, DeviceInfo], Iterable[Timed[M]]] | None = None
    compared: Callable[[S, DeviceInfo], Iterable[Timed[M]]] | None = None

    def times(self, space: S, device: DeviceInfo) -> Iterable[Timed[M]]:
        """Of all mappings that are compared."""
        if self.compared is not None:
            return self.compared(space, device)
        model = TimeModel(device)
        return ((model.total(self.work_of(space, m, device)), m) for m in self.mappings(space, device))

    def ranked(self, space: S, device: DeviceInfo) -> tuple[Timed[M], ...]:
        """These mappings, first the one to propose."""
        return ranked(self.times(space, device), lambda timed: self.preference(space, timed, device), device)

    def reasons(self, space: S, device: DeviceInfo) -> Iterator[str]:
        """Why a mapping is proposed: the first ones in words, with their times by part."""
        yield from self.heading(space)
        for _, m in self.ranked(space, device)[:MAX_EXPLAINED]:
            yield f"{self.words(space, m)}: {estimate(self.work_of(space, m, device), device)}"


@lru_cache(maxsize=MAX_REMEMBERED)
def ranked_mappings(search: MappingSearch[S, M], space: S, device: DeviceInfo) -> tuple[Timed[M], ...]:
    """See `MappingSearch.ranked`."""
    return search.ranked(space, device)


@searched
def nth_mapping(search: MappingSearch[S, M], space: S, rank: int, device: DeviceInfo) -> Timed[M] | None:
    """That of the ranked mappings with so many before it; None behind the last."""
    found = ranked_mappings(search, space, device)
    return found[rank] if rank < len(found) else None


@searched
@lru_cache(maxsize=MAX_REMEMBERED)
def best_mapping(search: MappingSearch[S, M], space: S, device: DeviceInfo) -> Timed[M] | None:
    """The mapping to propose for a space; None if none fits."""
    times = (search.likely or search.times)(space, device)
    return preferred(times, lambda timed: search.preference(space, timed, device), device)


def fastest_of(
    search: MappingSearch[S, M], spaces: Iterable[tuple[S, T]], device: DeviceInfo
) -> tuple[M, tuple[S, T]] | None:
    """The mapping that should take least time, of several spaces, with its space and what comes with that."""
    found = ((best_mapping(search, space[0], device), space) for space in spaces)
    timed = ((*best, space) for best, space in found if best is not None)
    fastest = min(timed, key=lambda each: each[0], default=None)
    return None if fastest is None else fastest[1:]
