"""Captured programs on a GPU: CUDA graphs give what the interpreter gives, launch after launch."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.devices.device import get_device
from tests.fuzzing.random_host_programs import generate
from tests.host_ir.kernels import scale_kernel


@pytest.fixture
def device() -> Any:
    return get_device("cuda", 0)


def placed(device: Any, arrays: list[Any]) -> list[Any]:
    return [DeviceTensor.from_numpy(a, device) for a in arrays]


@pytest.mark.parametrize("chunk", range(10))
def test_random_programs_give_the_same_in_every_way(device: Any, chunk: int) -> None:
    kernel = scale_kernel(arch=device.info.arch)
    for seed in range(chunk * 100, chunk * 100 + 100):
        made = generate(seed, kernel)
        arrays = made.arrays(seed)
        want, updated = made.expected(arrays)
        captured = made.program.capture(placed(device, arrays))
        for run in (made.program.interpret, made.program.run, made.program.run, captured.run, captured.run):
            tensors = placed(device, arrays)
            for got, expected in zip([*run(tensors), *tensors], [*want, *updated], strict=True):
                assert np.array_equal(np.asarray(got), expected), f"seed {seed}, {run}"
        for tensor, array in zip(tensors, arrays, strict=True):
            device.copy_from_host(tensor.address, array, 0)
        device.synchronize(0)
        for got, expected in zip([*captured.replay(), *tensors], [*want, *updated], strict=True):
            assert np.array_equal(np.asarray(got), expected), f"seed {seed}, replay"
        assert captured.counters()["instantiated"] == 1


def full_sum() -> FusionDefinition:
    """Blocks that count arrivals in memory."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        total = fd.ops.sum(x)
        fd.add_output(fd.ops.sub(x, fd.ops.segment_set(total)))
    return fd


def long_rows() -> FusionDefinition:
    """Rows that clusters, or groups of blocks of a cooperative grid, share."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.BFloat16)
        y = fd.ops.cast(x, DataType.Float)
        e = fd.ops.exp(fd.ops.sub(y, fd.ops.max(y, 1, True)))
        fd.add_output(fd.ops.cast(fd.ops.div(e, fd.ops.sum(e, 1, True)), DataType.BFloat16))
    return fd


@pytest.mark.parametrize(
    ("define", "shape"),
    [(full_sum, (3000, 1000)), (long_rows, (8, 262144)), (long_rows, (2, 1048576)), (long_rows, (4096, 1024))],
)
def test_fusions(define: Any, shape: tuple[int, int]) -> None:
    """The same bits as without a graph, for other tensors and on another stream."""
    torch = pytest.importorskip("torch")
    fd = define()
    dtype = torch.bfloat16 if define is long_rows else torch.float32
    tensors = [torch.randn(shape, device="cuda").to(dtype) for _ in range(4)]
    wanted = [fd.execute([t])[0].clone() for t in tensors]
    captured = fd.program([tensors[0]]).capture([tensors[0]])
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    for repeat in range(3):
        for tensor, want in zip(tensors, wanted, strict=True):
            if repeat == 2:
                with torch.cuda.stream(side):
                    (got,) = captured.run([tensor])
                torch.cuda.current_stream().wait_stream(side)
            else:
                (got,) = captured.run([tensor])
            assert torch.equal(got, want)
            got.zero_()
            assert torch.equal(captured.replay()[0], want)
    assert captured.counters()["instantiated"] == 1


@pytest.mark.parametrize(
    ("define", "shapes"), [(full_sum, ((3000, 1000), (77, 50))), (long_rows, ((4096, 1024), (8, 262144)))]
)
def test_execute_with_a_graph(define: Any, shapes: Any) -> None:
    torch = pytest.importorskip("torch")
    fd = define()
    dtype = torch.bfloat16 if define is long_rows else torch.float32
    for _ in range(3):
        for shape in shapes:
            x = torch.randn(shape, device="cuda").to(dtype)
            (want,) = fd.execute([x])
            (got,) = fd.execute([x], graph=True)
            assert torch.equal(got, want)


def test_memory_of_inputs_and_outputs_lives_until_the_launch_is_done() -> None:
    torch = pytest.importorskip("torch")
    fd = long_rows()
    x = torch.randn(4096, 8192, device="cuda").to(torch.bfloat16)
    (want,) = fd.execute([x])
    captured = fd.program([x]).capture([x])
    for _ in range(50):
        (got,) = captured.run([x.clone()])
        # What the allocator gets back now, it hands out to the next one.
        torch.full_like(x, float("nan"))
    assert torch.equal(got, want)
    del got
    captured.close()
    gc.collect()
    torch.cuda.synchronize()


def test_a_graph_within_the_capture_of_a_caller() -> None:
    torch = pytest.importorskip("torch")
    fd = full_sum()
    x = torch.randn(300, 200, device="cuda")
    captured = fd.program([x]).capture([x])
    captured.replay()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (y,) = captured.replay()
    x.copy_(torch.randn(300, 200, device="cuda"))
    (want,) = fd.execute([x])
    graph.replay()
    assert torch.equal(y, want)
