"""A maximum and the sum of exponentials below it become one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fuser import DataType, FusionDefinition
from fuser.ir.fusion.fusion import ExpSum, Fusion, Pointwise, Reduction
from fuser.ir.fusion.print_fusion import definition_text
from fuser.optimize.fuse_exp_sums import fuse_exp_sums

Float, BFloat16 = DataType.Float, DataType.BFloat16


def rows(build: Callable[[Any, Any], list[Any]], dtype: DataType = Float, rank: int = 2) -> Fusion:
    with FusionDefinition() as fd:
        for out in build(fd, fd.define_tensor([-1] * rank, True, dtype)):
            fd.add_output(out)
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def parts(fd: Any, x: Any, dims: list[int], summed: list[int] | None = None, of: Any = None) -> tuple[Any, Any, Any]:
    """max(x), exp(x - max(x)) and its sum; `summed`: other dims for the sum; `of`: another tensor for the difference."""
    largest = fd.ops.max(x, dims, keepdim=True)
    powers = fd.ops.exp(fd.ops.sub(x if of is None else of, largest))
    return largest, powers, fd.ops.sum(powers, dims if summed is None else summed, keepdim=True)


def logarithm(fd: Any, x: Any) -> list[Any]:
    wide = x if x.dtype is Float else fd.ops.cast(x, Float)
    largest, _, total = parts(fd, wide, [1])
    return [fd.ops.add(fd.ops.log(total), largest)]


def softmax(fd: Any, x: Any) -> list[Any]:
    _, powers, total = parts(fd, x, [1])
    return [fd.ops.div(powers, total)]


@pytest.mark.parametrize("dtype", [Float, BFloat16])
def test_what_only_the_sum_uses_goes(dtype: DataType) -> None:
    fused = fuse_exp_sums(rows(logarithm, dtype))
    assert sum(isinstance(e, ExpSum) for e in fused.tensor_exprs) == 1
    assert not any(isinstance(e, Reduction) or (isinstance(e, Pointwise) and e.op == "exp") for e in fused.tensor_exprs)
    assert fuse_exp_sums(fused) is fused


def test_exponentials_that_others_use_stay() -> None:
    fused = fuse_exp_sums(rows(softmax))
    assert sum(isinstance(e, ExpSum) for e in fused.tensor_exprs) == 1
    assert [e.op for e in fused.tensor_exprs if isinstance(e, Pointwise)] == ["sub", "exp", "div"]


@pytest.mark.parametrize("build", [logarithm, softmax, lambda fd, x: list(parts(fd, x, [1]))])
@pytest.mark.parametrize("dtype", [Float, BFloat16])
def test_the_text_of_a_fused_definition_rebuilds_it(build: Callable[[Any, Any], list[Any]], dtype: DataType) -> None:
    """What the front end has no op for is printed as what it stands for, and joined again."""
    wide = build if dtype is Float else lambda fd, x: build(fd, fd.ops.cast(x, Float))
    fused = fuse_exp_sums(rows(wide, dtype))
    text = definition_text(fused)
    assert text.count("# exp_sum\n") == 2
    with FusionDefinition() as fd:
        namespace: dict[str, Any] = {"FusionDefinition": FusionDefinition, "DataType": DataType}
        exec(text, namespace)
        namespace["nvfuser_fusion"](fd)
    assert fd.fusion is not None
    assert fuse_exp_sums(fd.fusion.ir_fusion).structure == fused.structure


def test_several_dims() -> None:
    fusion = rows(lambda fd, x: [parts(fd, x, [0, 2])[2]], rank=3)
    (pair,) = (e for e in fuse_exp_sums(fusion).tensor_exprs if isinstance(e, ExpSum))
    assert [d.is_reduction for d in pair.total.logical] == [True, False, True]
    assert [d.is_reduction for d in pair.largest.logical] == [True, False, True]


@pytest.mark.parametrize(
    "build",
    [
        lambda fd, x: [parts(fd, x, [1], summed=[0])[2]],
        lambda fd, x: [parts(fd, x, [1], of=fd.ops.neg(x))[2]],
        lambda fd, x: [fd.ops.sum(fd.ops.exp(fd.ops.sub(fd.ops.max(x, [1], keepdim=True), x)), [1])],
        lambda fd, x: [fd.ops.sum(fd.ops.exp(fd.ops.sub(x, fd.ops.min(x, [1], keepdim=True))), [1])],
        lambda fd, x: [fd.ops.prod(fd.ops.exp(fd.ops.sub(x, fd.ops.max(x, [1], keepdim=True))), [1])],
        lambda fd, x: [fd.ops.sum(fd.ops.exp2(fd.ops.sub(x, fd.ops.max(x, [1], keepdim=True))), [1])],
    ],
)  # fmt: skip
def test_what_only_looks_alike_stays(build: Callable[[Any, Any], list[Any]]) -> None:
    fusion = rows(build)
    assert fuse_exp_sums(fusion) is fusion


def test_what_rounds_to_16_bits_stays() -> None:
    fusion = rows(lambda fd, x: [parts(fd, x, [1])[2]], BFloat16)
    assert fuse_exp_sums(fusion) is fusion
