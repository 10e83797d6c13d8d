"""Normalisations along the fastest dim: a row is read once and held in registers until it is written.

Rows that leave a block alone on its processor, or that need a cluster, lie in shared memory instead (`rows_in_shared`).

Loops, with K the kept dims, R the reduced ones, and constants v, tx, B, ty:

    K/ty -> grid_x, ty -> block_y, R/(v*tx*B*C) = 1, C -> grid_y, B unrolled, tx -> block_x, v -> vector

Copies of the row tensors live outside the loop over B: each thread issues B loads of v elements before it uses the first,
and holds [B][v] registers. The schedule asks for R <= v*tx*B*C, which makes the loop around C one iteration. A row within a
warp needs no block barrier; a row too long for a block is shared by the C blocks of a cluster, which reduce through each
other's shared memory. Where what the stages compute would not fit beside the row, it is computed again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from fuser.ir.device_info import DeviceInfo
from fuser.ir.enums import SchedulerType
from fuser.ir.fusion import ExpSum, Fusion
from fuser.ir.schedule import ScheduleBuilder
from fuser.schedule.analysis.alignment import ACCESS
from fuser.schedule.analysis.reduced_dims import accepts_reductions
from fuser.schedule.analysis.rows import Rows, find_rows
from fuser.schedule.analysis.stages import as_defined, stage_levels
from fuser.schedule.cost.few_persistent_rows import few_persistent_rows
from fuser.schedule.cost.peeled_rows import LEAST_BYTES, LEAST_BYTES_BESIDE, choose_peeled_shape, peeled_params
from fuser.schedule.cost.persistent_rows import (
    has_statistics,
    kept_bytes,
    persistent_rows,
    stages_on_chip,
)
from fuser.schedule.cost.row_shapes import (
    BYTES_PER_THREAD,
    MOST_CUT,
    REGISTERS_FOR_ADDRESSES,
    REGISTERS_FOR_DOUBLES,
    RowShape,
    choose_row_shape,
    co_resident_row_shape,
)
from fuser.schedule.cost.rows_in_shared import REGISTERS as SHARED_REGISTERS
from fuser.schedule.cost.rows_in_shared import choose_shared_shape, params_in_shared
from fuser.schedule.cost.rows_over_grid import (
    LEAST_ELEMENTS,
    GridShape,
    Room,
    Row,
    choose_grid_shape,
    is_worth_it,
    near_time,
)
from fuser.schedule.neighbours import with_neighbours
from fuser.schedule.params import Accepted, InnerPersistentParams, Params, ParamsClass, Refused, SegmentInputs
from fuser.schedule.schedulers.row_loops import schedule_rows

REGISTERS_FOR_GROUP = 16
"""Registers of a thread beside those of `row_shapes` where blocks meet through device memory: without them rows of Float that
fill 128 registers spill."""
REGISTERS_FOR_SUMS, MOVING_DOUBLES = 32, 0.7
"""All of that for sums of Doubles alone, with no statistics or exponentials of them, and what is on its way of a byte that is
loaded (rms_norm f64 8x128256: 52 registers with four accesses, 79 with eight; add_rms_norm 46 with two, 56 with three)."""
REGISTERS_FOR_FLOATS = 20
"""As many more where results are Floats, and the blocks meet through device memory."""
REGISTERS_OF_CUT = 8
"""Of a thread for each tensor that is read from any address on: the gradient of layer_norm f32 9x50257 takes 78, not 48."""


class InnerPersistentScheduler:
    """Accepts segments whose full-size data is needed by more than one stage; proposes for rows that fit in registers."""

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
        rows = find_rows(segment, inputs, MOST_INSIDE)
        if isinstance(rows, Refused):
            return rows
        if rows.inside > 1:
            return self._side_by_side(segment, rows, inputs, device)
        at_once = _co_resident_shape(segment, rows, device)
        near = self._near(segment, rows, inputs, device, at_once)
        if at_once is not None and isinstance(near, InnerPersistentParams):
            return near
        wide = self._over_grid(segment, rows, near, inputs, device)
        return near if wide is None else wide

    def _side_by_side(
        self, segment: Fusion, found: Rows, inputs: SegmentInputs, device: DeviceInfo
    ) -> InnerPersistentParams | Refused:
        """Parameters for rows whose elements lie side by side, such as three channels that come last: accesses by element, all
        rows at once, each over a cluster. That is one exchange on chip, where blocks that share all rows meet in memory."""
        few = few_persistent_rows(segment, found, Refused("any other"), device)
        if few is None or few.cluster == 1 or found.accesses.vector > 1 or found.accesses.misaligned:
            return Refused("the fastest dim is not reduced")
        return self._near(segment, found, inputs, device, _co_resident_shape(segment, found, device))

    def propose_near(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused:
        """The same without groups of the grid: a row in a block or a cluster."""
        rows = find_rows(segment, inputs)
        if isinstance(rows, Refused):
            return rows
        return self._near(segment, rows, inputs, device, _co_resident_shape(segment, rows, device))

    def _near(
        self, segment: Fusion, found: Rows, inputs: SegmentInputs, device: DeviceInfo, shaped: RowShape | None
    ) -> InnerPersistentParams | Refused:
        """A row in a block or a cluster. `shaped`: of rows that are all worked on at once."""
        length, rows, reads, accesses = found.length, found.rows, found.reads, found.accesses
        vector, loaded = accesses.vector, found.loaded
        narrowest = min(r.tensor.dtype.itemsize for r in reads)
        inputs_only = one_pass = False
        sums_exponentials = any(isinstance(e, ExpSum) for e in segment.tensor_exprs)
        per_element = kept_bytes(segment)
        cut, spread = found.cut, found.length + found.cut
        wanted = BYTES_PER_THREAD // 2 if accesses.misaligned else BYTES_PER_THREAD
        shape = choose_row_shape(
            spread, rows, vector, per_element, loaded, narrowest, device, is_cut=cut > 0, wanted=wanted
        )
        if isinstance(shape, Refused) and kept_bytes(segment, inputs_only=True) < per_element:
            inputs_only = True
            per_element = kept_bytes(segment, inputs_only=True)
            shape = choose_row_shape(
                spread, rows, vector, per_element, loaded, narrowest, device, is_cut=cut > 0, wanted=wanted
            )
        few = few_persistent_rows(segment, found, shape, device)
        if few is not None:
            in_flight = few.threads * few.batch * vector * loaded
            shape = RowShape(few.threads, few.batch, 1, few.registers, in_flight, few.cluster)
            one_pass = few.one_pass or (few.cluster > 1 and has_statistics(segment))
            inputs_only, per_element = False, kept_bytes(segment, one_pass=one_pass)
        exchanges = stages_on_chip(segment) - 1
        if shaped is not None:
            shape, inputs_only, per_element = shaped, False, kept_bytes(segment)
        is_few = few is not None or shaped is not None
        in_shared = found.placed_anywhere(device)
        is_crowded = isinstance(shape, Refused) or shape.is_crowded(
            vector, loaded, per_element, is_double=narrowest > 4
        )
        shared_bytes = sum(r.tensor.dtype.itemsize for r in found.along if r not in reads)
        # Doubles are short of arithmetic, not of registers: they go there only from blocks that share a row anyway.
        is_shared = isinstance(shape, Refused) or shape.cluster > 1
        least = LEAST_BYTES_BESIDE if shared_bytes else LEAST_BYTES
        # Registers keep exponentials of Double, fifty instructions each (H200: softmax f64 3000x3072 44.2 us, 57.6 in
        # shared memory).
        if narrowest > 4 and sums_exponentials and not accesses.misaligned and not is_few:
            is_crowded = is_crowded and (is_shared or inputs_only)
        is_long = is_crowded or (cut > 0 and length * loaded >= least)
        is_cut = accesses.misaligned and (is_shared or (is_long and narrowest <= 4))
        # Elements of four bytes and more are copied asynchronously one by one, wherever they begin.
        narrow = {r.name for r in reads if r.tensor.dtype.itemsize < 4}
        funnel_shifted = tuple(n for n in in_shared if n in narrow and n not in accesses.in_phase)
        if in_shared and is_cut and not is_few:
            joined = has_statistics(segment)
            lying = choose_peeled_shape(
                spread,
                rows,
                vector,
                loaded,
                shared_bytes,
                1 if joined else exchanges,
                narrowest,
                device,
                is_funnel_shifted=bool(funnel_shifted),
            )
            if lying is not None:
                bounds = found.bounds(segment, inputs, lying.threads * lying.batch * lying.cluster * vector - cut)
                if not isinstance(bounds, Refused):
                    once = sums_exponentials and lying.cluster > 1 and _is_narrow(segment)
                    return peeled_params(
                        lying,
                        found.order,
                        accesses,
                        bounds,
                        in_shared,
                        funnel_shifted,
                        length,
                        one_pass=joined or once,
                    )
        if in_shared and is_crowded and not is_few and not accesses.misaligned:
            placed = choose_shared_shape(length, vector, loaded, exchanges, device, reads_beside=shared_bytes > 0)
            if placed is not None:
                capacity = placed.threads * placed.batch * placed.cluster * vector
                bounds = found.bounds(segment, inputs, capacity)
                if not isinstance(bounds, Refused):
                    # One pass takes registers, and saves an exchange during which no other block of an SM loads; of
                    # statistics one over shared memory, too, which takes twice as many accesses where those are half as
                    # wide (H200: layer_norm bf16 857x128256 beside Floats 168 us, 157; f16 484x128256 80.4, 81.8).
                    is_narrow = vector * narrowest < ACCESS
                    joins = is_narrow and has_statistics(segment)
                    return params_in_shared(
                        placed,
                        found.order,
                        vector,
                        accesses.vectorized,
                        bounds,
                        in_shared,
                        length,
                        one_pass=joins or (sums_exponentials and placed.resident == 1),
                    )
        if sums_exponentials and is_shared:
            # Blocks that wait for one another had better do so once.
            one_pass = True
            per_element = kept_bytes(segment, inputs_only=inputs_only, one_pass=True)
            shape = shaped or choose_row_shape(
                spread, rows, vector, per_element, loaded, narrowest, device, is_cut=cut > 0, wanted=wanted
            )
        if isinstance(shape, Refused):
            return shape
        # All accesses of a thread but the last are inside the row, for whatever length the kernel serves.
        least = 1 if cut or shape.cluster > 1 else shape.threads * (shape.batch - 1) * vector + 1
        bounds = found.bounds(segment, inputs, shape.threads * shape.batch * shape.cluster * vector - cut, least)
        if isinstance(bounds, Refused):
            return bounds
        return InnerPersistentParams(
            found.order,
            shape.threads,
            shape.rows,
            shape.batch,
            vector,
            accesses.vectorized,
            bounds,
            shape.cluster,
            inputs_only,
            misaligned=accesses.misaligned,
            aligned_to=accesses.aligned_to,
            one_pass=one_pass,
            reasons=(
                f"a row of {length} elements is {-(-spread // vector)} accesses of {vector}: {shape.batch} for each of "
                f"{shape.threads} threads, {shape.rows} rows a block, {shape.cluster} blocks a row",
                f"{per_element} bytes kept per element: about {shape.registers} registers a thread, "
                f"{shape.in_flight} bytes in flight per SM",
            ),
        )

    def _over_grid(
        self,
        segment: Fusion,
        found: Rows,
        near: InnerPersistentParams | Refused,
        inputs: SegmentInputs,
        device: DeviceInfo,
    ) -> InnerPersistentParams | None:
        """Parameters for rows over groups of the grid, where those should be faster."""
        if found.length < LEAST_ELEMENTS:
            return None
        if (
            isinstance(near, InnerPersistentParams)
            and near.cluster == 1
            and found.rows * 2 > device.sm_count * near.rows
        ):
            return None
        accesses, vector = found.accesses, found.accesses.vector
        exponentials = any(isinstance(e, ExpSum) for e in segment.tensor_exprs)
        is_double = any(t.dtype.itemsize > 4 for t in (*segment.input_tensors, *segment.output_tensors))
        if (
            isinstance(near, InnerPersistentParams)
            and exponentials
            and is_double
            and not near.in_shared
            and found.rows * near.cluster > device.sm_count
        ):
            # They keep exponentials of Double, which groups compute again (H200: softmax f64 68x16384 11.7 to 14.8 us, 18.0).
            return None
        # Of many rows clusters are faster (H200: layer_norm f16 484x128256 83.2 us, over groups in one pass 97.9).
        signals_once = found.rows * FEW_BLOCKS <= device.sm_count and has_statistics(segment)
        one_pass = exponentials or signals_once
        exchanges = 1 if one_pass else stages_on_chip(segment) - 1
        row = Row(found.length + found.cut, vector, found.moved, exchanges, is_double, accesses.misaligned)
        in_shared = () if found.is_single else found.placed(device)
        best: tuple[GridShape, bool, tuple[str, ...]] | None = None
        asked: set[Room] = set()
        for inputs_only, placed in ((False, ()), (True, ()), (True, in_shared)):
            room = room_of(
                segment,
                found,
                is_double,
                inputs_only=inputs_only,
                one_pass=one_pass,
                in_shared=bool(placed),
                shared_registers=PIECE_REGISTERS + (REGISTERS_FOR_DOUBLES if is_double else 0),
            )
            if room in asked:
                continue
            asked.add(room)
            shape = choose_grid_shape(row, found.rows, room, device, may_wait=isinstance(near, Refused))
            if shape is not None and (best is None or shape.time < 0.95 * best[0].time):
                best = shape, inputs_only, placed
        if best is None:
            return None
        shape, inputs_only, placed = best
        others = ""
        if isinstance(near, InnerPersistentParams):
            room = room_of(
                segment,
                found,
                is_double,
                inputs_only=near.inputs_only,
                one_pass=near.one_pass,
                in_shared=bool(near.in_shared),
            )
            time = near_time(row, found.rows, near.cluster, near.threads, near.batch, room, device)
            if not is_worth_it(shape, time, device):
                return None
            few = few_persistent_rows(segment, found, Refused("any other"), device)
            if few is not None and (few.threads, few.batch, few.cluster) == (near.threads, near.batch, near.cluster):
                time = min(time, few.time)
                if not is_worth_it(shape, time, device):
                    return None
            others = f", {time:.1f} over {near.cluster} blocks"
        capacity = shape.threads * shape.batch * shape.sharing * vector - found.cut
        bounds = found.bounds(segment, inputs, capacity, parts=False)
        if isinstance(bounds, Refused):
            return None
        return InnerPersistentParams(
            found.order,
            shape.threads,
            1,
            shape.batch,
            vector,
            accesses.vectorized,
            bounds,
            shape.sharing,
            inputs_only,
            placed,
            shape.groups,
            accesses.misaligned,
            accesses.aligned_to,
            one_pass,
            shape.resident,
            reasons=(
                f"a row of {found.length} elements lies over a group of {shape.sharing} blocks of the grid, {shape.threads} "
                f"threads with {shape.batch} accesses of {vector} each; {shape.groups} groups go over {found.rows} rows",
                f"about {shape.time:.1f} us{others}",
            ),
        )

    def candidates(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Iterable[Params]:
        """See Scheduler."""
        return with_neighbours(self, segment, inputs, device)

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        """See Scheduler."""
        assert isinstance(params, InnerPersistentParams)
        return schedule_rows(segment, params)


def _co_resident_shape(segment: Fusion, found: Rows, device: DeviceInfo) -> RowShape | None:
    """The shape of rows that are all worked on at once; None for others."""
    if has_statistics(segment):
        return None
    accesses = found.accesses
    sums_exponentials = any(isinstance(e, ExpSum) for e in segment.tensor_exprs)
    exchanges = 1 if sums_exponentials else stages_on_chip(segment) - 1
    floats = REGISTERS_FOR_FLOATS if any(t.dtype.itemsize == 4 for t in segment.output_tensors) else 0
    return co_resident_row_shape(
        found.length + found.cut,
        found.rows,
        accesses.vector,
        kept_bytes(segment),
        found.loaded,
        found.moved,
        exchanges,
        min(r.tensor.dtype.itemsize for r in found.reads),
        device,
        floats + REGISTERS_OF_CUT * len(found.reads) if accesses.misaligned else 0,
    )


def _is_narrow(segment: Fusion) -> bool:
    """Whether all results are of 16 bits: sums of exponentials in one pass are as good as they show there."""
    return all(t.dtype.itemsize <= 2 for t in segment.output_tensors)


def room_of(
    segment: Fusion,
    found: Rows,
    is_double: bool,
    *,
    inputs_only: bool,
    one_pass: bool,
    in_shared: bool,
    shared_registers: int = SHARED_REGISTERS,
) -> Room:
    """What a thread may hold of a row. `shared_registers`: what it takes where the row lies in shared memory."""
    doubles = REGISTERS_FOR_DOUBLES if is_double else 0
    if in_shared:
        return Room(True, found.loaded, shared_registers, MOST_IN_SHARED)
    held = kept_bytes(segment, inputs_only=inputs_only, one_pass=one_pass)
    sums_only = not has_statistics(segment) and not any(isinstance(e, ExpSum) for e in segment.tensor_exprs)
    if is_double and sums_only and not found.cut and found.accesses.vector > 1:
        return Room(False, held + math.ceil(MOVING_DOUBLES * found.loaded), REGISTERS_FOR_SUMS, MOST_IN_REGISTERS)
    floats = REGISTERS_FOR_FLOATS if any(t.dtype.itemsize == 4 for t in segment.output_tensors) else 0
    registers = REGISTERS_FOR_ADDRESSES + REGISTERS_FOR_GROUP + doubles + floats + found.accesses.vector
    return Room(False, held, registers, MOST_CUT if found.cut else MOST_IN_REGISTERS)


MOST_INSIDE = 4
"""Rows that may lie side by side: each takes all of the memory's sectors that any of them has an element of."""

MOST_IN_REGISTERS, MOST_IN_SHARED = 32, 16
"""Accesses of a thread of a group; in shared memory each is a piece that is waited for by itself."""

FEW_BLOCKS = 4
"""Blocks of a row, or more, where groups of the grid tell statistics once (H200: layer_norm bf16 9x50257 9.4 us, so 7.7)."""


PIECE_REGISTERS = 48
"""Registers of a thread that goes over its pieces: with 40, one that writes a row of Float spills."""
