"""Neighbours of proposed parameters, which tuning measures as well.

A neighbour differs in one choice: threads of a block, elements or accesses of a thread, or values that are kept. Properties of
the inputs stay: which accesses may be vectors, where rows are peeled. Of most parameters there are none: their schedulers rank
all mappings that there are.

A neighbour may fail to lower, spill, or be much slower: the caller tries it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from fuser.ir.device_info import DeviceInfo
from fuser.schedule.params import (
    Aligned,
    OuterPersistentParams,
    Params,
    PointwiseParams,
    ReductionParams,
    ThreadReductionParams,
    TransposeParams,
)

_P = TypeVar("_P", PointwiseParams, ReductionParams)

_MIN_BLOCK = 32


def neighbours(params: Params, device: DeviceInfo) -> Iterator[Params]:
    """Parameters that differ from those given in one choice."""
    return (found for found in _neighbours(params, device) if found != params)


def _neighbours(params: Params, device: DeviceInfo) -> Iterable[Params]:
    match params:
        case PointwiseParams():
            return _pointwise(params, device)
        case TransposeParams():
            return _transpose(params, device)
        case OuterPersistentParams():
            return _outer(params, device)
        case ThreadReductionParams():
            return (replace(params, loops=loops) for loops in _pointwise(params.loops, device))
        case _:
            # There is nothing to choose, or the scheduler ranks all there is.
            return ()


def _other_unrolls(params: _P, most: int) -> Iterator[_P]:
    """With twice and half as many accesses of a thread at once."""
    for unroll in (params.unroll * 2, params.unroll // 2):
        if 1 <= unroll <= most:
            yield replace(params, unroll=unroll)


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
    yield from _other_unrolls(params, 8)
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
        for loops in _other_unrolls(params.reduction, 16):
            yield replace(params, reduction=loops)
    if params.kept_iterations:
        yield replace(params, kept_iterations=params.kept_iterations // 2)
