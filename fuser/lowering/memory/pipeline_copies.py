"""Software-pipeline asynchronous copies (cp.async): place commits and waits, and start the copies of later iterations.

Before: x[0..7] <- input[f(i)] (started)  ...  x[3] ...
After:  the same, the copies committed as a group after the statement that starts them, and a wait for that group right before
        the first statement that reads x: all statements between overlap with the copies.

If the schedule requests prefetching, inside a serial loop:
        x[0..7] <- input[f(0)]; commit
        for i in 0 .. n { wait; ... ; for b { ... x[b] ... ; if i + 1 < n { x[b] <- input[f(i + 1)] } }; commit }
One buffer serves all iterations: the last loop that reads x starts the copy of what it has just read for the next iteration, so
that what follows in this iteration, the stores above all, and what comes first in the next one overlap with the copies. Where
copies are two iterations ahead there are two buffers, and the whole next iteration overlaps with the copies. No barrier is
needed, because each thread reads only what it copied itself. Where the first and the last loop that read x have the same
iterations, the first loop waits for one piece after the other (copy_groups.py).

Placed before collectives are expanded: loops are those of the loop nests, and fills are in the same list as their readers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from fuser.errors import SchedulingError
from fuser.ir.fusion.fusion import Tensor
from fuser.ir.integers.integers import FALSE, ONE, ZERO, Cond, Int, less, prove_less
from fuser.ir.kernel.kernel import (
    Allocate,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    Buffer,
    Comment,
    For,
    If,
    Load,
    Role,
    Stmt,
    Store,
    VectorMove,
    map_child_bodies,
    walk,
)
from fuser.ir.kernel.kernel_accesses import stmt_reads
from fuser.lowering.kernel_rewrites import map_body, map_loops, substitute_buffers, substitute_symbols
from fuser.lowering.memory.copy_groups import (
    count_copy_groups,
    filled_by,
    fuse_copies_into_reader,
    merge_fill_loops,
    pipeline_copy_groups,
    reads,
    reads_itself,
    with_group_waits,
)

_BYTES = (4, 8, 16)
ASYNC_ELEMENT = 4
"""Bytes of an element from which on it is copied by itself where vectors begin anywhere: no smaller one can be."""


def async_copy(t: Tensor, copy: AsyncCopy) -> AsyncCopy:
    """A copy of elements of an input into `t`. SchedulingError for what the hardware cannot copy so."""
    nbytes = copy.width * copy.dst.dtype.itemsize
    if not (copy.src.is_global and copy.dst.is_shared) or nbytes not in _BYTES:
        raise SchedulingError(
            f"{t.name} cannot be copied asynchronously: {nbytes} bytes from {copy.src.memory.name} to "
            f"{copy.dst.memory.name} memory; it goes from device memory to shared memory, 4, 8 or 16 bytes at once",
            location=t.location,
        )
    return copy


def pipeline_copies(
    body: tuple[Stmt, ...],
    wanted: AbstractSet[str],
    required: AbstractSet[str],
    thread_private: AbstractSet[str],
    requested: AbstractSet[str] = frozenset(),
    double_buffered: AbstractSet[str] = frozenset(),
) -> tuple[Stmt, ...]:
    """Place commits and waits; start the copies of the tensors `wanted` for the next iteration where a loop allows that.

    thread_private    buffers of which each thread reads only what it wrote
    requested             tensors to be copied asynchronously
    double_buffered   wanted tensors that get two buffers and are copied two iterations ahead, if all tensors that a loop copies
                      are among them

    Comments at the top of the kernel name the tensors of `requested` that loop nests copy otherwise, and the `wanted` ones that
    are not copied ahead. Raises SchedulingError if one of the tensors `required` cannot be copied ahead.
    """
    copied = {s.dst for s in walk(body) if isinstance(s, AsyncCopy)}
    otherwise = "its accesses begin anywhere, and each element stands under a test of its own"
    notes = [
        Comment(f"{name} is not copied asynchronously: {otherwise}")
        for name in sorted(requested - {b.name for b in copied})
    ]
    if not copied:
        return (*notes, *body)
    pipeliner = _CopyPipeliner({b for b in copied if b.name in wanted and b.name in thread_private}, double_buffered)
    body = pipeliner.rewrite_body(body)
    missing = sorted(b.name for b in copied if b.name in required and b not in pipeliner.done)
    if missing:
        raise SchedulingError(
            f"{missing[0]} cannot be copied an iteration ahead: no serial loop fills it, or threads read what others copied"
        )
    body, split = pipeline_copy_groups(body, pipeliner.wanted - pipeliner.done)
    done = pipeliner.done | split
    body = _Waits(copied - done).rewrite_body(body)
    left = sorted(b.name for b in copied - done if b.name in wanted)
    reason = "no serial loop fills it, or threads read what others copied"
    return (*notes, *(Comment(f"{name} is not copied an iteration ahead: {reason}") for name in left), *body)


# --- waits ----------------------------------------------------------------------------------------------------------


class _Waits:
    """Commits and waits for the buffers `tracked`."""

    def __init__(self, tracked: AbstractSet[Buffer]) -> None:
        self.tracked = tracked

    def rewrite_body(self, stmts: Sequence[Stmt]) -> tuple[Stmt, ...]:
        """A statement list that no copy is under way before, nor after."""
        out: list[Stmt] = []
        pending: list[frozenset[Buffer]] = []
        for stmt in stmts:
            fills, reads = self._fills(stmt), self._reads(stmt)
            if fills & reads:
                # A loop or test around both has waits of its own.
                if pending:
                    out.append(AsyncWait(0))
                    pending = []
                out.append(map_child_bodies(stmt, self.rewrite_body))
                continue
            needed = max((k for k, group in enumerate(pending) if group & (reads | fills)), default=-1)
            if needed >= 0:
                left = len(pending) - 1 - needed
                names = ", ".join(sorted(b.name for b in pending[needed] & (reads | fills)))
                out.append(AsyncWait(left, f"{names} is there"))
                del pending[: needed + 1]
            out.append(stmt)
            if fills:
                out.append(AsyncCommit())
                pending.append(fills)
        if pending:
            out.append(AsyncWait(0))
        return tuple(out)

    def _fills(self, stmt: Stmt) -> frozenset[Buffer]:
        return frozenset(s.dst for s in walk((stmt,)) if isinstance(s, AsyncCopy) and s.dst in self.tracked)

    def _reads(self, stmt: Stmt) -> frozenset[Buffer]:
        return frozenset(b for s in walk((stmt,)) for b, _ in stmt_reads(s) if b in self.tracked)


# --- the next iteration ---------------------------------------------------------------------------------------------


class _CopyPipeliner:
    """Starts the copies to the buffers `wanted` an iteration ahead, or two; `done` are those for which that was possible."""

    def __init__(self, wanted: AbstractSet[Buffer], double_buffered: AbstractSet[str]) -> None:
        self.wanted = wanted
        self.double_buffered = double_buffered
        self.done: set[Buffer] = set()

    def rewrite_body(self, stmts: Sequence[Stmt]) -> tuple[Stmt, ...]:
        """A statement list with its loops rewritten."""
        return map_loops(stmts, self._loop) if self.wanted else tuple(stmts)

    def _loop(self, loop: For) -> list[Stmt]:
        declared = {s.buffer for s in loop.body if isinstance(s, Allocate)}
        fills: dict[Buffer, Stmt] = {}
        for stmt in loop.body:
            buffer = filled_by(stmt, self.wanted)
            if buffer is not None and buffer in declared and buffer not in fills:
                fills[buffer] = stmt
        last = {b: max((k for k, s in enumerate(loop.body) if reads(s, b)), default=-1) for b in fills}
        fills = {b: s for b, s in fills.items() if last[b] >= 0}
        if not fills or loop.unroll:
            return [replace(loop, body=self.rewrite_body(loop.body))]
        self.done.update(fills)
        # Of a single iteration there is no second one to begin with.
        is_single = less(loop.start + loop.step, loop.stop) is FALSE
        ahead = 2 if self._may_double_buffer(loop, fills) and not is_single else 1
        following: Int = loop.symbol + ahead * loop.step
        is_next = less(following, loop.stop)

        opens = min(k for k, s in enumerate(loop.body) if any(reads(s, b) for b in fills))
        closes = max(last[b] for b in fills)
        # A piece of the row is a group of its own where every piece is first read, and read for the last time, in order.
        pieces = count_copy_groups(loop.body[opens], fills) if min(last.values()) == closes > opens else 0
        if not count_copy_groups(loop.body[closes], fills):
            pieces = 0
        first: tuple[Stmt, ...] = ()
        for iteration in range(ahead):
            at = loop.start + iteration * loop.step
            begun = substitute_symbols(tuple(fills.values()), {loop.symbol: at})
            if iteration:
                begun = tuple(_predicate_fill(s, less(at, loop.stop)) for s in begun)
            begun = merge_fill_loops(begun) if pieces else (*begun, AsyncCommit())
            first += _offset_buffers(begun, fills, iteration) if ahead > 1 else begun
        if not prove_less(loop.start, loop.stop):
            first = (If(less(loop.start, loop.stop), first, role=Role.predicate),)
        names = ", ".join(b.name for b in fills)
        inner: list[Stmt] = []
        for k, stmt in enumerate(loop.body):
            if (isinstance(stmt, Allocate) and stmt.buffer in fills) or any(stmt is f for f in fills.values()):
                continue
            if k == opens and pieces:
                # That of many rows is read once: only what has two sides for each vector is too much of it. Waits for
                # each piece are faster (H200: softmax bf16 64x1048576 83.5 us, in three parts 84.4; f32 439x128256 146.3,
                # in two 150.5).
                has_both = any(isinstance(s, If) and s.orelse for s in walk((stmt,)))
                inner += with_group_waits(stmt, pieces, names, (ahead - 1) * pieces, is_long=has_both)
                continue
            if k == opens:
                inner.append(AsyncWait(ahead - 1, f"{names} is there"))
            # No copy is written for an iteration that there never is: its places may be outside of the input.
            for b in (b for b in fills if last[b] == k and is_next is not FALSE):
                (again,) = substitute_symbols((fills[b],), {loop.symbol: following})
                both = fuse_copies_into_reader(stmt, again, b, lambda s: If(is_next, (s,), role=Role.predicate))
                if both is not None:
                    stmt = both
                else:
                    inner.append(stmt)
                    stmt = If(is_next, (again,), role=Role.predicate)
            if k == closes and pieces:
                assert isinstance(stmt, For)
                stmt = replace(stmt, body=(*stmt.body, AsyncCommit()))
            inner.append(stmt)
            if k == closes and not pieces:
                inner.append(AsyncCommit())
        if ahead == 1:
            return [*(Allocate(b) for b in fills), *first, replace(loop, body=tuple(inner))]
        places = {b: Buffer(b.name, b.dtype, b.memory, 2 * b.size, b.tensor) for b in fills}
        made = (*first, replace(loop, body=_offset_buffers(tuple(inner), fills, loop.symbol % 2)))
        return [*(Allocate(b) for b in places.values()), *substitute_buffers(made, places)]

    def _may_double_buffer(self, loop: For, fills: Mapping[Buffer, Stmt]) -> bool:
        """Whether all that a loop copies may have two places: iterations are counted from 0, and nothing else writes there."""
        if not all(b.name in self.double_buffered for b in fills) or loop.start is not ZERO or loop.step is not ONE:
            return False
        readers = [s for s in walk(loop.body) if any(reads_itself(s, b) for b in fills)]
        return all(isinstance(s, VectorMove) or (isinstance(s, Store) and isinstance(s.value, Load)) for s in readers)


def _predicate_fill(stmt: Stmt, condition: Cond) -> Stmt:
    """A loop that fills a buffer, with all that it does under a condition."""
    if isinstance(stmt, For):
        return replace(stmt, body=(If(condition, stmt.body, role=Role.predicate),))
    return If(condition, (stmt,), role=Role.predicate)


def _offset_buffers(body: tuple[Stmt, ...], buffers: Collection[Buffer], place: Int | int) -> tuple[Stmt, ...]:
    """A body whose copies to some buffers, and reads of those, are `place` sizes of a buffer farther on."""

    def rewrite(s: Stmt) -> tuple[Stmt, ...] | None:
        match s:
            case AsyncCopy() if s.dst in buffers:
                return (replace(s, dst_index=s.dst_index + place * s.dst.size),)
            case VectorMove() if s.src in buffers:
                return (replace(s, src_index=s.src_index + place * s.src.size),)
            case Store(value=Load() as value) if value.buffer in buffers:
                return (replace(s, value=replace(value, index=value.index + place * value.buffer.size)),)
            case _:
                return None

    return map_body(body, rewrite)
