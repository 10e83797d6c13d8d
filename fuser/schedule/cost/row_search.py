"""The search for a mapping of rows: most of it is done once for all numbers of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from fuser.ir.device_info import DeviceInfo
from fuser.schedule.cost.estimate import TimeModel, Work
from fuser.schedule.cost.mapping_search import MappingSearch, Timed, times_within_bounds
from fuser.schedule.cost.row_mappings import (
    RowCosts,
    RowMapping,
    mapping_for_rows,
    mappings_for_any_row_count,
    row_mappings,
    row_work_of,
    work_for_rows,
)
from fuser.schedule.cost.row_space import RowSpace

MAX_SHAPES = 256
"""Shapes of rows, without how many there are, whose mappings are kept for the next time: some 50 KB each."""


class _RowCountMapping(NamedTuple):
    """A mapping for any number of rows, with the most groups if it has groups, and what a block of it asks for. For n rows it
    takes `start + of_row * n` microseconds or more, and `other_start + other_of_row * n`."""

    mapping: RowMapping
    work: Work
    start: float
    of_row: float
    other_start: float
    other_of_row: float


@lru_cache(maxsize=MAX_SHAPES)
def _mappings_for_any_row_count(row: RowSpace, device: DeviceInfo) -> list[_RowCountMapping]:
    """All mappings of rows with this `max_rows_per_block`, however many there are."""
    found: list[_RowCountMapping] = []
    costs, model = RowCosts(row, device), TimeModel(device)
    for m in mappings_for_any_row_count(row, device):
        work = costs.work_of(m)
        first, other = model.lower_bound_by_blocks(work, begin_again=m.groups > 0)
        of_row = m.sharing / m.rows
        found.append(_RowCountMapping(m, work, first.start, first.each * of_row, other.start, other.each * of_row))
    return found


def _likely_times(row: RowSpace, device: DeviceInfo) -> Iterator[Timed[RowMapping]]:
    """Times of mappings for any number of rows, without those that surely take longer than others."""
    rows = row.rows
    found = _mappings_for_any_row_count(replace(row, rows=row.max_rows_per_block), device)
    model = TimeModel(device)

    def times_of(place: int) -> Iterator[Timed[RowMapping]]:
        known = found[place]
        m = mapping_for_rows(row, known.mapping, device)
        if m is not None:
            yield model.total(work_for_rows(known.work, m, rows)), known.mapping

    bounds = [
        a if (a := k.start + k.of_row * rows) > (b := k.other_start + k.other_of_row * rows) else b for k in found
    ]
    return times_within_bounds(bounds, times_of, lambda place: _rank(found[place].mapping), device)


def _preference(_: RowSpace, timed: Timed[RowMapping], __: DeviceInfo) -> tuple[object, ...]:
    """What needs the least of what is only guessed: a second pass reads what is there, one pass corrects its sums as it goes;
    registers are waited for by the compiler; threads with few accesses, and none early, need few of them. On an H200 that is
    the best of the orders that were tried, by measured times of 156 segments.

    The number of rows does not count: many numbers share a kernel.
    """
    time, m = timed
    return *_rank(m), time, m


def _rank(m: RowMapping) -> tuple[object, ...]:
    return m.one_pass, m.in_shared, m.load_all_first, m.batch


def _heading(row: RowSpace) -> tuple[str]:
    length = row.length - (row.vector - 1 if row.is_cut else 0)
    return (f"a row of {length} elements is {row.accesses} accesses of {row.vector}",)


def _words(_: RowSpace, m: RowMapping) -> str:
    """A mapping in words."""
    place = "shared memory" if m.in_shared else f"about {m.registers} registers"
    share = f", {m.groups} groups of {m.sharing} blocks" if m.groups else f", {m.sharing} blocks a row"
    rows = f", {m.rows} rows a block" if m.rows > 1 else ""
    passes = ", one pass" if m.one_pass else ""
    again = ", the rest computed again" if m.in_shared else ""
    first = ", all inputs read first" if m.load_all_first else ""
    return (
        f"{m.threads} threads of {m.batch} accesses in {place}{share if m.sharing > 1 else rows}{passes}{again}{first}"
    )


ROWS = MappingSearch(
    mappings=row_mappings,
    work_of=row_work_of,
    preference=_preference,
    heading=_heading,
    words=_words,
    likely=_likely_times,
)
