"""Bound calls: the launcher asks the same of a device as the interpreter, on every program there is; and what a call that does
not look like the one it was bound for meets."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from benchmarks.stand_ins import IdleDriver, Tensor, idle_cuda
from fuser import DataType, FusionDefinition
from fuser.errors import LaunchError
from fuser.host_ir.instructions.expressions import extent
from fuser.host_ir.instructions.instructions import Alias, Allocate, Copy, Deallocate, Fill, Instruction, LaunchKernel
from fuser.host_ir.program import HostProgram
from fuser.ir.kernel.kernel import SemaphoreParameter, TensorParameter, WorkspaceParameter
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.devices.cuda_launches import BoundLaunch
from fuser.runtime.devices.device import get_device
from fuser.runtime.devices.streams import own_stream
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.launch import Launch
from fuser.simulator.device import SimulatorDevice
from tests.devices.device_layouts import place_all
from tests.fusions.fusion_corpus import ALIGNED, CORPUS, FusionCase
from tests.host_ir.kernels import scale_kernel
from tests.package.forked_child import in_child

# --- the same as the interpreter --------------------------------------------------------------------------------------


class Listener(SimulatorDevice):
    """A device that notes what it is asked, addresses by the order in which they came up, and runs no kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[Any, ...]] = []
        self._places: dict[int, int] = {}

    def begin(self, inputs: Sequence[Any]) -> None:
        """Listen from now on to a run on these inputs."""
        self.heard.clear()
        self._places = {t.address: -1 - i for i, t in enumerate(inputs) if isinstance(t, DeviceTensor)}

    def place(self, address: int) -> tuple[int, int]:
        """(which memory, how far from its beginning)"""
        base = max((a for a in self._places if a <= address), default=address)
        return self._places.setdefault(base, len(self._places)), address - base

    def allocate(self, nbytes: int, stream: int) -> Any:
        made = super().allocate(nbytes, stream)
        self._places[made.address] = len(self._places)
        self.heard.append(("allocate", nbytes))
        return made

    def release(self, allocation: Any, stream: int) -> None:
        self.heard.append(("release", allocation.nbytes))
        super().release(allocation, stream)

    def copy(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        self.heard.append(("copy", self.place(dst), self.place(src), nbytes))

    def fill(self, address: int, pattern: bytes, count: int, stream: int) -> None:
        self.heard.append(("fill", self.place(address), pattern, count))

    def launch(self, kernel: CompiledKernel, launch: Launch, arguments: Sequence[Any], stream: int) -> None:
        addresses = (TensorParameter, WorkspaceParameter)
        values = [
            self.place(int(value))
            if isinstance(parameter, addresses)
            else "semaphores"
            if isinstance(parameter, SemaphoreParameter)
            else (type(value), value)
            for parameter, value in zip(kernel.parameters, arguments, strict=True)
        ]
        self.heard.append(("launch", kernel.content_hash, launch, values))


def asked(device: Listener, inputs: Sequence[Any], run: Callable[[], list[Any]]) -> tuple[list[Any], list[Any]]:
    """(what a run asks the device, its results)"""
    device.begin(inputs)
    results = run()
    heard = list(device.heard)
    return heard, [(type(r), r.shape, r.strides, device.place(r.address)) for r in results]


def check_case(fusion_case: FusionCase) -> None:
    """Interpreter, first call, later calls by the executor's launcher and by the program's: one list of calls of the device."""
    device = Listener()
    fd = fusion_case.define()
    inputs = place_all(device, fusion_case.inputs(ALIGNED))
    if not any(isinstance(value, DeviceTensor) for value in inputs):
        return
    program = fd.program(inputs)
    state = [0] * (len(program.inputs) - len(inputs))
    expected = asked(device, inputs, lambda: program.interpret([*inputs, *state]))
    for k in range(3):
        assert asked(device, inputs, lambda: program.run([*inputs, *state])) == expected, k
        # The state of a generator is another one at each call.
        if not state:
            assert asked(device, inputs, lambda: fd.execute(inputs)) == expected, k
    assert program.counters()["replays"] == (2 if state else 4)


@pytest.mark.parametrize("part", range(4))
def test_the_corpus_asks_the_same_of_a_device(part: int) -> None:
    for fusion_case in CORPUS[part::4]:
        check_case(fusion_case)


def random_program(rng: np.random.Generator, make_kernel: Any) -> tuple[HostProgram, int]:
    """A chain of everything there is over shared buffers: slots of one shape, some of them views, some given back."""
    from tests.host_ir.conftest import KernelMaker

    assert isinstance(make_kernel, KernelMaker)
    kernel = make_kernel()
    count = int(rng.integers(1, 4))
    inputs = tuple(f"x{i}" for i in range(count))
    size = extent("x0", 0)
    live, made, roots = list(inputs), [], {name: name for name in inputs}
    instructions: list[Instruction] = []
    for k in range(int(rng.integers(2, 14))):
        source = live[int(rng.integers(len(live)))]
        target = live[int(rng.integers(len(live)))]
        match int(rng.integers(7)):
            case 0 | 1:
                name = f"t{k}"
                instructions += [Allocate(name, (size,), DataType.Float), LaunchKernel(kernel, (source, name))]
                live.append(name)
                made.append(name)
                roots[name] = name
            case 2:
                instructions.append(Fill(target, float(k)))
            case 3 if target != source:
                instructions.append(Copy(target, source))
            case 4:
                instructions.append(LaunchKernel(kernel, (source, target)))
            case 5:
                instructions.append(Alias(f"a{k}", source))
                live.append(f"a{k}")
                roots[f"a{k}"] = roots[source]
            case _:
                gone = [name for name in made[:-1] if name in live]
                if gone:
                    instructions.append(Deallocate(gone[0]))
                    live = [name for name in live if roots[name] != gone[0]]
    outputs = [live[int(i)] for i in rng.integers(0, len(live), int(rng.integers(1, 4)))]
    return HostProgram(inputs, outputs, instructions), count


def test_random_programs_compute_what_the_interpreter_does(device: Any, make_kernel: Any) -> None:
    """All hazards between steps over shared buffers, inputs that are one array, two sizes, NumPy arrays and device arrays."""

    def add_one(arrays: list[Any], values: list[Any]) -> None:
        n = values[0]
        arrays[1][:n] = arrays[0][:n] + 1

    device.behaviours["add_one"] = add_one
    rng = np.random.default_rng(0)
    replays = 0
    for number in range(60):
        program, count = random_program(rng, make_kernel)
        for size in (5, 5, 3, 5, 0):
            values = [rng.integers(0, 50, size).astype(np.float32) for _ in range(count)]
            share = bool(rng.integers(2))

            def placed(on_host: bool, values: list[Any] = values, share: bool = share) -> list[Any]:
                arrays = [v.copy() if on_host else DeviceTensor.from_numpy(v, device) for v in values]
                return [arrays[0] if share else a for a in arrays]

            reference = placed(False)
            expected = [np.asarray(r) for r in program.interpret(reference)]
            for on_host in (False, not share):
                inputs = placed(on_host)
                found = program.run(inputs, device=device)
                for a, b in zip([*found, *inputs], [*expected, *reference], strict=True):
                    np.testing.assert_array_equal(np.asarray(a), np.asarray(b), f"{number}: {program!r}")
        replays = program.counters()["replays"]
    assert replays > 0


# --- on a driver and a torch that do nothing --------------------------------------------------------------------------


@pytest.fixture
def idle() -> Iterator[IdleDriver]:
    with idle_cuda() as driver:
        yield driver


def pointers(driver: IdleDriver, count: int) -> list[int]:
    """The first parameters of the last launch, as the driver would read them."""
    cells = ctypes.cast(driver.parameters, ctypes.POINTER(ctypes.c_uint64))
    return [ctypes.c_uint64.from_address(cells[i]).value for i in range(count)]


def relu_of_sum() -> FusionDefinition:
    with FusionDefinition() as fd:
        a, b = (fd.define_tensor([-1, -1], True, DataType.Float) for _ in range(2))
        fd.add_output(fd.ops.relu(a + b))
    return fd


def tensor(driver: IdleDriver, rows: int = 32, columns: int = 64, index: int = 0) -> Tensor:
    torch = driver.torch
    return torch.empty_strided((rows, columns), (columns, 1), torch.float32, torch.device("cuda", index))


def test_a_warm_call_launches_on_what_it_is_given(idle: IdleDriver) -> None:
    fd = relu_of_sum()
    for rows in (32, 32, 48, 32, 48):
        a, b = tensor(idle, rows), tensor(idle, rows)
        launches, allocations = idle.launches, idle.torch.allocations
        (y,) = fd.execute([a, b])
        assert (idle.launches, idle.torch.allocations) == (launches + 1, allocations + 1)
        assert pointers(idle, 3) == [a.data_ptr(), b.data_ptr(), y.data_ptr()]
        assert (y.shape, y.stride(), y.dtype) == (a.shape, a.stride(), a.dtype)
    assert fd.fec.counters()["exact_hits"] == 3
    assert fd(a, b).shape == a.shape


def test_streams(idle: IdleDriver) -> None:
    """The current one at each call; a named one, on which memory is taken as well."""
    fd = relu_of_sum()
    a, b = tensor(idle), tensor(idle)
    program = fd.program([a, b])
    for stream in (0, 0x70, 0x70, 0x80, 0):
        idle.torch.stream = stream
        fd.execute([a, b])
        assert int(idle.config.hStream) == stream
        program.run([a, b])
        assert int(idle.config.hStream) == stream
    taken: list[int] = []
    idle.torch.on_allocation = lambda: taken.append(idle.torch.stream)
    for stream in (0x90, 0x90, 0xA0):
        program.run([a, b], stream)
        assert int(idle.config.hStream) == taken[-1] == stream
        assert idle.torch.stream == 0
    idle.torch.stream = 0x90
    for _ in range(2):
        program.run([a, b], 0)
        assert int(idle.config.hStream) == taken[-1] == 0, "the default stream beside the current one"


def test_streams_of_tensors_of_this_project(idle: IdleDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run goes where it is sent, or to the project's own stream, after the work on its inputs and before what comes next."""
    device = get_device("cuda", 0)
    program = HostProgram(
        ("x",),
        ("y",),
        (Allocate("y", (extent("x", 0),), DataType.Float), LaunchKernel(scale_kernel(), ("x", "y", 2.0))),
    )
    own = own_stream(device)

    def run(written_on: int, stream: int | None) -> int:
        x = DeviceTensor.empty(device, (64,), DataType.Float, None, written_on)
        (y,) = program.run([x], stream)
        assert y.stream == int(idle.config.hStream)
        return y.stream

    recorded: list[int] = []
    waits: list[tuple[int, int]] = []
    monkeypatch.setattr(idle, "cuEventRecord", lambda _, stream: (recorded.append(stream), (0,))[1], raising=False)
    monkeypatch.setattr(
        idle, "cuStreamWaitEvent", lambda stream, *_: (waits.append((stream, recorded[-1])), (0,))[1], raising=False
    )
    for replays, (written_on, stream, goes) in enumerate(
        ((0x70, None, own), (own, None, own), (0x70, 0x70, 0x70), (0x70, 0x80, 0x80), (0, None, own))
    ):
        assert run(written_on, stream) == goes
        assert waits == ([] if written_on == goes else [(goes, written_on), (written_on, goes)])
        assert program.counters()["replays"] == replays
        waits.clear()
    assert program.interpreted() == {}


def test_another_current_device_and_context(idle: IdleDriver) -> None:
    """What is current is the caller's: memory comes from the tensors' device, and the context is brought back."""
    fd = relu_of_sum()
    a, b = tensor(idle), tensor(idle)
    for _ in range(3):
        fd.execute([a, b])
    idle.torch.device_index = 1
    idle.context = 0xDEAD
    (y,) = fd.execute([a, b])
    assert y.get_device() == 0
    assert idle.pushed == [0xC0]
    assert idle.context == 0xDEAD
    assert fd.fec.counters()["exact_hits"] == 3


def test_devices_have_programs_of_their_own(idle: IdleDriver) -> None:
    idle.devices = 2
    fd = relu_of_sum()
    for index in (0, 1, 0, 1):
        idle.torch.device_index = index
        idle.context = 0xC0 + index
        (y,) = fd.execute([tensor(idle, index=index), tensor(idle, index=index)])
        assert y.get_device() == index
    assert fd.fec.counters()["exact_hits"] == 2


def test_tensors_that_show_other_values_than_they_store(idle: IdleDriver) -> None:
    """A flag beside the same layout: the kernel runs on what the flag stands for."""
    fd = relu_of_sum()
    a, b = tensor(idle), tensor(idle)
    for _ in range(2):
        fd.execute([a, b])
    negated = tensor(idle)
    negated.negated = True
    for _ in range(2):
        fd.execute([negated, b])
        assert pointers(idle, 2) == [negated.resolve_neg().data_ptr(), b.data_ptr()]
    fd.execute([a, b])
    assert pointers(idle, 2) == [a.data_ptr(), b.data_ptr()]


def test_a_launch_that_fails(idle: IdleDriver) -> None:
    fd = relu_of_sum()
    a, b = tensor(idle), tensor(idle)
    for _ in range(2):
        fd.execute([a, b])
    idle.status = 700
    with pytest.raises(LaunchError, match=r"launch of .* with grid .*cuLaunchKernelEx failed"):
        fd.execute([a, b])
    idle.status = 0
    fd.execute([a, b])


def test_numbers_that_a_cell_cannot_hold(idle: IdleDriver) -> None:
    """An integer is refused before anything runs, as at a first call; a float is infinite."""
    with FusionDefinition() as fd:
        x, s, n = fd.define_tensor([-1], True), fd.define_scalar(DataType.Float), fd.define_scalar(DataType.Int32)
        fd.add_output(x * s + fd.ops.cast(n, DataType.Float))
    x = idle.torch.empty_strided((64,), (1,), idle.torch.float32)
    for _ in range(2):
        fd.execute([x, 2.0, 3])
    launches = idle.launches
    for numbers in ((2.0, 2**40), (2.0, -(2**31) - 1)):
        messages: list[str] = []
        for run in (fd.execute, relu_like(fd).execute):
            with pytest.raises(Exception, match=r"range|compatible") as caught:
                run([x, *numbers])
            messages.append(str(caught.value).splitlines()[0])
        assert messages[0] == messages[1]
    assert idle.launches == launches
    for _ in range(2):
        fd.execute([x, 1e300, 3])
        fd.execute([x, 2.0, 3])
    assert idle.launches == launches + 4


def relu_like(fd: FusionDefinition) -> Any:
    """An executor of the same definition to which everything is new."""
    from fuser.compiler.executor_cache import FusionExecutorCache

    assert fd.fusion is not None
    return FusionExecutorCache(fd.fusion)


def test_a_call_within_a_call(idle: IdleDriver) -> None:
    """An allocation may run anything, this very program included: its argument cells are others."""
    fd = relu_of_sum()
    a, b = tensor(idle), tensor(idle)
    other = tensor(idle)
    for _ in range(2):
        fd.execute([a, b])
    launched: list[list[int]] = []
    idle.on_launch = lambda: launched.append(pointers(idle, 2))

    def call() -> None:
        idle.torch.on_allocation = None
        fd.execute([other, other])

    idle.torch.on_allocation = call
    fd.execute([a, b])
    assert launched == [[other.data_ptr(), other.data_ptr()], [a.data_ptr(), b.data_ptr()]]


def two_kernels() -> FusionDefinition:
    with FusionDefinition() as fd:
        a, b = (fd.define_tensor([-1, -1], True, DataType.Float) for _ in range(2))
        fd.add_output(fd.ops.relu(fd.ops.segment_set(a + b)))
    return fd


class _Interrupted(BaseException):
    """Ctrl-C, at a place that the test chooses."""


@pytest.mark.parametrize("how", ["interrupt", "call"])
def test_streams_of_a_call_that_something_came_into(
    idle: IdleDriver, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While launches are moved to another stream: what was not moved is known, and all of a call go to one stream."""
    then: list[Callable[[], object]] = []
    move = BoundLaunch.set_stream

    def moved(self: BoundLaunch, stream: int) -> None:
        move(self, stream)
        if then:
            then.pop()()

    monkeypatch.setattr(BoundLaunch, "set_stream", moved)
    fd = two_kernels()
    a, b = tensor(idle), tensor(idle)
    for _ in range(2):
        fd.execute([a, b])
    streams: list[int] = []
    idle.on_launch = lambda: streams.append(int(idle.config.hStream))

    def interrupt() -> None:
        raise _Interrupted

    def call() -> None:
        idle.torch.stream = 0x80
        fd.execute([a, b])
        idle.torch.stream = 0x70

    idle.torch.stream = 0x70
    if how == "interrupt":
        then.append(interrupt)
        with pytest.raises(_Interrupted):
            fd.execute([a, b])
        assert streams == []
        idle.torch.stream = 0
        fd.execute([a, b])
        assert streams == [0, 0]
    else:
        then.append(call)
        fd.execute([a, b])
        assert streams == [0x80, 0x80, 0x70, 0x70]


def test_a_call_while_another_is_counted(idle: IdleDriver) -> None:
    """A signal handler, or a collection of garbage, that calls where this very thread counts a run: nobody waits for itself."""
    fd = relu_of_sum()
    a, b = tensor(idle), tensor(idle)
    for _ in range(2):
        fd.execute([a, b])
    latest = fd.fec._launcher.latest  # pyright: ignore[reportPrivateUsage]
    assert latest is not None
    assert latest.tally is not None
    lock = latest.tally.lock

    def call() -> None:
        with lock:
            fd.execute([a, b])

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


def test_threads_have_argument_cells_of_their_own(idle: IdleDriver) -> None:
    fd = relu_of_sum()
    a, b = tensor(idle), tensor(idle)
    for _ in range(2):
        fd.execute([a, b])
    cells = {idle.parameters}

    def work() -> None:
        for _ in range(2):
            fd.execute([a, b])
            cells.add(idle.parameters)

    for _ in range(3):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    # The memory of a thread that ended may be another one's.
    assert len(cells) >= 2
    counters = fd.fec.counters()
    assert (counters["exact_hits"], counters["kernels_compiled"]) == (7, 1)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_is_told(idle: IdleDriver) -> None:
    """Whether it calls what its parent called, or another shape."""
    fd = relu_of_sum()
    inputs = [tensor(idle), tensor(idle)]
    program = fd.program(inputs)
    for _ in range(2):
        fd.execute(inputs)
        program.run(inputs)
    for call in (lambda: fd.execute(inputs), lambda: program.run(inputs), lambda: fd(tensor(idle, 5), tensor(idle, 5))):
        assert "cannot be used in the child" in in_child(call)
    fd.execute(inputs)


# --- what numbers decide ----------------------------------------------------------------------------------------------


def test_zeros_of_both_signs_are_two_numbers() -> None:
    """What the host computes of a number depends on all its bits."""
    with FusionDefinition() as fd:
        x, c = fd.define_tensor([-1], True), fd.define_scalar(DataType.Double)
        fd.add_output(x * fd.ops.reciprocal(c))
    device = SimulatorDevice()
    x_ = DeviceTensor.from_numpy(np.ones(4, np.float32), device)
    for c_ in (0.0, -0.0, 0.0, 2.0, -0.0):
        (y,) = fd.execute([x_, c_])
        expected = np.float32(1 / c_ if c_ else np.copysign(np.inf, c_))
        np.testing.assert_array_equal(y.numpy(), np.full(4, expected), str(c_))


def test_kinds_of_numbers_are_checked_each() -> None:
    """A float where an integer was, for an integer scalar, is refused however often integers were taken."""
    from fuser.errors import InputRuntimeError

    with FusionDefinition() as fd:
        x, k = fd.define_tensor([-1], True), fd.define_scalar(DataType.Int)
        fd.add_output(x * k)
    x_ = DeviceTensor.from_numpy(np.ones(4, np.float32), SimulatorDevice())
    for _ in range(3):
        assert fd.execute([x_, 3])[0].numpy().tolist() == [3.0] * 4
        assert fd.execute([x_, True])[0].numpy().tolist() == [1.0] * 4
        with pytest.raises(InputRuntimeError, match=r"Scalar value 2\.5 is not compatible"):
            fd.execute([x_, 2.5])
