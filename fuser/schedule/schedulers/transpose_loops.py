"""The loops of tiles that are transposed in swizzled shared memory, and the schedule that makes them.

Loops of a tile, with vectors of v elements and L lanes along a contiguous dim (constants of each side):

    every tensor       [blocks..., m/Lv, L, v, n/Lv, L, v]
    computed along N   [blocks..., thread, further accesses, v along n]     thread from (n/Lv, m, L)
    staged along M     [blocks..., thread, further accesses, v along m]     thread from (m/Lv, n, L)

A staged input is loaded along M into registers and stored to shared memory in that order. A staged output is written to
shared memory along N and read along M. All arithmetic is along N, and so are slices, pads and gathers of inputs. Row i of a
tile stores its vectors in the order j ^ i: lanes that read one column then access different banks
(fuser.ir.schedule.schedule.ScheduleBuilder.swizzle).
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.ir.fusion.fusion import Fusion, tensor_inputs
from fuser.ir.ops.enums import MemoryType, ParallelType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.schedule.analysis.input_reads import ACCESS_BYTES
from fuser.schedule.analysis.windows import require_slices_in_bounds
from fuser.schedule.params import Peeled, TransposeParams
from fuser.schedule.schedulers.pointwise import reference_output
from fuser.schedule.transforms.loops import merge_axes
from fuser.schedule.transforms.vectorize import cache_arguments, vectorize_by

_GRID = (ParallelType.grid_z, ParallelType.grid_y, ParallelType.grid_x)


def schedule_transpose(segment: Fusion, params: TransposeParams) -> ScheduleBuilder:
    """The whole schedule."""
    reference = reference_output(segment)
    assert reference is not None
    builder = ScheduleBuilder(segment)
    copies = cache_arguments(builder)
    loads = {read: made for read, made in copies.items() if read not in builder.output_names}
    staged_loads = [loads[n] for n in params.via_shared if n in loads]
    staged_outputs = [n for n in params.via_shared if n in builder.output_names]
    computes = builder.definition(reference.name)
    assert computes is not None
    # Copies of what is staged: read along M and stored to shared memory, or stored along N, gathered along M and written.
    turned_in = [builder.cache_after(n) for n in staged_loads]
    turned_out = [builder.cache_before(n) for n in staged_outputs]
    gathered = [builder.cache_before(n) for n in staged_outputs]
    blocks = _tile(builder, reference.name, params)
    builder.transform_like(reference.name)
    for name in turned_in:
        _allocate(builder, name, blocks, along_m=True)
    for name in turned_out:
        _allocate(builder, name, blocks, along_m=False)
    along_m = [*staged_loads, *turned_in, *gathered, *staged_outputs]
    along_n = [t.name for t in builder.tensors if t.name not in (*along_m, *builder.input_names)]
    first_n = reference.name if reference.name in along_n else tensor_inputs(computes)[0].name
    for first, rest, is_m in ((first_n, along_n, False), (along_m[0], along_m, True)):
        _thread(builder, first, blocks, params.block_threads, along_m=is_m)
        others = [n for n in rest if n != first]
        if others:
            builder.transform_like(first, others)
        for position, parallel_type in enumerate((*_GRID[3 - blocks :], ParallelType.block_x, ParallelType.unswitch)):
            builder.parallelize(first, position, parallel_type)
        if others:
            builder.parallelize_like(first, blocks + 2, others)
    widths = dict(params.vector_widths)
    vectorize_by(builder, copies, widths, params.access)
    for names, vector in ((turned_in, params.vectors[0]), (turned_out, params.vectors[1])):
        if vector > 1:
            most = {n: min(vector, ACCESS_BYTES // builder.state(n).tensor.dtype.itemsize) for n in names}
            # Vectors that an end of a row cuts are those of what is computed along it.
            vectorize_by(builder, {n: n for n in names}, most, params.access)
    # All loads of a thread are issued before the first barrier: those along N are in a nest of their own.
    limits = [(n, builder.common_loops(n, along_m[0], blocks + 1)) for n in staged_loads]
    early = [n for n in loads.values() if n not in staged_loads and not builder.state(n).extras]
    is_apart = not _indices_are_shared(builder, early)
    for name in loads.values():
        if name not in staged_loads:
            # What lacks a dim belongs to the threads of those that have it: it is loaded where they use it.
            depth = blocks if name in early and is_apart else blocks + 1
            limits.append((name, builder.common_loops(name, first_n, depth)))
    require_slices_in_bounds(builder)
    builder.inline_most(limits=limits)
    return builder


def _indices_are_shared(builder: ScheduleBuilder, loads: Sequence[str]) -> bool:
    """Whether what loads find their places by lacks a dim, and is computed with as well."""
    inside = set(loads)
    stack = list(loads)
    while stack:
        expr = builder.definition(stack.pop())
        sources = {t.name for t in tensor_inputs(expr)} if expr is not None else set[str]()
        stack += sources - inside
        inside |= sources
    computed = inside - builder.input_names
    return any(builder.state(n).extras and not {t.name for t in builder.consumers(n)} <= inside for n in computed)


def _tile(builder: ScheduleBuilder, name: str, params: TransposeParams) -> int:
    """[blocks..., m/Lv, L, v, n/Lv, L, v] of the reference; returns how many axes count blocks."""
    builder.reorder(name, {dim: position for position, dim in enumerate(params.order)})
    for at, count in enumerate(params.merged_dims):
        merge_axes(builder, name, at, count)
    m = len(params.merged_dims) - 2
    # What is cut where memory is aligned is cut first: [.., m, n/v, v], v last until the tiles are made.
    cut = 0
    if isinstance(params.access, Peeled):
        builder.split_aligned(name, m + 1, params.vectors[1], params.access.at)
        cut = 1
    builder.split(name, m + 1, params.tile[1] // params.vectors[1] ** cut)
    builder.split(name, m, params.tile[0])
    builder.reorder(name, {m + 1: m + 2})
    if params.block_order != (0, 1):
        builder.reorder(name, {m: m + 1})
    for side, at in ((1, m + 3), (0, m + 2)):
        is_cut = side * cut
        builder.split(name, at, params.tile_threads[side] * params.vectors[side] ** (1 - is_cut))
        if not is_cut:
            builder.split(name, at + 1, params.vectors[side])
    blocks = m + 2
    merge_axes(builder, name, 0, blocks - params.grid_axes + 1)
    return min(blocks, params.grid_axes)


def _allocate(builder: ScheduleBuilder, name: str, blocks: int, *, along_m: bool) -> None:
    """Shared memory in rows along M or N, the accesses of a row swizzled by the place of the row."""
    builder.set_memory_type(name, MemoryType.shared)
    outer, inner = (3, 0) if along_m else (0, 3)
    axes = [*range(blocks), *(blocks + outer + i for i in range(3)), *(blocks + inner + i for i in range(3))]
    # Dims of one element come last.
    axes += [i for i, a in enumerate(builder.state(name).loop) if i >= len(axes) and not a.is_reduction]
    builder.set_allocation_domain(name, [f"loop:{i}" for i in axes])
    builder.swizzle(name, blocks + 1, blocks + 4)


def _thread(builder: ScheduleBuilder, name: str, blocks: int, threads: int, *, along_m: bool) -> None:
    """[blocks..., thread, further accesses, v]: lanes go along the run, then across it, then to its next line."""
    # The axes after the blocks are m/Lv, L, v, n/Lv, L, v.
    order = [0, 3, 4, 5, 1, 2] if along_m else [3, 0, 1, 2, 4, 5]
    builder.reorder(name, {blocks + axis: blocks + position for position, axis in enumerate(order)})
    merge_axes(builder, name, blocks, 5)
    builder.split(name, blocks, threads)
    builder.reorder(name, {blocks: blocks + 1})
