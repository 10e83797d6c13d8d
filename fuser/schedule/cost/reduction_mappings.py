"""Mappings of reductions: which threads and blocks have which elements; what each of them asks of the machine.

A reduction is of contiguous `runs`, each of `accesses_per_run` accesses of `vector` elements. `along` threads of a block walk
along a run, each with `unroll` accesses before the first is used: an *iteration*. `across` threads have other results (columns
where the fastest dim is kept), `outer` threads other runs. `sharing` blocks have parts of one reduction: a cluster joins them
through shared memory, else the last block does, from device memory.

`reduction_mappings` enumerates what fits, `reduction_work_of` says what one asks for, `estimate` how long that takes. Counts of
code that are not in `code_costs` were fitted to two thirds of 104 reductions on an H200, to earlier times than
`benchmarks/data` has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from fuser.ir.device_info import BURST_BYTES, LINE_BYTES, REGISTER_BYTES, WARP, DeviceInfo
from fuser.schedule.cost.accesses_per_thread import even_unroll
from fuser.schedule.cost.code_costs import (
    ACCESS,
    BLOCK_EXCHANGE,
    DEPENDENT,
    JOIN,
    LOADED,
    LOOKUP,
    MISSED,
    OPERATION,
    ROW,
    STATISTICS_STEP,
    WARP_JOINS,
    WHOLE_ROW,
    operations_of,
)
from fuser.schedule.cost.estimate import TimeModel, Work
from fuser.schedule.cost.mapping_search import MappingSearch, Timed, times_within_bounds
from fuser.schedule.cost.occupancy import fitting_blocks
from fuser.schedule.cost.reduction_space import ReductionSpace
from fuser.schedule.cost.rounding import ceil_div, power_of_two
from fuser.schedule.cost.scratch_budget import scratch_bytes

CUT = 8.5
"""Instructions for an element of an access that the ends of a row may cut: its test."""
CLUSTER_EXCHANGE = 0.6
"""Time of a cluster that begins and exchanges once, as a share of that of clusters that exchange statistics."""
COUNTED = 0.4
"""Atomic operations on one counter that are waited for, for each block."""
EDGES, EVEN_EDGES = 0.5, 0.28
"""Bursts that a block moves beside its own for each run of its accesses: where rows are misaligned, and where they are
multiples of a sector."""

OWN_REGISTERS = 20
"""Registers of a thread for addresses and counters."""

BLOCKS = (64, 128, 256, 512, 1024)
"""Threads of a block."""
UNROLLS = (1, 2, 4, 8, 16)
"""Accesses of an iteration, at most."""
MIDDLING_BLOCK, MIDDLING_UNROLL = 512, 4
"""Of these: what is proposed where estimates do not tell."""
CLUSTERS = (4, 8, 16)
"""Blocks of a cluster."""
PLACES = (1, 2, 4)
"""Blocks of an SM that may share reductions."""
SHARING_THREADS = (256, 128)
"""Threads of a block, at least, that shares reductions: of columns, and of rows."""
COLUMNS = (4, 8, 16, 32, 64, 128, 256)
"""Threads along the kept dims, where the fastest dim is one of them."""
MAX_JOINED = 16
"""Threads whose means and sums of squares are joined one after another, in shared memory: each rounds, and the variance of 1003
Doubles by 256 threads was off by 9 ulp, by 16 by 2."""
MIN_ALONG = 4
"""Threads along a row that has as many accesses: fewer would read pieces of lines."""


class ReductionMapping(NamedTuple):
    """See the head of this module. `resident` blocks fit on an SM.

    outer          0: runs are no loop of their own
    unroll_outer   the accesses of an iteration are of several runs
    grid_along     blocks have parts of all runs, and not some of the runs
    """

    along: int
    across: int
    outer: int = 0
    sharing: int = 1
    unroll: int = 1
    unroll_outer: bool = False
    grid_along: bool = False
    cluster: bool = False
    resident: int = 1

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.along * self.across * (self.outer or 1)


_WorkOf = Callable[[ReductionMapping, int], Work]
"""Of mappings, with so many blocks on an SM."""


def reduction_mappings(space: ReductionSpace, device: DeviceInfo) -> Iterator[ReductionMapping]:
    """All mappings that fit on the device, one at least."""
    for m in _single_accesses(space, device):
        yield from _with_unrolls(space, m, device)


def _single_accesses(space: ReductionSpace, device: DeviceInfo) -> Iterator[ReductionMapping]:
    """All ways to have blocks, with a single access an iteration."""
    blocks = [b for n in BLOCKS if n <= device.max_threads_per_block for b in _blocks(space, n)]
    blocks = [b for b in blocks if _fits_in_shared_memory(space, *b, device)]
    for along, beside, outer in blocks or (_smallest(space, device),):
        for sharing, grid_along, cluster in _blocks_per_reduction_choices(space, device, along, beside, outer):
            yield ReductionMapping(along, beside, outer, sharing, 1, False, grid_along, cluster)


def _with_unrolls(space: ReductionSpace, m: ReductionMapping, device: DeviceInfo) -> Iterator[ReductionMapping]:
    """The same blocks with any number of accesses an iteration, as many of them as fit on an SM."""
    blocks, shared, threads = m[:4], m[6:8], m.threads
    for unroll, unroll_outer in _unrolls(space, m):
        resident = reduction_resident_blocks(space, threads, unroll, device)
        if resident:
            yield ReductionMapping(*blocks, unroll, unroll_outer, *shared, resident)


def _fits_in_shared_memory(space: ReductionSpace, along: int, beside: int, outer: int, device: DeviceInfo) -> bool:
    """Whether what the threads of a block join fits in its shared memory."""
    width = 1 if space.inner else space.vector
    return scratch_bytes(space.joined, beside, along * max(1, outer), width) <= device.shared_per_block_optin


def _smallest(space: ReductionSpace, device: DeviceInfo) -> tuple[int, int, int]:
    """The block of a warp or less for segments of hundreds of results, of which few threads have room for theirs."""
    along, outer = min(WARP, power_of_two(space.accesses_per_run)), 1 if space.has_runs else 0
    while along > 1 and not _fits_in_shared_memory(space, along, 1, outer, device):
        along //= 2
    return along, 1, outer


BUSY = 0.9
"""Of the SMs, how many have a block where none should be idle."""


def _likely_times(space: ReductionSpace, device: DeviceInfo) -> Iterator[Timed[ReductionMapping]]:
    """Times of mappings, without asking for those of mappings that surely take longer than others."""
    singles = list(_single_accesses(space, device))
    resident = {n: max(1, reduction_resident_blocks(space, n, 1, device)) for n in {m.threads for m in singles}}
    works = [_work_of_block(space, m, device) for m in singles]
    model = TimeModel(device)
    bounds = [
        _least_time(space, work_of(m, resident[m.threads]), device, model)
        for work_of, m in zip(works, singles, strict=True)
    ]

    def times_of(place: int) -> Iterator[Timed[ReductionMapping]]:
        for m in _with_unrolls(space, singles[place], device):
            yield model.total(works[place](m, m.resident)), m

    return times_within_bounds(bounds, times_of, lambda place: _rank(space, singles[place], device), device)


def _preference(space: ReductionSpace, timed: Timed[ReductionMapping], device: DeviceInfo) -> tuple[object, ...]:
    """One that leaves no SM idle, with few blocks that share a result, and a middling block: many sizes share a kernel."""
    _, m = timed
    return *_rank(space, m, device), abs(m.unroll - MIDDLING_UNROLL), m


def _rank(space: ReductionSpace, m: ReductionMapping, device: DeviceInfo) -> tuple[object, ...]:
    is_idle = _blocks_of(space, m) < device.sm_count * BUSY
    return is_idle, m.sharing, abs(m.threads - MIDDLING_BLOCK)


def _blocks_of(space: ReductionSpace, m: ReductionMapping) -> int:
    """Blocks of the grid."""
    return ceil_div(space.output_accesses, m.across) * m.sharing


def _words(_: ReductionSpace, m: ReductionMapping) -> str:
    """A mapping in words."""
    words = [f"{m.along} threads along what is reduced with {m.unroll} accesses an iteration"]
    words += [f"{m.outer} along its runs"] if m.outer > 1 else []
    words += [f"{m.across} beside"] if m.across > 1 else []
    if m.sharing > 1:
        words.append(f"a cluster of {m.sharing} blocks" if m.cluster else f"{m.sharing} blocks a result")
    return ", ".join(words)


def _blocks(space: ReductionSpace, threads: int) -> Iterator[tuple[int, int, int]]:
    """(along, beside, outer) of blocks of so many threads, all of which have something to do: but for those of the smallest
    block, which any number of results shares."""
    steps, units = power_of_two(space.accesses_per_run), power_of_two(space.output_accesses)
    is_least = threads == BLOCKS[0]
    if not space.inner:
        least = threads // steps if is_least else 0
        for beside in [n for n in COLUMNS if n <= max(units, least) and n <= threads] or [units]:
            along = threads // beside
            if along <= steps and not (space.statistics and space.exact and along > MAX_JOINED):
                yield along, beside, 0
        return
    pieces = power_of_two(space.run_count)
    most = threads if is_least and not space.reduces_rows else min(threads, steps)
    along = most
    while along >= min(MIN_ALONG, steps):
        rest = threads // along
        if rest <= (pieces if space.has_runs else units) or (is_least and along == most):
            yield (along, 1, rest) if space.has_runs else (along, rest, 0)
        along //= 2


def _blocks_per_reduction_choices(
    space: ReductionSpace, device: DeviceInfo, along: int, beside: int, outer: int
) -> Iterator[tuple[int, bool, bool]]:
    """(sharing, grid_along, cluster)."""
    yield 1, False, False
    blocks, threads = ceil_div(space.output_accesses, beside), along * beside * max(1, outer)
    if not space.may_split or (space.inner and beside > 1) or blocks >= 2 * device.sm_count:
        return
    if threads < SHARING_THREADS[space.inner]:
        return
    places = device.max_threads_per_sm // threads
    wanted = {device.sm_count * n // blocks for n in PLACES if n <= max(1, places)}
    if space.reduces_rows:
        # Few rows are any number of them.
        wanted = {1 << n.bit_length() >> 1 for n in wanted}
    of_run, of_runs = ceil_div(space.accesses_per_run, along), ceil_div(space.run_count, max(1, outer))
    for grid_along, iterations in ((False, of_runs), (True, of_run)) if outer else ((False, of_run),):
        for sharing in sorted({min(n, iterations) for n in wanted}):
            if sharing > 1:
                yield sharing, grid_along, False
    if space.inner and not outer:
        for sharing in CLUSTERS:
            if sharing <= of_run and device.clusters(sharing) >= 1:
                yield sharing, False, True


def _accesses_per_thread(space: ReductionSpace, m: ReductionMapping) -> tuple[int, int]:
    """Accesses of a thread along a run, and its runs."""
    along, outer = space.accesses_per_run, space.run_count
    if m.grid_along or not m.outer:
        along = ceil_div(along, m.sharing)
    else:
        outer = ceil_div(outer, m.sharing)
    return ceil_div(along, m.along), ceil_div(outer, max(1, m.outer))


def _unrolls(space: ReductionSpace, m: ReductionMapping) -> Iterator[tuple[int, bool]]:
    along, outer = _accesses_per_thread(space, m)
    for unroll in _unrolls_of(space, along):
        yield unroll, False
    if m.outer and outer > 1:
        for unroll in _unrolls_of(space, outer):
            if unroll > 1:
                yield unroll, True


def _unrolls_of(space: ReductionSpace, steps: int) -> list[int]:
    """Accesses of an iteration for a thread that makes about so many."""
    most = (min(u, space.most_unroll) for u in UNROLLS)
    return sorted({even_unroll(steps, n) if space.reduces_rows else min(n, power_of_two(steps)) for n in most})


def reduction_resident_blocks(space: ReductionSpace, threads: int, unroll: int, device: DeviceInfo) -> int:
    """Blocks that an SM holds; 0 where threads would not have their registers."""
    registers = OWN_REGISTERS + unroll * space.held
    registers += (space.partials + ceil_div(space.written, REGISTER_BYTES)) * space.vector
    registers += unroll * space.vector if space.exponentials else 0
    # Some mapping has to be there: a small block spills least.
    return max(int(threads <= BLOCKS[0] and unroll == 1), fitting_blocks(threads, registers, device))


def _work_of_block(space: ReductionSpace, m: ReductionMapping, device: DeviceInfo) -> _WorkOf:
    """What mappings ask of the machine that differ from one in nothing but the accesses of an iteration."""
    cycle, latencies = device.cycle, device.latencies
    warps = ceil_div(m.threads, WARP)
    blocks = _blocks_of(space, m)
    # What is computed from indices alone moves nothing.
    size = max(1, space.bytes_per_step + space.vector * space.written)
    side_by_side = space.accesses_side_by_side(m.along, m.across)
    lanes = min(side_by_side, WARP)
    edges = EDGES if space.sector_misaligned or space.misaligned else EVEN_EDGES
    moved = space.kept * space.reduced / blocks * size / space.vector
    moved *= 1.0 + edges * BURST_BYTES / (side_by_side * min(size, device.max_access_bytes))
    read = moved * space.bytes_per_step / size
    fetched = read * max(
        1 / space.reuse, MISSED * space.l1_miss_fraction(m.across * (1 if space.inner else space.vector))
    )
    operations = operations_of(space.element_work, device, is_double=space.exact)
    is_cut = space.inner and space.misaligned
    of_access = space.vector * (operations * OPERATION + (CUT if is_cut else 0.0)) + ACCESS
    joined = space.results * (1 if space.inner else space.vector)
    # Results are joined side by side, but not altogether.
    at_once = math.sqrt(joined)
    joining = m.along * max(1, m.outer)
    join_steps = math.log2(joining)
    latency = space.vector * operations * DEPENDENT + LOADED * space.bytes_per_step / device.max_access_bytes
    epilogue = WHOLE_ROW + STATISTICS_STEP * join_steps * at_once
    if joining > WARP or (joining > 1 and not space.inner):
        epilogue += WARP_JOINS * warps * at_once + BLOCK_EXCHANGE * device.block_exchange / cycle
    epilogue_us = epilogue * cycle + latencies.dram_ns / 1e3
    start = 0.0
    if m.cluster:
        epilogue_us += CLUSTER_EXCHANGE * device.cluster_exchange(m.sharing)
        start = CLUSTER_EXCHANGE * device.cluster_start
    elif m.sharing > 1:
        # The last block has the parts of all.
        start = device.grid_exchange(0) + STATISTICS_STEP * cycle * m.sharing * joined / joining
        epilogue_us += COUNTED * latencies.atomic_ns * blocks / 1e3
    once = joined * JOIN * join_steps + ROW + space.row_work
    warp_accesses, lines = WARP // lanes, max(1.0, lanes * size / LINE_BYTES)
    all_moved = moved - read + read / space.reuse + space.kept * space.stored / blocks
    all_cached = fetched - read / space.reuse if space.reuse > 1 else 0.0

    def work_of(m: ReductionMapping, resident: int) -> Work:
        along, outer = _accesses_per_thread(space, m)
        unrolled, other = (outer, along) if m.unroll_outer else (along, outer)
        iterations = ceil_div(unrolled, m.unroll) * other
        return Work(
            blocks=blocks,
            resident=resident,
            cluster=m.sharing if m.cluster else 1,
            iterations=iterations,
            warps=warps,
            moved=all_moved / iterations,
            cached=all_cached / iterations,
            instructions=m.unroll * of_access + once / iterations,
            lines=m.unroll * warp_accesses * lines * LOOKUP,
            latency=m.unroll * latency * cycle + latencies.dram_ns / 1e3,
            epilogue_us=epilogue_us,
            start=start,
        )

    return work_of


def reduction_work_of(space: ReductionSpace, m: ReductionMapping, device: DeviceInfo) -> Work:
    """What a mapping asks of the machine."""
    return _work_of_block(space, m, device)(m, m.resident)


def _least_time(space: ReductionSpace, single: Work, device: DeviceInfo, model: TimeModel) -> float:
    """Microseconds that blocks take at least with any number of accesses an iteration, and no more of them on an SM.

    With a single access nothing is read that nobody needs, the first iteration is the shortest, and a thread has the fewest
    registers. But memory is waited for in each iteration.
    """
    fewest = ceil_div(single.iterations, min(UNROLLS[-1], space.most_unroll))
    return model.least(single, device.latencies.dram_ns / 1e3 * (1 - fewest / single.iterations))


REDUCTIONS = MappingSearch(
    mappings=reduction_mappings,
    work_of=reduction_work_of,
    preference=_preference,
    heading=lambda s: (f"{s.kept} results of {s.reduced} elements, in accesses of {s.vector}",),
    words=_words,
    likely=_likely_times,
)
