"""Bad input on a GPU: refused before any driver call that allocates, copies or launches; misaligned input served apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.errors import FuserError, InputRuntimeError
from fuser.runtime import driver
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.devices.cuda_device import CudaDevice
from fuser.runtime.devices.device import get_device
from fuser.simulator.device import SimulatorDevice
from tests.end_to_end.bad_input import (
    CASES,
    GOOD,
    check_another_kernel,
    check_manual,
    check_overlapping_rank_zero,
    check_overlapping_read,
    define,
    ones,
    refused,
    updating,
)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Driver calls that change anything, while they are made."""
    seen: list[str] = []
    real = driver.call

    def spy(name: str, *arguments: Any) -> Any:
        if any(word in name for word in ("Alloc", "Memcpy", "Memset", "Launch", "ModuleLoad")):
            seen.append(name)
        return real(name, *arguments)

    monkeypatch.setattr(driver, "call", spy)
    return seen


@pytest.mark.parametrize(("what", "position", "value", "kind", "text"), CASES, ids=[c[0] for c in CASES])
def test_one_bad_input(
    what: str, position: int, value: Any, kind: type[Exception], text: str, calls: list[str]
) -> None:
    inputs = list(GOOD)
    inputs[position] = value
    refused(define(), inputs, kind, text)
    assert calls == [], what


def test_count_and_conflict(calls: list[str]) -> None:
    refused(define(), list(GOOD[:4]), RuntimeError, "Expected 5 inputs (x, b, s, w, n), got 4")
    refused(define(), [ones(3, 8), ones(7), *GOOD[2:]], RuntimeError, "a conflict was found with 2 different sizes")
    assert calls == []


def test_tensors_of_the_gpu_and_of_the_simulator(calls: list[str]) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], True, DataType.Float)
        fd.add_output(x + fd.define_tensor([-1], True, DataType.Float))
    here = DeviceTensor.from_numpy(ones(8), get_device("cuda", 0))
    there = DeviceTensor.from_numpy(ones(8), SimulatorDevice())
    calls.clear()
    refused(fd, [here, there], RuntimeError, "Expected all inputs on one device, got cuda:0 and simulator:0")
    refused(fd, [here, here], RuntimeError, "Expected inputs on device cuda:1, got one on cuda:0", device=1)
    assert calls == []


def test_overlapping_updates(calls: list[str]) -> None:
    memory = DeviceTensor.from_numpy(ones(7, 8), get_device("cuda", 0))
    calls.clear()
    x, y = memory.view((4, 8), (8, 1)), memory.view((4, 8), (8, 1), 24)
    refused(updating(), [x, y], RuntimeError, "are both updated in place, but they overlap in memory")
    expanded = memory.view((4, 8), (0, 1))
    refused(updating(), [expanded, y], RuntimeError, "its elements overlap in memory")
    assert calls == []


def test_misaligned_input_takes_another_kernel() -> None:
    device = CudaDevice(0)
    device.info = replace(device.info, sm_count=1)
    check_another_kernel(device)


def test_misaligned_input_of_a_manual_schedule() -> None:
    check_manual(get_device("cuda", 0))


def test_input_that_overlaps_an_updated_one() -> None:
    check_overlapping_read(get_device("cuda", 0))
    check_overlapping_rank_zero(get_device("cuda", 0))


@pytest.mark.torch
def test_torch_tensors(calls: list[str]) -> None:
    torch = pytest.importorskip("torch")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], True, DataType.Float)
        fd.add_output(x + fd.define_tensor([-1], True, DataType.Float))
    cpu, gpu = torch.ones(8), torch.ones(8, device="cuda")
    for inputs in ([cpu, cpu], [gpu, gpu.half()], [gpu, gpu[None]], [gpu, torch.ones(7, device="cuda")]):
        with pytest.raises(FuserError):
            fd.execute(inputs)
    with pytest.raises(
        InputRuntimeError, match="Found unsupported device cpu, only scalar CPU or CUDA tensors are supported"
    ):
        fd.execute([cpu, cpu], device="cuda")
    assert calls == []
    (out,) = fd.execute([gpu, gpu])
    assert bool((out == 2).all())


@pytest.mark.torch
@pytest.mark.parametrize("size", [base + d for base in (2**30, 2**31) for d in (-1, 0, 1)])
def test_index_width(size: int, much_memory: None) -> None:
    """Bool tensors around 2^30 and 2^31 elements: pointwise, a reduction of rows, and strides alone."""
    torch = pytest.importorskip("torch")
    free, _ = torch.cuda.mem_get_info()
    if free < 4 * size + 2**30:
        pytest.skip("not enough device memory")
    x = torch.randint(0, 2, (size,), dtype=torch.uint8, device="cuda").bool()
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.logical_not(fd.define_tensor([-1], True, DataType.Bool)))
    (out,) = fd.execute([x])
    assert torch.equal(out, ~x)
    (kernel,) = fd.fec.kernels([x])
    assert kernel.kernel_ir is not None
    assert kernel.kernel_ir.index_bits == (32 if size <= 2**30 else 64)
    del out
    rows = x[: size // 7 * 7].view(-1, 7)
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.sum(fd.define_tensor([-1, 7], True, DataType.Bool), [1]))
    (counted,) = fd.execute([rows])
    for start in range(0, rows.shape[0], 1 << 26):  # the sum in int64 of all at once would not fit
        part = slice(start, start + (1 << 26))
        assert torch.equal(counted[part], rows[part].sum(1))
    del counted, rows
    far = torch.as_strided(x, (2, 8), (size - 8, 1))
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.logical_not(fd.define_tensor([-1, -1], False, DataType.Bool)))
    (out,) = fd.execute([far])
    assert torch.equal(out, ~far)


def test_values_are_right_after_refusals() -> None:
    fd = define()
    device = get_device("cuda", 0)
    placed = [DeviceTensor.from_numpy(v, device) if isinstance(v, np.ndarray) else v for v in GOOD]
    with pytest.raises(FuserError):
        fd.execute([*placed[:1], ones(3), *placed[2:]])
    first, second = fd.execute(placed)
    np.testing.assert_array_equal(first.numpy(), np.full((3, 8), 3.0, np.float32))
    np.testing.assert_array_equal(second.numpy(), np.full((4, 5), 3.0, np.float32))
