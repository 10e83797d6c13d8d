"""Statistics in loop nests: what a thread adds up, what threads join, and when means and squares come of it.

A thread has sums of differences from a value of its own (`combiners/welford.py`), in Double where results show to more than
16 bits (`combiners/wide_welford.py`), or plain sums of 16-bit numbers (`combiners/moments.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeGuard

from fuser.ir.dtypes import DataType
from fuser.ir.enums import BLOCK_TYPES, GRID_TYPES, THREAD_TYPES, MemoryType
from fuser.ir.exact_statistics import RUN_DIGITS
from fuser.ir.fusion import COPIES, Pointwise, Split, Tensor, TensorExpr, Welford, tensor_outputs
from fuser.ir.integers import ONE, ZERO, Int, Symbol, all_of, equal, less, prove_less_equal
from fuser.ir.iteration_graph import Group, GroupSplit
from fuser.ir.kernel import Allocate, Buffer, Cast, For, If, Literal, Load, Role, Stmt, Store, Value
from fuser.ir.op_table import compute_dtype
from fuser.lowering.combiners.common_shift import choose_shift
from fuser.lowering.combiners.compensated_sum import rest_of
from fuser.lowering.combiners.exact_welford import finish_mean
from fuser.lowering.combiners.moments import settle_moments
from fuser.lowering.combiners.welford import WelfordStep, temporary, unshift
from fuser.lowering.combiners.wide_welford import settle_wide
from fuser.lowering.loop_nests.nest_predicates import inexact_splits
from fuser.lowering.loop_nests.nest_state import Accumulator, Nest, is_one
from fuser.lowering.loop_nests.nest_values import NestValues

MAX_REGISTER_ELEMENTS = 4096
# Values that a Float adds up before they go into a Double: their squares have 16 digits of its 24.
_LONGEST_RUN = 16
MOST_BESIDE_VALUES = 4
"""Statistics of a thread that are joined as sums in Double while it holds the values that they are of: with eight, batch norm
of 16-bit images to Floats, channels last, spills."""


class NestStatistics(NestValues):
    """How the statistics of a fusion are added up and joined."""

    def _accumulator_depth(self, name: str) -> int:
        """Depth at which the partials of a reduction live: outside its reduction axes where the rest fits in registers."""
        state = self.context.state(name)
        loops = self.context.loops(name)
        first = next((k for k, a in enumerate(state.loop) if a.is_reduction), len(loops))
        inside = 1
        for axis, group in list(zip(state.loop, loops, strict=True))[first:]:
            if axis.is_reduction or group.is_broadcast or state.parallel_type(axis) in THREAD_TYPES:
                continue
            inside = inside * group.extent.value if group.extent.is_const else MAX_REGISTER_ELEMENTS + 1
        if inside <= MAX_REGISTER_ELEMENTS:
            return first
        serial = [k for k, a in enumerate(state.loop) if a.is_reduction and state.parallel_type(a) not in THREAD_TYPES]
        return serial[0] if serial else len(loops)

    def _welford_step(self, leader: str, depth: int, buffers: tuple[Buffer, ...]) -> WelfordStep | None:
        """A count for all elements of a thread, where every step of the reduced loops visits each of them once; else, of real
        values that are added one by one, a count for each element."""
        is_together = self._counts_together(leader, depth)
        if not is_together and not self._counts_apart(leader, depth):
            return None
        # A thread of a kernel with 32-bit indices sees fewer than 2**31 elements.
        count = DataType.Int32 if self.context.index_bits == 32 else DataType.Int
        mean, real = buffers[0], buffers[1].dtype
        expr = self.exprs[leader]
        assert isinstance(expr, Welford)
        one_by_one = expr.partial is None
        is_wide, is_run, is_plain = leader in self.in_double, self._is_run(leader), self._is_plain(leader)
        # What runs are added to is a Double, but the shift that their values have in common a Float.
        shift_dtype = DataType.Double if is_wide and not is_plain else mean.dtype
        sums: tuple[Buffer, Buffer] | None = None
        if is_wide:
            dtype = DataType.Float if is_run else DataType.Double
            sums = (
                Buffer(f"{leader}_sum", dtype, MemoryType.local, mean.size),
                Buffer(f"{leader}_squares", dtype, MemoryType.local, mean.size),
            )
        has_shift = not is_run and not (is_plain and one_by_one) and (one_by_one or is_wide)
        return WelfordStep(
            Buffer(f"{leader}_seen", count, MemoryType.local, ONE if is_together else mean.size),
            temporary(f"{leader}_fraction", real),
            temporary(f"{leader}_weight", real),
            Buffer(f"{leader}_shift", shift_dtype, MemoryType.local, mean.size) if has_shift else None,
            sums,
            is_wide and one_by_one and self._is_joined_raw(expr),
            self.accumulators[self._joining(expr)[0]].step if is_run else None,
            is_plain,
            rest_of(buffers[1]) if has_shift and not is_wide and leader in self.exact else None,
            self._firsts(leader, expr, mean.size) if has_shift and one_by_one else (),
        )

    def _firsts(self, leader: str, expr: Welford, size: Int) -> tuple[Buffer, ...]:
        """Registers for the first values of each result, where its threads can read them: what they add up are elements of an
        input. None where each thread has a shift of its own."""
        among = (*BLOCK_TYPES, *GRID_TYPES)
        if self.holds_values or leader not in self.exact_sums | self.shifted_sums or self._is_joined(expr):
            return ()
        if not self._reduction_types(leader, among) or self._source(expr) is None:
            return ()
        count = 2 if leader in self.exact_sums and self._reduction_types(leader, BLOCK_TYPES) else 1
        return tuple(Buffer(f"{leader}_first{k}", expr.mean.dtype, MemoryType.local, size) for k in range(count))

    def _source(self, expr: Welford) -> Tensor | None:
        """The input whose elements statistics are of, if they are no other values."""
        source = expr.input
        made = self.builder.definition(source.name)
        if isinstance(made, Pointwise) and made.op in COPIES and isinstance(made.inputs[0], Tensor):
            source = made.inputs[0]
        return source if source.name in self.builder.input_names and not source.is_cpu else None

    def _read_firsts(self, leader: str, accumulator: Accumulator, nest: Nest) -> list[Stmt]:
        """Read the first value of each result, and, if there are two, that of the thread in the middle of its first block."""
        step, expr = accumulator.step, self.exprs[leader]
        if step is None or not isinstance(expr, Welford):
            return []
        state, loops = self.context.state(leader), self.context.loops(leader)
        stmts: list[Stmt] = []
        for first in step.firsts:
            is_other = first is not step.firsts[0]
            indices, opened = self._own_element(leader, accumulator.depth, nest)
            for axis, group in zip(state.loop, loops, strict=True):
                if axis.is_reduction:
                    is_along = is_other and state.parallel_type(axis) in BLOCK_TYPES
                    indices[group] = group.extent // 2 if is_along else ZERO
            indexer = self._indexer(indices)
            source = self._source(expr)
            assert source is not None
            read = Store(first, self._offset(indexer, accumulator.axes, expr.mean), self._read(source, indexer))
            # The loops that are not around the read do not turn where a reduced dim has no element.
            padded = set(inexact_splits(loops))
            turns = [
                less(indices[group], group.extent)
                for axis, group in zip(state.loop, loops, strict=True)
                if axis.is_reduction and not (isinstance(group.origin, GroupSplit) and group.origin in padded)
            ]
            reads = self._predicated([read], all_of(*self._predicate_list(leader, loops, indexer), *turns))
            for i, extent in reversed(opened):
                nested: list[Stmt] = [For(i, ZERO, extent, ONE, tuple(reads), unroll=True)]
                reads = nested
            # A second value that is not there says nothing about the first.
            blank = Literal(math.nan if is_other else 0.0, first.dtype)
            filled = self._over(first.size)(lambda e, b=first, v=blank: [Store(b, e, v, Role.initialise)])
            stmts += [Allocate(first), *filled, *reads]
        return stmts

    def _own_element(self, leader: str, depth: int, nest: Nest) -> tuple[dict[Group, Int], list[tuple[Symbol, Int]]]:
        """Indices of the kept axes for one of the results that a thread has at `depth`, and the loops over those, slowest
        first."""
        state = self.context.state(leader)
        indices = dict(nest.indices)
        opened: list[tuple[Symbol, Int]] = []
        for axis, group in list(zip(state.loop, self.context.loops(leader), strict=True))[depth:]:
            p = state.parallel_type(axis)
            if axis.is_reduction:
                continue
            if p in THREAD_TYPES:
                indices[group] = ZERO if group.is_broadcast else self.context.thread_index(p)
            elif is_one(group.extent):
                indices[group] = ZERO
            else:
                i = self._new_symbol(group.extent)
                self._unrolled.add(i)
                indices[group] = i
                opened.append((i, group.extent))
        return indices, opened

    def _joining(self, expr: Welford) -> list[str]:
        """The statistics that these are a part of."""
        return [
            name
            for name, e in self.exprs.items()
            if isinstance(e, Welford) and e.partial is not None and e.input is expr.mean
        ]

    def _is_run(self, leader: str) -> bool:
        """Whether these are of a few values of few digits, and only added to those of their thread."""
        expr = self.exprs[leader]
        if not isinstance(expr, Welford) or expr.partial is not None:
            return False
        if self.value_digits.get(leader, RUN_DIGITS + 1) > RUN_DIGITS:
            return False
        length = 1
        for is_reduction, group in self._serial_axes(leader, self._accumulator_depth(leader)):
            if is_reduction:
                length *= group.extent.value if group.extent.is_const else _LONGEST_RUN + 1
        if length > _LONGEST_RUN or not self._is_joined_raw(expr):
            return False
        (total,) = self._joining(expr)
        # A run takes the shift of the element that it is added to: each has its own.
        if self._own_elements(leader) != self._own_elements(total):
            return False
        # Within an iteration of the loops over runs, so that their sums are there before.
        shared = range(self._accumulator_depth(total) + 1)
        return not self._is_joined(self.exprs[total]) and all(
            len(self.context.loops(leader)) > k and self.sharing.find((leader, k)) == self.sharing.find((total, k))
            for k in shared
        )

    def _own_elements(self, leader: str) -> list[Int]:
        """Extents of the loops over the results of one thread."""
        axes = self._serial_axes(leader, self._accumulator_depth(leader))
        return [g.extent for is_reduction, g in axes if not is_reduction and g.extent is not ONE]

    def _opens_run(self, leader: str, depth: int) -> bool:
        """Whether the sums of a run stand before the loop at `depth`."""
        accumulator = self.accumulators.get(leader)
        step = accumulator.step if accumulator is not None and accumulator.depth == depth else None
        return step is not None and step.total is not None

    def _is_plain(self, leader: str) -> bool:
        """Whether these are of 16-bit numbers and complete once all threads are joined: they are plain sums till then."""
        expr = self.exprs[leader]
        if not isinstance(expr, Welford) or leader not in self.value_digits or self._is_joined(expr):
            return False
        return expr.partial is None or self._is_run(self.leaders[expr.input.name])

    def _is_joined_raw(self, expr: Welford) -> bool:
        """Whether these statistics are only joined by their thread's own, one step after another."""
        users = self._joining(expr)
        return len(users) == 1 and self._counts_together(users[0], self._accumulator_depth(users[0]))

    def _is_joined(self, expr: TensorExpr) -> TypeGuard[Welford]:
        """Whether another expr joins these statistics, with what their means have lost."""
        return isinstance(expr, Welford) and bool(self._joining(expr))

    def _counts_together(self, leader: str, depth: int) -> bool:
        expr = self.exprs[leader]
        if not isinstance(expr, Welford) or expr.mean.dtype.is_complex:
            return False
        serial = [is_reduction for is_reduction, _ in self._serial_axes(leader, depth)]
        if serial != sorted(serial, reverse=True):
            return False  # a loop over kept dims runs around one over reduced dims
        if self._has_cut_lanes(leader, depth):
            return False
        if expr.partial is None:
            return True
        # Partials that a thread joins have a count in common if they are its own and had one.
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
            and self._counts_together(source, inside)
        )

    def _counts_apart(self, leader: str, depth: int) -> bool:
        """Whether differences of values from the first of their element are added up, though a loop over elements runs around
        one over values: rows that a thread works on together, by vectors."""
        expr = self.exprs[leader]
        if not isinstance(expr, Welford) or expr.partial is not None or expr.mean.dtype.is_complex:
            return False
        return leader not in self.in_double and leader not in self.exact and not self._is_joined(expr)

    def _has_cut_lanes(self, leader: str, depth: int) -> bool:
        """Whether a thread has partials of their own for pieces of a reduced dim that need not be equally long."""
        state = self.context.state(leader)
        for axis, group in zip(state.loop[depth:], self.context.loops(leader)[depth:], strict=True):
            made, origin = axis.definition, group.origin
            if axis.is_reduction or is_one(group.extent) or state.parallel_type(axis) in THREAD_TYPES:
                continue
            while isinstance(made, Split) and isinstance(origin, GroupSplit):
                if made.source.is_reduction and not origin.divides:
                    return True
                made, origin = made.source.definition, origin.source.origin
        return False

    def _serial_axes(self, leader: str, depth: int) -> list[tuple[bool, Group]]:
        """(is reduced, group) of the loops from `depth` on that a thread runs through."""
        state = self.context.state(leader)
        return [
            (a.is_reduction, group)
            for a, group in zip(state.loop[depth:], self.context.loops(leader)[depth:], strict=True)
            if not group.is_broadcast and not is_one(group.extent) and state.parallel_type(a) not in THREAD_TYPES
        ]

    def _settled(self, leader: str, accumulator: Accumulator, step: WelfordStep) -> list[Stmt]:
        """A thread's sums of differences become its statistics."""
        if step.shift is None:
            return []
        shift, rest = step.shift, accumulator.rest
        mean, m2, _ = accumulator.buffers
        name, elements = f"{leader}_u{self._next()}", self._over(mean.size)
        if step.sums is None:
            return unshift(accumulator.buffers, rest, step, elements, name)
        assert rest is not None
        return settle_wide((mean, m2, rest), step.sums, lambda e: Load(shift, e), step.count, elements, name)

    def _is_shifted(self, leader: str, accumulator: Accumulator) -> bool:
        """Whether threads are joined by sums in Double, and statistics made of them after that."""
        step = accumulator.step
        if step is None or step.is_raw or step.shift is None or self._is_joined(self.exprs[leader]):
            return False
        if leader not in (self.exact_sums if step.sums is None else self.shifted_sums):
            return False
        if step.sums is None and not step.firsts:
            # Doubles of several shifts: means and squares are joined, which is as exact.
            return False
        if self.holds_values and not prove_less_equal(accumulator.buffers[0].size, MOST_BESIDE_VALUES):
            return False
        among = (BLOCK_TYPES, GRID_TYPES)
        return any(self._reduction_types(leader, a) for a in among) or bool(self._cluster_types(leader))

    def _settled_last(self, leader: str, accumulator: Accumulator, step: WelfordStep) -> list[Stmt]:
        """The sums of differences of all threads become statistics."""
        rest = accumulator.rest
        assert rest is not None
        finished = self._over(rest.size)
        name = f"{leader}_f{self._next()}"
        settled = self._settled(leader, accumulator, step)
        if step.firsts and step.shift is not None:
            shift = step.shift
            # Of those who settle a result some have seen no value of it.
            chosen = self._over(shift.size)(lambda e: [choose_shift(shift, step.firsts, e)])
            settled = [*chosen, *settled]
        mean = accumulator.buffers[0]
        return self._in_last_block([*settled, *finished(lambda e: finish_mean(mean, rest, e, name))], accumulator)

    def _in_last_block(self, stmts: list[Stmt], accumulator: Accumulator) -> list[Stmt]:
        """Where blocks share a result, only the last one has it."""
        if accumulator.last_block is None:
            return stmts
        declared = [s for s in stmts if isinstance(s, Allocate)]
        rest = tuple(s for s in stmts if not isinstance(s, Allocate))
        return [*declared, If(equal(accumulator.last_block, 1), rest, role=Role.last_block)]

    def _settled_sums(self, leader: str, accumulator: Accumulator, step: WelfordStep) -> list[Stmt]:
        """The complete sums of all threads become statistics."""
        mean, m2, _ = accumulator.buffers
        assert accumulator.rest is not None
        settled = settle_moments((mean, m2, accumulator.rest), step, self._over(mean.size), f"{leader}_u{self._next()}")
        return self._in_last_block(settled, accumulator)

    def _over(self, size: Int) -> Callable[[Callable[[Int], list[Stmt]]], list[Stmt]]:
        """Makes statements for every element of an array of `size`."""
        if size.value == 1:
            return lambda make: make(ZERO)
        i = self._new_symbol(size)
        return lambda make: [For(i, ZERO, size, ONE, tuple(make(i)), unroll=True)]

    def _spread_count(self, counts: Buffer, seen: Buffer) -> list[Stmt]:
        """What each element has seen, if they were counted together the same."""

        def spread(e: Int) -> list[Stmt]:
            value: Value = Load(seen, e if seen.size is counts.size else ZERO)
            return [Store(counts, e, value if seen.dtype is counts.dtype else Cast(value, counts.dtype))]

        return self._over(counts.size)(spread)


def accumulator_dtype(dtype: DataType) -> DataType:
    """What partial results are held in: Float for the narrow floats, so that only the result is rounded."""
    return compute_dtype(dtype) if dtype.is_reduced_float else dtype
