"""Verbs on the loop axes of one tensor and on the launch: split, merge, reorder, parallelize, clusters, facts to ask for."""

from __future__ import annotations

from fuser.errors import NotSupportedError, SchedulingError
from fuser.ir.facts import ExtentDivisible, ExtentWithin
from fuser.ir.fusion.user_names import value_name
from fuser.ir.integers.integers import const
from fuser.ir.ops.enums import ParallelType
from fuser.ir.schedule.scheduled_fusion import Record, ScheduledFusion, TensorState, merge_axes, split_axis

MOST_IN_CLUSTER = 16
"""Blocks of a cluster; above 8 a kernel has to opt in."""


class TransformVerbs(ScheduledFusion):
    """Loop axes and launch."""

    def _check_free(self, state: TensorState, position: int, verb: str) -> None:
        if position < state.inline_at:
            raise SchedulingError(
                f"cannot {verb} axis {position} of {state.tensor.name}: it is inlined with its consumers"
            )

    def split(self, name: str, axis: int, factor: int, inner_split: bool = True) -> None:
        """Loop axis of extent E -> (ceil(E/f), f), or (f, ceil(E/f)) if not `inner_split`."""
        position = self._split(name, axis, factor, inner_split, None)
        self.records.append(Record("split", name, (position, factor, inner_split)))

    def split_aligned(self, name: str, axis: int, factor: int, to: str) -> None:
        """Loop axis of extent E -> (ceil((E+f-1)/f), f), where parts begin at multiples of f elements in the memory of `to`.

        The row of `to` along the axis, whose elements must be neighbours, begins a elements behind such a multiple, which
        depends on the row: part i has the elements [i*f - a, i*f - a + f), of which some of the first and the last part are
        outside. Where other arguments are pitched alike, their accesses of f elements are aligned, too.

        Raises SchedulingError for a factor that is no power of two above one, and for a `to` that is no argument.
        """
        if factor < 2 or factor & (factor - 1):
            raise SchedulingError(f"cannot align {name} to multiples of {factor}: it must be a power of two above one")
        if to not in self.input_names | self.output_names:
            raise SchedulingError(f"cannot align {name} to {to}: it is no argument of the kernel")
        position = self._split(name, axis, factor, True, to)
        self.records.append(Record("split_aligned", name, (position, factor, to)))

    def _split(self, name: str, axis: int, factor: int, inner_split: bool, aligned: str | None) -> int:
        """The position of the axis."""
        if factor <= 0:
            raise SchedulingError(
                f"cannot split {value_name(self.fusion, self.state(name).tensor)} by {factor}: the factor must be positive"
            )
        state = self.state(name)
        if not state.loop:
            raise SchedulingError(f"cannot split {name}: its rank is 0")
        position = self._axis_position(state, axis)
        self._check_free(state, position, "split")
        if state.parallel_type(state.loop[position]) is not ParallelType.serial:
            raise SchedulingError(f"cannot split axis {position} of {name}: it is already parallelized")
        for sibling in self.siblings(name):
            s = self.state(sibling)
            made = split_axis(s.loop[position], const(factor), inner_split, aligned)
            s.loop[position : position + 1] = [made.outer, made.inner]
        return position

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

    def require_extent_range(self, name: str, dim: int, low: int, high: int) -> None:
        """Ask for the fact low <= extent <= high of a visible dim of an input: loops over it may then have a constant extent.

        Raises SchedulingError for a tensor that is no input, a dim that it does not have, or bounds that leave no extent.
        """
        if name not in self.input_names or not 0 <= dim < self.state(name).tensor.ndim:
            raise SchedulingError(
                f"cannot ask for the extent of dim {dim} of {name}: the fusion has no such input or dim"
            )
        if not 0 <= low <= high:
            raise SchedulingError(f"cannot ask for an extent of {name} within {low} and {high}")
        self.required_facts.append(ExtentWithin(name, dim, low, high))
        self.records.append(Record("require_extent_range", name, (dim, low, high)))

    def require_extent_divisible(self, name: str, dim: int, divisor: int) -> None:
        """Ask for the fact that the extent of a visible dim of an input is a multiple of `divisor`: splits by it leave no rest.

        Raises SchedulingError for a tensor that is no input, a dim that it does not have, or a divisor that is none.
        """
        if name not in self.input_names or not 0 <= dim < self.state(name).tensor.ndim:
            raise SchedulingError(
                f"cannot ask for the extent of dim {dim} of {name}: the fusion has no such input or dim"
            )
        if divisor < 1:
            raise SchedulingError(f"cannot ask for an extent of {name} that is a multiple of {divisor}")
        self.required_facts.append(ExtentDivisible(name, dim, divisor))
        self.records.append(Record("require_extent_divisible", name, (dim, divisor)))

    def require_blocks_per_sm(self, count: int) -> None:
        """Ask for so few registers a thread that `count` blocks fit on a processor at once, as a grid that waits may need."""
        if count < 1:
            raise SchedulingError(f"cannot ask for {count} blocks on a processor")
        self.blocks_per_sm = count
        self.records.append(Record("require_blocks_per_sm", "", (count,)))

    def set_cluster(self, parallel_type: ParallelType, size: int) -> None:
        """Launch `size` consecutive blocks along a grid axis as a cluster, which share their shared memory.

        Reductions over an axis of that type, which must then have the extent `size`, stay within the cluster. Raises
        SchedulingError for a type that is no grid axis, a size that is not 1 to 16, and a second cluster axis.
        """
        if not parallel_type.is_grid:
            raise SchedulingError(f"a cluster lies along a grid axis, not along {parallel_type.name}")
        if not 1 <= size <= MOST_IN_CLUSTER:
            raise SchedulingError(f"a cluster has 1 to {MOST_IN_CLUSTER} blocks, not {size}")
        if self.cluster and parallel_type not in self.cluster:
            raise SchedulingError("a kernel has one cluster axis")
        self.cluster = {parallel_type: size} if size > 1 else {}
        self.records.append(Record("set_cluster", "", (parallel_type, size)))
