"""Divisions that round to 16 bits by themselves."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion import Fusion, Pointwise
from fuser.optimize.fold_rounding import fold_rounding

Float, BFloat16, Half = DataType.Float, DataType.BFloat16, DataType.Half


def quotient(to: DataType, *, also: bool = False) -> Fusion:
    """(x / y) as another dtype; `also`: the Float is an output, too."""
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1, -1], True, Float) for _ in range(2))
        q = fd.ops.div(x, y)
        fd.add_output(fd.ops.cast(q, to))
        if also:
            fd.add_output(q)
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


@pytest.mark.parametrize("to", [BFloat16, Half])
def test_a_quotient_takes_the_place_of_its_cast(to: DataType) -> None:
    folded = fold_rounding(quotient(to))
    (expr,) = folded.tensor_exprs
    assert isinstance(expr, Pointwise)
    assert (expr.op, expr.output.dtype) == ("div", to)


def test_what_others_see_stays() -> None:
    for fusion in (quotient(BFloat16, also=True), quotient(DataType.Double)):
        assert fold_rounding(fusion) is fusion


def test_a_result_of_16_bits_takes_the_short_text() -> None:
    x = TensorDescriptor(Float, (256, 256), (256, 1))
    compiler = KernelCompiler(DeviceInfo.preset("H200"))
    short = compiler.compile(fold_rounding(quotient(BFloat16)), [x, x])
    full = compiler.compile(quotient(BFloat16), [x, x])
    assert "fuser_rounded_divide(" in short.source
    assert "fuser_rounded_divide(" not in full.source


def rounded_divide(a: np.ndarray, b: np.ndarray, off: int) -> np.ndarray:
    """The text's steps in float32, with the reciprocal off by `off` ulp."""
    exponent = b.view(np.int32) & 0x7F800000
    sign = (b.view(np.uint32) & np.uint32(0x80000000)).astype(np.uint32)
    shift = np.where(exponent < 253 << 23, (253 << 23) - np.minimum(exponent, 126 << 23), 125 << 23).astype(np.uint32)
    scale = (shift | sign).view(np.float32)
    with np.errstate(all="ignore"):
        inverse = (1 / (b * scale).astype(np.float64)).astype(np.float32)
        inverse = np.where(
            np.isfinite(inverse) & (inverse > 0), (inverse.view(np.int32) + off).view(np.float32), inverse
        )
        return (a * scale).astype(np.float32) * inverse


@pytest.mark.parametrize("off", [-1, 0, 1])
def test_steps_are_within_four_ulp(off: int) -> None:
    rng = np.random.default_rng(off + 5)
    bits = rng.integers(0, 2**32, size=(2, 200_000), dtype=np.uint32)
    a, b = bits.view(np.float32)
    found = rounded_divide(a, b, off)
    with np.errstate(all="ignore"):
        exact = a.astype(np.float64) / b.astype(np.float64)
        nearest = exact.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(nearest))
    # Of results below the normal numbers nothing that shows after rounding to 16 bits is asked; at the top, one step off.
    normal = np.isfinite(nearest) & np.isfinite(found) & (np.abs(exact) > 2.0**-120)
    error = np.abs(found[normal].astype(np.float64) - exact[normal]) / np.spacing(np.abs(nearest[normal])).astype(
        np.float64
    )
    assert error.max() <= 4, "what PointwiseOp.rounded allows"
    overflown = np.isinf(found) != np.isinf(nearest)
    assert np.all(np.abs(exact[overflown]) > 3.4e38)


def test_special_divisors() -> None:
    a = np.array([1, 0, -2, np.inf, 1, np.nan, 0, 3], np.float32)
    b = np.array([0, 0, np.inf, np.inf, -0.0, 1, 5, -np.inf], np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(rounded_divide(a, b, 0), a / b)
