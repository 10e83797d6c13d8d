"""Which launches start early: what the compiler makes of programs, which edges of graphs are early, and what prevents it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fuser import DataType, FusionDefinition, HostProgram
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import compile_fusion
from fuser.host_ir.instructions.expressions import extent
from fuser.host_ir.instructions.instructions import Allocate, Deallocate, Fill, Instruction, LaunchKernel
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.ir.kernel.kernel import LaunchWait
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.devices.early_launches import early_edges, is_early, starts_early
from fuser.runtime.kernels.commands import CopyCommand, KernelCommand
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.launch import Launch
from fuser.simulator.device import SimulatorDevice

LAUNCH = Launch((4, 1, 1), (128, 1, 1))
H200, A100 = DeviceInfo.preset("H200"), DeviceInfo.preset("sm_80")
N = extent("x", 0)


def three() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], dtype=DataType.Float, contiguity=True)
        a = fd.ops.segment_set(x * 2.0)
        b = fd.ops.segment_set(a + x)
        fd.add_output(b * a)
    return fd


def program_of(fd: FusionDefinition, device: SimulatorDevice | DeviceInfo) -> HostProgram:
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    inputs = [TensorDescriptor(DataType.Float, (64,), (1,), 256)] * len(fusion.input_tensors)
    return compile_fusion(fusion, bind_inputs(fusion, inputs), device)


def kernels_of(program: HostProgram) -> list[CompiledKernel]:
    return [i.kernel for i in program.instructions if isinstance(i, LaunchKernel)]


@pytest.fixture(scope="module")
def kernels() -> list[CompiledKernel]:
    return kernels_of(program_of(three(), SimulatorDevice()))


def waiting(kernel: CompiledKernel) -> bool:
    assert kernel.plan is not None
    assert kernel.kernel_ir is not None
    waits = isinstance(kernel.kernel_ir.body[0], LaunchWait)
    assert kernel.plan.waits_first is waits is ("griddepcontrol.wait" in kernel.source)
    return waits


def test_kernels_that_follow_others_wait_first(kernels: list[CompiledKernel]) -> None:
    assert [waiting(k) for k in kernels] == [False, True, True]


def test_kernels_of_devices_without_early_launches_do_not_wait() -> None:
    assert [waiting(k) for k in kernels_of(program_of(three(), A100))] == [False, False, False]


def test_a_kernel_behind_a_call_of_a_library_does_not_wait() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], dtype=DataType.Float, contiguity=True)
        fd.add_output(fd.ops.matmul(x * 2.0, x) + 1.0)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    bound = bind_inputs(fusion, [TensorDescriptor(DataType.Float, (8, 8), (8, 1), 256)])
    found = kernels_of(compile_fusion(fusion, bound, SimulatorDevice()))
    assert [waiting(k) for k in found] == [False, False]


def test_what_keeps_a_launch_from_starting_early(
    kernels: list[CompiledKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, _ = kernels
    assert starts_early(second, LAUNCH, H200)
    assert not starts_early(first, LAUNCH, H200)
    assert not starts_early(second, LAUNCH, A100)
    assert not starts_early(second, replace(LAUNCH, cooperative=True), H200)
    monkeypatch.setenv("FUSER_PDL", "off")
    assert not starts_early(second, LAUNCH, H200)


def test_a_kernel_that_only_says_that_it_waits(kernels: list[CompiledKernel]) -> None:
    _, second, _ = kernels
    assert second.kernel_ir is not None
    stripped = replace(second, kernel_ir=replace(second.kernel_ir, body=second.kernel_ir.body[1:]))
    assert not starts_early(stripped, LAUNCH, H200)
    assert not starts_early(replace(second, plan=None), LAUNCH, H200)


def test_edges_of_kernels_are_early(kernels: list[CompiledKernel]) -> None:
    """A diamond: what waits for two kernels does so by two early edges; a copy is waited for to its end."""
    first, second, third = (KernelCommand(k, LAUNCH, ()) for k in kernels)
    copy = CopyCommand(0, 0, 4)
    commands = [first, second, second, third, copy, third, first]
    edges = [(), (0,), (0,), (1, 2), (3,), (3, 4), (5,)]
    assert early_edges(commands, edges, H200) == ((), (0,), (0,), (1, 2), (), (3,), ())
    assert early_edges(commands, edges, A100) == ((),) * 7
    assert is_early(second, H200)
    assert not is_early(copy, H200)


def test_what_lets_its_partner_start_is_not_overlapped(kernels: list[CompiledKernel]) -> None:
    """Blocks that wait would take the partner's room: in a graph, and on a stream where the partner has nothing to do."""
    first, second, _ = kernels
    assert first.plan is not None
    lets = replace(first, plan=replace(first.plan, starts_next=True))
    commands = [KernelCommand(k, LAUNCH, ()) for k in (lets, first, second)]
    assert early_edges(commands, [(), (), (0, 1)], H200) == ((), (), (1,))
    program = HostProgram(
        ("x",),
        ("z",),
        (
            *(Allocate(s, (N,), DataType.Float) for s in ("a", "z")),
            LaunchKernel(lets, ("x", "a")),
            LaunchKernel(second, ("a", "x", "z")),
        ),
    )
    assert run(program)[0] == 0


def test_explain_says_which_kernels_start_early_and_why_not(
    kernels: list[CompiledKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    def starts(program: HostProgram) -> list[str]:
        return [line.split(maxsplit=1)[1] for line in program.explain().splitlines() if line.startswith("  starts ")]

    early = "early, right behind another launch, on devices of compute capability 9.0 and later"
    program = program_of(three(), SimulatorDevice())
    assert starts(program) == [early] * 2
    monkeypatch.setenv("FUSER_PDL", "off")
    assert starts(program) == [f"{early}; FUSER_PDL=off is set"] * 2
    first, second, _ = kernels
    assert second.plan is not None
    assert second.kernel_ir is not None
    made = replace(second.plan, waits_first=False, cooperative=True)
    waits = replace(second, plan=made, kernel_ir=replace(second.kernel_ir, plan=made), content_hash="waits")
    slots = tuple(Allocate(s, (N,), DataType.Float) for s in ("a", "z"))
    program = HostProgram(
        ("x",), ("z",), (*slots, LaunchKernel(first, ("x", "a")), LaunchKernel(waits, ("a", "x", "z")))
    )
    assert starts(program) == ["when those before have ended: its blocks wait until all of them are on the device"]


def run(program: HostProgram) -> tuple[int, np.ndarray]:
    device = SimulatorDevice()
    (z,) = program.run([DeviceTensor.from_numpy(np.arange(64, dtype=np.float32), device)])
    return program.counters()["launches_early"], np.asarray(z)


@pytest.mark.parametrize(
    ("between", "early"),
    [
        ((), 2),
        ((Deallocate("t"),), 2),
        ((Allocate("w", (N,), DataType.Float),), 2),
        ((Fill("t", 1.0),), 1),
    ],
    ids=["nothing", "memory given back", "memory taken", "a fill"],
)
def test_only_what_is_right_behind_a_launch_starts_early(
    kernels: list[CompiledKernel], between: tuple[Instruction, ...], early: int
) -> None:
    first, second, third = kernels
    program = HostProgram(
        ("x",),
        ("z",),
        (
            *(Allocate(s, (N,), DataType.Float) for s in ("t", "a", "b")),
            LaunchKernel(first, ("x", "a")),
            *between,
            LaunchKernel(second, ("a", "x", "b")),
            Allocate("z", (N,), DataType.Float),
            LaunchKernel(third, ("b", "a", "z")),
        ),
    )
    x = np.arange(64, dtype=np.float32)
    count, z = run(program)
    assert count == early
    np.testing.assert_array_equal(z, 3 * x * 2 * x)


def test_off(monkeypatch: pytest.MonkeyPatch) -> None:
    program = program_of(three(), SimulatorDevice())
    assert run(program)[0] == 2
    other = HostProgram(program.inputs, program.outputs, program.instructions)
    monkeypatch.setenv("FUSER_PDL", "off")
    found = run(other)
    assert found[0] == 0
    np.testing.assert_array_equal(found[1], run(program)[1])
