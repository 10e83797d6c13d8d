"""What searches for a mapping share: times of mappings, which of them is proposed, and why.

A search enumerates mappings, and `estimate` says how long each takes. Times that are close are not told apart: among mappings
that take about as long as the fastest one, a *preference* of each kind of mappings decides, by a key of which the least wins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from fuser.ir.device_info import DeviceInfo
from fuser.schedule.cost.estimate import Work, estimate, tie_threshold

MAX_EXPLAINED = 5
"""Mappings that `explain` shows."""
MAX_REMEMBERED = 4096
"""Spaces, of each kind, whose best mappings are kept."""

M = TypeVar("M")
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
    bounds: Sequence[float], times_of: Callable[[int], Iterable[Timed[M]]], device: DeviceInfo
) -> Iterator[Timed[M]]:
    """Times of all mappings that `preferred` may choose, and of few others.

    bounds     microseconds that the mappings of each place take at least
    times_of   their times
    """
    limit = math.inf
    for place in sorted(range(len(bounds)), key=bounds.__getitem__):
        if bounds[place] > limit:
            return
        for timed in times_of(place):
            limit = min(limit, tie_threshold(timed[0], device))
            yield timed


def explained(
    found: Iterable[Timed[M]], words: Callable[[M], str], work_of: Callable[[M], Work], device: DeviceInfo
) -> Iterator[str]:
    """The first of ranked mappings in words, with their times by part."""
    for _, m in islice(found, MAX_EXPLAINED):
        yield f"{words(m)}: {estimate(work_of(m), device)}"
