"""Statistics of Doubles that are joined as sums: how exact they are, and what threads without values and odd values do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fuser.ir.dtypes import DataType
from fuser.ir.enums import ParallelType
from fuser.ir.exact_statistics import exact_sums
from fuser.ir.fusion_builder import FusionBuilder
from fuser.ir.schedule import ScheduleBuilder
from tests.lowering.combiners.test_exact_welford import SHARED_WORK, statistics
from tests.oracle import Array

Work = Sequence[ParallelType]


def ulps(found: Array, exact: Array) -> float:
    """The largest error, in units of the last place of what is exact."""
    place = np.spacing(np.abs(exact).astype(np.float64))
    return float((np.abs(found.astype(np.longdouble) - exact) / place).max())


@pytest.mark.parametrize(("block", "types"), SHARED_WORK)
def test_values_that_are_all_the_same_have_no_variance(block: int, types: Work) -> None:
    x = np.repeat(np.array([[0.1], [-3.7], [1e17], [5e-324], [0.0]]), 1003, 1)
    mean, m2 = statistics(x, block, types)
    assert not m2.any()
    np.testing.assert_array_equal(mean, x[:, 0])


@pytest.mark.parametrize(("block", "types"), SHARED_WORK)
@pytest.mark.parametrize("length", [1, 2, 5, 31])
def test_threads_without_values_count_nothing(block: int, types: Work, length: int) -> None:
    x = np.random.default_rng(length).standard_normal((3, length)) + 100
    mean, m2 = statistics(x, block, types)
    wide = x.astype(np.longdouble)
    exact = wide.mean(1)
    assert ulps(mean, exact) < 1
    np.testing.assert_allclose(m2, ((wide - exact[:, None]) ** 2).sum(1).astype(np.float64), rtol=1e-13, atol=1e-26)


@pytest.mark.parametrize(("block", "types"), SHARED_WORK)
def test_a_first_value_far_from_all_others_costs_no_digits(block: int, types: Work) -> None:
    x = np.random.default_rng(3).standard_normal((2, 2003))
    x[0, 0], x[1, 1] = 3e6, 1e7
    mean, m2 = statistics(x, block, types)
    wide = x.astype(np.longdouble)
    exact = wide.mean(1)
    assert ulps(mean, exact) < 2
    assert ulps(m2, ((wide - exact[:, None]) ** 2).sum(1)) < 4


@pytest.mark.parametrize(("block", "types"), SHARED_WORK)
def test_a_mean_near_zero_is_rounded_about_once(block: int, types: Work) -> None:
    x = np.random.default_rng(4).standard_normal((8, 2003))
    x[:, 1001:2002] = -x[:, :1001] + 1e-9
    mean, _ = statistics(x, block, types)
    assert ulps(mean, x.astype(np.longdouble).mean(1)) < 1.5


@pytest.mark.parametrize(("block", "types"), SHARED_WORK)
def test_what_is_no_number_stays_so(block: int, types: Work) -> None:
    x = np.random.default_rng(5).standard_normal((3, 203))
    x[0, 150], x[1, 77], x[2, 3] = np.inf, -np.inf, np.nan
    mean, m2 = statistics(x, block, types)
    np.testing.assert_array_equal(mean, [np.inf, -np.inf, np.nan])
    assert np.isnan(m2).all()


def test_doubles_that_meet_their_values_again_are_joined_otherwise() -> None:
    b = FusionBuilder()
    x = b.input_tensor(DataType.Double, [-1, -1])
    mean, m2, _ = b.welford(x, [1])
    b.add_output(mean)
    b.add_output(m2)
    s = ScheduleBuilder(b.freeze())
    assert exact_sums(s) == {mean.name}
    b = FusionBuilder()
    x = b.input_tensor(DataType.Double, [-1, -1])
    mean, m2, _ = b.welford(x, [1])
    b.add_output(b.pointwise("sub", [x, b.broadcast(mean, [False, True])], DataType.Double))
    b.add_output(m2)
    assert exact_sums(ScheduleBuilder(b.freeze())) == frozenset()
