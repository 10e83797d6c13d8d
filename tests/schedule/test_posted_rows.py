"""Rows that blocks share which post what they have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.compile_case import compile_case
from benchmarks.reduction_cases import sum_over
from fuser import DataType, FusionDefinition
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import H200
from fuser.ir.launch_plan import Meeting
from fuser.runtime.nvrtc import is_available
from fuser.simulator.device import SimulatorDevice
from tests.harness import run_on
from tests.schedule.test_chained_reduction import described

Float = DataType.Float


@pytest.mark.skipif(not is_available(), reason="needs NVRTC")
@pytest.mark.parametrize(
    "case",
    [
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
