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
        (
            lambda fd: fd.sched.parallelize_like(fd.fusion.outputs()[0], fd.fusion.inputs()[0]),
            r"pos must be an int, got TensorView; tensors to change are selected_tensors=\[...\]",
        ),
        (lambda fd: fd.sched.inline_at(fd.fusion.outputs()[0], 1.5), "pos must be an int, got float"),
        (
            lambda fd: fd.sched.transform_like(fd.fusion.outputs()[0], fd.fusion.inputs()[0]),
            r"selected_tensors must be a sequence of TensorViews; write \[tensor\] for one",
        ),
        (lambda fd: fd.sched.inline_most([3]), "each of selected_tensors must be a TensorView, got int"),
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
        (lambda copy: copy.cache_after(LoadStoreOpType.tma), "LoadStoreOpType.tma is not supported yet"),
        (lambda copy: copy.set_memory_type(MemoryType.tensor), "MemoryType.tensor is not supported yet"),
    ],
)
def test_later_verbs(verb, text: str) -> None:
    fd = row_sums()
    copy = fd.fusion.inputs()[0].cache_after()
    with pytest.raises(NotSupportedError, match=text):
        verb(copy)


@pytest.mark.parametrize("columns", [64, 128, 512])
def test_asynchronous_copies(columns: int) -> None:
    """A row in shared memory, filled by asynchronous copies, is read by other threads than those that copied it."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        total = fd.ops.sum(x, 1)
        wide = fd.ops.broadcast(total, [False, True])
        out = fd.ops.sub(x, wide)
        fd.add_output(out)

        placed = x.cache_after(LoadStoreOpType.cp_async)
        placed.split(1, 4)
        placed.split(1, 16)  # [rows, columns/64, 16, 4]
        for tensor in (total, wide, out):
            tensor.split(1, 16)  # [rows, columns/16, 16]
        for tensor in (placed, total, wide, out):
            tensor.axis(0).parallelize(ParallelType.grid_x)
            tensor.axis(2).parallelize(ParallelType.block_x)
        placed.axis(3).parallelize(ParallelType.vectorize)
        fd.sched.inline_most([wide])
    values = np.random.default_rng(0).integers(-9, 9, (3, columns)).astype(np.float32)
    (found,) = fd.manual_execute([values])
    np.testing.assert_array_equal(found, values - values.sum(1, keepdims=True))
    source = fd.ke.kernel.source
    assert "cp.async" in source
    assert source.count("&t0[") == 1, "device memory is read once"


def test_only_inputs_are_copied_asynchronously() -> None:
    with FusionDefinition() as fd:
        copy = fd.define_tensor([-1, -1], contiguity=True)
        fd.add_output(fd.ops.sum(copy, 1))
        copy = copy.cache_after()
        with pytest.raises(
            SchedulingError, match="copy t0_cache_after_0 asynchronously: it is no input in device memory"
        ):
            copy.cache_after(LoadStoreOpType.cp_async)


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
