"""Displaced reads (resize, gather) and vector accesses in loop nests: a copy along a vectorized axis is one access.

A vector access is made only if contiguity, the alignment of the base, the offset and every extent are proved to allow it, or
if the schedule allows misaligned accesses (`allow_misaligned`). In that case loads may be from any address, and partial
vectors at the ends of a row are accessed element by element. Exception: an aligned input is read by one full-width access,
which may read past the end of the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fuser.errors import InternalError, SchedulingError
from fuser.ir.fusion.dim_pairs import displaced_dims
from fuser.ir.fusion.fusion import Gather, Resize, Tensor, TensorExpr, is_copy, tensor_inputs, tensor_outputs
from fuser.ir.fusion.iteration_graph import Group
from fuser.ir.fusion.user_names import value_name
from fuser.ir.integers.integers import FALSE, ONE, ZERO, Cond, Int, Symbol, all_of, const, equal
from fuser.ir.kernel.kernel import (
    Allocate,
    AsyncCopy,
    Buffer,
    Cast,
    For,
    GivenIndex,
    If,
    Literal,
    Load,
    LoadIndex,
    Role,
    Stmt,
    Store,
    VectorMove,
)
from fuser.ir.ops.enums import CacheOp, LoadStoreOpType, MemoryType
from fuser.ir.ops.op_table import REDUCTIONS
from fuser.lowering.context import TensorLayout
from fuser.lowering.loop_nests.displaced_reads import operand_indices, result_index, window_tests
from fuser.lowering.loop_nests.indexing import Indexer
from fuser.lowering.loop_nests.nest_predicates import inexact_splits, predicate_for_all_lanes, predicate_for_any_lane
from fuser.lowering.loop_nests.nest_state import Nest
from fuser.lowering.loop_nests.nest_storage import NestStorage
from fuser.lowering.loop_nests.nest_values import LEVEL_2
from fuser.lowering.memory.pipeline_copies import ASYNC_ELEMENT, async_copy
from fuser.lowering.parallel_axes import guarded


def _merge_tests(stmts: list[Stmt]) -> list[Stmt]:
    """A guarded move with a fill as one test: registers that nothing reads take the fill, and no other branch is left."""
    match stmts:
        case [If(guard, (If(inside, (VectorMove(dst=dst),) as move, fill),), ())] if fill and dst.is_register:
            return [If(all_of(guard, inside), move, fill)]
        case _:
            return stmts


def _reads_all_elements(expr: TensorExpr) -> bool:
    """Whether each element of the result is read, at an index that follows from its own: no pad, no gather."""
    return not isinstance(expr, Gather) and (not isinstance(expr, Resize) or expr.fill is None)


class NestVectors(NestStorage):
    """Displaced reads and vector moves."""

    def _displaced(
        self, expr: Resize | Gather, indexer: Indexer, vector: tuple[Symbol, int] | None
    ) -> tuple[list[Stmt], Indexer]:
        """What must come before a slice, pad or gather, and the indices of its operand: those of the loops if it moves nothing.

        A vector has one gathered index. Raises SchedulingError if its elements have their own.
        """
        if isinstance(expr, Resize):
            if not any(True for _ in displaced_dims(expr, expr.input, expr.output)):
                return [], indexer
            return [], self._operand_indexer(operand_indices(self.context, expr, indexer, None, vector), indexer)
        index = self._read(expr.index, indexer)
        if not isinstance(index, Load):
            raise InternalError(f"the index {expr.index.name} is not in memory", pass_name="build_loop_nests")
        if vector is not None:
            lane, _ = vector
            own = [result_index(self.context, expr.index, d, indexer) for d in expr.index.visible]
            if any(lane in i.symbols for i in own):
                raise SchedulingError(
                    f"{expr.output.name} cannot be vectorized: each element has an index of its own",
                    location=expr.output.location,
                )
            index = Load(index.buffer, index.index.substitute({lane: ZERO}))
        found = self._new_symbol(self.graph.group(expr.input.visible[expr.dim]).extent, "at")
        before: list[Stmt] = []
        if not index.buffer.is_register:
            held = Buffer(f"{expr.output.name}_{found.name}", index.dtype, MemoryType.local, ONE)
            before = [Allocate(held), Store(held, ZERO, index)]
            index = Load(held, ZERO)
        before.append(LoadIndex(found, index.buffer, index.index, GivenIndex(expr.dim, expr.output.location)))
        return before, self._operand_indexer(operand_indices(self.context, expr, indexer, found, vector), indexer)

    def _windowed(
        self,
        expr: Resize | Gather,
        move: Stmt,
        targets: Sequence[Int],
        buffer: Buffer,
        indexer: Indexer,
        vector: tuple[Symbol, int] | None = None,
    ) -> list[Stmt]:
        """`move` where the windows of a displaced read hold; its fill at the `targets` elsewhere."""
        if expr.fill is None:
            return [move]
        what = f"window of {expr.output.name}"
        tests = window_tests(
            self.context,
            expr,
            indexer,
            lambda low, high: self._log_claim(f"dropped {what}", low, "<", high),
            lambda low, high: self._test(what, low, high),
            vector,
        )
        if not tests:
            return [move]
        fill = self._read(expr.fill, indexer)
        if fill.dtype is not buffer.dtype:
            fill = Cast(fill, buffer.dtype)
        inside, outside = all_of(*tests), tuple(Store(buffer, i, fill) for i in targets)
        return list(outside) if inside is FALSE else [If(inside, (move,), outside)]

    def _vector_move(
        self, leader: str, expr: TensorExpr, target: TensorLayout, nest: Nest, loops: list[Group]
    ) -> list[Stmt]:
        """One wide access for the copy inside a vectorized axis."""
        assert nest.vector is not None
        lane, width = nest.vector
        t = tensor_outputs(expr)[0]
        operands = tensor_inputs(expr)
        if not is_copy(expr) or not operands:
            raise SchedulingError(
                f"{value_name(self.builder.fusion, t)} cannot be vectorized: only a copy can (cache_before or "
                f"cache_after makes one)",
                location=t.location,
            )
        source_tensor = operands[0]
        nbytes = width * t.dtype.itemsize
        if nbytes not in (1, 2, 4, 8, 16):
            raise SchedulingError(
                f"{t.name} cannot be vectorized by {width}: one access would be {nbytes} bytes, at most 16 and a power of two",
                location=t.location,
            )
        indexer = self._indexer(nest.indices)
        source = self._target(source_tensor)
        before, source_indexer = list[Stmt](), indexer
        if isinstance(expr, (Resize, Gather)):
            before, source_indexer = self._displaced(expr, indexer, nest.vector)
        crosses = self._crosses_blocks(source_tensor, source_indexer)
        may_cut = self.context.state(t.name).misaligned and _reads_all_elements(expr)
        starts: list[Int] = []
        problems: list[str] = []
        for storage, tensor, indices in ((target, t, indexer), (source, source_tensor, source_indexer)):
            offset = self._offset(indices, storage.axes, tensor)
            start = offset.substitute({lane: 0})
            if offset - start is not lane:
                raise SchedulingError(
                    f"{t.name} cannot be vectorized: {tensor.name} is not contiguous along the vectorized axis "
                    f"(its offset is {offset}); the extents must be divisible by {width} and the stride must be 1",
                    location=t.location,
                )
            problem = self._misalignment(tensor, storage.buffer, start, width, nbytes)
            if problem and not may_cut:
                raise SchedulingError(f"{t.name} cannot be vectorized by {width}: {problem}", location=t.location)
            self._log_claim(f"vector of {tensor.name}", offset, "==", ("+", start, lane))
            if not storage.buffer.is_register and not problem:
                phase = self.phases.get((self.context.alias_of.get(tensor.name, tensor).name, width), ZERO)
                self._log_claim(f"start of the vector of {tensor.name}", start + phase, "|", const(width))
            starts.append(start)
            problems.append(problem)
        at_zero = self._indexer({g: i.substitute({lane: 0}) for g, i in nest.indices.items()})
        touches_device = source.buffer.is_global or target.buffer.is_global
        cache = self.context.state(t.name).cache_op if touches_device else CacheOp.unspecified
        cache = LEVEL_2 if crosses else cache
        # A store of a single element has no cache hint: the hint would be that of the load of its value.
        of_element = cache if source.buffer.is_global else CacheOp.unspecified
        if self.context.state(t.name).op_type is LoadStoreOpType.cp_async:
            stmt: Stmt = async_copy(t, AsyncCopy(target.buffer, starts[0], source.buffer, starts[1], width, cache))
        elif width == 1:
            stmt = Store(target.buffer, starts[0], Load(source.buffer, starts[1], of_element))
        else:
            aligned = not problems[1]
            stmt = VectorMove(target.buffer, starts[0], source.buffer, starts[1], width, cache, aligned)
        stmts: list[Stmt] = [stmt]
        if may_cut and width > 1:
            # A row that crosses other threads' elements in device memory is stored by element where it is not aligned.
            whole = [] if problems[0] or (not target.buffer.is_register and problems[1]) else stmts
            is_async = not whole and isinstance(stmt, AsyncCopy) and t.dtype.itemsize >= ASYNC_ELEMENT
            copied = t if is_async else None
            moved = (target.buffer, starts[0]), (source.buffer, starts[1], of_element)
            if whole and not problems[1] and self._is_only_read(source_tensor, source):
                at_once = self._overread_vector(leader, nest, stmt)
                if at_once is not None:
                    return guarded(self._owner_condition(leader, target, at_zero), at_once)
            cut = self._partial_vectors(leader, *moved, nest, whole, copied)
            if cut is not None and is_async and not problems[0] and self._has_aligned_base(source_tensor, nbytes):
                # Rows whose pitch is not that of the one they are cut by may begin at the same places all the same.
                alike = self._partial_vectors(leader, *moved, nest, stmts, copied)
                if alike is None:
                    alike = guarded(self._tests_of_elements(leader, nest)[1], stmts, Role.predicate)
                cut = list[Stmt]([If(equal(starts[1] % width, ZERO), tuple(alike), tuple(cut), Role.plain)])
            if cut is not None and whole and source.buffer in self._filled and target.buffer.is_register:
                cut = guarded(self._tests_of_elements(leader, nest)[1], whole, Role.predicate)
            if cut is not None:
                return guarded(self._owner_condition(leader, target, at_zero), cut)
        else:
            self._check_whole_vectors(t, loops, indexer, lane, width)
        if isinstance(expr, (Resize, Gather)):
            targets = [starts[0] + v for v in range(width)]
            stmts = before + self._windowed(expr, stmt, targets, target.buffer, indexer, nest.vector)
        return _merge_tests(self._guarded(stmts, at_zero, loops, leader, target))

    def _misalignment(self, tensor: Tensor, buffer: Buffer, start: Int, width: int, nbytes: int) -> str:
        """Why the address of a wide access is not known to be aligned, or "". A wide access to an argument needs a base that
        the facts call aligned; what the launch allocates is."""
        if buffer.is_register:
            return ""
        argument = self.context.alias_of.get(tensor.name, tensor)
        phase = self.phases.get((argument.name, width))
        if phase is not None and (start + phase) % width is ZERO:
            return ""
        if start.multiple % width != 0 and start % width is not ZERO:
            return f"the offset {start} of {tensor.name} is not known to be a multiple of {width} elements ({nbytes} bytes)"
        if not buffer.is_global or self._has_aligned_base(argument, nbytes):
            return ""
        return f"the base address of {argument.name} is not known to be aligned to {nbytes} bytes"

    def _partial_vectors(
        self,
        leader: str,
        target: tuple[Buffer, Int],
        source: tuple[Buffer, Int, CacheOp],
        nest: Nest,
        whole: list[Stmt],
        copied: Tensor | None,
    ) -> list[Stmt] | None:
        """`whole` where all elements of a vector are inside, else (and always where `whole` is empty) one element after the
        other, of `copied` asynchronously; None if one test decides for all of them, and `whole` does."""
        assert nest.vector is not None
        lane, width = nest.vector
        own, others = self._tests_of_elements(leader, nest)
        if whole and not own:
            return None
        element = self._element_symbol(width)
        at, place = source[1] + element, target[1] + element
        move: list[Stmt] = (
            [Store(target[0], place, Load(source[0], at, source[2]))]
            if copied is None
            else [async_copy(copied, AsyncCopy(target[0], place, source[0], at, 1, source[2]))]
        )
        inside = all_of(*(test.substitute({lane: element}) for test in own))
        stmts, unroll = guarded(inside, move, Role.predicate), True
        if target[0].is_shared and copied is None and others is all_of() and inside is not all_of():
            # Rows together have a test of their own left: there ptxas spills what it loads earlier (rms_norm f16 536x250003,
            # Float weights).
            stmts = [If(inside, tuple(move), (self._filling_store(target[0], place),), Role.predicate)]
            unroll = source[0].is_register
        single: Stmt = For(element, ZERO, const(width), ONE, tuple(stmts), unroll=unroll)
        is_whole = all_of(*(predicate_for_all_lanes(test, lane, width) for test in own)) if whole else FALSE
        # A row that is shorter than a vector has no whole one.
        if is_whole is not FALSE:
            single = If(is_whole, tuple(whole), (single,), Role.predicate)
        return guarded(others, [single], Role.predicate)

    def _is_only_read(self, tensor: Tensor, source: TensorLayout) -> bool:
        """Whether a tensor is an input that the kernel does not write."""
        if not source.buffer.is_global or tensor.name not in self.builder.input_names:
            return False
        return tensor not in self.context.alias_of.values()

    def _overread_vector(self, leader: str, nest: Nest, move: Stmt) -> list[Stmt] | None:
        """The move of a whole vector of an input where any of its elements is inside; None if one test decides for all of
        them, or it is not known where an end of the row is.

        An aligned access reads at most the 16 bytes around the element, which are mapped memory as well.
        Elements one by one would each be a test and an access: their warp, and all that wait for it, would wait for them.
        """
        assert nest.vector is not None
        lane, width = nest.vector
        own, others = self._tests_of_elements(leader, nest)
        easiest = [e for e in (predicate_for_any_lane(test, lane, width) for test in own) if e is not None]
        # A row that is shorter than a vector has no whole one.
        if (
            not own
            or len(easiest) < len(own)
            or all_of(*(predicate_for_all_lanes(test, lane, width) for test in own)) is FALSE
        ):
            return None
        if not isinstance(move, (VectorMove, AsyncCopy)):
            return None
        orelse: tuple[Stmt, ...] = ()
        if move.dst.is_shared and others is all_of():
            element = self._element_symbol(width)
            fill = self._filling_store(move.dst, move.dst_index + element)
            orelse = (For(element, ZERO, const(width), ONE, (fill,), unroll=True),)
        read = replace(move, cut=True)
        return guarded(others, [If(all_of(*easiest), (read,), orelse, Role.predicate)], Role.predicate)

    def _element_symbol(self, width: int) -> Symbol:
        """Counts the elements of a vector one by one."""
        element = self._new_symbol(const(width), "v")
        self._unrolled.add(element)
        return element

    def _filling_store(self, buffer: Buffer, place: Int) -> Store:
        """Of a zero: a vector in shared memory is filled whole, since it is read in one access, whatever of it is in a row."""
        self._filled.add(buffer)
        return Store(buffer, place, Literal(REDUCTIONS["sum"].identity(buffer.dtype), buffer.dtype))

    def _tests_of_elements(self, leader: str, nest: Nest) -> tuple[list[Cond], Cond]:
        """The tests that depend on the element of a vector, and the conjunction of the others."""
        assert nest.vector is not None
        lane, _ = nest.vector
        tests = self._predicate_list(leader, self.context.loops(leader), self._indexer(nest.indices))
        own = [test for test in tests if lane in test.symbols]
        return own, all_of(*(test for test in tests if lane not in test.symbols))

    def _check_whole_vectors(
        self, t: Tensor, loops: Sequence[Group], indexer: Indexer, lane: Symbol, width: int
    ) -> None:
        """Predicates see the first element of a vector: the others must be inside whenever it is."""
        for split in inexact_splits(loops):
            index = indexer.padded(split)
            if index is None or lane not in index.symbols:
                continue
            first = index.substitute({lane: 0})
            room = split.source.extent - first
            if index - first is not lane or room.multiple % width != 0:
                raise SchedulingError(
                    f"{t.name} cannot be vectorized by {width}: the extent {split.source.extent} along the vectorized axis is "
                    f"not known to be divisible by {width}",
                    location=t.location,
                )
            self._log_claim(f"room for the vector of {t.name}", room, "|", const(width))
