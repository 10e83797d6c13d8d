"""The launcher: same results as the interpreter, and what it must check again at every run."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from fuser.errors import InputRuntimeError, InputTypeError, LaunchError
from fuser.host_ir.instructions.expressions import extent, scalar
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
from fuser.ir.facts import Aligned, Disjoint
from fuser.ir.integers.integers import as_int, symbol
from fuser.ir.kernel.launch_plan import ExtentOf, ScalarOf, Workspace
from fuser.ir.ops.dtypes import DataType
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.simulator.device import SimulatorDevice
from tests.host_ir.kernels import scale_kernel

N = extent("x", 0)
n = symbol("n", 0)


def tensor(device: Any, values: Any) -> DeviceTensor:
    return DeviceTensor.from_numpy(np.asarray(values, np.float32), device)


def full_program() -> HostProgram:
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
        Deallocate("y"),
    ]
    return HostProgram(("x", "alpha"), ("z", "x", "half", "column", "z"), instructions)


def test_runs_repeat_what_the_interpreter_does() -> None:
    device = SimulatorDevice()
    program = full_program()
    for alpha in (1.0, 2.5, 3.0, 1.0):
        x, again = tensor(device, np.arange(6)), tensor(device, np.arange(6))
        results = program.run([x, alpha])
        expected = program.interpret([again, alpha], device=device)
        assert results[1] is x
        assert results[4] is results[0]
        for a, b in zip(results, expected, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
            assert a.strides == b.strides
    counters = program.counters()
    assert (counters["runs"], counters["replays"], counters["launches"]) == (8, 3, 16)
    assert (counters["allocations"], counters["copies"], counters["fills"]) == (16, 8, 8)


def test_other_shapes_and_strides_are_bound_anew() -> None:
    device = SimulatorDevice()
    program = HostProgram(
        ("x",), ("y",), (Allocate("y", (N,), DataType.Float), LaunchKernel(scale_kernel(), ("x", "y", 2.0)))
    )
    base = tensor(device, np.arange(40))
    for view in (base, base.view((10,), (1,)), base.view((10,), (4,)), base.view((10,), (1,), 3), base):
        (y,) = program.run([view])
        np.testing.assert_array_equal(y.numpy(), view.numpy() * 2)
    assert program.counters()["replays"] == 2


def test_alignment_belongs_to_the_key_where_a_kernel_asks_for_it(device, make_kernel) -> None:
    kernel = make_kernel(facts=[Aligned("x", 16)])
    program = HostProgram(("x",), ("y",), (Allocate("y", (N,), DataType.Float), LaunchKernel(kernel, ("x", "y"))))
    base = tensor(device, np.arange(40))
    program.run([base.view((8,), (1,), 4)])
    program.run([base.view((8,), (1,), 8)])
    assert program.counters()["replays"] == 1
    for _ in range(2):
        with pytest.raises(InputRuntimeError, match="x aligned to 16 bytes"):
            program.run([base.view((8,), (1,), 5)])


def test_overlap_is_checked_at_every_run(device, make_kernel) -> None:
    kernel = make_kernel(facts=[Disjoint("x", "y")])
    program = HostProgram(("a", "b"), (), (LaunchKernel(kernel, ("a", "b")),))
    base = tensor(device, np.arange(40))

    def part(offset: int) -> DeviceTensor:
        return base.view((8,), (1,), offset)

    program.run([part(0), part(8)])
    program.run([part(16), part(8)])
    assert program.counters()["replays"] == 1
    for _ in range(2):
        with pytest.raises(InputRuntimeError, match="x and y in memory that does not overlap"):
            program.run([part(0), part(7)])
    program.run([part(0), part(32)])
    assert program.counters()["replays"] == 2


def test_numbers_that_decide_sizes_belong_to_the_key(device, make_kernel) -> None:
    k = symbol("k")
    kernel = make_kernel(
        bindings={n: ExtentOf(0, 0), k: ScalarOf("k")},
        scalars={"k": DataType.Int, "alpha": DataType.Float},
        grid=(k, 1, 1),
    )
    program = HostProgram(
        ("x", "k", "alpha", "rows"),
        ("y",),
        (
            Allocate("y", (N,), DataType.Float),
            LaunchKernel(kernel, ("x", "y", "k", "alpha")),
            Allocate("w", (scalar("rows"),), DataType.Float),
        ),
    )
    x = tensor(device, np.arange(4))
    for k_value, alpha, rows, replays in (
        (2, 1.0, 3, 0),
        (2, 2.0, 3, 1),
        (3, 2.0, 3, 1),
        (3, 2.0, 4, 1),
        (2, 9.0, 3, 2),
    ):
        program.run([x, k_value, alpha, rows])
        _, _, launch, arguments = device.named("launch")[-1]
        assert launch.grid == (k_value, 1, 1)
        assert arguments[2:] == (4, k_value, k_value, alpha)
        assert type(arguments[-1]) is float
        assert program.counters()["replays"] == replays


def test_numbers_may_come_in_host_arrays(device, make_kernel) -> None:
    kernel = make_kernel(scalars={"alpha": DataType.Float})
    program = HostProgram(
        ("x", "alpha"), ("y",), (Allocate("y", (N,), DataType.Float), LaunchKernel(kernel, ("x", "y", "alpha")))
    )
    x = tensor(device, np.arange(4))
    kinds = (
        (np.array(2.0), np.array(2.5)),
        (np.float32(3.0), np.float32(3.5)),
        (4, 5),
        (np.int64(6), np.int64(7)),
        (True, False),
        (0.25, -0.0),
    )
    for replays, values in enumerate(kinds):
        for alpha in values:
            program.run([x, alpha])
            found = device.named("launch")[-1][3][-1]
            assert (type(found), found) == (float, float(alpha))
        # Numbers of each kind are checked once.
        assert program.counters()["replays"] == replays + 1
    with pytest.raises(InputTypeError, match="Expected input 1, alpha, to be a scalar but got double tensor of rank 1"):
        program.run([x, np.zeros(3)])


def test_extents_may_be_passed_as_numbers(device, make_kernel) -> None:
    kernel = make_kernel(scalars={"rows": DataType.Int})
    program = HostProgram(
        ("x",), ("y",), (Allocate("y", (N,), DataType.Float), LaunchKernel(kernel, ("x", "y", N * 2)))
    )
    assert "('x', 'y', 2*extent('x', 0))" in repr(program)
    for size in (4, 5, 4):
        program.run([tensor(device, np.arange(size))])
        assert device.named("launch")[-1][3][2:] == (size, 2 * size)
    assert program.counters()["replays"] == 1


def test_host_arrays_are_copied_by_every_replay(device) -> None:
    program = HostProgram(("x",), ("x",), (Fill("x", 1.0),))
    for _ in range(3):
        values = np.zeros(3)
        assert program.run([values], device=device)[0] is values
        assert values.tolist() == [1.0] * 3
    assert device.live == {}
    counters = program.counters()
    assert (counters["replays"], counters["host_to_device"], counters["device_to_host"]) == (2, 3, 3)
    read_only = np.zeros(3)
    read_only.flags.writeable = False
    for _ in range(2):
        with pytest.raises(InputRuntimeError, match="read-only"):
            program.run([read_only], device=device)


@pytest.mark.parametrize("shape", [(6,), (3, 4), (), (0, 3)])
@pytest.mark.parametrize("layout", ["dense", "turned", "gaps", "backwards", "odd address", "expanded"])
def test_host_arrays_of_any_layout(shape: tuple[int, ...], layout: str) -> None:
    """What reaches the device and what comes back, at the first run and at later ones."""
    device = SimulatorDevice()
    dims = [extent("x", d) for d in range(len(shape))]
    program = HostProgram(("x",), ("y",), (Allocate("y", tuple(dims), DataType.Float), Copy("y", "x")))

    def make(seed: int) -> np.ndarray:
        values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
        match layout:
            case "turned":
                return values.T.copy().T
            case "gaps":
                wide = np.zeros((*shape[:-1], 2 * shape[-1]) if shape else (1,), np.float32)
                seen = wide[..., ::2] if shape else wide[0, ...]
            case "backwards":
                return values[::-1] if shape else values
            case "odd address":
                raw = np.zeros(values.nbytes + 2, np.uint8)
                seen = raw[2:].view(np.float32).reshape(shape) if values.size else values
            case "expanded":
                return np.broadcast_to(np.float32(seed), shape)
            case _:
                return values
        seen[...] = values
        return seen

    for seed in range(3):
        x = make(seed)
        (y,) = program.run([x], device=device)
        np.testing.assert_array_equal(y, x)
    assert program.counters()["replays"] == 2


def test_what_no_reader_reads_is_interpreted(device) -> None:
    """An input of another library than the first one: every run tells why."""
    program = HostProgram(("x", "y"), ("x",), (Copy("x", "y"),))
    for _ in range(3):
        x = tensor(device, np.zeros(3))
        program.run([x, np.ones(3, np.float32)])
        assert x.numpy().tolist() == [1.0] * 3
    assert program.counters()["replays"] == 0
    assert program.interpreted() == {"inputs of several libraries or devices": 3}
    assert "left to the interpreter: 3 runs, inputs of several libraries or devices" in program.explain()


def test_every_failing_call_of_a_replay_raises_and_leaks_nothing(device, make_kernel) -> None:
    kernel = make_kernel("busy", workspaces=[Workspace("partial", DataType.Float, n)], semaphores=as_int(1))
    program = HostProgram(
        ("x", "w"),
        ("z", "w"),
        (
            Allocate("y", (N,), DataType.Float),
            LaunchKernel(kernel, ("x", "y")),
            Allocate("z", (N, 2), DataType.Float, (3, 1)),
            Fill("z", 0.0),
            Alias("column", "z", (N,), (3,)),
            Copy("column", "y"),
            LaunchKernel(kernel, ("y", "w")),
            Deallocate("y"),
        ),
    )
    x, w = tensor(device, np.arange(5)), tensor(device, np.zeros(5))
    program.run([x, w])
    inputs = set(device.live)
    device.calls.clear()
    results = program.run([x, w])
    total = len(device.calls)
    del results
    assert program.counters()["replays"] == 1
    assert set(device.live) == inputs
    for k in range(total):
        device.calls.clear()
        device.fail_at = k
        with pytest.raises(LaunchError, match=f"planted failure of call {k}"):
            program.run([x, w])
        device.fail_at = None
        assert set(device.live) == inputs, f"call {k} failing leaks"
    device.calls.clear()
    program.run([x, w])
    assert program.counters()["replays"] == 2


def test_overlapping_copies_read_the_old_values() -> None:
    device = SimulatorDevice()
    m = extent("x", 0)
    program = HostProgram(
        ("x",), ("x",), (Alias("t", "x", (m, m), (1, m)), Copy("x", "t"), Alias("same", "x"), Copy("x", "same"))
    )
    values = np.arange(9, dtype=np.float32).reshape(3, 3)
    for _ in range(2):
        x = DeviceTensor.from_numpy(values, device)
        program.run([x])
        np.testing.assert_array_equal(x.numpy(), values.T)
    host = values.copy()
    program.run([host], device=device)
    np.testing.assert_array_equal(host, values.T)


def test_threads_replay_one_program() -> None:
    device = SimulatorDevice()
    program = HostProgram(
        ("x", "alpha"), ("y",), (Allocate("y", (N,), DataType.Float), LaunchKernel(scale_kernel(), ("x", "y", "alpha")))
    )
    failures: list[float] = []

    def work(alpha: float) -> None:
        x = tensor(device, np.arange(8))
        for _ in range(25):
            (y,) = program.run([x, alpha])
            if not (y.numpy() == np.arange(8) * alpha).all():
                failures.append(alpha)

    threads = [threading.Thread(target=work, args=(i + 1.0,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert failures == []
    counters = program.counters()
    assert counters["runs"] == counters["launches"] == 100
    assert counters["replays"] >= 96


def test_keys_are_bounded(device, make_kernel, monkeypatch) -> None:
    import fuser.host_ir.executors.launcher as launcher

    monkeypatch.setattr(launcher, "_MAX_KEYS", 4)
    program = HostProgram(("x",), ("y",), (Allocate("y", (N,), DataType.Float), Fill("y", 0.0)))
    base = tensor(device, np.arange(40))
    for _ in range(2):
        for size in range(1, 11):
            program.run([base.view((size,), (1,))])
            program.run([base.view((size,), (1,))])
    assert program.counters()["runs"] == 40
    assert program.counters()["replays"] == 20


def test_steps_are_bounded(device, monkeypatch) -> None:
    """All lengths of a loop are kept by no launcher, by no thread, and not as code."""
    import fuser.host_ir.executors.launcher as launcher
    from fuser import generated_code

    monkeypatch.setattr(launcher, "_MAX_STEPS", 20)
    monkeypatch.setattr(generated_code, "_MAX_CHARACTERS", 9000)
    monkeypatch.setattr(generated_code, "_codes", {})
    monkeypatch.setattr(generated_code, "_characters", 0)
    program = HostProgram(("x", "n"), ("x",), (ForLoop("i", 0, scalar("n"), 1, (Fill("x", 0.0),)),))
    x = tensor(device, np.arange(40))
    kept = program._launcher
    for n in (*range(1, 11), 1):
        for _ in range(2):
            program.run([x, n])
            assert sum(len(bound.steps) for bound in kept._bound_halves.values()) <= 20
            assert sum(len(bound.steps) for key, (_, bound) in _lines_of(kept)) <= 20
            assert sum(len(text) for text, _ in generated_code._codes) <= 9000
    assert program.counters()["replays"] == 11


def _lines_of(kept: Any) -> list[Any]:
    """What this thread has made for calls with both halves of a key."""
    entries = getattr(kept._threads, "entries", {})
    return [(key, entry) for key, entry in entries.items() if type(entry) is tuple]


def test_a_call_is_known_to_a_thread_that_only_knew_those_whose_inputs_share_memory() -> None:
    device = SimulatorDevice()
    kernel = scale_kernel()
    program = HostProgram(("a", "b"), (), (LaunchKernel(kernel, ("a", "b", 2.0)),))
    base = tensor(device, np.arange(40))
    apart, shared = ([base.view((8,), (1,), k), base.view((8,), (1,), k + n)] for k, n in ((0, 8), (16, 0)))
    for _ in range(2):
        program.run(shared)
    other = threading.Thread(target=program.run, args=(apart,))
    other.start()
    other.join()
    before = program.counters()["replays"]
    for _ in range(3):
        program.run(apart)
    assert program.counters()["replays"] == before + 2
