"""Where approximate ops take the place of others, and what that does to results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import Fusion, Pointwise
from fuser.ir.fusion.print_fusion import definition_text
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.ir.ops.approximate_ops import APPROXIMATE
from fuser.optimize.use_approximate_ops import use_approximate_ops

Float, Double, BFloat16, Half = DataType.Float, DataType.Double, DataType.BFloat16, DataType.Half
Int = DataType.Int


def fusion_of(define: Callable[[Any, Any, Any], Any], dtype: DataType = Float) -> Fusion:
    """The fusion of the outputs that `define(fd, x, y)` returns, of two matrices."""
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1, -1], True, dtype) for _ in range(2))
        made = define(fd, x, y)
        for output in made if isinstance(made, list) else [made]:
            fd.add_output(output)
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def ops(fusion: Fusion) -> list[str]:
    """Names of the pointwise ops, casts left out."""
    return [e.op for e in fusion.tensor_exprs if isinstance(e, Pointwise) and e.op != "cast"]


def softmax(fd: Any, x: Any, dtype: DataType) -> Any:
    """Along the last dim."""
    wide = fd.ops.cast(x, Float)
    e = fd.ops.exp(fd.ops.sub(wide, fd.ops.max(wide, 1, keepdim=True)))
    return fd.ops.cast(fd.ops.div(e, fd.ops.sum(e, 1, keepdim=True)), dtype)


@pytest.mark.parametrize("dtype", [BFloat16, Half])
def test_softmax_of_16_bits(dtype: DataType) -> None:
    fusion = use_approximate_ops(fusion_of(lambda fd, x, y: softmax(fd, x, dtype), dtype))
    verify_fusion(fusion, "use_approximate_ops")
    assert ops(fusion) == ["sub", "coarse_exp", "coarse_div"]
    assert use_approximate_ops(fusion) is fusion


EXACT: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a Float output": lambda fd, x, y: fd.ops.exp(x),
    "a Float output beside": lambda fd, x, y: [(e := fd.ops.exp(x)), fd.ops.cast(e, BFloat16)],
    "a Double": lambda fd, x, y: fd.ops.cast(fd.ops.cast(fd.ops.exp(x), Double), BFloat16),
    "an integer": lambda fd, x, y: fd.ops.cast(fd.ops.cast(fd.ops.exp(x), Int), BFloat16),
    "a difference": lambda fd, x, y: fd.ops.cast(fd.ops.sub(fd.ops.exp(x), 1.0), BFloat16),
    "a sum of both signs": lambda fd, x, y: fd.ops.cast(fd.ops.add(fd.ops.exp(x), y), BFloat16),
    "a sum with a negative number": lambda fd, x, y: fd.ops.cast(fd.ops.add(fd.ops.exp(x), -1.0), BFloat16),
    "a reduction of both signs": lambda fd, x, y: fd.ops.cast(fd.ops.sum(fd.ops.mul(fd.ops.exp(x), y), 1), BFloat16),
    "a product of many": lambda fd, x, y: fd.ops.cast(fd.ops.prod(fd.ops.exp(x), 1), BFloat16),
    "a variance": lambda fd, x, y: fd.ops.cast(fd.ops.welford(fd.ops.exp(x), [1])[1], BFloat16),
    "a scan": lambda fd, x, y: fd.ops.cast(fd.ops.cumsum(fd.ops.exp(x), 1), BFloat16),
    "a comparison": lambda fd, x, y: fd.ops.gt(fd.ops.exp(x), y),
    "a logarithm": lambda fd, x, y: fd.ops.cast(fd.ops.log(fd.ops.exp(x)), BFloat16),
    "an exponential": lambda fd, x, y: fd.ops.cast(fd.ops.cosh(fd.ops.exp(x)), BFloat16),
    "a rounding that is computed with": lambda fd, x, y: fd.ops.cast(
        fd.ops.add(fd.ops.cast(fd.ops.exp(x), BFloat16), y), BFloat16
    ),
    "one more than the tanh of a Double": lambda fd, x, y: fd.ops.cast(
        fd.ops.add(fd.ops.tanh(fd.ops.cast(x, Double)), 1.0), BFloat16
    ),
}


@pytest.mark.parametrize("name", EXACT)
def test_what_shows_stays_exact(name: str) -> None:
    fusion = fusion_of(EXACT[name])
    assert use_approximate_ops(fusion) is fusion


COARSENED: dict[str, tuple[Callable[[Any, Any, Any], Any], list[str]]] = {
    "moved": (
        lambda fd, x, y: fd.ops.permute(fd.ops.cast(fd.ops.permute(fd.ops.exp(x), [1, 0]), BFloat16), [1, 0]),
        ["coarse_exp"],
    ),
    "scaled": (lambda fd, x, y: fd.ops.cast(fd.ops.mul(fd.ops.exp(x), y), BFloat16), ["coarse_exp", "mul"]),
    "selected": (
        lambda fd, x, y: fd.ops.cast(fd.ops.where(fd.ops.gt(x, 0.0), fd.ops.exp(x), y), Half),
        ["gt", "coarse_exp", "where"],
    ),
    "one more": (
        lambda fd, x, y: fd.ops.cast(fd.ops.sqrt(1.0 + fd.ops.exp(x)), Half),
        ["coarse_exp", "add", "near_sqrt"],
    ),
    "tanh and one": (
        lambda fd, x, y: fd.ops.cast(y * (1.0 + fd.ops.tanh(x)), BFloat16),
        ["coarse_one_plus_tanh", "mul"],
    ),
    "a tanh that is read elsewhere": (
        lambda fd, x, y: [fd.ops.cast(1.0 + (t := fd.ops.tanh(x)), BFloat16), t],
        ["tanh", "coarse_one_plus_tanh"],
    ),
    "sigmoid": (lambda fd, x, y: fd.ops.cast(fd.ops.sigmoid(x), Half), ["coarse_sigmoid"]),
    "silu": (lambda fd, x, y: fd.ops.cast(fd.ops.silu(x) * y, Half), ["coarse_silu", "mul"]),
    "a divisor": (
        lambda fd, x, y: fd.ops.cast(y / (1.0 + fd.ops.exp(x)), Half),
        ["coarse_exp", "add", "coarse_truediv"],
    ),
    "reciprocal": (lambda fd, x, y: fd.ops.cast(fd.ops.reciprocal(x), Half), ["coarse_reciprocal"]),
    "a softplus": (lambda fd, x, y: fd.ops.cast(fd.ops.log1p(fd.ops.exp(x)), Half), ["coarse_exp", "coarse_log1p"]),
    "a mish": (
        lambda fd, x, y: fd.ops.cast(fd.ops.mul(x, fd.ops.tanh(fd.ops.log1p(fd.ops.exp(x)))), BFloat16),
        ["coarse_exp", "coarse_log1p", "tanh", "mul"],
    ),
    "a logarithm from below 1 on": (
        lambda fd, x, y: fd.ops.cast(fd.ops.log1p(fd.ops.neg(fd.ops.sigmoid(x)) * fd.ops.sqrt(y)), Half),
        ["sigmoid", "neg", "near_sqrt", "mul", "log1p"],
    ),
    # The few units of a float that a quotient may be off are allowed even where more is computed.
    "rounded between": (
        lambda fd, x, y: fd.ops.cast(fd.ops.sub(fd.ops.cast(fd.ops.div(x, y), BFloat16), y), BFloat16),
        ["coarse_div", "sub"],
    ),
}


@pytest.mark.parametrize("name", COARSENED)
def test_what_does_not_show_is_coarse(name: str) -> None:
    define, expected = COARSENED[name]
    fusion = use_approximate_ops(fusion_of(define))
    verify_fusion(fusion, "use_approximate_ops")
    assert ops(fusion) == expected


COMPARED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a comparison": lambda fd, x, y: fd.ops.gt(fd.ops.sqrt(x) * 2.0, y),
    "a rounding": lambda fd, x, y: fd.ops.round(x / y),
    "an integer": lambda fd, x, y: fd.ops.cast(fd.ops.cast(fd.ops.reciprocal(x) + y, Int), Float),
    "a remainder": lambda fd, x, y: fd.ops.remainder(fd.ops.div(x, 3.0), y),
    "a selection by a comparison": lambda fd, x, y: fd.ops.where(
        fd.ops.lt(fd.ops.sum(x / y, 1, keepdim=True), y), x, y
    ),
}


@pytest.mark.parametrize("name", COMPARED)
def test_what_is_compared_is_rounded_correctly(name: str) -> None:
    fusion = fusion_of(COMPARED[name])
    assert use_approximate_ops(fusion) is fusion


def test_quotients_and_roots_of_floats() -> None:
    found = use_approximate_ops(
        fusion_of(
            lambda fd, x, y: [
                fd.ops.div(x, y) - fd.ops.sqrt(y),
                x / fd.ops.sum(y, 1, keepdim=True),
                fd.ops.reciprocal(y),
            ]
        )
    )
    verify_fusion(found, "use_approximate_ops")
    assert ops(found) == ["near_div", "near_sqrt", "sub", "near_truediv", "near_reciprocal"]
    assert use_approximate_ops(found) is found
    wide = fusion_of(lambda fd, x, y: fd.ops.div(x, fd.ops.sqrt(y)), Double)
    assert use_approximate_ops(wide) is wide


def log_sum_exp(fd: Any, x: Any, *, dim: int = 1, also: bool = False) -> Any:
    """log(sum(exp(x - max(x)))) as a Float; the exponentials too, if asked."""
    e = fd.ops.exp(fd.ops.sub(x, fd.ops.max(x, 1, keepdim=True)))
    total = fd.ops.log(fd.ops.sum(e, dim))
    return [total, e] if also else total


def test_terms_beside_one() -> None:
    """Of Floats, the terms of a sum that is 1 or more need not be exact where they are small."""
    fusion = use_approximate_ops(fusion_of(lambda fd, x, y: log_sum_exp(fd, x)))
    verify_fusion(fusion, "use_approximate_ops")
    assert ops(fusion) == ["sub", "coarse_exp_of_negative", "log"]
    rng = np.random.default_rng(4)
    x = rng.normal(0, 20, (50, 300)).astype(np.float32)
    x[::5, ::3] = -np.inf
    x[7, 9] = np.nan
    (found,) = evaluate_fusion(fusion, [x, x])
    exact = np.log(np.exp(x.astype(float) - x.max(1, keepdims=True)).sum(1))
    np.testing.assert_allclose(found, exact, rtol=1e-6, atol=1e-7)
    for plain in (
        fusion_of(lambda fd, x, y: log_sum_exp(fd, x, also=True)),
        fusion_of(lambda fd, x, y: log_sum_exp(fd, x, dim=0)),
        fusion_of(lambda fd, x, y: fd.ops.sum(fd.ops.exp(fd.ops.sub(x, fd.ops.max(y, 1, keepdim=True))), 1)),
        fusion_of(lambda fd, x, y: fd.ops.sum(fd.ops.exp(x), 1)),
    ):
        assert "exp" in ops(use_approximate_ops(plain))


def test_results_of_16_bits_themselves() -> None:
    assert ops(use_approximate_ops(fusion_of(lambda fd, x, y: fd.ops.silu(x), BFloat16))) == ["coarse_silu"]
    assert (
        ops(use_approximate_ops(fusion_of(lambda fd, x, y: fd.ops.relu(fd.ops.silu(x)), BFloat16)))[0] == "coarse_silu"
    )
    between = fusion_of(lambda fd, x, y: fd.ops.cast(fd.ops.mul(fd.ops.silu(x), y), BFloat16), BFloat16)
    assert "silu" in ops(use_approximate_ops(between))
    wide = fusion_of(lambda fd, x, y: fd.ops.silu(x) * y, Float)
    assert ops(use_approximate_ops(wide)) == ["silu", "mul"]


def test_errors_of_factors_add_up() -> None:
    """Of a long product, Half gives no factor enough; a short one does."""

    def product(count: int) -> Fusion:
        def define(fd: Any, x: Any, y: Any) -> Any:
            result = fd.ops.exp(x)
            for _ in range(count):
                result = fd.ops.mul(result, y)
            return fd.ops.cast(result, Half)

        return use_approximate_ops(fusion_of(define))

    assert "coarse_exp" in ops(product(3))
    assert "coarse_exp" not in ops(product(4))


def test_it_prints_what_it_stands_for_and_is_another_fusion() -> None:
    plain = fusion_of(lambda fd, x, y: fd.ops.cast(y * (1.0 + fd.ops.tanh(x)), BFloat16))
    coarse = use_approximate_ops(plain)
    text = definition_text(coarse)
    assert "fd.ops.add(fd.ops.tanh(tv0), 1.00000)  # coarse_one_plus_tanh\n" in text
    exp = fusion_of(lambda fd, x, y: fd.ops.cast(fd.ops.exp(x), BFloat16))
    assert "= fd.ops.exp(tv0)  # coarse_exp\n" in definition_text(use_approximate_ops(exp))
    assert exp.structure != use_approximate_ops(exp).structure


def test_kernels_have_the_coarse_text() -> None:
    x = TensorDescriptor(BFloat16, (256, 4096), (4096, 1), 256, 0)
    compiler = KernelCompiler(DeviceInfo.preset("H200"))
    with FusionDefinition() as fd:
        fd.add_output(softmax(fd, fd.define_tensor([-1, -1], True, BFloat16), BFloat16))
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    source = compiler.compile(use_approximate_ops(fusion), [x]).source
    assert "fuser_coarse_exp(" in source
    assert "fuser_coarse_divide(" in source
    assert "fuser_coarse" not in compiler.compile(fusion, [x]).source


# --- errors -----------------------------------------------------------------------------------------------------------


def units(found: np.ndarray, exact: np.ndarray, digits: int, smallest: int) -> np.ndarray:
    """Errors in units of the last place of a format."""
    exponent = np.frexp(np.abs(exact))[1].astype(np.int64) - digits
    return np.abs(found.astype(np.float64) - exact) / np.exp2(np.maximum(exponent, smallest).astype(np.float64))


FORMATS = {BFloat16: (ml_dtypes.bfloat16, 8, -133), Half: (np.float16, 11, -24)}


def perturbed(op: Callable[..., np.ndarray], error: float, seed: int) -> Callable[..., np.ndarray]:
    """`op` with results off by as much as an approximate op may be, up or down."""
    rng = np.random.default_rng(seed)

    def off(*arrays: np.ndarray) -> np.ndarray:
        exact = op(*arrays)
        return (exact * (1 + error * rng.choice([-1.0, 1.0], exact.shape))).astype(exact.dtype)

    return off


@pytest.mark.parametrize("dtype", [BFloat16, Half])
@pytest.mark.parametrize("name", ["softmax", "tanh and one", "one more", "a divisor", "silu", "scaled"])
def test_the_largest_errors_stay_below_a_unit(name: str, dtype: DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Approximate ops that are as wrong as they may be: outputs stay within 3/4 unit of the last place."""
    from dataclasses import replace

    from fuser.ir.ops import approximate_ops

    def define(fd: Any, x: Any, y: Any) -> Any:
        if name == "softmax":
            return softmax(fd, x, dtype)
        return COARSENED[name][0](fd, x, y)

    rows = dict(approximate_ops.ROWS)
    for seed, (key, op) in enumerate(APPROXIMATE.items()):
        rows[key] = replace(op.row, numpy=perturbed(op.row.numpy, op.error, seed))
    fusion = fusion_of(define)
    coarse = use_approximate_ops(fusion)
    assert any(op.startswith("coarse_") for op in ops(coarse))
    storage, digits, smallest = FORMATS[coarse.output_tensors[0].dtype]
    rng = np.random.default_rng(3)
    x = rng.normal(0, 4, (200, 500)).astype(np.float32)
    y = rng.normal(0, 1, (200, 500)).astype(np.float32)
    monkeypatch.setattr("fuser.frontend.reference.ROWS", rows)
    (found,) = evaluate_fusion(coarse, [x, y])
    monkeypatch.undo()
    wide = {"softmax": lambda: _softmax64(x), "tanh and one": lambda: y * (2 / (1 + np.exp(-2 * x.astype(float))))}
    exact = {
        **wide,
        "one more": lambda: np.sqrt(1 + np.exp(x.astype(float))),
        "a divisor": lambda: y / (1 + np.exp(x.astype(float))),
        "silu": lambda: x / (1 + np.exp(-x.astype(float))) * y,
        "scaled": lambda: np.exp(x.astype(float)) * y,
    }[name]()
    assert np.asarray(found).dtype == storage
    finite = np.abs(exact) < 6e4
    assert finite.mean() > 0.9
    assert units(np.asarray(found)[finite], exact[finite], digits, smallest).max() <= 0.75


def _softmax64(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(float) - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)
