"""Few rows that blocks share which post what they have: to the last block of a row by number, and that on to the last of all.

The blocks of a cluster join their parts sooner, but there are sixteen of them at most, and rows times blocks seldom come to all
processors. Posts take as long whatever the number of blocks, if all are on the device at once: some wait. The exponentials of
a row take a processor long enough that it pays to have others help; a plain sum over blocks has no need of a counter. Times are
microseconds of an H200, rates elements of a processor and bytes of the device a microsecond.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.ir.device_info import DeviceInfo
from fuser.schedule.params import ReductionParams
from fuser.schedule.reduction_space import ReductionPlan, Space, ceil_div

SHAPES = ((512, 1), (256, 2), (512, 2), (256, 4))
"""Threads of a block that has a part of a row, and blocks of an SM."""
RATE, WIDE_RATE, MEMORY_RATE = 25e3, 3.6e3, 3.9e6
"""Exponentials of Floats and of Doubles, and what memory reads."""
TURN, ELEMENT, WIDE_ELEMENT, POST = 0.6, 0.009, 0.02, 0.45
"""From the first access of a turn to where it has come, an element of a thread, of Floats and of Doubles, and how much longer
a post takes than an exchange of a cluster."""
OVERLAP = 2.7
"""Power of a mean that says how far exponentials and reads hide one another."""
WIDE_WARP = 0.01
"""What a warp of a processor takes to join the pairs of its lanes, of Doubles."""
LEAST_GAIN, LEAST_SHARE = 0.7, 0.07
"""What has to be saved, of a time that is estimated."""
LOOP_REGISTERS, WIDE_REGISTERS = 40, 48
SUM_REGISTERS, WIDE_SUM_REGISTERS = 20, 32
"""Of a thread, beside what it reads in a turn: accesses of four registers."""
MOST_ACCESSES = 8


def posted_sums(space: Space, plan: ReductionPlan, device: DeviceInfo) -> int:
    """Blocks of an SM where those that share a sum of each of several rows post what they have; 0 where they do not fit."""
    shares = plan.grid_reduce > 1 and not (plan.cluster or plan.one_turn)
    is_plain = space.inner and not (space.heavy or space.held) and plan.block_iterate == 1 and plan.block_outer == 0
    if not shares or not is_plain or space.kept < 2:
        return 0
    registers = plan.unroll * space.bytes_per_step // 4 + (WIDE_SUM_REGISTERS if space.exact else SUM_REGISTERS)
    # As many whatever the number of rows: they share a kernel.
    each = min(device.registers_per_sm // registers, device.max_threads_per_sm) // plan.block_reduce
    return each if space.kept * plan.grid_reduce <= each * device.sm_count else 0


def posted_losses(
    rows: ReductionParams, count: int, length: int, itemsize: int, device: DeviceInfo
) -> ReductionParams | None:
    """Loops of `count` rows of exponentials over all processors; None where `rows`, a cluster or a block each, does as well."""
    # Of Doubles two rows of a processor leave as much of the second wave to others as one leaves of the first.
    most_rows = device.sm_count * (2 if itemsize > 4 else 1)
    if rows.block_iterate > 1 or rows.block_outer or not rows.inner or not 2 <= count <= most_rows:
        return None
    steps = ceil_div(length, rows.vector)
    if not rows.cluster:
        rows = replace(rows, grid_reduce=1)
    now = _time(rows, count, length, itemsize, device)
    best: tuple[float, ReductionParams] | None = None
    for threads, each in SHAPES:
        parts = each * device.sm_count // count
        registers = device.registers_per_sm // (threads * each) - (WIDE_REGISTERS if itemsize > 4 else LOOP_REGISTERS)
        most = min(MOST_ACCESSES, registers // 4)
        part = ceil_div(steps, max(parts, 1))
        if parts < 2 or part < threads:
            continue
        unroll = ceil_div(part, threads * ceil_div(part, threads * most))
        loops = replace(
            rows,
            block_reduce=threads,
            grid_reduce=parts,
            unroll=unroll,
            cluster=False,
            few=False,
            resident=0,
            posted=each,
        )
        time = POST + _time(loops, count, length, itemsize, device)
        if best is None or time < best[0]:
            best = time, loops
    if best is None or now - best[0] < max(LEAST_GAIN, LEAST_SHARE * now):
        return None
    time, loops = best
    words = f"{loops.grid_reduce} blocks a row post what they have: about {time:.1f} us, else {now:.1f}"
    return replace(loops, reasons=(words,))


def _time(rows: ReductionParams, count: int, length: int, itemsize: int, device: DeviceInfo) -> float:
    """Of such loops over `count` rows, of which a block has a part or all of one."""
    turns = ceil_div(ceil_div(length, rows.vector), rows.grid_reduce * rows.block_reduce * rows.unroll)
    each = turns * rows.unroll * rows.vector
    blocks = ceil_div(count * rows.grid_reduce, device.sm_count)
    rate, element = (WIDE_RATE, WIDE_ELEMENT) if itemsize > 4 else (RATE, ELEMENT)
    working = blocks * rows.block_reduce * each / rate
    moving = count * length * itemsize / MEMORY_RATE
    joining = blocks * rows.block_reduce // 32 * WIDE_WARP if itemsize > 4 else 0.0
    return turns * TURN + each * element + joining + (working**OVERLAP + moving**OVERLAP) ** (1 / OVERLAP)
