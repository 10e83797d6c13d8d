"""Scheduling verbs and queries of the handles: the one place where handles meet `fuser.ir.schedule.ScheduleBuilder`.

A verb freezes the definition if it is still open, and appends a record to its schedule. A query reads the scheduled
state if a schedule has begun, else the definition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from fuser.errors import DefinitionRuntimeError, NotSupportedError, SchedulingError
from fuser.frontend.fusion_handle import active_fusion
from fuser.frontend.handles import Expr, IterDomain, TensorView, Val
from fuser.frontend.operation import ArgumentMismatch, bool_argument, int_argument, int_list_argument, operation
from fuser.ir import fusion as ir
from fuser.ir.enums import CacheOp, LoadStoreOpType, MemoryType, ParallelType
from fuser.ir.named_enums import Named
from fuser.ir.user_names import value_name
from fuser.source_location import caller_location

if TYPE_CHECKING:
    from fuser.compiler.compile_params import CompileParams
    from fuser.frontend.fusion_handle import Fusion
    from fuser.ir.schedule import ScheduleBuilder


# --- queries ----------------------------------------------------------------------------------------------------------


def current_exprs(fusion: Fusion) -> list[ir.Expr]:
    """Exprs as scheduled so far, host arithmetic included."""
    schedule = fusion.schedule
    if schedule is None:
        return fusion.all_exprs
    host = [e for e in fusion.ir_fusion.exprs if isinstance(e, (ir.ScalarOp, ir.ExtentOp))]
    return [*host, *schedule.exprs]


def current_tensor(tv: TensorView) -> ir.Tensor:
    """The tensor as verbs left it (rfactor changes its dims)."""
    schedule = tv.fusion.schedule
    if schedule is None or tv.node.name not in schedule.states:
        return tv.node
    return schedule.state(tv.node.name).tensor


def loop_domain(tv: TensorView) -> Sequence[ir.IterDomain]:
    """Axes of the loop nest."""
    schedule = tv.fusion.schedule
    if schedule is None or tv.node.name not in schedule.states:
        return tv.node.logical
    return schedule.state(tv.node.name).loop


def definition(val: Val) -> Expr | None:
    """The expr that computes a value."""
    name = val.node.name
    for expr in current_exprs(val.fusion):
        if any(v.name == name for v in ir.expr_outputs(expr)):
            return val.fusion.expr_handle(expr)
    return None


def uses(val: Val) -> list[Expr]:
    """The exprs that read a value, in order."""
    name = val.node.name
    readers = (e for e in current_exprs(val.fusion) if any(v.name == name for v in ir.expr_inputs(e)))
    return [val.fusion.expr_handle(e) for e in readers]


def uses_of_axis(axis: IterDomain) -> list[Expr]:
    """Splits and merges of the tensor that take the axis, from its loop domain back to its dims."""
    found: dict[ir.Transform, None] = {}
    pending = list(loop_domain(axis.tensor))
    while pending:
        made_by = pending.pop().definition
        if made_by is None:
            continue
        sources = [made_by.source] if isinstance(made_by, ir.Split) else [made_by.outer, made_by.inner]
        if axis.node in sources:
            found[made_by] = None
        pending.extend(sources)
    return [axis.fusion.transform_handle(axis.tensor, t) for t in found]


def math_text(fusion: Fusion, from_outputs_only: bool) -> str:
    """The exprs as text: as scheduled if a schedule has begun."""
    from fuser.ir.print_fusion import math_text as print_exprs

    current = fusion.ir_fusion
    if fusion.schedule is not None or not from_outputs_only:
        return print_exprs(current, current_exprs(fusion))
    return print_exprs(current)


def kernel_text(fusion: Fusion, compile_params: CompileParams | None) -> str:
    """CUDA source of the fusion as currently scheduled."""
    from fuser.compiler.kernel_executor import KernelExecutor

    executor = KernelExecutor()
    return executor.source_of(fusion, compile_params)


def schedule_text(fusion: Fusion) -> str:
    """The records of the schedule, one a line; empty if there is none."""
    return "" if fusion.schedule is None else str(fusion.schedule)


# --- verbs ------------------------------------------------------------------------------------------------------------


def _schedule_of(tv: TensorView) -> tuple[ScheduleBuilder, str]:
    """The schedule that a verb on `tv` changes, and the tensor's name in it."""
    return begun_schedule(tv), tv.node.name


def begun_schedule(tv: TensorView) -> ScheduleBuilder:
    """The schedule that has `tv` in it. Raises SchedulingError if no output needs the tensor; a definition without outputs
    stays open.
    """
    active = active_fusion()
    if active is not None and tv.fusion is not active:
        raise DefinitionRuntimeError(
            f"{tv} belongs to another fusion; it is scheduled in the `with` block that made it, or after it",
            location=caller_location(),
        )
    if tv.fusion.schedule is None and not tv.fusion.outputs():
        raise SchedulingError(
            f"{tv} cannot be scheduled: no output is named yet; scheduling begins after the last fd.add_output",
            location=caller_location(),
        )
    schedule = tv.fusion.start_schedule()
    if tv.node.name not in schedule.states:
        raise SchedulingError(f"{tv} cannot be scheduled: no output of the fusion needs it", location=caller_location())
    return schedule


def _note_place(schedule: ScheduleBuilder) -> None:
    """Remember the user's line of the verb that has just been recorded, for limits that show at a launch."""
    place = caller_location()
    if place is not None:
        schedule.places[len(schedule.records) - 1] = place


def _wrong_member(name: str, value: object, kind: type[Enum]) -> str:
    member = kind.__members__.get(value) if isinstance(value, str) else None
    if member is None and isinstance(kind, Named):
        member = kind.spelled(value.lower() if isinstance(value, str) else value)
    meant = "" if member is None else f": write {member!r}"
    return f"{name} must be a {kind.__name__}, got {type(value).__name__}{meant}."


def _enum_argument(name: str, value: object, kind: type[Enum]) -> None:
    if value is not None and not isinstance(value, kind):
        raise ArgumentMismatch(_wrong_member(name, value, kind))


def _handle(tv: TensorView, name: str) -> TensorView:
    """The handle of a tensor that a verb created."""
    return tv.fusion.tensor_handle(tv.fusion.start_schedule().state(name).tensor)


@operation("split(axis: int, factor: int, inner_split: bool = True) -> TensorView")
def split(tv: TensorView, axis: int, factor: int, inner_split: bool) -> TensorView:
    at, by = int_argument("axis", axis), int_argument("factor", factor)
    is_inner = bool_argument("inner_split", inner_split)
    # Before the outputs are named, the method that other libraries have under this name may be meant.
    if tv.fusion.schedule is None and not tv.fusion.outputs():
        raise SchedulingError(
            f"no output is named yet, and split() is a scheduling verb: {_called(tv)}.split({at}, {by}) after the last "
            "fd.add_output splits a loop axis. The parts that split gives in other libraries are slices: "
            f"{_parts(tv, at, by)}",
            location=caller_location(),
        )
    schedule, name = _schedule_of(tv)
    schedule.split(name, at, by, is_inner)
    return tv


def _called(tv: TensorView) -> str:
    """A tensor as the user's program writes it; `x` where it has no name."""
    name = value_name(tv.fusion.ir_fusion, tv.node).partition(" (")[0]
    return "x" if name == tv.node.name else name


def _parts(tv: TensorView, axis: int, factor: int) -> str:
    """The parts of a tensor as slices, for `split(dim, size)` or the `split(size, dim)` of other libraries."""
    for dim, size in ((axis, factor), (factor, axis)):
        if -tv.ndim <= dim < tv.ndim and size > 0:
            whole = ":, " * (dim % tv.ndim)
            return f"{_called(tv)}[{whole}:{size}], {_called(tv)}[{whole}{size}:]"
    return "x[:, :4], x[:, 4:]"


@operation("merge(axis_o: int, axis_i: int | None = None) -> TensorView")
def merge(tv: TensorView, axis_o: int, axis_i: int | None) -> TensorView:
    outer = int_argument("axis_o", axis_o)
    inner = None if axis_i is None else int_argument("axis_i", axis_i)
    schedule, name = _schedule_of(tv)
    schedule.merge(name, outer, inner)
    return tv


@operation("reorder(old2new: dict[int, int]) -> TensorView")
def reorder(tv: TensorView, old2new: Mapping[int, int]) -> TensorView:
    if not isinstance(old2new, Mapping):
        raise ArgumentMismatch(
            f"old2new must be a dict, got {type(old2new).__name__}: write {{old: new}}, as in {{0: 1}}."
        )
    moves = {int_argument("old2new", o): int_argument("old2new", n) for o, n in old2new.items()}
    schedule, name = _schedule_of(tv)
    schedule.reorder(name, moves)
    return tv


def swizzle(tv: TensorView, x: int, y: int) -> TensorView:
    raise NotSupportedError(
        f"swizzle({x}, {y}) is not supported yet: schedules have splits, merges and permutations of axes",
        location=caller_location(),
    )


def swizzle1d(tv: TensorView, x: int, parallel_type: ParallelType) -> TensorView:
    raise NotSupportedError("swizzle1d needs several GPUs, which are not supported yet", location=caller_location())


def set_device_mesh(tv: TensorView, mesh: object) -> None:
    raise NotSupportedError("device meshes need several GPUs, which are not supported yet", location=caller_location())


@operation("rfactor(axes: Sequence[int]) -> TensorView")
def rfactor(tv: TensorView, axes: Sequence[int]) -> TensorView:
    wanted = int_list_argument("axes", axes)
    schedule, name = _schedule_of(tv)
    created = schedule.rfactor(name, wanted)
    if isinstance(created, tuple):
        # Results of a Welford reduction are factored together; the producer of this one is asked for.
        created = created[schedule.siblings(name).index(name)]
    return _handle(tv, created)


@operation(
    "cache_after(op_type: LoadStoreOpType = LoadStoreOpType.set, cache_op: CacheOp = CacheOp.unspecified, "
    "propagate_allocation_domain: bool = True, cached_uses: Sequence[Expr] = []) -> TensorView"
)
def cache_after(
    tv: TensorView,
    op_type: LoadStoreOpType | None,
    cache_op: CacheOp | None,
    propagate_allocation_domain: bool,
    cached_uses: Sequence[Expr],
) -> TensorView:
    for expr in cached_uses:
        if not isinstance(expr, Expr):
            raise ArgumentMismatch(f"cached_uses must hold Exprs, got {type(expr).__name__}.")
    _enum_argument("op_type", op_type, LoadStoreOpType)
    _enum_argument("cache_op", cache_op, CacheOp)
    schedule, name = _schedule_of(tv)
    readers: list[str] = [str(result.node.name) for e in cached_uses for result in e.outputs[:1]]
    created = schedule.cache_after(
        name,
        op_type or LoadStoreOpType.set,
        cache_op or CacheOp.unspecified,
        propagate_allocation_domain,
        readers,
    )
    return _handle(tv, created)


@operation("cache_before(op_type: LoadStoreOpType = LoadStoreOpType.set) -> TensorView")
def cache_before(tv: TensorView, op_type: LoadStoreOpType | None) -> TensorView:
    _enum_argument("op_type", op_type, LoadStoreOpType)
    schedule, name = _schedule_of(tv)
    return _handle(tv, schedule.cache_before(name, op_type or LoadStoreOpType.set))


@operation("set_memory_type(memory_type: MemoryType) -> None")
def set_memory_type(tv: TensorView, memory_type: MemoryType) -> None:
    if not isinstance(memory_type, MemoryType):
        raise ArgumentMismatch(_wrong_member("memory_type", memory_type, MemoryType))
    schedule, name = _schedule_of(tv)
    schedule.set_memory_type(name, memory_type)
    _note_place(schedule)


@operation("set_allocation_domain(new_allocation_domain: Sequence[IterDomain], new_contiguity: bool) -> None")
def set_allocation_domain(
    tv: TensorView, new_allocation_domain: Sequence[IterDomain], new_contiguity: bool | Sequence[bool | None]
) -> None:
    for axis in new_allocation_domain:
        if not isinstance(axis, IterDomain):
            raise ArgumentMismatch(f"new_allocation_domain must hold IterDomains, got {type(axis).__name__}.")
    schedule, name = _schedule_of(tv)
    contiguous = new_contiguity if isinstance(new_contiguity, bool) else all(c is not False for c in new_contiguity)
    schedule.set_allocation_domain(name, [axis.node for axis in new_allocation_domain], contiguous)


@operation("parallelize(parallel_type: ParallelType) -> None")
def parallelize(axis: IterDomain, parallel_type: ParallelType) -> None:
    if not isinstance(parallel_type, ParallelType):
        raise ArgumentMismatch(_wrong_member("parallel_type", parallel_type, ParallelType))
    schedule, name = _schedule_of(axis.tensor)
    loop = schedule.state(name).loop
    if axis.node not in loop:
        raise SchedulingError(
            f"axis {axis} is no longer in the loop domain of {axis.tensor}: a later split or merge used it up",
            location=caller_location(),
        )
    schedule.parallelize(name, loop.index(axis.node), parallel_type)
    _note_place(schedule)
