import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from tests.frontend.building import define, evaluate

D = DataType
X = np.array([-7, -3, 2, 5], np.int64)
Y = np.array([2, -2, 3, -4], np.int64)
F = np.array([-7.5, -0.5, 2.0, 5.25], np.float32)
G = np.array([2.0, -2.0, 0.5, -4.0], np.float32)


def binary(function, x, y):
    from fuser.ir.dtypes import from_numpy_name

    def body(fd):
        tensors = [
            fd.define_tensor([-1], True, from_numpy_name(a.dtype.name)) if isinstance(a, np.ndarray) else a
            for a in (x, y)
        ]
        return function(*tensors)

    return evaluate(define(body), *(a for a in (x, y) if isinstance(a, np.ndarray)))[0]


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a + b,
        lambda a, b: a - b,
        lambda a, b: a * b,
        lambda a, b: a / b,
        lambda a, b: a // b,
        lambda a, b: a % b,
        lambda a, b: a < b,
        lambda a, b: a <= b,
        lambda a, b: a > b,
        lambda a, b: a >= b,
    ],
)
@pytest.mark.parametrize(("x", "y"), [(X, Y), (F, G), (X, 3), (X, -3), (3, Y), (F, 2.0), (2.0, G), (X, 2), (F, 2)])
def test_arithmetic(function, x, y):
    np.testing.assert_allclose(binary(function, x, y), function(x, y), rtol=1e-6)


@pytest.mark.parametrize(
    "function",
    [lambda a, b: a & b, lambda a, b: a | b, lambda a, b: a ^ b],
)
@pytest.mark.parametrize(("x", "y"), [(X, Y), (X, 6), (6, Y), (X > 0, Y > 0)])
def test_bitwise(function, x, y):
    np.testing.assert_array_equal(binary(function, x, y), function(x, y))


def test_shifts_and_power():
    np.testing.assert_array_equal(binary(lambda a, b: a << b, X, 2), X << 2)
    np.testing.assert_array_equal(binary(lambda a, b: a >> b, X, 1), X >> 1)
    np.testing.assert_array_equal(binary(lambda a, b: b << a, np.array([1, 2]), 3), [6, 12])
    np.testing.assert_array_equal(binary(lambda a, b: b >> a, np.array([1, 2]), 8), [4, 2])
    np.testing.assert_allclose(binary(lambda a, b: a**b, np.abs(F), 2.0), F**2, rtol=1e-6)
    np.testing.assert_allclose(binary(lambda a, b: b**a, F, 2.0), 2.0**F, rtol=1e-6)


def test_unary():
    np.testing.assert_array_equal(binary(lambda a, _: -a, F, 0), -F)
    np.testing.assert_array_equal(binary(lambda a, _: abs(a), F, 0), np.abs(F))
    np.testing.assert_array_equal(binary(lambda a, _: ~a, X, 0), ~X)
    np.testing.assert_array_equal(binary(lambda a, _: +a + 0, X, 0), X)


@pytest.mark.parametrize("y", [1, 2, 3, -1, -2, -3, 2**63 - 1, -(2**63)])
def test_floor_division_at_the_extremes(y):
    x = np.array([-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 1])
    if y == -1:
        x = x[1:]  # the one quotient that has no int64
    assert binary(lambda a, b: a // b, x, y).tolist() == [int(v) // y for v in x]


def test_scalar_operators():
    with FusionDefinition() as fd:
        n = fd.define_tensor([-1]).size(0)
        assert str((2 * n + 1).node.expression) == "2*t0_size0 + 1"
        assert (fd.define_scalar(7) // 2).node.value == 3
        assert (fd.define_scalar(-7) // 2).node.value == -4
        assert (-fd.define_scalar(7)).node.value == -7
        assert (fd.define_scalar(7) / 2).node.value == 3.5
        assert (7 - fd.define_scalar(2)).node.value == 5
        assert bool(fd.define_scalar(7) > 2)


def test_numpy_operands():
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        assert (np.float64(2.0) * x).dtype() is D.Float
        assert (np.float32(2.0) * x).dtype() is D.Float
        assert (np.int64(2) + x).dtype() is D.Float
        with pytest.raises(TypeError, match="incompatible function arguments"):
            np.ones(3) * x
        with pytest.raises(TypeError, match="incompatible function arguments"):
            x * [1]


def test_truth_and_identity():
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([2]), fd.define_tensor([2])
        assert x == x
        assert x != y
        assert len({x, y, x}) == 2
        with pytest.raises(TypeError, match="a TensorView has no truth value"):
            bool(x)
        with pytest.raises(TypeError, match="a symbolic scalar has no truth value"):
            bool(fd.define_scalar())
        with pytest.raises(TypeError, match="cannot be iterated"):
            iter(x)
        with pytest.raises(NotImplementedError, match=r"matmul\(\) is not supported yet"):
            x @ y
