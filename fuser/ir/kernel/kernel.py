"""Kernel IR: what lowering makes, what the simulator runs and CUDA text is generated from.

Grammar
    kernel    := Kernel(name, parameters, buffers, body, plan, index_bits, shared_offsets)
    parameter := TensorParameter(buffer, tensor, ...)     pointer to an input or output tensor
               | WorkspaceParameter(buffer)               scratch in device memory, supplied by the launch
               | SemaphoreParameter(buffer)               zeroed Int32 counters, left zero by the kernel
               | ExtentParameter(symbol)                  an extent or stride, of the index type
               | DivisorParameter(divisor)                what codegen divides by it with: a factor and a shift
               | ScalarParameter(name, dtype)             a user scalar or a rank-0 host tensor, by value
    buffer    := Buffer(name, dtype, memory, size)        register array, shared array, or device memory
    stmt      := Comment(text)
               | Allocate(buffer)                         register or shared array comes into scope
               | Let(symbol, value: Int)                  an index computed once
               | Store(buffer, index, value, role)
               | VectorMove(dst, dst_index, src, src_index, width, cache, aligned)
               | AsyncCopy(dst, dst_index, src, src_index, width, cache)   device to shared memory, while the thread goes on
               | AsyncCommit()                            the thread's copies since the last one are a group
               | AsyncWait(pending)                       until all but the last `pending` groups of the thread are there
               | For(symbol, start, stop, step, body, unroll)
               | If(condition, then, orelse, role)
               | Shuffle(dst, dst_index, src: value, kind, lane: Int, width)
               | LoadIndex(symbol, buffer, index, given)  an integer becomes an index symbol
               | LetPhase(symbol, buffer, width)          how many elements behind an aligned address an argument begins
               | AtomicAdd(symbol or None, buffer, index, amount: Int, acquire, wrap, release)   symbol receives the old value
               | Fence()                                  orders this thread's writes for the device
               | LaunchWait()                             waits for the launches before
               | BlockBarrier() | WarpBarrier()
               | RemoteStore(buffer, index, value, rank, told)  into the shared memory of another block of the cluster
               | ExchangeInit(told, nbytes) | ExchangeWait(told)   told[0] of a block counts bytes that others store there
               | ClusterArrive() | ClusterWait()          the two halves of a barrier of the cluster
               | SpinWait(buffer, index, target: Int, acquire)   until buffer[index] >= target; suspends the block
               | Post(words, index, values)               values for another block, each part with a flag of its own
               | Receive(dsts, words, index, step, stop)  until all posts are there; moves them, and leaves their places empty
               | Reduce(...) | Scan(...)                  collectives; gone after expand_collectives
               | GridBarrier(slot, slots)                 collective; gone after expand_collectives
    value     := Literal(value, dtype) | Load(buffer, index, cache) | IndexValue(Int, dtype) | ScalarArgument(name, dtype)
               | Call(op, args, compute, dtype) | Cast(value, dtype)
               | RandomValue(distribution, index: Int, seed, offset, parameters, dtype)

Semantics
    * Every statement is executed by all threads of a block; `threadIdx`/`blockIdx` are the symbols of `THREAD_SYMBOLS`.
      Threads of a block run in any order between two barriers; a value is a per-thread quantity.
    * Indices (`Int`) are integers without overflow: lowering picks `index_bits` so that none occurs.
    * `Call` converts each argument to `compute`, applies the row of the op table, and converts the result to `dtype`,
      rounding once. Integer arithmetic wraps. NaN follows the op's row.
    * `RandomValue` is a pure function of its operands (fuser/ir/fusion/random_numbers.py), equal numbers wherever it stands.
    * An unwritten element has no value: reading it is an error that the simulator reports.
    * Barriers and shuffles must be reached by all threads they name, or by none (a condition that is the same for the block).
    * The elements that an AsyncCopy fills hold no value until the thread that started it has waited for its group; what
      it reads may not be written by the kernel. Other threads need a barrier behind that wait. Every group is waited for.
    * Dynamic shared memory is one arena of bytes; `shared_offsets` says where each shared buffer starts. Buffers may
      overlap where their lifetimes do not.
    * Blocks run in any order. A block that meets SpinWait is suspended; all blocks of a cooperative grid are resident. A block
      that meets Receive is suspended in any grid: one block of a kernel may do that, as others always find room beside it.
"""

from __future__ import annotations

from dataclasses import field

from fuser.ir.integers.integers import Int, Symbol, symbol
from fuser.ir.kernel.kernel_statements import (
    MOST_POST_WORDS,
    Allocate,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    AtomicAdd,
    Axes,
    BlockBarrier,
    ClusterArrive,
    ClusterWait,
    Comment,
    ExchangeInit,
    ExchangeWait,
    Fence,
    For,
    GivenIndex,
    GridBarrier,
    If,
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
    ShuffleKind,
    SpinWait,
    Stmt,
    Store,
    VectorMove,
    WarpBarrier,
    child_bodies,
    map_child_bodies,
    post_words,
    walk,
)
from fuser.ir.kernel.kernel_values import (
    Buffer,
    Call,
    Cast,
    IndexValue,
    Literal,
    Load,
    RandomValue,
    ScalarArgument,
    Value,
    value_operands,
)
from fuser.ir.kernel.launch_plan import LaunchPlan
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import ParallelType
from fuser.records import record

__all__ = [
    "Allocate",
    "AsyncCommit",
    "AsyncCopy",
    "AsyncWait",
    "AtomicAdd",
    "Axes",
    "BlockBarrier",
    "Buffer",
    "Call",
    "Cast",
    "ClusterArrive",
    "ClusterWait",
    "Comment",
    "DivisorParameter",
    "ExchangeInit",
    "ExchangeWait",
    "ExtentParameter",
    "Fence",
    "LaunchWait",
    "For",
    "GridBarrier",
    "If",
    "IndexValue",
    "Kernel",
    "Let",
    "LetPhase",
    "Literal",
    "Load",
    "GivenIndex",
    "LoadIndex",
    "Parameter",
    "Post",
    "RandomValue",
    "Receive",
    "Reduce",
    "RemoteStore",
    "Role",
    "SIZE_SYMBOLS",
    "ScalarArgument",
    "ScalarParameter",
    "Scan",
    "SemaphoreParameter",
    "Shuffle",
    "ShuffleKind",
    "SpinWait",
    "Stmt",
    "Store",
    "THREAD_SYMBOLS",
    "TensorParameter",
    "Value",
    "VectorMove",
    "WarpBarrier",
    "WorkspaceParameter",
    "child_bodies",
    "map_child_bodies",
    "MOST_POST_WORDS",
    "post_words",
    "value_operands",
    "walk",
]
"""The whole IR, wherever a part of it is defined: other modules import it from here."""


@record(eq=False)
class TensorParameter:
    """A pointer. `argument` is the position of the tensor among the launch arguments (inputs, then outputs)."""

    buffer: Buffer
    tensor: str
    argument: int
    is_output: bool


@record(eq=False)
class WorkspaceParameter:
    buffer: Buffer


@record(eq=False)
class SemaphoreParameter:
    buffer: Buffer


@record(eq=False)
class ExtentParameter:
    """An extent or stride symbol, passed with the kernel's index type."""

    symbol: Symbol


@record(eq=False)
class DivisorParameter:
    """An expression over extents and strides by which the body divides: the host works out by what to multiply instead.

    Statements still say `x // divisor` and `x % divisor`. The divisor is at least 1 in a launch that has blocks, the numerators
    are proved nonnegative, and the kernel has 32-bit indices.
    """

    divisor: Int


@record(eq=False)
class ScalarParameter:
    """A scalar by value; `name` is evaluated by the launch plan."""

    name: str
    dtype: DataType


Parameter = (
    TensorParameter | WorkspaceParameter | SemaphoreParameter | ExtentParameter | DivisorParameter | ScalarParameter
)

# Upper bounds of the hardware; the bound of the launch at hand is the plan's.
_LIMITS = {
    ParallelType.grid_x: 2**31 - 1,
    ParallelType.grid_y: 65535,
    ParallelType.grid_z: 65535,
    ParallelType.block_x: 1024,
    ParallelType.block_y: 1024,
    ParallelType.block_z: 64,
}
_INDEX_NAMES = {
    ParallelType.grid_x: "blockIdx.x",
    ParallelType.grid_y: "blockIdx.y",
    ParallelType.grid_z: "blockIdx.z",
    ParallelType.block_x: "threadIdx.x",
    ParallelType.block_y: "threadIdx.y",
    ParallelType.block_z: "threadIdx.z",
}
_SIZE_NAMES = {
    ParallelType.grid_x: "gridDim.x",
    ParallelType.grid_y: "gridDim.y",
    ParallelType.grid_z: "gridDim.z",
    ParallelType.block_x: "blockDim.x",
    ParallelType.block_y: "blockDim.y",
    ParallelType.block_z: "blockDim.z",
}
# gridDim / blockDim as symbols, and the thread's position, which is below them.
SIZE_SYMBOLS: dict[ParallelType, Symbol] = {p: symbol(_SIZE_NAMES[p], 1, n) for p, n in _LIMITS.items()}
THREAD_SYMBOLS: dict[ParallelType, Symbol] = {
    p: symbol(_INDEX_NAMES[p], 0, n - 1, below=SIZE_SYMBOLS[p]) for p, n in _LIMITS.items()
}


@record(eq=False)
class Kernel:
    """A kernel. `buffers` lists every buffer once, parameters included; `plan` computes the launch from the arguments."""

    name: str
    parameters: tuple[Parameter, ...]
    body: tuple[Stmt, ...]
    plan: LaunchPlan
    index_bits: int = 32
    shared_offsets: dict[str, Int] = field(default_factory=dict)
    # What the body was lowered from, for comments in the text and for messages.
    title: str = ""
    max_registers: int = 255
    min_blocks: int = 0
