"""Kernels that need few registers and many, as variants are compiled of."""

from __future__ import annotations

import dataclasses
from typing import Any

from fuser.runtime.kernels.compiled_kernel import CompiledKernel

BOUNDS = """
#if defined(FUSER_MAX_REGISTERS)
#define FUSER_BOUNDS __maxnreg__(FUSER_MAX_REGISTERS)
#elif defined(FUSER_MIN_BLOCKS)
#define FUSER_BOUNDS __launch_bounds__(FUSER_MAX_THREADS, FUSER_MIN_BLOCKS)
#else
#define FUSER_BOUNDS __launch_bounds__(FUSER_MAX_THREADS)
#endif
"""

# 96 values per thread are live between the two loops.
HUNGRY_BODY = """hungry(float* y, const float* x, int n) {
    float v[96];
#pragma unroll
    for (int i = 0; i < 96; ++i) v[i] = x[i * 1024 + threadIdx.x];
    float t = 0;
#pragma unroll
    for (int i = 0; i < 96; ++i) t += v[i] * v[(i * 37 + 11) % 96];
#pragma unroll
    for (int i = 0; i < 96; ++i) y[i * 1024 + threadIdx.x] = v[i] * t + v[(i + 55) % 96];
}
"""

HUNGRY = BOUNDS + 'extern "C" __global__ void FUSER_BOUNDS ' + HUNGRY_BODY

RAW_HUNGRY = 'extern "C" __global__ void ' + HUNGRY_BODY

SMALL = BOUNDS + 'extern "C" __global__ void FUSER_BOUNDS small(float* y) { y[threadIdx.x] = 1.0f; }'


def kernel_of(source: str, entry: str, **changes: Any) -> CompiledKernel:
    """A kernel without a binary of its own."""
    kernel = CompiledKernel(
        source=source,
        entry=entry,
        arch="sm_90a",
        cubin=None,
        kernel_ir=None,
        parameters=(),
        plan=None,
        facts=frozenset(),
        resources=None,
        max_block_size=0,
        register_limit=0,
        options=(),
        nvrtc_version=None,
        content_hash="",
    )
    return dataclasses.replace(kernel, **changes)


ONLY_TO_512 = '#if FUSER_MAX_THREADS > 512\n#error "too many threads"\n#endif\n' + SMALL
