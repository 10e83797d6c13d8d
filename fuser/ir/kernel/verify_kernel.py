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

Three layers, each a class over the one below: values, accesses and names (`verify_kernel_values`), parameters and launch plan
(`verify_kernel_header`), and here statements.
"""

from __future__ import annotations

import math

from fuser.errors import InternalError
from fuser.ir.integers.integers import ONE, ZERO, Int, Symbol, prove_divisible
from fuser.ir.kernel.kernel import (
    Allocate,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    AtomicAdd,
    BlockBarrier,
    Buffer,
    ClusterArrive,
    ClusterWait,
    Comment,
    ExchangeInit,
    ExchangeWait,
    Fence,
    For,
    GridBarrier,
    If,
    Kernel,
    LaunchWait,
    Let,
    LetPhase,
    LoadIndex,
    Post,
    Receive,
    Reduce,
    RemoteStore,
    Role,
    Scan,
    Shuffle,
    SpinWait,
    Stmt,
    Store,
    VectorMove,
    WarpBarrier,
)
from fuser.ir.kernel.launch_waits import why_not_early
from fuser.ir.kernel.print_kernel import print_around, print_kernel
from fuser.ir.kernel.verify_kernel_header import HeaderRules
from fuser.ir.kernel.verify_kernel_values import INDEX_DTYPES, stored
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import MemoryType
from fuser.ir.ops.op_table import POINTWISE

_MOVE_BYTES = (2, 4, 8, 16)
_ASYNC_BYTES = (4, 8, 16)
# More than this many findings in one message help nobody.
_MOST_FINDINGS = 8

# Collectives over several partials: how many.
_TUPLES = {
    "welford": 3,
    "exp_sum": 2,
}


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


class _Check(HeaderRules):
    """One walk over a kernel."""

    def run(self) -> None:
        """The whole kernel."""
        self._header()
        self._body(self.kernel.body)
        for buffer, stmt in self.register_reads.items():
            if buffer not in self.written:
                self._mark(stmt, f"{buffer.name} is read but written nowhere")
        for buffer, stmt in self.read_whole.items():
            if not buffer.is_global or buffer in self.written:
                self._mark(stmt, f"{buffer.name} is not read-only: the kernel writes it")
        if self.kernel.plan.waits_first and (why := why_not_early(self.kernel)) is not None:
            self.findings.append(f"the launch plan says that it may start early, and {why}")
        for copy in self.copies:
            if copy.src in self.written:
                self._mark(copy, f"{copy.src.name} is written by the kernel: nothing orders that and this copy")
            if self.is_final and not (self.commits and self.waits):
                self._mark(copy, "nobody waits for this copy")

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
                if stored(value.dtype) is not stored(buffer.dtype):
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
                    if buffer.dtype not in INDEX_DTYPES:
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
            case AtomicAdd(symbol, buffer, index, amount, acquire, wrap, release):
                self._counter(stmt, buffer, index)
                self._integer(stmt, amount)
                if wrap is not None:
                    self._integer(stmt, wrap)
                    if amount is not ONE or symbol is not None or acquire:
                        self._mark(stmt, "a counter that wraps counts by one, and nobody sees what it was")
                if release and (symbol is not None or acquire or wrap is not None):
                    self._mark(stmt, "what is added to publish something is not looked at")
                self.written.add(buffer)
                if symbol is not None:
                    self._define(stmt, symbol)
                    self.uniformity.define_varying(symbol)
            case BlockBarrier():
                self._uniform(stmt, "a block barrier", whole_block=True)
            case WarpBarrier():
                self._uniform(stmt, "a warp barrier", whole_block=False)
            case RemoteStore(buffer, index, value, rank, signal):
                self._value(stmt, value)
                if signal is not None:
                    self._counts_bytes(stmt, signal)
                    if buffer.dtype.itemsize not in (4, 8) or buffer.dtype.is_complex:
                        self._mark(stmt, f"{buffer.name} is {buffer.dtype.name}; told are 4 or 8 bytes at once")
                self._access(stmt, buffer, index, write=True)
                self._integer(stmt, rank)
                if not buffer.is_shared:
                    self._mark(
                        stmt,
                        f"{buffer.name} is in {buffer.memory.name} memory; blocks reach each other's shared memory",
                    )
                if stored(value.dtype) is not stored(buffer.dtype):
                    self._mark(stmt, f"stores {value.dtype.name} into {buffer.name}, which is {buffer.dtype.name}")
                self._in_cluster(stmt, "stores into another block")
            case ExchangeInit(signal, nbytes):
                self._counts_bytes(stmt, signal)
                self._access(stmt, signal, ZERO, write=True)
                if nbytes < 1:
                    self._mark(stmt, f"{signal.name} waits for {nbytes} bytes")
                self._in_cluster(stmt, "exchanges values in a cluster")
            case ExchangeWait(signal):
                self._counts_bytes(stmt, signal)
                self._in_cluster(stmt, "exchanges values in a cluster")
                self._uniform(stmt, "a wait for told values", whole_block=True)
            case ClusterArrive() | ClusterWait():
                self._in_cluster(stmt, "synchronises a cluster")
                self._uniform(stmt, "a barrier of the cluster", whole_block=True)
            case SpinWait(buffer, index, target, _):
                self._counter(stmt, buffer, index)
                self._integer(stmt, target)
                if not self.kernel.plan.cooperative:
                    self._mark(stmt, "waits for other blocks, but the launch is not cooperative")
            case Post(words, index, values):
                self._posted(stmt, words, index, [v.dtype for v in values])
                for value in values:
                    self._value(stmt, value)
            case Receive():
                self._received(stmt)
            case Fence() | LaunchWait():
                pass
            case Reduce():
                self._reduce(stmt)
            case GridBarrier():
                self._grid_barrier(stmt)
            case Scan():
                self._scan(stmt)

    def _counts_bytes(self, stmt: Stmt, signal: Buffer) -> None:
        if not signal.is_shared or signal.dtype is not DataType.Int or signal.size is not ONE:
            self._mark(stmt, f"{signal.name} counts bytes: one Int in shared memory")

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
        if stmt.cut:
            self.read_whole.setdefault(stmt.src, stmt)
            if not stmt.aligned or stmt.width == 1:
                self._mark(stmt, "only an aligned access of several elements may take what is not asked for")
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
        # Blocks that do not come to a collective are not its last one: they know that without it.
        self.symbols |= _known_behind(stmt)

    def _shuffle(self, stmt: Shuffle) -> None:
        self._value(stmt, stmt.src)
        self._integer(stmt, stmt.lane)
        self._access(stmt, stmt.dst, stmt.dst_index, write=True)
        if stored(stmt.src.dtype) is not stored(stmt.dst.dtype):
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
            is_common = stmt.combine == "welford" and i == 2 and partial.size is ONE
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
            if stored(partial.dtype) is not stored(identity.dtype):
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
            if stored(buffer.dtype) is not stored(stmt.identity.dtype):
                self._mark(stmt, f"identity of {buffer.name} is {stmt.identity.dtype.name}, not {buffer.dtype.name}")
        if stmt.combine not in POINTWISE:
            self._mark(stmt, f"combines by {stmt.combine!r}, which the op table does not have")
        if not all(p.is_block for p in stmt.block_axes) or not all(p.is_grid for p in stmt.cluster_axes):
            self._mark(stmt, "a scan runs over axes of a block, and over one of the grid within a cluster")
        self._uniform(stmt, "a collective", whole_block=True)

    def _posted(self, stmt: Stmt, words: Buffer, index: Int, dtypes: list[DataType]) -> None:
        self._counter(stmt, words, index)
        self.written.add(words)
        if not words.is_global:
            self._mark(stmt, f"{words.name} is not in device memory")
        if not prove_divisible(index, 2):
            self._mark(stmt, f"word {index} may begin no pair of words")
        for dtype in dtypes:
            if dtype.itemsize not in (4, 8):
                self._mark(stmt, f"a {dtype.name} is posted, expected values of 4 or 8 bytes")

    def _received(self, stmt: Receive) -> None:
        self._posted(stmt, stmt.words, stmt.index, [d.dtype for d in stmt.dsts])
        self._uniform(stmt, "receiving posts", whole_block=False)
        self._integer(stmt, stmt.step)
        self._integer(stmt, stmt.stop)
        if not prove_divisible(stmt.step, 2):
            self._mark(stmt, f"{stmt.step} words from one post to the next")
        if len({d.size for d in stmt.dsts}) != 1 or not stmt.dsts[0].size.is_const:
            self._mark(stmt, "registers for different numbers of posts")
        for dst in stmt.dsts:
            if not dst.is_register:
                self._mark(stmt, f"{dst.name} is no register array")
            self._access(stmt, dst, ZERO, write=True)

    def _counter(self, stmt: Stmt, buffer: Buffer, index: Int) -> None:
        """An Int32 element of memory that several threads see."""
        self._access(stmt, buffer, index, write=False)
        if buffer.dtype is not DataType.Int32:
            self._mark(stmt, f"{buffer.name} is {buffer.dtype.name}, expected Int32")
        if buffer.is_register:
            self._mark(stmt, f"{buffer.name} is in registers, expected shared or device memory")


def _known_behind(stmt: Stmt) -> set[Symbol]:
    """Last-block flags of the collectives to which only the last blocks of others come."""
    if not isinstance(stmt, If) or stmt.role is not Role.last_block:
        return set()
    flags = {s.last_block for s in stmt.then if isinstance(s, Reduce) and s.last_block is not None}
    return flags.union(*map(_known_behind, stmt.then))
