"""Mappings of pointwise segments: which threads and blocks compute which elements, and how fast.

The dims of the iteration space are *parts*: dims that are one run of memory in every argument, slowest first. A mapping makes
loops of them: each loop is one part, or several that are merged, at the price of divisions. Threads of x go along the last
loop, `vector` elements each, those of y along the loop before it, and a thread repeats what it does `unroll` times along one of
the loops: all loads first, or one iteration after another (`sequential`). What does not vary along that loop is loaded and
computed once for all iterations.

    parts (b, s, h, d)    loops ((h,), (b, s), (d,)): threads along d and along b * s, each of which may take several h

`pointwise_work_of` says what one asks for, `estimate` how long that takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from fuser.ir.device_info import WARP, DeviceInfo
from fuser.ir.integers.number_trace import searched
from fuser.schedule.cost.estimate import close_to, estimate, total_time
from fuser.schedule.cost.pointwise_work import (
    BLOCKS,
    Loops,
    PointwiseMapping,
    PointwiseProblem,
    grid_of,
    is_flat,
    loop_counts,
    pointwise_resident_blocks,
    pointwise_work_of,
)
from fuser.schedule.cost.reduction_space import ceil_div, power_of_two

COPY_BLOCK = 256
"""Threads of a block of a plain copy."""
UNROLLS = (2, 4, 8, 16)
"""Iterations of a thread."""
MAX_UNALIGNED = 2
"""The same where accesses begin anywhere: their tests make loads wait for one another (H200: of 17 segments two iterations take
1 % less than one, four 7 % more than two, eight 30 %)."""
TRIED_UNROLLS = (2, 4)
"""Those by which nests of loops are compared first."""
KEPT_NESTS, KEPT = 2, 1.25
"""Nests of loops of which more blocks and iterations are compared, and up to which time, of the best of the first."""
MAX_EXPLAINED = 5
"""Mappings that `explain` shows, and that tuning measures."""
MAX_REMEMBERED = 4096
"""Segments at some sizes whose best mappings are kept."""


def _loop_nests(work: PointwiseProblem, vector: int) -> Iterator[Loops]:
    """Loops over all parts: each by itself, with any of them beside the last one; or some of the fastest ones merged."""
    count, lengths = len(work.lengths), work.lengths
    yield tuple((p,) for p in range(count))
    for p in range(count - 2):
        if lengths[p] > 1:
            yield (*((q,) for q in range(count - 1) if q != p), (p,), (count - 1,))
    if not work.may_merge or count == 1:
        return
    columns = ceil_div(lengths[-1], vector)
    for first in range(count - 3, -1, -1):
        # What is merged beyond a block's threads gains nothing.
        if columns * math.prod(lengths[first + 2 : -1]) < BLOCKS[-1]:
            yield (*((p,) for p in range(first)), tuple(range(first, count - 1)), (count - 1,))
    for first in range(count - 2, -1, -1):
        if first == 0 or columns * math.prod(lengths[first + 1 : -1]) < WARP:
            yield (*((p,) for p in range(first)), tuple(range(first, count)))


def _single_iterations(
    work: PointwiseProblem, vector: int, loops: Loops, device: DeviceInfo
) -> Iterator[PointwiseMapping]:
    """Blocks of a nest of loops: all columns, or a power of two of them, and as many rows as there is room for."""
    counts = loop_counts(work, vector, loops)
    rows = counts[-2] if len(loops) > 1 else 1
    if len(loops) > 1 and 0 in loops[-2]:
        # The slowest dim differs from call to call: of few rows any number shares a kernel with others.
        rows = power_of_two(rows)
    seen: set[tuple[int, int]] = set()
    for threads in BLOCKS:
        wides = {WARP << k for k in range(5) if WARP << k <= threads and WARP << k < counts[-1]}
        if len(loops) == 1:
            wides = {threads}
        elif counts[-1] <= threads:
            wides.add(counts[-1])
        for wide in wides if threads <= device.max_threads_per_block else ():
            high = min(rows, 1 << (threads // wide).bit_length() >> 1)
            if (wide, high) not in seen:
                seen.add((wide, high))
                yield PointwiseMapping(vector, loops, wide, high, unroll_loop=min(1, len(loops) - 1))


def _iterations(
    work: PointwiseProblem, m: PointwiseMapping, unrolls: Sequence[int] = UNROLLS, *, along: int | None = None
) -> Iterator[PointwiseMapping]:
    """The same mapping with several iterations of a thread, along any loop or one of them."""
    counts = loop_counts(work, m.vector, m.loops)
    places = range(1, len(m.loops)) if len(m.loops) > 1 else (0,)
    for place in places if along is None else (along,):
        count = ceil_div(counts[-1 - place], m.threads_x if place == 0 else m.threads_y if place == 1 else 1)
        bits = sum(1 << p for p in m.loops[-1 - place])
        if work.is_peeled and any(
            s.spans[-1] and not any(s.spans[p] for p in m.loops[-1 - place]) for s in work.streams
        ):
            # Each row is cut at places of its own: what rows have in common is read at others for each.
            continue
        is_shared = work.may_iterate and place > 0 and any(not parts & bits for parts, _ in work.computed)
        most = min(count, count if work.may_merge else MAX_UNALIGNED)
        for unroll in unrolls:
            if unroll <= most and unroll * m.vector <= work.most_elements:
                yield m._replace(unroll=unroll, unroll_loop=place)
                if is_shared:
                    yield m._replace(unroll=unroll, unroll_loop=place, sequential=True)


def pointwise_mappings(work: PointwiseProblem, device: DeviceInfo) -> Iterator[PointwiseMapping]:
    """All that fit on the device, one at least."""
    for vector in work.vectors:
        for loops in _loop_nests(work, vector):
            for single in _single_iterations(work, vector, loops, device):
                for m in (single, *_iterations(work, single)):
                    if pointwise_resident_blocks(work, m, device):
                        yield m


def _time(work: PointwiseProblem, m: PointwiseMapping, device: DeviceInfo) -> float:
    resident = pointwise_resident_blocks(work, m, device)
    return total_time(pointwise_work_of(work, m, resident, device), device) if resident else math.inf


@lru_cache(maxsize=MAX_REMEMBERED)
def ranked_pointwise(work: PointwiseProblem, device: DeviceInfo) -> tuple[tuple[float, PointwiseMapping], ...]:
    """Mappings with the microseconds that they should take: first the one to propose, then the fastest of those that were
    compared. Nests of loops are compared by a middling block of each, then all blocks and iterations of the best ones."""
    times: dict[PointwiseMapping, float] = {}

    def time(m: PointwiseMapping) -> float:
        found = times.get(m)
        if found is None:
            found = times[m] = _time(work, m, device)
        return found

    found: dict[Loops, list[tuple[float, PointwiseMapping, list[PointwiseMapping]]]] = {}
    for vector in work.vectors:
        for loops in _loop_nests(work, vector):
            singles = list(_single_iterations(work, vector, loops, device))
            middle = min(singles, key=lambda m: (abs(m.threads - COPY_BLOCK), -m.threads_x))
            best = min((middle, *_iterations(work, middle, TRIED_UNROLLS)), key=time)
            found.setdefault(loops, []).append((time(best), best, singles))
    least = min(t for nests in found.values() for t, *_ in nests)
    for nests in sorted(found.values(), key=lambda nests: min(t for t, *_ in nests))[:KEPT_NESTS]:
        for t, best, singles in nests:
            if t <= least * KEPT:
                _refine(work, best, singles, time)
    ranked = sorted((t, m) for m, t in times.items() if t < math.inf)
    limit = close_to(ranked[0][0], device)
    best = min((timed for timed in ranked if timed[0] <= limit), key=lambda timed: _preference(work, timed[1]))
    return (best, *(timed for timed in ranked if timed is not best))


@searched
def best_pointwise(work: PointwiseProblem, device: DeviceInfo) -> PointwiseMapping:
    """The first of `ranked_pointwise`."""
    return ranked_pointwise(work, device)[0][1]


def _refine(
    work: PointwiseProblem,
    best: PointwiseMapping,
    singles: Sequence[PointwiseMapping],
    time: Callable[[PointwiseMapping], float],
) -> None:
    """Ask for the times of mappings like one: other iterations, then other blocks with the best of these."""
    place = best.unroll_loop
    alone = best._replace(unroll=1, sequential=False)
    best = min((best, alone, *_iterations(work, alone, along=place)), key=time)
    for m in singles:
        for made in (m, *_iterations(work, m, (best.unroll,), along=place)) if best.unroll > 1 else (m,):
            if made.sequential is best.sequential:
                time(made)


@searched
@lru_cache(maxsize=MAX_REMEMBERED)
def fastest_run(work: PointwiseProblem, vector: int, device: DeviceInfo) -> PointwiseMapping:
    """The mapping with all parts in one loop that should take least time."""
    loops = (tuple(range(len(work.lengths))),)
    singles = _single_iterations(work, vector, loops, device)
    found = [m for single in singles for m in (single, *_iterations(work, single))]
    times = {m: _time(work, m, device) for m in found}
    limit = close_to(min(times.values()), device)
    return min((m for m, time in times.items() if time <= limit), key=lambda m: _preference(work, m))


def _preference(work: PointwiseProblem, m: PointwiseMapping) -> tuple[object, ...]:
    """Of mappings that take about as long the plainest, so that many sizes share a kernel."""
    is_plain = m.loops == tuple((p,) for p in range(len(work.lengths)))
    is_apart = is_flat(grid_of(loop_counts(work, m.vector, m.loops), m))
    return (
        is_apart,
        not is_plain,
        -len(m.loops),
        -m.vector,
        m.sequential,
        m.unroll,
        abs(m.threads - COPY_BLOCK),
        -m.threads_x,
        m,
    )


def pointwise_reasons(work: PointwiseProblem, device: DeviceInfo) -> tuple[str, ...]:
    """Why a mapping is proposed: the first of all, with their times by part."""
    ranked = [m for _, m in ranked_pointwise(work, device)[:MAX_EXPLAINED]]
    return tuple(
        f"{_words(m)}: {estimate(pointwise_work_of(work, m, pointwise_resident_blocks(work, m, device), device), device)}"
        for m in ranked
    )


def _words(m: PointwiseMapping) -> str:
    """A mapping in words."""
    words = [f"{m.vector} elements a thread, {m.threads_x} x {m.threads_y} threads"]
    merged = [loop for loop in m.loops if len(loop) > 1]
    words += [f"dims {', '.join(map(str, loop))} merged" for loop in merged]
    if sorted(m.loops) != list(m.loops):
        words.append(f"dim {m.loops[-2][0]} beside the last")
    if m.unroll > 1:
        words.append(
            f"{m.unroll} iterations {'in turn ' if m.sequential else ''}along {', '.join(map(str, m.iterated))}"
        )
    return ", ".join(words)
