"""Statistics of 16-bit numbers from plain sums: as exact as one rounding of each result, for values of every size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fuser import FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.approximate_ops import ROWS
from fuser.ir.device_info import H200
from fuser.ir.dtypes import DataType
from fuser.ir.exact_statistics import value_digits
from fuser.ir.fact_collection import collect_facts
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion import Fusion
from fuser.ir.schedule import ScheduleBuilder
from fuser.schedule.params import ReductionParams
from fuser.schedule.schedulers.reduction import ReductionScheduler
from tests.harness import Lowered, run

BF16, F16, Float = DataType.BFloat16, DataType.Half, DataType.Float
TYPES = {BF16: np.dtype(ml_dtypes.bfloat16), F16: np.dtype(np.float16), Float: np.dtype(np.float32)}
Array = np.ndarray[Any, Any]


def columns(dtype: DataType, change: Callable[[FusionDefinition, Any], Any] | None = None) -> Fusion:
    """Variance and mean of columns, as Floats; `change`: what is done to the values first."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, dtype)
        x = change(fd, x) if change is not None else fd.ops.cast(x, Float)
        for result in fd.ops.var_mean(x, [0], 1, False):
            fd.add_output(result)
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def params(
    rows: int, across: int, *, vector: int = 1, blocks: int = 1, unroll: int = 4, cluster: bool = False
) -> ReductionParams:
    vectorized = ("t0",) if vector > 1 else ()
    return ReductionParams((0, 1), False, rows, across, vector, vectorized, blocks, unroll, cluster=cluster)


def lowered(fusion: Fusion, x: Array, given: ReductionParams) -> Lowered:
    scheduled = ReductionScheduler().apply(fusion, given)
    bound = bind_inputs(fusion, [x])
    return Lowered.of(scheduled, collect_facts(scheduled, bound.tensors, bound.evaluate))


def statistics(dtype: DataType, x: Array, given: ReductionParams) -> tuple[Array, Array]:
    fusion = columns(dtype)
    found = run(lowered(fusion, x, given), [x]).check()
    variance, mean = (found[t.name] for t in fusion.output_tensors)
    return variance, mean


def exact(x: Array) -> tuple[Array, Array]:
    wide = x.astype(np.longdouble)
    mean = wide.mean(0)
    return ((wide - mean) ** 2).sum(0) / (len(x) - 1), mean


SHARED = [
    params(1, 8, unroll=4),
    params(1, 8, unroll=1),
    params(8, 4, vector=8),
    params(16, 8, vector=4, unroll=2),
    params(4, 8, vector=8, blocks=3),
    params(16, 8, vector=8, blocks=2, unroll=1),
    params(12, 8, vector=2, blocks=2, unroll=8),
    params(8, 4, vector=4, blocks=4, cluster=True),
]
KINDS: dict[str, Callable[[Array], Array]] = {
    "normal": lambda x: x,
    "far from zero": lambda x: x + 1000.0,
    "one of them off": lambda x: np.where(np.arange(len(x))[:, None] == 77, 1.0078125, 1.0) + 0 * x,
    "all the same": lambda x: 0 * x + 3.25,
    "tiny": lambda x: x * 2.0**-12,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", SHARED, ids=str)
@pytest.mark.parametrize("dtype", [BF16, F16])
def test_results_are_rounded_little_more_than_once(dtype: DataType, given: ReductionParams, kind: str) -> None:
    x = KINDS[kind](np.random.default_rng(3).standard_normal((301, 72))).astype(TYPES[dtype])
    variance, mean = statistics(dtype, x, given)
    exact_variance, exact_mean = exact(x)
    # The sum of squares is rounded to a Float, and so is its quotient.
    assert np.all(np.abs(variance - exact_variance) <= 1.5 * np.spacing(exact_variance.astype("f4")))
    assert np.all(
        np.abs(mean - exact_mean) <= 0.51 * np.spacing(np.abs(exact_mean).astype("f4")) + 1e-9 * x.astype("f8").std(0)
    )


@pytest.mark.parametrize("given", SHARED, ids=str)
@pytest.mark.parametrize(("middle", "spread"), [(1e20, 0.0), (3e38, 0.0), (-1e25, 1e23), (1e20, 3e17)])
def test_squares_that_a_float_cannot_hold(given: ReductionParams, middle: float, spread: float) -> None:
    x = (middle + spread * np.random.default_rng(4).standard_normal((301, 72))).astype(TYPES[BF16])
    variance, mean = statistics(BF16, x, given)
    exact_variance, exact_mean = exact(x)
    assert np.all(np.abs(mean - exact_mean) <= 1.1 * np.spacing(np.abs(exact_mean).astype("f4")))
    if (exact_variance * (len(x) - 1) < 3.4e38).all():
        np.testing.assert_allclose(variance, exact_variance.astype("f8"), rtol=2e-7)


@pytest.mark.parametrize("given", SHARED, ids=str)
def test_some_columns_and_threads_have_a_shift(given: ReductionParams) -> None:
    """Threads without one leave their sums as they are: a column of large values beside others, and one in some rows only."""
    x = np.random.default_rng(6).standard_normal((301, 72))
    x[:, 3] = 1e20
    x[::2, 40] = 1e20
    x = x.astype(TYPES[BF16])
    variance, mean = statistics(BF16, x, given)
    exact_variance, exact_mean = exact(x)
    small = [c for c in range(72) if c not in (3, 40)]
    assert np.all(np.abs(mean - exact_mean) <= 1.1 * np.spacing(np.abs(exact_mean).astype("f4")) + 1e-8)
    np.testing.assert_allclose(variance[small], exact_variance[small].astype("f8"), rtol=2e-7)
    assert variance[3] == 0.0


@pytest.mark.parametrize("given", SHARED, ids=str)
def test_a_first_value_far_from_the_others_costs_no_digits(given: ReductionParams) -> None:
    x = np.random.default_rng(5).standard_normal((301, 72))
    x[:32] *= 2.0**17
    x = x.astype(TYPES[BF16])
    variance, mean = statistics(BF16, x, given)
    exact_variance, exact_mean = exact(x)
    assert np.all(np.abs(variance - exact_variance) <= 2.5 * np.spacing(exact_variance.astype("f4")))
    assert np.all(np.abs(mean - exact_mean) <= 2e-7 * np.abs(x.astype("f8")).mean(0))


def test_clusters_join_statistics_of_floats() -> None:
    """Several results of a thread have one count: it crosses blocks once."""
    x = np.random.default_rng(7).standard_normal((301, 72)).astype("f4")
    variance, mean = statistics(Float, x, params(8, 4, vector=4, blocks=4, cluster=True))
    exact_variance, exact_mean = exact(x)
    np.testing.assert_allclose(variance, exact_variance.astype("f8"), rtol=3e-7)
    np.testing.assert_allclose(mean, exact_mean.astype("f8"), atol=1e-7)


@pytest.mark.parametrize("given", SHARED, ids=str)
@pytest.mark.parametrize("dtype", [BF16, F16])
def test_infinities_and_nan(dtype: DataType, given: ReductionParams) -> None:
    x = np.random.default_rng(6).standard_normal((301, 72)).astype(TYPES[dtype])
    x[0, 1], x[100, 2], x[300, 3] = np.inf, -np.inf, np.nan
    x[5, 4], x[6, 4] = np.inf, -np.inf
    variance, mean = statistics(dtype, x, given)
    assert np.isnan(variance[1:5]).all()
    np.testing.assert_array_equal(mean[1:5], [np.inf, -np.inf, np.nan, np.nan])
    assert np.isfinite(variance[5:]).all()


def text_of(fusion: Fusion, dtype: DataType, shape: tuple[int, int]) -> str:
    kernel = KernelCompiler(H200).compile(fusion, [TensorDescriptor(dtype, shape, (shape[1], 1), 256, 0)])
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == 0
    return kernel.source


def test_bfloat16_is_added_up_in_float_and_threads_without_divisions() -> None:
    text = text_of(columns(BF16), BF16, (65536, 1024))
    assert "float t4_cache_before_0_rfactor_0_squares[8]" in text
    assert "double t4_cache_before_0_squares[8]" in text
    # One by the count, one for each variance.
    assert text[text.index('extern "C"') :].count("fuser_divide") == 2


def test_half_is_added_up_in_double() -> None:
    text = text_of(columns(F16), F16, (65536, 1024))
    assert "double t4_cache_before_0_squares[8]" in text
    assert "rfactor" not in text


@pytest.mark.parametrize(("dtype", "digits"), [(BF16, [8]), (F16, [11]), (Float, [])])
def test_digits(dtype: DataType, digits: list[int]) -> None:
    assert list(value_digits(ScheduleBuilder(columns(dtype))).values()) == digits


def test_sums_of_16_bit_numbers_are_no_16_bit_numbers() -> None:
    fusion = columns(BF16, lambda fd, x: fd.ops.add(fd.ops.cast(x, Float), 1.0))
    assert value_digits(ScheduleBuilder(fusion)) == {}


def test_values_that_meet_their_statistics_again_keep_their_registers() -> None:
    with FusionDefinition() as fd:
        x = fd.ops.cast(fd.define_tensor([-1, -1], True, BF16), Float)
        variance, mean = fd.ops.var_mean(x, [0], 1, True)
        fd.add_output(variance)
        fd.add_output(fd.ops.sub(x, mean))
    assert fd.fusion is not None
    assert value_digits(ScheduleBuilder(fd.fusion.ir_fusion)) == {}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_fma_is_rounded_once(dtype: str) -> None:
    fma = ROWS["fma"].numpy
    a, b = (np.random.default_rng(k).standard_normal(4000).astype(dtype) for k in (0, 1))
    c = (-a * b).astype(dtype)
    exact_sum = a.astype(np.longdouble) * b + c
    if dtype == "f4":
        np.testing.assert_array_equal(fma(a, b, c), exact_sum.astype(dtype))
    # What the product loses is all that is left: more than a long double has.
    assert np.all(np.abs(fma(a, b, c)) <= np.spacing(np.abs(c)))
    big = np.array([np.finfo(dtype).max], dtype)
    assert fma(big, big, -big)[0] == np.inf
