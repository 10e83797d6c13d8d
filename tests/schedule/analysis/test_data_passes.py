"""Data passes, and which dims are reduced, of schedules whose reductions have been split into parts."""

from __future__ import annotations

import pytest

from fuser.ir.fusion.fusion import Reducing, tensor_outputs
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.ops.dtypes import DataType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.schedule.analysis.data_passes import chained_reductions, data_pass_indices, reduced_groups_of, row_reductions

Float = DataType.Float


def centred(*, welford: bool) -> tuple[ScheduleBuilder, str, str]:
    """x of [rows, columns] minus a statistic of its columns; the statistic's name and the output's."""
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    found = b.welford(x, [0])[0] if welford else b.reduction("sum", x, [0], Float)
    out = b.pointwise("sub", [x, b.broadcast(found, [True, False])], Float)
    b.add_output(out)
    return ScheduleBuilder(b.freeze()), found.name, out.name


def split(s: ScheduleBuilder, name: str, axis: int = 1) -> list[str]:
    """Cut a reduction of the last axis into three nested ones, innermost first; what was made."""
    s.split(name, axis, 32)
    s.split(name, axis, 4)
    outer = s.rfactor(name, [axis + 1, axis + 2])
    outer = outer if isinstance(outer, str) else outer[0]
    inner = s.rfactor(outer, [axis + 2])
    return [inner if isinstance(inner, str) else inner[0], outer]


@pytest.mark.parametrize("welford", [False, True])
def test_parts_of_a_reduction_are_one_stage(welford: bool) -> None:
    s, name, out = centred(welford=welford)
    before = data_pass_indices(s)
    whole = reduced_groups_of(s)
    s.reorder(name, {0: 1})
    made = split(s, name)
    after = data_pass_indices(s)
    assert {n: after[n] for n in before} == before == {**dict.fromkeys(s.siblings(name), 0), out: 1}
    assert {after[n] for n in made} == {0}
    graph = s.graph()
    x = s.fusion.input_tensors[0]
    assert graph.group(x.logical[0]) in reduced_groups_of(s), "the dim itself, not only what parts have of it"
    assert graph.group(x.logical[1]) not in reduced_groups_of(s)
    assert {g.extent for g in whole} <= {g.extent for g in reduced_groups_of(s)}
    assert not chained_reductions(s.exprs, graph, s.partial_results)
    assert len(row_reductions(s)) == 3


def test_whole_dims_that_are_left_are_another_reduction() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    rows = b.reduction("sum", x, [1], Float)
    total = b.reduction("sum", x, [0, 1], Float)
    b.add_output(rows)
    b.add_output(total)
    s = ScheduleBuilder(b.freeze())
    made = s.rfactor(total.name, [1])
    chained = chained_reductions(s.exprs, s.graph(), s.partial_results)
    assert {tensor_outputs(e)[0].name for e in chained} == {total.name}
    assert {tensor_outputs(e)[0].name for e in row_reductions(s)} == {made, rows.name}


def test_a_reduction_of_results_stays_chained_when_both_are_split() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    rows = b.reduction("sum", x, [1], Float)
    total = b.reduction("sum", rows, [0], Float)
    b.add_output(total)
    s = ScheduleBuilder(b.freeze())
    made = split(s, rows.name)
    last = split(s, total.name, 0)
    chained = chained_reductions(s.exprs, s.graph(), s.partial_results)
    assert {tensor_outputs(e)[0].name for e in chained} == {*last, total.name}
    assert {tensor_outputs(e)[0].name for e in row_reductions(s)} == {*made, rows.name}
    assert all(isinstance(e, Reducing) for e in chained)
