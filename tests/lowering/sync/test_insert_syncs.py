"""Barriers: where they stand, and that there is none too many."""

from __future__ import annotations

import pytest

from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.integers.integers import ONE, ZERO, const, less, symbol
from fuser.ir.kernel.kernel import (
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    BlockBarrier,
    Buffer,
    For,
    If,
    Kernel,
    Literal,
    Load,
    Role,
    Stmt,
    Store,
    walk,
)
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import MemoryType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.lowering.sync.insert_syncs import insert_syncs
from tests.fusions.kernel_corpus import BX, BY, CORPUS, GX, SERIAL, SHARED, spread
from tests.judging.harness import check, integers

Float = DataType.Float


def barriers(kernel: Kernel) -> list[str]:
    return [s.reason for s in walk(kernel.body) if isinstance(s, BlockBarrier)]


def corpus_kernel(name: str) -> Kernel:
    case = next(c for c in CORPUS if c.name == name)
    s = case.make()
    return check(s, case.inputs(s.fusion, case.shapes[0], 0))


def test_exchange_in_a_loop_has_a_barrier_on_each_side() -> None:
    kernel = corpus_kernel("transpose_rows")
    assert barriers(kernel) == [
        "t0_cache_after_0 written before t0_cache_after_0 is read",
        "t0_cache_after_0 read before t0_cache_after_0 is written",
    ]
    (loop,) = (s for s in kernel.body if isinstance(s, For))
    assert isinstance(loop.body[-1], BlockBarrier)


def test_private_shared_buffer_needs_none() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1])
    out = b.pointwise("neg", [x], Float)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    cached = s.cache_after(x.name)
    s.set_memory_type(cached, SHARED)
    s.split(out.name, 0, 8)
    spread(s, out.name, (GX, BX))
    assert barriers(check(s, [integers((20,))])) == []


def test_reused_scratch_is_parted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuser.lowering.memory.allocate_shared.NO_REUSE_BYTES", 0)
    kernel = corpus_kernel("max_then_sum")
    assert any("read before" in reason and "is written" in reason for reason in barriers(kernel))
    offsets = [str(o) for o in kernel.shared_offsets.values()]
    assert len(offsets) == 2  # the largest and the sum, with what it lost in a Double
    assert len(set(offsets)) == 1


def test_warp_reduction_needs_none() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    r = b.reduction("sum", x, [1], Float)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    s.split(r.name, 1, 32)
    spread(s, r.name, (GX, SERIAL, BX))
    kernel = check(s, [integers((3, 50))])
    assert barriers(kernel) == []
    assert not kernel.shared_offsets


@pytest.mark.parametrize(("threads", "expected"), [(4, 1), (12, 3)])
def test_several_partials_are_exchanged_behind_one_barrier(threads: int, expected: int) -> None:
    """The elements of a scratch that one loop writes do not need barriers among themselves. Where threads share the work of
    joining them, first in groups and then one group what those have, two more stand before what each of these steps reads."""
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, 4])
    r = b.reduction("sum", x, [0], Float)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    s.split(r.name, 0, threads)
    s.reorder(r.name, {0: 0, 1: 1})
    s.parallelize(r.name, 1, BY)
    kernel = check(s, [integers((40, 4))])
    assert len(barriers(kernel)) == expected


def test_block_of_one_thread_needs_none() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    out = b.permute(x, [1, 0])
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    cached = s.cache_after(x.name)
    s.set_memory_type(cached, SHARED)
    assert barriers(check(s, [integers((5, 7))])) == []


def test_each_wait_for_copies_has_a_barrier_behind_it() -> None:
    """The barrier behind the first wait says nothing of copies that are still on their way."""
    source = Buffer("source", Float, MemoryType["global"], const(64))
    first, second = (Buffer(name, Float, MemoryType.shared, const(32)) for name in ("first", "second"))
    value = Buffer("value", Float, MemoryType.local, ONE)
    lane = symbol("lane", 0, 31)

    def read(b: Buffer) -> Stmt:
        return Store(value, ZERO, Load(b, const(31) - lane))

    body = (
        AsyncCopy(first, lane, source, lane, 1),
        AsyncCommit(),
        AsyncCopy(second, lane, source, lane + 32, 1),
        AsyncCommit(),
        AsyncWait(1),
        read(first),
        AsyncWait(0),
        read(second),
        read(first),
    )
    made = insert_syncs(body, {"first": ZERO, "second": const(128)}, frozenset(), frozenset())
    at = [k for k, s in enumerate(made) if isinstance(s, BlockBarrier)]
    assert [made[k - 1] for k in at] == [body[4], body[6]]


@pytest.mark.parametrize("role", [Role.plain, Role.predicate])
def test_a_wait_on_one_side_of_a_test_is_none_on_the_other(role: Role) -> None:
    """Whether all threads of a block go one way or not."""
    source = Buffer("source", Float, MemoryType["global"], const(32))
    row, value = Buffer("row", Float, MemoryType.shared, const(32)), Buffer("value", Float, MemoryType.local, ONE)
    lane, block = symbol("lane", 0, 31), symbol("block", 0, 7)
    body = (
        AsyncCopy(row, lane, source, lane, 1),
        AsyncCommit(),
        If(less(block, 4), (AsyncWait(0),), role=role),
        BlockBarrier("something else"),
        AsyncWait(0),
        Store(value, ZERO, Load(row, const(31) - lane)),
    )
    made = insert_syncs(body, {"row": ZERO}, frozenset(), frozenset())
    assert [type(s) for s in made[-3:]] == [AsyncWait, BlockBarrier, Store]


@pytest.mark.parametrize("sides", ["then", "else", "both"])
def test_a_barrier_on_one_side_of_a_test_is_none_on_the_other(sides: str) -> None:
    row, value = Buffer("row", Float, MemoryType.shared, const(32)), Buffer("value", Float, MemoryType.local, ONE)
    lane, block = symbol("lane", 0, 31), symbol("block", 0, 7)
    then, orelse = ((BlockBarrier("something else"),) if sides in (side, "both") else () for side in ("then", "else"))
    body = (
        Store(row, lane, Literal(0.0, Float)),
        If(less(block, 4), then, orelse, Role.plain),
        Store(value, ZERO, Load(row, const(31) - lane)),
    )
    made = insert_syncs(body, {"row": ZERO}, frozenset(), frozenset())
    assert [isinstance(s, BlockBarrier) for s in made[2:-1]] == ([] if sides == "both" else [True])


@pytest.mark.parametrize("least", [0, 1])
def test_a_barrier_in_a_loop_that_may_not_run_is_none(least: int) -> None:
    row, value = Buffer("row", Float, MemoryType.shared, const(32)), Buffer("value", Float, MemoryType.local, ONE)
    lane, n, i = symbol("lane", 0, 31), symbol("n", least, 9), symbol("i", 0, 8)
    body = (
        Store(row, lane, Literal(0.0, Float)),
        For(i, ZERO, n, ONE, (BlockBarrier("something else"),)),
        Store(value, ZERO, Load(row, const(31) - lane)),
    )
    made = insert_syncs(body, {"row": ZERO}, frozenset(), frozenset())
    assert [isinstance(s, BlockBarrier) for s in made[2:-1]] == [True] * (least == 0)
