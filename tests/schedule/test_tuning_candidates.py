"""Neighbours of proposals: each differs in something, is lowered or refused, and computes what the proposal does."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import concrete_fusion, inputs_of_segments, plan_fusion
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.compiler.recorder import Recorder
from fuser.compiler.segment_failures import SizesRefusedError
from fuser.ir.device_info import H200, DeviceInfo
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.schedule.params import NoOpParams, Params, PointwiseParams, ReductionParams
from fuser.schedule.print_params import difference
from fuser.schedule.scheduler import Accepted, Refused, Scheduler, SegmentInputs
from fuser.schedule.segmentation.registry import scheduler_by_params
from fuser.schedule.tuning_candidates import neighbours
from fuser.simulator.device import SimulatorDevice
from tests.fusions.fusion_corpus import ALIGNED, CORPUS, RAGGED

SIZES = {"aligned": ALIGNED, "ragged": RAGGED}


def segments(name: str, sizes: str) -> Any:
    case = next(c for c in CORPUS if c.name == name)
    fusion = case.define().fusion
    assert fusion is not None
    bound = bind_inputs(fusion.ir_fusion, case.inputs(SIZES[sizes]))
    segmented = plan_fusion(concrete_fusion(fusion.ir_fusion, bound), Recorder())
    return zip(segmented.segments, inputs_of_segments(segmented, bound), strict=True)


def failure_of(compiler: KernelCompiler, segment: Any, inputs: Any, params: Any) -> Exception | None:
    """What a stage failed with; none where a kernel is only too large for what a thread has."""
    try:
        compiler.start_segment(segment, inputs, params)()
    except SizesRefusedError as error:
        return None if error.failure is None else error.failure.error
    return None


@pytest.mark.in_turns
@pytest.mark.parametrize("name", [c.name for c in CORPUS])
def test_every_candidate_is_lowered_or_refused(name: str) -> None:
    compiler = KernelCompiler(SimulatorDevice())
    for sizes in ("aligned", "ragged"):
        for segment, inputs in segments(name, sizes):
            try:
                proposed = compiler.propose(segment, inputs)
            except SizesRefusedError:
                continue
            found = compiler.candidates(segment, inputs)
            assert found[0] == proposed
            assert len(set(found)) == len(found)
            given = SegmentInputs(inputs.tensors, inputs.evaluate)
            own = list(scheduler_by_params(proposed).candidates(segment.fusion, given, H200))
            assert set(own) <= set(found)
            # Tuning asks for a few of them; each can be made.
            assert all(difference(proposed, p) != "nothing" for p in neighbours(proposed, H200))
            for params in found[1:]:
                assert difference(proposed, params) != "nothing"
                assert failure_of(compiler, segment, inputs, params) is None


class Giving(Scheduler):
    """Proposes what it is given."""

    def __init__(self, given: Params | Refused) -> None:
        self.given = given

    def accepts(self, segment: Fusion) -> Accepted | Refused:
        return Accepted()

    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused:
        return self.given

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        raise AssertionError


def candidates_of(given: Params | Refused) -> list[Params]:
    anything: Any = None
    return list(Giving(given).candidates(anything, anything, H200))


def test_a_refusal_has_no_candidates() -> None:
    assert candidates_of(Refused("no")) == []


def test_differences_in_words() -> None:
    old = PointwiseParams((0,), ((1,),), 4, (("t0", 4),), (256, 1))
    assert difference(old, old) == "nothing"
    wide = PointwiseParams((0,), ((1,),), 4, (("t0", 4),), (128, 1), unroll=2)
    assert difference(old, wide) == "block_shape (128, 1) instead of (256, 1), unroll 2 instead of 1"
    other = ReductionParams((0,), True, 32, 1, 1, (), 1)
    assert difference(old, other) == "ReductionParams instead of PointwiseParams"
    assert list(neighbours(NoOpParams(), H200)) == []


def test_blocks_that_wait_for_one_another_stay_as_many() -> None:
    together = ReductionParams((0, 1), True, 256, 1, 4, ("t0",), 16, cluster=True)
    assert {
        (p.grid_reduce, p.block_reduce, p.cluster) for p in neighbours(together, H200) if isinstance(p, ReductionParams)
    } == {(16, 256, True)}
    counted = Counter(type(p) for p in neighbours(together, H200))
    assert set(counted) == {ReductionParams}


def test_reasons_say_what_differs() -> None:
    old = PointwiseParams((0,), ((1,),), 1, (), (256, 1), reasons=("because",))
    given, first, *_ = candidates_of(old)
    assert given is old
    assert isinstance(first, PointwiseParams)
    assert first.reasons == (f"unlike the proposal: {difference(old, first)}",)
    assert np.prod(first.block_shape) == 128
