"""Waits of the whole grid: where they stand, how many there are, and where they cannot stand."""

from __future__ import annotations

import re

import pytest

from fuser.codegen.generate import generate_cuda
from fuser.errors import SchedulingError
from fuser.ir.integers.integers import ONE, ZERO, equal, symbol
from fuser.ir.kernel.kernel import (
    AtomicAdd,
    Buffer,
    Fence,
    For,
    GridBarrier,
    If,
    Kernel,
    Literal,
    Load,
    Role,
    SpinWait,
    Stmt,
    Store,
    walk,
)
from fuser.ir.kernel.kernel_accesses import value_loads
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import GLOBAL_MEMORY, CacheOp, MemoryType
from fuser.lowering.sync.insert_grid_barriers import insert_grid_barriers
from fuser.simulator.errors import Kind, SimulatorError
from tests.fusions.kernel_corpus import CORPUS, GX, SERIAL, sum_through_workspace
from tests.judging.harness import check, integers

Float = DataType.Float
W = Buffer("w", Float, GLOBAL_MEMORY, ONE)
R = Buffer("r", Float, MemoryType.local, ONE)
WRITE = Store(W, ZERO, Literal(1.0, Float))
READ = Store(R, ZERO, Load(W, ZERO))
N = symbol("n", 0, 100)
I = symbol("i", 0, 100, below=N)  # noqa: E741
BLOCK = symbol("blockIdx.x", 0, 100)


def corpus_kernel(name: str) -> Kernel:
    case = next(c for c in CORPUS if c.name == name)
    s = case.make()
    return check(s, case.inputs(s.fusion, case.shapes[0], 0))


def shape(body: tuple[Stmt, ...]) -> list[object]:
    """Kinds of the statements, loops as nested lists."""
    return [shape(s.body) if isinstance(s, For) else type(s).__name__ for s in body]


def test_nothing_that_crosses_needs_nothing() -> None:
    body = (WRITE, READ)
    assert insert_grid_barriers(body, frozenset()) is body
    assert shape(insert_grid_barriers((WRITE, WRITE), frozenset(["w"]))) == ["Store", "Store"]


def test_read_waits_for_the_write() -> None:
    made = insert_grid_barriers((WRITE, READ, READ), frozenset(["w"]))
    assert shape(made) == ["Store", "GridBarrier", "Store", "Store"]
    barrier = made[1]
    assert isinstance(barrier, GridBarrier)
    assert (barrier.slot, barrier.slots) == (ZERO, ONE)
    assert barrier.reason == "w written before w is read"


def test_loop_waits_on_both_sides_and_counts_on() -> None:
    made = insert_grid_barriers((For(I, ZERO, N, ONE, (WRITE, READ)), WRITE), frozenset(["w"]))
    assert shape(made) == [["Store", "GridBarrier", "Store", "GridBarrier"], "Store"]
    slots = [(s.slot, s.slots) for s in walk(made) if isinstance(s, GridBarrier)]
    assert slots == [(2 * I, 2 * N), (2 * I + 1, 2 * N)]


def test_write_in_a_loop_is_waited_for_behind_it() -> None:
    made = insert_grid_barriers((For(I, ZERO, N, ONE, (WRITE,)), READ), frozenset(["w"]))
    assert shape(made) == [["Store"], "GridBarrier", "Store"]


@pytest.mark.parametrize(
    "apart",
    [
        If(equal(BLOCK, 0), (WRITE, READ), role=Role.owner),
        If(equal(BLOCK, 0), (WRITE, READ), role=Role.last_block),
        For(I, ZERO, BLOCK, ONE, (WRITE, READ)),
    ],
    ids=["owner", "last block", "uneven loop"],
)
def test_blocks_that_do_not_all_pass_cannot_wait(apart: Stmt) -> None:
    with pytest.raises(SchedulingError, match="w is written by some blocks and read by others under a test"):
        insert_grid_barriers((apart,), frozenset(["w"]))


def test_one_wait_serves_all_that_was_written() -> None:
    kernel = corpus_kernel("wait_once_for_two")
    assert sum(isinstance(s, SpinWait) for s in walk(kernel.body)) == 1
    # The addition before the wait publishes what the whole block wrote; the other one sets the counter back.
    assert not any(isinstance(s, Fence) for s in walk(kernel.body))
    assert [s.release for s in walk(kernel.body) if isinstance(s, AtomicAdd)] == [True, False]
    assert kernel.plan.cooperative
    assert kernel.plan.semaphores is ONE


def test_values_of_other_blocks_come_from_the_second_level() -> None:
    kernel = corpus_kernel("wait_once_for_two")
    text = generate_cuda(kernel).text
    assert text.count("__ldcg(&") == 2
    assert "const float* t0," in text
    assert not re.search(r"const float\* t\d+_rfactor", text)
    caches = {
        load.cache
        for s in walk(kernel.body)
        if isinstance(s, Store)
        for load in value_loads(s.value)
        if load.buffer.name.endswith("rfactor_0") and load.buffer.is_global
    }
    assert caches == {CacheOp["global"]}


def test_more_blocks_than_the_device_holds_are_refused() -> None:
    s = sum_through_workspace(("sum",), GX, SERIAL)
    with pytest.raises(SimulatorError) as caught:
        check(s, [integers((2, 40000))])
    assert caught.value.kind is Kind.over_resident
