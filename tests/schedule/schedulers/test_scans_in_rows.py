"""Scans between reductions over the same dim: one kernel, which holds a row in the registers of a block or of a cluster."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition, SchedulerType
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import compile_fusion, plan_fusion
from fuser.compiler.recorder import Recorder
from fuser.ir.device_info import H200
from fuser.ir.fact_collection import collect_facts
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import Fusion
from fuser.runtime.kernels.nvrtc import is_available
from fuser.schedule.params import InnerPersistentParams, Peeled
from fuser.schedule.scheduler import Refused, SegmentInputs
from fuser.schedule.schedulers.inner_persistent import InnerPersistentScheduler
from tests.devices.small_simulator import small_simulator
from tests.judging.harness import Lowered
from tests.judging.harness import run as simulate

Array = np.ndarray[Any, Any]
Define = Callable[[FusionDefinition], list[Any]]
Float, Double, Int, Half = DataType.Float, DataType.Double, DataType.Int, DataType.Half

FOLDS: dict[str, Any] = {"cumsum": np.add, "cumprod": np.multiply, "cummin": np.minimum, "cummax": np.maximum}
TOTALS: dict[str, Any] = {"sum": np.sum, "max": np.max, "min": np.min}


def fusion_of(define: Define) -> Fusion:
    with FusionDefinition() as fd:
        for t in define(fd):
            fd.add_output(t)
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def rows(fd: FusionDefinition, dtype: DataType = Float) -> Any:
    return fd.define_tensor([-1, -1], [False, True], dtype)


def earth_movers_distance(fd: FusionDefinition) -> list[Any]:
    """The squared differences of two distributions' running sums, added up."""
    o: Any = fd.ops
    d = o.cumsum(o.sub(rows(fd), rows(fd)), 1)
    return [o.sum(o.mul(d, d), 1)]


def running_softmax(fd: FusionDefinition) -> list[Any]:
    """What sampling from the most likely tokens compares with a threshold."""
    o: Any = fd.ops
    x = rows(fd)
    e = o.exp(x - o.max(x, 1, keepdim=True))
    return [o.cumsum(e / o.sum(e, 1, keepdim=True), 1)]


def volume_rendering(fd: FusionDefinition) -> list[Any]:
    """Weights of the samples along rays, by what each of them lets through, and sums of rays."""
    o: Any = fd.ops
    through, depth = (o.exp(o.neg(o.abs(rows(fd)))) for _ in range(2))
    weight = o.mul(o.cumprod(through, 1), o.sub(1.0, through))
    return [weight, o.sum(weight, 1), o.sum(o.mul(weight, depth), 1)]


def expected(define: Define, arrays: list[Array]) -> list[Array]:
    x, *more = (a.astype(np.float64) for a in arrays)
    if define is earth_movers_distance:
        return [(np.cumsum(x - more[0], 1) ** 2).sum(1)]
    if define is running_softmax:
        e = np.exp(x - x.max(1, keepdims=True))
        return [np.cumsum(e / e.sum(1, keepdims=True), 1)]
    through, depth = np.exp(-np.abs(x)), np.exp(-np.abs(more[0]))
    weight = np.cumprod(through, 1) * (1 - through)
    return [weight, weight.sum(1), (weight * depth).sum(1)]


DEFINITIONS: list[Define] = [earth_movers_distance, running_softmax, volume_rendering]


@pytest.mark.parametrize("define", DEFINITIONS)
@pytest.mark.parametrize("shape", [(1, 1), (40, 1), (7, 33), (300, 16), (64, 252), (3, 1024), (2, 5001)], ids=str)
@pytest.mark.parametrize("pad", [0, 1])
def test_one_kernel_for_any_rows(
    define: Define, shape: tuple[int, int], pad: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    rng = np.random.default_rng(shape[1])
    with FusionDefinition() as fd:
        for t in define(fd):
            fd.add_output(t)
    assert fd.fusion is not None
    count = len(fd.fusion.ir_fusion.input_tensors)
    wide = [rng.normal(size=(shape[0], shape[1] + pad)).astype(np.float32) / 8 for _ in range(count)]
    arrays = [w[:, pad:] for w in wide]
    for found, wanted in zip(fd.execute(arrays), expected(define, arrays), strict=True):
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-4, atol=1e-5)
    assert fd.program(arrays).counters()["launches"] == 1


@pytest.mark.in_turns
@pytest.mark.parametrize("seed", range(36))
def test_any_mapping_of_any_scans_and_reductions(seed: int) -> None:
    """Random mappings of the space, for random chains of both, types and extents."""
    chance = random.Random(seed)
    dtype = chance.choice([Float, Int, Double, Half])
    kind = dtype.numpy
    # Products of sums would be rounded.
    others = [op for op in FOLDS if op != "cumprod"]
    steps = [chance.choice([*(others if k else FOLDS), *TOTALS]) for k in range(chance.randint(1, 3))]
    if dtype is Half:
        # Their sums of sums are no longer exact.
        steps = [chance.choice(["cummin", "cummax", "max", "min"]) for _ in steps]
    steps.insert(chance.randint(1, len(steps)), "cummax")
    total, shown = chance.choice(["max", "min"]), chance.randrange(len(steps))

    def define(fd: FusionDefinition) -> list[Any]:
        o, t = fd.ops, rows(fd, dtype)
        made: list[Any] = []
        for op in steps:
            own = getattr(o, op)(t, 1) if op in FOLDS else getattr(o, op)(t, 1, keepdim=True)
            t = own if op in FOLDS else o.minimum(t, own)
            made.append(t)
        return [o.cast(getattr(o, total)(t, 1), dtype), made[shown]]

    shape = chance.choice([1, 2, 3, 24]), chance.choice([1, 2, 33, 255, 700, 1025, 4099])
    pad = chance.choice([0, 0, 1, 3])
    values = np.random.default_rng(seed).choice(np.array([-1, 1], kind), (shape[0], shape[1] + pad))[:, pad:]
    fusion = fusion_of(define)
    t, made = values, list[Array]()
    for op in steps:
        own = FOLDS[op].accumulate(t, 1, dtype=kind) if op in FOLDS else TOTALS[op](t, 1, keepdims=True)
        t = own if op in FOLDS else np.minimum(t, own)
        made.append(t.astype(kind))
    wanted = [TOTALS[total](t, 1), made[shown]]
    bound = bind_inputs(fusion, [values])
    inputs = SegmentInputs(bound.tensors, bound.evaluate)
    assert not isinstance(InnerPersistentScheduler().accepts(fusion), Refused)
    found = [
        p for p in InnerPersistentScheduler().candidates(fusion, inputs, H200) if isinstance(p, InnerPersistentParams)
    ]
    assert not any(p.in_shared or p.groups for p in found), (
        "elements of a scan are in registers of a block or a cluster"
    )
    for params in chance.sample(found, min(3, len(found))):
        scheduled = InnerPersistentScheduler().apply(fusion, params)
        lowered = Lowered.of(scheduled, collect_facts(scheduled, bound.tensors, bound.evaluate))
        results = simulate(lowered, [values], seed=seed).check()
        for value, right in zip(results.values(), wanted, strict=True):
            np.testing.assert_array_equal(value, right, err_msg=str(params))


@pytest.mark.parametrize(("length", "cluster"), [(40000, True), (40001, True), (300, False)])
def test_rows_over_clusters(length: int, cluster: bool) -> None:
    """Few long rows: blocks of a cluster tell one another what comes before theirs."""
    fusion = fusion_of(earth_movers_distance)
    rng = np.random.default_rng(length)
    values = [rng.integers(-1, 2, (3, length)).astype(np.float32) for _ in range(2)]
    bound = bind_inputs(fusion, values)
    params = InnerPersistentScheduler().propose(fusion, SegmentInputs(bound.tensors, bound.evaluate), H200)
    assert isinstance(params, InnerPersistentParams)
    assert (params.cluster > 1) == cluster
    assert isinstance(params.access, Peeled) == (length % 4 > 0)
    scheduled = InnerPersistentScheduler().apply(fusion, params)
    lowered = Lowered.of(scheduled, collect_facts(scheduled, bound.tensors, bound.evaluate))
    (found,) = simulate(lowered, values, seed=0).check().values()
    d = np.cumsum(values[0].astype(np.float64) - values[1], 1)
    np.testing.assert_allclose(found, (d * d).sum(1), rtol=1e-6)


@pytest.mark.in_turns
@pytest.mark.skipif(not is_available(), reason="needs NVRTC")
@pytest.mark.parametrize("define", DEFINITIONS)
@pytest.mark.parametrize(
    "shape", [(65537, 252), (2048, 4096), (1024, 16384), (64, 50257), (8, 131072), (300000, 33)], ids=str
)
def test_nothing_spills(define: Define, shape: tuple[int, int]) -> None:
    fusion = fusion_of(define)
    given = TensorDescriptor(Float, shape, (shape[1], 1), 256)
    (launch,) = compile_fusion(fusion, bind_inputs(fusion, [given] * len(fusion.input_tensors)), H200).launches()
    resources = launch.kernel.resources
    assert resources is not None
    assert resources.spill_bytes == resources.stack_bytes == 0


def schedulers_of(define: Define) -> list[SchedulerType]:
    """Those of the segments of a fusion."""
    return [s.scheduler.type for s in plan_fusion(fusion_of(define), Recorder()).segments]


def test_a_scan_along_another_dim_is_a_kernel_of_its_own() -> None:
    def define(fd: FusionDefinition) -> list[Any]:
        return [fd.ops.sum(fd.ops.cumsum(rows(fd), 0), 1)]

    assert schedulers_of(define) == [SchedulerType.scan, SchedulerType.reduction]


def test_rows_that_no_cluster_holds_are_read_by_several_kernels() -> None:
    with FusionDefinition() as fd:
        for t in earth_movers_distance(fd):
            fd.add_output(t)
    values = [np.ones((1, 1 << 20), np.float32), np.zeros((1, 1 << 20), np.float32)]
    assert fd.fusion is not None
    bound = bind_inputs(fd.fusion.ir_fusion, values)
    inputs = SegmentInputs(bound.tensors, bound.evaluate)
    assert isinstance(InnerPersistentScheduler().propose(fd.fusion.ir_fusion, inputs, small_simulator().info), Refused)
