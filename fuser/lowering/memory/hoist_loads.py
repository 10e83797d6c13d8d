"""Hoist loads at a loaded index above a collective, so that their latency overlaps with it.

Before: t = reduce(...); if test { at = index[0]; x = input[at]; y = f(x, t) }
After:  if test { at = index[0]; x = input[at] }; t = reduce(...); if test { y = f(x, t) }

The logit of a row's label waits for memory twice, for the label and for itself, and does not depend on the sums of the row.
Issued behind the loads of the row and before the collective, both loads have returned when the sums are there. Only single
elements move, from inputs that the kernel does not write, together with what computes their index. Whole rows stay, because
registers are short there.

Stands before collectives are expanded: no barrier has a place yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from fuser.ir.integers import ONE, Int, Symbol, symbol
from fuser.ir.kernel import Allocate, Buffer, For, If, LoadIndex, Reduce, Stmt, Store, child_bodies, walk
from fuser.ir.kernel_accesses import stmt_reads, stmt_writes
from fuser.ir.statement_scopes import defined_symbol
from fuser.lowering.kernel_rewrites import substitute_symbols
from fuser.records import record


def hoist_loads(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The body with such loads in front of the first collective of their statement list."""
    if not any(isinstance(s, LoadIndex) and s.buffer.is_register for s in walk(body)):
        return body
    return _Mover(Counter(buffer for s in walk(body) for buffer, _ in stmt_writes(s))).body(body)


@record(eq=False)
class _Chain:
    """Statements that may move, in order, and the buffers that they fill."""

    stmts: tuple[Stmt, ...]
    filled: frozenset[Buffer]


class _Mover:
    """`writes`: by how many statements of the kernel each buffer is written."""

    def __init__(self, writes: Counter[Buffer]) -> None:
        self.writes = writes

    def body(self, stmts: Sequence[Stmt]) -> tuple[Stmt, ...]:
        """A statement list, those inside included."""
        result = [self._inner(s) for s in stmts]
        start = next((k for k, s in enumerate(result) if isinstance(s, Reduce)), None)
        if start is None:
            return tuple(result)
        before, after = result[:start], result[start:]
        late = frozenset(buffer for s in walk(tuple(after)) for buffer, _ in stmt_writes(s))
        symbols = frozenset(x for s in after for x in _defined(s))
        plain = self._chain(after, late, symbols)
        filled = set(plain.filled)
        moved = list(plain.stmts)
        gone = set(map(id, plain.stmts))
        # Statements of a row each stand under a test of their own: those of one condition are one list.
        tests = [s for s in after if isinstance(s, If) and not s.orelse and s.condition.symbols.isdisjoint(symbols)]
        for first in {s.condition: s for s in reversed(tests)}.values():
            under = [x for s in tests if s.condition is first.condition for x in s.then]
            inner = self._chain(under, late, symbols)
            if inner.stmts:
                filled |= inner.filled
                moved.append(If(first.condition, _renamed(inner.stmts), role=first.role))
                gone |= {id(x) for x in inner.stmts if not isinstance(x, LoadIndex)}
        rest: list[Stmt] = []
        for s in after:
            if id(s) in gone:
                continue
            if isinstance(s, If) and any(id(x) in gone for x in s.then):
                then = tuple(x for x in s.then if id(x) not in gone)
                if not all(isinstance(x, LoadIndex) for x in then):
                    rest.append(If(s.condition, _without(then, filled), role=s.role))
                continue
            rest.append(s)
        if not moved:
            return tuple(result)
        ordered = [s.buffer for s in walk(tuple(after)) if isinstance(s, Allocate) and s.buffer in filled]
        return (*before, *map(Allocate, ordered), *moved, *_without(tuple(rest), filled))

    def _inner(self, stmt: Stmt) -> Stmt:
        match stmt:
            case For():
                body = self.body(stmt.body)
                same = len(body) == len(stmt.body) and all(a is b for a, b in zip(body, stmt.body, strict=True))
                if same:
                    return stmt
                return For(stmt.symbol, stmt.start, stmt.stop, stmt.step, body, stmt.unroll, stmt.unswitch)
            case If():
                if not any(isinstance(s, Reduce) for inner in child_bodies(stmt) for s in walk(inner)):
                    return stmt
                return If(stmt.condition, self.body(stmt.then), self.body(stmt.orelse), stmt.role)
            case _:
                return stmt

    def _chain(self, stmts: Sequence[Stmt], late: AbstractSet[Buffer], symbols: AbstractSet[Symbol]) -> _Chain:
        """What of a list reads elements that loaded indices choose, and what that needs of the list.

        late, symbols   buffers and symbols that are not there before the list's collective, but for what moves with it
        """
        needs: dict[Stmt, list[Stmt]] = {}
        made: dict[Buffer | Symbol, Stmt] = {}
        goals: list[Stmt] = []
        chosen: set[Symbol] = set()
        for s in stmts:
            if isinstance(s, Store):
                if not (s.buffer.is_register and s.buffer.size is ONE and self.writes[s.buffer] == 1):
                    continue
            elif not (isinstance(s, LoadIndex) and s.buffer.is_register):
                continue
            reads = list(stmt_reads(s))
            used: list[Buffer | Symbol] = [x for _, index in reads for x in index.symbols if x in symbols]
            used += [b for b, _ in reads if b in late]
            if any(x not in made for x in used) or not all(self._is_readable(b) for b, _ in reads):
                continue
            needs[s] = [made[x] for x in used]
            made[s.symbol if isinstance(s, LoadIndex) else s.buffer] = s
            if isinstance(s, LoadIndex):
                chosen.add(s.symbol)
            elif any(b.is_global and not chosen.isdisjoint(index.symbols) for b, index in reads):
                goals.append(s)
        moving: dict[Stmt, None] = {}
        pending = goals
        while pending:
            s = pending.pop()
            if s not in moving:
                moving[s] = None
                pending += needs[s]
        ordered = tuple(s for s in stmts if s in moving)
        return _Chain(ordered, frozenset(s.buffer for s in ordered if isinstance(s, Store)))

    def _is_readable(self, buffer: Buffer) -> bool:
        return buffer.is_register or (buffer.is_global and self.writes[buffer] == 0)


def _defined(stmt: Stmt) -> list[Symbol]:
    """Symbols that a statement itself defines for those behind it."""
    match stmt:
        case For():
            return []
        case If():
            return [x for inner in child_bodies(stmt) for s in inner for x in _defined(s)]
        case _:
            symbol = defined_symbol(stmt)
            return [] if symbol is None else [symbol]


def _renamed(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The same with symbols of their own: those that stay behind define theirs again."""
    values: dict[Symbol, Int] = {}
    result: list[Stmt] = []
    for s in stmts:
        (now,) = substitute_symbols((s,), values)
        if isinstance(now, LoadIndex):
            early = symbol(f"{now.symbol.name}_early", now.symbol.lo, now.symbol.hi)
            values[now.symbol] = early
            now = LoadIndex(early, now.buffer, now.index, now.given)
        result.append(now)
    return tuple(result)


def _without(stmts: tuple[Stmt, ...], filled: AbstractSet[Buffer]) -> tuple[Stmt, ...]:
    """The list without the allocations of some buffers."""
    return tuple(s for s in stmts if not (isinstance(s, Allocate) and s.buffer in filled))
