"""Blocks of the grid: the last one finishes, or all wait; partials are joined in block order."""

from __future__ import annotations

import numpy as np

from fuser.ir.dtypes import DataType
from fuser.ir.fusion_builder import FusionBuilder
from fuser.ir.kernel import AtomicAdd, Fence, For, Role, SpinWait, Stmt, Store, walk
from fuser.ir.schedule import ScheduleBuilder
from tests.harness import Lowered, check, run
from tests.kernel_corpus import BX, CORPUS, GX, GY, schedule_axes
from tests.lowering.row_sums import count, row_sum

Float = DataType.Float


def test_last_block_protocol() -> None:
    kernel = row_sum(16, (GX, GY, BX))
    assert not kernel.plan.cooperative
    assert count(kernel, SpinWait) == 0
    (add,) = [s for s in walk(kernel.body) if isinstance(s, AtomicAdd)]
    assert add.acquire
    assert count(kernel, Fence) == 1  # before the semaphore; what comes behind it is acquired
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
