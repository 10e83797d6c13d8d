"""How long the simulator takes for two kernels of the usual shape, checks included.

python -m benchmarks.bench_simulator
"""

from __future__ import annotations

import time

import ml_dtypes
import numpy as np

from fuser.ir.kernel.kernel import Kernel
from tests.simulator.kernels import Run, bias_gelu, softmax


def measure(name: str, kernel: Kernel, arguments: list[np.ndarray | float | None], blocks: int, **launch: int) -> None:
    """Print the least of three times in seconds, and the time of the first call, which compiles."""
    times: list[float] = []
    for _ in range(4):
        run = Run(kernel, *arguments)
        start = time.perf_counter()
        run(blocks, **launch).check()
        times.append(time.perf_counter() - start)
    print(f"{name:40s} first {times[0]:6.3f} s   then {min(times[1:]):6.3f} s")


def main() -> None:
    generator = np.random.default_rng(0)
    x = generator.standard_normal(1_000_000).astype(ml_dtypes.bfloat16)
    bias = generator.standard_normal(1000).astype(ml_dtypes.bfloat16)
    measure("bias + GELU, 1,000,000 bf16", bias_gelu(1000), [x, bias, None, x.size], 977, threads=128)
    rows = generator.standard_normal(1024 * 1024).astype(np.float32)
    measure("softmax, 1024 x 1024 float", softmax(1024, 128), [rows, None, 1024], 1024, threads=128, shared_bytes=16)


if __name__ == "__main__":
    main()
