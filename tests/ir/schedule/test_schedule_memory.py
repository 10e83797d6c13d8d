"""Verbs on where tensors live: the order of their elements, swizzled places in shared memory."""

from __future__ import annotations

import pytest

from fuser.errors import SchedulingError
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import MemoryType
from tests.ir.small_schedules import pointwise

Float = DataType.Float


def test_allocation_domain_of_an_output_is_its_stride_order() -> None:
    s, _, out = pointwise(-1, -1)
    s.set_allocation_domain(out, [1, 0])
    assert s.state(out).tensor.stride_order == (0, 1)


def test_swizzle() -> None:
    s, x, _ = pointwise(64, 64)
    copy = s.cache_after(x)
    with pytest.raises(SchedulingError, match="needs an allocation domain in shared memory first"):
        s.swizzle(copy, 0, 1)
    s.set_memory_type(copy, MemoryType.shared)
    s.set_allocation_domain(copy, [0, 1])
    for by, axis in ((0, 0), (0, 2), (-1, 1)):
        with pytest.raises(SchedulingError, match="its allocation domain has 2 axes"):
            s.swizzle(copy, by, axis)
    s.swizzle(copy, 0, 1)
    assert s.state(copy).swizzles == ((0, 1),)
    with pytest.raises(SchedulingError, match="takes part in a swizzle already"):
        s.swizzle(copy, 1, 0)
    assert str(s.records[-1]) == f"{copy}.swizzle(0, 1)"
    s.set_allocation_domain(copy, [1, 0])
    assert s.state(copy).swizzles == (), "the swizzles were of the old one"


def test_only_constant_powers_of_two_are_swizzled() -> None:
    for shape in ((64, 48), (64, -1)):
        s, x, _ = pointwise(*shape)
        copy = s.cache_after(x)
        s.set_memory_type(copy, MemoryType.shared)
        s.set_allocation_domain(copy, [0, 1])
        with pytest.raises(SchedulingError, match="is no constant power of two"):
            s.swizzle(copy, 0, 1)
