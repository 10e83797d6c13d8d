"""Facts and derived data of a scheduled fusion that lowering needs before the first statement: groups, shared loops, sizes
of parallel axes, storage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations

from fuser.errors import SchedulingError
from fuser.ir.facts import (
    DenseStride,
    Facts,
    LoopBound,
    StrideDivisible,
    UnitStride,
    ZeroStride,
    stride_facts,
)
from fuser.ir.fusion.fusion import Fusion, IterDomain, Tensor, memory_order, tensor_outputs
from fuser.ir.fusion.iteration_graph import Group, GroupMerge, GroupSplit, GroupSwizzle
from fuser.ir.fusion.user_names import value_name
from fuser.ir.integers.integers import ONE, ZERO, Int, Symbol, maximum, symbol
from fuser.ir.integers.proofs import ProofLog
from fuser.ir.kernel.kernel import THREAD_SYMBOLS, Buffer
from fuser.ir.ops.enums import THREAD_TYPES, MemoryType, ParallelType
from fuser.ir.schedule.canonical_symbols import canonical_symbols
from fuser.ir.schedule.inlining import LoopSharing, share_loops
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.ir.schedule.scheduled_fusion import TensorState
from fuser.records import record


@record(eq=False)
class TensorLayout:
    """Where a tensor's elements are: per stored axis its group and stride in elements, slowest first."""

    tensor: Tensor
    buffer: Buffer
    axes: tuple[tuple[Group, Int], ...]


class LoweringContext:
    """Groups, loop classes and storage of a scheduled fusion under facts."""

    def __init__(self, builder: ScheduleBuilder, facts: Facts, proofs: ProofLog | None = None) -> None:
        self.builder = builder
        self.proofs = proofs
        self.fusion: Fusion = builder.fusion
        self.facts = facts
        self.symbols = canonical_symbols(builder, facts)
        self.graph = builder.exact_graph(self.rewrite)
        self._check_repeated_groups()
        self.sharing: LoopSharing = share_loops(builder, self.graph)
        self._states = self._states_of_shared_loops()
        self.index_bits = 32 if any(type(f) is LoopBound for f in facts) else 64
        self.sizes: dict[ParallelType, Int] = {}
        self._collect_sizes()
        self.threads: dict[ParallelType, Symbol] = {p: self._thread_symbol(p, n) for p, n in self.sizes.items()}
        self._strides: dict[str, dict[int, Int]] = {}
        self._stride_facts = stride_facts(self.facts)
        self.alias_of: dict[str, Tensor] = {
            o.tensor.name: o.alias_of for o in self.fusion.outputs if o.alias_of is not None
        }

    def rewrite(self, extent: Int) -> Int:
        """An extent in canonical symbols."""
        return extent.substitute(self.symbols) if self.symbols else extent

    def state(self, name: str) -> TensorState:
        """What the schedule says of a tensor, its loop axes with the parallel types of the loops they share."""
        return self._states[name]

    def _states_of_shared_loops(self) -> dict[str, TensorState]:
        """A serial axis takes the type of the loop that it shares: whoever reduces or stores along it must know."""
        types: dict[tuple[str, int], tuple[ParallelType, str]] = {}
        for leader in self.sharing.order:
            state = self.builder.state(leader)
            for k, axis in enumerate(state.loop):
                p = state.parallel_type(axis)
                if p is ParallelType.serial:
                    continue
                known, other = types.setdefault(self.sharing.find((leader, k)), (p, leader))
                if known is not p:
                    raise SchedulingError(
                        f"{other} and {leader} share loop {k}, which is {known.name} for one and {p.name} for the other"
                    )
        states = dict(self.builder.states)
        for name, leader in self.sharing.leader.items():
            state = states[name]
            parallel = {
                axis: types[key][0]
                for k, axis in enumerate(state.loop)
                if (key := self.sharing.find((leader, k))) in types
            }
            if parallel != {a: p for a, p in state.parallel.items() if a in parallel} or len(parallel) != len(
                state.parallel
            ):
                states[name] = replace(state, parallel=parallel)
        return states

    def loops(self, name: str) -> list[Group]:
        """Promoted loop groups."""
        return self.sharing.loops(name)

    def axes(self, name: str, first: int = 0) -> list[tuple[IterDomain, Group, ParallelType]]:
        """Loop axes of a tensor from one on, with their promoted groups and parallel types."""
        state = self.state(name)
        pairs = zip(state.loop[first:], self.loops(name)[first:], strict=True)
        return [(axis, group, state.parallel_type(axis)) for axis, group in pairs]

    def _check_repeated_groups(self) -> None:
        """A group has one index at a time: refuse a tensor with two dims that some exprs make the same (x + transpose(x))."""
        for t in self.builder.tensors:
            seen: set[Group] = set()
            for d in t.logical:
                group = self.graph.group(d)
                if group in seen and not group.is_broadcast:
                    raise SchedulingError(
                        f"two dimensions of {t.name} are one and the same, {group.name}: a tensor and its transpose meet "
                        "in one kernel; cut the fusion there",
                        location=t.location,
                    )
                seen.add(group)

    # --- parallel axes ---

    def _collect_sizes(self) -> None:
        for expr in self.builder.exprs:
            name = tensor_outputs(expr)[0].name
            used: set[ParallelType] = set()
            for _, group, p in self.axes(name):
                if p not in THREAD_TYPES:
                    continue
                if p in used:
                    t = tensor_outputs(expr)[0]
                    raise SchedulingError(
                        f"{value_name(self.builder.fusion, t)} has two loop axes on {p.name}: a {p.name} axis appears once per "
                        "tensor",
                        location=self.builder.place_of(p) or t.location,
                    )
                used.add(p)
                known = self.sizes.get(p)
                self.sizes[p] = group.extent if known is None else _larger(known, group.extent)
        for p, size in self.sizes.items():
            if (size.lo is None or size.lo < 1) and not self._is_in_all_outputs(p, size):
                self.sizes[p] = maximum(size, ONE)

    def _is_in_all_outputs(self, p: ParallelType, size: Int) -> bool:
        """Whether every output is empty if `size`, the extent of a parallel axis, is 0: no worker is needed then.

        An empty reduction still has a result that somebody must write.
        """
        return all(
            any(own is p and not axis.is_reduction and group.extent is size for axis, group, own in self.axes(name))
            for name in sorted(self.builder.output_names - self.builder.input_names)
        )

    @property
    def one_thread(self) -> bool:
        """Whether a block has a single thread, whatever the inputs."""
        return all(size is ONE for p, size in self.sizes.items() if p.is_block)

    def _thread_symbol(self, p: ParallelType, size: Int) -> Symbol:
        hardware = THREAD_SYMBOLS[p]
        limit = hardware.hi
        assert limit is not None
        hi = min(limit, size.hi - 1) if size.hi is not None and size.hi >= 1 else limit
        return symbol(hardware.name, 0, hi, below=size)

    def thread_index(self, p: ParallelType) -> Int:
        """The index of a thread or block along `p`: 0, as an expression, where there is only one."""
        return ZERO if self.sizes[p] is ONE else self.threads[p]

    # --- strides of arguments ---

    def strides(self, tensor: Tensor) -> dict[int, Int]:
        """Stride in elements of each visible dim of an argument: an expression where one is known, else a symbol."""
        found = self._strides.get(tensor.name)
        if found is None:
            source = self.alias_of.get(tensor.name)
            if source is not None:
                found = self.strides(source)
            elif any(t.name == tensor.name for t in self.fusion.input_tensors):
                # Of one element the index is 0 wherever it is read, and its stride counts for nothing.
                ones = [self.rewrite(d.extent) is ONE for d in tensor.visible]
                found = {d: ZERO if one else self._input_stride(tensor, d) for d, one in enumerate(ones)}
            else:
                found = dense_strides(tensor, self)
            self._strides[tensor.name] = found
        return found

    def _input_stride(self, tensor: Tensor, dim: int) -> Int:
        fact = self._stride_facts.get((tensor.name, dim))
        match fact:
            case UnitStride():
                return ONE
            case ZeroStride():
                return ZERO
            case DenseStride(_, _, inner):
                # As loops have it, whose indices are divided by it.
                extent = self.graph.group(tensor.visible[inner]).extent
                return extent * self._input_stride(tensor, inner)
            case _:
                pass
        multiple = 1
        for f in self.facts:
            if isinstance(f, StrideDivisible) and f.tensor == tensor.name and f.dim == dim:
                multiple = max(multiple, f.bytes // tensor.dtype.itemsize)
        return symbol(f"{tensor.name}_stride{dim}", 0, multiple=multiple)


def _larger(a: Int, b: Int) -> Int:
    """The size of a parallel axis that two loops have. One of a single iteration asks for no worker of its own: where
    the other has none, whether somebody is needed is seen when all are known."""
    if a is b or b is ONE:
        return a
    return b if a is ONE else maximum(a, b)


def dense_strides(tensor: Tensor, context: LoweringContext) -> dict[int, Int]:
    """Strides of a dense tensor in its stride order."""
    result: dict[int, Int] = {}
    running: Int = ONE
    for dim in reversed(memory_order(tensor.stride_order)):
        result[dim] = running
        running = running * context.graph.group(tensor.visible[dim]).extent
    return result


def global_layout(context: LoweringContext, tensor: Tensor, buffer: Buffer) -> TensorLayout:
    """Storage of an input or output: visible dims with strides, contiguous runs folded where the graph merges them."""
    return TensorLayout(tensor, buffer, stored_axes(context, tensor))


def stored_axes(context: LoweringContext, tensor: Tensor, *, fold: bool = True) -> tuple[tuple[Group, Int], ...]:
    """The axes of an input or output: groups and strides, contiguous runs as one where some tensor merges them and `fold`."""
    strides = context.strides(tensor)
    dims = [(tensor.visible[d], strides[d]) for d in memory_order(tensor.stride_order)]
    axes = tuple((context.graph.group(d), stride) for d, stride in dims if not d.is_broadcast)
    return _merge_contiguous(context, axes) if fold else axes


def row_major_axes(context: LoweringContext, tensor: Tensor) -> tuple[tuple[Group, Int], ...]:
    """Axes whose index times stride sum up to an element's logical row-major linear index, wherever the element is kept."""
    axes, _ = dense_axes([context.graph.group(d) for d in tensor.produced if not d.is_broadcast])
    return _merge_contiguous(context, axes)


def _merge_contiguous(context: LoweringContext, axes: tuple[tuple[Group, Int], ...]) -> tuple[tuple[Group, Int], ...]:
    """Groups and strides, slowest first, with contiguous runs folded where the graph merges them.

    Neighbours in memory may be anywhere among them: an argument need not be in the order in which its dims were declared.
    """
    while True:
        for outer, inner in permutations(axes, 2):
            merged = context.graph.find_merge(outer[0], inner[0])
            stride = _merged_stride(outer, inner)
            if merged is not None and stride is not None:
                axes = tuple((merged, stride) if a is outer else a for a in axes if a is not inner)
                break
        else:
            return axes


def _merged_stride(outer: tuple[Group, Int], inner: tuple[Group, Int]) -> Int | None:
    """The stride of two axes as one; None if there is none. One of one element goes with any other, whatever its stride is."""
    if inner[0].extent is ONE:
        return outer[1]
    return inner[1] if outer[0].extent is ONE or outer[1] is inner[0].extent * inner[1] else None


def local_layout(context: LoweringContext, tensor: Tensor, memory: MemoryType) -> TensorLayout:
    """Storage of an intermediate: its allocation axes are the parallel axes whose threads share the memory, and the serial axes
    inside its inline position."""
    state = context.state(tensor.name)
    loops = context.loops(tensor.name)
    stored: list[Group] = []
    for k, (axis, group, p) in enumerate(context.axes(tensor.name)):
        if axis.is_reduction or group.is_broadcast:
            continue
        if is_shared_by(memory, p) if p in THREAD_TYPES else k >= state.inline_at:
            stored.append(group)
    if state.allocation is not None:
        stored = _in_allocation_order(context, state, loops, stored)
    axes, size = dense_axes(stored)
    return TensorLayout(tensor, Buffer(tensor.name, tensor.dtype, memory, size, tensor.name), axes)


def dense_axes(groups: Sequence[Group]) -> tuple[tuple[tuple[Group, Int], ...], Int]:
    """Groups, slowest first, with the strides of an array that has no gaps, and its size."""
    axes: list[tuple[Group, Int]] = []
    running: Int = ONE
    for group in reversed(groups):
        axes.append((group, running))
        running = running * group.extent
    return tuple(reversed(axes)), running


def is_shared_by(memory: MemoryType, p: ParallelType) -> bool:
    """Whether the workers along a parallel axis see one memory: threads of a block shared memory, all of them device memory."""
    return memory is not MemoryType.local and (p.is_block or memory is not MemoryType.shared)


def _in_allocation_order(
    context: LoweringContext, state: TensorState, loops: list[Group], stored: list[Group]
) -> list[Group]:
    assert state.allocation is not None
    promoted: Mapping[Group, Group] | None = context.sharing.promotions.get(context.sharing.leader[state.tensor.name])
    order = [context.graph.group(d, promoted) for d in state.allocation]
    if all(g in order for g in stored) and not state.swizzles:
        return [g for g in order if g in stored]
    if not set(state.allocation) <= set(state.tensor.visible):
        return _allocation_sources(context, state, order, loops, stored)
    # The allocation domain is over logical dims that the loops split: every stored loop axis must come from one dim.
    inside = [g for g in order if any(is_derived_from(s, g) for s in stored)]
    for s in stored:
        if not any(is_derived_from(s, g) for g in inside):
            raise SchedulingError(f"the allocation domain of {state.tensor.name} does not cover its loop axis {s.name}")
    rank = {s: next(i for i, g in enumerate(inside) if is_derived_from(s, g)) for s in stored}
    return sorted(stored, key=lambda s: rank[s])


def _allocation_sources(
    context: LoweringContext, state: TensorState, order: list[Group], loops: list[Group], stored: list[Group]
) -> list[Group]:
    """The axes of an allocation domain from which the loop axes were made since: those whose loops are stored, swizzled."""
    kept: dict[Group, Group] = {}
    for group in order:
        shares = [loop in stored for loop in loops if is_derived_from(loop, group) or is_derived_from(group, loop)]
        if any(shares):
            if not all(shares):
                raise SchedulingError(
                    f"{state.tensor.name} cannot be allocated by {group.name}: only some of the loops over it are stored",
                    location=state.tensor.location,
                )
            kept[group] = group
    for by, axis in state.swizzles:
        if order[axis] in kept:
            if order[by] not in kept:
                raise SchedulingError(
                    f"{state.tensor.name} cannot be swizzled by {order[by].name}: it is not stored along it",
                    location=state.tensor.location,
                )
            kept[order[axis]] = context.graph.swizzle(order[by], order[axis]).result
    return list(kept.values())


def is_derived_from(group: Group, source: Group) -> bool:
    if group is source:
        return True
    match group.origin:
        case GroupSplit() as s:
            return is_derived_from(s.source, source)
        case GroupMerge() as m:
            return is_derived_from(m.outer, source) or is_derived_from(m.inner, source)
        case GroupSwizzle() as s:
            return is_derived_from(s.source, source)
        case None:
            return False


def is_argument(context: LoweringContext, name: str) -> bool:
    """Whether a tensor is an input or output of the fusion."""
    return name in context.builder.input_names or name in context.builder.output_names
