"""`compile_fusion`: the table of contents of the compiler. Fusion and inputs in, host program out."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from fuser.compiler.bind_inputs import BoundInputs, updates_apart
from fuser.compiler.builds import Builds
from fuser.compiler.gc_paused import gc_paused
from fuser.compiler.kernel_compiler import CompileOptions, KernelCompiler, Start
from fuser.compiler.recorder import Recorder
from fuser.compiler.segment_failures import (
    Failure,
    Recut,
    SizesRefusedError,
    all_refused,
    not_accepted,
    until_sizes_fit,
)
from fuser.compiler.tuning_record import Chosen
from fuser.errors import CompilationError, InternalError
from fuser.host_ir.build import build_host_program
from fuser.host_ir.instructions.expressions import Size, SlotSource, size_value
from fuser.host_ir.instructions.slot_layouts import SlotLayouts, updated_by
from fuser.host_ir.program import HostProgram
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.concretize import concretize, resolutions
from fuser.ir.fusion.fusion import Fusion, Tensor
from fuser.ir.fusion.library_ops import LIBRARY_OPS
from fuser.ir.fusion.print_fusion import definition_text
from fuser.ir.fusion.reshape_dims import Resolution
from fuser.ir.fusion.views import viewed
from fuser.ir.ops.enums import SchedulerType
from fuser.optimize.end_kernels import end_kernels
from fuser.optimize.pipeline import optimize_fusion
from fuser.optimize.reduce_in_steps import reduce_in_steps
from fuser.runtime.devices.device import Device
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.layouts import row_major
from fuser.schedule.cost.kernel_split import KernelSplit
from fuser.schedule.cost.two_kernel_reduction import TwoKernelSplit
from fuser.schedule.segmentation.segment import AcceptError, Segment, SizeRefusal, refusals_of_both
from fuser.schedule.segmentation.segmentation import SegmentedFusion, segment_fusion

MakeKernel = Callable[[int, Segment, BoundInputs, Start], Callable[[], CompiledKernel]]
"""Begins with the kernel of a segment, whose binary is made as its last argument says; what it returns gives the kernel."""
ProgramKey = tuple[tuple[CompiledKernel | None, ...], frozenset[str]]
"""What a program is made of: kernels, and which inputs share no memory with others and may be updated before those are read."""


@gc_paused()
def plan_fusion(
    fusion: Fusion,
    recorder: Recorder,
    without: frozenset[Recut] = frozenset(),
    reasons: Sequence[str] = (),
) -> SegmentedFusion:
    """Optimize and segment: what depends on the structure alone, and on what is known of the sizes at hand: who refused them,
    what is better reduced in two steps, and where kernels had better end (`reasons`: in words)."""
    recorder.stage("fusion.py", lambda: definition_text(fusion))
    optimized = optimize_fusion(fusion, recorder.stage)
    last = dict(result for found in without if isinstance(found, TwoKernelSplit) for result in found.last)
    if last:
        optimized = reduce_in_steps(optimized, last)
        recorder.stage("fusion.in_steps.py", lambda: definition_text(optimized))
    ends = frozenset[str]().union(*(found.tensors for found in without if isinstance(found, KernelSplit)))
    if ends:
        optimized = end_kernels(optimized, ends)
        recorder.stage("fusion.ends.py", lambda: definition_text(optimized))
    try:
        segmented = segment_fusion(optimized, [found for found in without if isinstance(found, SizeRefusal)])
    except AcceptError as error:
        raise not_accepted(error) from error
    recorder.stage("segments.py", lambda: segments_text(segmented, reasons))
    return segmented


def compile_segments(
    segmented: SegmentedFusion,
    bound: BoundInputs,
    make_kernel: MakeKernel,
    recorder: Recorder,
    known: Mapping[ProgramKey, HostProgram] | None = None,
) -> tuple[HostProgram, tuple[CompiledKernel | None, ...]]:
    """A kernel for each segment that needs one, and the program that runs them, if it is not `known`.

    Binaries are made side by side. Raises CompilationError with the errors of all segments whose text NVRTC refused, or the
    SizesRefusedError that stands for it, and the SizesRefusedError of all segments that are to be cut.
    """
    wanted = [s.has_kernel for s in segmented.segments]
    kernels: list[CompiledKernel | None] = []
    failures = _Failures()
    with Builds(sum(wanted)) as builds:
        begun: list[Callable[[], CompiledKernel] | None] = []
        refused: list[SizesRefusedError] = []
        for k, (segment, inputs) in enumerate(
            zip(segmented.segments, inputs_of_segments(segmented, bound), strict=True)
        ):
            begun.append(None)
            if not wanted[k]:
                continue
            try:
                with failures.of(k, segment):
                    # The others are lowered all the same: what is to be cut of them is cut together.
                    begun[k] = make_kernel(k, segment, inputs, _not_built if refused else builds.start)
            except SizesRefusedError as error:
                refused.append(error)
        if refused:
            raise all_refused(refused)
        for k, (segment, finish) in enumerate(zip(segmented.segments, begun, strict=True)):
            kernels.append(None)
            if finish is not None:
                with failures.of(k, segment):
                    kernels[k] = finish()
    failures.check()
    made = tuple(kernels)
    key = program_key(made, segmented.fusion, bound)
    program = None if known is None else known.get(key)
    if program is None:
        with gc_paused():
            program = build_host_program(segmented, *key)
    text = program
    recorder.stage("host.py", lambda: f"{text!r}\n")
    return program, made


def program_key(kernels: tuple[CompiledKernel | None, ...], fusion: Fusion, bound: BoundInputs) -> ProgramKey:
    """That of the program of these kernels for these inputs."""
    # What one kernel assumes of shared memory are facts of its own.
    is_kernel = len(kernels) == 1 and kernels[0] is not None
    return kernels, frozenset() if is_kernel else updates_apart(fusion, bound)


def _not_built(call: Callable[[], CompiledKernel]) -> Callable[[], CompiledKernel]:
    """No binary, as nobody will ask: the fusion is cut again."""
    return call


class _Failures:
    """What NVRTC refused, of all segments."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._refusals: frozenset[Recut] = frozenset()
        self._reproduce: Callable[[], str] | None = None

    @contextmanager
    def of(self, k: int, segment: Segment) -> Generator[None]:
        """Keeps the refusal of a segment's text for later; others pass."""
        try:
            yield
        except CompilationError as error:
            self._texts.append(_refusal_text(k, segment, error))
        except SizesRefusedError as error:
            if error.failure is None or not isinstance(error.failure.error, CompilationError):
                raise
            self._texts.append(_refusal_text(k, segment, error.failure.error))
            self._refusals |= error.refusals
            self._reproduce = error.failure.reproduce

    def check(self) -> None:
        """Raise an error that tells of all, if there is any."""
        if not self._texts:
            return
        error = CompilationError("\n".join(self._texts))
        if self._reproduce is None:
            raise error
        raise SizesRefusedError(error.message, self._refusals, Failure(error, self._reproduce))


def _refusal_text(k: int, segment: Segment, error: CompilationError) -> str:
    """With the line of the user's program that the segment's first result comes from."""
    place = next((t.location for t in segment.fusion.output_tensors if t.location is not None), None)
    where = f"\n{place.describe()}" if place is not None and error.location is None else ""
    return f"segment {k}: {error}{where}\n{error.log}"


def compile_fusion(
    fusion: Fusion,
    bound: BoundInputs,
    device: Device | DeviceInfo,
    options: CompileOptions | None = None,
    recorder: Recorder | None = None,
    chosen: Chosen | None = None,
) -> HostProgram:
    """The whole way, nothing cached. `chosen`: what tuning has chosen, in place of what schedulers propose."""
    recorder = recorder if recorder is not None else Recorder()
    fusion = concrete_fusion(fusion, bound)

    def attempt(without: frozenset[Recut], reasons: Sequence[str]) -> HostProgram:
        segmented = plan_fusion(fusion, recorder, without, reasons)
        several = len(segmented.segments) > 1

        def make(k: int, segment: Segment, inputs: BoundInputs, start: Start) -> Callable[[], CompiledKernel]:
            prefix = f"s{k}." if several else ""
            compiler = KernelCompiler.with_options(device, options or CompileOptions(), recorder, prefix)
            best = None if chosen is None else chosen.winner_for(segment)
            with gc_paused():
                params = compiler.propose(segment, inputs) if best is None else best.params
            finish = compiler.start_proposal(segment, inputs, params, start)
            return lambda: finish()[0]

        return compile_segments(segmented, bound, make, recorder)[0]

    program = until_sizes_fit(attempt)
    if chosen is not None:
        recorder.stage("tuning.txt", chosen.text)
    return program


def concrete_fusion(fusion: Fusion, bound: BoundInputs) -> Fusion:
    """The fusion with what depends on the inputs' sizes decided: dims of one element, which dims a reshape makes of which."""
    extents = {s.name: n for s, n in bound.extents.items()}
    return concretize(fusion, extents, resolved_reshapes(fusion, bound))


def resolved_reshapes(fusion: Fusion, bound: BoundInputs) -> tuple[Resolution, ...]:
    """How each reshape of a fusion is done for these inputs."""
    layouts = {n: list(zip(t.sizes, t.strides, strict=True)) for n, t in bound.tensors.items()}
    return resolutions(fusion, {s.name: n for s, n in bound.extents.items()}, layouts)


def inputs_of_segments(segmented: SegmentedFusion, bound: BoundInputs) -> list[BoundInputs]:
    """The inputs of each segment: those of the fusion, and intermediates as the host program lays them out."""
    slots = _Slots(_placed(bound.tensors), bound.scalars)
    layouts: SlotLayouts | None = None
    found: list[BoundInputs] = []
    for segment in segmented.segments:
        tensors = {t.name: slots.known[t.name] for t in segment.fusion.input_tensors}
        found.append(BoundInputs((), tensors, bound.scalars, bound.extents))
        if segment is segmented.segments[-1] and segment.scheduler.type is not SchedulerType.no_op:
            break  # nothing reads what it makes
        layouts = layouts or SlotLayouts(segmented.fusion)
        for t in segment.fusion.output_tensors:
            if t.name not in slots.known:
                slots.known[t.name] = _intermediate(t, segment, layouts, slots)
    return found


def _placed(tensors: Mapping[str, TensorDescriptor]) -> dict[str, TensorDescriptor]:
    """Tensors that are nowhere yet, such as copies of host arrays, in places of their own: views of one then overlap it."""
    apart = 1 << 60
    return {
        name: t if t.address else replace(t, address=apart * (k + 1)) for k, (name, t) in enumerate(tensors.items())
    }


class _Slots:
    """Slots of a host program, by what is known of their tensors."""

    def __init__(self, known: dict[str, TensorDescriptor], scalars: Mapping[str, bool | int | float | complex]) -> None:
        self.known = known
        self._scalars = scalars

    def read(self, source: SlotSource) -> int:
        """Value of a leaf of a size."""
        if source.what == "scalar":
            return int(self._scalars[source.slot].real)
        t = self.known[source.slot]
        return (t.sizes if source.what == "extent" else t.strides)[source.dim]

    def values(self, sizes: Sequence[Size]) -> tuple[int, ...]:
        """Values of sizes."""
        return tuple(size_value(n, self) for n in sizes)


def _intermediate(t: Tensor, segment: Segment, layouts: SlotLayouts, slots: _Slots) -> TensorDescriptor:
    """What a segment makes of a value that others read."""
    if segment.scheduler.type is SchedulerType.no_op:
        view = layouts.view(t, slots.known)
        seen = slots.known[view.of]
        dims: list[tuple[int, int]] | None = list(zip(seen.sizes, seen.strides, strict=True))
        for expr in view.exprs:
            dims = None if dims is None else viewed(expr, dims, slots.values(layouts.shape(expr.output)))
        if dims is None:
            raise InternalError(
                f"no strides make {t.name} a view of {view.of} of shape {seen.sizes} and strides {seen.strides}",
                pass_name="build_host_program",
            )
        if not view.is_copied:
            return replace(seen, sizes=slots.values(view.sizes), strides=slots.values(view.strides))
        strides = layouts.own_strides(t)
    else:
        strides = layouts.strides(t, segment.fusion)
    sizes = slots.values(layouts.shape(t))
    made = TensorDescriptor(t.dtype, sizes, row_major(sizes) if strides is None else slots.values(strides))
    target = updated_by(t, segment.fusion)
    if target is None:
        return made
    # It may be written straight into what it updates.
    there = slots.known[target.name]
    return replace(made, alignment=there.alignment, address=there.address)


def segments_text(segmented: SegmentedFusion, reasons: Sequence[str] = ()) -> str:
    """Each segment's scheduler, why those before it refused, and its exprs; first why the fusion was cut again, if it was.
    Between two kernels, why they are not one."""
    lines = [f"# cut again: {reason}" for reason in reasons]
    for k, segment in enumerate(segmented.segments):
        before = segmented.segments[k - 1] if k else None
        if before is not None and before.has_kernel and segment.has_kernel:
            why = refusals_of_both(segmented.fusion, before, segment)
            lines += [f"# segments {k - 1} and {k} as one kernel"] if why else []
            lines += [f"#   {t.name} refused: {reason}" for t, reason in why]
        call = segment.call
        taker = segment.scheduler.type.name if call is None else f"a library: {LIBRARY_OPS[call.op].reason}"
        lines.append(f"# segment {k}: {taker}")
        lines += [f"#   {t.name} refused: {reason}" for t, reason in segment.refusals]
        lines.append(definition_text(segment.fusion))
    return "\n".join(lines) + "\n"
