"""Statistics of Floats that threads and blocks join as sums of differences: as exact as one rounding of each result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fuser import FusionDefinition
from fuser.ir.exact_statistics import meets_values, shifted_sums
from fuser.ir.schedule import ScheduleBuilder
from fuser.schedule.params import ReductionParams
from tests.lowering.combiners.test_moments import (
    KINDS,
    SHARED,
    Array,
    Float,
    columns,
    exact,
    params,
    statistics,
    text_of,
)

MANY = [
    *(replace(p, vector=min(p.vector, 4)) for p in SHARED),
    params(16, 8, vector=1, blocks=9, unroll=2),
    params(16, 16, vector=2, blocks=3, unroll=2),
    params(64, 8, vector=4, blocks=20, unroll=1),
]


def of(kind: str) -> Array:
    x = np.random.default_rng(3).standard_normal((301, 72))
    match kind:
        case "few numbers far from zero":
            x = x * 0.125 + 1000.0
        case "all the same, in all digits":
            x = 0 * x + np.pi
        case "the first far from all others":
            x[0] = 1e6
        case "threads' first values far from all others":
            x[:64] = 1e6 * x[:64]
        case _:
            x = KINDS[kind](x)
    return x.astype("f4")


@pytest.mark.parametrize(
    "kind",
    [
        *KINDS,
        "few numbers far from zero",
        "all the same, in all digits",
        "the first far from all others",
        "threads' first values far from all others",
    ],
)
@pytest.mark.parametrize("given", MANY, ids=str)
def test_results_are_rounded_little_more_than_once(given: ReductionParams, kind: str) -> None:
    x = of(kind)
    variance, mean = statistics(Float, x, given)
    exact_variance, exact_mean = exact(x)
    assert np.all(np.abs(variance - exact_variance) <= 1.5 * np.spacing(exact_variance.astype("f4")))
    assert np.all(np.abs(mean - exact_mean) <= 0.51 * np.spacing(np.abs(exact_mean).astype("f4")))


@pytest.mark.parametrize("given", MANY, ids=str)
@pytest.mark.parametrize("rows", [2, 3, 40])
def test_threads_and_blocks_without_values(given: ReductionParams, rows: int) -> None:
    x = (1e4 + np.random.default_rng(2).standard_normal((rows, 72))).astype("f4")
    variance, mean = statistics(Float, x, given)
    assert np.all(np.abs(mean - exact(x)[1]) <= 0.51 * np.spacing(mean))
    np.testing.assert_allclose(variance, exact(x)[0].astype("f8"), rtol=3e-7)


@pytest.mark.parametrize("given", MANY, ids=str)
def test_infinities_and_nan(given: ReductionParams) -> None:
    x = np.random.default_rng(6).standard_normal((301, 72)).astype("f4")
    x[0, 1], x[100, 2], x[300, 3] = np.inf, -np.inf, np.nan
    x[5, 4], x[6, 4] = np.inf, -np.inf
    variance, mean = statistics(Float, x, given)
    assert np.isnan(variance[1:5]).all()
    np.testing.assert_array_equal(mean[1:5], [np.inf, -np.inf, np.nan, np.nan])
    assert np.isfinite(variance[5:]).all()


def test_only_the_last_block_divides() -> None:
    text = text_of(columns(Float, lambda _, x: x), Float, (65536, 1024))
    text = text[text.index('extern "C"') :]
    assert text.count("fuser_divide") == 2, "one by the count, one for each variance"
    assert text.index("is_last == 1") < text.index("fuser_divide")


def test_values_that_meet_their_statistics_again_are_known() -> None:
    def centred(fd: FusionDefinition, x: Any) -> Any:
        mean = fd.ops.var_mean(x, [0], 1, True)[1]
        return fd.ops.sub(x, mean)

    for change, meets in ((centred, True), (lambda _, x: x, False)):
        builder = ScheduleBuilder(columns(Float, change))
        assert len(shifted_sums(builder)) == 1 + meets
        assert meets_values(builder) is meets
