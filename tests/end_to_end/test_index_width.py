"""Indices of 32 and 64 bits around 2^30 and 2^31, with extents no memory here could hold.

A kernel is compiled for descriptors; then its first blocks, its last and those around the boundary run in the simulator on
virtual memory, whose elements are a function of their index. What they wrote is compared element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.facts import IndexBound, LoopBound, TensorDescriptor
from fuser.runtime.kernels.plan_evaluation import evaluation_of
from fuser.runtime.launch import Launch
from fuser.runtime.layouts import row_major
from fuser.simulator.device import SimulatorDevice
from fuser.simulator.memory import DeviceMemory
from fuser.simulator.run_kernel import run_kernel

Array = np.ndarray[Any, Any]
SIZES = [base + d for base in (2**30, 2**31) for d in (-1, 0, 1)]
MARGIN = 3


def bit(indices: Array) -> Array:
    """Element `i` of every virtual input: no simple period, different on both sides of a wrapped index."""
    mixed = indices.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed >> np.uint64(63)).astype(np.bool_)


def boundary_blocks(grid: Sequence[int], per_block: int) -> list[tuple[int, int, int]]:
    """First blocks, last ones, and those where the linear index passes 2^30 and 2^31."""
    marks = [0, grid[0] - 1, 2**30 // per_block, 2**31 // per_block]
    near = {m + d for m in marks for d in range(-MARGIN, MARGIN + 1)}
    return [(x, 0, 0) for x in sorted(near) if 0 <= x < grid[0]]


def run_boundary(
    define: Callable[[FusionDefinition], None],
    inputs: Sequence[TensorDescriptor],
    check: Callable[[Callable[[Array], Array], int], None],
    outputs_per_block: int | None = None,
) -> int:
    """Compile for `inputs`, run the boundary blocks, let `check(read, element)` look at the output around places.

    Returns the width of the kernel's indices.
    """
    with FusionDefinition() as fd:
        define(fd)
    assert fd.fusion is not None
    kernel = KernelCompiler(SimulatorDevice()).compile(fd.fusion, inputs)
    plan, ir = kernel.plan, kernel.kernel_ir
    assert plan is not None
    assert ir is not None
    evaluation = evaluation_of(kernel)
    sizes, strides = [t.sizes for t in inputs], [t.strides for t in inputs]
    ((shape, steps),) = evaluation.output_layouts(sizes, strides, [])
    memory = DeviceMemory()
    regions = [
        memory.map_virtual(t.dtype, 1 + sum((n - 1) * s for n, s in zip(t.sizes, t.strides, strict=True)), bit, "input")
        for t in inputs
    ]
    dtype = evaluation.dtypes[-1]
    assert dtype is not None
    count = 1 + sum((n - 1) * s for n, s in zip(shape, steps, strict=True))
    output = memory.map_virtual(dtype, count, None, "output")
    addresses = [*(r.address for r in regions), output.address]
    values = evaluation.evaluate([*sizes, shape], [*strides, steps], addresses, [])
    launch = Launch(values.grid, values.block, values.shared_bytes, None, False)
    per_block = outputs_per_block or -(-count // values.grid[0])
    blocks = boundary_blocks(values.grid, per_block)
    report = run_kernel(
        ir, launch, evaluation.arguments(values, addresses, [], 0), memory, only_blocks=blocks, checks=False
    )
    report.check()
    for x, _, _ in blocks:
        first = x * per_block
        check(output.read, first)
        check(output.read, min(first + per_block - 1, count - 1))
    bounded = any(isinstance(f, IndexBound) or type(f) is LoopBound for f in kernel.facts)
    assert bounded == (ir.index_bits == 32)
    return ir.index_bits


@pytest.mark.parametrize("size", SIZES)
def test_one_dimension(size: int) -> None:
    def check(read: Callable[[Array], Array], element: int) -> None:
        at = np.array([element])
        np.testing.assert_array_equal(read(at), ~bit(at), err_msg=str(element))

    def define(fd: FusionDefinition) -> None:
        fd.add_output(fd.ops.logical_not(fd.define_tensor([-1], True, DataType.Bool)))

    width = run_boundary(define, [TensorDescriptor(DataType.Bool, (size,), (1,))], check)
    assert width == (32 if size <= 2**30 else 64)


@pytest.mark.parametrize("size", SIZES)
def test_two_dimensions_and_a_broadcast(size: int) -> None:
    """Rows of 3: the linear index is divided, and the row's own index reads a second tensor."""
    rows = size // 3
    used = rows * 3

    def check(read: Callable[[Array], Array], element: int) -> None:
        at = np.array([element])
        np.testing.assert_array_equal(read(at), bit(at) ^ bit(at // 3), err_msg=str(element))

    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1, 3], True, DataType.Bool)
        b = fd.define_tensor([-1], True, DataType.Bool)
        fd.add_output(fd.ops.ne(x, fd.ops.broadcast(b, [False, True])))

    inputs = [TensorDescriptor(DataType.Bool, (rows, 3), (3, 1)), TensorDescriptor(DataType.Bool, (rows,), (1,))]
    width = run_boundary(define, inputs, check)
    assert width == 64 or used <= 2**30


@pytest.mark.parametrize("stride", SIZES)
def test_strides_alone(stride: int) -> None:
    """Three rows far apart: few elements, large offsets."""

    def check(read: Callable[[Array], Array], element: int) -> None:
        at = np.array([element])
        np.testing.assert_array_equal(read(at), ~bit(at // 8 * stride + at % 8), err_msg=str(element))

    def define(fd: FusionDefinition) -> None:
        fd.add_output(fd.ops.logical_not(fd.define_tensor([-1, -1], False, DataType.Bool)))

    width = run_boundary(define, [TensorDescriptor(DataType.Bool, (3, 8), (stride, 1))], check)
    assert width == 64, "two strides and a row reach beyond 2^30"


@pytest.mark.parametrize("stride", [2**30 - 8, 2**30 - 7, 2**30 - 6])
def test_the_bound_itself(stride: int) -> None:
    """(2 - 1) * stride + (8 - 1) elements: at most 2^30 is narrow."""

    def define(fd: FusionDefinition) -> None:
        fd.add_output(fd.ops.logical_not(fd.define_tensor([-1, -1], False, DataType.Bool)))

    def check(read: Callable[[Array], Array], element: int) -> None:
        at = np.array([element])
        np.testing.assert_array_equal(read(at), ~bit(at // 8 * stride + at % 8))

    width = run_boundary(define, [TensorDescriptor(DataType.Bool, (2, 8), (stride, 1))], check)
    assert width == (32 if stride + 7 <= 2**30 else 64)


@pytest.mark.parametrize("size", SIZES)
def test_reduction_of_many_rows(size: int) -> None:
    """Rows of 7 are counted; there are enough of them to pass the boundary in the input."""
    rows = -(-size // 7)

    def check(read: Callable[[Array], Array], element: int) -> None:
        row = np.arange(element * 7, element * 7 + 7)
        assert int(read(np.array([element]))[0]) == int(bit(row).sum()), element

    def define(fd: FusionDefinition) -> None:
        fd.add_output(fd.ops.sum(fd.define_tensor([-1, 7], True, DataType.Bool), [1]))

    width = run_boundary(define, [TensorDescriptor(DataType.Bool, (rows, 7), row_major((rows, 7)))], check)
    assert width == 64 or rows * 7 <= 2**30


@pytest.mark.parametrize("size", SIZES)
def test_many_columns(size: int) -> None:
    """Two rows are added: one column of threads for each element of a row."""
    columns = size // 2

    def check(read: Callable[[Array], Array], element: int) -> None:
        at = np.array([element])
        want = bit(at).astype(np.int64) + bit(at + columns)
        np.testing.assert_array_equal(read(at), want, err_msg=str(element))

    def define(fd: FusionDefinition) -> None:
        fd.add_output(fd.ops.sum(fd.define_tensor([2, -1], True, DataType.Bool), [0]))

    width = run_boundary(define, [TensorDescriptor(DataType.Bool, (2, columns), (columns, 1))], check)
    assert width == (32 if 2 * columns <= 2**30 else 64)
