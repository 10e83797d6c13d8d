"""Lay out shared memory: an offset in the block's arena for every shared buffer, reused where lifetimes are disjoint.

Before: shared buffers anywhere.
After:  `offsets[buffer.name]` in bytes, multiples of 16, and the arena's size.

Reuse needs a barrier: therefore up to `NO_REUSE_BYTES` bytes of small buffers are not reused. Placed before insert_syncs,
because buffers at one offset are one memory: a write after another buffer's last read needs a barrier. A buffer is live from
its `Allocate` to the last statement that accesses it; if that is in a loop and the `Allocate` is not, to the end of the
loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fuser.ir.integers.integers import ZERO, Int, ceil_div, const, prove_less_equal
from fuser.ir.kernel.kernel import Allocate, Buffer, For, If, RemoteStore, Stmt, walk
from fuser.ir.kernel.kernel_accesses import stmt_reads, stmt_writes
from fuser.records import record

ALIGNMENT = 16

NO_REUSE_BYTES = 1024
"""Bytes of a block's small buffers below which nothing is gained by reuse, and a barrier is lost. Schedules leave room for them
beside what else a block holds."""

SMALL_BUFFER_BYTES = 512
"""Bytes of a small buffer, or less."""


@dataclass(slots=True, eq=False)
class _LiveRange:
    buffer: Buffer
    allocated: int
    first: int
    last: int


@record(eq=False)
class SharedLayout:
    """Offsets in bytes by buffer name, and the arena's size in bytes."""

    offsets: dict[str, Int]
    size: Int


def allocate_shared(body: tuple[Stmt, ...]) -> SharedLayout:
    """Offsets for every shared buffer of a body."""
    lives: dict[Buffer, _LiveRange] = {}
    end_of_body = _collect(body, lives, 0, ())
    for stmt in walk(body):
        if isinstance(stmt, RemoteStore):
            # Other blocks write here asynchronously: no other buffer may have these bytes.
            for buffer in (stmt.buffer, *(() if stmt.signal is None else (stmt.signal,))):
                lives[buffer].first, lives[buffer].last = 0, end_of_body + 1
    offsets: dict[str, Int] = {}
    end: Int = ZERO
    scratch: Int = ZERO
    places: list[tuple[Int, Int, list[_LiveRange]]] = []  # offset, bytes, tenants
    for life in sorted(lives.values(), key=lambda b: b.first):
        nbytes = life.buffer.size * life.buffer.dtype.itemsize
        is_small = prove_less_equal(nbytes, const(SMALL_BUFFER_BYTES)) and prove_less_equal(
            scratch + nbytes, const(NO_REUSE_BYTES)
        )
        for offset, room, tenants in places:
            if (
                not is_small
                and prove_less_equal(nbytes, room)
                and all(t.last < life.first or life.last < t.first for t in tenants)
            ):
                offsets[life.buffer.name] = offset
                tenants.append(life)
                break
        else:
            room = ceil_div(nbytes, ALIGNMENT) * ALIGNMENT
            offsets[life.buffer.name] = end
            places.append((end, room, [life]))
            end = end + room
            scratch = scratch + room if is_small else scratch
    return SharedLayout(offsets, end)


def _collect(
    body: Sequence[Stmt], lives: dict[Buffer, _LiveRange], position: int, loops: tuple[tuple[int, list[Buffer]], ...]
) -> int:
    for stmt in body:
        position += 1
        if isinstance(stmt, Allocate) and stmt.buffer.is_shared:
            lives[stmt.buffer] = _LiveRange(stmt.buffer, position, position, position)
            continue
        if isinstance(stmt, For):
            start = position
            touched: list[Buffer] = []
            position = _collect(stmt.body, lives, position, (*loops, (start, touched)))
            position += 1
            for buffer in touched:
                life = lives[buffer]
                if life.allocated <= start:
                    life.first, life.last = min(life.first, start), max(life.last, position)
            continue
        if isinstance(stmt, If):
            position = _collect(stmt.then, lives, position, loops)
            position = _collect(stmt.orelse, lives, position, loops)
            continue
        for buffer in {b for b, _ in (*stmt_reads(stmt), *stmt_writes(stmt)) if b.is_shared}:
            life = lives[buffer]
            life.first, life.last = min(life.first, position), max(life.last, position)
            for _, touched in loops:
                touched.append(buffer)
    return position
