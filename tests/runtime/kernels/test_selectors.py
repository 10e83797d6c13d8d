"""What a number in device memory asks for."""

from __future__ import annotations

import pytest

from fuser.ir.ops.dtypes import DataType
from fuser.runtime.kernels.selectors import NO_BODY, Selector

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
