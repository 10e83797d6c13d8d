"""Backward normalisations: statistics of rows and sums of columns of one iteration space, in one pass over the data.

One cooperative kernel with as many blocks as are resident. Each block loops over its share of the rows: it loads a row once,
keeps it in registers while its statistics are reduced over the block, and writes its results. Meanwhile each thread
accumulates the sums of its columns in registers. At the end every block stores its partial sums in device memory, the grid
synchronises, and all blocks add them up, each for some columns. A thread loads many partial sums before it adds the first,
because each load takes the latency of L2.

`inner_outer_rows_over_grid` has these loops. Few rows, and rows that do not fit into a block, are distributed over blocks in
other ways (`inner_outer_columns_over_grid`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import count

from fuser.ir.device_info import DeviceInfo
from fuser.ir.fusion.fusion import Fusion, Scan
from fuser.ir.integers.number_trace import as_told
from fuser.ir.ops.enums import SchedulerType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.schedule.analysis.independent_outputs import independent_outputs
from fuser.schedule.analysis.inner_outer import classify_reductions, row_orientations
from fuser.schedule.analysis.input_reads import input_reads
from fuser.schedule.cost.estimate import tie_threshold
from fuser.schedule.cost.inner_outer_mappings import CLUSTER, SUMS, InnerOuterMapping, columns_of_block
from fuser.schedule.cost.inner_outer_space import SizedInnerOuter, find_inner_outer, kept_sizes, sum_registers
from fuser.schedule.cost.inner_outer_work import (
    INNER_OUTER,
    inner_outer_reasons,
    max_relevant_row_count,
    two_kernels_time,
)
from fuser.schedule.cost.mapping_search import nth_mapping
from fuser.schedule.params import (
    ColumnsOverGrid,
    InnerOuterParams,
    OverCluster,
    Params,
    ParamsClass,
    RowsOverGrid,
)
from fuser.schedule.reasons import Reasons
from fuser.schedule.scheduler import Accepted, Refused, Scheduler, SegmentInputs
from fuser.schedule.schedulers.inner_outer_columns_over_grid import ColumnsOverGridSchedule
from fuser.schedule.schedulers.inner_outer_rows_over_grid import RowsOverGridSchedule


class InnerOuterPersistentScheduler(Scheduler):
    """Accepts segments that reduce some dims of an iteration space and, apart from that, all its others."""

    type = SchedulerType.inner_outer_persistent
    params: ParamsClass = InnerOuterParams

    def accepts(self, segment: Fusion) -> Accepted | Refused:
        scanned = next((e for e in segment.tensor_exprs if isinstance(e, Scan)), None)
        if scanned is not None:
            return Refused(f"{scanned.input.name} is scanned")
        displaced = next((r for r in input_reads(segment) if r.name != r.tensor.name), None)
        if displaced is not None:
            # Rows are copied at their own indices.
            return Refused(f"{displaced.tensor.name} is read at other indices")
        choices = row_orientations(segment)
        if not choices:
            refused = classify_reductions(segment, first=True)
            assert isinstance(refused, Refused)
            return refused
        if len(choices) == 1:
            # What `propose` asks for any sizes.
            kept_sizes(segment, choices[0])
            sum_registers(segment, choices[0])
        return Accepted()

    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused:
        return next(_proposals(segment, inputs, device))

    def others(
        self, proposed: Params | Refused, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo
    ) -> Iterator[Params | Refused]:
        return _proposals(segment, inputs, device)

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        assert isinstance(params, InnerOuterParams)
        schedule = RowsOverGridSchedule if isinstance(params.distribution, RowsOverGrid) else ColumnsOverGridSchedule
        return schedule(segment, params.order, params.reference).schedule(params)


def _proposals(segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Iterator[InnerOuterParams | Refused]:
    """Parameters of all mappings, the fastest first; then why there are no more."""
    found = find_inner_outer(segment, inputs)
    if isinstance(found, Refused):
        yield found
        return
    space = replace(found.space, rows=min(found.space.rows, max_relevant_row_count(found.space, device)))
    two_kernels_us = math.inf
    if can_split_rows_and_columns(segment) and device.launches_early:
        two_kernels_us = two_kernels_time(space, device)
    for rank in count():
        ranked = nth_mapping(INNER_OUTER, space, rank, device)
        if ranked is None:
            break
        time, m = ranked
        if tie_threshold(two_kernels_us, device) < time:
            yield Refused(f"two kernels should take {two_kernels_us:.1f} us, one {time:.1f}")
            return
        params = params_of(found, m, device)
        if not isinstance(params, Refused):
            yield params
    yield Refused(f"a row of {space.length} elements does not fit on chip")


def params_of(found: SizedInnerOuter, m: InnerOuterMapping, device: DeviceInfo) -> InnerOuterParams | Refused:
    """The parameters of a mapping; refused where the extents of a row cannot be bounded."""
    space, elements = found.space, m.threads * m.vector
    across = m.threads
    if m.exchange == SUMS:
        # Rows need all accesses: then only the last one has a test.
        bounds = found.bounds(elements * m.batch, least=elements * (m.batch - 1) + 1)
        across = columns_of_block(space.length, m)
    else:
        bounds = found.bounds(
            elements * m.batch * m.sharing, 0 if m.rows_per_iteration < space.rows else m.rows_per_iteration
        )
    if isinstance(bounds, Refused):
        return bounds
    distribution = (
        OverCluster(m.blocks, m.sharing)
        if m.exchange == CLUSTER
        else RowsOverGrid(m.blocks, m.resident)
        if m.exchange == SUMS
        else ColumnsOverGrid(m.sharing)
    )
    return InnerOuterParams(
        order=found.rows.order,
        reference=found.inner_outer.reference.name,
        distribution=distribution,
        across=across,
        along=m.threads // across,
        batch=m.batch,
        vector=m.vector,
        vectorized=found.vectorized if m.vector > 1 else (),
        rows_per_block=m.rows_per_block,
        rows=m.rows,
        prefetch=m.prefetch,
        extent_ranges=bounds,
        in_shared=found.read if m.in_shared else (),
        reasons=Reasons(lambda: inner_outer_reasons(as_told(space), device)),
    )


@lru_cache(maxsize=256)
def can_split_rows_and_columns(segment: Fusion) -> bool:
    """Whether rows and columns can be kernels of their own that need nothing of each other. It follows from the structure."""
    return bool(independent_outputs(segment))
