"""Rows of gradients in shared memory: what is proposed fits and spills nothing, and is proposed where it is faster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.norm_cases import layer_norm_backward
from fuser import DataType
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.schedule.cost.gradient_column_split import choose_gradient_grid
from fuser.schedule.cost.gradient_row_split_shared import choose_shared_memory_shape
from fuser.schedule.cost.gradient_sizes import GradientSizes, find_gradient_sizes
from fuser.schedule.params import InnerOuterParams
from fuser.schedule.scheduler import SegmentInputs
from fuser.schedule.segmentation import segment_fusion

H200 = DeviceInfo.preset("H200")
BFloat16, Float, Double = DataType.BFloat16, DataType.Float, DataType.Double


def found_for(rows: int, length: int, dtype: DataType) -> tuple[GradientSizes, KernelCompiler, SegmentInputs]:
    from benchmarks.case import define_fusion

    fd = define_fusion(layer_norm_backward(rows, length, dtype))
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    wide = Double if dtype is Double else Float
    full = TensorDescriptor(dtype, (rows, length), (length, 1))
    statistic = TensorDescriptor(wide, (rows, 1), (1, 1))
    bound = bind_inputs(fusion, [full, full, TensorDescriptor(dtype, (length,), (1,)), statistic, statistic])
    inputs = SegmentInputs(bound.tensors, bound.evaluate)
    found = find_gradient_sizes(fusion, inputs)
    assert isinstance(found, GradientSizes)
    return found, KernelCompiler(H200), inputs


SHAPES = [
    (8000, 8192, Float),
    (4000, 4096, Float),
    (4000, 7168, BFloat16),
    (3932, 5120, Double),
    (3000, 16384, BFloat16),
]


@pytest.mark.parametrize(("rows", "length", "dtype"), SHAPES)
def test_long_rows_of_many(rows: int, length: int, dtype: DataType) -> None:
    found, compiler, inputs = found_for(rows, length, dtype)
    shape = choose_shared_memory_shape(found, H200)
    assert shape is not None
    assert shape.threads * shape.batch * shape.vector >= length
    assert (shape.batch - 1) * shape.threads * shape.vector < length, "no access is idle for every thread"
    (segment,) = segment_fusion(found.segment).segments
    bound = bind_inputs(found.segment, list(inputs.tensors.values()))
    kernel, params = compiler.compile_segment(segment, bound)
    assert isinstance(params, InnerOuterParams)
    assert params.in_shared == found.read
    assert params.ahead
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == 0
    assert kernel.source.count("fuser_copy_async") > 2


@pytest.mark.parametrize(
    ("rows", "length", "dtype"),
    [
        (16384, 4096, BFloat16),
        (32768, 1024, BFloat16),
        (4000, 1024, Float),
        # Those that registers hold since a sum is one number in them.
        (3718, 7168, Float),
        (2000, 3072, Double),
    ],
)
def test_short_rows_stay_in_registers(rows: int, length: int, dtype: DataType) -> None:
    found, compiler, inputs = found_for(rows, length, dtype)
    (segment,) = segment_fusion(found.segment).segments
    kernel, params = compiler.compile_segment(segment, bind_inputs(found.segment, list(inputs.tensors.values())))
    assert isinstance(params, InnerOuterParams)
    assert not params.in_shared
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == 0


def test_no_shape() -> None:
    assert choose_shared_memory_shape(found_for(1000, 5001, BFloat16)[0], H200) is None, (
        "two bytes are no asynchronous copy"
    )
    assert choose_shared_memory_shape(found_for(1000, 16384, Double)[0], H200) is None, "a thread has too few registers"
    assert choose_shared_memory_shape(found_for(2000, 3072, Double)[0], replace(H200, arch="sm_75")) is None


@pytest.mark.parametrize("rows", [2, 5, 8, 16, 74])
@pytest.mark.parametrize("length", [50257, 128256, 250003])
def test_doubles_over_the_grid(rows: int, length: int) -> None:
    found, _, _ = found_for(rows, length, Double)
    shape = choose_gradient_grid(length, rows, 1, found.cost, H200)
    if shape is None:
        # Two kernels are faster.
        assert rows > 16
        return
    assert shape.in_shared or rows < 8, "all of few rows are in registers"
    assert shape.sharing * shape.threads * shape.batch >= length
    assert (shape.sharing - 1) * shape.threads * shape.batch < length
    assert shape.sharing <= H200.sm_count
    assert shape.rows * shape.trips >= rows
    places = 2 if shape.ahead else 1
    assert places * shape.rows * shape.threads * shape.batch * 16 <= H200.shared_per_block_optin
