"""slice, pad and cat: shapes, values, errors and printing, by the reference evaluator against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from tests.frontend.building import NUMPY_DTYPES, define, evaluate, lines, op_names, rebuild

D = DataType
A = np.arange(24, dtype=np.float32).reshape(4, 6)


def apply(op: str, array: Any, *args: Any, static: bool = False, **kwargs: Any) -> Any:
    shape = list(array.shape) if static else [-1] * array.ndim
    fd = define(lambda fd: getattr(fd.ops, op)(fd.define_tensor(shape, True), *args, **kwargs))
    again = rebuild(fd)
    assert repr(rebuild(again)) == repr(again)
    assert again.fusion == fd.fusion
    (found,) = evaluate(fd, array)
    np.testing.assert_array_equal(evaluate(again, array)[0], found)
    return found


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize(
    ("starts", "ends"),
    [([0, 0], [4, 6]), ([1, 2], [3, 5]), ([0, 3], [100, 100]), ([2, 2], [2, 6]), ([0, 7], [4, 9]), ([3, 5], [4, 6])],
)
def test_slice(starts: list[int], ends: list[int], static: bool) -> None:
    found = apply("slice", A, starts, ends, static=static)
    np.testing.assert_array_equal(found, A[starts[0] : ends[0], starts[1] : ends[1]])


def test_slice_at_run_time_indices() -> None:
    def body(fd: FusionDefinition) -> Any:
        x, a, b = fd.define_tensor([-1, 6], True), fd.define_scalar(D.Int), fd.define_scalar(D.Int)
        return fd.ops.slice(x, [a, 0], [b, 6])

    fd = define(body)
    for start in range(-6, 7):
        for end in range(-6, 7):
            first = min(max(start + 4 if start < 0 else start, 0), 4)
            last = max(min(max(end + 4 if end < 0 else end, 0), 4), first)
            np.testing.assert_array_equal(evaluate(fd, A, start, end)[0], A[first:last])
            np.testing.assert_array_equal(evaluate(rebuild(fd), A, start, end)[0], A[first:last])


def test_slice_is_printed_with_clamped_indices() -> None:
    fd = define(lambda fd: fd.ops.slice(fd.define_tensor([4, 6], True), [1, 0], [9, 3], [1, 1]))
    assert lines(fd)[1] == (
        "tv1 = fd.ops.slice(tv0, start_indices=[1, 0], end_indices=[4, 3], strides=[1, 1], manual_normalization=True)"
    )
    # All of a tensor is a copy.
    assert op_names(define(lambda fd: fd.ops.slice(fd.define_tensor([4, 6], True), [0, 0], [4, 7]))) == ["set"]


def test_sliced_to_one_element_is_broadcast() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([4, -1], True)
        one = fd.ops.slice(x, [2, 0], [3, x.size(1)])
        assert [d.is_broadcast for d in one.node.visible] == [True, False]
        fd.add_output(fd.ops.add(x, one))
    np.testing.assert_array_equal(evaluate(fd, A)[0], A + A[2:3])


def test_sliced_to_one_element_at_run_time() -> None:
    def body(fd: FusionDefinition) -> Any:
        x, n = fd.define_tensor([-1, 6], True), fd.define_scalar(D.Int)
        return fd.ops.add(x, fd.ops.slice(x, [0, 0], [n, 6]))

    fd = define(body)
    np.testing.assert_array_equal(evaluate(fd, A, 1)[0], A + A[:1])
    np.testing.assert_array_equal(evaluate(fd, A, 4)[0], A + A)
    with pytest.raises(RuntimeError, match="a conflict was found with 2 different sizes"):
        evaluate(fd, A, 2)


@pytest.mark.parametrize("yes", [True, 1, np.True_, np.int64(1)], ids=repr)
def test_flags_may_be_0_and_1(yes: Any) -> None:
    no = type(yes)(0)

    def sliced(manual: Any) -> FusionDefinition:
        return define(lambda fd: fd.ops.slice(fd.define_tensor([-1, 6], True), [1, 0], [3, 6], None, manual))

    assert sliced(yes).fusion == sliced(True).fusion
    assert sliced(no).fusion == sliced(False).fusion != sliced(True).fusion
    with FusionDefinition() as fd:
        x = fd.define_tensor([4, 6], True)
        parts = [fd.ops.pad(x, [0, 6]), fd.ops.pad(x, [6, 0])]
        assert fd.ops.cat(parts, 1, yes).size(1).node.value == 12
        assert fd.ops.cat(parts, 1, manual_padding=no).size(1).node.value == 24
        assert fd.ops.sum(x, 0, yes).ndim == 2
        assert fd.ops.broadcast(x, [no, yes, no]).ndim == 3
        with pytest.raises(TypeError, match="manual_padding must be a bool, or 0 or 1 for one, got 2"):
            fd.ops.cat(parts, 1, 2)
        with pytest.raises(TypeError, match="manual_padding must be a bool, got float"):
            fd.ops.cat(parts, 1, 1.0)
        fd.add_output(x)


@pytest.mark.parametrize(
    ("starts", "ends", "strides", "message"),
    [
        ([0, 0], [1, 1], [1], "Slice start_indices and strides don't match!"),
        ([0], [1], [1], "Number of tensor dimensions does not match slice dimensions!"),
        ([0, 0], [1], None, "Slice indexing attribute dimensions don't match!"),
        ([0, -1], [1, 1], None, "Slice operation start_indices must be greater than or equal to 0"),
        ([0, 2], [1, 1], None, "Slice operation end_indices must be greater than or equal to start_indices"),
        ([0, 0], [1, 1], [1, 0], "nvFuser Limitation: All slice operation strides must be of const size 1"),
        # The first that is wrong is reported: the order is fixed.
        ([0], [1, 1, 1], [1, 1], "Slice start_indices and strides don't match!"),
        ([-1, 0], [1], None, "Slice indexing attribute dimensions don't match!"),
    ],
)
def test_slice_errors(starts: Any, ends: Any, strides: Any, message: str) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([4, 6], True)
        with pytest.raises(RuntimeError, match=message.replace("!", "!?")):
            fd.ops.slice(x, starts, ends, strides)
        with pytest.raises(TypeError, match=r"slice\(\): incompatible function arguments"):
            fd.ops.slice(x, [0.5, 0], [1, 1])
        fd.add_output(x)


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("widths", [[], [1, 2], [0, 0, 3, 0], [-1, 2], [2, -3, -1, -1], [-6, 0], [1, 1, -2, -2]])
def test_pad(widths: list[int], static: bool) -> None:
    found = apply("pad", A, widths, -2.5, static=static)
    pairs = [(widths[i], widths[i + 1]) for i in range(0, len(widths), 2)][::-1]
    pairs = [(0, 0)] * (2 - len(pairs)) + pairs
    expected = np.pad(A, [(max(a, 0), max(b, 0)) for a, b in pairs], constant_values=-2.5)
    cut = tuple(slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(pairs, expected.shape, strict=True))
    np.testing.assert_array_equal(found, expected[cut])


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_pad_with_zero(dtype: DataType) -> None:
    x = np.ones((2, 3)).astype(dtype.numpy)
    fd = define(lambda fd: fd.ops.pad(fd.define_tensor([-1, -1], True, dtype), [1, 0]))
    (found,) = evaluate(fd, x)
    assert found.dtype == dtype.numpy
    np.testing.assert_array_equal(found[:, 1:], x)
    assert not found[:, 0].astype(bool).any()
    assert rebuild(fd).fusion == fd.fusion


def test_pad_by_run_time_widths() -> None:
    def body(fd: FusionDefinition) -> Any:
        x, n, v = fd.define_tensor([-1, -1], True), fd.define_scalar(D.Int), fd.define_scalar(D.Float)
        return fd.ops.pad(x, [n, 1], v)

    fd = define(body)
    expected = np.pad(A, [(0, 0), (3, 1)], constant_values=1.5)
    np.testing.assert_array_equal(evaluate(fd, A, 3, 1.5)[0], expected)
    np.testing.assert_array_equal(evaluate(rebuild(fd), A, 3, 1.5)[0], expected)


def test_padded_broadcast_dim_is_ordinary() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([4, 1], True)
        wide = fd.ops.pad(x, [1, 4], 1.0)
        assert [d.is_broadcast for d in wide.node.visible] == [False, False]
        fd.add_output(wide)
    np.testing.assert_array_equal(evaluate(fd, A[:, :1])[0], np.pad(A[:, :1], [(0, 0), (1, 4)], constant_values=1))


def test_pad_errors() -> None:
    with FusionDefinition() as fd:
        x, i = fd.define_tensor([4, 6], True), fd.define_tensor([4], True, D.Int)
        for widths, value, message in (
            ([1], None, "Invalid number of padding widths"),
            ([1] * 6, None, "Number of pad widths must be at most twice the input dimension"),
            ([-4, -3], None, "Invalid resized domain extent"),
            ([1, 1], 1, "Tensor arg and pad value must have the same dtype."),
            ([1, 1], True, "Tensor arg and pad value must have the same dtype."),
        ):
            with pytest.raises(RuntimeError, match=message):
                fd.ops.pad(x, widths, value)
        with pytest.raises(RuntimeError, match="Tensor arg and pad value must have the same dtype"):
            fd.ops.pad(i, [1, 1], 1.0)
        fd.add_output(x)
    fd = define(lambda fd: fd.ops.pad(fd.define_tensor([-1, -1], True), [-4, -3]))
    with pytest.raises(RuntimeError, match="Invalid resized domain extent"):
        evaluate(fd, A)


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_cat(count: int, dim: int, static: bool) -> None:
    arrays = [np.delete(A, range(k), dim) + 100 * k for k in range(count)]

    def body(fd: FusionDefinition) -> Any:
        xs = []
        for x in arrays:
            shape = list(x.shape) if static else [-1, -1]
            xs.append(fd.define_tensor(shape, True))
        return fd.ops.cat(xs, dim)

    fd = define(body)
    expected = np.concatenate(arrays, dim)
    np.testing.assert_array_equal(evaluate(fd, *arrays)[0], expected)
    again = rebuild(fd)
    assert again.fusion == fd.fusion
    np.testing.assert_array_equal(evaluate(again, *arrays)[0], expected)
    assert op_names(fd)[-1] == ("set" if count == 1 else "cat")


def test_cat_is_printed_as_pads() -> None:
    fd = define(lambda fd: fd.ops.cat([fd.define_tensor([2, 3], True), fd.define_tensor([2, 1], True)], 1))
    assert lines(fd)[2:5] == [
        "tv3 = fd.ops.pad(tv0, [0, 1, 0, 0], 0.00000)",
        "tv4 = fd.ops.pad(tv1, [3, 0, 0, 0], 0.00000)",
        "tv5 = fd.ops.cat([tv3, tv4], dim=1, manual_padding=True)",
    ]


def test_cat_errors() -> None:
    with FusionDefinition() as fd:
        x, y, z = fd.define_tensor([4, 6], True), fd.define_tensor([4], True), fd.define_tensor([4, 6], True, D.Half)
        w, one = fd.define_tensor([5, 6], True), fd.define_tensor([1, 6], True)
        for tensors, dim, message in (
            ([], 0, "at least one tensor"),
            ([x, z], 0, "one dtype"),
            ([x, y], 0, "Unexpected number of dimensions"),
            ([x, x], 2, "Invalid dimension to cat"),
            ([x, w], 1, "Expected sizes to match"),
            ([x, one], 1, "Expected sizes to match"),
        ):
            with pytest.raises(RuntimeError, match=message):
                fd.ops.cat(tensors, dim)
        with pytest.raises(TypeError, match=r"tensors\[0\] must be the result of pad"):
            fd.ops.cat([x, x], 1, manual_padding=True)
        fd.add_output(x)
    fd = define(lambda fd: fd.ops.cat([fd.define_tensor([-1, -1], True), fd.define_tensor([-1, -1], True)], 0))
    with pytest.raises(RuntimeError, match="a conflict was found with 2 different sizes"):
        evaluate(fd, A, A[:, :2])


def test_output_layout_follows_the_input() -> None:
    """A slice, a pad and a concatenation keep the memory order of what they take from."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([4, 6], True, stride_order=[0, 1])
        for y in (fd.ops.slice(x, [0, 1], [2, 5]), fd.ops.pad(x, [1, 1, 1, 1]), fd.ops.cat([x, x], 1)):
            fd.add_output(y)
    for found in fd.execute([np.asfortranarray(A)], device="simulator"):
        assert found.flags.f_contiguous
