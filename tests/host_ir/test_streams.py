"""Host programs on several streams: what every way to run them gives, in any order that streams and events allow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.stand_ins import idle_cuda
from fuser import (
    Allocate,
    DataType,
    Deallocate,
    Fill,
    HostProgram,
    LaunchKernel,
    RecordEvent,
    SetStream,
    Synchronize,
    WaitEvent,
    extent,
)
from fuser.errors import LaunchError
from fuser.host_ir.instructions.instructions import Instruction
from fuser.host_ir.saved_programs import load, save
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.simulator.device import SimulatorDevice
from tests.devices.queue_device import QueueDevice
from tests.fuzzing.random_host_programs import generate
from tests.host_ir.kernels import scale_kernel

SCALE = scale_kernel()
N = extent("x", 0)
X = np.arange(40, dtype=np.float32)


def double(src: str, dst: str) -> LaunchKernel:
    return LaunchKernel(SCALE, (src, dst, 2.0))


def forked(*between: Instruction) -> HostProgram:
    """z = 4 x, by way of y = 2 x on another stream, and w = 2 x."""
    return HostProgram(
        ("x",),
        ("z", "w"),
        (
            Allocate("w", (N,), DataType.Float),
            Allocate("z", (N,), DataType.Float),
            SetStream(1),
            Allocate("y", (N,), DataType.Float),
            double("x", "y"),
            RecordEvent("y"),
            SetStream(0),
            double("x", "w"),
            WaitEvent("y"),
            *between,
            double("y", "z"),
        ),
    )


def placed(device: Any, arrays: list[Any]) -> list[Any]:
    return [DeviceTensor.from_numpy(a, device) for a in arrays]


@pytest.mark.parametrize("chunk", range(4))
def test_random_programs_give_the_same_in_every_way(chunk: int) -> None:
    """Interpreter, launcher and graph, one run behind another while the device has done nothing yet."""
    for seed in range(chunk * 10, chunk * 10 + 10):
        made = generate(seed, SCALE, streams=4)
        arrays = made.arrays(seed)
        want, updated = made.expected(arrays)
        device = QueueDevice(seed, returns_home=seed % 2 == 0)
        captured = made.program.capture(placed(device, arrays))
        results: list[Any] = []
        for run in (made.program.interpret, made.program.run, made.program.run, captured.run):
            tensors = placed(device, arrays)
            results.append([*run(tensors), *tensors])
        for got in results:
            for one, expected in zip(got, [*want, *updated], strict=True):
                assert np.array_equal(np.asarray(one), expected), f"seed {seed}"
        assert captured.counters()["instantiated"] == 1


def test_runs_of_many_seeds_leave_streams_and_memory_as_they_were() -> None:
    device = QueueDevice(5)
    program = forked(Synchronize())
    (x,) = placed(device, [X])
    for k in range(6):
        z, w = program.run([x]) if k % 2 else program.interpret([x])
        assert np.array_equal(np.asarray(z), 4 * X)
        assert np.array_equal(np.asarray(w), 2 * X)
        del z, w
    assert set(device.taken) == {x.address}
    # Stream 0 and one beside it, for all runs.
    assert set(device.queues) == {0, 1}


def test_edges_of_a_graph_are_those_of_the_bytes() -> None:
    device = SimulatorDevice()
    captured = forked().capture(placed(device, [X]))
    assert captured.edges == ((), (), (0,))


def test_a_saved_program_has_its_streams(tmp_path: Any) -> None:
    save(forked(Synchronize()), tmp_path / "p")
    program = load(tmp_path / "p")
    assert repr(program) == repr(forked(Synchronize()))
    assert np.array_equal(program.run([X], device="simulator")[0], 4 * X)


def test_host_arrays_are_copied_in_before_all_streams_and_out_behind_them() -> None:
    device: Any = QueueDevice(3)
    program = HostProgram(
        ("x",),
        ("z", "x"),
        (Allocate("z", (N,), DataType.Float), SetStream(1), double("x", "z"), LaunchKernel(SCALE, ("x", "x", 3.0))),
    )
    for run in (program.interpret, program.run, program.run):
        x = X.copy()
        z, updated = run([x], device=device)
        assert np.array_equal(z, 2 * X)
        assert updated is x
        assert np.array_equal(x, 3 * X)


# --- captures of callers -----------------------------------------------------------------------------------------------


def test_streams_join_the_capture_of_a_caller_and_are_its_own_until_it_ends() -> None:
    """Events become edges; what the capture holds is given to no other run."""
    device = QueueDevice()
    program = forked()
    (x,) = placed(device, [X])
    program.run([x])
    device.captures[0] = 77
    program.run([x])
    program.run([x])
    assert device.captures == {0: 77, 1: 77}
    # Another thread, whose stream is not captured.
    del device.captures[0]
    program.run([x])
    assert device.captures == {1: 77}
    assert 2 in device.queues
    device.captures.clear()
    program.run([x])
    assert set(device.queues) == {0, 1, 2}


@pytest.mark.parametrize("way", ["interpret", "run", "run again"])
def test_the_host_does_not_wait_within_a_capture(way: str) -> None:
    """It is told before anything is enqueued."""
    device = QueueDevice()
    program = forked(Synchronize())
    (x,) = placed(device, [X])
    if way == "run again":
        program.run([x])
    device.captures[0] = 5
    device.asked.clear()
    with pytest.raises(LaunchError, match="a program with Synchronize is run inside a stream capture"):
        (program.interpret if way == "interpret" else program.run)([x])
    assert device.asked == []


def test_a_program_that_waits_is_not_captured() -> None:
    device = SimulatorDevice()
    with pytest.raises(
        LaunchError, match="a program with Synchronize cannot be captured: in a graph there is no place"
    ):
        forked(Synchronize()).capture(placed(device, [X]))


# --- memory ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("returns_home", [False, True])
@pytest.mark.parametrize("order", range(3))
def test_memory_given_back_on_another_stream_is_used_again_behind_its_last_use(
    order: int, *, returns_home: bool
) -> None:
    """y is taken on stream 1 and ended on stream 0; then stream 1 takes memory again, and gets the same."""
    program = HostProgram(
        ("x",),
        ("z", "v"),
        (
            Allocate("z", (N,), DataType.Float),
            Allocate("v", (N,), DataType.Float),
            SetStream(1),
            Allocate("y", (N,), DataType.Float),
            double("x", "y"),
            RecordEvent("y"),
            SetStream(0),
            WaitEvent("y"),
            double("y", "z"),
            Deallocate("y"),
            SetStream(1),
            Allocate("u", (N,), DataType.Float),
            LaunchKernel(SCALE, ("x", "u", 5.0)),
            double("u", "v"),
        ),
    )
    device = QueueDevice(order, returns_home=returns_home)
    (x,) = placed(device, [X])
    results = [run([x]) for run in (program.interpret, program.run, program.run)]
    for z, v in results:
        assert np.array_equal(np.asarray(z), 4 * X)
        assert np.array_equal(np.asarray(v), 10 * X)


@pytest.mark.parametrize("order", range(6))
def test_memory_of_a_side_stream_is_used_again_by_a_run_behind_another_stream(order: int) -> None:
    """What a run leaves on a side stream waits for all of that run, whatever stream of a caller comes next."""
    program = HostProgram(
        ("x",),
        ("z",),
        (
            Allocate("z", (N,), DataType.Float),
            SetStream(1),
            Allocate("y", (N,), DataType.Float),
            double("x", "y"),
            RecordEvent("y"),
            SetStream(0),
            WaitEvent("y"),
            double("y", "z"),
        ),
    )
    device = QueueDevice(order, returns_home=True)
    x, other = placed(device, [X, X + 5])
    first = program.interpret([x])
    # The same program behind another stream of the caller.
    from fuser.host_ir.executors.steps import Frame

    open_streams = Frame.open_streams

    def elsewhere(frame: Frame, count: int) -> None:
        frame.stream = frame._caller = 99  # pyright: ignore[reportPrivateUsage]
        open_streams(frame, count)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Frame, "open_streams", elsewhere)
        second = program.interpret([other])
    device.synchronize(99)
    assert np.array_equal(np.asarray(first[0]), 4 * X)
    assert np.array_equal(np.asarray(second[0]), 4 * (X + 5))


def test_after_an_error_memory_goes_back_behind_all_streams() -> None:
    """A launch on the caller's stream fails while another stream still works."""

    class Failing(QueueDevice):
        left = -1

        def launch(self, kernel: Any, launch: Any, arguments: Any, stream: int) -> None:
            self.left -= 1
            if self.left == -1:
                raise LaunchError("it does not like that")
            super().launch(kernel, launch, arguments, stream)

    device = Failing()
    program = forked()
    (x,) = placed(device, [X])
    program.run([x])
    for run in (program.interpret, program.run):
        device.left, device.asked[:] = 2, []
        with pytest.raises(LaunchError, match="it does not like that"):
            run([x])
        device.left = -1
        # The caller's stream waits for the other one, and that one for it.
        assert device.asked[-4:] == [("record", 1), ("wait", 0), ("record", 0), ("wait", 1)]
        assert set(device.taken) == {x.address}
        assert np.array_equal(np.asarray(run([x])[0]), 4 * X)


def test_a_fill_of_strided_memory_is_on_its_stream() -> None:
    """Steps that work on a frame, with memory of their own."""
    program = HostProgram(
        ("x",),
        ("y",),
        (
            Allocate("y", (N, 3), DataType.Float, (5, 1)),
            SetStream(1),
            Fill("y", 2.0),
        ),
    )
    device = QueueDevice(1)
    (x,) = placed(device, [X])
    for run in (program.interpret, program.run, program.run):
        (y,) = run([x])
        assert np.array_equal(np.asarray(y), np.full((40, 3), 2.0))


# --- torch, on a driver that does nothing -------------------------------------------------------------------------------


def test_launches_and_memory_of_torch_go_to_the_streams_of_the_program() -> None:
    """The first call and later ones, on whatever stream the caller is."""
    with idle_cuda() as driver:
        x = driver.torch.empty_strided((8,), (1,), driver.torch.float32)
        program = forked()
        launched: list[int] = []
        allocated: list[int] = []
        driver.on_launch = lambda: launched.append(int(driver.config.hStream))
        driver.torch.on_allocation = lambda: allocated.append(driver.torch.stream)
        for stream in (0, 0, 33, 33, 0):
            launched.clear()
            allocated.clear()
            driver.torch.stream = stream
            program.run([x])
            assert launched == [0x500, stream, stream]
            assert allocated == [stream, stream, 0x500]
        assert program.counters()["replays"] == 4
