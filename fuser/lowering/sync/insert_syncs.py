"""Insert the block barriers that accesses need, and no others: of shared memory, and of global buffers through which
threads of a block pass values.

Before: statements that exchange values through memory several threads share, without barriers.
After:  between two accesses of the same memory by different threads, one of them a write, there is a barrier on every path.

A pair is a read after a write (RAW), a write after a read (WAR) or after a write (WAW); in a loop, the last accesses of one
iteration also form pairs with the first of the next. A barrier is placed as late as possible, right before the second
access, so each one has a pair that no other barrier separates. A buffer whose every element is read by the thread that wrote
it needs none. Two writes of one buffer need none either: a value is read before it is overwritten, so either that read
is between them, or they write different elements. An asynchronous copy counts as a write both where it starts and where
its thread waits for it; a barrier between the two does not make it visible to other threads.

Placed after allocate_shared (buffers at one offset are one memory) and before predicates are merged: a barrier may be
only where the whole block passes, which holds outside predicates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from fuser.errors import InternalError
from fuser.ir.integers.integers import Int, prove_less
from fuser.ir.kernel.kernel import (
    Allocate,
    AsyncCopy,
    AsyncWait,
    BlockBarrier,
    Buffer,
    ClusterArrive,
    For,
    If,
    Role,
    Stmt,
    child_bodies,
    walk,
)
from fuser.ir.kernel.kernel_accesses import stmt_reads, stmt_writes
from fuser.records import record

_DIVERGENT = (Role.predicate, Role.owner, Role.unswitch)


@record
class SyncScope:
    """A synchronisation scope (the threads of a block, or the blocks of the grid) and its barrier. Its members are these
    threads or blocks.

    alias_key   equal for buffers that may alias; None for buffers that one member alone accesses
    private     names of buffers whose elements are written and read by the same member
    barriers    the statements that synchronise the members
    make        a barrier, with a reason as its comment
    diverges    whether only some members may enter the body of a test or loop, or some more often than others
    refused     the error for a barrier that would be placed in such a body
    """

    alias_key: Callable[[Buffer], object | None]
    private: AbstractSet[str]
    barriers: tuple[type[Stmt], ...]
    make: Callable[[str], Stmt]
    diverges: Callable[[Stmt], bool]
    refused: Callable[[str], Exception]


@record
class Access:
    """One access; `alias_key`: see `SyncScope`."""

    alias_key: object
    buffer: Buffer
    is_write: bool


@dataclass(slots=True, eq=False)
class _Flow:
    """What a statement list leaves visible: accesses before its first barrier and after its last one."""

    stmts: tuple[Stmt, ...]
    head: list[Access]
    tail: list[Access]
    has_barrier: bool


def insert_syncs(
    body: tuple[Stmt, ...],
    offsets: Mapping[str, Int],
    thread_private: AbstractSet[str],
    shared_within_block: AbstractSet[str],
    *,
    one_thread: bool = False,
) -> tuple[Stmt, ...]:
    """Add barriers.

    offsets     place of each shared buffer
    thread_private       names of shared buffers each of whose elements one thread alone accesses
    shared_within_block  names of global-memory buffers through which threads of one block pass values
    one_thread           a block has a single thread: no values are passed
    """
    if one_thread:
        return body

    def memory(buffer: Buffer) -> object | None:
        if buffer.is_shared:
            return offsets[buffer.name]
        return buffer if buffer.is_global and buffer.name in shared_within_block else None

    def refused(what: str) -> Exception:
        message = f"a barrier would be needed inside divergent control flow: {what}"
        return InternalError(message, pass_name="insert_syncs")

    def diverges(stmt: Stmt) -> bool:
        return isinstance(stmt, If) and stmt.role in _DIVERGENT

    # A cluster barrier orders what is before its first half, ClusterArrive. Of the one at the start of a kernel the second
    # half comes much later.
    return insert_barriers(
        body, SyncScope(memory, thread_private, (BlockBarrier, ClusterArrive), BlockBarrier, diverges, refused)
    )


def insert_barriers(body: tuple[Stmt, ...], scope: SyncScope) -> tuple[Stmt, ...]:
    """Add the barriers of one scope, each as late as possible."""
    return _Inserter(scope).run(body).stmts


class _Inserter:
    """`on_their_way`: writes of asynchronous copies that may be in flight, by buffer."""

    def __init__(self, scope: SyncScope) -> None:
        self.scope = scope
        self.on_their_way: dict[Buffer, Access] = {}
        self._known: dict[Stmt, list[Access]] = {}

    def _accesses(self, stmt: Stmt) -> list[Access]:
        """Tracked accesses of a statement and everything inside it: computed once, although each level of a nest asks."""
        found = self._known.get(stmt)
        if found is not None:
            return found
        found = self._known[stmt] = []
        for pairs, is_write in ((stmt_reads(stmt), False), (stmt_writes(stmt), True)):
            for buffer, _ in pairs:
                memory = self.scope.alias_key(buffer)
                if memory is not None:
                    found.append(Access(memory, buffer, is_write))
        for body in child_bodies(stmt):
            for inner in body:
                found += self._accesses(inner)
        return found

    def _conflict(self, before: Sequence[Access], after: Sequence[Access]) -> tuple[Access, Access] | None:
        for b in after:
            for a in before:
                if a.alias_key is not b.alias_key or not (a.is_write or b.is_write):
                    continue
                if a.buffer is b.buffer and (a.buffer.name in self.scope.private or (a.is_write and b.is_write)):
                    continue
                return a, b
        return None

    def _barrier(self, pair: tuple[Access, Access]) -> Stmt:
        a, b = pair
        words = {False: "read", True: "written"}
        return self.scope.make(f"{a.buffer.name} {words[a.is_write]} before {b.buffer.name} is {words[b.is_write]}")

    def run(self, body: Sequence[Stmt]) -> _Flow:
        """Barriers inside one statement list."""
        out: list[Stmt] = []
        head: list[Access] = []
        tail: list[Access] = []
        passed = False

        def separate(accesses: list[Access]) -> None:
            nonlocal tail, passed
            pair = self._conflict(tail, accesses)
            if pair is not None:
                out.append(self._barrier(pair))
                tail, passed = [], True

        for stmt in body:
            if isinstance(stmt, self.scope.barriers):
                out.append(stmt)
                tail, passed = [], True
                continue
            if isinstance(stmt, Allocate):
                out.append(stmt)
                continue
            if isinstance(stmt, AsyncWait):
                out.append(stmt)
                tail = [*tail, *self.on_their_way.values()]
                if stmt.pending == 0:
                    self.on_their_way.clear()
                continue
            if not isinstance(stmt, (For, If)) or self.scope.diverges(stmt):
                flow = self._leaf(stmt)
            elif isinstance(stmt, If):
                flow = self._branch(stmt)
            elif self._accesses(stmt) or any(isinstance(s, self.scope.barriers) for s in walk((stmt,))):
                flow = self._loop(stmt)
            else:
                flow = _Flow((stmt,), [], [], False)
            separate(flow.head)
            if not passed:
                head += flow.head
            tail = flow.tail if flow.has_barrier else tail + flow.tail
            passed = passed or flow.has_barrier
            out += flow.stmts
        return _Flow(tuple(out), head, tail, passed)

    def _leaf(self, stmt: Stmt) -> _Flow:
        accesses = self._accesses(stmt)
        for copy in walk((stmt,)):
            if isinstance(copy, AsyncCopy):
                self.on_their_way |= {a.buffer: a for a in self._accesses(copy) if a.is_write}
        if isinstance(stmt, (If, For)):
            before = dict(self.on_their_way)
            inner = self.run([s for body in child_bodies(stmt) for s in body])
            # Who does not come there does not wait there.
            self.on_their_way = before | self.on_their_way
            if inner.has_barrier:
                raise self.scope.refused(", ".join(sorted({a.buffer.name for a in accesses})))
        return _Flow((stmt,), accesses, accesses, False)

    def _loop(self, stmt: For) -> _Flow:
        flow = self.run(stmt.body)
        body = flow.stmts
        tail, passed = flow.tail, flow.has_barrier
        pair = self._conflict(tail, flow.head)
        if pair is not None:
            body = (*body, self._barrier(pair))
            tail, passed = [], True
        if body is not stmt.body:
            stmt = replace(stmt, body=body)
        # A loop that may run over nothing parts nothing.
        return _Flow((stmt,), flow.head, tail, passed and prove_less(stmt.start, stmt.stop))

    def _branch(self, stmt: If) -> _Flow:
        """A branch that is uniform in the block: barriers may be inside, but count only if both sides have one."""
        before = dict(self.on_their_way)
        then = self.run(stmt.then)
        after_then, self.on_their_way = self.on_their_way, before
        orelse = self.run(stmt.orelse)
        # Who came the other way has not waited.
        self.on_their_way = after_then | self.on_their_way
        made = If(stmt.condition, then.stmts, orelse.stmts, stmt.role)
        both = then.has_barrier and orelse.has_barrier
        return _Flow((made,), then.head + orelse.head, then.tail + orelse.tail, both)
