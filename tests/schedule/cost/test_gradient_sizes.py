"""What a row of a backward normalisation costs: bytes of what is read and written, registers by the width of accesses."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType
from fuser.compiler.bind_inputs import bind_inputs
from fuser.schedule.cost.gradient_sizes import GradientSizes, find_gradient_sizes, size_registers
from fuser.schedule.scheduler import Refused, SegmentInputs
from tests.schedule.schedulers.test_inner_outer_persistent import (
    Definition,
    arrays_for,
    described,
    fusion_of,
    layer_norm_backward,
    softmax_and_sums,
)


def found_of(define: Definition, rows: int, length: int, dtype: DataType, most: int = 16) -> GradientSizes | Refused:
    fusion = fusion_of(define, dtype)
    bound = bind_inputs(fusion, [described(a) for a in arrays_for(define, rows, length, dtype)])
    return find_gradient_sizes(fusion, SegmentInputs(bound.tensors, bound.evaluate), most)


@pytest.mark.parametrize("dtype", [DataType.BFloat16, DataType.Float], ids=lambda d: d.name)
@pytest.mark.parametrize("most", [1, 2, 16])
def test_bytes_and_registers_of_layer_norm_backward(dtype: DataType, most: int) -> None:
    found = found_of(layer_norm_backward, 64, 1024, dtype, most)
    assert not isinstance(found, Refused)
    cost, size = found.cost, dtype.itemsize
    assert (found.rows, found.length, found.vector) == (64, 1024, min(most, 16 // size))
    assert cost.read_sizes == (size, size)
    assert cost.weight_sizes == (size,)
    assert (cost.loaded, cost.moved) == (2 * size, 3 * size)
    assert cost.row_registers == size_registers(cost.read_sizes, found.vector)
    assert cost.held_registers == size_registers(cost.weight_sizes, found.vector) + found.vector * cost.column_registers
    assert cost.statistics == 2


def test_sums_are_counted_and_no_vectors_asked_of_them() -> None:
    found = found_of(softmax_and_sums, 32, 512, DataType.Float)
    assert not isinstance(found, Refused)
    assert found.cost.sums == len(found.inner_outer.column) == 2
    sums = {t.name for t in found.segment.output_tensors if not found.inner_outer.is_full(found.graph, t)}
    assert sums.isdisjoint(found.vectorized)


def test_a_segment_without_elements_is_refused() -> None:
    empty = np.zeros((0, 512), np.float32)
    fusion = fusion_of(softmax_and_sums, DataType.Float)
    bound = bind_inputs(fusion, [described(empty)])
    assert find_gradient_sizes(fusion, SegmentInputs(bound.tensors, bound.evaluate)) == Refused("there is no element")
