"""Steps that are derived are those of a run, and running them is that run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser.errors import InputRuntimeError, InputTypeError
from fuser.host_ir.executors.derived_steps import run_steps
from fuser.host_ir.executors.steps import BoundProgram
from fuser.host_ir.instructions.expressions import extent
from fuser.host_ir.instructions.instructions import (
    Alias,
    Allocate,
    Copy,
    Deallocate,
    Fill,
    ForLoop,
    Instruction,
    LaunchKernel,
)
from fuser.host_ir.program import HostProgram
from fuser.ir.integers.number_trace import NumberTrace, UntraceableError
from fuser.ir.ops.dtypes import DataType
from fuser.runtime.array_view import ArrayView
from fuser.runtime.arrays.arrays import describe_array
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.simulator.device import SimulatorDevice
from tests.host_ir.kernels import scale_kernel
from tests.judging.structure import same_structure

N = extent("x", 0)


def tensor(device: Any, values: Any) -> DeviceTensor:
    return DeviceTensor.from_numpy(np.asarray(values, np.float32), device)


def program() -> HostProgram:
    """Memory that goes out and that does not, views, copies, fills, an update, a launch that may have nothing to do."""
    kernel = scale_kernel()
    instructions: list[Instruction] = [
        Allocate("y", (N,), DataType.Float),
        LaunchKernel(kernel, ("x", "y", "alpha")),
        Allocate("z", (N, 2), DataType.Float),
        Fill("z", 0.5),
        Alias("column", "z", (N,), (2,)),
        Copy("column", "y"),
        LaunchKernel(kernel, ("x", "x", 2.0)),
        Alias("half", "x", (N // 2,), (1,)),
        Allocate("w", (N // 2,), DataType.Float),
        LaunchKernel(kernel, ("half", "w", 3.0)),
        Deallocate("y"),
    ]
    return HostProgram(("x", "alpha"), ("z", "x", "half", "column", "z", "w"), instructions)


def parts(bound: BoundProgram) -> tuple[Any, ...]:
    return bound.steps, bound.outputs, bound.spans, bound.counts, bound.numbers, bound.roots, bound.why_not, bound.kind


@pytest.mark.parametrize("size", [0, 1, 6, 300])
def test_derived_steps_are_those_of_a_run(size: int) -> None:
    device, made = SimulatorDevice(), program()
    x = tensor(device, np.arange(size))
    _, bound = made.bind([x, 2.0])
    derived = made.derive([describe_array(x), 2.0])
    counts = {name: n for name, n in bound.counts.items() if n or name in derived.counts}
    bound.counts = counts
    assert same_structure(parts(derived), parts(bound))


@pytest.mark.parametrize("size", [0, 1, 6, 300])
def test_running_them_is_that_run(size: int) -> None:
    device, made, other = SimulatorDevice(), program(), program()
    x, again = tensor(device, np.arange(size)), tensor(device, np.arange(size))
    views: list[Any] = [describe_array(x), 2.0]
    results = run_steps(made.derive(views), views, None)
    expected = other.interpret([again, 2.0])
    assert results[1] is x
    for a, b in zip(results, expected, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
        assert a.strides == b.strides
    for name in ("runs", "launches", "skipped_launches", "allocations", "deallocations", "copies", "fills", "replays"):
        assert made.counters()[name] == other.counters()[name]


def test_sizes_of_a_trace_give_the_steps_of_other_sizes() -> None:
    device, made = SimulatorDevice(), program()
    x = describe_array(tensor(device, np.arange(300)))
    trace = NumberTrace()
    size, stride, address = map(trace.leaf, (300, 1, x.address))
    bound = made.derive([x._replace(sizes=(size,), strides=(stride,), address=address), 2.0])
    find = trace.function((bound.steps, bound.outputs, bound.spans))
    for n in (1, 17, 300, 4096):
        y = describe_array(tensor(device, np.zeros(n)))
        plain = made.derive([y, 2.0])
        found = find((n, 1, y.address))
        # One element is half of none: the last launch is left out.
        assert (found is None) == (n == 1)
        assert found is None or same_structure(found, (plain.steps, plain.outputs, plain.spans))


def test_arguments_that_do_not_fit_are_told() -> None:
    device, made = SimulatorDevice(), program()
    x = describe_array(tensor(device, np.arange(4)))
    with pytest.raises(InputRuntimeError, match="Expected 2 inputs"):
        made.derive([x])
    with pytest.raises(InputTypeError, match="to be a tensor"):
        made.derive([2.0, 2.0])


def test_what_more_than_sizes_decide_is_not_derived() -> None:
    host: ArrayView = describe_array(np.ones(4, np.float32))
    with pytest.raises(UntraceableError, match="arrays in host memory"):
        program().derive([host, 2.0])
    x = describe_array(tensor(SimulatorDevice(), np.arange(4)))
    loop = HostProgram(("x",), ("x",), (ForLoop("i", 0, N, 1, (LaunchKernel(scale_kernel(), ("x", "x", 2.0)),)),))
    with pytest.raises(UntraceableError, match="bodies"):
        loop.derive([x])
