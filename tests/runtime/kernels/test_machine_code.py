"""Binaries that wait for the launches before them first, and those that do not."""

from __future__ import annotations

from typing import Any

import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import compile_fusion
from fuser.host_ir.instructions.instructions import LaunchKernel
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.runtime.kernels import nvrtc
from fuser.runtime.kernels.machine_code import why_not_first
from tests.runtime.small_binaries import EXIT, LOAD, MOV, TEST, WAITS, image

WAIT = 'asm volatile("griddepcontrol.wait;" ::: "memory");'
ARCHS = ("sm_90a", "sm_100a", "sm_120a")
needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")


def binary(body: str, arch: str = "sm_90a") -> bytes:
    text = (
        f'extern "C" __global__ void k(float* x, float* y, int n) {{ int i = blockIdx.x * 256 + threadIdx.x; {body} }}'
    )
    made = nvrtc.compile_to_cubin(text, ["k"], arch, ())
    assert made.cubin is not None
    return made.cubin


@needs_nvrtc
@pytest.mark.parametrize("arch", ARCHS)
def test_binaries_of_nvrtc(arch: str) -> None:
    work = "if (i < n) y[i] = x[i] + 1.0f;"
    assert why_not_first(binary(WAIT + work, arch), "k") is None
    for body in (work, "", "y[i] = 1.0f;" + WAIT, "float f = x[i];" + WAIT + "y[i] = f;"):
        assert why_not_first(binary(body, arch), "k") is not None, body
    # Some threads pass it by.
    assert why_not_first(binary(f"if (x[i] > 0.0f) {{ {WAIT} }} {work}", arch), "k") is not None
    assert why_not_first(binary(f"if (i < n) {{ {WAIT} }} {work}", arch), "k") is not None


@needs_nvrtc
@pytest.mark.parametrize("arch", ARCHS)
def test_a_read_that_ptxas_moves_ahead(arch: str) -> None:
    """What stands behind the wait in the text is in front of it in the binary: a barrier makes room for that."""
    shared = f"__shared__ float s[256]; s[threadIdx.x] = y[i]; __syncthreads(); {WAIT} y[i] = s[255 - threadIdx.x] + "
    assert "before its wait" in (why_not_first(binary(shared + "__ldg(x + i);", arch), "k") or "")


@needs_nvrtc
def test_other_entries_and_files() -> None:
    made = binary(WAIT)
    assert why_not_first(made, "other") == "its machine code has no other"
    for data in (b"", b".version 8.0\n.target sm_90\n" * 10, made[:100], made[: len(made) // 2]):
        assert why_not_first(data, "k") == "its machine code has no k"


def test_opcodes() -> None:
    assert why_not_first(image(MOV, TEST, WAITS, LOAD, EXIT), "k") is None
    # MUFU, I2F.F64 and FLO compute, if slowly; TEX, ATOMG, BAR and CCTL do not.
    assert why_not_first(image(0x7308, 0x7312, 0x7D00, WAITS, LOAD), "k") is None
    for word in (0x7B60, 0x79A8, 0x7B1D, 0x798F, 0x7986, 0x7947):
        assert f"opcode {word & 0xFFF:#x}" in (why_not_first(image(word, WAITS), "k") or "")
    assert "opcode 0x981" in (why_not_first(image(MOV, LOAD, WAITS), "k") or "")
    assert "opcode 0x94d" in (why_not_first(image(MOV, EXIT, WAITS), "k") or "")
    # @P0 ACQBULK
    assert "not all of its threads" in (why_not_first(image(MOV, 0x082E), "k") or "")
    assert "does not wait" in (why_not_first(image(MOV, MOV), "k") or "")
    assert "does not wait" in (why_not_first(image(), "k") or "")
    assert "has no k" in (why_not_first(image(WAITS, name=".text.k2"), "k") or "")


def _scalars(fd: FusionDefinition) -> None:
    """Numbers of the caller are converted in registers, ahead of the wait if ptxas likes."""
    x = fd.define_tensor([-1, -1], dtype=DataType.Float, contiguity=True)
    n = fd.define_scalar(dtype=DataType.Int)
    d = fd.define_scalar(dtype=DataType.Double)
    t = fd.ops.segment_set(x * 2.0)
    fd.add_output(fd.ops.cast(t, DataType.Double) * fd.ops.cast(n, DataType.Double) / fd.ops.sqrt(d))
    fd.add_output(fd.ops.segment_set(fd.ops.cast(fd.ops.iota(1, 0, 1, DataType.Int), DataType.Half)))


def _rows(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1, -1], dtype=DataType.BFloat16, contiguity=True)
    fd.define_scalar(dtype=DataType.Int)
    fd.define_scalar(dtype=DataType.Double)
    f = fd.ops.cast(fd.ops.segment_set(x), DataType.Float)
    y = fd.ops.segment_set(fd.ops.exp(f - f.max(1, keepdim=True)))
    z = fd.ops.segment_set(y / y.sum(1, keepdim=True))
    fd.add_output(fd.ops.segment_set(z.sum(0)))
    fd.add_output(fd.ops.segment_set(fd.ops.cumsum(z, 1)))
    fd.add_output(fd.ops.permute(z, [1, 0]) * 2.0)


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_90a", "sm_120a"])
@pytest.mark.parametrize("define", [_scalars, _rows])
def test_binaries_of_kernels_that_follow_others_wait_first(define: Any, arch: str) -> None:
    with FusionDefinition() as fd:
        define(fd)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    (t,) = fusion.input_tensors
    bound = bind_inputs(fusion, [TensorDescriptor(t.dtype, (64, 512), (512, 1), 256), 3, 2.0])
    program = compile_fusion(fusion, bound, DeviceInfo.preset(arch))
    kernels = [i.kernel for i in program.instructions if isinstance(i, LaunchKernel)]
    waiting = [k for k in kernels if k.plan is not None and k.plan.waits_first]
    assert len(waiting) >= len(kernels) - 2
    for k in waiting:
        assert k.cubin is not None
        assert why_not_first(k.cubin, k.entry) is None
