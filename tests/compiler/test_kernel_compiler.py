"""What kernels can be compiled for."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType, DeviceInfo, FusionDefinition, KernelCompiler
from fuser.compiler.kernel_compiler import resource_text
from fuser.errors import DefinitionTypeError
from fuser.runtime.nvrtc import is_available
from tests.schedule import test_chained_reduction as chained_reduction


def test_devices() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        fd.add_output(fd.ops.sum(x, 1))
    inputs = [np.ones((4, 6), np.float32)]
    kernel = KernelCompiler(DeviceInfo.preset("sm_80")).compile(fd.fusion, inputs)
    assert kernel.arch == "sm_80"
    assert kernel.cubin
    assert kernel.launch_plan.ranks == (2, 1)
    with pytest.raises(DefinitionTypeError, match="device must be a DeviceInfo, a device or None, got str"):
        KernelCompiler("sm_80").compile(fd.fusion, inputs)


@pytest.mark.skipif(not is_available(), reason="no NVRTC")
def test_a_kernel_that_spills_is_compiled_for_one_block() -> None:
    """ptxas aims at 32 registers of this one where it may choose, and spills eight bytes."""
    define = chained_reduction.chosen_beside_normalised
    arrays = chained_reduction.arrays_for(define, 2, 32_000, DataType.Double)
    many = [np.empty([700 if n == 2 else n for n in a.shape], a.dtype) for a in arrays]
    kernel = KernelCompiler(DeviceInfo.preset("H200")).compile(
        chained_reduction.fusion_of(define, DataType.Double), [chained_reduction.described(a) for a in many]
    )
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == 0
    assert kernel.min_blocks == 1
    assert "compiled for 1 blocks a processor at least, because it spilled" in resource_text(kernel)


@pytest.mark.skipif(not is_available(), reason="no NVRTC")
def test_blocks_that_a_schedule_asks_for_are_given_up_where_the_kernel_spills() -> None:
    """The joins of Double statistics need more than the 64 registers of four blocks of 256 threads."""
    define = chained_reduction.moments_of_sums
    arrays = chained_reduction.arrays_for(define, 4096, 1000, DataType.Double)
    fusion, inputs = (
        chained_reduction.fusion_of(define, DataType.Double),
        [chained_reduction.described(a) for a in arrays],
    )
    kernel = KernelCompiler(DeviceInfo.preset("H200")).compile(fusion, inputs)
    assert kernel.kernel_ir is not None
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == 0
    assert 1 <= kernel.min_blocks < kernel.kernel_ir.min_blocks
    assert "because it spilled with the number its schedule or ptxas chose" in resource_text(kernel)
