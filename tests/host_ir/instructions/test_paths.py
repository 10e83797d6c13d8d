"""Paths: what is not reached is not asked, and what is reached tells calls apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser import Allocate, DataType, Fill, ForLoop, HostProgram, If, LaunchKernel, extent
from fuser.errors import InputError
from fuser.host_ir.instructions.expressions import equal, not_equal, scalar
from fuser.host_ir.instructions.instructions import Instruction
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.simulator.device import SimulatorDevice
from tests.host_ir.kernels import scale_kernel

SCALE = scale_kernel()
X = np.arange(8, dtype=np.float32)
N, M = scalar("n"), scalar("m")


def times(number: Any) -> LaunchKernel:
    return LaunchKernel(SCALE, ("y", "y", number))


def program(*instructions: Instruction) -> HostProgram:
    made = Allocate("y", (extent("x", 0),), DataType.Float)
    return HostProgram(("x", "n", "m"), ("y",), (made, Fill("y", 1.0), *instructions))


GUARDED: dict[str, tuple[Instruction, Any, tuple[int, Any], float]] = {
    "a quotient": (If(equal(M // N, 1), (times(3.0),)), 3, (2, 3), 3),
    "steps": (ForLoop("i", 0, 3, N, (times(3.0),)), 3, (2, 3), 9),
    "a dim": (If(equal(extent("x", 3), M), (times(3.0),)), 3, (0, 3), 1),
    "a number that is no integer": (If(equal(M, 1), (times(3.0),)), 2.5, (1, 1), 3),
}


@pytest.mark.parametrize("case", GUARDED)
def test_what_is_not_reached_needs_no_value(case: str) -> None:
    """The condition around it says whether it has one."""
    inner, unfit, (n, m), factor = GUARDED[case]
    guarded = program(If(not_equal(N, 0), (inner,)))
    x = DeviceTensor.from_numpy(X, SimulatorDevice())
    captured = guarded.capture([x, 0, unfit])
    for run in (guarded.interpret, guarded.run, guarded.run, captured.run):
        assert np.array_equal(np.asarray(run([x, 0, unfit])[0]), np.ones(8))
        assert np.array_equal(np.asarray(run([x, n, m])[0]), np.full(8, factor))
    if case != "a dim":
        return
    for _ in range(2):
        with pytest.raises(InputError, match=r"extent\('x', 3\) is asked for, but the tensor has rank 1"):
            guarded.run([x, 1, 3])


def test_numbers_that_nothing_asks_for_tell_no_calls_apart() -> None:
    made = program(If(equal(N, 0), (ForLoop("i", 0, M, 1, (times(2.0),)),)))
    for n, m, want in ((0, 2, 4), (0, 3, 8), (1, 2, 1), (1, 3, 1), (1, 4, 1)):
        assert np.array_equal(made.run([X, n, m], device="simulator")[0], np.full(8, want))
    assert made.counters()["replays"] == 2


def test_numbers_that_decide_in_a_turn_that_the_program_chooses_belong_to_the_key() -> None:
    """Whether the inner condition is reached follows from the index: no path says it."""
    made = program(ForLoop("i", 0, 2, 1, (If(equal(scalar("i"), 1), (If(equal(12 // N, M), (times(3.0),)),)),)))
    assert made.verified.needs.deciding == frozenset()
    assert made.verified.needs.fixing == {"n", "m"}
    for _ in range(2):
        for n, m, want in ((4, 3, 3), (4, 2, 1), (6, 2, 3)):
            assert np.array_equal(made.run([X, n, m], device="simulator")[0], np.full(8, want))
    assert made.counters()["replays"] == 3
