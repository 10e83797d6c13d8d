"""Device memory read by the host."""

from __future__ import annotations

import numpy as np
import pytest

from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.devices.host_bytes import read_number
from fuser.simulator.device import SimulatorDevice


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(np.int64, -(1 << 63)), (np.int32, -1), (np.uint64, (1 << 64) - 1), (np.bool_, 1), (np.int64, 0xFFFFFFFF)],
)
def test_numbers_are_read_as_they_are(dtype: type, value: int) -> None:
    device = SimulatorDevice()
    tensor = DeviceTensor.from_numpy(np.array([value], dtype), device)
    assert read_number(device, tensor.dtype, tensor.address, 0) == value
