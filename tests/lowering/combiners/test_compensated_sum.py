"""Sums that carry along what rounding loses: how exact they are, which sums they are, and what infinities do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fuser.ir.dtypes import DataType
from fuser.ir.enums import ParallelType
from fuser.ir.fusion import Tensor
from fuser.ir.fusion_builder import FusionBuilder
from fuser.ir.kernel import walk
from fuser.ir.schedule import ScheduleBuilder
from fuser.lowering.combiners.compensated_sum import compensated_sums, tree_sums
from tests.harness import Lowered, run
from tests.kernel_corpus import BX, BY, GX, GY, SERIAL, schedule_axes
from tests.oracle import Array

BF16, Float, Double = DataType.BFloat16, DataType.Float, DataType.Double

ROW_SHAPES: list[tuple[int, Sequence[ParallelType]]] = [
    (1, (GX, SERIAL, SERIAL)),
    (32, (GX, SERIAL, BX)),
    (128, (GX, SERIAL, BX)),
    (20, (GX, SERIAL, BX)),
    (16, (GX, GY, BX)),
    (16, (SERIAL, GY, BX)),
    (24, (BX, SERIAL, BY)),
]


def row_sums(x: Array, block: int, types: Sequence[ParallelType]) -> Array:
    """Sums of the rows of x on the simulator, each split by `block`, the axes of the types given."""
    b = FusionBuilder()
    dtype = Float if x.dtype == np.float32 else Double
    r = b.reduction("sum", b.input_tensor(dtype, [-1, -1]), [1], dtype)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    s.split(r.name, 1, block)
    schedule_axes(s, r.name, types)
    return run(Lowered.of(s), [x]).check()[r.name]


@pytest.mark.parametrize(("block", "types"), ROW_SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_are_rounded_once(block: int, types: Sequence[ParallelType], dtype: type) -> None:
    generator = np.random.default_rng(0)
    x = np.stack(
        [
            1 + generator.random(2003),
            np.full(2003, 12345.678),
            generator.standard_normal(2003) * 10.0 ** generator.integers(-4, 5, 2003),
            1e-3 * generator.standard_normal(2003) + 1000,
        ]
    ).astype(dtype)
    found = row_sums(x, block, types)
    exact = x.astype(np.longdouble).sum(1)
    assert np.all(np.abs(found - exact) <= 0.51 * np.spacing(np.abs(found)))


@pytest.mark.parametrize(("block", "types"), ROW_SHAPES)
def test_infinities_and_nan_are_those_of_a_plain_sum(block: int, types: Sequence[ParallelType]) -> None:
    x = np.ones((6, 301), np.float32)
    x[0, 7] = np.inf
    x[1, 299] = -np.inf
    x[2, 0], x[2, 300] = np.inf, -np.inf
    x[3, 150] = np.nan
    x[4, :2] = 3e38
    found = row_sums(x, block, types)
    np.testing.assert_array_equal(found, np.array([np.inf, -np.inf, np.nan, np.nan, np.inf, 301], np.float32))


def test_an_output_of_16_bits_needs_none() -> None:
    b = FusionBuilder()
    x = b.input_tensor(BF16, [-1, -1])
    wide = b.pointwise("cast", [x], Float)
    shown, hidden = b.reduction("sum", wide, [1], Float), b.reduction("sum", wide, [0], Float)
    b.add_output(b.pointwise("exp", [shown], Float))
    b.add_output(b.pointwise("cast", [hidden], BF16))
    assert compensated_sums(ScheduleBuilder(b.freeze())) == {shown.name}


def test_what_is_subtracted_from_elements_is_compensated() -> None:
    b = FusionBuilder()
    x = b.input_tensor(BF16, [-1, -1])
    wide = b.pointwise("cast", [x], Float)
    total = b.reduction("sum", wide, [1], Float)
    b.add_output(b.pointwise("cast", [b.pointwise("sub", [wide, b.broadcast(total, [False, True])], Float)], BF16))
    assert compensated_sums(ScheduleBuilder(b.freeze())) == {total.name}


def test_doubles_that_meet_others_are_joined_as_they_are() -> None:
    """What an output shows, or what elements have subtracted, is not: a chain of roundings would be seen there."""
    b = FusionBuilder()
    x = b.input_tensor(Double, [-1, -1])
    shown, met, subtracted = (
        b.reduction("sum", b.pointwise(op, [x], Double), [1], Double) for op in ("exp", "sin", "cos")
    )
    b.add_output(b.pointwise("sqrt", [shown], Double))
    b.add_output(b.pointwise("mul", [x, b.broadcast(met, [False, True])], Double))
    b.add_output(b.pointwise("sub", [x, b.broadcast(subtracted, [False, True])], Double))
    builder = ScheduleBuilder(b.freeze())
    assert compensated_sums(builder) == {shown.name, met.name, subtracted.name}
    assert tree_sums(builder) == {met.name}


def test_other_reductions_have_one_partial() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    r = b.reduction("max", x, [1], Float)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    assert compensated_sums(s) == frozenset()
    kernel = Lowered.of(s).kernel
    assert not any("rest" in str(stmt) for stmt in walk(kernel.body))


@pytest.mark.parametrize(("op", "is_plain"), [("exp", False), ("coarse_exp_of_negative", True)])
def test_sums_of_coarse_terms_stay_plain(op: str, is_plain: bool) -> None:
    b = FusionBuilder()
    terms = b.pointwise(op, [b.input_tensor(Float, [-1, -1])], Float)
    assert isinstance(terms, Tensor)
    total = b.reduction("sum", terms, [1], Float)
    b.add_output(total)
    assert compensated_sums(ScheduleBuilder(b.freeze())) == (frozenset() if is_plain else {total.name})
