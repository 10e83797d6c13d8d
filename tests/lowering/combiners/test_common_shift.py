"""One shift for all threads of a result: joins add sums up, whatever the first values are, and whether they are there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fuser import FusionDefinition
from fuser.ir.dtypes import DataType
from fuser.ir.fusion import Fusion
from fuser.ir.kernel import Allocate, Kernel, Store, walk
from fuser.schedule.params import ReductionParams
from tests.harness import run
from tests.lowering.combiners.test_moments import SHARED, Array, columns, exact, lowered, params

Float, Double = DataType.Float, DataType.Double
TYPES = {Float: np.dtype("f4"), Double: np.dtype("f8")}
GIVEN = [
    *(replace(p, vector=min(p.vector, 2)) for p in SHARED if p.block_reduce > 1),
    params(16, 8, vector=1, blocks=9, unroll=2),
    params(64, 8, vector=2, blocks=20, unroll=1),
]
"""Threads and blocks that share columns of 72 elements in vectors of two at most."""


def plain(dtype: DataType) -> Fusion:
    return columns(dtype, lambda _, x: x)


def doubled(dtype: DataType) -> Fusion:
    def change(fd: FusionDefinition, x: Any) -> Any:
        return fd.ops.add(x, x)

    return columns(dtype, change)


def found(fusion: Fusion, x: Array, given: ReductionParams) -> tuple[Array, Array]:
    results = run(lowered(fusion, x, given), [x]).check()
    variance, mean = (results[t.name] for t in fusion.output_tensors)
    return variance, mean


def shifts_elsewhere(kernel: Kernel) -> list[str]:
    """Shifts that threads leave for others, in shared memory or device memory."""
    buffers = {s.buffer for s in walk(kernel.body) if isinstance(s, (Allocate, Store))}
    return [b.name for b in buffers if not b.is_register and "shift" in b.name]


@pytest.mark.parametrize("given", GIVEN, ids=str)
@pytest.mark.parametrize("dtype", TYPES)
def test_threads_tell_one_another_no_shift(
    dtype: DataType, given: ReductionParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    x = np.zeros((301, 72), TYPES[dtype])
    assert not shifts_elsewhere(lowered(plain(dtype), x, given).kernel)


def test_values_that_are_computed_have_a_shift_in_each_thread() -> None:
    """Threads leave it beside sums of Floats; of Doubles they leave means and squares, which need none."""
    given = params(16, 8, blocks=9)
    assert shifts_elsewhere(lowered(doubled(Float), np.zeros((301, 72), "f4"), given).kernel)
    assert not shifts_elsewhere(lowered(doubled(Double), np.zeros((301, 72)), given).kernel)


def _far(*rows: int) -> Callable[[Array], Array]:
    def change(x: Array) -> Array:
        x[list(rows)] = 1e7
        return x

    return change


def _begun(x: Array, first: float) -> Array:
    x[0] = first
    return x


KINDS: dict[str, Callable[[Array], Array]] = {
    "normal": lambda x: x,
    "far from zero": lambda x: x + 1e5,
    "the first far from all others": _far(0),
    "the second far from all others": _far(1),
    "that of a thread in the middle far from all others": _far(8),
    "the first has bits that differences have not": lambda x: _begun(1 + x / 2, 0.016790604437643686),
    "all the same": lambda x: 0 * x + np.pi,
    "rising": lambda x: x + np.arange(len(x))[:, None],
    "a running maximum": lambda x: np.maximum.accumulate(x, axis=0),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", GIVEN, ids=str)
@pytest.mark.parametrize("dtype", TYPES)
def test_results_are_rounded_little_more_than_once(dtype: DataType, given: ReductionParams, kind: str) -> None:
    x = KINDS[kind](np.random.default_rng(3).standard_normal((1001, 72))).astype(TYPES[dtype])
    variance, mean = found(plain(dtype), x, given)
    exact_variance, exact_mean = exact(x)
    # Four threads see the same value twice where it is the maximum so far; torch's Welford of those is off by 10 units.
    doubles = {"the first has bits that differences have not": 2.0, "a running maximum": 5.0}
    most = 1.5 if dtype is Float else doubles.get(kind, 4.0)
    assert np.all(np.abs(variance - exact_variance) <= most * np.spacing(exact_variance.astype(x.dtype)))
    assert np.all(np.abs(mean - exact_mean) <= np.spacing(np.abs(exact_mean).astype(x.dtype)))


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "a running maximum"])
def test_doubles_that_are_computed_are_as_exact(kind: str) -> None:
    x = KINDS[kind](np.random.default_rng(3).standard_normal((1001, 72)))
    exact_variance, exact_mean = exact(2 * x)
    for given in (params(16, 8, blocks=9), params(64, 8, vector=2, blocks=20, unroll=1)):
        variance, mean = found(doubled(Double), x, given)
        assert np.all(np.abs(variance - exact_variance) <= 4 * np.spacing(exact_variance.astype(x.dtype)))
        assert np.all(np.abs(mean - exact_mean) <= 1.5 * np.spacing(np.abs(exact_mean).astype(x.dtype)))


@pytest.mark.parametrize("rows", [17, 93])
def test_a_first_value_that_is_larger_than_all_others(rows: int) -> None:
    """Differences from it lose a bit, and their squares are several times those from the mean: off by 4.4 units."""
    x = np.random.default_rng(1).standard_normal((rows, 1003))
    x[0] = np.max(x, axis=0) + 0.1
    with FusionDefinition() as fd:
        for result in fd.ops.var_mean(fd.define_tensor([-1, -1], True, Double), [0], 1, False):
            fd.add_output(result)
    variance, mean = fd.execute([x], device="simulator")
    exact_variance, exact_mean = exact(x)
    assert np.all(np.abs(variance - exact_variance) <= 2.5 * np.spacing(exact_variance.astype(x.dtype)))
    assert np.all(np.abs(mean - exact_mean) <= np.spacing(np.abs(exact_mean).astype(x.dtype)) + 1e-18)


@pytest.mark.parametrize("rows", [2, 3, 15, 40])
@pytest.mark.parametrize("given", GIVEN, ids=str)
@pytest.mark.parametrize("dtype", TYPES)
def test_threads_and_blocks_without_values(dtype: DataType, given: ReductionParams, rows: int) -> None:
    x = (1e4 + np.random.default_rng(2).standard_normal((rows, 72))).astype(TYPES[dtype])
    variance, mean = found(plain(dtype), x, given)
    assert np.all(np.abs(mean - exact(x)[1]) <= np.spacing(mean))
    np.testing.assert_allclose(variance, exact(x)[0].astype("f8"), rtol=float(4 * np.finfo(x.dtype).eps))


@pytest.mark.parametrize("given", GIVEN, ids=str)
@pytest.mark.parametrize("dtype", TYPES)
def test_infinities_and_nan(dtype: DataType, given: ReductionParams) -> None:
    x = np.random.default_rng(6).standard_normal((301, 72)).astype(TYPES[dtype])
    middle = given.block_reduce // 2
    x[0, 1], x[middle, 2], x[300, 3], x[0, 4] = np.inf, -np.inf, np.nan, np.nan
    x[0, 5], x[middle, 5] = np.inf, np.inf
    x[5, 6], x[6, 6] = np.inf, -np.inf
    variance, mean = found(plain(dtype), x, given)
    assert np.isnan(variance[1:7]).all()
    np.testing.assert_array_equal(mean[1:7], [np.inf, -np.inf, np.nan, np.nan, np.inf, np.nan])
    assert np.isfinite(np.delete(variance, range(1, 7))).all()


@pytest.mark.parametrize("dtype", [DataType.Float, DataType.Double])
@pytest.mark.parametrize(
    ("shape", "dims"), [((3, 5, 0), [0, 2]), ((0, 5, 3), [0, 2]), ((300, 2, 0), [0, 2]), ((5, 0), [1])]
)
def test_nothing_has_no_first_value(shape: tuple[int, ...], dims: list[int], dtype: DataType) -> None:
    """Of several reduced dims one has elements, and its loop turns: the read of the first value has no loop around it."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1] * len(shape), True, dtype)
        var, mean = fd.ops.var_mean(x, dims, 0, False)
        fd.add_output(mean)
        fd.add_output(var)
    for sizes in (shape, tuple(n or 8 for n in shape), shape):
        given = np.ones(sizes, dtype.numpy)
        mean, var = fd.execute([given], device="simulator")
        assert mean.shape == var.shape == np.sum(given, tuple(dims)).shape
        if given.size:
            assert np.all(mean == 1.0)
            assert np.all(var == 0.0)
