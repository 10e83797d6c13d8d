"""The everyday cases at small sizes: they compile as they are, compute what they define, and say what torch says in float64."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from benchmarks.case import Case, as_tuple, define_fusion
from benchmarks.everyday import everyday_cases
from benchmarks.inputs import numpy_inputs, torch_inputs
from fuser.ir.dtypes import DataType

SMALL = [pytest.param(case, id=case.name) for case in everyday_cases(small=True)]


@pytest.fixture(autouse=True)
def simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")


@pytest.mark.parametrize("case", SMALL)
def test_compiles_as_it_is_and_computes_what_it_defines(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    fd = define_fusion(case)
    inputs = numpy_inputs(case.inputs, seed=1)
    with caplog.at_level(logging.WARNING, "fuser"):
        outputs = fd.validate(inputs)
    # A segment that cannot be compiled as it was cut is cut further, with a warning: a bug.
    assert caplog.messages == []
    assert sum(output.nbytes for output in outputs) == case.output_bytes


@pytest.mark.torch
@pytest.mark.parametrize("case", SMALL)
def test_computes_what_torch_does_in_float64(case: Case) -> None:
    import torch

    from benchmarks.verify import verify

    inputs = torch_inputs(case.inputs, 1, "cpu")
    fd = define_fusion(case)

    def run() -> Any:
        return fd.execute(inputs)

    ours, theirs = as_tuple(run()), as_tuple(case.eager(torch)(*inputs))
    assert [(tuple(o.shape), o.dtype) for o in ours] == [(tuple(t.shape), t.dtype) for t in theirs]
    verdict = verify(case, run, inputs)
    assert verdict.is_right, verdict.text


@pytest.mark.torch
@pytest.mark.parametrize("case", SMALL)
def test_an_output_of_zeros_is_rejected(case: Case) -> None:
    import torch

    from benchmarks.verify import verify

    inputs = torch_inputs(case.inputs, 1, "cpu")
    outputs = as_tuple(case.eager(torch)(*inputs))
    for wrong in range(len(outputs)):
        given = [torch.zeros_like(o) if k == wrong else o.clone() for k, o in enumerate(outputs)]
        assert not verify(case, lambda given=given: [g.clone() for g in given], inputs).is_right


@pytest.mark.torch
def test_what_is_rounded_in_between_may_go_either_way() -> None:
    import torch

    from benchmarks.everyday.in_float64 import in_float64

    def eager(torch: Any, x: Any) -> Any:
        return (x.float() / 2).round().half()

    (either,) = in_float64(torch, eager, [torch.tensor([3.0, 3.2])])
    assert (either.lower.tolist(), either.upper.tolist()) == ([1.0, 2.0], [2.0, 2.0])
    assert either.lower.dtype is torch.float64
    (plain,) = in_float64(torch, lambda torch, x: x.to(torch.bfloat16).sum(dtype=torch.float32), [torch.ones(3)])
    assert plain.dtype is torch.float64


def test_names_differ_and_sizes_are_those_of_real_models() -> None:
    cases = everyday_cases()
    assert len({c.name for c in cases}) == len(cases)
    assert {i.dtype for c in cases for i in c.inputs} >= {DataType.BFloat16, DataType.Half, DataType.Float}
    assert all(c.nbytes < 9e9 for c in cases)
    small = everyday_cases(small=True)
    assert all(sum(i.nbytes for i in c.inputs) < 1e6 for c in small)
