"""Kernels built by hand for the tests of the simulator, and the means to build and run one in a line."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fuser.ir.device_info import H200, DeviceInfo
from fuser.ir.integers.integers import Int, as_int, const, equal, less, symbol
from fuser.ir.kernel.kernel import (
    SIZE_SYMBOLS,
    THREAD_SYMBOLS,
    Allocate,
    BlockBarrier,
    Buffer,
    Call,
    Cast,
    ExtentParameter,
    For,
    If,
    Kernel,
    Literal,
    Load,
    Parameter,
    ScalarParameter,
    SemaphoreParameter,
    Shuffle,
    ShuffleKind,
    Stmt,
    Store,
    TensorParameter,
    Value,
    VectorMove,
)
from fuser.ir.kernel.launch_plan import LaunchPlan
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import GLOBAL_MEMORY, MemoryType, ParallelType
from fuser.runtime.launch import ArgumentValue, Launch
from fuser.simulator.machine import BlockPosition
from fuser.simulator.memory import DeviceMemory
from fuser.simulator.run_kernel import Report, run_kernel

FLOAT, BF16, INT32, INT, BOOL = DataType.Float, DataType.BFloat16, DataType.Int32, DataType.Int, DataType.Bool
BX = THREAD_SYMBOLS[ParallelType.grid_x]
TX = THREAD_SYMBOLS[ParallelType.block_x]
GRID = SIZE_SYMBOLS[ParallelType.grid_x]
THREADS = SIZE_SYMBOLS[ParallelType.block_x]
N = symbol("N", 1)


def tensor(name: str, size: Int | int, dtype: DataType = FLOAT) -> Buffer:
    return Buffer(name, dtype, GLOBAL_MEMORY, as_int(size), name)


def registers(name: str, size: int = 1, dtype: DataType = FLOAT) -> Buffer:
    return Buffer(name, dtype, MemoryType.local, const(size))


def shared(name: str, size: Int | int, dtype: DataType = FLOAT) -> Buffer:
    return Buffer(name, dtype, MemoryType.shared, as_int(size))


def load(buffer: Buffer, index: Int | int = 0) -> Load:
    return Load(buffer, as_int(index))


def store(buffer: Buffer, index: Int | int, value: Value | float) -> Store:
    if isinstance(value, (int, float)):
        value = Literal(value, buffer.dtype)
    return Store(buffer, as_int(index), value)


def call(op: str, *args: Value) -> Call:
    dtype = args[-1].dtype
    return Call(op, args, dtype, dtype)


def real(value: float) -> Literal:
    return Literal(value, FLOAT)


def move(dst: Buffer, dst_index: Int | int, src: Buffer, src_index: Int | int, width: int) -> VectorMove:
    return VectorMove(dst, as_int(dst_index), src, as_int(src_index), width)


def loop(variable: Int, stop: Int | int, *body: Stmt, start: Int | int = 0, step: Int | int = 1) -> For:
    return For(variable, as_int(start), as_int(stop), as_int(step), body)  # type: ignore[arg-type]


def output(buffer: Buffer) -> TensorParameter:
    return TensorParameter(buffer, buffer.name, 0, True)


def source(buffer: Buffer) -> TensorParameter:
    return TensorParameter(buffer, buffer.name, 0, False)


def kernel(
    parameters: Sequence[Parameter], *body: Stmt, offsets: dict[str, int] | None = None, index_bits: int = 32
) -> Kernel:
    one = const(1)
    plan = LaunchPlan((), (), (), (), (one, one, one), (one, one, one), const(0))
    places = {name: const(offset) for name, offset in (offsets or {}).items()}
    return Kernel("tested", tuple(parameters), tuple(body), plan, index_bits, places)


class Run:
    """One launch with memory of its own. `arguments` are arrays (uploaded), sizes of fresh memory, or extents.

    For every parameter in order: a tensor or workspace takes an array or None for uninitialised memory of its size,
    a semaphore None, an extent an int, a scalar a number.
    """

    def __init__(self, tested: Kernel, *arguments: np.ndarray | float | None) -> None:
        self.kernel = tested
        self.memory = DeviceMemory()
        self.values: list[ArgumentValue] = []
        extents = {
            p.symbol: a
            for p, a in zip(tested.parameters, arguments, strict=True)
            if isinstance(p, ExtentParameter) and isinstance(a, int)
        }
        self.addresses: dict[str, tuple[int, Buffer, int]] = {}
        for parameter, argument in zip(tested.parameters, arguments, strict=True):
            if isinstance(parameter, (ExtentParameter, ScalarParameter)):
                assert isinstance(argument, (int, float))
                self.values.append(argument)
                continue
            buffer = parameter.buffer
            if isinstance(argument, np.ndarray):
                address, size = self.memory.upload(argument, buffer.name), argument.size
            elif isinstance(argument, int):
                address, size = argument, buffer.size.evaluate(extents)
            else:
                size = buffer.size.evaluate(extents)
                if isinstance(parameter, SemaphoreParameter):
                    address = self.memory.upload(np.zeros(size, np.int32), buffer.name)
                else:
                    address = self.memory.allocate(size * buffer.dtype.itemsize, buffer.name)
            self.addresses[buffer.name] = (address, buffer, size)
            self.values.append(address)

    def __call__(
        self,
        blocks: int = 1,
        threads: int = 32,
        *,
        shared_bytes: int = 0,
        cooperative: bool = False,
        seed: int = 0,
        interleave: bool | None = None,
        order: Sequence[BlockPosition] | None = None,
        only: Sequence[BlockPosition] | None = None,
        info: DeviceInfo = H200,
        checks: bool = True,
    ) -> Report:
        launch = Launch((blocks, 1, 1), (threads, 1, 1), shared_bytes, None, cooperative)
        return run_kernel(
            self.kernel,
            launch,
            self.values,
            self.memory,
            seed=seed,
            interleave=interleave,
            block_order=order,
            only_blocks=only,
            info=info,
            checks=checks,
        )

    def __getitem__(self, name: str) -> np.ndarray:
        address, buffer, size = self.addresses[name]
        return self.memory.download(address, buffer.dtype, size)


# --- whole kernels ----------------------------------------------------------------------------------------------------


def _cast_call(op: str, dtype: DataType, *args: Value) -> Cast:
    """An op on a 16-bit type: computed in Float, rounded to the type."""
    return Cast(Call(op, args, FLOAT, FLOAT), dtype)


def bias_gelu(columns: int) -> Kernel:
    """out = gelu(x + bias) on N elements of bf16 in rows of `columns`, 8 per thread; N need not divide by the block."""
    x, bias, out = tensor("x", N, BF16), tensor("bias", columns, BF16), tensor("out", N, BF16)
    rx, rb, ro = registers("rx", 8, BF16), registers("rb", 8, BF16), registers("ro", 8, BF16)
    base = (BX * THREADS + TX) * 8
    k = symbol("k", 0, 7)

    def bf16(value: float) -> Literal:
        return Literal(value, BF16)

    added = registers("added", 1, BF16)
    x3 = _cast_call("mul", BF16, _cast_call("mul", BF16, load(added), load(added)), load(added))
    inner = _cast_call("add", BF16, load(added), _cast_call("mul", BF16, x3, bf16(0.044715)))
    tanh = _cast_call("tanh", BF16, _cast_call("mul", BF16, inner, bf16(0.7978845608)))
    half = _cast_call("mul", BF16, load(added), bf16(0.5))
    body = (
        Allocate(added),
        store(added, 0, _cast_call("add", BF16, load(rx, k), load(rb, k))),
        store(ro, k, _cast_call("mul", BF16, half, _cast_call("add", BF16, tanh, bf16(1.0)))),
    )
    return kernel(
        [source(x), source(bias), output(out), ExtentParameter(N)],
        Allocate(rx),
        Allocate(rb),
        Allocate(ro),
        If(less(base, N), (move(rx, 0, x, base, 8), move(rb, 0, bias, base % columns, 8))),
        loop(k, 8, If(less(base, N), body)),
        If(less(base, N), (move(out, base, ro, 0, 8),)),
    )


def block_reduction(value: Buffer, scratch: Buffer, op: str, identity: float, threads: int) -> tuple[Stmt, ...]:
    """`value[0]` of every thread becomes the reduction over the block; `scratch` has an element per warp."""
    other = registers("other")
    warps = threads // 32
    steps: list[Stmt] = [Allocate(other)]

    def fold() -> list[Stmt]:
        result: list[Stmt] = []
        for distance in (16, 8, 4, 2, 1):
            result.append(Shuffle(other, const(0), load(value), ShuffleKind.xor, const(distance)))
            result.append(store(value, 0, call(op, load(value), load(other))))
        return result

    steps.extend(fold())
    steps.append(BlockBarrier("scratch of the reduction before"))
    steps.append(If(equal(TX % 32, 0), (store(scratch, TX // 32, load(value)),)))
    steps.append(BlockBarrier("partials of the warps"))
    steps.append(
        If(less(TX % 32, warps), (store(value, 0, load(scratch, TX % 32)),), (store(value, 0, real(identity)),))
    )
    steps.extend(fold())
    return tuple(steps)


def softmax(columns: int, threads: int) -> Kernel:
    """Softmax over rows of `columns` floats, one row a block, through registers and a shared array."""
    x, out = tensor("x", N * columns), tensor("out", N * columns)
    row = registers("row", columns // threads)
    top, total = registers("top"), registers("total")
    scratch = shared("scratch", threads // 32)
    k = symbol("k", 0, columns // threads - 1)
    place = BX * columns + k * threads + TX
    trips = columns // threads
    return kernel(
        [source(x), output(out), ExtentParameter(N)],
        Allocate(row),
        Allocate(top),
        Allocate(total),
        Allocate(scratch),
        store(top, 0, float("-inf")),
        loop(k, trips, store(row, k, load(x, place))),
        loop(k, trips, store(top, 0, call("maximum", load(top), load(row, k)))),
        *block_reduction(top, scratch, "maximum", float("-inf"), threads),
        store(total, 0, 0.0),
        loop(
            k,
            trips,
            store(row, k, call("exp", call("sub", load(row, k), load(top)))),
            store(total, 0, call("add", load(total), load(row, k))),
        ),
        *block_reduction(total, scratch, "add", 0.0, threads),
        loop(k, trips, store(out, place, call("div", load(row, k), load(total)))),
        offsets={"scratch": 0},
    )
