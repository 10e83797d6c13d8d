"""The simulator as a device: memory, semaphores, launches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.errors import LaunchError, LaunchMemoryError, NoDeviceError
from fuser.ir.device_info import H200, DeviceInfo
from fuser.ir.facts import Facts
from fuser.ir.integers.integers import as_int, equal, less
from fuser.ir.kernel.kernel import Allocate, AtomicAdd, ExtentParameter, If, Kernel, SemaphoreParameter
from fuser.runtime.devices.device import Device, get_device
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.launch import Launch
from fuser.simulator import device as simulator_device
from fuser.simulator.device import SimulatorDevice
from fuser.simulator.errors import Kind, SimulatorError
from fuser.simulator.memory import ALIGNMENT, GUARD
from tests.simulator.kernels import (
    BX,
    INT32,
    THREADS,
    TX,
    N,
    call,
    kernel,
    load,
    move,
    output,
    registers,
    source,
    store,
    tensor,
)


def compiled(ir: Kernel | None) -> CompiledKernel:
    parameters = () if ir is None else ir.parameters
    plan = None if ir is None else ir.plan
    return CompiledKernel(
        "",
        "tested",
        "sm_90a",
        None,
        ir,
        parameters,
        plan,
        Facts(),
        None,
        0,
        255,
        (),
        None,
        "hash",
    )


def doubling() -> Kernel:
    x, out = tensor("x", N), tensor("out", N)
    place = BX * THREADS + TX
    body = If(less(place, N), (store(out, place, call("add", load(x, place), load(x, place))),))
    return kernel([source(x), output(out), ExtentParameter(N)], body)


def test_it_is_registered() -> None:
    device: Device = get_device("simulator", 3)
    assert isinstance(device, SimulatorDevice)
    assert (device.kind, device.index, device.info) == ("simulator", 3, H200)
    assert get_device("simulator", 3) is device


def test_allocations_are_aligned_and_apart() -> None:
    device = SimulatorDevice()
    first, empty, second = (device.allocate(n, 0) for n in (100, 0, 1))
    assert all(a.address % ALIGNMENT == 0 for a in (first, empty, second))
    assert empty.address >= first.address + 100 + GUARD
    assert second.address >= empty.address + GUARD
    device.release(first, 0)
    with pytest.raises(SimulatorError, match="not the start of an allocation"):
        device.release(first, 0)
    with pytest.raises(SimulatorError, match="are not device memory"):
        device.copy_from_host(first.address, np.zeros(1, np.uint8), 0)
    assert device.allocate(100, 0).address > second.address


def test_copies_and_fills() -> None:
    device = SimulatorDevice()
    a, b = device.allocate(64, 0).address, device.allocate(64, 0).address
    data = np.arange(8, dtype=np.float32)
    device.copy_from_host(a, data, 0)
    device.copy(b + 32, a, 32, 0)
    result = np.empty(8, np.float32)
    device.copy_to_host(result, b + 32, 0)
    np.testing.assert_array_equal(result, data)
    device.fill(b, b"\1\2\3\4", 8, 0)
    device.copy_to_host(result, b, 0)
    assert (result.view(np.uint8).reshape(8, 4) == [1, 2, 3, 4]).all()
    with pytest.raises(LaunchError, match="a fill pattern has"):
        device.fill(b, b"123", 1, 0)
    with pytest.raises(SimulatorError, match="are not device memory"):
        device.fill(b, b"1", 65, 0)


def test_uninitialised_memory_cannot_be_read_back_even_through_a_copy() -> None:
    device = SimulatorDevice()
    a, b = device.allocate(16, 0).address, device.allocate(16, 0).address
    device.copy_from_host(a, np.zeros(3, np.float32), 0)
    device.copy(b, a, 16, 0)
    result = np.empty(4, np.float32)
    with pytest.raises(SimulatorError) as error:
        device.copy_to_host(result, b, 0)
    assert error.value.kind is Kind.uninitialised_read
    device.copy_to_host(result[:3], b, 0)


def test_a_launch() -> None:
    device = SimulatorDevice()
    x, out = device.allocate(400, 0).address, device.allocate(400, 0).address
    device.copy_from_host(x, np.arange(100, dtype=np.float32), 0)
    device.launch(compiled(doubling()), Launch((4, 1, 1), (32, 1, 1)), [x, out, 100], 0)
    device.synchronize(0)
    result = np.empty(100, np.float32)
    device.copy_to_host(result, out, 0)
    np.testing.assert_array_equal(result, 2 * np.arange(100))
    with pytest.raises(SimulatorError) as error:
        device.launch(compiled(doubling()), Launch((4, 1, 1), (32, 1, 1)), [x, out, 101], 0)
    assert error.value.kind is Kind.out_of_bounds
    with pytest.raises(LaunchError, match=r"block\.x is 2048"):
        device.launch(compiled(doubling()), Launch((1, 1, 1), (2048, 1, 1)), [x, out, 100], 0)


def test_raw_source_is_refused() -> None:
    with pytest.raises(NoDeviceError, match="tested is raw CUDA source"):
        SimulatorDevice().launch(compiled(None), Launch((1, 1, 1), (1, 1, 1)), [], 0)


def test_semaphores_are_dropped_after_a_failure() -> None:
    semaphore = tensor("semaphore", 1, INT32)

    def arrive(*, resets: bool) -> CompiledKernel:
        reset = (AtomicAdd(None, semaphore, as_int(0), as_int(-1)),) if resets else ()
        body = If(equal(TX, 0), (AtomicAdd(None, semaphore, as_int(0), as_int(1)), *reset))
        return compiled(kernel([SemaphoreParameter(semaphore)], body))

    device = SimulatorDevice()
    address = device.semaphores(4, 7)
    assert device.semaphores(2, 7) == address
    assert device.semaphores(2, 8) != address
    launch = Launch((3, 1, 1), (32, 1, 1))
    device.launch(arrive(resets=True), launch, [address], 7)
    assert device.semaphores(2, 7) == address
    with pytest.raises(SimulatorError) as error:
        device.launch(arrive(resets=False), launch, [address], 7)
    assert error.value.kind is Kind.semaphore_not_reset
    assert device.semaphores(2, 7) != address


def test_semaphores_are_dropped_after_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimulatorDevice()
    address = device.semaphores(4, 7)

    def interrupted(*_: object, **__: object) -> None:
        device.memory.write(address, np.ones(4, np.uint8))
        raise KeyboardInterrupt

    monkeypatch.setattr(simulator_device, "run_kernel", interrupted)
    with pytest.raises(KeyboardInterrupt):
        device.launch(compiled(doubling()), Launch((1, 1, 1), (32, 1, 1)), [0, 0, 1], 7)
    assert device.semaphores(4, 7) != address


def test_semaphores_that_were_given_out_stay() -> None:
    """The thread that has them may not have launched yet when another one asks for more."""
    device = SimulatorDevice()
    address = device.semaphores(4, 7)
    assert device.semaphores(5, 7) != address
    device.copy_to_host(np.zeros(4, np.int32), address, 7)
    taken = {device.semaphores(count, 7) for count in range(5, 1000)}
    assert len(taken) < 10


def test_small_devices() -> None:
    device = SimulatorDevice(0, replace(H200, name="small", max_threads_per_block=64))
    with pytest.raises(LaunchError, match="a block of 96 threads; small has at most 64"):
        device.launch(compiled(kernel([])), Launch((1, 1, 1), (96, 1, 1)), [], 0)


def test_the_widest_access() -> None:
    x = tensor("x", 64)
    r = registers("r", 8)
    tested = compiled(kernel([source(x)], Allocate(r), move(r, 0, x, TX * 8, 8)))
    launch = Launch((1, 1, 1), (8, 1, 1))
    for name in ("sm_100", "H200"):
        device = SimulatorDevice(0, DeviceInfo.preset(name))
        address = device.memory.upload(np.ones(64, np.float32))
        if name == "sm_100":
            device.launch(tested, launch, [address], 0)
            continue
        with pytest.raises(LaunchError, match="an access of 32 bytes; H200 has at most 16"):
            device.launch(tested, launch, [address], 0)


@pytest.mark.parametrize("size", [2**42, 2**62])
def test_more_bytes_than_there_are(size: int) -> None:
    """Beyond the host's memory, and beyond what an array may have."""
    with pytest.raises(LaunchMemoryError, match=f"the simulator has no room for {size} bytes") as caught:
        SimulatorDevice().allocate(size, 0)
    assert isinstance(caught.value, MemoryError)
    with FusionDefinition() as fd:
        n = fd.define_scalar(DataType.Int)
        fd.add_output(fd.ops.full([n], 1.0, DataType.Float))
    with pytest.raises(LaunchMemoryError, match=f"no room for {size} bytes"):
        fd.execute([size // 4], device="simulator")
    (found,) = fd.execute([3], device="simulator")
    np.testing.assert_array_equal(found, np.ones(3, "f4"))
