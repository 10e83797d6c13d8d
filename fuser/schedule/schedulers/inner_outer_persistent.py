"""Backward normalisations: statistics of rows and sums of columns of one iteration space, in one pass over the data.

One cooperative kernel of as many blocks as the device holds. Each block goes through its share of the rows; a row is read
once, held in registers while its statistics are reduced over the block, and its results are written. Sums over the rows grow in
registers meanwhile. At the end every block joins what its rows side by side have and leaves it in device memory, the grid
waits, and all blocks together add up the parts, each for some columns, a thread many at a time: they come from a far cache.

`inner_outer_row_split` has these loops. Few rows, and rows that no block holds, are distributed over blocks in other ways
(`inner_outer_column_split`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

from fuser.ir.device_info import DeviceInfo
from fuser.ir.enums import SchedulerType
from fuser.ir.fusion import Fusion, Scan
from fuser.ir.schedule import ScheduleBuilder
from fuser.schedule.analysis.independent_outputs import independent_outputs
from fuser.schedule.analysis.inner_outer import inner_outer_of, row_orientations
from fuser.schedule.analysis.reads import input_reads
from fuser.schedule.analysis.reference import resolving_graph
from fuser.schedule.cost.gradient_column_split import choose_gradient_cluster, choose_gradient_grid, two_kernel_time
from fuser.schedule.cost.gradient_row_split import RowSplitShape, choose_row_split, columns_of_block
from fuser.schedule.cost.gradient_row_split_shared import SharedMemoryRowShape, choose_shared_memory_shape
from fuser.schedule.cost.gradient_sizes import GradientSizes, find_gradient_sizes, kept_sizes, sum_registers
from fuser.schedule.params import InnerOuterParams, Params, ParamsClass
from fuser.schedule.scheduler import Accepted, Refused, SegmentInputs
from fuser.schedule.schedulers.inner_outer_column_split import ColumnSplitSchedule
from fuser.schedule.schedulers.inner_outer_row_split import RowSplitSchedule
from fuser.schedule.tuning_candidates import with_neighbours

SURE = 0.97
"""The part of the time of rows in registers that rows in shared memory are expected to take at most."""
LEAST_APART = 200
"""Elements of rows that are worth kernels of their own; shorter ones lie side by side (f64 100003x64 52 us; 155)."""


class InnerOuterPersistentScheduler:
    """Accepts segments that reduce some dims of an iteration space and, apart from that, all its others."""

    type = SchedulerType.inner_outer_persistent
    params: ParamsClass = InnerOuterParams

    def accepts(self, segment: Fusion) -> Accepted | Refused:
        """See Scheduler."""
        scanned = next((e for e in segment.tensor_exprs if isinstance(e, Scan)), None)
        if scanned is not None:
            return Refused(f"{scanned.input.name} is scanned")
        displaced = next((r for r in input_reads(segment) if r.name != r.tensor.name), None)
        if displaced is not None:
            # Rows are copied at their own indices.
            return Refused(f"{displaced.tensor.name} is read at other indices")
        graph = resolving_graph(segment)
        choices = row_orientations(segment, graph)
        if not choices:
            refused = inner_outer_of(segment, graph, first=True)
            assert isinstance(refused, Refused)
            return refused
        if len(choices) == 1:
            # What `propose` asks for any sizes.
            kept_sizes(segment, graph, choices[0])
            sum_registers(segment, choices[0])
        return Accepted()

    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused:
        """See Scheduler."""
        found = find_gradient_sizes(segment, inputs)
        if isinstance(found, Refused):
            return found
        apart = math.inf
        if found.length >= LEAST_APART and can_split_rows_and_columns(segment) and device.launches_early:
            apart = two_kernel_time(found.length, found.rows, found.vector, found.cost, device)
        near = self._in_cluster(found, inputs, device, apart) or self._in_rows(found, inputs, device, apart)
        return near if isinstance(near, InnerOuterParams) else self._in_group(found, inputs, device, apart) or near

    def _in_group(
        self, found: GradientSizes, inputs: SegmentInputs, device: DeviceInfo, apart: float
    ) -> InnerOuterParams | None:
        """Parameters for rows over all blocks of the grid, where that should be faster than two kernels."""
        shape = choose_gradient_grid(found.length, found.rows, found.vector, found.cost, device, apart)
        if shape is None:
            return None
        capacity = shape.threads * shape.batch * shape.vector * shape.sharing
        bounds = found.bounds(inputs, capacity, shape.rows if shape.trips == 1 else 0)
        if isinstance(bounds, Refused):
            return None
        return InnerOuterParams(
            found.order,
            found.inner_outer.reference.name,
            shape.threads,
            1,
            shape.batch,
            shape.vector,
            found.vectorized if shape.vector > 1 else (),
            1,
            shape.rows,
            1,
            1,
            shape.ahead,
            bounds,
            shape.sharing,
            in_shared=found.read if shape.in_shared else (),
            reasons=(
                f"a row of {found.length} elements lies over {shape.sharing} blocks of the grid, {shape.threads} threads with "
                f"{shape.batch} accesses of {shape.vector} each",
                f"{shape.trips} trips over {shape.rows} of {found.rows} rows: about {shape.time_us:.1f} us, {shape.registers} "
                "registers",
            ),
        )

    def _in_cluster(
        self, found: GradientSizes, inputs: SegmentInputs, device: DeviceInfo, apart: float
    ) -> InnerOuterParams | None:
        """Parameters for one cluster that has all rows, where that should be faster than anything else, as two kernels are."""
        shape = choose_gradient_cluster(found.length, found.rows, found.vector, found.cost, device, apart)
        if shape is None:
            return None
        capacity = shape.threads * shape.batch * shape.vector * shape.sharing
        bounds = found.bounds(inputs, capacity, shape.blocks * shape.side_by_side * shape.rows)
        if isinstance(bounds, Refused):
            return None
        what = "columns" if shape.sharing > 1 else "rows"
        return InnerOuterParams(
            found.order,
            found.inner_outer.reference.name,
            shape.threads,
            1,
            shape.batch,
            shape.vector,
            found.vectorized if shape.vector > 1 else (),
            shape.side_by_side,
            shape.rows,
            shape.blocks,
            1,
            False,
            bounds,
            shape.sharing,
            True,
            reasons=(
                f"{found.rows} rows of {found.length} elements are held at once by {shape.sharing * shape.blocks} blocks of a "
                f"cluster, which have {what} of their own",
                f"{shape.side_by_side} rows side by side, {shape.threads} threads with {shape.batch} accesses of "
                f"{shape.vector} each, {shape.rows} rows a thread: about {shape.time_us:.1f} us, {shape.registers} registers",
            ),
        )

    def _in_rows(
        self, found: GradientSizes, inputs: SegmentInputs, device: DeviceInfo, apart: float
    ) -> InnerOuterParams | Refused:
        """Parameters for blocks that have rows of their own, where that should be faster than two kernels."""
        length, rows, vector, cost = found.length, found.rows, found.vector, found.cost
        shape = choose_row_split(length, rows, vector, cost, device)
        time = math.inf if isinstance(shape, Refused) else shape.time_us
        shared = choose_shared_memory_shape(found, device)
        if shared is not None and shared.time_us < SURE * time:
            return self._in_shared(found, inputs, shared, device, apart)
        if isinstance(shape, Refused):
            return shape
        if apart < time:
            return Refused(f"two kernels should take {apart:.1f} us, one {time:.1f}")
        bounds = _bounds(found, inputs, shape.threads * vector, shape.batch)
        if isinstance(bounds, Refused):
            return bounds
        across = columns_of_block(length, shape)
        trip = shape.side_by_side * shape.rows
        trips = -(-rows // (shape.blocks * trip))
        return InnerOuterParams(
            found.order,
            found.inner_outer.reference.name,
            across,
            shape.threads // across,
            shape.batch,
            vector,
            found.vectorized,
            shape.side_by_side,
            shape.rows,
            shape.blocks,
            shape.per_sm,
            shape.ahead and trips > 1,
            bounds,
            reasons=(
                f"a row of {length} elements is {-(-length // vector)} accesses of {vector}: {shape.batch} for each of "
                f"{shape.threads} threads",
                f"{shape.blocks} blocks, {shape.per_sm} on each SM: about {time:.1f} us, {shape.registers} registers a thread, "
                f"{shape.in_flight} bytes in flight per SM",
                f"every block makes {trips} trips over {trip} rows, and leaves {cost.sums} sums of {length} columns",
            ),
        )

    def _in_shared(
        self, found: GradientSizes, inputs: SegmentInputs, shape: SharedMemoryRowShape, device: DeviceInfo, apart: float
    ) -> InnerOuterParams | Refused:
        """Parameters for blocks that have rows of their own in shared memory, where two kernels should take longer."""
        if apart < shape.time_us:
            return Refused(f"two kernels should take {apart:.1f} us, one {shape.time_us:.1f}")
        bounds = _bounds(found, inputs, shape.threads * shape.vector, shape.batch)
        if isinstance(bounds, Refused):
            return bounds
        blocks = min(device.sm_count, found.rows)
        across = columns_of_block(
            found.length, RowSplitShape(shape.threads, shape.batch, 1, 1, 1, blocks, shape.registers, 0)
        )
        return InnerOuterParams(
            found.order,
            found.inner_outer.reference.name,
            across,
            shape.threads // across,
            shape.batch,
            shape.vector,
            found.vectorized if shape.vector > 1 else (),
            1,
            1,
            blocks,
            1,
            blocks < found.rows,
            bounds,
            in_shared=found.read,
            reasons=(
                f"{shape.threads} threads for a row of {found.length} elements, {shape.batch} accesses of {shape.vector} each",
                f"{blocks} blocks, with two rows each in shared memory: about {shape.time_us:.1f} us, {shape.registers} "
                "registers",
            ),
        )

    def candidates(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Iterable[Params]:
        """See Scheduler."""
        return with_neighbours(self, segment, inputs, device)

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        """See Scheduler."""
        assert isinstance(params, InnerOuterParams)
        if params.sharing > 1 or params.in_cluster:
            return ColumnSplitSchedule(segment, params.order, params.reference).schedule(params)
        return RowSplitSchedule(segment, params.order, params.reference).schedule(params)


def _bounds(
    found: GradientSizes, inputs: SegmentInputs, elements: int, batch: int
) -> tuple[tuple[str, int, int, int], ...] | Refused:
    """The extents of rows that need all of `batch` accesses to so many elements: then only the last one has a test."""
    return found.bounds(inputs, elements * batch, least=elements * (batch - 1) + 1)


@lru_cache(maxsize=256)
def can_split_rows_and_columns(segment: Fusion) -> bool:
    """Whether rows and columns can be kernels of their own that need nothing of each other. It follows from the structure."""
    return bool(independent_outputs(segment))
