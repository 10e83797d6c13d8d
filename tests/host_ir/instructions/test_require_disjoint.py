"""`RequireDisjoint`: which arguments it refuses, on every way to run a program, and inside of others."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from fuser import (
    Alias,
    Allocate,
    DataType,
    Fill,
    HostProgram,
    LaunchKernel,
    RequireDisjoint,
    Switch,
    extent,
    scalar,
)
from fuser.errors import DefinitionRuntimeError, DefinitionTypeError, InputRuntimeError
from fuser.host_ir.executors import families
from fuser.host_ir.instructions.instructions import Instruction
from fuser.host_ir.parse_program import parse_program
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.simulator.device import SimulatorDevice
from tests.host_ir.kernels import scale_kernel

SCALE = scale_kernel()
LAUNCH = LaunchKernel(SCALE, ("x", "y", 2.0))
OVERLAP = "in memory that does not overlap, but got bytes"


def program(*first: Instruction) -> HostProgram:
    """y = 2 * x, and z only has to be there."""
    return HostProgram(("x", "y", "z"), (), (*first, LAUNCH))


def tensors(device: Any, *places: tuple[int, int]) -> list[DeviceTensor]:
    """(first, past the last) elements of one memory."""
    whole = DeviceTensor.from_numpy(np.arange(64, dtype=np.float32), device)
    return [whole.view((end - first,), (1,), first) for first, end in places]


def test_pairs() -> None:
    """Of `slots` each with all others, of `others` none with one another."""
    device = SimulatorDevice()
    checked = program(RequireDisjoint(("y", "z")))
    against = program(RequireDisjoint(("y",), ("x", "z")))
    apart, of_x_z, of_y_z, of_x_y = (
        tensors(device, *places)
        for places in (
            ((0, 4), (4, 8), (8, 12)),
            ((0, 4), (8, 12), (3, 7)),
            ((20, 24), (4, 8), (7, 11)),
            ((0, 4), (0, 4), (20, 24)),
        )
    )
    for inputs, of_slots, of_others in (
        (apart, False, False),
        (of_x_z, False, False),
        (of_y_z, True, True),
        (of_x_y, False, True),
        ([*apart[:2], apart[1]], True, True),
        ([*apart[:2], apart[0]], False, False),
    ):
        for one, refused in ((checked, of_slots), (against, of_others)):
            for way in (one.run, one.run, one.interpret, one.capture):
                if refused:
                    with pytest.raises(InputRuntimeError, match=OVERLAP):
                        way(inputs)
                else:
                    way(inputs)


def test_a_warm_call_is_refused_as_well() -> None:
    device, one = SimulatorDevice(), program(RequireDisjoint(("y",), ("z",)))
    apart, overlapping = tensors(device, (0, 4), (4, 8), (8, 12)), tensors(device, (0, 4), (8, 12), (11, 15))
    one.run(apart)
    one.run(apart)
    assert one.counters()["replays"] == 1
    with pytest.raises(InputRuntimeError, match=OVERLAP):
        one.run(overlapping)
    one.run(apart)
    assert one.counters()["replays"] == 2


def test_without_an_update_and_without_elements() -> None:
    """Where nothing is written it is checked all the same, at each call; what has no elements has no memory to share."""
    device = SimulatorDevice()
    made = Allocate("y", (extent("x", 0),), DataType.Float)
    one = HostProgram(("x", "z"), ("y",), (RequireDisjoint(("x",), ("z",)), made, LAUNCH))
    for _ in range(2):
        one.run(tensors(device, (0, 4), (4, 8)))
        one.run(tensors(device, (0, 4), (2, 2)))
        with pytest.raises(InputRuntimeError, match=OVERLAP):
            one.run(tensors(device, (0, 4), (3, 8)))


def test_arrays_in_host_memory_are_copied() -> None:
    x, one = np.arange(8, dtype=np.float32), program(RequireDisjoint(("y",), ("x", "z")))
    for _ in range(2):
        memory = np.zeros(8, np.float32)
        one.run([x[:4], memory[:4], memory[2:]], device="simulator")
        np.testing.assert_array_equal(memory, [0, 2, 4, 6, 0, 0, 0, 0])


def test_what_a_program_makes_is_its_own() -> None:
    """Two views of one memory may overlap, two memories do not."""
    device = SimulatorDevice()
    whole = Allocate("w", (8,), DataType.Float)
    views = [Alias(name, "w", (4,), offset=first) for name, first in (("a", 0), ("b", 4), ("c", 3))]
    fills = [Fill("w", 1.0)]
    for first, second in itertools.permutations("abc", 2):
        one = HostProgram(("x",), ("w",), (whole, *views, *fills, RequireDisjoint((first,), (second, "x"))))
        if {first, second} == {"a", "b"}:
            one.run(tensors(device, (0, 4)))
            continue
        with pytest.raises(InputRuntimeError, match=f"for {first} and {second} {OVERLAP}"):
            one.run(tensors(device, (0, 4)))


def test_within_another_program() -> None:
    """It speaks of the slots that take the place of inputs, and counts where it is reached."""
    device = SimulatorDevice()
    inner = program(RequireDisjoint(("y",), ("z",)))
    outer = HostProgram(
        ("p", "q", "r", "n"), (), (Switch(scalar("n"), [inner.inlined(("p", "q", "r"), (), "a."), [Fill("q", 1.0)]]),)
    )
    assert parse_program(repr(outer), outer.kernels) == outer
    overlapping = tensors(device, (0, 4), (8, 12), (11, 15))
    for _ in range(2):
        outer.run([*overlapping, 1])
        with pytest.raises(InputRuntimeError, match=f"for q and r {OVERLAP}"):
            outer.run([*overlapping, 0])
        outer.run([*tensors(device, (0, 4), (8, 12), (12, 15)), 0])


def test_new_sizes_in_any_order_of_addresses_go_a_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """An allocator puts arrays where it will: one function serves all orders, and sees what overlaps."""
    monkeypatch.setattr(families, "CALLS_PER_TRACE", 2)
    bound: list[HostProgram] = []
    bind = HostProgram.bind
    monkeypatch.setattr(HostProgram, "bind", lambda self, *more: (bound.append(self), bind(self, *more))[1])
    device, one = SimulatorDevice(), program(RequireDisjoint(("y",), ("x", "z")))
    starts = [list(order) for order in itertools.permutations((0, 20, 40))]
    for size in range(2, 12):
        x, y, z = tensors(device, *((start, start + size) for start in starts[size % 6]))
        expected = 2 * x.numpy()
        one.run([x, y, z])
        np.testing.assert_array_equal(y.numpy(), expected)
    assert len(bound) == 2
    with pytest.raises(InputRuntimeError, match=OVERLAP):
        one.run(tensors(device, (0, 15), (20, 35), (34, 49)))


def test_what_is_no_slot() -> None:
    with pytest.raises(DefinitionTypeError, match="slots of RequireDisjoint are a sequence of slots, got 'xy'"):
        RequireDisjoint("xy")
    with pytest.raises(DefinitionTypeError, match="others of RequireDisjoint are a sequence of slots, got 'z'"):
        RequireDisjoint(("x",), "z")
    with pytest.raises(
        DefinitionRuntimeError,
        match=r"instruction 0, RequireDisjoint\(\('y',\), \('w',\)\): slot 'w' is not defined; defined are 'x', 'y', 'z'",
    ):
        program(RequireDisjoint(("y",), ("w",)))
