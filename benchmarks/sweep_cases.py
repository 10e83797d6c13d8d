"""The shapes of the sweep: a fixed list per seed, over families, row lengths, row counts, dtypes and layouts."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from benchmarks.case import Case, with_layout
from benchmarks.inputs import BF16, F16, F32, F64
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
from benchmarks.pointwise_cases import bias_gelu, dropout_residual, rope, swiglu
from benchmarks.reduction_cases import (
    cross_entropy,
    cumsum_inner,
    embedding_scale,
    sum_over,
    transpose_add,
    var_mean_outer,
)
from fuser.ir.ops.dtypes import DataType

LENGTHS = (1000, 3072, 5120, 7168, 50257, 128256, 250003, 64, 257, 1024, 16384)
MOST_ROWS = 100_003
MOST_BYTES = 2**30
HALF_SUM_LIMIT = 16384
"""Rows whose sums of values around 1 a Half still holds."""

RowFamily = Callable[[int, int, DataType], Case]

# Families over (rows, columns, dtype), with the dtypes they run in.
_ALL = (BF16, F16, F32, F64)
_NO_HALF = (BF16, F32, F64)
ROW_FAMILIES: dict[str, tuple[RowFamily, tuple[DataType, ...]]] = {
    "bias_gelu": (bias_gelu, _ALL),
    "softmax": (softmax, _ALL),
    "layernorm": (layer_norm, _ALL),
    "rmsnorm": (rms_norm, _ALL),
    "layernorm_mixed": (lambda r, c, d: _named(layer_norm(r, c, d, weight=F32), "_f32_weight"), (BF16, F16)),
    "rmsnorm_mixed": (lambda r, c, d: _named(rms_norm(r, c, d, weight=F32), "_f32_weight"), (BF16, F16)),
    "add_rmsnorm": (add_rms_norm, _ALL),
    "softmax_bwd": (softmax_backward, _ALL),
    "layernorm_bwd": (layer_norm_backward, _NO_HALF),
    "sum_inner": (lambda r, c, d: sum_over(1, r, c, d), _NO_HALF),
    "sum_outer": (lambda r, c, d: sum_over(0, r, c, d), _NO_HALF),
    "sum_all": (lambda r, c, d: sum_over(None, r, c, d), _NO_HALF),
    "var_mean_outer": (lambda r, c, d: var_mean_outer(max(r, 2), c, d), _NO_HALF),
    "transpose_add": (transpose_add, _ALL),
    "cross_entropy": (cross_entropy, _NO_HALF),
    "cumsum": (cumsum_inner, _NO_HALF),
    "swiglu": (swiglu, _ALL),
    "dropout": (dropout_residual, _ALL),
}
PER_FAMILY = 11
"""One for each length."""

ROPE = ((1, 1, 1, 64), (8, 32, 1000, 64), (2, 16, 4099, 128), (1, 71, 2048, 96), (4, 8, 16384, 128), (3, 5, 7, 256))
EMBEDDING = ((1000, 64, 100_003), (50257, 5120, 4099), (128256, 1000, 16384), (250_003, 257, 77), (7, 7168, 30_011))
IMAGES = ((32, 64, 56, 56), (8, 256, 28, 28), (16, 100, 17, 19), (2, 3, 224, 224), (64, 2048, 7, 7), (1, 512, 31, 33))
GROUPS = ((32, 64, 56, 56, 8), (8, 256, 28, 28, 32), (16, 100, 17, 19, 25), (2, 3, 224, 224, 1), (1, 512, 31, 33, 32))


def _named(case: Case, suffix: str) -> Case:
    return with_layout(case, suffix=suffix)


def _draw_rows(draw: random.Random, position: int, most: int) -> int:
    """A row count up to `most`: the ends first, then evenly spread magnitudes, rarely round."""
    if position == 0:
        return most
    if position == 1:
        return 1
    return max(1, round(most ** draw.random()))


def _with_some_layout(draw: random.Random, case: Case, position: int) -> Case:
    """Every third case is not dense: padded rows, a base off by an element, or a slice of columns."""
    match position % 9:
        case 2:
            return with_layout(case, pad=draw.choice((8, 64, 256)), suffix="_padded")
        case 5:
            return with_layout(case, offset=1, suffix="_off_by_one")
        case 8:
            return with_layout(case, pad=draw.choice((1, 7, 1000)), offset=draw.choice((1, 3, 8)), suffix="_columns")
        case _:
            return case


def _row_cases(draw: random.Random) -> Iterator[Case]:
    for family, (make, dtypes) in ROW_FAMILIES.items():
        lengths = list(LENGTHS)
        draw.shuffle(lengths)
        for position in range(PER_FAMILY):
            columns, dtype = lengths[position % len(lengths)], draw.choice(dtypes)
            # A row's bytes, all tensors together, bound the rows.
            most = min(MOST_ROWS, max(1, MOST_BYTES // make(2, columns, dtype).nbytes * 2))
            if dtype is F16 and family == "layernorm_bwd":
                most = min(most, HALF_SUM_LIMIT)
            rows = _draw_rows(draw, position, most)
            if family == "transpose_add" and rows < 2:
                rows = 2
            yield _with_some_layout(draw, make(rows, columns, dtype), position)


def sweep_cases(seed: int = 0) -> list[Case]:
    """All cases, the same for the same seed; names are unique. Nothing is allocated."""
    draw = random.Random(seed)
    cases = list(_row_cases(draw))
    for position, shape in enumerate(ROPE):
        cases.append(_with_some_layout(draw, rope(*shape, draw.choice(_ALL)), position))
    cases += [embedding_scale(*sizes, draw.choice(_ALL)) for sizes in EMBEDDING]
    for shape in IMAGES:
        cases.append(batch_norm(*shape, draw.choice((BF16, F16, F32))))
        cases.append(batch_norm(*shape, draw.choice((BF16, F32)), last=False))
    cases += [group_norm(*shape, draw.choice((BF16, F16, F32))) for shape in GROUPS]
    unique = {case.name: case for case in cases}
    return list(unique.values())
