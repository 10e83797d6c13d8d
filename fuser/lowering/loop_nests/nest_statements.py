"""The statements inside loop nests: an element of an expr is stored, folded into a scan or added to the partials of a
reduction.
"""

from __future__ import annotations

from fuser.errors import InternalError
from fuser.ir.fusion.fusion import (
    Cat,
    ExpSum,
    Gather,
    LibraryOp,
    Reducing,
    Reduction,
    Resize,
    Scan,
    Tensor,
    Welford,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.iteration_graph import Group
from fuser.ir.integers.integers import FALSE, ZERO, Cond, Int, Symbol, all_of, equal
from fuser.ir.kernel.kernel import AsyncCopy, Buffer, Call, If, Load, Role, Stmt, Store, Value
from fuser.ir.ops.enums import LoadStoreOpType
from fuser.ir.ops.op_table import REDUCTIONS, compute_dtype
from fuser.lowering.combiners.exp_sum import FoldBuffer, exp_sum_combine, exp_sum_element
from fuser.lowering.combiners.shifted_sums import shifted_add
from fuser.lowering.combiners.welford import welford_combine, welford_combine_common_count
from fuser.lowering.loop_nests.displaced_reads import result_index
from fuser.lowering.loop_nests.indexing import Indexer
from fuser.lowering.loop_nests.nest_state import Accumulator, Nest
from fuser.lowering.loop_nests.nest_vectors import NestVectors
from fuser.lowering.loop_nests.scan_nests import ScanNest
from fuser.lowering.memory.pipeline_copies import async_copy
from fuser.lowering.parallel_axes import guarded
from fuser.lowering.predicates.hoisted_tests import holds_for_smaller


class NestStatements(NestVectors):
    """The statements inside all loops of an expr."""

    def _statement(self, leader: str, nest: Nest) -> list[Stmt]:
        """The statement that computes an expr, inside all its loops."""
        expr = self.exprs[leader]
        indexer = self._indexer(nest.indices)
        loops = self.context.loops(leader)
        if isinstance(expr, Reducing):
            stmts = self._accumulate(leader, expr, indexer)
            if self._reads_partials(expr, indexer):
                return stmts
            return guarded(self._predicates(leader, loops, indexer), stmts, Role.predicate)
        if nest.vector is None and isinstance(expr, Scan):
            return self._fold(leader, self.scans[leader], expr, indexer, loops)
        if isinstance(expr, LibraryOp):
            raise InternalError("what a library computes is no part of a kernel", pass_name="build_loop_nests")
        target = self._target(expr.output)
        if nest.vector is not None:
            return self._vector_move(leader, expr, target, nest, loops)
        offset = self._offset(indexer, target.axes, expr.output)
        self._check_register_index(target.buffer, offset, expr.output)
        if isinstance(expr, (Resize, Gather)):
            before, source = self._displaced(expr, indexer, None)
            value = self._hinted(self._read(expr.input, source), expr.output)
            store = Store(target.buffer, offset, value)
            stmts = before + self._windowed(expr, store, [offset], target.buffer, indexer)
        elif isinstance(expr, Cat):
            stmts = self._parts(expr, target.buffer, offset, indexer)
        elif self.context.state(expr.output.name).op_type is LoadStoreOpType.cp_async:
            source = self._read(tensor_inputs(expr)[0], indexer)
            assert isinstance(source, Load)
            cache = self.context.state(expr.output.name).cache_op
            copy = AsyncCopy(target.buffer, offset, source.buffer, source.index, 1, cache)
            stmts = list[Stmt]([async_copy(expr.output, copy)])
        else:
            stmts = list[Stmt]([Store(target.buffer, offset, self._value(expr, indexer))])
        return self._guarded(stmts, indexer, loops, leader, target)

    def _parts(self, expr: Cat, target: Buffer, offset: Int, indexer: Indexer) -> list[Stmt]:
        """The element of the operand of a concatenation to which the index belongs."""
        position = result_index(self.context, expr.output, expr.output.visible[expr.dim], indexer)
        stmt: Stmt = Store(target, offset, self._read(expr.inputs[-1], indexer))
        for source, bound in reversed(list(zip(expr.inputs, expr.bounds, strict=False))):
            is_before = self._test(f"part of {expr.output.name}", position, self.context.rewrite(bound))
            if is_before is not FALSE:
                stmt = If(is_before, (Store(target, offset, self._read(source, indexer)),), (stmt,))
        return [stmt]

    def _fold(self, leader: str, nest: ScanNest, expr: Scan, indexer: Indexer, loops: list[Group]) -> list[Stmt]:
        """One element of a scan: kept for the collective, or folded into the carried value at once."""
        t = expr.output
        value = self._read(expr.input, indexer)
        within = self._predicates(leader, loops, indexer)
        if nest.collective is not None:
            values, at = nest.collective.values, self._offset(indexer, nest.axes, t)
            self._check_register_index(values, at, t)
            kept: Stmt = Store(values, at, value)
            if within is all_of():
                return [kept]
            return [If(within, (kept,), (Store(values, at, nest.identity, Role.initialise),))]
        carry, at = nest.carry, self._offset(indexer, nest.carry_axes, t)
        self._check_register_index(carry, at, t)
        compute = compute_dtype(carry.dtype)
        folded = Store(carry, at, Call(nest.combine, (Load(carry, at), value), compute, carry.dtype))
        target = self._target(t)
        offset = self._offset(indexer, target.axes, t)
        self._check_register_index(target.buffer, offset, t)
        result = Store(target.buffer, offset, Load(carry, at))
        return [*guarded(within, [folded], Role.predicate), *self._guarded([result], indexer, loops, leader, target)]

    def _accumulate(self, leader: str, expr: Reducing, indexer: Indexer) -> list[Stmt]:
        accumulator = self.accumulators[leader]
        offset = self._offset(indexer, accumulator.axes, tensor_outputs(expr)[0])
        self._check_register_index(accumulator.buffers[0], offset, tensor_outputs(expr)[0])
        if isinstance(expr, Reduction):
            buffer = accumulator.buffers[0]
            value = self._read(expr.input, indexer)
            compute = compute_dtype(buffer.dtype)
            combined = Call(REDUCTIONS[expr.op].combine, (Load(buffer, offset), value), compute, buffer.dtype)
            return [Store(buffer, offset, combined)]
        if isinstance(expr, ExpSum):
            return self._add_exponential(leader, expr, indexer, offset)
        name = f"{leader}_w{self._next()}"
        step = accumulator.step
        if expr.partial is None:
            assert step is not None
            first = self._may_be_first(leader, accumulator, indexer)
            value = self._read(expr.input, indexer)
            kept: list[Stmt] = []
            if accumulator.fold_buffer is not None:
                kept = [self._buffered_value(accumulator.fold_buffer, expr.input, value, indexer)]
                value = Load(
                    accumulator.fold_buffer.values, self._offset(indexer, accumulator.fold_buffer.axes, expr.input)
                )
            return [*kept, *shifted_add(accumulator.buffers, offset, value, name, step, may_be_first=first)]
        other = tuple(self._read(t, indexer) for t in (expr.input, *expr.partial))
        if step is None:
            return welford_combine(accumulator.buffers, offset, other, name)
        joined = self.accumulators[self.leaders[expr.input.name]]
        source = joined.step
        if source is None or self.storage[expr.input.name].buffer is not joined.buffers[0]:
            raise InternalError(f"the partials that {leader} joins were counted apart", pass_name="build_loop_nests")
        lane = self._lane(leader, expr, indexer)
        mean, m2, _ = other
        return welford_combine_common_count(
            accumulator.buffers, offset, (mean, m2, Load(source.count, ZERO)), name, step, lane
        )

    def _may_be_first(self, leader: str, accumulator: Accumulator, indexer: Indexer) -> Cond:
        """A necessary condition for the value at hand to be the first that a thread sees.

        Where the tests along an unrolled loop hold for all iterations before one for which they hold, it is in the first.
        """
        tests = self._predicate_list(leader, self.context.loops(leader), indexer)
        found: list[Cond] = []
        for is_reduction, group in self._serial_axes(leader, accumulator.depth):
            index = indexer.index(group) if is_reduction else None
            if (
                isinstance(index, Symbol)
                and index in self._unrolled
                and all(index not in test.symbols or holds_for_smaller(test, index) for test in tests)
            ):
                found.append(equal(index, 0))
        return all_of(*found)

    def _add_exponential(self, leader: str, expr: ExpSum, indexer: Indexer, offset: Int) -> list[Stmt]:
        accumulator, x = self.accumulators[leader], self._read(expr.input, indexer)
        group, name = accumulator.fold_buffer, f"{leader}_e{self._next()}"
        if expr.partial is not None:
            return exp_sum_combine(accumulator.buffers, offset, (x, self._read(expr.partial, indexer)), name)
        if group is None:
            return exp_sum_element(accumulator.buffers, offset, x, name)
        return [self._buffered_value(group, expr.input, x, indexer)]

    def _buffered_value(self, group: FoldBuffer, t: Tensor, x: Value, indexer: Indexer) -> Stmt:
        """The store of a value of `t` that a thread collects."""
        at = self._offset(indexer, group.axes, t)
        self._check_register_index(group.values, at, t)
        return Store(group.values, at, x)

    def _lane(self, leader: str, expr: Welford, indexer: Indexer) -> Int | None:
        """Which of a thread's partials is read, if all are combined from the first to the last; else None."""
        accumulator, storage = self.accumulators[leader], self.storage[expr.input.name]
        joined = [group for _, group in self._serial_axes(leader, accumulator.depth)]
        if len(storage.axes) != 1 or joined != [storage.axes[0][0]]:
            return None
        return indexer.index(joined[0])

    def _reads_partials(self, expr: Reducing, indexer: Indexer) -> bool:
        """Whether the operands are partials of the same reduction in registers: outside its extents a thread holds the
        identity there, so that adding it needs no test."""
        for t in tensor_inputs(expr):
            leader = self.leaders.get(t.name)
            first = self.exprs[leader] if leader is not None else None
            accumulator = self.accumulators.get(leader) if leader is not None else None
            storage = self.storage.get(t.name)
            if accumulator is None or storage is None or storage.buffer not in accumulator.buffers:
                return False
            if isinstance(expr, Reduction) and not (isinstance(first, Reduction) and first.op == expr.op):
                return False
            if isinstance(expr, (Welford, ExpSum)) and (expr.partial is None or type(first) is not type(expr)):
                return False
            for group, _ in storage.axes:
                index = indexer.index(group)
                if index is None or not self._is_inside(t.name, index, group.extent):
                    return False
        return True
