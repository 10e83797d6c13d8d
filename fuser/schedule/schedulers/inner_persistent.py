"""Normalisations along the fastest dim: a row is read once and held on chip until it is written.

Loops, with K the kept dims, R the reduced ones, and constants v, tx, B, ty:

    K/ty -> grid_x, ty -> block_y, R/(v*tx*B*C) = 1, C -> grid_y, B unrolled, tx -> block_x, v -> vector

In registers, copies of the row tensors live outside the loop over B: each thread issues B loads of v elements before it uses
the first, and holds [B][v] registers. The schedule asks for R <= v*tx*B*C, which makes the loop around C one iteration. A row
within a warp needs no block barrier; a row too long for a block is shared by the C blocks of a cluster, which reduce through
each other's shared memory, or by blocks of the grid, which meet in device memory. In shared memory, rows are copied there
asynchronously, and each stage reads them again (`transforms/shared_rows.py`).

`cost/row_mappings.py` enumerates what fits; the mapping that should take least time is proposed.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from fuser.ir.device_info import WARP, DeviceInfo
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.integers.number_trace import as_told
from fuser.ir.ops.enums import SchedulerType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.records import record
from fuser.schedule.analysis.reduced_dims import accepts_reductions
from fuser.schedule.analysis.rows import Rows, find_rows
from fuser.schedule.analysis.stages import stage_levels, unscheduled
from fuser.schedule.cost.estimate import MOST_EXPLAINED, Work, close_to, estimate, least_times, total_time
from fuser.schedule.cost.persistent_bytes import persistent_rows
from fuser.schedule.cost.row_mappings import (
    RowMapping,
    group_mappings,
    groups_of_any_rows,
    groups_of_rows,
    handed_out_mappings,
    launched,
    work_of,
)
from fuser.schedule.cost.row_work import RowWork, row_work
from fuser.schedule.params import Aligned, CooperativeGroups, InnerPersistentParams, Params, ParamsClass
from fuser.schedule.reasons import Reasons
from fuser.schedule.scheduler import Accepted, Refused, SegmentInputs
from fuser.schedule.schedulers.inner_persistent_loops import schedule_rows
from fuser.schedule.tuning_candidates import beside_the_first


class InnerPersistentScheduler:
    """Accepts segments whose full-size data is needed by more than one stage; proposes for rows that fit on chip."""

    type = SchedulerType.inner_persistent
    params: ParamsClass = InnerPersistentParams

    def accepts(self, segment: Fusion) -> Accepted | Refused:
        """See Scheduler."""
        answer = accepts_reductions(segment)
        if isinstance(answer, Refused):
            return answer
        if len(set(stage_levels(unscheduled(segment)).values())) < 2:
            return Refused("the data is needed once")
        for one_pass in (False, True):
            persistent_rows(segment, one_pass=one_pass)  # what `propose` asks for any sizes
        return Accepted()

    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused:
        """See Scheduler."""
        return _proposed(segment, inputs, device, may_group=True)

    def propose_without_block_groups(
        self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo
    ) -> Params | Refused:
        """The same without groups of the grid: a row in a block or a cluster."""
        return _proposed(segment, inputs, device, may_group=False)

    def candidates(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Iterable[Params]:
        """See Scheduler."""
        found = find_rows(segment, inputs, MOST_INSIDE)
        if isinstance(found, Refused):
            return ()
        asked = _asked(segment, found, device, may_group=True)
        made = (_params(segment, found, asked, m, inputs, device) for _, m in _ranked(asked, device))
        return beside_the_first(p for p in made if not isinstance(p, Refused))

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        """See Scheduler."""
        assert isinstance(params, InnerPersistentParams)
        return schedule_rows(segment, params)


MOST_SHAPES = 256
"""Shapes of rows, without how many there are, whose mappings are kept for the next time: some 50 KB each."""


@record
class _Asked:
    """Which mappings are asked for.

    may_group, may_place   see `row_mappings`
    may_place_groups       whether rows of groups may lie in shared memory
    only_clusters          each row over a cluster, in registers, and all of them at once
    """

    row: RowWork
    may_group: bool
    may_place: bool
    may_place_groups: bool
    only_clusters: bool


def _proposed(
    segment: Fusion, inputs: SegmentInputs, device: DeviceInfo, *, may_group: bool
) -> InnerPersistentParams | Refused:
    found = find_rows(segment, inputs, MOST_INSIDE)
    if isinstance(found, Refused):
        return found
    asked = _asked(segment, found, device, may_group=may_group)
    best = _best(asked, device)
    if best is None:
        return Refused(f"no way to hold rows of {found.length} elements on chip")
    return _params(segment, found, asked, best, inputs, device)


def _asked(segment: Fusion, found: Rows, device: DeviceInfo, *, may_group: bool) -> _Asked:
    row = row_work(segment, found)
    if found.element_stride > 1:
        # Elements of other rows lie between those of a row, such as the channels of an image: accesses by element, all rows at
        # once, each over a cluster, so that what one leaves of a sector others take from a cache.
        return _Asked(row, may_group=False, may_place=False, may_place_groups=False, only_clusters=True)
    may_place = bool(found.shared_row_tensors(device))
    # Nothing tells a single row from what all rows would share: it has no loop over rows.
    return _Asked(row, may_group, may_place, may_place and not found.is_single, only_clusters=False)


def _best(asked: _Asked, device: DeviceInfo) -> RowMapping | None:
    """The mapping to propose; None if none fits.

    Of mappings that take about as long the one with most threads is proposed, two passes before one, whatever number of rows
    there is: many numbers share a kernel, and on an H200 it is the fastest of them more often than not.
    """
    rows = asked.row.rows
    shape = replace(asked, row=replace(asked.row, rows=asked.row.side_by_side))
    found = _by_preference(shape, device)
    times: dict[int, float] = {}

    def time(place: int) -> float:
        if place not in times:
            known = found[place]
            m = _for_rows(asked, known.mapping, device)
            times[place] = math.inf if m is None else total_time(launched(known.work, m, rows), device)
        return times[place]

    told = as_told(rows)
    bounds = [
        a if (a := k.start + k.of_row * told) > (b := k.other_start + k.other_of_row * told) else b for k in found
    ]

    def may_take(place: int, time: float) -> bool:
        # A trace is told which bounds are too long.
        return bounds[place] <= time if told is rows else found[place].may_take(time, rows)

    # Any order leads to the same answer. In that of the bounds few mappings need more than a look at theirs.
    least = math.inf
    for place in sorted(range(len(found)), key=bounds.__getitem__):
        if may_take(place, least):
            least = min(least, time(place))
    limit = close_to(least, device)
    for place, known in enumerate(found):
        if may_take(place, limit) and time(place) <= limit < math.inf:
            return _for_rows(asked, known.mapping, device)
    return None


class _ForAnyRows(NamedTuple):
    """A mapping for any number of rows, with the most groups if it has groups, and what a block of it asks for. For n rows it
    takes `start + of_row * n` microseconds or more, and `other_start + other_of_row * n`."""

    mapping: RowMapping
    work: Work
    start: float
    of_row: float
    other_start: float
    other_of_row: float

    def may_take(self, time: float, rows: int) -> bool:
        """Whether it may take so long, or less."""
        return self.start + self.of_row * rows <= time and self.other_start + self.other_of_row * rows <= time


@lru_cache(maxsize=MOST_SHAPES)
def _by_preference(asked: _Asked, device: DeviceInfo) -> list[_ForAnyRows]:
    """All mappings of rows with these `side_by_side`, however many there are, that to prefer first."""
    mappings = [*_handed_out_mappings(asked, device), *_groups(asked, device, any_rows=True)]
    found: list[_ForAnyRows] = []
    for m in sorted(mappings, key=_preference):
        work = work_of(asked.row, m, device)
        first, other = least_times(work, device, begin_again=m.groups > 0)
        of_row = m.sharing / m.rows
        found.append(_ForAnyRows(m, work, first.start, first.each * of_row, other.start, other.each * of_row))
    return found


def _for_rows(asked: _Asked, m: RowMapping, device: DeviceInfo) -> RowMapping | None:
    """A mapping for any number of rows as it is for these; None if it is none for so many."""
    if not _is_resident(asked, m, device):
        return None
    return groups_of_rows(m, asked.row.rows, device) if m.groups else m


def _handed_out_mappings(asked: _Asked, device: DeviceInfo) -> Iterator[RowMapping]:
    if asked.only_clusters and (asked.row.vector > 1 or asked.row.is_misaligned):
        return
    yield from handed_out_mappings(asked.row, device, may_place=asked.may_place)


def _is_resident(asked: _Asked, m: RowMapping, device: DeviceInfo) -> bool:
    """Whether all rows are there at once, if that is asked for."""
    return not asked.only_clusters or (m.sharing > 1 and asked.row.rows <= device.clusters(m.sharing))


def _groups(asked: _Asked, device: DeviceInfo, *, any_rows: bool = False) -> Iterable[RowMapping]:
    find = groups_of_any_rows if any_rows else group_mappings
    return find(asked.row, device, may_place=asked.may_place_groups) if asked.may_group else ()


def _preference(m: RowMapping) -> tuple[int, ...]:
    """The lesser is proposed, of mappings that take about as long."""
    # Blocks of a warp leave places of an SM empty; of more rows than fill those, a block ends with the last of its rows.
    resident_warps = m.resident * -(-m.threads * m.rows // WARP)
    return m.one_pass, -m.threads, m.in_shared, m.inputs_only, m.groups > 0, m.early, -resident_warps, m.rows


def _ranked(asked: _Asked, device: DeviceInfo) -> list[tuple[float, RowMapping]]:
    """All mappings with the microseconds that they should take: first the one to propose, then the fastest."""
    found = [*_handed_out_mappings(asked, device), *_groups(asked, device)]
    times = [(total_time(work_of(asked.row, m, device), device), m) for m in found if _is_resident(asked, m, device)]
    limit = close_to(min((time for time, _ in times), default=math.inf), device)
    best = min((timed for timed in times if timed[0] <= limit), key=lambda timed: _preference(timed[1]), default=None)
    rest = sorted((timed for timed in times if timed is not best), key=operator.itemgetter(0))
    return rest if best is None else [best, *rest]


def _params(
    segment: Fusion,
    found: Rows,
    asked: _Asked,
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
        m.inputs_only,
        in_shared,
        accesses.access,
        m.one_pass,
        CooperativeGroups(m.groups, m.resident) if m.groups else None,
        m.resident if m.in_shared and is_cut else 0,
        tuple(n for n in in_shared if n in narrow) if is_cut else (),
        m.early,
        reasons=Reasons(lambda: _reasons(length, asked, m, device)),
    )


def _reasons(length: int, asked: _Asked, m: RowMapping, device: DeviceInfo) -> Iterator[str]:
    """What a mapping should take, beside what the fastest others should."""
    row = replace(asked.row, rows=as_told(asked.row.rows))
    asked, m = replace(asked, row=row), m._replace(groups=as_told(m.groups), resident=as_told(m.resident))
    yield f"a row of {length} elements is {row.accesses} accesses of {row.vector}"
    others = (other for _, other in _ranked(asked, device) if other != m)
    for shown in (m, *islice(others, MOST_EXPLAINED - 1)):
        yield f"{_words(shown)}: {estimate(work_of(row, shown, device), device)}"


def _words(m: RowMapping) -> str:
    """A mapping in words."""
    place = "shared memory" if m.in_shared else f"about {m.registers} registers"
    share = f", {m.groups} groups of {m.sharing} blocks" if m.groups else f", {m.sharing} blocks a row"
    rows = f", {m.rows} rows a block" if m.rows > 1 else ""
    passes = ", one pass" if m.one_pass else ""
    again = ", the rest computed again" if m.inputs_only else ""
    first = ", all inputs read first" if m.early else ""
    return (
        f"{m.threads} threads of {m.batch} accesses in {place}{share if m.sharing > 1 else rows}{passes}{again}{first}"
    )


MOST_INSIDE = 4
"""Rows that may lie side by side: each takes all of the memory's sectors that any of them has an element of."""
