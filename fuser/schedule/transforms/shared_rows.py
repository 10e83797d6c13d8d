"""Rows in shared memory: scheduling primitives that copy them asynchronously and make each data pass read the copy.

Loops, with the names of `inner_persistent`, G blocks that loop over the rows, and U accesses that are unrolled:

    G -> grid_x, K/G serial, R/(v*tx*B*C) = 1, C -> grid_y, B/U serial, U unrolled, tx -> block_x, v -> vector

Each thread reads only what it has copied: no barrier is needed between copy and reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fuser.ir.fusion.fusion import tensor_inputs
from fuser.ir.ops.enums import LoadStoreOpType, MemoryType, ParallelType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.schedule.params import Access, Aligned, InnerPersistentParams

UNROLLED = 4
"""Accesses of a thread at once: enough loads of shared memory in flight, and bodies that the compiler still handles well."""


def copy_rows_to_shared(builder: ScheduleBuilder, copies: dict[str, str], params: InnerPersistentParams) -> list[str]:
    """Add a copy of each row tensor in shared memory between the input and its copy in registers; their names."""
    placed: list[str] = []
    for name in params.in_shared:
        if name not in copies:
            continue
        # Other reads of the row, at gathered indices, are of elements that other threads copy.
        if name in params.funnel_shifted:
            made = builder.cache_after(name, cached_uses=[copies[name]])
            builder.set_memory_type(made, MemoryType.shared)
        else:
            made = builder.cache_after(name, LoadStoreOpType.cp_async, cached_uses=[copies[name]])
        placed.append(made)
    return placed


def pass_through_registers(builder: ScheduleBuilder, placed: Iterable[str]) -> None:
    """A copy in registers before each row in shared memory that no asynchronous copy fills."""
    for name in placed:
        made = builder.definition(name)
        if made is not None and builder.state(name).op_type is not LoadStoreOpType.cp_async:
            builder.cache_after(tensor_inputs(made)[0].name, cached_uses=[name])


def unrolled(batch: int, *, is_cut: bool = False) -> int:
    """How many accesses of a thread are issued together: a divisor of `batch`, up to `UNROLLED`.

    is_cut   rows are peeled, so that the predicates of these accesses are tested together: at most 3, because with more
             accesses fewer threads pass the joint test
    """
    most = (2, 3) if is_cut else range(UNROLLED, 1, -1)
    return next((u for u in most if batch % u == 0), 1)


def vectorize_rows(builder: ScheduleBuilder, placed: Iterable[str], access: Access = Aligned()) -> None:
    """One access for each vector: copies to shared memory, and from there to registers in each data pass."""
    for name in placed:
        source = builder.definition(name)
        assert source is not None
        loaded = [t.name for t in tensor_inputs(source) if t.name not in builder.input_names]
        readers = [t.name for t in builder.consumers(name)]
        for each in (*loaded, name, *readers):
            state, innermost = builder.state(each), builder.innermost(each)
            if state.parallel_type(state.loop[innermost]) is not ParallelType.vectorize:
                builder.parallelize(each, innermost, ParallelType.vectorize)
            if not isinstance(access, Aligned):
                builder.allow_misaligned(each)


def inline_rows(builder: ScheduleBuilder, placed: list[str], outside: Mapping[str, int], *, persistent: bool) -> None:
    """Every data pass in its own loops over the row; the rows in shared memory outside of those, one row ahead where blocks go
    over many. `outside`: tensors that are outside, too, and in how many loops."""
    ahead = [*_row_scalars(builder), *outside.items()]
    if not persistent:
        builder.inline_most(limits=ahead)
        return
    builder.inline_most(
        [t.name for t in builder.tensors if t.name not in placed and t.name not in builder.input_names], ahead
    )
    for name in placed:
        builder.inline_at(name, 2, selected=[name])
        # As many rows as blocks go over them, which facts may say, leave no next row, and no loop.
        builder.load_ahead(name, best_effort=True)


def _row_scalars(builder: ScheduleBuilder) -> list[tuple[str, int]]:
    """Scalars of a row (all axes broadcast), inlined at position 0 so that they are not recomputed per element, such as
    quotients and square roots."""
    return [(n, 0) for n, state in builder.states.items() if state.loop and all(a.is_broadcast for a in state.loop)]
