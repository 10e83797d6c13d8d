"""Scheduling functions (`fd.sched`, `fuser.schedule`): propagation, inlining, and the schedulers by name."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NoReturn, SupportsIndex, overload

from fuser.compiler.bind_inputs import BoundInputs, bind_inputs
from fuser.errors import DefinitionTypeError, SchedulingError, missing_from_module
from fuser.frontend.active_fusion import require_active_fusion
from fuser.frontend.fusion_handle import Fusion
from fuser.frontend.handles import Owner, TensorView
from fuser.frontend.heuristic_params import (
    HeuristicParams,
    PointwiseParams,
    ReductionParams,
    ScanParams,
    TransposeParams,
)
from fuser.frontend.verbs import begun_schedule
from fuser.ir.device_info import DeviceInfo
from fuser.ir.ops.enums import ParallelType, SchedulerType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.missing_names import like_names
from fuser.runtime.array_view import ArrayView
from fuser.runtime.arrays.device_choice import resolve_device
from fuser.schedule import params as internal
from fuser.schedule.scheduler import Refused, SegmentInputs
from fuser.schedule.segmentation.registry import scheduler_by_type
from fuser.source_location import caller_location
from fuser.tracebacks import short_traceback

__all__ = [
    "can_schedule",
    "compute_heuristics",
    "find_compatible_schedulers",
    "inline_at",
    "inline_most",
    "parallelize_like",
    "schedule",
    "transform_like",
]

# Priority order of the public list; the schedulers that exist are those of fuser.schedule.segmentation.registry.
_PRIORITY = (
    SchedulerType.expr_eval,
    SchedulerType.no_op,
    SchedulerType.matmul,
    SchedulerType.chained_reduction,
    SchedulerType.reduction,
    SchedulerType.thread_reduction,
    SchedulerType.resize,
    SchedulerType.scan,
    SchedulerType.transpose,
    SchedulerType.pointwise,
    SchedulerType.inner_persistent,
    SchedulerType.outer_persistent,
    SchedulerType.inner_outer_persistent,
)


def _check_kind(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        meant = ""
        if isinstance(value, str) and value in getattr(kind, "__members__", ()):
            meant = f": write {kind.__name__}.{value}"
        elif kind is Fusion and isinstance(getattr(value, "fusion", None), Fusion):
            meant = ": write fd.fusion"
        raise DefinitionTypeError(
            f"incompatible function arguments. {name} must be a {kind.__name__}, got {type(value).__name__}{meant}",
            location=caller_location(),
        )


def _check_position(pos: object) -> int:
    if isinstance(pos, bool) or not isinstance(pos, SupportsIndex):
        like_tensor = "; tensors to change are selected_tensors=[...]" if isinstance(pos, TensorView) else ""
        raise DefinitionTypeError(
            f"incompatible function arguments. pos must be an int, got {type(pos).__name__}{like_tensor}",
            location=caller_location(),
        )
    return operator.index(pos)


def _names(tensors: Iterable[TensorView]) -> tuple[str, ...] | None:
    """Names of selected tensors; None, which is all, for an empty selection."""
    if isinstance(tensors, TensorView):
        raise DefinitionTypeError(
            "incompatible function arguments. selected_tensors must be a sequence of TensorViews; write [tensor] for one",
            location=caller_location(),
        )
    selected = tuple(tensors)
    for tensor in selected:
        _check_kind("each of selected_tensors", tensor, TensorView)
    return tuple(t.node.name for t in selected) or None


def _schedule_of(tv: TensorView) -> ScheduleBuilder:
    _check_kind("reference_tv", tv, TensorView)
    return begun_schedule(tv)


@short_traceback
def transform_like(reference_tv: TensorView, selected_tensors: Sequence[TensorView] = ()) -> None:
    """Replay the reference's transforms on all, or the selected, tensors, as far as their dims reach."""
    _schedule_of(reference_tv).transform_like(reference_tv.node.name, _names(selected_tensors))


@short_traceback
def parallelize_like(
    reference_tv: TensorView,
    pos: int = -1,
    selected_tensors: Sequence[TensorView] = (),
    selected_parallel_types: Iterable[ParallelType] = frozenset(),
    propagate_padding: bool = True,
) -> None:
    """Copy parallel types of the reference's first `pos` axes (-1: all) to axes that map; empty selections mean all."""
    _schedule_of(reference_tv).parallelize_like(
        reference_tv.node.name,
        _check_position(pos),
        _names(selected_tensors),
        frozenset(selected_parallel_types),
        propagate_padding,
    )


@short_traceback
def inline_most(selected_tensors: Sequence[TensorView] = ()) -> None:
    """Compute each tensor at the deepest legal loop of its consumers. Needs an active fusion, or a selected tensor."""
    _fusion_of(selected_tensors).start_schedule().inline_most(_names(selected_tensors))


@short_traceback
def inline_at(
    reference_tv: TensorView, pos: int = -1, best_effort: bool = False, selected_tensors: Sequence[TensorView] = ()
) -> None:
    """Inline tensors at the position that matches `pos` of the reference.

    Raises SchedulingError where that is impossible and not `best_effort`.
    """
    _schedule_of(reference_tv).inline_at(
        reference_tv.node.name, _check_position(pos), best_effort, _names(selected_tensors)
    )


def _fusion_of(tensors: Sequence[TensorView]) -> Owner:
    _check_kind("selected_tensors", tensors, Sequence)
    if _names(tensors):
        for tensor in tensors:
            begun_schedule(tensor)
        return tensors[0].fusion
    return require_active_fusion("inline_most")


# --- schedulers by name -----------------------------------------------------------------------------------------------


def _bound(fusion: Fusion, inputs: Iterable[Any]) -> BoundInputs:
    _check_kind("fusion", fusion, Fusion)
    return bind_inputs(fusion.ir_fusion, inputs)


def _device(bound: BoundInputs) -> DeviceInfo:
    return resolve_device([v for v in bound.values if isinstance(v, ArrayView) and v.array is not None]).info


@short_traceback
def can_schedule(fusion: Fusion, scheduler_type: SchedulerType, inputs: Iterable[Any]) -> tuple[bool, str]:
    """Whether a scheduler takes the whole fusion; the text explains a refusal."""
    reason = _refusal(fusion, scheduler_type, _bound(fusion, inputs))
    if reason is None:
        return True, ""
    return False, f"Scheduler _{scheduler_type.name}_ ***rejected*** because : {reason}"


def _refusal(fusion: Fusion, scheduler_type: SchedulerType, bound: BoundInputs) -> str | None:
    _check_kind("scheduler_type", scheduler_type, SchedulerType)
    scheduler = scheduler_by_type(scheduler_type)
    if scheduler is None:
        return "this scheduler does not exist yet"
    answer = scheduler.accepts(fusion.ir_fusion)
    if isinstance(answer, Refused):
        return answer.reason
    proposed = scheduler.propose(fusion.ir_fusion, SegmentInputs(bound.tensors, bound.evaluate), _device(bound))
    return proposed.reason if isinstance(proposed, Refused) else None


@short_traceback
def find_compatible_schedulers(fusion: Fusion, inputs: Iterable[Any]) -> list[SchedulerType]:
    """Schedulers that take the whole fusion, in priority order."""
    bound = _bound(fusion, inputs)
    return [t for t in _PRIORITY if _refusal(fusion, t, bound) is None]


@short_traceback
def compute_heuristics(fusion: Fusion, scheduler_type: SchedulerType, inputs: Iterable[Any]) -> HeuristicParams:
    """The parameters a scheduler would use, editable. Raises SchedulingError if it cannot schedule the fusion."""
    bound = _bound(fusion, inputs)
    reason = _refusal(fusion, scheduler_type, bound)
    if reason is not None:
        raise SchedulingError(
            f"Scheduler _{scheduler_type.name}_ ***rejected*** because : {reason}", location=caller_location()
        )
    scheduler = scheduler_by_type(scheduler_type)
    assert scheduler is not None
    proposed = scheduler.propose(fusion.ir_fusion, SegmentInputs(bound.tensors, bound.evaluate), _device(bound))
    if isinstance(proposed, Refused):
        raise SchedulingError(
            f"Scheduler _{scheduler_type.name}_ ***rejected*** because : {proposed.reason}", location=caller_location()
        )
    return params_view(proposed)


@overload
def schedule(fusion: Fusion, scheduler_type: SchedulerType, inputs_or_params: HeuristicParams) -> None: ...
@overload
def schedule(fusion: Fusion, scheduler_type: SchedulerType, inputs_or_params: Iterable[Any]) -> HeuristicParams: ...
@short_traceback
def schedule(
    fusion: Fusion, scheduler_type: SchedulerType, inputs_or_params: HeuristicParams | Iterable[Any]
) -> HeuristicParams | None:
    """Append a scheduler's records to the fusion's schedule: with inputs, for the parameters it proposes (returned); with
    parameters, for those.

    Raises SchedulingError if the scheduler does not take the fusion, or the fusion already has a schedule.
    """
    if isinstance(inputs_or_params, HeuristicParams):
        view: HeuristicParams = inputs_or_params
        returned = None
    else:
        view = returned = compute_heuristics(fusion, scheduler_type, inputs_or_params)
    scheduler = scheduler_by_type(scheduler_type)
    if scheduler is None or view.scheduler_type is not scheduler_type:
        raise SchedulingError(
            f"parameters of {view.scheduler_type.name} are not parameters of {scheduler_type.name}",
            location=caller_location(),
        )
    current = fusion.start_schedule()
    if current.records:
        raise SchedulingError(
            "the fusion already has a schedule: schedule() needs a fresh one", location=caller_location()
        )
    current.replay(scheduler.apply(current.fusion, params_from_view(view)).records)
    return returned


def params_view(params: internal.Params) -> HeuristicParams:
    """The editable form of parameters. It remembers what it was made from."""
    match params:
        case internal.NoOpParams() | internal.ExprEvalParams():
            view: HeuristicParams = HeuristicParams()
        case internal.PointwiseParams():
            view = PointwiseParams(
                break_point=sum(map(sum, params.merged_dims[:-1])),
                vectorization_factor=params.vector,
                unroll_factor_inner=params.unroll if len(params.merged_dims) == 1 else 1,
                unroll_factor_outer=params.unroll if len(params.merged_dims) > 1 else 1,
            )
        case internal.ReductionParams():
            view = ReductionParams(
                fastest_dim=params.inner,
                cross_block_inner_reduction=params.block_reduce > 1,
                cross_grid_inner_reduction=params.grid_reduce > 1,
                unroll_factor_inner_reduction=params.vector if params.inner else 1,
                vectorize_inner_reduction=params.inner and params.vector > 1,
                multiple_reds_per_blk=params.block_iterate > 1,
                unroll_factor_iter_dom=1 if params.inner else params.vector,
                vectorize_iter_dom=not params.inner and params.vector > 1,
                block_dim_inner_reduction=ParallelType.block_x if params.inner else ParallelType.block_y,
                block_dim_iter_dom=ParallelType.block_y if params.inner else ParallelType.block_x,
                grid_dim_iter_dom=ParallelType.grid_x,
                grid_dim_inner_reduction=ParallelType.grid_y if params.grid_reduce > 1 else ParallelType.serial,
            )
        case internal.InnerPersistentParams():
            view = ReductionParams(
                fastest_dim=True,
                persistent_kernel=True,
                project_persistent_buffers=params.inputs_only,
                cross_block_inner_reduction=True,
                cross_grid_inner_reduction=params.cluster > 1,
                unroll_factor_inner_reduction=params.vector,
                vectorize_inner_reduction=params.vector > 1,
                batches_per_block_inner_reduction=params.batch,
                block_dim_inner_reduction=ParallelType.block_x,
                grid_dim_inner_reduction=(
                    ParallelType.grid_x
                    if params.groups is not None
                    else ParallelType.grid_y
                    if params.cluster > 1
                    else ParallelType.serial
                ),
                multiple_reds_per_blk=params.rows > 1,
                block_dim_iter_dom=ParallelType.block_y if params.rows > 1 else ParallelType.serial,
                grid_dim_iter_dom=ParallelType.grid_y if params.groups is not None else ParallelType.grid_x,
                static_bdimx=True,
                static_bdimy=params.rows > 1,
                reduction_scheduler=SchedulerType.inner_persistent,
            )
        case internal.InnerOuterParams():
            view = ReductionParams(
                fastest_dim=True,
                persistent_kernel=True,
                combined_inner_outer=True,
                cross_block_inner_reduction=True,
                cross_grid_outer_reduction=True,
                unroll_factor_inner_reduction=params.vector,
                vectorize_inner_reduction=params.vector > 1,
                batches_per_block_inner_reduction=params.batch,
                block_dim_inner_reduction=ParallelType.block_x,
                grid_dim_iter_dom=ParallelType.grid_x,
                static_bdimx=True,
                reduction_scheduler=SchedulerType.inner_outer_persistent,
            )
        case internal.OuterPersistentParams():
            view = ReductionParams(
                persistent_kernel=True,
                cross_block_inner_reduction=params.reduction.block_reduce > 1,
                cross_grid_inner_reduction=params.reduction.grid_reduce > 1,
                unroll_factor_iter_dom=params.reduction.vector,
                vectorize_iter_dom=params.reduction.vector > 1,
                block_dim_iter_dom=ParallelType.block_x,
                block_dim_inner_reduction=ParallelType.block_y,
                static_bdimx=True,
                static_bdimy=True,
                reduction_scheduler=SchedulerType.outer_persistent,
            )
        case internal.ChainedParams():
            rows = params_view(params.rows)
            assert isinstance(rows, ReductionParams)
            view = replace(rows, reduction_scheduler=SchedulerType.chained_reduction)
        case internal.ThreadReductionParams():
            view = ReductionParams(
                unroll_factor_iter_dom=params.loops.vector,
                vectorize_iter_dom=any(width > 1 for _, width in params.loops.vector_widths),
                block_dim_iter_dom=ParallelType.block_x,
                grid_dim_iter_dom=ParallelType.grid_x,
                static_bdimx=True,
                reduction_scheduler=SchedulerType.thread_reduction,
            )
        case internal.ScanParams():
            view = ScanParams()
        case internal.TransposeParams():
            view = TransposeParams()
    object.__setattr__(view, "made_from", params)
    return view


def params_from_view(view: HeuristicParams) -> internal.Params:
    """Parameters after the caller's edits.

    Raises SchedulingError naming a field that was set and has no meaning here, or for parameters that compute_heuristics
    did not make: loop orders and vectorizable arguments come from the inputs.
    """
    base: internal.Params | None = getattr(view, "made_from", None)
    if base is None:
        raise SchedulingError(
            f"{type(view).__name__}() made by hand lacks what follows from the inputs: start from compute_heuristics()",
            location=caller_location(),
        )
    original = params_view(base)
    edited = {
        name: value for name, value in vars(view).items()
        if name not in ("made_from", "lparams", "cparams") and value != getattr(original, name)
    }  # fmt: skip
    if isinstance(base, internal.PointwiseParams) and set(edited) <= {"vectorization_factor"}:
        return _with_vector(base, edited.get("vectorization_factor", base.vector))
    vector_field = "unroll_factor_inner_reduction"
    if isinstance(base, internal.ReductionParams):
        vector_field = "unroll_factor_inner_reduction" if base.inner else "unroll_factor_iter_dom"
        if set(edited) <= {vector_field}:
            return _with_vector(base, edited.get(vector_field, base.vector))
    if edited:
        raise SchedulingError(
            f"{', '.join(sorted(edited))} cannot be set: the {view.scheduler_type.name} scheduler gives it no meaning yet",
            location=caller_location(),
        )
    return base


def _with_vector(
    base: internal.PointwiseParams | internal.ReductionParams, vector: int
) -> internal.PointwiseParams | internal.ReductionParams:
    if vector not in (1, 2, 4, 8, 16):
        raise SchedulingError(f"a vectorization factor is 1, 2, 4, 8 or 16, got {vector}", location=caller_location())
    if isinstance(base, internal.PointwiseParams):
        widths = tuple((name, min(width, vector)) for name, width in base.vector_widths if vector > 1)
        return replace(base, vector=vector, vector_widths=widths)
    return replace(base, vector=vector, vectorized=base.vectorized if vector > 1 else ())


@short_traceback
def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if callable(getattr(TensorView, name, None)):
        advice = f"; it is a method of tensors: x.{name}(...)"
    else:
        close = like_names(name, __all__)
        advice = f"; did you mean fd.sched.{close[0]}?" if close else f"; there are {', '.join(__all__)}"
    raise missing_from_module(f"there is no scheduling function {name!r}{advice}", name)


def __dir__() -> list[str]:
    return sorted(__all__)
