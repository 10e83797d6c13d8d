"""Sink what follows from the results of columns alone to their owners, the threads that join them.

Before: if (owner) { found[e] = sum of column e }  for all k: total[k] = found[k], root[k] = rsqrt(total[k] / n + eps)
After:  if (owner) { own = sum of column e; found[e] = rsqrt(own / n + eps) }  for all k: root[k] = found[k]

After a reduce-scatter in a block or cluster each owner has one result and broadcasts it to all threads. Without this pass every
thread computes what follows for all of its columns: sixteen warps that divide and take roots for eight columns each keep an SM
busy for half a microsecond while memory is idle. The operations are the same, and so are the bits.

Statements move as long as they read only those results, their own values and arguments. What later statements read of them is
broadcast in place of the results, if that is no more to broadcast. Stands behind expand_collectives, before shared memory is
laid out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from fuser.ir.enums import MemoryType
from fuser.ir.integers import ONE, ZERO, Cond, Int, Symbol
from fuser.ir.kernel import (
    Allocate,
    Buffer,
    Call,
    Cast,
    Comment,
    For,
    If,
    Literal,
    Load,
    Role,
    ScalarArgument,
    Stmt,
    Store,
    Value,
    walk,
)
from fuser.ir.kernel_accesses import stmt_reads, stmt_writes
from fuser.records import record

Tests = tuple[Cond, ...]


@record(eq=False)
class _Broadcast:
    """A result that owners broadcast: from register `own` to place `at` of the shared array `found`, and which register
    array every thread reads it into, from place `read_at` for each `element`."""

    own: Buffer
    found: Buffer
    at: Int
    target: Buffer
    read_at: Int
    element: Symbol | None


@dataclass(slots=True)
class _Moved:
    """Statements on their way to the owners.

    size        elements of the arrays
    own         what stands for an array there: a register
    forbidden   symbols that owners and others have different values of
    tests       under which an array was set
    element     index of the arrays' elements in the loop at hand; None outside of loops
    of_element  single registers that were set for the element at hand: owners have no other's
    of_last     those of a loop before, which say something of its last element
    calls       operations for each element
    """

    size: int
    own: dict[Buffer, Buffer]
    forbidden: frozenset[Symbol]
    tests: dict[Buffer, Tests] = field(default_factory=dict[Buffer, Tests])
    element: Symbol | None = None
    of_element: set[Buffer] = field(default_factory=set[Buffer])
    of_last: set[Buffer] = field(default_factory=set[Buffer])
    calls: int = 0

    def copy(self) -> _Moved:
        """One that statements may be added to, and be dropped with them."""
        of_last = set(self.of_last)
        return _Moved(self.size, dict(self.own), self.forbidden, dict(self.tests), of_last=of_last, calls=self.calls)

    def statement(self, stmt: Stmt, under: Tests) -> list[Stmt] | None:
        """The statement for one element, or None if it reads or does anything else."""
        match stmt:
            case Allocate(buffer=buffer) if buffer.is_register:
                return []
            case Comment():
                return []
            case Store(buffer=buffer, index=index, value=value, role=role) if buffer.is_register:
                made = self.value(value, under)
                if made is None or not self._is_place(buffer, index) or self.tests.get(buffer, under) != under:
                    return None
                if buffer.size is ONE and self.element is not None:
                    if buffer in self.own and buffer not in self.of_element | self.of_last:
                        return None
                    self.of_element.add(buffer)
                self.of_last.discard(buffer)
                if buffer not in self.tests:
                    self.tests[buffer] = under
                    self.own[buffer] = Buffer(f"{buffer.name}_own", buffer.dtype, MemoryType.local, ONE)
                return [Store(self.own[buffer], ZERO, made, role)]
            case If(condition=condition, then=then, orelse=(), role=Role.predicate):
                if not self.forbidden.isdisjoint(condition.symbols) or self.element in condition.symbols:
                    return None
                inside = self.body(then, (*under, condition))
                return None if inside is None else [replace(stmt, then=tuple(inside))]
            case For(symbol=symbol, start=start, stop=stop, step=step, body=body) if self.element is None:
                if not (start is ZERO and step is ONE and stop.is_const and stop.value == self.size) or under:
                    return None
                self.element = symbol
                inside = self.body(body, under)
                self.element = None
                self.of_last |= self.of_element
                self.of_element.clear()
                return inside
            case _:
                return None

    def body(self, stmts: Sequence[Stmt], under: Tests) -> list[Stmt] | None:
        """The same for all of them."""
        result: list[Stmt] = []
        for stmt in stmts:
            made = self.statement(stmt, under)
            if made is None:
                return None
            result += made
        return result

    def value(self, value: Value, under: Tests) -> Value | None:
        """The value of the owner's element."""
        match value:
            case Literal() | ScalarArgument():
                return value
            case Cast(operand, dtype):
                made = self.value(operand, under)
                return None if made is None else Cast(made, dtype)
            case Call(op, args, compute, dtype):
                self.calls += self.element is not None
                made_args = [self.value(a, under) for a in args]
                found = tuple(a for a in made_args if a is not None)
                return Call(op, found, compute, dtype) if len(found) == len(args) else None
            case Load(buffer=buffer, index=index):
                tests = self.tests.get(buffer, ())
                is_set = buffer in self.own and buffer not in self.of_last and under[: len(tests)] == tests
                return Load(self.own[buffer], ZERO) if is_set and self._is_place(buffer, index) else None
            case _:
                return None

    def _is_place(self, buffer: Buffer, index: Int) -> bool:
        if buffer.size is ONE:
            return index is ZERO
        return buffer.size.is_const and buffer.size.value == self.size and index is self.element


def sink_to_owners(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The body whose owners compute what follows from their results alone, before they broadcast to the block."""
    written = Counter(b for s in walk(body) for b, _ in stmt_writes(s) if b.is_shared)
    for k, stmt in enumerate(body):
        if isinstance(stmt, If) and stmt.role is Role.owner and not stmt.orelse:
            count, broadcasts = _broadcast_behind(stmt, body[k + 1 :], written)
            if broadcasts:
                changed = _moved(body[:k], stmt, broadcasts, body[k + 1 + count :])
                if changed is not None:
                    return changed
    return body


def _broadcast_behind(owner: If, rest: Sequence[Stmt], written: Mapping[Buffer, int]) -> tuple[int, list[_Broadcast]]:
    """How many statements behind an owner's read what it broadcasts, and what that is.

    written   how many statements store to a shared array: with more than one, owners have several results each
    """
    # What all results have in common is broadcast by the owner of one of them.
    common = [s for test in owner.then if isinstance(test, If) for s in test.then]
    stores = {s.buffer: s for s in (*owner.then, *common) if isinstance(s, Store) and written[s.buffer] == 1}
    broadcasts: list[_Broadcast] = []
    count = 0
    for stmt in rest:
        found = [t for t in _reads(stmt, stores) if t.element is None or stores[t.found] not in common]
        if not found or len(found) != sum(1 for _ in walk((stmt,))) - isinstance(stmt, For):
            break
        broadcasts += found
        count += 1
    return count, broadcasts


def _reads(stmt: Stmt, stores: dict[Buffer, Store]) -> Iterator[_Broadcast]:
    """Reads of all elements that an array has, or of the one that a register has."""
    element, count, body = None, ONE, (stmt,)
    if isinstance(stmt, For):
        if stmt.start is not ZERO or stmt.step is not ONE:
            return
        element, count, body = stmt.symbol, stmt.stop, stmt.body
    for s in body:
        match s:
            case Store(buffer=target, index=index, value=Load(buffer=found, index=place)) if found in stores:
                store, own = stores[found], stores[found].value
                is_whole = (
                    target.is_register and target.size == count and index is (ZERO if element is None else element)
                )
                if is_whole and isinstance(own, Load) and own.buffer.is_register and own.index is ZERO:
                    yield _Broadcast(own.buffer, found, store.index, target, place, element)
            case _:
                pass


def _moved(
    before: Sequence[Stmt], owner: If, broadcasts: Sequence[_Broadcast], behind: Sequence[Stmt]
) -> tuple[Stmt, ...] | None:
    """The body with what follows from the results moved to their owner; None if that is nothing, or more to broadcast."""
    wide = [t for t in broadcasts if t.element is not None]
    sizes = {t.target.size for t in wide}
    if len(sizes) != 1 or not (size := sizes.pop()).is_const:
        return None
    first, element = wide[0], wide[0].element
    assert element is not None
    # What follows is broadcast from one place: that of an owner's only element.
    if len({(t.at, _at(t, element), t.found.size) for t in wide}) != 1:
        return None
    moving = _Moved(size.value, {t.target: t.own for t in broadcasts}, frozenset(owner.condition.symbols))
    work: list[Stmt] = []
    count = 0
    for stmt in behind:
        trial = moving.copy()
        made = trial.statement(stmt, ())
        if made is None:
            break
        moving, count = trial, count + 1
        work += made
    rest = tuple(behind[count:])
    read = {b for s in walk(rest) for b, _ in stmt_reads(s)}
    used = read | {b for s in walk(rest) for b, _ in stmt_writes(s)}
    results = [t for t in broadcasts if t.found in read or (t.target in read and t.target not in moving.tests)]
    values = [b for b in moving.tests if b in read]
    broadcasts_more = sum(b.dtype.itemsize for b in values) > sum(
        t.found.dtype.itemsize for t in wide if t not in results
    )
    if not moving.calls or broadcasts_more or any(b.size is ONE for b in values):
        return None
    shared = {b: Buffer(f"{b.name}_told", b.dtype, MemoryType.shared, first.found.size) for b in values}
    unused = {t.found for t in broadcasts} - {t.found for t in results}
    then = (
        *_without(owner.then, unused),
        *(Allocate(moving.own[b]) for b in moving.tests),
        *work,
        *(_under(moving.tests[b], Store(shared[b], first.at, Load(moving.own[b], ZERO))) for b in values),
    )
    common = [Store(t.target, ZERO, Load(t.found, t.read_at)) for t in results if t.element is None]
    of_each = [Store(t.target, element, Load(t.found, _at(t, element))) for t in results if t.element is not None]
    of_each += [_under(moving.tests[b], Store(b, element, Load(shared[b], first.read_at))) for b in values]
    return (
        *_in_place_of(before, unused, [Allocate(b) for b in shared.values()]),
        replace(owner, then=then),
        *(s for s in behind[:count] if isinstance(s, Allocate) and s.buffer in used),
        *common,
        For(element, ZERO, size, ONE, tuple(of_each), unroll=True),
        *rest,
    )


def _at(broadcast: _Broadcast, element: Symbol) -> Int:
    """The place that an element of a result is read at."""
    return (
        broadcast.read_at if broadcast.element is None else broadcast.read_at.substitute({broadcast.element: element})
    )


def _in_place_of(body: Sequence[Stmt], unused: Set[Buffer], made: Sequence[Stmt]) -> Iterator[Stmt]:
    """The statements with `made` where the first of the unused buffers came into scope: other threads still read what shares
    its bytes with buffers that come into scope later."""
    is_first = True
    for stmt in body:
        if not (isinstance(stmt, Allocate) and stmt.buffer in unused):
            yield stmt
        elif is_first:
            is_first = False
            yield from made


def _without(body: Sequence[Stmt], unused: Set[Buffer]) -> Iterator[Stmt]:
    """The statements without stores to some buffers."""
    for stmt in body:
        match stmt:
            case Store(buffer=buffer) if buffer in unused:
                pass
            case If(then=then, orelse=()):
                left = tuple(_without(then, unused))
                if left:
                    yield replace(stmt, then=left)
            case _:
                yield stmt


def _under(tests: Tests, stmt: Stmt) -> Stmt:
    for condition in reversed(tests):
        stmt = If(condition, (stmt,), role=Role.predicate)
    return stmt
