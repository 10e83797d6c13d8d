"""What simulated kernels compute, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from fuser.ir.integers.integers import less, maximum, minimum, symbol
from fuser.ir.kernel.kernel import (
    THREAD_SYMBOLS,
    Allocate,
    Call,
    Cast,
    ExtentParameter,
    If,
    IndexValue,
    Let,
    Literal,
    LoadIndex,
    ScalarArgument,
    ScalarParameter,
    Shuffle,
    ShuffleKind,
)
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import ParallelType
from fuser.ir.ops.op_table import POINTWISE, argument_dtypes, numpy_cast
from fuser.ir.ops.promotion import result_dtype
from fuser.runtime.launch import Launch
from fuser.simulator.run_kernel import run_kernel
from tests.simulator.kernels import (
    BF16,
    BX,
    FLOAT,
    INT,
    INT32,
    THREADS,
    TX,
    N,
    Run,
    as_int,
    bias_gelu,
    call,
    kernel,
    load,
    loop,
    move,
    output,
    registers,
    shared,
    softmax,
    source,
    store,
    tensor,
)


def rounded(op: str, *arrays: np.ndarray | float) -> np.ndarray:
    """An op of bf16 arrays in float, rounded once."""
    wide = [np.asarray(a, ml_dtypes.bfloat16).astype(np.float32) for a in arrays]
    return POINTWISE[op].numpy(*wide).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(("elements", "seed"), [(8000, 0), (9016, 1)])
def test_bias_gelu_rounds_at_every_op(elements: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    x = generator.standard_normal(elements).astype(ml_dtypes.bfloat16)
    bias = generator.standard_normal(200).astype(ml_dtypes.bfloat16)
    run = Run(bias_gelu(200), x, bias, None, elements)
    run(-(-elements // 1024), 128, seed=seed).check()
    a = rounded("add", x, np.resize(bias, elements))
    cube = rounded("mul", rounded("mul", a, a), a)
    inner = rounded("add", a, rounded("mul", cube, 0.044715))
    tanh = rounded("tanh", rounded("mul", inner, 0.7978845608))
    expected = rounded("mul", rounded("mul", a, 0.5), rounded("add", tanh, 1.0))
    np.testing.assert_array_equal(run["out"].view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize("seed", range(3))
def test_softmax(seed: int) -> None:
    rows = np.random.default_rng(seed).standard_normal((37, 256)).astype(np.float32)
    run = Run(softmax(256, 64), rows.reshape(-1), None, 37)
    run(37, 64, shared_bytes=8, seed=seed).check()
    exact = np.exp(rows.astype(np.float64) - rows.max(1, keepdims=True))
    np.testing.assert_allclose(run["out"].reshape(37, 256), exact / exact.sum(1, keepdims=True), rtol=1e-5)


def test_masked_threads_keep_their_registers() -> None:
    out = tensor("out", 32)
    r = registers("r")
    body = (Allocate(r), store(r, 0, 1.0), If(less(TX, 10), (store(r, 0, 2.0),)), store(out, TX, load(r)))
    run = Run(kernel([output(out)], *body), None)
    run().check()
    np.testing.assert_array_equal(run["out"], np.where(np.arange(32) < 10, 2, 1))


def test_loops_with_trips_that_differ_between_threads() -> None:
    out = tensor("out", 64, INT)
    r = registers("r", 1, INT)
    i = symbol("i", 0)
    count = Call("add", (load(r), IndexValue(i, INT)), INT, INT)
    body = (
        Allocate(r),
        store(r, 0, 0),
        loop(i, TX + BX, store(r, 0, count), start=TX % 2, step=2),
        store(out, BX * THREADS + TX, load(r)),
    )
    run = Run(kernel([output(out)], *body), None)
    run(2, 32).check()
    expected = [sum(range(t % 2, t + b, 2)) for b in range(2) for t in range(32)]
    np.testing.assert_array_equal(run["out"], expected)


def test_indices_from_memory_and_lets() -> None:
    table, x, out = tensor("table", 32, INT32), tensor("x", 32), tensor("out", 32)
    row, half = symbol("row", 0, 31), symbol("half", 0, 31)
    body = (LoadIndex(row, table, TX), Let(half, row // 2), store(out, TX, load(x, half)))
    order = np.random.default_rng(0).permutation(32).astype(np.int32)
    values = np.arange(32, dtype=np.float32)
    run = Run(kernel([source(table), source(x), output(out)], *body), order, values, None)
    run().check()
    np.testing.assert_array_equal(run["out"], values[order // 2])


@pytest.mark.parametrize(
    ("kind", "lane", "width", "expected"),
    [
        (ShuffleKind.xor, 4, 8, [t ^ 4 for t in range(64)]),
        (ShuffleKind.down, 8, 32, [t + 8 if t % 32 < 24 else t for t in range(64)]),
        (ShuffleKind.up, 8, 32, [t - 8 if t % 32 >= 8 else t for t in range(64)]),
        (ShuffleKind.up, 1, 4, [t - 1 if t % 4 >= 1 else t for t in range(64)]),
        (ShuffleKind.index, 3, 16, [t - t % 16 + 3 for t in range(64)]),
    ],
)
def test_shuffles(kind: ShuffleKind, lane: int, width: int, expected: list[int]) -> None:
    out = tensor("out", 64, INT)
    r = registers("r", 1, INT)
    body = (Allocate(r), Shuffle(r, as_int(0), IndexValue(TX, INT), kind, as_int(lane), width), store(out, TX, load(r)))
    run = Run(kernel([output(out)], *body), None)
    run(1, 64).check()
    np.testing.assert_array_equal(run["out"], expected)


def test_vector_moves_through_shared_memory() -> None:
    x, out = tensor("x", 256), tensor("out", 256)
    tile = shared("tile", 128)
    body = (
        Allocate(tile),
        move(tile, TX * 4, x, BX * 128 + TX * 4, 4),
        move(out, BX * 128 + TX * 4, tile, TX * 4, 4),
    )
    values = np.arange(256, dtype=np.float32)
    run = Run(kernel([source(x), output(out)], *body, offsets={"tile": 16}), values, None)
    run(2, 32, shared_bytes=1024).check()
    np.testing.assert_array_equal(run["out"], values)


def test_registers_indexed_by_thread() -> None:
    out = tensor("out", 32, INT)
    r = registers("r", 4, INT)
    k = symbol("k", 0, 3)
    body = (
        Allocate(r),
        loop(k, 4, store(r, k, IndexValue(k * 10, INT))),
        store(r, TX % 4, IndexValue(TX + 100, INT)),
        store(out, TX, load(r, (TX + 1) % 4)),
    )
    run = Run(kernel([output(out)], *body), None)
    run().check()
    np.testing.assert_array_equal(run["out"], [(t + 1) % 4 * 10 for t in range(32)])


def test_scalars_are_cast_to_their_dtype() -> None:
    out = tensor("out", 32, BF16)
    body = (store(out, TX, ScalarArgument("s", BF16)),)
    run = Run(kernel([output(out), ScalarParameter("s", BF16)], *body), None, 0.1)
    run().check()
    np.testing.assert_array_equal(run["out"], np.full(32, 0.1, ml_dtypes.bfloat16))


def test_integer_literals_wrap() -> None:
    out = tensor("out", 32, INT32)
    body = (store(out, TX, Literal(2**32 - 1, INT32)),)
    run = Run(kernel([output(out)], *body), None)
    run().check()
    assert (run["out"] == -1).all()


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("add", FLOAT),
        ("add", INT),
        ("add", DataType.ComplexDouble),
        ("where", FLOAT),
        ("eq", INT),
        ("tanh", FLOAT),
        ("logical_right_shift", INT),
        ("complex", DataType.Double),
        ("abs", DataType.ComplexDouble),
    ],
)
def test_calls_follow_the_op_table(name: str, dtype: DataType) -> None:
    row = POINTWISE[name]
    generator = np.random.default_rng(0)
    types = argument_dtypes(row, dtype)
    arrays = [numpy_cast(generator.integers(0, 3, 32), t) for t in types]
    sources = [tensor(f"x{n}", 32, t) for n, t in enumerate(types)]
    result = result_dtype(row, dtype)
    out = tensor("out", 32, result)
    value = Call(name, tuple(load(s, TX) for s in sources), dtype, result)
    run = Run(kernel([*(source(s) for s in sources), output(out)], store(out, TX, value)), *arrays, None)
    run().check()
    np.testing.assert_array_equal(run["out"], row.numpy(*arrays))


def test_casts() -> None:
    x, out = tensor("x", N), tensor("out", N, INT32)
    body = (store(out, TX, Cast(load(x, TX), INT32)),)
    values = np.linspace(-3, 3, 32, dtype=np.float32)
    run = Run(kernel([source(x), output(out), ExtentParameter(N)], *body), values, None, 32)
    run().check()
    np.testing.assert_array_equal(run["out"], values.astype(np.int32))


def test_in_place_on_the_same_memory() -> None:
    x, y = tensor("x", 64), tensor("y", 64)
    place = BX * THREADS + TX
    tested = kernel([source(x), output(y)], store(y, place, call("add", load(x, place), load(y, place))))
    run = Run(tested, np.arange(64, dtype=np.float32), None)
    run.values[1] = run.values[0]
    run(2, 32).check()
    np.testing.assert_array_equal(run["x"], 2 * np.arange(64))


def test_blocks_and_grids_of_three_dimensions() -> None:
    axes = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
    bx, by, bz, tx, ty, tz = (THREAD_SYMBOLS[ParallelType[axis]] for axis in axes)
    grid, block = (2, 3, 2), (5, 2, 3)
    number = ((((bz * 3 + by) * 2 + bx) * 3 + tz) * 2 + ty) * 5 + tx
    out, position = tensor("out", 360, INT), tensor("position", 360, INT)
    tested = kernel(
        [output(out), output(position)],
        store(out, number, IndexValue(number, INT)),
        store(position, number, IndexValue(bz + 10 * by + 100 * bx + 1000 * tz + 10000 * ty + 100000 * tx, INT)),
    )
    run = Run(tested, None, None)
    run_kernel(tested, Launch(grid, block), run.values, run.memory).check()
    np.testing.assert_array_equal(run["out"], np.arange(360))
    z, y, x, w, v, u = np.unravel_index(np.arange(360), (2, 3, 2, 3, 2, 5))
    np.testing.assert_array_equal(run["position"], z + 10 * y + 100 * x + 1000 * w + 10000 * v + 100000 * u)


def test_bounds_with_minimum_and_maximum() -> None:
    out = tensor("out", 32)
    i = symbol("i", 0)
    r = registers("r", 8)
    tested = kernel(
        [output(out), ExtentParameter(N)],
        Allocate(r),
        loop(i, minimum(N, 8), store(r, minimum(i, 7), 1.0)),
        store(out, TX, load(r, maximum(N, 3) - 1)),
    )
    Run(tested, None, 5)().check()
    assert Run(tested, None, 9)().error is not None
