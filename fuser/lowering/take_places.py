"""Let what is computed of a row in shared memory take the places of what it is computed from.

Before: for b { a = x[b]; ...; y[b] = f(a) }  ...  y[b] ...
After:  for b { a = x[b]; ...; x[b] = f(a) }  ...  x[b] ...

where that loop is the last to read x, each thread reads of x and of y only what it wrote itself, and writes an element of y
behind the read of the same element of x. Both would not fit, or leave room for fewer blocks; and one place needs no barrier,
as laying one out over the other would.

Stands before pipeline_copies, which copies the next row behind the last read of x: that is then the last read of y.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from fuser.ir.integers import Int, const, prove_less
from fuser.ir.kernel import Allocate, Buffer, For, Load, Stmt, Store, VectorMove, walk
from fuser.ir.kernel_accesses import stmt_reads, stmt_writes
from fuser.ir.kernel_rewrites import substitute_buffers


def take_places(body: tuple[Stmt, ...], private: AbstractSet[str]) -> tuple[Stmt, ...]:
    """`private`: names of buffers of which each thread reads only what it wrote."""
    for made in [s.buffer for s in walk(body) if isinstance(s, Allocate) and s.buffer.is_shared]:
        if made.name in private:
            body = _in_list(body, made, private)
    return body


def _in_list(stmts: tuple[Stmt, ...], made: Buffer, private: AbstractSet[str]) -> tuple[Stmt, ...]:
    """A statement list, with a buffer that is allocated in it or in one of its loops in the place of another one."""
    if not any(isinstance(s, Allocate) and s.buffer is made for s in stmts):
        return tuple(
            For(s.symbol, s.start, s.stop, s.step, _in_list(s.body, made, private), s.unroll, s.unswitch)
            if isinstance(s, For) and any(isinstance(i, Allocate) and i.buffer is made for i in walk(s.body))
            else s
            for s in stmts
        )
    written = [k for k, s in enumerate(stmts) if _touches(s, made, writes=True)]
    if len(written) != 1 or not all(_is_moved(s, made) for s in walk(stmts)):
        return stmts
    (at,) = written
    for row in [s.buffer for s in stmts[:at] if isinstance(s, Allocate) and s.buffer.is_shared]:
        is_alike = row.dtype is made.dtype and row.size is made.size and row.name in private
        is_done = not any(_touches(s, row, writes=w) for s in stmts[at + 1 :] for w in (False, True))
        if is_alike and is_done and _reads_what_it_writes(stmts[at], row, made):
            kept = tuple(s for s in stmts if not (isinstance(s, Allocate) and s.buffer is made))
            return substitute_buffers(kept, {made: row})
    return stmts


def _is_moved(stmt: Stmt, made: Buffer) -> bool:
    """Whether a statement that accesses a buffer moves it, and does nothing else: `_renamed` knows others not."""
    match stmt:
        case VectorMove() | Store(value=Load()):
            return True
        case Store():
            return not _reads(stmt, made)
        case _:
            return not (_reads(stmt, made) or _writes(stmt, made))


def _touches(stmt: Stmt, buffer: Buffer, *, writes: bool) -> bool:
    accesses = stmt_writes if writes else stmt_reads
    return any(b is buffer for s in walk((stmt,)) for b, _ in accesses(s))


def _reads_what_it_writes(stmt: Stmt, row: Buffer, made: Buffer) -> bool:
    """Whether a loop does nothing with two buffers but to read vectors of one, and to write the same ones of the other behind
    that."""
    if not isinstance(stmt, For) or any(_writes(s, row) or _reads(s, made) for s in walk((stmt,))):
        return False
    # The innermost list in which both happen.
    loops, inner = [stmt], stmt.body
    while len(both := [s for s in inner if _touches(s, row, writes=False) or _touches(s, made, writes=True)]) == 1:
        (only,) = both
        if not isinstance(only, For):
            return False
        loops.append(only)
        inner = only.body
    reads = [k for k, s in enumerate(inner) if _touches(s, row, writes=False)]
    writes = [k for k, s in enumerate(inner) if _touches(s, made, writes=True)]
    if not reads or not writes or reads[-1] >= writes[0]:
        return False
    taken = _ranges(inner, row, writes=False)
    whole = {r for r in taken if r[1] == max(width for _, width in taken)}
    if len(whole) != 1:
        return False
    (vector,) = whole
    # Each trip of these loops has another vector.
    is_own = all(loop.symbol in vector[0].symbols for loop in loops)
    return is_own and all(_is_inside(r, vector) for r in (*taken, *_ranges(inner, made, writes=True)))


def _writes(stmt: Stmt, buffer: Buffer) -> bool:
    return any(b is buffer for b, _ in stmt_writes(stmt))


def _reads(stmt: Stmt, buffer: Buffer) -> bool:
    return any(b is buffer for b, _ in stmt_reads(stmt))


def _ranges(stmts: Sequence[Stmt], buffer: Buffer, *, writes: bool) -> set[tuple[Int, int]]:
    """(first element, how many) of the accesses to a buffer."""
    accesses = stmt_writes if writes else stmt_reads
    return {
        (index, s.width if isinstance(s, VectorMove) else 1)
        for s in walk(tuple(stmts))
        for b, index in accesses(s)
        if b is buffer
    }


def _is_inside(part: tuple[Int, int], whole: tuple[Int, int]) -> bool:
    if part == whole:
        return True
    behind = part[0] - whole[0]
    return prove_less(const(-1), behind) and prove_less(behind, const(whole[1] - part[1] + 1))
