"""Masked loads: give a register whose load is masked off the value that its accumulator begins with.

Before: for (i) { kept[i] = -inf }   for (u) { if (u < n) { x[u] = t[u] } }   for (u) { if (u < n) { kept[u] = x[u] } }
After:  for (i) { kept[i] = -inf }   for (u) { if (u < n) { x[u] = t[u] } else { x[u] = -inf } }   for (u) { kept[u] = x[u] }

In a partial iteration each element would be kept under a predicate of its own, and warps would diverge between threads
that have all of their elements and those that have not. With this pass only the load is masked, a vector at a time:
`Load(mask, other)` in the terms of Triton. Casts may stand between the load and the kept value, because they keep
infinities.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from fuser.ir.integers import Cond, Int, Symbol
from fuser.ir.kernel import Allocate, Buffer, Cast, For, If, Literal, Load, Role, Stmt, Store, Value, VectorMove, walk
from fuser.ir.kernel_accesses import stmt_reads, stmt_writes
from fuser.records import record


def fill_masked_loads(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The body with such loads and their consumers changed."""
    begun = {s.buffer for s in walk(body) if isinstance(s, Store) and _begins(s)}
    if not begun:
        return body
    written = Counter(b for s in walk(body) for b, _ in stmt_writes(s))
    read = Counter(b for s in walk(body) for b, _ in stmt_reads(s))
    alone = {b for b in written if b.is_register and written[b] == 1 and read[b] == 1}
    return _changed(body, begun, alone)


def _begins(store: Store) -> bool:
    value = store.value
    return store.role is Role.initialise and isinstance(value, Literal) and value.value == -math.inf


def _changed(body: Sequence[Stmt], begun: set[Buffer], alone: set[Buffer]) -> tuple[Stmt, ...]:
    out = list(body)
    for k, stmt in enumerate(body):
        match stmt:
            case For():
                inner = _changed(stmt.body, begun, alone)
                if inner != stmt.body:
                    out[k] = For(stmt.symbol, stmt.start, stmt.stop, stmt.step, inner, stmt.unroll, stmt.unswitch)
            case If():
                then, orelse = _changed(stmt.then, begun, alone), _changed(stmt.orelse, begun, alone)
                if (then, orelse) != (stmt.then, stmt.orelse):
                    out[k] = If(stmt.condition, then, orelse, stmt.role)
            case _:
                continue
    reads = {found.buffer: (k, found) for k, s in enumerate(out) if (found := _tested_read(s)) is not None}
    for k, stmt in enumerate(out):
        kept = _kept(stmt, begun)
        if kept is None or kept.buffer not in alone or kept.buffer not in reads:
            continue
        at, found = reads[kept.buffer]
        if at < k and _is_same(found, kept):
            out[at], out[k] = _filled(out[at], found), kept.untested
    return tuple(out)


@record(eq=False)
class _Read:
    """A read of `width` elements into `buffer` from `index` on, under `condition` within the loop of `symbol`."""

    buffer: Buffer
    index: Int
    width: int
    condition: Cond
    symbol: Symbol | None


def _tested_read(stmt: Stmt) -> _Read | None:
    symbol = None
    if isinstance(stmt, For) and len(stmt.body) == 1:
        symbol, stmt = stmt.symbol, stmt.body[0]
    match stmt:
        case If(condition, (VectorMove(buffer, index, source, _, width),), (), Role.predicate) if source.is_global:
            return _Read(buffer, index, width, condition, symbol)
        case If(condition, (Store(buffer, index, Load(source)),), (), Role.predicate) if source.is_global:
            return _Read(buffer, index, 1, condition, symbol)
        case _:
            return None


@record(eq=False)
class _Kept:
    """Elements of `buffer` kept as held values under `condition` within `loops`; the same without the test."""

    buffer: Buffer
    index: Int
    condition: Cond
    loops: tuple[For, ...]
    untested: Stmt


def _kept(stmt: Stmt, begun: set[Buffer]) -> _Kept | None:
    loops: list[For] = []
    inner: Sequence[Stmt] = (stmt,)
    while len(inner) == 1 and isinstance(inner[0], For):
        loops.append(inner[0])
        inner = inner[0].body
    if not loops:
        return None
    values: dict[Buffer, Value] = {}
    conditions: set[Cond] = set()
    place: tuple[Buffer, Int] | None = None
    untested: list[Stmt] = []
    for s in inner:
        match s:
            case Allocate():
                untested.append(s)
            # Memory has no elements that are left out.
            case If(condition, (Store(buffer, index, value) as store,), (), Role.predicate) if buffer.is_register:
                found = _source(value, values)
                if found is None or place is not None:
                    return None
                conditions.add(condition)
                untested.append(store)
                values[buffer] = Load(*found)
                if buffer in begun:
                    place = found if index is found[1] else None
                    if place is None:
                        return None
            case _:
                return None
    if place is None or len(conditions) != 1:
        return None
    made = tuple(untested)
    for loop in reversed(loops):
        made = (For(loop.symbol, loop.start, loop.stop, loop.step, made, loop.unroll),)
    return _Kept(*place, conditions.pop(), tuple(loops), made[0])


def _source(value: Value, values: dict[Buffer, Value]) -> tuple[Buffer, Int] | None:
    """The element that a value is, or is cast from."""
    while True:
        match value:
            case Cast(inner, dtype) if dtype.is_floating:
                value = inner
            case Load(buffer) if buffer in values:
                value = values[buffer]
            case Load(buffer, index) if buffer.is_register and buffer.dtype.is_floating:
                return buffer, index
            case _:
                return None


def _is_same(read: _Read, kept: _Kept) -> bool:
    """Whether a kept element is one that was read, under the same test."""
    for symbols in _pairs(read, kept):
        lane = kept.index - read.index.substitute(symbols)
        inside = lane.is_const and lane.value == 0 and read.width == 1
        inside = inside or any(
            lane is loop.symbol and loop.stop.is_const and loop.stop.value == read.width for loop in kept.loops
        )
        if inside and read.condition.substitute(symbols) is kept.condition:
            return True
    return False


def _pairs(read: _Read, kept: _Kept) -> Iterator[dict[Symbol, Int | int]]:
    """The loop that the read is in as each of those that the values are in."""
    if read.symbol is None:
        yield {}
        return
    for loop in kept.loops:
        yield {read.symbol: loop.symbol}


def _filled(stmt: Stmt, read: _Read) -> Stmt:
    if isinstance(stmt, For):
        inner = _filled(stmt.body[0], read)
        return For(stmt.symbol, stmt.start, stmt.stop, stmt.step, (inner,), stmt.unroll, stmt.unswitch)
    assert isinstance(stmt, If)
    fill = Literal(-math.inf, read.buffer.dtype)
    fills = tuple(Store(read.buffer, read.index + lane, fill) for lane in range(read.width))
    return If(stmt.condition, stmt.then, fills, stmt.role)
