"""Neighbours of proposed parameters, which tuning measures as well.

A neighbour differs in one choice: threads of a block, elements or accesses of a thread, rows of a block, blocks that share a
reduction, or values that are kept or recomputed. Properties of the inputs stay: which accesses may be vectors, where rows
are peeled, for which extents a row fits. Choices that must keep all blocks resident stay, too.

A neighbour may fail to lower, spill, or be much slower: the caller tries it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar, assert_never

from fuser.ir.device_info import DeviceInfo
from fuser.schedule.params import (
    Aligned,
    ChainedParams,
    ExprEvalParams,
    InnerOuterParams,
    InnerPersistentParams,
    NoOpParams,
    OuterPersistentParams,
    Params,
    PointwiseParams,
    ReductionParams,
    ScanParams,
    ThreadReductionParams,
    TransposeParams,
)

_P = TypeVar("_P", bound=Params)

_MIN_BLOCK = 32


def neighbours(params: Params, device: DeviceInfo) -> Iterator[Params]:
    """Parameters that differ from those given in one choice."""
    return (found for found in _neighbours(params, device) if found != params)


def _neighbours(params: Params, device: DeviceInfo) -> Iterable[Params]:
    match params:
        case NoOpParams() | ExprEvalParams() | InnerOuterParams() | ScanParams():
            # Of the last two, schedulers rank all there are.
            return ()
        case PointwiseParams():
            return _pointwise(params, device)
        case TransposeParams():
            return _transpose(params, device)
        case ReductionParams():
            return _reduction(params, device)
        case InnerPersistentParams():
            return _rows(params, device)
        case OuterPersistentParams():
            return _outer(params, device)
        case ChainedParams():
            return _chained(params, device)
        case ThreadReductionParams():
            return (replace(params, loops=loops) for loops in _pointwise(params.loops, device))
        case _:
            assert_never(params)


def _halves_and_doubles(params: _P, name: str, least: int = 1, most: int = 1 << 20) -> Iterator[_P]:
    """With a field twice and half as large."""
    value: int = getattr(params, name)
    for other in (value * 2, value // 2):
        if least <= other <= most:
            yield _with(params, **{name: other})


def _with(params: _P, **changes: Any) -> _P:
    return replace(params, **changes)


def _fits(device: DeviceInfo, *threads: int) -> bool:
    """Whether a block of so many threads (their product) is one."""
    count = 1
    for n in threads:
        count *= n
    return _MIN_BLOCK <= count <= device.max_threads_per_block


def _pointwise(params: PointwiseParams, device: DeviceInfo) -> Iterator[PointwiseParams]:
    if not params.merged_dims:
        return  # one element
    wide, high = params.block_shape
    for threads in ((wide // 2, high), (wide * 2, high), (wide, high * 2), (wide, high // 2)):
        # One run of elements has one row of threads; without a number all columns are those of one block.
        if threads[0] and threads[1] and (high > 1 or threads[1] == 1) and _fits(device, *threads):
            yield replace(params, block_shape=threads)
    yield from _halves_and_doubles(params, "unroll", most=8)
    # The vector widths of tiles depend on the tensors: the scheduler adds these candidates.
    has_tiles = params.tile_dims > 0 or bool(params.whole_inputs)
    if isinstance(params.access, Aligned) and params.vector > 1 and not has_tiles:
        narrow = params.vector // 2
        widths = ((name, min(w, narrow)) for name, w in params.vector_widths)
        yield replace(params, vector=narrow, vector_widths=tuple((name, w) for name, w in widths if w > 1))
    if isinstance(params.access, Aligned) and params.vector_widths and not has_tiles:
        # Accesses stay as wide as they may be: a thread has two of them.
        divisors = tuple((name, dim, 2 * divisor) for name, dim, divisor in params.extent_multiples)
        yield replace(params, vector=params.vector * 2, extent_multiples=divisors)


def _transpose(params: TransposeParams, device: DeviceInfo) -> Iterator[TransposeParams]:
    (m, n), vectors = params.tile, params.vectors
    if isinstance(params.access, Aligned):
        for tile in ((m * 2, n), (m, n * 2), (m // 2, n), (m, n // 2)):
            lanes = tuple(min(lane, t // v) for lane, t, v in zip(params.tile_threads, tile, vectors, strict=True))
            threads = min(params.block_threads, *(tile[0] * tile[1] // v for v in vectors))
            if min(lanes) >= 1 and min(tile) >= 16 and _fits(device, threads):
                yield replace(params, tile=tile, tile_threads=(lanes[0], lanes[1]), block_threads=threads)
    for threads in (params.block_threads * 2, params.block_threads // 2):
        if _fits(device, threads) and threads <= min(m * n // v for v in vectors):
            yield replace(params, block_threads=threads)


def _reduction(params: ReductionParams, device: DeviceInfo) -> Iterator[ReductionParams]:
    yield from _halves_and_doubles(params, "unroll" if params.unroll_outer == 1 else "unroll_outer", most=16)
    if params.cluster:
        # As many threads and blocks are co-resident as those that wait for one another need.
        return
    # The other axis of a block is that of the kept dims, or of the reduced ones that are no neighbours in memory.
    other = "block_outer" if params.block_outer else "block_iterate"
    along, beside = params.block_reduce, getattr(params, other)
    for threads in ((along * 2, beside), (along // 2, beside), (along, beside * 2), (along, beside // 2)):
        if min(threads) >= 1 and _fits(device, *threads):
            yield _with(params, block_reduce=threads[0], **{other: threads[1]})
    if params.grid_reduce > 1:
        yield from _halves_and_doubles(params, "grid_reduce")
    else:
        yield replace(params, grid_reduce=2)
        yield replace(params, grid_reduce=8)


def _rows(params: InnerPersistentParams, device: DeviceInfo) -> Iterator[InnerPersistentParams]:
    if params.groups is not None:
        # The blocks of a row wait for one another, and all are there.
        return
    # As many elements of a row as before, or more: for its extents the row still fits.
    for threads, batch in ((params.threads * 2, -(-params.batch // 2)), (params.threads // 2, params.batch * 2)):
        if threads and _fits(device, threads, params.rows):
            yield replace(params, threads=threads, batch=batch)
    for rows in (params.rows * 2, params.rows // 2):
        if rows and _fits(device, params.threads, rows) and not params.in_shared:
            yield replace(params, rows=rows)
    if params.cluster == 1 and not params.in_shared and params.threads > _MIN_BLOCK:
        for threads in (params.threads, params.threads // 2):
            if device.max_cluster > 1 and _fits(device, threads, params.rows) and params.rows == 1:
                batch = params.batch if threads != params.threads else -(-params.batch // 2)
                yield replace(params, threads=threads, batch=batch, cluster=2)
    elif params.cluster > 1:
        yield from _halves_and_doubles(
            replace(params, batch=params.batch * 2), "cluster", least=params.cluster // 2, most=params.cluster // 2
        )
        if params.cluster * 2 <= device.max_cluster:
            yield replace(params, cluster=params.cluster * 2, batch=-(-params.batch // 2))
    yield replace(params, one_pass=not params.one_pass)
    yield replace(params, inputs_only=not params.inputs_only)
    yield replace(params, load_all_first=not params.load_all_first)
    if not params.in_shared:
        yield replace(params, resident=0 if params.resident else 2)


def _outer(params: OuterPersistentParams, device: DeviceInfo) -> Iterator[OuterPersistentParams]:
    if params.reduction.grid_reduce == 1 or params.reduction.cluster:
        # As many rows in registers as before, or more.
        loops = params.reduction
        along, across, batch = loops.block_reduce, loops.block_iterate, loops.unroll
        for threads, rows in (
            ((along * 2, across), -(-batch // 2)),
            ((along // 2, across), batch * 2),
            ((along, across * 2), batch),
            ((along, across // 2), batch),
        ):
            if min(threads) >= 1 and _fits(device, *threads):
                made = replace(loops, block_reduce=threads[0], block_iterate=threads[1], unroll=rows)
                yield replace(params, reduction=made)
        return
    if not params.kept_iterations:
        for loops in _halves_and_doubles(params.reduction, "unroll", most=16):
            yield replace(params, reduction=loops)
    if params.kept_iterations:
        yield replace(params, kept_iterations=params.kept_iterations // 2)


def _chained(params: ChainedParams, device: DeviceInfo) -> Iterator[ChainedParams]:
    for rows in _neighbours(params.rows, device):
        assert isinstance(rows, (ReductionParams, InnerPersistentParams, OuterPersistentParams))
        yield replace(params, rows=rows)
    if params.blocks and not params.extent_ranges:
        yield from _halves_and_doubles(params, "blocks")
