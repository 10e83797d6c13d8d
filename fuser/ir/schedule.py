"""Schedules: records of verbs, and the state that follows from applying them to a fusion.

Grammar
    schedule := [record]
    record   := Record(verb, tensor, arguments, result)
    verb     := split(axis, factor, inner_split) | merge(axis_o, axis_i) | reorder(old2new)
              | parallelize(position, type) | run_backwards(position) | load_ahead
              | set_memory_type(type) | set_allocation_domain(dims, contiguity)
              | swizzle(by, axis)
              | cache_after(op_type, cache_op, propagate, cached_uses) | cache_before(op_type, move_uses) | rfactor(axes)
              | recompute(uses) | two_pass
              | ask_extent_within(dim, low, high) | ask_blocks_per_sm(count) | set_cluster(type, size)
              | transform_like(selected) | parallelize_like(position, selected, types, padding)
              | inline_most(selected) | inline_at(position, best_effort, selected)

Records name tensors by stable name (`t7`; `t7_cache_after_0`, `t9_rfactor_0` for those a verb created) and axes by position
in the loop domain at the time of the verb, so a schedule replays on any copy of the fusion.

`ScheduleBuilder` applies verbs as they come; what it holds is the scheduled fusion: exprs over tensors (those that verbs
created included) and a `TensorState` for each tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from keyword import iskeyword

from fuser.errors import NotSupportedError, SchedulingError
from fuser.ir.enums import GLOBAL_MEMORY, CacheOp, LoadStoreOpType, MemoryType, ParallelType
from fuser.ir.facts import ExtentWithin
from fuser.ir.fusion import (
    Fusion,
    IterDomain,
    IterKind,
    Merge,
    Pointwise,
    Reduction,
    Split,
    Tensor,
    TensorExpr,
    Welford,
    map_expr,
    memory_order,
    row_major_order,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.integers import Int, ceil_div, const
from fuser.ir.iteration_graph import Group, GroupMerge, GroupSplit, GroupSwizzle, IterationGraph
from fuser.ir.iteration_graph import leaves as dims_of
from fuser.ir.promotion import compute_dtype


@dataclass(frozen=True, slots=True)
class Record:
    """One applied verb. `result` is the tensor it created, if it created one."""

    verb: str
    tensor: str
    arguments: tuple[object, ...]
    result: str | None = None

    def __str__(self) -> str:
        call = f"{self.tensor or 'schedule'}.{self.verb}({', '.join(_argument_text(a) for a in self.arguments)})"
        return f"{self.result} = {call}" if self.result else call


def _argument_text(argument: object) -> str:
    if isinstance(argument, Enum):
        kind, name = type(argument).__name__, argument.name
        return f"{kind}[{name!r}]" if iskeyword(name) else f"{kind}.{name}"
    if isinstance(argument, (tuple, frozenset)):
        items = sorted(argument, key=str) if isinstance(argument, frozenset) else argument
        return f"[{', '.join(_argument_text(a) for a in items)}]"
    return repr(argument)


@dataclass(slots=True, eq=False)
class TensorState:
    """What verbs set on one tensor.

    loop          the loop domain
    parallel      parallel type of loop axes; absent means serial
    inline_at     leading loop axes shared with all consumers (0: computed in a nest of its own)
    allocation    explicit allocation domain, slowest first; None for the default
    swizzles      (by, axis), positions in the allocation domain: what has index j lies at j ^ (i % extent), i that of `by`
    loads_ahead   filled for the next trip of the loop that it is inlined in while this trip computes; `must_load_ahead`: or
                  else the schedule is refused
    backwards     serial loop axes that run from the last index to the first
    extras        broadcast axes of the loop domain that are not dims of the tensor, with the dim each one follows
    """

    tensor: Tensor
    loop: list[IterDomain]
    memory: MemoryType
    parallel: dict[IterDomain, ParallelType] = field(default_factory=dict)
    inline_at: int = 0
    allocation: tuple[IterDomain, ...] | None = None
    swizzles: tuple[tuple[int, int], ...] = ()
    cache_op: CacheOp = CacheOp.unspecified
    op_type: LoadStoreOpType = LoadStoreOpType.set
    extras: list[tuple[IterDomain, IterDomain]] = field(default_factory=list)
    backwards: set[IterDomain] = field(default_factory=set)
    loads_ahead: bool = False
    must_load_ahead: bool = False

    def parallel_type(self, axis: IterDomain) -> ParallelType:
        """Parallel type of a loop axis."""
        return self.parallel.get(axis, ParallelType.serial)


def split_axis(axis: IterDomain, factor: Int, inner_split: bool) -> Split:
    """The two axes a split makes."""
    count = ceil_div(axis.extent, factor)
    sizes = (count, factor) if inner_split else (factor, count)
    outer = IterDomain(f"{axis.name}/{factor}", sizes[0], axis.kind)
    inner = IterDomain(f"{axis.name}%{factor}", sizes[1], axis.kind)
    made = Split(axis, factor, inner_split, outer, inner)
    outer.definition = inner.definition = made
    return made


def merge_axes(outer: IterDomain, inner: IterDomain) -> Merge:
    """The axis a merge makes. Raises SchedulingError for a reduction merged with an iteration axis."""
    kinds = {d.kind for d in (outer, inner) if not d.is_broadcast}
    if len(kinds) == 2:
        raise SchedulingError(f"cannot merge {outer} with {inner}: one is reduced and the other is not")
    kind = kinds.pop() if kinds else IterKind.broadcast
    result = IterDomain(f"({outer.name}*{inner.name})", outer.extent * inner.extent, kind)
    result.definition = Merge(outer, inner, result)
    return result.definition


class ScheduleBuilder:
    """The scheduled fusion, changed by verbs. Every verb either applies whole, and is recorded, or raises SchedulingError."""

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self.exprs: list[TensorExpr] = list(fusion.tensor_exprs)
        self.records: list[Record] = []
        self.asked: list[ExtentWithin] = []
        # Blocks that must fit on a processor at once; 0: it does not matter.
        self.blocks_per_sm = 0
        # Blocks of a cluster along a grid axis: a reduction axis of that type and constant extent is one of the cluster.
        self.cluster: dict[ParallelType, int] = {}
        self.states: dict[str, TensorState] = {}
        self._siblings: dict[str, tuple[str, ...]] = {}
        self._created: dict[str, int] = {}
        self._graph: IterationGraph | None = None
        outputs = {t.name for t in fusion.output_tensors}
        inputs = {t.name for t in fusion.input_tensors}
        for t in fusion.tensors:
            memory = GLOBAL_MEMORY if t.name in outputs or t.name in inputs else MemoryType.local
            self.states[t.name] = TensorState(t, list(t.logical), memory)
        for expr in self.exprs:
            self._note_siblings(expr)
        self.input_names = frozenset(inputs)
        self.output_names = frozenset(outputs)

    def _note_siblings(self, expr: TensorExpr) -> None:
        if isinstance(expr, Welford):
            names = tuple(t.name for t in tensor_outputs(expr))
            for name in names:
                self._siblings[name] = names

    # --- queries ---

    def state(self, name: str) -> TensorState:
        """State of a tensor by name."""
        return self.states[name]

    def siblings(self, name: str) -> tuple[str, ...]:
        """Names of the results of the expr that defines a tensor."""
        return self._siblings.get(name, (name,))

    def definition(self, name: str) -> TensorExpr | None:
        """The expr that computes a tensor, or None for inputs."""
        return next((e for e in self.exprs if any(t.name == name for t in tensor_outputs(e))), None)

    def uses(self, name: str) -> list[TensorExpr]:
        """Exprs that read a tensor, in order."""
        return [e for e in self.exprs if any(t.name == name for t in tensor_inputs(e))]

    def consumers(self, name: str) -> list[Tensor]:
        """Distinct results of the exprs that read a tensor (one per expr: siblings share their loops)."""
        return [tensor_outputs(e)[0] for e in self.uses(name)]

    @property
    def tensors(self) -> list[Tensor]:
        """Inputs, then results in order."""
        inputs = [self.states[t.name].tensor for t in self.fusion.input_tensors]
        made = [t for e in self.exprs for t in tensor_outputs(e)]
        return list({t.name: t for t in inputs + made}.values())

    def graph(self) -> IterationGraph:
        """The resolving view of the current tensors, rebuilt after a verb that changed them."""
        if self._graph is None:
            links = [link for s in self.states.values() for link in s.extras]
            self._graph = IterationGraph(self.exprs, self.tensors, resolving=True, links=links)
        return self._graph

    def __str__(self) -> str:
        return "\n".join(map(str, self.records))

    # --- transforms ---

    def _axis_position(self, state: TensorState, axis: int) -> int:
        n = len(state.loop)
        position = axis + n if axis < 0 else axis
        if not 0 <= position < n:
            raise SchedulingError(
                f"Tried to access out of boundary index {axis}. total index: {n} (loop domain of {state.tensor.name})"
            )
        return position

    def _check_free(self, state: TensorState, position: int, verb: str) -> None:
        if position < state.inline_at:
            raise SchedulingError(
                f"cannot {verb} axis {position} of {state.tensor.name}: it is inlined with its consumers"
            )

    def split(self, name: str, axis: int, factor: int, inner_split: bool = True) -> None:
        """Loop axis of extent E -> (ceil(E/f), f), or (f, ceil(E/f)) if not `inner_split`."""
        if factor <= 0:
            raise SchedulingError(f"cannot split {name} by {factor}: the factor must be positive")
        state = self.state(name)
        if not state.loop:
            raise SchedulingError(f"cannot split {name}: its rank is 0")
        position = self._axis_position(state, axis)
        self._check_free(state, position, "split")
        if state.parallel_type(state.loop[position]) is not ParallelType.serial:
            raise SchedulingError(f"cannot split axis {position} of {name}: it is already parallelized")
        for sibling in self.siblings(name):
            s = self.state(sibling)
            made = split_axis(s.loop[position], const(factor), inner_split)
            s.loop[position : position + 1] = [made.outer, made.inner]
        self.records.append(Record("split", name, (position, factor, inner_split)))

    def merge(self, name: str, axis_o: int, axis_i: int | None = None) -> None:
        """One axis of the product, at the smaller position; `axis_i` defaults to the next axis."""
        state = self.state(name)
        outer = self._axis_position(state, axis_o)
        inner = self._axis_position(state, outer + 1 if axis_i is None else axis_i)
        if outer == inner:
            raise SchedulingError(f"cannot merge axis {outer} of {name} with itself")
        for position in (outer, inner):
            self._check_free(state, position, "merge")
        if all(state.parallel_type(state.loop[p]) is not ParallelType.serial for p in (outer, inner)):
            raise SchedulingError(f"cannot merge axes {outer} and {inner} of {name}: both are parallelized")
        for p in (outer, inner):
            if state.parallel_type(state.loop[p]) is not ParallelType.serial:
                raise SchedulingError(f"cannot merge axis {p} of {name}: it is already parallelized")
        merges = [merge_axes(self.state(s).loop[outer], self.state(s).loop[inner]) for s in self.siblings(name)]
        for sibling, made in zip(self.siblings(name), merges, strict=True):
            loop = self.state(sibling).loop
            loop[min(outer, inner)] = made.result
            del loop[max(outer, inner)]
        self.records.append(Record("merge", name, (outer, inner)))

    def reorder(self, name: str, old2new: dict[int, int]) -> None:
        """Move axes; unnamed axes fill the gaps in order."""
        state = self.state(name)
        moves = {self._axis_position(state, o): self._axis_position(state, n) for o, n in old2new.items()}
        if len(moves) != len(old2new) or len(set(moves.values())) != len(moves):
            raise SchedulingError(f"cannot reorder {name}: {old2new} names an axis twice")
        rest = iter(p for p in range(len(state.loop)) if p not in moves)
        target = {new: old for old, new in moves.items()}
        order = [target[p] if p in target else next(rest) for p in range(len(state.loop))]
        if any(order[p] != p for p in range(state.inline_at)):
            raise SchedulingError(
                f"cannot reorder {name}: its first {state.inline_at} axes are inlined with its consumers"
            )
        for sibling in self.siblings(name):
            s = self.state(sibling)
            s.loop = [s.loop[p] for p in order]
        self.records.append(Record("reorder", name, (dict(sorted(moves.items())),)))

    def parallelize(self, name: str, position: int, parallel_type: ParallelType) -> None:
        """Give the loop axis at `position` a parallel type."""
        state = self.state(name)
        position = self._axis_position(state, position)
        if parallel_type.is_mesh or parallel_type in (ParallelType.mma, ParallelType.tma, ParallelType.stream):
            raise NotSupportedError(f"ParallelType.{parallel_type.name} is not supported yet")
        for sibling in self.siblings(name):
            self._set_parallel(self.state(sibling), self.state(sibling).loop[position], parallel_type)
        self.records.append(Record("parallelize", name, (position, parallel_type)))

    @staticmethod
    def _set_parallel(state: TensorState, axis: IterDomain, parallel_type: ParallelType) -> None:
        if parallel_type is ParallelType.serial:
            state.parallel.pop(axis, None)
        else:
            state.parallel[axis] = parallel_type

    def ask_extent_within(self, name: str, dim: int, low: int, high: int) -> None:
        """Ask for the fact low <= extent <= high of a visible dim of an input: loops over it may then have a constant extent.

        Raises SchedulingError for a tensor that is no input, a dim that it does not have, or bounds that leave no extent.
        """
        if name not in self.input_names or not 0 <= dim < self.state(name).tensor.ndim:
            raise SchedulingError(
                f"cannot ask for the extent of dim {dim} of {name}: the fusion has no such input or dim"
            )
        if not 0 <= low <= high:
            raise SchedulingError(f"cannot ask for an extent of {name} within {low} and {high}")
        self.asked.append(ExtentWithin(name, dim, low, high))
        self.records.append(Record("ask_extent_within", name, (dim, low, high)))

    def ask_blocks_per_sm(self, count: int) -> None:
        """Ask for so few registers a thread that `count` blocks fit on a processor at once, as a grid that waits may need."""
        if count < 1:
            raise SchedulingError(f"cannot ask for {count} blocks on a processor")
        self.blocks_per_sm = count
        self.records.append(Record("ask_blocks_per_sm", "", (count,)))

    def set_cluster(self, parallel_type: ParallelType, size: int) -> None:
        """Launch `size` consecutive blocks along a grid axis as a cluster, which share their shared memory.

        Reductions over an axis of that type, which must then have the extent `size`, stay within the cluster. Raises
        SchedulingError for a type that is no grid axis, a size that is no power of two up to 16, and a second cluster axis.
        """
        if not parallel_type.is_grid:
            raise SchedulingError(f"a cluster lies along a grid axis, not along {parallel_type.name}")
        if size not in (1, 2, 4, 8, 16):
            raise SchedulingError(f"a cluster has 1, 2, 4, 8 or 16 blocks, not {size}")
        if self.cluster and parallel_type not in self.cluster:
            raise SchedulingError("a kernel has one cluster axis")
        self.cluster = {parallel_type: size} if size > 1 else {}
        self.records.append(Record("set_cluster", "", (parallel_type, size)))

    def load_ahead(self, name: str, best_effort: bool = False) -> None:
        """Load a copy of an input for the next trip of the serial loop that it is inlined in, while this trip computes.

        It then takes registers twice. Raises SchedulingError for a tensor that is no copy of an input in registers; lowering
        raises it, unless `best_effort`, where no serial loop fills the copy or the kernel writes the input.
        """
        expr = self.definition(name)
        is_copy = isinstance(expr, Pointwise) and expr.op == "set" and expr.inputs[0] in self.fusion.input_tensors
        if not is_copy or self.state(name).memory is not MemoryType.local:
            raise SchedulingError(f"cannot load {name} ahead: it is no copy of an input in registers")
        self.state(name).loads_ahead = True
        self.state(name).must_load_ahead = not best_effort
        self.records.append(Record("load_ahead", name, (True,) if best_effort else ()))

    def run_backwards(self, name: str, position: int) -> None:
        """Run the serial loop at `position`, and the tensors that share it, from the last index to the first.

        What a pass read last is still in the cache when the next one begins.
        """
        state = self.state(name)
        position = self._axis_position(state, position)
        if state.parallel_type(state.loop[position]) is not ParallelType.serial:
            raise SchedulingError(f"cannot run axis {position} of {name} backwards: it is no serial loop")
        for sibling in self.siblings(name):
            self.state(sibling).backwards.add(self.state(sibling).loop[position])
        self.records.append(Record("run_backwards", name, (position,)))

    # --- memory ---

    def set_memory_type(self, name: str, memory: MemoryType) -> None:
        """Where a tensor lives; inputs and outputs stay global."""
        if name in self.input_names or name in self.output_names:
            if memory is not GLOBAL_MEMORY:
                raise SchedulingError(
                    f"cannot move {name} to {memory.name} memory: inputs and outputs stay in global memory"
                )
        if memory in (MemoryType.tensor, MemoryType.symmetric):
            raise NotSupportedError(f"MemoryType.{memory.name} is not supported yet")
        self.state(name).memory = memory
        self.records.append(Record("set_memory_type", name, (memory,)))

    def set_allocation_domain(self, name: str, dims: Sequence[IterDomain | int | str], contiguity: bool = True) -> None:
        """Memory order, slowest first: logical dims (or their positions among them), or loop axes (or `loop:<position>`), each
        exactly once."""
        state = self.state(name)
        visible = list(state.tensor.visible)
        loop = [a for a in state.loop if not a.is_reduction]
        chosen = [
            visible[d] if isinstance(d, int) else state.loop[int(d.removeprefix("loop:"))] if isinstance(d, str) else d
            for d in dims
        ]
        if sorted(map(id, chosen)) == sorted(map(id, visible)):
            arguments: tuple[object, ...] = (tuple(visible.index(d) for d in chosen), contiguity)
            if name in self.output_names or name in self.input_names:
                self._relayout(state, [visible.index(d) for d in chosen])
        elif sorted(map(id, chosen)) == sorted(map(id, loop)) and name not in self.output_names | self.input_names:
            arguments = (tuple(f"loop:{state.loop.index(d)}" for d in chosen), contiguity)
        else:
            raise SchedulingError(
                f"the allocation domain of {name} must be a permutation of its logical domain or of its loop domain, got {dims}"
            )
        state.allocation = tuple(chosen)
        state.swizzles = ()
        self.records.append(Record("set_allocation_domain", name, arguments))

    def swizzle(self, name: str, by: int, axis: int) -> None:
        """Permute the places along an axis of the allocation domain: what has index j lies at j ^ (i % extent), where i is the
        index along another axis. Neighbours along `by` then lie in different banks of shared memory.

        by, axis   positions in the allocation domain; the extent of `axis` is a constant power of two
        """
        state = self.state(name)
        if state.allocation is None or state.memory is not MemoryType.shared:
            raise SchedulingError(f"cannot swizzle {name}: it needs an allocation domain in shared memory first")
        count = len(state.allocation)
        if not (0 <= by < count and 0 <= axis < count) or by == axis:
            raise SchedulingError(
                f"cannot swizzle axis {axis} of {name} by {by}: its allocation domain has {count} axes"
            )
        extent = state.allocation[axis].extent
        if not extent.is_const or extent.value < 1 or extent.value & (extent.value - 1):
            raise SchedulingError(
                f"cannot swizzle axis {axis} of {name}: its extent {extent} is no constant power of two"
            )
        if any(axis in pair or by == swizzled for pair in state.swizzles for swizzled in pair[1:]):
            raise SchedulingError(
                f"cannot swizzle axis {axis} of {name} by {by}: one of them takes part in a swizzle already"
            )
        state.swizzles = (*state.swizzles, (by, axis))
        self.records.append(Record("swizzle", name, (by, axis)))

    def _relayout(self, state: TensorState, order: list[int]) -> None:
        """A global tensor's allocation order is its stride order."""
        t = state.tensor
        stride_order = [0] * len(order)
        for position, dim in enumerate(order):
            stride_order[dim] = len(order) - 1 - position
        contiguity = tuple(None if t.visible[d].is_broadcast or t.visible[d].expanded else True for d in order)
        self._replace_tensor(
            t, Tensor(t.name, t.dtype, t.logical, tuple(stride_order), contiguity, t.root, t.is_cpu, t.location)
        )

    # --- tensors made by verbs ---

    def replace_expr(self, expr: TensorExpr, made: Sequence[TensorExpr], replaced: Mapping[Tensor, Tensor]) -> None:
        """Put other exprs in the place of one. `replaced`: tensors that keep their name but not their dims.

        For modules that define verbs: `made` computes what `expr` did, over tensors that no schedule has touched.
        """
        at = next(i for i, e in enumerate(self.exprs) if e is expr)
        old = {t.name for t in tensor_outputs(expr)}
        for name in old:
            self._siblings.pop(name, None)
        for name in old - {t.name for e in made for t in tensor_outputs(e)}:
            del self.states[name]
        self.exprs[at : at + 1] = made
        self.exprs = [e if e in made else map_expr(e, dict(replaced)) for e in self.exprs]
        for e in made:
            for t in tensor_outputs(e):
                memory = self.states[t.name].memory if t.name in old else MemoryType.local
                self.states[t.name] = TensorState(t, list(t.logical), memory)
            self._note_siblings(e)
        self._graph = None

    def new_name(self, base: str, suffix: str) -> str:
        """A fresh stable name for a tensor that a verb makes of `base`."""
        key = f"{base}_{suffix}"
        number = self._created.get(key, 0)
        self._created[key] = number + 1
        return f"{key}_{number}"

    def _replace_tensor(self, old: Tensor, new: Tensor) -> None:
        self.exprs = [map_expr(e, {old: new}) for e in self.exprs]
        self.states[new.name].tensor = new
        self._graph = None

    @staticmethod
    def _clone_axes(
        axes: Iterable[IterDomain], leaves: dict[IterDomain, IterDomain]
    ) -> tuple[list[IterDomain], dict[IterDomain, IterDomain]]:
        """The same transforms over replaced dims; `leaves` maps dims to their clones and grows with the axes made."""

        def clone(axis: IterDomain) -> IterDomain:
            known = leaves.get(axis)
            if known is not None:
                return known
            t = axis.definition
            if t is None:  # an extra broadcast axis
                leaves[axis] = IterDomain(axis.name, axis.extent, axis.kind)
            elif isinstance(t, Split):
                made = split_axis(clone(t.source), t.factor, t.inner_split)
                leaves[t.outer], leaves[t.inner] = made.outer, made.inner
                # rfactor made some pieces of a reduced dim iterated ones.
                for old, new in ((t.outer, made.outer), (t.inner, made.inner)):
                    new.kind = old.kind if old.kind is not t.source.kind else new.kind
            else:
                made_by = merge_axes(clone(t.outer), clone(t.inner))
                leaves[axis] = made_by.result
                if t.outer.is_reduction and not axis.is_reduction:
                    made_by.result.kind = axis.kind
            return leaves[axis]

        return [clone(a) for a in axes], leaves

    def _copy_dims(self, name: str, dims: Sequence[IterDomain], *, keep_reduction: bool) -> tuple[IterDomain, ...]:
        return tuple(
            IterDomain(
                f"{name}.{i}",
                d.extent,
                d.kind if keep_reduction or not d.is_reduction else IterKind.iteration,
                d.expanded,
            )
            for i, d in enumerate(dims)
        )

    def _add_state(
        self, tensor: Tensor, loop: list[IterDomain], source: TensorState, leaves: dict[IterDomain, IterDomain]
    ) -> TensorState:
        state = TensorState(tensor, loop, MemoryType.local)
        for axis, parallel_type in source.parallel.items():
            if axis in leaves and leaves[axis] in loop:
                state.parallel[leaves[axis]] = parallel_type
        state.extras = [(leaves[a], target) for a, target in source.extras if a in leaves]
        self.states[tensor.name] = state
        self._graph = None
        return state

    def cache_after(
        self,
        name: str,
        op_type: LoadStoreOpType = LoadStoreOpType.set,
        cache_op: CacheOp = CacheOp.unspecified,
        propagate_allocation_domain: bool = True,
        cached_uses: Sequence[TensorExpr | str] = (),
    ) -> str:
        """A copy of the tensor consumed by all (or the listed) uses; returns the copy's name.

        `cached_uses`: exprs that use the tensor, or names of their results.
        """
        state = self.state(name)
        tensor = state.tensor
        if op_type is not LoadStoreOpType.set:
            raise NotSupportedError(f"LoadStoreOpType.{op_type.name} is not supported yet")
        uses = self.uses(name)
        if not uses:
            raise SchedulingError(f"cannot cache {name}: nothing uses it")
        if state.inline_at:
            raise SchedulingError(f"cannot cache {name}: it is already inlined")
        chosen = uses
        if cached_uses:
            wanted = {u if isinstance(u, str) else tensor_outputs(u)[0].name for u in cached_uses}
            chosen = [e for e in uses if any(t.name in wanted for t in tensor_outputs(e))]
            if len(chosen) != len(wanted):
                raise SchedulingError(f"cannot cache {name}: a listed use is not among its uses")
        result = self.new_name(name, "cache_after")
        logical = self._copy_dims(result, tensor.visible, keep_reduction=False)
        order = tensor.stride_order if propagate_allocation_domain else row_major_order(len(logical))
        dense = tuple(None if logical[d].is_broadcast else True for d in memory_order(order))
        copy = Tensor(result, tensor.dtype, logical, order, dense, location=tensor.location)
        axes, leaves = self._clone_axes(
            [a for a in state.loop if not a.is_reduction], dict(zip(tensor.visible, logical, strict=True))
        )
        new = self._add_state(copy, axes, state, leaves)
        new.cache_op, new.op_type = cache_op, op_type
        chosen_ids = set(map(id, chosen))
        first = next(i for i, e in enumerate(self.exprs) if id(e) in chosen_ids)
        self.exprs = [map_expr(e, {tensor: copy}) if id(e) in chosen_ids else e for e in self.exprs]
        made = next((i + 1 for i, e in enumerate(self.exprs) if tensor in tensor_outputs(e)), 0)
        self.exprs.insert(min(made, first) if made == 0 else made, Pointwise("set", (tensor,), copy))
        self.records.append(
            Record(
                "cache_after",
                name,
                (
                    op_type,
                    cache_op,
                    propagate_allocation_domain,
                    tuple(tensor_outputs(e)[0].name for e in chosen) if cached_uses else (),
                ),
                result,
            )
        )
        return result

    def cache_before(self, name: str, op_type: LoadStoreOpType = LoadStoreOpType.set, move_uses: bool = False) -> str:
        """A new tensor computes what this one did, and this one becomes a copy of it; returns the new tensor's name.

        With `move_uses`, what read this tensor reads the new one: nobody then waits for what is written to memory.
        """
        if op_type is not LoadStoreOpType.set:
            raise NotSupportedError(f"LoadStoreOpType.{op_type.name} is not supported yet")
        state = self.state(name)
        expr = self.definition(name)
        if expr is None:
            raise SchedulingError(f"cannot cache_before {name}: it is a fusion input")
        if state.inline_at:
            raise SchedulingError(f"cannot cache_before {name}: it is already inlined")
        tensor = state.tensor
        result = self.new_name(name, "cache_before")
        produced = self._copy_dims(result, tensor.produced, keep_reduction=True)
        leaves = dict(zip(tensor.produced, produced, strict=True))
        logical = tuple(self._clone_axes(tensor.logical, leaves)[0]) if tensor.root is not None else produced
        before = Tensor(
            result,
            tensor.dtype,
            logical,
            row_major_order(tensor.ndim),
            tuple(True for _ in tensor.visible),
            produced if tensor.root is not None else None,
            location=tensor.location,
        )
        axes, leaves = self._clone_axes(state.loop, leaves)
        self._add_state(before, axes, state, leaves)
        after = Tensor(
            name,
            tensor.dtype,
            tensor.visible,
            tensor.stride_order,
            tensor.contiguity,
            None,
            tensor.is_cpu,
            tensor.location,
        )
        at = self.exprs.index(expr)
        self.exprs[at] = map_expr(expr, {tensor: before})
        self.exprs.insert(at + 1, Pointwise("set", (before,), tensor))
        self._note_siblings(self.exprs[at])
        if name in self._siblings:
            rest = tuple(n for n in self._siblings.pop(name) if n != name)
            for n in rest:
                self._siblings[n] = self._siblings[result]
        self._replace_tensor(tensor, after)
        if move_uses:
            self.exprs = [map_expr(e, {after: before}) if after in tensor_inputs(e) else e for e in self.exprs]
        state.loop = [a for a in state.loop if not a.is_reduction]
        state.parallel = {a: p for a, p in state.parallel.items() if a in state.loop}
        state.op_type = op_type
        self.records.append(Record("cache_before", name, (op_type, True) if move_uses else (op_type,), result))
        return result

    def recompute(self, name: str, uses: Sequence[TensorExpr | str]) -> str:
        """A second computation of the tensor for the listed uses; returns its name.

        Trades arithmetic for memory: a value that two loop nests need is computed in each instead of being kept.
        """
        state = self.state(name)
        expr = self.definition(name)
        if expr is None or len(self.siblings(name)) > 1 or isinstance(expr, Reduction):
            raise SchedulingError(f"cannot recompute {name}: it is an input or the result of a reduction")
        if state.inline_at:
            raise SchedulingError(f"cannot recompute {name}: it is already inlined")
        tensor = state.tensor
        wanted = {u if isinstance(u, str) else tensor_outputs(u)[0].name for u in uses}
        chosen = [e for e in self.uses(name) if any(t.name in wanted for t in tensor_outputs(e))]
        if len(chosen) != len(wanted):
            raise SchedulingError(f"cannot recompute {name}: a listed use is not among its uses")
        result = self.new_name(name, "recompute")
        logical = self._copy_dims(result, tensor.logical, keep_reduction=True)
        order = row_major_order(len(logical))
        dense = tuple(None if d.is_broadcast else True for d in logical)
        copy = Tensor(result, tensor.dtype, logical, order, dense, location=tensor.location)
        axes, leaves = self._clone_axes(state.loop, dict(zip(tensor.logical, logical, strict=True)))
        new = self._add_state(copy, axes, state, leaves)
        new.cache_op, new.op_type = state.cache_op, state.op_type
        chosen_ids = set(map(id, chosen))
        at = self.exprs.index(expr)
        self.exprs = [map_expr(e, {tensor: copy}) if id(e) in chosen_ids else e for e in self.exprs]
        self.exprs.insert(at + 1, map_expr(expr, {tensor: copy}))
        self.records.append(Record("recompute", name, (tuple(sorted(wanted)),), result))
        return result

    def two_pass(self, name: str) -> None:
        """Compute the Welford triple of which `name` is a member from two sums: see fuser.ir.two_pass."""
        from fuser.ir.two_pass import two_pass_welford

        two_pass_welford(self, name)
        self.records.append(Record("two_pass", name, ()))

    def rfactor(self, name: str, axes: Sequence[int]) -> str | tuple[str, ...]:
        """A new producer reduces exactly `axes`; the tensor reduces the remaining reduction axes over it.

        Returns the producer's name; for a Welford result the names of the triple.
        """
        state = self.state(name)
        expr = self.definition(name)
        if not isinstance(expr, (Reduction, Welford)):
            raise SchedulingError(f"cannot rfactor {name}: it is not produced by a reduction")
        if state.inline_at:
            raise SchedulingError(f"cannot rfactor {name}: it is already inlined")
        positions = sorted(self._axis_position(state, a) for a in axes)
        if not positions or len(set(positions)) != len(positions):
            raise SchedulingError(f"cannot rfactor {name} over axes {list(axes)}")
        for p in positions:
            if not state.loop[p].is_reduction:
                raise SchedulingError(f"cannot rfactor axis {p} of {name}: it is not a reduction axis")
        kept = [p for p, a in enumerate(state.loop) if a.is_reduction and p not in positions]
        if not kept:
            raise SchedulingError(f"cannot rfactor all reduction axes of {name}: at least one must remain")
        stages = [self._rfactor_one(self.state(s), positions, kept) for s in self.siblings(name)]
        firsts = [first for first, _ in stages]
        replaced = [(self.state(n).tensor, second) for n, (_, second) in zip(self.siblings(name), stages, strict=True)]
        at = self.exprs.index(expr)
        if isinstance(expr, Welford):
            mean, m2, count = firsts
            new_mean, new_m2, new_count = (second for _, second in stages)
            self.exprs[at] = Welford(expr.input, mean, m2, count, expr.partial)
            self.exprs.insert(at + 1, Welford(mean, new_mean, new_m2, new_count, (m2, count)))
        else:
            self.exprs[at] = Reduction(expr.op, expr.input, firsts[0])
            self.exprs.insert(at + 1, Reduction(expr.op, firsts[0], stages[0][1]))
        self._note_siblings(self.exprs[at])
        for old, new in replaced:
            self._replace_tensor(old, new)
        names = tuple(t.name for t in firsts)
        self.records.append(Record("rfactor", name, (tuple(positions),), ", ".join(names)))
        return names[0] if len(names) == 1 else names

    def _rfactor_one(self, state: TensorState, positions: Sequence[int], kept: Sequence[int]) -> tuple[Tensor, Tensor]:
        """(first stage, second stage) of one reduction result; registers the first, updates the loops of the second."""
        tensor = state.tensor
        name = self.new_name(tensor.name, "rfactor")
        reduced = {state.loop[p] for p in positions}
        root = self._copy_dims(name, tensor.produced, keep_reduction=True)
        leaves = dict(zip(tensor.produced, root, strict=True))
        loop, leaves = self._clone_axes(state.loop, leaves)
        for old, new in zip(state.loop, loop, strict=True):
            if new.is_reduction and old not in reduced:
                new.kind = IterKind.iteration
        pieces = [leaves[a] for a in state.loop if a.is_reduction]
        iterated = [leaves[d] for d in tensor.visible]
        # A partial result is not rounded: only the last stage's is.
        dtype = compute_dtype(tensor.dtype) if tensor.dtype.is_reduced_float else tensor.dtype
        first = Tensor(
            name,
            dtype,
            (*iterated, *pieces),
            row_major_order(len(iterated) + len(kept)),
            tuple(True for _ in range(len(iterated) + len(kept))),
            root,
            location=tensor.location,
        )
        self._add_state(first, loop, state, leaves)
        remaining = {
            p: IterDomain(f"{tensor.name}.{tensor.ndim + i}", state.loop[p].extent, IterKind.reduction)
            for i, p in enumerate(kept)
        }
        second = Tensor(
            tensor.name,
            tensor.dtype,
            (*tensor.visible, *remaining.values()),
            tensor.stride_order,
            tensor.contiguity,
            None,
            tensor.is_cpu,
            tensor.location,
        )
        for p, d in remaining.items():
            if state.loop[p] in state.parallel:
                state.parallel[d] = state.parallel.pop(state.loop[p])
        for p in positions:
            state.parallel.pop(state.loop[p], None)
        state.loop = [remaining.get(p, a) for p, a in enumerate(state.loop) if p not in positions]
        return first, second

    # --- propagation ---

    def transform_like(self, reference: str, selected: Sequence[str] = ()) -> None:
        """Give all (or the selected) tensors the loop domain of the reference, as far as their dims reach.

        A dim of the reference that a tensor lacks becomes a broadcast axis of its loop domain where it is merged with, or
        stands before, one that the tensor has; trailing axes over missing dims are left out.
        """
        graph = self.graph()
        source = self.state(reference)
        targets = [graph.group(a) for a in source.loop]
        if len(set(targets)) != len(targets):
            raise SchedulingError(
                f"cannot transform other tensors like {reference}: two of its axes are the same dimension"
            )
        names = [n for n in (selected or [t.name for t in self.tensors]) if n != reference]
        for name in names:
            if name not in self.siblings(reference) and name not in self.input_names and self.state(name).inline_at:
                raise SchedulingError(f"cannot transform {name}: it is already inlined")
        done: set[str] = set(self.siblings(reference))
        before = {n: (list(s.loop), dict(s.parallel), list(s.extras)) for n, s in self.states.items()}
        for name in names:
            if name in done or name in self.input_names:
                continue
            done.update(self.siblings(name))
            try:
                for sibling in self.siblings(name):
                    self._transform_to(self.state(sibling), targets, source, graph)
            except SchedulingError:
                for n, (loop, parallel, extras) in before.items():
                    s = self.state(n)
                    s.loop, s.parallel, s.extras = loop, parallel, extras
                raise
        self._graph = None
        self.records.append(Record("transform_like", reference, (tuple(selected),)))

    def _transform_to(
        self, state: TensorState, targets: list[Group], source: TensorState, graph: IterationGraph
    ) -> None:
        available: dict[Group, IterDomain] = {}
        for axis in state.loop:
            available.setdefault(graph.group(axis), axis)
        extras: list[tuple[IterDomain, IterDomain]] = []
        # What the tensor has, or had before it was transformed. Axes that only stand in the place of others' say nothing.
        added = {a for a, _ in state.extras}
        own = {d for axis in state.loop if not added.issuperset(_origins(axis)) for d in dims_of(graph.group(axis))}

        def reach(group: Group) -> IterDomain | None:
            found = available.get(group)
            if found is not None:
                return found
            origin = group.origin
            match origin:
                case GroupSplit():
                    axis = reach(origin.source)
                    if axis is None:
                        return None
                    made = split_axis(axis, origin.factor, origin.inner_split)
                    available.pop(origin.source, None)
                    available[origin.outer], available[origin.inner] = made.outer, made.inner
                    return available[group]
                case GroupMerge():
                    outer, inner = reach(origin.outer), reach(origin.inner)
                    if outer is None and inner is None:
                        return None
                    outer = outer if outer is not None else add(origin.outer)
                    inner = inner if inner is not None else add(origin.inner)
                    if len({d.kind for d in (outer, inner) if not d.is_broadcast}) == 2:
                        # A result of a reduction cannot follow a merge of reduced and kept dims.
                        raise _Unreachable
                    available.pop(origin.outer, None)
                    available.pop(origin.inner, None)
                    available[group] = merge_axes(outer, inner).result
                    return available[group]
                case None:
                    return across(group, {group})
                case GroupSwizzle():
                    return None

        def across(group: Group, visited: set[Group]) -> IterDomain | None:
            """A dim that a reshape makes of others that are there: its edges lead both ways, none is the origin."""

            def found(other: Group) -> IterDomain | None:
                if other in available or other.origin is not None or other in visited:
                    return available.get(other)
                return across(other, visited | {other})

            for use in group.uses:
                match use:
                    case GroupSplit() if use.outer.origin is None:
                        outer, inner = found(use.outer), found(use.inner)
                        if outer is None or inner is None:
                            continue
                        del available[use.outer], available[use.inner]
                        available[group] = merge_axes(outer, inner).result
                        return available[group]
                    case GroupMerge() if use.result.origin is None:
                        whole = found(use.result)
                        if whole is None:
                            continue
                        parts = split_axis(whole, use.inner.extent, True)
                        del available[use.result]
                        available[use.outer], available[use.inner] = parts.outer, parts.inner
                        return available[group]
                    case _:
                        pass
            return None

        def add(group: Group) -> IterDomain:
            """A broadcast axis in the place of a group that the tensor lacks."""
            if not own.isdisjoint(dims_of(group)):
                raise SchedulingError(
                    f"cannot transform {state.tensor.name} like {source.tensor.name}: {group.name} is already split or "
                    "merged in another way there"
                )
            extra = IterDomain(f"{state.tensor.name}.+{group.name}", const(1), IterKind.broadcast)
            followed = (a for axis in source.loop for a in (axis, *_ancestors(axis)))
            extras.extend([(extra, a) for a in followed if graph.group(a) is group][:1])
            available[group] = extra
            return extra

        reached: list[IterDomain | None] = []
        for target in targets:
            known = dict(available), list(extras)
            try:
                reached.append(reach(target))
            except _Unreachable:
                available, extras = known
                reached.append(None)
        last = max((i for i, a in enumerate(reached) if a is not None), default=-1)
        for i in range(last + 1):
            if reached[i] is None:
                reached[i] = add(targets[i])
        # An axis found early may have been transformed further since (a merge took it): look it up again.
        head = [available[g] for g in targets[: last + 1] if g in available]
        made = set(map(id, head))
        consumed = {id(leaf) for axis in head for leaf in _ancestors(axis)}
        rest = [a for a in state.loop if id(a) not in made and id(a) not in consumed]
        rest += [
            a
            for a in available.values()
            if id(a) not in made
            and id(a) not in consumed
            and a not in state.loop
            and a not in rest
            and not a.is_broadcast
        ]
        parallel = {a: p for a, p in state.parallel.items() if id(a) in made or a in rest}
        state.loop = head + rest
        state.parallel = parallel
        state.extras += extras

    def parallelize_like(
        self,
        reference: str,
        position: int = -1,
        selected: Sequence[str] = (),
        types: frozenset[ParallelType] = frozenset(),
        propagate_padding: bool = True,
    ) -> None:
        """Copy parallel types of the reference's first `position` axes (-1: all) to the axes of other tensors that map."""
        graph = self.graph()
        source = self.state(reference)
        count = len(source.loop) if position == -1 else position
        wanted: dict[Group, ParallelType] = {}
        for axis in source.loop[:count]:
            parallel_type = source.parallel_type(axis)
            if not types or parallel_type in types:
                wanted.setdefault(graph.group(axis), parallel_type)
        for name in selected or [t.name for t in self.tensors]:
            state = self.state(name)
            if name == reference or name in self.input_names:
                continue
            for axis in state.loop:
                parallel_type = wanted.get(graph.group(axis))
                if parallel_type is not None and not (parallel_type is ParallelType.serial and axis in state.parallel):
                    self._set_parallel(state, axis, parallel_type)
        self.records.append(
            Record("parallelize_like", reference, (position, tuple(selected), types, propagate_padding))
        )

    # --- inlining ---

    def inline_most(self, selected: Sequence[str] = ()) -> None:
        """Compute each tensor at the deepest legal loop of its consumers."""
        from fuser.ir.inlining import Inliner

        inliner = Inliner(self)
        for name in self._reverse_order(selected):
            inliner.inline(name, None)
        self.records.append(Record("inline_most", "", (tuple(selected),)))

    def inline_at(
        self, reference: str, position: int = -1, best_effort: bool = False, selected: Sequence[str] = ()
    ) -> None:
        """Inline tensors at the position that matches `position` of the reference.

        Raises SchedulingError where that is impossible and not `best_effort`.
        """
        from fuser.ir.inlining import Inliner

        state = self.state(reference)
        count = position + len(state.loop) + 1 if position < 0 else position
        if not 0 <= count <= len(state.loop):
            raise SchedulingError(f"cannot inline at position {position} of {reference}: it has {len(state.loop)} axes")
        graph = self.graph()
        groups = [graph.group(a) for a in state.loop[:count]]
        inliner = Inliner(self)
        before = {n: s.inline_at for n, s in self.states.items()}
        for name in self._reverse_order(selected):
            loop = self.state(name).loop
            wanted = 0
            while wanted < len(loop) and graph.group(loop[wanted]) in groups:
                wanted += 1
            reached = inliner.inline(name, wanted)
            if reached < wanted and not best_effort:
                for n, p in before.items():
                    self.states[n].inline_at = p
                raise SchedulingError(
                    f"cannot inline {name} at position {wanted} (position {count} of {reference}): "
                    f"{inliner.reason or 'it has no consumer that shares these loops'}"
                )
        self.records.append(Record("inline_at", reference, (position, best_effort, tuple(selected))))

    def _reverse_order(self, selected: Sequence[str]) -> list[str]:
        names = [t.name for e in self.exprs for t in tensor_outputs(e)]
        wanted = set(selected)
        return [n for n in reversed(names) if not wanted or n in wanted]

    # --- replay ---

    def replay(self, records: Iterable[Record]) -> None:
        """Apply records made on an equal fusion."""
        for r in records:
            getattr(self, r.verb)(*((r.tensor,) if r.tensor else ()), *r.arguments)


class _Unreachable(Exception):
    """A group of the reference that a tensor has the dims of and cannot make."""


def _origins(axis: IterDomain) -> list[IterDomain]:
    """The dims and added axes that a loop axis was made from."""
    return [a for a in (axis, *_ancestors(axis)) if a.definition is None]


def _ancestors(axis: IterDomain) -> list[IterDomain]:
    """Every axis and dim a loop axis was made from."""
    t = axis.definition
    match t:
        case None:
            return []
        case Split():
            return [t.source, *_ancestors(t.source)]
        case Merge():
            return [t.outer, t.inner, *_ancestors(t.outer), *_ancestors(t.inner)]
