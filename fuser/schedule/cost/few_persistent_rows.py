"""Whether few persistent rows, all of them co-resident, are latency-bound and take another shape than many rows would."""

from __future__ import annotations

from fuser.ir.device_info import WARP, DeviceInfo
from fuser.ir.fusion import Fusion
from fuser.schedule.analysis.rows import Rows
from fuser.schedule.cost.latency_bound_rows import (
    LEAST_ALONE,
    LEAST_GAIN,
    LatencyBoundRows,
    LatencyBoundShape,
    choose_latency_bound_shape,
    is_exclusive,
    latency_bound_time,
)
from fuser.schedule.cost.persistent_rows import (
    has_statistics,
    kept_bytes,
    stages_on_chip,
)
from fuser.schedule.cost.row_shapes import REGISTERS_FOR_ADDRESSES, RowShape
from fuser.schedule.params import Refused


def _few_rows(segment: Fusion, found: Rows) -> LatencyBoundRows | None:
    """What the time of rows with statistics depends on, if all are on the device at once."""
    if not has_statistics(segment) or (found.cut and any(r.tensor.dtype.itemsize > 4 for r in found.reads)):
        return None
    # A group's weights, say, of which a cache serves all elements of a channel.
    partial = [r for r in found.along if not found.is_along_all(r)]
    return LatencyBoundRows(
        found.rows,
        found.length + found.cut,
        found.accesses.vector,
        found.moved - sum(r.tensor.dtype.itemsize for r in partial if r in found.reads),
        stages_on_chip(segment) - 1,
        is_searched=bool(partial),
        address=found.is_apart + 2 * found.accesses.misaligned,
        # A quarter of what lies beside rows is counted as moved.
        shared=sum(r.tensor.dtype.itemsize for r in found.along if r not in found.reads and r not in partial) * 3 // 4,
        is_cut=found.accesses.misaligned,
        loaded=sum(r.tensor.dtype.itemsize for r in found.along if r not in partial),
    )


def few_persistent_rows(
    segment: Fusion, found: Rows, shape: RowShape | Refused, device: DeviceInfo
) -> LatencyBoundShape | None:
    """A shape for few rows that should be faster than `shape`, which was chosen as for many."""
    few = _few_rows(segment, found)
    if few is None:
        return None
    best = choose_latency_bound_shape(few, kept_bytes(segment), REGISTERS_FOR_ADDRESSES, device)
    # A row that registers would hold badly goes to shared memory, which this does not judge: where all rows are there at once
    # it is slower (H200: layer_norm bf16 16x128256 10.9 us, in the registers of eight blocks 8.4; f16 61x50257 12.1 and 10.7).
    is_double = any(r.tensor.dtype.itemsize > 4 for r in found.reads)
    if (
        best is None
        or isinstance(shape, Refused)
        or shape.is_crowded(found.accesses.vector, found.loaded, kept_bytes(segment), is_double=is_double)
    ):
        return best
    time = latency_bound_time(few, shape.threads, shape.batch, shape.cluster, device)
    in_blocks = best.cluster == shape.cluster == 1 and best.threads > WARP
    is_known = in_blocks and is_exclusive(few, -(-found.rows // device.sm_count))
    return best if best.time < time - (LEAST_ALONE if is_known else LEAST_GAIN) * device.launch else None
