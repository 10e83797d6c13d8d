"""Software-pipeline asynchronous copies (cp.async): place commits and waits, and start the copies of later iterations.

Before: x[0..7] <- input[f(i)] (started)  ...  x[3] ...
After:  the same, the copies committed as a group behind the statement that starts them, and a wait for that group right before
        the first statement that reads x: whatever stands between overlaps with the copies.

Where the schedule wants the copy ahead, inside a serial loop:
        x[0..7] <- input[f(0)]; commit
        for i in 0 .. n { wait; ... ; for b { ... x[b] ... ; if i + 1 < n { x[b] <- input[f(i + 1)] } }; commit }
One buffer serves all iterations: the last loop that reads x starts the copy of what it has just read for the next iteration, so
that what follows in this iteration, the stores above all, and what comes first in the next one overlap with the copies. Where
copies are two iterations ahead there are two buffers, and the whole next iteration overlaps with the copies. No barrier is
needed, because each thread reads only what it copied itself. Where the first and the last loop that read x have the same
iterations, the copies of each iteration are a group, and the first loop waits for one piece after the other: it begins
while the rest of x is in flight.

Stands before collectives are expanded: loops are those of loop nests, and fills stand beside what reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet

from fuser.errors import SchedulingError
from fuser.ir.enums import CacheOp
from fuser.ir.fusion import Tensor
from fuser.ir.integers import FALSE, ONE, ZERO, Cond, Int, const, less, prove_less
from fuser.ir.kernel import (
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
    walk,
)
from fuser.ir.kernel_accesses import stmt_reads
from fuser.lowering.kernel_rewrites import map_body, substitute_buffers, substitute_symbols

_BYTES = (4, 8, 16)
ASYNC_ELEMENT = 4
"""Bytes of an element from which on it is copied by itself where vectors begin anywhere: no smaller one can be."""

MOST_PIECES = 16
"""Iterations of a loop that is taken apart so that each waits for its own copies."""
MOST_OF_CUT = 3
"""Parts, each behind a wait for its own copies, of a loop over vectors that the ends of a row may cut: it has code for both."""


def async_copy(
    t: Tensor, dst: Buffer, dst_index: Int, src: Buffer, src_index: Int, width: int, cache: CacheOp
) -> AsyncCopy:
    """The copy of `width` elements of an input into `t`. SchedulingError for what the hardware cannot copy so."""
    nbytes = width * dst.dtype.itemsize
    if not (src.is_global and dst.is_shared) or nbytes not in _BYTES:
        raise SchedulingError(
            f"{t.name} cannot be copied asynchronously: {nbytes} bytes from {src.memory.name} to {dst.memory.name} memory; it "
            "goes from device memory to shared memory, 4, 8 or 16 bytes at once",
            location=t.location,
        )
    return AsyncCopy(dst, dst_index, src, src_index, width, cache)


def pipeline_copies(
    body: tuple[Stmt, ...],
    wanted: AbstractSet[str],
    required: AbstractSet[str],
    private: AbstractSet[str],
    asked: AbstractSet[str] = frozenset(),
    twice: AbstractSet[str] = frozenset(),
) -> tuple[Stmt, ...]:
    """Place commits and waits; start the copies of the tensors `wanted` for the next iteration where a loop allows that.

    `private`: buffers of which each thread reads only what it wrote. `twice`: those of the tensors wanted that are to have two
    places, and to be copied two iterations ahead, if all that a loop copies are. `asked`: tensors to be copied asynchronously;
    comments at the head tell of those that loop nests copy otherwise, and of those `wanted` that are not started ahead. Raises
    SchedulingError for one of the tensors `required` whose copies cannot be started ahead.
    """
    copied = {s.dst for s in walk(body) if isinstance(s, AsyncCopy)}
    otherwise = "its accesses begin anywhere, and each element stands under a test of its own"
    notes = [
        Comment(f"{name} is not copied asynchronously: {otherwise}")
        for name in sorted(asked - {b.name for b in copied})
    ]
    if not copied:
        return (*notes, *body)
    recycler = _Recycler({b for b in copied if b.name in wanted and b.name in private}, twice)
    body = recycler.body(body)
    missing = sorted(b.name for b in copied if b.name in required and b not in recycler.done)
    if missing:
        raise SchedulingError(
            f"{missing[0]} cannot be copied an iteration ahead: no serial loop fills it, or threads read what others copied"
        )
    once = {b for b in copied - recycler.done if b.name in wanted and b.name in private}
    split = _Splitter(once)
    body = split.body(body)
    waits = _Waits(copied - recycler.done - split.done)
    body = waits.list(body)
    left = sorted(b.name for b in copied if b.name in wanted and b not in recycler.done | split.done)
    reason = "no serial loop fills it, or threads read what others copied"
    return (*notes, *(Comment(f"{name} is not copied an iteration ahead: {reason}") for name in left), *body)


# --- waits ----------------------------------------------------------------------------------------------------------


class _Waits:
    """Commits and waits for the buffers `tracked`."""

    def __init__(self, tracked: AbstractSet[Buffer]) -> None:
        self.tracked = tracked

    def list(self, stmts: Sequence[Stmt]) -> tuple[Stmt, ...]:
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
                out.append(self._inside(stmt))
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

    def _inside(self, stmt: Stmt) -> Stmt:
        match stmt:
            case For():
                return _with_body(stmt, self.list(stmt.body))
            case If():
                return If(stmt.condition, self.list(stmt.then), self.list(stmt.orelse), stmt.role)
            case _:
                return stmt

    def _fills(self, stmt: Stmt) -> frozenset[Buffer]:
        return frozenset(s.dst for s in walk((stmt,)) if isinstance(s, AsyncCopy) and s.dst in self.tracked)

    def _reads(self, stmt: Stmt) -> frozenset[Buffer]:
        return frozenset(b for s in walk((stmt,)) for b, _ in stmt_reads(s) if b in self.tracked)


# --- one iteration --------------------------------------------------------------------------------------------------


class _Splitter:
    """Makes a group of each iteration of the loops that fill the buffers `wanted`, where no loop fills them again and
    the first loop that reads them goes over them alike: that one waits for one piece after the other. `done` are those
    buffers."""

    def __init__(self, wanted: AbstractSet[Buffer]) -> None:
        self.wanted = wanted
        self.done: set[Buffer] = set()

    def body(self, stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """A statement list, all of whose copies are to these buffers, or the same list."""
        fills = {k: b for k, s in enumerate(stmts) if (b := _filled(s, self.wanted, may_store=True)) is not None}
        copied = {s.dst for s in walk(stmts) if isinstance(s, AsyncCopy)}
        if not fills and copied:
            # Blocks that go over rows copy them inside of that loop.
            return tuple(_with_body(s, self.body(s.body)) if isinstance(s, For) and not s.unroll else s for s in stmts)
        if not fills or copied != set(fills.values()) or len(copied) != len(fills):
            return stmts
        opens = min((k for k, s in enumerate(stmts) if any(_reads(s, b) for b in copied)), default=-1)
        pieces = _pieces(stmts[opens], {b: stmts[k] for k, b in fills.items()}) if opens > max(fills) else 0
        if not pieces:
            return stmts
        self.done |= copied
        result: list[Stmt] = []
        for k, stmt in enumerate(stmts):
            if k == max(fills):
                result += _together([stmts[n] for n in fills])
            elif k == opens:
                names = ", ".join(b.name for b in fills.values())
                # The row's code is read for few rows, or one.
                is_tested = any(isinstance(s, If) for s in walk(tuple(stmts[n] for n in fills)))
                result += _in_pieces(stmt, pieces, names, at_once=_at_once(is_tested, pieces))
            elif k not in fills:
                result.append(stmt)
        return tuple(result)


# --- the next iteration ---------------------------------------------------------------------------------------------


class _Recycler:
    """Starts the copies to the buffers `wanted` an iteration ahead, or two; `done` are those for which that was possible."""

    def __init__(self, wanted: AbstractSet[Buffer], twice: AbstractSet[str]) -> None:
        self.wanted = wanted
        self.twice = twice
        self.done: set[Buffer] = set()

    def body(self, stmts: Sequence[Stmt]) -> tuple[Stmt, ...]:
        """A statement list with its loops rewritten."""
        if not self.wanted:
            return tuple(stmts)
        result: list[Stmt] = []
        for stmt in stmts:
            match stmt:
                case For():
                    result += self._loop(stmt)
                case If():
                    result.append(If(stmt.condition, self.body(stmt.then), self.body(stmt.orelse), stmt.role))
                case _:
                    result.append(stmt)
        return tuple(result)

    def _loop(self, loop: For) -> list[Stmt]:
        declared = {s.buffer for s in loop.body if isinstance(s, Allocate)}
        fills: dict[Buffer, Stmt] = {}
        for stmt in loop.body:
            buffer = _filled(stmt, self.wanted)
            if buffer is not None and buffer in declared and buffer not in fills:
                fills[buffer] = stmt
        last = {b: max((k for k, s in enumerate(loop.body) if _reads(s, b)), default=-1) for b in fills}
        fills = {b: s for b, s in fills.items() if last[b] >= 0}
        if not fills or loop.unroll:
            return [_with_body(loop, self.body(loop.body))]
        self.done.update(fills)
        # Of a single iteration there is no second one to begin with.
        is_single = less(loop.start + loop.step, loop.stop) is FALSE
        ahead = 2 if self._may_be_twice(loop, fills) and not is_single else 1
        following: Int = loop.symbol + ahead * loop.step
        is_next = less(following, loop.stop)

        opens = min(k for k, s in enumerate(loop.body) if any(_reads(s, b) for b in fills))
        closes = max(last[b] for b in fills)
        # A piece of the row is a group of its own where every piece is first read, and read for the last time, in order.
        pieces = _pieces(loop.body[opens], fills) if min(last.values()) == closes > opens else 0
        if not _pieces(loop.body[closes], fills):
            pieces = 0
        first: tuple[Stmt, ...] = ()
        for iteration in range(ahead):
            at = loop.start + iteration * loop.step
            begun = substitute_symbols(tuple(fills.values()), {loop.symbol: at})
            if iteration:
                begun = tuple(_tested(s, less(at, loop.stop)) for s in begun)
            begun = _together(begun) if pieces else (*begun, AsyncCommit())
            first += _placed(begun, fills, iteration) if ahead > 1 else begun
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
                inner += _in_pieces(stmt, pieces, names, (ahead - 1) * pieces, _at_once(has_both, pieces))
                continue
            if k == opens:
                inner.append(AsyncWait(ahead - 1, f"{names} is there"))
            # No copy is written for an iteration that there never is: its places may lie outside of the input.
            for b in (b for b in fills if last[b] == k and is_next is not FALSE):
                (again,) = substitute_symbols((fills[b],), {loop.symbol: following})
                fused = _fuse(stmt, again, b, lambda s: If(is_next, (s,), role=Role.predicate))
                if fused is not None:
                    stmt = fused
                else:
                    inner.append(stmt)
                    stmt = If(is_next, (again,), role=Role.predicate)
            if k == closes and pieces:
                assert isinstance(stmt, For)
                stmt = _with_body(stmt, (*stmt.body, AsyncCommit()))
            inner.append(stmt)
            if k == closes and not pieces:
                inner.append(AsyncCommit())
        if ahead == 1:
            return [*(Allocate(b) for b in fills), *first, _with_body(loop, tuple(inner))]
        places = {b: Buffer(b.name, b.dtype, b.memory, 2 * b.size, b.tensor) for b in fills}
        made = (*first, _with_body(loop, _placed(tuple(inner), fills, loop.symbol % 2)))
        return [*(Allocate(b) for b in places.values()), *substitute_buffers(made, places)]

    def _may_be_twice(self, loop: For, fills: Mapping[Buffer, Stmt]) -> bool:
        """Whether all that a loop copies may have two places: iterations are counted from 0, and nothing else writes there."""
        if not all(b.name in self.twice for b in fills) or loop.start is not ZERO or loop.step is not ONE:
            return False
        reads = [s for s in walk(loop.body) if any(_reads_itself(s, b) for b in fills)]
        return all(isinstance(s, VectorMove) or (isinstance(s, Store) and isinstance(s.value, Load)) for s in reads)


def _filled(stmt: Stmt, wanted: AbstractSet[Buffer], *, may_store: bool = False) -> Buffer | None:
    """The wanted buffer that a statement does nothing but fill, or None. `may_store`: elements of vectors that are cut may be
    stored there, which nobody has to wait for: the thread that reads them has done so."""
    simple = [s for s in walk((stmt,)) if not isinstance(s, (For, If))]
    targets = {s.dst for s in simple if isinstance(s, AsyncCopy)}
    if len(targets) != 1:
        return None
    (buffer,) = targets
    if not all(isinstance(s, AsyncCopy) or (may_store and isinstance(s, Store) and s.buffer is buffer) for s in simple):
        return None
    return buffer if buffer in wanted else None


def _tested(stmt: Stmt, condition: Cond) -> Stmt:
    """A loop that fills a buffer, with all that it does under a condition."""
    if isinstance(stmt, For):
        return _with_body(stmt, (If(condition, stmt.body, role=Role.predicate),))
    return If(condition, (stmt,), role=Role.predicate)


def _placed(body: tuple[Stmt, ...], buffers: Collection[Buffer], place: Int | int) -> tuple[Stmt, ...]:
    """A body whose copies to some buffers, and reads of those, are `place` sizes of a buffer farther on."""

    def rewrite(s: Stmt) -> tuple[Stmt, ...] | None:
        match s:
            case AsyncCopy() if s.dst in buffers:
                at = s.dst_index + place * s.dst.size
                return (AsyncCopy(s.dst, at, s.src, s.src_index, s.width, s.cache, s.cut),)
            case VectorMove() if s.src in buffers:
                at = s.src_index + place * s.src.size
                return (VectorMove(s.dst, s.dst_index, s.src, at, s.width, s.cache, s.aligned),)
            case Store(value=Load(buffer=buffer)) if buffer in buffers:
                assert isinstance(s.value, Load)
                return (
                    Store(s.buffer, s.index, Load(buffer, s.value.index + place * buffer.size, s.value.cache), s.role),
                )
            case _:
                return None

    return map_body(body, rewrite)


def _in_pieces(stmt: Stmt, pieces: int, names: str, later: int = 0, at_once: int = 1) -> list[Stmt]:
    """The iterations of a loop, `at_once` of them behind the wait for their own copies. `later`: groups for another
    iteration behind them."""
    assert isinstance(stmt, For)
    result: list[Stmt] = []
    for first in range(0, pieces, at_once):
        last = min(first + at_once, pieces) - 1
        what = f"piece {first}" if first == last else f"pieces {first} to {last}"
        result.append(
            AsyncWait(later + pieces - 1 - last, f"{what} of {names} {'is' if first == last else 'are'} there")
        )
        result.append(For(stmt.symbol, const(first), const(last + 1), ONE, stmt.body, stmt.unroll, stmt.unswitch))
    return result


def _at_once(tested: bool, pieces: int) -> int:
    """Pieces that are waited for together."""
    return -(-pieces // MOST_OF_CUT) if tested else 1


def _pieces(reader: Stmt, fills: Mapping[Buffer, Stmt]) -> int:
    """How many iterations a loop makes that reads of all buffers, in each, what an iteration of their fills copies; 0
    if it is no such."""
    if not isinstance(reader, For) or reader.start is not ZERO or reader.step is not ONE or not reader.stop.is_const:
        return 0
    iterations = reader.stop.value
    if not 2 <= iterations <= MOST_PIECES:
        return 0
    alike = all(_reads(reader, b) and _fuse(reader, f, b, lambda s: s) is not None for b, f in fills.items())
    return iterations if alike else 0


def _together(fills: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """One loop for loops that make the same iterations; the copies of each iteration are a group."""
    loop = fills[0]
    assert isinstance(loop, For)
    body = list(loop.body)
    for other in fills[1:]:
        assert isinstance(other, For)
        body += substitute_symbols(other.body, {other.symbol: loop.symbol})
    return (_with_body(loop, (*body, AsyncCommit())),)


def _fuse(reader: Stmt, fill: Stmt, buffer: Buffer, wrap: Callable[[Stmt], Stmt]) -> Stmt | None:
    """`reader` with the copies of `fill` behind the reads of the very elements, or None if the two loops differ."""
    if not (isinstance(reader, For) and isinstance(fill, For) and len(fill.body) == 1):
        return None
    if (reader.start, reader.stop, reader.step) != (fill.start, fill.stop, fill.step):
        return None
    (inner,) = substitute_symbols(fill.body, {fill.symbol: reader.symbol})
    inside = [k for k, s in enumerate(reader.body) if _reads(s, buffer)]
    if isinstance(inner, For):
        if len(inside) != 1:
            return None
        made = _fuse(reader.body[inside[0]], inner, buffer, wrap)
        if made is None:
            return None
        return _with_body(reader, (*reader.body[: inside[0]], made, *reader.body[inside[0] + 1 :]))
    copied = {(s.dst_index, s.width) for s in walk((inner,)) if isinstance(s, AsyncCopy)}
    read = {
        (index, s.width if isinstance(s, VectorMove) else 1)
        for s in walk(reader.body)
        for b, index in stmt_reads(s)
        if b is buffer
    }
    if not all(r in copied or any(_is_inside(r, c) for c in copied) for r in read):
        return None
    after = inside[-1] + 1
    return _with_body(reader, (*reader.body[:after], wrap(inner), *reader.body[after:]))


def _is_inside(read: tuple[Int, int], copied: tuple[Int, int]) -> bool:
    """Whether elements (from, how many) are some of those copied: of a vector that is cut, single ones are read, and stored
    instead by the thread that reads them."""
    behind = read[0] - copied[0]
    return prove_less(const(-1), behind) and prove_less(behind, const(copied[1] - read[1] + 1))


def _reads_itself(stmt: Stmt, buffer: Buffer) -> bool:
    return any(b is buffer for b, _ in stmt_reads(stmt))


def _reads(stmt: Stmt, buffer: Buffer) -> bool:
    return any(_reads_itself(s, buffer) for s in walk((stmt,)))


def _with_body(loop: For, body: tuple[Stmt, ...]) -> For:
    return For(loop.symbol, loop.start, loop.stop, loop.step, body, loop.unroll, loop.unswitch)
