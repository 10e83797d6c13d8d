"""Unscheduled fusions that tests of schedule verbs share."""

from __future__ import annotations

from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.ops.dtypes import DataType
from fuser.ir.schedule.schedule import ScheduleBuilder

Float = DataType.Float


def pointwise(*shape: int) -> tuple[ScheduleBuilder, str, str]:
    """out = -x; schedule, names of x and out."""
    b = FusionBuilder()
    x = b.input_tensor(Float, list(shape))
    out = b.pointwise("neg", [x], Float)
    b.add_output(out)
    return ScheduleBuilder(b.freeze()), x.name, out.name


def row_sum(dtype: DataType = Float) -> tuple[ScheduleBuilder, str]:
    b = FusionBuilder()
    x = b.input_tensor(dtype, [-1, -1])
    r = b.reduction("sum", x, [1], dtype)
    b.add_output(r)
    return ScheduleBuilder(b.freeze()), r.name


def extents(s: ScheduleBuilder, name: str) -> list[str]:
    return [str(a.extent) for a in s.state(name).loop]
