"""Numbers of names that passes make: no two temporaries of a kernel get one name."""

from __future__ import annotations

from fuser.ir.integers.integers import ONE, ZERO, const, symbol
from fuser.ir.kernel.kernel import THREAD_SYMBOLS, Allocate, Buffer, For, Let, Literal, Reduce, Stmt, Store, walk
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import MemoryType, ParallelType
from fuser.lowering.collectives.expand_collectives import expand_collectives
from fuser.lowering.name_counter import NameCounter


def _register(name: str) -> Buffer:
    return Buffer(name, DataType.Float, MemoryType.local, ONE)


def test_numbers_count_up() -> None:
    number = NameCounter()
    assert [number() for _ in range(4)] == [0, 1, 2, 3]


def test_numbers_of_the_body_are_left_out() -> None:
    i, left = symbol("i0", 0, 7), symbol("t7_left1", 0, 7)
    inner = (Allocate(_register("t5_c0")), Allocate(_register("t5_own3_mean")), Let(left, ZERO))
    body: tuple[Stmt, ...] = (Allocate(_register("t2")), For(i, ZERO, const(8), ONE, inner))
    number = NameCounter(body)
    # Neither the number of a tensor nor that of a loop is one of a temporary.
    assert [number() for _ in range(4)] == [2, 4, 5, 6]


def test_what_collectives_make_has_other_names_than_what_is_there() -> None:
    partials = tuple(_register(name) for name in ("t1", "t2", "t3"))
    # Some of the names that expanding would take if it began to count anew.
    there = [_register(name) for name in ("t1_l0_away", "t1_x1", "t3_x5", "t1_c7_delta")]
    body: list[Stmt] = [s for b in (*partials, *there) for s in (Allocate(b), Store(b, ZERO, Literal(0.0, b.dtype)))]
    zeros = tuple(Literal(0.0, b.dtype) for b in partials)
    body.append(Reduce(partials, "welford", zeros, (ParallelType.block_x,), (), False, ZERO, ONE, "t1"))
    sizes = {ParallelType.block_x: const(128)}
    made = expand_collectives(tuple(body), THREAD_SYMBOLS, sizes).body
    names = [s.buffer.name for s in walk(made) if isinstance(s, Allocate)]
    assert len(set(names)) == len(names)
    assert len(names) > len(partials) + len(there)
