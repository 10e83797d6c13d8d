"""Read what some elements of a row share before the blocks of a cluster wait for one another. Part of the pass read_early.

Before: t = reduce(...);  for i in 0 .. n { for v { w = input[f(i)]; ... x[i, v] ... t ... w ... } }
After:  for i in 0 .. n { early[i] = input[f(i)] };  t = reduce(...);  for i in 0 .. n { for v { w = early[i]; ... } }

The weight of a channel, of which a row of group norm has several, is found by a division and comes from memory: a latency for
each access of a thread, one after the other, once all blocks have met. Few such values wait in registers as well; where each
element of an access has its own they are too many, and stay. Rows over a cluster are few or long, so that nothing else of the
processor's runs meanwhile; others do without those registers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from fuser.ir.integers import ONE, ZERO, Symbol, symbol
from fuser.ir.kernel import Allocate, Buffer, For, If, Load, Reduce, Role, Stmt, Store, child_bodies, walk
from fuser.ir.kernel_accesses import stmt_reads, stmt_writes
from fuser.ir.kernel_rewrites import map_body, substitute_symbols
from fuser.records import record

MOST_VALUES = 8
"""Registers of a thread that such values may take."""


@record(eq=False)
class _Found:
    """A store of such a value under a test: `If(condition, (Store(buffer, 0, Load(...)),))`."""

    test: If
    store: Store
    read: Load


def read_beside(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The body with such reads behind the loads of the rows. Only for the first reduction over the blocks of a cluster."""
    start = next((k for k, s in enumerate(body) if isinstance(s, Reduce) and s.cluster_axes), None)
    if start is None:
        return body
    writes = Counter(buffer for s in walk(body) for buffer, _ in stmt_writes(s))
    loads = (k for k in range(start) if any(b.is_global for s in walk((body[k],)) for b, _ in stmt_reads(s)))
    at = max(loads, default=-1) + 1
    later = frozenset(x for s in body[at:] for x in _symbols(s))
    result = list(body)
    early: list[Stmt] = []
    room = MOST_VALUES
    for k, s in enumerate(body[start:], start):
        if not (isinstance(s, For) and s.unroll and s.start is ZERO and s.step is ONE and s.stop.is_const):
            continue
        found = _values(s, writes, later - {s.symbol})
        # A thread with one access has no loop around it: this one goes over its elements.
        each = [f for f in found if s.symbol in f.test.condition.symbols | f.read.index.symbols]
        taken = len(each) * s.stop.value + len(found) - len(each)
        if not found or taken > room:
            continue
        room -= taken
        again = symbol(f"{s.symbol.name}_early", s.symbol.lo, s.symbol.hi)
        held: dict[Stmt, Stmt] = {}
        reads: dict[bool, list[Stmt]] = {False: [], True: []}
        for f in found:
            place, size = (s.symbol, s.stop) if f in each else (ZERO, ONE)
            b = Buffer(f"{f.store.buffer.name}_early", f.store.buffer.dtype, f.store.buffer.memory, size)
            early.append(Allocate(b))
            reads[f in each].append(If(f.test.condition, (Store(b, place, f.read),), role=Role.predicate))
            held[f.test] = If(f.test.condition, (Store(f.store.buffer, ZERO, Load(b, place)),), role=Role.predicate)
        early += reads[False]
        if each:
            looped = substitute_symbols(tuple(reads[True]), {s.symbol: again})
            early.append(For(again, ZERO, s.stop, ONE, looped, unroll=True))
        inner = map_body(s.body, lambda stmt, held=held: (held[stmt],) if stmt in held else None)
        result[k] = For(s.symbol, s.start, s.stop, s.step, inner, s.unroll, s.unswitch)
    if not early:
        return body
    return (*result[:at], *early, *result[at:])


def _values(loop: For, writes: Counter[Buffer], later: AbstractSet[Symbol]) -> list[_Found]:
    """Reads of single elements in a loop that depend on its symbol at most, and on no other that is defined `later`."""
    found: list[_Found] = []
    for test in walk(loop.body):
        if not (isinstance(test, If) and test.role is Role.predicate and len(test.then) == 1 and not test.orelse):
            continue
        store = test.then[0]
        if not (isinstance(store, Store) and isinstance(store.value, Load) and store.buffer.is_register):
            continue
        read, used = store.value, test.condition.symbols | store.value.index.symbols
        if (
            store.buffer.size is ONE
            and writes[store.buffer] == 1
            and read.buffer.is_global
            and writes[read.buffer] == 0
            and used.isdisjoint(later)
        ):
            found.append(_Found(test, store, read))
    return found


def _symbols(stmt: Stmt) -> list[Symbol]:
    """Symbols that are defined in a statement, those of loops included."""
    own: Sequence[object] = (getattr(stmt, "symbol", None), getattr(stmt, "last_block", None))
    inner = [x for body in child_bodies(stmt) for s in body for x in _symbols(s)]
    return [*(x for x in own if isinstance(x, Symbol)), *inner]
