"""`KernelCompiler`: one segment in, one `CompiledKernel` out, from its parameters to its binary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from fuser import options as environment
from fuser.codegen.generate import generate_cuda
from fuser.compiler.bind_inputs import BoundInputs, bind_inputs
from fuser.compiler.builds import at_once
from fuser.compiler.gc_paused import gc_paused
from fuser.compiler.kernel_bounds import (
    evaluated,
    fewer_blocks,
    has_spilled,
    spare_registers,
    threads_of_block,
    unplanned,
)
from fuser.compiler.recorder import DeferringRecorder, PassObserver, Recorder
from fuser.compiler.reproducer import fault_planter, with_reproducer
from fuser.compiler.segment_failures import (
    SizesRefusedError,
    ending,
    failed,
    in_steps,
    not_accepted,
    refused,
    shows_bugs,
    too_large,
)
from fuser.compiler.stage_texts import resource_text, schedule_text
from fuser.errors import CompilationError, DefinitionTypeError, InternalError, SchedulingError
from fuser.ir.device_info import INSTRUCTION_BYTES, DeviceInfo
from fuser.ir.fact_collection import collect_facts
from fuser.ir.fusion.fusion import Fusion, tensor_outputs
from fuser.ir.integers.proofs import ProofLog
from fuser.ir.kernel.kernel import Kernel, LaunchWait
from fuser.ir.kernel.kernel_demand import demand_of
from fuser.ir.kernel.launch_waits import starting_early
from fuser.ir.ops.enums import SchedulerType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.lowering.pipeline import lower_fusion
from fuser.missing_names import says_instead
from fuser.records import record
from fuser.runtime.devices.device import Device
from fuser.runtime.kernels.compiled_kernel import BlocksBy, CompiledKernel, content_hash
from fuser.runtime.kernels.variants import bound_options, registers_among, rung_of
from fuser.schedule.cost.kernel_split import choose_kernel_split
from fuser.schedule.cost.two_kernel_reduction import choose_two_kernels
from fuser.schedule.params import NoOpParams, Params
from fuser.schedule.print_params import params_line, params_text
from fuser.schedule.reasons import Reasons
from fuser.schedule.scheduler import Refused, SegmentInputs
from fuser.schedule.segmentation.registry import LAST_RESORT, scheduler_by_params
from fuser.schedule.segmentation.segment import AcceptError, Segment, accepting_schedulers, choose_scheduler
from fuser.source_location import caller_location
from fuser.tracebacks import short_tracebacks

if TYPE_CHECKING:
    from fuser.runtime.kernels.nvrtc import CompileResult


MOST_LOOKED_AT, MOST_INSTEAD = 64, 4
"""Candidates, the likeliest first, that are lowered in place of a proposal that spills, and of those that are compiled: that
takes as long as the proposal did."""


class Start(Protocol):
    """Starts a call, now or later; what it returns waits for the result, or raises what the call did."""

    def __call__(self, call: Callable[[], CompiledKernel], /) -> Callable[[], CompiledKernel]: ...


class SchedulableFusion(Protocol):
    """What the frontend hands over: an immutable fusion and its current schedule."""

    @property
    def ir_fusion(self) -> Fusion: ...

    schedule: ScheduleBuilder | None

    def check_leaves(self) -> None:
        """Raise DefinitionRuntimeError if an output needs a value that is no input."""


class Definition(Protocol):
    """A `FusionDefinition`: what defines a fusion, and has one once its `with` block begins."""

    @property
    def fusion(self) -> SchedulableFusion | None: ...


def checked_fusion(fusion: SchedulableFusion, call: str) -> Fusion:
    """The IR of what a user handed to `call`, complete. Raises DefinitionTypeError for what is no fusion."""
    if not isinstance(getattr(fusion, "ir_fusion", None), Fusion):
        raise DefinitionTypeError(
            f"{call}(): incompatible function arguments. Expected a Fusion, got {type(fusion).__name__}",
            location=caller_location(),
        )
    fusion.check_leaves()
    return fusion.ir_fusion


@record
class CompileOptions:
    """What changes generated code or its compilation besides the schedule.

    nvrtc_flags    flags of option lists (`--fmad=false`, ...)
    register_cap   explicit `maxrregcount` below 255, else None
    index_bits     32 or 64 to force the width of index arithmetic; None chooses from sizes
    min_blocks     second launch-bounds argument; 0 for none
    """

    nvrtc_flags: tuple[str, ...] = ()
    register_cap: int | None = None
    index_bits: int | None = None
    min_blocks: int = 0


@record
class Target:
    """What kernels are made for: limits, and whether a cubin is wanted."""

    info: DeviceInfo
    makes_cubin: bool

    @staticmethod
    def of(device: Device | DeviceInfo) -> Target:
        """Target of a device, or of a device known only by its limits (a cubin is made)."""
        if isinstance(device, DeviceInfo):
            return Target(device, True)
        if not isinstance(getattr(device, "info", None), DeviceInfo):
            raise DefinitionTypeError(
                f"KernelCompiler(): device must be a DeviceInfo, a device or None, got {type(device).__name__}; "
                "None is the current GPU, or the simulator; DeviceInfo.preset(name) makes one"
            )
        return Target(device.info, device.kind == "cuda")


@says_instead("KernelCompiler().compile(fd, [x, y]) makes a kernel, which a HostProgram launches")
@short_tracebacks
class KernelCompiler:
    """Compiles segments.

    device    a DeviceInfo or CUDA device (a cubin is made), a simulated device (none is), or None: the current GPU, else
              the simulator
    options   fields of CompileOptions, as keywords
    recorder  told of every stage, under names that begin with `prefix`

    Raises DefinitionTypeError for an option that does not exist.
    """

    def __init__(
        self,
        device: Device | DeviceInfo | None = None,
        *,
        recorder: Recorder | None = None,
        prefix: str = "",
        **options: Any,
    ) -> None:
        if device is not None:
            Target.of(device)
        self.device = device
        self.recorder = recorder if recorder is not None else Recorder()
        self.prefix = prefix
        known = CompileOptions.__match_args__
        unknown = [name for name in options if name not in known]
        if unknown:
            raise DefinitionTypeError(
                f"KernelCompiler(): incompatible function arguments: no option {unknown[0]!r}; known: {', '.join(known)}"
            )
        self.options = CompileOptions(**options)

    @staticmethod
    def with_options(
        device: Device | DeviceInfo | None, options: CompileOptions, recorder: Recorder, prefix: str = ""
    ) -> KernelCompiler:
        """A compiler with options that are already put together."""
        compiler = KernelCompiler(device, recorder=recorder, prefix=prefix)
        compiler.options = options
        return compiler

    def target(self) -> Target:
        """What kernels are made for."""
        if self.device is None:
            from fuser.runtime.arrays.device_choice import resolve_device

            self.device = resolve_device(())
        return Target.of(self.device)

    def compile(
        self,
        segment_or_fusion: Segment | Fusion | ScheduleBuilder | SchedulableFusion | Definition,
        inputs: Iterable[Any] | BoundInputs,
    ) -> CompiledKernel:
        """Schedule (unless already scheduled), lower, generate and compile a fusion, given by itself or by its definition.

        `inputs`: arrays, numbers or TensorDescriptors, one per input of the fusion.
        Raises SchedulingError if no scheduler takes it whole, CompilationError with the log if NVRTC refuses the text.
        """
        if isinstance(segment_or_fusion, Segment):
            bound = inputs if isinstance(inputs, BoundInputs) else bind_inputs(segment_or_fusion.fusion, inputs)
            return self._uncut(segment_or_fusion, bound)
        if isinstance(segment_or_fusion, ScheduleBuilder):
            bound = inputs if isinstance(inputs, BoundInputs) else bind_inputs(segment_or_fusion.fusion, inputs)
            return self.compile_scheduled(segment_or_fusion, bound)
        what: Any = getattr(segment_or_fusion, "fusion", segment_or_fusion)
        fusion = what if isinstance(what, Fusion) else getattr(what, "ir_fusion", None)
        if not isinstance(fusion, Fusion):
            raise DefinitionTypeError(
                f"KernelCompiler.compile takes a fusion, its definition or a segment, got {type(what).__name__}"
            )
        bound = inputs if isinstance(inputs, BoundInputs) else bind_inputs(fusion, inputs)
        schedule = None if isinstance(what, Fusion) else what.schedule
        if schedule is not None and schedule.records:
            return self.compile_scheduled(schedule, bound)
        scheduler, refusals = choose_scheduler(fusion)
        if scheduler is None:
            raise SchedulingError(
                "compile() makes one kernel, and no scheduler takes this fusion whole; fd.program(inputs) cuts it into "
                "several. Can not find a scheduler to schedule fusion segment: "
                + "; ".join(f"{t.name}: {reason}" for t, reason in refusals)
            )
        return self._uncut(Segment(fusion, scheduler, refusals), bound)

    def _uncut(self, segment: Segment, bound: BoundInputs) -> CompiledKernel:
        """The kernel of a segment that nobody will cut: what fails is told as it is."""
        try:
            with gc_paused():
                params = self.propose_uncut(segment, bound)
            return self.start_proposal(segment, bound, params)()[0]
        except SizesRefusedError as error:
            if error.failure is None:
                raise
            raise error.failure.error from error.failure.error.__cause__

    def propose(self, segment: Segment, bound: BoundInputs) -> Params:
        """`propose_uncut`; raises SizesRefusedError as well where the segment is better done by several kernels."""
        params = self.propose_uncut(segment, bound)
        inputs = SegmentInputs(bound.tensors, bound.evaluate)
        found = choose_two_kernels(segment.fusion, params, inputs, self.target().info)
        if found is not None:
            raise in_steps(segment.fusion, *found)
        ends = choose_kernel_split(segment.fusion, params, inputs, self.target().info)
        if ends is not None:
            raise ending(segment.fusion, *ends)
        return params

    def propose_uncut(self, segment: Segment, bound: BoundInputs) -> Params:
        """Parameters for these inputs, of the first scheduler that takes the segment's structure and its sizes.

        `scheduler_by_params(params)` is that scheduler; the reasons of those that refused the sizes stand before its
        own. Raises SizesRefusedError with every reason if none does, or with the error that a scheduler raised.
        """
        inputs = SegmentInputs(bound.tensors, bound.evaluate)
        refusals: list[str] = []
        types: list[SchedulerType] = []
        try:
            for scheduler in accepting_schedulers(segment):
                try:
                    params = scheduler.propose(segment.fusion, inputs, self.target().info)
                except Exception as error:
                    what = f"{scheduler.type.name} proposes nothing"
                    raise failed(segment.fusion, scheduler.type, what, error, bound) from error
                if not isinstance(params, Refused):
                    if refusals and not isinstance(params, NoOpParams):
                        return replace(params, reasons=_behind_refusals(refusals, params.reasons))
                    return params
                refusals.append(f"{scheduler.type.name}: {params.reason}")
                types.append(scheduler.type)
        except AcceptError as error:
            raise not_accepted(error) from error
        raise refused(segment.fusion, types, "no scheduler takes its sizes: " + "; ".join(refusals))

    def candidates(self, segment: Segment, bound: BoundInputs) -> tuple[Params, ...]:
        """What tuning measures, each once: what is proposed, what other schedulers propose, its scheduler's other candidates.

        Raises SizesRefusedError as `propose` does.
        """
        with gc_paused():
            proposed = self.propose(segment, bound)
            inputs, info = SegmentInputs(bound.tensors, bound.evaluate), self.target().info
            own = scheduler_by_params(proposed)
            found: dict[Params, None] = {proposed: None}
            # Others first: of those of one scheduler there may be more than are measured.
            for other in accepting_schedulers(segment):
                if other is not own:
                    found.update(dict.fromkeys(islice(other.candidates(segment.fusion, inputs, info), 1)))
            found.update(dict.fromkeys(own.candidates(segment.fusion, inputs, info)))
            return tuple(found)

    def compile_segment(
        self, segment: Segment, bound: BoundInputs, params: Params | None = None
    ) -> tuple[CompiledKernel, Params]:
        """The kernel of a segment, and the parameters it was scheduled with: those given, exactly, or as `start_proposal` says.

        Raises SizesRefusedError where a stage fails on what the scheduler proposes, SchedulingError under FUSER_VERIFY for an
        expr that is left to the last resort.
        """
        if params is not None:
            return self.start_segment(segment, bound, params)(), params
        with gc_paused():
            proposed = self.propose(segment, bound)
        return self.start_proposal(segment, bound, proposed)()

    def start_proposal(
        self, segment: Segment, bound: BoundInputs, params: Params, start: Start = at_once
    ) -> Callable[[], tuple[CompiledKernel, Params]]:
        """`start_segment` for parameters that a scheduler proposes; what is returned gives the kernel with its parameters.

        Where the binary spills, or leaves an SM room for fewer blocks than were planned, they are those of the first other
        candidate whose binary does neither, if there is one.
        """
        finish = self.start_segment(segment, bound, params, start)
        return lambda: self._as_planned(segment, bound, params, finish())

    def _as_planned(
        self, segment: Segment, bound: BoundInputs, params: Params, kernel: CompiledKernel
    ) -> tuple[CompiledKernel, Params]:
        """The kernel, or that of the next candidate in place of one whose registers are fewer than it was planned with.

        Only what leaves a thread more registers beside those it must keep is compiled. What a user asks for stands.
        """
        missed = unplanned(kernel)
        if not missed or self.options.register_cap is not None or self.options.min_blocks:
            return kernel, params
        inputs, info = SegmentInputs(bound.tensors, bound.evaluate), self.target().info
        of_block = f"a thread of {kernel.max_block_size} has {kernel.register_limit} registers"
        why = f"what is proposed {missed}: {of_block}"
        least, tried = spare_registers(kernel, bound), 0
        for other in islice(scheduler_by_params(params).candidates(segment.fusion, inputs, info), MOST_LOOKED_AT):
            if tried == MOST_INSTEAD:
                break
            if other == params or isinstance(other, NoOpParams):
                continue
            stages, found = DeferringRecorder(), replace(other, reasons=(why, *other.reasons))
            compiler = KernelCompiler.with_options(self.device, self.options, stages, self.prefix)
            try:
                lowered = compiler._lowered(segment, bound, found)
                if spare_registers(lowered, bound) <= least:
                    continue
                tried += 1
                made = compiler._finished(lowered, bound)
            except Exception as error:
                # Nothing is promised of a candidate.
                environment.logger().debug("a candidate is not compiled: %s", error)
                continue
            if not unplanned(made):
                stages.hand_to(self.recorder)
                environment.logger().info("%s; taken: %s", why, params_line(replace(found, reasons=())))
                return made, found
        environment.logger().info("%s; so do %d other candidates", why, tried)
        return kernel, params

    def start_segment(
        self, segment: Segment, bound: BoundInputs, params: Params, start: Start = at_once
    ) -> Callable[[], CompiledKernel]:
        """`compile_segment` in two steps: what is returned gives the kernel, whose binary `start` may make meanwhile.

        Both raise what `compile_segment` does.
        """
        scheduler = scheduler_by_params(params)
        if scheduler is LAST_RESORT:
            _tell_last_resort(segment)

        def failure(error: Exception) -> SizesRefusedError:
            what = f"what {scheduler.type.name} proposes cannot be lowered"
            return failed(segment.fusion, scheduler.type, what, error, bound)

        try:
            compiled = self._lowered(segment, bound, params)
            made = start(lambda: self._with_cubin(compiled, bound)) if self.target().makes_cubin else None
        except SizesRefusedError:
            raise
        except Exception as error:
            raise failure(error) from error

        def finish() -> CompiledKernel:
            try:
                return compiled if made is None else self._recorded(made())
            except Exception as error:
                raise failure(error) from error

        return finish

    def _lowered(self, segment: Segment, bound: BoundInputs, params: Params) -> CompiledKernel:
        """The kernel of these parameters without its binary. Raises whatever a stage does."""
        with gc_paused():
            scheduler = scheduler_by_params(params)
            self.recorder.stage(f"{self.prefix}params.py", lambda: f"# {scheduler.type.name}\n{params_text(params)}\n")
            scheduled = scheduler.apply(segment.fusion, params)
        compiled = self._without_cubin(scheduled, bound, segment)
        self._check_demand(compiled, segment, scheduler.type, bound)
        return compiled

    def _check_demand(
        self, kernel: CompiledKernel, segment: Segment, scheduler: SchedulerType, bound: BoundInputs
    ) -> None:
        """Raise SizesRefusedError for a kernel that asks for more shared memory than a block may have, and, if it can be cut,
        for one that must spill or is longer than the instruction cache."""
        self._check_shared(kernel, segment, scheduler, bound)
        if kernel.kernel_ir is None or len(segment.fusion.tensor_exprs) == 1:
            return
        demand = demand_of(kernel.kernel_ir.body)
        _, registers = rung_of(max(1, min(threads_of_block(kernel, bound), 1024)))
        info = self.target().info
        instructions = info.instruction_cache_bytes // INSTRUCTION_BYTES
        parts = max(-(-demand.registers // registers), -(-demand.instructions // instructions))
        if parts > 1:
            why = (
                f"a thread of the kernel that {scheduler.name} proposes keeps {demand.registers} registers, of {registers}, "
                f"and has some {demand.instructions} instructions, of {instructions} that are cached"
            )
            raise too_large(segment.fusion, scheduler, why, parts)

    def _check_shared(
        self, kernel: CompiledKernel, segment: Segment, scheduler: SchedulerType, bound: BoundInputs
    ) -> None:
        """Buffers are laid out when a kernel is lowered: what a scheduler counts of them before is an estimate."""
        if kernel.plan is None:
            return
        shared, most = evaluated(kernel.plan.shared_bytes, kernel, bound), self.target().info.shared_per_block_optin
        if shared > most:
            why = (
                f"a block of the kernel that {scheduler.name} proposes needs {shared} bytes of shared memory, of {most}"
            )
            raise too_large(segment.fusion, scheduler, why, -(-shared // most))

    def compile_scheduled(self, scheduled: ScheduleBuilder, bound: BoundInputs) -> CompiledKernel:
        """The kernel of a schedule, exactly as it stands."""
        return self._finished(self._without_cubin(scheduled, bound, None), bound)

    def _finished(self, compiled: CompiledKernel, bound: BoundInputs) -> CompiledKernel:
        return self._recorded(self._with_cubin(compiled, bound)) if self.target().makes_cubin else compiled

    def _recorded(self, made: CompiledKernel) -> CompiledKernel:
        """A kernel with its binary."""
        self.recorder.stage(f"{self.prefix}kernel.cubin", lambda: resource_text(made))
        return made

    @gc_paused()
    def _without_cubin(self, scheduled: ScheduleBuilder, bound: BoundInputs, segment: Segment | None) -> CompiledKernel:
        """The kernel with its CUDA text, ready for NVRTC."""
        facts = collect_facts(scheduled, bound.tensors, bound.evaluate, index_bits=self.options.index_bits)
        self.recorder.stage(f"{self.prefix}schedule.py", lambda: schedule_text(scheduled, facts))
        observer = PassObserver(self.recorder, self.prefix, fault_planter())
        proofs = ProofLog() if "proofs" in environment.VERIFY.get() else None
        try:
            kernel = lower_fusion(scheduled, facts, observer=observer, proofs=proofs)
        except InternalError as error:
            raise with_reproducer(error, scheduled, bound) from error
        if segment is not None and self.target().info.compute_capability >= (9, 0):
            # A cooperative grid is launched when all of its blocks have room.
            co_resident = segment.co_resident and not kernel.plan.cooperative
            kernel = replace(
                kernel, plan=replace(kernel.plan, starts_next=segment.starts_next, co_resident=co_resident)
            )
            if co_resident:
                # It needs nothing of the launch before, and ends after it.
                kernel = replace(kernel, body=(*kernel.body, LaunchWait()))
            elif segment.follows_kernel:
                kernel = starting_early(kernel)
        if proofs is not None:
            proved = proofs
            self.recorder.stage(f"{self.prefix}proofs.txt", lambda: proved.text())
        source = generate_cuda(kernel)
        self.recorder.stage(f"{self.prefix}kernel.cu", lambda: source.text)
        arch = self.target().info.arch
        return CompiledKernel(
            source=source.text,
            entry=source.entry,
            arch=arch,
            cubin=None,
            kernel_ir=kernel,
            parameters=kernel.parameters,
            plan=kernel.plan,
            facts=facts,
            resources=None,
            max_block_size=0,
            register_limit=255,
            options=self.options.nvrtc_flags,
            nvrtc_version=None,
            content_hash=content_hash(source.text, self.options.nvrtc_flags, arch, None, source.entry),
            register_cap=self.options.register_cap,
            min_blocks=self.options.min_blocks or kernel.min_blocks,
            blocks_by=_who_asks(self.options, kernel),
        )

    def _with_cubin(self, kernel: CompiledKernel, bound: BoundInputs) -> CompiledKernel:
        """The kernel with the binary of the rung that its block for these inputs falls in."""
        from fuser.runtime.kernels import nvrtc

        top, limit = rung_of(max(1, min(threads_of_block(kernel, bound), 1024)))

        def made(min_blocks: int) -> CompileResult:
            bounds = bound_options(top, min_blocks=min_blocks, register_cap=kernel.register_cap)
            try:
                return nvrtc.compile_to_cubin(kernel.source, [kernel.entry], kernel.arch, (*kernel.options, *bounds))
            except CompilationError as error:
                raise CompilationError(
                    f"{error.message}\nThe generated source is kept in the error's `source`.", log=error.log
                ) from error

        least = 0 if kernel.kernel_ir is None else demand_of(kernel.kernel_ir.body).registers
        # Each attempt takes as long as the first: those that must spill are left out.
        numbers = [n for n in fewer_blocks(kernel) if n == 1 or registers_among(n * top) >= least]
        if numbers and registers_among(max(1, kernel.min_blocks) * top) < least:
            kernel = replace(kernel, min_blocks=numbers.pop(0), blocks_by=BlocksBy.spills)
        result = made(kernel.min_blocks)
        spilled: list[int] = []
        if has_spilled(result, kernel.entry):
            spilled.append(kernel.min_blocks)
            for fewer in numbers:
                again = made(fewer)
                if not has_spilled(again, kernel.entry):
                    result, kernel = again, replace(kernel, min_blocks=fewer, blocks_by=BlocksBy.spills)
                    break
                spilled.append(fewer)
        return replace(
            kernel,
            spilled_with=tuple(spilled),
            cubin=result.cubin,
            resources=result.resources.get(kernel.entry),
            max_block_size=top,
            register_limit=kernel.register_cap or limit,
            nvrtc_version=result.version,
            content_hash=content_hash(kernel.source, kernel.options, kernel.arch, result.version, kernel.entry),
            log=result.log,
        )


def _tell_last_resort(segment: Segment) -> None:
    (expr,) = segment.fusion.tensor_exprs
    why = "; ".join(f"{t.name}: {reason}" for t, reason in segment.refusals)
    if shows_bugs():
        raise SchedulingError(
            f"Can not find a scheduler to schedule fusion segment {expr}: {why}",
            location=tensor_outputs(expr)[0].location,
        )
    names = ", ".join(t.name for t in tensor_outputs(expr))
    environment.logger().warning(
        "no scheduler takes the expr of %s: a kernel of its own computes it, slowly (%s)", names, why
    )


def _who_asks(options: CompileOptions, kernel: Kernel) -> BlocksBy:
    if options.min_blocks:
        return BlocksBy.user
    return BlocksBy.schedule if kernel.min_blocks else BlocksBy.compiler


def options_from_lists(enable: Iterable[str] | None, disable: Iterable[str] | None) -> CompileOptions:
    """Compile options of the enable and disable lists of an execution."""
    if not enable and not disable:
        # Every launch comes by here: what the environment says is parsed once for each of its texts.
        return _options_of_environment(environment.ENABLE.text(), environment.DISABLE.text())
    return CompileOptions(nvrtc_flags=environment.check_option_lists(enable, disable).nvrtc_flags)


def _behind_refusals(refusals: Sequence[str], reasons: Sequence[str]) -> Reasons:
    return Reasons(lambda: (*(f"sizes refused by {r}" for r in refusals), *reasons))


@lru_cache(maxsize=64)
def _options_of_environment(enable: str, disable: str) -> CompileOptions:
    """Compile options of an environment with these texts, which is the present one."""
    return CompileOptions(nvrtc_flags=environment.check_option_lists(None, None).nvrtc_flags)


__all__ = [
    "CompileOptions",
    "KernelCompiler",
    "Target",
    "checked_fusion",
    "options_from_lists",
]
