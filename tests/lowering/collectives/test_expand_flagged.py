"""Single results of blocks, posted to the last one by number."""

from __future__ import annotations

import numpy as np
import pytest

from fuser.codegen.generate import generate_cuda
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.kernel.kernel import AtomicAdd, Fence, Post, Receive, SpinWait
from fuser.ir.kernel.launch_plan import BlockExchange
from fuser.ir.ops.dtypes import DataType
from fuser.ir.schedule.schedule import ScheduleBuilder
from tests.fusions.kernel_corpus import BX, GX, GY, schedule_axes
from tests.judging.harness import Lowered, integers, run
from tests.lowering.collectives.row_sums import count

Float = DataType.Float


def total(blocks: int, threads: int, dtype: DataType = DataType.Int32, op: str = "sum") -> Lowered:
    """All elements of a vector, a part of it for each of `blocks`."""
    b = FusionBuilder()
    x = b.input_tensor(dtype, [-1])
    r = b.reduction(op, x, [0], dtype)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    s.split(r.name, 0, blocks, False)
    s.split(r.name, 1, threads)
    s.reorder(r.name, {1: 2})
    schedule_axes(s, r.name, (GX, BX))
    return Lowered.of(s)


@pytest.mark.parametrize(("blocks", "threads"), [(2, 32), (7, 64), (40, 32), (128, 64), (129, 64), (300, 96)])
def test_totals(blocks: int, threads: int) -> None:
    """One post a lane; several; more than the first warp takes by itself."""
    lowered = total(blocks, threads)
    kernel = lowered.kernel
    assert (count(kernel, Post), count(kernel, Receive)) == (1, 1)
    assert not any(count(kernel, kind) for kind in (Fence, AtomicAdd, SpinWait))
    assert not kernel.plan.cooperative
    assert not kernel.plan.workspaces
    assert kernel.plan.exchanges == (BlockExchange.flagged_stores,)
    assert kernel.plan.waiting_blocks == 1
    # A wait in vain ends.
    assert "if (++asked == 1 << 28) __trap();" in generate_cuda(kernel).text
    values = integers((9000,), DataType.Int32)
    for seed, interleave in ((0, False), (1, blocks < 50)):
        found = run(lowered, [values], seed=seed, interleave=interleave).check()
        assert next(iter(found.values())) == values.sum()


@pytest.mark.parametrize("dtype", [Float, DataType.Double])
def test_both_partials_of_a_sum_are_posted(dtype: DataType) -> None:
    """Added up in the order of the blocks of each lane, whichever came first, so that results repeat bit for bit."""
    lowered = total(40, 32, dtype)
    values = (np.random.default_rng(0).standard_normal(3000) * 10.0 ** np.arange(3000).clip(0, 12)).astype(dtype.numpy)
    found = {
        float(next(iter(run(lowered, [values], seed=seed, interleave=seed > 1).check().values()))) for seed in range(4)
    }
    assert len(found) == 1
    exact = float(np.sum(values.astype(np.longdouble)))
    assert abs(found.pop() - exact) <= 2 * np.finfo(dtype.numpy).eps * float(np.abs(values.astype(np.longdouble)).sum())


def test_other_operations() -> None:
    values = integers((2000,), DataType.Int32)
    for op, expected in (("max", values.max()), ("min", values.min())):
        found = run(total(20, 32, op=op), [values]).check()
        assert next(iter(found.values())) == expected


@pytest.mark.parametrize("rows", [1, 5])
def test_blocks_of_several_groups_do_not_wait(rows: int) -> None:
    """As many might wait as there is room for."""
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    r = b.reduction("sum", x, [1], Float)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    s.split(r.name, 1, 4, False)
    s.split(r.name, 2, 32)
    s.reorder(r.name, {2: 3})
    schedule_axes(s, r.name, (GX, GY, BX))
    lowered = Lowered.of(s)
    assert count(lowered.kernel, Post) == 0
    assert count(lowered.kernel, AtomicAdd) == 1
    values = np.random.default_rng(0).standard_normal((rows, 700)).astype("f4")
    np.testing.assert_allclose(run(lowered, [values]).check()[r.name], values.sum(1), rtol=1e-5, atol=1e-4)


def test_too_many_blocks_do_not_wait() -> None:
    """Their places would be too many of the counters that a captured stream has."""
    assert count(total(1024, 64).kernel, Post) == 1
    assert count(total(1025, 128).kernel, Post) == 0
