"""How long a kernel should take, from what its mapping asks of the machine: one formula for mappings of all kinds.

A *mapping* says which threads and blocks do what. Its *work* is what follows from that for a block, counted in things that any
GPU has: bytes, instructions, lines of a cache, steps that wait for one another. `estimate` turns work into microseconds by the
rates and latencies of `DeviceInfo`:

    memory     bytes of all blocks by the device's rate, those of the SM with most blocks by the rate of one, bytes that L2
               answers by its own
    issue      instructions of the warps of an SM, and blocks that it is handed
    lookup     lines that its first-level cache looks up
    latency    a block by itself, from its first load to its last store, as often as blocks follow one another in a place

The first three are *rates*: what limits them is shared by the blocks of an SM. Latency is hidden by other blocks: `resident` of
them are in different steps. The largest of the four decides, and the others hide behind it, not altogether: they are added as
powers. One latency is never hidden, that of the first block.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fuser.ir.device_info import DeviceInfo
from fuser.records import record

LIMITS_NORM = 3.0
"""Power in which limits are added: with one they would follow one another, with infinity all but the largest would be free."""

CLOSE = 1.03
"""Times so close to the least that estimates do not tell them apart."""

ROUNDING = 1e-8
"""Part of a time by which bounds are lower than what is proved: sums in another order differ by less, as do waves that are not
counted."""

OWN_TRANSFER = 0.33
"""Of the time that a block's own bytes take at its share of the device's rate, what belongs to its latency: while one block
alone on an SM computes, nothing is loaded."""


class Work(NamedTuple):
    """What a mapping asks of the machine. Of one block, where nothing else is said, in each of its `iterations`.

    blocks        of the grid
    resident      blocks that an SM holds at once
    warps         of a block
    moved         bytes that it reads from and writes to device memory
    instructions  that each warp issues
    lines         lines of the first-level cache that each warp looks up
    latency       microseconds that it takes by itself, if all that it asks for is free; exchanges are not counted
    iterations    how often a block begins again, with other data
    cluster       blocks of a cluster; 1: none
    cached        bytes that it reads from L2, beside those moved
    exchange      microseconds that its threads wait for one another, and blocks that share something
    epilogue_us   microseconds of a block behind its last iteration
    start         microseconds that the kernel takes once
    """

    blocks: int
    resident: int
    warps: int
    moved: float
    instructions: float
    lines: float
    latency: float
    iterations: int = 1
    cluster: int = 1
    cached: float = 0.0
    exchange: float = 0.0
    epilogue_us: float = 0.0
    start: float = 0.0


class LinearTime(NamedTuple):
    """`start + each * n` microseconds."""

    start: float
    each: float


class Limits(NamedTuple):
    """Microseconds that each limit would take alone.

    later_waves   the latencies of all waves of blocks but the first
    first_wave    the latency of a block, which nothing hides
    """

    memory: float
    issue: float
    lookup: float
    later_waves: float
    first_wave: float

    @property
    def total(self) -> float:
        """All together, without the launch."""
        limits = (
            self.memory**LIMITS_NORM
            + self.issue**LIMITS_NORM
            + self.lookup**LIMITS_NORM
            + self.later_waves**LIMITS_NORM
        )
        return self.first_wave + limits ** (1 / LIMITS_NORM)


@record
class Estimate:
    """Microseconds of a kernel: what limits would take alone, and all together.

    exchange   of the latency: what threads and blocks wait for one another
    tail       of all: what the last wave of blocks, or the SM with most of them, takes more than its share
    """

    memory: float
    issue: float
    latency: float
    exchange: float
    tail: float
    total: float

    def __str__(self) -> str:
        parts = ("memory", "issue", "latency", "exchange", "tail")
        return f"{self.total:.1f} us ({', '.join(f'{p} {getattr(self, p):.1f}' for p in parts)})"


def estimate(work: Work, device: DeviceInfo) -> Estimate:
    """How long it should take."""
    model = TimeModel(device)
    places = model.busy_sms(work)
    found = model.limits(work, places, *_last_waves(work, places))
    even = model.limits(work, places, work.blocks / places, max(1.0, work.blocks / places / work.resident))
    return Estimate(
        found.memory,
        max(found.issue, found.lookup),
        found.first_wave + found.later_waves,
        work.exchange,
        # Less than nothing by rounding.
        max(0.0, found.total - even.total),
        model.launch + found.total,
    )


def total_time(work: Work, device: DeviceInfo) -> float:
    """The microseconds of `estimate`: what mappings are ranked by."""
    return TimeModel(device).total(work)


def tie_threshold(time: float, device: DeviceInfo) -> float:
    """Up to which time estimates do not tell mappings from one that takes so long."""
    return device.launch + (time - device.launch) * CLOSE


class TimeModel:
    """The rates and latencies of a device that all estimates for it need; times in microseconds."""

    __slots__ = ("clustered", "cycle", "hand_out", "issue", "l2_rate", "launch", "memory_rate", "sm_count", "sm_rate")

    def __init__(self, device: DeviceInfo) -> None:
        rates, latencies = device.rates, device.latencies
        self.launch, self.cycle, self.sm_count, self.clustered = (
            device.launch,
            device.cycle,
            device.sm_count,
            device.clustered,
        )
        self.issue = self.cycle / rates.issue
        self.memory_rate, self.sm_rate, self.l2_rate = device.memory_rate, device.sm_rate, rates.l2_bytes_per_ns * 1e3
        # Until an SM is handed the next block, of a cluster or not.
        self.hand_out = latencies.block_hand_out_ns, latencies.cluster_hand_out_ns

    def total(self, work: Work) -> float:
        """What a launch takes."""
        places = self.busy_sms(work)
        return self.launch + self.limits(work, places, *_last_waves(work, places)).total

    def least(self, work: Work, waited: float) -> float:
        """What a launch takes at least, whatever number of blocks up to `resident` an SM holds.

        waited   of the latency of an iteration, what later ones may not have
        """
        # With other numbers of blocks an SM clusters may fill more of them, but no more than they use altogether.
        places = self.sm_count * self.clustered(work.cluster)
        per_sm, waves = _last_waves(work, places, whole_clusters=False)
        memory, issue, lookup, behind, first = self.limits(work, places, per_sm, waves)
        # A longer first iteration takes more: what it hides is no more than its latency.
        found = Limits(memory, issue, lookup, max(0.0, behind - waves * work.iterations * waited), first)
        return (self.launch + found.total) * (1 - ROUNDING)

    def lower_bound_by_blocks(self, work: Work, *, begin_again: bool = False) -> tuple[LinearTime, LinearTime]:
        """What a launch of any number of blocks of this work takes at least: what limits its rate behind the first block, and
        what limits the rate with all latencies, but for those of the first block.

        begin_again   the number is how often blocks begin, anew or with other data
        """
        places, trips = self.busy_sms(work), 1 if begin_again else work.iterations
        memory, issue, lookup = self._rates(work, trips, trips / places)
        each = work.latency + work.exchange
        behind = trips * (each + OWN_TRANSFER * work.moved / self.sm_rate)
        # A block that begins again is handed out once, and ends once.
        if not begin_again:
            issue += self._dispatch_time(1, work)
            behind += work.epilogue_us
        rates = memory**LIMITS_NORM + issue**LIMITS_NORM + lookup**LIMITS_NORM
        all_of_them = rates + (behind / (places * work.resident)) ** LIMITS_NORM
        start = self.launch + work.start
        # By Minkowski's inequality: the latencies of the first block are less than all by no more than they are.
        return (
            LinearTime((start + each + work.epilogue_us) * (1 - ROUNDING), rates ** (1 / LIMITS_NORM) * (1 - ROUNDING)),
            LinearTime(start * (1 - ROUNDING), all_of_them ** (1 / LIMITS_NORM) * (1 - ROUNDING)),
        )

    def limits(self, work: Work, places: float, per_sm: float, waves: float) -> Limits:
        """places    SMs that have blocks
        per_sm    blocks of the SM that has most of them
        """
        blocks, iterations, ending = work.blocks, work.iterations, work.epilogue_us
        memory, issue, lookup = self._rates(work, blocks * iterations, per_sm * iterations)
        issue += self._dispatch_time(blocks, work)
        each = work.latency + work.exchange
        share = min(self.memory_rate / min(blocks, self.sm_count), self.sm_rate)
        behind = waves * iterations * (each + OWN_TRANSFER * work.moved / share) + waves * ending - each - ending
        return Limits(memory, issue, lookup, behind, each + ending + work.start)

    def _rates(self, work: Work, begun: float, of_sm: float) -> tuple[float, float, float]:
        """The limits memory, issue and lookup where blocks begin so often, on all SMs and on that with most of them."""
        moved, warps = work.moved, of_sm * work.warps
        memory = max(
            begun * moved / self.memory_rate,
            of_sm * moved / self.sm_rate,
            begun * (work.cached + moved / 2) / self.l2_rate,
        )
        return memory, warps * work.instructions * self.issue, warps * work.lines * self.cycle

    def _dispatch_time(self, blocks: int, work: Work) -> float:
        """Until SMs are handed so many blocks."""
        return blocks / self.sm_count * self.hand_out[work.cluster > 1] / 1e3

    def busy_sms(self, work: Work) -> float:
        """SMs that have blocks: of the places for blocks as many as clusters fill."""
        if work.cluster == 1:
            return float(self.sm_count)
        places = int(float(self.sm_count) * self.clustered(work.cluster) * work.resident // work.cluster)
        return max(1, places) * work.cluster / work.resident


def _last_waves(work: Work, places: float, *, whole_clusters: bool = True) -> tuple[float, float]:
    """Blocks of the SM that is done last, and waves: of many the last one shows less."""
    per_sm = work.blocks / places
    waves = max(1.0, per_sm / work.resident)
    waves = math.ceil(waves - 1e-9) if waves < FEW_WAVES else waves
    # The last clusters begin where others ended, all blocks of theirs on few SMs, which they fill.
    if waves > 1 and work.cluster > 1 and whole_clusters:
        return waves * work.resident, waves
    return math.ceil(per_sm) if per_sm < FEW_WAVES else per_sm, waves


FEW_WAVES = 4
"""Waves of blocks, or blocks of an SM, up to which it shows that the last one is not full."""
