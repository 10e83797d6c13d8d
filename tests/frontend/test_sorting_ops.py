"""topk, argsort and scatter: against NumPy, for all dtypes, dims and layouts; errors as the contract words them."""

from __future__ import annotations

import itertools
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.errors import DefinitionRuntimeError, InputRuntimeError
from tests.frontend.library_operands import laid_out

DTYPES = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32, np.int64)
SHAPES = ((7,), (5, 3), (4, 3, 6))

Array = np.ndarray[Any, Any]


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, which: int) -> Array:
    """Few different ones, so that some are equal; some nan."""
    array = laid_out(rng, shape, np.float32, which)
    small = np.round(array * 2)
    if np.dtype(dtype).kind in "iu":
        return small.astype(dtype)
    found = small.astype(dtype)
    if found.flags.writeable:
        found[(0,) * len(shape)] = np.nan
    return found


def sorted_indices(array: Array, dim: int, *, descending: bool) -> Array:
    """Stable; a nan is the largest."""
    wide = array.astype(np.float64)
    rank = np.where(np.isnan(wide), np.inf, wide)
    return np.argsort(-rank if descending else rank, axis=dim, kind="stable")


def run(body: Any, *arrays: Any) -> list[Array]:
    with FusionDefinition() as fd:
        results = body(fd.ops, *(fd.from_array(a) for a in arrays))
        for t in results if isinstance(results, tuple) else (results,):
            fd.add_output(t)
    return [np.asarray(out) for out in fd.execute(list(arrays))]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_argsort_sorts_every_dim(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    layouts = itertools.cycle(range(4))
    for shape in SHAPES:
        for dim, descending in itertools.product(range(-len(shape), len(shape)), (False, True)):
            a = values(rng, shape, dtype, next(layouts))
            (out,) = run(lambda ops, x: ops.argsort(x, dim, descending, True), a)  # noqa: B023
            assert out.dtype == np.int64
            assert np.array_equal(out, sorted_indices(a, dim, descending=descending))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_topk_takes_the_first_of_every_dim(dtype: Any) -> None:
    rng = np.random.default_rng(1)
    layouts = itertools.cycle(range(4))
    for shape in SHAPES:
        for dim, largest in itertools.product(range(-len(shape), len(shape)), (False, True)):
            for k in (0, 1, shape[dim]):
                a = values(rng, shape, dtype, next(layouts))
                found, where = run(lambda ops, x: ops.topk(x, k, dim, largest, True), a)  # noqa: B023
                order = np.take(sorted_indices(a, dim, descending=largest), range(k), axis=dim)
                wanted = np.take_along_axis(a, order, axis=dim)
                assert where.dtype == np.int64
                assert found.dtype == a.dtype
                wide = (found.astype(np.float64), wanted.astype(np.float64))
                assert np.array_equal(*wide, equal_nan=True)
                assert np.array_equal(
                    np.take_along_axis(a, where, axis=dim).astype(np.float64), wide[1], equal_nan=True
                )


def test_tensors_of_rank_0() -> None:
    x = np.asarray(3.0, np.float32)
    found, where = run(lambda ops, t: ops.topk(t, 1), x)
    assert (found.shape, float(found), int(where)) == ((), 3.0, 0)
    assert int(run(lambda ops, t: ops.argsort(t, 0), x)[0]) == 0


def test_k_may_be_known_at_execution_only() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], dtype=DataType.Float)
        k = fd.define_scalar(None, DataType.Int)
        found, where = fd.ops.topk(x, k, 1, True, True)
        fd.add_output(fd.ops.mul(found, 2.0))
        fd.add_output(where)
    a = np.random.default_rng(2).standard_normal((4, 6)).astype(np.float32)
    for n in (3, 1, 6, 0, 3):
        doubled, indices = fd.execute([a, n])
        assert np.array_equal(indices, np.argsort(-a, axis=1, kind="stable")[:, :n])
        assert np.array_equal(doubled, 2 * np.take_along_axis(a, indices, axis=1))
    with pytest.raises(InputRuntimeError, match=r"k .* range"):
        fd.execute([a, 7])
    with pytest.raises(InputRuntimeError, match="Invalid resized domain extent"):
        fd.execute([a, -5])


def test_a_dim_of_one_k_broadcasts() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], dtype=DataType.Float)
        k = fd.define_scalar(None, DataType.Int)
        largest, _ = fd.ops.topk(x, k, 1)
        fd.add_output(fd.ops.sub(x, largest))
    a = np.random.default_rng(3).standard_normal((4, 6)).astype(np.float32)
    np.testing.assert_array_equal(fd.execute([a, 1])[0], a - a.max(1, keepdims=True))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda ops, x: ops.topk(x, 3, 3), "Tried to access out of boundary index 3. total index: 3"),
        (lambda ops, x: ops.topk(x, 3, -4), "Tried to access out of boundary index -4. total index: 3"),
        (lambda ops, x: ops.topk(x, -5, 1), "Invalid resized domain extent"),
        (lambda ops, x: ops.topk(x, 16, 1), "topk(): k is 16, out of range for dim 1, of extent 7"),
        (lambda ops, x: ops.topk(x, 2.0), "topk(): k must be an integer, got Double"),
        (lambda ops, x: ops.argsort(x, 3), "Tried to access out of boundary index 3. total index: 3"),
        (lambda ops, x: ops.argsort(ops.cast(x, DataType.ComplexFloat), 0), "complex numbers have no order"),
    ],
)
def test_what_cannot_be_sorted(body: Any, message: str) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([128, 7, 32], dtype=DataType.Float)
        with pytest.raises(DefinitionRuntimeError, match=re.escape(message)):
            body(fd.ops, x)
        fd.add_output(x)


def scattered(arg: Array, index: Array, src: Any, dim: int) -> Array:
    out = arg.copy()
    for i in np.ndindex(index.shape):
        place = list(i)
        place[dim] = int(index[i])
        out[tuple(place)] = src if np.ndim(src) == 0 and not isinstance(src, np.ndarray) else src[i]
    return out


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_scatter_writes_where_indices_say(dtype: Any) -> None:
    rng = np.random.default_rng(4)
    layouts = itertools.cycle(range(4))
    for shape in SHAPES:
        for dim in range(len(shape)):
            a = values(rng, shape, dtype, next(layouts))
            # Fewer than there are, and no two alike along the dim.
            sizes = tuple(max(1, n - 1) for n in shape)
            order = np.argsort(rng.random((*sizes[:dim], shape[dim], *sizes[dim + 1 :])), axis=dim)
            index = np.take(order, range(sizes[dim]), axis=dim)
            src = values(rng, shape, dtype, next(layouts))
            for kind in (np.int64, np.int32):
                (out,) = run(lambda ops, x, i, s: ops.scatter(x, i, s, dim), a, index.astype(kind), src)  # noqa: B023
                wanted = scattered(a, index, src, dim)
                assert np.array_equal(out.astype(np.float64), wanted.astype(np.float64), equal_nan=True)
            (out,) = run(lambda ops, x, i: ops.scatter(x, i, 3, dim - len(shape)), a, index)  # noqa: B023
            assert np.array_equal(
                out.astype(np.float64), scattered(a, index, 3, dim).astype(np.float64), equal_nan=True
            )


def test_a_scalar_input_is_scattered() -> None:
    with FusionDefinition() as fd:
        x, i = fd.define_tensor([-1, -1], dtype=DataType.Float), fd.define_tensor([-1, -1], dtype=DataType.Int)
        fd.add_output(fd.ops.sigmoid(fd.ops.scatter(x, i, fd.define_scalar(None, DataType.Double), 0)))
    a, index = np.zeros((4, 3), np.float32), np.array([[1, 2, 3]])
    for number in (1.5, -2.0, 1.5):
        wanted = 1 / (1 + np.exp(-scattered(a, index, number, 0)))
        np.testing.assert_allclose(fd.execute([a, index, number])[0], wanted, rtol=1e-6)


def test_an_index_outside_is_told_by_the_simulator() -> None:
    a = np.zeros(4, np.float32)
    for bad in (4, -1):
        with pytest.raises(Exception, match=f"scatter writes at index {bad} of a dim of extent 4"):
            run(lambda ops, x, i: ops.scatter(x, i, 1.0, 0), a, np.array([bad]))


@pytest.mark.parametrize(
    ("shapes", "dim", "message"),
    [
        (([4, 3], [4], [4, 3]), 0, "Tensor arguments have different dimensions: 2 of arg, 1 of index"),
        (([4, 3], [4, 3], [4]), 0, "Tensor arguments have different dimensions: 2 of arg, 1 of src"),
        (
            ([4, 3], [4, 3], [4, 3]),
            2,
            "Tensor arguments have dimension 2 so dim argument must satisfy -2 <= dim < 2, but",
        ),
        (([4, 3], [4, 5], [4, 5]), 0, "dim 1 of index is longer than that of arg, 5 and 3"),
        (([4, 3], [4, 3], [2, 3]), 0, "dim 0 of index is longer than that of src, 4 and 2"),
    ],
)
def test_what_cannot_be_scattered(shapes: Any, dim: int, message: str) -> None:
    with FusionDefinition() as fd:
        x, i, s = (
            fd.define_tensor(n, dtype=d)
            for n, d in zip(shapes, (DataType.Float, DataType.Int, DataType.Float), strict=True)
        )
        with pytest.raises(DefinitionRuntimeError, match=re.escape(message)):
            fd.ops.scatter(x, i, s, dim)
        with pytest.raises(DefinitionRuntimeError, match="the index must be a tensor of dtype Int or Int32, got Float"):
            fd.ops.scatter(x, fd.ops.cast(x, DataType.Float), x, 0)
        with pytest.raises(DefinitionRuntimeError, match=r"arg is Float and src Double: cast it"):
            fd.ops.scatter(x, fd.ops.cast(x, DataType.Int), fd.ops.cast(x, DataType.Double), 0)
        fd.add_output(x)


def test_definitions_print_and_rebuild() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], dtype=DataType.Float)
        k = fd.define_scalar(None, DataType.Int)
        v, i = fd.ops.topk(x, k, 1, False)
        fd.add_output(v)
        fd.add_output(fd.ops.topk(x, 2)[1])
        fd.add_output(fd.ops.argsort(x, 0, stable=True))
        fd.add_output(fd.ops.scatter(x, i, v, 1))
        fd.add_output(fd.ops.scatter(x, i, 2.0, 1))
    text = repr(fd)
    assert "fd.ops.topk(tv0, c1, dim=1, largest=False)" in text
    assert "fd.ops.topk(tv0, 2)" in text
    assert "fd.ops.argsort(tv0, dim=0, stable=True)" in text
    assert ", src=2.00000, dim=1)" in text
    space: dict[str, Any] = {"FusionDefinition": FusionDefinition, "DataType": DataType}
    exec(text, space)
    with FusionDefinition() as again:
        space["nvfuser_fusion"](again)
    assert again.fusion == fd.fusion
    a = np.random.default_rng(5).standard_normal((4, 6)).astype(np.float32)
    for one, two in zip(fd.execute([a, 3]), again.execute([a, 3]), strict=True):
        assert np.array_equal(one, two)
    fd.validate([a, 3])
