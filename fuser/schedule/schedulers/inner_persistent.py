"""Normalisations along the fastest dim: a row is read once and held on chip until it is written.

Loops, with K the kept dims, R the reduced ones, and constants v, tx, B, ty:

    K/ty -> grid_x, ty -> block_y, R/(v*tx*B*C) = 1, C -> grid_y, B unrolled, tx -> block_x, v -> vector

In registers, copies of the row tensors live outside the loop over B: each thread issues B loads of v elements before it uses
the first, and holds [B][v] registers. The schedule asks for R <= v*tx*B*C, which makes the loop around C one iteration. A row
within a warp needs no block barrier; a row too long for a block is shared by the C blocks of a cluster, which reduce through
each other's shared memory, or by blocks of the grid, which meet in device memory. In shared memory, rows are copied there
asynchronously, and each stage reads them again (`transforms/place_rows.py`).

`cost/row_mappings.py` enumerates what fits; the mapping that should take least time is proposed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from fuser.ir.device_info import DeviceInfo
from fuser.ir.enums import SchedulerType
from fuser.ir.fusion import Fusion
from fuser.ir.schedule import ScheduleBuilder
from fuser.schedule.analysis.reduced_dims import accepts_reductions
from fuser.schedule.analysis.rows import Rows, find_rows
from fuser.schedule.analysis.stages import as_defined, stage_levels
from fuser.schedule.cost.estimate import estimate, total_time
from fuser.schedule.cost.persistent_rows import persistent_rows
from fuser.schedule.cost.row_mappings import RowMapping, RowWork, row_mappings, row_work, work_of
from fuser.schedule.neighbours import difference
from fuser.schedule.params import Accepted, InnerPersistentParams, Params, ParamsClass, Refused, SegmentInputs
from fuser.schedule.schedulers.row_loops import schedule_rows


class InnerPersistentScheduler:
    """Accepts segments whose full-size data is needed by more than one stage; proposes for rows that fit on chip."""

    type = SchedulerType.inner_persistent
    params: ParamsClass = InnerPersistentParams

    def accepts(self, segment: Fusion) -> Accepted | Refused:
        """See Scheduler."""
        answer = accepts_reductions(segment)
        if isinstance(answer, Refused):
            return answer
        if len(set(stage_levels(as_defined(segment)).values())) < 2:
            return Refused("the data is needed once")
        for one_pass in (False, True):
            persistent_rows(segment, one_pass=one_pass)  # what `propose` asks for any sizes
        return Accepted()

    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused:
        """See Scheduler."""
        return _proposed(segment, inputs, device, may_group=True)

    def propose_near(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused:
        """The same without groups of the grid: a row in a block or a cluster."""
        return _proposed(segment, inputs, device, may_group=False)

    def candidates(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Iterable[Params]:
        """See Scheduler."""
        found = find_rows(segment, inputs, MOST_INSIDE)
        if isinstance(found, Refused):
            return ()
        row = row_work(segment, found)
        ranked = _ranked(row, found, device, may_group=True)
        made = (_params(segment, found, row, ranked[n:], inputs, device) for n in range(len(ranked)))
        return _beside_the_first(p for p in made if not isinstance(p, Refused))

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        """See Scheduler."""
        assert isinstance(params, InnerPersistentParams)
        return schedule_rows(segment, params)


def _proposed(
    segment: Fusion, inputs: SegmentInputs, device: DeviceInfo, *, may_group: bool
) -> InnerPersistentParams | Refused:
    found = find_rows(segment, inputs, MOST_INSIDE)
    if isinstance(found, Refused):
        return found
    row = row_work(segment, found)
    ranked = _ranked(row, found, device, may_group=may_group)
    if not ranked:
        return Refused(f"no way to hold rows of {found.length} elements on chip")
    return _params(segment, found, row, ranked, inputs, device)


def _beside_the_first(made: Iterable[InnerPersistentParams]) -> Iterator[InnerPersistentParams]:
    """The same, with what the first has otherwise as the first reason of each other one."""
    first: InnerPersistentParams | None = None
    for params in made:
        if first is None:
            first = params
            yield params
        else:
            why = f"beside what was proposed: {difference(first, params)}"
            yield replace(params, reasons=(why, *params.reasons))


def _ranked(row: RowWork, found: Rows, device: DeviceInfo, *, may_group: bool) -> list[tuple[float, RowMapping]]:
    """All mappings with the microseconds that they should take: first the one to propose, then the fastest.

    Of mappings that take about as long the one with most threads is proposed, two passes before one, whatever number of rows
    there is: many numbers share a kernel, and on an H200 it is the fastest of them more often than not.
    """
    times = [(total_time(work_of(row, m, device), device), m) for m in _mappings(row, found, device, may_group)]
    if not times:
        return []
    limit = device.launch + (min(time for time, _ in times) - device.launch) * CLOSE
    times.sort(key=lambda timed: (timed[1].one_pass, -timed[1].threads))
    best = next(timed for timed in times if timed[0] <= limit)
    # The order of the others decides no kernel: by text, so that a trace (`ir/number_trace.py`) is not asked for it.
    rest = sorted((timed for timed in times if timed is not best), key=lambda timed: f"{timed[0]:24.6f}")
    return [best, *rest]


def _mappings(row: RowWork, found: Rows, device: DeviceInfo, may_group: bool) -> Iterator[RowMapping]:
    if found.inside > 1:
        # Elements of other rows lie between those of a row, such as the channels of an image: accesses by element, all rows at
        # once, each over a cluster, so that what one leaves of a sector others take from a cache.
        if row.vector > 1 or row.is_misaligned:
            return
        for m in row_mappings(row, device, may_group=False, may_place=False):
            if m.sharing > 1 and row.rows <= device.clusters(m.sharing):
                yield m
        return
    placed = found.placed_anywhere(device)
    for m in row_mappings(row, device, may_group=may_group, may_place=bool(placed)):
        # Nothing tells a single row from what all rows would share: it has no loop over rows.
        if not (m.groups and m.in_shared and found.is_single):
            yield m


def _params(
    segment: Fusion,
    found: Rows,
    row: RowWork,
    ranked: list[tuple[float, RowMapping]],
    inputs: SegmentInputs,
    device: DeviceInfo,
) -> InnerPersistentParams | Refused:
    """The parameters of the first mapping; refused where the extents of a row cannot be bounded."""
    accesses = found.accesses
    _, m = ranked[0]
    capacity = m.threads * m.batch * m.sharing * accesses.vector
    # All accesses of a thread but the last are inside the row, for whatever length the kernel serves.
    is_whole = not (found.cut or m.sharing > 1 or m.in_shared)
    least = m.threads * (m.batch - 1) * accesses.vector + 1 if is_whole else 1
    bounds = found.bounds(segment, inputs, capacity - found.cut, least, parts=not m.groups)
    if isinstance(bounds, Refused):
        return bounds
    in_shared = found.placed_anywhere(device) if m.in_shared else ()
    # Elements of four bytes and more are copied asynchronously one by one, wherever they begin.
    narrow = {r.name for r in found.reads if r.tensor.dtype.itemsize < 4 and r.name not in accesses.in_phase}
    is_cut = accesses.misaligned
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
        m.groups,
        accesses.misaligned,
        accesses.aligned_to,
        m.one_pass,
        m.resident if m.groups else 0,
        m.resident if m.in_shared and is_cut else 0,
        tuple(n for n in in_shared if n in narrow) if is_cut else (),
        reasons=(
            f"a row of {found.length} elements is {row.accesses} accesses of {accesses.vector}",
            *(f"{_words(m)}: {estimate(work_of(row, m, device), device)}" for _, m in islice(ranked, MOST_EXPLAINED)),
        ),
    )


def _words(m: RowMapping) -> str:
    """A mapping in words."""
    place = "shared memory" if m.in_shared else f"about {m.registers} registers"
    share = f", {m.groups} groups of {m.sharing} blocks" if m.groups else f", {m.sharing} blocks a row"
    rows = f", {m.rows} rows a block" if m.rows > 1 else ""
    passes = ", one pass" if m.one_pass else ""
    again = ", the rest computed again" if m.inputs_only else ""
    return f"{m.threads} threads of {m.batch} accesses in {place}{share if m.sharing > 1 else rows}{passes}{again}"


CLOSE = 1.03
"""Times so close to the least that estimates do not tell them apart."""

MOST_EXPLAINED = 5
"""Mappings that `explain` shows."""

MOST_INSIDE = 4
"""Rows that may lie side by side: each takes all of the memory's sectors that any of them has an element of."""
