"""`KernelExecutor`: one scheduled fusion, one kernel, one `LaunchKernel`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fuser.codegen.generate import generate_cuda
from fuser.compiler.bind_inputs import BoundInputs, bind_inputs, drawn_state
from fuser.compiler.compile_params import CompileParams
from fuser.compiler.kernel_compiler import CompileOptions, KernelCompiler, SchedulableFusion, checked_fusion
from fuser.compiler.recorder import recorder_from_environment
from fuser.errors import InputRuntimeError, LaunchLimitError, SchedulingError
from fuser.host_ir.build import build_host_program
from fuser.host_ir.program import HostProgram
from fuser.ir.fact_collection import declared_facts, vectorized_arguments
from fuser.ir.facts import DenseStride, UnitStride, ZeroStride, first_broken, layout_facts
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.integers.integers import Symbol
from fuser.ir.kernel.launch_plan import LIMIT_REMEDIES
from fuser.ir.ops.enums import GLOBAL_MEMORY, MemoryType, ParallelType, SchedulerType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.lowering.pipeline import lower_fusion
from fuser.missing_names import says_instead
from fuser.optimize.assign_output_layouts import assign_output_layouts
from fuser.records import record
from fuser.runtime.array_view import ArrayView
from fuser.runtime.arrays.device_choice import resolve_device
from fuser.runtime.devices.device import Device
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.kernels.launch_params import UNSET, LaunchParams
from fuser.source_location import caller_location
from fuser.tracebacks import short_tracebacks


@record(eq=False)
class _WholeSegment:
    """The fusion as its only segment."""

    fusion: Fusion
    extent_inputs: tuple[Symbol, ...] = ()


@record(eq=False)
class _WholeFusion:
    fusion: Fusion
    segments: Sequence[_WholeSegment]


_RUN = "fd.manual_execute([x, y]) runs a scheduled definition, ke.run([x, y]) what an executor has compiled"


@says_instead(_RUN, {"execute": _RUN})
@short_tracebacks
class KernelExecutor:
    """Compiles a fusion exactly as its schedule says and runs it; an unscheduled fusion is one serial thread.

    The numbers name the kernel in messages. `run` on inputs for which the compiled kernel's facts do not hold compiles the
    same schedule for them; a schedule that they cannot satisfy (a vectorized access to a misaligned pointer) is an error.
    """

    def __init__(self, fusion_id: int = 0, concrete_id: int = 0, runtime_id: int = 0, group_id: int = 0) -> None:
        self.ids = (fusion_id, concrete_id, runtime_id, group_id)
        self._schedule: ScheduleBuilder | None = None
        self._options = CompileOptions()
        self._programs: list[tuple[CompiledKernel, HostProgram, object]] = []
        self._constraints: LaunchParams | None = None
        self.scheduler_type = SchedulerType.none

    def compile(
        self,
        fusion: SchedulableFusion,
        args: Iterable[Any] = (),
        launch_constraints: LaunchParams | None = None,
        compile_params: CompileParams | None = None,
        scheduler_type: SchedulerType = SchedulerType.none,
    ) -> None:
        """Lower, generate and compile for inputs like `args`.

        Raises SchedulingError for an illegal schedule, CompilationError with the log if NVRTC refuses the text.
        """
        whole = checked_fusion(fusion, "KernelExecutor.compile")
        schedule = fusion.schedule if fusion.schedule is not None else serial_schedule(whole)
        self._schedule = schedule
        self._options = (compile_params or CompileParams()).options()
        self._constraints = launch_constraints
        self.scheduler_type = scheduler_type
        self._programs.clear()
        bound = bind_inputs(schedule.fusion, args)
        self._program_for(bound, _device_for(bound))

    def source_of(self, fusion: SchedulableFusion, compile_params: CompileParams | None = None) -> str:
        """CUDA source of a fusion as it is scheduled, for inputs laid out as declared; needs neither inputs nor a device."""
        options = (compile_params or CompileParams()).options()
        schedule = fusion.schedule if fusion.schedule is not None else serial_schedule(fusion.ir_fusion)
        return generate_cuda(lower_fusion(schedule, declared_facts(schedule, index_bits=options.index_bits))).text

    def is_compiled(self) -> bool:
        """Whether `compile` succeeded."""
        return bool(self._programs)

    def is_programmatic_dependent_launch_enabled(self) -> bool:
        """False: launches of one kernel have no edge between them."""
        return False

    @property
    def kernel(self) -> CompiledKernel:
        """The kernel compiled last. Raises SchedulingError if there is none."""
        if not self._programs:
            raise SchedulingError("the kernel is not compiled: call compile() first")
        return self._programs[-1][0]

    def run(
        self,
        args: Iterable[Any],
        launch_constraints: LaunchParams | None = None,
        compile_params: CompileParams | None = None,
    ) -> list[Any]:
        """Compute launch sizes and launch; a larger block than the binary allows compiles a variant.

        Raises SchedulingError if nothing is compiled, LaunchError for sizes that cannot be launched.
        """
        if self._schedule is None or not self._programs:
            raise SchedulingError("the kernel is not compiled: call compile() first")
        if compile_params is not None and compile_params.options() != self._options:
            self._options = compile_params.options()
            self._programs.clear()
        bound = bind_inputs(self._schedule.fusion, args)
        device = _device_for(bound)
        constraints = launch_constraints if launch_constraints is not None else self._constraints
        kernel, program = self._program_for(bound, device)
        _check_constraints(kernel, bound, constraints)
        state = drawn_state(self._schedule.fusion, bound, device)
        try:
            return program.run((*bound.values, *state), device=device)
        except LaunchLimitError as error:
            raise _beyond_limits(error, self._schedule) from None

    def _program_for(self, bound: BoundInputs, device: Device) -> tuple[CompiledKernel, HostProgram]:
        assert self._schedule is not None
        place = (device.kind, device.index)
        for kernel, program, where in self._programs:
            if where == place and first_broken(kernel.facts, bound.tensors, bound.evaluate) is None:
                return kernel, program
        check_vector_access(self._schedule, bound)
        recorder = recorder_from_environment()
        try:
            kernel = KernelCompiler.with_options(device, self._options, recorder).compile_scheduled(
                self._schedule, bound
            )
        finally:
            recorder.finish()
        whole = _WholeFusion(self._schedule.fusion, (_WholeSegment(self._schedule.fusion),))
        program = build_host_program(whole, (kernel,))
        self._programs.append((kernel, program, place))
        return kernel, program


def serial_schedule(fusion: Fusion) -> ScheduleBuilder:
    """One serial thread: everything inlined as deep as it goes, the rest kept in device memory."""
    schedule = ScheduleBuilder(assign_output_layouts(fusion))
    for name, state in list(schedule.states.items()):
        # Innermost, the reduced axes need one accumulator; outside of kept axes they would need one per kept element.
        order = sorted(range(len(state.loop)), key=lambda i: state.loop[i].is_reduction)
        if order != list(range(len(order))):
            schedule.reorder(name, {old: new for new, old in enumerate(order)})
    schedule.inline_most()
    for name, state in list(schedule.states.items()):
        kept = sum(not axis.is_reduction and not axis.is_broadcast for axis in state.loop[state.inline_at :])
        if kept and state.memory is MemoryType.local:
            schedule.set_memory_type(name, GLOBAL_MEMORY)
    return schedule


def check_vector_access(schedule: ScheduleBuilder, bound: BoundInputs) -> None:
    """Raise InputRuntimeError for an input whose address or strides do not suit the accesses that the schedule asks for.

    A schedule of the user's own is not changed to fit: `execute` would take another kernel.
    """
    for tensor, width in vectorized_arguments(schedule):
        described = bound.tensors.get(tensor.name)
        if described is None or described.numel == 0:
            continue
        nbytes = width * tensor.dtype.itemsize
        what = f"input {tensor.name} is accessed {nbytes} bytes at a time by its schedule (vectorize by {width}), but"
        if described.alignment % nbytes:
            raise InputRuntimeError(
                f"{what} its address {described.address:#x} is aligned to {described.alignment} bytes; an alignment of "
                f"{nbytes} bytes is needed",
                location=tensor.location,
            )
        dense = {
            f.dim for f in layout_facts(tensor.name, described) if isinstance(f, (UnitStride, ZeroStride, DenseStride))
        }
        for d, (n, s) in enumerate(zip(described.sizes, described.strides, strict=True)):
            if n > 1 and d not in dense and s * tensor.dtype.itemsize % nbytes:
                raise InputRuntimeError(
                    f"{what} the stride of its dimension {d} is {s} elements, {s * tensor.dtype.itemsize} bytes; a multiple of "
                    f"{nbytes} bytes is needed (shape {list(described.sizes)}, strides {list(described.strides)})",
                    location=tensor.location,
                )


def _beyond_limits(error: LaunchLimitError, schedule: ScheduleBuilder) -> LaunchLimitError:
    """The error at the user's line that bound an axis or a tensor to what there is too little of."""
    what, _, axis = error.resource.partition(".")
    causes: list[object] = [MemoryType.shared] if what == "shared" else [getattr(ParallelType, f"{what}_{axis or 'x'}")]
    if what == "block" and not axis:
        causes = [ParallelType.block_x, ParallelType.block_y, ParallelType.block_z]
    remedy = LIMIT_REMEDIES.get(what, "")
    return LaunchLimitError(
        f"{error.message}: {remedy}", resource=error.resource, location=schedule.place_of(*causes) or error.location
    )


def _device_for(bound: BoundInputs) -> Device:
    return resolve_device([v for v in bound.values if isinstance(v, ArrayView) and v.array is not None])


def _check_constraints(kernel: CompiledKernel, bound: BoundInputs, constraints: LaunchParams | None) -> None:
    """Extents that the caller set must be those of the schedule."""
    if constraints is None or kernel.plan is None:
        return
    names = ("gdimx", "gdimy", "gdimz", "bdimx", "bdimy", "bdimz")
    values = {
        b.symbol: next((v for s, v in bound.extents.items() if s.name == b.symbol.name), 1)
        for b in kernel.plan.bindings
    }
    for name, wanted, extent in zip(names, constraints.extents, (*kernel.plan.grid, *kernel.plan.block), strict=True):
        if wanted != UNSET and extent.evaluate(values) != wanted:
            raise SchedulingError(
                f"launch constraint {name}={wanted} contradicts the schedule, which needs {extent.evaluate(values)}",
                location=caller_location(),
            )
