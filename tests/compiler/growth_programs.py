"""A generated and a raw kernel whose blocks grow with the row, and a program of both."""

from __future__ import annotations

import numpy as np

from fuser import DataType, FusionDefinition, ParallelType
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.host_ir.instructions.expressions import extent
from fuser.host_ir.instructions.instructions import Allocate, Deallocate, LaunchKernel
from fuser.host_ir.program import HostProgram
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.runtime.devices.device import Device
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.kernels.launch_params import LaunchParams
from fuser.runtime.rtc_kernel import RtcKernel

ROWS = 96

BLOCKS = (128, 1024, 128)

# 96 values of each thread are live at once, and the text says nothing about its block.
RAW = """
extern "C" __global__ void column_mix(float* y, const float* x, int n) {
    float v[96];
#pragma unroll
    for (int i = 0; i < 96; ++i) v[i] = x[i * n + threadIdx.x];
    float t = 0;
#pragma unroll
    for (int i = 0; i < 96; ++i) t += v[i] * v[(i * 37 + 11) % 96];
#pragma unroll
    for (int i = 0; i < 96; ++i) y[i * n + threadIdx.x] = v[i] * t + v[(i + 55) % 96];
}
"""


def mixed(x: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """What the raw kernel computes, in double."""
    v = x.astype(np.float64)
    i = np.arange(ROWS)
    t = (v * v[(i * 37 + 11) % ROWS]).sum(0)
    return v * t + v[(i + 55) % ROWS]


def generated_kernel(device: Device | DeviceInfo) -> CompiledKernel:
    """x * 0.5, a block for each row and a thread for each column: the block is as large as the row is long."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Float)
        y = x * 0.5
        fd.add_output(y)
        y.axis(0).parallelize(ParallelType.grid_x)
        y.axis(1).parallelize(ParallelType.block_x)
    return KernelCompiler(device).compile(fd.fusion, [TensorDescriptor(DataType.Float, (ROWS, 128), (128, 1))])


def raw_kernel(device: object) -> CompiledKernel:
    return RtcKernel(RAW, "column_mix", device=device).compile().kernel  # type: ignore[arg-type]


def growth_program(generated: CompiledKernel, raw: CompiledKernel, block: int) -> HostProgram:
    """z = mix(x * 0.5), both kernels with blocks of `block` threads for rows of that length."""
    shape = (extent("x", 0), extent("x", 1))
    return HostProgram(
        ("x",),
        ("z",),
        (
            Allocate("y", shape, DataType.Float),
            LaunchKernel(generated, ("x", "y")),
            Allocate("z", shape, DataType.Float),
            LaunchKernel(raw, ("z", "y", extent("x", 1)), launch=LaunchParams(1, 1, 1, block, 1, 1)),
            Deallocate("y"),
        ),
    )
