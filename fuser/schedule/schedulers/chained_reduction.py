"""Reductions of the results of reductions of rows or columns: the mean of the losses of rows, the norm of column norms.

The loops are those that the reduction or a persistent scheduler makes for the rows alone (`head`). The chained reductions use
the same loops over rows, so that every block accumulates the values of its own rows, in order. Each block stores its partial
result in global memory, and the last block to finish combines them in the order of the blocks. With many rows, `blocks` blocks
loop over all of them (a grid-stride loop), which bounds the number of partial results:

    K/ty/G serial, G -> grid_x, ty -> block_y, then the loops along a row
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import replace

from fuser.ir.device_info import DeviceInfo
from fuser.ir.fusion.fusion import (
    Expr,
    ExtentOp,
    Fusion,
    Output,
    ScalarOp,
    Tensor,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.iteration_graph import Group
from fuser.ir.fusion.live_order import exprs_below
from fuser.ir.fusion.memoized import memoized
from fuser.ir.ops.enums import SchedulerType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.schedule.analysis.data_passes import chained_reductions
from fuser.schedule.analysis.reduced_dims import accepts_reductions, reduced_groups, reductions_of, reference_reduction
from fuser.schedule.analysis.reduced_space import reduced_space
from fuser.schedule.analysis.reference import input_dims, refusal_of_space, solid_groups
from fuser.schedule.cost.outer_persistent_mappings import column_blocks
from fuser.schedule.params import (
    ChainedParams,
    ExtentRange,
    InnerPersistentParams,
    OuterPersistentParams,
    Params,
    ParamsClass,
    ReductionParams,
)
from fuser.schedule.reasons import Reasons
from fuser.schedule.scheduler import Accepted, Refused, Scheduler, SegmentInputs
from fuser.schedule.schedulers.inner_persistent import InnerPersistentScheduler, schedule_rows
from fuser.schedule.schedulers.outer_persistent import (
    OuterPersistentScheduler,
    PlacedColumns,
    propose_columns,
    propose_in_registers,
    schedule_in_registers,
)
from fuser.schedule.schedulers.reduction import ReductionScheduler, schedule_reduction
from fuser.schedule.transforms.loops import require_extents

MAX_BLOCKS = 8192
"""Blocks whose results the last one combines: 32 for each of 256 threads, half of which are loaded at once."""
STREAMED_BLOCKS = 2048
"""Blocks that go over streamed rows where each has several: fewer partial results, and fewer ends of blocks."""
ITERATIONS = 4
"""Rows of such a block, at least: else the last blocks would be long on their own."""
FEW_BLOCKS = (4, 32, 64, 128, 256, 1024)
"""Bounds of blocks that kernels are compiled for: the last one has as many posts a thread as it needs, and no workspace."""
LONG = 65536
"""Elements that take a block longer than a second kernel."""


class ChainedReductionScheduler(Scheduler):
    """Accepts reductions of rows, and of what those leave over all rows; proposes where blocks have rows of their own."""

    type = SchedulerType.chained_reduction
    params: ParamsClass = ChainedParams

    def accepts(self, segment: Fusion) -> Accepted | Refused:
        if len(reductions_of(segment)) < 2:
            return Refused("no reduction is chained to others")
        graph = segment.resolved_dims
        chained = chained_reductions(segment.tensor_exprs, graph)
        if not chained:
            return Refused("no reduction is chained to others")
        answer = accepts_reductions(_row_segment(segment))
        if isinstance(answer, Refused):
            return answer
        reference = reference_reduction(segment)
        kept = solid_groups(graph, reference) - reduced_groups(graph, reference)
        for e in chained:
            result = tensor_outputs(e)[0]
            if solid_groups(graph, result) != kept or any(not graph.group(d).is_broadcast for d in result.visible):
                return Refused(f"{result.name} is not reduced over all the rows of {reference.name}")
        for t in _chained_tensors(segment, chained):
            if any(not graph.group(d).is_broadcast for d in t.visible):
                return Refused(f"{t.name} has rows or columns and needs a result of all rows")
        apart = next(
            (t for t in _read_after_chained(segment, chained) if kept.isdisjoint(solid_groups(graph, t))), None
        )
        if apart is not None:
            return Refused(f"{apart.name} is needed after all rows, and reduced from what each row needs")
        refused = refusal_of_space(segment, reference)
        if refused is not None:
            return refused
        _has_persistent_rows(segment)  # what `propose` asks for any sizes
        return Accepted()

    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused:
        rows = _row_reduction_params(_row_segment(segment), inputs, device, is_kept=_has_persistent_rows(segment))
        if isinstance(rows, (Refused, ChainedParams)):
            return rows
        return _chained_to(rows, segment, inputs)

    def others(
        self, proposed: Params | Refused, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo
    ) -> Iterator[Params | Refused]:
        if not isinstance(proposed, ChainedParams):
            return
        rows = proposed.rows
        of_rows = (InnerPersistentScheduler(), OuterPersistentScheduler(), ReductionScheduler())
        scheduler = next(s for s in of_rows if isinstance(rows, s.params))
        for other in scheduler.others(rows, _row_segment(segment), inputs, device):
            if isinstance(other, OuterPersistentParams):
                yield replace(proposed, rows=other)
            elif isinstance(other, ReductionParams) or (isinstance(other, InnerPersistentParams) and not other.groups):
                yield _chained_to(other, segment, inputs)
        if proposed.blocks and not proposed.extent_ranges:
            yield from (replace(proposed, blocks=blocks) for blocks in (proposed.blocks * 2, proposed.blocks // 2))

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        assert isinstance(params, ChainedParams)
        match params.rows:
            case InnerPersistentParams():
                builder = schedule_rows(segment, params.rows, params.blocks)
            case OuterPersistentParams():
                builder = schedule_in_registers(segment, params.rows, params.blocks)
            case ReductionParams():
                builder = schedule_reduction(segment, params.rows, params.blocks)
        require_extents(builder, params.extent_ranges)
        return builder


def _chained_to(
    rows: ReductionParams | InnerPersistentParams, segment: Fusion, inputs: SegmentInputs
) -> ChainedParams | Refused:
    """Loops for the reductions of rows, with as many blocks as leave few results to join."""
    space = reduced_space(segment, inputs)
    if space.kept < 1:
        return Refused("there is no row")
    if isinstance(rows, InnerPersistentParams):
        rows_per_block = rows.rows
    else:
        rows_per_block = rows.block_iterate * (1 if rows.inner else rows.vector)
    found = -(-space.kept // rows_per_block)
    if isinstance(rows, ReductionParams) and rows.grid_reduce > 1 and not rows.cluster:
        if space.length * rows_per_block > LONG:
            return Refused("several blocks share a result of a row")
        rows = replace(rows, grid_reduce=1)
    is_streamed = isinstance(rows, ReductionParams) and rows.inner and found >= ITERATIONS * STREAMED_BLOCKS
    blocks = STREAMED_BLOCKS if is_streamed else MAX_BLOCKS if found > MAX_BLOCKS else 0
    trips = -(-found // max(blocks, 1))
    reason = f"{found} blocks of {rows_per_block} results" if blocks == 0 else f"{blocks} blocks of {trips} iterations"
    bounds: tuple[ExtentRange, ...] = ()
    most = next((n for n in FEW_BLOCKS if found <= n), 0)
    if blocks == 0 and most:
        bounds = _row_count_ranges(segment, space.sizes.keys() - space.reduced, most * rows_per_block)
    words = f"{reason}: the last one joins what all of them have"
    return ChainedParams(rows, blocks, bounds, reasons=Reasons(lambda: (*rows.reasons, words)))


def _with_persistent_columns(placed: PlacedColumns, device: DeviceInfo) -> ChainedParams:
    """Where blocks hold what is reduced of some columns: as many blocks as are co-resident go over all of these.

    Each of them leaves one result to join, and the last one has all of those to read.
    """
    count = column_blocks(placed.space, placed.mapping)
    trips = -(-count // (device.sm_count * placed.mapping.resident))
    blocks = -(-count // trips) if trips > 1 else 0
    words = f"{blocks or count} blocks of {trips} iterations: the last one combines the results of all"
    return ChainedParams(placed.params, blocks, reasons=Reasons(lambda: (*placed.params.reasons, words)))


def _row_reduction_params(
    head: Fusion, inputs: SegmentInputs, device: DeviceInfo, *, is_kept: bool
) -> ReductionParams | InnerPersistentParams | ChainedParams | Refused:
    """Loops for the row reductions alone, as the first scheduler makes them that takes them; all parameters of columns that
    blocks hold in registers."""
    if is_kept:
        found = InnerPersistentScheduler().propose(head, inputs, device, may_use_block_groups=False)
        if isinstance(found, InnerPersistentParams):
            return found
    loops = ReductionScheduler().propose_block_reduction(head, inputs, device)
    if loops.inner:
        return loops
    propose = propose_columns if is_kept else propose_in_registers
    found = propose(head, loops, inputs, device, ending=device.latencies.atomic_ns / 1e3)
    if isinstance(found, OuterPersistentParams):
        return Refused("the blocks share all rows of their columns")
    return loops if isinstance(found, Refused) else _with_persistent_columns(found, device)


def _row_count_ranges(segment: Fusion, kept: Collection[Group], most: int) -> tuple[ExtentRange, ...]:
    """What to ask of the extent that the number of rows follows from, so that they are `most` at most; nothing where several
    extents are unknown."""
    unknown = [g for g in kept if not g.extent.is_const]
    if len(unknown) != 1:
        return ()
    others = math.prod(g.extent.value for g in kept if g.extent.is_const)
    places = input_dims(segment).get(unknown[0], ())
    return tuple((name, i, 1, most // others) for name, i, _ in places[:1])


@memoized
def _has_persistent_rows(segment: Fusion) -> bool:
    """Whether rows are better kept than read once per data pass."""
    return isinstance(InnerPersistentScheduler().accepts(_row_segment(segment)), Accepted)


@memoized
def _row_segment(segment: Fusion) -> Fusion:
    """What the segment computes of each row by itself."""
    return before_chained_reductions(segment, chained_reductions(segment.tensor_exprs, segment.resolved_dims))


def before_chained_reductions(segment: Fusion, chained: Collection[Expr]) -> Fusion:
    """The segment without its chained reductions and what follows them: what those reduce is an output."""
    last = set(chained)
    late = set(_chained_tensors(segment, chained))
    exprs = tuple(
        e
        for e in segment.exprs
        if e not in last and (isinstance(e, (ScalarOp, ExtentOp)) or late.isdisjoint(tensor_outputs(e)))
    )
    made = {t for e in exprs if not isinstance(e, (ScalarOp, ExtentOp)) for t in tensor_outputs(e)}
    outputs = [o for o in segment.outputs if o.tensor in made]
    shown = {o.tensor for o in outputs}
    passed = dict.fromkeys(t for e in chained for t in tensor_inputs(e) if t in made and t not in shown)
    return replace(segment, exprs=exprs, outputs=(*outputs, *map(Output, passed)))


def _chained_tensors(segment: Fusion, chained: Collection[Expr]) -> list[Tensor]:
    """What chained reductions give and what is computed from it, in order."""
    found: dict[Tensor, None] = {}
    for e in segment.tensor_exprs:
        if e in chained or any(t in found for t in tensor_inputs(e)):
            found.update(dict.fromkeys(tensor_outputs(e)))
    return list(found)


def _read_after_chained(segment: Fusion, chained: Collection[Expr]) -> Iterator[Tensor]:
    """Results of reductions of rows that are read after chained ones as well, and that share an operand with other exprs.

    One that lacks the dim of the rows is computed in none of their loops. It would need a loop of its own, and the operand to
    be kept for that.
    """
    late = set(_chained_tensors(segment, chained))
    behind = [e for e in segment.tensor_exprs if e not in chained and not late.isdisjoint(tensor_outputs(e))]
    for e in reductions_of(_row_segment(segment)):
        found = set(_chained_tensors(segment, (e,))) - late
        below = {*exprs_below(tensor_inputs(e), segment.definitions), e}
        operands = {t for x in segment.tensor_exprs if x in below for t in tensor_inputs(x) if t.visible}
        is_shared = any(not operands.isdisjoint(tensor_inputs(x)) for x in segment.tensor_exprs if x not in below)
        if is_shared and any(not found.isdisjoint(tensor_inputs(x)) for x in behind):
            yield tensor_outputs(e)[0]
