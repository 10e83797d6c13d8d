"""Ops as methods of tensors."""

import copy
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition, TensorView
from fuser.errors import DefinitionError
from fuser.frontend.methods import CASTS, METHODS
from fuser.frontend.ops import OPS, UNSUPPORTED
from tests.frontend.building import define, evaluate

D = DataType
X = np.random.default_rng(0).uniform(0.5, 2.0, (3, 4)).astype(np.float32)


def result(body: Callable[[Any], Any], array: np.ndarray = X, dtype: DataType = D.Float) -> Any:
    return evaluate(define(lambda fd: body(fd.define_tensor([-1] * array.ndim, True, dtype))), array)[0]


@pytest.mark.parametrize("name", sorted(set(METHODS) & set(OPS)))
def test_a_method_is_the_op(name: str) -> None:
    """Same text as the op with the tensor in front; those with their own form are tested below."""
    op = OPS[name]
    if METHODS[name] is not op:
        pytest.skip("has a form of its own")
    if name.startswith("sdpfa"):
        pytest.skip("takes tensors of four dims")
    arguments = ARGUMENTS.get(
        name, (2.0,) * (len(inspect.signature(op).parameters) - 1) if name not in ARGUMENTS else ()
    )
    dtype = D.Int if name in INTEGERS else D.ComplexFloat if name == "imag" else D.Float

    def defined(call: Callable[[Any], Any]) -> str:
        def body(fd: FusionDefinition) -> Any:
            return call(fd.define_tensor([4, 4], True, dtype))

        return repr(define(body))

    def values(x: Any) -> list[Any]:
        return [a(x) if inspect.isfunction(a) else a for a in arguments]

    assert defined(lambda x: getattr(x, name)(*values(x))) == defined(lambda x: op(x, *values(x)))


INTEGERS = {
    *(n for n in OPS if n.startswith(("bitwise_", "logical_right"))),
    "gcd",
    "mod",
}
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(INTEGERS - {"bitwise_not"}, (3,)),
    "argsort": (1,),
    "addcmul": (lambda x: x, lambda x: x, 2.0),
    "broadcast": ([True, False, False],),
    "broadcast_in_dim": ([2, 4, 4], [1, 2]),
    "cast": (D.Half,),
    "complex": (lambda x: x,),
    "cummax": (0,),
    "cummin": (0,),
    "cumprod": (0,),
    "cumsum": (1,),
    "grouped_mm": (lambda x: x, lambda x: x[0].to(D.Int32)),
    "gather": (lambda x: x.long(), 0),
    "index_select": (lambda x: x.long()[0], 0),
    "linear": (lambda x: x,),
    "matmul": (lambda x: x,),
    "max": (1, True),
    "min": ([0, 1],),
    "pad": ([1, 1],),
    "prod": (),
    "scatter": (lambda x: x.long(), 1.0, 0),
    "select": (1, 0),
    "slice": ([0, 0], [1, 2]),
    "stride_order": ([0, 1],),
    "sum": (1, True, D.Double),
    "take_along_axis": (lambda x: x.long(), 0),
    "topk": (2,),
    "triu": (1,),
    "welford": ([0],),
    "lerp": (2.0, 0.5),
    "nextafter": (2.0,),
    "threshold": (1.0, 2.0),
    "clamp": (None, 1.0),
}


def test_every_op_of_a_tensor_is_a_method() -> None:
    elsewhere = {"where", "cat", "full", "iota", "uniform", "normal", "shape", "size", "embedding_fwd"}
    assert set(OPS) - set(METHODS) == elsewhere | set(UNSUPPORTED)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (lambda x: x.exp(), np.exp(X)),
        (lambda x: x.add(1.0).mul(x), (X + 1) * X),
        (lambda x: x.sum(1), X.sum(1)),
        (lambda x: x.sum(dim=1), X.sum(1)),
        (lambda x: x.sum([0, 1]), X.sum()),
        (lambda x: x.sum(), X.sum()),
        (lambda x: x.max(0, True), X.max(0, keepdims=True)),
        (lambda x: x.min(dims=[-1]), X.min(-1)),
        (lambda x: x.prod(1), X.prod(1)),
        (lambda x: x.mean(), X.mean()),
        (lambda x: x.mean(1), X.mean(1)),
        (lambda x: x.mean(-1, True), X.mean(-1, keepdims=True)),
        (lambda x: x.mean(dim=(0, 1)), X.mean()),
        (lambda x: x.var(), X.var(ddof=1)),
        (lambda x: x.var(1), X.var(1, ddof=1)),
        (lambda x: x.var([0], 0, True), X.var(0, keepdims=True)),
        (lambda x: x.var_mean(1)[1], X.mean(1)),
        (lambda x: x.reshape(2, -1), X.reshape(2, -1)),
        (lambda x: x.reshape([4, 3]), X.reshape(4, 3)),
        (lambda x: x.reshape(-1), X.reshape(-1)),
        (lambda x: x.reshape(np.array([6, 2])), X.reshape(6, 2)),
        (lambda x: x.reshape(x.size(0), 2, 2), X.reshape(3, 2, 2)),
        (lambda x: x.reshape(x.shape) + 0.0, X),
        (lambda x: x.permute(1, 0), X.T),
        (lambda x: x.permute([1, 0]), X.T),
        (lambda x: x.transpose(0, -1), X.T),
        (lambda x: x.T, X.T),
        (lambda x: x.mT, X.T),
        (lambda x: x[None].T, X[None].T),
        (lambda x: x[None].mT, X[None].transpose(0, 2, 1)),
        (lambda x: x.unsqueeze(0), X[None]),
        (lambda x: x.unsqueeze(-1), X[..., None]),
        (lambda x: x.unsqueeze(1).expand(-1, 2, -1), np.broadcast_to(X[:, None], (3, 2, 4))),
        (lambda x: x.unsqueeze(1).expand([-1, 2, -1]), np.broadcast_to(X[:, None], (3, 2, 4))),
        (lambda x: x.unsqueeze(0).squeeze(0), X),
        (lambda x: x[None, :, None].squeeze(0, 2), X),
        (lambda x: x[None].squeeze([0]), X),
        (lambda x: x.unsqueeze(0).expand(2, -1, -1).squeeze(0, squeeze_expanded=True), X),
        (lambda x: x.to("float64").to(np.float32), X),
    ],
)
def test_results(method: Callable[[Any], Any], expected: Any) -> None:
    found = result(lambda x: method(x).set())
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "mean"),
    [
        (D.Float, D.Float),
        (D.Double, D.Double),
        (D.Half, D.Float),
        (D.BFloat16, D.Float),
        (D.Int, D.Float),
        (D.Int32, D.Float),
        (D.Bool, D.Float),
        (D.ComplexFloat, D.ComplexFloat),
    ],
)
def test_means(dtype: DataType, mean: DataType) -> None:
    """Sums of 16-bit floats are not rounded to them before the division, nor do they overflow."""
    values = np.full((2, 700), 300).astype(dtype.numpy)
    with FusionDefinition() as fd:
        assert fd.define_tensor([-1, -1], dtype=dtype).mean(1).dtype is mean
    np.testing.assert_array_equal(result(lambda x: x.mean(1), values, dtype), values[0, 0].astype(mean.numpy))


def test_the_mean_of_a_tensor_of_rank_0() -> None:
    assert result(lambda x: x.mean(), np.array(3.0, np.float32)) == 3


@pytest.mark.parametrize("name", CASTS)
def test_casts(name: str) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([2])
        assert getattr(x, name)().dtype is CASTS[name]
    assert {n: d.numpy.name for n, d in CASTS.items()} == {
        "float": "float32",
        "double": "float64",
        "half": "float16",
        "bfloat16": "bfloat16",
        "int": "int32",
        "long": "int64",
        "bool": "bool",
    }


def test_shapes_and_dtypes_are_attributes() -> None:
    with FusionDefinition() as fd:
        x: Any = fd.define_tensor([-1, 4], dtype="float16")
        assert x.shape[0] is x.size(0)
        assert x.shape()[0] is x.size(0)
        assert type(x.shape()) is list
        assert x.shape[:1] == tuple(x.shape())[:1]
        assert len(x.shape) == x.ndim == 2
        assert x.shape[1] == 4
        with pytest.raises(DefinitionError, match=r"shape: dim 9 is out of range: there are 2, from -2 to 1") as caught:
            x.shape[9]
        assert isinstance(caught.value, IndexError)
        assert x.dtype is D.Half
        assert x.dtype() is D.Half
        assert x.dtype == D.Half
        assert x.dtype != D.Float
        assert x.size(0).dtype is D.Int


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x.squeeze(), "squeeze() needs the dims to drop"),
        (lambda x: x.transpose(0, 2), "transpose(): dim 2 is out of range"),
        (lambda x: x.unsqueeze(4), "unsqueeze(): dim 4 is out of range"),
        (lambda x: x.unsqueeze(1.5), "unsqueeze(): incompatible function arguments. dim must be an int, got float."),
        (lambda x: x[0].mT, "mT needs a tensor of rank 2 or more, got rank 1"),
        (lambda x: x.mean([]), "No reduction axis specified"),
        (lambda x: x.to("cuda"), "to(): incompatible function arguments. dtype must be a DataType, got str 'cuda'"),
        (lambda x: x.exp(1), "exp(): incompatible function arguments."),
        (lambda x: x.float(1), "float(): incompatible function arguments."),
    ],
)
def test_mistakes(call: Callable[[Any], Any], message: str) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 4])
        with pytest.raises(DefinitionError) as caught:
            call(x)
    assert message in caught.value.message
    assert caught.value.location is not None
    assert caught.value.location.filename == __file__


def test_names_that_users_see() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 4])
        names = dir(x)
        assert not [n for n in names if n.startswith("_")]
        assert {"node", "fusion"}.isdisjoint(names)
        assert {*METHODS, "T", "mT", "shape", "dtype", "split", "axis"} <= set(names)
        assert dir(x.size(0)) == ["definition", "dtype", "is_symbolic", "is_tensor", "name", "uses"]
        # A class shows what its handles do.
        assert dir(TensorView) == names
        assert dir(type(x.size(0))) == dir(x.size(0))
        assert dir(x.axis(0)) == [
            "definition",
            "extent",
            "is_broadcast",
            "is_reduction",
            "parallelize",
            "tensor",
            "uses",
        ]
        for name in names:
            assert inspect.getdoc(getattr(TensorView, name)), name


def test_libraries_may_look_for_what_is_not_there() -> None:
    with FusionDefinition() as fd:
        x: Any = fd.define_tensor([-1, 4])
        for name in ("__len__", "__cuda_array_interface__", "__dlpack__", "__deepcopy__", "nothing"):
            assert not hasattr(x, name)
        assert copy.copy(x) is not None
        assert np.ndim(np.array(None)) == 0
