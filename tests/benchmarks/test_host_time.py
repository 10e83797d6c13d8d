"""The benchmark of host time runs without a GPU, and what it takes the place of comes back."""

from __future__ import annotations

import sys

from benchmarks import host_time
from benchmarks.stand_ins import idle_cuda
from fuser.runtime import driver


def test_every_door_on_a_driver_that_does_nothing() -> None:
    before = driver._bindings, sys.modules.get("torch")
    with idle_cuda() as idle:
        found = host_time.fuser_times(host_time.stand_in_maker(idle), seconds=0.0)
        assert idle.launches > len(found) * host_time.KERNELS
        assert len(host_time.bare_launch([256, 512, 1024], 4)()) == 1
    assert (driver._bindings, sys.modules.get("torch")) == before
    assert {"fuser execute", "fuser call", "fuser program.run", "fuser new shape, median"} <= set(found)
    assert all(microseconds > 0 for microseconds in found.values())
    text = host_time.report({**found, "Triton": "not measured"})
    assert len(text.splitlines()) == len(found) + 1
    assert host_time.drawing({**found}).count("<rect") == len(found)
