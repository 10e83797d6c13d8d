"""How many kernels the public cases launch, and how many serve a hundred shapes. Needs no GPU."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from benchmarks.case import Case
from benchmarks.cases import public_cases
from benchmarks.compile_case import compile_together
from benchmarks.norm_cases import layer_norm, rms_norm, softmax
from benchmarks.pointwise_cases import bias_gelu
from benchmarks.reduction_cases import sum_over
from tests.benchmarks.public_programs import as_parameters, program

# Everything else is one kernel. Batch norm reads its input twice; gradients of rows and columns part in one place.
MOST: dict[str, int] = {"batchnorm": 2, "layernorm_bwd": 2}

# Each entry has to fail; an entry that holds has to go.
NOT_YET: dict[str, str] = {}


@pytest.mark.parametrize("case", as_parameters(public_cases(), NOT_YET))
def test_launches(case: Case) -> None:
    assert len(program(case.name, False).launches()) <= MOST.get(case.family, 1)


ROWS = random.Random(0).sample(range(1, 100_004), 100)
FAMILIES: dict[str, Callable[[int], Case]] = {
    "bias_gelu": lambda rows: bias_gelu(rows, 4096),
    "softmax": lambda rows: softmax(rows, 4096),
    "layernorm": lambda rows: layer_norm(rows, 5120),
    "rmsnorm": lambda rows: rms_norm(rows, 1000),
    "sum_inner": lambda rows: sum_over(1, rows, 3072),
    "sum_outer": lambda rows: sum_over(0, rows, 3072),
}


TOO_MANY: dict[str, str] = {}
"""Each entry has to fail; an entry that holds has to go."""


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(f, marks=pytest.mark.xfail(raises=AssertionError, strict=True, reason=TOO_MANY[f]))
        if f in TOO_MANY
        else f
        for f in FAMILIES
    ],
)
def test_a_hundred_row_counts_are_served_by_few_kernels(family: str) -> None:
    """Rows that no power of two divides, small and large, of one length."""
    counters = compile_together([FAMILIES[family](rows) for rows in ROWS])
    assert counters.kernels_compiled <= 5
