"""Captured programs: what the interpreter gives, launch after launch, with as little of the graph made anew as can be."""

from __future__ import annotations

import gc
import threading
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.stand_ins import idle_cuda
from fuser import Alias, Allocate, Copy, DataType, Fill, ForLoop, FusionDefinition, HostProgram, LaunchKernel, extent
from fuser.errors import InputRuntimeError, InputTypeError, InputValueError, LaunchError
from fuser.host_ir.instructions.expressions import scalar
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.devices.cuda_device import CudaDevice
from fuser.simulator.device import SimulatorDevice
from tests.fuzzing.random_host_programs import generate
from tests.host_ir.kernels import scale_kernel
from tests.runtime.fake_driver import FakeDriver, install

Array = np.ndarray[Any, Any]
SCALE = scale_kernel()


@pytest.fixture
def device() -> SimulatorDevice:
    return SimulatorDevice()


def placed(device: SimulatorDevice, arrays: list[Array]) -> list[Any]:
    return [DeviceTensor.from_numpy(a, device) for a in arrays]


def values(tensors: list[Any]) -> list[Array]:
    return [np.asarray(t).copy() for t in tensors]


def assert_same(tensors: list[Any], wanted: list[Array], what: str) -> None:
    for got, want in zip(values(tensors), wanted, strict=True):
        assert np.array_equal(got, want), what


def chain() -> HostProgram:
    return HostProgram(
        ("x", "alpha"),
        ("z",),
        (
            Allocate("y", (extent("x", 0),), DataType.Float),
            LaunchKernel(SCALE, ("x", "y", "alpha")),
            Allocate("z", (extent("x", 0),), DataType.Float),
            LaunchKernel(SCALE, ("y", "z", 3.0)),
        ),
    )


X = np.arange(300, dtype=np.float32)


def test_the_first_run_is_a_run(device: SimulatorDevice) -> None:
    captured = chain().capture([DeviceTensor.from_numpy(X, device), 2.0])
    assert np.array_equal(np.asarray(captured.outputs[0]), X * 6)
    assert captured.counters() == {"launched": 0, "parameters_set": 0, "instantiated": 1, "nodes_set": 0}


def test_the_ladder(device: SimulatorDevice) -> None:
    """Nothing changed: launched. Other memory, numbers or lengths: nodes are set. A launch more or fewer: another graph."""
    x = DeviceTensor.from_numpy(X, device)
    captured = chain().capture([x, 2.0])
    for _ in range(3):
        assert np.array_equal(np.asarray(captured.replay()[0]), X * 6)
    assert captured.counters()["launched"] == 3
    (first,) = captured.run([DeviceTensor.from_numpy(X + 1, device), 2.0])
    (second,) = captured.run([x, -1.0])
    assert np.array_equal(np.asarray(first), (X + 1) * 6)
    assert np.array_equal(np.asarray(second), X * -3)
    assert captured.counters() == {"launched": 3, "parameters_set": 2, "instantiated": 1, "nodes_set": 4}
    (shorter,) = captured.run([DeviceTensor.from_numpy(X[:77], device), 2.0])
    assert np.array_equal(np.asarray(shorter), X[:77] * 6)
    assert np.array_equal(np.asarray(captured.replay()[0]), X[:77] * 6)
    assert captured.counters() == {"launched": 4, "parameters_set": 3, "instantiated": 1, "nodes_set": 6}
    (empty,) = captured.run([DeviceTensor.from_numpy(X[:0], device), 2.0])
    assert np.asarray(empty).shape == (0,)
    assert captured.counters()["instantiated"] == 2
    assert np.array_equal(np.asarray(captured.run([x, 2.0])[0]), X * 6)
    assert captured.counters()["instantiated"] == 3
    # What was handed out stays what it was.
    assert np.array_equal(np.asarray(first), (X + 1) * 6)


def test_replays_read_inputs_as_they_are(device: SimulatorDevice) -> None:
    x = DeviceTensor.from_numpy(X, device)
    captured = chain().capture([x, 2.0])
    device.copy_from_host(x.address, X + 5, 0)
    (z,) = captured.replay()
    assert np.array_equal(np.asarray(z), (X + 5) * 6)
    assert captured.replay()[0] is z


def test_updates(device: SimulatorDevice) -> None:
    """The first run and each launch update once."""
    program = HostProgram(("x",), ("x",), (LaunchKernel(SCALE, ("x", "x", 2.0)),))
    x = DeviceTensor.from_numpy(X, device)
    captured = program.capture([x])
    assert np.array_equal(np.asarray(x), X * 2)
    assert captured.replay()[0] is x
    assert np.array_equal(np.asarray(x), X * 4)
    other = DeviceTensor.from_numpy(X, device)
    captured.run([other])
    assert np.array_equal(np.asarray(x), X * 4)
    assert np.array_equal(np.asarray(other), X * 2)


def test_edges_are_those_of_bytes(device: SimulatorDevice) -> None:
    """Two halves are made apart and read together, then the whole is written over."""
    n = 64
    program = HostProgram(
        ("x",),
        ("y", "z"),
        (
            Allocate("y", (n,), DataType.Float),
            Alias("low", "y", (n // 2,), (1,), 0),
            Alias("high", "y", (n // 2,), (1,), n // 2),
            Alias("half", "x", (n // 2,), (1,), 0),
            LaunchKernel(SCALE, ("half", "low", 2.0)),
            LaunchKernel(SCALE, ("half", "high", 3.0)),
            Allocate("z", (n,), DataType.Float),
            LaunchKernel(SCALE, ("y", "z", 1.0)),
            Copy("x", "z"),
            LaunchKernel(SCALE, ("x", "y", 5.0)),
        ),
    )
    captured = program.capture([DeviceTensor.from_numpy(X[:n], device)])
    assert captured.edges == ((), (), (0, 1), (2,), (3,))


def test_a_run_with_other_shared_memory_is_captured_anew(device: SimulatorDevice) -> None:
    """Two updates of two arrays are not ordered; of one array they are."""
    updates = (LaunchKernel(SCALE, ("x", "x", 2.0)), LaunchKernel(SCALE, ("y", "y", 3.0)))
    program = HostProgram(("x", "y"), ("x", "y"), updates)
    x, y, z = placed(device, [X, X, X])
    captured = program.capture([x, y])
    assert captured.edges == ((), ())
    captured.run([z, z])
    assert captured.edges == ((), (0,))
    assert np.array_equal(np.asarray(z), X * 6)
    captured.replay()
    assert np.array_equal(np.asarray(z), X * 36)
    assert captured.counters()["instantiated"] == 2


def live(device: SimulatorDevice) -> list[Any]:
    """The allocations of a device that nobody has given back."""
    gc.collect()
    return [r for r in device.memory._regions if not r.released]  # pyright: ignore[reportPrivateUsage]


def test_memory_is_kept_until_it_is_closed_and_no_longer(device: SimulatorDevice) -> None:
    def regions() -> int:
        return len(live(device))

    before = regions()
    captured = chain().capture([DeviceTensor.from_numpy(X, device), 2.0])
    for k in range(5):
        captured.run([DeviceTensor.from_numpy(X + k, device), 2.0])
    assert regions() > before
    result = np.asarray(captured.replay()[0])
    assert np.array_equal(result, (X + 4) * 6)
    captured.close()
    assert regions() == before
    with pytest.raises(LaunchError, match="the captured program is closed"):
        captured.replay()
    with pytest.raises(LaunchError, match="the captured program is closed"):
        captured.run([DeviceTensor.from_numpy(X, device), 2.0])
    forgotten = chain().capture([DeviceTensor.from_numpy(X, device), 2.0])
    assert regions() > before
    del captured, forgotten
    assert regions() == before


def test_memory_that_a_graph_cannot_read_as_it_is_is_refused() -> None:
    """Tensors that show other values than they store, and arrays of libraries whose layouts no key holds."""
    with idle_cuda() as driver:
        x = driver.torch.empty_strided((8,), (1,), driver.torch.float32)
        x.negated = True
        with pytest.raises(
            InputRuntimeError, match=r"input 0 is a lazily conjugated or negated tensor.*call resolve_conj\(\)"
        ):
            chain().capture([x, 2.0])
        interface = {"shape": (8,), "typestr": "<f4", "data": (1 << 40, False), "version": 3, "strides": None}
        foreign = SimpleNamespace(__cuda_array_interface__=interface)
        with pytest.raises(
            InputRuntimeError, match="input 0 is an array of a library that is not known, and a captured"
        ):
            chain().capture([foreign, 2.0])
        assert driver.launches == 0


def test_host_arrays_are_refused() -> None:
    with pytest.raises(
        InputRuntimeError, match="input 0 is an array in host memory, and a captured program takes arrays"
    ):
        chain().capture([X, 2.0], device="simulator")


def test_threads_share_one(device: SimulatorDevice) -> None:
    captured = chain().capture([DeviceTensor.from_numpy(X, device), 2.0])
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(5):
            (z,) = captured.run([DeviceTensor.from_numpy(X + k, device), 2.0])
            if not np.array_equal(np.asarray(z), (X + k) * 6):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_fusion_of_several_kernels(device: SimulatorDevice) -> None:
    """Kernels with workspaces and counters: every launch finds the counters zero."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        total = fd.ops.sum(x)
        fd.add_output(fd.ops.sub(x, fd.ops.segment_set(total)))
        fd.add_output(total)
    a = np.random.default_rng(0).integers(-9, 9, (300, 257)).astype(np.float32)
    captured = fd.program(placed(device, [a])).capture(placed(device, [a]))
    for k in range(3):
        rest, total_of = values(captured.run(placed(device, [a + k])))
        assert total_of == (a + k).sum()
        assert np.array_equal(rest, a + k - (a + k).sum())
        assert np.array_equal(values(captured.replay())[0], rest)


@pytest.mark.in_turns
@pytest.mark.parametrize("chunk", range(6))
def test_random_programs_give_the_same_in_every_way(device: SimulatorDevice, chunk: int) -> None:
    """Interpreter, launcher, and graphs run in random orders that their edges allow."""
    for seed in range(chunk * 20, chunk * 20 + 20):
        made = generate(seed, SCALE)
        arrays = made.arrays(seed)
        want, updated = made.expected(arrays)

        captured = made.program.capture(placed(device, arrays))
        for run in (made.program.interpret, made.program.run, made.program.run, captured.run, captured.run):
            tensors = placed(device, arrays)
            assert_same([*run(tensors), *tensors], [*want, *updated], f"seed {seed}, {run}")
        for tensor, array in zip(tensors, arrays, strict=True):
            device.copy_from_host(tensor.address, array, 0)
        assert_same([*captured.replay(), *tensors], [*want, *updated], f"seed {seed}, replay")
        assert captured.counters()["instantiated"] == 1
        # Edges of later runs are those of the first; a first run of the same tensors finds them again.
        edges = captured.edges
        assert made.program.capture(tensors).edges == edges


def test_counters_are_zero_whatever_memory_other_shapes_took(device: SimulatorDevice) -> None:
    """Shapes that need more memory than those before, and fewer kernels or none with counters between them."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        y = fd.ops.segment_set(fd.ops.mul(x, 2.0))
        fd.add_output(fd.ops.sum(y))
    for shape in ((300, 257), (900, 257), (3, 5), (300, 257), (901, 512), (3, 5), (900, 257)):
        a = np.random.default_rng(1).integers(-4, 4, shape).astype(np.float32)
        for _ in range(2):
            (total,) = fd.execute(placed(device, [a]), graph=True)
            assert np.asarray(total) == 2 * a.sum()


def test_execute_with_a_graph(device: SimulatorDevice) -> None:
    """The same as without one, whatever comes between; shapes seen before are not compiled or checked anew."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        s = fd.define_scalar(None, DataType.Float)
        fd.add_output(fd.ops.mul(fd.ops.relu(x), s))
        fd.add_output(fd.ops.max(x, [1]))
    rng = np.random.default_rng(3)
    for shape, factor in [
        ((4, 5), 2.0),
        ((4, 5), 3.0),
        ((9, 33), 2.0),
        ((4, 5), 2.0),
        ((9, 33), 5.0),
        ((0, 3), 1.0),
        ((4, 5), 1.0),
    ]:
        a = rng.standard_normal(shape).astype(np.float32)
        for layout in (a, np.asfortranarray(a)):
            tensors = [DeviceTensor.from_numpy(layout, device), factor]
            want = [np.asarray(t) for t in fd.execute(tensors)]
            got = [np.asarray(t) for t in fd.execute(tensors, graph=True)]
            assert all(np.array_equal(g, w) for g, w in zip(got, want, strict=True))
    before = fd.fec.counters()["kernels_compiled"]
    fd.execute([DeviceTensor.from_numpy(np.ones((9, 33), np.float32), device), 1.0], graph=True)
    assert fd.fec.counters()["kernels_compiled"] == before


def test_random_numbers_are_drawn_at_each_launch(device: SimulatorDevice) -> None:
    from fuser import manual_seed

    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        fd.add_output(fd.ops.add(x, fd.ops.uniform(0.0, 1.0, [fd.ops.size(x, 0)], dtype=DataType.Float)))
    x0 = DeviceTensor.from_numpy(np.zeros(64, np.float32), device)
    manual_seed(7)
    want = [np.asarray(fd.execute([x0])[0]) for _ in range(4)]
    manual_seed(7)
    got = [np.asarray(fd.execute([x0], graph=True)[0]) for _ in range(4)]
    assert not np.array_equal(want[0], want[1])
    assert all(np.array_equal(g, w) for g, w in zip(got, want, strict=True))


def test_arrays_in_host_memory_have_no_graph() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        fd.add_output(fd.ops.neg(x))
    with pytest.raises(InputRuntimeError, match="input 0 is an array in host memory"):
        fd.execute([X], device="simulator", graph=True)


def test_memory_of_shapes_that_grow_is_that_of_the_largest(device: SimulatorDevice) -> None:
    """What a recording asks more for replaces what was there."""
    captured = chain().capture([DeviceTensor.from_numpy(X[:4], device), 2.0])
    captured.run([DeviceTensor.from_numpy(X[:5], device), 2.0])
    before = len(live(device))
    for n in range(6, 40):
        (z,) = captured.run([DeviceTensor.from_numpy(X[:n], device), 2.0])
        assert np.array_equal(np.asarray(z), X[:n] * 6)
    assert len(live(device)) == before


class _Failing(SimulatorDevice):
    """Fails the launch of a kernel when `left` are done, and graphs when they are set or made."""

    def __init__(self) -> None:
        super().__init__()
        self.left = -1
        self.fails: str | None = None
        self.graphs: list[Any] = []

    def launch(self, kernel: Any, launch: Any, arguments: Any, stream: int) -> None:
        self.left -= 1
        if self.left == -1:
            raise LaunchError("it does not like that")
        super().launch(kernel, launch, arguments, stream)

    def make_graph(self, commands: Any, edges: Any) -> Any:
        if self.fails == "make":
            raise LaunchError("it does not like that")
        made = super().make_graph(commands, edges)
        self.graphs.append(made)
        set_command = made.set

        def fail_second(number: int, command: Any) -> bool:
            if self.fails == "set" and number == 1:
                raise LaunchError("it does not like that")
            return set_command(number, command)

        def fail_after_first(changes: Any) -> bool:
            if self.fails in ("arguments", "refused"):
                assert set_arguments(list(changes)[:1])
                if self.fails == "arguments":
                    raise LaunchError("it does not like that")
                return False
            return set_arguments(changes)

        set_arguments, made.set_arguments = made.set_arguments, fail_after_first
        made.set = fail_second
        return made


@pytest.mark.parametrize("where", ["launch", "replay", "set", "arguments", "make"])
def test_after_a_failure_there_is_nothing_to_replay(where: str) -> None:
    """A graph that is half of one run and half of another, or whose counters nobody knows, is not launched again."""
    device = _Failing()
    before = len(live(device))
    x, y = placed(device, [X, X + 1])
    captured = chain().capture([x, 2.0])
    fewer = DeviceTensor.from_numpy(X[: 0 if where == "make" else 30], device)
    device.fails = where
    if where in ("launch", "replay"):
        device.left = 1
    again = (
        captured.replay if where == "replay" else partial(captured.run, [fewer if where in ("make", "set") else y, 2.0])
    )
    with pytest.raises(LaunchError, match="it does not like that"):
        again()
    del again
    device.left, device.fails = -1, None
    assert all(not graph.commands for graph in device.graphs)
    with pytest.raises(LaunchError, match="there is no run to replay, or the last one failed: call run first"):
        captured.replay()
    assert np.array_equal(np.asarray(captured.run([y, 2.0])[0]), (X + 1) * 6)
    assert np.array_equal(np.asarray(captured.replay()[0]), (X + 1) * 6)
    captured.close()
    del x, y, fewer
    assert len(live(device)) == before


def test_arguments_that_a_graph_does_not_take_make_another(device: SimulatorDevice) -> None:
    """Also where some of them are set already, and numbers that change with the memory."""
    device = _Failing()
    captured = chain().capture([*placed(device, [X]), 2.0])
    device.fails = "refused"
    (got,) = captured.run([*placed(device, [X + 1]), 3.0])
    assert np.array_equal(np.asarray(got), (X + 1) * 9)
    assert captured.counters() == {"launched": 0, "parameters_set": 0, "instantiated": 2, "nodes_set": 0}
    device.fails = None
    (got,) = captured.run([*placed(device, [X - 1]), 5.0])
    assert np.array_equal(np.asarray(got), (X - 1) * 15)
    assert captured.counters()["parameters_set"] == 1
    assert np.array_equal(np.asarray(captured.replay()[0]), (X - 1) * 15)
    for _ in range(2):
        with pytest.raises(InputValueError, match="of 1329 bits for alpha is out of the range of float"):
            captured.run([*placed(device, [X]), 10**400])
    (got,) = captured.run([*placed(device, [X]), 2.0])
    assert np.array_equal(np.asarray(got), X * 6)


def test_only_launches_whose_arguments_move_are_set(device: SimulatorDevice) -> None:
    """Other sizes, which are recorded, and runs on other memory may come in any order, and in a capture of the caller."""
    captured = chain().capture([*placed(device, [X]), 2.0])
    for n, factor in ((300, 2.0), (300, 3.0), (20, 3.0), (20, 3.0), (300, 3.0), (300, 3.0), (1, -1.0), (1, 4.0)):
        (got,) = captured.run([*placed(device, [X[:n]]), factor])
        assert np.array_equal(np.asarray(got), X[:n] * (3 * factor)), (n, factor)
        assert np.array_equal(np.asarray(captured.replay()[0]), X[:n] * (3 * factor)), (n, factor)
    tensors = placed(device, [X])
    (first,) = captured.run([*tensors, 2.0])
    was = captured.counters()
    (second,) = captured.run([*tensors, 7.0])
    assert first.address != second.address
    assert captured.counters()["nodes_set"] == was["nodes_set"] + 2
    assert captured.counters()["instantiated"] == 1


class _Capturing(SimulatorDevice):
    """While `commands` is a list, what is asked is noted there instead of being done. New memory holds anything."""

    commands: list[Any] | None = None

    def is_capturing(self, stream: int) -> bool:
        return self.commands is not None

    def launch(self, kernel: Any, launch: Any, arguments: Any, stream: int) -> None:
        if self.commands is not None:
            values = tuple(arguments)
            self.commands.append(lambda: SimulatorDevice.launch(self, kernel, launch, values, stream))
        else:
            super().launch(kernel, launch, arguments, stream)

    def allocate(self, nbytes: int, stream: int) -> Any:
        made = super().allocate(nbytes, stream)
        self.memory.write(made.address, np.full(nbytes, 0xAB, np.uint8))
        return made

    def release(self, allocation: Any, stream: int) -> None:
        if self.commands is not None:
            self.commands.append(lambda: SimulatorDevice.release(self, allocation, stream))
        else:
            super().release(allocation, stream)

    def fill(self, address: int, pattern: bytes, count: int, stream: int) -> None:
        if self.commands is not None:
            self.commands.append(lambda: SimulatorDevice.fill(self, address, pattern, count, stream))
        else:
            super().fill(address, pattern, count, stream)


def test_a_run_within_the_capture_of_a_caller_leaves_no_memory_to_later_ones() -> None:
    """What is put into a caller's graph has not happened: counters that it would have made zero are not."""
    device = _Capturing()
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        y = fd.ops.segment_set(fd.ops.mul(x, 2.0))
        fd.add_output(fd.ops.sum(y))
    small, large = (np.random.default_rng(1).integers(-4, 4, (n, 257)).astype(np.float32) for n in (30, 3000))
    for a in (large, small):
        fd.execute(placed(device, [a]))
    fd.execute(placed(device, [small]), graph=True)
    inputs = placed(device, [large])
    device.commands = []
    (within,) = fd.execute(inputs, graph=True)
    noted, device.commands = device.commands, None
    assert np.asarray(fd.execute(placed(device, [large]), graph=True)[0]) == 2 * large.sum()
    for command in noted:
        command()
    assert np.asarray(within) == 2 * large.sum()


def test_what_a_callers_graph_uses_stays_until_the_captured_program_is_closed() -> None:
    """Memory of a replay within a capture, also when later runs need more or fail."""
    device = _Capturing()
    captured = chain().capture([DeviceTensor.from_numpy(X[:7], device), 2.0])
    device.commands = []
    (z,) = captured.replay()
    noted, device.commands = device.commands, None
    for n in (40, 300):
        captured.run([DeviceTensor.from_numpy(X[:n], device), 2.0])
    gc.collect()
    while noted:
        noted.pop(0)()
    assert np.array_equal(np.asarray(z), X[:7] * 6)
    captured.close()
    del z
    assert len(live(device)) == 0


def test_numbers_may_be_arrays_in_host_memory_and_tensors_may_not() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([])
        fd.add_output(fd.ops.neg(x))
    for _ in range(2):
        with pytest.raises(InputRuntimeError, match="input 0 is an array in host memory"):
            fd.execute([np.asarray(3.0, np.float32)], device="simulator", graph=True)


@pytest.mark.parametrize("given", [np.ones(1, np.float32), np.ones((2, 3))], ids=["rank 1", "rank 2"])
def test_an_array_in_the_place_of_a_number(device: SimulatorDevice, given: Array) -> None:
    x = DeviceTensor.from_numpy(X, device)
    kind = "float" if given.dtype == np.float32 else "double"
    text = f"Expected input 1, alpha, to be a scalar but got {kind} tensor of rank {given.ndim}: pass a Python number"
    captured = chain().capture([x, 2.0])
    with pytest.raises(InputTypeError) as caught:
        captured.run([x, given])
    assert caught.value.message == text
    with FusionDefinition() as fd:
        alpha = fd.define_tensor([-1]), fd.define_scalar(dtype=DataType.Float)
        fd.add_output(alpha[0] * alpha[1])
    fd.execute([x, 2.0], graph=True)
    with pytest.raises(InputTypeError, match="to be a scalar but got"):
        fd.execute([x, given], graph=True)
    assert np.array_equal(np.asarray(captured.replay()[0]), X * 6), "what was captured is still there"


def test_replay_takes_no_inputs(device: SimulatorDevice) -> None:
    x = DeviceTensor.from_numpy(X, device)
    captured = chain().capture([x, 2.0])
    for call in (captured.replay, lambda what: captured.run([x, 2.0], what)):
        with pytest.raises(InputTypeError) as caught:
            call([x])
        assert caught.value.message.startswith(
            "a captured program is run on one list of all inputs, and replayed on those of the last run, and a stream after "
            "it: expected a stream as a raw handle, a torch or CuPy stream, or an object with __cuda_stream__; got "
        )


def test_a_run_that_leaves_no_steps_is_refused_behind_it(device: SimulatorDevice) -> None:
    """A loop that is too long to be kept: nothing to record, and the caller is told that it ran."""
    program = HostProgram(
        ("x", "n"), ("x",), (ForLoop("i", 0, scalar("n"), 1, (LaunchKernel(SCALE, ("x", "x", 2.0)),)),)
    )
    x = DeviceTensor.from_numpy(X, device)
    captured = program.capture([x, 1])
    assert np.array_equal(np.asarray(x), X * 2)
    with pytest.raises(InputRuntimeError) as caught:
        captured.run([x, 5000])
    assert caught.value.message == "a program cannot be captured with more than 4096 steps; it was run once"


# --- streams, on a driver made of host memory --------------------------------------------------------------------------


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    return install(monkeypatch)


def waits(fake: FakeDriver) -> set[tuple[int, int]]:
    """(stream that waits, stream whose work it waits for) of the calls since the last time."""
    recorded: dict[Any, int] = {}
    found: set[tuple[int, int]] = set()
    for name, arguments in fake.calls:
        if name == "cuEventRecord":
            recorded[arguments[0]] = arguments[1]
        elif name == "cuStreamWaitEvent":
            found.add((arguments[0], recorded[arguments[1]]))
    fake.calls.clear()
    return found


def test_streams_of_tensors_wait_for_launches_on_others(fake: FakeDriver) -> None:
    """Who reads or writes an input or an output next does so on its stream."""
    device: Any = CudaDevice(0)
    program = HostProgram(("x",), ("y",), (Allocate("y", (4,), DataType.Float), Copy("y", "x")))
    x = DeviceTensor.from_numpy(X[:4], device, 7)
    captured = program.capture([x], 7)
    assert [t.stream for t in captured.outputs] == [7]
    waits(fake)
    captured.replay(9)
    assert waits(fake) == {(9, 7), (7, 9)}
    (y,) = captured.run([x], 11)
    assert y.stream == 11
    assert waits(fake) == {(11, 9), (11, 7), (7, 11)}
    captured.replay(11)
    assert waits(fake) == {(11, 7), (7, 11)}


def test_tensors_that_come_from_another_stream(fake: FakeDriver) -> None:
    """Such as those that were placed without naming one: on a device with streams the program's own is another."""
    device: Any = CudaDevice(0)
    program = HostProgram(("x",), ("y",), (Allocate("y", (4,), DataType.Float), Copy("y", "x")))
    x = DeviceTensor.from_numpy(X[:4], device)
    captured = program.capture([x])
    own = captured.outputs[0].stream
    assert own != 0
    waits(fake)
    captured.replay()
    assert waits(fake) == {(own, 0), (0, own)}
    assert np.array_equal(np.asarray(captured.outputs[0]), X[:4])


def test_what_replays_take_for_granted_is_asked_each_time(fake: FakeDriver) -> None:
    """Replays on one stream do little but launch, as long as context, stream and memory are what they were."""
    device: Any = CudaDevice(0)
    program = HostProgram(("x",), ("y",), (Allocate("y", (4,), DataType.Float), Copy("y", "x")))
    x, other = (DeviceTensor.from_numpy(a, device, 7) for a in (X[:4], X[4:8]))
    captured = program.capture([x], 7)

    def replayed(stream: int = 7) -> list[str]:
        fake.calls.clear()
        captured.replay(stream)
        return fake.names()

    replayed()
    quick = ["cuCtxGetCurrent", "cuStreamIsCapturing", "cuGraphLaunch"]
    assert [replayed(), replayed()] == [quick, quick]
    fake.current = 0
    assert "cuCtxSetCurrent" in replayed()
    fake.capture = 77
    assert "cuGraphLaunch" not in replayed()
    fake.capture = 0
    assert "cuStreamWaitEvent" in replayed(9)
    replayed()
    assert replayed() == quick
    fake.fail_names["cuGraphLaunch"] = 719
    with pytest.raises(LaunchError, match="cuGraphLaunch failed"):
        captured.replay(7)
    fake.fail_names.clear()
    with pytest.raises(LaunchError, match="there is no run to replay"):
        captured.replay(7)
    (y,) = captured.run([other], 7)
    replayed()
    assert replayed() == quick
    assert np.array_equal(np.asarray(y), X[4:8])
    captured.close()
    with pytest.raises(LaunchError, match="is closed"):
        captured.replay(7)


def test_what_the_driver_does_not_set_in_place_is_made_anew(fake: FakeDriver) -> None:
    """The rows of a fill with a pattern of two words."""
    device: Any = CudaDevice(0)
    program = HostProgram(
        ("x",), ("y",), (Allocate("y", (extent("x", 0),), DataType.ComplexFloat), Fill("y", complex(1, 2)))
    )
    first, second = (DeviceTensor.from_numpy(np.zeros(n, np.float32), device) for n in (4, 6))
    captured = program.capture([first])
    program.run([second])
    for x, graphs in ((first, 1), (second, 2), (second, 2), (first, 3)):
        (y,) = captured.run([x])
        assert np.array_equal(np.asarray(y), np.full(x.shape, complex(1, 2), np.complex64))
        assert captured.counters()["instantiated"] == graphs


def test_a_captured_program_that_nobody_has_any_more_leaves_captures_of_others_alone(fake: FakeDriver) -> None:
    device: Any = CudaDevice(0)
    program = HostProgram(("x",), ("y",), (Allocate("y", (4,), DataType.Float), Copy("y", "x")))
    captured = program.capture([DeviceTensor.from_numpy(X[:4], device, 7)], 7)
    fake.others_capture = True
    fake.calls.clear()
    del captured
    gc.collect()
    assert "cuEventQuery" in fake.names()
    assert fake.ended_captures == 0


def test_streams_of_two_devices_do_not_meet(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another device begins anew; nothing of it waits for the one before."""
    devices: list[Any] = [CudaDevice(0), CudaDevice(0)]
    program = HostProgram(("x",), ("y",), (Allocate("y", (4,), DataType.Float), Copy("y", "x")))
    x0, x1 = (DeviceTensor.from_numpy(X[:4], d, s) for d, s in zip(devices, (7, 9), strict=True))
    for x, stream in ((x1, 9), (x0, 7)):
        program.run([x], stream, device=x.device)
    captured = program.capture([x0], 7)
    captured.run([x1], 9)
    assert waits(fake) == set()
