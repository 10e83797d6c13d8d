"""What a reduction works on, the plan of its loops, and the arithmetic that plans share."""

from __future__ import annotations

from fuser.ir.device_info import REGISTER_BYTES, DeviceInfo
from fuser.records import record
from fuser.runtime.variants import REGISTERS_PER_SM

# Bytes a thread asks for at once: 1024 threads of an SM then have three times the bytes of Little's law on their way, so that
# some may compute and some may wait for others meanwhile.
THREAD_BYTES = 128
LEAST_BYTES = 48
"""Those that Little's law asks of each of as many threads."""
MAX_UNROLL = 16
# Registers of a thread for addresses, counters and what an element becomes on its way to a result.
_OWN_REGISTERS = 24
BLOCK = 256
LONG_BLOCK = 512
# Threads of an SM that run at once: those of Welford hold about twice the registers, and their blocks are smaller, so that some
# compute while others wait.
RESIDENT = 1024
RESIDENT_HEAVY = 512
# And by this one each time there is too little for as many.
_FEWER = 4
# Neighbouring threads whose accesses of 16 bytes make up a line of memory.
LINE = 8


@record
class Space:
    """What is reduced. Counts in elements.

    inner           the fastest dim is reduced
    kept, reduced   number of reductions, and elements of each
    run             elements of the reduced dims that are neighbours in memory up to the fastest one
    runs            of those in a reduction, which lie apart; 0 where another dim has no element: it is a loop all the same
    vector          elements of one access
    bytes_per_step  bytes of one access to every full-size input
    heavy           the combining step costs more than an access (Welford): threads should reduce much before they combine
    may_split       several blocks may share one reduction
    exact           sums carry along what rounding loses, in Double
    held            elements of a step that a thread may hold widened, beside those on their way (sums of exponentials)
    wide            what is held are Doubles, whose exponentials take longer than their bytes
    misaligned      accesses begin anywhere: each of them is two
    joined          bytes that a thread leaves in shared memory for others to join
    written         bytes of an element of all outputs of full size
    partials        registers that the partial results of an element's reductions take
    element_work    instructions of an element
    row_work        instructions that each thread of a row does once
    results         what the threads of a row join
    ragged          rows of those begin within a sector of memory: neighbouring blocks write parts of one
    """

    inner: bool
    kept: int
    reduced: int
    run: int
    runs: int
    vector: int
    bytes_per_step: int
    heavy: bool
    may_split: bool
    held: int = 0
    wide: bool = False
    exact: bool = False
    misaligned: bool = False
    joined: int = 0
    written: int = 0
    partials: int = 0
    element_work: int = 1
    row_work: int = 0
    results: int = 1
    ragged: bool = False


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
    grid_along: bool = False


def most_in_flight(space: Space) -> int:
    """Accesses that a thread may have on their way, by the registers they take.

    So many threads as an SM should have at once leave each a number of registers, of which some hold partial results and what
    is written. Loads have the rest; but never less than keeps memory busy.
    """
    most = space.held // space.vector if space.held else MAX_UNROLL
    size = max(1, space.bytes_per_step)
    taken = _OWN_REGISTERS + (space.partials + ceil_div(space.written, REGISTER_BYTES)) * space.vector
    threads = RESIDENT_HEAVY if space.heavy else RESIDENT
    left = (REGISTERS_PER_SM // threads - taken) * REGISTER_BYTES
    wanted = min(THREAD_BYTES, max(left, LEAST_BYTES))
    return max(1, min(wanted // size, most, MAX_UNROLL))


def even_unroll(steps: int, most: int) -> int:
    """Accesses at once for a thread that makes `steps`: all of them, or as many as leave the last iteration fullest.

    Even numbers above two: rows of nearly one length share a kernel, for an access that some threads leave out.
    """
    if steps <= most:
        return max(1, min(most, steps + steps % 2 if steps > 2 else steps))
    return min(range(most, most // 2, -1), key=lambda u: (ceil_div(steps, u) * u - steps) * 8 // steps)


def parts_of(wanted: int, steps: int, turn: int) -> int:
    """Blocks that share a reduction of `steps`, of which a block makes `turn` at a time: `wanted`, or so many fewer that each
    has a quarter of an iteration to do."""
    parts = wanted
    while parts > 1 and parts * turn > 4 * steps:
        parts //= _FEWER
    return max(1, parts)


def flight_words(space: Space, device: DeviceInfo, unroll: int) -> str:
    wanted = int(device.bytes_in_flight)
    flight = unroll * space.bytes_per_step * (RESIDENT_HEAVY if space.heavy else RESIDENT)
    return f"{flight} bytes on their way to each SM, {wanted} hide the latency"


def ceil_div(a: int, b: int) -> int:
    """Rounded up."""
    return -(-a // b)


def power_of_two(value: int, low: int, high: int) -> int:
    """The smallest power of two that is at least `value`, within [low, high]."""
    return max(low, min(1 << max(0, value - 1).bit_length(), high))
