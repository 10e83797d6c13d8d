"""Whether few rows, all on the device at once, should lie in other blocks than those chosen as for many."""

from __future__ import annotations

from fuser.ir.device_info import DeviceInfo
from fuser.ir.fusion import Fusion
from fuser.schedule.few_rows import (
    LEAST_ALONE,
    LEAST_GAIN,
    WARP,
    FewRows,
    FewShape,
    choose_few_shape,
    few_time,
    fitting,
    is_alone,
)
from fuser.schedule.held_rows import adds_in_double, has_statistics, joins_statistics, kept_bytes, stages_on_chip
from fuser.schedule.params import InnerPersistentParams, Refused, SegmentInputs
from fuser.schedule.row_shapes import REGISTERS_FOR_ADDRESSES, RowShape
from fuser.schedule.rows import Rows


def _few_rows(segment: Fusion, found: Rows) -> FewRows | None:
    """What the time of rows with statistics depends on, if all are on the device at once."""
    if not has_statistics(segment) or (found.cut and any(r.tensor.dtype.itemsize > 4 for r in found.reads)):
        return None
    joined, exchanges = joins_statistics(segment), stages_on_chip(segment) - 1
    # A group's weights, say, of which a cache serves all elements of a channel.
    partial = [r for r in found.along if not found.is_along_all(r)]
    return FewRows(
        found.rows,
        found.length + found.cut,
        found.accesses.vector,
        found.moved - sum(r.tensor.dtype.itemsize for r in partial if r in found.reads),
        exchanges,
        1 if joined else exchanges,
        is_exact=not joined,
        is_searched=bool(partial),
        address=found.is_apart + 2 * found.accesses.misaligned,
        # A quarter of what lies beside rows is counted as moved.
        shared=sum(r.tensor.dtype.itemsize for r in found.along if r not in found.reads and r not in partial) * 3 // 4,
        is_cut=found.accesses.misaligned,
        # Not measured beside what all rows share; a group's weights are few.
        in_double=all(r in found.reads or r in partial for r in found.along) and adds_in_double(segment),
        loaded=sum(r.tensor.dtype.itemsize for r in found.along if r not in partial),
    )


def few_held_rows(segment: Fusion, found: Rows, shape: RowShape | Refused, device: DeviceInfo) -> FewShape | None:
    """A shape for few rows that should be faster than `shape`, which was chosen as for many."""
    few = _few_rows(segment, found)
    if few is None:
        return None
    # Not measured for 16 bits and Doubles.
    in_place = found.loaded if few.in_double and not found.is_single and found.placed(device) else 0
    best = choose_few_shape(few, kept_bytes(segment), REGISTERS_FOR_ADDRESSES, device, in_place)
    # A row that registers would hold badly goes to shared memory, which this does not judge: where all rows are there at once
    # it is slower (H200: layer_norm bf16 16x128256 10.9 us, in the registers of eight blocks 8.4; f16 61x50257 12.1 and 10.7).
    is_double = any(r.tensor.dtype.itemsize > 4 for r in found.reads)
    if (
        best is None
        or isinstance(shape, Refused)
        or shape.is_crowded(found.accesses.vector, found.loaded, kept_bytes(segment), is_double=is_double)
    ):
        return best
    time = few_time(few, shape.threads, shape.batch, shape.cluster, fitting(shape.cluster, device))
    in_blocks = best.cluster == shape.cluster == 1 and best.threads > WARP
    is_known = in_blocks and is_alone(few, -(-found.rows // device.sm_count))
    return best if best.time < time - (LEAST_ALONE if is_known else LEAST_GAIN) else None


def few_in_shared(
    segment: Fusion, found: Rows, few: FewShape, inputs: SegmentInputs, device: DeviceInfo, *, one_pass: bool
) -> InnerPersistentParams | Refused:
    """Parameters for few rows that lie in shared memory, all at once."""
    vector, accesses = found.accesses.vector, found.accesses
    bounds = found.bounds(segment, inputs, few.threads * few.batch * few.cluster * vector)
    if isinstance(bounds, Refused):
        return bounds
    return InnerPersistentParams(
        found.order,
        few.threads,
        1,
        few.batch,
        vector,
        accesses.vectorized,
        bounds,
        few.cluster,
        True,
        found.placed(device),
        one_pass=one_pass,
        alone=1 < few.cluster <= device.sm_count // found.rows,
        reasons=(
            f"all {found.rows} rows of {found.length} elements lie in shared memory at once, each in that of {few.cluster} "
            f"blocks of {few.threads} threads, {few.batch} accesses of {vector} each",
            f"about {few.time:.1f} us beside the launch",
        ),
    )
