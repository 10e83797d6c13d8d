"""Cases compiled for a device without one at hand, from descriptors of their real sizes: nothing is allocated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.case import Case, define_fusion
from fuser.compiler.bind_inputs import BoundInputs, bind_inputs
from fuser.compiler.compile_fusion import compile_fusion, concrete_fusion, inputs_of_segments, plan_fusion
from fuser.compiler.kernel_compiler import CompileOptions, KernelCompiler
from fuser.compiler.program_cache import CacheCounters, ProgramCache
from fuser.compiler.recorder import Recorder
from fuser.compiler.segment_failures import Recut, until_sizes_fit
from fuser.errors import FuserError
from fuser.host_ir.program import HostProgram
from fuser.ir.device_info import H200, DeviceInfo
from fuser.schedule.params import Params
from fuser.schedule.segmentation.segment import Segment
from fuser.schedule.segmentation.segmentation import SegmentedFusion


class TextOnly:
    """A device that no machine code is made for; only its limits are asked."""

    kind, index = "simulator", 0

    def __init__(self, info: DeviceInfo = H200) -> None:
        self.info = info


def compile_case(
    case: Case, info: DeviceInfo = H200, *, with_cubin: bool = True, recorder: Recorder | None = None
) -> HostProgram:
    """The program that runs the case on such a device, as `execute` would compile it.

    Raises NotSupportedError for a case with an op that is not there yet.
    """
    fusion = ir_fusion(case)
    bound = bind_case(case, fusion)
    device: Any = info if with_cubin else TextOnly(info)
    return compile_fusion(fusion, bound, device, recorder=recorder)


def ir_fusion(case: Case) -> Any:
    """The case's fusion, as the compiler takes it."""
    fusion = define_fusion(case).fusion
    assert fusion is not None
    return fusion.ir_fusion


def bind_case(case: Case, fusion: Any) -> BoundInputs:
    """Its inputs without data. As `execute` does, this leaves the extents that have to be equal to the concrete fusion."""
    return bind_inputs(fusion, [i.descriptor() for i in case.inputs], check_extents=False)


def proposed(case: Case, info: DeviceInfo = H200) -> list[tuple[Segment, Params]]:
    """The segments of a case, and what schedulers propose for them; nothing is lowered.

    Raises NotSupportedError as `compile_case` does.
    """
    return planned(case, info)[1]


def planned(case: Case, info: DeviceInfo = H200) -> tuple[SegmentedFusion, list[tuple[Segment, Params]]]:
    """The same, and the fusion of those segments."""
    fusion = ir_fusion(case)
    bound = bind_case(case, fusion)
    fusion = concrete_fusion(fusion, bound)
    compiler = KernelCompiler(info)

    def attempt(
        without: frozenset[Recut], reasons: Sequence[str]
    ) -> tuple[SegmentedFusion, list[tuple[Segment, Params]]]:
        segmented = plan_fusion(fusion, Recorder(), without, reasons)
        bindings = inputs_of_segments(segmented, bound)
        given = zip(segmented.segments, bindings, strict=True)
        return segmented, [(s, compiler.propose(s, inputs)) for s, inputs in given]

    return until_sizes_fit(attempt)


def with_more_rows(case: Case, factor: int) -> BoundInputs | None:
    """The inputs with `factor` times the first extent of the largest one, wherever it is that of another; None if inputs do not
    go together then: not all that have this extent have it for that reason."""
    fusion = ir_fusion(case)
    largest = max(case.inputs, key=lambda i: i.numel)
    rows, rank = largest.shape[:1], len(largest.shape)
    for least in (1, rank):
        grown = [
            replace(i, shape=(i.shape[0] * factor, *i.shape[1:]))
            if i.shape[:1] == rows and len(i.shape) >= least
            else i
            for i in case.inputs
        ]
        try:
            return bind_inputs(fusion, [i.descriptor() for i in grown])
        except FuserError:
            continue
    return None


def compile_together(cases: Iterable[Case], info: DeviceInfo = H200) -> CacheCounters:
    """What one cache counts over cases that differ in their inputs' sizes alone. Definitions have symbolic extents."""
    given = list(cases)
    fusion = ir_fusion(given[0])
    cache = ProgramCache(fusion)
    device: Any = TextOnly(info)
    for case in given:
        cache.program(bind_case(case, fusion), device, CompileOptions())
    return cache.counters
