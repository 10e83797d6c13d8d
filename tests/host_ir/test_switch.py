"""Bodies of which the device chooses one: every way to run gives the same, and a selector out of range is never silent."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fuser import (
    Allocate,
    CallLibrary,
    Copy,
    DataType,
    Deallocate,
    Fill,
    ForLoop,
    FusionDefinition,
    HostProgram,
    If,
    KernelCompiler,
    LaunchKernel,
    RecordEvent,
    SetStream,
    Switch,
    Synchronize,
    WaitEvent,
    extent,
    less,
    scalar,
)
from fuser.errors import (
    DefinitionRuntimeError,
    DefinitionTypeError,
    InputRuntimeError,
    InputTypeError,
    LaunchError,
)
from fuser.host_ir.instructions.instructions import Instruction
from fuser.host_ir.parse_program import parse_program
from fuser.host_ir.saved_programs import load, save
from fuser.runtime import driver
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.devices.cuda_device import CudaDevice
from fuser.runtime.kernels.commands import SwitchCommand
from fuser.simulator.device import SimulatorDevice
from tests.devices.queue_device import QueueDevice
from tests.fuzzing.random_host_programs import generate_nested
from tests.host_ir.kernels import scale_kernel
from tests.runtime.fake_driver import FakeDriver, install

SCALE = scale_kernel()
N = extent("x", 0)
X = np.arange(40, dtype=np.float32)
Y = Allocate("y", (N,), DataType.Float)
ONE = Allocate("k", (1,), DataType.Int)


def times(number: Any, src: str = "x", dst: str = "y") -> LaunchKernel:
    return LaunchKernel(SCALE, (src, dst, number))


def cases(*numbers: float) -> tuple[tuple[Instruction, ...], ...]:
    return tuple((times(n),) for n in numbers)


def switch(*numbers: float) -> HostProgram:
    """y = x times the number that k says; minus x where it says none."""
    return HostProgram(("x", "k"), ("y",), (Y, Switch("k", cases(*numbers), (times(-1.0),))))


def put(device: Any, array: Any, dtype: Any = np.float32) -> DeviceTensor:
    return DeviceTensor.from_numpy(np.asarray(array, dtype), device)


def write(tensor: DeviceTensor, value: Any) -> None:
    """As code on the device does: what holds the tensor sees nothing of it."""
    tensor.device.copy_from_host(tensor.address, np.full(tensor.shape, value, tensor.dtype.numpy), tensor.stream)


@pytest.fixture
def device() -> SimulatorDevice:
    return SimulatorDevice()


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint64, np.bool_])
def test_every_way_runs_the_case_that_the_device_asks_for(device: SimulatorDevice, dtype: Any) -> None:
    program = switch(2.0, 3.0, 4.0)
    x, k = put(device, X), put(device, [0], dtype)
    captured = program.capture([x, k])
    for value in (0, 1) if dtype is np.bool_ else (2, 0, 1, 2):
        write(k, value)
        want = X * (2 + value)
        for run in (program.interpret, program.run, captured.run):
            assert np.array_equal(np.asarray(run([x, k])[0]), want)
        assert np.array_equal(np.asarray(captured.replay()[0]), want)
    # The key has nothing of the value, and the graph neither.
    assert program.counters()["runs"] - program.counters()["replays"] == (3 if dtype is np.bool_ else 5)
    assert captured.counters()["instantiated"] == 1


def test_arrays_in_host_memory(device: SimulatorDevice) -> None:
    program = switch(2.0, 3.0)
    for k in (1, 0, 1):
        (y,) = program.run([X, np.array(k)], device=device)
        assert np.array_equal(y, X * (2 + k))
    assert program.counters()["host_to_device"] == 6


def test_a_condition(device: SimulatorDevice) -> None:
    """Every value but 0 holds, and none is out of range."""
    program = HostProgram(("x", "flag"), ("y",), (Y, If("flag", (times(2.0),), (Fill("y", 1.0),))))
    x, flag = put(device, X), put(device, 1, np.int32)
    captured = program.capture([x, flag])
    for value, want in ((0, X * 0 + 1), (-7, X * 2), (1 << 30, X * 2), (0, X * 0 + 1)):
        write(flag, value)
        for run in (program.interpret, program.run, captured.run):
            assert np.array_equal(np.asarray(run([x, flag])[0]), want)


def counting(cases: int) -> HostProgram:
    """k = (k + 1) % cases by a kernel, then what k asks for: one more each time."""
    with FusionDefinition() as fd:
        k = fd.define_tensor([1], dtype=DataType.Int)
        fd.add_output(fd.ops.mod(fd.ops.add(k, 1), cases))
    kernel = KernelCompiler().compile(fd, [np.zeros(1, np.int64)])
    return HostProgram(
        ("x", "k"),
        ("y", "k"),
        (
            Allocate("next", (1,), DataType.Int),
            LaunchKernel(kernel, ("k", "next")),
            Copy("k", "next"),
            Deallocate("next"),
            Y,
            Switch("k", tuple((times(2.0 + c),) for c in range(cases)), (Fill("y", 0.0),)),
        ),
    )


def test_one_graph_serves_selectors_that_device_code_makes() -> None:
    device: Any = SimulatorDevice()
    x, k = put(device, X), put(device, [0], np.int64)
    captured = counting(3).capture([x, k])
    for turn in range(2, 60):
        assert np.array_equal(np.asarray(captured.replay()[0]), X * (2 + turn % 3))
    assert captured.counters() == {"launched": 58, "parameters_set": 0, "instantiated": 1, "nodes_set": 0}


# --- out of range ------------------------------------------------------------------------------------------------------

OUT_OF_RANGE = (
    (np.int64, 3),
    (np.int64, 0xFFFFFFFF),
    (np.int64, 1 << 32),
    (np.int64, -1),
    (np.int32, -1),
    (np.uint64, (1 << 64) - 1),
)


@pytest.mark.parametrize(("dtype", "value"), OUT_OF_RANGE)
def test_a_selector_out_of_range_runs_the_default_and_is_told(dtype: Any, value: int) -> None:
    device: Any = SimulatorDevice()
    program = HostProgram(("x", "k", "seen"), ("seen",), (Switch("k", cases_of_seen(3), (Fill("seen", -1.0),)),))
    x, k, seen = put(device, X), put(device, [0], dtype), put(device, [9])
    captured = program.capture([x, k, seen])
    message = (
        "the selector of instruction 0, Switch('k', ...), of the host program (x, k, seen) -> (seen) was "
        f"{value} on the device, and there are cases 0 to 2: its default was run instead. Let what writes the selector keep it "
        "in range"
    )
    for run in (program.interpret, program.run):
        write(seen, 5)
        write(k, value)
        with pytest.raises(LaunchError) as caught:
            run([x, k, seen])
        assert caught.value.message == message
        assert device.memory is not None
        assert np.array_equal(np.asarray(seen), [-1])
    # A launch of the graph is waited for by nobody: it is told later, once.
    told = (lambda: device.synchronize(0), captured.synchronize, captured.replay, lambda: np.asarray(seen))
    for ask in told:
        write(k, value)
        captured.replay()
        write(k, 1)
        with pytest.raises(LaunchError) as caught:
            ask()
        assert caught.value.message == message
        assert np.array_equal(np.asarray(seen), [-1])
        captured.replay()
        assert np.array_equal(np.asarray(seen), [1])


def cases_of_seen(count: int) -> tuple[tuple[Instruction, ...], ...]:
    return tuple((Fill("seen", float(c)),) for c in range(count))


def test_what_several_choices_tell_is_raised_together(device: SimulatorDevice) -> None:
    seen = Allocate("seen", (1,), DataType.Float)
    program = HostProgram(
        ("k",),
        ("seen",),
        (seen, *(Switch("k", cases_of_seen(n), (Fill("seen", 9.0),)) for n in (1, 2))),
    )
    k = put(device, [0], np.int64)
    captured = program.capture([k])
    write(k, 5)
    captured.replay()
    with pytest.raises(LaunchError, match=r"instruction 1, .* there is only case 0: ") as caught:
        captured.synchronize()
    assert [note for note in caught.value.__notes__ if "instruction 4, " in note]
    captured.synchronize()


# --- what is recorded --------------------------------------------------------------------------------------------------


def recorded(program: HostProgram, inputs: list[Any]) -> Any:
    captured: Any = program.capture(inputs)
    return captured._recording.commands


def test_equal_cases_share_a_body(device: SimulatorDevice) -> None:
    x, k = put(device, X), put(device, [0], np.int64)
    *_, choice = recorded(switch(2.0, 3.0, 2.0, -1.0), [x, k])
    assert isinstance(choice, SwitchCommand)
    assert (choice.selector.bodies, choice.selector.default, len(choice.bodies)) == ((0, 1, 0, 2), 2, 3)


def test_numbers_that_are_equal_and_not_the_same_are_two_bodies(device: SimulatorDevice) -> None:
    program = HostProgram(("x", "k"), ("y",), (Y, Switch("k", ((Fill("y", 0.0),),), (Fill("y", -0.0),))))
    x, k = put(device, X), put(device, [0], np.int64)
    assert not np.signbit(np.asarray(program.run([x, k])[0])).any()
    *_, choice = recorded(program, [x, k])
    assert len(choice.bodies) == 2


def test_one_body_is_no_choice(device: SimulatorDevice) -> None:
    """It runs whatever the selector is; one out of range is told all the same."""
    x, k = put(device, X), put(device, [0], np.int64)
    program = switch(-1.0, -1.0)
    look, _ = recorded(program, [x, k])
    assert (look.bodies, look.selector.bodies, look.selector.default) == ((), (-1, -1), -1)
    captured = program.capture([x, k])
    write(k, 2)
    (y,) = captured.replay()
    with pytest.raises(LaunchError, match="was 2 on the device, and there are cases 0 to 1"):
        captured.synchronize()
    assert np.array_equal(np.asarray(y), -X)
    same = HostProgram(("x", "k"), ("y",), (Y, If("k", (times(2.0),), (times(2.0),))))
    assert len(recorded(same, [x, k])) == 1
    assert same.counters()["host_reads"] == 0


def test_a_body_that_does_nothing_is_none(device: SimulatorDevice) -> None:
    program = HostProgram(("x", "k"), ("x",), (If("k", (times(2.0, "x", "x"),)),))
    x, k = put(device, X), put(device, [1], np.int64)
    (choice,) = recorded(program, [x, k])
    assert (choice.selector.bodies, len(choice.bodies)) == ((0, -1), 1)
    assert np.array_equal(np.asarray(x), X * 2)
    write(k, 0)
    program.run([x, k])
    assert np.array_equal(np.asarray(x), X * 2)


def test_what_touches_the_memory_of_any_body_is_in_order_with_the_choice(device: SimulatorDevice) -> None:
    program = HostProgram(
        ("x", "k"),
        ("y", "z"),
        (
            Y,
            Allocate("z", (N,), DataType.Float),
            Fill("z", 1.0),
            Fill("y", 1.0),
            Switch("k", ((times(2.0),), (Copy("z", "x"),))),
            Copy("x", "z"),
        ),
    )
    captured = program.capture([put(device, X), put(device, [0], np.int64)])
    assert captured.edges == ((), (), (0, 1), (2,))


# --- memory ------------------------------------------------------------------------------------------------------------


def test_memory_of_bodies_is_there_around_the_choice(device: SimulatorDevice) -> None:
    """Whichever runs: of a name in two bodies the larger one; what all of them make stays."""
    program = HostProgram(
        ("x", "k"),
        ("y",),
        (
            Switch(
                "k",
                (
                    (Allocate("t", (N,), DataType.Float), times(2.0, "x", "t"), Y, times(5.0, "t"), Deallocate("t")),
                    (Y, Allocate("t", (2 * N,), DataType.Float), Fill("t", 1.0), Fill("y", 1.0)),
                ),
                (
                    Y,
                    ForLoop("i", 1, 4, 1, (Allocate("u", (scalar("i"),), DataType.Float), Fill("u", 1.0))),
                    Fill("y", 3),
                ),
            ),
        ),
    )
    x, k = put(device, X), put(device, [0], np.int64)
    captured = program.capture([x, k])
    for value, want in ((0, X * 10), (1, X * 0 + 1), (0, X * 10)):
        write(k, value)
        for run in (program.run, program.interpret, captured.run):
            assert np.array_equal(np.asarray(run([x, k])[0]), want)
    counters = program.counters()
    runs = counters["runs"]
    assert (counters["allocations"], counters["deallocations"]) == (3 * runs, 2 * runs)
    assert program.memory() == (40 * 4 * 3 + 12, 40 * 4 * 3 + 12)


def test_a_body_may_call_a_library(device: SimulatorDevice) -> None:
    """And so may another, in the same memory."""
    square = (3, 3)

    def body(name: str, first: str, second: str) -> tuple[Instruction, ...]:
        made = Allocate(name, square, DataType.Float)
        return (made, CallLibrary("matmul", (name,), {"arg1": first, "arg2": second}), Copy("y", name))

    program = HostProgram(
        ("a", "b", "k"),
        ("y",),
        (Allocate("y", square, DataType.Float), If("k", body("s", "a", "b"), body("t", "b", "a"))),
    )
    a, b = (np.random.default_rng(seed).integers(0, 9, square).astype(np.float32) for seed in (0, 1))
    k = put(device, [0], np.int64)
    inputs = [put(device, a), put(device, b), k]
    captured = program.capture(inputs)
    for value, want in ((0, b @ a), (1, a @ b), (0, b @ a)):
        write(k, value)
        for run in (program.run, program.interpret, captured.run):
            assert np.array_equal(np.asarray(run(inputs)[0]), want)
    assert program.memory() == (72, 72)


def test_memory_of_different_bodies_is_shared(device: SimulatorDevice) -> None:
    """The largest of each body are one memory, and so on: another body does not run."""

    def body(prefix: str, *sizes: Any) -> tuple[Instruction, ...]:
        names = [f"{prefix}{k}" for k in range(len(sizes))]
        made = [Allocate(name, (size,), DataType.Float) for name, size in zip(names, sizes, strict=True)]
        filled = [Fill(name, float(k)) for k, name in enumerate(names)]
        (whole,) = [name for name, size in zip(names, sizes, strict=True) if size is N]
        return (*made, *filled, times(3.0, "x", whole), times(2.0, whole))

    program = HostProgram(
        ("x", "k"),
        ("y",),
        (Y, Switch("k", (body("a", 8, N, 4), body("b", N, 2 * N)), (If("k", body("c", N), (Fill("y", 1.0),)),))),
    )
    x, k = put(device, X), put(device, [0], np.int64)
    captured = program.capture([x, k])
    for value in (0, 1, 1, 0):
        write(k, value)
        for run in (program.interpret, program.run, captured.run):
            assert np.array_equal(np.asarray(run([x, k])[0]), X * 6)
    # The output, and memory for 2 N, N and 4 elements.
    assert program.memory() == (4 * (40 + 80 + 40 + 4),) * 2
    counters = program.counters()
    first = counters["runs"] - counters["replays"]
    assert counters["allocations"] == 4 * counters["runs"] + 3 * first
    assert counters["deallocations"] == 3 * counters["runs"] + 3 * first


def test_nested_choices_and_loops(device: SimulatorDevice) -> None:
    program = HostProgram(
        ("x", "k", "n"),
        ("y",),
        (
            Y,
            Fill("y", 0.0),
            Switch(
                "k",
                (
                    (
                        Copy("y", "x"),
                        If(less(scalar("n"), 2), (times(2.0, "y", "y"),), (times("n", "y", "y"),)),
                        ForLoop("i", 0, scalar("n"), 1, (If("k", (Fill("y", -7.0),), (times(3.0, "y", "y"),)),)),
                    ),
                ),
                (),
            ),
        ),
    )
    x, k = put(device, X), put(device, [0], np.int64)
    captured = program.capture([x, k, 0])
    for n, want in ((0, X * 2), (1, X * 6), (3, X * 81), (1, X * 6), (4, X * 4 * 81)):
        for run in (program.interpret, program.run, captured.run):
            assert np.array_equal(np.asarray(run([x, k, n])[0]), want), (n, run)


@pytest.mark.in_turns
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("chunk", range(4))
def test_random_programs_give_the_same_in_every_way(chunk: int, *, streams: bool) -> None:
    for seed in range(chunk * 30, chunk * 30 + 30):
        made = generate_nested(seed, SCALE, streams=streams, device=True)
        device: Any = QueueDevice(seed) if streams else SimulatorDevice()
        device.checks = False
        arrays = made.arrays(seed)
        p, q = put(device, [0], np.int64), put(device, 0, np.bool_)
        captured = None if streams else made.program.capture([put(device, arrays[0]), 0, 0, p, q])
        for n, m, first, second in ((0, 0, 0, 1), (3, 1, 1, 0), (3, 1, 1, 1), (3, 1, 0, 0), (0, 0, 1, 1)):
            write(p, first)
            write(q, second)
            want = made.expected(arrays, n, m, first, second)
            for run in (made.program.interpret, made.program.run, *(() if captured is None else (captured.run,))):
                x = put(device, arrays[0])
                (out,) = run([x, n, m, p, q])
                for got, expected in zip((out, x), want, strict=True):
                    assert np.array_equal(np.asarray(got), expected), f"seed {seed}, {n, m, first, second}, {run}"


# --- what is refused ---------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[tuple[Instruction, ...], str]] = {
    "a stream": (
        (If("k", (SetStream("side"), SetStream(0))),),
        "HostProgram, instruction 1, SetStream('side'): it stands in a body of instruction 0, If('k', ...), which the device "
        "chooses: a conditional node of a graph holds no streams, events or waits of the host. Put it before or behind that "
        "instruction",
    ),
    "an event": (
        (If("k", (), (RecordEvent(1),)),),
        "instruction 1, RecordEvent(1): it stands in a body of instruction 0",
    ),
    "a wait": (
        (
            RecordEvent(1),
            Switch("k", ((), (If(less(N, 4), (WaitEvent(1),)),))),
        ),
        "instruction 3, WaitEvent(1): it stands in a body of instruction 1, Switch('k', ...)",
    ),
    "a wait of the host": ((Switch("k", ((Synchronize(),),)),), "instruction 1, Synchronize(): it stands in a body"),
    "a tensor of several elements": (
        (Allocate("t", (2, N), DataType.Int), Fill("t", 0), If("t", (Fill("x", 1.0),))),
        "instruction 2, If('t', ...): slot 't' has shape [2, extent('x', 0)], and what decides has one element: make an Alias",
    ),
    "a floating tensor": (
        (Allocate("t", (1,), DataType.Float), Fill("t", 0), Switch("t", ((Fill("x", 1.0),),))),
        "slot 't' has dtype Float, and what decides is an integer or a Bool",
    ),
    "what nobody wrote": (
        (ONE_T := Allocate("t", (1,), DataType.Int), If("t", ())),
        "slot 't' is read before anything was",
    ),
    "no slot": ((If("t", ()),), "slot 't' is not defined; defined are 'x', 'k'"),
    "the index of a loop": (
        (ForLoop("i", 0, 4, 1, (If("i", (Fill("x", 1.0),)),)),),
        "slot 'i' is the index of a loop, which the host knows: write scalar('i')",
    ),
    "what only one case makes": (
        (Switch("k", ((Y, Fill("y", 1.0)),)), Copy("x", "y")),
        "slot 'y' is not defined here: it ended with the body that made it",
    ),
    "a selector from another stream": (
        (SetStream(1), ONE_T, Fill("t", 0), SetStream(0), If("t", (Fill("x", 1.0),))),
        "slot 't' is read on stream 0, and nothing orders that after instruction 2",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_when_a_program_is_built(case: str) -> None:
    instructions, message = REFUSED[case]
    with pytest.raises((DefinitionRuntimeError, DefinitionTypeError)) as caught:
        HostProgram(("x", "k"), (), instructions)
    assert message in str(caught.value)


def test_what_is_refused_when_a_program_is_called(device: SimulatorDevice) -> None:
    program, x = switch(2.0), put(device, X)
    with pytest.raises(InputTypeError, match=r"a tensor but got scalar 1: pass an array, or write scalar\('k'\) where"):
        program.run([x, 1])
    with pytest.raises(InputTypeError, match="'k' has dtype Float, and what decides is an integer or a Bool"):
        program.run([x, put(device, [0])])
    with pytest.raises(InputRuntimeError, match=r"'k' has shape \[2\], and what decides has one element") as caught:
        program.run([x, put(device, [0, 0], np.int64)])
    assert any("while running instruction 1 of a host program: Switch('k', ...)" in n for n in caught.value.__notes__)


def test_a_capture_of_the_caller() -> None:
    """The host cannot read there."""
    device = QueueDevice(1)
    program = switch(2.0, 3.0)
    x, k = put(device, X), put(device, [0], np.int64)
    program.run([x, k])
    device.synchronize(0)
    device.captures[0] = 7
    for run in (program.run, program.interpret):
        with pytest.raises(
            LaunchError, match=r"in which tensors decide what is run \(k\) is run inside a stream capture"
        ):
            run([x, k])


# --- text and files ----------------------------------------------------------------------------------------------------


def test_a_program_prints_as_python_that_rebuilds_it() -> None:
    program = HostProgram(
        ("x", "k"), ("y",), (Y, Switch("k", cases(2.0), (If("k", (Fill("y", 0.0),), cases(1.0)[0]),)))
    )
    assert "Switch('k'," in repr(program)
    assert "If('k'," in repr(program)
    assert parse_program(repr(program), program.kernels) == program


def test_a_saved_program_has_its_selectors(device: SimulatorDevice, tmp_path: Any) -> None:
    path = tmp_path / "program"
    save(switch(2.0, 3.0), path)
    program = load(path)
    assert program == switch(2.0, 3.0) or repr(program) == repr(switch(2.0, 3.0))
    assert np.array_equal(np.asarray(program.run([put(device, X), put(device, [1], np.int64)])[0]), X * 3)


def test_an_explanation_says_what_the_device_decides() -> None:
    program = HostProgram(
        ("x", "k"),
        ("y",),
        (Y, Switch("k", cases(2.0, 3.0, 2.0), (If("k", (times(1.0),), (times(1.0),)),))),
    )
    told = program.explain()
    assert "choice: 'k' decides instruction 1, Switch('k', ...): 3 different bodies\n" in told
    assert "choice: 'k' decides instruction 5, If('k', ...): bodies that are equal, so that nothing is chosen\n" in told


def test_counters(device: SimulatorDevice) -> None:
    """Of bodies those that ran."""
    program = HostProgram(("x", "k"), ("y",), (Y, If("k", (Fill("y", 1.0),), (times(2.0), times(3.0)))))
    x, k = put(device, X), put(device, [0], np.int64)
    for value in (0, 1, 1, 0):
        write(k, value)
        program.run([x, k])
    counters = program.counters()
    assert (counters["launches"], counters["fills"], counters["host_reads"]) == (4, 2, 4)
    assert (counters["runs"], counters["replays"]) == (4, 3)


# --- on a driver made of host memory -----------------------------------------------------------------------------------


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    found = install(monkeypatch)
    found.parameter_sizes = [8, 8, 8, 4, 8, 8, 8]
    yield found
    gc.collect()


def fills(*numbers: float) -> HostProgram:
    return HostProgram(("x", "k"), ("y",), (Y, Switch("k", tuple((Fill("y", n),) for n in numbers), (Copy("y", "x"),))))


def test_the_graph_has_a_node_that_chooses(fake: FakeDriver) -> None:
    """One graph for every value: looked at by a kernel of one thread, which what was before comes before."""
    device: Any = CudaDevice(0)
    x, k = put(device, X), put(device, [0], np.int64)
    captured = fills(5.0, 6.0, 5.0).capture([x, k], 7)
    setter, choice, *bodies = fake.nodes
    assert (len(choice.bodies), choice.waits, setter.waits) == (3, [setter], [])
    assert len(bodies) == 3
    fake.calls.clear()
    for value, want in ((0, 5), (1, 6), (2, 5), (1, 6)):
        write(k, value)
        assert np.array_equal(np.asarray(captured.replay(7)[0]), np.full(40, want))
    assert fake.names().count("cuGraphLaunch") == 4
    assert not {"cuGraphInstantiate", "cuMemAllocFromPoolAsync"} & set(fake.names())


def test_the_selector_is_looked_at_as_soon_as_it_is_known(fake: FakeDriver) -> None:
    """Beside what the bodies wait for. Whoever writes it next waits for the choice."""
    program = HostProgram(
        ("x", "k"),
        ("y",),
        (
            Allocate("t", (1,), DataType.Int32),
            Copy("t", "k"),
            Y,
            Fill("y", 1.0),
            Switch("t", ((Fill("y", 2.0),),)),
            Fill("t", 0),
            Switch("t", ((Copy("x", "y"),),), (Fill("x", 3.0),)),
        ),
    )
    device: Any = CudaDevice(0)
    x = put(device, X)
    captured = program.capture([x, put(device, [0], np.int32)], 7)
    copied, ones, looked, chosen, zero, again, other = [n for n in fake.nodes if n.level == 0]
    assert (looked.waits, chosen.waits) == ([copied], [looked, ones])
    assert (zero.waits, again.waits, other.waits) == ([chosen], [zero], [again])
    write(x, 9.0)
    captured.replay(7)
    assert np.array_equal(np.asarray(x), np.full(40, 2))


@pytest.mark.in_turns
@pytest.mark.parametrize(("dtype", "value"), OUT_OF_RANGE)
def test_the_device_tells_of_a_selector_out_of_range(fake: FakeDriver, dtype: Any, value: int) -> None:
    device: Any = CudaDevice(0)
    x, k = put(device, X), put(device, [0], dtype)
    captured = fills(5.0, 6.0, 7.0).capture([x, k], 7)
    for ask in (captured.synchronize, captured.replay, lambda: np.asarray(x)):
        write(k, value)
        (y,) = captured.replay(7)
        write(k, 1)
        with pytest.raises(LaunchError, match=rf"was {value} on the device, and there are cases 0 to 2: its default"):
            ask()
        assert np.array_equal(np.asarray(y), X)


def test_what_a_graph_has_told_is_raised_when_it_is_gone(fake: FakeDriver) -> None:
    device: Any = CudaDevice(0)
    x, k = put(device, X), put(device, [0], np.int64)
    captured = fills(5.0, 6.0, 5.0).capture([x, k], 7)
    write(k, 3)
    captured.replay(7)
    captured.close()
    gc.collect()
    assert {"cuMemFreeHost", "cuMemFree"} <= set(fake.names())
    with pytest.raises(LaunchError, match="was 3 on the device"):
        device.synchronize(7)
    device.synchronize(7)


def test_other_memory_is_set_in_the_nodes_of_bodies(fake: FakeDriver) -> None:
    device: Any = CudaDevice(0)
    program = fills(5.0, 6.0)
    x, k = put(device, X), put(device, [0], np.int64)
    captured = program.capture([x, k], 7)
    for value, want in ((1, X * 0 + 6), (0, X * 0 + 5), (1, X * 0 + 6)):
        (y,) = captured.run([put(device, X), put(device, [value], np.int64)], 7)
        assert np.array_equal(np.asarray(y), want)
    assert captured.counters() == {"launched": 0, "parameters_set": 3, "instantiated": 1, "nodes_set": 3}
    # What the driver does not set makes another graph.
    fake.fail_names["cuGraphExecMemsetNodeSetParams"] = 1
    (y,) = captured.run([put(device, X), k], 7)
    assert np.array_equal(np.asarray(y), X * 0 + 5)
    assert captured.counters()["instantiated"] == 2


def test_a_graph_that_cannot_be_made_leaves_nothing(fake: FakeDriver) -> None:
    device: Any = CudaDevice(0)
    x, k = put(device, X), put(device, [0], np.int64)
    program = fills(5.0, 6.0)
    program.run([x, k], 7)
    fake.fail_names["cuGraphInstantiate"] = 1
    with pytest.raises(LaunchError, match="cuGraphInstantiate failed"):
        program.capture([x, k], 7)
    assert fake.names().count("cuMemHostAlloc") == fake.names().count("cuMemFreeHost") == 1


def test_drivers_without_such_nodes(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch, unlowered: list[str]) -> None:
    """The host reads the selector at each launch, and the log says so."""
    monkeypatch.setattr(driver, "_version", (12, 6))
    device: Any = CudaDevice(0)
    x, k = put(device, X), put(device, [0], np.int64)
    captured = fills(5.0, 6.0).capture([x, k], 7)
    assert unlowered == ["the driver has no conditional nodes (CUDA 12.8): a program with choices is no graph"]
    unlowered.clear()
    for value, want in ((1, X * 0 + 6), (0, X * 0 + 5)):
        write(k, value)
        assert np.array_equal(np.asarray(captured.replay(7)[0]), want)
        assert np.array_equal(np.asarray(captured.run([put(device, X), k], 7)[0]), want)
    unlowered.clear()
    assert fake.graph_launches == 0
    write(k, 2)
    (y,) = captured.replay(7)
    with pytest.raises(LaunchError, match="was 2 on the device"):
        captured.synchronize()
    assert np.array_equal(np.asarray(y), X)


def test_a_replay_does_not_become_part_of_another_graph(fake: FakeDriver) -> None:
    device: Any = CudaDevice(0)
    captured = fills(5.0, 6.0).capture([put(device, X), put(device, [0], np.int64)], 7)
    fake.capture = 3
    try:
        with pytest.raises(LaunchError, match="where a tensor decides what is run, as in instruction 1, Switch"):
            captured.replay(7)
    finally:
        fake.capture = 0
