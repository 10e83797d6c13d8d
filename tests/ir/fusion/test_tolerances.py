"""The coarsest type that a value, or one that it is computed from, is rounded to."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.ir.fusion.tolerances import digits_of, rounded_to, tolerance_of, tolerance_of_results


def test_what_is_rounded_on_the_way_is_told_of_all_behind_it() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], dtype=DataType.BFloat16)
        wide = fd.ops.cast(x, DataType.Float)
        half = fd.ops.cast(wide * 2.0, DataType.Half)
        behind = fd.ops.cast(half, DataType.Double) + 1.0
        beside = fd.ops.cast(wide, DataType.Double) * 3.0
        narrow = fd.ops.cast(behind, DataType.BFloat16)
        for t in (wide, half, behind, beside, narrow, behind > 0.0):
            fd.add_output(t)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    found = rounded_to(fusion)
    assert found[fusion.input_tensors[0]] is DataType.Double
    told = [found[o.tensor] for o in fusion.outputs]
    # A product of Floats is rounded to Float, whatever it becomes; what is compared is exact in itself.
    assert told == [DataType.Float, *[DataType.Half] * 2, DataType.Float, DataType.BFloat16, DataType.Half]


def test_exact_types_have_the_most_digits() -> None:
    assert digits_of(DataType.Int) == digits_of(DataType.Bool) == digits_of(DataType.Double) == 53
    assert digits_of(DataType.BFloat16) < digits_of(DataType.Half) < digits_of(DataType.Float) < 53


def test_tolerances_grow_with_results_and_by_a_unit_of_what_is_rounded_on_the_way() -> None:
    Float, BFloat16 = DataType.Float, DataType.BFloat16
    absolute, relative = tolerance_of(Float, 16)
    for size, times in ((1.0, 1.0), (4.0, 1.0), (400.0, 100.0), (1e300, 2.5e299)):
        values = np.array([size, -size, np.inf, np.nan])
        assert tolerance_of_results(Float, 16, Float, values) == pytest.approx((absolute * times, relative))
    for values in (np.zeros(3), np.array([]), np.array([np.nan])):
        assert tolerance_of_results(Float, 16, BFloat16, values) == (absolute, relative)
    found = tolerance_of_results(Float, 16, BFloat16, np.array([4.0, -4.0]))
    assert found == pytest.approx((absolute + 4 / 128, relative + 1 / 128))
    assert tolerance_of_results(BFloat16, 16, BFloat16, np.array([1.0])) == tolerance_of(BFloat16, 16)
    assert tolerance_of_results(DataType.Int, 16, BFloat16, np.array([1.0])) == (0.0, 0.0)
