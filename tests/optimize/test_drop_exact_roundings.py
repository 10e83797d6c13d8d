"""Casts to 16 bits and back that change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion.fusion import Cat, Fusion, Pointwise
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.optimize.drop_exact_roundings import drop_exact_roundings
from fuser.optimize.pipeline import optimize_fusion

Float, BFloat16, Half = DataType.Float, DataType.BFloat16, DataType.Half


def fusion_of(define: Callable[[Any, Any, Any], Any]) -> Fusion:
    """The fusion of the outputs of `define(fd, x, y)`, of two BFloat16 matrices."""
    with FusionDefinition() as fd:
        made = define(fd, *(fd.define_tensor([-1, -1], True, BFloat16) for _ in range(2)))
        for output in made if isinstance(made, list) else [made]:
            fd.add_output(output)
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def casts_to_16_bits(fusion: Fusion) -> int:
    return sum(
        isinstance(e, Pointwise) and e.op == "cast" and e.output.dtype in (BFloat16, Half) for e in fusion.tensor_exprs
    )


def rounded(fd: Any, value: Any) -> Any:
    """As BFloat16, and as Float again."""
    return fd.ops.cast(fd.ops.cast(value, BFloat16), Float)


EXACT: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a sign": lambda fd, x, y: fd.ops.exp(rounded(fd, -x)),
    "magnitudes": lambda fd, x, y: fd.ops.exp(rounded(fd, fd.ops.abs(fd.ops.cast(x, Float)))),
    "the larger": lambda fd, x, y: fd.ops.exp(
        rounded(fd, fd.ops.maximum(fd.ops.cast(x, Float), fd.ops.cast(y, Float)))
    ),
    "a choice": lambda fd, x, y: fd.ops.exp(rounded(fd, fd.ops.where(fd.ops.gt(x, 0.5), fd.ops.cast(x, Float), 0.0))),
    "signs of signs": lambda fd, x, y: fd.ops.exp(rounded(fd, fd.ops.neg(-x))),
}
SHOWING: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a sum": lambda fd, x, y: fd.ops.exp(rounded(fd, x + y)),
    "another number": lambda fd, x, y: fd.ops.exp(rounded(fd, fd.ops.maximum(fd.ops.cast(x, Float), 0.1))),
    "another type": lambda fd, x, y: fd.ops.exp(fd.ops.cast(fd.ops.cast(-x, Half), Float)),
    "an output": lambda fd, x, y: [(n := fd.ops.cast(-x, BFloat16)), fd.ops.exp(fd.ops.cast(n, Float))],
}


def arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(2)
    return [rng.normal(0, 2, (40, 24)).astype(ml_dtypes.bfloat16) for _ in range(2)]


@pytest.mark.parametrize("name", EXACT)
def test_exact_roundings_go(name: str) -> None:
    fusion = fusion_of(EXACT[name])
    lean = drop_exact_roundings(fusion)
    verify_fusion(lean, "drop_exact_roundings")
    assert casts_to_16_bits(fusion) == 1
    assert casts_to_16_bits(lean) == 0
    assert drop_exact_roundings(lean) is lean
    for got, want in zip(evaluate_fusion(lean, arrays()), evaluate_fusion(fusion, arrays()), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", SHOWING)
def test_roundings_that_show_stay(name: str) -> None:
    fusion = fusion_of(SHOWING[name])
    assert drop_exact_roundings(fusion) is fusion


def test_concatenations_are_read_wide() -> None:
    """Rotary embedding: the half whose sign changes is not rounded."""

    def rotated(fd: Any, x: Any, y: Any) -> Any:
        first, second = fd.ops.slice(x, [0, 0], [40, 12]), fd.ops.slice(x, [0, 12], [40, 24])
        turned = fd.ops.cat([fd.ops.cast(-second, BFloat16), first], -1)
        return fd.ops.cast(fd.ops.cast(x, Float) + fd.ops.cast(turned, Float) * fd.ops.cast(y, Float), BFloat16)

    fusion = fusion_of(rotated)
    lean = optimize_fusion(fusion, lambda name, text: None)
    verify_fusion(lean, "drop_exact_roundings")
    (whole,) = (e for e in lean.tensor_exprs if isinstance(e, Cat))
    assert whole.output.dtype is Float
    assert casts_to_16_bits(lean) == 1
    x, y = arrays()
    wide = x.astype(np.float32)
    turned = np.concatenate([-wide[:, 12:], wide[:, :12]], 1)
    want = (wide + turned * y.astype(np.float32)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(evaluate_fusion(lean, [x, y])[0], want)
