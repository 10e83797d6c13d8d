"""Choices of the device on a GPU: one graph, a selector that only device code changes, every launch right or told."""

from __future__ import annotations

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
    FusionDefinition,
    HostProgram,
    If,
    KernelCompiler,
    LaunchKernel,
    LaunchParams,
    RtcKernel,
    Switch,
    extent,
)
from fuser.errors import LaunchError
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.devices.device import get_device
from tests.fuzzing.random_host_programs import generate_nested
from tests.host_ir.kernels import scale_kernel

X = np.arange(1000, dtype=np.float32)
N = extent("x", 0)
Y = Allocate("y", (N,), DataType.Float)
REPLAYS = 1000


@pytest.fixture(scope="module")
def device() -> Any:
    return get_device("cuda", 0)


def put(device: Any, array: Any, dtype: Any = np.float32) -> DeviceTensor:
    return DeviceTensor.from_numpy(np.asarray(array, dtype), device)


def times(device: Any, number: float) -> LaunchKernel:
    return LaunchKernel(scale_kernel(arch=device.info.arch), ("x", "y", number))


def next_of(cases: int) -> LaunchKernel:
    """k = (k + 1) % cases on the device."""
    source = 'extern "C" __global__ void advance(long long* k, long long cases) { *k = (*k + 1) % cases; }'
    return LaunchKernel(RtcKernel(source, "advance").compile().kernel, ("k", cases), LaunchParams(1, 1, 1, 1, 1, 1))


@pytest.mark.parametrize("cases", [2, 3, 8, 40])
def test_one_graph_and_a_selector_that_device_code_changes(device: Any, cases: int) -> None:
    bodies = tuple((times(device, 2.0 + c),) for c in range(cases))
    program = HostProgram(("x", "k"), ("y",), (next_of(cases), Y, Switch("k", bodies, (Fill("y", -1.0),))))
    x, k = put(device, X), put(device, [0], np.int64)
    captured = program.capture([x, k])
    wanted = [X * (2 + c) for c in range(cases)]
    right = sum(
        np.array_equal(np.asarray(captured.replay()[0]), wanted[turn % cases]) for turn in range(2, REPLAYS + 2)
    )
    assert right == REPLAYS
    assert captured.counters() == {"launched": REPLAYS, "parameters_set": 0, "instantiated": 1, "nodes_set": 0}
    # And with nobody waiting in between.
    for _ in range(REPLAYS):
        captured.replay()
    assert np.array_equal(np.asarray(captured.outputs[0]), wanted[(2 * REPLAYS + 1) % cases])


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (np.int64, 3),
        (np.int64, 0xFFFFFFFF),
        (np.int64, 1 << 32),
        (np.int32, -1),
        (np.uint64, (1 << 64) - 1),
        (np.int64, -(1 << 63)),
    ],
)
def test_a_selector_out_of_range_runs_the_default_and_is_told(device: Any, dtype: Any, value: int) -> None:
    bodies = tuple((times(device, 2.0 + c),) for c in (0, 1, 0))
    program = HostProgram(("x", "k"), ("y",), (Y, Switch("k", bodies, (Fill("y", -1.0),))))
    x, k = put(device, X), put(device, [1], dtype)
    captured = program.capture([x, k])
    for ask in (captured.synchronize, lambda: np.asarray(x), lambda: device.synchronize(0)):
        device.copy_from_host(k.address, np.array([value], dtype), k.stream)
        captured.replay()
        captured._bound.device._run("cuCtxSynchronize")  # type: ignore[union-attr]
        with pytest.raises(
            LaunchError, match=rf"was {value} on the device, and there are cases 0 to 2: its default was run"
        ):
            ask()
        assert np.array_equal(np.asarray(captured.outputs[0]), np.full(1000, -1))
        device.copy_from_host(k.address, np.array([2], dtype), k.stream)
        assert np.array_equal(np.asarray(captured.replay()[0]), X * 2)
    device.copy_from_host(k.address, np.array([value], dtype), k.stream)
    for run in (program.run, program.interpret):
        with pytest.raises(LaunchError, match=f"was {value} on the device"):
            run([x, k])


def test_bodies_of_every_kind_of_node(device: Any) -> None:
    """Other arrays are set in the nodes of all bodies; a body may be empty, and hold choices."""
    program = HostProgram(
        ("x", "k", "f"),
        ("y",),
        (
            Y,
            Fill("y", 0.0),
            Switch(
                "k",
                (
                    (Copy("y", "x"),),
                    (Fill("y", 3.0),),
                    (),
                    (If("f", (times(device, 5.0),), (Switch("k", ((),) * 3 + ((Fill("y", 7.0),),)),)),),
                ),
            ),
        ),
    )
    k, f = put(device, [0], np.int64), put(device, True, np.bool_)
    captured = program.capture([put(device, X), k, f])
    wanted = {(0, 0): X, (1, 0): X * 0 + 3, (2, 1): X * 0, (3, 1): X * 5, (3, 0): X * 0 + 7}
    for (value, flag), want in [*wanted.items()] * 2:
        inputs = [put(device, X), put(device, [value], np.int64), put(device, flag, np.bool_)]
        for run in (captured.run, program.run):
            assert np.array_equal(np.asarray(run(inputs)[0]), want), (value, flag)
        assert np.array_equal(np.asarray(captured.replay()[0]), want)
    assert captured.counters()["instantiated"] == 1


def test_kernels_with_counters_and_memory_of_their_own(device: Any) -> None:
    """Reductions over several blocks, behind an intermediate, in a body."""
    a = np.random.default_rng(0).standard_normal((64, 1 << 17)).astype(np.float32)
    with FusionDefinition() as sums:
        sums.add_output(sums.define_tensor(shape=[-1, -1], contiguity=True).sum(1))
    with FusionDefinition() as squares:
        x = squares.define_tensor(shape=[-1, -1], contiguity=True)
        squares.add_output(x * x)
    on_device = put(device, a)
    total, square = (KernelCompiler().compile(f, [on_device]) for f in (sums, squares))
    rows, columns = extent("x", 0), extent("x", 1)
    program = HostProgram(
        ("x", "k"),
        ("y",),
        (
            Allocate("y", (rows,), DataType.Float),
            Switch(
                "k",
                (
                    (LaunchKernel(total, ("x", "y")),),
                    (
                        Allocate("t", (rows, columns), DataType.Float),
                        LaunchKernel(square, ("x", "t")),
                        LaunchKernel(total, ("t", "y")),
                        Deallocate("t"),
                    ),
                ),
                (Fill("y", 0.0),),
            ),
        ),
    )
    k = put(device, [0], np.int64)
    captured = program.capture([on_device, k])
    wanted = [a.astype(np.float64).sum(1), (a.astype(np.float64) ** 2).sum(1)]
    for turn in range(20):
        device.copy_from_host(k.address, np.array([turn % 2]), k.stream)
        for run in (captured.replay, lambda: program.run([on_device, k])):
            assert np.allclose(np.asarray(run()[0]), wanted[turn % 2], rtol=1e-5, atol=1e-2)


@pytest.mark.parametrize("chunk", range(3))
def test_random_programs_give_the_same_in_every_way(device: Any, chunk: int) -> None:
    kernel = scale_kernel(arch=device.info.arch)
    for seed in range(chunk * 60, chunk * 60 + 60):
        made = generate_nested(seed, kernel, device=True)
        arrays = made.arrays(seed)
        p, q = put(device, [0], np.int64), put(device, 0, np.bool_)
        captured = made.program.capture([put(device, arrays[0]), 0, 0, p, q])
        for n, m, first, second in ((0, 0, 0, 1), (3, 1, 1, 0), (3, 1, 1, 1), (3, 1, 0, 0), (2, 3, 0, 1), (0, 0, 1, 1)):
            p, q = put(device, [first], np.int64), put(device, second, np.bool_)
            want = made.expected(arrays, n, m, first, second)
            for run in (made.program.interpret, made.program.run, captured.run):
                x = put(device, arrays[0])
                (out,) = run([x, n, m, p, q])
                for got, expected in zip((out, x), want, strict=True):
                    assert np.array_equal(np.asarray(got), expected), f"seed {seed}, {n, m, first, second}, {run}"


def test_a_body_may_call_a_library(device: Any) -> None:
    """What was captured of the call is a graph within the graph of the body. Memory of the two bodies is one."""
    torch = pytest.importorskip("torch")
    n = 64
    square = (n, n)

    def body(name: str, first: str, second: str) -> tuple[Any, ...]:
        made = Allocate(name, square, DataType.Float)
        return (made, CallLibrary("matmul", (name,), {"arg1": first, "arg2": second}), Copy("y", name))

    program = HostProgram(
        ("a", "b", "k"),
        ("y",),
        (Allocate("y", square, DataType.Float), If("k", body("s", "a", "b"), body("t", "b", "a"))),
    )
    a, b = (torch.randint(-8, 8, square, device="cuda").float() for _ in range(2))
    k = torch.zeros((), device="cuda", dtype=torch.int64)
    captured = program.capture([a, b, k])
    for value in (0, 1, 1, 0):
        k.fill_(value)
        want = a @ b if value else b @ a
        assert torch.equal(captured.replay()[0], want)
        assert torch.equal(program.run([a, b, k])[0], want)
    # Other memory, in nodes of bodies, or another graph.
    a, b = (torch.randint(-8, 8, square, device="cuda").float() for _ in range(2))
    assert torch.equal(captured.run([a, b, k])[0], b @ a)
    k.fill_(1)
    assert torch.equal(captured.replay()[0], a @ b)


def test_tensors_of_torch(device: Any) -> None:
    torch = pytest.importorskip("torch")
    program = HostProgram(
        ("x", "k"), ("y",), (Y, Switch("k", ((times(device, 2.0),), (times(device, 3.0),)), (Fill("y", 0.0),)))
    )
    x, k = torch.arange(1000, device="cuda", dtype=torch.float32), torch.zeros((), device="cuda", dtype=torch.int64)
    captured = program.capture([x, k])
    for _ in range(10):
        k.add_(1).remainder_(2)
        (y,) = captured.replay()
        assert torch.equal(y, x * (2 + k))
        assert torch.equal(program.run([x, k])[0], x * (2 + k))
    k.fill_(2)
    captured.replay()
    with pytest.raises(LaunchError, match="was 2 on the device"):
        captured.synchronize()
