"""Questions to an executor cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser import Fusion, FusionDefinition, FusionExecutorCache, FusionGuard, KernelExecutor, define_tensor, ops
from fuser.errors import (
    DefinitionRuntimeError,
    DefinitionTypeError,
    InputRuntimeError,
    InputTypeError,
    NotSupportedError,
)
from fuser.simulator.device import SimulatorDevice
from tests.devices.device_layouts import place


@pytest.fixture(autouse=True)
def simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")


def sums_both_ways() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        fd.add_output(fd.ops.sum(x, 0))
        fd.add_output(fd.ops.sum(x, 1))
    return fd


def test_scheduled_ir_of_what_ran_last() -> None:
    cache = FusionExecutorCache(sums_both_ways().fusion)
    x = np.ones((4, 6), np.float32)
    with pytest.raises(InputRuntimeError, match="nothing was executed yet"):
        cache.get_most_recent_scheduled_ir()
    assert not cache.is_compiled([x])
    cache.execute([x])
    assert cache.is_compiled([x])
    text = cache.get_most_recent_scheduled_ir()
    assert "t1_cache_before_0" in text
    assert "t2_cache_before_0" in text
    assert cache.get_scheduled_ir([x]) == text
    assert cache.get_scheduled_ir([np.ones((4, 600), np.float32)]) != text
    assert cache.get_most_recent_scheduled_ir() == text


def test_not_distributed() -> None:
    assert FusionExecutorCache(sums_both_ways().fusion).get_output_shardings() == []


def test_what_is_no_whole_fusion() -> None:
    with pytest.raises(DefinitionTypeError, match=r"FusionExecutorCache\(\): .* Expected a Fusion, got int"):
        FusionExecutorCache(3)
    fusion = Fusion()
    with FusionGuard(fusion):
        fusion.add_output(ops.exp(define_tensor([-1])))
    for make in (FusionExecutorCache, lambda f: KernelExecutor().compile(f)):
        with pytest.raises(DefinitionRuntimeError, match="which is no input of the fusion"):
            make(fusion)


def test_manual_schedules_go_elsewhere() -> None:
    with pytest.raises(NotSupportedError, match="use KernelExecutor for a schedule of your own"):
        FusionExecutorCache(sums_both_ways().fusion, auto_schedule=False)


@pytest.mark.parametrize("inputs", [None, 3, "x"])
def test_what_holds_no_inputs(inputs: Any) -> None:
    with pytest.raises(InputTypeError, match="the inputs must be a list of arrays and numbers, got"):
        sums_both_ways().execute(inputs)


def test_calls_in_any_order_find_what_was_made_for_their_like() -> None:
    """Layouts, alignments, and an update beside what lies over it or near it, one after the other, each of them several times:
    whatever went before, a call reads what was there before it wrote."""
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1])
        fd.add_output(fd.ops.add(x, y), x)
        fd.add_output(fd.ops.mul(y, 2.0))
    device = SimulatorDevice()
    rng = np.random.default_rng(0)
    span = 512
    for _ in range(120):
        memory = place(device, rng.integers(0, 100, 2 * span).astype(np.float32))
        shape = (4, 8) if rng.integers(4) else (3, 5)
        layouts = [(shape[1], 1), (1, shape[0]), (shape[1] + 3, 1)]
        first, second = (layouts[int(i)] for i in rng.integers(0, 3, 2))
        begin = int(rng.integers(0, 9))
        distance = int(rng.choice([0, 1, 4, 7, 8, 16, span]))
        x_, y_ = memory.view(shape, first, begin), memory.view(shape, second, begin + distance)
        old_x, old_y = x_.numpy(), y_.numpy()
        (doubled,) = fd.execute([x_, y_])
        where = f"{shape} {first} {second} {begin} {distance}"
        np.testing.assert_array_equal(x_.numpy(), old_x + old_y, where)
        np.testing.assert_array_equal(np.asarray(doubled), old_y * 2, where)
    counters = fd.fec.counters()
    assert counters["exact_hits"] > 20
    assert counters["exact_hits"] + counters["program_hits"] + counters["kernels_compiled"] >= 120
