"""Threads of a block: which protocol is taken for which threads."""

from __future__ import annotations

import pytest

from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.integers.integers import ONE, ZERO, const
from fuser.ir.kernel.kernel import Buffer, Call, Literal, Reduce, Shuffle, Store, Value, walk
from fuser.ir.kernel.kernel_accesses import value_loads
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import MemoryType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.lowering.collectives.block_reduce_scatter import scatter_groups
from tests.fusions.kernel_corpus import BX, BY, BZ, GX, SERIAL, schedule_axes
from tests.judging.harness import check, integers
from tests.lowering.collectives.row_sums import count, row_sum

Float, Int32 = DataType.Float, DataType.Int32


@pytest.mark.parametrize("block", [96, 256, 1024])
def test_sums_of_warps_are_added_in_pairs(block: int) -> None:
    """A chain of them rounds as often as there are warps: a row that adds up to 1000 was off by two and a half units."""
    kernel = row_sum(block, (GX, SERIAL, BX))

    def depth(value: Value) -> int:
        return 1 + max(map(depth, value.args)) if isinstance(value, Call) else 0

    sums = [s.value for s in walk(kernel.body) if isinstance(s, Store)]
    of_warps = [v for v in sums if len([load for load in value_loads(v) if load.buffer.is_shared]) == block // 32]
    assert [depth(v) for v in of_warps] == [(block // 32 - 1).bit_length()]


@pytest.mark.parametrize("block", [64, 128])
def test_several_warps_meet_in_one_slot_each(block: int) -> None:
    kernel = row_sum(block, (GX, SERIAL, BX))
    assert count(kernel, Shuffle) == 5
    (size,) = (kernel.plan.shared_bytes,)
    assert size.value == 16  # up to four numbers


@pytest.mark.parametrize(
    ("dtype", "block", "shuffles"),
    [(DataType.Double, 640, 10), (DataType.Double, 224, 5), (DataType.Float, 640, 5)],
)
def test_doubles_of_many_warps_are_joined_by_lanes(dtype: DataType, block: int, shuffles: int) -> None:
    """Of more than eight; lanes without a slot have zeros."""
    b = FusionBuilder()
    x = b.input_tensor(dtype, [-1, -1])
    r = b.reduction("sum", x, [1], dtype)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    s.split(r.name, 1, block)
    schedule_axes(s, r.name, (GX, SERIAL, BX))
    kernel = check(s, [integers((3, 1500), dtype)], seeds=(0, 1))
    assert count(kernel, Shuffle) == shuffles


@pytest.mark.parametrize("block", [3, 20, 33, 48])
def test_other_blocks_exchange_every_partial(block: int) -> None:
    kernel = row_sum(block, (GX, SERIAL, BX))
    assert count(kernel, Shuffle) == 0
    assert kernel.plan.shared_bytes.value >= 4 * block


def test_rows_across_y() -> None:
    kernel = row_sum(32, (GX, BX, SERIAL, BY), rows=8)
    assert count(kernel, Shuffle) == 2  # the reduced axis is not the fastest one: four threads of a row are in a warp


def test_two_reduced_axes_of_a_block() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Int32, [-1, 4, 16])
    r = b.reduction("sum", x, [1, 2], Int32)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    schedule_axes(s, r.name, (GX, BY, BX))
    assert count(check(s, [integers((3, 4, 16), Int32)]), Shuffle) == 5
    s = ScheduleBuilder(b.freeze())
    schedule_axes(s, r.name, (BX, BY, BZ))
    check(s, [integers((3, 4, 16), Int32)])


@pytest.mark.parametrize(("threads", "elements"), [(8, 4), (16, 4), (4, 8), (2, 16), (32, 1)])
def test_threads_of_a_group_share_its_elements(threads: int, elements: int) -> None:
    """Each element is joined once in a block, not once by every thread; by many threads in two steps."""
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    r = b.reduction("sum", x, [0], Float)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    s.split(r.name, 1, elements)
    s.split(r.name, 1, 32)
    s.split(r.name, 0, threads)
    schedule_axes(s, r.name, (SERIAL, BY, GX, BX, SERIAL))
    s.reorder(r.name, {2: 0, 3: 1})
    kernel = check(s, [integers((37, 150))], seeds=(0, 1))
    joins = [
        s for s in walk(kernel.body) if isinstance(s, Store) and "_own" in s.buffer.name and isinstance(s.value, Call)
    ]
    partial = Buffer("t1_partial", Float, MemoryType.local, const(elements))
    joined = Reduce((partial,), "add", (Literal(0.0, Float),), (BY,), (), False, ZERO, ONE, "t1")
    groups = scatter_groups(joined, const(threads), const(8))
    assert len(joins) == (2 if groups else max(1, elements // threads))
