"""Rows that blocks share which post what they have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.compile_case import compile_case
from benchmarks.reduction_cases import cross_entropy, sum_over
from fuser import DataType, FusionDefinition
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import H200
from fuser.ir.kernel import AtomicAdd, Post, Receive, walk
from fuser.ir.launch_plan import Meeting
from fuser.runtime.nvrtc import is_available
from fuser.schedule import posted_rows
from fuser.schedule.params import ReductionParams
from fuser.schedule.posted_rows import posted_losses
from fuser.simulator.device import SimulatorDevice
from tests.harness import run_on
from tests.schedule.test_chained_reduction import arrays_for, described, expected_of, fusion_of
from tests.schedule.test_chained_reduction import cross_entropy as losses

Float, Double, BFloat16 = DataType.Float, DataType.Double, DataType.BFloat16
IN_CLUSTERS = replace(
    ReductionParams((0, 1), True, 512, 1, 2, ("t0",), 16, unroll=8),
    cluster=True,
    few=True,
)


@pytest.mark.parametrize(
    ("count", "length", "threads", "accesses", "sharing", "is_posted"),
    [
        # (H200: f64 3x250003 12.1 us in clusters, 11.0 posted, 101x50257 24.2 and 23.3, 21x16384 8.5 and 8.8.)
        (3, 250_003, 512, 8, 16, True),
        (101, 50_257, 512, 5, 1, True),
        (21, 16_384, 512, 4, 4, False),
        (2, 16_384, 128, 4, 16, False),
        (1, 250_003, 512, 8, 16, False),
        (789, 50_257, 256, 5, 1, False),
        (180, 128_256, 256, 7, 1, True),
    ],
)
def test_blocks_share_rows_where_processors_are_idle_for_long(
    count: int, length: int, threads: int, accesses: int, sharing: int, is_posted: bool
) -> None:
    rows = replace(IN_CLUSTERS, block_reduce=threads, unroll=accesses, grid_reduce=sharing, cluster=sharing > 1)
    found = posted_losses(rows, count, length, 8, H200)
    assert (found is not None) is is_posted
    if found is not None:
        assert found.posted > 0
        assert not found.cluster
        assert count * found.grid_reduce <= found.posted * H200.sm_count
        assert found.posted * found.block_reduce <= H200.max_threads_per_sm


@pytest.mark.skipif(not is_available(), reason="needs NVRTC")
@pytest.mark.parametrize(
    "case",
    [
        cross_entropy(3, 250_003, Double),
        cross_entropy(34, 128_256, BFloat16),
        cross_entropy(101, 50_257, Double),
        sum_over(1, 2, 250_003, Float),
        sum_over(1, 3, 250_003, Float),
    ],
    ids=lambda c: c.name,
)
def test_all_blocks_have_room_at_once(case: object) -> None:
    (launch,) = compile_case(case).launches()  # pyright: ignore[reportArgumentType]
    kernel = launch.kernel
    assert kernel.plan is not None
    assert kernel.resources is not None
    assert kernel.plan.cooperative
    assert kernel.plan.meetings == (Meeting.posts,)
    assert kernel.resources.spill_bytes == 0


@pytest.mark.parametrize("dtype", [Float, Double, BFloat16])
@pytest.mark.parametrize(("rows", "columns"), [(2, 5000), (5, 3001), (3, 4096)])
def test_losses_of_posted_rows(dtype: DataType, rows: int, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the blocks of a row to its last one, and from there to the last of all; the same bits every time."""
    monkeypatch.setattr(posted_rows, "LEAST_GAIN", -100.0)
    monkeypatch.setattr(posted_rows, "LEAST_SHARE", -100.0)
    monkeypatch.setattr(posted_rows, "SHAPES", ((64, 2), (96, 1)))
    device = replace(H200, sm_count=6)
    arrays = arrays_for(losses, rows, columns, dtype)
    fusion = fusion_of(losses, dtype)
    simulator = SimulatorDevice(info=device)
    kernel = KernelCompiler(simulator).compile(fusion, [described(a) for a in arrays])
    assert kernel.plan is not None
    assert kernel.kernel_ir is not None
    assert kernel.plan.cooperative
    counts = {
        kind: sum(isinstance(s, kind) for s in walk(kernel.kernel_ir.body)) for kind in (Post, Receive, AtomicAdd)
    }
    assert counts == {Post: 2, Receive: 2, AtomicAdd: 0}
    found = run_on(simulator, kernel, fusion, arrays)
    again = run_on(simulator, kernel, fusion, arrays)
    (result,) = fusion.output_tensors
    assert found[result.name].tobytes() == again[result.name].tobytes()
    bound = 1e-12 if dtype is Double else 2e-5
    np.testing.assert_allclose(found[result.name].astype(np.float64), expected_of(losses, arrays)[0], rtol=bound)


@pytest.mark.parametrize("statistics", [1, 2])
def test_sums_of_posted_rows_beside_their_own_results(statistics: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last block of all is one of those that are the last of a row, and every pass leaves a valid kernel."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    with FusionDefinition() as fd:
        o = fd.ops
        x = fd.define_tensor([-1, -1], True)
        powers = [x, o.mul(x, x)][:statistics]
        rows = [o.sum(t, [1]) for t in powers]
        loss = o.mul(o.sum(rows[0] if statistics == 1 else o.mul(*rows), [0]), 0.25)
        fd.add_output(loss)
        fd.add_output(o.mul(rows[0], 2.0))
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    array = np.random.default_rng(0).random((3, 40_001), dtype=np.float32)
    simulator = SimulatorDevice(info=replace(H200, sm_count=12, max_cluster=1))
    kernel = KernelCompiler(simulator).compile(fusion, [described(array)])
    assert kernel.plan is not None
    assert kernel.plan.meetings == (Meeting.posts,)
    found = run_on(simulator, kernel, fusion, [array])
    wide = array.astype(np.float64)
    total = wide.sum(1) if statistics == 1 else wide.sum(1) * (wide * wide).sum(1)
    expected = (total.sum() / 4, 2 * wide.sum(1))
    for t, value in zip(fusion.output_tensors, expected, strict=True):
        np.testing.assert_allclose(found[t.name], value, rtol=2e-7)
