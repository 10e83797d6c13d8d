"""NumPy's dtypes and numbers, and names of dtypes, wherever a DataType, a number, an int or a bool is an argument."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.errors import DefinitionTypeError, FuserError
from tests.frontend.building import define, evaluate

D = DataType

Body = Callable[[Any, Any], Any]


@pytest.mark.parametrize("spelled", ["float16", np.float16, np.dtype("f2"), "half"], ids=repr)
def test_dtypes(spelled: Any) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 4], dtype=spelled)
        made: list[Any] = [
            x,
            fd.define_tensor([4], [1], spelled),
            fd.define_tensor([4], [True], spelled),
            fd.define_scalar(spelled),
            fd.define_scalar(dtype=spelled),
            fd.define_scalar(None, spelled),
            fd.define_scalar(3, spelled),
            fd.ops.cast(x, spelled),
            fd.ops.full([2], 1.0, spelled),
            fd.ops.iota(3, dtype=spelled),
            fd.ops.uniform(0.0, 1.0, [3], dtype=spelled),
            fd.ops.sum(x, spelled),
            fd.ops.sum(x, 1, False, spelled),
            fd.ops.prod(x, dims=[0], dtype=spelled),
        ]
    assert {v.node.dtype for v in made} == {D.Half}


def test_no_dtype_is_the_default() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([4], dtype=np.int32)
        assert fd.ops.sum(x, 0, dtype=None).dtype() is D.Int
        assert fd.define_scalar(float).dtype() is D.Double


INTEGERS = "integers are Int32, Int (of 64 bits) and UInt64"


@pytest.mark.parametrize(
    ("spelled", "message"),
    [
        (
            "float",
            "must be a DataType, got str 'float': it is float64 in NumPy and float32 in torch, write 'float64' or 'float32'.",
        ),
        (
            "int",
            "must be a DataType, got str 'int': it is int64 in NumPy and int32 in torch, write 'int64' or 'int32'.",
        ),
        (
            "int8",
            f"must be a DataType, got str 'int8': {INTEGERS}; an array of it is handed over as words, a.view(np.int32), ",
        ),
        (np.int8, f"must be a DataType, got type <class 'numpy.int8'>: {INTEGERS}; an array of it "),
        (np.dtype(np.uint8), f"must be a DataType, got UInt8DType dtype('uint8'): {INTEGERS}; an array of it "),
        (np.uint32, "must be a DataType, got type <class 'numpy.uint32'>: there is none for that type; there are "),
        (np.dtype(">f4"), "must be a DataType, got Float32DType dtype('>f4'): "),
        (3, "must be a DataType, got int: DataType.Float, "),
    ],
    ids=repr,
)
def test_what_is_no_dtype(spelled: Any, message: str) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([4])
        calls: list[Callable[[], Any]] = [
            lambda: fd.define_tensor([4], dtype=spelled),
            lambda: fd.ops.cast(x, spelled),
            lambda: fd.define_scalar(1, spelled),
        ]
        if isinstance(spelled, str | type):
            calls.append(lambda: fd.define_scalar(spelled))
        for call in calls:
            with pytest.raises(DefinitionTypeError) as caught:
                call()
            assert f"(): incompatible function arguments. dtype {message}" in str(caught.value)


BODIES: dict[str, Body] = {
    "operand": lambda ops, x: ops.mul(x, np.float32(2)),
    "operator": lambda ops, x: np.int32(2) * x + np.float16(1),
    "bfloat16": lambda ops, x: ops.add(x, ml_dtypes.bfloat16(0.5)),
    "unsigned": lambda ops, x: x - np.uint64(2),
    "long double": lambda ops, x: x * np.longdouble(3),
    "condition": lambda ops, x: ops.where(np.bool_(True), x, np.float32(0)),
    "bounds": lambda ops, x: ops.clamp(x, np.float32(-1), np.int64(1)),
    "dim and keepdim": lambda ops, x: ops.sum(x, np.int64(1), np.bool_(True)),
    "dims": lambda ops, x: ops.max(x, list(np.arange(2))),
    "dims as an array": lambda ops, x: ops.max(x, np.arange(2)),
    "shape": lambda ops, x: ops.reshape(x, np.array([6, -1])),
    "flags": lambda ops, x: ops.broadcast(x, np.array([True, False, False])),
    "indices": lambda ops, x: ops.slice(x, np.array([0, 1]), np.array([2, 3]), None, np.bool_(False)),
    "index": lambda ops, x: ops.select(x, np.int32(1), np.int8(0)),
    "widths": lambda ops, x: ops.pad(x, np.array([1, 1]), np.float32(7)),
    "full": lambda ops, x: ops.full((np.int64(2),), np.float32(1), np.float32),
    "iota": lambda ops, x: ops.iota(np.int64(4), np.int32(1), np.int32(2)),
    "var": lambda ops, x: ops.var(x, [np.int64(0)], np.int64(0), np.False_),
    "size": lambda ops, x: ops.full([x.size(np.int64(1))], 1.0, "float32"),
}
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def plain(name: str) -> Body:
    """The same with Python's numbers."""
    return {
        "operand": lambda ops, x: ops.mul(x, 2.0),
        "operator": lambda ops, x: 2 * x + 1.0,
        "bfloat16": lambda ops, x: ops.add(x, 0.5),
        "unsigned": lambda ops, x: x - 2,
        "long double": lambda ops, x: x * 3.0,
        "condition": lambda ops, x: ops.where(True, x, 0.0),
        "bounds": lambda ops, x: ops.clamp(x, -1.0, 1),
        "dim and keepdim": lambda ops, x: ops.sum(x, 1, True),
        "dims": lambda ops, x: ops.max(x, [0, 1]),
        "dims as an array": lambda ops, x: ops.max(x, [0, 1]),
        "shape": lambda ops, x: ops.reshape(x, [6, -1]),
        "flags": lambda ops, x: ops.broadcast(x, [True, False, False]),
        "indices": lambda ops, x: ops.slice(x, [0, 1], [2, 3], None, False),
        "index": lambda ops, x: ops.select(x, 1, 0),
        "widths": lambda ops, x: ops.pad(x, [1, 1], 7.0),
        "full": lambda ops, x: ops.full([2], 1.0, D.Float),
        "iota": lambda ops, x: ops.iota(4, 1, 2),
        "var": lambda ops, x: ops.var(x, [0], 0, False),
        "size": lambda ops, x: ops.full([x.size(1)], 1.0, D.Float),
    }[name]


@pytest.mark.parametrize("name", BODIES)
def test_numbers(name: str) -> None:
    def defined(body: Body) -> FusionDefinition:
        return define(lambda fd: body(fd.ops, fd.define_tensor([3, 4], True)))

    found, expected = defined(BODIES[name]), defined(plain(name))
    assert repr(found) == repr(expected)
    np.testing.assert_array_equal(evaluate(found, X)[0], evaluate(expected, X)[0])


def test_numbers_in_definitions() -> None:
    with FusionDefinition() as fd:
        one = fd.define_tensor(np.array([2, 3]), np.True_, np.float32, np.False_, np.array([0, 1]))
        two = fd.define_tensor([2, 3], [np.True_, np.False_])
        three = fd.define_tensor(sizes=np.array([2, 3]), strides=np.array([3, 1]), static_sizes=np.True_)
        assert fd.define_scalar(np.float32(2.5)).node.name
        vector: Any = fd.define_vector
        assert len(vector(np.int64(3))) == 3
    text = repr(fd) + str([one, two, three])
    assert "tv0: Float[2, 3]" in text
    assert fd.fusion is not None
    assert [getattr(v.node, "contiguity", None) for v in fd.fusion.inputs()[:3]] == [
        (True, True),
        (True, False),
        (True, True),
    ]


def test_a_number_that_does_not_fit() -> None:
    with FusionDefinition() as fd:
        x: Any = fd.define_tensor([4])
        with pytest.raises(TypeError, match="must be a TensorView, a Val or a number, got uint64"):
            _ = x + np.uint64(2**63)


@pytest.mark.parametrize(
    ("dtype", "remedy"),
    [
        ("flaot32", "did you mean 'float32'?"),
        ("bfloat", "did you mean 'bfloat16'?"),
        (
            np.uint32,
            "there are float64, float32, float16, bfloat16, int64, int32, uint64, bool, complex64, complex128.",
        ),
        (np.dtype(np.uint16), "an array of it is handed over as words, a.view(np.int32), which >> and & take apart"),
        ("float8_e4m3fn", "dtype Float8_e4m3fn is not supported yet; an array of it is handed over as words"),
    ],
)
def test_a_dtype_that_is_none(dtype: Any, remedy: str) -> None:
    with FusionDefinition() as fd, pytest.raises(FuserError) as caught:
        fd.define_tensor([-1], dtype=dtype)
    assert remedy in caught.value.message


def test_a_method_that_is_not_called() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        fd.add_output(x)
        with pytest.raises(DefinitionTypeError) as caught:
            _ = x / x.size  # type: ignore[operator]
    assert "rhs must be a TensorView, a Val or a number, got method: call it. " in caught.value.message
