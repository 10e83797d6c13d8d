"""Partial residency: keep on chip what some iterations of a loop load, for a loop that goes over the same data backwards.

Before: for i in 0 .. n { a[0..7] = input[f(i)]; ... }  ...  for j in 0 .. n { b[0..7] = input[f(n - 1 - j)]; ... }
After:  for i in 0 .. n { a[0..7] = input[f(i)]; if i < K { kept[i, ...] = a[0..7] }; ... }  ...
        for j in 0 .. n { i = n - 1 - j; if 1 <= j { a[0..7] = i < K ? kept[i, ...] : input[f(i)] }; ... }

The first K iterations are kept in shared memory. The last iteration stays in its registers, where the schedule asks for it: the
second loop begins with it. The second loop then reads what was loaded last and may still be in the second-level cache; it needs
shared memory at the end, when nothing else is read and the cache is free for stores. Kept data is loaded past the cache. Each
thread keeps what it loads itself, so that no barrier is needed.

Placed after prefetch_loads, which moves loads to other iterations, and before allocate_shared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fuser.errors import SchedulingError
from fuser.ir.integers.integers import ONE, ZERO, Cond, Int, Symbol, const, less, less_equal
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
from fuser.ir.kernel.kernel_accesses import stmt_reads, stmt_writes
from fuser.ir.ops.enums import BLOCK_TYPES, CacheOp, MemoryType, ParallelType
from fuser.ir.schedule.scheduled_fusion import KeptIterations
from fuser.lowering.kernel_rewrites import map_body, substitute_buffers


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
        active = [p for p in BLOCK_TYPES if p in sizes]
        self.thread: Int = ZERO
        self.block: Int = ONE
        for p in reversed(active):
            self.thread = self.thread * sizes[p] + threads[p]
            self.block = self.block * sizes[p]

    def rewrite_body(self, thread_private: set[str]) -> tuple[Stmt, ...]:
        """The body with what is wanted."""
        wanted = self.wanted
        first, filled = self._loop(wanted.name)
        again, emptied = self._loop(wanted.again)
        last = first.stop - 1
        moves, repeats = _moves(filled, wanted.name), _moves(emptied, wanted.again)
        source, target = moves[0].dst, repeats[0].dst
        same = first.stop is again.stop and first.start is ZERO is again.start and len(moves) == len(repeats)
        for a, b in zip(moves, repeats, strict=False):
            matched = _matched(b.dst_index, a.dst_index)
            reversed_index = b.src_index.substitute({again.symbol: last - first.symbol, **matched})
            same = same and a.src is b.src and a.width == b.width and reversed_index is a.src_index
            same = same and b.dst_index.substitute(matched) is a.dst_index
        if not same:
            raise self._refused("the loops do not load the same in opposite order")
        if not (source.size.is_const and self.block.is_const):
            raise self._refused("the number of threads is not known")
        own = wanted.last_in_registers
        iterations = const(wanted.iterations)
        room = Buffer(f"{source.name}_kept", source.dtype, MemoryType.shared, iterations * source.size * self.block)
        width = moves[0].width

        def place(slot: Int, index: Int) -> Int:
            return ((slot * (source.size // width) + index // width) * self.block + self.thread) * width

        def keep(s: VectorMove) -> VectorMove:
            return VectorMove(room, place(first.symbol, s.dst_index), s.dst, s.dst_index, s.width)

        def take(s: VectorMove) -> VectorMove:
            return VectorMove(s.dst, s.dst_index, room, place(last - again.symbol, s.dst_index), s.width)

        passing = _moved(filled, source, lambda s: replace(s, cache=CacheOp.streaming))
        fill: list[Stmt] = [filled]
        refill: tuple[Stmt, ...] = (emptied,)
        if own:
            fill = [_either(less(first.symbol, last), tuple(fill), passing)]
        if wanted.iterations:
            in_room = less(first.symbol, iterations)
            # All loads of an iteration stand before the first is stored.
            fill = [_either(in_room, (*passing, *_moved(filled, source, keep)), tuple(fill))]
            refill = (_either(less(last - again.symbol, iterations), _moved(emptied, target, take), refill),)
        if own:
            refill = (If(less_equal(ONE, again.symbol), refill, role=Role.plain),)
        changed = {first: _replaced(first, filled, fill), again: _replaced(again, emptied, refill)}
        made: list[Stmt] = []
        if wanted.iterations:
            thread_private.add(room.name)
            made.append(Allocate(room))
        if own:
            # One array for both: two would hold registers twice, for the second loop as a whole.
            made.append(Allocate(source))
            changed[first] = _undeclared(changed[first], source)
            loop = _undeclared(changed[again], target)
            changed[again] = replace(loop, body=substitute_buffers(loop.body, {target: source}))
        body = map_body(
            _sunk(self.body, first), lambda s: (changed[s],) if isinstance(s, For) and s in changed else None
        )
        return (*made, *body)

    def _loop(self, name: str) -> tuple[For, Stmt]:
        """The loop that fills the register array of a tensor, and the statement in it that does."""
        for loop in walk(self.body):
            if isinstance(loop, For) and any(isinstance(s, Allocate) and s.buffer.name == name for s in loop.body):
                for stmt in loop.body:
                    writes = {buffer.name for s in walk((stmt,)) for buffer, _ in stmt_writes(s)}
                    reads = [buffer for s in walk((stmt,)) for buffer, _ in stmt_reads(s)]
                    if writes == {name} and all(b.is_global for b in reads) and _moves(stmt, name):
                        return loop, stmt
        raise self._refused(f"no loop fills {name} in wide accesses")

    def _refused(self, why: str) -> SchedulingError:
        return SchedulingError(f"cannot keep what {self.wanted.name} loads for {self.wanted.again} on chip: {why}")


def _moves(stmt: Stmt, name: str) -> list[VectorMove]:
    return [s for s in walk((stmt,)) if isinstance(s, VectorMove) and s.dst.name == name]


def _matched(index: Int, other: Int) -> dict[Symbol, Int]:
    """The loop symbol of one index as that of the other."""
    ours, theirs = index.symbols, other.symbols
    return dict(zip(ours, theirs, strict=True)) if len(ours) == len(theirs) == 1 else {}


def _moved(fill: Stmt, buffer: Buffer, rewrite: Callable[[VectorMove], VectorMove]) -> tuple[Stmt, ...]:
    """A statement that fills a buffer, with other accesses in the places of those that fill it."""
    return map_body((fill,), lambda s: (rewrite(s),) if isinstance(s, VectorMove) and s.dst is buffer else None)


def _undeclared(loop: For, buffer: Buffer) -> For:
    return replace(loop, body=tuple(s for s in loop.body if not (isinstance(s, Allocate) and s.buffer is buffer)))


def _sunk(body: tuple[Stmt, ...], loop: For) -> tuple[Stmt, ...]:
    """A body in which statements that only load what `loop` does not use are moved after it: it is short of registers."""
    if loop not in body:
        return body
    at = body.index(loop)
    staying: list[Stmt] = [loop]
    sunk: list[Stmt] = []
    for stmt in reversed(body[:at]):
        inner = tuple(walk((stmt,)))
        written = {b for s in inner for b, _ in stmt_writes(s)}
        reads = {b for s in inner for b, _ in stmt_reads(s)}
        touched = {b for s in walk(tuple(staying)) for b, _ in (*stmt_reads(s), *stmt_writes(s))}
        declared = {s.buffer for s in inner if isinstance(s, Allocate)}
        fills = bool(written) and all(b.is_register for b in written) and all(b.is_global for b in reads - declared)
        if fills and not isinstance(stmt, Allocate) and touched.isdisjoint(written):
            sunk.insert(0, stmt)
        else:
            staying.insert(0, stmt)
    return (*staying, *sunk, *body[at + 1 :])


def _either(condition: Cond, then: tuple[Stmt, ...], orelse: tuple[Stmt, ...]) -> Stmt:
    """A choice that does not differ between threads."""
    return If(condition, then, orelse, role=Role.plain)


def _replaced(loop: For, stmt: Stmt, others: Sequence[Stmt]) -> For:
    """The loop with statements in the place of one."""
    body = tuple(o for s in loop.body for o in (others if s is stmt else (s,)))
    return replace(loop, body=body)
