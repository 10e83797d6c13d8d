"""What backward normalisations work on: bytes of what is read and written, registers, numbers of rows that share a search."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType
from fuser.compiler.bind_inputs import bind_inputs
from fuser.schedule.cost.inner_outer_space import OF_ROWS, SizedInnerOuter, find_inner_outer, size_registers
from fuser.schedule.cost.rounding import round_up
from fuser.schedule.scheduler import Refused, SegmentInputs
from tests.fusions.inner_outer import (
    Definition,
    arrays_for,
    described,
    fusion_of,
    layer_norm_backward,
    softmax_and_sums,
)


def found_of(define: Definition, rows: int, length: int, dtype: DataType, most: int = 16) -> SizedInnerOuter | Refused:
    fusion = fusion_of(define, dtype)
    bound = bind_inputs(fusion, [described(a) for a in arrays_for(define, rows, length, dtype)])
    return find_inner_outer(fusion, SegmentInputs(bound.tensors, bound.evaluate), most)


@pytest.mark.parametrize("dtype", [DataType.BFloat16, DataType.Float], ids=lambda d: d.name)
@pytest.mark.parametrize("most", [1, 2, 16])
def test_bytes_and_registers_of_layer_norm_backward(dtype: DataType, most: int) -> None:
    found = found_of(layer_norm_backward, 64, 1024, dtype, most)
    assert not isinstance(found, Refused)
    space, size = found.space, dtype.itemsize
    assert (space.rows, space.length, space.vector) == (64, 1024, min(most, 16 // size))
    assert space.read_sizes == (size, size)
    assert space.weight_sizes == (size,)
    assert (space.loaded, space.moved, space.arguments) == (2 * size, 3 * size, 3)
    assert (space.statistics, space.exchanges) == (2, 1)
    assert all(4 <= v * size <= 16 for v in space.copied)
    assert size_registers(space.read_sizes, 4) == 2 * size


def test_numbers_of_rows_that_are_not_far_apart_are_one() -> None:
    assert [round_up(n, OF_ROWS) for n in range(17)] == list(range(17))
    for n in range(17, 3000):
        assert n <= round_up(n, OF_ROWS) <= 1.125 * n
    assert len({round_up(n, OF_ROWS) for n in range(1000, 2000)}) == 9


def test_sums_are_counted_and_no_vectors_asked_of_them() -> None:
    found = found_of(softmax_and_sums, 32, 512, DataType.Float)
    assert not isinstance(found, Refused)
    assert found.space.sums == len(found.inner_outer.column) == 2
    dims = found.rows
    sums = {t.name for t in dims.segment.output_tensors if not dims.has_reduced_and_kept_dims(t.visible)}
    assert sums.isdisjoint(found.vectorized)


def test_a_segment_without_elements_is_refused() -> None:
    empty = np.zeros((0, 512), np.float32)
    fusion = fusion_of(softmax_and_sums, DataType.Float)
    bound = bind_inputs(fusion, [described(empty)])
    assert find_inner_outer(fusion, SegmentInputs(bound.tensors, bound.evaluate)) == Refused("there is no element")
