"""What each lowering pass ensures, as code: named checks, run after every pass when FUSER_VERIFY has `passes`.

    build_loop_nests     collectives_are_whole       no barrier, shuffle, atomic or fence yet
    prefetch_loads       collectives_are_whole       still
    read_early           collectives_are_whole       still
    keep_turns           collectives_are_whole       still
    pipeline_copies      collectives_are_whole       still
                         copies_are_waited_for       a wait parts the copies to a buffer from its reads
    insert_grid_barriers no_unordered_blocks         a wait of the whole grid parts accesses by different blocks, one a write
    expand_collectives   no_collectives              every Reduce, Scan and GridBarrier is expanded
                         semaphores_are_reset        what is added to a semaphore is taken back
    allocate_shared      shared_memory_is_placed     every shared buffer has an offset, a multiple of 16
                         shared_values_survive       no buffer at an overlapping place is written between a write and its read
    insert_syncs         no_unsynchronised_pair      a barrier parts any two accesses by different threads, one a write
    unswitch_loops       no_unswitch_left            no loop asks for a hoisted test any more
                         unswitched_sides_agree      both sides of a hoisted test write the same elements
    merge_predicates     no_equal_neighbours         neighbouring statements are under different tests

Each check shares no code with the pass it is about. A check goes on holding after the passes that follow, but for those about
collectives that are whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from fuser.errors import InternalError
from fuser.ir.integers import ZERO, Cond, Int, conjuncts, const, prove_divisible, prove_less, prove_less_equal
from fuser.ir.kernel import (
    Allocate,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    AtomicAdd,
    BlockBarrier,
    Buffer,
    ClusterArrive,
    ClusterWait,
    ExchangeInit,
    ExchangeWait,
    Fence,
    For,
    GridBarrier,
    If,
    Reduce,
    RemoteStore,
    Role,
    Scan,
    Shuffle,
    SpinWait,
    Stmt,
    Store,
    VectorMove,
    WarpBarrier,
    stmt_reads,
    stmt_writes,
    substitute_symbols,
    walk,
)
from fuser.ir.print_kernel import print_around
from fuser.ir.proofs import Claim, counterexample
from fuser.records import record


@record
class PassResult:
    """What a pass left.

    offsets     place of each shared buffer, None before allocate_shared
    private     names of buffers whose elements never cross threads
    exchanged   names of device-memory buffers through which threads of one block pass values
    one_thread  a block has a single thread
    crossing    names of device-memory buffers through which blocks pass values
    """

    body: tuple[Stmt, ...]
    offsets: Mapping[str, Int] | None = None
    private: AbstractSet[str] = frozenset()
    exchanged: AbstractSet[str] = frozenset()
    one_thread: bool = False
    crossing: AbstractSet[str] = frozenset()


@dataclass(slots=True)
class Findings:
    """What a check found wrong: words about statements (by id), and about the whole body."""

    marks: dict[int, str] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)

    def mark(self, stmt: Stmt, message: str) -> None:
        """Something about a statement."""
        self.marks.setdefault(id(stmt), message)


_COMMUNICATION = (
    GridBarrier,
    BlockBarrier,
    WarpBarrier,
    ClusterArrive,
    ClusterWait,
    RemoteStore,
    ExchangeInit,
    ExchangeWait,
    Shuffle,
    AtomicAdd,
    Fence,
    SpinWait,
)

Invariant = Callable[[PassResult, Findings], None]


def check_invariants(pass_name: str, result: PassResult) -> None:
    """Raise InternalError, naming the invariant and showing the statements, if a pass did not ensure what it should."""
    for invariant in invariants_after(pass_name):
        findings = Findings()
        invariant(result, findings)
        if findings.marks or findings.words:
            shown = dict(list(findings.marks.items())[:4])
            parts = [f"{pass_name} does not ensure {invariant.__name__}", *findings.words[:4]]
            raise InternalError("\n".join([*parts, print_around(result.body, shown)]), pass_name=pass_name)


# --- the checks -------------------------------------------------------------------------------------------------------


def collectives_are_whole(result: PassResult, found: Findings) -> None:
    """No barrier, shuffle, atomic or fence yet: later passes decide about them once all collectives are known."""
    for stmt in walk(result.body):
        if isinstance(stmt, _COMMUNICATION):
            found.mark(stmt, "threads communicate before collectives are expanded")


def no_collectives(result: PassResult, found: Findings) -> None:
    """Every Reduce, Scan and GridBarrier is expanded."""
    for stmt in walk(result.body):
        if isinstance(stmt, (Reduce, Scan, GridBarrier)):
            found.mark(stmt, "this collective is not expanded")


def semaphores_are_reset(result: PassResult, found: Findings) -> None:
    """What is added to a semaphore is taken back by some statement, so that the next launch finds it zero."""
    reset = {(s.buffer, s.index) for s in walk(result.body) if isinstance(s, Store) and s.role is Role.semaphore_reset}
    for stmt in walk(result.body):
        if isinstance(stmt, AtomicAdd) and (stmt.buffer, stmt.index) not in reset:
            found.mark(stmt, "nothing sets this semaphore back to 0")


def shared_memory_is_placed(result: PassResult, found: Findings) -> None:
    """Every shared buffer has an offset, a multiple of 16."""
    assert result.offsets is not None
    for stmt in walk(result.body):
        if not isinstance(stmt, Allocate) or not stmt.buffer.is_shared:
            continue
        offset = result.offsets.get(stmt.buffer.name)
        if offset is None:
            found.mark(stmt, "this buffer has no place in shared memory")
        elif not prove_divisible(offset, 16):
            found.mark(stmt, f"this buffer starts at byte {offset}, no multiple of 16")


def shared_values_survive(result: PassResult, found: Findings) -> None:
    """Between a write of a shared buffer and a read of it, no buffer whose place overlaps is written."""
    assert result.offsets is not None
    offsets = result.offsets
    buffers = {s.buffer for s in walk(result.body) if isinstance(s, Allocate) and s.buffer.is_shared}
    placed = [b for b in sorted(buffers, key=lambda b: b.name) if b.name in offsets]
    overlapping: dict[Buffer, list[Buffer]] = {b: [] for b in placed}
    for i, a in enumerate(placed):
        for b in placed[i + 1 :]:
            if not (_ends_before(a, b, offsets) or _ends_before(b, a, offsets)):
                overlapping[a].append(b)
                overlapping[b].append(a)
    # The buffer that overwrote each buffer since it was last written.
    lost: dict[Buffer, Buffer] = {}
    for stmt in _trace(result.body):
        for buffer, _ in stmt_reads(stmt):
            if buffer in lost:
                found.mark(stmt, f"reads {buffer.name}, over which {lost[buffer].name} was written")
        for buffer, _ in stmt_writes(stmt):
            lost.pop(buffer, None)
            for other in overlapping.get(buffer, ()):
                lost[other] = buffer


def _ends_before(a: Buffer, b: Buffer, offsets: Mapping[str, Int]) -> bool:
    end, start = offsets[a.name] + a.size * a.dtype.itemsize, offsets[b.name]
    # Roundings of symbolic sizes are beyond the integer rules: such places count as apart if no sizes tried say otherwise.
    return prove_less_equal(end, start) or counterexample(Claim("", "", end, "<", start + 1)) is None


def _trace(body: Sequence[Stmt]) -> Iterator[Stmt]:
    """The simple statements in an order of execution: loops run twice, both sides of a test one after the other."""
    for stmt in body:
        if isinstance(stmt, For):
            yield from _trace(stmt.body)
            yield from _trace(stmt.body)
        elif isinstance(stmt, If):
            yield from _trace(stmt.then)
            yield from _trace(stmt.orelse)
        else:
            yield stmt


# A thread alone decides these tests: no barrier may stand under them.
_DIVERGENT = (Role.predicate, Role.owner, Role.unswitch)


def no_unsynchronised_pair(result: PassResult, found: Findings) -> None:
    """On every path, a barrier parts any two accesses of one memory by different threads of which one is a write."""
    if not result.one_thread:
        _Paths(result, found).walk(result.body, frozenset())


@record
class _Access:
    memory: object
    buffer: Buffer
    is_write: bool


class _Paths:
    """Follows all paths at once: the accesses that some path has made since its last barrier."""

    def __init__(self, result: PassResult, found: Findings) -> None:
        self.result = result
        self.found = found

    def walk(self, body: Sequence[Stmt], open_accesses: frozenset[_Access]) -> frozenset[_Access]:
        """Accesses still open after a statement list."""
        for stmt in body:
            match stmt:
                case BlockBarrier() | ClusterWait():
                    open_accesses = frozenset()
                case For():
                    once = self.walk(stmt.body, open_accesses)
                    again = self.walk(stmt.body, once)
                    runs = prove_less(stmt.start, stmt.stop)
                    open_accesses = again if runs else again | open_accesses
                case If():
                    then = self.walk(stmt.then, open_accesses)
                    orelse = self.walk(stmt.orelse, open_accesses)
                    if stmt.role in _DIVERGENT and any(
                        isinstance(s, (BlockBarrier, ClusterWait)) for s in walk((stmt,))
                    ):
                        self.found.mark(stmt, "a block barrier stands under this test, which a thread decides alone")
                    open_accesses = then | orelse
                case _:
                    made = self._accesses(stmt)
                    for b in made:
                        for a in open_accesses:
                            self._meet(stmt, a, b)
                    open_accesses |= made
        return open_accesses

    def _meet(self, stmt: Stmt, a: _Access, b: _Access) -> None:
        if a.memory is not b.memory or not (a.is_write or b.is_write):
            return
        if a.buffer is b.buffer and (a.buffer.name in self.result.private or (a.is_write and b.is_write)):
            # Two writes of one buffer with no read between them go to different elements.
            return
        words = {False: "read", True: "written"}
        self.found.mark(
            stmt,
            f"{b.buffer.name} is {words[b.is_write]} with no barrier since {a.buffer.name} was {words[a.is_write]}",
        )

    def _accesses(self, stmt: Stmt) -> frozenset[_Access]:
        made: set[_Access] = set()
        for accesses, is_write in ((stmt_reads(stmt), False), (stmt_writes(stmt), True)):
            for buffer, _ in accesses:
                if buffer.is_shared and self.result.offsets is not None:
                    # Buffers overlap only where they start alike (`shared_values_survive` checks the others apart).
                    memory = self.result.offsets.get(buffer.name, ZERO)
                    made.add(_Access(memory, buffer, is_write))
                elif buffer.is_global and buffer.name in self.result.exchanged:
                    made.add(_Access(buffer, buffer, is_write))
        return frozenset(made)


_Copied = tuple[Buffer, Int, int]
"""Elements that a copy fills: buffer, first one, how many."""
_Groups = tuple[frozenset[_Copied], ...]


def copies_are_waited_for(result: PassResult, found: Findings) -> None:
    """On every path, a wait for their group parts the copies to a buffer from its reads."""
    _wait_for(result.body, (frozenset(),), found)


def _wait_for(body: Sequence[Stmt], groups: _Groups, found: Findings) -> _Groups:
    """What the thread's groups fill, oldest first, the last one not committed yet, behind a statement list.

    A loop of a few trips around copies is followed trip by trip. Another one that waits for nothing is looked at once:
    copies in one of its trips and reads in another are of other elements.
    """
    for stmt in body:
        match stmt:
            case AsyncCopy():
                groups = (*groups[:-1], groups[-1] | {(stmt.dst, stmt.dst_index, stmt.width)})
            case AsyncCommit():
                groups = (*groups, frozenset())
            case AsyncWait(pending):
                groups = groups[max(0, len(groups) - 1 - pending) :]
            case For() if _makes_few_trips(stmt, groups):
                for trip in range(stmt.start.value, stmt.stop.value, stmt.step.value):
                    groups = _wait_for(substitute_symbols(stmt.body, {stmt.symbol: const(trip)}), groups, found)
            case For():
                before, groups = groups, _wait_for(stmt.body, groups, found)
                if any(isinstance(s, AsyncWait) for s in walk(stmt.body)):
                    groups = _wait_for(stmt.body, groups, found)
                if not prove_less(stmt.start, stmt.stop):
                    groups = _either(before, groups)
            case If():
                groups = _either(_wait_for(stmt.then, groups, found), _wait_for(stmt.orelse, groups, found))
            case _:
                pass
        for buffer, index in stmt_reads(stmt):
            width = stmt.width if isinstance(stmt, VectorMove) else 1
            if any(_may_meet((buffer, index, width), c) for group in groups for c in group):
                found.mark(stmt, f"reads {buffer.name} while copies to it are on their way")
    return _without_empty(groups)


_FEW_TRIPS = 64


def _makes_few_trips(loop: For, groups: _Groups) -> bool:
    """Whether a loop copies, or reads what is copied, in each of a few trips."""
    if not (loop.start.is_const and loop.stop.is_const and loop.step.is_const):
        return False
    if loop.step.value < 1 or (loop.stop.value - loop.start.value) // loop.step.value > _FEW_TRIPS:
        return False
    copied = {buffer for group in groups for buffer, _, _ in group}
    return any(isinstance(s, AsyncCopy) or any(b in copied for b, _ in stmt_reads(s)) for s in walk(loop.body))


def _may_meet(a: _Copied, b: _Copied) -> bool:
    """Whether two stretches may have an element in common."""
    if a[0] is not b[0]:
        return False
    apart = a[1] - b[1]
    return not (apart.is_const and (apart.value >= b[2] or -apart.value >= a[2]))


def _either(a: _Groups, b: _Groups) -> _Groups:
    """The groups of one of two paths, matched from the latest on."""
    longest = max(len(a), len(b))
    a, b = (*([frozenset[_Copied]()] * (longest - len(a))), *a), (*([frozenset[_Copied]()] * (longest - len(b))), *b)
    return tuple(x | y for x, y in zip(a, b, strict=True))


def _without_empty(groups: _Groups) -> _Groups:
    """Without the oldest groups that fill nothing: waiting for them is free."""
    first = next((k for k, group in enumerate(groups) if group), len(groups) - 1)
    return groups[first:]


def no_unordered_blocks(result: PassResult, found: Findings) -> None:
    """On every path, a wait of the whole grid parts writes of a tensor that crosses blocks from its reads, and back.

    It stands where every block comes: under no test, and in no loop that blocks leave after different trips.
    """
    _Crossings(result.crossing, found).walk(result.body, frozenset(), "")


class _Crossings:
    """Follows all paths at once: the (buffer, is written) that some path has accessed since the grid last waited."""

    def __init__(self, crossing: AbstractSet[str], found: Findings) -> None:
        self.crossing = crossing
        self.found = found

    def walk(
        self, body: Sequence[Stmt], pending: frozenset[tuple[Buffer, bool]], apart: str
    ) -> frozenset[tuple[Buffer, bool]]:
        """What is pending after a statement list; `apart` says why blocks may not all be there."""
        for stmt in body:
            match stmt:
                case GridBarrier():
                    pending = frozenset()
                    if apart:
                        self.found.mark(stmt, f"not every block comes here: {apart}")
                case For():
                    bounds = stmt.start.symbols | stmt.stop.symbols | stmt.step.symbols
                    uneven = any(s.name.startswith("blockIdx") for s in bounds)
                    reason = apart or (f"the loop over {stmt.symbol}" if uneven else "")
                    once = self.walk(stmt.body, pending, reason)
                    again = self.walk(stmt.body, once, reason)
                    pending = again if prove_less(stmt.start, stmt.stop) else again | pending
                case If():
                    reason = apart or f"the test {stmt.condition}"
                    pending = self.walk(stmt.then, pending, reason) | self.walk(stmt.orelse, pending, reason)
                case _:
                    made = {(b, False) for b, _ in stmt_reads(stmt) if self._is_crossing(b)}
                    made |= {(b, True) for b, _ in stmt_writes(stmt) if self._is_crossing(b)}
                    for buffer, is_write in made:
                        if (buffer, not is_write) in pending:
                            words = ("read", "written") if is_write else ("written", "read")
                            self.found.mark(
                                stmt,
                                f"{buffer.name} was {words[0]} by other blocks, and no wait of the grid has been since",
                            )
                    pending |= made
        return pending

    def _is_crossing(self, buffer: Buffer) -> bool:
        return buffer.is_global and buffer.name in self.crossing


def no_unswitch_left(result: PassResult, found: Findings) -> None:
    """No loop asks for a hoisted test any more."""
    for stmt in walk(result.body):
        if isinstance(stmt, For) and stmt.unswitch:
            found.mark(stmt, "this loop still asks for a hoisted test")


def unswitched_sides_agree(result: PassResult, found: Findings) -> None:
    """Both sides of a hoisted test write the same elements in the same order.

    What the tested side does only where a test fails is none of this, unless the other side still tests a part of it.
    """
    for stmt in walk(result.body):
        if not isinstance(stmt, If) or stmt.role is not Role.unswitch:
            continue
        tests = [s.condition for s in walk(stmt.then) if isinstance(s, If) and s.role is Role.predicate]
        left = {part for test in tests for part in conjuncts(test)}
        hoisted = [(b, i) for s in walk(stmt.then) for b, i in stmt_writes(s)]
        if hoisted != list(_writes_under(stmt.orelse, left)):
            found.mark(stmt, "the two sides of this test do not write the same elements")


def _writes_under(body: Sequence[Stmt], left: AbstractSet[Cond]) -> Iterator[tuple[Buffer, Int]]:
    """(buffer, index) of all writes but those that are done where a predicate fails of which no part is in `left`, and those of
    the second sides of hoisted tests: both sides are held against each other by themselves."""
    for stmt in body:
        yield from stmt_writes(stmt)
        if isinstance(stmt, For):
            yield from _writes_under(stmt.body, left)
        elif isinstance(stmt, If):
            yield from _writes_under(stmt.then, left)
            if stmt.role is Role.unswitch:
                continue
            if stmt.role is not Role.predicate or not left.isdisjoint(conjuncts(stmt.condition)):
                yield from _writes_under(stmt.orelse, left)


def no_equal_neighbours(result: PassResult, found: Findings) -> None:
    """Neighbouring statements, declarations of registers aside, are under different tests."""

    def visit(body: Sequence[Stmt]) -> None:
        before: Stmt | None = None
        for stmt in body:
            if isinstance(stmt, Allocate) and stmt.buffer.is_register:
                continue
            if (
                isinstance(stmt, If)
                and isinstance(before, If)
                and stmt.condition is before.condition
                and stmt.role is before.role
                and stmt.role is not Role.unswitch
                and not (stmt.orelse or before.orelse)
            ):
                found.mark(stmt, "the statement before is under the same test")
            if isinstance(stmt, For):
                visit(stmt.body)
            elif isinstance(stmt, If):
                visit(stmt.then)
                visit(stmt.orelse)
            before = stmt

    visit(result.body)


# --- which holds when -------------------------------------------------------------------------------------------------

ENSURES: dict[str, tuple[Invariant, ...]] = {
    "build_loop_nests": (collectives_are_whole,),
    "prefetch_loads": (collectives_are_whole,),
    "read_early": (collectives_are_whole,),
    "keep_turns": (collectives_are_whole,),
    "pipeline_copies": (collectives_are_whole, copies_are_waited_for),
    "insert_grid_barriers": (no_unordered_blocks,),
    "expand_collectives": (no_collectives, semaphores_are_reset),
    "allocate_shared": (shared_memory_is_placed, shared_values_survive),
    "insert_syncs": (no_unsynchronised_pair,),
    "peel_loops": (),
    "unswitch_loops": (no_unswitch_left, unswitched_sides_agree),
    "whole_blocks": (),
    "merge_predicates": (no_equal_neighbours,),
    "finish_kernel": (),
}
"""What each pass ensures, in the order of the passes."""

# What these ensure is about collectives that are whole, and ends with the next pass.
_BEFORE_EXPANSION = (
    "build_loop_nests",
    "prefetch_loads",
    "read_early",
    "keep_turns",
    "pipeline_copies",
    "insert_grid_barriers",
)


def invariants_after(pass_name: str) -> list[Invariant]:
    """What holds after a pass: what it ensures, and what the passes before it did."""
    if pass_name in _BEFORE_EXPANSION:
        return list(ENSURES[pass_name])
    names = [name for name in ENSURES if name not in _BEFORE_EXPANSION]
    return [check for name in names[: names.index(pass_name) + 1] for check in ENSURES[name]]
