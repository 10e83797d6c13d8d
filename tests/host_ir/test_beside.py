"""Kernels side by side: launches that overlap share no counters and no scratch memory, and only neighbours overlap."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fuser.host_ir.instructions.expressions import extent
from fuser.host_ir.instructions.instructions import (
    Alias,
    Allocate,
    Deallocate,
    Fill,
    ForLoop,
    Instruction,
    LaunchKernel,
)
from fuser.host_ir.parse_program import parse_program
from fuser.host_ir.program import HostProgram
from fuser.ir.integers.integers import as_int
from fuser.ir.kernel.launch_plan import Workspace
from fuser.ir.ops.dtypes import DataType
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.launch import Launch

N = extent("x", 0)


def kernels(make_kernel: Any, count: int = 2) -> list[Any]:
    """Kernels with scratch memory and three counters each, of which the second may run beside the first, and so on."""
    made: list[Any] = []
    for k in range(count):
        kernel = make_kernel(
            entry=f"k{k}", workspaces=[Workspace("w", DataType.Float, as_int(8))], semaphores=as_int(3), content=str(k)
        )
        plan = replace(kernel.plan, starts_next=k % 2 == 0, co_resident=k % 2 == 1)
        made.append(replace(kernel, plan=plan))
    return made


def two(make_kernel: Any, *between: Instruction) -> HostProgram:
    first, second = kernels(make_kernel)
    instructions: list[Instruction] = [
        Allocate("y", (N,), DataType.Float),
        LaunchKernel(first, ("x", "y")),
        *between,
        Allocate("z", (N,), DataType.Float),
        LaunchKernel(second, ("x", "z")),
    ]
    return HostProgram(("x",), ("y", "z"), instructions)


def run(device: Any, program: HostProgram) -> list[tuple[Any, ...]]:
    """The calls of a replay; those of the first run were alike."""
    x = DeviceTensor.from_numpy(np.arange(4, dtype=np.float32), device)
    device.calls.clear()
    program.run([x])
    first = [c[0] for c in device.calls]
    device.calls.clear()
    program.run([x])
    assert [c[0] for c in device.calls] == first
    return list(device.calls)


def launches(calls: list[tuple[Any, ...]]) -> list[tuple[Launch, tuple[Any, ...]]]:
    return [(c[2], c[3]) for c in calls if c[0] == "launch"]


def test_the_second_starts_with_the_first(device: Any, make_kernel: Any) -> None:
    program = two(make_kernel)
    assert [la.co_resident for la, _ in launches(run(device, two(make_kernel, Alias("t", "y"))))] == [False, True]
    calls = run(device, program)
    (one, of_one), (other, of_other) = launches(calls)
    assert not one.co_resident
    assert other.co_resident
    # Parameters: x, y, scratch memory, counters, extent.
    assert of_one[2] != of_other[2], "the first still uses its scratch memory"
    assert of_other[3] not in range(of_one[3], of_one[3] + 4 * 64), "the first still counts, or one of another thread"
    names = [c[0] for c in calls]
    counters = program.counters()
    assert (counters["launches_beside"], counters["launches_kept_apart"]) == (2, 0)
    (said,) = (line for line in repr(program).splitlines() if "#" in line)
    assert said.endswith(", ('x', 'z')),  # beside the launch before it")
    assert parse_program(repr(program), program.kernels) == program
    assert "release" not in names[: len(names) - 1 - names[::-1].index("launch")]


def test_what_stands_between_keeps_them_apart(device: Any, make_kernel: Any) -> None:
    freed = Deallocate("t")
    for between in ([Fill("y", 0.5)], [Allocate("t", (N,), DataType.Float), freed], [Alias("t", "y"), Fill("t", 1.0)]):
        program = two(make_kernel, *between)
        (_, of_one), (other, of_other) = launches(run(device, program))
        assert not other.co_resident
        assert of_other[3] == of_one[3]
        name = type(between[-1]).__name__
        assert f"# behind the launch before it: {name} stands between" in repr(program)
        assert (program.counters()["launches_beside"], program.counters()["launches_kept_apart"]) == (0, 2)


def test_a_kernel_that_has_nothing_to_do_starts_no_other(device: Any, make_kernel: Any) -> None:
    first, second = kernels(make_kernel)
    first = replace(first, plan=replace(first.plan, grid=(as_int(0), as_int(1), as_int(1))))
    instructions = [
        Allocate("y", (N,), DataType.Float),
        LaunchKernel(first, ("x", "y")),
        LaunchKernel(second, ("x", "y")),
    ]
    program = HostProgram(("x",), ("y",), instructions)
    ((launch, _),) = launches(run(device, program))
    assert not launch.co_resident
    assert program.counters()["launches_kept_apart"] == 2


def test_one_with_none_before_it_says_so(device: Any, make_kernel: Any) -> None:
    first, second = kernels(make_kernel)
    instructions = [LaunchKernel(second, ("x", "x")), LaunchKernel(first, ("x", "x"))]
    program = HostProgram(("x",), (), instructions)
    assert [launch.co_resident for launch, _ in launches(run(device, program))] == [False, False]
    assert "# by itself: no launch before it lets another start" in repr(program)


def test_one_launch_twice_in_a_program(device: Any, make_kernel: Any) -> None:
    """Each has its own neighbours, be it the same instruction."""
    first, second = kernels(make_kernel)
    launch = LaunchKernel(first, ("x", "x"))
    program = HostProgram(("x",), (), [launch, Fill("x", 0.5), launch, LaunchKernel(second, ("x", "x"))])
    assert [one.co_resident for one, _ in launches(run(device, program))] == [False, False, True]


def test_pairs(device: Any, make_kernel: Any) -> None:
    """The third waits for both before it."""
    instructions: list[Instruction] = [Allocate("y", (N,), DataType.Float)]
    instructions += [LaunchKernel(k, ("x", "y")) for k in kernels(make_kernel, 4)]
    found = launches(run(device, HostProgram(("x",), ("y",), instructions)))
    assert [launch.co_resident for launch, _ in found] == [False, True, False, True]


def test_two_share_processors_where_the_first_leaves_room(device: Any, make_kernel: Any) -> None:
    """As many blocks as there are processors, and one more; by itself a launch shares nothing."""
    first, second = kernels(make_kernel)
    for blocks, shares in ((device.info.sm_count, True), (device.info.sm_count + 1, False)):
        starter = replace(first, plan=replace(first.plan, grid=(as_int(blocks), as_int(1), as_int(1))))
        pair: list[Instruction] = [LaunchKernel(starter, ("x", "x")), LaunchKernel(second, ("x", "x"))]
        found = launches(run(device, HostProgram(("x",), (), [*pair, Fill("x", 0.5), pair[0]])))
        assert [launch.shares_sms for launch, _ in found] == [shares, shares, False]


def test_launches_of_a_body_have_neighbours_there_alone(device: Any, make_kernel: Any) -> None:
    """A pair in each turn of a loop; none over the edge of a body."""
    first, second = (LaunchKernel(kernel, ("x", "x")) for kernel in kernels(make_kernel))
    program = HostProgram(("x",), (), [first, ForLoop("i", 0, 2, 1, (second, first, second)), second])
    beside = [launch.co_resident for launch, _ in launches(run(device, program))]
    assert beside == [False, False, False, True, False, False, True, False]
    text = repr(program)
    assert text.count("# beside the launch before it") == 1
    assert text.count("# by itself: no launch before it lets another start") == 1
    assert text.count("# behind the launch before it: ForLoop stands between") == 1
