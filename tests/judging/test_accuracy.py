"""The judge judged: it accepts right results and rejects wrong ones of every kind."""

from __future__ import annotations

import numpy as np
import pytest

from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.op_table import POINTWISE, REDUCTIONS, numpy_cast
from tests.judging.accuracy import (
    Array,
    Counts,
    assert_wrong_pointwise_fail,
    assert_wrong_reduction_fail,
    assert_wrong_results_fail,
    check_pointwise,
    check_reduction,
    draw_inputs,
    draw_reduction_input,
    epsilon,
    lower_precision,
    reference_pointwise,
    ulp,
)

D = DataType
FLOATS = (D.Double, D.Float, D.Half, D.BFloat16)


def _right(name: str, inputs: list[Array]) -> Array:
    ref = reference_pointwise(POINTWISE[name], inputs)
    return numpy_cast(ref.value, ref.output)


def _rejects(name: str, inputs: list[Array], got: Array, text: str = "wrong at index") -> None:
    with pytest.raises(AssertionError, match=text):
        check_pointwise(POINTWISE[name], inputs, got)


def test_ulp_is_the_distance_of_neighbours():
    for dtype, storage in ((D.Double, np.float64), (D.Float, np.float32), (D.Half, np.float16)):
        tiny = np.finfo(storage).smallest_subnormal
        x = np.array([1.0, 1.5, 2.0, 1000.0, 0.1, float(tiny), 0.0], storage)
        np.testing.assert_array_equal(ulp(x, dtype).astype(storage), np.spacing(x))
    assert float(ulp(np.array([1.0]), D.BFloat16)[0]) == 2.0**-7
    assert epsilon(D.Float) == 2.0**-23


@pytest.mark.parametrize("dtype", [D.Float, D.Double])
def test_bound_is_tight(dtype: DataType):
    # exp: the right result moved by the allowed ulps passes, by two more it does not.
    row = POINTWISE["exp"]
    x = np.linspace(-3, 3, 100).astype(dtype.numpy)
    right = _right("exp", [x])
    allowed = int(row.ulp_bound(dtype))
    check_pointwise(row, [x], right + (allowed * np.spacing(right)).astype(right.dtype) * np.float32(0.99))
    wrong = right.copy()
    wrong[37] += (allowed + 2) * np.spacing(right[37])
    _rejects("exp", [x], wrong, r"exp: wrong at index \(37,\): got .*, want .*, error [2-4]\.\d* ulp; 1 of 100")


def test_correctly_rounded_ops_must_be_correctly_rounded():
    x, y = (np.random.default_rng(0).normal(size=100).astype(np.float32) for _ in range(2))
    for name in ("add", "mul", "sub"):
        wrong = _right(name, [x, y])
        check_pointwise(POINTWISE[name], [x, y], wrong)
        wrong[5] = np.nextafter(wrong[5], np.float32(np.inf))
        _rejects(name, [x, y], wrong)


def test_16_bit_output_adds_half_an_ulp_only():
    x = np.random.default_rng(0).normal(size=200).astype(np.float16)
    right = _right("silu", [x])
    assert right.dtype == np.float16
    check_pointwise(POINTWISE["silu"], [x], right)
    wrong = right.copy()
    wrong[3] += np.spacing(right[3])
    _rejects("silu", [x], wrong)


@pytest.mark.parametrize("dtype", FLOATS)
def test_special_values_are_exact(dtype: DataType):
    x = numpy_cast(np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0]), dtype)
    right = _right("set", [x])
    check_pointwise(POINTWISE["set"], [x], right)
    for index, value in [(0, 1.0), (0, np.nan), (1, np.inf), (2, 0.0), (3, -0.0), (4, 0.0), (5, np.inf)]:
        wrong = right.copy()
        wrong[index] = value
        _rejects("set", [x], wrong)
    # The same for an op with a tolerance.
    single = np.array([0.0, -0.0, np.inf, np.nan], np.float32)
    right = _right("sin", [single])
    check_pointwise(POINTWISE["sin"], [single], right)
    for index, value in [(0, -0.0), (1, 0.0), (2, 0.5), (3, 0.5), (0, np.nan)]:
        wrong = right.copy()
        wrong[index] = value
        _rejects("sin", [single], wrong)


def test_overflow_and_subnormals():
    x = np.array([88.0, 89.0, 200.0, -100.0, -103.0], np.float32)
    right = _right("exp", [x])
    assert np.isinf(right[1:3]).all()
    assert (right[3:] > 0).all()
    check_pointwise(POINTWISE["exp"], [x], right)
    for index, value in [
        (0, np.inf),
        (1, np.finfo(np.float32).max),
        (2, np.finfo(np.float32).max),
        (2, -np.inf),
        (3, 0.0),
    ]:
        wrong = right.copy()
        wrong[index] = value
        _rejects("exp", [x], wrong)


def test_integers_and_shapes_and_dtypes_are_exact():
    x = np.arange(100)
    wrong = x + 1
    wrong[99] += 1
    _rejects("add", [x, np.ones_like(x)], wrong)
    _rejects("add", [x, x], (x + x)[:50], "shape")
    _rejects("add", [x, x], (x + x).astype(np.float64), "dtype")
    _rejects("lt", [x, x[::-1].copy()], np.zeros(100, np.bool_))


@pytest.mark.parametrize("dtype", [D.ComplexFloat, D.ComplexDouble])
def test_complex_results_are_measured_by_their_magnitude(dtype: DataType):
    z = np.array([3 + 4j, 1 + 1e-9j, np.inf + 0j, np.nan + 0j, 0j], dtype.numpy)
    right = _right("exp", [z])
    check_pointwise(POINTWISE["exp"], [z], right)
    for index, value in [(0, 0), (1, right[1] * 1.00001), (2, 1), (3, 1), (4, 0)]:
        wrong = right.copy()
        wrong[index] = value
        _rejects("exp", [z], wrong)


def test_python_scalars_are_operands():
    x = np.linspace(1, 2, 100).astype(np.float16)
    check_pointwise(POINTWISE["add"], [x, 0.1], x.astype(np.float32) + np.float32(0.1))
    _rejects("add", [x, 0.1], x.astype(np.float32) + np.float32(np.float16(0.1)))


def test_lower_precision():
    x = np.array([1 + 2.0**-20, 1 + 2.0**-40])
    np.testing.assert_array_equal(lower_precision(x, D.Double), [1 + 2.0**-20, 1.0])
    np.testing.assert_array_equal(lower_precision(x.astype(np.float32), D.Float), [1.0, 1.0])
    half = np.array([1.0625, 1.125, -1.9375, np.inf, 0.0], np.float16)
    np.testing.assert_array_equal(lower_precision(half, D.Half), np.array([1.0, 1.125, -2.0, np.inf, 0.0], np.float16))


def test_a_blind_check_is_found_out():
    want = np.random.default_rng(0).normal(size=100).astype(np.float32)
    first = want + 1

    def blind(_: Array) -> None:
        return

    with pytest.raises(AssertionError, match="accepts the wrong result 'zeros'"):
        assert_wrong_results_fail(blind, want, first, D.Float)

    def loose(got: Array) -> None:
        assert np.abs(got - want).max() < 0.1

    with pytest.raises(AssertionError, match="accepts the wrong result 'lower'"):
        assert_wrong_results_fail(loose, want, first, D.Float)

    def strict(got: Array) -> None:
        assert np.array_equal(got, want)

    assert assert_wrong_results_fail(strict, want, first, D.Float) == Counts(3, 0)
    assert assert_wrong_results_fail(strict, want, first, D.Float, trivial={"first"}) == Counts(2, 1)
    assert assert_wrong_results_fail(strict, want[:63], first[:63], D.Float) == Counts(0, 0)
    with pytest.raises(AssertionError, match="do not tell the wrong result 'first'"):
        assert_wrong_results_fail(strict, want, want, D.Float)


def test_drawn_inputs_hold_special_values():
    rng = np.random.default_rng(0)
    for dtype in FLOATS:
        x, y = (a.astype(np.float64) for a in draw_inputs(POINTWISE["add"], dtype, (40, 25), rng))
        for a in (x, y):
            assert a.shape == (40, 25)
            assert np.isnan(a).any()
            assert (a == np.inf).any()
            assert ((a == 0) & np.signbit(a)).any()
            assert ((a != 0) & (np.abs(a) < 2.0**-14)).any()
            assert (np.abs(a[np.isfinite(a)]) > 1e4).any()
        assert (x == y).mean() > 0.05
    condition = draw_inputs(POINTWISE["where"], D.Float, (100,), rng)[0]
    assert condition.dtype == np.bool_
    i, _ = draw_inputs(POINTWISE["add"], D.Int32, (400,), rng)
    assert i.dtype == np.int32
    assert i.max() == 2**31 - 1


REDUCTION_CASES = [
    ("sum", (D.Double, D.Float, D.Half, D.BFloat16, D.Int, D.Int32, D.ComplexFloat, D.ComplexDouble)),
    ("prod", (D.Double, D.Float, D.Half, D.BFloat16, D.Int, D.Int32, D.ComplexFloat, D.ComplexDouble)),
    ("max", (D.Double, D.Float, D.Half, D.BFloat16, D.Int, D.Int32, D.Bool)),
    ("min", (D.Double, D.Float, D.Half, D.BFloat16, D.Int, D.Int32, D.Bool)),
    ("mean", (D.Double, D.Float)),
    ("var", (D.Double, D.Float)),
    ("m2", (D.Double, D.Float)),
]


def _reduce(kind: str, x: Array, axis: int, out_dtype: DataType) -> Array:
    """A result as a kernel computes it: in the accumulator's own precision."""
    held = x if x.dtype.kind in "biuc" or x.dtype.itemsize >= 4 else x.astype(np.float32)
    match kind:
        case "mean":
            result = held.mean(axis)
        case "var":
            result = held.var(axis, ddof=1)
        case "m2":
            result = held.var(axis) * held.dtype.type(held.shape[axis])
        case _:
            result = REDUCTIONS[kind].numpy(held, (axis,), False)
    return numpy_cast(np.asarray(result), out_dtype)


@pytest.mark.parametrize(("kind", "dtype"), [(k, d) for k, dtypes in REDUCTION_CASES for d in dtypes])
def test_reductions(kind: str, dtype: DataType):
    rng = np.random.default_rng(3)
    total = Counts(0, 0)
    # A product of more elements than this is only known to about a BFloat16's precision.
    for shape, axis in (((70, 300), 1), ((300, 70), 0), ((1, 200 if kind == "prod" else 5000), 1)):
        x = draw_reduction_input(kind, dtype, shape, (axis,), rng)
        got = _reduce(kind, x, axis, dtype)
        check_reduction(kind, x, (axis,), got)
        trivial = {"zeros", "first"} if dtype is D.Bool else set()
        if kind in ("max", "min") and dtype.is_integral:
            trivial = set()
        total += assert_wrong_reduction_fail(kind, x, (axis,), dtype, trivial=trivial)
        wrong = got.copy()
        wrong.reshape(-1)[0] = ~wrong.reshape(-1)[0] if dtype is D.Bool else 3
        with pytest.raises(AssertionError, match="wrong at index"):
            check_reduction(kind, x, (axis,), wrong)
    assert total.asserted >= (0 if dtype is D.Bool else 6)


def test_reduction_bounds_hold_back_a_single_missing_element():
    rng = np.random.default_rng(0)
    x = rng.normal(1.0, 1.0, (4, 1 << 16)).astype(np.float32)
    check_reduction("sum", x, (1,), x.sum(1))
    with pytest.raises(AssertionError):
        check_reduction("sum", x, (1,), x[:, :-16].sum(1))
    half = x[:, :4096].astype(np.float16)
    check_reduction("sum", half, (1,), half.sum(1, dtype=np.float32).astype(np.float16))
    with pytest.raises(AssertionError):  # accumulated in Half instead of Float
        check_reduction("sum", half, (1,), np.cumsum(half, axis=1, dtype=np.float16)[:, -1])


def test_variance_of_constants_and_of_large_means():
    x = np.full((2, 4096), 1000.0, np.float32)
    check_reduction("var", x, (1,), np.zeros(2, np.float32))
    with pytest.raises(AssertionError):
        check_reduction("var", x, (1,), np.full(2, 100.0, np.float32))
    y = np.random.default_rng(0).normal(0.0, 1.0, (2, 4096)).astype(np.float32)
    with pytest.raises(AssertionError):
        check_reduction("var", y, (1,), y.var(1, ddof=0), correction=1)


def test_empty_and_special_reductions():
    empty = np.empty((3, 0), np.float32)
    check_reduction("sum", empty, (1,), np.zeros(3, np.float32))
    check_reduction("prod", empty, (1,), np.ones(3, np.float32))
    check_reduction("max", empty, (1,), np.full(3, -np.inf, np.float32))
    check_reduction("min", np.empty((3, 0), np.int32), (1,), np.full(3, 2**31 - 1, np.int32))
    x = np.ones((2, 100), np.float32)
    x[0, 7] = np.nan
    x[1, 8] = np.inf
    for kind in ("sum", "max"):
        check_reduction(kind, x, (1,), np.array([np.nan, np.inf], np.float32))
        with pytest.raises(AssertionError):
            check_reduction(kind, x, (1,), np.array([1.0, np.inf], np.float32))
    zeros = np.array([[-0.0, 0.0], [-0.0, -0.0]], np.float32)
    check_reduction("max", zeros, (1,), np.array([0.0, -0.0], np.float32))
    with pytest.raises(AssertionError):
        check_reduction("max", zeros, (1,), np.array([-0.0, -0.0], np.float32))


def test_wrong_pointwise_results_fail_for_a_plain_op():
    inputs = draw_inputs(POINTWISE["add"], D.Float, (100,), np.random.default_rng(0))
    assert assert_wrong_pointwise_fail(POINTWISE["add"], inputs) == Counts(3, 0)
    inputs = draw_inputs(POINTWISE["set"], D.Float, (100,), np.random.default_rng(0))
    assert assert_wrong_pointwise_fail(POINTWISE["set"], inputs) == Counts(2, 1)
