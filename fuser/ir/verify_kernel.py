"""The rules of kernel IR as code: run after every lowering pass, and strictly before the text is generated.

What is checked
    names      every symbol, buffer and scalar is defined before it is used and visible there; nothing is defined twice
    types      stores, moves and shuffles keep the dtype; calls have a row, its arity and a compute dtype;
               counters and index loads are Int32
    registers  sizes are constants; indices become constants when the marked loops are unrolled; provable bounds hold
    moves      2, 4, 8 or 16 bytes, contiguous; registers at a multiple of the width
    copies     that are asynchronous go from device memory that the kernel does not write to shared memory, 4, 8 or 16 bytes;
               there is a commit and a wait
    barriers   not under a condition or in a loop that differs between the threads it names, where that can be decided
               (`uniformity`)
    plan       extents are bound, workspaces and semaphores are supplied, a kernel that spins is cooperative and has no
               clusters
    final      (`is_final`) no collective is left; every shared buffer has an aligned place
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from fuser.errors import DefinitionRuntimeError, InternalError
from fuser.ir.coarse_ops import ROWS
from fuser.ir.dtypes import DataType
from fuser.ir.enums import CacheOp, MemoryType
from fuser.ir.integers import ONE, ZERO, Int, Symbol
from fuser.ir.kernel import (
    SIZE_SYMBOLS,
    THREAD_SYMBOLS,
    Allocate,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    AtomicAdd,
    BlockBarrier,
    Buffer,
    Call,
    Cast,
    ClusterArrive,
    ClusterWait,
    Comment,
    ExchangeInit,
    ExchangeWait,
    ExtentParameter,
    Fence,
    For,
    GridBarrier,
    If,
    IndexValue,
    Kernel,
    Let,
    LetPhase,
    Literal,
    Load,
    LoadIndex,
    RandomValue,
    Reduce,
    RemoteStore,
    ScalarArgument,
    ScalarParameter,
    Scan,
    SemaphoreParameter,
    Shuffle,
    SpinWait,
    Stmt,
    Store,
    TensorParameter,
    Value,
    VectorMove,
    WarpBarrier,
    WorkspaceParameter,
)
from fuser.ir.op_table import POINTWISE, cast_spelling, check_cast, compute_dtype, result_dtype
from fuser.ir.print_kernel import print_around, print_kernel
from fuser.ir.uniformity import Uniformity

_MOVE_BYTES = (2, 4, 8, 16)
_ASYNC_BYTES = (4, 8, 16)
_BUILTIN = frozenset((*THREAD_SYMBOLS.values(), *SIZE_SYMBOLS.values()))
# More than this many findings in one message help nobody.
_MOST_FINDINGS = 8

_INDEX_DTYPES = (DataType.Int, DataType.Int32, DataType.Index)
# Collectives over several partials: how many.
_TUPLES = {"welford": 3, "welford_exact": 4, "moments": 3, "exp_sum": 2, "exp_sum_exact": 2, "compensated_add": 2}


def verify_kernel(kernel: Kernel, pass_name: str = "", *, is_final: bool = False) -> None:
    """Raise InternalError, with the IR around every culprit, if `kernel` breaks a rule.

    `pass_name` is the pass that made the kernel. `is_final` also asks for what code generation and simulator need:
    collectives expanded, shared memory placed.
    """
    check = _Check(kernel, is_final)
    check.run()
    if not check.findings and not check.marks:
        return
    parts = [f"kernel {kernel.name} is malformed" + (f" after {pass_name}" if pass_name else "")]
    parts.extend(f"  {finding}" for finding in check.findings[:_MOST_FINDINGS])
    if check.findings and not check.marks:
        parts.append(print_kernel(kernel))
    if check.marks:
        shown = dict(list(check.marks.items())[:_MOST_FINDINGS])
        parts.append(print_around(kernel.body, shown))
    raise InternalError("\n".join(parts), pass_name=pass_name)


class _Check:
    """One walk over a kernel; `findings` are about the kernel, `marks` about statements (by id)."""

    def __init__(self, kernel: Kernel, is_final: bool) -> None:
        self.kernel = kernel
        self.is_final = is_final
        self.findings: list[str] = []
        self.marks: dict[int, str] = {}
        self.symbols: set[Symbol] = set(_BUILTIN)
        self.symbol_names: dict[str, Symbol] = {s.name: s for s in _BUILTIN}
        self.buffers: set[Buffer] = set()
        self.buffer_names: dict[str, Buffer] = {}
        self.scalars: dict[str, DataType] = {}
        self.uniformity = Uniformity(kernel.plan.block)
        # Symbols that are constants once the marked loops are unrolled.
        self.unrolled: set[Symbol] = set()
        self.written: set[Buffer] = set()
        self.register_reads: dict[Buffer, Stmt] = {}
        # Asynchronous copies, and whether there is a commit and a wait.
        self.copies: list[AsyncCopy] = []
        self.commits = self.waits = False

    def run(self) -> None:
        """The whole kernel."""
        self._header()
        self._body(self.kernel.body)
        for buffer, stmt in self.register_reads.items():
            if buffer not in self.written:
                self._mark(stmt, f"{buffer.name} is read but written nowhere")
        for copy in self.copies:
            if copy.src in self.written:
                self._mark(copy, f"{copy.src.name} is written by the kernel: nothing orders that and this copy")
            if self.is_final and not (self.commits and self.waits):
                self._mark(copy, "nobody waits for this copy")

    # --- header -------------------------------------------------------------------------------------------------------

    def _header(self) -> None:
        kernel, plan = self.kernel, self.kernel.plan
        if not kernel.name.isidentifier() or not kernel.name.isascii():
            self.findings.append(f"the name {kernel.name!r} is no identifier")
        if kernel.index_bits not in (32, 64):
            self.findings.append(f"index_bits is {kernel.index_bits}, expected 32 or 64")
        if plan.cooperative and plan.cluster is not None:
            self.findings.append(
                "the launch is cooperative and has clusters: how many blocks of clusters fit on the device at once is not "
                "known here, so that blocks that wait for the whole grid might wait for ever"
            )
        bound = {binding.symbol for binding in plan.bindings}
        workspaces = {workspace.name: workspace for workspace in plan.workspaces}
        sizes = (*plan.grid, *plan.block, plan.shared_bytes, *(w.count for w in plan.workspaces))
        for size in sizes if plan.semaphores is None else (*sizes, plan.semaphores):
            unbound = sorted(s.name for s in size.symbols - bound)
            if unbound:
                self.findings.append(
                    f"the launch plan computes {size} from {', '.join(unbound)}, which it does not bind"
                )
        supplied = set(plan.scalar_arguments) | {step.name for step in plan.scalars}
        for parameter in kernel.parameters:
            match parameter:
                case TensorParameter(buffer, tensor, argument, _):
                    self._parameter_buffer(buffer)
                    if not 0 <= argument < len(plan.tensor_arguments):
                        self.findings.append(f"{buffer.name}: no tensor argument {argument} in the launch plan")
                    elif plan.tensor_arguments[argument] != tensor:
                        expected = plan.tensor_arguments[argument]
                        self.findings.append(f"{buffer.name}: argument {argument} is {expected}, not {tensor}")
                case WorkspaceParameter(buffer):
                    self._parameter_buffer(buffer)
                    workspace = workspaces.get(buffer.name)
                    if workspace is None or workspace.dtype is not buffer.dtype:
                        self.findings.append(f"workspace {buffer.name} is not supplied by the launch plan")
                case SemaphoreParameter(buffer):
                    self._parameter_buffer(buffer)
                    if buffer.dtype is not DataType.Int32:
                        self.findings.append(f"semaphores {buffer.name} are {buffer.dtype.name}, expected Int32")
                    if plan.semaphores is None:
                        self.findings.append(f"semaphores {buffer.name} are not supplied by the launch plan")
                case ExtentParameter(symbol):
                    if not self._new_symbol(symbol):
                        self.findings.append(f"extent {symbol.name} is a parameter twice")
                    if symbol not in bound:
                        self.findings.append(f"extent {symbol.name} is not bound by the launch plan")
                    self.symbols.add(symbol)
                case ScalarParameter(name, dtype):
                    if name in self.scalars:
                        self.findings.append(f"scalar {name} is a parameter twice")
                    if name not in supplied:
                        self.findings.append(f"scalar {name} is not supplied by the launch plan")
                    self.scalars[name] = dtype

    def _parameter_buffer(self, buffer: Buffer) -> None:
        if not buffer.is_global:
            self.findings.append(f"parameter {buffer.name} is in {buffer.memory.name} memory")
        if buffer.name in self.buffer_names:
            self.findings.append(f"two buffers are named {buffer.name}")
        self.buffer_names[buffer.name] = buffer
        self.buffers.add(buffer)

    # --- statements ---------------------------------------------------------------------------------------------------

    def _body(self, body: tuple[Stmt, ...]) -> None:
        symbols, buffers = set(self.symbols), set(self.buffers)
        for stmt in body:
            self._stmt(stmt)
        self.symbols, self.buffers = symbols, buffers

    def _stmt(self, stmt: Stmt) -> None:
        match stmt:
            case Comment():
                pass
            case Allocate(buffer):
                self._allocate(stmt, buffer)
            case Let(symbol, value):
                self._integer(stmt, value)
                self._define(stmt, symbol, value, value=value)
                if value.symbols <= self.unrolled:
                    self.unrolled.add(symbol)
            case Store(buffer, index, value, _):
                self._value(stmt, value)
                self._access(stmt, buffer, index, write=True)
                if _stored(value.dtype) is not _stored(buffer.dtype):
                    self._mark(stmt, f"stores {value.dtype.name} into {buffer.name}, which is {buffer.dtype.name}")
            case VectorMove():
                self._move(stmt)
            case AsyncCopy():
                self._async_copy(stmt)
            case AsyncCommit():
                self.commits = True
            case AsyncWait(pending):
                self.waits = True
                if pending < 0:
                    self._mark(stmt, f"waits until {pending} groups are left")
            case For():
                self._for(stmt)
            case If():
                self._if(stmt)
            case Shuffle():
                self._shuffle(stmt)
            case LoadIndex(symbol, buffer, index):
                if buffer.is_register:
                    self._access(stmt, buffer, index, write=False)
                    if buffer.dtype not in _INDEX_DTYPES:
                        self._mark(stmt, f"{buffer.name} is {buffer.dtype.name}, expected Int, Int32 or Index")
                    self._define(stmt, symbol)
                    self.uniformity.define_varying(symbol)
                    return
                self._counter(stmt, buffer, index)
                self._define(stmt, symbol, index)
            case LetPhase(symbol, buffer, width):
                if not buffer.is_global or buffer not in self.buffers:
                    self._mark(stmt, f"{buffer.name} is no argument")
                if width < 1 or width & (width - 1):
                    self._mark(stmt, f"{width} elements are no power of two")
                self._define(stmt, symbol)
            case AtomicAdd(symbol, buffer, index, amount):
                self._counter(stmt, buffer, index)
                self._integer(stmt, amount)
                self.written.add(buffer)
                if symbol is not None:
                    self._define(stmt, symbol)
                    self.uniformity.define_varying(symbol)
            case BlockBarrier():
                self._uniform(stmt, "a block barrier", whole_block=True)
            case WarpBarrier():
                self._uniform(stmt, "a warp barrier", whole_block=False)
            case RemoteStore(buffer, index, value, rank, told):
                self._value(stmt, value)
                if told is not None:
                    self._counts_bytes(stmt, told)
                    if buffer.dtype.itemsize not in (4, 8) or buffer.dtype.is_complex:
                        self._mark(stmt, f"{buffer.name} is {buffer.dtype.name}; told are 4 or 8 bytes at once")
                self._access(stmt, buffer, index, write=True)
                self._integer(stmt, rank)
                if not buffer.is_shared:
                    self._mark(
                        stmt,
                        f"{buffer.name} is in {buffer.memory.name} memory; blocks reach each other's shared memory",
                    )
                if _stored(value.dtype) is not _stored(buffer.dtype):
                    self._mark(stmt, f"stores {value.dtype.name} into {buffer.name}, which is {buffer.dtype.name}")
                self._in_cluster(stmt, "stores into another block")
            case ExchangeInit(told, nbytes):
                self._counts_bytes(stmt, told)
                self._access(stmt, told, ZERO, write=True)
                if nbytes < 1:
                    self._mark(stmt, f"{told.name} waits for {nbytes} bytes")
                self._in_cluster(stmt, "exchanges values in a cluster")
            case ExchangeWait(told):
                self._counts_bytes(stmt, told)
                self._in_cluster(stmt, "exchanges values in a cluster")
                self._uniform(stmt, "a wait for told values", whole_block=True)
            case ClusterArrive() | ClusterWait():
                self._in_cluster(stmt, "synchronises a cluster")
                self._uniform(stmt, "a barrier of the cluster", whole_block=True)
            case SpinWait(buffer, index, target):
                self._counter(stmt, buffer, index)
                self._integer(stmt, target)
                if not self.kernel.plan.cooperative:
                    self._mark(stmt, "waits for other blocks, but the launch is not cooperative")
            case Fence():
                pass
            case Reduce():
                self._reduce(stmt)
            case GridBarrier():
                self._grid_barrier(stmt)
            case Scan():
                self._scan(stmt)

    def _counts_bytes(self, stmt: Stmt, told: Buffer) -> None:
        if not told.is_shared or told.dtype is not DataType.Int or told.size is not ONE:
            self._mark(stmt, f"{told.name} counts bytes: one Int in shared memory")

    def _allocate(self, stmt: Stmt, buffer: Buffer) -> None:
        if buffer.is_global:
            self._mark(stmt, f"allocates {buffer.name} in {buffer.memory.name} memory; only local and shared can be")
        if buffer.memory is MemoryType.tensor:
            self._mark(stmt, f"{buffer.name}: tensor memory is not supported")
        if self.buffer_names.setdefault(buffer.name, buffer) is not buffer or buffer in self.buffers:
            self._mark(stmt, f"two buffers are named {buffer.name}")
        if buffer.is_register and (not buffer.size.is_const or buffer.size.value < 1):
            self._mark(stmt, f"register array {buffer.name} needs a constant size of at least 1, has {buffer.size}")
        if buffer.is_shared:
            self._integer(stmt, buffer.size)
            if self.is_final:
                self._placed(stmt, buffer)
        self.buffers.add(buffer)

    def _placed(self, stmt: Stmt, buffer: Buffer) -> None:
        offset = self.kernel.shared_offsets.get(buffer.name)
        if offset is None:
            self._mark(stmt, f"shared buffer {buffer.name} has no place in shared memory")
            return
        self._integer(stmt, offset)
        if offset.multiple % buffer.dtype.itemsize != 0:
            self._mark(stmt, f"{buffer.name} starts at byte {offset}, no multiple of {buffer.dtype.itemsize}")

    def _move(self, stmt: VectorMove) -> None:
        self._access(stmt, stmt.src, stmt.src_index, write=False, width=stmt.width)
        self._access(stmt, stmt.dst, stmt.dst_index, write=True, width=stmt.width)
        if stmt.src.dtype is not stmt.dst.dtype:
            self._mark(stmt, f"moves {stmt.src.dtype.name} into {stmt.dst.name}, which is {stmt.dst.dtype.name}")
        nbytes = stmt.width * stmt.src.dtype.itemsize
        if nbytes not in _MOVE_BYTES:
            self._mark(stmt, f"moves {nbytes} bytes in one access, expected one of {_MOVE_BYTES}")
        if not stmt.aligned and not (stmt.src.is_global and stmt.dst.is_register):
            self._mark(stmt, "only what comes from device memory into registers may have any address")
        self._hint(stmt, stmt.cache, stmt.src.is_global or stmt.dst.is_global)
        for buffer, index in ((stmt.dst, stmt.dst_index), (stmt.src, stmt.src_index)):
            if buffer.is_register and index.multiple % stmt.width != 0:
                self._mark(stmt, f"{buffer.name}[{index}] does not start at a multiple of the width {stmt.width}")

    def _async_copy(self, stmt: AsyncCopy) -> None:
        self._access(stmt, stmt.src, stmt.src_index, write=False, width=stmt.width)
        self._access(stmt, stmt.dst, stmt.dst_index, write=True, width=stmt.width)
        if stmt.src.dtype is not stmt.dst.dtype:
            self._mark(stmt, f"moves {stmt.src.dtype.name} into {stmt.dst.name}, which is {stmt.dst.dtype.name}")
        if not (stmt.src.is_global and stmt.dst.is_shared):
            self._mark(stmt, "an asynchronous copy goes from device memory to shared memory")
        nbytes = stmt.width * stmt.src.dtype.itemsize
        if nbytes not in _ASYNC_BYTES:
            self._mark(stmt, f"copies {nbytes} bytes at once, expected one of {_ASYNC_BYTES}")
        self.copies.append(stmt)

    def _for(self, stmt: For) -> None:
        for bound in (stmt.start, stmt.stop, stmt.step):
            self._integer(stmt, bound)
        if stmt.step.lo is not None and stmt.step.lo < 1:
            self._mark(stmt, f"the step {stmt.step} may be below 1")
        symbols, buffers = set(self.symbols), set(self.buffers)
        self._define(stmt, stmt.symbol, stmt.start, stmt.step)
        unrollable = all(b.symbols <= self.unrolled for b in (stmt.start, stmt.stop, stmt.step))
        if stmt.unroll and not unrollable:
            self._mark(stmt, "an unrolled loop needs constant bounds")
        if stmt.unroll and unrollable:
            self.unrolled.add(stmt.symbol)
        diverges = self.uniformity.enter_loop(stmt)
        self._body(stmt.body)
        if diverges:
            self.uniformity.leave()
        self.symbols, self.buffers = symbols, buffers

    def _if(self, stmt: If) -> None:
        self._visible(stmt, stmt.condition.symbols)
        diverges = self.uniformity.enter_condition(stmt.condition)
        self._body(stmt.then)
        self._body(stmt.orelse)
        if diverges:
            self.uniformity.leave()

    def _shuffle(self, stmt: Shuffle) -> None:
        self._value(stmt, stmt.src)
        self._integer(stmt, stmt.lane)
        self._access(stmt, stmt.dst, stmt.dst_index, write=True)
        if _stored(stmt.src.dtype) is not _stored(stmt.dst.dtype):
            self._mark(stmt, f"shuffles {stmt.src.dtype.name} into {stmt.dst.name}, which is {stmt.dst.dtype.name}")
        if stmt.width not in (1, 2, 4, 8, 16, 32):
            self._mark(stmt, f"a group of {stmt.width} lanes is no power of two up to 32")
        self._uniform(stmt, "a shuffle", whole_block=False)

    def _reduce(self, stmt: Reduce) -> None:
        if self.is_final:
            self._mark(stmt, "a collective is left; expand_collectives must have run")
        for i, partial in enumerate(stmt.partials):
            self._access(stmt, partial, ZERO, write=False)
            self._access(stmt, partial, ZERO, write=True)
            is_common = stmt.combine in ("welford", "welford_exact", "moments") and i == 2 and partial.size is ONE
            if partial.size is not stmt.partials[0].size and not is_common:
                self._mark(stmt, f"{partial.name} has {partial.size} elements, not {stmt.partials[0].size}")
            if not partial.is_register:
                self._mark(stmt, f"the partial {partial.name} is in {partial.memory.name} memory, expected registers")
        self._integer(stmt, stmt.slot)
        self._integer(stmt, stmt.slots)
        expected = _TUPLES.get(stmt.combine, len(stmt.partials))
        if not len(stmt.partials) == len(stmt.identity) == expected:
            self._mark(stmt, f"{len(stmt.partials)} partials and {len(stmt.identity)} identities")
        if stmt.combine not in _TUPLES and stmt.combine not in POINTWISE:
            self._mark(stmt, f"combines by {stmt.combine!r}, which the op table does not have")
        for partial, identity in zip(stmt.partials, stmt.identity, strict=False):
            if _stored(partial.dtype) is not _stored(identity.dtype):
                self._mark(stmt, f"identity of {partial.name} is {identity.dtype.name}, not {partial.dtype.name}")
        if not all(p.is_block for p in (*stmt.block_axes, *stmt.copy_axes)) or not all(
            p.is_grid for p in (*stmt.grid_axes, *stmt.cluster_axes)
        ):
            self._mark(stmt, "axes are in the wrong one of block_axes, grid_axes and cluster_axes")
        if set(stmt.block_axes) & set(stmt.copy_axes):
            self._mark(stmt, "an axis of block_axes has copies of its partials")
        if stmt.last_block is not None:
            self._define(stmt, stmt.last_block)
        self._uniform(stmt, "a collective", whole_block=True)

    def _in_cluster(self, stmt: Stmt, what: str) -> None:
        if self.kernel.plan.cluster is None:
            self._mark(stmt, f"{what}, but the launch has no clusters")

    def _grid_barrier(self, stmt: GridBarrier) -> None:
        if self.is_final:
            self._mark(stmt, "a grid barrier is left; expand_collectives must have run")
        self._integer(stmt, stmt.slot)
        self._integer(stmt, stmt.slots)
        if not self.kernel.plan.cooperative:
            self._mark(stmt, "waits for other blocks, but the launch is not cooperative")
        self._uniform(stmt, "a grid barrier", whole_block=True)

    def _scan(self, stmt: Scan) -> None:
        if self.is_final:
            self._mark(stmt, "a collective is left; expand_collectives must have run")
        for buffer, axes in ((stmt.values, (*stmt.kept, *stmt.tiles, *stmt.run)), (stmt.carry, stmt.kept)):
            self._access(stmt, buffer, ZERO, write=False)
            self._access(stmt, buffer, ZERO, write=True)
            count = math.prod(n for n, _ in axes)
            if not buffer.is_register:
                self._mark(stmt, f"{buffer.name} is in {buffer.memory.name} memory, expected registers")
            elif not buffer.size.is_const or buffer.size.value != count:
                self._mark(stmt, f"{buffer.name} has {buffer.size} elements, not {count}")
            if _stored(buffer.dtype) is not _stored(stmt.identity.dtype):
                self._mark(stmt, f"identity of {buffer.name} is {stmt.identity.dtype.name}, not {buffer.dtype.name}")
        if stmt.combine not in POINTWISE:
            self._mark(stmt, f"combines by {stmt.combine!r}, which the op table does not have")
        if not all(p.is_block for p in stmt.block_axes) or not all(p.is_grid for p in stmt.cluster_axes):
            self._mark(stmt, "a scan runs over axes of a block, and over one of the grid within a cluster")
        self._uniform(stmt, "a collective", whole_block=True)

    def _counter(self, stmt: Stmt, buffer: Buffer, index: Int) -> None:
        """An Int32 element of memory that several threads see."""
        self._access(stmt, buffer, index, write=False)
        if buffer.dtype is not DataType.Int32:
            self._mark(stmt, f"{buffer.name} is {buffer.dtype.name}, expected Int32")
        if buffer.is_register:
            self._mark(stmt, f"{buffer.name} is in registers, expected shared or device memory")

    # --- values and names ---------------------------------------------------------------------------------------------

    def _value(self, stmt: Stmt, value: Value) -> None:
        match value:
            case Literal(number, dtype):
                if isinstance(number, complex) and not dtype.is_complex:
                    self._mark(stmt, f"the complex literal {number} is {dtype.name}")
            case Load(buffer, index, cache):
                self._access(stmt, buffer, index, write=False)
                self._hint(stmt, cache, buffer.is_global)
            case IndexValue(expression, dtype):
                self._integer(stmt, expression)
                if dtype not in _INDEX_DTYPES:
                    self._mark(stmt, f"an index becomes a value of Int, Int32 or Index, not {dtype.name}")
            case ScalarArgument(name, dtype):
                if self.scalars.get(name) is not dtype:
                    self._mark(stmt, f"there is no scalar parameter {name} of {dtype.name}")
            case Call():
                self._call(stmt, value)
            case Cast(inner, dtype):
                self._value(stmt, inner)
                self._castable(stmt, inner.dtype, dtype)
            case RandomValue():
                self._random(stmt, value)

    def _random(self, stmt: Stmt, value: RandomValue) -> None:
        self._integer(stmt, value.index)
        if not value.dtype.is_floating:
            self._mark(stmt, f"random numbers of {value.dtype.name}, expected a floating dtype")
            return
        for operand, target in (
            *((v, DataType.Int) for v in (value.seed, value.offset)),
            *((v, compute_dtype(value.dtype)) for v in value.parameters),
        ):
            self._value(stmt, operand)
            self._castable(stmt, operand.dtype, target)

    def _call(self, stmt: Stmt, call: Call) -> None:
        for arg in call.args:
            self._value(stmt, arg)
        row = ROWS.get(call.op)
        if row is None or not row.primitive:
            self._mark(stmt, f"the op table has no row {call.op!r} that kernels can run")
            return
        if len(call.args) != row.arity:
            self._mark(stmt, f"{call.op} takes {row.arity} arguments, has {len(call.args)}")
            return
        if (call.compute.is_reduced_float and not row.in_own_type) or call.compute is DataType.Index:
            self._mark(stmt, f"{call.op} cannot compute in {call.compute.name}")
            return
        for position, arg in enumerate(call.args):
            is_condition = call.op == "where" and position == 0
            if is_condition and arg.dtype is not DataType.Bool:
                self._mark(stmt, f"the condition of where is {arg.dtype.name}, expected Bool")
            if not is_condition:
                self._castable(stmt, arg.dtype, call.compute)
        if call.op == "cast":
            return
        try:
            row.cuda(call.compute)
        except (TypeError, KeyError):
            self._mark(stmt, f"{call.op} is not defined for {call.compute.name}")
            return
        self._castable(stmt, result_dtype(row, call.compute), call.dtype)

    def _castable(self, stmt: Stmt, source: DataType, target: DataType) -> None:
        try:
            check_cast(source, target)
            cast_spelling(source, target)
        except (DefinitionRuntimeError, KeyError):
            self._mark(stmt, f"{source.name} cannot be cast to {target.name}")

    def _access(self, stmt: Stmt, buffer: Buffer, index: Int, *, write: bool, width: int = 1) -> None:
        if buffer not in self.buffers:
            known = self.buffer_names.get(buffer.name)
            how = "is not visible here" if known is buffer else "is neither a parameter nor allocated before"
            self._mark(stmt, f"buffer {buffer.name} {how}")
        self._integer(stmt, index)
        if write:
            self.written.add(buffer)
        elif buffer.is_register:
            self.register_reads.setdefault(buffer, stmt)
        if index.hi is not None and index.hi < 0:
            self._mark(stmt, f"{buffer.name}[{index}] is below the buffer")
        # Code that touches a tensor of no elements never runs: the grid, or a loop around it, is empty.
        size = buffer.size.value if buffer.size.is_const else 0
        if size and index.lo is not None and index.lo + width > size:
            self._mark(stmt, f"{buffer.name}[{index}] is past its end, it has {buffer.size} elements")
        if not buffer.is_register:
            return
        dynamic = sorted(s.name for s in index.symbols - self.unrolled)
        if dynamic:
            self._mark(
                stmt,
                f"register array {buffer.name} is indexed by {', '.join(dynamic)}, "
                "which no unrolled loop turns into constants",
            )
        elif buffer.size.is_const and index.is_const and not 0 <= index.value <= buffer.size.value - width:
            self._mark(stmt, f"{buffer.name}[{index}] is outside its {buffer.size} elements")

    def _hint(self, stmt: Stmt, cache: CacheOp, in_device_memory: bool) -> None:
        if cache is not CacheOp.unspecified and not in_device_memory:
            self._mark(stmt, f"the cache hint {cache.name} is for device memory only")

    def _integer(self, stmt: Stmt, expression: Int) -> None:
        self._visible(stmt, expression.symbols)

    def _visible(self, stmt: Stmt, symbols: Iterable[Symbol]) -> None:
        missing = sorted(s.name for s in symbols if s not in self.symbols)
        if missing:
            named = [f"{n} (another symbol of that name is)" if n in self.symbol_names else n for n in missing]
            self._mark(stmt, f"not defined here: {', '.join(named)}")

    def _new_symbol(self, symbol: Symbol) -> bool:
        if symbol in self.symbols:
            return False
        self.symbol_names[symbol.name] = symbol
        return True

    def _define(self, stmt: Stmt, symbol: Symbol, *sources: Int, value: Int | None = None) -> None:
        """`symbol` comes into scope, computed from `sources`."""
        if symbol in self.symbols:
            self._mark(stmt, f"{symbol.name} is already defined here")
        self._new_symbol(symbol)
        self.symbols.add(symbol)
        # A sibling scope may have defined the symbol before, as something else.
        self.unrolled.discard(symbol)
        self.uniformity.define(symbol, sources, value)

    def _uniform(self, stmt: Stmt, what: str, *, whole_block: bool) -> None:
        around = self.uniformity.divergence(in_block=whole_block)
        if around is not None:
            who = "threads of a block" if whole_block else "lanes of a warp"
            self._mark(stmt, f"{what} under {around}, which differs between {who}")

    def _mark(self, stmt: Stmt, message: str) -> None:
        known = self.marks.get(id(stmt))
        if known is None:
            self.marks[id(stmt)] = message
        elif message not in known:
            self.marks[id(stmt)] = f"{known}; {message}"


def _stored(dtype: DataType) -> DataType:
    """Index is Int in memory."""
    return DataType.Int if dtype is DataType.Index else dtype
