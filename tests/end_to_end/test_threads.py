"""Many threads on one definition: one compilation, equal bits."""

from __future__ import annotations

import numpy as np
import pytest

from fuser.compiler.executor_cache import FusionExecutorCache
from fuser.errors import InputRuntimeError
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.simulator.device import SimulatorDevice
from tests.devices.device_layouts import place_all
from tests.end_to_end.many_threads import Array, grid_sum, together, uneven
from tests.fusions.fusion_corpus import ALIGNED, RAGGED, assert_close, case, expected


@pytest.mark.parametrize("name", ["layer_norm", "layer_norm_backward", "full_sum"])
def test_first_calls_at_once_compile_once(name: str) -> None:
    fusion = case(name).define().fusion
    assert fusion is not None
    cache = FusionExecutorCache(fusion)
    device = SimulatorDevice()
    plain = case(name).inputs(ALIGNED)
    want = expected(fusion.ir_fusion, plain)
    results: list[list[Array]] = [[] for _ in range(16)]

    def work(number: int) -> None:
        results[number] = [np.asarray(r) for r in cache.execute(place_all(device, plain))]

    together(16, work)
    assert cache.counters()["kernels_compiled"] == len(cache.kernels(place_all(device, plain)))
    for out, ref, n in zip(results[0], want.outputs, want.folded, strict=True):
        assert_close(out, ref, n, name)
    for other in results[1:]:
        assert [r.tobytes() for r in other] == [r.tobytes() for r in results[0]]


def test_different_shapes_at_once() -> None:
    """Every thread has sizes of its own; what they compile meanwhile stays apart."""
    fusion = case("softmax").define().fusion
    assert fusion is not None
    cache = FusionExecutorCache(fusion)
    device = SimulatorDevice()

    def work(number: int) -> None:
        sizes = {**(ALIGNED if number % 2 else RAGGED), "R": 3 + number}
        for seed in range(3):
            plain = case("softmax").inputs(sizes, seed)
            (out,) = cache.execute(place_all(device, plain))
            want = expected(fusion.ir_fusion, plain)
            assert_close(out, want.outputs[0], want.folded[0], f"thread {number}")

    together(8, work)


def test_one_program_in_many_threads() -> None:
    device = SimulatorDevice()
    fd = case("layer_norm").define()
    plain = case("layer_norm").inputs(ALIGNED)
    placed = place_all(device, plain)
    program = fd.program(placed)
    first = [np.asarray(r).tobytes() for r in program.run(placed)]

    def work(number: int) -> None:
        for _ in range(3):
            assert [np.asarray(r).tobytes() for r in program.run(placed)] == first, number

    together(16, work)
    assert program.counters()["runs"] == 1 + 16 * 3


def test_grid_reduction_in_four_threads() -> None:
    """Semaphores come back to zero between launches, and partial sums are added in block order."""
    device = SimulatorDevice()
    fd = grid_sum()
    x = DeviceTensor.from_numpy(uneven(1037, 1290), device)
    (first,) = fd.execute([x])
    (kernel,) = fd.fec.kernels([x])
    assert kernel.plan is not None
    assert kernel.plan.semaphores is not None, "one block does it all"
    bits = np.asarray(first).tobytes()

    def work(number: int) -> None:
        for _ in range(4):
            assert np.asarray(fd.execute([x])[0]).tobytes() == bits, number

    together(4, work)


def test_errors_stay_in_their_thread() -> None:
    """A thread whose input is refused raises; the others go on."""
    device = SimulatorDevice()
    fd = grid_sum()
    x = DeviceTensor.from_numpy(uneven(5, 7), device)
    (first,) = fd.execute([x])
    bits = np.asarray(first).tobytes()

    def work(number: int) -> None:
        for _ in range(5):
            if number % 2:
                with pytest.raises(InputRuntimeError, match="to be bound to a tensor of rank 2"):
                    fd.execute([x.view((35,), (1,))])
            else:
                assert np.asarray(fd.execute([x])[0]).tobytes() == bits

    together(6, work)


def test_definitions_in_many_threads() -> None:
    """The active definition belongs to a thread."""
    device = SimulatorDevice()

    def work(number: int) -> None:
        for _ in range(3):
            fd = case("bias_gelu").define()
            plain = case("bias_gelu").inputs(RAGGED, number)
            (out,) = fd.execute(place_all(device, plain))
            assert fd.fusion is not None
            want = expected(fd.fusion.ir_fusion, plain)
            assert_close(out, want.outputs[0], want.folded[0], f"thread {number}")

    together(8, work)
