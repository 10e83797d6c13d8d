"""Statistics whose means have a rest: how exact they are however threads share the work, and where there are none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fuser import FusionDefinition
from fuser.ir.dtypes import DataType
from fuser.ir.enums import ParallelType
from fuser.ir.exact_statistics import exact_statistics
from fuser.ir.fusion_builder import FusionBuilder
from fuser.ir.kernel import walk
from fuser.ir.schedule import ScheduleBuilder
from tests.harness import Lowered, run
from tests.kernel_corpus import BX, BY, GX, GY, SERIAL, schedule_axes
from tests.oracle import Array

BF16, Float, Double, Complex = DataType.BFloat16, DataType.Float, DataType.Double, DataType.ComplexFloat

SHARED_WORK: list[tuple[int, Sequence[ParallelType]]] = [
    (1, (GX, SERIAL, SERIAL)),
    (32, (GX, SERIAL, BX)),
    (128, (GX, SERIAL, BX)),
    (20, (GX, SERIAL, BX)),
    (16, (GX, GY, BX)),
    (24, (BX, SERIAL, BY)),
]


def statistics(x: Array, block: int, types: Sequence[ParallelType]) -> tuple[Array, Array]:
    """Means and sums of squared differences of the rows of x on the simulator, each split by `block`, the axes of `types`."""
    b = FusionBuilder()
    dtype = Float if x.dtype == np.float32 else Double
    mean, m2, _ = b.welford(b.input_tensor(dtype, [-1, -1]), [1])
    b.add_output(mean)
    b.add_output(m2)
    s = ScheduleBuilder(b.freeze())
    s.split(mean.name, 1, block)
    schedule_axes(s, mean.name, types)
    found = run(Lowered.of(s), [x]).check()
    return found[mean.name], found[m2.name]


def rows_far_from_zero(dtype: type) -> Array:
    generator = np.random.default_rng(0)
    return np.stack(
        [c + d * generator.standard_normal(2003) for c, d in ((1000, 0.125), (-12345, 1.0), (3e5, 1.0))]
    ).astype(dtype)


@pytest.mark.parametrize(("block", "types"), SHARED_WORK[1:])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_large_mean_costs_no_digits_of_the_variance(block: int, types: Sequence[ParallelType], dtype: type) -> None:
    x = rows_far_from_zero(dtype)
    mean, m2 = statistics(x, block, types)
    wide = x.astype(np.longdouble)
    exact = wide.mean(1)
    exact_m2 = ((wide - exact[:, None]) ** 2).sum(1)
    assert np.all(np.abs(mean - exact) <= 0.51 * np.spacing(np.abs(mean)))
    # Sums of Floats are added up in Double; those of Doubles are not split, and 126 of them are added one after another.
    assert np.all(np.abs(m2 - exact_m2) <= (1.6 if dtype is np.float32 else 16) * np.spacing(m2))


@pytest.mark.parametrize(("block", "types"), SHARED_WORK)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_mean_near_zero_is_rounded_once(block: int, types: Sequence[ParallelType], dtype: type) -> None:
    generator = np.random.default_rng(0)
    x = generator.standard_normal((24, 2003)).astype(dtype)
    x[12:] *= (10.0 ** generator.integers(-3, 4, (12, 2003))).astype(dtype)
    x -= x.mean(1, keepdims=True, dtype=np.longdouble).astype(dtype)
    mean, _ = statistics(x, block, types)
    exact = x.astype(np.longdouble).mean(1)
    error = np.abs(mean - exact)
    # Joins of Floats round differences of means, not means: a tenth of a rounding of what was added. Of Doubles they round
    # shares of unequal counts.
    joins = 0.1 if dtype is np.float32 else 0.02
    limit = 0.51 * np.spacing(np.abs(mean)) + joins * np.finfo(dtype).eps * x.std(1)
    assert (error <= limit).all(), (error / limit).max()


@pytest.mark.parametrize(("block", "types"), SHARED_WORK)
def test_a_constant_has_no_variance(block: int, types: Sequence[ParallelType]) -> None:
    x = np.repeat(np.array([[3.25], [12345.678], [3e38], [1e-41]], np.float32), 301, 1)
    mean, m2 = statistics(x, block, types)
    np.testing.assert_array_equal(mean, x[:, 0])
    np.testing.assert_array_equal(m2, 0)


@pytest.mark.parametrize(("block", "types"), SHARED_WORK)
def test_rows_that_are_not_finite_spoil_no_others(block: int, types: Sequence[ParallelType]) -> None:
    x = np.ones((4, 301), np.float32)
    x[0, 7], x[1, 299], x[2, 0] = np.inf, np.nan, -np.inf
    mean, m2 = statistics(x, block, types)
    assert not np.isfinite(mean[:3]).any()
    assert np.isnan(m2[:3]).all()
    assert (mean[3], m2[3]) == (1, 0)


def _kinds(x: Array) -> dict[str, Array]:
    heavy = np.sign(x) * np.minimum(np.exp(np.abs(x) * 6) * 1e-4, 1e4)
    return {
        "normal": x,
        "mean 1000": x + 1000,
        "heavy tails": heavy,
        "heavy tails and a mean": heavy + 1,
        "tiny": x * 1e-6,
    }


@pytest.mark.parametrize("dtype", [BF16, DataType.Half, Float], ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(5003, 24), (700, 33), (40, 8)], ids=str)
def test_statistics_of_columns_are_off_by_a_few_roundings(
    dtype: DataType, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the data, and however many threads and blocks share a column."""
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, dtype)
        for t in fd.ops.var_mean(fd.ops.cast(x, Float), [0]):
            fd.add_output(t)
    for kind, values in _kinds(np.random.default_rng(0).standard_normal(shape)).items():
        given = values.astype(dtype.numpy)
        wide = given.astype(np.float64)
        for got, exact in zip(fd.execute([given]), (wide.var(0, ddof=1), wide.mean(0)), strict=True):
            # Of means that cancel, those below a sixteenth of the largest count as much; warps are joined in Float.
            magnitude = np.maximum(np.abs(exact), np.abs(exact).max() / 16).astype(np.float32)
            assert np.max(np.abs(got - exact) / np.spacing(magnitude)) < 8, kind


@pytest.mark.parametrize("shape", [(5003, 24), (700, 33), (40, 8)], ids=str)
def test_statistics_of_columns_of_doubles(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Means that cancel are rounded once: they were off by seven units, where torch's are by five to fifteen."""
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, Double)
        for t in fd.ops.var_mean(x, [0]):
            fd.add_output(t)
    for kind, values in _kinds(np.random.default_rng(0).standard_normal(shape)).items():
        wide = values.astype(np.longdouble)
        exact = wide.mean(0)
        variance = ((wide - exact) ** 2).sum(0) / (shape[0] - 1)
        for got, want, limit in zip(fd.execute([values]), (variance, exact), (9, 1), strict=True):
            magnitude = np.maximum(np.abs(want), np.abs(want).max() / 16).astype(np.float64)
            assert np.max(np.abs(got - want) / np.spacing(magnitude)) < limit, kind


@pytest.mark.parametrize("place", [0, 1, 2, 7], ids=lambda k: f"value {k}")
def test_a_value_far_from_all_others_costs_no_digits(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a thread meets it: squares of differences from it would be eight times its own."""
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    x = np.random.default_rng(0).standard_normal((5003, 24)) * 0.01
    # A thread has every 32nd row.
    x[32 * place + np.arange(24), np.arange(24)] = 1e4 * (1 + np.random.default_rng(1).random(24))
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1], True, Double)
        for result in fd.ops.var_mean(t, [0]):
            fd.add_output(result)
    wide = x.astype(np.longdouble)
    exact = wide.mean(0)
    variance = ((wide - exact) ** 2).sum(0) / 5002
    for got, want, limit in zip(fd.execute([x]), (variance, exact), (1.2, 0.5), strict=True):
        error = (got - want) / np.spacing(want.astype(np.float64))
        assert np.sqrt(np.mean(error**2)) < limit


@pytest.mark.parametrize("first", [np.inf, -np.inf, np.nan])
def test_a_first_value_that_is_not_finite_spoils_its_column_alone(
    first: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    x = np.random.default_rng(0).standard_normal((700, 5))
    x[0, 3] = first
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1], True, Double)
        for result in fd.ops.var_mean(t, [0]):
            fd.add_output(result)
    with np.errstate(all="ignore"):
        variance, mean = fd.execute([x])
    others = [0, 1, 2, 4]
    np.testing.assert_allclose(variance[others], x[:, others].var(0, ddof=1), rtol=1e-14)
    np.testing.assert_allclose(mean[others], x[:, others].mean(0), rtol=1e-13)
    assert np.isnan(variance[3])
    assert not np.isfinite(mean[3])


@pytest.mark.parametrize("shape", [(8, 6, 17, 19), (3, 40003)], ids=["columns", "rows"])
def test_differences_from_a_large_mean_keep_their_digits(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mean is rounded to 2**-14; a unit of the result is 2**-26."""
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    dims = [0, 2, 3] if len(shape) == 4 else [1]
    order = (0, 2, 3, 1) if len(shape) == 4 else (0, 1)
    back = np.argsort(order)
    x = (
        (np.random.default_rng(0).standard_normal([shape[d] for d in order]) / 8 + 1000)
        .astype(np.float32)
        .transpose(back)
    )
    with FusionDefinition() as fd:
        t = fd.define_tensor(sizes=x.shape, strides=tuple(n // 4 for n in x.strides), dtype=Float)
        var, mean = fd.ops.var_mean(t, dims, 0, True)
        fd.add_output((t - mean) * fd.ops.rsqrt(var + 1e-5))
    wide = x.astype(np.float64)
    centred = wide - wide.mean(tuple(dims), keepdims=True)
    exact = centred / np.sqrt((centred**2).mean(tuple(dims), keepdims=True) + 1e-5)
    (y,) = fd.execute([x])
    assert np.max(np.abs(y - exact) / np.maximum(np.abs(exact), 0.25)) < 6 * 2.0**-23


def test_results_of_16_bits_have_triples() -> None:
    b = FusionBuilder()
    x = b.input_tensor(BF16, [-1, -1])
    wide = b.pointwise("cast", [x], Float)
    shown, hidden = b.welford(wide, [1]), b.welford(wide, [0])
    unseen = b.welford(b.input_tensor(Complex, [-1, -1]), [0])
    b.add_output(b.pointwise("exp", [shown[1]], Float))
    b.add_output(b.pointwise("cast", [hidden[0]], BF16))
    b.add_output(unseen[1])
    assert exact_statistics(ScheduleBuilder(b.freeze())) == {shown[0].name}


def test_a_triple_has_no_rest() -> None:
    b = FusionBuilder()
    x = b.input_tensor(BF16, [-1, -1])
    mean, _, _ = b.welford(b.pointwise("cast", [x], Float), [1])
    b.add_output(b.pointwise("cast", [mean], BF16))
    s = ScheduleBuilder(b.freeze())
    s.inline_most()
    kernel = Lowered.of(s).kernel
    assert not any("rest" in str(stmt) for stmt in walk(kernel.body))
