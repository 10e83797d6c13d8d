"""Softmax, norms and gradients of random rows: what is proposed can be lowered, and threads have the registers they need."""

from __future__ import annotations

import random

import pytest

from benchmarks.case import Case
from benchmarks.compile_case import compile_case
from benchmarks.norm_cases import add_rms_norm, layer_norm, rms_norm, softmax, softmax_backward
from fuser import DataType
from fuser.runtime.kernels.nvrtc import is_available

MAKERS = (softmax, softmax_backward, layer_norm, rms_norm, add_rms_norm)
DTYPES = (DataType.BFloat16, DataType.Half, DataType.Float, DataType.Double)
COUNT = 60


def drawn(seed: int) -> Case:
    """Of sizes that are spread evenly over magnitudes; every third length is a multiple of 8."""
    rng = random.Random(seed)
    rows, length = (int(2 ** rng.uniform(0, most)) for most in (16, 20.5))
    length = max(1, length // 8 * 8 if seed % 3 == 0 else length)
    return MAKERS[seed % len(MAKERS)](max(1, min(rows, (1 << 31) // length)), length, rng.choice(DTYPES))


CASES = [drawn(seed) for seed in range(COUNT)]


@pytest.mark.in_turns
@pytest.mark.skipif(not is_available(), reason="needs NVRTC")
@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_nothing_spills(case: Case) -> None:
    for launch in compile_case(case).launches():
        resources = launch.kernel.resources
        assert resources is not None
        assert resources.spill_bytes == resources.stack_bytes == 0
