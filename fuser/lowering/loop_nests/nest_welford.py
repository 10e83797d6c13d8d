"""Statistics in loop nests: what a thread accumulates, what threads combine, and when means and squares are computed.

A thread accumulates sums of differences from one of its own values; threads combine means and squares (`combiners/`). If the
values of a thread are in registers it visits them twice: squares are of differences from its mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fuser.ir.fusion.fusion import Pointwise, Split, Tensor, TensorExpr, Welford, tensor_outputs
from fuser.ir.fusion.iteration_graph import Group, GroupSplit
from fuser.ir.integers.integers import ONE, ZERO, Int, Symbol
from fuser.ir.kernel.kernel import Buffer, Cast, For, Literal, Load, Role, Stmt, Store, Value
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import BLOCK_TYPES, GRID_TYPES, THREAD_TYPES, MemoryType, ParallelType
from fuser.ir.ops.op_table import compute_dtype
from fuser.lowering.combiners.combiner_values import temporary
from fuser.lowering.combiners.exp_sum import MAX_GROUP
from fuser.lowering.combiners.shifted_sums import add_deviation, centre, correct_deviations
from fuser.lowering.combiners.welford import WelfordStep
from fuser.lowering.loop_nests.indexing import Indexer
from fuser.lowering.loop_nests.nest_state import Accumulator, Nest
from fuser.lowering.loop_nests.nest_values import NestValues
from fuser.lowering.parallel_axes import guarded

MAX_REGISTER_ELEMENTS = 4096


class NestWelford(NestValues):
    """How the statistics of a fusion are added up and combined."""

    def _accumulator_depth(self, name: str) -> int:
        """Depth at which the partials of a reduction live: outside its reduction axes where the rest fits in registers."""
        axes = self.context.axes(name)
        first = next((k for k, (a, _, _) in enumerate(axes) if a.is_reduction), len(axes))
        inside = 1
        for axis, group, p in axes[first:]:
            if axis.is_reduction or group.is_broadcast or p in THREAD_TYPES:
                continue
            inside = inside * group.extent.value if group.extent.is_const else MAX_REGISTER_ELEMENTS + 1
        if inside <= MAX_REGISTER_ELEMENTS:
            return first
        serial = (k for k, (a, _, p) in enumerate(axes) if a.is_reduction and p not in THREAD_TYPES)
        return next(serial, len(axes))

    def _welford_step(self, leader: str, depth: int, buffers: tuple[Buffer, ...]) -> WelfordStep | None:
        """A count for all elements of a thread, where every step of the reduced loops visits each of them once; else, of
        values that are added one by one, a count for each element."""
        expr, mean = self.exprs[leader], buffers[0]
        is_together = self._has_common_count(leader, depth)
        if not isinstance(expr, Welford) or (expr.partial is not None and not is_together):
            return None
        # A thread of a kernel with 32-bit indices sees fewer than 2**31 elements.
        count = DataType.Int32 if self.context.index_bits == 32 else DataType.Int
        return WelfordStep(
            Buffer(f"{leader}_seen", count, MemoryType.local, ONE if is_together else mean.size),
            temporary(f"{leader}_fraction", mean.dtype),
            temporary(f"{leader}_weight", mean.dtype),
            Buffer(f"{leader}_shift", mean.dtype, MemoryType.local, mean.size) if expr.partial is None else None,
            self._values_in_registers(leader, depth) if expr.partial is None else 0,
        )

    def _values_in_registers(self, leader: str, depth: int) -> int:
        """How many values of an element a thread reduces in the loops from `depth` on, if after the loops they are still in
        registers or can be kept there; else 0, as of no loop."""
        expr = self.exprs[leader]
        assert isinstance(expr, Welford)
        loops = self._serial_axes(leader, depth)
        if not all(g.extent.is_const for _, g in loops):
            return 0
        most = MAX_REGISTER_ELEMENTS if self._is_readable_after(expr.input, depth) else MAX_GROUP
        of_element = math.prod(g.extent.value for is_reduction, g in loops if is_reduction)
        # Of two values, squares of the difference from the first are twice too large at most.
        return of_element if of_element > 2 and math.prod(g.extent.value for _, g in loops) <= most else 0

    def _buffers_values(self, leader: str, depth: int) -> bool:
        """Whether a thread keeps its values for a second visit."""
        expr = self.exprs[leader]
        return (
            isinstance(expr, Welford)
            and expr.partial is None
            and self._values_in_registers(leader, depth) > 0
            and not self._is_readable_after(expr.input, depth)
        )

    def _is_readable_after(self, t: Tensor, depth: int) -> bool:
        """Whether a value can be read after the loops from `depth` on: from registers outside of them, or cast from such."""
        leader = self.leaders.get(t.name)
        if leader is None:
            return False
        if self.context.state(t.name).memory is MemoryType.local and self.sharing.positions[leader] <= depth:
            return True
        source = _cast_of(self.exprs[leader])
        return source is not None and self._is_readable_after(source, depth)

    def _read_after(self, t: Tensor, depth: int, indexer: Indexer) -> Value:
        """The value of `_is_readable_after`."""
        leader = self.leaders[t.name]
        source = _cast_of(self.exprs[leader])
        if source is None or self.sharing.positions[leader] <= depth:
            return self._read(t, indexer)
        return Cast(self._read_after(source, depth, indexer), t.dtype)

    def _deviations(self, leader: str, accumulator: Accumulator, nest: Nest) -> list[Stmt]:
        """The second visit of the values of a thread: differences from about their means, and their squares."""
        expr, depth, step = self.exprs[leader], accumulator.depth, accumulator.step
        assert isinstance(expr, Welford)
        assert step is not None
        assert step.shift is not None
        # The first values have served.
        left, over = step.shift, self._for_each_element(accumulator.buffers[0].size)
        indices, opened = self._element_indices(leader, depth, nest, reduced=True)
        indexer = self._indexer(indices)
        group = accumulator.fold_buffer
        x = (
            self._read_after(expr.input, depth, indexer)
            if group is None
            else Load(group.values, self._offset(indexer, group.axes, expr.input))
        )
        at = self._offset(indexer, accumulator.axes, expr.mean)
        stmts = add_deviation(accumulator.buffers, left, at, x, f"{leader}_w{self._next()}")
        stmts = guarded(self._predicates(leader, self.context.loops(leader), indexer), stmts, Role.predicate)
        for i, extent, parallel in reversed(opened):
            is_tested_once = parallel is ParallelType.unswitch
            stmts = list[Stmt]([For(i, ZERO, extent, ONE, tuple(stmts), unroll=True, unswitch=is_tested_once)])
        return [
            *centre(accumulator.buffers, step, over),
            *over(lambda e: [Store(left, e, Literal(0.0, left.dtype), Role.initialise)]),
            *stmts,
            *correct_deviations(accumulator.buffers, left, step, over),
        ]

    def _element_indices(
        self, leader: str, depth: int, nest: Nest, *, reduced: bool
    ) -> tuple[dict[Group, Int], list[tuple[Symbol, Int, ParallelType]]]:
        """Indices of the kept axes for one of the results that a thread has at `depth`, and the loops over those, slowest
        first; with `reduced`, of all axes for one of the values that it reduces."""
        indices = dict(nest.indices)
        opened: list[tuple[Symbol, Int, ParallelType]] = []
        for axis, group, p in self.context.axes(leader, depth):
            if axis.is_reduction and not reduced:
                continue
            if p in THREAD_TYPES:
                indices[group] = ZERO if group.is_broadcast else self.context.thread_index(p)
            elif group.extent is ONE or (axis.is_reduction and group.is_broadcast):
                indices[group] = ZERO
            else:
                i = self._new_symbol(group.extent)
                self._unrolled.add(i)
                indices[group] = i
                opened.append((i, group.extent, p))
        return indices, opened

    def _has_common_count(self, leader: str, depth: int) -> bool:
        expr = self.exprs[leader]
        if not isinstance(expr, Welford):
            return False
        serial = [is_reduction for is_reduction, _ in self._serial_axes(leader, depth)]
        if serial != sorted(serial, reverse=True):
            return False  # a loop over kept dims runs around one over reduced dims
        if self._has_partial_lanes(leader, depth):
            return False
        if expr.partial is None:
            return True
        # Partials that a thread combines have a count in common if they are its own and had one.
        source = self.leaders.get(expr.input.name, "")
        if source not in self.exprs or any(self._reduction_types(source, among) for among in (BLOCK_TYPES, GRID_TYPES)):
            return False
        state = self.context.state(expr.input.name)
        inside = self._accumulator_depth(source)
        return (
            state.memory is MemoryType.local
            and state.allocation is None
            and all(accumulator_dtype(t.dtype) is t.dtype for t in tensor_outputs(self.exprs[source]))
            and inside == self.sharing.positions[source]
            and self._has_common_count(source, inside)
        )

    def _has_partial_lanes(self, leader: str, depth: int) -> bool:
        """Whether a thread has partials of their own for pieces of a reduced dim that need not be equally long."""
        for axis, group, p in self.context.axes(leader, depth):
            made, origin = axis.definition, group.origin
            if axis.is_reduction or group.extent is ONE or p in THREAD_TYPES:
                continue
            while isinstance(made, Split) and isinstance(origin, GroupSplit):
                if made.source.is_reduction and not origin.divides:
                    return True
                made, origin = made.source.definition, origin.source.origin
        return False

    def _serial_axes(self, leader: str, depth: int) -> list[tuple[bool, Group]]:
        """(is reduced, group) of the loops from `depth` on that a thread runs through."""
        return [
            (a.is_reduction, group)
            for a, group, p in self.context.axes(leader, depth)
            if not group.is_broadcast and group.extent is not ONE and p not in THREAD_TYPES
        ]

    def _for_each_element(self, size: Int) -> Callable[[Callable[[Int], list[Stmt]]], list[Stmt]]:
        """Makes statements for every element of an array of `size`."""
        if size.value == 1:
            return lambda make: make(ZERO)
        i = self._new_symbol(size)
        return lambda make: [For(i, ZERO, size, ONE, tuple(make(i)), unroll=True)]

    def _broadcast_count(self, counts: Buffer, seen: Buffer) -> list[Stmt]:
        """What each element has seen, if they were counted together the same."""

        def spread(e: Int) -> list[Stmt]:
            value: Value = Load(seen, e if seen.size is counts.size else ZERO)
            return [Store(counts, e, value if seen.dtype is counts.dtype else Cast(value, counts.dtype))]

        return self._for_each_element(counts.size)(spread)


def accumulator_dtype(dtype: DataType) -> DataType:
    """What partial results are held in: Float for the narrow floats, so that only the result is rounded."""
    return compute_dtype(dtype) if dtype.is_reduced_float else dtype


def _cast_of(expr: TensorExpr) -> Tensor | None:
    """What is cast, if nothing else is done."""
    source = expr.inputs[0] if isinstance(expr, Pointwise) and expr.op == "cast" else None
    return source if isinstance(source, Tensor) else None
