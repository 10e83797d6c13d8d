"""The 37 public cases, in the order of the recorded peer figures, and the same at tiny sizes for the simulator."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.case import Case
from benchmarks.inputs import F32
from benchmarks.norm_cases import (
    add_rms_norm,
    batch_norm,
    group_norm,
    layer_norm,
    layer_norm_backward,
    rms_norm,
    softmax,
    softmax_backward,
)
from benchmarks.pointwise_cases import add_relu, bias_gelu, dropout_residual, mul_add_silu, rope, swiglu
from benchmarks.reduction_cases import (
    cross_entropy,
    cumsum_inner,
    embedding_scale,
    sum_over,
    transpose_0213,
    transpose_add,
    var_mean_outer,
)

TINY_CASE = "bias_gelu_bf16_512x1024"
"""The case that is over before memory matters: held against an empty kernel, not a copy."""


def public_cases() -> list[Case]:
    """All of them; nothing is allocated."""
    norms: list[Case] = []
    for rows, columns in ((32768, 1024), (16384, 4096), (8192, 12288), (4096, 32768)):
        norms += [layer_norm(rows, columns), rms_norm(rows, columns)]
    softmax_sizes = ((32768, 1024), (16384, 4096), (8192, 8192), (4096, 16384), (2048, 65536), (64, 1048576))
    return [
        bias_gelu(16384, 8192),
        mul_add_silu(16384, 8192, name="mul_add_silu_3in_bf16"),
        add_relu(8192, 8192, F32),
        bias_gelu(512, 1024, name=TINY_CASE),
        *(softmax(rows, columns) for rows, columns in softmax_sizes),
        *norms,
        add_rms_norm(16384, 4096),
        layer_norm_backward(16384, 4096),
        layer_norm_backward(32768, 1024),
        softmax_backward(16384, 4096),
        sum_over(1, 8192, 8192),
        sum_over(0, 8192, 8192),
        sum_over(None, 8192, 8192),
        sum_over(1, 16, 16777216),
        var_mean_outer(65536, 1024),
        transpose_add(8192, 8192),
        transpose_0213((16, 4096, 32, 128), name="transpose_0213_bf16"),
        rope(8, 32, 4096, 128),
        swiglu(16384, 11008),
        cross_entropy(8192, 32000),
        batch_norm(64, 256, 64, 64),
        group_norm(64, 256, 64, 64, 32),
        embedding_scale(50257, 4096, 16384, name="embedding_scale_bf16"),
        cumsum_inner(16384, 4096),
        dropout_residual(16384, 8192, name="dropout_residual_bf16"),
    ]


def tiny_cases() -> list[Case]:
    """One case per public family, small enough to simulate; sizes that no vector and no block divides."""
    return [
        bias_gelu(5, 33),
        mul_add_silu(5, 33),
        add_relu(5, 33, F32),
        softmax(3, 77),
        layer_norm(3, 77),
        rms_norm(3, 77),
        add_rms_norm(3, 77),
        layer_norm_backward(7, 40),
        softmax_backward(3, 77),
        sum_over(1, 6, 50),
        sum_over(0, 50, 6),
        sum_over(None, 20, 15),
        var_mean_outer(60, 5),
        transpose_add(9, 21),
        transpose_0213((2, 5, 3, 8)),
        rope(2, 3, 5, 16),
        swiglu(4, 24),
        cross_entropy(5, 37),
        batch_norm(3, 6, 4, 5),
        group_norm(2, 8, 3, 4, 2),
        embedding_scale(11, 18, 7),
        cumsum_inner(3, 45),
        dropout_residual(40, 100),
    ]


def select_cases(patterns: Sequence[str]) -> list[Case]:
    """`cases_named` of the public cases."""
    return cases_named(public_cases(), patterns)


def cases_named(cases: Sequence[Case], patterns: Sequence[str]) -> list[Case]:
    """Cases whose name contains one of `patterns`; all of them for no pattern.

    Raises ValueError, with the names there are, for a pattern that is in none.
    """
    for pattern in patterns:
        if not any(pattern in case.name for case in cases):
            raise ValueError(f"no case has {pattern!r} in its name; there are: {', '.join(c.name for c in cases)}")
    return [c for c in cases if not patterns or any(p in c.name for p in patterns)]
