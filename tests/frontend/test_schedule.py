"""Scheduling functions called with what they do not take, and the schedulers by name."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import FusionDefinition, LoadStoreOpType, MemoryType, ParallelType, SchedulerType
from fuser.errors import DefinitionTypeError, NotSupportedError, SchedulingError

X = np.ones((4, 6), np.float32)


@pytest.fixture(autouse=True)
def simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")


def row_sums() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        fd.add_output(fd.ops.sum(x, 1))
    return fd


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda fd: fd.sched.transform_like(3), "reference_tv must be a TensorView, got int"),
        (lambda fd: fd.sched.parallelize_like(None), "reference_tv must be a TensorView, got NoneType"),
        (lambda fd: fd.sched.inline_at("x"), "reference_tv must be a TensorView, got str"),
        (lambda fd: fd.sched.inline_most(3), "selected_tensors must be a Sequence, got int"),
        (lambda fd: fd.sched.can_schedule(3, SchedulerType.pointwise, [X]), "fusion must be a Fusion, got int"),
        (lambda fd: fd.sched.find_compatible_schedulers(None, [X]), "fusion must be a Fusion, got NoneType"),
        (
            lambda fd: fd.sched.compute_heuristics(fd.fusion, "x", [X]),
            "scheduler_type must be a SchedulerType, got str",
        ),
        (lambda fd: fd.sched.schedule(fd.fusion, 1, [X]), "scheduler_type must be a SchedulerType, got int"),
    ],
)
def test_arguments_of_other_kinds(call, text: str) -> None:
    with pytest.raises(DefinitionTypeError, match=f"incompatible function arguments. {text}"):
        call(row_sums())


@pytest.mark.parametrize(
    ("verb", "text"),
    [
        (lambda copy: copy.axis(0).parallelize(ParallelType.tma), "ParallelType.tma is not supported yet"),
        (lambda copy: copy.cache_after(LoadStoreOpType.cp_async), "LoadStoreOpType.cp_async is not supported yet"),
        (lambda copy: copy.set_memory_type(MemoryType.tensor), "MemoryType.tensor is not supported yet"),
    ],
)
def test_later_verbs(verb, text: str) -> None:
    fd = row_sums()
    copy = fd.fusion.inputs()[0].cache_after()
    with pytest.raises(NotSupportedError, match=text):
        verb(copy)


def test_schedulers_by_name() -> None:
    fd = row_sums()
    assert fd.sched.find_compatible_schedulers(fd.fusion, [X]) == [SchedulerType.reduction]
    assert fd.sched.can_schedule(fd.fusion, SchedulerType.reduction, [X]) == (True, "")
    refused, reason = fd.sched.can_schedule(fd.fusion, SchedulerType.pointwise, [X])
    assert not refused
    assert reason == "Scheduler _pointwise_ ***rejected*** because : t0 is reduced"
    with pytest.raises(SchedulingError, match=r"Scheduler _matmul_ .* this scheduler does not exist yet"):
        fd.sched.schedule(fd.fusion, SchedulerType.matmul, [X])
    params = fd.sched.schedule(fd.fusion, SchedulerType.reduction, [X])
    (sums,) = fd.manual_execute([X], params)
    np.testing.assert_array_equal(sums, X.sum(1))
