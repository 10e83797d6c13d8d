"""Reductions over a group of blocks that all go on with the result: values, and what is there to wait and to reset."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fuser.ir.device_info import DeviceInfo
from fuser.ir.fusion.fusion import Tensor
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.kernel.kernel import BlockBarrier, Shuffle, SpinWait, walk
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import ParallelType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.runtime.launch import Launch
from fuser.simulator.errors import SimulatorError
from fuser.simulator.memory import DeviceMemory
from fuser.simulator.run_kernel import run_kernel
from tests.end_to_end.mutation import Judge, Verdict, What, describe, mutants
from tests.fusions.kernel_corpus import Case
from tests.judging.harness import NARROW, Lowered, check, integers

GX, GY, BX = ParallelType.grid_x, ParallelType.grid_y, ParallelType.block_x


def sum_and_max(
    blocks: int, threads: int = 32, batch: int = 2, dtype: DataType = DataType.Float, groups: int = 0, together: int = 1
) -> ScheduleBuilder:
    """x - max(row) + sum(row), rows over groups of `blocks` that leave a few threads idle; `groups` go over the rows, or one
    goes over all of them, `together` at once."""
    length = blocks * threads * batch - 7
    b = FusionBuilder()
    x = b.input_tensor(dtype, [-1, length])

    def wide(t: Tensor) -> Tensor:
        return b.broadcast(t, [False, True])

    top = b.reduction("max", x, [1], dtype)
    total = b.reduction("sum", x, [1], dtype)
    out = b.pointwise("add", [b.pointwise("sub", [x, wide(top)], dtype), wide(total)], dtype)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    s.cache_after(x.name)
    name = top.name
    first = 0
    if groups:
        s.split(name, 0, groups)
        s.reorder(name, {0: 1})
        first = 1
    s.split(name, first + 1, threads)
    s.split(name, first + 1, batch)
    s.split(name, first + 1, blocks)
    if together > 1:
        s.split(name, 0, together)
        s.reorder(name, {1: 4})
        first = 0
    s.transform_like(name)
    places = ((2, GY), (5, BX)) if together > 1 else ((first, GX), (first + 2, GY), (first + 4, BX))
    for position, kind in places:
        s.parallelize(name, position, kind)
    s.parallelize_like(name)
    s.inline_most()
    return s


@pytest.mark.in_turns
@pytest.mark.parametrize("blocks", [2, 3, 11, 33])
@pytest.mark.parametrize("threads", [32, 64, 96])
def test_values(blocks: int, threads: int) -> None:
    kernel = check(sum_and_max(blocks, threads), [integers((3, blocks * threads * 2 - 7))], seeds=(0, 1))
    assert kernel.plan.cooperative
    assert kernel.plan.cluster is None
    assert sum(isinstance(s, SpinWait) for s in walk(kernel.body)) == 1, "the maximum and the sum meet at once"
    assert sum(isinstance(s, BlockBarrier) for s in walk(kernel.body)) == (0 if threads == 32 else 2)


@pytest.mark.parametrize("dtype", [DataType.Double, DataType.Int, DataType.Int32, DataType.BFloat16])
def test_other_types(dtype: DataType) -> None:
    x = np.random.default_rng(0).integers(-2, 3, size=(3, 249)).astype(dtype.numpy)
    check(sum_and_max(2, 64, 2, dtype), [x])


@pytest.mark.parametrize(("rows", "groups"), [(7, 2), (1, 2), (6, 3), (5, 1)])
def test_groups_go_over_rows(rows: int, groups: int) -> None:
    """Rows do not divide evenly, and some groups may have none: they meet all the same."""
    kernel = check(sum_and_max(3, 64, groups=groups), [integers((rows, 377))], seeds=(0, 1, 2))
    assert sum(isinstance(s, BlockBarrier) for s in walk(kernel.body)) == 2, "no other between the rows"


@pytest.mark.in_turns
@pytest.mark.parametrize(
    ("threads", "together", "blocks"), [(64, 2, 33), (96, 3, 2), (64, 5, 2), (256, 16, 2), (96, 16, 3)]
)
def test_many_rows_at_once(threads: int, together: int, blocks: int) -> None:
    """Lanes and warps have rows of their own: one meeting for all, and as many barriers as for one."""
    values = integers((2 * together + 1, blocks * threads * 2 - 7))
    kernel = check(sum_and_max(blocks, threads, together=together), [values], seeds=(0, 1))
    assert sum(isinstance(s, SpinWait) for s in walk(kernel.body)) == 1
    assert sum(isinstance(s, BlockBarrier) for s in walk(kernel.body)) <= 4
    shuffles = sum(isinstance(s, Shuffle) for s in walk(kernel.body))
    assert shuffles <= 2 * (2 * together + 5) + 10 * -(-2 * together * 32 // threads) + 10


def test_what_many_rows_wait_for_is_needed() -> None:
    together = 2

    def make() -> ScheduleBuilder:
        return sum_and_max(3, 64, together=together)

    case = Case("saturating_rows", "group", make, (((2 * together, 377),),))
    judge = Judge(case, Lowered.of(make(), frozenset([NARROW])))
    found = [m for m in mutants(judge.lowered.kernel) if m.what in (What.barrier, What.fence, What.semaphore_reset)]
    assert len([m for m in found if m.what is What.barrier]) >= 3
    for mutant in found:
        verdict, evidence = judge.verdict(mutant)
        assert verdict is Verdict.reported, f"{evidence}\n{describe(case, mutant)}"


def test_more_blocks_than_the_device_holds() -> None:
    lowered = Lowered.of(sum_and_max(4, 64, groups=2))
    small = replace(DeviceInfo.preset("H200"), sm_count=1, max_blocks_per_sm=7)
    report = run_kernel(
        lowered.kernel,
        Launch((2, 4, 1), (64, 1, 1), 4096, None, cooperative=True),
        [0] * len(lowered.kernel.parameters),
        DeviceMemory(),
        info=small,
    )
    with pytest.raises(SimulatorError, match="holds 7 of them at once"):
        report.check()
