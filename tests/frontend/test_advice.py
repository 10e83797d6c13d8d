"""Names that are no ops: what the error says to write, and that it is right."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

from fuser import DataType, FusionDefinition, ops
from fuser.errors import DefinitionAttributeError
from fuser.frontend.advice import ABSENT, RECIPES, RENAMED
from fuser.frontend.methods import METHODS
from tests.frontend.building import define, evaluate

RNG = np.random.default_rng(3)
X = RNG.normal(size=(4, 4)).astype(np.float32)
W = RNG.normal(size=(4, 4)).astype(np.float32)
B = RNG.normal(size=4).astype(np.float32)
TARGET = np.array([3, 0, 1, 1])


def normalized(x: np.ndarray, axis: int) -> np.ndarray:
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + 1e-5)


def grouped(x: np.ndarray) -> np.ndarray:
    return normalized(x.reshape(4, 2, -1), 2).reshape(x.shape)


REFERENCES: dict[str, Callable[[Any, Any], Any]] = {
    "any": lambda x, w: (x != 0).any(-1),
    "all": lambda x, w: (x != 0).all(-1),
    "batch_norm": lambda x, w: normalized(x, 0) * w + B,
    "argmax": lambda x, w: x.argmax(-1)[:, None],
    "argmin": lambda x, w: x.argmin(-1)[:, None],
    "sort": lambda x, w: np.sort(x),
    "array_split": lambda x, w: x[:2],
    "chunk": lambda x, w: x[:, :2],
    "diff": lambda x, w: np.diff(x),
    "isclose": np.isclose,
    "moveaxis": lambda x, w: np.moveaxis(x, 0, 1),
    "movedim": lambda x, w: np.moveaxis(x, 0, 1),
    "narrow": lambda x, w: x[:, 1:3],
    "outer": np.outer,
    "repeat": lambda x, w: np.tile(x, (2, 1)),
    "repeat_interleave": lambda x, w: np.repeat(x, 2, 0),
    "roll": lambda x, w: np.roll(x, 1, 0),
    "split": lambda x, w: x[:, :2],
    "swapaxes": lambda x, w: x.T,
    "swapdims": lambda x, w: x.T,
    "tile": lambda x, w: np.tile(x, (2, 1)),
    "unbind": lambda x, w: x[0],
    "binary_cross_entropy_with_logits": lambda x, w: (np.logaddexp(0, x) - x * w).mean(),
    "cosine_similarity": lambda x, w: (x * w).sum(-1) / np.linalg.norm(x, axis=-1) / np.linalg.norm(w, axis=-1),
    "eye": lambda x, w: np.eye(4),
    "hardsigmoid": lambda x, w: np.clip(x / 6 + 0.5, 0, 1),
    "hardswish": lambda x, w: x * np.clip(x + 3, 0, 6) / 6,
    "huber_loss": lambda x, w: special.huber(1, x - w).mean(),
    "hypot": np.hypot,
    "instance_norm": lambda x, w: normalized(x, -1),
    "l1_loss": lambda x, w: np.abs(x - w).mean(),
    "linspace": lambda x, w: np.linspace(0, 1, 5),
    "logsigmoid": lambda x, w: -np.logaddexp(0, -x),
    "nan_to_num": lambda x, w: x,
    "nansum": lambda x, w: x.sum(-1),
    "nll_loss": lambda x, w: -np.take_along_axis(x, TARGET[:, None], -1),
    "normalize": lambda x, w: x / np.linalg.norm(x, axis=-1, keepdims=True),
    "one_hot": lambda x, w: np.eye(4)[TARGET],
    "prelu": lambda x, w: np.where(x > 0, x, w * x),
    "selu": lambda x, w: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    "smooth_l1_loss": lambda x, w: special.huber(1, x - w).mean(),
    "softsign": lambda x, w: x / (1 + np.abs(x)),
    "std_mean": lambda x, w: x.std(-1, ddof=1),
    "t": lambda x, w: x.T,
    "celu": lambda x, w: np.where(x > 0, x, np.expm1(x)),
    "count_nonzero": lambda x, w: np.count_nonzero(x, -1),
    "cross_entropy": lambda x, w: -np.take_along_axis(special.log_softmax(x, -1), TARGET[:, None], -1),
    "elu": lambda x, w: np.where(x > 0, x, np.expm1(x)),
    "expand_dims": lambda x, w: x[None],
    "flip": lambda x, w: np.flip(x, -1),
    "floor_divide": lambda x, w: x // w,
    "gelu": lambda x, w: x * special.ndtr(x),
    "group_norm": lambda x, w: grouped(x) * w + B,
    "hardtanh": lambda x, w: np.clip(x, -1, 1),
    "layer_norm": lambda x, w: normalized(x, -1) * w + B,
    "leaky_relu": lambda x, w: np.where(x > 0, x, 0.01 * x),
    "log_softmax": lambda x, w: special.log_softmax(x, -1),
    "logaddexp": np.logaddexp,
    "logical_xor": lambda x, w: np.logical_xor(x, w),
    "logsumexp": lambda x, w: special.logsumexp(x, -1, keepdims=True),
    "masked_fill": lambda x, w: np.where(x > 0, 0, x),
    "mean": lambda x, w: x.mean(-1),
    "mish": lambda x, w: x * np.tanh(np.log1p(np.exp(x))),
    "mse_loss": lambda x, w: ((x - w) ** 2).mean(),
    "norm": lambda x, w: np.linalg.norm(x, axis=-1),
    "relu6": lambda x, w: np.clip(x, 0, 6),
    "rms_norm": lambda x, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w,
    "softmax": lambda x, w: special.softmax(x, -1),
    "softplus": lambda x, w: np.log1p(np.exp(x)),
    "stack": lambda x, w: np.stack([x, w]),
    "std": lambda x, w: x.std(-1, ddof=1),
    "tanhshrink": lambda x, w: x - np.tanh(x),
    "transpose": lambda x, w: x.T,
    "tril": lambda x, w: np.tril(x),
    "unsqueeze": lambda x, w: x[None],
}


def run(recipe: str) -> np.ndarray:
    def body(fd: FusionDefinition) -> Any:
        x, w, b = fd.define_tensor([-1, -1], True), fd.define_tensor([-1, -1], True), fd.define_tensor([-1], True)
        names: dict[str, Any] = {"fd": fd, "x": x, "w": w, "b": b, "DataType": DataType}
        names["target"] = fd.define_tensor([-1], True, DataType.Int)
        exec(recipe, names)
        return names["y"]

    return evaluate(define(body), X, W, B, TARGET)[0]


@pytest.mark.parametrize("name", sorted(set(RECIPES) - {"dropout"}))
def test_recipes(name: str) -> None:
    np.testing.assert_allclose(run(RECIPES[name]), REFERENCES[name](X, W), rtol=2e-5, atol=2e-6)


def test_recipe_of_dropout() -> None:
    with FusionDefinition() as fd:
        names: dict[str, Any] = {"fd": fd, "x": fd.define_tensor([-1, -1], True)}
        exec(RECIPES["dropout"], names)
        fd.add_output(names["y"])
    x = np.ones((64, 64), np.float32)
    (y,) = fd.execute([x], device="simulator")
    assert set(np.unique(y)) == {0, np.float32(1 / 0.9)}
    assert abs((y == 0).mean() - 0.1) < 0.03


@pytest.mark.parametrize("name", RENAMED)
def test_other_names_are_calls_of_ops(name: str) -> None:
    assert RENAMED[name].partition("(")[0] in ops.OPS


def test_names_are_said_once() -> None:
    tables = (RENAMED, RECIPES, ABSENT, ops.OPS)
    assert sum(map(len, tables)) == len({name for table in tables for name in table})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sun", "there is no op 'sun'; did you mean sum, sub or sin?"),
        ("rsqrtt", "there is no op 'rsqrtt'; did you mean rsqrt or sqrt?"),
        ("Where", "there is no op 'Where'; did you mean where?"),
        ("multiply", "there is no op 'multiply'; write fd.ops.mul(x, y)"),
        (
            "softmax",
            "there is no op 'softmax'; it is written with other ops:\n    e = fd.ops.exp(x - fd.ops.max(x, -1, True))\n",
        ),
        ("median", "there is no op 'median': topk and argsort give elements in order, and index_select one of them"),
        ("sofmax", "there is no op 'sofmax'; did you mean softmax; it is written with other ops:\n    e = "),
        ("detach", "there is no op 'detach': a definition computes no gradients"),
        ("swapaxes", "there is no op 'swapaxes'; it is written with other ops:\n    y = x.transpose(0, 1)"),
        ("xyzzy", "there is no op 'xyzzy'"),
    ],
)
def test_messages(name: str, message: str) -> None:
    module: Any = ops
    with pytest.raises(DefinitionAttributeError) as caught:
        getattr(module, name)
    assert caught.value.message.startswith(message)
    assert caught.value.name == name
    assert caught.value.location is not None
    assert caught.value.location.filename == __file__
    with FusionDefinition() as fd:
        x = fd.define_tensor([2])
        with pytest.raises(DefinitionAttributeError) as caught:
            getattr(x, name)
        start = "a TensorView has no attribute"
        assert caught.value.message.startswith(start)
        # Some ops are no methods, and are not meant.
        if name not in ("Where", "rsqrtt"):
            assert caught.value.message.startswith(message.replace("there is no op", start))


def test_ops_that_are_no_methods() -> None:
    with FusionDefinition() as fd:
        x: Any = fd.define_tensor([2])
        with pytest.raises(AttributeError, match=r"a TensorView has no attribute 'where'; call fd.ops.where"):
            x.where
        with pytest.raises(AttributeError, match=r"a scalar of a fusion has no attribute 'exp'; call fd.ops.exp"):
            x.size(0).exp
        assert "where" not in METHODS


def test_the_module_shows_ops_alone() -> None:
    assert dir(ops) == sorted(ops.OPS)
    assert not hasattr(ops, "softmax")
    assert not hasattr(ops, "__wrapped__")
