"""The order between instructions on several streams: what is refused, and that what is not refused is in order enough."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser import (
    Alias,
    Allocate,
    Copy,
    DataType,
    Deallocate,
    Fill,
    ForLoop,
    HostProgram,
    LaunchKernel,
    RecordEvent,
    SetStream,
    Synchronize,
    WaitEvent,
    extent,
)
from fuser.errors import DefinitionError, DefinitionRuntimeError, DefinitionTypeError, InputRuntimeError
from fuser.host_ir.instructions.instructions import Instruction
from fuser.host_ir.parse_program import parse_program
from fuser.host_ir.passes import stream_order
from fuser.host_ir.passes.stream_order import Touch
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.simulator.device import SimulatorDevice
from tests.devices.queue_device import QueueDevice
from tests.fuzzing.random_host_programs import generate, without
from tests.host_ir.kernels import scale_kernel

SCALE = scale_kernel()
N = extent("x", 0)
Y = Allocate("y", (N,), DataType.Float)
Z = Allocate("z", (N,), DataType.Float)


def double(src: str, dst: str) -> LaunchKernel:
    return LaunchKernel(SCALE, (src, dst, 2.0))


# Two launches that do not depend on each other, and one that reads what both have made.
FORKED: tuple[Instruction, ...] = (
    Y,
    Z,
    SetStream("side"),
    double("x", "y"),
    RecordEvent("y is there"),
    SetStream(0),
    Fill("z", 3.0),
    WaitEvent("y is there"),
    double("y", "z"),
)


def test_a_program_with_streams_prints_as_python_that_rebuilds_it() -> None:
    program = HostProgram(("x",), ("z",), (*FORKED, SetStream(2), Synchronize()))
    assert program.verified.facts.streams == (0, "side", 2)
    assert program.verified.facts.synchronizes
    text = repr(program)
    assert "SetStream('side')," in text
    assert "RecordEvent('y is there')," in text
    assert "Synchronize()," in text
    assert parse_program(text, program.kernels) == program


def test_explain_tells_what_goes_where() -> None:
    text = HostProgram(("x",), ("z",), FORKED).explain()
    assert "stream 0: 2 of the launches, copies and fills\nstream 'side': 1 of the launches, copies and fills" in text
    assert "1 events of the program; 1 streams begin behind stream 0 and are joined to it" in text


MALFORMED: dict[str, tuple[tuple[Instruction, ...], tuple[str, ...], str]] = {
    "read after write": (
        (Y, SetStream(1), double("x", "y"), SetStream(0), Z, Copy("z", "y")),
        ("z",),
        "instruction 5, Copy('z', 'y'): slot 'y' is read on stream 0, and nothing orders that after instruction 2, Launch",
    ),
    "write after read": (
        (SetStream(1), SetStream(0), Y, Copy("y", "x"), SetStream(1), Fill("x", 1)),
        ("x",),
        "slot 'x' is written on stream 1, and nothing orders that after instruction 3, Copy('y', 'x'), which reads it on",
    ),
    "write after write": (
        (SetStream(1), Fill("x", 2), SetStream(2), Fill("x", 1)),
        ("x",),
        "slot 'x' is written on stream 2, and nothing orders that after instruction 1, Fill('x', 2), which writes it on "
        "stream 1: put a RecordEvent behind that one and a WaitEvent before this one",
    ),
    "aliases are one memory": (
        (Alias("half", "x", (1,)), SetStream(1), Fill("half", 2), SetStream(0), Fill("x", 1)),
        ("x",),
        "slot 'x', the memory of 'half', is written on stream 0",
    ),
    "an event that came too early": (
        (Y, SetStream(1), RecordEvent(1), double("x", "y"), SetStream(0), WaitEvent(1), Fill("y", 1)),
        ("y",),
        "slot 'y' is written on stream 0, and nothing orders that after instruction 3",
    ),
    "a stream that began before memory was made": (
        (SetStream(1), SetStream(0), Y, SetStream(1), Fill("y", 2)),
        ("y",),
        "slot 'y' is written on stream 1, and nothing orders that after instruction 2, Allocate('y', (extent('x', 0),), "
        "DataType.Float), which makes it on stream 0",
    ),
    "memory that is ended elsewhere": (
        (Y, SetStream(1), Fill("y", 2), SetStream(0), Deallocate("y")),
        (),
        "slot 'y' is ended on stream 0, and nothing orders that after instruction 2",
    ),
    "an event that nothing records": (
        (RecordEvent("a"), SetStream(1), WaitEvent("b")),
        (),
        "event 'b' is waited for, and nothing before has recorded it; recorded are 'a'",
    ),
    "an event that is recorded later": (
        (WaitEvent(3), RecordEvent(3)),
        (),
        "nothing before has recorded it; recorded are none",
    ),
    "outputs are the caller's": (
        (SetStream(1), Y, Fill("y", 2), SetStream(0)),
        ("y",),
        "instruction 1, Allocate('y', (extent('x', 0),), DataType.Float): the memory of slot 'y' goes out: allocate it on "
        "stream 0, not on stream 1",
    ),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_what_is_not_in_order_is_refused(case: str) -> None:
    instructions, outputs, message = MALFORMED[case]
    with pytest.raises(DefinitionRuntimeError) as caught:
        HostProgram(("x",), outputs, instructions)
    assert message in str(caught.value)


IN_ORDER: dict[str, tuple[Instruction, ...]] = {
    "reads on two streams": (Y, Z, SetStream(1), Copy("y", "x"), SetStream(0), Copy("z", "x")),
    "a stream begins behind stream 0": (Fill("x", 1), SetStream(1), Fill("x", 2)),
    "by way of a third": (
        *(SetStream(1), Fill("x", 2), RecordEvent(1), SetStream(2), WaitEvent(1), RecordEvent(2)),
        *(SetStream(0), WaitEvent(2), Fill("x", 1)),
    ),
    "the host waits": (SetStream(1), Fill("x", 2), Synchronize(), SetStream(0), Fill("x", 1)),
    "an event that is recorded again": (
        *(SetStream(1), RecordEvent(1), Fill("x", 2), RecordEvent(1), SetStream(0), WaitEvent(1), Fill("x", 1)),
    ),
    "one stream alone": (SetStream(0), Fill("x", 1), RecordEvent(1), WaitEvent(1), Fill("x", 2)),
}


@pytest.mark.parametrize("case", IN_ORDER)
def test_what_is_in_order_is_taken(case: str) -> None:
    HostProgram(("x",), ("x",), IN_ORDER[case])


@pytest.mark.parametrize("name", [-1, "", True, 1.5, None])
def test_names_are_numbers_or_words(name: Any) -> None:
    with pytest.raises(DefinitionTypeError, match="SetStream takes a stream by a number from 0 or a name, got"):
        SetStream(name)
    with pytest.raises(DefinitionTypeError, match="RecordEvent takes an event by a number from 0 or a name, got"):
        RecordEvent(name)
    with pytest.raises(DefinitionTypeError, match="WaitEvent takes an event by"):
        WaitEvent(name)


def test_inputs_that_share_memory_are_one_memory() -> None:
    """Two updates without order are well for two arrays, and refused for one, by every way to run."""
    device = SimulatorDevice()
    program = HostProgram(
        ("x", "y"), ("x", "y"), (SetStream(1), double("x", "x"), SetStream(0), LaunchKernel(SCALE, ("y", "y", 3.0)))
    )
    x, y = (DeviceTensor.from_numpy(np.ones(4, np.float32), device) for _ in range(2))
    for _ in range(2):
        program.run([x, y])
        with pytest.raises(
            InputRuntimeError, match="inputs of a program with several streams share memory, and slot 'y'"
        ):
            program.run([x, x])
        with pytest.raises(InputRuntimeError, match="the memory of 'x', is read on stream 0"):
            program.interpret([x, x])
    with pytest.raises(InputRuntimeError, match="share memory"):
        program.capture([x, x])
    assert np.array_equal(np.asarray(x), np.full(4, 4.0))


@pytest.mark.parametrize("chunk", range(4))
def test_what_is_not_refused_gives_the_same_in_any_order(chunk: int) -> None:
    """One wait of a random program is left out: either the program is refused, or it was one too many."""
    refused = taken = 0
    for seed in range(chunk * 12, chunk * 12 + 12):
        made = generate(seed, SCALE, streams=3)
        waits = [k for k, i in enumerate(made.program.instructions) if isinstance(i, WaitEvent)]
        arrays = made.arrays(seed)
        want, updated = made.expected(arrays)
        for index in waits:
            try:
                program = without(made.program, index)
            except DefinitionError:
                refused += 1
                continue
            taken += 1
            for order in range(2):
                device = QueueDevice(order)
                tensors = [DeviceTensor.from_numpy(a, device) for a in arrays]
                for got, expected in zip([*program.run(tensors), *tensors], [*want, *updated], strict=True):
                    assert np.array_equal(np.asarray(got), expected), f"seed {seed} without {index}, order {order}"
    assert refused > 10
    assert taken > 0


def test_loops_in_loops_do_not_multiply_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is walked twice; a touch of one turn stands for those of the turns before."""
    made: list[Touch] = []
    monkeypatch.setattr(stream_order, "Touch", lambda *fields: made.append(Touch(*fields)) or made[-1])
    body: tuple[Instruction, ...] = (
        *(Fill("x", 1), RecordEvent(1), SetStream(1), WaitEvent(1)),
        *(Fill("x", 2), RecordEvent(2), SetStream(0), WaitEvent(2)),
    )
    for depth in range(6):
        body = (ForLoop(f"i{depth}", 0, 2, 1, body),)
    HostProgram(("x",), ("x",), body)
    assert len(made) == 2
