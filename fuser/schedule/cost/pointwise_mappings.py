"""Mappings of pointwise segments: which threads and blocks compute which elements, and how fast.

The dims of the iteration space are *parts*: dims that are one run of memory in every argument, slowest first. A mapping makes
loops of them: each loop is one part, or several that are merged, at the price of divisions. Threads of x go along the last
loop, `vector` elements each, those of y along the loop before it, and a thread repeats what it does `unroll` times along one of
the loops: all loads first, or one iteration after another (`sequential`). What does not vary along that loop is loaded and
computed once for all iterations.

    parts (b, s, h, d)    loops ((h,), (b, s), (d,)): threads along d and along b * s, each of which may take several h

`PointwiseCosts` says what one asks for, `estimate` how long that takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from fuser.ir.device_info import WARP, DeviceInfo
from fuser.schedule.cost.estimate import Work
from fuser.schedule.cost.mapping_search import MappingSearch, Timed
from fuser.schedule.cost.pointwise_work import (
    BLOCKS,
    Loops,
    MappingGroup,
    PointwiseCosts,
    PointwiseMapping,
    PointwiseProblem,
    grid_of,
    loop_counts,
    needs_linear_grid,
)
from fuser.schedule.cost.rounding import ceil_div, power_of_two

COPY_BLOCK = 256
"""Threads of a block of a plain copy."""
TIED_BLOCK = 128
"""The same where estimates do not tell blocks apart: over 277 measured segments 3.0 % behind the best, 256 3.4 %."""
WIDES = (32, 64, 128, 256)
"""Threads along a part of the last loop."""
UNROLLS = (2, 4, 8)
"""Iterations of a thread, beside those that are all of a loop."""
MAX_WHOLE = 16
"""Iterations of a thread that has all of a loop: where along it each index reads something else, as of a concatenation, a
thread reads what all of them need, and tests nothing."""
MAX_UNALIGNED = 2
"""The same where accesses are misaligned: their tests make loads wait for one another (H200: of 17 segments two iterations take
1 % less than one, four 7 % more than two, eight 30 %)."""
TRIED_UNROLLS = (2, 4)
"""Those by which nests of loops are compared first."""
KEPT_NESTS, KEPT = 2, 1.25
"""Nests of loops of which more blocks and iterations are compared, and up to which time, of the best of the first."""


def _loop_nests(work: PointwiseProblem, vector: int) -> Iterator[Loops]:
    """Loops over all parts: each by itself, with any of them beside the last one; or the fastest ones merged with it."""
    count, lengths = len(work.lengths), work.lengths
    if work.is_one_run:
        yield (tuple(range(count)),)
        return
    yield tuple((p,) for p in range(count))
    for p in range(count - 2):
        if lengths[p] > 1:
            yield (*((q,) for q in range(count - 1) if q != p), (p,), (count - 1,))
    if not work.may_merge or count == 1:
        return
    columns = ceil_div(lengths[-1], vector)
    for first in range(count - 2, -1, -1):
        if first == 0 or columns * math.prod(lengths[first + 1 : -1]) < WARP:
            yield (*((p,) for p in range(first)), tuple(range(first, count)))


def _single_iterations(group: MappingGroup, device: DeviceInfo) -> Iterator[PointwiseMapping]:
    """Blocks of a nest of loops: all columns, or a power of two of them, and as many rows as there is room for."""
    counts, loops = group.counts, group.loops
    rows = counts[-2] if len(loops) > 1 else 1
    if len(loops) > 1 and 0 in loops[-2]:
        # The slowest dim differs from call to call: of few rows any number shares a kernel with others.
        rows = power_of_two(rows)
    seen: set[tuple[int, int]] = set()
    for threads in BLOCKS:
        wides = {n for n in WIDES if n <= threads and n < counts[-1]}
        if len(loops) == 1:
            wides = {threads}
        elif counts[-1] <= threads:
            wides.add(counts[-1])
        for wide in wides if threads <= device.max_threads_per_block else ():
            high = min(rows, 1 << (threads // wide).bit_length() >> 1)
            if (wide, high) not in seen:
                seen.add((wide, high))
                yield PointwiseMapping(group.vector, loops, wide, high, 1, min(1, len(loops) - 1))


def _iterations(
    group: MappingGroup, m: PointwiseMapping, unrolls: Sequence[int] = UNROLLS, *, along: int | None = None
) -> Iterator[PointwiseMapping]:
    """The same mapping with several iterations of a thread, along any loop or one of them."""
    work = group.work
    vector, loops, wide, high = m[:4]
    places = range(1, len(loops)) if len(loops) > 1 else (0,)
    for place in places if along is None else (along,):
        bits = sum(1 << p for p in loops[-1 - place])
        if work.is_peeled and any(
            s.spans[-1] and not any(s.spans[p] for p in loops[-1 - place]) for s in work.access_patterns
        ):
            # Each row is cut at places of its own: what rows have in common is read at others for each.
            continue
        is_shared = work.may_iterate and place > 0 and any(not parts & bits for parts, _ in work.computed)
        count = ceil_div(group.counts[-1 - place], wide if place == 0 else high if place == 1 else 1)
        most = min(count, count if work.may_merge else MAX_UNALIGNED)
        # The slowest dim differs from call to call.
        is_whole = place > 1 and most == count <= MAX_WHOLE and 0 not in loops[-1 - place]
        for unroll in sorted({*unrolls, count}) if is_whole else unrolls:
            if 1 < unroll <= most and unroll * vector <= work.most_elements:
                yield PointwiseMapping(vector, loops, wide, high, unroll, place)
                if is_shared:
                    yield PointwiseMapping(vector, loops, wide, high, unroll, place, sequential=True)


def pointwise_mappings(work: PointwiseProblem, device: DeviceInfo) -> Iterator[PointwiseMapping]:
    """All that fit on the device, one at least."""
    costs = PointwiseCosts(work, device)
    for vector in work.vectors:
        for loops in _loop_nests(work, vector):
            group = costs.mapping_group(vector, loops)
            for single in _single_iterations(group, device):
                for m in (single, *_iterations(group, single)):
                    if costs.resident_blocks(m):
                        yield m


def pointwise_work_of(work: PointwiseProblem, m: PointwiseMapping, device: DeviceInfo) -> Work:
    """What a mapping asks of the machine."""
    costs = PointwiseCosts(work, device)
    return costs.work_of(m, costs.resident_blocks(m))


def _compared_times(work: PointwiseProblem, device: DeviceInfo) -> Iterator[Timed[PointwiseMapping]]:
    """Times of mappings: of a middling block of each nest of loops, then of all blocks and iterations of the best nests."""
    costs = PointwiseCosts(work, device)
    found: dict[Loops, list[tuple[float, PointwiseMapping, list[PointwiseMapping]]]] = {}
    for vector in work.vectors:
        for loops in _loop_nests(work, vector):
            group = costs.mapping_group(vector, loops)
            singles = list(_single_iterations(group, device))
            middle = min(singles, key=lambda m: (abs(m.threads - COPY_BLOCK), -m.threads_x))
            best = min((middle, *_iterations(group, middle, TRIED_UNROLLS)), key=costs.time)
            found.setdefault(loops, []).append((costs.time(best), best, singles))
    least = min(t for nests in found.values() for t, *_ in nests)
    for nests in sorted(found.values(), key=lambda nests: min(t for t, *_ in nests))[:KEPT_NESTS]:
        for t, best, singles in nests:
            if t <= least * KEPT:
                _refine(costs, best, singles)
    return costs.timed()


def _refine(costs: PointwiseCosts, best: PointwiseMapping, singles: Sequence[PointwiseMapping]) -> None:
    """Ask for the times of mappings like one: other iterations, then other blocks with the best of these."""
    group, place = costs.mapping_group(best.vector, best.loops), best.unroll_loop
    alone = best._replace(unroll=1, sequential=False)
    best = min((best, alone, *_iterations(group, alone, along=place)), key=costs.time)
    for m in singles:
        for made in (m, *_iterations(group, m, (best.unroll,), along=place)) if best.unroll > 1 else (m,):
            if made.sequential is best.sequential:
                costs.time(made)


def _preference(work: PointwiseProblem, timed: Timed[PointwiseMapping], _: DeviceInfo) -> tuple[object, ...]:
    """The plainest, so that many sizes share a kernel."""
    m = timed[1]
    is_plain = m.loops == tuple((p,) for p in range(len(work.lengths)))
    is_apart = needs_linear_grid(grid_of(loop_counts(work, m.vector, m.loops), m))
    return (
        is_apart,
        not is_plain,
        -len(m.loops),
        -m.vector,
        m.sequential,
        m.unroll,
        abs(m.threads - TIED_BLOCK),
        -m.threads_x,
        m,
    )


def _words(_: PointwiseProblem, m: PointwiseMapping) -> str:
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


POINTWISE = MappingSearch(
    mappings=pointwise_mappings,
    work_of=pointwise_work_of,
    preference=_preference,
    heading=lambda _: (),
    words=_words,
    compared=_compared_times,
)
