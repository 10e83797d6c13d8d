"""Scheduling verbs, the methods of tensors and axes that meet `fuser.ir.schedule.schedule.ScheduleBuilder`.

A verb freezes the definition if it is still open, and appends a record to its schedule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from fuser.errors import DefinitionRuntimeError, NotSupportedError, SchedulingError
from fuser.frontend.active_fusion import active_fusion
from fuser.frontend.handles import Expr, IterDomain, TensorView
from fuser.frontend.operation import (
    ArgumentMismatch,
    bool_argument,
    checked_call,
    int_argument,
    int_list_argument,
)
from fuser.ir.fusion.user_names import value_name
from fuser.ir.ops.enums import CacheOp, LoadStoreOpType, MemoryType, ParallelType
from fuser.ir.ops.named_enums import Named
from fuser.source_location import caller_location
from fuser.tracebacks import short_traceback

if TYPE_CHECKING:
    from fuser.ir.schedule.schedule import ScheduleBuilder

P = ParamSpec("P")
R = TypeVar("R")


def verb(signature: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function a method whose errors are worded like those of ops; `signature` is shown for arguments that do not fit.

    The function's `self` is annotated with the class that has the method.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        # By this name `short_traceback` knows a method that was called on its class.
        function.__qualname__ = f"{function.__annotations__['self']}.{function.__name__}"
        bound = short_traceback(function)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return checked_call((signature,), args, kwargs, lambda: bound(*args, **kwargs))

        return short_traceback(call)

    return decorate


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
    if tv.fusion.schedule is None and not tv.fusion.ir_fusion.outputs:
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


@verb("split(axis: int, factor: int, inner_split: bool = True) -> TensorView")
def split(self: TensorView, axis: int, factor: int, inner_split: bool = True) -> TensorView:
    """Loop extent E becomes (ceil(E/f), f), or (f, ceil(E/f)) if not `inner_split`. Returns self."""
    at, by = int_argument("axis", axis), int_argument("factor", factor)
    is_inner = bool_argument("inner_split", inner_split)
    # Before the outputs are named, the method that other libraries have under this name may be meant.
    if self.fusion.schedule is None and not self.fusion.ir_fusion.outputs:
        raise SchedulingError(
            f"no output is named yet, and split() is a scheduling verb: {_called(self)}.split({at}, {by}) after the last "
            "fd.add_output splits a loop axis. The parts that split gives in other libraries are slices: "
            f"{_parts(self, at, by)}",
            location=caller_location(),
        )
    schedule, name = _schedule_of(self)
    schedule.split(name, at, by, is_inner)
    return self


@verb("inner_split(axis: int, factor: int) -> TensorView")
def inner_split(self: TensorView, axis: int, factor: int) -> TensorView:
    """`split` with the factor inside."""
    return split(self, axis, factor, True)


@verb("outer_split(axis: int, factor: int) -> TensorView")
def outer_split(self: TensorView, axis: int, factor: int) -> TensorView:
    """`split` with the factor outside."""
    return split(self, axis, factor, False)


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


@verb("merge(axis_o: int, axis_i: int | None = None) -> TensorView")
def merge(self: TensorView, axis_o: int, axis_i: int | None = None) -> TensorView:
    """One axis of the product of two, `axis_o` outer; `axis_i` is the next one if omitted. Returns self."""
    outer = int_argument("axis_o", axis_o)
    inner = None if axis_i is None else int_argument("axis_i", axis_i)
    schedule, name = _schedule_of(self)
    schedule.merge(name, outer, inner)
    return self


@verb("reorder(old2new: dict[int, int]) -> TensorView")
def reorder(self: TensorView, old2new: Mapping[int, int]) -> TensorView:
    """Move axes; unnamed ones fill the gaps in order. Returns self."""
    if not isinstance(old2new, Mapping):
        raise ArgumentMismatch(
            f"old2new must be a dict, got {type(old2new).__name__}: write {{old: new}}, as in {{0: 1}}."
        )
    moves = {int_argument("old2new", o): int_argument("old2new", n) for o, n in old2new.items()}
    schedule, name = _schedule_of(self)
    schedule.reorder(name, moves)
    return self


@verb("swizzle(x: int, y: int) -> TensorView")
def swizzle(self: TensorView, x: int, y: int) -> TensorView:
    """XOR swizzle of two loop axes. Returns self."""
    raise NotSupportedError(
        f"swizzle({x}, {y}) is not supported yet: schedules have splits, merges and permutations of axes",
        location=caller_location(),
    )


@verb("swizzle1d(x: int, parallel_type: ParallelType) -> TensorView")
def swizzle1d(self: TensorView, x: int, parallel_type: ParallelType) -> TensorView:
    """Rotate an axis by the device index on a mesh dim (needs several GPUs)."""
    raise NotSupportedError("swizzle1d needs several GPUs, which are not supported yet", location=caller_location())


@verb("set_device_mesh(mesh: DeviceMesh) -> None")
def set_device_mesh(self: TensorView, mesh: object) -> None:
    """Distribute over several GPUs."""
    raise NotSupportedError("device meshes need several GPUs, which are not supported yet", location=caller_location())


@verb("rfactor(axes: Sequence[int]) -> TensorView")
def rfactor(self: TensorView, axes: Sequence[int]) -> TensorView:
    """A new producer that reduces exactly `axes`; self reduces what remains over it."""
    wanted = int_list_argument("axes", axes)
    schedule, name = _schedule_of(self)
    created = schedule.rfactor(name, wanted)
    if isinstance(created, tuple):
        # Results of a Welford reduction are factored together; the producer of this one is asked for.
        created = created[schedule.siblings(name).index(name)]
    return _handle(self, created)


@verb(
    "cache_after(op_type: LoadStoreOpType = LoadStoreOpType.set, cache_op: CacheOp = CacheOp.unspecified, "
    "propagate_allocation_domain: bool = True, cached_uses: Sequence[Expr] = []) -> TensorView"
)
def cache_after(
    self: TensorView,
    op_type: LoadStoreOpType | None = None,
    cache_op: CacheOp | None = None,
    propagate_allocation_domain: bool = True,
    cached_uses: Sequence[Expr] = (),
) -> TensorView:
    """Insert a copy of self, consumed by all or the listed uses; returns the copy."""
    for expr in cached_uses:
        if not isinstance(expr, Expr):
            raise ArgumentMismatch(f"cached_uses must hold Exprs, got {type(expr).__name__}.")
    _enum_argument("op_type", op_type, LoadStoreOpType)
    _enum_argument("cache_op", cache_op, CacheOp)
    schedule, name = _schedule_of(self)
    readers: list[str] = [str(result.node.name) for e in cached_uses for result in e.outputs[:1]]
    created = schedule.cache_after(
        name,
        op_type or LoadStoreOpType.set,
        cache_op or CacheOp.unspecified,
        propagate_allocation_domain,
        readers,
    )
    return _handle(self, created)


@verb("cache_before(op_type: LoadStoreOpType = LoadStoreOpType.set) -> TensorView")
def cache_before(self: TensorView, op_type: LoadStoreOpType | None = None) -> TensorView:
    """A new tensor computes what self did and self becomes a copy of it; returns the new tensor."""
    _enum_argument("op_type", op_type, LoadStoreOpType)
    schedule, name = _schedule_of(self)
    return _handle(self, schedule.cache_before(name, op_type or LoadStoreOpType.set))


@verb("set_memory_type(memory_type: MemoryType) -> None")
def set_memory_type(self: TensorView, memory_type: MemoryType) -> None:
    """Where the tensor lives; inputs and outputs stay global."""
    if not isinstance(memory_type, MemoryType):
        raise ArgumentMismatch(_wrong_member("memory_type", memory_type, MemoryType))
    schedule, name = _schedule_of(self)
    schedule.set_memory_type(name, memory_type)
    _note_place(schedule)


@verb("set_allocation_domain(new_allocation_domain: Sequence[IterDomain], new_contiguity: bool) -> None")
def set_allocation_domain(
    self: TensorView, new_allocation_domain: Sequence[IterDomain], new_contiguity: bool | Sequence[bool | None]
) -> None:
    """Memory order, slowest axis first: a permutation or transform of the logical domain."""
    for axis in new_allocation_domain:
        if not isinstance(axis, IterDomain):
            raise ArgumentMismatch(f"new_allocation_domain must hold IterDomains, got {type(axis).__name__}.")
    schedule, name = _schedule_of(self)
    contiguous = new_contiguity if isinstance(new_contiguity, bool) else all(c is not False for c in new_contiguity)
    schedule.set_allocation_domain(name, [axis.node for axis in new_allocation_domain], contiguous)


@verb("parallelize(parallel_type: ParallelType) -> None")
def parallelize(self: IterDomain, parallel_type: ParallelType) -> None:
    """Bind the axis to blockIdx, threadIdx or a kind of loop."""
    if not isinstance(parallel_type, ParallelType):
        raise ArgumentMismatch(_wrong_member("parallel_type", parallel_type, ParallelType))
    schedule, name = _schedule_of(self.tensor)
    loop = schedule.state(name).loop
    if self.node not in loop:
        raise SchedulingError(
            f"axis {self} is no longer in the loop domain of {self.tensor}: a later split or merge used it up",
            location=caller_location(),
        )
    schedule.parallelize(name, loop.index(self.node), parallel_type)
    _note_place(schedule)


VERBS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        split,
        inner_split,
        outer_split,
        merge,
        reorder,
        swizzle,
        swizzle1d,
        rfactor,
        cache_after,
        cache_before,
        set_memory_type,
        set_allocation_domain,
        set_device_mesh,
    )
}
"""The verbs of tensors by name."""

AXIS_VERBS: dict[str, Callable[..., Any]] = {"parallelize": parallelize}
"""The verbs of axes by name."""
