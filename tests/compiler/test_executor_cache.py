"""Questions to an executor cache."""

from __future__ import annotations

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
def test_what_holds_no_inputs(inputs: object) -> None:
    with pytest.raises(
        InputTypeError, match="the inputs must be a list or another iterable of arrays and numbers, got"
    ):
        sums_both_ways().execute(inputs)
