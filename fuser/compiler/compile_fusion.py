"""`compile_fusion`: the table of contents of the compiler. Fusion and inputs in, host program out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from fuser.compiler.bind_inputs import BoundInputs
from fuser.compiler.kernel_compiler import CompileOptions, KernelCompiler, SizesRefusedError
from fuser.compiler.recorder import Recorder
from fuser.compiler.uncollected import uncollected
from fuser.errors import CompilationError, InternalError, SchedulingError
from fuser.host_ir.build import build_host_program
from fuser.host_ir.program import HostProgram
from fuser.ir.concretize import concretize, resolutions
from fuser.ir.device_info import DeviceInfo
from fuser.ir.enums import SchedulerType
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion import Broadcast, Fusion, Permute, Reshape, Squeeze, Tensor, memory_order
from fuser.ir.print_fusion import definition_text
from fuser.ir.reshape_dims import Resolution
from fuser.ir.views import viewed
from fuser.optimize.pipeline import optimize_fusion
from fuser.runtime.compiled_kernel import CompiledKernel
from fuser.runtime.device import Device
from fuser.schedule.segment import Segment, SegmentedFusion, SizesRefused, segment_fusion

_T = TypeVar("_T")
MakeKernel = Callable[[int, Segment, BoundInputs], CompiledKernel]


@uncollected()
def plan_fusion(
    fusion: Fusion,
    recorder: Recorder,
    without: frozenset[SizesRefused] = frozenset(),
    reasons: Sequence[str] = (),
) -> SegmentedFusion:
    """Rows 3 and 4: what depends on the structure alone, and on who refused the sizes at hand (`reasons`: in words)."""
    recorder.stage("fusion.py", lambda: definition_text(fusion))
    optimized = optimize_fusion(fusion, recorder.stage)
    segmented = segment_fusion(optimized, without)
    recorder.stage("segments.py", lambda: segments_text(segmented, reasons))
    return segmented


def compile_segments(
    segmented: SegmentedFusion, bound: BoundInputs, make_kernel: MakeKernel, recorder: Recorder
) -> tuple[HostProgram, tuple[CompiledKernel | None, ...]]:
    """Rows 5 to 10: a kernel for each segment that needs one, and the program that runs them.

    Raises CompilationError with the errors of all segments that failed.
    """
    kernels: list[CompiledKernel | None] = []
    failures: list[str] = []
    for k, (segment, inputs) in enumerate(zip(segmented.segments, inputs_of_segments(segmented, bound), strict=True)):
        if segment.scheduler.type is SchedulerType.no_op:
            kernels.append(None)
            continue
        try:
            kernels.append(make_kernel(k, segment, inputs))
        except CompilationError as error:
            failures.append(f"segment {k}: {error}\n{error.log}")
            kernels.append(None)
    if failures:
        raise CompilationError("\n".join(failures))
    with uncollected():
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
    fusion = concrete_fusion(fusion, bound)

    def attempt(without: frozenset[SizesRefused], reasons: Sequence[str]) -> HostProgram:
        segmented = plan_fusion(fusion, recorder, without, reasons)
        several = len(segmented.segments) > 1

        def make(k: int, segment: Segment, inputs: BoundInputs) -> CompiledKernel:
            prefix = f"s{k}." if several else ""
            compiler = KernelCompiler.with_options(device, options or CompileOptions(), recorder, prefix)
            return compiler.compile_segment(segment, inputs)[0]

        return compile_segments(segmented, bound, make, recorder)[0]

    return until_sizes_fit(attempt)


def concrete_fusion(fusion: Fusion, bound: BoundInputs) -> Fusion:
    """The fusion with what depends on the inputs' sizes decided: dims of one element, which dims a reshape makes of which."""
    extents = {s.name: n for s, n in bound.extents.items()}
    return concretize(fusion, extents, resolved_reshapes(fusion, bound))


def resolved_reshapes(fusion: Fusion, bound: BoundInputs) -> tuple[Resolution, ...]:
    """How each reshape of a fusion is done for these inputs."""
    layouts = {n: list(zip(t.sizes, t.strides, strict=True)) for n, t in bound.tensors.items()}
    return resolutions(fusion, {s.name: n for s, n in bound.extents.items()}, layouts)


def until_sizes_fit(attempt: Callable[[frozenset[SizesRefused], Sequence[str]], _T]) -> _T:
    """Call `attempt` with no refusals first, then with those of the sizes of a segment, and with what they say.

    Segments are cut by structure: where nobody takes the sizes of one, or what is proposed cannot be lowered, the fusion is cut
    again, and who refused is not asked about the exprs of that segment, or about all of them. Raises SchedulingError if that
    does not help.
    """
    without: frozenset[SizesRefused] = frozenset()
    reasons: tuple[str, ...] = ()
    while True:
        try:
            return attempt(without, reasons)
        except SchedulingError as error:
            if not isinstance(error, SizesRefusedError) or error.refusals <= without:
                for reason in reasons:
                    error.add_note(f"the fusion was cut again because of {reason}")
                raise
            without |= error.refusals
            reasons = (*reasons, error.message)


def inputs_of_segments(segmented: SegmentedFusion, bound: BoundInputs) -> list[BoundInputs]:
    """The inputs of each segment: those of the fusion, and intermediates as the segments before it leave them."""
    # A value that updates an input has that input's layout, in its storage or in a temporary.
    known = {o.tensor.name: bound.tensors[o.alias_of.name] for o in segmented.fusion.outputs if o.alias_of is not None}
    known |= bound.tensors
    found: list[BoundInputs] = []
    for segment in segmented.segments:
        tensors = {t.name: known.get(t.name) or _dense(t, bound) for t in segment.fusion.input_tensors}
        found.append(BoundInputs((), tensors, bound.scalars, bound.extents))
        if segment.scheduler.type is SchedulerType.no_op:
            known |= _views(segment, tensors, bound)
    return found


def _dense(tensor: Tensor, bound: BoundInputs) -> TensorDescriptor:
    """An intermediate that a kernel writes."""
    sizes = tuple(1 if d.is_broadcast else bound.evaluate(d.extent) for d in tensor.visible)
    strides = [0] * len(sizes)
    running = 1
    for d in reversed(memory_order(tensor.stride_order)):
        strides[d] = running
        running *= sizes[d]
    return TensorDescriptor(tensor.dtype, sizes, tuple(strides))


def _views(segment: Segment, inputs: Mapping[str, TensorDescriptor], bound: BoundInputs) -> dict[str, TensorDescriptor]:
    """The views that a segment without a kernel makes: they have the strides of what they view."""
    made: dict[str, TensorDescriptor] = {}
    for expr in segment.fusion.tensor_exprs:
        if not isinstance(expr, (Broadcast, Squeeze, Permute, Reshape)):
            raise InternalError(f"{expr} is no view", pass_name="inputs_of_segments")
        source = made.get(expr.input.name) or inputs[expr.input.name]
        new_sizes = [1 if d.is_broadcast else bound.evaluate(d.extent) for d in expr.output.visible]
        dims = viewed(expr, list(zip(source.sizes, source.strides, strict=True)), new_sizes)
        if dims is None:
            raise InternalError(
                f"{expr.input.name} cannot be seen as {expr.output.name}", pass_name="inputs_of_segments"
            )
        sizes, strides = tuple(n for n, _ in dims), tuple(s for _, s in dims)
        made[expr.output.name] = replace(source, sizes=sizes, strides=strides)
    return made


def segments_text(segmented: SegmentedFusion, reasons: Sequence[str] = ()) -> str:
    """Each segment's scheduler, why those before it refused, and its exprs; first why the fusion was cut again, if it was."""
    lines = [f"# cut again: {reason}" for reason in reasons]
    for k, segment in enumerate(segmented.segments):
        lines.append(f"# segment {k}: {segment.scheduler.type.name}")
        lines += [f"#   {t.name} refused: {reason}" for t, reason in segment.refusals]
        lines.append(definition_text(segment.fusion))
    return "\n".join(lines) + "\n"
