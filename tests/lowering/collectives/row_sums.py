"""Sums of rows under several bindings, which tests of collectives share."""

from __future__ import annotations

from collections.abc import Sequence

from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.kernel.kernel import Kernel, Stmt, walk
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import ParallelType
from fuser.ir.schedule.schedule import ScheduleBuilder
from tests.fusions.kernel_corpus import schedule_axes
from tests.judging.harness import check, integers


def count(kernel: Kernel, kind: type[Stmt]) -> int:
    return sum(isinstance(s, kind) for s in walk(kernel.body))


def row_sum(block: int, types: Sequence[ParallelType], rows: int = 0) -> Kernel:
    """Of integers: a sum of Float has two partials."""
    b = FusionBuilder()
    x = b.input_tensor(DataType.Int32, [-1, -1])
    r = b.reduction("sum", x, [1], DataType.Int32)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    s.split(r.name, 1, block)
    if rows:
        s.split(r.name, 0, rows)
    schedule_axes(s, r.name, types)
    return check(s, [integers((7, 150), DataType.Int32)], seeds=(0, 1))
