"""Parts of tensors by subscripts, against NumPy."""

from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.errors import DefinitionError, InputRuntimeError
from tests.frontend.building import define, evaluate

ARRAY = np.arange(3 * 5 * 4, dtype=np.float32).reshape(3, 5, 4)

KEYS: list[Any] = [
    *(0, 2, -1, -3, np.int64(1), slice(None), ..., None, ()),
    *(
        slice(1, None),
        slice(None, 2),
        slice(0, 2),
        slice(-2, None),
        slice(None, -1),
        slice(-3, -1),
        slice(1, -1),
        slice(-1, 3),
    ),
    *(
        slice(2, 1),
        slice(0, 99),
        slice(7, 99),
        slice(-99, 2),
        slice(None, -99),
        slice(-1, -2),
        slice(-1, 0),
        slice(None, None, 1),
    ),
    *(slice(np.int64(1), np.int32(2)), slice(3, None), slice(-3, None)),
    *(
        (slice(None), slice(1, None)),
        (0, 1, 2),
        (-1, ..., 0),
        (..., -1),
        (..., slice(-2, None)),
        (slice(1, 3), 2, slice(None, -1)),
    ),
    *((None, 0), (0, None), (..., None), (None, slice(1, None), None, 1, ..., None), (slice(None), None, slice(2, 4))),
    *((slice(None), slice(None), slice(None)), (slice(None), -2), (1, slice(None), -1, None)),
]


@pytest.mark.parametrize("is_static", [True, False], ids=["static", "symbolic"])
@pytest.mark.parametrize("key", KEYS, ids=str)
def test_as_numpy(key: Any, is_static: bool) -> None:
    def body(fd: FusionDefinition) -> Any:
        x = fd.define_tensor(ARRAY.shape if is_static else [-1] * 3, True)
        part = x[key]
        assert part.ndim == ARRAY[key].ndim
        return part + 1.0

    fd = define(body)
    np.testing.assert_array_equal(evaluate(fd, ARRAY)[0], ARRAY[key] + 1)
    # The text of the definition defines the same.
    namespace: dict[str, Any] = {"DataType": DataType, "FusionDefinition": FusionDefinition}
    exec(repr(fd), namespace)
    with FusionDefinition() as again:
        namespace["nvfuser_fusion"](again)
    np.testing.assert_array_equal(evaluate(again, ARRAY)[0], ARRAY[key] + 1)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_clamping_at_run_time(n: int) -> None:
    """One definition for extents below and above the positions."""
    x = np.arange(2 * n, dtype=np.float32).reshape(2, n)
    keys = [slice(-3, None), slice(2, None), slice(None, 3), slice(-4, 2), slice(1, -1), slice(-2, -1)]

    def body(fd: FusionDefinition) -> Any:
        t = fd.define_tensor([-1, -1], True)
        return [t[:, key] * 2.0 for key in keys]

    for found, key in zip(evaluate(define(body), x), keys, strict=True):
        np.testing.assert_array_equal(found, x[:, key] * 2)


def test_scalars_of_the_fusion() -> None:
    """Positions that only the execution knows."""

    def body(fd: FusionDefinition) -> Any:
        x, n = fd.define_tensor([-1, -1, -1], True), fd.define_scalar(DataType.Int)
        return x[n:, : n + 1], x[n], x[:, : x.size(1) - 1], x[fd.define_scalar(2)], x[0, n:, 1 : n + 2]

    for n in (0, 1, 2):
        found = evaluate(define(body), ARRAY, n)
        expected = [ARRAY[n:, : n + 1], ARRAY[n], ARRAY[:, :-1], ARRAY[2], ARRAY[0, n:, 1 : n + 2]]
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_negative_scalars_of_the_fusion() -> None:
    def body(fd: FusionDefinition) -> Any:
        x, n = fd.define_tensor([-1, -1, -1], True), fd.define_scalar(DataType.Int)
        return x[n:], x[:, n:-1], x[..., :n]

    for n in (-1, -3, -99, 2):
        for a, b in zip(evaluate(define(body), ARRAY, n), [ARRAY[n:], ARRAY[:, n:-1], ARRAY[..., :n]], strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("is_static", [True, False], ids=["static", "symbolic"])
def test_in_a_kernel(is_static: bool) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(ARRAY.shape if is_static else [-1] * 3, True)
        y = x[1:, :-1, -1]
        fd.add_output(y[:, None] * x[:-1, 1:, 0:1].T.T)
        fd.add_output(fd.ops.sum(x[..., -3:], 2))
    expected = ARRAY[1:, :-1, -1][:, None] * ARRAY[:-1, 1:, 0:1]
    first, second = fd.execute([ARRAY], device="simulator")
    np.testing.assert_array_equal(first, expected)
    np.testing.assert_allclose(second, ARRAY[..., -3:].sum(2), rtol=1e-6)


def test_all_of_a_tensor_is_the_tensor() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 4])
        for part in (x[:], x[...], x[:, :], x[0:], x[()], x[:, 0:None]):
            assert part is x


@pytest.mark.parametrize(
    ("key", "kind", "message"),
    [
        (
            slice(None, None, 0),
            RuntimeError,
            "tensor[...]: steps of slices are numbers of at least 1, got step 0: select positions with ",
        ),
        (slice(None, None, -1), RuntimeError, "tensor[...]: steps of slices are numbers of at least 1, got step -1: "),
        ((0, 0, 0), RuntimeError, "tensor[...]: 3 subscripts for a tensor of rank 2"),
        ((..., 0, ...), RuntimeError, "tensor[...]: there can be one `...` only"),
        ((0, 4), RuntimeError, "tensor[...]: subscript 4 is out of range for dim 1, of extent 4"),
        ((0, -5), RuntimeError, "tensor[...]: subscript -5 is out of range for dim 1, of extent 4"),
        (1.0, TypeError, "tensor[...]: a subscript must be an int, a slice, None or ..., got float"),
        (True, TypeError, "tensor[...]: a subscript must be an int, a slice, None or ..., got bool"),
        ("a", TypeError, "tensor[...]: a subscript must be an int, a slice, None or ..., got str"),
        (
            [0, 1],
            TypeError,
            "tensor[...]: a subscript must be an int, a slice, None or ..., got list: index with a tensor by ",
        ),
        (
            np.array([0]),
            TypeError,
            "tensor[...]: a subscript must be an int, a slice, None or ..., got ndarray: index with ",
        ),
        (
            slice(0.5, None),
            TypeError,
            "tensor[...]: a bound of a slice must be an int, a slice, None or ..., got float",
        ),
    ],
    ids=str,
)
def test_mistakes(key: Any, kind: type[Exception], message: str) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 4])
        with pytest.raises(kind) as caught:
            x[key]
    assert isinstance(caught.value, DefinitionError)
    assert caught.value.message.startswith(message)
    assert caught.value.location is not None
    assert caught.value.location.filename == __file__


def test_tensors_as_subscripts() -> None:
    with FusionDefinition() as fd:
        x, i = fd.define_tensor([-1, 4]), fd.define_tensor([-1], dtype=DataType.Int)
        with pytest.raises(
            TypeError, match=r"got a TensorView: ops.index_select and ops.take_along_axis read at the indices"
        ):
            x[i]
        with pytest.raises(TypeError, match=r"got a TensorView: ops.where selects by a condition"):
            x[x > 0.0]
        with pytest.raises(TypeError, match="must be an integer, got a scalar of dtype Double"):
            x[fd.define_scalar()]
        with FusionDefinition() as other, pytest.raises(RuntimeError, match="belong to two different fusions"):
            x[other.define_scalar(DataType.Int)]


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("key", [3, -4])
@pytest.mark.parametrize("is_scalar", [False, True])
def test_a_subscript_outside_of_a_dim_of_any_size_is_refused(rows: int, key: int, is_scalar: bool) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True)
        index = fd.define_scalar(DataType.Int) if is_scalar else key
        fd.add_output(fd.ops.neg(x[x.size(0) + index if key < 0 else index]))
    given = [key] if is_scalar else []
    fd.execute([np.zeros((4, 3), np.float32), *given])  # what is compiled for an inside one asks again
    with pytest.raises(
        InputRuntimeError,
        match=r"slice of dim 0: (it|position -?\d) (begins before|ends behind) the dim \(|is used as an extent",
    ):
        fd.execute([np.zeros((rows, 3), np.float32), *given])
