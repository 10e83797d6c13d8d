"""Threads, blocks and unrolling of a reduction: a model of what keeps a memory-bound kernel at the limit.

What decides is the number of bytes that are on their way while nothing else happens (Little's law): bandwidth times latency,
about 45 KB for each SM of an H200. A thread therefore issues up to `unroll` accesses before it uses the first, and blocks
are as many as keep about half of the threads an SM can hold busy. All counts are rounded so coarsely that shapes that differ
in the number of rows share parameters: each parameter is part of the kernel's text.
"""

from __future__ import annotations

from fuser.ir.device_info import WARP, DeviceInfo
from fuser.schedule.cost.plan_columns import plan_columns
from fuser.schedule.cost.reduction_space import (
    BLOCK,
    LINE,
    LONG_BLOCK,
    MAX_UNROLL,
    RESIDENT,
    RESIDENT_HEAVY,
    THREAD_BYTES,
    ReductionPlan,
    Space,
    ceil_div,
    even_unroll,
    flight_words,
    most_in_flight,
    parts_of,
    power_of_two,
)

# Threads of a block that has a long row of a plain sum, and half turns that more of them must leave it (H200: f32
# 1072x250003 279 us with 256 threads, 268 with 512, 261.5 with 1024; bf16 2408x128256, padded, 154.9, 153.3 and 155.8).
_LONGEST_BLOCK, _LEAST_OF_LONGER = 1024, 7
# Threads along a long row whose elements of a step are held: more of them have fewer blocks beside them to wait in turn.
_HELD_BLOCK = 128
# Threads along a row of which there are few, and accesses of each.
_FEW, _FEW_WIDE, _FEW_ACCESSES = 1024, 256, 2
# Blocks of a cluster that share a reduction, and accesses of their threads in an iteration.
_MOST_CLUSTER = 16
_CLUSTER_ACCESSES = 7
# Accesses of one row of exponentials from which blocks post what they have to the last of them, and threads of those blocks, by
# how many there are (H200: losses f32 1x1000000 10.75 us over a cluster of sixteen, 7.75 over 128 blocks, bf16 1x65536 5.9 and
# 5.6).
_LEAST_POSTED, _POSTING = 8192, (256, 512)
# Turns of a block of such a cluster: of longer rows all SMs had better take parts.
_MOST_TURNS = 4
# Fewer blocks share a reduction by this factor each time the number of reductions grows by it.
_BUCKET = 8
# Instructions of a step of a join for a result, an exchange of lanes and what combines; and of warps that join through shared
# memory, with their barriers.
_JOIN_STEP, _BLOCK_JOIN = 3, 30
# What is done once a row counts from this part of what hides it on (one in so many).
_SHARE_OF_ONCE = 5
# Turns of a block that is one of two on its SM in turn.
_LEAST_TURNS = 4


def plan_reduction(space: Space, device: DeviceInfo) -> ReductionPlan:
    """The plan for a space. Pure arithmetic: it runs for every new shape."""
    if not space.inner:
        return plan_columns(space, device)
    if space.runs == 1:
        return _plan_inner(space, device)
    return _plan_planes(space, device)


def _plan_inner(space: Space, device: DeviceInfo) -> ReductionPlan:
    """Neighbouring threads take neighbouring vectors of a row."""
    steps = ceil_div(space.reduced, space.vector)
    unroll = most_in_flight(space)
    block = BLOCK
    few = device.sm_count * 2
    if space.held and steps > _HELD_BLOCK * unroll and unroll * 2 * space.bytes_per_step <= THREAD_BYTES:
        # A long row is worth more registers a thread: half as many threads wait for one another at its end.
        unroll, block = unroll * 2, _HELD_BLOCK
    per_thread = unroll * 2 if space.heavy else unroll
    while not (space.held or space.heavy) and space.kept > few and block < _LONGEST_BLOCK:
        # A long row is done sooner by more threads: what is left when the last blocks run is less.
        if steps * 2 < _LEAST_OF_LONGER * 2 * block * unroll:
            break
        block *= 2
    if space.held and space.kept <= few:
        # Each row has an SM for itself: what takes time is how long a thread is busy.
        block, per_thread = _FEW_WIDE if space.wide else _FEW, _FEW_ACCESSES
    elif space.wide and space.held:
        block = _HELD_BLOCK
    threads = power_of_two(ceil_div(steps, per_thread), 1, block)
    # A row that is no multiple of a line is best read by few threads, but never by so few that accesses spread over lines.
    # What comes behind a row is done by all of its threads: for sums of exponentials half a line will do.
    threads = max(threads, power_of_two(steps, 1, LINE // 2 if space.held else LINE))
    if space.kept <= few and not (space.held or space.heavy):
        # Where all rows are worked on at once, each thread waits for as few accesses as there are threads for.
        threads = max(threads, power_of_two(steps, 1, block))
    threads = _with_enough_to_do(space, device, steps, threads)
    reasons = [f"{steps} accesses a row, {unroll} in flight a thread: {threads} threads a row"]
    rows = 1
    if threads < block:
        rows = block // threads
        if space.kept < rows * device.sm_count:
            rows = max(1, WARP // threads)
        reasons.append(f"{rows} rows a block of {threads * rows} threads")
    blocks = ceil_div(space.kept, rows)
    grid, cluster = 1, 0
    if space.may_split and blocks < few and steps > LONG_BLOCK * unroll:
        threads, rows, blocks = _long_block(space), 1, space.kept
        cluster = _cluster_at_once(space, device, steps, unroll) if space.held else _cluster(space, device, steps)
        if cluster and space.held and space.kept == 1 and steps >= _LEAST_POSTED:
            threads = next((t for t in _POSTING if steps <= t * _FEW_ACCESSES * device.sm_count // 2), _POSTING[-1])
            grid = min(power_of_two(ceil_div(steps, threads * _FEW_ACCESSES), 1, device.sm_count), device.sm_count)
            cluster = 0
            reasons.append(f"1 row leaves SMs idle: {grid} blocks post what they have of it to the last one")
        elif cluster:
            grid, threads = cluster, BLOCK
            if space.held:
                each = _FEW_ACCESSES * (2 if space.wide else 1)
                threads = power_of_two(ceil_div(steps, cluster * each), _HELD_BLOCK, LONG_BLOCK)
            reasons.append(f"{blocks} rows leave SMs idle: the {grid} blocks of a cluster share one")
        else:
            grid = _sharing(space, device, blocks, steps, threads, unroll)
            reasons.append(f"{blocks} rows leave SMs idle: {grid} blocks share a row, the last one joins their results")
    iterations = ceil_div(steps, grid * threads)
    if grid > 1 and not cluster and iterations == 2 and not (space.heavy or space.held):
        # Half as many threads have fewer parts to join (H200: f32 1497x257 7.0 -> 6.4 us).
        threads, iterations = threads // 2, 2 * iterations
    even = cluster or grid == 1
    unroll = even_unroll(iterations, unroll) if even else min(unroll, power_of_two(iterations, 1, MAX_UNROLL))
    reasons.append(flight_words(space, device, unroll))
    return ReductionPlan(threads, rows, grid, unroll, tuple(reasons), cluster=cluster > 0)


def _with_enough_to_do(space: Space, device: DeviceInfo, steps: int, threads: int) -> int:
    """Threads of a row, fewer where the time that instructions take counts, and much of it is what all threads of a row do
    once: to join results, and to compute with them.

    Only as long as all rows have threads for all SMs. H200, us by threads: cosine embedding bf16 50021x768 62.8 (16), 79.9
    (32), 182 (64); triplet margin f16 30011x513 63 (32), 85 (64), 235 (128).
    """
    lanes = device.sm_count * device.rates.fp32 * device.rates.clock_ghz
    moving = space.kept * steps * space.bytes_per_step / device.memory_bytes_per_ns
    while threads > LINE and not space.held and space.kept * threads >= 2 * device.sm_count * RESIDENT:
        own = ceil_div(steps, threads) * space.vector * space.element_work
        each = _JOIN_STEP * (threads.bit_length() - 1) + (_BLOCK_JOIN if threads > WARP else 0)
        once = space.row_work + space.results * each
        if space.kept * threads * min(own + once, once * _SHARE_OF_ONCE) < moving * lanes / 2:
            break
        threads //= 2
    return threads


def _plan_planes(space: Space, device: DeviceInfo) -> ReductionPlan:
    """Reduced dims on both sides of kept ones (statistics of channels): threads of x along a plane, of y on other planes.

    One axis of all reduced dims would cost a division for every access.
    """
    steps = ceil_div(space.run, space.vector)
    planes = max(space.runs, 1)
    unroll = most_in_flight(space)
    block = power_of_two(ceil_div(steps * planes, unroll), WARP, _long_block(space))
    threads = power_of_two(max(ceil_div(steps, unroll), min(steps, WARP)), 1, block)
    others = min(block // threads, power_of_two(planes, 1, block))
    reasons = [f"{planes} planes of {steps} accesses: {threads} threads along a plane, {others} planes at a time"]
    grid, is_along = 1, False
    # Writing takes as many threads as a copy does.
    resident = RESIDENT if space.written and not space.heavy else LONG_BLOCK
    wanted = device.sm_count * max(1, resident // (threads * others))
    if space.may_split and space.kept * 2 <= wanted:
        parts = wanted // max(space.kept, 1)
        grid = parts_of(parts, planes, others)
        # Planes are too few for all SMs, if each part has some: each part has a piece of all planes then.
        busy, pieces = min(grid, ceil_div(planes, others)), parts_of(parts, steps, threads)
        is_along = busy * space.kept * 2 <= device.sm_count and pieces > busy
        grid = pieces if is_along else grid
        reasons.append(
            f"{space.kept} results leave SMs idle: {grid} blocks share one, the last one joins their results"
        )
    of_planes, of_plane = (1, grid) if is_along else (grid, 1)
    along = ceil_div(ceil_div(steps, of_plane), threads)
    outer = along * 2 <= unroll and ceil_div(ceil_div(planes, of_planes), others) > along
    if outer and of_planes == 1:
        unroll = min(unroll, power_of_two(ceil_div(planes, others), 1, MAX_UNROLL))
    elif not outer:
        unroll = even_unroll(along, unroll)
    reasons.append(flight_words(space, device, unroll))
    return ReductionPlan(threads, 1, grid, unroll, tuple(reasons), others, outer, grid_along=is_along)


def _long_block(space: Space) -> int:
    return BLOCK if space.heavy else LONG_BLOCK


def _wanted_blocks(space: Space, device: DeviceInfo, threads: int) -> int:
    """Twice the blocks that run at once: who is done early takes another."""
    resident = min(RESIDENT_HEAVY if space.heavy else RESIDENT, device.max_threads_per_sm)
    return device.sm_count * max(1, resident // threads) * 2


def _sharing(space: Space, device: DeviceInfo, blocks: int, steps: int, threads: int, unroll: int) -> int:
    """Blocks that share each of `blocks` rows of `steps` accesses.

    Two waves of them where each has much to do; else those that run at once, or fewer rather than threads without an access
    (H200: sum_all f32 51x5120 with 33 blocks 7.3 us, 64 6.7, 128 6.5; f64 803x7168 with 528 23.2, 264 21.5; f32 8192x8192 with
    264 76.1, 528 74.9).
    """
    wanted = _wanted_blocks(space, device, threads)
    if space.heavy or space.held:
        return min(_bucketed(wanted, blocks), parts_of(wanted, steps, threads * unroll))
    if steps >= _LEAST_TURNS * _bucketed(wanted, blocks) * threads * unroll:
        return _bucketed(wanted, blocks)
    at_once = _bucketed(wanted // 2, blocks)
    if steps >= 2 * at_once * threads:
        return at_once
    most = _bucketed(device.sm_count, blocks)
    return power_of_two(ceil_div(steps, threads), 1, most if blocks > 1 else 1 << (most.bit_length() - 1))


def _cluster(space: Space, device: DeviceInfo, steps: int) -> int:
    """Blocks of the clusters that share rows of `steps` accesses; 0 where that would leave SMs idle, or has no use.

    They join their parts through shared memory, without a last block: on an H200 a sum of 400 KB takes 6.0 us, with one 7.0.
    """
    most = min(_MOST_CLUSTER, device.max_cluster)
    wanted = 1
    while wanted < most and wanted * space.kept < 2 * device.sm_count:
        wanted *= 2
    iterations = ceil_div(steps, wanted * BLOCK * _CLUSTER_ACCESSES)
    return wanted if wanted > 1 and iterations <= 1 + (wanted * space.kept >= device.sm_count) else 0


def _cluster_at_once(space: Space, device: DeviceInfo, steps: int, unroll: int) -> int:
    """The same for sums of exponentials, whose blocks take an SM each: all of them are there at once. H200: f32 23x128256
    over 16 blocks a row, of which some came when others were done, 15.7 us."""
    wanted = 1
    while wanted * 2 <= min(_MOST_CLUSTER, device.max_cluster) and wanted * 2 * space.kept <= device.sm_count:
        wanted *= 2
    iterations = ceil_div(steps, wanted * LONG_BLOCK * unroll)
    # Half of the SMs read about as fast as all of them.
    is_busy = 2 * wanted * space.kept > device.sm_count
    return wanted if wanted > 1 and (is_busy or iterations <= _MOST_TURNS) else 0


def _bucketed(wanted: int, blocks: int) -> int:
    """Blocks that share one of `blocks` reductions, so that there are at least `wanted` in all; few values for all counts."""
    bucket = 1
    while bucket * _BUCKET <= blocks:
        bucket *= _BUCKET
    return max(1, wanted // bucket)
