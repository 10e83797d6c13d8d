"""Places in shared memory."""

from __future__ import annotations

from fuser.ir.integers.integers import Int, const, symbol
from fuser.ir.kernel.kernel import Allocate, Buffer, For, Literal, Load, Stmt, Store
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import MemoryType
from fuser.lowering.memory.allocate_shared import allocate_shared

N = symbol("n", 1)


def shared(name: str, size: Int | int) -> Buffer:
    return Buffer(name, DataType.Float, MemoryType.shared, const(size) if isinstance(size, int) else size)


R = Buffer("r", DataType.Float, MemoryType.local, const(1))


def write(b: Buffer) -> Stmt:
    return Store(b, const(0), Literal(0.0, DataType.Float))


def read(b: Buffer) -> Stmt:
    return Store(R, const(0), Load(b, const(0)))


def test_offsets_are_multiples_of_16_and_distinct_while_both_live() -> None:
    a, b = shared("a", 3), shared("b", 5)
    layout = allocate_shared((Allocate(a), Allocate(b), write(a), write(b), read(a), read(b)))
    assert [layout.offsets[n].value for n in "ab"] == [0, 16]
    assert layout.size.value == 48


def test_disjoint_lives_share_a_place() -> None:
    a, b = shared("a", 400), shared("b", 400)
    layout = allocate_shared((Allocate(a), write(a), read(a), Allocate(b), write(b), read(b)))
    assert layout.offsets["a"] is layout.offsets["b"]
    assert layout.size.value == 1600


def test_what_is_small_is_not_shared() -> None:
    """A barrier between the two would cost more than the bytes."""
    a, b = shared("a", 8), shared("b", 8)
    layout = allocate_shared((Allocate(a), write(a), read(a), Allocate(b), write(b), read(b)))
    assert layout.offsets["a"] is not layout.offsets["b"]
    assert layout.size.value == 64


def test_larger_successor_gets_a_place_of_its_own() -> None:
    a, b = shared("a", 4), shared("b", 8)
    layout = allocate_shared((Allocate(a), write(a), read(a), Allocate(b), write(b), read(b)))
    assert layout.size.value == 48


def test_buffer_made_outside_a_loop_lives_through_it() -> None:
    a, b, i = shared("a", 4), shared("b", 4), symbol("i", 0)
    loop = For(i, const(0), N, const(1), (read(a), Allocate(b), write(b), read(b)))
    layout = allocate_shared((Allocate(a), write(a), loop))
    assert layout.offsets["a"] is not layout.offsets["b"]


def test_symbolic_sizes() -> None:
    a, b = shared("a", N), shared("b", N)
    layout = allocate_shared((Allocate(a), Allocate(b), write(a), write(b), read(a), read(b)))
    assert layout.offsets["b"].evaluate({N: 5}) == 32
    assert layout.size.evaluate({N: 5}) == 64
