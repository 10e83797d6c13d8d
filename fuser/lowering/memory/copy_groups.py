"""One cp.async group per iteration of a loop that copies; each is waited for by the iteration that reads it.

Before: for i in 0 .. 4 { x[8*i ..] <- input[f(i)] }   ...   for j in 0 .. 4 { ... x[8*j ..] ... }
After:  for i in 0 .. 4 { x[8*i ..] <- input[f(i)]; commit }   ...   wait 3; { ... x[0 ..] ... } wait 2; { ... x[8 ..] ... } ...

The loop that reads begins while the rest of x is in flight. Part of the pass pipeline_copies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from fuser.ir.integers.integers import ONE, ZERO, Int, const, prove_less
from fuser.ir.kernel.kernel import AsyncCommit, AsyncCopy, AsyncWait, Buffer, For, If, Stmt, Store, VectorMove, walk
from fuser.ir.kernel.kernel_accesses import stmt_reads
from fuser.lowering.kernel_rewrites import substitute_symbols

MAX_COPY_GROUPS = 16
"""Groups, and iterations of the reading loop, which is unrolled so that each waits for its own copies."""
MAX_PARTIAL_GROUPS = 3
"""The same if vectors may be partial: the code of an iteration is there twice."""


def pipeline_copy_groups(stmts: tuple[Stmt, ...], wanted: AbstractSet[Buffer]) -> tuple[tuple[Stmt, ...], set[Buffer]]:
    """Commit one group of cp.async per iteration of the filling loops, and wait group by group in the first reading loop.

    stmts   a statement list all of whose copies are to the buffers `wanted`

    Requires that no loop fills the buffers again and that the first loop that reads them goes over them in the same iterations.
    Returns the statements, and the buffers for which that was possible.
    """
    fills = {k: b for k, s in enumerate(stmts) if (b := filled_by(s, wanted, may_store=True)) is not None}
    copied = {s.dst for s in walk(stmts) if isinstance(s, AsyncCopy)}
    result: list[Stmt] = []
    if not fills and copied:
        # Blocks that go over rows copy them inside of that loop.
        done: set[Buffer] = set()
        for stmt in stmts:
            if isinstance(stmt, For) and not stmt.unroll:
                body, found = pipeline_copy_groups(stmt.body, wanted)
                stmt, done = replace(stmt, body=body), done | found
            result.append(stmt)
        return tuple(result), done
    if not fills or copied != set(fills.values()) or len(copied) != len(fills):
        return stmts, set()
    opens = min((k for k, s in enumerate(stmts) if any(reads(s, b) for b in copied)), default=-1)
    pieces = count_copy_groups(stmts[opens], {b: stmts[k] for k, b in fills.items()}) if opens > max(fills) else 0
    if not pieces:
        return stmts, set()
    for k, stmt in enumerate(stmts):
        if k == max(fills):
            result += merge_fill_loops([stmts[n] for n in fills])
        elif k == opens:
            names = ", ".join(b.name for b in fills.values())
            # The row's code is read for few rows, or one.
            is_long = any(isinstance(s, If) for s in walk(tuple(stmts[n] for n in fills)))
            result += with_group_waits(stmt, pieces, names, is_long=is_long)
        elif k not in fills:
            result.append(stmt)
    return tuple(result), copied


def filled_by(stmt: Stmt, wanted: AbstractSet[Buffer], *, may_store: bool = False) -> Buffer | None:
    """The wanted buffer that a statement does nothing but fill, or None. `may_store`: elements of partial vectors may be stored
    there by ordinary stores; they need no wait, since the thread that reads them stored them."""
    simple = [s for s in walk((stmt,)) if not isinstance(s, (For, If))]
    targets = {s.dst for s in simple if isinstance(s, AsyncCopy)}
    if len(targets) != 1:
        return None
    (buffer,) = targets
    if not all(isinstance(s, AsyncCopy) or (may_store and isinstance(s, Store) and s.buffer is buffer) for s in simple):
        return None
    return buffer if buffer in wanted else None


def with_group_waits(stmt: Stmt, pieces: int, names: str, later: int = 0, *, is_long: bool) -> list[Stmt]:
    """The iterations of a loop, each after the wait for its own copies; if the code is long, several after one wait.
    `later`: groups committed after these, for another iteration of an outer loop."""
    assert isinstance(stmt, For)
    result: list[Stmt] = []
    at_once = -(-pieces // MAX_PARTIAL_GROUPS) if is_long else 1
    for first in range(0, pieces, at_once):
        last = min(first + at_once, pieces) - 1
        what = f"piece {first} of {names} is" if first == last else f"pieces {first} to {last} of {names} are"
        result.append(AsyncWait(later + pieces - 1 - last, f"{what} there"))
        result.append(replace(stmt, start=const(first), stop=const(last + 1)))
    return result


def count_copy_groups(reader: Stmt, fills: Mapping[Buffer, Stmt]) -> int:
    """The number of iterations of a loop that reads, in each, what one iteration of the filling loops copies, of all buffers;
    0 for any other loop."""
    if not isinstance(reader, For) or reader.start is not ZERO or reader.step is not ONE or not reader.stop.is_const:
        return 0
    iterations = reader.stop.value
    if not 2 <= iterations <= MAX_COPY_GROUPS:
        return 0
    alike = all(
        reads(reader, b) and fuse_copies_into_reader(reader, f, b, lambda s: s) is not None for b, f in fills.items()
    )
    return iterations if alike else 0


def merge_fill_loops(fills: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """Merges loops of equal extent; the copies of each iteration are one group."""
    loop = fills[0]
    assert isinstance(loop, For)
    body = list(loop.body)
    for other in fills[1:]:
        assert isinstance(other, For)
        body += substitute_symbols(other.body, {other.symbol: loop.symbol})
    return (replace(loop, body=(*body, AsyncCommit())),)


def fuse_copies_into_reader(reader: Stmt, fill: Stmt, buffer: Buffer, wrap: Callable[[Stmt], Stmt]) -> Stmt | None:
    """`reader` with the copies of `fill` after the reads of the same elements, or None if the two loops differ."""
    if not (isinstance(reader, For) and isinstance(fill, For) and len(fill.body) == 1):
        return None
    if (reader.start, reader.stop, reader.step) != (fill.start, fill.stop, fill.step):
        return None
    (inner,) = substitute_symbols(fill.body, {fill.symbol: reader.symbol})
    inside = [k for k, s in enumerate(reader.body) if reads(s, buffer)]
    if isinstance(inner, For):
        if len(inside) != 1:
            return None
        made = fuse_copies_into_reader(reader.body[inside[0]], inner, buffer, wrap)
        if made is None:
            return None
        return replace(reader, body=(*reader.body[: inside[0]], made, *reader.body[inside[0] + 1 :]))
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
    return replace(reader, body=(*reader.body[:after], wrap(inner), *reader.body[after:]))


def _is_inside(read: tuple[Int, int], copied: tuple[Int, int]) -> bool:
    """Whether elements (from, how many) are some of those copied: of a vector that is cut, single ones are read, and stored
    instead by the thread that reads them."""
    behind = read[0] - copied[0]
    return prove_less(const(-1), behind) and prove_less(behind, const(copied[1] - read[1] + 1))


def reads_itself(stmt: Stmt, buffer: Buffer) -> bool:
    return any(b is buffer for b, _ in stmt_reads(stmt))


def reads(stmt: Stmt, buffer: Buffer) -> bool:
    return any(reads_itself(s, buffer) for s in walk((stmt,)))
