"""What the simulator reports: one error class with a kind and the accesses it is about.

Grammar
    report := SimulatorError(kind, message, buffer, first, second)
    place  := Access(action, statement, path, buffer, index, thread, block)
"""

from __future__ import annotations

from enum import Enum

from fuser.errors import LaunchError
from fuser.records import record
from fuser.source_location import SourceLocation


class Kind(Enum):
    """What went wrong."""

    race = "race"
    out_of_bounds = "out of bounds"
    misaligned = "misaligned"
    uninitialised_read = "uninitialised read"
    lost_post = "post over another"
    lost_copy = "copy that nobody waits for"
    divergent_barrier = "divergent barrier"
    divergent_shuffle = "divergent shuffle"
    inactive_lane = "read of an inactive lane"
    deadlock = "deadlock"
    endless_loop = "endless loop"
    step_limit = "too many loop trips"
    over_resident = "more waiting blocks than fit"
    semaphore_not_reset = "semaphore not reset"
    index_overflow = "index overflow"
    index_range = "index out of range"
    symbol_range = "symbol outside its range"
    division_by_zero = "division by zero"
    wrong_dtype = "wrong dtype"


@record
class Access:
    """One thread at one statement.

    action      "read", "write", "atomic" or what else the statement does
    statement   printed statement
    path        where it stands: `body[3].then[0]`
    index       element of `buffer`, None where there is none
    thread      threadIdx (x, y, z)
    block       blockIdx (x, y, z)
    """

    action: str
    statement: str
    path: str
    buffer: str
    index: int | None
    thread: tuple[int, int, int]
    block: tuple[int, int, int]

    def __str__(self) -> str:
        where = "" if self.index is None else f" of {self.buffer}[{self.index}]"
        return f"{self.action}{where} by thread {self.thread} of block {self.block} at {self.path}: {self.statement}"


class SimulatorError(LaunchError):
    """A defect of a kernel, found while it was simulated; of kind `index_range`, one of the data.

    kind      what went wrong
    buffer    name of the buffer concerned, "" if none
    first     the earlier access, as far as there is one
    second    the access that was being executed
    """

    def __init__(
        self,
        kind: Kind,
        message: str,
        *,
        buffer: str = "",
        first: Access | None = None,
        second: Access | None = None,
        location: SourceLocation | None = None,
    ) -> None:
        lines = [f"{kind.value}: {message}"]
        lines.extend(
            f"  {name} {access}" for name, access in (("first", first), ("then", second)) if access is not None
        )
        super().__init__("\n".join(lines), location=location)
        self.kind = kind
        self.buffer = buffer
        self.first = first
        self.second = second
