"""What kernels can be compiled for."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DeviceInfo, FusionDefinition, KernelCompiler
from fuser.errors import DefinitionTypeError


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
