"""`compile_fusion`: the table of contents of the compiler. Fusion and inputs in, host program out."""

from __future__ import annotations

from collections.abc import Callable

from fuser.compiler.bind_inputs import BoundInputs
from fuser.compiler.kernel_compiler import CompileOptions, KernelCompiler
from fuser.compiler.recorder import Recorder
from fuser.errors import CompilationError
from fuser.host_ir.build import build_host_program
from fuser.host_ir.program import HostProgram
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion import Fusion, memory_order
from fuser.ir.print_fusion import definition_text
from fuser.optimize.pipeline import optimize_fusion
from fuser.runtime.compiled_kernel import CompiledKernel
from fuser.runtime.device import Device
from fuser.schedule.segment import Segment, SegmentedFusion, segment_fusion

MakeKernel = Callable[[int, Segment, BoundInputs], CompiledKernel]


def plan_fusion(fusion: Fusion, recorder: Recorder) -> SegmentedFusion:
    """Rows 3 and 4: what depends on the structure alone."""
    recorder.stage("fusion.py", lambda: definition_text(fusion))
    optimized = optimize_fusion(fusion, recorder.stage)
    segmented = segment_fusion(optimized)
    recorder.stage("segments.py", lambda: segments_text(segmented))
    return segmented


def compile_segments(
    segmented: SegmentedFusion, bound: BoundInputs, make_kernel: MakeKernel, recorder: Recorder
) -> tuple[HostProgram, tuple[CompiledKernel | None, ...]]:
    """Rows 5 to 10: a kernel for each segment that needs one, and the program that runs them.

    Raises CompilationError with the errors of all segments that failed.
    """
    kernels: list[CompiledKernel | None] = []
    failures: list[str] = []
    for k, segment in enumerate(segmented.segments):
        if segment.scheduler.type.name == "no_op":
            kernels.append(None)
            continue
        try:
            kernels.append(make_kernel(k, segment, segment_inputs(segment, bound)))
        except CompilationError as error:
            failures.append(f"segment {k}: {error}\n{error.log}")
            kernels.append(None)
    if failures:
        raise CompilationError("\n".join(failures))
    program = build_host_program(segmented, kernels)
    recorder.stage("host.py", lambda: f"{program!r}\n")
    return program, tuple(kernels)


def compile_fusion(
    fusion: Fusion,
    bound: BoundInputs,
    device: Device | DeviceInfo,
    options: CompileOptions | None = None,
    recorder: Recorder | None = None,
) -> HostProgram:
    """The whole way, nothing cached."""
    recorder = recorder if recorder is not None else Recorder()
    segmented = plan_fusion(fusion, recorder)
    several = len(segmented.segments) > 1

    def make(k: int, segment: Segment, inputs: BoundInputs) -> CompiledKernel:
        prefix = f"s{k}." if several else ""
        compiler = KernelCompiler.with_options(device, options or CompileOptions(), recorder, prefix)
        return compiler.compile_segment(segment, inputs)[0]

    return compile_segments(segmented, bound, make, recorder)[0]


def segment_inputs(segment: Segment, bound: BoundInputs) -> BoundInputs:
    """Inputs of a segment: those of the fusion, and dense intermediates of the shapes that follow."""
    tensors: dict[str, TensorDescriptor] = {}
    for t in segment.fusion.input_tensors:
        known = bound.tensors.get(t.name)
        if known is None:
            sizes = tuple(1 if d.is_broadcast else bound.evaluate(d.extent) for d in t.visible)
            strides = [0] * len(sizes)
            running = 1
            for d in reversed(memory_order(t.stride_order)):
                strides[d] = running
                running *= sizes[d]
            known = TensorDescriptor(t.dtype, sizes, tuple(strides))
        tensors[t.name] = known
    return BoundInputs((), tensors, bound.scalars, bound.extents)


def segments_text(segmented: SegmentedFusion) -> str:
    """Each segment's scheduler, why those before it refused, and its exprs."""
    lines: list[str] = []
    for k, segment in enumerate(segmented.segments):
        lines.append(f"# segment {k}: {segment.scheduler.type.name}")
        lines += [f"#   {t.name} refused: {reason}" for t, reason in segment.refusals]
        lines.append(definition_text(segment.fusion))
    return "\n".join(lines) + "\n"
