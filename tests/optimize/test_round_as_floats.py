"""Roundings to BFloat16 whose results are only widened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion.fusion import Fusion, Pointwise
from fuser.ir.fusion.print_fusion import definition_text
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.optimize.round_as_floats import round_as_floats

Float, BFloat16, Half = DataType.Float, DataType.BFloat16, DataType.Half


def definition(define: Callable[[Any, Any], Any]) -> FusionDefinition:
    """The outputs of `define(fd, x)`, of a Float matrix."""
    with FusionDefinition() as fd:
        made = define(fd, fd.define_tensor([-1, -1], True, Float))
        for output in made if isinstance(made, list) else [made]:
            fd.add_output(output)
    return fd


def fusion_of(define: Callable[[Any, Any], Any]) -> Fusion:
    handle = definition(define).fusion
    assert handle is not None
    return handle.ir_fusion


def rounded(fd: Any, value: Any, dtype: DataType = BFloat16) -> Any:
    return fd.ops.cast(fd.ops.cast(value, dtype), Float)


def twice(fd: Any, x: Any) -> Any:
    return fd.ops.mul(rounded(fd, fd.ops.exp(x)), 3.0)


def specials() -> np.ndarray:
    """Ties, subnormals, the ends of the range, zeros, infinities and nan."""
    bits = np.arange(0, 1 << 32, 40961, dtype=np.uint32)
    ties = (np.arange(1, 1 << 16, 97, dtype=np.uint32) << 16) | 0x8000
    x = np.concatenate([bits, ties, ties + 1, ties - 1]).view(np.float32)
    return x[: x.size // 8 * 8].reshape(-1, 8)


def test_one_step() -> None:
    fusion = fusion_of(twice)
    lean = round_as_floats(fusion)
    verify_fusion(lean, "round_as_floats")
    assert [e.op for e in lean.tensor_exprs if isinstance(e, Pointwise)] == ["exp", "round_to_bfloat16", "mul"]
    assert "fd.ops.cast(fd.ops.cast(tv1, dtype=DataType.BFloat16), dtype=DataType.Float)  # round_to_" in (
        definition_text(lean)
    )
    assert round_as_floats(lean) is lean
    x = np.linspace(-3, 3, 80, dtype=np.float32).reshape(8, 10)
    np.testing.assert_array_equal(evaluate_fusion(lean, [x])[0], evaluate_fusion(fusion, [x])[0])


LEFT: dict[str, Callable[[Any, Any], Any]] = {
    "another type": lambda fd, x: fd.ops.exp(rounded(fd, x, Half)),
    "an output": lambda fd, x: [(n := fd.ops.cast(x, BFloat16)), fd.ops.exp(fd.ops.cast(n, Float))],
    "another use": lambda fd, x: [
        fd.ops.exp(fd.ops.cast((n := fd.ops.cast(x, BFloat16)), Float)),
        fd.ops.relu(n),
    ],
    "what is reduced": lambda fd, x: (r := rounded(fd, fd.ops.exp(x))) / fd.ops.sum(r, 1, keepdim=True),
    "an input": lambda fd, x: fd.ops.cast(fd.ops.cast(x, Half), Float),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_keeps_16_bits_is_left(name: str) -> None:
    fusion = fusion_of(LEFT[name])
    assert round_as_floats(fusion) is fusion


def test_it_rounds_as_a_cast_does() -> None:
    fd = definition(lambda fd, x: fd.ops.neg(rounded(fd, x)))
    x = specials()
    (found,) = fd.execute([x], device="simulator")
    with np.errstate(all="ignore"):
        want = -x.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(found), want)


def test_the_rounding_of_an_expansion_is_one() -> None:
    """It has one stored element where its operand has, as casts do."""
    fusion = fusion_of(lambda fd, x: rounded(fd, fd.ops.expand(fd.ops.broadcast(x, [True, False, False]), [3, -1, -1])))
    found = round_as_floats(fusion)
    assert found is not fusion
    verify_fusion(found)
