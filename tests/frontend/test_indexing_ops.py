"""index_select, select, gather, take_along_axis and embedding_fwd: shapes, values, errors, printing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from tests.frontend.building import define, evaluate, lines, op_names, rebuild

D = DataType
A = np.arange(24, dtype=np.float32).reshape(4, 6)


def apply(op: str, array: Any, index: Any, *args: Any, static: bool = False) -> Any:
    dtype = {np.dtype(np.int32): D.Int32, np.dtype(np.int64): D.Int}[index.dtype]

    def body(fd: FusionDefinition) -> Any:
        shapes = [list(x.shape) if static else [-1 if n != 1 else 1 for n in x.shape] for x in (array, index)]
        return getattr(fd.ops, op)(fd.define_tensor(shapes[0], True), fd.define_tensor(shapes[1], True, dtype), *args)

    fd = define(body)
    again = rebuild(fd)
    assert again.fusion == fd.fusion
    assert repr(rebuild(again)) == repr(again)
    (found,) = evaluate(fd, array, index)
    (on_simulator,) = fd.execute([array, index], device="simulator")
    np.testing.assert_array_equal(on_simulator, found)
    return found


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_index_select(dim: int, dtype: type, static: bool) -> None:
    index = np.array([3, 0, 3, 1, 2], dtype)
    np.testing.assert_array_equal(apply("index_select", A, index, dim, static=static), np.take(A, index, dim))


def test_index_select_by_one_index() -> None:
    assert apply("index_select", A, np.array(2), 1).shape == (4, 1)
    np.testing.assert_array_equal(apply("index_select", A, np.array(2), 1), A[:, 2:3])
    assert apply("index_select", A, np.zeros(0, np.int64), 0).shape == (0, 6)


@pytest.mark.parametrize("dim", [0, 1, -2])
def test_select(dim: int) -> None:
    fd = define(lambda fd: fd.ops.select(fd.define_tensor([-1, 6], True), 2, dim))
    np.testing.assert_array_equal(evaluate(fd, A)[0], np.take(A, 2, dim))

    def body(fd: FusionDefinition) -> Any:
        return fd.ops.select(fd.define_tensor([-1, -1], True), fd.define_scalar(D.Int), dim)

    fd = define(body)
    for k in range(4):
        np.testing.assert_array_equal(evaluate(fd, A, k)[0], np.take(A, k, dim))
        np.testing.assert_array_equal(evaluate(rebuild(fd), A, k)[0], np.take(A, k, dim))
        np.testing.assert_array_equal(fd.execute([A, k], device="simulator")[0], np.take(A, k, dim))


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("shape", [(4, 6), (2, 6), (4, 3), (3, 9), (1, 1), (2, 0)])
def test_gather(shape: tuple[int, int], static: bool) -> None:
    index = np.random.default_rng(0).integers(0, 6, shape)
    rows = np.arange(shape[0])[:, None]
    np.testing.assert_array_equal(apply("gather", A, index, 1, static=static), A[rows, index])


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("shape", [(4, 6), (4, 1), (1, 5), (4, 0)])
def test_take_along_axis(shape: tuple[int, int], static: bool) -> None:
    index = np.random.default_rng(0).integers(0, 6, shape)
    expected = np.take_along_axis(A, np.broadcast_to(index, (4, shape[1])), 1)
    np.testing.assert_array_equal(apply("take_along_axis", A, index, 1, static=static), expected)


@pytest.mark.parametrize("dtype", [D.Float, D.Double, D.Half, D.BFloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("op", ["take_along_axis", "gather", "index_select"])
def test_a_floating_index_is_cast(op: str, dtype: DataType) -> None:
    index = np.random.default_rng(0).integers(0, 6, (4, 6))
    index, expected = (index, np.take_along_axis(A, index, 1)) if op != "index_select" else (index[0], A[:, index[0]])
    with FusionDefinition() as fd:
        t, i = fd.define_tensor([-1, -1], True), fd.define_tensor([-1] * index.ndim, True, dtype)
        fd.add_output(getattr(fd.ops, op)(t, i, 1))
    assert op_names(fd)[0] == "cast"
    fractions = (index + 0.5).astype(dtype.numpy)
    np.testing.assert_array_equal(evaluate(fd, A, fractions)[0], expected)
    np.testing.assert_array_equal(fd.execute([A, fractions], device="simulator")[0], expected)


def test_take_along_axis_broadcasts_both_ways() -> None:
    index = np.random.default_rng(0).integers(0, 4, (3, 5, 1))
    x = np.random.default_rng(1).standard_normal((3, 4, 6))
    with FusionDefinition() as fd:
        t, i = fd.define_tensor([1, 4, 6], True, D.Double), fd.define_tensor([3, 5, 1], True, D.Int)
        fd.add_output(fd.ops.take_along_axis(t, i, 1))
    expected = np.take_along_axis(np.broadcast_to(x[:1], (3, 4, 6)), np.broadcast_to(index, (3, 5, 6)), 1)
    np.testing.assert_array_equal(evaluate(fd, x[:1], index)[0], expected)
    np.testing.assert_array_equal(fd.execute([x[:1], index], device="simulator")[0], expected)


def test_embedding() -> None:
    index = np.random.default_rng(0).integers(0, 4, (2, 3))
    fd = define(
        lambda fd: fd.ops.embedding_fwd(fd.define_tensor([2, -1], True, D.Int), fd.define_tensor([-1, 6], True), 0)
    )
    assert lines(fd)[2] == "tv2 = fd.ops.embedding_fwd(tv0, tv1)"
    np.testing.assert_array_equal(evaluate(fd, index, A)[0], A[index])
    np.testing.assert_array_equal(fd.execute([index, A], device="simulator")[0], A[index])
    assert rebuild(fd).fusion == fd.fusion


def test_index_of_itself_and_from_the_host() -> None:
    """One tensor as both operands, and an index that a kernel takes by value."""
    with FusionDefinition() as fd:
        i = fd.define_tensor([-1], True, D.Int)
        c = fd.define_tensor([], True, D.Int, is_cpu=True)
        fd.add_output(fd.ops.index_select(i, i, 0))
        fd.add_output(fd.ops.index_select(i, c, 0))
    index = np.array([2, 0, 1])
    for found in (evaluate(fd, index, np.array(2)), fd.execute([index, np.array(2)], device="simulator")):
        np.testing.assert_array_equal(found[0], index[index])
        np.testing.assert_array_equal(found[1], index[2:])


def test_errors() -> None:
    with FusionDefinition() as fd:
        x, i = fd.define_tensor([4, 6], True), fd.define_tensor([4, 6], True, D.Int)
        point, line = fd.define_tensor([], True), fd.define_tensor([5], True, D.Int)
        calls = [
            (fd.ops.index_select, (x, i, 0), "rank 0 or 1"),
            (fd.ops.index_select, (point, line, 0), "rank 0"),
            (fd.ops.index_select, (x, line, 2), "Tried to access out of boundary index 2. total index: 2"),
            (fd.ops.index_select, (x, x, 0), "rank 0 or 1"),
            (fd.ops.select, (point, 0, 0), "rank 0"),
            (fd.ops.select, (x, 0, -3), "Tried to access out of boundary index -3. total index: 2"),
            (fd.ops.select, (x, 4, 0), "outside of dim 0"),
            (fd.ops.gather, (x, line, 0), "Tensor arguments have different dimensions"),
            (fd.ops.take_along_axis, (x, line, 0), "Tensor arguments have different dimensions"),
            (
                fd.ops.gather,
                (x, i, 2),
                "Tensor arguments have dimension 2 so dim argument must satisfy -2 <= dim < 2, but received 2",
            ),
            (
                fd.ops.take_along_axis,
                (x, i, -3),
                "Tensor arguments have dimension 2 so dim argument must satisfy -2 <= dim < 2, but received -3",
            ),
            (fd.ops.gather, (x, x > 0, 0), "must be a tensor of dtype Int or Int32, got Bool"),
            (fd.ops.gather, (fd.define_tensor([3, 6], True), i, 1), "only dim 1 may be longer"),
            (fd.ops.take_along_axis, (fd.define_tensor([3, 6], True), i, 1), "Expected sizes to match"),
            (fd.ops.embedding_fwd, (point, x), "at least one dim"),
            (fd.ops.embedding_fwd, (line, line), "weight must have rank 2"),
            (fd.ops.embedding_fwd, (line, x, line), "padding_idx must be a scalar, got a tensor"),
        ]
        for op, arguments, message in calls:
            with pytest.raises(RuntimeError) as caught:
                op(*arguments)
            assert message in str(caught.value)
        with pytest.raises(NotImplementedError, match="max_norm"):
            fd.ops.embedding_fwd(line, x, None, 1.0)
        with pytest.raises(TypeError, match=r"select\(\): incompatible function arguments"):
            fd.ops.select(x, 0.5, 0)
        fd.add_output(x)
