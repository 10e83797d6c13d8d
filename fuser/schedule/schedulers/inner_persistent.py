"""Normalisations along the fastest dim: a row is read once and kept on chip until it is written.

Loops, with K the kept dims, R the reduced ones, and constants v, tx, B, ty:

    K/ty -> grid_x, ty -> block_y, R/(v*tx*B*C) = 1, C -> grid_y, B unrolled, tx -> block_x, v -> vector

In registers, copies of the row tensors are outside the loop over B: each thread issues B loads of v elements before it uses
the first, and has [B][v] registers. The schedule requires R <= v*tx*B*C, which makes the loop around C one iteration. A row
within a warp needs no block barrier. A row too long for a block is shared by the C blocks of a cluster, which reduce through
distributed shared memory, or by a block group of the grid, which reduces through device memory. In shared memory, rows are
copied asynchronously, and each data pass reads them again (`transforms/shared_rows.py`).

`cost/row_mappings.py` enumerates the mappings that fit; the one with the least estimated time is proposed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from fuser.ir.device_info import DeviceInfo
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.integers.number_trace import as_told, searched
from fuser.ir.ops.enums import SchedulerType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.records import record
from fuser.schedule.analysis.data_passes import data_pass_indices, empty_schedule
from fuser.schedule.analysis.reduced_dims import accepts_reductions
from fuser.schedule.analysis.rows import Rows, find_rows
from fuser.schedule.cost.estimate import TimeModel, Work, total_time
from fuser.schedule.cost.mapping_search import (
    MAX_REMEMBERED,
    Timed,
    explained,
    preferred,
    ranked,
    times_within_bounds,
)
from fuser.schedule.cost.persistent_buffer_size import persistent_buffer_size
from fuser.schedule.cost.row_mappings import (
    RowCosts,
    RowMapping,
    block_group_mapping_for_rows,
    block_group_mappings,
    block_group_mappings_for_any_row_count,
    independent_block_mappings,
    row_work_of,
    work_for_rows,
)
from fuser.schedule.cost.row_space import RowSpace, row_space
from fuser.schedule.params import Aligned, BlockGroups, InnerPersistentParams, Params, ParamsClass
from fuser.schedule.reasons import Reasons
from fuser.schedule.scheduler import Accepted, Refused, SegmentInputs
from fuser.schedule.schedulers.inner_persistent_loops import schedule_rows
from fuser.schedule.tuning_candidates import with_difference_reasons


class InnerPersistentScheduler:
    """Accepts segments whose full-size data is needed by more than one data pass; proposes for rows that fit on chip."""

    type = SchedulerType.inner_persistent
    params: ParamsClass = InnerPersistentParams

    def accepts(self, segment: Fusion) -> Accepted | Refused:
        """See Scheduler."""
        answer = accepts_reductions(segment)
        if isinstance(answer, Refused):
            return answer
        if len(set(data_pass_indices(empty_schedule(segment)).values())) < 2:
            return Refused("the data is needed once")
        for one_pass in (False, True):
            persistent_buffer_size(segment, one_pass=one_pass)  # what `propose` asks for any sizes
        return Accepted()

    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused:
        """See Scheduler."""
        return _proposed(segment, inputs, device, may_use_block_groups=True)

    def propose_without_block_groups(
        self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo
    ) -> Params | Refused:
        """The same without groups of the grid: a row in a block or a cluster."""
        return _proposed(segment, inputs, device, may_use_block_groups=False)

    def candidates(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Iterable[Params]:
        """See Scheduler."""
        found = find_rows(segment, inputs, MAX_ELEMENT_STRIDE)
        if isinstance(found, Refused):
            return ()
        query = _mapping_query(segment, found, device, may_use_block_groups=True)
        made = (_params(segment, found, query, m, inputs, device) for _, m in _ranked(query, device))
        return with_difference_reasons(p for p in made if not isinstance(p, Refused))

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        """See Scheduler."""
        assert isinstance(params, InnerPersistentParams)
        return schedule_rows(segment, params)


MAX_SHAPES = 256
"""Shapes of rows, without how many there are, whose mappings are kept for the next time: some 50 KB each."""


@record
class _MappingQuery:
    """A request for mappings.

    may_use_block_groups, may_use_shared   see `row_mappings`
    may_use_shared_in_groups       whether rows of groups may be in shared memory
    only_clusters          each row over a cluster, in registers, and all of them at once
    """

    row: RowSpace
    may_use_block_groups: bool
    may_use_shared: bool
    may_use_shared_in_groups: bool
    only_clusters: bool


def _proposed(
    segment: Fusion, inputs: SegmentInputs, device: DeviceInfo, *, may_use_block_groups: bool
) -> InnerPersistentParams | Refused:
    found = find_rows(segment, inputs, MAX_ELEMENT_STRIDE)
    if isinstance(found, Refused):
        return found
    query = _mapping_query(segment, found, device, may_use_block_groups=may_use_block_groups)
    best = _best(query, device)
    if best is None:
        return Refused(f"no way to hold rows of {found.length} elements on chip")
    return _params(segment, found, query, best, inputs, device)


def _mapping_query(segment: Fusion, found: Rows, device: DeviceInfo, *, may_use_block_groups: bool) -> _MappingQuery:
    row = row_space(segment, found)
    if found.element_stride > 1:
        # Elements of other rows are between those of a row, such as the channels of an image: accesses by element, all rows at
        # once, each over a cluster, so that what one leaves of a sector others take from a cache.
        return _MappingQuery(
            row, may_use_block_groups=False, may_use_shared=False, may_use_shared_in_groups=False, only_clusters=True
        )
    may_use_shared = bool(found.shared_row_tensors(device))
    # A single row cannot be distinguished from a shared operand: there is no loop over rows.
    return _MappingQuery(
        row, may_use_block_groups, may_use_shared, may_use_shared and not found.is_single, only_clusters=False
    )


def _best(query: _MappingQuery, device: DeviceInfo) -> RowMapping | None:
    """The mapping to propose; None if none fits."""
    found = _best_for_any_row_count(query, device)
    return None if found is None else _specialise_to_row_count(query, found, device)


@searched
@lru_cache(maxsize=MAX_REMEMBERED)
def _best_for_any_row_count(query: _MappingQuery, device: DeviceInfo) -> RowMapping | None:
    """The same as it is for any number of rows, see `_mappings_for_any_row_count`."""
    rows = query.row.rows
    found = _mappings_for_any_row_count(
        replace(query, row=replace(query.row, rows=query.row.max_rows_per_block)), device
    )

    model = TimeModel(device)

    def times_of(place: int) -> Iterator[Timed[RowMapping]]:
        known = found[place]
        m = _specialise_to_row_count(query, known.mapping, device)
        if m is not None:
            yield model.total(work_for_rows(known.work, m, rows)), known.mapping

    bounds = [
        a if (a := k.start + k.of_row * rows) > (b := k.other_start + k.other_of_row * rows) else b for k in found
    ]
    best = preferred(times_within_bounds(bounds, times_of, device), _preference, device)
    return None if best is None else best[1]


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
def _mappings_for_any_row_count(query: _MappingQuery, device: DeviceInfo) -> list[_RowCountMapping]:
    """All mappings of rows with these `side_by_side`, however many there are."""
    mappings = [*_independent_block_mappings(query, device), *_groups(query, device, any_row_count=True)]
    found: list[_RowCountMapping] = []
    costs, model = RowCosts(query.row, device), TimeModel(device)
    for m in mappings:
        work = costs.work_of(m)
        first, other = model.lower_bound_by_blocks(work, begin_again=m.groups > 0)
        of_row = m.sharing / m.rows
        found.append(_RowCountMapping(m, work, first.start, first.each * of_row, other.start, other.each * of_row))
    return found


def _specialise_to_row_count(query: _MappingQuery, m: RowMapping, device: DeviceInfo) -> RowMapping | None:
    """A mapping for any number of rows as it is for these; None if it is none for so many."""
    if not _is_resident(query, m, device):
        return None
    return block_group_mapping_for_rows(m, query.row.rows, device) if m.groups else m


def _independent_block_mappings(query: _MappingQuery, device: DeviceInfo) -> Iterator[RowMapping]:
    if query.only_clusters and (query.row.vector > 1 or query.row.is_misaligned):
        return
    yield from independent_block_mappings(query.row, device, may_use_shared=query.may_use_shared)


def _is_resident(query: _MappingQuery, m: RowMapping, device: DeviceInfo) -> bool:
    """Whether all rows are resident, if that is required."""
    return not query.only_clusters or (m.sharing > 1 and query.row.rows <= device.clusters(m.sharing))


def _groups(query: _MappingQuery, device: DeviceInfo, *, any_row_count: bool = False) -> Iterable[RowMapping]:
    find = block_group_mappings_for_any_row_count if any_row_count else block_group_mappings
    return find(query.row, device, may_use_shared=query.may_use_shared_in_groups) if query.may_use_block_groups else ()


def _preference(timed: Timed[RowMapping]) -> tuple[object, ...]:
    """What needs the least of what is only guessed: a second pass reads what is there, one pass corrects its sums as it goes;
    registers are waited for by the compiler; threads with few accesses, and none early, need few of them. On an H200 that is
    the best of the orders that were tried, by measured times of 156 segments.

    The number of rows does not count: many numbers share a kernel.
    """
    time, m = timed
    return m.one_pass, m.in_shared, m.load_all_first, m.batch, time, m


def _ranked(query: _MappingQuery, device: DeviceInfo) -> tuple[Timed[RowMapping], ...]:
    """All mappings, first the one to propose."""
    found = [*_independent_block_mappings(query, device), *_groups(query, device)]
    fitting = (m for m in found if _is_resident(query, m, device))
    return ranked(((total_time(row_work_of(query.row, m, device), device), m) for m in fitting), _preference, device)


def _params(
    segment: Fusion,
    found: Rows,
    query: _MappingQuery,
    m: RowMapping,
    inputs: SegmentInputs,
    device: DeviceInfo,
) -> InnerPersistentParams | Refused:
    """The parameters of a mapping; refused where the extents of a row cannot be bounded."""
    accesses, length = found.accesses, found.length
    capacity = m.threads * m.batch * m.sharing * accesses.vector
    # All accesses of a thread but the last are inside the row, for whatever length the kernel serves.
    is_whole = not (found.missing_elements or m.sharing > 1 or m.in_shared)
    least = m.threads * (m.batch - 1) * accesses.vector + 1 if is_whole else 1
    bounds = found.bounds(segment, inputs, capacity - found.missing_elements, least, parts=not m.groups)
    if isinstance(bounds, Refused):
        return bounds
    in_shared = found.shared_row_tensors(device) if m.in_shared else ()
    # Elements of four bytes and more are copied asynchronously one by one, wherever they begin.
    narrow = {r.name for r in found.reads if r.tensor.dtype.itemsize < 4 and r.name not in accesses.in_phase}
    is_cut = not isinstance(accesses.access, Aligned)
    return InnerPersistentParams(
        found.order,
        m.threads,
        m.rows,
        m.batch,
        accesses.vector,
        accesses.vectorized,
        bounds,
        m.sharing,
        m.in_shared,
        in_shared,
        accesses.access,
        m.one_pass,
        BlockGroups(m.groups, m.resident) if m.groups else None,
        m.resident if m.in_shared and is_cut else 0,
        tuple(n for n in in_shared if n in narrow) if is_cut else (),
        m.load_all_first,
        reasons=Reasons(lambda: _reasons(*as_told((length, query, m)), device)),
    )


def _reasons(length: int, query: _MappingQuery, m: RowMapping, device: DeviceInfo) -> Iterator[str]:
    """The estimated time of a mapping, and of the fastest others."""
    row = query.row
    yield f"a row of {length} elements is {row.accesses} accesses of {row.vector}"
    others = (timed for timed in _ranked(query, device) if timed[1] != m)
    yield from explained(((0.0, m), *others), _mapping_text, lambda shown: row_work_of(row, shown, device), device)


def _mapping_text(m: RowMapping) -> str:
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


MAX_ELEMENT_STRIDE = 4
"""Rows that may be side by side: each takes all of the memory's sectors that any of them has an element of."""
