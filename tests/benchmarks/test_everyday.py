"""The everyday cases at small sizes: they compile as they are, compute what they define, and say what torch says in float64."""

from __future__ import annotations

import itertools
import logging
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.case import Case, as_tuple, define_fusion
from benchmarks.everyday import everyday_cases
from benchmarks.inputs import numpy_inputs, torch_inputs
from fuser.frontend.validate import validate_outputs
from fuser.ir.device_info import DeviceInfo
from fuser.ir.ops.dtypes import DataType
from fuser.simulator.device import SimulatorDevice
from tests.devices.device_layouts import place

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


SAMPLED = 8
"""One in so many of the small cases, and another one, is run on each of the other devices."""

OTHERS = [
    pytest.param(case, name, sm_count, id=f"{case.name}-{name}-{sm_count or 'all'}")
    for k, (name, sm_count) in enumerate(itertools.product(("sm_80", "sm_120"), (0, 1)))
    for case in everyday_cases(small=True)[k::SAMPLED]
]


@pytest.mark.in_turns
@pytest.mark.parametrize(("case", "name", "sm_count"), OTHERS)
def test_is_right_as_planned_for_other_gpus(
    case: Case, name: str, sm_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without clusters, with a fraction of the memory's rate or of arithmetic in double precision; of one SM, which a small
    case keeps as busy as a large one keeps all."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    preset = DeviceInfo.preset(name)
    device = SimulatorDevice(info=replace(preset, sm_count=sm_count or preset.sm_count))
    fd = define_fusion(case)
    inputs = numpy_inputs(case.inputs, seed=1)
    kept = [x.copy() for x in inputs]
    placed = [place(device, x, [s // x.itemsize for s in x.strides]) for x in inputs]
    outputs: Any = fd.execute(placed)
    assert fd.fusion is not None
    validate_outputs(fd.fusion.ir_fusion, [o.numpy() for o in outputs], kept, None)


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
