"""Collectives as primitives: which protocol is taken for which threads, and what the launch must supply."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fuser.ir.dtypes import DataType
from fuser.ir.enums import ParallelType
from fuser.ir.fusion_builder import FusionBuilder
from fuser.ir.integers import const
from fuser.ir.kernel import AtomicAdd, Fence, For, Kernel, Role, Shuffle, SpinWait, Stmt, Store, walk
from fuser.ir.schedule import ScheduleBuilder
from fuser.lowering.spread_joins import spread_groups
from tests.harness import Lowered, check, integers, run
from tests.kernel_corpus import BX, BY, BZ, CORPUS, GX, GY, SERIAL, schedule_axes

Float, Int32 = DataType.Float, DataType.Int32


def count(kernel: Kernel, kind: type[Stmt]) -> int:
    return sum(isinstance(s, kind) for s in walk(kernel.body))


def row_sum(block: int, types: Sequence[ParallelType], rows: int = 0) -> Kernel:
    """Of integers: a sum of Float has two partials."""
    b = FusionBuilder()
    x = b.input_tensor(Int32, [-1, -1])
    r = b.reduction("sum", x, [1], Int32)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    s.split(r.name, 1, block)
    if rows:
        s.split(r.name, 0, rows)
    schedule_axes(s, r.name, types)
    return check(s, [integers((7, 150), Int32)], seeds=(0, 1))


@pytest.mark.parametrize(("block", "shuffles"), [(2, 1), (8, 3), (32, 5)])
def test_group_inside_a_warp_is_a_butterfly(block: int, shuffles: int) -> None:
    kernel = row_sum(block, (GX, BY, SERIAL, BX), rows=32)
    assert count(kernel, Shuffle) == shuffles
    assert not kernel.shared_offsets


@pytest.mark.parametrize("block", [64, 128])
def test_several_warps_meet_in_one_slot_each(block: int) -> None:
    kernel = row_sum(block, (GX, SERIAL, BX))
    assert count(kernel, Shuffle) == 5
    (size,) = (kernel.plan.shared_bytes,)
    assert size.value == 16  # up to four numbers


@pytest.mark.parametrize("block", [3, 20, 33, 48])
def test_other_blocks_exchange_every_partial(block: int) -> None:
    kernel = row_sum(block, (GX, SERIAL, BX))
    assert count(kernel, Shuffle) == 0
    assert kernel.plan.shared_bytes.value >= 4 * block


def test_rows_across_y() -> None:
    kernel = row_sum(32, (GX, BX, SERIAL, BY), rows=8)
    assert count(kernel, Shuffle) == 0  # the reduced axis is not the fastest one


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


def test_last_block_protocol() -> None:
    kernel = row_sum(16, (GX, GY, BX))
    assert not kernel.plan.cooperative
    assert count(kernel, SpinWait) == 0
    assert count(kernel, AtomicAdd) == 1
    assert count(kernel, Fence) == 2  # each side of the semaphore
    resets = [s for s in walk(kernel.body) if isinstance(s, Store) and s.role is Role.semaphore_reset]
    assert len(resets) == 1
    assert str(kernel.plan.semaphores) == "t0_size0"
    assert len(kernel.plan.workspaces) == 1


def test_broadcast_back_waits() -> None:
    case = next(c for c in CORPUS if c.name == "broadcast_back_rows")
    s = case.make()
    kernel = check(s, case.inputs(s.fusion, case.shapes[0], 0), seeds=(0, 1))
    assert kernel.plan.cooperative
    assert count(kernel, SpinWait) == 1


def test_loop_around_a_grid_reduction_has_its_own_semaphores() -> None:
    kernel = row_sum(16, (SERIAL, GY, BX))
    assert str(kernel.plan.semaphores) == "t0_size0"


def two_sum(a: np.float32, b: np.float32) -> tuple[np.float32, np.float32]:
    s = a + b
    z = s - a
    return s, (a - (s - z)) + (b - z)


def test_partials_of_blocks_are_summed_in_block_order() -> None:
    """Several are asked for at a time; they are added one after another all the same, so that results repeat bit for bit."""
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    r = b.reduction("sum", x, [1], Float)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    s.split(r.name, 1, 16)
    schedule_axes(s, r.name, (GX, GY))
    values = (np.random.default_rng(0).standard_normal((3, 400)) * 10.0 ** np.arange(400)[::-1].clip(0, 12)).astype(
        "f4"
    )
    found = run(Lowered.of(s), [values]).check()[r.name]
    for row, result in zip(values, found, strict=True):
        total = rest = np.float32(0)
        for part in row.reshape(-1, 16):
            own = lost = np.float32(0)
            for term in part:
                after = own + term
                own, lost = after, lost + (term - (after - own))
            total, error = two_sum(total, own)
            rest = (rest + lost) + error
        assert total + rest == result


def test_partials_of_blocks_are_asked_for_together() -> None:
    kernel = row_sum(16, (GX, GY))
    (turn,) = [f for f in walk(kernel.body) if isinstance(f, For) and not f.unroll and "got" in str(stored(f))]
    assert str(turn.step) == "16"
    load, add = [f for f in turn.body if isinstance(f, For)]
    assert "got" in str(stored(load)), "first all loads"
    assert "partial" in str(stored(add)), "then all additions"


def stored(stmt: Stmt) -> list[str]:
    """Names of the buffers written in a statement."""
    return [s.buffer.name for s in walk((stmt,)) if isinstance(s, Store)]


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
    loops = [f for f in walk(kernel.body) if isinstance(f, For) and f.stop.is_const and str(f.start) == "1"]
    assert len(loops) == (2 if spread_groups(const(threads), const(elements)) else max(1, elements // threads))


def test_grid_of_one_block_needs_no_semaphore() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, 8])
    r = b.reduction("sum", x, [1], Float)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    s.split(r.name, 1, 8)
    schedule_axes(s, r.name, (GX, GY, BX))
    kernel = check(s, [integers((3, 8))])
    assert kernel.plan.semaphores is None
