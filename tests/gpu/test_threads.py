"""Threads and streams on a GPU: one program, one kernel, equal bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.devices.device import Device, get_device
from tests.devices.device_layouts import place_all
from tests.end_to_end.many_threads import grid_sum, together, uneven
from tests.fusions.fusion_corpus import LARGE, case


@pytest.fixture(scope="module")
def device() -> Device:
    return get_device("cuda", 0)


@pytest.mark.parametrize("name", ["layer_norm", "layer_norm_backward", "full_sum", "bias_gelu", "outer_sum"])
def test_sixteen_threads_on_two_streams(name: str, device: Any) -> None:
    """One program; every thread launches on both streams in turn."""
    fd = case(name).define()
    placed = place_all(device, case(name).inputs(LARGE))
    program = fd.program(placed)
    first = [r.numpy().tobytes() for r in program.run(placed)]
    streams = [device.create_stream() for _ in range(2)]

    def work(number: int) -> None:
        for turn in range(20):
            results = program.run(placed, stream=streams[(number + turn) % 2])
            assert [r.numpy().tobytes() for r in results] == first, (number, turn)

    together(16, work)
    assert program.counters()["runs"] == 1 + 16 * 20


def test_sixteen_threads_on_streams_of_their_own(device: Any) -> None:
    fd = case("layer_norm").define()
    placed = place_all(device, case("layer_norm").inputs(LARGE))
    program = fd.program(placed)
    first = [r.numpy().tobytes() for r in program.run(placed)]

    def work(number: int) -> None:
        streams = [device.create_stream() for _ in range(2)]
        for turn in range(20):
            results = program.run(placed, stream=streams[turn % 2])
            assert [r.numpy().tobytes() for r in results] == first, number

    together(16, work)


def test_first_calls_at_once_compile_once(device: Any) -> None:
    fd = case("layer_norm").define()
    placed = place_all(device, case("layer_norm").inputs(LARGE))
    results: list[list[bytes]] = [[] for _ in range(16)]

    def work(number: int) -> None:
        results[number] = [r.numpy().tobytes() for r in fd.fec.execute(placed)]

    fd.program(placed)  # makes `fec`; kernels for other alignment are still to come
    placed = place_all(device, case("layer_norm").inputs({**LARGE, "C": 515}))
    before = fd.fec.counters()["kernels_compiled"]
    together(16, work)
    assert fd.fec.counters()["kernels_compiled"] - before <= 1
    assert all(r == results[0] for r in results)


def test_grid_reduction_on_four_streams(device: Any) -> None:
    """1,000 launches of one kernel whose blocks meet at a semaphore, from four threads on four streams."""
    fd = grid_sum()
    x = DeviceTensor.from_numpy(uneven(1000, 4097), device)
    program = fd.program([x])
    bits = program.run([x])[0].numpy().tobytes()
    (kernel,) = fd.fec.kernels([x])
    assert kernel.plan is not None
    assert kernel.plan.semaphores is not None
    streams = [device.create_stream() for _ in range(4)]

    def work(number: int) -> None:
        pending = [program.run([x], stream=streams[number])[0] for _ in range(250)]
        for result in pending:
            assert result.numpy().tobytes() == bits, number

    together(4, work)


@pytest.mark.torch
def test_torch_streams(device: Any) -> None:
    """The current stream of each thread, and the launcher's own path."""
    torch = pytest.importorskip("torch")
    fd = grid_sum()
    x = torch.from_numpy(uneven(1000, 4097)).cuda()
    (first,) = fd.execute([x])
    torch.cuda.synchronize()
    bits = first.cpu().numpy().tobytes()

    def work(number: int) -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(stream):
            pending = [fd.execute([x])[0] for _ in range(250)]
        stream.synchronize()
        for result in pending:
            assert result.cpu().numpy().tobytes() == bits, number

    together(4, work)


def test_bits_do_not_depend_on_what_runs_beside(device: Any) -> None:
    """A grid reduction while other streams are busy."""
    fd = grid_sum()
    x = DeviceTensor.from_numpy(uneven(512, 2049), device)
    program = fd.program([x])
    bits = program.run([x])[0].numpy().tobytes()
    busy = case("bias_gelu").define()
    placed = place_all(device, case("bias_gelu").inputs({**LARGE, "R": 4096}))
    other = busy.program(placed)
    streams = [device.create_stream() for _ in range(4)]

    def work(number: int) -> None:
        for _ in range(50):
            if number % 2:
                other.run(placed, stream=streams[number])
            else:
                np.testing.assert_equal(program.run([x], stream=streams[number])[0].numpy().tobytes(), bits)

    together(4, work)
