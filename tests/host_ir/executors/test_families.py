"""Calls of new sizes that functions of their family bind: the same results, counters and errors as the whole way."""

from __future__ import annotations

import gc
import itertools
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fuser.errors import InputRuntimeError
from fuser.host_ir.executors import families
from fuser.host_ir.executors.families import Families
from fuser.host_ir.executors.interpreter import InterpretedRun
from fuser.host_ir.instructions.expressions import extent
from fuser.host_ir.instructions.instructions import Allocate, Fill, LaunchKernel
from fuser.host_ir.program import HostProgram
from fuser.ir.facts import Aligned, Disjoint, ExtentDivisible
from fuser.ir.integers.number_trace import NumberTrace
from fuser.ir.kernel.launch_waits import starting_early
from fuser.ir.ops.dtypes import DataType
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.simulator.device import SimulatorDevice
from tests.host_ir.kernels import scale_kernel

N = extent("x", 0)
CALLS = 2


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "CALLS_PER_TRACE", CALLS)


@pytest.fixture
def whole_ways(monkeypatch: pytest.MonkeyPatch) -> list[HostProgram]:
    """Programs that the interpreter has bound arguments to, call by call."""
    found: list[HostProgram] = []
    bind = HostProgram.bind

    def watched(self: HostProgram, *arguments: Any, **named: Any) -> Any:
        found.append(self)
        return bind(self, *arguments, **named)

    monkeypatch.setattr(HostProgram, "bind", watched)
    return found


def tensor(device: Any, values: Any) -> DeviceTensor:
    return DeviceTensor.from_numpy(np.asarray(values, np.float32), device)


def scaled(facts: Any = ()) -> HostProgram:
    kernel = scale_kernel()
    if facts:
        kernel = replace(kernel, facts=frozenset(facts))
    return HostProgram(
        ("x", "alpha"), ("y",), (Allocate("y", (N,), DataType.Float), LaunchKernel(kernel, ("x", "y", "alpha")))
    )


def test_sizes_after_the_first_go_a_short_way(whole_ways: list[HostProgram]) -> None:
    device, program = SimulatorDevice(), scaled()
    for size in (3, 4, 5, 600, 7, 129, 5):
        (y,) = program.run([tensor(device, np.arange(size)), 2.5])
        np.testing.assert_array_equal(y.numpy(), np.arange(size) * np.float32(2.5))
    assert len(whole_ways) == CALLS
    counters = program.counters()
    assert (counters["runs"], counters["launches"], counters["allocations"]) == (7, 7, 7)
    # Of these sizes one was there twice.
    assert counters["replays"] == 1


def test_early_launches_are_those_of_the_whole_way(
    whole_ways: list[HostProgram], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a launch that is skipped, and where an option turns them off: with sizes that are new each time."""
    kernel = scale_kernel()
    assert kernel.kernel_ir is not None
    waiting = starting_early(kernel.kernel_ir)
    program = HostProgram(
        ("x", "y"),
        ("a", "b"),
        (
            *(Allocate(made, (extent(of, 0),), DataType.Float) for made, of in (("a", "x"), ("b", "y"))),
            LaunchKernel(kernel, ("x", "a", 2.0)),
            LaunchKernel(replace(kernel, kernel_ir=waiting, plan=waiting.plan), ("y", "b", 3.0)),
        ),
    )
    device, sizes = SimulatorDevice(), itertools.count(5)

    def early(n: int | None = None) -> int:
        """How many launches of a run were."""
        before = program.counters()["launches_early"]
        program.run(
            [tensor(device, np.ones(n if n is not None else next(sizes))), tensor(device, np.ones(next(sizes)))]
        )
        return program.counters()["launches_early"] - before

    assert [early() for _ in range(CALLS + 2)] == [1] * (CALLS + 2)
    assert len(whole_ways) == CALLS
    assert early(0) == 0
    monkeypatch.setenv("FUSER_PDL", "off")
    assert [early() for _ in range(CALLS + 2)] == [0] * (CALLS + 2)
    monkeypatch.delenv("FUSER_PDL")
    assert early() == 1


@pytest.mark.parametrize("error", [ZeroDivisionError, OverflowError, ValueError])
def test_a_function_that_fails_leaves_its_call_to_the_whole_way(
    whole_ways: list[HostProgram], monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """As a division by an extent does, or a shift by less than nothing."""

    def fails(_: object) -> None:
        raise error

    monkeypatch.setattr(NumberTrace, "function", lambda *_: fails)
    device, program = SimulatorDevice(), scaled()
    for size in (3, 4, 5):
        (y,) = program.run([tensor(device, np.arange(size)), 2.0])
        np.testing.assert_array_equal(y.numpy(), 2.0 * np.arange(size))
    assert len(whole_ways) == 3


def test_a_call_that_is_another_way_goes_it(whole_ways: list[HostProgram]) -> None:
    device, program = SimulatorDevice(), scaled()
    for size in (3, 4, 5):
        program.run([tensor(device, np.arange(size)), 2.0])
    assert len(whole_ways) == CALLS
    (y,) = program.run([tensor(device, []), 2.0])
    assert y.shape == (0,)
    assert program.counters()["skipped_launches"] == 1
    assert len(whole_ways) == CALLS + 1


@pytest.mark.parametrize("fact", [ExtentDivisible("x", 0, 4), Aligned("x", 16)], ids=str)
def test_facts_are_checked(fact: Any) -> None:
    device, program = SimulatorDevice(), scaled([fact])
    base = tensor(device, np.arange(4000))
    for size in (400, 40, 80, 120):
        program.run([base.view((size,), (1,), 4), 2.0])
    broken = base.view((38,), (1,), 2)
    with pytest.raises(InputRuntimeError) as told:
        program.run([broken, 2.0])
    with pytest.raises(InputRuntimeError) as expected:
        program.interpret([broken, 2.0])
    assert told.value.message == expected.value.message


def test_inputs_that_overlap_are_no_others(whole_ways: list[HostProgram]) -> None:
    from dataclasses import replace

    device = SimulatorDevice()
    kernel = replace(scale_kernel(), facts=frozenset([Disjoint("x", "y")]))
    program = HostProgram(("x", "y"), ("y",), (LaunchKernel(kernel, ("x", "y", 2.0)),))
    base = tensor(device, np.arange(4000))
    for size in (400, 40, 80, 120):
        program.run([base.view((size,), (1,)), base.view((size,), (1,), 2000)])
    assert len(whole_ways) == CALLS
    with pytest.raises(InputRuntimeError, match="in memory that does not overlap"):
        program.run([base.view((60,), (1,)), base.view((60,), (1,), 59)])


def test_numbers_that_are_passed_on_are_those_of_the_call(whole_ways: list[HostProgram]) -> None:
    device, program = SimulatorDevice(), scaled()
    for size, alpha in ((3, 2.0), (4, 3.0), (5, 4.0), (6, np.float32(0.5)), (7, 2)):
        (y,) = program.run([tensor(device, np.arange(size)), alpha])
        np.testing.assert_array_equal(y.numpy(), np.arange(size) * np.float32(alpha))
    # An int is of another family than a float.
    assert len(whole_ways) == CALLS + 1


def test_numbers_that_sizes_depend_on_have_families_of_their_own() -> None:
    from fuser.host_ir.instructions.expressions import scalar

    device = SimulatorDevice()
    program = HostProgram(("x", "n"), ("y",), (Allocate("y", (N, scalar("n")), DataType.Float), Fill("y", 1.0)))
    for size, n in ((3, 2), (4, 2), (5, 2), (6, 3), (7, 3), (8, 3), (9, 2), (9, 4)):
        (y,) = program.run([tensor(device, np.arange(size)), n])
        assert y.shape == (size, n)


def test_strides_and_dtypes_and_devices() -> None:
    device, other, program = SimulatorDevice(), SimulatorDevice(), scaled()
    for size in (3, 4, 5):
        program.run([tensor(device, np.arange(size)), 2.0])
    base = tensor(device, np.arange(100))
    (y,) = program.run([base.view((10,), (7,), 3), 2.0])
    np.testing.assert_array_equal(y.numpy(), np.arange(3, 73, 7) * 2)
    (y,) = program.run([tensor(other, np.arange(6)), 2.0])
    assert y.device is other
    with pytest.raises(Exception, match="dtype"):
        program.run([DeviceTensor.from_numpy(np.arange(6.0), device), 2.0])


def test_a_way_that_cannot_be_traced_is_always_gone(
    whole_ways: list[HostProgram], monkeypatch: pytest.MonkeyPatch
) -> None:
    device, program = SimulatorDevice(), scaled()
    check = InterpretedRun.execute

    def untraceable(self: InterpretedRun, *arguments: Any) -> None:
        hash(self.tensors["x"].sizes)
        check(self, *arguments)

    monkeypatch.setattr(InterpretedRun, "execute", untraceable)
    traces: list[object] = []
    trace = Families._trace  # noqa: SLF001
    monkeypatch.setattr(Families, "_trace", lambda *a: (traces.append(a), trace(*a))[1])
    for size in range(3, 12):
        (y,) = program.run([tensor(device, np.arange(size)), 2.0])
        np.testing.assert_array_equal(y.numpy(), np.arange(size) * 2)
    assert len(whole_ways) == 9
    assert len(traces) == 1


def test_options_to_look_inside_keep_the_whole_way(
    whole_ways: list[HostProgram], monkeypatch: pytest.MonkeyPatch
) -> None:
    device, program = SimulatorDevice(), scaled()
    for size in (3, 4, 5):
        program.run([tensor(device, np.arange(size)), 2.0])
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    program.run([tensor(device, np.arange(6)), 2.0])
    assert len(whole_ways) == CALLS + 1


def test_no_array_is_kept() -> None:
    device, program = SimulatorDevice(), scaled()
    arrays = [tensor(device, np.arange(size)) for size in (3, 4, 5)]
    watched = [weakref.ref(x) for x in arrays]
    while arrays:
        program.run([arrays.pop(), 2.0])
    gc.collect()
    assert [w() for w in watched] == [None] * 3


def test_few_functions_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ways that sizes do not share: a family stops to look for others."""
    device, program = SimulatorDevice(), scaled()
    monkeypatch.setattr(families, "MOST_TRACES", 3)
    check = InterpretedRun.execute
    monkeypatch.setattr(
        InterpretedRun, "execute", lambda self, *a: (range(self.tensors["x"].sizes[0]), check(self, *a))[1]
    )
    made: list[object] = []
    trace = Families._trace  # noqa: SLF001
    monkeypatch.setattr(Families, "_trace", lambda *a: (made.append(a), trace(*a))[1])
    for size in range(3, 30):
        program.run([tensor(device, np.arange(size)), 2.0])
    assert len(made) == 3


def test_calls_of_libraries_go_the_whole_way(whole_ways: list[HostProgram]) -> None:
    from fuser import FusionDefinition

    with FusionDefinition() as fd:
        a, b = fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1])
        fd.add_output(fd.ops.matmul(a, b) * 2.0)
    device = SimulatorDevice()
    for rows in (101, 103, 105, 107, 109):
        x, w = np.full((rows, 8), 3, np.float32), np.ones((8, 24), np.float32)
        (y,) = fd.execute([tensor(device, x), tensor(device, w)])
        np.testing.assert_array_equal(y.numpy(), np.full((rows, 24), 48.0))
    assert len(whole_ways) == 5
    (program,) = {id(p): p for p in whole_ways}.values()
    assert len(program.library_calls()) == 5
