"""Chains of kernels: each kind is a chain, and the setting is put back."""

from __future__ import annotations

import os

import numpy as np
import pytest

from benchmarks import chain_time
from fuser.host_ir.program import HostProgram
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.simulator.device import SimulatorDevice


@pytest.mark.parametrize("kind", chain_time.KINDS)
def test_every_kind_is_a_chain(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    x = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    define = chain_time.KINDS[kind][0]
    if kind == "norms":
        import ml_dtypes

        x = x.astype(ml_dtypes.bfloat16)
    arrays = [x, *([np.ones(64, x.dtype)] * chain_time.LENGTH if kind == "norms" else ())]
    device = SimulatorDevice()
    inputs = [DeviceTensor.from_numpy(a, device) for a in arrays]
    program = define().program(inputs)
    (got,) = program.run(inputs)
    counters = program.counters()
    assert counters["launches"] >= chain_time.LENGTH
    assert counters["launches_early"] == counters["launches"] - 1
    with chain_time.early("off"):
        own = HostProgram(program.inputs, program.outputs, program.instructions)
        (want,) = own.run(inputs)
    assert own.counters()["launches_early"] == 0
    assert "FUSER_PDL" not in os.environ
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from fuser.runtime import driver

    monkeypatch.setattr(driver, "device_count", lambda: 0)
    assert chain_time.main([]) == 2
    assert "needs a GPU" in capsys.readouterr().err
