"""Threads, blocks and unrolling of a reduction: a model of what keeps a memory-bound kernel at the limit.

What decides is the number of bytes that are on their way while nothing else happens (Little's law): bandwidth times latency,
about 45 KB for each SM of an H200. A thread therefore issues up to `unroll` accesses before it uses the first, and blocks
are as many as keep about half of the threads an SM can hold busy. All counts are rounded so coarsely that shapes that differ
in the number of rows share parameters: each parameter is part of the kernel's text.
"""

from __future__ import annotations

from fuser.ir.device_info import DeviceInfo
from fuser.records import record

# Bytes a thread asks for at once: 1024 threads of an SM then have three times the bytes of Little's law on their way, so that
# some may compute and some may wait for others meanwhile.
_THREAD_BYTES = 128
_MAX_UNROLL = 16
_LATENCY_NS = 1400.0
_BLOCK = 256
_LONG_BLOCK = 512
# Threads of a block that has a long row of a plain sum, and half turns that more of them must leave it (H200: f32
# 1072x250003 279 us with 256 threads, 268 with 512, 261.5 with 1024; bf16 2408x128256, padded, 154.9, 153.3 and 155.8).
_LONGEST_BLOCK, _LEAST_OF_LONGER = 1024, 7
# Threads along a long row whose elements of a step are held: more of them have fewer blocks beside them to wait in turn.
_HELD_BLOCK = 128
# Threads along a row of which there are few, and accesses of each.
_FEW, _FEW_WIDE, _FEW_ACCESSES = 1024, 256, 2
# Threads of an SM that run at once: those of Welford hold about twice the registers, and their blocks are smaller, so that some
# compute while others wait.
RESIDENT = 1024
_RESIDENT_HEAVY = 512
# Columns that a warp covers: 32 accesses of 16 bytes are one run of 512 bytes.
_WARP = 32
# Neighbouring threads whose accesses of 16 bytes make up a line of memory.
_LINE = 8
_LINE_BYTES = 128
# Rows that one thread has on their way at once, whatever its accesses, and those that threads take side by side where columns
# are few.
FEW_ROWS = 16
_ROWS_OF_FEW = 4
# Turns of a block that take as long as sharing the work with others, of plain sums and of statistics or sums in Double.
_TURNS = 2.5
_TURNS_OF_HEAVY = 4.5
# Threads along the rows of statistics that are done in a turn, and rows that are so few.
_BRIEF_THREADS = 16
BRIEF_ROWS = _BRIEF_THREADS * _MAX_UNROLL
# Bytes of an access so short that a thread has statistics of few columns, and accesses of such threads at once.
_SHORT_ACCESS = 4
_SHORT_UNROLL = 8
# Blocks of a cluster that share a reduction, and accesses of their threads in a turn.
_MOST_CLUSTER = 16
_CLUSTER_ACCESSES = 7
# Turns of a block of such a cluster: of longer rows all SMs had better take parts.
_MOST_TURNS = 4
# Fewer blocks share a reduction by this factor each time the number of reductions grows by it.
_BUCKET = 8
# And by this one each time there is too little for as many.
_FEWER = 4
# Blocks of a sum of all elements that have a turn each: so many or more, and no more.
_LEAST_OF_ONE_TURN, _MOST_OF_ONE_TURN = 2048, 1 << 15
# Accesses of a thread to a row that lies apart from others, least threads along parts of one, and rows that blocks share
# rather than their parts: no fewer than SMs by this factor.
_MANY_ACCESSES, _LEAST_ALONG, _ROWS_APART = 4, 64, 2
# Turns of a block that is one of two on its SM in turn.
_LEAST_TURNS = 4


@record
class Space:
    """What is reduced. Counts in elements.

    inner           the fastest dim is reduced
    kept, reduced   number of reductions, and elements of each
    run             elements of the reduced dims that are neighbours in memory up to the fastest one
    vector          elements of one access
    bytes_per_step  bytes of one access to every full-size input
    heavy           the combining step costs more than an access (Welford): threads should reduce much before they combine
    may_split       several blocks may share one reduction
    exact           sums carry along what rounding loses, in Double
    held            elements of a step that a thread may hold widened, beside those on their way (sums of exponentials)
    wide            what is held are Doubles, whose exponentials take longer than their bytes
    misaligned      accesses begin anywhere: each of them is two
    is_plain        one sum or extreme of aligned accesses: those on their way are most of the registers of a thread
    brief           statistics of so few rows that a thread sees its own in one turn, of short accesses
    """

    inner: bool
    kept: int
    reduced: int
    run: int
    vector: int
    bytes_per_step: int
    heavy: bool
    may_split: bool
    held: int = 0
    wide: bool = False
    exact: bool = False
    misaligned: bool = False
    is_plain: bool = False
    brief: bool = False


@record
class ReductionPlan:
    """See ReductionParams."""

    block_reduce: int
    block_iterate: int
    grid_reduce: int
    unroll: int
    reasons: tuple[str, ...]
    block_outer: int = 0
    unroll_outer: bool = False
    cluster: bool = False
    is_few: bool = False
    one_turn: bool = False
    grid_along: bool = False


def plan_reduction(space: Space, device: DeviceInfo) -> ReductionPlan:
    """The plan for a space. Pure arithmetic: it runs for every new shape."""
    if not space.inner:
        return _plan_outer(space, device)
    if space.run >= space.reduced:
        return _plan_inner(space, device)
    if space.kept == 1 and space.may_split and not (space.heavy or space.held):
        return _plan_all(space, device)
    return _plan_planes(space, device)


def _plan_inner(space: Space, device: DeviceInfo) -> ReductionPlan:
    """Neighbouring threads take neighbouring vectors of a row."""
    steps = ceil_div(space.reduced, space.vector)
    unroll = _most_in_flight(space)
    block = _BLOCK
    few = device.sm_count * 2
    if space.held and steps > _HELD_BLOCK * unroll and unroll * 2 * space.bytes_per_step <= _THREAD_BYTES:
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
    threads = max(threads, power_of_two(steps, 1, _LINE // 2 if space.held else _LINE))
    if space.kept <= few and not (space.held or space.heavy):
        # Where all rows are worked on at once, each thread waits for as few accesses as there are threads for.
        threads = max(threads, power_of_two(steps, 1, block))
    reasons = [f"{steps} accesses a row, {unroll} in flight a thread: {threads} threads a row"]
    rows = 1
    if threads < block:
        rows = block // threads
        if space.kept < rows * device.sm_count:
            rows = max(1, _WARP // threads)
        reasons.append(f"{rows} rows a block of {threads * rows} threads")
    blocks = ceil_div(space.kept, rows)
    grid, cluster = 1, 0
    if space.may_split and blocks < few and steps > _LONG_BLOCK * unroll:
        threads, rows, blocks = _long_block(space), 1, space.kept
        cluster = _cluster_at_once(space, device, steps, unroll) if space.held else _cluster(space, device, steps)
        if cluster:
            grid, threads = cluster, _BLOCK
            if space.held:
                each = _FEW_ACCESSES * (2 if space.wide else 1)
                threads = power_of_two(ceil_div(steps, cluster * each), _HELD_BLOCK, _LONG_BLOCK)
            reasons.append(f"{blocks} rows leave SMs idle: the {grid} blocks of a cluster share one")
        else:
            grid = _sharing(space, device, blocks, steps, threads, unroll)
            reasons.append(f"{blocks} rows leave SMs idle: {grid} blocks share a row, the last one joins their results")
    if grid > 1 and space.kept == 1 and not (cluster or space.heavy or space.held):
        of_one_turn = ceil_div(steps, threads * unroll)
        if _LEAST_OF_ONE_TURN <= of_one_turn <= _MOST_OF_ONE_TURN:
            # No block waits for reads of a second turn (H200: f32 8192x8192 74 -> 70 us, bf16 100003x3072 151.6 -> 149.4).
            reasons.append(f"{of_one_turn} of them, so that each has one turn")
            return ReductionPlan(threads, rows, 2, unroll, tuple(reasons), one_turn=True)
    turns = ceil_div(steps, grid * threads)
    if grid > 1 and not cluster and turns == 2 and not (space.heavy or space.held):
        # Half as many threads have fewer parts to join (H200: f32 1497x257 7.0 -> 6.4 us).
        threads, turns = threads // 2, 2 * turns
    is_streamed = space.held and space.kept > few and grid == 1 and threads == block
    whole = _whole_trips(steps, threads, unroll) if is_streamed else None
    if whole is not None:
        threads, unroll = whole
        reasons.append(f"{threads} threads of {unroll} accesses: every trip is whole")
    else:
        even = cluster or grid == 1
        unroll = _even_unroll(turns, unroll) if even else min(unroll, power_of_two(turns, 1, _MAX_UNROLL))
    reasons.append(_flight_words(space, device, unroll))
    two_waves = grid > 1 and not cluster and grid >= _bucketed(_wanted_blocks(space, device, threads), blocks)
    # What is held takes many registers: where all SMs have a block of their own, there must be room for a second.
    at_once = blocks * grid <= device.sm_count if space.held else grid > 1 or space.kept <= few
    is_few = not (two_waves or space.heavy) and (at_once or _is_full(space, unroll))
    return ReductionPlan(threads, rows, grid, unroll, tuple(reasons), cluster=cluster > 0, is_few=is_few)


def _plan_planes(space: Space, device: DeviceInfo) -> ReductionPlan:
    """Reduced dims on both sides of kept ones (statistics of channels): threads of x along a plane, of y on other planes.

    One axis of all reduced dims would cost a division for every access.
    """
    steps = ceil_div(space.run, space.vector)
    planes = space.reduced // max(space.run, 1)
    unroll = _most_in_flight(space)
    block = power_of_two(ceil_div(steps * planes, unroll), _WARP, _long_block(space))
    threads = power_of_two(max(ceil_div(steps, unroll), min(steps, _WARP)), 1, block)
    others = min(block // threads, power_of_two(planes, 1, block))
    reasons = [f"{planes} planes of {steps} accesses: {threads} threads along a plane, {others} planes at a time"]
    grid = 1
    wanted = device.sm_count * max(1, _LONG_BLOCK // (threads * others))
    if space.may_split and space.kept * 2 <= wanted:
        grid = _parts(wanted // max(space.kept, 1), planes, others)
        reasons.append(
            f"{space.kept} results leave SMs idle: {grid} blocks share one, the last one joins their results"
        )
    along = ceil_div(steps, threads)
    outer = along * 2 <= unroll and ceil_div(ceil_div(planes, grid), others) > along
    if outer and grid == 1:
        unroll = min(unroll, power_of_two(ceil_div(planes, others), 1, _MAX_UNROLL))
    elif not outer:
        unroll = _even_unroll(along, unroll)
    reasons.append(_flight_words(space, device, unroll))
    return ReductionPlan(threads, 1, grid, unroll, tuple(reasons), others, outer)


def _plan_all(space: Space, device: DeviceInfo) -> ReductionPlan:
    """One sum of rows that lie apart in memory: blocks take some rows each, or parts of all rows where those are few."""
    steps = ceil_div(space.run, space.vector)
    rows = space.reduced // max(space.run, 1)
    unroll = _most_in_flight(space)
    most = 2 * device.sm_count
    # Blocks of little data have fewer threads to join (H200: f64 702x1024 padded 8.4 us with 512 threads, 8.0 with 256).
    block = _LONG_BLOCK if rows * steps >= most * _LONG_BLOCK * unroll else _BLOCK
    threads = power_of_two(ceil_div(steps, _MANY_ACCESSES), _WARP, block)
    others = min(block // threads, power_of_two(rows, 1, block))
    trips = ceil_div(rows, others * most)
    grid, is_along = ceil_div(rows, others * trips), False
    if grid * _ROWS_APART < device.sm_count:
        threads = power_of_two(ceil_div(steps, most), _WARP, block // power_of_two(rows, 1, block // _LEAST_ALONG))
        others = min(block // threads, power_of_two(rows, 1, block))

        def idle(count: int) -> int:
            """Accesses that the threads of so many blocks have time for."""
            return count * ceil_div(ceil_div(steps, count), threads) * threads

        grid, is_along = min((device.sm_count, most), key=idle), True
    reasons = [f"{rows} rows apart, of {steps} accesses: {threads} threads along a row, {others} rows at a time"]
    reasons.append(
        f"{grid} blocks have {'parts of all rows' if is_along else 'some rows'}, the last one joins their results"
    )
    unroll = _even_unroll(ceil_div(ceil_div(steps, grid if is_along else 1), threads), unroll)
    reasons.append(_flight_words(space, device, unroll))
    return ReductionPlan(threads, 1, grid, unroll, tuple(reasons), others, is_few=grid <= most, grid_along=is_along)


def _plan_outer(space: Space, device: DeviceInfo) -> ReductionPlan:
    """Neighbouring threads take neighbouring columns, the others of a block other rows."""
    columns = ceil_div(space.kept, space.vector)
    if space.reduced <= FEW_ROWS:
        return _plan_few_rows(space, device, columns)
    unroll = _most_in_flight(space)
    if space.heavy and space.bytes_per_step <= _SHORT_ACCESS:
        unroll = min(unroll, _SHORT_UNROLL)
    if space.brief:
        return _plan_brief(space, device, columns)
    across = power_of_two(columns, 1, _WARP)
    wanted, may_split = device.sm_count, space.may_split
    if ceil_div(columns, across) * 5 < wanted * 4:
        alone = _alone(space, device, columns, unroll)
        if alone:
            across, may_split = alone, False
        elif space.heavy:
            across = _narrow(space, columns, across, wanted)
        elif not space.misaligned:
            across = min(across, _WARP // 2)
    most = _LONG_BLOCK // across
    along = power_of_two(ceil_div(space.reduced, unroll), 1, most)
    # Numbers of rows that are not far apart share a kernel.
    is_full = may_split is not space.may_split and along * 4 > most and ceil_div(columns, across) < wanted
    along = most if is_full else max(along, _WARP // across)
    blocks = max(1, ceil_div(columns, across))
    grid = 1
    is_short = space.bytes_per_step <= _SHORT_ACCESS
    if may_split and blocks < wanted:
        # Two blocks on an SM, so that none is without one: not where a thread has statistics of many columns in its registers.
        alone = (space.heavy and not is_short) or space.misaligned or blocks * 10 >= wanted * 9
        resident = 1 if alone else RESIDENT // _LONG_BLOCK
        grid = _parts(max(1, wanted * resident // blocks), space.reduced, along * unroll)
        unroll = max(1, unroll // resident) if grid > 1 and not space.heavy else unroll
        if grid > 1 and grid * along * unroll > 2 * space.reduced:
            unroll = max(1, unroll // 2)
        of_thread = ceil_div(ceil_div(space.reduced, grid), along)
        if space.heavy and is_short and grid > 1 and unroll < of_thread <= _MAX_UNROLL:
            # One turn rather than two (H200: bf16 6230x257 8.35 -> 7.9 us).
            unroll = of_thread + of_thread % 2
    reasons = [f"{columns} accesses a row: {across} threads along the kept dims, {along} along the reduced ones"]
    if grid > 1:
        reasons.append(
            f"{blocks} blocks of columns leave SMs idle: {grid} blocks share one, the last one joins their results"
        )
    if grid == 1 and not is_full and space.heavy and not is_short:
        unroll = _even_unroll(ceil_div(space.reduced, along), unroll)
    elif grid == 1 and not is_full:
        unroll = min(unroll, power_of_two(ceil_div(space.reduced, along), 1, _MAX_UNROLL))
    reasons.append(_flight_words(space, device, unroll))
    return ReductionPlan(along, across, grid, unroll, tuple(reasons), is_few=_is_full(space, unroll))


def _plan_few_rows(space: Space, device: DeviceInfo, columns: int) -> ReductionPlan:
    """All rows of a column at once by one thread, or by a few where that would be few threads."""
    along = 1
    while along * _ROWS_OF_FEW < space.reduced and 2 * along * columns <= device.sm_count * _BLOCK:
        along *= 2
    across = max(1, power_of_two(ceil_div(columns, device.sm_count), _WARP, _BLOCK) // along)
    across = power_of_two(columns, 1, max(across, _WARP))
    unroll = _even_unroll(ceil_div(space.reduced, along), _MAX_UNROLL)
    reasons = (
        f"{space.reduced} rows of {columns} accesses: {across} threads along the kept dims, {along} along the reduced ones",
        _flight_words(space, device, unroll),
    )
    return ReductionPlan(along, across, 1, unroll, reasons)


def _plan_brief(space: Space, device: DeviceInfo, columns: int) -> ReductionPlan:
    """Statistics of few rows and little data: a turn of sixteen threads for each column, with short accesses, so that threads
    have few results to join, one after another (H200: f32 144x7168 7.6 -> 6.9 us, f64 167x1000 7.1 -> 6.6)."""
    across = _LINE if ceil_div(columns, 2 * _LINE) < device.sm_count else 2 * _LINE
    unroll = _even_unroll(ceil_div(space.reduced, _BRIEF_THREADS), _MAX_UNROLL)
    reasons = (
        f"{space.reduced} rows of {columns} accesses: {across} threads along the kept dims, {_BRIEF_THREADS} along the others",
        _flight_words(space, device, unroll),
    )
    return ReductionPlan(_BRIEF_THREADS, across, 1, unroll, reasons)


def _alone(space: Space, device: DeviceInfo, columns: int, unroll: int) -> int:
    """Accesses side by side in a block that has all of its columns' rows to itself, though SMs stay idle; 0 where several
    blocks should share them.

    Blocks that publish, wait for the last one and join take as long as some turns of a block.
    """
    line = _line(space)
    across = line if ceil_div(columns, line) * 4 >= device.sm_count else max(1, line // 2)
    turns = space.reduced / (unroll * (_LONG_BLOCK // across))
    most = _TURNS_OF_HEAVY if space.heavy or space.exact else _TURNS
    return across if turns <= most and across <= columns else 0


def _line(space: Space) -> int:
    """Neighbouring threads whose accesses make up a line of memory, or a warp."""
    return min(_WARP, max(_LINE, _LINE_BYTES // max(1, space.bytes_per_step)))


def _narrow(space: Space, columns: int, across: int, wanted: int) -> int:
    """Accesses side by side in a block of statistics whose rows several share: a line, so that few have parts to join, if all
    SMs but one in thirty then have a block; else as many as give most of them one."""

    def used(width: int) -> int:
        lines = max(1, ceil_div(columns, width))
        return lines * max(1, wanted // lines)

    least = _WARP // 2 if space.exact else _line(space)
    widths = [w for w in (_LINE, _WARP // 2, _WARP) if least <= w <= across] or [across]
    most = max(map(used, widths))
    return next(w for w in widths if used(w) * 31 >= most * 30)


def _most_in_flight(space: Space) -> int:
    """Accesses that a thread may have on their way, by the registers they take."""
    most = space.held // space.vector if space.held else _MAX_UNROLL
    return max(1, min(_THREAD_BYTES // max(1, space.bytes_per_step), most, _MAX_UNROLL))


def _even_unroll(steps: int, most: int) -> int:
    """Accesses at once for a thread that makes `steps`: all of them, or as many as leave the last turn fullest.

    Even numbers above two: rows of nearly one length share a kernel, for an access that some threads leave out.
    """
    if steps <= most:
        return max(1, min(most, steps + steps % 2 if steps > 2 else steps))
    return min(range(most, most // 2, -1), key=lambda u: (ceil_div(steps, u) * u - steps) * 8 // steps)


def _is_full(space: Space, unroll: int) -> bool:
    """Whether a thread has as many bytes on their way as it may: they must not wait for registers.

    H200: the eight reads of a thread of sum_outer f32 8192x8192 were six and two with the 54 registers that ptxas chose, 73.6
    us; with room for 64 it takes 71.5.
    """
    return space.is_plain and unroll * space.bytes_per_step >= _THREAD_BYTES


def _whole_trips(steps: int, threads: int, most: int) -> tuple[int, int] | None:
    """Threads of a held row, of about that many, and accesses of each at once, that leave no trip partly filled; None where
    there are none.

    What is partly filled goes another way, which tests each access (H200: cross_entropy bf16 8192x32000 138.7 us with 128
    threads of 8 accesses, 3.9 trips, and 136.0 with 160 of 5; 96 of 8, 5.2 trips, 152.0).
    """
    sizes = (threads, threads * 5 // 4, threads * 3 // 2)
    fitting = ((t, u) for t in sizes for u in range(most, most // 2, -1) if steps % (t * u) == 0)
    return next(fitting, None)


def _long_block(space: Space) -> int:
    return _BLOCK if space.heavy else _LONG_BLOCK


def _wanted_blocks(space: Space, device: DeviceInfo, threads: int) -> int:
    """Twice the blocks that run at once: who is done early takes another."""
    resident = min(_RESIDENT_HEAVY if space.heavy else RESIDENT, device.max_threads_per_sm)
    return device.sm_count * max(1, resident // threads) * 2


def _sharing(space: Space, device: DeviceInfo, blocks: int, steps: int, threads: int, unroll: int) -> int:
    """Blocks that share each of `blocks` rows of `steps` accesses.

    Two waves of them where each has much to do; else those that run at once, or fewer rather than threads without an access
    (H200: sum_all f32 51x5120 with 33 blocks 7.3 us, 64 6.7, 128 6.5; f64 803x7168 with 528 23.2, 264 21.5; f32 8192x8192 with
    264 76.1, 528 74.9).
    """
    wanted = _wanted_blocks(space, device, threads)
    if space.heavy or space.held:
        return min(_bucketed(wanted, blocks), _parts(wanted, steps, threads * unroll))
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
    turns = ceil_div(steps, wanted * _BLOCK * _CLUSTER_ACCESSES)
    return wanted if wanted > 1 and turns <= 1 + (wanted * space.kept >= device.sm_count) else 0


def _cluster_at_once(space: Space, device: DeviceInfo, steps: int, unroll: int) -> int:
    """The same for sums of exponentials, whose blocks take an SM each: all of them are there at once. H200: f32 23x128256
    over 16 blocks a row, of which some came when others were done, 15.7 us."""
    wanted = 1
    while wanted * 2 <= min(_MOST_CLUSTER, device.max_cluster) and wanted * 2 * space.kept <= device.sm_count:
        wanted *= 2
    turns = ceil_div(steps, wanted * _LONG_BLOCK * unroll)
    # Half of the SMs read about as fast as all of them.
    is_busy = 2 * wanted * space.kept > device.sm_count
    return wanted if wanted > 1 and (is_busy or turns <= _MOST_TURNS) else 0


def _bucketed(wanted: int, blocks: int) -> int:
    """Blocks that share one of `blocks` reductions, so that there are at least `wanted` in all; few values for all counts."""
    bucket = 1
    while bucket * _BUCKET <= blocks:
        bucket *= _BUCKET
    return max(1, wanted // bucket)


def _parts(wanted: int, steps: int, turn: int) -> int:
    """Blocks that share a reduction of `steps`, of which a block makes `turn` at a time: `wanted`, or so many fewer that each
    has a quarter of a turn to do."""
    parts = wanted
    while parts > 1 and parts * turn > 4 * steps:
        parts //= _FEWER
    return max(1, parts)


def _flight_words(space: Space, device: DeviceInfo, unroll: int) -> str:
    wanted = int(device.memory_bytes_per_ns * _LATENCY_NS / device.sm_count)
    flight = unroll * space.bytes_per_step * (_RESIDENT_HEAVY if space.heavy else RESIDENT)
    return f"{flight} bytes on their way to each SM, {wanted} hide the latency"


def ceil_div(a: int, b: int) -> int:
    """Rounded up."""
    return -(-a // b)


def power_of_two(value: int, low: int, high: int) -> int:
    """The smallest power of two that is at least `value`, within [low, high]."""
    return max(low, min(1 << max(0, value - 1).bit_length(), high))
