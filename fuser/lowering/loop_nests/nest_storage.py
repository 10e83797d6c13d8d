"""Storage in loop nests: registers and buffers of intermediates, partials of reductions, and the statements before and after
their loops.

Before the loop in which a tensor is computed: its buffer, its partials and their identities. After it: the collective that
combines the partials of threads and blocks, and the copy of the result to the tensor's buffer.
"""

from __future__ import annotations

import math

from fuser.errors import SchedulingError
from fuser.ir.fusion.fusion import ExpSum, Reducing, Reduction, Tensor, TensorExpr, Welford, tensor_outputs
from fuser.ir.fusion.user_names import extent_text, value_name
from fuser.ir.integers.integers import ONE, TRUE, ZERO, Int, const, equal, less, symbol
from fuser.ir.kernel.kernel import Allocate, Buffer, Cast, For, If, Literal, Load, Reduce, Role, Stmt, Store, Value
from fuser.ir.ops.enums import BLOCK_TYPES, GRID_TYPES, THREAD_TYPES, MemoryType, ParallelType
from fuser.ir.ops.op_table import REDUCTIONS
from fuser.lowering.combiners.exp_sum import MAX_GROUP, FoldBuffer, exp_sum_complete, exp_sum_group
from fuser.lowering.combiners.shifted_sums import finish_shifted
from fuser.lowering.context import TensorLayout, dense_axes, is_argument, local_layout
from fuser.lowering.loop_nests.nest_state import Accumulator, Nest
from fuser.lowering.loop_nests.nest_welford import MAX_REGISTER_ELEMENTS, NestWelford, accumulator_dtype
from fuser.lowering.loop_nests.scan_nests import ScanNest


class NestStorage(NestWelford):
    """The statements before and after the loops of an expr."""

    def _before_loop(self, leader: str, depth: int, nest: Nest) -> list[Stmt]:
        """The statements before the loop at `depth`: storage, and partials with their identities."""
        expr = self.exprs[leader]
        stmts: list[Stmt] = []
        reduces = isinstance(expr, Reducing)
        accumulator_depth = self._accumulator_depth(leader) if reduces else -1
        if reduces and accumulator_depth == depth:
            accumulator = self._make_accumulator(leader, depth)
            self.accumulators[leader] = accumulator
            stmts += [Allocate(b) for b in accumulator.buffers]
            step = accumulator.step
            # A count in common is kept in `step`, and spread over the elements when it is complete.
            kept = accumulator.buffers if step is None else accumulator.buffers[:2]
            for buffer, identity in zip(kept, self._identities(expr), strict=False):
                stmts += self._fill(buffer, identity)
            if step is not None:
                stmts += [Allocate(b) for b in (step.count, step.fraction, step.weight)]
                stmts += self._fill(step.count, Literal(0, step.count.dtype))
                if step.shift is not None:
                    stmts += [Allocate(step.shift), *self._fill(step.shift, Literal(0.0, step.shift.dtype))]
        group = self.accumulators[leader].fold_buffer if leader in self.accumulators else None
        if group is not None and group.depth == depth:
            stmts.append(Allocate(group.values))
            if isinstance(expr, ExpSum):
                stmts += self._fill(group.values, self._identities(expr)[0])
        if leader in self.scans:
            stmts += self._allocate_scan(leader, self.scans[leader], depth)
        position = self.sharing.positions[leader]
        for t in tensor_outputs(expr):
            if position == depth and t.name not in self.storage and not is_argument(self.context, t.name):
                self._place(t, stmts)
        return stmts

    def _place(self, t: Tensor, stmts: list[Stmt]) -> None:
        """Give an intermediate its storage."""
        state = self.context.state(t.name)
        leader = self.leaders[t.name]
        accumulator = self.accumulators.get(leader)
        if (
            state.memory is MemoryType.local
            and accumulator is not None
            and accumulator.depth == self.sharing.positions[leader]
            and state.allocation is None
        ):
            index = [o.name for o in tensor_outputs(self.exprs[leader])].index(t.name)
            if accumulator.buffers[index].dtype is t.dtype:
                self.storage[t.name] = TensorLayout(t, accumulator.buffers[index], accumulator.axes)
                return
        storage = local_layout(self.context, t, state.memory)
        size = storage.buffer.size
        if state.memory is MemoryType.local and (not size.is_const or size.value > MAX_REGISTER_ELEMENTS):
            raise SchedulingError(
                f"{value_name(self.builder.fusion, t)} would need {extent_text(self.builder.fusion, size)} registers "
                f"per thread: split and parallelize its loops, inline it, or move it to "
                "shared memory",
                location=t.location,
            )
        self.storage[t.name] = storage
        if storage.buffer.is_global:
            self.workspaces.append(storage.buffer)
        else:
            stmts.append(Allocate(storage.buffer))

    def _make_accumulator(self, leader: str, depth: int) -> Accumulator:
        axes, size = dense_axes(
            [
                group
                for axis, group, p in self.context.axes(leader, depth)
                if not (axis.is_reduction or group.is_broadcast or p in THREAD_TYPES)
            ]
        )
        if not size.is_const:
            raise SchedulingError(f"{leader} needs {size} partial sums per thread: that must be a constant")
        buffers = tuple(
            Buffer(f"{t.name}_partial", accumulator_dtype(t.dtype), MemoryType.local, size)
            for t in tensor_outputs(self.exprs[leader])
        )
        step = self._welford_step(leader, depth, buffers)
        accumulator = Accumulator(depth, buffers, axes, step=step)
        accumulator.fold_buffer = self._buffered_group(leader, accumulator)
        return accumulator

    def _buffered_group(self, leader: str, accumulator: Accumulator) -> FoldBuffer | None:
        """The innermost loops whose values a thread can hold: of an ExpSum, and of a Welford whose values nothing else holds.

        None where that is one value, or a partial to combine.
        """
        start = self._group_depth(leader)
        if start is None:
            return None
        kept = accumulator.buffers[0].size.value
        axes, running = list(accumulator.axes), kept
        for is_reduction, group in reversed(self._serial_axes(leader, start)):
            if is_reduction:
                axes.append((group, const(running)))
                running *= group.extent.value
        values = Buffer(f"{leader}_values", accumulator.buffers[0].dtype, MemoryType.local, const(running))
        return FoldBuffer(start, values, tuple(axes), kept)

    def _group_depth(self, leader: str) -> int | None:
        """Depth of the loops whose values are held: before an ExpSum folds them, not of those over nothing; until a Welford has
        their mean."""
        expr = self.exprs[leader]
        if isinstance(expr, Welford):
            depth = self._accumulator_depth(leader)
            return depth if self._buffers_values(leader, depth) else None
        if not isinstance(expr, ExpSum) or expr.partial is not None:
            return None
        axes, outside = self.context.axes(leader), self._accumulator_depth(leader)
        start, held = len(axes), 1
        for k in reversed(range(outside, len(axes))):
            _, group, p = axes[k]
            if not group.is_broadcast and p not in THREAD_TYPES:
                held *= group.extent.value if group.extent.is_const else MAX_GROUP + 1
            if not 0 < held <= MAX_GROUP:
                break
            start = k
        inside = [is_reduction for is_reduction, _ in self._serial_axes(leader, start)]
        before = self._serial_axes(leader, outside)[: len(self._serial_axes(leader, outside)) - len(inside)]
        return start if any(inside) and all(is_reduction for is_reduction, _ in before) else None

    def _identities(self, expr: TensorExpr) -> tuple[Literal, ...]:
        if isinstance(expr, Reduction):
            dtype = accumulator_dtype(expr.output.dtype)
            return (Literal(REDUCTIONS[expr.op].identity(dtype), dtype),)
        if isinstance(expr, ExpSum):
            return Literal(-math.inf, expr.largest.dtype), Literal(0.0, expr.total.dtype)
        assert isinstance(expr, Welford)
        return tuple(
            Literal(0 if t.dtype.is_integral else 0.0, accumulator_dtype(t.dtype)) for t in tensor_outputs(expr)
        )

    def _allocate_scan(self, leader: str, nest: ScanNest, depth: int) -> list[Stmt]:
        stmts: list[Stmt] = []
        if depth == nest.start:
            init: Value = nest.identity
            if nest.expr.init is not None:
                init = Cast(self._read(nest.expr.init, self._indexer({})), nest.carry.dtype)
            stmts += [Allocate(nest.carry), *self._fill(nest.carry, init)]
        if depth == nest.depth and nest.collective is not None:
            values = nest.collective.values
            stmts.append(Allocate(values))
            self.accumulators[leader] = Accumulator(depth, (values,), nest.axes)
        return stmts

    def _fill(self, buffer: Buffer, value: Value) -> list[Stmt]:
        return self._for_each_element(buffer.size)(lambda i: [Store(buffer, i, value, Role.initialise)])

    def _after_loop(self, leader: str, depth: int, nest: Nest) -> list[Stmt]:
        """The statements after the loop at `depth`: the collective of a reduction, and its stores."""
        accumulator = self.accumulators.get(leader)
        if accumulator is None:
            return []
        stmts: list[Stmt] = []
        if (
            isinstance(self.exprs[leader], ExpSum)
            and accumulator.fold_buffer is not None
            and accumulator.fold_buffer.depth == depth
        ):
            name = f"{leader}_g{self._next()}"
            stmts += exp_sum_group(
                accumulator.buffers,
                accumulator.fold_buffer,
                name,
                self._new_symbol,
                is_only=accumulator.depth == depth,
            )
        if accumulator.depth != depth:
            return stmts
        expr = self.exprs[leader]
        block_axes = self._reduction_types(leader, BLOCK_TYPES)
        grid_axes = self._reduction_types(leader, GRID_TYPES)
        scan = self.scans.get(leader)
        if scan is not None and scan.collective is not None:
            stmts.append(scan.collective)
        step = accumulator.step
        if step is not None and step.shift is not None:
            if step.visited_twice:
                stmts += self._deviations(leader, accumulator, nest)
            else:
                stmts += finish_shifted(accumulator.buffers, step, self._for_each_element(accumulator.buffers[0].size))
        if block_axes or grid_axes or self._cluster_types(leader):
            stmts.append(self._collective(leader, accumulator, block_axes, grid_axes, nest))
        if isinstance(expr, ExpSum):
            stmts += self._finish_exp_sum(expr, accumulator.buffers)
        if step is not None:
            stmts += self._broadcast_count(accumulator.buffers[2], step.count)
        stores: list[Stmt] = []
        for t, partial in zip(tensor_outputs(expr), accumulator.buffers, strict=True):
            target = self.storage.get(t.name)
            if target is None and is_argument(self.context, t.name):
                target = self._argument_storage(t)
            if target is None or target.buffer is partial:
                continue
            stores += self._store_result(leader, t, target, accumulator, partial, nest)
        if stores and accumulator.last_block is not None:
            stores = [If(equal(accumulator.last_block, 1), tuple(stores), role=Role.last_block)]
        closing: list[Stmt] = [*stmts, *stores]
        for guard in self._guards([leader]).values():
            # The parts came from a reduction over blocks inside these loops: only its last block has them.
            if closing:
                closing = [If(guard, tuple(closing), role=Role.last_block)]
        return closing

    def _finish_exp_sum(self, expr: ExpSum, partials: tuple[Buffer, ...]) -> list[Stmt]:
        """What a whole row of -infinity gives; an rfactored first stage has parts of rows."""
        if any(isinstance(e, ExpSum) and e.partial is expr.total for e in self.exprs.values()):
            return []
        count: Int = ONE
        for d in expr.total.logical:
            if d.is_reduction:
                count = count * self.graph.group(d).extent
        stmts = self._for_each_element(partials[0].size)(lambda i: exp_sum_complete(partials, i))
        test = less(0, count)
        return stmts if test is TRUE else list[Stmt]([If(test, tuple(stmts))])

    def _collective(
        self,
        leader: str,
        accumulator: Accumulator,
        block_axes: tuple[ParallelType, ...],
        grid_axes: tuple[ParallelType, ...],
        nest: Nest,
    ) -> Reduce:
        expr = self.exprs[leader]
        slot: Int = ZERO
        slots: Int = ONE
        if grid_axes:
            for s, extent in nest.serial:
                slot = slot * extent + s
                slots = slots * extent
            if not self.grid_broadcast[leader]:
                accumulator.last_block = symbol(f"{leader}_is_last", 0, 1)
                self._flags.add(leader)
        match expr:
            case Reduction():
                combine = REDUCTIONS[expr.op].combine
            case Welford():
                combine = "welford"
            case _:
                combine = "exp_sum"
        partials, identities = accumulator.buffers, self._identities(expr)
        if accumulator.step is not None:
            count = accumulator.step.count
            partials, identities = (*partials[:2], count), (*identities[:2], Literal(0, count.dtype))
        return Reduce(
            partials,
            combine,
            identities,
            block_axes,
            grid_axes,
            self.grid_broadcast.get(leader, False),
            slot,
            slots,
            leader,
            accumulator.last_block,
            self._cluster_types(leader),
            self._replicated_types(leader),
        )

    def _store_result(
        self, leader: str, t: Tensor, target: TensorLayout, accumulator: Accumulator, partial: Buffer, nest: Nest
    ) -> list[Stmt]:
        """Copy a finished partial to where the tensor lives, over the axes that the partial holds."""
        kept = [g for a, g, _ in self.context.axes(leader) if not a.is_reduction]
        indices, opened = self._element_indices(leader, accumulator.depth, nest, reduced=False)
        indexer = self._indexer(indices)
        value: Value = Load(partial, self._offset(indexer, accumulator.axes, t))
        if partial.dtype is not target.buffer.dtype:
            value = Cast(value, target.buffer.dtype)
        stmt: Stmt = Store(target.buffer, self._offset(indexer, target.axes, t), value)
        stmts = self._guarded([stmt], indexer, kept, leader, target)
        for i, extent, _ in reversed(opened):
            nested: list[Stmt] = [For(i, ZERO, extent, ONE, tuple(stmts), unroll=True)]
            stmts = nested
        return stmts
