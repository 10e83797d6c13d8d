"""What a number in device memory asks for."""

from __future__ import annotations

import numpy as np
import pytest

from fuser.errors import LaunchError
from fuser.ir.dtypes import DataType
from fuser.runtime.device_tensor import DeviceTensor
from fuser.runtime.selectors import NO_BODY, Selector, raise_complaints
from fuser.simulator.device import SimulatorDevice

SWITCH = Selector("it", DataType.Int, (1, NO_BODY, 1), 0)


@pytest.mark.parametrize(
    ("value", "case", "body"),
    [(0, 0, 1), (1, 1, NO_BODY), (2, 2, 1), (3, None, 0), (-1, None, 0), (1 << 32, None, 0), (-(1 << 32), None, 0)],
)
def test_a_switch(value: int, case: int | None, body: int) -> None:
    assert (SWITCH.case_of(value), SWITCH.body_of(value)) == (case, body)


@pytest.mark.parametrize(("value", "body"), [(0, 3), (1, 7), (-5, 7), (1 << 40, 7)])
def test_a_condition_has_no_value_out_of_range(value: int, body: int) -> None:
    condition = Selector("it", DataType.Int, (7, 3), NO_BODY, is_condition=True)
    assert condition.case_of(value) is not None
    assert condition.body_of(value) == body


def test_complaints() -> None:
    rest = "its default was run instead. Let what writes the selector keep it in range"
    assert SWITCH.complaint(9) == f"the selector of it was 9 on the device, and there are cases 0 to 2: {rest}"
    one = Selector("it", DataType.Int, (0,), NO_BODY)
    assert one.complaint(-1) == f"the selector of it was -1 on the device, and there is only case 0: {rest}"
    with pytest.raises(LaunchError) as caught:
        raise_complaints(["a", "b", "c"])
    assert caught.value.message == "a"
    assert caught.value.__notes__ == ["b", "c"]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(np.int64, -(1 << 63)), (np.int32, -1), (np.uint64, (1 << 64) - 1), (np.bool_, 1), (np.int64, 0xFFFFFFFF)],
)
def test_values_are_read_as_they_are(dtype: type, value: int) -> None:
    device = SimulatorDevice()
    tensor = DeviceTensor.from_numpy(np.array([value], dtype), device)
    assert Selector("it", tensor.dtype, (0,), 0).read(device, tensor.address, 0) == value
