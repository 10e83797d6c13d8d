"""One defect for each tool of compute-sanitizer, in a kernel that is named after the tool.

    memcheck    writes one element beyond an allocation
    racecheck   a warp reads what another wrote to shared memory, with no barrier between
    synccheck   half a warp arrives at a barrier of the block
    initcheck   reads memory that nobody wrote

Each defect is invisible to the other three tools. The one that memcheck stops the context for runs last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fuser.errors import FuserError
from fuser.runtime.kernels import nvrtc
from fuser.runtime.kernels.compiled_kernel import CompiledKernel, content_hash
from fuser.runtime.kernels.raw_signature import RawKind, RawParameter
from fuser.runtime.launch import Launch

if TYPE_CHECKING:
    from fuser.runtime.devices.cuda_device import CudaDevice

TOOLS = ("initcheck", "racecheck", "synccheck", "memcheck")

SOURCES = {
    "memcheck": """
extern "C" __global__ void planted_memcheck(float* out, const float* in) {
    out[threadIdx.x + 1] = in[threadIdx.x];
}
""",
    "racecheck": """
extern "C" __global__ void planted_racecheck(float* out, const float* in) {
    __shared__ float shared[64];
    shared[threadIdx.x] = in[threadIdx.x];
    out[threadIdx.x] = shared[63 - threadIdx.x];
}
""",
    "synccheck": """
extern "C" __global__ void planted_synccheck(float* out, const float* in) {
    if (threadIdx.x < 48) __syncthreads();
    out[threadIdx.x] = in[threadIdx.x];
}
""",
    "initcheck": """
extern "C" __global__ void planted_initcheck(float* out, const float* in) {
    out[threadIdx.x] = in[threadIdx.x] + 1.0f;
}
""",
}

THREADS = 64
_PARAMETERS = (
    RawParameter("out", "float*", RawKind.pointer, "float32", 8, 8, 4),
    RawParameter("in", "const float*", RawKind.pointer, "float32", 8, 8, 4, 1, True),
)


def planted_kernel(tool: str, arch: str) -> CompiledKernel:
    """The kernel with a defect for `tool`, compiled."""
    source, entry = SOURCES[tool], f"planted_{tool}"
    result = nvrtc.compile_to_cubin(source, [entry], arch, ["-lineinfo"])
    return CompiledKernel(
        source=source,
        entry=entry,
        arch=arch,
        cubin=result.cubin,
        kernel_ir=None,
        parameters=_PARAMETERS,
        plan=None,
        facts=frozenset(),
        resources=result.resources.get(entry),
        max_block_size=256,
        register_limit=255,
        options=("-lineinfo",),
        nvrtc_version=result.version,
        content_hash=content_hash(source, (), arch, result.version, entry),
        bounded=False,
        log=result.log,
    )


def run_planted(device: CudaDevice) -> None:
    """Launch all four, each on allocations of its own. Errors that a tool provokes are printed, not raised."""
    for tool in TOOLS:
        print(f"== planted_{tool}", flush=True)
        try:
            out = device.allocate(4 * THREADS, 0)
            source = device.allocate(4 * THREADS, 0)
            if tool != "initcheck":
                device.copy_from_host(source.address, np.ones(THREADS, np.float32), 0)
            kernel = planted_kernel(tool, device.info.arch)
            device.launch(kernel, Launch((1, 1, 1), (THREADS, 1, 1)), (out.address, source.address), 0)
            device.synchronize(0)
        except FuserError as error:
            print(f"== planted_{tool} stopped: {error.message.splitlines()[0]}", flush=True)
