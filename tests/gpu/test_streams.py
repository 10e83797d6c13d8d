"""Host programs on several streams of a GPU: what one stream gives, run after run, and within captures of torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser import Allocate, DataType, Deallocate, HostProgram, LaunchKernel, RecordEvent, SetStream, WaitEvent, extent
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.devices.device import get_device
from tests.fuzzing.random_host_programs import generate
from tests.host_ir.kernels import scale_kernel


@pytest.fixture
def device() -> Any:
    return get_device("cuda", 0)


@pytest.mark.parametrize("chunk", range(4))
def test_random_programs_give_the_same_in_every_way(device: Any, chunk: int) -> None:
    kernel = scale_kernel(arch=device.info.arch)
    for seed in range(chunk * 100, chunk * 100 + 100):
        made = generate(seed, kernel, streams=4)
        arrays = made.arrays(seed)
        want, updated = made.expected(arrays)
        captured = made.program.capture([DeviceTensor.from_numpy(a, device) for a in arrays])
        for run in (made.program.interpret, made.program.run, made.program.run, captured.run):
            tensors = [DeviceTensor.from_numpy(a, device) for a in arrays]
            for got, expected in zip([*run(tensors), *tensors], [*want, *updated], strict=True):
                assert np.array_equal(np.asarray(got), expected), f"seed {seed}, {run}"


def in_turns(kernel: Any) -> HostProgram:
    """w = 3 x, and z = 4 x by way of memory that is taken on one side stream and given back on another."""
    n = extent("x", 0)
    return HostProgram(
        ("x",),
        ("w", "z"),
        (
            Allocate("w", (n,), DataType.Float),
            Allocate("z", (n,), DataType.Float),
            SetStream("a"),
            Allocate("y", (n,), DataType.Float),
            LaunchKernel(kernel, ("x", "y", 2.0)),
            RecordEvent("y"),
            SetStream("b"),
            LaunchKernel(kernel, ("x", "w", 3.0)),
            WaitEvent("y"),
            LaunchKernel(kernel, ("y", "z", 2.0)),
            Deallocate("y"),
        ),
    )


@pytest.mark.parametrize("n", [1000, 1 << 24])
def test_memory_of_torch(device: Any, n: int) -> None:
    """Many runs behind one another, on two streams of the caller, while the device is far behind."""
    torch = pytest.importorskip("torch")
    program = in_turns(scale_kernel(arch=device.info.arch))
    inputs = [torch.full((n,), float(k + 1), device="cuda") for k in range(12)]
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    results: list[Any] = []
    for k, x in enumerate(inputs):
        with torch.cuda.stream(streams[k % 2]):
            results.append(program.run([x]))
    torch.cuda.synchronize()
    for x, (w, z) in zip(inputs, results, strict=True):
        assert torch.equal(w, 3 * x)
        assert torch.equal(z, 4 * x)


def test_events_become_edges_of_a_graph_of_torch(device: Any) -> None:
    torch = pytest.importorskip("torch")
    program = in_turns(scale_kernel(arch=device.info.arch))
    x = torch.ones(1 << 20, device="cuda")
    for _ in range(2):
        program.run([x])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (w, z) = program.run([x])
        program.run([x])
    for k in range(3):
        x.fill_(float(k))
        graph.replay()
        assert torch.equal(w, 3 * x)
        assert torch.equal(z, 4 * x)
    # Streams that the capture held are free again.
    (w, z) = program.run([x])
    assert torch.equal(z, 4 * x)


@pytest.mark.parametrize("chunk", range(2))
def test_programs_that_are_put_on_streams(device: Any, chunk: int) -> None:
    kernel = scale_kernel(arch=device.info.arch)
    for seed in range(chunk * 100, chunk * 100 + 100):
        made = generate(seed, kernel)
        arrays = made.arrays(seed)
        want, updated = made.expected(arrays)
        program = made.program.on_streams(3)
        for run in (program.interpret, program.run, program.run):
            tensors = [DeviceTensor.from_numpy(a, device) for a in arrays]
            for got, expected in zip([*run(tensors), *tensors], [*want, *updated], strict=True):
                assert np.array_equal(np.asarray(got), expected), f"seed {seed}, {run}"
