"""Reductions, and normalisations in several passes: a block has some rows (or columns) and reads them once per data pass.

A *data pass* reads the full-size data once: it ends in reductions whose inputs depend on the same number of earlier
reductions, or in full-size outputs. Values that two data passes need are recomputed in each, so that only reduction results are
kept between data passes and rows may have any length (the loops: reduction_loops.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fuser.ir.device_info import DeviceInfo
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.integers.number_trace import as_told
from fuser.ir.ops.enums import SchedulerType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.schedule.analysis.reduced_dims import accepts_reductions
from fuser.schedule.cost.mapping_search import best_mapping
from fuser.schedule.cost.reduction_mappings import REDUCTIONS, ReductionMapping
from fuser.schedule.cost.reduction_space import SizedReduction, find_reduction
from fuser.schedule.params import Params, ParamsClass, ReductionParams
from fuser.schedule.reasons import Reasons
from fuser.schedule.scheduler import Accepted, Refused, Scheduler, SegmentInputs
from fuser.schedule.schedulers.reduction_loops import schedule_reduction
from fuser.schedule.schedulers.thread_reduction import is_thread_reduction_faster

# Columns that are read once leave the cache first where they would take more than this part of it (one in so many).
_CACHE_DIVISOR = 4
# And sums of everything that many blocks share this part.
_SHARED_SUM_DIVISOR = 8


def _evicts_first(found: SizedReduction, m: ReductionMapping, device: DeviceInfo) -> bool:
    """Whether what is read, once, should leave the cache first.

    Where blocks share long rows nothing was gained by it, but for sums of everything (H200: sum_all f64 803x7168, 46 MB,
    21.3 -> 19.2 us; bf16 352x16384, 11.5 MB, 9.7 both ways; f32 8192x8192 in blocks of many iterations 73.4 and 73.7).
    """
    space, moved = found.space, found.moved
    if not space.may_split or space.reuse > 1:
        return False
    if space.inner and m.sharing > 1:
        return space.kept == 1 and not m.cluster and moved > device.l2_bytes // _SHARED_SUM_DIVISOR
    if space.sector_misaligned and not space.inner:
        # A block reads sectors of which another one needs the rest (H200: relu_bwd bf16 96x1009x770 212 us streamed, 185 not).
        return False
    return moved > (device.l2_bytes if space.inner else device.l2_bytes // _CACHE_DIVISOR)


class ReductionScheduler(Scheduler):
    """Accepts segments whose reductions run over the same dims of one iteration space."""

    type = SchedulerType.reduction
    params: ParamsClass = ReductionParams

    def accepts(self, segment: Fusion) -> Accepted | Refused:
        return accepts_reductions(segment)

    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused:
        shared = self.propose_block_reduction(segment, inputs, device)
        if is_thread_reduction_faster(segment, inputs, device, shared.vector):
            return Refused("a thread has all that a result is reduced from")
        return shared

    def propose_block_reduction(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> ReductionParams:
        """What is proposed where threads share a reduction."""
        return _proposed(find_reduction(segment, inputs, device), device)

    def others(
        self, proposed: Params | Refused, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo
    ) -> Iterator[Params | Refused]:
        found = find_reduction(segment, inputs, device)
        yield _proposed(found, device)
        for _, m in REDUCTIONS.ranked(found.space, device)[1:]:
            yield _params(found, m, device, ())

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        assert isinstance(params, ReductionParams)
        return schedule_reduction(segment, params)


def _proposed(found: SizedReduction, device: DeviceInfo) -> ReductionParams:
    best = best_mapping(REDUCTIONS, found.space, device)
    assert best is not None
    return _params(found, best[1], device, Reasons(lambda: REDUCTIONS.reasons(as_told(found.space), device)))


def _params(found: SizedReduction, m: ReductionMapping, device: DeviceInfo, reasons: Sequence[str]) -> ReductionParams:
    return ReductionParams(
        found.order,
        found.space.inner,
        m.along,
        m.across,
        found.accesses.vector,
        found.accesses.vectorized,
        m.sharing,
        1 if m.unroll_outer else m.unroll,
        m.outer,
        m.unroll if m.unroll_outer else 1,
        found.run_dims,
        m.grid_along,
        access=found.accesses.access,
        cluster=m.cluster,
        streaming=_evicts_first(found, m, device),
        reasons=reasons,
    )
