"""Reductions over rows that lie apart in memory: their own loops, however blocks share them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.ir.device_info import H200
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import Fusion
from fuser.optimize.pipeline import optimize_fusion
from fuser.schedule.params import Peeled
from tests.schedule.block_reductions import TINY, Array, propose, simulate

D = DataType


def total(rank: int, dims: list[int], dtype: DataType, op: str = "sum") -> Fusion:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1] * rank, [False] * (rank - 1) + [True], dtype)
        x = fd.ops.cast(x, D.Float) if dtype.is_reduced_float else x
        fd.add_output(getattr(fd.ops, op)(x, dims))
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def columns(shape: tuple[int, ...], dtype: DataType, pad: int, first: int) -> Array:
    """Values of so many columns of wider rows, from `first` on."""
    wide = np.random.default_rng(0).integers(-4, 5, (*shape[:-1], shape[-1] + pad)).astype(dtype.numpy)
    return wide[..., first : first + shape[-1]]


@pytest.mark.in_turns
@pytest.mark.parametrize("shape", [(3, 20011), (700, 300), (40, 9001), (2500, 64), (19, 4099)], ids=str)
@pytest.mark.parametrize(("pad", "first"), [(64, 0), (7, 3), (1, 0)])
@pytest.mark.parametrize("dtype", [D.BFloat16, D.Float, D.Double], ids=lambda d: d.name)
def test_sums_of_all(shape: tuple[int, int], pad: int, first: int, dtype: DataType) -> None:
    x = columns(shape, dtype, pad, first)
    fusion = total(2, [0, 1], dtype)
    params = propose(fusion, [x])
    assert params.run_dims == (params.block_outer > 0)
    (found,) = simulate(fusion, [x], params)
    assert found == x.astype(np.float64).sum()


@pytest.mark.parametrize("is_along", [False, True])
@pytest.mark.parametrize(("threads", "others", "blocks", "unroll"), [(32, 4, 3, 4), (64, 1, 5, 2), (64, 3, 2, 8)])
@pytest.mark.parametrize("op", ["sum", "max"])
def test_blocks_share_rows_or_their_parts(
    is_along: bool, threads: int, others: int, blocks: int, unroll: int, op: str
) -> None:
    x = columns((17, 6007), D.Float, 5, 1)
    fusion = total(2, [0, 1], D.Float, op)
    params = propose(fusion, [x])
    assert params.access == Peeled("t0")
    params = replace(
        params, block_reduce=threads, block_outer=others, grid_reduce=blocks, unroll=unroll, grid_along=is_along
    )
    (found,) = simulate(fusion, [x], params, seed=blocks)
    assert found == getattr(x.astype(np.float64), op)()


@pytest.mark.parametrize("dims", [[1, 2], [0, 1, 2], [0, 2]], ids=str)
def test_planes_of_wider_rows(dims: list[int]) -> None:
    x = columns((5, 40, 650), D.Float, 6, 1)
    fusion = total(3, dims, D.Float)
    (found,) = simulate(fusion, [x], propose(fusion, [x]))
    np.testing.assert_array_equal(found, x.astype(np.float64).sum(tuple(dims)))


@pytest.mark.parametrize(
    ("shape", "stride", "dtype", "is_apart", "is_along"),
    [
        ((468, 128256), 128263, D.Float, True, True),
        ((702, 1024), 1088, D.Double, True, False),
        ((10, 50257), 50264, D.Double, True, True),
        ((10, 10_000_000), 10_000_007, D.Float, True, True),
        # Few elements are sooner read one by one, and little data by few blocks.
        ((50, 16384), 16391, D.BFloat16, False, False),
        ((300, 64), 71, D.Double, False, False),
        # These follow one another.
        ((468, 128256), 128256, D.Float, False, False),
    ],
    ids=str,
)
def test_which_rows_are_told_apart(
    shape: tuple[int, int], stride: int, dtype: DataType, is_apart: bool, is_along: bool
) -> None:
    given = TensorDescriptor(dtype, shape, (stride, 1), 8)
    params = propose(total(2, [0, 1], dtype), [given], H200)
    assert (params.block_outer > 0, params.run_dims > 0, params.grid_along) == (is_apart, is_apart, is_along)


def test_a_small_device_tells_rows_apart_sooner() -> None:
    given = TensorDescriptor(D.Double, (300, 64), (71, 1), 8)
    assert propose(total(2, [0, 1], D.Double), [given], TINY).run_dims == 1


@pytest.mark.parametrize("columns_", [1021, 1024])
@pytest.mark.parametrize("dim", [1, 2])
def test_rows_whose_ends_are_tested_are_loops(dim: int, columns_: int) -> None:
    """Differences along a dim, and zero behind the last: its position would be a division for each element of one axis."""
    with FusionDefinition() as fd:
        o, x = fd.ops, fd.define_tensor([-1, -1, -1], True, D.BFloat16)
        wide = o.cast(x, D.Float)
        ends = [x.size(k) - (k == dim) for k in range(3)]
        ahead = o.slice(wide, [int(k == dim) for k in range(3)], [x.size(k) for k in range(3)])
        padded = o.pad(o.sub(ahead, o.slice(wide, [0, 0, 0], ends)).abs(), [0, 0] * (2 - dim) + [0, 1], 0.0)
        fd.add_output(o.sum(o.add(padded, wide), [0, 1, 2]))
    assert fd.fusion is not None
    fusion = optimize_fusion(fd.fusion.ir_fusion, lambda name, text: None)
    shape = (24, 1021, columns_)
    given = TensorDescriptor(D.BFloat16, shape, (1021 * columns_, columns_, 1), 256)
    params = propose(fusion, [given], H200)
    assert params.run_dims == 1
    # Neighbouring threads read neighbours of what is read one by one.
    assert params.vector <= (8 if dim == 1 else 2)
