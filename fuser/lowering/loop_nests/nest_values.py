"""Values in loop nests: the value of an expr at the current loops, and its reads of arguments and intermediates.

Each read finds out whether it crosses threads or blocks, which decides in which memory the tensor must be, and whether the
kernel waits.
"""

from __future__ import annotations

from fuser.errors import InternalError, SchedulingError
from fuser.ir.fusion.fusion import (
    COPIES,
    GENERATOR_STATE,
    Broadcast,
    Cat,
    Expand,
    ExpSum,
    Full,
    Gather,
    Iota,
    LibraryOp,
    Permute,
    Pointwise,
    Random,
    Reduction,
    Reshape,
    Resize,
    Scalar,
    Scan,
    Squeeze,
    Tensor,
    TensorExpr,
    Val,
    Welford,
)
from fuser.ir.fusion.iteration_graph import leaves
from fuser.ir.integers.integers import ONE, ZERO, Int
from fuser.ir.kernel.kernel import (
    Buffer,
    Call,
    Cast,
    IndexValue,
    Literal,
    Load,
    RandomValue,
    ScalarArgument,
    Value,
)
from fuser.ir.ops.approximate_ops import ROWS
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import THREAD_TYPES, CacheOp, MemoryType, ParallelType
from fuser.ir.ops.op_table import compute_dtype
from fuser.lowering.context import TensorLayout, global_layout, is_shared_by, row_major_axes
from fuser.lowering.loop_nests.divide_once import divide_once
from fuser.lowering.loop_nests.indexing import Indexer
from fuser.lowering.loop_nests.nest_predicates import NestPredicates

# Values that other blocks wrote must be read from L2, which all SMs share: the L1 cache may have an old copy of the line.
LEVEL_2 = CacheOp["global"]


class NestValues(NestPredicates):
    """Operands and the arithmetic on them."""

    def _target(self, t: Tensor) -> TensorLayout:
        found = self.storage.get(t.name)
        return found if found is not None else self._argument_storage(t)

    def _argument_storage(self, t: Tensor) -> TensorLayout:
        found = self.storage.get(t.name)
        if found is None:
            # What the strides span, not the number of elements: rows may be padded.
            strides = self.context.strides(t)
            size: Int = ONE
            for i, d in enumerate(t.visible):
                size = size + (self.graph.group(d).extent - 1) * strides[i]
            buffer = Buffer(t.name, t.dtype, self.context.state(t.name).memory, size, t.name)
            found = global_layout(self.context, t, buffer)
            self.storage[t.name] = found
            self.arguments[t.name] = buffer
        return found

    def _read(self, value: Val, indexer: Indexer) -> Value:
        """An operand at the loops at hand."""
        if isinstance(value, Scalar):
            if value.value is not None:
                return Literal(value.value, value.dtype)
            if value.expression is not None:
                extent = self.context.rewrite(value.expression)
                if value.dtype.is_integral:
                    return IndexValue(extent, value.dtype)
                return Cast(IndexValue(extent, DataType.Int), value.dtype)
            self.scalars[value.name] = value.dtype
            return ScalarArgument(value.name, value.dtype)
        if value.is_cpu:
            self.scalars[value.name] = value.dtype
            return ScalarArgument(value.name, value.dtype)
        storage = self._target(value)
        crosses = self._crosses_blocks(value, indexer)
        offset = self._offset(indexer, storage.axes, value)
        self._check_register_index(storage.buffer, offset, value)
        return Load(storage.buffer, offset, LEVEL_2 if crosses else CacheOp.unspecified)

    def _crosses_blocks(self, t: Tensor, indexer: Indexer) -> bool:
        """Whether a read is of what another block may have written in this kernel.

        Raises SchedulingError where a value spread over threads is read by a thread that does not hold it, and lives in memory
        that the reader does not share.
        """
        leader = self.leaders.get(t.name)
        if leader is None:
            return False
        memory = self.context.state(t.name).memory
        held: set[ParallelType] = set()
        for k, (axis, group, p) in enumerate(self.context.axes(t.name)):
            if p not in THREAD_TYPES or axis.is_reduction or group.is_broadcast:
                continue
            if k < self.sharing.positions[leader] or indexer.index(group) is self.context.threads[p]:
                held.add(p)
            elif self.context.sizes.get(p, ONE) is ONE:
                # The only thread there is holds whatever is read.
                held.add(p)
            elif not is_shared_by(memory, p):
                needed = "shared or global" if p.is_block else "global"
                raise SchedulingError(
                    f"{t.name} is spread over {p.name} along {group.name}, and is read by a thread that does not hold it: "
                    f"it must live in {needed} memory",
                    location=t.location,
                )
        if memory is MemoryType.local:
            return False
        # Workers that do not hold elements of their own read what the first of them wrote.
        if self._needs_single_writer(t):
            held.clear()
        others = {p for p, size in self.context.sizes.items() if is_shared_by(memory, p) and size is not ONE} - held
        private = not any(p.is_block for p in others)
        self.shared_reads[t.name] = self.shared_reads.get(t.name, True) and private
        crosses = any(p.is_grid and not self._is_last_block_only(leader, p) for p in others)
        if crosses:
            self.shared_across_blocks.add(t.name)
        return crosses

    def _value(self, expr: TensorExpr, indexer: Indexer) -> Value:
        match expr:
            case Pointwise():
                args = tuple(self._read(v, indexer) for v in expr.inputs)
                if expr.op in COPIES:
                    return self._hinted(args[0], expr.output)
                if expr.op == "cast":
                    return Cast(args[0], expr.output.dtype)
                return Call(expr.op, args, call_dtype(expr), expr.output.dtype)
            case Squeeze():
                return self._read(expr.input, self._squeezed(expr, indexer))
            case Broadcast() | Expand() | Permute() | Reshape():
                return self._read(expr.input, indexer)
            case Cat() | Resize() | Gather():
                raise InternalError("what chooses between reads is a statement", pass_name="build_loop_nests")
            case Full():
                value = self._read(expr.value, indexer)
                return value if value.dtype is expr.output.dtype else Cast(value, expr.output.dtype)
            case Iota():
                return self._iota(expr, indexer)
            case Random():
                return self._random(expr, indexer)
            case Reduction() | Welford() | ExpSum() | Scan():
                raise InternalError("a reduction or scan is no value", pass_name="build_loop_nests")
            case LibraryOp():
                raise InternalError("what a library computes is no part of a kernel", pass_name="build_loop_nests")

    def _squeezed(self, expr: Squeeze, indexer: Indexer) -> Indexer:
        """Of the operand: a dropped dim has one element, or one that is seen many times, so that any index will do."""
        gone = [self.graph.group(d) for d, gone in zip(expr.input.visible, expr.flags, strict=True) if gone]
        leader = self.leaders.get(expr.input.name)
        promoted = {} if leader is None else self.sharing.promotions.get(leader, {})
        wide = {promoted[g] for g in gone if g in promoted}
        # Of a dim that is promoted the operand may hold several elements: those of a loop that its other readers are in.
        held = [g for g, _ in self._target(expr.input).axes if leaves(g) <= wide] if wide else []
        first = {g: ZERO for g in (*gone, *held) if indexer.index(g) is None}
        return self._indexer({**indexer.loops, **first}) if first else indexer

    def _hinted(self, value: Value, copy: Tensor) -> Value:
        """The cache hint of a copy is about its read of device memory."""
        if isinstance(value, Load) and value.buffer.is_global and value.cache is CacheOp.unspecified:
            return Load(value.buffer, value.index, self.context.state(copy.name).cache_op)
        return value

    def _iota(self, expr: Iota, indexer: Indexer) -> Value:
        dtype = expr.output.dtype
        dim = expr.output.visible[0]
        index = ZERO if dim.is_broadcast else indexer.index(self.graph.group(dim))
        if index is None:
            raise SchedulingError(f"{expr.output.name} cannot be indexed")
        position: Value = IndexValue(divide_once(index, self._unrolled), DataType.Int)
        # UInt64 has no arithmetic of its own; that of Int wraps to the same bits.
        compute = DataType.Int if dtype is DataType.UInt64 else compute_dtype(dtype)
        step, start = self._read(expr.step, indexer), self._read(expr.start, indexer)
        if not (isinstance(step, Literal) and step.value == 1):
            position = Call("mul", (position, step), compute, compute)
        if not (isinstance(start, Literal) and start.value == 0):
            position = Call("add", (position, start), compute, compute)
        return position if position.dtype is dtype else Cast(position, dtype)

    def _random(self, expr: Random, indexer: Indexer) -> Value:
        index = self._offset(indexer, row_major_axes(self.context, expr.output), expr.output)
        if expr.state is not None:
            seed, offset = (self._read(v, indexer) for v in expr.state)
        else:
            self.scalars.update(dict.fromkeys(GENERATOR_STATE, DataType.Int))
            seed, offset = (ScalarArgument(name, DataType.Int) for name in GENERATOR_STATE)
            if expr.ordinal:
                ordinal = Literal(expr.ordinal, DataType.Int)
                offset = Call("add", (offset, ordinal), DataType.Int, DataType.Int)
        first, second = (self._read(v, indexer) for v in expr.parameters)
        return RandomValue(expr.distribution, index, seed, offset, (first, second), expr.output.dtype)


def call_dtype(expr: Pointwise) -> DataType:
    """Compute dtype of a pointwise expr: of its result for `where`, else of its operands."""
    if expr.op == "where":
        return compute_dtype(expr.output.dtype)
    tensors = [v for v in expr.inputs if isinstance(v, Tensor)]
    dtype = tensors[0].dtype
    return dtype if dtype.is_reduced_float and ROWS[expr.op].in_own_type else compute_dtype(dtype)
