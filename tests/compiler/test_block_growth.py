"""Block growth of one generated and one raw kernel, by asking the table of variants; nothing is launched.

`tests/gpu/test_block_growth_program.py` launches the same two from a host program.
"""

from __future__ import annotations

import numpy as np

from fuser import DataType, FusionDefinition, ParallelType
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.host_ir.expressions import extent
from fuser.host_ir.instructions import Allocate, Deallocate, LaunchKernel
from fuser.host_ir.program import HostProgram
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.runtime.compiled_kernel import CompiledKernel
from fuser.runtime.device import Device
from fuser.runtime.launch_params import LaunchParams
from fuser.runtime.rtc_kernel import RtcKernel
from fuser.runtime.variants import KernelVariants, VariantCounters

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


def test_one_variant_for_each_rung() -> None:
    info = DeviceInfo.preset("H200")
    generated, raw = generated_kernel(info), raw_kernel(info)
    assert generated.max_block_size == 256, "the kernel brings the binary of its first block's rung"
    assert generated.bounded
    assert not raw.bounded
    assert generated.resources is not None
    assert raw.resources is not None
    assert raw.resources.registers > 96, "compiled without a cap first"
    variants = KernelVariants()
    for turn in range(3):
        for block in BLOCKS:
            for kernel in (generated, raw):
                binary = variants.binary_for(kernel, block)
                assert binary.resources is not None
                assert binary.max_threads >= block
                assert binary.resources.registers * block <= 65536
                assert binary.resources.spill_bytes == 0 or (kernel is raw and block == 1024)
        counters = variants.counters()
        assert counters.compiles == 2, turn
        assert counters.seeded == 2
        assert counters.failures == 0
        assert counters.hits == 6 * (turn + 1) - 2
    narrow, wide = variants.binaries_of(generated)
    assert (narrow.max_threads, wide.max_threads) == (256, 1024)
    assert narrow.cubin == generated.cubin
    free, capped = variants.binaries_of(raw)
    assert free.cubin == raw.cubin
    assert capped.resources is not None
    assert capped.resources.registers <= 64
    assert capped.max_threads == 1024


def test_growth_within_a_rung_is_free() -> None:
    info = DeviceInfo.preset("H200")
    generated = generated_kernel(info)
    variants = KernelVariants()
    for block in (128, 256, 1, 129, 255):
        variants.binary_for(generated, block)
    assert variants.counters() == VariantCounters(hits=5, seeded=1)


def test_program_is_well_formed() -> None:
    """The program of the GPU test, checked and printed here."""
    info = DeviceInfo.preset("H200")
    program = growth_program(generated_kernel(info), raw_kernel(info), 128)
    assert program.inputs == ("x",)
    assert len(program.launches()) == 2
    assert 'Deallocate("y")' in repr(program) or "Deallocate('y')" in repr(program)
