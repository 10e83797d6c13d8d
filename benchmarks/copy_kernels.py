"""Plain copies: what a kernel can reach at a number of bytes, and a kernel that does nothing. Needs torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.timing import Stopwatch, Timing
from fuser import HostProgram, LaunchKernel, LaunchParams, RtcKernel, extent

_SOURCE = """
template <int unroll>
__global__ void __launch_bounds__(FUSER_MAX_THREADS) copy(int4* __restrict__ to, const int4* __restrict__ from, long long n) {
  long long first = (long long)blockIdx.x * (blockDim.x * unroll) + threadIdx.x;
  int4 kept[unroll];
#pragma unroll
  for (int k = 0; k < unroll; k++) if (first + k * blockDim.x < n) kept[k] = from[first + k * blockDim.x];
#pragma unroll
  for (int k = 0; k < unroll; k++) if (first + k * blockDim.x < n) to[first + k * blockDim.x] = kept[k];
}
extern "C" __global__ void nothing(int* unused) {}
"""
UNROLLS = (1, 2, 4)
BLOCKS = (128, 256, 512)


@dataclass(frozen=True, slots=True)
class BestCopy:
    """The fastest of the family at one size. `nbytes` is read plus written."""

    nbytes: int
    time: Timing
    unroll: int
    block: int


class Copies:
    """The family, compiled once; results by number of bytes."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        self._stopwatch = stopwatch
        self._kernels = {u: RtcKernel(_SOURCE, f"copy<{u}>").compile() for u in UNROLLS}
        self._nothing = RtcKernel(_SOURCE, "nothing").compile()

    def best(self, nbytes: int) -> BestCopy:
        """The fastest copy that moves `nbytes`: half of them from one buffer to another."""
        import torch

        # torch has no int4: four of its int32 are one element of the kernel.
        words = max(1, nbytes // 2 // 16) * 4
        source = torch.randint(-(2**31), 2**31 - 1, (words,), dtype=torch.int32, device="cuda")
        target = torch.zeros_like(source)
        tried: list[tuple[float, int, int]] = []
        for unroll in UNROLLS:
            for block in BLOCKS:
                run = self._run(unroll, block, source, target)
                tried.append((self._stopwatch.measure(run, milliseconds=3, least=8).median, unroll, block))
        if not torch.equal(source, target):
            raise RuntimeError("a copy kernel did not copy")
        found = [
            BestCopy(nbytes, self._stopwatch.measure(self._run(u, b, source, target), milliseconds=20), u, b)
            for _, u, b in sorted(tried)[:3]
        ]
        return min(found, key=lambda f: f.time.median)

    def _run(self, unroll: int, block: int, source: Any, target: Any) -> Callable[[], object]:
        n = source.numel() // 4
        grid = -(-n // (block * unroll))
        program = HostProgram(
            inputs=("to", "from"),
            outputs=(),
            instructions=(
                LaunchKernel(
                    self._kernels[unroll].kernel,
                    ("to", "from", extent("from", 0) // 4),
                    LaunchParams(grid, 1, 1, block, 1, 1),
                ),
            ),
        )
        return lambda: program.run([target, source])

    def empty_kernel(self) -> Timing:
        """One block that returns at once."""
        import torch

        unused = torch.zeros(1, dtype=torch.int32, device="cuda")
        launch = LaunchKernel(self._nothing.kernel, ("unused",), LaunchParams(1, 1, 1, 32, 1, 1))
        program = HostProgram(inputs=("unused",), outputs=(), instructions=(launch,))
        return self._stopwatch.measure(lambda: program.run([unused]), milliseconds=10, least=100)


class CopyTimes:
    """Copy times of any number of bytes, from measurements at powers of sqrt(2) that are made once each."""

    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._measured: dict[int, float] = {}

    def at(self, nbytes: int) -> float:
        """Microseconds, linear between the two measured sizes around `nbytes`."""
        step = math.floor(2 * math.log2(max(nbytes, 64)))
        below, above = 2 ** (step / 2), 2 ** ((step + 1) / 2)
        share = (nbytes - below) / (above - below)
        return (1 - share) * self._measure(round(below)) + share * self._measure(round(above))

    def _measure(self, nbytes: int) -> float:
        found = self._measured.get(nbytes)
        if found is None:
            found = self._measured[nbytes] = self._copies.best(nbytes).time.median
        return found
