"""What collectives have the launch supply."""

from __future__ import annotations

from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.ops.dtypes import DataType
from fuser.ir.schedule.schedule import ScheduleBuilder
from tests.fusions.kernel_corpus import BX, GX, GY, SERIAL, schedule_axes
from tests.judging.harness import check, integers
from tests.lowering.collectives.row_sums import row_sum


def test_loop_around_a_grid_reduction_has_its_own_semaphores() -> None:
    kernel = row_sum(16, (SERIAL, GY, BX))
    assert str(kernel.plan.semaphores) == "t0_size0"


def test_grid_of_one_block_needs_no_semaphore() -> None:
    b = FusionBuilder()
    x = b.input_tensor(DataType.Float, [-1, 8])
    r = b.reduction("sum", x, [1], DataType.Float)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    s.split(r.name, 1, 8)
    schedule_axes(s, r.name, (GX, GY, BX))
    kernel = check(s, [integers((3, 8))])
    assert kernel.plan.semaphores is None
