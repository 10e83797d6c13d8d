"""The device for real: memory, streams, loading, launches, limits."""

import threading

import numpy as np
import pytest

from fuser.errors import LaunchError
from fuser.runtime import driver
from fuser.runtime.devices.cuda_device import CudaDevice
from fuser.runtime.kernels.variants import KernelVariants
from fuser.runtime.launch import Launch
from fuser.runtime.rtc_kernel import RtcKernel

SOURCE = r"""
extern "C" __global__ void add(float* y, const float* x, float a, long long n) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + a;
}
extern "C" __global__ void __launch_bounds__(FUSER_MAX_THREADS) reverse(float* y, int n) {
    extern __shared__ float s[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = y[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = s[n - 1 - i];
}
extern "C" __global__ void grid_wait(int* count, int* seen, int blocks) {
    if (threadIdx.x == 0) {
        atomicAdd(count, 1);
        while (atomicAdd(count, 0) < blocks) { }
        seen[blockIdx.x] = atomicAdd(count, 0);
    }
}
extern "C" __global__ void cluster_rank(unsigned* y) {
    unsigned rank = 0, size = 0;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
#endif
    if (threadIdx.x == 0) y[blockIdx.x] = size * 100 + rank;
}
"""


@pytest.fixture(scope="module")
def device() -> CudaDevice:
    return CudaDevice(0, KernelVariants())


@pytest.fixture(scope="module")
def stream(device: CudaDevice) -> int:
    return device.create_stream()


def to_host(device: CudaDevice, address: int, like: np.ndarray, stream: int) -> np.ndarray:
    result = np.empty_like(like)
    device.copy_to_host(result, address, stream)
    return result


def test_info(device: CudaDevice) -> None:
    info = device.info
    assert info.sm_count > 0
    assert info.max_threads_per_block == 1024
    assert info.shared_per_block_optin >= info.shared_per_block == 49152
    assert info.memory_bytes_per_ns > 50
    assert info.arch.startswith("sm_")
    assert driver.device_count() >= 1


def test_memory(device: CudaDevice, stream: int) -> None:
    data = np.random.default_rng(0).normal(size=100_000).astype(np.float32)
    a, b = device.allocate(data.nbytes, stream), device.allocate(data.nbytes, stream)
    assert a.address % 256 == b.address % 256 == 0
    device.copy_from_host(a.address, data, stream)
    device.copy(b.address, a.address, data.nbytes, stream)
    assert np.array_equal(to_host(device, b.address, data, stream), data)
    device.release(a, stream)
    device.release(b, stream)


@pytest.mark.parametrize(
    "pattern", [b"\x01", b"\x01\x02", b"\x01\x02\x03\x04", bytes(range(8)), bytes(range(16)), bytes(16)]
)
def test_fill(device: CudaDevice, stream: int, pattern: bytes) -> None:
    count = 1001
    a = device.allocate(len(pattern) * count, stream)
    device.fill(a.address, pattern, count, stream)
    result = to_host(device, a.address, np.empty(len(pattern) * count, np.uint8), stream)
    assert result.tobytes() == pattern * count
    device.release(a, stream)


def test_launch(device: CudaDevice, stream: int) -> None:
    kernel = RtcKernel(SOURCE, "add", device=device).compile().kernel
    x = np.arange(1000, dtype=np.float32)
    a, b = device.allocate(x.nbytes, stream), device.allocate(x.nbytes, stream)
    device.copy_from_host(a.address, x, stream)
    for n in range(3):
        device.launch(kernel, Launch((8, 1, 1), (128, 1, 1)), (b.address, a.address, float(n), 1000), stream)
        assert np.array_equal(to_host(device, b.address, x, stream), x + n)


def test_dynamic_shared_memory_above_48_kb_on_every_variant(device: CudaDevice, stream: int) -> None:
    kernel = RtcKernel(SOURCE, "reverse", device=device).compile().kernel
    n = min(100_000, device.info.shared_per_block_optin) // 4
    x = np.arange(n, dtype=np.float32)
    a = device.allocate(x.nbytes, stream)
    for threads in (256, 1024, 128):
        device.copy_from_host(a.address, x, stream)
        device.launch(kernel, Launch((1, 1, 1), (threads, 1, 1), n * 4), (a.address, n), stream)
        assert np.array_equal(to_host(device, a.address, x, stream), x[::-1])
    with pytest.raises(LaunchError, match="bytes of shared memory"):
        device.launch(
            kernel, Launch((1, 1, 1), (128, 1, 1), device.info.shared_per_block_optin + 4), (a.address, n), stream
        )


def test_cooperative_grid(device: CudaDevice, stream: int) -> None:
    kernel = RtcKernel(SOURCE, "grid_wait", device=device).compile().kernel
    blocks = device.info.sm_count
    a = device.allocate(4 * (blocks + 1), stream)
    device.fill(a.address, bytes(4), blocks + 1, stream)
    launch = Launch((blocks, 1, 1), (1024, 1, 1), cooperative=True)
    device.launch(kernel, launch, (a.address, a.address + 4, blocks), stream)
    seen = to_host(device, a.address + 4, np.empty(blocks, np.int32), stream)
    assert seen.tolist() == [blocks] * blocks
    with pytest.raises(LaunchError, match="and the device holds"):
        device.launch(
            kernel, Launch((100 * blocks, 1, 1), (1024, 1, 1), cooperative=True), (a.address, a.address, 1), stream
        )


@pytest.mark.parametrize("size", [2, 8, 16])
def test_clusters(device: CudaDevice, stream: int, size: int) -> None:
    if device.info.compute_capability < (9, 0):
        pytest.skip("clusters need compute capability 9.0")
    if size > 8 and device.info.compute_capability[0] == 12:
        pytest.skip("clusters of more than 8 blocks need a data-centre GPU")
    kernel = RtcKernel(SOURCE, "cluster_rank", device=device).compile().kernel
    a = device.allocate(4 * 32, stream)
    device.launch(kernel, Launch((32, 1, 1), (128, 1, 1), 0, (size, 1, 1)), (a.address,), stream)
    ranks = to_host(device, a.address, np.empty(32, np.uint32), stream)
    assert ranks.tolist() == [size * 100 + i % size for i in range(32)]


def test_semaphores(device: CudaDevice, stream: int) -> None:
    a = device.semaphores(100, stream)
    assert to_host(device, a, np.empty(100, np.int32), stream).tolist() == [0] * 100
    b = device.semaphores(100_000, stream)
    assert not to_host(device, b, np.empty(100_000, np.int32), stream).any()
    assert device.semaphores(1, device.create_stream()) != b


def test_time(device: CudaDevice, stream: int) -> None:
    first, second = device.create_event(), device.create_event()
    a = device.allocate(1 << 26, stream)
    device.record_event(first, stream)
    device.fill(a.address, bytes(4), 1 << 24, stream)
    device.record_event(second, stream)
    assert 0 < device.elapsed_ms(first, second) < 1000
    device.release(a, stream)


def test_threads_without_a_context(device: CudaDevice) -> None:
    kernel = RtcKernel(SOURCE, "add", device=device).compile().kernel
    results: dict[int, bool] = {}

    def work(number: int) -> None:
        own = device.create_stream()
        x = np.full(256, number, np.float32)
        a = device.allocate(x.nbytes, own)
        device.copy_from_host(a.address, x, own)
        for _ in range(50):
            device.launch(kernel, Launch((1, 1, 1), (256, 1, 1)), (a.address, a.address, 1.0, 256), own)
        results[number] = bool((to_host(device, a.address, x, own) == number + 50).all())
        device.release(a, own)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == dict.fromkeys(range(8), True)


def test_capture_of_a_cold_kernel_is_refused_and_the_capture_goes_on(device: CudaDevice) -> None:
    kernel = RtcKernel(SOURCE, "add", device=device).compile().kernel
    fresh = CudaDevice(0, KernelVariants())
    own = fresh.create_stream()
    a = fresh.allocate(1024, own)
    fresh.fill(a.address, bytes(4), 256, own)
    fresh.synchronize(own)
    bindings = driver.bindings()
    launch = Launch((1, 1, 1), (256, 1, 1))
    mode = bindings.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    driver.call("cuStreamBeginCapture", own, mode)
    with pytest.raises(LaunchError, match="run it once before the capture begins"):
        fresh.launch(kernel, launch, (a.address, a.address, 1.0, 256), own)
    driver.call("cuStreamEndCapture", own)
    fresh.launch(kernel, launch, (a.address, a.address, 1.0, 256), own)
    driver.call("cuStreamBeginCapture", own, mode)
    fresh.launch(kernel, launch, (a.address, a.address, 1.0, 256), own)
    graph = driver.call("cuStreamEndCapture", own)
    executable = driver.call("cuGraphInstantiate", graph, 0)
    for _ in range(3):
        driver.call("cuGraphLaunch", executable, own)
    assert to_host(fresh, a.address, np.empty(256, np.float32), own).tolist() == [4.0] * 256


def test_second_device() -> None:
    if driver.device_count() < 2:
        pytest.skip("one device")
    first, second = CudaDevice(0), CudaDevice(1)
    kernel = RtcKernel(SOURCE, "add", device=second).compile().kernel
    own = second.create_stream()
    a = second.allocate(1024, own)
    second.fill(a.address, bytes(4), 256, own)
    first.synchronize(0)
    second.launch(kernel, Launch((1, 1, 1), (256, 1, 1)), (a.address, a.address, 1.0, 256), own)
    assert to_host(second, a.address, np.empty(256, np.float32), own).tolist() == [1.0] * 256
