"""Keep what the last turns of a loop load in shared memory for a loop that goes over the same backwards.

Before: for i in 0 .. n { a[0..7] = input[f(i)]; ... }  ...  for j in 0 .. n { b[0..7] = input[f(n - 1 - j)]; ... }
After:  for i in 0 .. n { if n - 1 - i < K { a[0..7] = input[f(i)]; kept[n - 1 - i, ...] = a[0..7] }
                          else { a[0..7] = input[f(i)] }; ... }  ...
        for j in 0 .. n { if j < K { b[0..7] = kept[j, ...] } else { b[0..7] = input[f(n - 1 - j)] }; ... }

Every thread keeps what it loads for itself, so that nothing is exchanged. What is kept is loaded past the cache, whose room is
left to the turns before.

Stands behind prefetch_loads, which moves loads to other turns, and before shared memory is laid out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fuser.errors import SchedulingError
from fuser.ir.enums import BLOCK_TYPES, CacheOp, MemoryType, ParallelType
from fuser.ir.integers import ONE, ZERO, Cond, Int, Symbol, const, less
from fuser.ir.kernel import (
    Allocate,
    Buffer,
    For,
    If,
    Role,
    Stmt,
    VectorMove,
    map_body,
    stmt_reads,
    stmt_writes,
    walk,
)
from fuser.ir.scheduled_fusion import KeptTurns


def keep_turns(
    body: tuple[Stmt, ...],
    kept: Sequence[KeptTurns],
    private: set[str],
    threads: Mapping[ParallelType, Symbol],
    sizes: Mapping[ParallelType, Int],
) -> tuple[Stmt, ...]:
    """Keep what the schedule asks for; the names of the buffers made are added to `private`.

    Raises SchedulingError where two loops do not load the same in opposite order, in wide accesses.
    """
    for wanted in kept:
        body = _Keeper(body, wanted, threads, sizes).run(private)
    return body


class _Keeper:
    def __init__(
        self,
        body: tuple[Stmt, ...],
        wanted: KeptTurns,
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

    def run(self, private: set[str]) -> tuple[Stmt, ...]:
        """The body with what is wanted."""
        first, filled = self._loop(self.wanted.name)
        again, emptied = self._loop(self.wanted.again)
        turn = first.stop - 1 - first.symbol
        moves, repeats = _moves(filled, self.wanted.name), _moves(emptied, self.wanted.again)
        source, target = moves[0].dst, repeats[0].dst
        same = first.stop is again.stop and first.start is ZERO is again.start and len(moves) == len(repeats)
        for a, b in zip(moves, repeats, strict=False):
            reversed_index = b.src_index.substitute({again.symbol: turn, **_matched(b.dst_index, a.dst_index)})
            same = same and a.src is b.src and a.width == b.width and reversed_index is a.src_index
        if not same:
            raise self._refused("the loops do not load the same in opposite order")
        if not (source.size.is_const and self.block.is_const):
            raise self._refused("the number of threads is not known")
        width = moves[0].width
        turns = const(self.wanted.turns)
        room = Buffer(f"{source.name}_kept", source.dtype, MemoryType.shared, turns * source.size * self.block)
        private.add(room.name)

        def place(slot: Int, index: Int) -> Int:
            return ((slot * (source.size // width) + index // width) * self.block + self.thread) * width

        def load(s: VectorMove) -> VectorMove:
            return VectorMove(s.dst, s.dst_index, s.src, s.src_index, s.width, CacheOp.streaming)

        def keep(s: VectorMove) -> VectorMove:
            return VectorMove(room, place(turn, s.dst_index), s.dst, s.dst_index, s.width)

        def take(s: VectorMove) -> VectorMove:
            return VectorMove(s.dst, s.dst_index, room, place(again.symbol, s.dst_index), s.width)

        # All loads of a turn stand before the first is stored.
        loads_and_stores = (*_moved(filled, source, load), *_moved(filled, source, keep))
        changed = {
            first: _branch(first, filled, less(turn, turns), loads_and_stores),
            again: _branch(again, emptied, less(again.symbol, turns), _moved(emptied, target, take)),
        }
        body = map_body(self.body, lambda s: (changed[s],) if isinstance(s, For) and s in changed else None)
        return (Allocate(room), *body)

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
        return SchedulingError(
            f"cannot keep what {self.wanted.name} loads last for {self.wanted.again} in shared memory: {why}"
        )


def _moves(stmt: Stmt, name: str) -> list[VectorMove]:
    return [s for s in walk((stmt,)) if isinstance(s, VectorMove) and s.dst.name == name]


def _matched(index: Int, other: Int) -> dict[Symbol, Int]:
    """The loop symbol of one index as that of the other."""
    ours, theirs = index.symbols, other.symbols
    return dict(zip(ours, theirs, strict=True)) if len(ours) == len(theirs) == 1 else {}


def _moved(fill: Stmt, buffer: Buffer, rewrite: Callable[[VectorMove], VectorMove]) -> tuple[Stmt, ...]:
    """A statement that fills a buffer, with other accesses in the places of those that fill it."""
    return map_body((fill,), lambda s: (rewrite(s),) if isinstance(s, VectorMove) and s.dst is buffer else None)


def _branch(loop: For, fill: Stmt, condition: Cond, other: tuple[Stmt, ...]) -> For:
    """The loop, filling the array in another way where a condition holds, which does not differ between threads."""
    both = If(condition, other, (fill,), role=Role.plain)
    body = tuple(both if s is fill else s for s in loop.body)
    return For(loop.symbol, loop.start, loop.stop, loop.step, body, loop.unroll, loop.unswitch)
