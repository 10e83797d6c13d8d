"""Load the inputs of the next iteration of a loop while this iteration computes (software pipelining in registers).

Before: for i in 0 .. n { x[0..7] = input[f(i)]; ... x[3] ... }
After:  next[0..7] = input[f(0)]
        for i in 0 .. n { x[0..7] = next[0..7]; if i + 1 < n { next[0..7] = input[f(i + 1)] }; ... x[3] ... }

Only for the copies that the schedule names: they take twice the registers. The statements that fill such a copy are in the
loop that it is inlined in, under predicates of their own. They read only arguments that the kernel does not write, so that
they may run an iteration earlier.

Placed before collectives are expanded: loops are those of the loop nests, and no barrier is placed yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from fuser.errors import SchedulingError
from fuser.ir.integers.integers import Int, less, prove_less
from fuser.ir.kernel.kernel import Allocate, Buffer, Comment, For, If, Load, Role, Stmt, Store, VectorMove, walk
from fuser.ir.kernel.kernel_accesses import buffers_read, buffers_written
from fuser.lowering.kernel_rewrites import map_body, map_loops, substitute_buffers, substitute_symbols


def prefetch_loads(
    body: tuple[Stmt, ...], wanted: AbstractSet[str], required: AbstractSet[str] = frozenset()
) -> tuple[Stmt, ...]:
    """Fill the register arrays of the tensors `wanted` an iteration ahead, where a loop fills them so.

    A comment at the top of the kernel names the tensors for which no loop allows that. Raises SchedulingError if one of them is
    `required`.
    """
    if not wanted:
        return body
    written = buffers_written(body)
    prefetcher = _Prefetcher(wanted, written)
    result = prefetcher.rewrite_body(body)
    missing = sorted(required - prefetcher.done)
    if missing:
        raise SchedulingError(
            f"{missing[0]} cannot be loaded an iteration ahead: no serial loop fills it from inputs that the kernel only reads"
        )
    left = sorted(wanted - prefetcher.done)
    if not left:
        return result
    reason = "no serial loop fills it from inputs that the kernel does not write"
    return (*(Comment(f"{name} is not loaded an iteration ahead: {reason}") for name in left), *result)


class _Prefetcher:
    def __init__(self, wanted: AbstractSet[str], written: AbstractSet[Buffer]) -> None:
        self.wanted = wanted
        self.written = written
        self.done: set[str] = set()

    def rewrite_body(self, stmts: Sequence[Stmt]) -> tuple[Stmt, ...]:
        """A statement list with its loops rewritten."""
        return map_loops(stmts, self._loop)

    def _loop(self, loop: For) -> list[Stmt]:
        filled = [self._filled(stmt) for stmt in loop.body]
        found = [f for f in filled if f is not None]
        declared = {s.buffer for s in loop.body if isinstance(s, Allocate)}
        if not found or loop.unroll or not declared.issuperset(found):
            return [replace(loop, body=self.rewrite_body(loop.body))]
        ahead = {b: Buffer(f"{b.name}_next", b.dtype, b.memory, b.size, b.tensor) for b in found}
        self.done.update(b.name for b in found)
        loads = tuple(s for s, f in zip(loop.body, filled, strict=True) if f is not None)
        ahead_loads = substitute_buffers(loads, ahead)
        first = substitute_symbols(ahead_loads, {loop.symbol: loop.start})
        following: Int = loop.symbol + loop.step
        again = substitute_symbols(ahead_loads, {loop.symbol: following})
        if not prove_less(loop.start, loop.stop):
            first = (If(less(loop.start, loop.stop), first, role=Role.predicate),)
        inner: list[Stmt] = [*(Allocate(b) for b in found), *_copy_from_ahead(loads, ahead)]
        inner.append(If(less(following, loop.stop), again, role=Role.predicate))
        rest = [
            s
            for s, f in zip(loop.body, filled, strict=True)
            if f is None and not (isinstance(s, Allocate) and s.buffer in ahead)
        ]
        return [*(Allocate(b) for b in ahead.values()), *first, replace(loop, body=(*inner, *self.rewrite_body(rest)))]

    def _filled(self, stmt: Stmt) -> Buffer | None:
        """The wanted array that a statement does nothing but fill, or None."""
        writes, reads = buffers_written((stmt,)), buffers_read((stmt,))
        if len(writes) != 1 or not reads or any(isinstance(s, Allocate) for s in walk((stmt,))):
            return None
        (buffer,) = writes
        loads_only = all(r.is_global and r not in self.written for r in reads)
        return buffer if buffer.is_register and buffer.name in self.wanted and loads_only else None


def _copy_from_ahead(loads: tuple[Stmt, ...], ahead: dict[Buffer, Buffer]) -> tuple[Stmt, ...]:
    """What the loads fill, taken from the arrays for the next iteration: the same elements under the same tests."""

    def rewrite(stmt: Stmt) -> tuple[Stmt, ...] | None:
        match stmt:
            case Store():
                return (Store(stmt.buffer, stmt.index, Load(ahead[stmt.buffer], stmt.index), stmt.role),)
            case VectorMove():
                return (VectorMove(stmt.dst, stmt.dst_index, ahead[stmt.dst], stmt.dst_index, stmt.width),)
            case _:
                return None

    return map_body(loads, rewrite)
