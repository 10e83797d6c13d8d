"""Partial residency: keep on chip what some iterations of a loop load, for a loop that goes over the same data backwards.

Before: for i in 0 .. n { a[0..7] = input[f(i)]; ... }  ...  for j in 0 .. n { b[0..7] = input[f(n - 1 - j)]; ... }
After:  for i in 0 .. n { a[0..7] = input[f(i)]; if i < K { kept[i, ...] = a[0..7] }; ... }  ...
        for j in 0 .. n { i = n - 1 - j; b[0..7] = i < K ? kept[i, ...] : input[f(i)]; ... }

The first K iterations are kept in shared memory. The second loop first reads what was loaded last and may still be in the
second-level cache; it needs shared memory at the end, when nothing else is read and the cache is free for stores. Kept data is
loaded past the cache. Each thread keeps what it loads itself, so that no barrier is needed.

Placed after prefetch_loads, which moves loads to other iterations, and before allocate_shared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fuser.errors import SchedulingError
from fuser.ir.integers.integers import ZERO, Cond, Int, Symbol, const, less
from fuser.ir.kernel.kernel import (
    Allocate,
    Buffer,
    For,
    If,
    Role,
    Stmt,
    VectorMove,
    walk,
)
from fuser.ir.kernel.kernel_accesses import buffers_read, buffers_written
from fuser.ir.ops.enums import CacheOp, MemoryType, ParallelType
from fuser.ir.schedule.scheduled_fusion import KeptIterations
from fuser.lowering.kernel_rewrites import map_body
from fuser.lowering.parallel_axes import ParallelAxes


def partial_residency(
    body: tuple[Stmt, ...],
    kept: Sequence[KeptIterations],
    thread_private: set[str],
    threads: Mapping[ParallelType, Symbol],
    sizes: Mapping[ParallelType, Int],
) -> tuple[Stmt, ...]:
    """Keep what the schedule asks for; the names of the buffers made are added to `thread_private`.

    Raises SchedulingError where two loops do not load the same in opposite order, in wide accesses.
    """
    for wanted in kept:
        body = _PartialResidency(body, wanted, threads, sizes).rewrite_body(thread_private)
    return body


class _PartialResidency:
    def __init__(
        self,
        body: tuple[Stmt, ...],
        wanted: KeptIterations,
        threads: Mapping[ParallelType, Symbol],
        sizes: Mapping[ParallelType, Int],
    ) -> None:
        self.body = body
        self.wanted = wanted
        axes = ParallelAxes(threads, sizes)
        self.thread, self.block = axes.thread, axes.block_threads

    def rewrite_body(self, thread_private: set[str]) -> tuple[Stmt, ...]:
        """The body with what is wanted."""
        wanted = self.wanted
        first, filled = self._loop(wanted.name)
        again, emptied = self._loop(wanted.again)
        last = first.stop - 1
        moves, repeats = _vector_moves(filled, wanted.name), _vector_moves(emptied, wanted.again)
        source, target = moves[0].dst, repeats[0].dst
        same = first.stop is again.stop and first.start is ZERO is again.start and len(moves) == len(repeats)
        for a, b in zip(moves, repeats, strict=False):
            matched = _map_loop_symbol(b.dst_index, a.dst_index)
            reversed_index = b.src_index.substitute({again.symbol: last - first.symbol, **matched})
            same = same and a.src is b.src and a.width == b.width and reversed_index is a.src_index
            same = same and b.dst_index.substitute(matched) is a.dst_index
        if not same:
            raise self._refusal("the loops do not load the same in opposite order")
        if not (source.size.is_const and self.block.is_const):
            raise self._refusal("the number of threads is not known")
        iterations = const(wanted.iterations)
        room = Buffer(f"{source.name}_kept", source.dtype, MemoryType.shared, iterations * source.size * self.block)
        width = moves[0].width

        def place(slot: Int, index: Int) -> Int:
            return ((slot * (source.size // width) + index // width) * self.block + self.thread) * width

        def keep(s: VectorMove) -> VectorMove:
            return VectorMove(room, place(first.symbol, s.dst_index), s.dst, s.dst_index, s.width)

        def take(s: VectorMove) -> VectorMove:
            return VectorMove(s.dst, s.dst_index, room, place(last - again.symbol, s.dst_index), s.width)

        passing = _replace_moves(filled, source, lambda s: replace(s, cache=CacheOp.streaming))
        # All loads of an iteration are before the first is stored.
        fill = _uniform_branch(
            less(first.symbol, iterations), (*passing, *_replace_moves(filled, source, keep)), (filled,)
        )
        refill = _uniform_branch(
            less(last - again.symbol, iterations), _replace_moves(emptied, target, take), (emptied,)
        )
        changed = {first: _replace_statement(first, filled, fill), again: _replace_statement(again, emptied, refill)}
        thread_private.add(room.name)
        body = map_body(
            _sink_loads(self.body, first), lambda s: (changed[s],) if isinstance(s, For) and s in changed else None
        )
        return (Allocate(room), *body)

    def _loop(self, name: str) -> tuple[For, Stmt]:
        """The loop that fills the register array of a tensor, and the statement in it that does."""
        for loop in walk(self.body):
            if isinstance(loop, For) and any(isinstance(s, Allocate) and s.buffer.name == name for s in loop.body):
                for stmt in loop.body:
                    writes = {b.name for b in buffers_written((stmt,))}
                    if (
                        writes == {name}
                        and all(b.is_global for b in buffers_read((stmt,)))
                        and _vector_moves(stmt, name)
                    ):
                        return loop, stmt
        raise self._refusal(f"no loop fills {name} in wide accesses")

    def _refusal(self, why: str) -> SchedulingError:
        return SchedulingError(f"cannot keep what {self.wanted.name} loads for {self.wanted.again} on chip: {why}")


def _vector_moves(stmt: Stmt, name: str) -> list[VectorMove]:
    return [s for s in walk((stmt,)) if isinstance(s, VectorMove) and s.dst.name == name]


def _map_loop_symbol(index: Int, other: Int) -> dict[Symbol, Int]:
    """The loop symbol of one index as that of the other."""
    ours, theirs = index.symbols, other.symbols
    return dict(zip(ours, theirs, strict=True)) if len(ours) == len(theirs) == 1 else {}


def _replace_moves(fill: Stmt, buffer: Buffer, rewrite: Callable[[VectorMove], VectorMove]) -> tuple[Stmt, ...]:
    """A statement that fills a buffer, with other accesses in the places of those that fill it."""
    return map_body((fill,), lambda s: (rewrite(s),) if isinstance(s, VectorMove) and s.dst is buffer else None)


def _sink_loads(body: tuple[Stmt, ...], loop: For) -> tuple[Stmt, ...]:
    """A body in which statements that only load what `loop` does not use are moved after it: it is short of registers."""
    if loop not in body:
        return body
    at = body.index(loop)
    staying: list[Stmt] = [loop]
    sunk: list[Stmt] = []
    for stmt in reversed(body[:at]):
        inner = tuple(walk((stmt,)))
        written, reads = buffers_written((stmt,)), buffers_read((stmt,))
        touched = buffers_read(staying) | buffers_written(staying)
        declared = {s.buffer for s in inner if isinstance(s, Allocate)}
        fills = bool(written) and all(b.is_register for b in written) and all(b.is_global for b in reads - declared)
        if fills and not isinstance(stmt, Allocate) and touched.isdisjoint(written):
            sunk.insert(0, stmt)
        else:
            staying.insert(0, stmt)
    return (*staying, *sunk, *body[at + 1 :])


def _uniform_branch(condition: Cond, then: tuple[Stmt, ...], orelse: tuple[Stmt, ...]) -> Stmt:
    """A choice that does not differ between threads."""
    return If(condition, then, orelse, role=Role.plain)


def _replace_statement(loop: For, stmt: Stmt, other: Stmt) -> For:
    """The loop with another statement in the place of one."""
    return replace(loop, body=tuple(other if s is stmt else s for s in loop.body))
