"""Peeled rows, of Doubles or of two tensors of Floats, in the shared memory of cooperative groups of blocks: shapes, and when.

Large clusters do not fit on some SMs, and few long rows leave their last wave half empty. A cooperative group may have any
number of blocks. All groups are in the same stage at the same time, so that memory, arithmetic of Doubles and exchanges do not
overlap. All times are microseconds.
"""

from __future__ import annotations

from fuser.ir.device_info import SM_PARTITIONS, WARP, DeviceInfo
from fuser.records import record
from fuser.runtime.variants import rung_of
from fuser.schedule.cost.peeled_rows import peeled_unrolled
from fuser.schedule.cost.rows_over_grid import OF_THREAD, Row, latency_together, near_exchange
from fuser.schedule.cost.scratch_budget import BESIDE_ROW

WORK, EXPONENTIAL_WORK = 1085, 1225
"""Cycles of a thread for an access in all stages, and where exponentials are summed (H200: layer_norm 30x128256 in two trips,
of 768 threads of an SM with ten accesses 38.2 us, 576 with 14 43.9, 512 with 16 45.9; 29x250003 in three, of 608 with 16 72.5,
544 with 18 76.2, 448 with 24 86.8; softmax 10x250003 in one, of 512 with 20 26.5, 640 with 16 25.5)."""

FLOAT_WORK = 90
"""The same of Floats: what is computed overlaps with the row that is copied behind the last read of the one before (H200:
add_rms_norm f32 85x250003 over groups of 24 blocks in eight trips 111.9 us, over clusters of sixteen, of which seven find room,
132.0)."""

SINGLE = 1.25
"""What takes longer where each access of a thread is tested by itself (H200: softmax 10x250003 with 17 accesses 30.4)."""
REGISTERS, DOUBLES_REGISTERS = 80, 96
"""Registers of a thread, and where it reads Doubles of several tensors: with 80 the gradient of layer norm f64
40x50257 spills."""

MOST_HELD = 32
"""Elements of a thread which are held in registers for their largest, where it has no more
(`lowering/combiners/exp_sum.py`)."""

MOST_ACCESSES, MOST_FLOAT_ACCESSES = 24, 8
"""Accesses of a thread; more of Floats spill where each part of a row is waited for by itself."""
MOST_RESIDENT = 2
"""Blocks of an SM; one where exponentials are summed, as each block joins those of all (softmax 10x250003 31.1 us with two)."""
IN_TURNS = 0.6
"""What is left of that work where a processor has blocks of two groups in several trips (softmax 23x128256 in two trips over 22
blocks of 384 threads 25.0 us)."""
MORE_TRIPS = 2
"""Trips over the rows beside the fewest that are possible, up to which shapes are compared."""

WORTH = 0.95
"""The part of the time of clusters that groups are expected to take at most."""


@record
class PeeledGridShape:
    """`groups` of `sharing` blocks, `threads` of each along a row, `batch` accesses of a thread; `resident` blocks share an SM.
    `time` is what all rows should take."""

    threads: int
    batch: int
    sharing: int
    groups: int
    resident: int
    time: float


def choose_peeled_grid_shape(
    row: Row, rows: int, loaded: int, device: DeviceInfo, *, sums_exponentials: bool
) -> PeeledGridShape | None:
    """The shape that should take least time; None if no group of all blocks holds a row.

    loaded   bytes that are read of an element of a row
    """
    best: PeeledGridShape | None = None
    accesses = -(-row.elements // row.vector)
    # One binary serves all blocks of a rung.
    least_registers = (DOUBLES_REGISTERS if loaded > 8 else 0) if row.is_double else REGISTERS
    work = _work(row, device, sums_exponentials=sums_exponentials)
    latency = latency_together(device)
    joins_all = sums_exponentials and row.is_cut
    for resident in range(1, (1 if joins_all else MOST_RESIDENT) + 1):
        blocks = resident * device.sm_count
        room = min(device.shared_per_block_optin, device.shared_per_sm // resident) - BESIDE_ROW
        at_once = blocks // max(2, -(-accesses * row.vector * loaded // room))
        if at_once < 1:
            continue
        least = -(-rows // at_once)
        for trips in range(least, least + MORE_TRIPS + 1):
            groups = -(-rows // trips)
            sharing = min(blocks // groups, accesses // (2 * WARP))
            if sharing < 2:
                continue
            per_sm = -(-groups * sharing // device.sm_count)
            moving = _moving(row, sharing, groups, device)
            # However many threads a block has.
            least_time = trips * (moving + latency + row.exchanges * device.grid_exchange(sharing))
            if best is not None and least_time >= best.time:
                continue
            mine = -(-accesses // sharing)
            for batch in range(2, (MOST_ACCESSES if row.is_double else MOST_FLOAT_ACCESSES) + 1):
                threads = -(-mine // (batch * WARP)) * WARP
                elements = batch * row.vector
                if sums_exponentials and not row.is_cut and elements > MOST_HELD:
                    break
                registers = REGISTERS + (2 * elements if joins_all and elements <= MOST_HELD else 0)
                most = min(device.registers_per_sm // (registers * resident), device.max_threads_per_block)
                if threads > most or threads * batch * row.vector * loaded > room:
                    continue
                if device.registers_per_sm // (rung_of(threads)[0] * resident) < least_registers:
                    continue
                warps = threads // WARP * per_sm
                working = batch * work
                working *= (
                    -(-warps // SM_PARTITIONS) * SM_PARTITIONS / warps * (1.0 if peeled_unrolled(batch) > 1 else SINGLE)
                )
                if sums_exponentials and resident > 1 and trips > 1:
                    working *= IN_TURNS
                exchange = device.grid_exchange(sharing) + OF_THREAD * threads * device.cycle
                time = trips * (moving + working + latency + row.exchanges * exchange)
                if best is None or time < best.time:
                    best = PeeledGridShape(threads, batch, sharing, groups, resident, time)
    return best


def peeled_cluster_time(
    row: Row, rows: int, cluster: int, batch: int, exchanges: int, device: DeviceInfo, *, sums_exponentials: bool
) -> float:
    """What rows over clusters of blocks that have a processor each should take, for comparison."""
    at_once = device.clusters(cluster)
    trips = rows / at_once if rows > 2 * at_once else -(-rows // at_once)
    working = batch * _work(row, device, sums_exponentials=sums_exponentials)
    exchange = near_exchange(cluster, device)
    moving = _moving(row, cluster, min(rows, at_once), device)
    return trips * (moving + working + latency_together(device) + exchanges * exchange)


def _work(row: Row, device: DeviceInfo, *, sums_exponentials: bool) -> float:
    """A thread's time for an access."""
    return ((EXPONENTIAL_WORK if sums_exponentials else WORK) if row.is_double else FLOAT_WORK) * device.cycle


def _moving(row: Row, sharing: int, at_once: int, device: DeviceInfo) -> float:
    """The time of what moves of `at_once` rows over `sharing` blocks each."""
    busy = min(sharing * at_once, device.sm_count)
    return row.elements * at_once * row.moved / min(device.sm_rate * busy, device.memory_rate)
