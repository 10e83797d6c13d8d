"""What a CUDA device asks of the driver, on a driver made of host memory (`tests/runtime/fake_driver.py`)."""

import dataclasses
import gc
import re
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fuser.errors import (
    LaunchError,
    LaunchMemoryError,
    LaunchTypeError,
    LaunchValueError,
    NoDeviceError,
    VariantUnavailableError,
)
from fuser.ir.integers.integers import const
from fuser.ir.kernel.launch_plan import BlockExchange, LaunchPlan
from fuser.ir.ops.dtypes import DataType
from fuser.runtime import driver
from fuser.runtime.devices import cuda_device
from fuser.runtime.devices.cuda_device import CudaDevice
from fuser.runtime.devices.device import get_device
from fuser.runtime.devices.streams import keep_until_done
from fuser.runtime.kernels.launch_params import LaunchParams
from fuser.runtime.kernels.library_calls import LibraryCall, Operand
from fuser.runtime.kernels.raw_signature import RawKind, RawParameter
from fuser.runtime.kernels.variants import KernelVariants
from fuser.runtime.launch import Launch
from fuser.runtime.rtc_kernel import RtcKernel
from tests.runtime.fake_driver import CONTEXT, FakeDriver, install, kernel_of, no_compiler, parameter

ONE = Launch((1, 1, 1), (128, 1, 1))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    return install(monkeypatch)


@pytest.fixture
def device(fake: FakeDriver) -> CudaDevice:
    made = CudaDevice(0, KernelVariants(no_compiler))
    fake.calls.clear()
    return made


def test_info(fake: FakeDriver, device: CudaDevice) -> None:
    info = device.info
    assert (info.name, info.arch, info.sm_count) == ("Fake H200", "sm_90a", 132)
    assert info.shared_per_block_optin == 232448
    assert (info.max_access_bytes, info.max_cluster) == (16, 16)
    assert 4200 < info.memory_bytes_per_ns < 4400
    assert repr(device) == "CudaDevice(0, 'Fake H200', sm_90a)"
    assert device.context == CONTEXT


@pytest.mark.parametrize(
    ("major", "minor", "arch"), [(8, 0, "sm_80"), (8, 9, "sm_89"), (10, 0, "sm_100a"), (12, 0, "sm_120a")]
)
def test_architectures(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch, major: int, minor: int, arch: str) -> None:
    from tests.runtime import fake_driver

    monkeypatch.setitem(fake_driver.ATTRIBUTES, "COMPUTE_CAPABILITY_MAJOR", major)
    monkeypatch.setitem(fake_driver.ATTRIBUTES, "COMPUTE_CAPABILITY_MINOR", minor)
    info = CudaDevice(0).info
    assert info.arch == arch
    assert info.max_access_bytes == (32 if major >= 10 else 16)
    assert info.max_cluster == (1 if major < 9 else 16 if major < 12 else 8)


def test_no_such_device(fake: FakeDriver) -> None:
    with pytest.raises(NoDeviceError, match="there is no CUDA device 1; 1 found"):
        CudaDevice(1)


def test_registry(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    from fuser.runtime.devices import device as registry

    monkeypatch.setattr(registry, "_devices", {})
    assert isinstance(get_device("cuda", 0), CudaDevice)
    assert get_device("cuda", 0) is get_device("cuda", 0)


# --- memory ---


def test_allocations_are_ordered_on_the_stream(fake: FakeDriver, device: CudaDevice) -> None:
    a = device.allocate(100, 7)
    assert a.nbytes == 100
    assert a.address % 256 == 0
    device.release(a, 7)
    allocations = [arguments for name, arguments in fake.calls if name == "cuMemAllocFromPoolAsync"]
    assert allocations == [(100, 0x900, 7)]
    assert ("cuMemFreeAsync", (a.address, 7)) in fake.calls
    device.allocate(8, 7)
    assert fake.names().count("cuMemPoolCreate") == 1


def test_trim(device: CudaDevice, fake: FakeDriver) -> None:
    device.trim()
    assert "cuMemPoolTrimTo" not in fake.names(), "there is no pool yet"
    device.release(device.allocate(64, 0), 0)
    device.trim(1 << 20)
    assert fake.names()[-1] == "cuMemPoolTrimTo"


def test_no_bytes_need_no_memory(fake: FakeDriver, device: CudaDevice) -> None:
    empty = device.allocate(0, 0)
    assert (empty.address, empty.nbytes) == (0, 0)
    device.release(empty, 0)
    device.copy(0, 0, 0, 0)
    device.fill(0, b"\0", 0, 0)
    assert not [n for n in fake.names() if n.startswith("cuMem")]


def test_copies(device: CudaDevice) -> None:
    a, b = device.allocate(64, 0), device.allocate(64, 0)
    data = np.arange(16, dtype=np.float32)
    device.copy_from_host(a.address, data, 0)
    device.copy(b.address, a.address, 64, 0)
    result = np.empty(16, np.float32)
    device.copy_to_host(result, b.address, 0)
    assert np.array_equal(result, data)
    with pytest.raises(LaunchError, match="C-contiguous"):
        device.copy_from_host(a.address, data[::2], 0)


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("is_uniform", [True, False])
def test_fill(device: CudaDevice, width: int, is_uniform: bool) -> None:
    pattern = b"\x07" * width if is_uniform else bytes(range(1, width + 1))
    a = device.allocate(5 * width, 0)
    device.fill(a.address, pattern, 5, 0)
    result = np.empty(5 * width, np.uint8)
    device.copy_to_host(result, a.address, 0)
    assert result.tobytes() == pattern * 5


def test_fill_of_another_width(device: CudaDevice) -> None:
    with pytest.raises(LaunchError, match="a pattern of 1, 2, 4, 8 or 16 bytes, got 3"):
        device.fill(1, b"abc", 1, 0)


# --- semaphores ---


def counters(device: CudaDevice, address: int, count: int) -> list[int]:
    data = np.empty(count, np.int32)
    device.copy_to_host(data, address, 0)
    return data.tolist()


Semaphores = Callable[..., int]


@pytest.fixture(params=["a launch by itself", "a bound call"])
def semaphores(request: pytest.FixtureRequest, device: CudaDevice) -> Semaphores:
    """`semaphores(count, stream, co_resident=False)`, as both ask for them."""
    if request.param == "a launch by itself":
        return device.semaphores
    lookups = {c: device.semaphore_lookup(co_resident=c) for c in (False, True)}

    def find(count: int, stream: int, *, co_resident: bool = False) -> int:
        driver.enter_context(device.context)
        return lookups[co_resident](count, stream)

    return find


def test_semaphores_are_zero_and_per_stream(device: CudaDevice, semaphores: Semaphores) -> None:
    a = semaphores(10, 1)
    assert counters(device, a, 10) == [0] * 10
    assert semaphores(4096, 1) == a
    assert semaphores(10, 2) != a


def test_semaphores_grow(fake: FakeDriver, device: CudaDevice, semaphores: Semaphores) -> None:
    """Counters that were given out are not freed: the thread that has them may not have launched yet. They are few."""
    a = semaphores(10, 1)
    b = semaphores(10000, 1)
    assert a != b
    assert semaphores(10, 1) == b
    before = sum(len(memory) for memory in fake.memory.values())
    for count in range(10000, 100000, 700):
        semaphores(count, 1)
    assert fake.freed == []
    assert sum(len(memory) for memory in fake.memory.values()) - before < 4 * 4 * 100000


def test_semaphores_of_a_capture_come_out_of_the_reserve(
    fake: FakeDriver, device: CudaDevice, semaphores: Semaphores
) -> None:
    eager = semaphores(10, 5)
    allocations = len(fake.memory)
    fake.capture = 77
    first = semaphores(10, 5)
    assert first != eager
    assert semaphores(10, 5) == first
    fake.capture = 78
    assert semaphores(10, 5) != first
    assert len(fake.memory) == allocations
    with pytest.raises(LaunchError, match="earlier captures have taken 128 of the 1048576 that are kept"):
        semaphores(5000000, 5)


def test_counters_of_graphs_are_zero_on_any_stream(
    fake: FakeDriver, device: CudaDevice, semaphores: Semaphores
) -> None:
    """Nothing orders a stream that a graph is launched on after the one that the reserve was made on."""
    semaphores(10, 5)
    reserve = max(fake.memory, key=lambda address: len(fake.memory[address]))
    zeroed = fake.calls.index(("cuMemsetD32Async", (reserve, 0, 1 << 20, 5)))
    assert ("cuStreamSynchronize", (5,)) in fake.calls[zeroed:]
    synchronized = fake.names().count("cuStreamSynchronize")
    semaphores(10, 6)
    assert fake.names().count("cuStreamSynchronize") == synchronized


def test_there_are_semaphores_for_any_number_of_captures(
    fake: FakeDriver, device: CudaDevice, semaphores: Semaphores
) -> None:
    found: set[int] = set()
    for capture in range(1, 600):
        fake.capture = 0
        semaphores(10, 5)
        fake.capture = capture
        found.add(semaphores(4096, 5))
    assert len(found) == 599
    assert not any(address in fake.freed for address in found)


def test_a_launch_beside_another_has_semaphores_of_its_own(
    fake: FakeDriver, device: CudaDevice, semaphores: Semaphores
) -> None:
    """The launch before it may be one of another thread, which needs more than the one that is known."""
    for fake.capture in (0, 77):
        first, second = semaphores(3, 1), semaphores(64, 1, co_resident=True)
        between = semaphores(4000, 1)
        assert semaphores(64, 1, co_resident=True) == second
        for address, count in ((first, 3), (between, 4000)):
            assert second not in range(address, address + 4 * count)
            assert address not in range(second, second + 4 * 64)


def test_threads_share_no_default_stream_of_a_thread(device: CudaDevice, semaphores: Semaphores) -> None:
    """One handle means a stream of each."""
    found: list[int] = []
    mine = semaphores(4, 2)
    thread = threading.Thread(target=lambda: found.append(semaphores(4, 2)))
    thread.start()
    thread.join()
    assert found != [mine]
    assert semaphores(4, 2) == mine


def test_cold_semaphores_in_a_capture(fake: FakeDriver, device: CudaDevice, semaphores: Semaphores) -> None:
    fake.capture = 77
    with pytest.raises(LaunchError, match="run it once before the capture begins"):
        semaphores(10, 5)
    assert not fake.memory


@pytest.mark.parametrize("size", [2**40, 2**64])
def test_more_memory_than_there_is(fake: FakeDriver, device: CudaDevice, size: int) -> None:
    fake.fail_names["cuMemAllocFromPoolAsync"] = 2
    with pytest.raises(LaunchMemoryError, match=f"CudaDevice.* has no room for {size} bytes"):
        device.allocate(size, 0)


def test_failed_launch_drops_the_semaphores(fake: FakeDriver, device: CudaDevice) -> None:
    a = device.semaphores(10, 1)
    fake.fail_names["cuLaunchKernelEx"] = 719
    with pytest.raises(LaunchError) as caught:
        device.launch(kernel_of(), ONE, (0, 1.0), 1)
    assert str(caught.value) == (
        "launch of k with grid (1, 1, 1), block (128, 1, 1), 0 bytes of dynamic shared memory: cuLaunchKernelEx failed: "
        "CUDA_ERROR_LAUNCH_FAILED (719): the driver's words"
    )
    assert device.semaphores(10, 1) != a
    assert a not in fake.freed


# --- launches ---


def test_launch(fake: FakeDriver, device: CudaDevice) -> None:
    kernel = kernel_of()
    device.launch(kernel, Launch((2, 3, 4), (32, 4, 1), 100), (0x1234567812345678, 0.5), 9)
    (launch,) = fake.launches
    assert (launch.grid, launch.block, launch.shared, launch.stream) == ((2, 3, 4), (32, 4, 1), 100, 9)
    assert launch.attributes == []
    assert parameter(launch, 0, "Q") == 0x1234567812345678
    assert parameter(launch, 1, "f") == 0.5


def test_steady_launches_are_one_driver_call(fake: FakeDriver, device: CudaDevice) -> None:
    kernel = kernel_of()
    device.launch(kernel, ONE, (1, 0.5), 9)
    fake.calls.clear()
    for n in range(5):
        device.launch(kernel, Launch((1, 1, 1), (128, 1, 1)), (n, 1.5), 9)
    assert fake.names() == ["cuCtxGetCurrent", "cuLaunchKernelEx"] * 5
    assert parameter(fake.launches[-1], 0, "Q") == 4


def test_sizes_and_stream_of_the_launch_at_hand(fake: FakeDriver, device: CudaDevice) -> None:
    kernel = kernel_of()
    for grid, stream in ((1, 9), (2, 9), (2, 8), (1, 9)):
        device.launch(kernel, Launch((grid, 1, 1), (128, 1, 1)), (0, 1.0), stream)
    assert [(launch.grid[0], launch.stream) for launch in fake.launches] == [(1, 9), (2, 9), (2, 8), (1, 9)]


def test_binary_is_loaded_once(fake: FakeDriver, device: CudaDevice) -> None:
    kernel = kernel_of()
    for block in (128, 256, 64):
        device.launch(kernel, Launch((1, 1, 1), (block, 1, 1)), (0, 1.0), 0)
    assert fake.names().count("cuModuleLoadData") == 1
    device.launch(dataclasses.replace(kernel), ONE, (0, 1.0), 0)
    assert fake.names().count("cuModuleLoadData") == 1


def test_each_thread_has_its_own_cells(fake: FakeDriver, device: CudaDevice) -> None:
    kernel = kernel_of()
    device.launch(kernel, ONE, (1, 1.0), 0)
    thread = threading.Thread(target=lambda: device.launch(kernel, ONE, (2, 1.0), 0))
    thread.start()
    thread.join()
    assert fake.launches[0].parameters != fake.launches[1].parameters
    assert parameter(fake.launches[0], 0, "Q") == 1


def test_kernels_are_let_go(device: CudaDevice) -> None:
    import weakref

    kernel = kernel_of()
    device.launch(kernel, ONE, (1, 1.0), 0)
    dead = weakref.ref(kernel)
    del kernel
    gc.collect()
    assert dead() is None


def test_wrong_value(fake: FakeDriver, device: CudaDevice) -> None:
    with pytest.raises(
        LaunchValueError, match=r"argument 1 \(alpha\) of kernel k: 1e\+300 is out of the range of float32"
    ):
        device.launch(kernel_of(), ONE, (0, 1e300), 0)
    assert not fake.launches


def test_missing_variant(fake: FakeDriver, device: CudaDevice) -> None:
    with pytest.raises(VariantUnavailableError, match="a block of 512 threads needs a binary for blocks up to 512"):
        device.launch(kernel_of(), Launch((1, 1, 1), (512, 1, 1)), (0, 1.0), 0)
    assert not fake.launches


def test_binary_of_another_architecture(device: CudaDevice) -> None:
    with pytest.raises(LaunchError, match="k was compiled for sm_80, and the device is sm_90a"):
        device.launch(kernel_of(arch="sm_80"), ONE, (0, 1.0), 0)
    with pytest.raises(LaunchError, match="k was compiled for sm_100a"):
        device.launch(kernel_of(arch="sm_100a"), ONE, (0, 1.0), 0)
    device.launch(kernel_of(arch="sm_90"), ONE, (0, 1.0), 0)


@pytest.mark.parametrize(
    ("launch", "text"),
    [
        (Launch((0, 1, 1), (1, 1, 1)), "the grid has 1 to 2147483647 blocks along x, not 0"),
        (Launch((1, 70000, 1), (1, 1, 1)), "the grid has 1 to 65535 blocks along y, not 70000"),
        (Launch((1, 1, 1), (2048, 1, 1)), "a block has at most 1024 threads, not 2048"),
        (Launch((1, 1, 1), (1, 1, 1), 300000), "a block has up to 232448 bytes of shared memory, not 300000"),
        (Launch((3, 1, 1), (1, 1, 1), 0, (2, 1, 1)), "the grid of 3 blocks along x is no multiple of the cluster's 2"),
    ],
)
def test_sizes_are_checked_before_anything(fake: FakeDriver, device: CudaDevice, launch: Launch, text: str) -> None:
    with pytest.raises(LaunchError) as caught:
        device.launch(kernel_of(), launch, (0, 1.0), 0)
    assert text in str(caught.value)
    assert "cuModuleLoadData" not in fake.names()


def test_dynamic_shared_memory_above_48_kb_is_asked_for(fake: FakeDriver, device: CudaDevice) -> None:
    kernel = kernel_of()
    attribute = (0x401, "MAX_DYNAMIC_SHARED_SIZE_BYTES")
    device.launch(kernel, Launch((1, 1, 1), (128, 1, 1), 49152), (0, 1.0), 0)
    assert attribute not in fake.attributes
    device.launch(kernel, Launch((1, 1, 1), (128, 1, 1), 100000), (0, 1.0), 0)
    assert fake.attributes[attribute] == 100000
    device.launch(kernel, Launch((1, 1, 1), (128, 1, 1), 60000), (0, 1.0), 0)
    assert fake.attributes[attribute] == 100000
    device.launch(kernel, Launch((1, 1, 1), (128, 1, 1), 200000), (0, 1.0), 0)
    assert fake.attributes[attribute] == 200000


def test_shared_memory_is_asked_for_on_every_variant(fake: FakeDriver, device: CudaDevice) -> None:
    kernel = kernel_of()
    device.launch(kernel, Launch((1, 1, 1), (128, 1, 1), 100000), (0, 1.0), 0)
    (narrow,) = device.variants.binaries_of(kernel)
    device.variants.add(kernel, dataclasses.replace(narrow, max_threads=1024, cubin=b"wide"))
    device.launch(kernel, Launch((1, 1, 1), (1024, 1, 1), 100000), (0, 1.0), 0)
    assert fake.attributes == {
        (0x401, "MAX_DYNAMIC_SHARED_SIZE_BYTES"): 100000,
        (0x402, "MAX_DYNAMIC_SHARED_SIZE_BYTES"): 100000,
    }
    assert fake.launches[-1].function == 0x402


def test_static_shared_memory_counts(fake: FakeDriver, device: CudaDevice) -> None:
    fake.static_shared = 40000
    kernel = kernel_of()
    device.launch(kernel, Launch((1, 1, 1), (128, 1, 1), 10000), (0, 1.0), 0)
    assert fake.attributes == {(0x401, "MAX_DYNAMIC_SHARED_SIZE_BYTES"): 10000}
    with pytest.raises(LaunchError, match=r"240000 bytes of shared memory \(40000 static, 200000 dynamic\)"):
        device.launch(kernel, Launch((1, 1, 1), (128, 1, 1), 200000), (0, 1.0), 0)


def test_binary_that_the_driver_finds_too_large(fake: FakeDriver, device: CudaDevice) -> None:
    fake.max_threads, fake.registers = 64, 255
    with pytest.raises(
        LaunchError, match=r"k: a block of 128 threads, and the binary allows 64 \(255 registers a thread\)"
    ):
        device.launch(kernel_of(), ONE, (0, 1.0), 0)


def test_cooperative_grid_must_be_resident(fake: FakeDriver, device: CudaDevice) -> None:
    kernel = kernel_of()
    device.launch(kernel, Launch((264, 1, 1), (128, 1, 1), cooperative=True), (0, 1.0), 0)
    (name, value), *rest = fake.launches[0].attributes
    assert (name, value.cooperative, rest) == ("COOPERATIVE", 1, [])
    with pytest.raises(
        LaunchError, match=r"a cooperative grid of 265 blocks, and the device holds 264 at once \(2 on each of 132"
    ):
        device.launch(kernel, Launch((265, 1, 1), (128, 1, 1), cooperative=True), (0, 1.0), 0)
    assert len(fake.launches) == 1
    assert fake.names().count("cuOccupancyMaxActiveBlocksPerMultiprocessor") == 1


def test_blocks_that_wait_leave_room_for_the_others(fake: FakeDriver, device: CudaDevice) -> None:
    one = const(1)
    plan = LaunchPlan(
        (), (), (), (), (one, one, one), (one, one, one), const(0), exchanges=(BlockExchange.flagged_stores,)
    )
    kernel = kernel_of(plan=plan)
    device.info = dataclasses.replace(device.info, sm_count=1)
    device.launch(kernel, Launch((300, 1, 1), (128, 1, 1)), (0, 1.0), 0)
    fake.blocks_per_sm = 1
    with pytest.raises(
        LaunchError, match=r"k: 1 of its blocks wait for the others, and the device holds 1 at once with"
    ):
        device.launch(kernel, Launch((2, 1, 1), (256, 1, 1)), (0, 1.0), 0)
    assert len(fake.launches) == 1
    # Whole clusters wait, and others are as large.
    whole = dataclasses.replace(plan, cluster=(8, 2, 1))
    assert (plan.waiting_blocks, whole.waiting_blocks) == (1, 16)
    assert (
        dataclasses.replace(whole, exchanges=(BlockExchange.last_block, BlockExchange.all_blocks)).waiting_blocks == 0
    )


def test_clusters(fake: FakeDriver, device: CudaDevice) -> None:
    kernel = kernel_of()
    device.launch(kernel, Launch((16, 2, 1), (128, 1, 1), 0, (8, 1, 1)), (0, 1.0), 0)
    ((name, value),) = fake.launches[0].attributes
    assert name == "CLUSTER_DIMENSION"
    assert (value.clusterDim.x, value.clusterDim.y, value.clusterDim.z) == (8, 1, 1)
    assert not fake.attributes
    device.launch(kernel, Launch((16, 1, 1), (128, 1, 1), 0, (16, 1, 1)), (0, 1.0), 0)
    assert fake.attributes == {(0x401, "NON_PORTABLE_CLUSTER_SIZE_ALLOWED"): 1}
    fake.clusters = 0
    with pytest.raises(LaunchError, match="k: no cluster of 4 blocks fits on the device"):
        device.launch(kernel, Launch((16, 1, 1), (128, 1, 1), 0, (4, 1, 1)), (0, 1.0), 0)


def test_launches_that_share_processors_divide_their_memory_alike(fake: FakeDriver, device: CudaDevice) -> None:
    kernel = kernel_of()
    device.launch(kernel, ONE, (0, 1.0), 0)
    assert not fake.attributes
    device.launch(kernel, dataclasses.replace(ONE, shares_sms=True), (0, 1.0), 0)
    assert fake.attributes == {(0x401, "PREFERRED_SHARED_MEMORY_CARVEOUT"): 100}
    fake.attributes.clear()
    device.launch(kernel, Launch((7, 1, 1), (64, 1, 1), 64, shares_sms=True), (0, 1.0), 0)
    assert not fake.attributes
    device.launch(kernel, Launch((9, 1, 1), (64, 1, 1), 64), (0, 1.0), 0)
    assert fake.attributes == {(0x401, "PREFERRED_SHARED_MEMORY_CARVEOUT"): -1}


def test_memory_that_is_let_go_inside_a_capture(fake: FakeDriver, device: CudaDevice) -> None:
    """A collection of garbage may come at any time: what was there before is no part of the graph."""
    before = device.allocate(64, 3)
    fake.capture = 5
    within, left = device.allocate(64, 3), device.allocate(64, 3)
    device.release(within, 3)
    device.release(before, 3)
    assert fake.freed == [within.address]
    fake.capture = 0
    keep_until_done(device, 0, [object()])
    assert fake.freed == [within.address, before.address]
    fake.fail_names["cuMemFreeAsync"] = 1
    device.release(left, 3)  # memory of a graph that was never launched is not there


def test_copies_from_and_to_the_host_do_not_end_a_capture(fake: FakeDriver, device: CudaDevice) -> None:
    a = device.allocate(64, 3)
    fake.capture = 5
    fake.calls.clear()
    for copy in (
        lambda data: device.copy_from_host(a.address, data, 3),
        lambda data: device.copy_to_host(data, a.address, 3),
    ):
        with pytest.raises(
            LaunchError, match="copies between host and device memory wait for the stream, which cannot"
        ):
            copy(np.zeros(16, np.float32))
    assert not [name for name in fake.names() if name.startswith(("cuMemcpy", "cuStreamSync"))]


def test_what_is_done_while_another_thread_captures(fake: FakeDriver, device: CudaDevice) -> None:
    fake.others_capture = True
    a = device.allocate(64, 3)
    device.launch(kernel_of(), ONE, (a.address, 1.0), 3)
    device.copy_to_host(np.zeros(16, np.float32), a.address, 3)
    first, second = device.create_event(), device.create_event()
    device.record_event(first, 3)
    device.record_event(second, 3)
    device.elapsed_ms(first, second)
    wanted = {"cuModuleLoadData", "cuMemPoolCreate", "cuStreamSynchronize", "cuEventSynchronize"}
    assert wanted <= set(fake.names())
    assert (fake.ended_captures, fake.mode) == (0, 0)


def test_first_launch_inside_a_capture(fake: FakeDriver, device: CudaDevice) -> None:
    kernel = kernel_of()
    fake.capture = 5
    with pytest.raises(
        LaunchError, match="k is launched for the first time with blocks of 128 threads inside a stream capture"
    ):
        device.launch(kernel, ONE, (0, 1.0), 3)
    fake.capture = 0
    device.launch(kernel, ONE, (0, 1.0), 3)
    fake.capture = 5
    device.launch(kernel, Launch((7, 1, 1), (64, 1, 1)), (0, 1.0), 3)
    with pytest.raises(LaunchError, match="blocks of 512 threads inside a stream capture"):
        device.launch(kernel, Launch((1, 1, 1), (512, 1, 1)), (0, 1.0), 3)


def test_parameter_sizes_of_raw_kernels_are_cross_checked(fake: FakeDriver, device: CudaDevice) -> None:
    raw = (RawParameter("p", "struct of 16 bytes", RawKind.struct, "", 16, 8),)
    fake.parameter_sizes = [16]
    kernel = kernel_of(parameters=raw)
    device.launch_packed(kernel, ONE, (bytes(range(16)),), 0)
    assert parameter(fake.launches[0], 0, "16s") == bytes(range(16))
    fake.parameter_sizes = [24]
    with pytest.raises(LaunchError, match=r"k: parameter 0 \(p\) is declared with 16 bytes and has 24 in the binary"):
        device.launch_packed(kernel_of(parameters=raw, source="other"), ONE, (bytes(16),), 0)


def test_events(device: CudaDevice) -> None:
    first, second = device.create_event(), device.create_event()
    device.record_event(first, 0)
    device.record_event(second, 0)
    assert device.elapsed_ms(first, second) == 0.25
    device.destroy_event(first)
    assert device.create_stream() == 0x500


# --- every failing call is told ---


def scenario(fake: FakeDriver) -> None:
    """Something of everything."""
    device = CudaDevice(0, KernelVariants(no_compiler))
    kernel = kernel_of()
    a = device.allocate(64, 0)
    data = np.zeros(16, np.float32)
    device.copy_from_host(a.address, data, 0)
    device.fill(a.address, b"\1\2\3\4\5\6\7\10", 2, 0)
    device.semaphores(4, 0)
    device.launch(kernel, Launch((4, 1, 1), (128, 1, 1), 100000, (2, 1, 1), True), (a.address, 1.0), 0)
    device.launch(kernel, Launch((16, 1, 1), (128, 1, 1), 100000, (16, 1, 1)), (a.address, 1.0), 0)
    device.copy(a.address, a.address + 32, 32, 0)
    device.copy_to_host(data, a.address, 0)
    first, second = device.create_event(), device.create_event()
    device.record_event(first, device.create_stream())
    device.record_event(second, 0)
    device.elapsed_ms(first, second)
    device.destroy_event(first)
    device.release(a, 0)


def test_every_failing_call_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch)
    scenario(fake)
    calls = fake.names()
    assert len(calls) > 60
    for number, name in enumerate(calls):
        fake = install(monkeypatch)
        fake.fail_at = number
        with pytest.raises(LaunchError, match=f"{name.removesuffix('_v3')} failed: CUDA_ERROR_INVALID_VALUE"):
            scenario(fake)


# --- raw kernels, from the arguments to the launch ---

RAW = """
struct params { float a; int b; };
extern "C" __global__ void scale(float* y, const float* x, float a, long long n, params p) { y[0] = x[0] * a * n * p.a; }
extern "C" __global__ void __launch_bounds__(FUSER_MAX_THREADS) growing(float* y) { *y = 1; }
"""


@pytest.fixture
def raw_device(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> CudaDevice:
    from fuser.runtime.devices import device as registry

    made = CudaDevice(0, KernelVariants())
    monkeypatch.setattr(registry, "_devices", {("cuda", 0): made})
    return made


def test_raw_kernel_runs(fake: FakeDriver, raw_device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.parameter_sizes = [8, 8, 4, 8, 8]
    kernel = RtcKernel(RAW, "scale").compile()
    y, x = np.zeros(8, np.float32), np.arange(8, dtype=np.float32)
    seen: dict[str, Any] = {}
    name = "_cuLaunchKernelEx"
    original = getattr(fake, name)

    def launch(*arguments: Any) -> Any:
        status = original(*arguments)
        (last,) = fake.launches
        seen.update(
            y=parameter(last, 0, "Q"), x=parameter(last, 1, "Q"), a=parameter(last, 2, "f"), n=parameter(last, 3, "q")
        )
        seen["p"] = parameter(last, 4, "8s")
        raw_device.copy(seen["y"], seen["x"], 32, 0)  # what the kernel would write
        return status

    monkeypatch.setattr(fake, name, launch)
    elapsed = kernel.run((y, x, 2, 2**40, b"12345678"), LaunchParams(1, 1, 1, 32, 1, 1))
    assert elapsed == 0.25
    assert (seen["a"], seen["n"], seen["p"]) == (2.0, 2**40, b"12345678")
    assert np.array_equal(y, x)
    assert sorted(fake.freed) == sorted([seen["y"], seen["x"]])
    names = fake.names()
    assert names.index("cuModuleLoadData") < names.index("cuEventRecord") < names.index("cuLaunchKernelEx")
    # x is const: copied in, not back.
    assert names.count("cuMemcpyHtoDAsync") == 2
    assert names.count("cuMemcpyDtoHAsync") == 1
    assert names.count("cuEventDestroy") == names.count("cuEventCreate") == 2


def test_a_raw_kernel_is_not_measured_inside_a_capture(fake: FakeDriver, raw_device: CudaDevice) -> None:
    fake.parameter_sizes = [8]
    kernel = RtcKernel(RAW, "growing").compile()
    fake.capture = 5
    fake.calls.clear()
    with pytest.raises(LaunchError, match=r"growing: run\(\) waits for the kernel and measures it"):
        kernel.run((np.zeros(8, np.float32),), LaunchParams(1, 1, 1, 32, 1, 1), stream=3)
    assert not [name for name in fake.names() if name.startswith(("cuMem", "cuEvent"))]


def test_same_numpy_array_twice_is_one_copy(fake: FakeDriver, raw_device: CudaDevice) -> None:
    fake.parameter_sizes = [8, 8, 4, 8, 8]
    kernel = RtcKernel(RAW, "scale").compile()
    x = np.arange(16, dtype=np.float32)
    kernel.run((x, x, 1.0, 1, bytes(8)), LaunchParams(1, 1, 1, 32, 1, 1))
    assert parameter(fake.launches[0], 0, "Q") == parameter(fake.launches[0], 1, "Q")
    assert fake.names().count("cuMemcpyDtoHAsync") == 1
    with pytest.raises(LaunchError, match="two NumPy arguments overlap in part"):
        kernel.run((x[:8], x[4:12], 1.0, 1, bytes(8)), LaunchParams(1, 1, 1, 32, 1, 1))
    assert len(fake.freed) == len(fake.memory)


def test_failed_run_frees_what_it_took(fake: FakeDriver, raw_device: CudaDevice) -> None:
    fake.parameter_sizes = [8, 8, 4, 8, 8]
    kernel = RtcKernel(RAW, "scale").compile()
    fake.fail_names["cuLaunchKernelEx"] = 700
    y, x = np.zeros(8, np.float32), np.zeros(8, np.float32)
    with pytest.raises(LaunchError, match="launch of scale with grid"):
        kernel.run((y, x, 1.0, 1, bytes(8)), LaunchParams(1, 1, 1, 32, 1, 1))
    assert len(fake.freed) == 2
    assert fake.names().count("cuEventDestroy") == 2


def test_raw_kernel_grows(fake: FakeDriver, raw_device: CudaDevice) -> None:
    fake.parameter_sizes = [8]
    kernel = RtcKernel(RAW, "growing").compile()
    for threads in (128, 1024, 256, 512):
        kernel.run((np.zeros(8, np.float32),), LaunchParams(1, 1, 1, threads, 1, 1))
    assert [launch.function for launch in fake.launches] == [0x401, 0x402, 0x401, 0x402]
    assert raw_device.variants.counters().compiles == 1


def test_stream_objects(fake: FakeDriver, raw_device: CudaDevice) -> None:
    class Stream:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 0x55

    fake.parameter_sizes = [8]
    kernel = RtcKernel(RAW, "growing").compile()
    for stream, handle in ((None, 0), (0x44, 0x44), (Stream(), 0x55)):
        kernel.run((np.zeros(8, np.float32),), LaunchParams(1, 1, 1, 32, 1, 1), stream=stream)
        assert fake.launches[-1].stream == handle


def test_own_tensors_are_ordered_after_their_stream(fake: FakeDriver, raw_device: CudaDevice) -> None:
    from fuser.runtime.arrays.device_tensor import DeviceTensor

    fake.parameter_sizes = [8]
    kernel = RtcKernel(RAW, "growing").compile()
    tensor = DeviceTensor.empty(raw_device, (4, 8), DataType.Float, stream=0x77)
    kernel.run((tensor,), LaunchParams(1, 1, 1, 32, 1, 1), stream=0x44)
    assert parameter(fake.launches[0], 0, "Q") == tensor.address
    assert [arguments[0] for name, arguments in fake.calls if name == "cuStreamWaitEvent"] == [0x44]
    kernel.run((tensor,), LaunchParams(1, 1, 1, 32, 1, 1), stream=0x77)
    assert fake.names().count("cuStreamWaitEvent") == 1
    with pytest.raises(LaunchTypeError, match="expected an array of float32, got float64"):
        kernel.run((DeviceTensor.empty(raw_device, (8,), DataType.Double),), LaunchParams(1, 1, 1, 32, 1, 1))
    with pytest.raises(LaunchTypeError, match=r"got shape \(8, 4\) with strides \(1, 8\)"):
        kernel.run((tensor.view((8, 4), (1, 8)),), LaunchParams(1, 1, 1, 32, 1, 1))


class _Bad(RuntimeError):
    """As torch calls it, which has no MemoryError."""


_Bad.__name__ = "OutOfMemoryError"


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (RuntimeError("no kernel"), LaunchError, "torch does not compute topk(arg Half[4]) on this device: no kernel"),
        (
            AssertionError("without CUDA"),
            LaunchError,
            "torch does not compute topk(arg Half[4]) on this device: without CUDA",
        ),
        (MemoryError("9 GB"), LaunchMemoryError, "torch has no memory for topk(arg Half[4]) on this device: 9 GB"),
        (_Bad("9 GB"), LaunchMemoryError, "torch has no memory for topk(arg Half[4]) on this device: 9 GB"),
    ],
)
def test_what_a_library_refuses_is_told_in_its_words(
    fake: FakeDriver, device: CudaDevice, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type, message: str
) -> None:
    call = LibraryCall("topk", "torch", (Operand("arg", DataType.Half, (4,), (1,)),), ())

    def run(*parts: Any) -> None:
        assert fake.current == CONTEXT, "libraries find the context of the device"
        raise error

    monkeypatch.setattr(cuda_device, "_library", lambda call: SimpleNamespace(run=run))
    fake.current = 0
    with pytest.raises(LaunchError, match=re.escape(message)) as told:
        device.call_library(call, (1,), 0)
    assert type(told.value) is kind
