"""The kernels whose text is looked at and compiled: small hand-built ones, each a single idea, and whole pipelines.

`GOLDEN_KERNELS` have their text compared by test_generate.py. `corpus_sources()` gives all of them and whatever
`EXTENSIONS` add, for test_golden_compile.py; to have more kernels compiled, append a function to `EXTENSIONS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from fuser.codegen.generate import CudaSource, generate_cuda
from fuser.ir.integers.integers import Int, Symbol, as_int, ceil_div, const, equal, less, select, symbol
from fuser.ir.kernel.kernel import (
    SIZE_SYMBOLS,
    THREAD_SYMBOLS,
    Allocate,
    AtomicAdd,
    BlockBarrier,
    Buffer,
    Call,
    Cast,
    Comment,
    ExtentParameter,
    Fence,
    For,
    If,
    IndexValue,
    Kernel,
    Let,
    Literal,
    Load,
    LoadIndex,
    Parameter,
    Role,
    ScalarArgument,
    ScalarParameter,
    SemaphoreParameter,
    Shuffle,
    ShuffleKind,
    SpinWait,
    Stmt,
    Store,
    TensorParameter,
    Value,
    VectorMove,
    WarpBarrier,
    WorkspaceParameter,
)
from fuser.ir.kernel.launch_plan import Binding, ExtentOf, LaunchPlan, Workspace
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import GLOBAL_MEMORY, CacheOp, MemoryType, ParallelType

FLOAT, BF16, HALF, BOOL, INT32 = (
    DataType.Float,
    DataType.BFloat16,
    DataType.Half,
    DataType.Bool,
    DataType.Int32,
)
TID = THREAD_SYMBOLS[ParallelType.block_x]
BID = THREAD_SYMBOLS[ParallelType.grid_x]
GRID = SIZE_SYMBOLS[ParallelType.grid_x]
THREADS = 128
N = symbol("n", 0, 2**30)
BLOCKS = ceil_div(N, const(THREADS))
ZERO = const(0)
STREAMING, DEVICE_LEVEL = CacheOp.streaming, CacheOp["global"]


def tensor(name: str, dtype: DataType, size: Int | int = N) -> Buffer:
    """A tensor in device memory."""
    return Buffer(name, dtype, GLOBAL_MEMORY, as_int(size), name)


def registers(name: str, dtype: DataType, size: int = 1) -> Buffer:
    """A register array."""
    return Buffer(name, dtype, MemoryType.local, const(size))


def shared(name: str, dtype: DataType, size: int) -> Buffer:
    """A shared array."""
    return Buffer(name, dtype, MemoryType.shared, const(size))


def at(buffer: Buffer, index: Int | int = 0, cache_op: CacheOp = CacheOp.unspecified) -> Load:
    """One element."""
    return Load(buffer, as_int(index), cache_op)


def store(buffer: Buffer, value: Value, index: Int | int = 0, role: Role = Role.plain) -> Store:
    """`buffer[index] = value`."""
    return Store(buffer, as_int(index), value, role)


def call(op: str, *args: Value, compute: DataType = FLOAT, dtype: DataType | None = None) -> Call:
    """An op computed in `compute`."""
    return Call(op, args, compute, compute if dtype is None else dtype)


def loop(index: Symbol, stop: Int | int, *body: Stmt, unroll: bool = False) -> For:
    """`for index in 0 .. stop`."""
    return For(index, ZERO, as_int(stop), const(1), body, unroll)


def kernel(
    name: str,
    inputs: tuple[Buffer, ...],
    outputs: tuple[Buffer, ...],
    *body: Stmt,
    workspaces: tuple[Buffer, ...] = (),
    semaphores: Buffer | None = None,
    shared_buffers: tuple[Buffer, ...] = (),
    scalars: tuple[tuple[str, DataType], ...] = (),
    grid: Int | int | None = None,
    cooperative: bool = False,
    index_bits: int = 32,
) -> Kernel:
    """A kernel of THREADS threads a block over an extent n; buffers become parameters in order."""
    arguments = (*inputs, *outputs)
    parameters: list[Parameter] = [
        TensorParameter(b, b.name, position, b in outputs) for position, b in enumerate(arguments)
    ]
    parameters += [WorkspaceParameter(b) for b in workspaces]
    parameters += [SemaphoreParameter(semaphores)] if semaphores is not None else []
    parameters += [ExtentParameter(N)]
    parameters += [ScalarParameter(n, d) for n, d in scalars]
    offsets: dict[str, Int] = {}
    top = 0
    for buffer in shared_buffers:
        offsets[buffer.name] = const(top)
        top += -(-buffer.size.value * buffer.dtype.itemsize // 16) * 16
    one = const(1)
    plan = LaunchPlan(
        tensor_arguments=tuple(b.name for b in arguments),
        scalar_arguments=tuple(n for n, _ in scalars),
        bindings=(Binding(N, ExtentOf(0, 0)),),
        scalars=(),
        grid=(BLOCKS if grid is None else as_int(grid), one, one),
        block=(const(THREADS), one, one),
        shared_bytes=const(top),
        workspaces=tuple(Workspace(b.name, b.dtype, b.size) for b in workspaces),
        semaphores=None if semaphores is None else semaphores.size,
        cooperative=cooperative,
    )
    return Kernel(name, tuple(parameters), body, plan, index_bits, offsets, title=name.replace("_", " "))


# --- one idea each ----------------------------------------------------------------------------------------------------


def vector_copy() -> Kernel:
    """16 bytes a thread, streamed past the caches."""
    a, b, r = tensor("t0", FLOAT), tensor("t1", FLOAT), registers("t2", FLOAT, 4)
    i = symbol("i", 0, 2**28)
    return kernel(
        "vector_copy",
        (a,),
        (b,),
        Let(i, BID * THREADS + TID),
        If(
            less(i * 4, N),
            (
                Allocate(r),
                VectorMove(r, ZERO, a, i * 4, 4, STREAMING),
                VectorMove(b, i * 4, r, ZERO, 4, STREAMING),
            ),
        ),
        grid=ceil_div(N, const(4 * THREADS)),
    )


def guarded_pointwise() -> Kernel:
    """bf16 in memory, arithmetic in float, rounding at every op, a bound on each element."""
    a, b, x = tensor("t0", BF16), tensor("t2", BF16), registers("t1", BF16, 4)
    i, j = symbol("i", 0, 2**28), symbol("j", below=4)
    element = i + j * THREADS
    scaled = call("mul", at(x, j), Literal(0.1, BF16), dtype=BF16)
    return kernel(
        "guarded_pointwise",
        (a,),
        (b,),
        Let(i, BID * (4 * THREADS) + TID),
        Allocate(x),
        loop(
            j,
            4,
            If(
                less(element, N),
                (
                    store(x, at(a, element), j),
                    store(b, call("add", scaled, ScalarArgument("s0", FLOAT), dtype=BF16), element),
                ),
            ),
            unroll=True,
        ),
        scalars=(("s0", FLOAT),),
    )


def shared_exchange() -> Kernel:
    """Threads of a block trade elements through shared memory."""
    a, b, tile = tensor("t0", FLOAT), tensor("t1", FLOAT), shared("tile", FLOAT, THREADS)
    i = symbol("i", 0, 2**30)
    return kernel(
        "shared_exchange",
        (a,),
        (b,),
        Let(i, BID * THREADS + TID),
        Allocate(tile),
        If(less(i, N), (store(tile, at(a, i), TID),)),
        BlockBarrier("tile is written by one thread and read by another"),
        If(less(i, N), (store(b, at(tile, THREADS - 1 - TID), i),)),
        shared_buffers=(tile,),
    )


def _warp_sum(partial: Buffer, other: Buffer) -> tuple[Stmt, ...]:
    steps: list[Stmt] = []
    for lanes in (16, 8, 4, 2, 1):
        steps.append(Shuffle(other, ZERO, at(partial), ShuffleKind.xor, const(lanes)))
        steps.append(store(partial, call("add", at(partial), at(other))))
    return tuple(steps)


def warp_reduce() -> Kernel:
    """The sum over the lanes of a warp, one row of 32 elements each."""
    a, b = tensor("t0", FLOAT), tensor("t1", FLOAT, ceil_div(N, const(32)))
    partial, other = registers("t2", FLOAT), registers("t2_other", FLOAT)
    i = symbol("i", 0, 2**30)
    return kernel(
        "warp_reduce",
        (a,),
        (b,),
        Let(i, BID * THREADS + TID),
        Allocate(partial),
        Allocate(other),
        store(partial, Literal(0.0, FLOAT), role=Role.initialise),
        If(less(i, N), (store(partial, at(a, i)),)),
        *_warp_sum(partial, other),
        If(equal(TID % 32, ZERO), (If(less(i, N), (store(b, at(partial), i // 32),)),), role=Role.owner),
    )


def last_block_reduce() -> Kernel:
    """Every block publishes a partial; the one that arrives last adds them up in order and resets the counter."""
    a, b = tensor("t0", FLOAT), tensor("t1", FLOAT, 1)
    partials, arrived = tensor("partials", FLOAT, BLOCKS), tensor("arrived", INT32, 1)
    total, flag = registers("t2", FLOAT), shared("is_last", INT32, 1)
    i, j, ticket, last = symbol("i", 0, 2**30), symbol("j", below=GRID), symbol("ticket"), symbol("last", 0, 1)
    return kernel(
        "last_block_reduce",
        (a,),
        (b,),
        Let(i, BID * THREADS + TID),
        Allocate(flag),
        If(
            equal(TID, ZERO),
            (
                store(partials, at(a, i), BID),
                Fence(),
                AtomicAdd(ticket, arrived, ZERO, const(1)),
                store(flag, IndexValue(select(equal(ticket, GRID - 1), const(1), ZERO), INT32)),
            ),
            role=Role.owner,
        ),
        BlockBarrier("is_last is written by one thread and read by all"),
        LoadIndex(last, flag, ZERO),
        If(
            equal(last, const(1)),
            (
                Fence(),
                Allocate(total),
                store(total, Literal(0.0, FLOAT), role=Role.initialise),
                loop(j, GRID, store(total, call("add", at(total), at(partials, j, DEVICE_LEVEL)))),
                If(
                    equal(TID, ZERO),
                    (store(b, at(total)), store(arrived, Literal(0, INT32), role=Role.semaphore_reset)),
                    role=Role.owner,
                ),
            ),
            role=Role.last_block,
        ),
        workspaces=(partials,),
        semaphores=arrived,
        shared_buffers=(flag,),
    )


def unswitch() -> Kernel:
    """One test for four elements, and the slow path with a test each."""
    a, b = tensor("t0", FLOAT), tensor("t1", FLOAT)
    i, j = symbol("i", 0, 2**28), symbol("j", below=4)
    element = i + j * THREADS
    doubled = store(b, call("exp", call("neg", at(a, element, STREAMING))), element)
    return kernel(
        "unswitch",
        (a,),
        (b,),
        Comment("four elements a thread"),
        Let(i, BID * (4 * THREADS) + TID),
        If(
            less(i + 3 * THREADS, N),
            (loop(j, 4, doubled, unroll=True),),
            (loop(j, 4, If(less(element, N), (doubled,)), unroll=True),),
            role=Role.unswitch,
        ),
    )


GOLDEN_KERNELS: tuple[Callable[[], Kernel], ...] = (
    vector_copy,
    guarded_pointwise,
    shared_exchange,
    warp_reduce,
    last_block_reduce,
    unswitch,
)


# --- every node and type, compiled but not compared -------------------------------------------------------------------


def grid_wait() -> Kernel:
    """A cooperative kernel in 64-bit indices: all blocks wait for each other."""
    a, b = tensor("t0", DataType.Double), tensor("t1", DataType.Double)
    partials, arrived = tensor("partials", DataType.Double, BLOCKS), tensor("arrived", INT32, 1)
    i, value = symbol("i", 0, 2**40), registers("t2", DataType.Double)
    double = DataType.Double
    return kernel(
        "grid_wait",
        (a,),
        (b,),
        Let(i, BID * THREADS + TID),
        If(
            equal(TID, ZERO),
            (
                store(partials, at(a, i), BID),
                Fence(),
                AtomicAdd(None, arrived, ZERO, const(1)),
                SpinWait(arrived, ZERO, GRID),
                Fence(),
            ),
            role=Role.owner,
        ),
        BlockBarrier("partials of all blocks"),
        WarpBarrier("lanes again together"),
        Allocate(value),
        store(value, call("div", at(partials, ZERO, DEVICE_LEVEL), Literal(3, DataType.Int), compute=double)),
        If(less(i, N), (store(b, at(value), i),)),
        workspaces=(partials,),
        semaphores=arrived,
        cooperative=True,
        index_bits=64,
    )


_TYPES = tuple(d for d in DataType if d.is_supported)


def hinted_loads(dtype: DataType, hint: CacheOp) -> Kernel:
    """A hinted element load, a widening vector move and a hinted vector move of every type."""
    a, b = tensor("t0", dtype), tensor("t1", dtype)
    i, one = symbol("i", 0, 2**26), registers("t2", dtype)
    width = 16 // dtype.itemsize
    many = registers("t3", dtype, width)
    return kernel(
        f"hinted_{dtype.name}_{hint.name}",
        (a,),
        (b,),
        Let(i, BID * THREADS + TID),
        Allocate(one),
        Allocate(many),
        store(one, at(a, i, hint)),
        VectorMove(many, ZERO, a, i * width, width, hint),
        store(many, at(one), width - 1),
        VectorMove(b, i * width, many, ZERO, width, hint),
        index_bits=64,
    )


def shuffled(dtype: DataType) -> Kernel:
    """All kinds of shuffles of a type, of an element and of an expression."""
    a, b = tensor("t0", dtype), tensor("t1", dtype)
    i, one, two = symbol("i", 0, 2**26), registers("t2", dtype), registers("t3", dtype, 2)
    compute = DataType.Int if dtype is DataType.Index else FLOAT if dtype.is_reduced_float else dtype
    return kernel(
        f"shuffled_{dtype.name}",
        (a,),
        (b,),
        Let(i, BID * THREADS + TID),
        Allocate(one),
        Allocate(two),
        Shuffle(one, ZERO, at(a, i), ShuffleKind.xor, const(16)),
        Shuffle(two, ZERO, call("set", at(one), compute=compute, dtype=dtype), ShuffleKind.down, const(1), 16),
        Shuffle(two, const(1), at(two), ShuffleKind.index, ZERO, 8),
        store(b, at(two, 1), i),
    )


def literals(dtype: DataType) -> Kernel:
    """Literals at the edges of a type, and each of them converted to every type that takes it."""
    numbers: tuple[bool | int | float | complex, ...]
    if dtype is BOOL:
        numbers = (True, False)
    elif dtype is DataType.UInt64:
        numbers = (0, 2**64 - 1)
    elif dtype.is_integral:
        numbers = (0, -1, 2 ** (8 * dtype.itemsize - 1) - 1, -(2 ** (8 * dtype.itemsize - 1)))
    elif dtype.is_complex:
        numbers = (0j, complex(-1.5, float("inf")))
    else:
        numbers = (0.0, -0.0, 0.1, -1e-40, 65504.0, float("inf"), -float("inf"), float("nan"))
    targets = [t for t in _TYPES if not (dtype.is_complex and not t.is_complex)]
    buffers = {t: tensor(f"to_{t.name}", t) for t in targets}
    body: list[Stmt] = []
    for position, number in enumerate(numbers):
        for target, buffer in buffers.items():
            value = Literal(number, dtype)
            body.append(store(buffer, value if target is dtype else Cast(value, target), position))
    return kernel(f"literals_{dtype.name}", (), tuple(buffers.values()), *body)


def unrolled_moves() -> Kernel:
    """Parts of register arrays are moved inside an unrolled loop: the arrays must stay in registers."""
    a, b = tensor("t0", BF16), tensor("t1", FLOAT)
    x, y = registers("t2", BF16, 32), registers("t3", FLOAT, 32)
    i, j, k, at_j = symbol("i", 0, 2**22), symbol("j", below=4), symbol("k", below=8), symbol("at_j", 0, 24, multiple=8)
    return kernel(
        "unrolled_moves",
        (a,),
        (b,),
        Let(i, BID * THREADS + TID),
        Allocate(x),
        Allocate(y),
        loop(j, 4, VectorMove(x, j * 8, a, i * 32 + j * 8, 8, STREAMING), unroll=True),
        loop(
            j,
            4,
            Let(at_j, j * 8),
            loop(k, 8, store(y, call("exp", at(x, at_j + k)), at_j + k), unroll=True),
            loop(k, 8, If(less(k % 2, const(1)), (VectorMove(b, at_j + k * 4, y, at_j, 4),)), unroll=True),
            unroll=True,
        ),
    )


def awkward_names() -> Kernel:
    """Names that are not C, or that are something else in C."""
    a, b = tensor("t0.cache_after.0", FLOAT), tensor("float", FLOAT)
    i, clash = symbol("tid_x", 0, 2**30), registers("t0_cache_after_0", FLOAT)
    return kernel(
        "awkward_names",
        (a,),
        (b,),
        Comment("a closing backslash joins lines \\\nand a second line"),
        Let(i, BID * THREADS + TID),
        Allocate(clash),
        store(clash, call("add", at(a, i), ScalarArgument("fuser_half", HALF))),
        store(b, at(clash), i),
        scalars=(("fuser_half", HALF),),
    )


def every_node_and_type() -> list[Kernel]:
    """Small kernels that together use every node for every type."""
    kernels = [grid_wait(), unrolled_moves(), awkward_names()]
    kernels += [hinted_loads(t, h) for t in _TYPES for h in (CacheOp.all_levels, STREAMING, DEVICE_LEVEL)]
    kernels += [shuffled(t) for t in _TYPES]
    kernels += [literals(t) for t in _TYPES]
    return kernels


# --- the corpus -------------------------------------------------------------------------------------------------------

EXTENSIONS: list[Callable[[], Iterable[Kernel]]] = []
"""Functions that give more kernels: whole pipelines from a definition down. Their names need not be unique."""


def corpus_kernels() -> list[Kernel]:
    """Every kernel of the corpus."""
    kernels = [make() for make in GOLDEN_KERNELS] + every_node_and_type()
    for extension in EXTENSIONS:
        kernels.extend(extension())
    return kernels


@cache
def corpus_sources() -> tuple[CudaSource, ...]:
    """The text of every kernel of the corpus."""
    return tuple(generate_cuda(k) for k in corpus_kernels())


def one_program(sources: Iterable[CudaSource]) -> tuple[str, tuple[str, ...]]:
    """The texts as one program, and its entries as qualified names.

    Each text stands in a namespace of its own, so that device functions do not collide; entries are numbered, since
    `extern "C"` names are not in a namespace.
    """
    texts: list[str] = []
    entries: list[str] = []
    for position, source in enumerate(sources):
        entry = f"{source.entry}_{position}"
        renamed = source.text.replace(f"FUSER_BOUNDS {source.entry}(", f"FUSER_BOUNDS {entry}(")
        texts.append(f"namespace program_{position} {{\n{renamed}}}\n")
        entries.append(f"program_{position}::{entry}")
    return "\n".join(texts), tuple(entries)
