"""Programs put on several streams: what goes where, as few events as will do, and the same results in any order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fuser import (
    Allocate,
    Copy,
    DataType,
    Deallocate,
    Fill,
    HostProgram,
    If,
    LaunchKernel,
    RecordEvent,
    SetStream,
    Synchronize,
    WaitEvent,
    extent,
)
from fuser.errors import DefinitionRuntimeError, DefinitionTypeError
from fuser.host_ir.instructions.expressions import less
from fuser.host_ir.instructions.instructions import Instruction
from fuser.runtime.arrays.device_tensor import DeviceTensor
from tests.devices.queue_device import QueueDevice
from tests.fuzzing.random_host_programs import generate
from tests.host_ir.kernels import scale_kernel

SCALE = scale_kernel()
N = extent("x", 0)
Y, Z, W = (Allocate(name, (N,), DataType.Float) for name in "yzw")


def times(src: str, dst: str, number: float = 2.0) -> LaunchKernel:
    return LaunchKernel(SCALE, (src, dst, number))


def test_branches_go_to_streams_and_meet_by_one_event() -> None:
    program = HostProgram(("x",), ("y",), (Y, times("x", "y"), Z, times("x", "z"), Copy("y", "z"), Deallocate("z")))
    assert program.on_streams(3).instructions == (
        *(Y, Z, SetStream(1), SetStream(0)),
        times("x", "y"),
        *(SetStream(1), times("x", "z"), RecordEvent(1)),
        *(SetStream(0), WaitEvent(1), Copy("y", "z")),
    )
    assert "stream 1: 1 of the launches, copies and fills" in program.on_streams(2).explain()


@pytest.mark.parametrize("streams", [1, 2, 5])
def test_a_chain_stays_as_it_is(streams: int) -> None:
    program = HostProgram(("x",), ("z",), (Y, times("x", "y"), Z, times("y", "z"), Deallocate("y"), times("z", "z")))
    assert program.on_streams(streams) == program


def test_what_follows_from_another_wait_is_not_waited_for() -> None:
    """Stream 0 waits for the second launch of stream 1, and so for the first; and no stream for itself."""
    program = HostProgram(
        ("x",),
        ("y",),
        (
            *(Y, Z, W, times("x", "y"), times("x", "z"), times("z", "w")),
            *(Copy("y", "w"), LaunchKernel(SCALE, ("z", "y", 3.0)), Fill("y", 1.0)),
        ),
    )
    found = program.on_streams(2).instructions
    assert [i for i in found if isinstance(i, (WaitEvent, RecordEvent))] == [RecordEvent(2), WaitEvent(2)]


def test_launches_side_by_side_stay_so(make_kernel: Any) -> None:
    """Two pairs on two streams, each without anything between its launches."""
    kernel = make_kernel()
    first = replace(kernel, plan=replace(kernel.plan, starts_next=True))
    second = replace(kernel, plan=replace(kernel.plan, co_resident=True))
    names = "abcd"
    instructions: list[Instruction] = []
    for name, which in zip(names, (first, second, first, second), strict=True):
        instructions += [Allocate(name, (N,), DataType.Float), LaunchKernel(which, ("x", name))]
    program = HostProgram(("x",), tuple(names), instructions).on_streams(2)
    assert [side.starter is not None for side in program.verified.side_by_side.values()] == [True, True]
    assert program.verified.facts.streams == (0, 1)


def test_what_is_refused() -> None:
    plain = HostProgram(("x",), ("x",), (Fill("x", 1),))
    for streams in (0, -1, True, 2.0):
        with pytest.raises(DefinitionTypeError, match="streams is a number from 1, got"):
            plain.on_streams(streams)  # type: ignore[arg-type]
    for own in (SetStream(1), Synchronize()):
        with pytest.raises(
            DefinitionRuntimeError, match="a program that has streams of its own is not put on other streams"
        ):
            HostProgram(("x",), ("x",), (own,)).on_streams(2)
    with pytest.raises(DefinitionRuntimeError, match="a program that has instructions with bodies is not put on other"):
        HostProgram(("x",), ("x",), (If(less(N, 4), ()),)).on_streams(2)


@pytest.mark.parametrize("chunk", range(3))
def test_random_programs_do_the_same(chunk: int) -> None:
    spread = 0
    for seed in range(chunk * 14, chunk * 14 + 14):
        made = generate(seed, SCALE)
        arrays = made.arrays(seed)
        want, updated = made.expected(arrays)
        program = made.program.on_streams(2 + seed % 3)
        spread += len(program.verified.facts.streams) > 1
        device = QueueDevice(seed, returns_home=seed % 2 == 0)
        captured = program.capture([DeviceTensor.from_numpy(a, device) for a in arrays])
        results: list[list[Any]] = []
        for run in (program.interpret, program.run, captured.run):
            tensors = [DeviceTensor.from_numpy(a, device) for a in arrays]
            results.append([*run(tensors), *tensors])
        for got in results:
            for one, expected in zip(got, [*want, *updated], strict=True):
                assert np.array_equal(np.asarray(one), expected), f"seed {seed}"
    assert spread > 5
