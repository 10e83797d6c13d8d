"""The order of loops is that of the memory of most of the bytes that are read, what is looked up included."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.ir.facts import TensorDescriptor
from fuser.optimize.pipeline import optimize_fusion
from fuser.schedule.analysis.reduced_dims import reference_reduction
from fuser.schedule.analysis.reference import dim_order
from fuser.schedule.scheduler import SegmentInputs

Float, Int = DataType.Float, DataType.Int


def order_of(table: Sequence[int], index: Sequence[int], *, is_element: bool = False) -> tuple[int, ...]:
    """Of a sum over dim 1 of (n, k, d) = (64, 8, 32) looked up in 100 rows, of strides of the table and the index."""
    sizes = ((64, 100, 32), (64, 8, 32)) if is_element else ((100, 32), (64, 8))
    with FusionDefinition() as fd:
        x, i = (
            fd.define_tensor([-1] * len(n), [False] * len(n), dtype)
            for n, dtype in zip(sizes, (Float, Int), strict=True)
        )
        rows = fd.ops.gather(x, i, 1) if is_element else fd.ops.embedding_fwd(i, x)
        fd.add_output(fd.ops.sum(rows, [1]))
    assert fd.fusion is not None
    described = [
        TensorDescriptor(dtype, n, tuple(s), 256, 0)
        for dtype, n, s in zip((Float, Int), sizes, (table, index), strict=True)
    ]
    fusion = fd.fusion.ir_fusion
    bound = bind_inputs(fusion, described)
    return dim_order(fusion, reference_reduction(fusion), SegmentInputs(bound.tensors, bound.evaluate))


@pytest.mark.parametrize(
    ("table", "index", "order"),
    [
        ((32, 1), (8, 1), (0, 1, 2)),
        ((32, 1), (1, 64), (1, 0, 2)),
        ((1, 100), (8, 1), (2, 0, 1)),
        ((1, 100), (1, 64), (2, 1, 0)),
    ],
)
def test_rows_that_are_looked_up(table: tuple[int, ...], index: tuple[int, ...], order: tuple[int, ...]) -> None:
    """Neighbours are those of the table; along the dim that is looked up the index decides."""
    assert order_of(table, index) == order


def test_elements_that_are_looked_up() -> None:
    """An index of all dims has more bytes than the table that it looks up: it decides."""
    assert order_of((3200, 32, 1), (256, 32, 1), is_element=True) == (0, 1, 2)
    assert order_of((3200, 32, 1), (1, 64, 512), is_element=True) == (2, 1, 0)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
@pytest.mark.parametrize("is_stored", [False, True])
def test_where_no_input_has_all_dims_an_output_that_has_them_decides(order: tuple[int, ...], is_stored: bool) -> None:
    """Pairs of [n, d] and [k, d], weighted by [n, k], normalised over d; of the inputs [n, k] has most bytes."""
    sizes = {"x": (64, 8), "centre": (32, 8), "weight": (64, 32)}
    with FusionDefinition() as fd:
        o = fd.ops
        x, centre, weight = (fd.define_tensor([-1, -1], True, Float) for _ in sizes)
        apart = o.sub(o.broadcast(x, [False, True, False]), o.broadcast(centre, [True, False, False]))
        pairs = o.mul(apart, o.broadcast(weight, [False, False, True]))
        norm = o.sum(o.mul(pairs, pairs), [2], keepdim=True)
        if is_stored:
            ranks = [2 - order.index(d) for d in range(3)]
            fd.add_output(o.stride_order(o.div(pairs, norm), ranks))
        fd.add_output(norm)
    assert fd.fusion is not None
    fusion = optimize_fusion(fd.fusion.ir_fusion, lambda name, text: None)
    described = [TensorDescriptor(Float, n, (n[1], 1), 256, 0) for n in sizes.values()]
    bound = bind_inputs(fusion, described)
    found = dim_order(fusion, reference_reduction(fusion), SegmentInputs(bound.tensors, bound.evaluate))
    assert found == (order if is_stored else (2, 0, 1))
