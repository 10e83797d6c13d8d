"""The programs that the benchmark of choices measures, as far as they go without a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks import switch_time
from fuser import Switch
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.kernels import nvrtc
from fuser.simulator.device import SimulatorDevice


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    if not nvrtc.is_available():
        pytest.skip("NVRTC is not installed")
    monkeypatch.setattr(switch_time, "ROWS", 64)


def switches(program: Any) -> list[Switch]:
    return [i for i in program.instructions if isinstance(i, Switch)]


def test_every_way_is_a_program() -> None:
    found = switch_time.ways()
    assert list(found) == [
        "all rows",
        "padded grid",
        "switch of 2",
        "switch of 4",
        "switch of 8",
        "work, all rows",
        "work, switch",
    ]
    for name, program in found.items():
        assert len(switches(program)) == ("switch" in name)


def test_the_compilers_programs_are_those_of_each_length() -> None:
    device: Any = SimulatorDevice()
    x = DeviceTensor.from_numpy(np.ones((64, 32), np.float32), device)
    for name, program in switch_time.compiled_ways(x).items():
        for choice in switches(program):
            assert len(choice.cases) == int(name.rpartition(" ")[2])
