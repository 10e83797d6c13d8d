"""What mappings of rows are told of a segment: inputs whose vectors cannot be loaded as such."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuser import DataType
from fuser.ir.device_info import H200
from fuser.schedule.analysis.rows import find_rows
from fuser.schedule.cost.estimate import total_time
from fuser.schedule.cost.row_mappings import row_mappings, row_work_of
from fuser.schedule.cost.row_space import RowSpace, row_space
from fuser.schedule.scheduler import Refused
from tests.fusions.rows import described, fusion_of, inputs_for, softmax

DTYPE = DataType.Half


def space_of(length: int, *, elements_before: int = 0) -> RowSpace:
    """Of softmax; its input begins that far behind an aligned address."""
    fusion = fusion_of(softmax, DTYPE)
    given = described(DTYPE, 300, length)
    given = replace(given, alignment=given.alignment if not elements_before else DTYPE.itemsize * elements_before)
    found = find_rows(fusion, inputs_for(fusion, given), 8)
    assert not isinstance(found, Refused)
    return row_space(fusion, found, H200)


@pytest.mark.parametrize("length", [4096, 4099])
def test_inputs_that_begin_with_the_vectors_are_in_phase(length: int) -> None:
    assert space_of(length).differently_misaligned == 0


def test_an_input_that_begins_elsewhere_is_out_of_phase() -> None:
    assert space_of(4099, elements_before=1).differently_misaligned == 1


def test_reads_by_element_cost_rows_in_registers_only() -> None:
    row = space_of(4099, elements_before=1)
    in_phase = replace(row, differently_misaligned=0)
    mappings = list(row_mappings(replace(row, may_use_block_groups=False), H200))
    assert {m.in_shared for m in mappings} == {False, True}
    for m in mappings:
        apart, vectors = (total_time(row_work_of(r, m, H200), H200) for r in (row, in_phase))
        assert apart == vectors if m.in_shared else apart > vectors
