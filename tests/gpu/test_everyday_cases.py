"""The everyday cases at small sizes on the GPU, through the benchmark's own verification."""

from __future__ import annotations

import pytest

from benchmarks.case import Case
from benchmarks.everyday import everyday_cases

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in everyday_cases(small=True)])
def test_result_is_right_by_the_benchmark_s_own_check(case: Case) -> None:
    from benchmarks.case import define_fusion
    from benchmarks.inputs import torch_inputs
    from benchmarks.verify import verify

    inputs = torch_inputs(case.inputs, 0)
    fd = define_fusion(case)
    verdict = verify(case, lambda: fd.execute(inputs), inputs)
    assert verdict.is_right, verdict.text
