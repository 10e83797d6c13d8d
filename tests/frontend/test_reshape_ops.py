"""reshape and stride_order: shapes, values, errors and printing, by the reference evaluator and the simulator against NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.frontend.handles import Merge, ReshapeOp, Split
from tests.frontend.building import NUMPY_DTYPES, define, evaluate, lines, op_names, rebuild

D = DataType

CASES: list[tuple[tuple[int, ...], list[int], tuple[int, ...]]] = [
    ((4, 6), [24], (24,)),
    ((24,), [4, 6], (4, 6)),
    ((24,), [2, -1, 3], (2, 4, 3)),
    ((4, 6), [2, 2, 6], (2, 2, 6)),
    ((4, 6), [4, 3, 2], (4, 3, 2)),
    ((4, 6), [6, 4], (6, 4)),
    ((4, 6), [2, 12], (2, 12)),
    ((4, 6), [4, 6], (4, 6)),
    ((4, 6), [-1, 6], (4, 6)),
    ((4, 1, 6), [24, 1], (24, 1)),
    ((4, 6), [1, 4, 1, 6, 1], (1, 4, 1, 6, 1)),
    ((1, 1), [1], (1,)),
    ((1, 1), [], ()),
    ((2, 3, 4, 5), [6, 20], (6, 20)),
    ((0, 6), [3, 0], (3, 0)),
    ((0, 6), [0, 4, 4], (0, 4, 4)),
]


def reshaped(array: Any, new_shape: Sequence[Any], *, static: bool) -> Any:
    """By the reference and by the simulator, printed and read again."""
    shape = list(array.shape) if static else [-1] * array.ndim
    dtype = next(t for t in NUMPY_DTYPES if t.numpy == array.dtype)
    fd = define(lambda fd: fd.ops.reshape(fd.define_tensor(shape, True, dtype), new_shape))
    again = rebuild(fd)
    assert repr(rebuild(again)) == repr(again)
    assert again.fusion == fd.fusion
    (found,) = evaluate(fd, array)
    np.testing.assert_array_equal(evaluate(again, array)[0], found)
    np.testing.assert_array_equal(np.asarray(fd.execute([array], device="simulator")[0]), found)
    return found


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize(("shape", "new_shape", "expected"), CASES)
def test_reshape(shape: tuple[int, ...], new_shape: list[int], expected: tuple[int, ...], static: bool) -> None:
    array = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    found = reshaped(array, new_shape, static=static)
    assert found.shape == expected
    np.testing.assert_array_equal(found, array.reshape(expected))


@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=lambda d: d.name)
def test_every_dtype(dtype: DataType) -> None:
    array = np.arange(24).astype(dtype.numpy).reshape(4, 6)
    np.testing.assert_array_equal(reshaped(array, [2, 12], static=False), array.reshape(2, 12))


def test_a_static_reshape_is_squeeze_reshape_and_broadcast() -> None:
    fd = define(lambda fd: fd.ops.reshape(fd.define_tensor([4, 1, 6], True), [1, 8, 3]))
    assert op_names(fd) == ["squeeze", "reshape", "broadcast"]
    assert lines(fd)[2] == "tv2 = fd.ops.reshape(tv1, new_shape=[8, 3])"
    assert op_names(define(lambda fd: fd.ops.reshape(fd.define_tensor([4, 1, 6], True), [4, 6]))) == ["squeeze"]
    assert op_names(define(lambda fd: fd.ops.reshape(fd.define_tensor([4, 6], True), [4, 1, 6]))) == ["broadcast"]
    assert op_names(define(lambda fd: fd.ops.reshape(fd.define_tensor([4, 6], True), [4, 6]))) == ["reshape"]


def test_dims_of_a_static_reshape_are_transforms_of_its_root() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([4, 6], True)
        y = fd.ops.reshape(x, [8, 3])
        fd.add_output(y)
    assert y.has_root()
    assert len(y.get_root_domain()) == 2
    outer, inner = y.get_logical_domain()
    split = inner.definition()
    assert type(split) is Split
    assert outer.definition() is split
    merge = split.input(0).definition()
    assert type(merge) is Merge
    assert [merge.outer(), merge.inner()] == y.get_root_domain()
    assert type(y.definition()) is ReshapeOp


def test_entries_may_be_run_time_values() -> None:
    def body(fd: FusionDefinition) -> Any:
        x, n = fd.define_tensor([-1, -1], True), fd.define_scalar(D.Int)
        return fd.ops.neg(fd.ops.reshape(x, [n, x.size(0), -1]))

    fd = define(body)
    assert rebuild(fd).fusion == fd.fusion
    for shape, n in [((4, 6), 2), ((4, 6), 1), ((4, 6), 6), ((1, 6), 3), ((5, 5), 5), ((4, 4), 2)]:
        array = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
        expected = -array.reshape(n, shape[0], -1)
        np.testing.assert_array_equal(evaluate(fd, array, n)[0], expected)
        np.testing.assert_array_equal(fd.execute([array, n], device="simulator")[0], expected)


def test_entries_may_be_quotients() -> None:
    """Of a floating dtype, as frameworks compute sizes: cast to Int."""

    def body(fd: FusionDefinition) -> Any:
        x, n = fd.define_tensor([-1, -1], True), fd.define_scalar(D.Int)
        columns = 24 * fd.ops.reciprocal(n)
        assert columns.dtype() is D.Float
        return fd.ops.sum(fd.ops.reshape(x, [n, columns]), [1])

    fd = define(body)
    assert "c7 = fd.ops.cast(c6, dtype=DataType.Int)" in lines(fd)
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    for n in (3, 8, 1, 24):
        for found in (evaluate(fd, array, n)[0], fd.execute([array, n], device="simulator")[0]):
            np.testing.assert_array_equal(found, array.reshape(n, -1).sum(1))
    with pytest.raises(RuntimeError, match="Total element counts"):
        fd.execute([array, 7], device="simulator")


def test_entries_of_a_floating_dtype_are_finite() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([4, 6], True)
        with pytest.raises(RuntimeError, match=r"new_shape\[1\] must be an integer, got inf"):
            fd.ops.reshape(x, [4, fd.define_scalar(float("inf"))])
        fd.add_output(fd.ops.reshape(x, [4, fd.define_scalar(6.0)]))
    assert [d.extent.value for d in fd.fusion.ir_fusion.output_tensors[0].visible] == [4, 6]


def test_a_dim_found_to_be_1_broadcasts() -> None:
    def body(fd: FusionDefinition) -> Any:
        x, y = fd.define_tensor([-1], True), fd.define_tensor([-1, -1], True)
        n = fd.define_scalar(D.Int)
        return fd.ops.reshape(x, [n, -1]) + y

    fd = define(body)
    x, y = np.arange(6, dtype=np.float32), np.ones((4, 6), np.float32)
    np.testing.assert_array_equal(fd.execute([x, y, 1], device="simulator")[0], x + y)
    np.testing.assert_array_equal(fd.execute([x, y[:2, :3], 2], device="simulator")[0], x.reshape(2, 3) + 1)


@pytest.mark.parametrize(
    ("shape", "new_shape", "message"),
    [
        ([4, 6], [-1, -1], "A maximum of one value of -1"),
        ([4, 6], [5, 5], "Total element counts across view operation must match"),
        ([4, 6], [5, -1], "Total element counts across view operation must match"),
        ([4, 6], [0, -1], "Total element counts across view operation must match"),
        ([0, 6], [2, 3], "an empty tensor needs a 0 in new_shape"),
        ([0, 6], [-1], "an empty tensor needs a 0 in new_shape"),
        ([4, 6], [-2, 12], "The value -2 at index 0 was neither"),
    ],
)
def test_errors(shape: list[int], new_shape: list[int], message: str) -> None:
    with FusionDefinition() as fd, pytest.raises(RuntimeError, match=message):
        fd.ops.reshape(fd.define_tensor(shape, True), new_shape)


def test_errors_at_execute_name_the_line() -> None:
    fd = define(lambda fd: fd.ops.neg(fd.ops.reshape(fd.define_tensor([-1, -1], True), [4, -1])))
    with pytest.raises(RuntimeError, match="Total element counts across view operation must match") as caught:
        fd.execute([np.ones((3, 5), np.float32)], device="simulator")
    assert __file__ in str(caught.value)
    with pytest.raises(RuntimeError, match="Total element counts across view operation must match"):
        fd.execute([np.ones((0, 5), np.float32)], device="simulator")
    np.testing.assert_array_equal(fd.execute([np.ones((2, 6), np.float32)], device="simulator")[0], -np.ones((4, 3)))


@pytest.mark.parametrize("order", [[], [1, 0], [0, 1], [-1, 0], [-2, -1]])
def test_stride_order(order: list[int]) -> None:
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    fd = define(lambda fd: fd.ops.stride_order(fd.define_tensor([-1, -1], True), order))
    assert op_names(fd) == ["stride_order" if order else "set"]
    again = rebuild(fd)
    assert again.fusion == fd.fusion
    for made in (fd, again):
        (found,) = made.execute([array], device="simulator")
        np.testing.assert_array_equal(found, array)
        is_column_major = bool(order) and order[0] % 2 == 0
        assert (found.strides == (4, 16)) is is_column_major


def test_stride_order_beats_what_the_inputs_have() -> None:
    """Row major is an order like any other."""
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    fd = define(lambda fd: fd.ops.stride_order(fd.ops.permute(fd.define_tensor([-1, -1], True), [1, 0]), [1, 0]))
    (found,) = fd.execute([array], device="simulator")
    np.testing.assert_array_equal(found, array.T)
    assert found.flags.c_contiguous
    other = define(lambda fd: fd.ops.stride_order(fd.ops.permute(fd.define_tensor([-1, -1], True), [1, 0]), [0, 1]))
    assert other.fusion != fd.fusion


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ([0], "Length of stride_order argument"),
        ([0, 2], "stride_order argument is out of range"),
        ([0, 0], "duplicated stride_order entries"),
    ],
)
def test_stride_order_errors(order: list[int], message: str) -> None:
    with FusionDefinition() as fd, pytest.raises(RuntimeError, match=message):
        fd.ops.stride_order(fd.define_tensor([4, 6], True), order)
