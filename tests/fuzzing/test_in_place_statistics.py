"""Random statistics of inputs that are updated in place, on the simulator: right, no race, and direct where that may be.

    statistic := of an input, or of two, along rows, columns or all of it, joined by threads and blocks as schedulers choose
    update    := of what the statistic is of, of another input, by itself or from the statistic, or from neighbours

`pytest --seeds 1000:1400` takes other seeds.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fuser import DataType, FusionDefinition

Array = np.ndarray[Any, Any]
Float, Double, Half, BFloat16 = DataType.Float, DataType.Double, DataType.Half, DataType.BFloat16
SEEDS = range(40)
NUMPY = {Float: "f4", Double: "f8", Half: "f2", BFloat16: ml_dtypes.bfloat16}
# Of unit-sized values; a sum may cancel.
PRECISION = {Float: 1e-6, Double: 1e-14, Half: 2e-3, BFloat16: 2e-2}
SHAPES = [(9, 13), (4, 64), (1, 127), (200, 100), (3, 5000), (1000, 33), (2, 1), (33, 257), (2000, 8), (7, 2050)]
SHAPES_3 = [(3, 5, 7), (2, 16, 64), (1, 9, 300), (8, 1, 40)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        asked = metafunc.config.getoption("--seeds")
        metafunc.parametrize("seed", SEEDS if asked is None else range(*map(int, asked.split(":"))))


STATISTICS: dict[str, tuple[Callable[[Any, Any, list[int]], Any], Callable[[Array, tuple[int, ...]], Array]]] = {
    "var": (lambda o, x, dims: o.var(x, dims, 0, True), lambda x, dims: x.var(dims, keepdims=True)),
    "mean": (lambda o, x, dims: o.var_mean(x, dims, 0, True)[1], lambda x, dims: x.mean(dims, keepdims=True)),
    "both": (
        lambda o, x, dims: o.add(*o.var_mean(x, dims, 0, True)),
        lambda x, dims: x.var(dims, keepdims=True) + x.mean(dims, keepdims=True),
    ),
    "max": (lambda o, x, dims: o.max(x, dims, True), lambda x, dims: x.max(dims, keepdims=True)),
    "squares": (
        lambda o, x, dims: o.mul(o.sum(o.mul(x, x), dims, True), 1e-3),
        lambda x, dims: (x * x).sum(dims, keepdims=True) * 1e-3,
    ),
}


def shifted(o: Any, x: Any) -> Any:
    """Its neighbours along the last dim."""
    size = [o.size(x, d) for d in range(x.ndim)]
    padded = o.pad(x, [1, 0])
    return o.slice(padded, [0] * x.ndim, size)


def shifted_array(x: Array) -> Array:
    result = np.zeros_like(x)
    result[..., 1:] = x[..., :-1]
    return result


def failure(seed: int) -> str | None:
    """What is wrong with the results of a seed's program."""
    rng = random.Random(seed)
    dtype, shape = rng.choice(list(NUMPY)), rng.choice(SHAPES if rng.random() < 0.75 else SHAPES_3)
    dims = rng.choice(([len(shape) - 1], [0], list(range(len(shape)))))
    name, two, from_statistic = rng.choice(sorted(STATISTICS)), rng.random() < 0.3, rng.random() < 0.5
    neighbours, updates_second, of_both = rng.random() < 0.15, two and rng.random() < 0.5, two and rng.random() < 0.5
    define, compute = STATISTICS[name]
    low = dtype in (Half, BFloat16)
    with FusionDefinition() as fd:
        o = fd.ops
        x = fd.define_tensor([-1] * len(shape), True, dtype)
        y = fd.define_tensor([-1] * len(shape), True, dtype) if two else x
        wide, other = (o.cast(t, Float) if low else t for t in (x, y))
        statistic = define(o, o.add(wide, other) if of_both else wide, dims)
        base = shifted(o, wide) if neighbours else other if updates_second else wide
        new = o.mul(o.sub(base, statistic) if from_statistic else o.clamp(base, -2.0, 0.75), 0.5)
        fd.add_output(o.cast(new, dtype) if low else new, y if updates_second else x)
        fd.add_output(statistic)
        if two:
            fd.add_output(o.sum(other, [0]))
    arrays = [np.random.default_rng((seed, k)).standard_normal(shape).astype(NUMPY[dtype]) for k in range(1 + two)]
    first, second = arrays[0].astype("f8"), arrays[-1].astype("f8")
    wanted = compute(first + second if of_both else first, tuple(dims))
    base_array = shifted_array(first) if neighbours else second if updates_second else first
    changed = 0.5 * (base_array - wanted if from_statistic else base_array.clip(-2.0, 0.75))
    results = fd.execute(arrays, device="simulator")
    updated, kept = (arrays[-1], first) if updates_second else (arrays[0], second)
    said = f"{name} along {dims} of {shape} {dtype.name}"
    scale = max(1.0, float(np.abs(wanted).max()))
    if not np.allclose(updated.astype("f8"), changed, rtol=PRECISION[dtype], atol=PRECISION[dtype] * scale):
        return f"{said}: the update"
    if not np.allclose(
        np.asarray(results[0]).astype("f8"), wanted, rtol=1e-5 if low else PRECISION[dtype], atol=1e-5 * scale
    ):
        return f"{said}: the statistic"
    if two and not np.array_equal(arrays[0 if updates_second else 1].astype("f8"), kept):
        return f"{said}: the other input was changed"
    return None


@pytest.mark.in_turns
def test_random_statistics(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    assert failure(seed) is None


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", list(NUMPY))
@pytest.mark.parametrize("shape", [(9, 13), (1, 127), (64, 33), (5, 400)])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_shift_of_all_threads_of_a_row(dtype: DataType, shape: tuple[int, int], axis: int) -> None:
    """Each thread reads the first element of its row, or column, which one of them overwrites in the same pass."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, dtype)
        fd.add_output(fd.ops.var(x, [axis], 1, False))
        fd.add_output(fd.ops.clamp(x, -2.0, 0.75), x)
    array = np.random.default_rng(0).standard_normal(shape).astype(NUMPY[dtype])
    before = array.astype("f8")
    (found,) = fd.execute([array], device="simulator")
    np.testing.assert_array_equal(array.astype("f8"), before.clip(-2.0, 0.75))
    expected = before.var(axis, ddof=1) if shape[axis] > 1 else np.full(shape[1 - axis], np.nan)
    precision = PRECISION[dtype]
    np.testing.assert_allclose(np.asarray(found).astype("f8"), expected, rtol=precision, atol=precision)


@pytest.mark.parametrize("size", [5, 64, 1001, 4096])
@pytest.mark.parametrize("dtype", list(NUMPY))
def test_steps_of_optimizers_are_direct(dtype: DataType, size: int) -> None:
    """Nothing is copied: an element is read and written by one thread."""
    with FusionDefinition() as fd:
        o = fd.ops
        p, m, g = (fd.define_tensor([-1, -1], True, dtype) for _ in range(3))
        wide = [o.cast(t, Float) if dtype in (Half, BFloat16) else t for t in (p, m, g)]
        momentum = o.add(o.mul(wide[1], 0.9), wide[2])
        for new, old in ((momentum, m), (o.sub(wide[0], o.mul(momentum, 0.1)), p)):
            fd.add_output(o.cast(new, dtype) if dtype in (Half, BFloat16) else new, old)
    arrays = [np.random.default_rng(k).standard_normal((3, size)).astype(NUMPY[dtype]) for k in range(3)]
    program = fd.program(arrays)
    assert [type(i).__name__ for i in program.instructions] == ["LaunchKernel"]
