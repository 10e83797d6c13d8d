"""The benchmark's cases at tiny sizes on the GPU, through the benchmark's own verification and timing."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from benchmarks.case import Case
from benchmarks.cases import tiny_cases
from benchmarks.pointwise_cases import dropout_residual
from fuser.frontend import ops
from tests.benchmarks.public_programs import as_parameters

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

CASES = [c for c in tiny_cases() if c.family != "dropout"]


@pytest.mark.parametrize("case", as_parameters(CASES))
def test_result_is_right_by_the_benchmark_s_own_check(case: Case) -> None:
    from benchmarks.case import define_fusion
    from benchmarks.inputs import torch_inputs
    from benchmarks.verify import verify

    inputs = torch_inputs(case.inputs, 0)
    fd = define_fusion(case)
    verdict = verify(case, lambda: fd.execute(inputs), inputs)
    assert verdict.is_right, verdict.text
    assert verdict.is_poisoned


def test_zeros_and_unwritten_outputs_are_wrong() -> None:
    from benchmarks.inputs import torch_inputs
    from benchmarks.verify import verify

    case = CASES[0]
    inputs = torch_inputs(case.inputs, 0)
    assert not verify(case, lambda: [torch.zeros_like(inputs[0])], inputs).is_right
    assert not verify(case, lambda: [torch.empty_like(inputs[0])], inputs).is_right


@pytest.mark.skipif("uniform" in ops.UNSUPPORTED, reason="uniform() is not there yet")
def test_dropout_drops_as_it_should() -> None:
    from benchmarks.case import define_fusion
    from benchmarks.inputs import torch_inputs
    from benchmarks.verify import verify

    case = dropout_residual(1000, 1003)
    inputs = torch_inputs(case.inputs, 0)
    fd = define_fusion(case)
    verdict = verify(case, lambda: fd.execute(inputs), inputs)
    assert verdict.is_right, verdict.text


def test_a_case_is_measured() -> None:
    from benchmarks.copy_kernels import Copies, CopyTimes
    from benchmarks.measure import Request, measure
    from benchmarks.timing import Stopwatch

    stopwatch = Stopwatch()
    copies = Copies(stopwatch)
    row = measure(CASES[0], Request(seed=0, rep_ms=1.0, peers=("eager",)), stopwatch, CopyTimes(copies).at)
    assert row.status == "ok", row.text
    assert set(asdict(row)) >= {"copy", "ours", "host"}
    assert row.copy is not None
    assert row.ours is not None
    assert 0.5 < row.copy < 1000
    assert 0.5 < row.ours < 1000
    assert 0.5 < copies.empty_kernel().median < 100
