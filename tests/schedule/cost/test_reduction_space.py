"""What mappings of reductions are told of a segment: what is read how often, what lies together, and what is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.ir.device_info import H200
from fuser.ir.facts import TensorDescriptor
from fuser.runtime.layouts import row_major
from fuser.schedule.cost.reduction_mappings import reduction_mappings, reduction_work_of
from fuser.schedule.cost.reduction_space import ReductionSpace, SizedReduction, find_reduction
from fuser.schedule.scheduler import SegmentInputs

Float, Half = DataType.Float, DataType.Half


def space_of(define: Callable[..., Any], *shapes: tuple[int, ...], dtype: DataType = Float) -> ReductionSpace:
    return sized(define, *shapes, dtype=dtype).space


def sized(define: Callable[..., Any], *shapes: tuple[int, ...], dtype: DataType = Float) -> SizedReduction:
    with FusionDefinition() as fd:
        tensors = [fd.define_tensor([-1] * len(s), [True] * len(s), dtype) for s in shapes]
        for out in define(fd.ops, *tensors):
            fd.add_output(out)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    bound = bind_inputs(fusion, [TensorDescriptor(dtype, s, row_major(s), 256) for s in shapes])
    return find_reduction(fusion, SegmentInputs(bound.tensors, bound.evaluate), H200)


def moved(space: ReductionSpace) -> float:
    """Bytes that the blocks of any mapping move altogether, the least."""
    works = [reduction_work_of(space, m, H200) for m in reduction_mappings(space, H200)]
    return min(w.moved * w.iterations * w.blocks for w in works)


def closest(ops: Any, x: Any, y: Any) -> list[Any]:
    """Of all pairs."""
    pairs = ops.broadcast(x, [False, True]) - ops.broadcast(y, [True, False])
    return [ops.max(pairs * pairs, [1])]


def differences(ops: Any, x: Any) -> list[Any]:
    """Of neighbours along rows, three windows on one tensor."""
    left, middle, right = (ops.slice(x, [0, k], [10_000, 998 + k]) for k in range(3))
    return [ops.sum(ops.abs(left - middle) + ops.abs(middle - right), [0, 1])]


def fields(ops: Any, x: Any) -> list[Any]:
    return [ops.sum(x, [1])]


def test_what_all_pairs_read_is_read_once_by_the_device() -> None:
    space = space_of(closest, (4000,), (3000,))
    assert space.reuse > 1000
    assert moved(space) < 1000 * (4000 + 3000)


def test_windows_on_one_tensor_read_it_once() -> None:
    space = space_of(differences, (10_000, 1000))
    assert space.reuse == pytest.approx(3.0)
    assert moved(space) == pytest.approx(10_000 * 1000 * 4, rel=0.4)


def test_a_tensor_that_is_read_once_is_not_read_again() -> None:
    assert space_of(fields, (1000, 39, 16), dtype=Half).reuse == 1.0


def test_short_rows_are_pieces_of_memory() -> None:
    """Sixteen columns of 39 rows that follow one another, before the next such table."""
    space = space_of(fields, (1000, 39, 16), dtype=Half)
    assert not space.inner
    assert (space.kept_run, space.is_dense) == (16, True)
    accesses = 16 // space.vector
    assert space.accesses_side_by_side(1, 256) == accesses
    assert space.accesses_side_by_side(4, 256) == 4 * accesses
    assert space.accesses_side_by_side(4, 1) == 1


def test_columns_of_a_matrix_are_one_run() -> None:
    space = space_of(lambda ops, x: [ops.sum(x, [0])], (1000, 4096))
    assert space.kept_run == 0
    assert space.accesses_side_by_side(4, 64) == 64


def test_short_pieces_cost_more_than_long_ones() -> None:
    short, long = (space_of(fields, shape, dtype=Half) for shape in ((1 << 16, 32, 16), (1 << 11, 32, 512)))
    assert moved(short) >= moved(long)

    def of_single_rows(space: ReductionSpace) -> float:
        works = [reduction_work_of(space, m, H200) for m in reduction_mappings(space, H200) if m.along == 1]
        return min(w.moved * w.iterations * w.blocks for w in works)

    assert of_single_rows(short) > 1.2 * of_single_rows(long)


def test_results_are_stored() -> None:
    few, many = (
        space_of(lambda ops, x: [ops.sum(x, [1]), ops.max(x, [1])], s) for s in ((1 << 8, 1 << 14), (1 << 20, 4))
    )
    assert few.stored == many.stored == 8
    assert moved(few) == pytest.approx(4 << 22, rel=0.1)
    assert moved(many) >= (4 << 22) + (8 << 20)


def test_an_element_that_is_read_by_itself_takes_a_register() -> None:
    """Two halves of a vector share one."""
    by_element = space_of(differences, (10_000, 1001), dtype=Half)
    assert (by_element.vector, by_element.bytes_per_step, by_element.held) == (1, 3 * 2, 3)
    in_vectors = space_of(fields, (1000, 64, 128), dtype=Half)
    assert in_vectors.held == in_vectors.vector // 2


def diagonal(ops: Any, x: Any) -> list[Any]:
    """Of all elements, those of the diagonal twice."""
    rows, columns = (ops.iota(x.size(d), 0, 1, DataType.Int32) for d in range(2))
    own = ops.broadcast(rows, [False, True]) == ops.broadcast(columns, [True, False])
    return [ops.sum(ops.where(own, x + x, x))]


def whole(ops: Any, x: Any) -> list[Any]:
    return [ops.sum(x)]


def test_elements_of_an_access_are_in_at_most_two_rows_where_columns_are_told_apart() -> None:
    found = sized(diagonal, (8193, 1203), dtype=Half)
    assert found.extent_ranges == (("t0", 1, found.space.vector, 2**30),)
    assert found.space.vector == 8
    assert sized(diagonal, (300_007, 5), dtype=Half).extent_ranges == (), "they may be in three"
    assert sized(whole, (8193, 1203), dtype=Half).extent_ranges == (), "nothing is divided"
