"""What a kernel asks of one thread: registers that it cannot do without, and instructions to hold.

Both are read off the kernel itself, its loops unrolled as it says.

registers      the most words that are live where no compiler can move work across: at the end of an iteration of a loop that is
               not unrolled, and at a barrier; with what an iteration loads in vectors, all of which is to be on its way before
               anything is used. In between the order of work is the compiler's. So this is about the least
instructions   the length of the text: each statement as often as unrolled loops repeat it, an op as long as its row says.
               Index arithmetic is not counted
"""

from __future__ import annotations

from collections.abc import Iterable

from fuser.ir.fusion.op_instructions import RANDOM_INSTRUCTIONS, op_instructions
from fuser.ir.kernel.kernel_accesses import stmt_reads, stmt_writes
from fuser.ir.kernel.kernel_statements import (
    Allocate,
    BlockBarrier,
    ClusterWait,
    Comment,
    For,
    If,
    Let,
    RemoteStore,
    Shuffle,
    SpinWait,
    Stmt,
    Store,
    VectorMove,
    child_bodies,
)
from fuser.ir.kernel.kernel_values import Buffer, Call, Cast, Literal, Load, RandomValue, Value, value_operands
from fuser.records import record

_REGISTER_BYTES = 4
_FENCES = (BlockBarrier, ClusterWait, SpinWait)


@record
class Demand:
    """Of one thread."""

    registers: int
    instructions: int


def demand_of(body: tuple[Stmt, ...]) -> Demand:
    """The demand of the body of a kernel."""
    return Demand(_live_words(body), sum(_length(s) for s in body))


def _trips(loop: For) -> int:
    """Copies of the body of a loop."""
    iterations = loop.values if loop.unroll else None
    return 1 if iterations is None else len(iterations)


def _length(stmt: Stmt) -> int:
    match stmt:
        case For():
            return _trips(stmt) * sum(_length(s) for s in stmt.body)
        case If():
            return 1 + sum(_length(s) for body in child_bodies(stmt) for s in body)
        case Store(buffer=buffer, value=value) | RemoteStore(buffer=buffer, value=value):
            return _value_length(value) + (not buffer.is_register)
        case Shuffle(src=value):
            return _value_length(value) + 1
        case VectorMove():
            return 1
        case Comment() | Allocate() | Let():
            return 0
        case _:
            return 1


def _value_length(value: Value) -> int:
    own = 0
    match value:
        case Load(buffer=buffer):
            own = int(not buffer.is_register)
        case Call(op=op, compute=compute):
            own = op_instructions(op, compute)
        case Cast():
            own = 1
        case RandomValue():
            own = RANDOM_INSTRUCTIONS
        case _:
            pass
    return own + sum(_value_length(v) for v in value_operands(value) if not isinstance(v, Literal))


class _Lives:
    """Places of the statements in program order, where register arrays are made, written and read, and where they must live."""

    def __init__(self) -> None:
        self.place = 0
        self.made: dict[Buffer, int] = {}
        self.first_write: dict[Buffer, int] = {}
        self.last_read: dict[Buffer, int] = {}
        self.fences: list[int] = []
        self.loaded: dict[Buffer, int] = {}
        self.loops: list[tuple[int, int]] = []

    def visit(self, body: Iterable[Stmt]) -> None:
        for stmt in body:
            self.place += 1
            here = self.place
            if isinstance(stmt, Allocate) and stmt.buffer.is_register:
                self.made[stmt.buffer] = here
            for buffer, _ in stmt_reads(stmt):
                self.last_read[buffer] = here
            for buffer, _ in stmt_writes(stmt):
                self.first_write.setdefault(buffer, here)
            if isinstance(stmt, VectorMove) and stmt.src.is_global and stmt.dst.is_register:
                self.loaded.setdefault(stmt.dst, here)
            if isinstance(stmt, _FENCES):
                self.fences.append(here)
            for inner in child_bodies(stmt):
                self.visit(inner)
            if isinstance(stmt, For) and not stmt.unroll:
                self.loops.append((here, self.place))


def _live_words(body: tuple[Stmt, ...]) -> int:
    lives = _Lives()
    lives.visit(body)
    spans = [
        (made, lives.first_write[b], lives.last_read[b], _words(b))
        for b, made in lives.made.items()
        if b in lives.first_write and b in lives.last_read
    ]
    most = 0
    for start, end in [*lives.loops, (0, lives.place + 1)]:
        # What is made outside of a loop, and what it begins with or leaves behind, is there whenever an iteration ends.
        carried = sum(n for made, written, read, n in spans if made < start and written <= end and read > start)
        loaded = sum(_words(b) for b, at in lives.loaded.items() if lives.made.get(b, 0) > start and start < at <= end)
        most = max(most, carried + loaded)
    return max([most, *(sum(n for _, written, read, n in spans if written < fence < read) for fence in lives.fences)])


def _words(buffer: Buffer) -> int:
    """Registers of an array, if the compiler packs elements of less than a register."""
    return -(-buffer.size.value * buffer.dtype.itemsize // _REGISTER_BYTES)
