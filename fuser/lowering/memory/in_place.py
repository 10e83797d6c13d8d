"""Which outputs may be written straight into the storage of the input they alias.

Decided by what the statements of the kernel access, collectives, copies and barriers included, so that a read counts wherever
it came from: an expr, a value that all threads of a row need, a load ahead of its loop, a second pass over the row. For every
read of the input, in any form, the element that is read is
    * written by the thread that reads it, later; or
    * written by a thread of the same block, after a block barrier that is on every path from the read to a store.
An asynchronous copy reads until its thread has waited for it (read_completion.py).
Who writes an element is found from the index of the output's stores: a choice of the store's loops for which its index is the
one that is read and its tests hold where the read's do. An element has one writer, so no other thread stores there. What
cannot be shown so is not assumed: the output goes to a temporary that is copied afterwards.

    if r < n: a = x[r*m + t]                           the same thread, earlier: x[...] may be overwritten
    if r < n: y[r*m + t] = f(a)
    if r < n: s = x[r*m]; if r < n: y[r*m + t] = ...   the thread with t == 0 writes what others read: with a barrier between

A vector that an end of a row cuts is read from no place that the kernel writes: it looks at more than it names
(`VectorMove.cut`).

No other argument may overlap that input: the facts say so, and a launch checks them.

Placed after insert_syncs: all reads and barriers exist, and loops and tests are still those of single statements. Later passes
neither move an access across a barrier nor to another thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fuser.ir.facts import Disjoint
from fuser.ir.fusion.fusion import Tensor
from fuser.ir.integers.integers import (
    ONE,
    TRUE,
    ZERO,
    Compare,
    Cond,
    Int,
    Symbol,
    all_of,
    conjuncts,
    const,
    divide,
    less,
    less_equal,
    negate,
    prove_less,
    prove_less_equal,
    symbol,
)
from fuser.ir.kernel.kernel import (
    AsyncCopy,
    AtomicAdd,
    Buffer,
    For,
    If,
    Let,
    LoadIndex,
    Stmt,
    VectorMove,
)
from fuser.ir.kernel.kernel_accesses import stmt_reads, stmt_writes
from fuser.ir.ops.enums import ParallelType
from fuser.lowering.context import LoweringContext
from fuser.lowering.memory.read_completion import is_read_complete_before_writes
from fuser.records import record


def in_place_outputs(context: LoweringContext, body: tuple[Stmt, ...], arguments: dict[str, Buffer]) -> tuple[str, ...]:
    """Names of the outputs, of a body with its barriers, that need no temporary. `arguments`: buffers by tensor."""
    found: list[str] = []
    for name, source in sorted(context.alias_of.items()):
        if name in context.builder.input_names or not _overlaps_no_argument(context, source):
            continue
        read, written = arguments.get(source.name), arguments.get(name)
        if written is None or (read is not None and not may_overwrite(body, read, written, context.threads)):
            continue
        found.append(name)
    return tuple(found)


def _overlaps_no_argument(context: LoweringContext, source: Tensor) -> bool:
    """Whether no other argument's bytes overlap the storage that would be written: a fact, which the launch checks."""
    others = [t for t in context.fusion.input_tensors if t is not source and not t.is_cpu]
    return all(Disjoint(source.name, t.name) in context.facts for t in others)


def may_overwrite(
    body: tuple[Stmt, ...], source: Buffer, output: Buffer, threads: Mapping[ParallelType, Symbol]
) -> bool:
    """Whether no read of `source` sees what is stored to `output`, were element i of both in one place."""
    accesses = _Accesses(source, output)
    accesses.visit(body)
    return _Reads(body, accesses, threads).precede_stores()


# --- accesses ---------------------------------------------------------------------------------------------------------


@record(eq=False)
class _Loop:
    """A loop around an access, or the elements of a vector as one."""

    symbol: Symbol
    start: Int
    stop: Int
    step: Int


@record(eq=False)
class _Access:
    """A read of the input or a store of the output.

    path    places from the body on, statement list by statement list: program order where loops are in one iteration
    loops   around it, outermost first
    tests   what holds where it is executed
    """

    stmt: Stmt
    path: tuple[int, ...]
    index: Int
    is_write: bool
    loops: tuple[_Loop, ...]
    tests: frozenset[Cond]


class _Accesses:
    """Collects reads of `source` and writes of `output`, with let-bound symbols substituted in indices and tests.

    loaded   symbols that get their values from memory
    """

    def __init__(self, source: Buffer, output: Buffer) -> None:
        self.source = source
        self.output = output
        self.found: list[_Access] = []
        self.values: dict[Symbol, Int] = {}
        self.loaded: set[Symbol] = set()

    def visit(
        self,
        body: Sequence[Stmt],
        path: tuple[int, ...] = (),
        loops: tuple[_Loop, ...] = (),
        tests: frozenset[Cond] = frozenset(),
    ) -> None:
        for place, stmt in enumerate(body):
            here = (*path, place)
            for accesses, buffer, is_write in (
                (stmt_reads(stmt), self.source, False),
                (stmt_writes(stmt), self.output, True),
            ):
                for accessed, index in accesses:
                    if accessed is buffer:
                        self._note(stmt, (*here, int(is_write)), index, is_write, loops, tests)
            match stmt:
                case Let():
                    self.values[stmt.symbol] = stmt.value.substitute(self.values)
                case LoadIndex(symbol=symbol) | AtomicAdd(symbol=Symbol() as symbol):
                    self.loaded.add(symbol)
                case For():
                    bounds = (b.substitute(self.values) for b in (stmt.start, stmt.stop, stmt.step))
                    self.visit(stmt.body, here, (*loops, _Loop(stmt.symbol, *bounds)), tests)
                case If():
                    test = stmt.condition.substitute(self.values)
                    self.visit(stmt.then, (*here, 0), loops, tests.union(conjuncts(test)))
                    self.visit(stmt.orelse, (*here, 1), loops, tests.union(conjuncts(negate(test))))
                case _:
                    pass

    def _note(
        self,
        stmt: Stmt,
        path: tuple[int, ...],
        index: Int,
        is_write: bool,
        loops: tuple[_Loop, ...],
        tests: frozenset[Cond],
    ) -> None:
        index = index.substitute(self.values)
        if isinstance(stmt, (VectorMove, AsyncCopy)) and stmt.width > 1:
            element = symbol("element", 0, stmt.width - 1)
            index = index + element
            loops = (*loops, _Loop(element, ZERO, const(stmt.width), ONE))
        self.found.append(_Access(stmt, path, index, is_write, loops, tests))


# --- who writes what is read ------------------------------------------------------------------------------------------


@record(eq=False)
class _Match:
    """A store to the element that is read.

    missing    tests of the store that the read does not make
    is_later   whether it comes after the read in program order
    after      the loop around both of which it is in a later iteration than the read, if it is
    """

    missing: frozenset[Cond]
    is_later: bool
    after: Symbol | None = None


class _Reads:
    """Finds the stores of a kernel to the elements that reads ask for. `threads`: positions of a thread in block and grid."""

    def __init__(self, body: tuple[Stmt, ...], accesses: _Accesses, threads: Mapping[ParallelType, Symbol]) -> None:
        self.body = body
        self.loaded = accesses.loaded
        self.writes = [a for a in accesses.found if a.is_write]
        self.reads = [a for a in accesses.found if not a.is_write]
        self.threads = frozenset(threads.values())
        self.in_block = tuple(s for p, s in threads.items() if p.is_block)

    def precede_stores(self) -> bool:
        return all(self._precedes_stores(read) for read in self.reads)

    def _precedes_stores(self, read: _Access) -> bool:
        """Whether the elements of a read are written by the same thread, or by one of its block, and not before it is done."""
        if isinstance(read.stmt, (VectorMove, AsyncCopy)) and read.stmt.cut:
            return False
        return any(self._is_complete(read, others) for others in ((), self.in_block))

    def _is_complete(self, read: _Access, others: tuple[Symbol, ...]) -> bool:
        found = [m for w in self.writes if (m := self._match(read, w, others)) is not None]
        left = {m.missing for m in found}
        # Of two stores in the two branches of a test, one writes it.
        split = any(len(m) == 1 and frozenset((negate(next(iter(m))),)) in left for m in left)
        if not (frozenset() in left or split) or not all(m.is_later for m in found):
            return False
        if not others and not isinstance(read.stmt, AsyncCopy):
            return True
        stores = frozenset(w.stmt for w in self.writes)
        return all(
            is_read_complete_before_writes(self.body, read.stmt, stores, m.after, needs_barrier=bool(others))
            for m in found
        )

    def _match(self, read: _Access, write: _Access, others: tuple[Symbol, ...]) -> _Match | None:
        """At which choice of the store's loops, and of its thread's place along `others`, it is to the element that is read."""
        used = write.index.symbols.union(*(t.symbols for t in write.tests))
        if not self.loaded.isdisjoint(used):
            return None
        likely: _Match | None = None
        for choice, needed in self._choices(read, write, write.loops, others, {}, ()):
            if write.index.substitute(choice) is read.index:
                tests = {c for t in write.tests for c in conjuncts(t.substitute(choice))}
                missing = frozenset(c for c in tests.union(needed) if not _is_implied(c, read.tests))
                found = _Match(missing, *_order(read, write, choice))
                if not missing:
                    return found
                likely = likely or found
        return likely

    def _choices(
        self,
        read: _Access,
        write: _Access,
        loops: tuple[_Loop, ...],
        others: tuple[Symbol, ...],
        chosen: dict[Symbol, Int],
        needed: tuple[Cond, ...],
    ) -> Iterator[tuple[dict[Symbol, Int], tuple[Cond, ...]]]:
        """Iterations, and places along `others`, in which a store may come to the element; what must hold for them to run."""
        if loops:
            loop, *inner = loops
            for value, condition in self._iterations(read, write, loop, chosen):
                more = chosen | {loop.symbol: value}
                yield from self._choices(read, write, tuple(inner), others, more, (*needed, condition))
        elif others:
            at, *left = others
            places = [at, ZERO, *_solve(read.index, write.index.substitute(chosen), at)]
            for value in dict.fromkeys(places):
                inside = TRUE if value is at or value is ZERO else _is_thread_position(value, at)
                more = chosen | {at: value}
                yield from self._choices(read, write, (), tuple(left), more, (*needed, inside))
        else:
            yield chosen, needed

    def _iterations(
        self, read: _Access, write: _Access, loop: _Loop, chosen: Mapping[Symbol, Int]
    ) -> Iterator[tuple[Int, Cond]]:
        """Values that a loop around a store may have, and what must hold for it to run so far.

        Of a loop around both accesses the iteration at hand, or the next, for which something is read ahead; else that of a
        loop around the read that runs as it does, to and fro, or the first.
        """
        start, stop, step = (b.substitute(chosen) for b in (loop.start, loop.stop, loop.step))
        if any(loop is other for other in read.loops):
            ahead = loop.symbol + step
            yield loop.symbol, TRUE
            yield ahead, less(ahead, stop)
            return
        for other in reversed(read.loops):
            if (other.start, other.stop, other.step) != (start, stop, step) or any(other is w for w in write.loops):
                continue
            yield other.symbol, TRUE
            if step is ONE:
                yield start + stop - 1 - other.symbol, TRUE
        # Where a loop that is alike for all threads and iterations runs over nothing, there are no stores at all.
        differing = self.threads.union(w.symbol for w in write.loops)
        is_common = differing.isdisjoint(loop.start.symbols | loop.stop.symbols)
        yield start, TRUE if is_common else less(start, stop)


def _solve(wanted: Int, index: Int, at: Symbol) -> Iterator[Int]:
    """The value of `at`, if it is a number, for which an index that is linear in it may be what is wanted."""
    first = index.substitute({at: ZERO})
    each = index.substitute({at: ONE}) - first
    if each is not ZERO:
        quotient, rest = divide(wanted - first, each)
        if rest is ZERO and quotient.is_const:
            yield quotient


def _is_thread_position(value: Int, at: Symbol) -> Cond:
    """Whether a number is below what a thread's place along an axis is below."""
    below = at.below if at.below is not None else at + 1 if at.hi is None else const(at.hi + 1)
    return all_of(less_equal(ZERO, value), less(value, below))


def _is_implied(condition: Cond, tests: frozenset[Cond]) -> bool:
    """Whether a condition follows from one of the tests."""
    if condition is TRUE or condition in tests:
        return True
    if not isinstance(condition, Compare) or condition.kind != ">=":
        return False
    return any(
        isinstance(t, Compare) and t.kind == ">=" and prove_less_equal(t.operand, condition.operand) for t in tests
    )


def _order(read: _Access, write: _Access, choice: Mapping[Symbol, Int]) -> tuple[bool, Symbol | None]:
    """Whether a store in the chosen iterations comes after the read; the loop around both that carries it, if there is one."""
    for loop in write.loops:
        if not any(loop is other for other in read.loops):
            break
        if choice[loop.symbol] is not loop.symbol:
            return prove_less(loop.symbol, choice[loop.symbol]), loop.symbol
    return read.path < write.path, None
