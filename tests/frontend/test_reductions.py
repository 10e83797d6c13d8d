import warnings

import ml_dtypes
import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.ir.ops.dtypes import from_numpy_name
from tests.frontend.building import define, evaluate, lines, op_names

D = DataType


def reduce(name, array, *args, **kwargs):
    """The op on an input of the array's dtype, all dims symbolic."""
    dtype = from_numpy_name(array.dtype.name)
    fd = define(lambda fd: getattr(fd.ops, name)(fd.define_tensor([-1] * array.ndim, True, dtype), *args, **kwargs))
    return evaluate(fd, array)


A = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 7


@pytest.mark.parametrize(
    ("args", "kwargs", "axes", "keepdim"),
    [
        ((), {}, (0, 1, 2), False),
        ((0,), {}, (0,), False),
        ((-1,), {}, (2,), False),
        ((1, True), {}, (1,), True),
        (([0, 2],), {}, (0, 2), False),
        (((2, 0), True), {}, (0, 2), True),
        ((), {"dim": 1}, (1,), False),
        ((), {"dims": [1, -1], "keepdim": True}, (1, 2), True),
        (([1],), {"keepdim": True}, (1,), True),
        ((np.int64(1),), {}, (1,), False),
    ],
)
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
def test_overloads(name, args, kwargs, axes, keepdim):
    (out,) = reduce(name, A, *args, **kwargs)
    expected = getattr(np, name)(A.astype(np.float64), axis=axes, keepdims=keepdim)
    np.testing.assert_allclose(out, expected, rtol=1e-6)
    assert out.dtype == np.float32


@pytest.mark.parametrize("name", ["sum", "prod"])
@pytest.mark.parametrize(
    ("source", "requested", "expected"),
    [
        (D.Bool, None, D.Int),
        (D.Int32, None, D.Int),
        (D.Int, None, D.Int),
        (D.Index, None, D.Index),
        (D.Half, None, D.Half),
        (D.BFloat16, None, D.BFloat16),
        (D.Double, None, D.Double),
        (D.ComplexFloat, None, D.ComplexFloat),
        (D.Half, D.Float, D.Float),
        (D.Float, D.Half, D.Half),
        (D.Int32, D.Int32, D.Int32),
        (D.Float, D.Int, D.Int),
        (D.Bool, D.Bool, D.Bool),
        (D.Float, D.Null, D.Float),
    ],
)
def test_dtype_of_sum(name, source, requested, expected):
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], True, source)
        out = getattr(fd.ops, name)(x) if requested is None else getattr(fd.ops, name)(x, requested)
        assert out.dtype() is expected
        if requested is not None:
            assert getattr(fd.ops, name)(x, 0, False, requested).dtype() is expected
            assert getattr(fd.ops, name)(x, dims=[0], dtype=requested).dtype() is expected


@pytest.mark.parametrize("dtype", [D.Half, D.BFloat16, D.Int32, D.Bool, D.Double])
def test_dtype_of_max(dtype):
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, dtype)
        assert fd.ops.max(x, 0).dtype() is dtype
        assert fd.ops.min(x).dtype() is dtype


def test_16_bit_floats_accumulate_in_float():
    fd = define(lambda fd: fd.ops.sum(fd.define_tensor([-1], True, D.Half), 0))
    assert op_names(fd) == ["cast", "sum", "cast"]
    # 2048 + 1 is 2048 in Half: partial sums in Half would stay there.
    x = np.ones(4096, np.float16)
    assert evaluate(fd, x)[0] == 4096
    fd = define(lambda fd: fd.ops.max(fd.define_tensor([-1], True, D.BFloat16), 0))
    assert op_names(fd) == ["cast", "max", "cast"]


def test_given_dtype_casts_first():
    (out,) = reduce("sum", np.array([0.6, 0.6, 1.7], np.float32), 0, dtype=D.Int)
    assert out == 1
    (out,) = reduce("sum", np.array([2.0, 0.0], np.float32), D.Bool)
    assert out.dtype == np.bool_
    assert out


def test_nan_in_max_and_min():
    x = np.array([[1, np.nan, 3], [1, 2, 3]], np.float32)
    np.testing.assert_array_equal(reduce("max", x, 1)[0], [np.nan, 3])
    np.testing.assert_array_equal(reduce("min", x, 1)[0], [np.nan, 1])


@pytest.mark.parametrize(
    ("name", "dtype", "identity"),
    [
        ("sum", np.float32, 0),
        ("prod", np.float32, 1),
        ("max", np.float32, -np.inf),
        ("min", np.float32, np.inf),
        ("max", np.int32, -(2**31)),
        ("min", np.int64, 2**63 - 1),
        ("max", np.bool_, False),
        ("min", np.bool_, True),
        ("sum", np.bool_, 0),
    ],
)
def test_empty_dims_give_the_identity(name, dtype, identity):
    (out,) = reduce(name, np.zeros((3, 0), dtype), 1)
    assert out.tolist() == [identity] * 3


def test_rank_0_is_a_copy():
    for args in ((), (0,), (-1,), ([0],)):
        assert reduce("sum", np.float32(3.5).reshape(()), *args)[0] == 3.5
    fd = define(lambda fd: fd.ops.sum(fd.define_tensor([], True)))
    assert op_names(fd) == ["set"]
    fd = define(lambda fd: fd.ops.sum(fd.define_tensor([], True, D.Int32)))
    assert op_names(fd) == ["cast"]


def test_size_1_dims_are_squeezed():
    fd = define(lambda fd: fd.ops.sum(fd.define_tensor([-1, 1, -1], True), [1]))
    assert op_names(fd) == ["squeeze"]
    fd = define(lambda fd: fd.ops.sum(fd.define_tensor([-1, 1, -1], True), [1, 2], True))
    assert op_names(fd) == ["squeeze", "sum", "broadcast"]
    assert lines(fd)[2].endswith("dims=[1], dtype=DataType.Float)")
    assert evaluate(fd, np.ones((2, 1, 3), np.float32))[0].tolist() == [[[3]], [[3]]]
    fd = define(lambda fd: fd.ops.sum(fd.define_tensor([1], True, D.Half), 0))
    assert op_names(fd) == ["squeeze"]


def test_expanded_dims_count_fully():
    fd = define(lambda fd: fd.ops.sum(fd.define_tensor([-1, 5], [True, None]), 1))
    assert op_names(fd) == ["sum"]
    assert evaluate(fd, np.broadcast_to(np.float32([[2], [3]]), (2, 5)))[0].tolist() == [10, 15]


def test_keepdim_is_a_broadcast():
    fd = define(lambda fd: fd.ops.max(fd.define_tensor([-1, -1], True), 0, keepdim=True))
    assert op_names(fd) == ["max", "broadcast"]
    assert fd.fusion.outputs()[0].node.visible[0].is_broadcast


# --- variance ---


@pytest.mark.parametrize("correction", [0, 1, 2])
@pytest.mark.parametrize("dims", [[0], [1, 2], [-1], [0, 1, 2]])
def test_var_mean(dims, correction):
    x = np.random.default_rng(0).standard_normal((5, 6, 7)).astype(np.float32)
    fd = define(lambda fd: list(fd.ops.var_mean(fd.define_tensor([-1] * 3, True), dims, correction, True)))
    variance, mean = evaluate(fd, x)
    axes = tuple(dims)
    np.testing.assert_allclose(variance, x.astype(np.float64).var(axes, ddof=correction, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(mean, x.astype(np.float64).mean(axes, keepdims=True), atol=1e-6)
    np.testing.assert_allclose(reduce("var", x, dims, correction)[0], variance.squeeze(axes), rtol=1e-6)


def test_var_dtypes():
    for source, result in (
        (D.Half, D.Float),
        (D.BFloat16, D.Float),
        (D.Float, D.Float),
        (D.Double, D.Double),
        (D.ComplexFloat, D.Float),
        (D.ComplexDouble, D.Double),
    ):
        with FusionDefinition() as fd:
            x = fd.define_tensor([-1, -1], True, source)
            assert fd.ops.var(x, [0]).dtype() is result
            variance, mean = fd.ops.var_mean(x, [0])
            assert variance.dtype() is result
            assert mean.dtype() is (source if source.is_complex else result)


def test_complex_variance():
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((4, 9)) + 1j * rng.standard_normal((4, 9))).astype(np.complex64)
    variance, mean = evaluate(
        define(lambda fd: list(fd.ops.var_mean(fd.define_tensor([-1, -1], True, D.ComplexFloat), [1]))), x
    )
    np.testing.assert_allclose(variance, x.var(1, ddof=1), rtol=1e-5)
    np.testing.assert_allclose(mean, x.mean(1), rtol=1e-5)


def test_variance_with_a_divisor_of_0():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(reduce("var", np.ones((2, 1), np.float32), [1])[0]).all()
        assert np.isinf(reduce("var", np.array([[1, 2, 4]], np.float32), [1], 5)[0]).all()
        assert np.isnan(reduce("var", np.ones((2, 0), np.float32), [1])[0]).all()


def test_variance_of_static_size_1_dims():
    fd = define(lambda fd: list(fd.ops.var_mean(fd.define_tensor([-1, 1], True), [1], 0)))
    variance, mean = evaluate(fd, np.array([[2.0], [np.inf]], np.float32))
    np.testing.assert_array_equal(variance, [0, np.nan])
    np.testing.assert_array_equal(mean, [2, np.inf])


def test_variance_of_a_rank_0_tensor():
    fd = define(lambda fd: list(fd.ops.var_mean(fd.define_tensor([], True), [0], 0)))
    assert [float(v) for v in evaluate(fd, np.float32(3).reshape(()))] == [0, 3]


def test_divisor_is_exact_for_static_sizes():
    fd = define(lambda fd: fd.ops.var(fd.define_tensor([-1, 16], True), [1]))
    assert lines(fd)[-2].endswith("15.0000)")
    fd = define(lambda fd: fd.ops.var(fd.define_tensor([-1, -1], True), [0, 1], correction=0))
    assert op_names(fd) == ["welford", "size", "size", "mul", "cast", "div"]


def test_welford():
    x = np.random.default_rng(2).standard_normal((3, 8)).astype(ml_dtypes.bfloat16)
    fd = define(lambda fd: list(fd.ops.welford(fd.define_tensor([-1, -1], True, D.BFloat16), [1])))
    assert op_names(fd) == ["cast", "welford"]
    mean, m2, count = evaluate(fd, x)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(mean, wide.mean(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(m2, ((wide - wide.mean(1, keepdims=True)) ** 2).sum(1), rtol=1e-5)
    assert count.dtype == np.int64
    assert count.tolist() == [8] * 3


def test_welford_of_size_1_dims():
    fd = define(lambda fd: list(fd.ops.welford(fd.define_tensor([-1, 1], True), [1])))
    mean, m2, count = evaluate(fd, np.float32([[2], [5]]))
    assert (mean.tolist(), m2.tolist(), count.tolist()) == ([2, 5], [0, 0], [1, 1])


def test_var_arguments_are_keywords_too():
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True)
        assert fd.ops.var(arg=x, dims=(0,), correction=0, keepdim=True).ndim == 2
        assert fd.ops.sum(arg=x, dims=[0]).ndim == 1
