from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.errors import DefinitionTypeError
from tests.frontend.building import define, evaluate

D = DataType
X = np.array([-7, -3, 2, 5], np.int64)
Y = np.array([2, -2, 3, -4], np.int64)
F = np.array([-7.5, -0.5, 2.0, 5.25], np.float32)
G = np.array([2.0, -2.0, 0.5, -4.0], np.float32)


def binary(function: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
    from fuser.ir.ops.dtypes import from_numpy_name

    def body(fd: FusionDefinition) -> Any:
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
        lambda a, b: a == b,
        lambda a, b: a != b,
    ],
)
@pytest.mark.parametrize(
    ("x", "y"), [(X, Y), (X, X), (F, G), (X, 3), (X, -3), (3, Y), (F, 2.0), (2.0, G), (X, 2), (F, 2)]
)
def test_arithmetic(function: Callable[[Any, Any], Any], x: Any, y: Any) -> None:
    np.testing.assert_allclose(binary(function, x, y), function(x, y), rtol=1e-6)


@pytest.mark.parametrize(
    "function",
    [lambda a, b: a & b, lambda a, b: a | b, lambda a, b: a ^ b],
)
@pytest.mark.parametrize(("x", "y"), [(X, Y), (X, 6), (6, Y), (X > 0, Y > 0)])
def test_bitwise(function: Callable[[Any, Any], Any], x: Any, y: Any) -> None:
    np.testing.assert_array_equal(binary(function, x, y), function(x, y))


def test_shifts_and_power() -> None:
    np.testing.assert_array_equal(binary(lambda a, b: a << b, X, 2), X << 2)
    np.testing.assert_array_equal(binary(lambda a, b: a >> b, X, 1), X >> 1)
    np.testing.assert_array_equal(binary(lambda a, b: b << a, np.array([1, 2]), 3), [6, 12])
    np.testing.assert_array_equal(binary(lambda a, b: b >> a, np.array([1, 2]), 8), [4, 2])
    np.testing.assert_allclose(binary(lambda a, b: a**b, np.abs(F), 2.0), F**2, rtol=1e-6)
    np.testing.assert_allclose(binary(lambda a, b: b**a, F, 2.0), 2.0**F, rtol=1e-6)


def test_unary() -> None:
    np.testing.assert_array_equal(binary(lambda a, _: -a, F, 0), -F)
    np.testing.assert_array_equal(binary(lambda a, _: abs(a), F, 0), np.abs(F))
    np.testing.assert_array_equal(binary(lambda a, _: ~a, X, 0), ~X)
    np.testing.assert_array_equal(binary(lambda a, _: +a + 0, X, 0), X)


@pytest.mark.parametrize("y", [1, 2, 3, -1, -2, -3, 2**63 - 1, -(2**63)])
def test_floor_division_at_the_extremes(y: int) -> None:
    x = np.array([-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 1])
    if y == -1:
        x = x[1:]  # the one quotient that has no int64
    assert binary(lambda a, b: a // b, x, y).tolist() == [int(v) // y for v in x]


def test_scalar_operators() -> None:
    with FusionDefinition() as fd:
        n: Any = fd.define_tensor([-1]).size(0)
        c: Any = fd.define_scalar
        assert str((2 * n + 1).node.expression) == "2*t0_size0 + 1"
        assert (c(7) // 2).node.value == 3
        assert (c(-7) // 2).node.value == -4
        assert (-c(7)).node.value == -7
        assert (c(7) / 2).node.value == 3.5
        assert (7 - c(2)).node.value == 5
        assert bool(c(7) > 2)


def test_numpy_operands() -> None:
    with FusionDefinition() as fd:
        x: Any = fd.define_tensor([-1])
        assert (np.float64(2.0) * x).dtype() is D.Float
        assert (np.float32(2.0) * x).dtype() is D.Float
        assert (np.int64(2) + x).dtype() is D.Float
        with pytest.raises(TypeError, match="incompatible function arguments"):
            _ = np.ones(3) * x
        with pytest.raises(TypeError, match="incompatible function arguments"):
            _ = x * [1]


def test_no_truth() -> None:
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([2]), fd.define_tensor([2])
        for ask in (lambda: bool(x), lambda: x == y or x, lambda: 0 < x < 1, lambda: not x, lambda: x in [y, x]):
            with pytest.raises(
                TypeError, match=r"a TensorView has no truth value while defining; select elements with ops.where"
            ):
                ask()
        with pytest.raises(TypeError, match="a symbolic scalar has no truth value"):
            bool(fd.define_scalar() == 1.0)
        with pytest.raises(TypeError, match="cannot be iterated"):
            iter(x)


@pytest.mark.parametrize(
    ("dtype", "compared"), [(D.Int, 2), (D.Float, 2), (D.Half, 2.0), (D.Int32, np.int32(2)), (D.Bool, True)]
)
def test_equality_selects(dtype: DataType, compared: Any) -> None:
    """What a newcomer writes: a Python bool of `==` would have selected nothing, in silence."""
    values = np.array([0, 2, 1, 2]).astype(dtype.numpy)
    x = np.array([1, 2, 3, 4], np.float32)
    for condition, expected in (
        (lambda t: t == compared, values == compared),
        (lambda t: compared == t, values == compared),
        (lambda t: t != compared, values != compared),
        (lambda t: ~(compared == t) & (t != 7), values != compared),
    ):

        def body(fd: FusionDefinition, condition: Callable[[Any], Any] = condition) -> Any:
            t, x = fd.define_tensor([-1], True, dtype), fd.define_tensor([-1], True)
            return fd.ops.where(condition(t), x, 0.0)

        np.testing.assert_array_equal(evaluate(define(body), values, x)[0], np.where(expected, x, 0))


def test_equality_of_scalars() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 3])
        assert x.size(1) == 3
        assert x.size(1) != 4
        assert (fd.define_scalar(2.0) == 2).dtype() is D.Bool
        with pytest.raises(TypeError, match="a symbolic scalar has no truth value"):
            assert x.size(0) == 3


def test_handles_are_keys_by_identity() -> None:
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([2]), fd.define_tensor([2])
        n = x.size(0)
        assert len({x, y, x, n}) == 3
        assert {x: 1, y: 2, n: 3}[y] == 2
        assert x in [x, y]
        assert [x, y].index(x) == 0


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (None, "a TensorView cannot be compared with None: `==` compares elements; use `is None`"),
        (
            "x",
            "a TensorView cannot be compared with 'x': `==` compares elements; use `is` to ask whether two names are one value",
        ),
        (np.ones(2), "a TensorView cannot be compared with a ndarray: `==` compares elements; use `is` to ask"),
        ([1], "a TensorView cannot be compared with a list: "),
        (D.Float, "a TensorView cannot be compared with a DataType: "),
    ],
)
def test_equality_with_what_is_no_operand(other: Any, message: str) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([2])
        for compare in (lambda: x == other, lambda: other == x):
            with pytest.raises(DefinitionTypeError) as caught:
                compare()
            assert str(caught.value).startswith(message)
            assert caught.value.location is not None
            assert caught.value.location.filename == __file__
        with pytest.raises(TypeError, match=r"a scalar of a fusion cannot be compared with None.*use `is not None`"):
            assert x.size(0) != None  # noqa: E711


def test_equality_after_the_definition() -> None:
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([2]), fd.define_tensor([2])
        fd.add_output(x + y)
    with pytest.raises(RuntimeError, match=r"`==` on a TensorView is an op, and nothing can be added.*use `is`"):
        assert x == y
    with FusionDefinition() as other:
        z = other.define_tensor([2])
        with pytest.raises(RuntimeError, match="belong to two different fusions"):
            assert z == x
        with pytest.raises(RuntimeError, match="nothing can be added"):
            assert x == z
