"""How the rows of a gradient are spread over blocks that have rows of their own, in registers, and how long that takes."""

from __future__ import annotations

import math
from dataclasses import replace

from fuser.ir.device_info import DeviceInfo
from fuser.records import record
from fuser.runtime.variants import rung_of
from fuser.schedule.params import Refused
from fuser.schedule.row_shapes import NEEDED_IN_FLIGHT
from fuser.schedule.sides import Load

WARP = 32
BLOCK = 256
"""Threads that a block has at least, if there are rows for them."""
MOST_SIDE_BY_SIDE = 64
"""Threads of z that a block can have."""
SAFE_REGISTERS = 208
"""Registers that a thread is estimated to need at most, where there is a choice."""
PARTIAL_BYTES = 4
"""Bytes of a column sum, in registers and between blocks."""
SUMMING_BLOCKS = 100
"""Blocks that should have some columns to sum up: with so many the sums take no longer than with more."""
MOST_TRIPS = 16
"""Turns over its columns that a block takes before threads had better take columns than parts: each waits for a barrier."""
TOGETHER = 0.9
"""The part of the time that two rows of Doubles at once take, of one ahead of the other: their joins do not wait for one
another (H200: f64 100003x64 55.6 us, so 49.1; 1774x1024 26.9 and 25.1; bf16 32768x1024 59.8 and 69.2)."""
BY_ELEMENT_NS = 0.25
"""Where rows of 16 bits are read one by one: of an SM for an element. The loads of so narrow accesses are not what it
waits for."""
WARP_TRIP_NS, TRIP_NS, ACCESS_NS = 375.0, 900.0, 50.0
"""Of a block for a trip over such rows, where each is a warp's and where its warps wait for one another, and for each access of
a thread (H200: bf16 100003x257, (threads, accesses, blocks an SM) (32, 9, 2) 74 us, (64, 5, 3) 87, (96, 3, 5) 100)."""
FEW_ACCESSES, MANY_ACCESSES = 5, 2.0
"""Accesses of such a thread where warps wait for one another, and how much longer more of them take (H200: bf16 30000x333
(64, 6, 3) 74 us, (32, 11, 2) 33; 5000x1001 (128, 8, 2) 57, (256, 4, 4) 31; f16 20000x999 190 and 87)."""
WAIT_NS = 3000.0
"""What the wait of the grid and the sums after it cost at least."""


@record
class PassShape:
    """How the pass is spread. `threads` share a row, B `batch` accesses each; see the head of this module for the others."""

    threads: int
    batch: int
    side_by_side: int
    rows: int
    per_sm: int
    blocks: int
    registers: int
    in_flight: int
    ahead: bool = True


def choose_pass_shape(length: int, rows: int, vector: int, load: Load, device: DeviceInfo) -> PassShape | Refused:
    """The shape that a model of time finds fastest.

    A thread holds the rows of one trip and those of the next, or two rows of one trip. Time is that of the memory, as far as
    enough bytes are in flight and blocks overlap, for the rows of the longest block; then each block's sums are written and
    read again through the second-level cache.
    """
    accesses = -(-length // vector)
    best: tuple[tuple[float, ...], PassShape] | None = None
    for batch in range(1, 65):
        threads = -(-accesses // batch)
        threads = 1 << (threads - 1).bit_length() if threads <= WARP else -(-threads // WARP) * WARP
        if threads > device.max_threads_per_block or (batch > 1 and -(-accesses // threads) < batch):
            continue
        room = min(BLOCK, device.max_threads_per_block) // threads
        side_by_side = max(1, min(room, rows // device.sm_count, MOST_SIDE_BY_SIDE))
        side_by_side = 1 << (side_by_side.bit_length() - 1)
        block = -(-threads * side_by_side // WARP) * WARP
        for trip, ahead in ((1, True), (2, True), (2, False)):
            if not ahead and not load.is_double:
                continue
            # 16 bits read one by one: bf16 100003x257 takes 86.9 us by one row at a time, 262 by two (H200).
            if trip > 1 and _is_narrow(vector, load):
                continue
            # Accesses of one element have tests and addresses of their own, those of 16 bits computed again where registers are
            # short: bf16 100003x257, 64 threads with 5 accesses, takes 96 registers, or 80 with three blocks on an SM.
            tests = 4 * trip if vector == 1 and not _is_narrow(vector, load) else 0
            # When the second row is computed the registers of the first are free again.
            loads = (1 + ahead) * trip * load.row_registers - ahead * (trip - 1) * load.row_registers // 2
            per_access = loads + load.held_registers + load.kept_registers + tests
            registers = load.own_registers + 8 * (side_by_side > 1) + batch * per_access
            registers = -(-registers // 8) * 8
            if registers > device.registers_per_thread:
                continue
            most = min(
                device.max_blocks_per_sm,
                device.max_threads_per_sm // block,
                device.registers_per_sm // (block * registers),
            )
            for per_sm in range(1, most + 1):
                if _granted(per_sm, block, device) < registers:
                    continue
                shape, cost = pass_time(
                    PassShape(threads, batch, side_by_side, trip, per_sm, 0, registers, 0, ahead),
                    length,
                    rows,
                    vector,
                    load,
                    device,
                )
                # The last registers are those that the model may miss.
                key = (registers > SAFE_REGISTERS, cost, float(per_sm))
                if best is None or key < best[0]:
                    best = key, shape
    if best is None:
        return Refused(f"a row of {length} elements does not fit in the registers of a block")
    return best[1]


def _is_narrow(vector: int, load: Load) -> bool:
    """Whether rows of 16 bits are read one by one."""
    return vector == 1 and min(load.read_sizes, default=4) < 4


def _granted(per_sm: int, block: int, device: DeviceInfo) -> int:
    """Registers that a thread may have if `per_sm` blocks are asked for: bounds are in blocks of the rung's size."""
    top, most = rung_of(block)
    return min(most, device.registers_per_sm // (top * -(-per_sm * block // top)) // 8 * 8)


def pass_time(
    shape: PassShape, length: int, rows: int, vector: int, load: Load, device: DeviceInfo
) -> tuple[PassShape, float]:
    """The shape with its grid and bytes in flight, and its time in ns."""
    together = shape.side_by_side * shape.rows
    blocks = min(device.sm_count * shape.per_sm, -(-rows // together))
    trips = -(-rows // (blocks * together))
    used = length / (shape.threads * shape.batch * vector)
    held = shape.per_sm * shape.threads * shape.side_by_side * shape.batch * vector * shape.rows
    in_flight = int(held * load.loaded * used)
    # A block that waits for its barriers, the longer the more warps meet there, leaves the SM to the others.
    warps = shape.threads / WARP
    resident = shape.per_sm * warps * shape.side_by_side
    overlap = resident / (resident + 1) / (1 + 0.012 * warps) * shape.per_sm / (shape.per_sm + 0.1)
    moved = trips * blocks * together * length * load.moved
    if _is_narrow(vector, load):
        elements = trips * shape.per_sm * together * shape.threads * shape.batch
        of_trip = (WARP_TRIP_NS if shape.threads <= WARP else TRIP_NS) + ACCESS_NS * shape.batch * shape.rows
        pass_ns = max(moved / (device.memory_bytes_per_ns * overlap), elements * BY_ELEMENT_NS + trips * of_trip)
        if shape.threads > WARP and shape.batch > FEW_ACCESSES:
            pass_ns *= MANY_ACCESSES
    else:
        pass_ns = moved / (device.memory_bytes_per_ns * min(1.0, in_flight / NEEDED_IN_FLIGHT) * overlap)
    parts = blocks * length * load.sums * PARTIAL_BYTES
    cost = pass_ns + 2 * parts / (1.5 * device.memory_bytes_per_ns) + WAIT_NS
    return replace(shape, blocks=blocks, in_flight=in_flight), cost * (1.0 if shape.ahead else TOGETHER)


def columns_of_block(length: int, shape: PassShape) -> int:
    """Threads of x: columns that a block sums up at once. As many as leave most SMs some; 32 bytes of each part at least.

    Few blocks would take their columns in a hundred trips: there no more threads share a column than it has parts.
    """
    width = min(WARP, shape.threads)
    while width > 8 and length < width * min(shape.blocks, SUMMING_BLOCKS):
        width //= 2
    width = math.gcd(width, shape.threads)
    if length <= MOST_TRIPS * width * shape.blocks:
        return width
    sharing = next(n for n in range(min(shape.blocks, shape.threads), 0, -1) if shape.threads % n == 0)
    return max(width, shape.threads // sharing)
