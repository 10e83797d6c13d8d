"""What a GPU does and how long it takes, by small kernels of the project's own: rates and latencies of its `DeviceInfo`.

    memory           a copy of far more than L2, by all SMs, and by one alone
    L2               reads of a quarter of it, again and again
    latencies        a chain of loads, each of which says where the next one is; of exchanges, one behind another, by the clock
                     of the SM that takes part
    one address      an atomic operation of each block, many times

Times between events have what the host takes for a launch (33 us beside an H200): that of a kernel that does nothing is taken
off. So a launch itself is taken over from the device as it was, as is what needs another load than one kernel: latency while
memory is busy, launches behind one another, the start of a cluster. Each figure is the median of five.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from fuser.ir.device_info import DeviceInfo

COPIED_BYTES = 256 * 2**20
"""Of a copy, each way: more than any L2."""
CHAIN_BYTES = 33 * 128
"""From one place of a chain to the next: a line of its own, in other parts of memory."""
PLACES, NEAR_PLACES = 4096, 64
"""Of a chain that has to come from memory, and of one that L2 keeps."""
STEPS = 1000
"""Of what is done again and again."""
REPEATS = 5

SOURCE = r"""
typedef long long i64;
#define KERNEL extern "C" __global__ void

KERNEL nothing(uint4* data, i64* found, i64 n, int steps) {}

KERNEL ticks(uint4* data, i64* found, i64 n, int steps) {
  i64 from, to, start = clock64();
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(from));
  while (clock64() - start < n) {}
  i64 end = clock64();
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(to));
  found[0] = end - start;
  found[1] = to - from;
}

KERNEL copy(uint4* data, i64* found, i64 n, int steps) {
  const uint4* __restrict__ from = data;
  uint4* __restrict__ to = data + n;
  i64 all = (i64)gridDim.x * blockDim.x;
#pragma unroll 8
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += all) to[i] = from[i];
}

KERNEL read_again(uint4* data, i64* found, i64 n, int steps) {
  i64 all = (i64)gridDim.x * blockDim.x;
  unsigned sum = 0;
  for (int step = 0; step < steps; ++step)
#pragma unroll 8
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += all) {
      uint4 v = __ldcg(data + i);
      sum += v.x ^ v.y ^ v.z ^ v.w;
    }
  if (sum == 0x12345678u) found[2] = sum;
}

KERNEL link(uint4* data, i64* found, i64 n, int steps) {
  for (i64 i = threadIdx.x; i < n; i += blockDim.x) *(i64*)((char*)data + i * steps) = (i + 1) % n * steps;
}

KERNEL follow(uint4* data, i64* found, i64 n, int steps) {
  i64 at = 0, start = clock64();
  for (int step = 0; step < steps; ++step) at = __ldcg((const i64*)((char*)data + at));
  found[0] = clock64() - start;
  found[1] = at;
}

KERNEL follow_shared(uint4* data, i64* found, i64 n, int steps) {
  __shared__ volatile int next[64];
  for (int i = 0; i < 64; ++i) next[i] = (i + 7) % 64;
  int at = 0;
  i64 start = clock64();
  for (int step = 0; step < steps; ++step) at = next[at];
  found[0] = clock64() - start;
  found[1] = at;
}

KERNEL shuffle(uint4* data, i64* found, i64 n, int steps) {
  int value = threadIdx.x;
  i64 start = clock64();
  for (int step = 0; step < steps; ++step) value = __shfl_xor_sync(0xffffffffu, value, 1) + 1;
  i64 end = clock64();
  if (threadIdx.x == 0) found[0] = end - start;
  if (value == 0x12345678) found[1] = value;
}

KERNEL meet_in_block(uint4* data, i64* found, i64 n, int steps) {
  i64 start = clock64();
  for (int step = 0; step < steps; ++step) __syncthreads();
  if (threadIdx.x == 0) found[0] = clock64() - start;
}

#if __CUDA_ARCH__ >= 900
KERNEL meet_in_cluster(uint4* data, i64* found, i64 n, int steps) {
  __shared__ volatile int told[64];
  unsigned rank, blocks, there;
  asm("mov.u32 %0, %cluster_ctarank;" : "=r"(rank));
  asm("mov.u32 %0, %cluster_nctarank;" : "=r"(blocks));
  unsigned mine = (unsigned)__cvta_generic_to_shared((const void*)(told + rank));
  int value = threadIdx.x;
  i64 start = clock64();
  for (int step = 0; step < steps; ++step) {
    if (threadIdx.x < blocks) {
      asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(mine), "r"(threadIdx.x));
      asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(there), "r"(value) : "memory");
    }
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    value = told[threadIdx.x % blocks] + 1;
  }
  i64 end = clock64();
  if (threadIdx.x == 0 && blockIdx.x == 0) found[0] = end - start;
  if (value == 0x12345678) found[1] = value;
}
#endif

KERNEL meet_in_grid(uint4* data, i64* found, i64 n, int steps) {
  unsigned long long* count = (unsigned long long*)(found + 2);
  i64 start = clock64();
  for (int step = 0; step < steps; ++step) {
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      atomicAdd(count, 1ull);
      while (*(volatile unsigned long long*)count < (step + 1ull) * gridDim.x) {}
      __threadfence();
    }
    __syncthreads();
  }
  if (threadIdx.x == 0 && blockIdx.x == 0) found[0] = clock64() - start;
}

KERNEL count_at_one_address(uint4* data, i64* found, i64 n, int steps) {
  unsigned long long last = 0;
  for (int step = 0; step < steps; ++step) last += atomicAdd((unsigned long long*)(found + 2), 1ull);
  if (last == 1) found[3] = last;
}
"""
SIGNATURE = "uint4* data, long long* found, long long n, int steps"
"""Of each kernel: memory, four numbers that are zero at first and come back, two numbers."""

MEASURED = (
    "memory_bytes_per_ns",
    "rates.clock_ghz",
    "rates.sm_bytes_per_ns",
    "rates.l2_bytes_per_ns",
    "latencies.dram_ns",
    "latencies.l2_ns",
    "latencies.shared_ns",
    "latencies.shuffle_ns",
    "latencies.block_barrier_ns",
    "latencies.cluster_ns",
    "latencies.cluster_block_ns",
    "latencies.grid_ns",
    "latencies.grid_block_ns",
    "latencies.atomic_ns",
)
"""Fields of `DeviceInfo` that `probe` finds. Those of clusters stay where a device has none."""


class Bench(Protocol):
    """What runs the kernels of `SOURCE`."""

    def run(
        self, entry: str, n: int, steps: int, blocks: int = 1, threads: int = 1, cluster: int = 1
    ) -> tuple[float, Sequence[int]]:
        """(nanoseconds from event to event, the numbers found) of one launch."""
        ...


def probe(device: DeviceInfo, bench: Bench) -> DeviceInfo:
    """`device` with the rates and latencies that are measured. Its capacities are taken as they are."""

    def median(entry: str, n: int, steps: int = STEPS, **launch: int) -> tuple[float, float, float]:
        """Of nanoseconds, and of the first two numbers."""
        runs = [bench.run(entry, n, steps, **launch) for _ in range(1 + REPEATS)][1:]
        times, first, second = zip(*((time, found[0], found[1]) for time, found in runs), strict=True)
        return statistics.median(times), statistics.median(first), statistics.median(second)

    _, cycles, ns = median("ticks", 2_000_000)
    clock = cycles / ns
    launch, _, _ = median("nothing", 0)

    def of_steps(entry: str, n: int = 0, steps: int = STEPS, **at: int) -> float:
        """Nanoseconds of one step, by the SM's clock."""
        return median(entry, n, steps, **at)[1] / clock / steps

    vectors, threads = COPIED_BYTES // 16, device.max_threads_per_block
    all_sms, _, _ = median("copy", vectors, blocks=-(-vectors // 256), threads=256)
    part = vectors // 16
    one_sm, _, _ = median("copy", part, blocks=1, threads=threads)
    in_l2, rounds = device.l2_bytes // 4 // 16, 32
    from_l2, _, _ = median("read_again", in_l2, rounds, blocks=8 * device.sm_count, threads=256)

    far: list[float] = []
    for _ in range(REPEATS):
        bench.run("link", PLACES, CHAIN_BYTES, threads=256)
        bench.run("read_again", 2 * vectors, 1, blocks=8 * device.sm_count, threads=256)
        # The last of what was read is in L2: the chain is not.
        far.append(bench.run("follow", 0, PLACES - 1)[1][0] / clock / (PLACES - 1))
    bench.run("link", NEAR_PLACES, CHAIN_BYTES, threads=256)
    near = of_steps("follow", steps=PLACES)

    half = max(1, device.sm_count // 2)
    of_half = of_steps("meet_in_grid", blocks=half, threads=256)
    of_all = of_steps("meet_in_grid", blocks=device.sm_count, threads=256)
    grid_block = max(0.0, (of_all - of_half) / max(1, device.sm_count - half))
    counted, _, _ = median("count_at_one_address", 0, blocks=device.sm_count)

    latencies = replace(
        device.latencies,
        dram_ns=statistics.median(far),
        l2_ns=near,
        shared_ns=of_steps("follow_shared"),
        shuffle_ns=of_steps("shuffle", threads=device.warp_size),
        block_barrier_ns=of_steps("meet_in_block", threads=256),
        grid_ns=max(0.0, of_all - grid_block * device.sm_count),
        grid_block_ns=grid_block,
        atomic_ns=max(0.0, counted - launch) / (device.sm_count * STEPS),
    )
    if device.max_cluster >= 8:
        of_two = of_steps("meet_in_cluster", blocks=2, threads=256, cluster=2)
        of_eight = of_steps("meet_in_cluster", blocks=8, threads=256, cluster=8)
        each = max(0.0, (of_eight - of_two) / 6)
        latencies = replace(latencies, cluster_ns=max(0.0, of_two - 2 * each), cluster_block_ns=each)
    rates = replace(
        device.rates,
        clock_ghz=clock,
        sm_bytes_per_ns=2 * 16 * part / (one_sm - launch),
        l2_bytes_per_ns=16 * in_l2 * rounds / (from_l2 - launch),
    )
    memory = 2 * COPIED_BYTES / (all_sms - launch)
    return replace(device, memory_bytes_per_ns=memory, rates=rates, latencies=latencies)


class GpuBench:
    """Runs them on a CUDA device. Raises NoDeviceError where there is none, LaunchMemoryError without 512 MiB to spare."""

    def __init__(self, device: Any) -> None:
        from fuser.runtime.rtc_kernel import RtcKernel

        self._device = device
        self._rtc = RtcKernel
        self._kernels: dict[str, Any] = {}
        self._memory = device.allocate(2 * COPIED_BYTES, 0)
        self._words = _Words(self._memory.address, 2 * COPIED_BYTES)

    def run(
        self, entry: str, n: int, steps: int, blocks: int = 1, threads: int = 1, cluster: int = 1
    ) -> tuple[float, Sequence[int]]:
        """See Bench."""
        import numpy as np

        from fuser.runtime.kernels.launch_params import LaunchParams

        kernel = self._kernels.get(entry)
        if kernel is None:
            kernel = self._kernels[entry] = self._rtc(SOURCE, entry, self._device, SIGNATURE).compile()
        found = np.zeros(4, np.int64)
        launch = LaunchParams(blocks, 1, 1, threads, 1, 1, cluster=(cluster, 1, 1) if cluster > 1 else None)
        milliseconds = kernel.run((self._words, found, n, steps), launch)
        return milliseconds * 1e6, [int(value) for value in found]

    def release(self) -> None:
        """Give the memory back."""
        self._device.release(self._memory, 0)


class _Words:
    """Memory of a device, in the words of which `uint4` has four, as other libraries show theirs."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes // 4,),
            "typestr": "<u4",
            "data": (address, False),
            "version": 3,
        }
