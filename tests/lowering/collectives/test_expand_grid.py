"""Blocks of the grid: the last one finishes, or all wait; partials are joined in block order."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DeviceInfo, FusionDefinition, KernelCompiler
from fuser.compiler.bind_inputs import bind_inputs
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.kernel.kernel import Allocate, AtomicAdd, Fence, For, Role, SpinWait, Stmt, Store, walk
from fuser.ir.kernel.launch_plan import BlockExchange
from fuser.ir.ops.dtypes import DataType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.runtime.kernels.nvrtc import is_available
from tests.fusions.kernel_corpus import BX, CORPUS, GX, GY, schedule_axes
from tests.judging.harness import Lowered, check, run
from tests.lowering.collectives.row_sums import count, row_sum

Float = DataType.Float


def test_last_block_protocol() -> None:
    kernel = row_sum(16, (GX, GY, BX))
    assert not kernel.plan.cooperative
    assert count(kernel, SpinWait) == 0
    assert kernel.plan.exchanges == (BlockExchange.last_block,)
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
    assert kernel.plan.exchanges == (BlockExchange.all_blocks,)


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
        total = np.float32(0)
        for part in row.reshape(-1, 16):
            own = np.float32(0)
            for term in part:
                own += term
            total += own
        assert total == result


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


@pytest.mark.parametrize(
    ("dtype", "ops", "each"),
    [
        (Float, ["max"], 16),
        (Float, ["max", "min"], 16),
        (Float, ["max", "min", "prod", "sum"], 8),
        (DataType.Double, ["max", "min", "prod", "sum"], 4),
    ],
)
def test_partials_of_several_reductions_share_the_registers(dtype: DataType, ops: list[str], each: int) -> None:
    """The compiler may ask for all of them before it joins any."""
    b = FusionBuilder()
    x = b.input_tensor(dtype, [-1, -1])
    made = [b.reduction(op, x, [1], dtype) for op in ops]
    for r in made:
        b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    for r in made:
        s.split(r.name, 1, 16)
        schedule_axes(s, r.name, (GX, GY))
    kernel = check(s, [np.random.default_rng(0).uniform(0.5, 1.5, (3, 700)).astype(dtype.numpy)], tolerance=1e-6)
    got = [s.buffer for s in walk(kernel.body) if isinstance(s, Allocate) and "got" in s.buffer.name]
    assert {b.size.value for b in got} == {each}


@pytest.mark.skipif(not is_available(), reason="no NVRTC")
@pytest.mark.parametrize("ops", [["max", "min"], ["max", "min", "prod", "sum"]], ids=len)
def test_joins_of_several_reductions_take_few_registers(ops: list[str]) -> None:
    """With room for each by itself they have 84 and 86."""
    b = FusionBuilder()
    x = b.input_tensor(DataType.Double, [-1, -1])
    made = [b.reduction(op, x, [1], DataType.Double) for op in ops]
    for r in made:
        b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    for r in made:
        s.split(r.name, 1, 512)
        schedule_axes(s, r.name, (GX, GY, BX))
    described = TensorDescriptor(DataType.Double, (8, 1 << 20), (1 << 20, 1), address=256)
    kernel = KernelCompiler(DeviceInfo.preset("H200")).compile_scheduled(s, bind_inputs(s.fusion, [described]))
    assert kernel.resources is not None
    assert kernel.resources.registers <= 64
    assert kernel.spilled_with == ()


@pytest.mark.skipif(not is_available(), reason="no NVRTC")
def test_joins_of_several_reductions_do_not_spill() -> None:
    """Of known blocks, two partials of each result for a thread. The loop before them has more registers than those."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Double)
        for k in range(4):
            fd.add_output(fd.ops.max(fd.ops.mul(x, float(k + 1)), [0, 1]))
    described = TensorDescriptor(DataType.Double, (8000, 7168), (7168, 1), address=256)
    kernel = KernelCompiler(DeviceInfo.preset("H200")).compile(fd.fusion, [described])
    assert kernel.resources is not None
    assert kernel.resources.registers < 128
    assert kernel.spilled_with == ()


@pytest.mark.parametrize("dtype", [Float, DataType.Bool])
def test_no_results_of_blocks_that_would_meet(dtype: DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counters that no result needs are a parameter of the kernel all the same: it is not launched."""
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 0, -1], True, dtype)
        fd.add_output(fd.ops.max(x, [0, 2]))
    (found,) = fd.execute([np.zeros((64, 0, 31), dtype.numpy)])
    assert found.shape == (0,)
