"""What kernels can be compiled for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fuser import (
    Allocate,
    DataType,
    DeviceInfo,
    FusionDefinition,
    HostProgram,
    KernelCompiler,
    LaunchKernel,
    extent,
)
from fuser.compiler import kernel_compiler
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import compile_fusion
from fuser.compiler.kernel_compiler import CompileOptions
from fuser.compiler.program_cache import ProgramCache
from fuser.compiler.recorder import KeepingRecorder, Recorder
from fuser.compiler.stage_texts import resource_text
from fuser.errors import DefinitionTypeError
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import Fusion
from fuser.runtime.kernels.compiled_kernel import BlocksBy, CompiledKernel, Resources
from fuser.runtime.kernels.nvrtc import CompileResult
from fuser.schedule.cost import reduction_mappings
from fuser.schedule.params import InnerPersistentParams
from fuser.schedule.print_params import params_text
from fuser.schedule.schedulers.inner_persistent import InnerPersistentScheduler
from fuser.schedule.schedulers.reduction import ReductionScheduler
from fuser.schedule.segmentation.segment import Segment
from fuser.simulator.device import SimulatorDevice
from tests.compiler.min_blocks import asking_for_four_blocks


def test_devices() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        fd.add_output(fd.ops.sum(x, 1))
    inputs = [np.ones((4, 6), np.float32)]
    kernel = KernelCompiler(DeviceInfo.preset("sm_80")).compile(fd.fusion, inputs)
    assert kernel.arch == "sm_80"
    assert kernel.cubin
    assert kernel.launch_plan.ranks == (2, 1)
    with pytest.raises(DefinitionTypeError, match="device must be a DeviceInfo, a device or None, got str"):
        KernelCompiler("sm_80").compile(fd.fusion, inputs)


def compiled(monkeypatch: pytest.MonkeyPatch, spills: Callable[[int], int], **options: int) -> CompiledKernel:
    """A kernel, where ptxas spills so many bytes when it is held to a number of blocks."""

    def made(source: str, entries: Sequence[str], arch: str, options: Sequence[str]) -> CompileResult:
        asked = [o for o in options if o.startswith("-DFUSER_MIN_BLOCKS=")]
        blocks = int(asked[0].partition("=")[2]) if asked else 0
        return CompileResult(b"", {entries[0]: Resources(64, spills(blocks), 0, 0)}, {}, "", (12, 9), arch)

    monkeypatch.setattr("fuser.runtime.kernels.nvrtc.compile_to_cubin", made)
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        fd.add_output(fd.ops.sum(x, 1))
    return KernelCompiler(DeviceInfo.preset("H200"), **options).compile(fd.fusion, [np.ones((4, 6), np.float32)])


def test_a_kernel_that_spills_is_compiled_for_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ptxas chose fewer registers than it needs."""
    kernel = compiled(monkeypatch, lambda blocks: 0 if blocks == 1 else 8)
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == 0
    assert kernel.min_blocks == 1
    assert kernel.blocks_by is BlocksBy.spills
    said = "compiled for 1 blocks a processor at least, because it spills with as many as ptxas chose"
    assert said in resource_text(kernel)


def test_blocks_that_a_schedule_asks_for_are_given_up_where_the_kernel_spills(monkeypatch: pytest.MonkeyPatch) -> None:
    asking_for_four_blocks(monkeypatch)
    kernel = compiled(monkeypatch, lambda blocks: 8 if blocks > 2 else 0)
    assert (kernel.min_blocks, kernel.blocks_by, kernel.spilled_with) == (2, BlocksBy.spills, (4, 3))
    assert "# compiled for 2 blocks a processor at least, because it spills with 4, 3\n" in resource_text(kernel)


def test_blocks_that_a_user_asks_for_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be it the number that the schedule asks for, too."""
    asking_for_four_blocks(monkeypatch)
    for blocks in (4, 2):
        kernel = compiled(monkeypatch, lambda _: 8, min_blocks=blocks)
        assert (kernel.min_blocks, kernel.blocks_by, kernel.spilled_with) == (blocks, BlocksBy.user, (blocks,))
        assert f"# compiled for {blocks} blocks a processor at least, by an option\n" in resource_text(kernel)
        assert f"# spills 8 bytes; blocks a processor that were tried: {blocks}\n" in resource_text(kernel)


def test_a_kernel_that_always_spills_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    asking_for_four_blocks(monkeypatch)
    kernel = compiled(monkeypatch, lambda _: 24)
    assert (kernel.min_blocks, kernel.blocks_by) == (4, BlocksBy.schedule)
    said = "spills 24 bytes; blocks a processor that were tried: 4, 3, 2, 1"
    assert said in resource_text(kernel)
    program = HostProgram(
        ("x",), ("y",), [Allocate("y", (extent("x", 0),), DataType.Float), LaunchKernel(kernel, ("x", "y"))]
    )
    assert f"  blocks      {said}\n" in program.explain()


LONG = [TensorDescriptor(DataType.Float, (400, 250_000), (250_000, 1))]


def long_rows() -> Fusion:
    """Sums of rows for which many threads of a block are proposed."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True)
        fd.add_output(fd.ops.sum(x, 1))
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def spilling(monkeypatch: pytest.MonkeyPatch, spills: Callable[[int], int]) -> list[int]:
    """Let ptxas spill so many bytes in the binaries made so far, this one included; blocks of those made, in order."""
    made: list[int] = []

    def compile_to_cubin(source: str, entries: Sequence[str], arch: str, options: Sequence[str]) -> CompileResult:
        blocks = [int(o.partition("=")[2]) for o in options if o.startswith("-DFUSER_MAX_THREADS=")]
        if not any("MIN_BLOCKS" in o for o in options):
            made.append(blocks[0])
        report = Resources(64, spills(len(made)), 0, 0)
        return CompileResult(b"", {entries[0]: report}, {entries[0]: entries[0]}, "", (12, 9), arch)

    monkeypatch.setattr("fuser.runtime.kernels.nvrtc.compile_to_cubin", compile_to_cubin)
    return made


def test_the_next_candidate_is_taken_where_a_proposal_spills(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that leaves a thread more registers; explain has its stages alone, and says why."""
    fusion = long_rows()
    recorder = KeepingRecorder()
    bound = bind_inputs(fusion, LONG)
    compiler = KernelCompiler(DeviceInfo.preset("H200"), recorder=recorder)
    segment = Segment(fusion, ReductionScheduler(), ())
    for taken in (2, 3):
        made = spilling(monkeypatch, lambda n, taken=taken: 0 if n == taken else 8)
        kernel, params = compiler.compile_segment(segment, bound)
        assert kernel.resources is not None
        assert kernel.resources.spill_bytes == 0
        assert len(made) == taken
        assert params != compiler.propose(segment, bound)
        assert recorder.stages["params.py"].endswith(f"{params_text(params)}\n")
        assert f"what is proposed spills 8 bytes: a thread of {made[0]} has " in recorder.stages["params.py"]
        assert recorder.stages["kernel.cu"] == kernel.source
        assert "0 bytes spilled" in recorder.stages["kernel.cubin"]


def test_the_next_candidate_is_taken_where_fewer_blocks_have_room_than_were_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Compiled for one block less, the first binary would not spill: but then an SM has not the blocks that the plan is for."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Half)
        y = fd.ops.cast(x, DataType.Float)
        variance, mean = fd.ops.var_mean(y, [1], 0, True)
        fd.add_output(fd.ops.cast((y - mean) * fd.ops.rsqrt(variance), DataType.Half))
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    bound = bind_inputs(fusion, [TensorDescriptor(DataType.Half, (1903, 50_257), (50_257, 1))])
    compiler = KernelCompiler(DeviceInfo.preset("H200"))
    segment = Segment(fusion, InnerPersistentScheduler(), ())
    proposed = compiler.propose(segment, bound)
    assert isinstance(proposed, InnerPersistentParams)
    assert proposed.resident > 1
    made: list[tuple[str, bool]] = []

    def compile_to_cubin(source: str, entries: Sequence[str], arch: str, options: Sequence[str]) -> CompileResult:
        for_some = any(o.startswith("-DFUSER_MIN_BLOCKS=") and not o.endswith("=1") for o in options)
        made.append((source, for_some))
        spilled = 8 if for_some and source == made[0][0] else 0
        report = Resources(64, spilled, 0, 0)
        return CompileResult(b"", {entries[0]: report}, {entries[0]: entries[0]}, "", (12, 9), arch)

    monkeypatch.setattr("fuser.runtime.kernels.nvrtc.compile_to_cubin", compile_to_cubin)
    kernel, params = compiler.compile_segment(segment, bound)
    assert made[0][1], "the proposal is compiled for several blocks first"
    assert params != proposed
    assert kernel.kernel_ir is not None
    assert kernel.min_blocks == kernel.kernel_ir.min_blocks
    assert any("blocks on a processor, as planned" in reason for reason in params.reasons)


def test_a_proposal_stands_where_all_candidates_spill(monkeypatch: pytest.MonkeyPatch) -> None:
    fusion = long_rows()
    bound = bind_inputs(fusion, LONG)
    recorder = KeepingRecorder()
    compiler = KernelCompiler(DeviceInfo.preset("H200"), recorder=recorder)
    segment = Segment(fusion, ReductionScheduler(), ())
    made = spilling(monkeypatch, lambda _: 8)
    kernel, params = compiler.compile_segment(segment, bound)
    assert params == compiler.propose(segment, bound)
    assert 1 < len(made) <= 1 + kernel_compiler.MOST_INSTEAD
    assert recorder.stages["kernel.cu"] == kernel.source
    assert recorder.stages["params.py"].endswith(f"{params_text(params)}\n")


def test_given_parameters_and_limits_are_kept_where_they_spill(monkeypatch: pytest.MonkeyPatch) -> None:
    fusion = long_rows()
    bound, info = bind_inputs(fusion, LONG), DeviceInfo.preset("H200")
    segment = Segment(fusion, ReductionScheduler(), ())
    made = spilling(monkeypatch, lambda _: 8)
    params = KernelCompiler(info).propose(segment, bound)
    KernelCompiler(info).compile_segment(segment, bound, params)
    KernelCompiler(info, register_cap=32).compile_segment(segment, bound)
    assert len(made) == 2


def test_a_kernel_in_place_of_one_that_spills_serves_other_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked for by what is proposed, and compiled once."""
    fusion = long_rows()
    cache, device = ProgramCache(fusion), DeviceInfo.preset("H200")
    made = spilling(monkeypatch, lambda n: 8 if n == 1 else 0)
    target: Any = SimpleNamespace(info=device, kind="cuda", index=0)
    kernels = [
        cache.kernels(bind_inputs(fusion, [replace(LONG[0], sizes=(rows, 250_000))]), target, CompileOptions())
        for rows in (400, 401)
    ]
    assert kernels[0] == kernels[1]
    assert len(made) == 2


def test_a_kernel_that_needs_more_shared_memory_than_a_block_has_is_cut(
    monkeypatch: pytest.MonkeyPatch, unlowered: list[str]
) -> None:
    """What schedules count of buffers that are not laid out yet is an estimate: none is launched that cannot be."""
    monkeypatch.setattr(reduction_mappings, "scratch_bytes", lambda *_: 0)
    device = SimulatorDevice(info=replace(DeviceInfo.preset("sm_75"), shared_per_block_optin=4096))
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Double)
        for power in (1.5, 2.5):
            fd.add_output(fd.ops.var(fd.ops.pow(x, power), [0]))
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    bound = bind_inputs(fusion, [TensorDescriptor(DataType.Double, (384, 147_456), (147_456, 1))])
    cuts: list[str] = []
    recorder = Recorder()
    recorder.stage = lambda name, text: cuts.append(text()) if name == "segments.py" else None
    program = compile_fusion(fusion, bound, device, recorder=recorder)
    assert "bytes of shared memory, of 4096" in cuts[-1]
    assert len(program.kernels) > 1
    unlowered.clear()  # the slowest strategy says so
    for kernel in program.kernels.values():
        assert kernel.plan is not None
        assert kernel.plan.shared_bytes.value <= device.info.shared_per_block_optin
