"""The machine model: all that planning may know of a GPU, as plain data. Planning stages see it instead of a device.

Three kinds of numbers, each defined here and nowhere else:

    capacities   what there is room for: SMs, threads, registers, shared memory, caches, clusters    `DeviceInfo`
    rates        what is done in a unit of time, at full load                                        `Rates`
    latencies    how long one of a thing takes by itself                                             `Latencies`

What is the same on every GPU from compute capability 7.0 on is a constant of this module.

Sources. `H200` is as measured on one (driver 580); a figure that was not is marked. The other presets take capacities and
arithmetic rates from NVIDIA's CUDA programming guide ("Compute Capabilities", "Arithmetic Instructions") and data sheets, from
memory and not measured. What is not published follows from the H200 by ratio: the part of the nominal memory rate that a copy
reaches, the part of the boost clock that is held, latencies on the chip by the clock.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace

from fuser.errors import DefinitionValueError
from fuser.missing_names import like_names
from fuser.records import record
from fuser.tracebacks import short_traceback

INSTRUCTION_BYTES = 16
"""Of one machine instruction, from compute capability 7.0 on."""

WARP = 32
"""Threads that execute an instruction together."""

SECTOR_BYTES = 32
"""What the caches read and write as one."""

BURST_BYTES = 64
"""What device memory reads and writes as one: two sectors of L2, which a miss of either asks for (H200: statistics of bf16
32x512x64x64 in groups of 16 channels, runs of one sector, take 64.0 us: twice what their bytes do)."""

LINE_BYTES = 128
"""Of a line of the caches: four sectors, and 4 bytes for each thread of a warp."""

REGISTER_BYTES = 4

REGISTER_STEP = 8
"""Registers of a thread are given out in multiples of this."""

SM_PARTITIONS = 4
"""Parts of an SM, each with a scheduler, a quarter of the registers and every fourth warp of a block."""


@record
class Rates:
    """What a GPU does at full load. Of an H200 by default.

    clock_ghz               of an SM, held under load (H200: 1.98 at most)
    sm_bytes_per_ns         what one SM reads and writes of device memory where most others are idle
    l2_bytes_per_ns         what all SMs read of L2 (published for an H100)
    shared_bytes_per_cycle  of shared memory, an SM: 32 banks of 4 bytes
    issue                   instructions of warps that an SM starts in a cycle, one of each partition
    fp32, fp64, int32       lanes of additions and multiplications, an SM and cycle (CUDA programming guide, as are the next)
    special                 of reciprocals, roots, exp2, log2, sine
    conversions             from and to 32-bit types; `conversions_64`: from and to 64-bit ones
    """

    clock_ghz: float = 1.75
    sm_bytes_per_ns: float = 60.0
    l2_bytes_per_ns: float = 5500.0
    shared_bytes_per_cycle: float = 128.0
    issue: float = 4.0
    fp32: float = 128.0
    fp64: float = 64.0
    int32: float = 64.0
    special: float = 16.0
    conversions: float = 64.0
    conversions_64: float = 16.0


@record
class Latencies:
    """How long one of a thing takes, in nanoseconds. Of an H200 by default.

    dram_ns           a load of device memory that is otherwise idle
    dram_loaded_ns    the same while memory is busy: with this rate and latency, what must be on its way to keep it so
    l2_ns, shared_ns  a load that L2 answers, and one of shared memory (published for an H100: 273 and 30 cycles)
    shuffle_ns        an exchange of the lanes of a warp (25 cycles, likewise)
    block_barrier_ns  of the threads of a block
    cluster_start_ns  until all blocks of a cluster are there, beside one block
    cluster_ns        of the blocks of a cluster, that tell each other something through shared memory; `cluster_block_ns`: what
                      each block adds
    block_hand_out_ns  until an SM is handed the next of many blocks; `cluster_hand_out_ns`: of blocks of clusters
    grid_ns           the same of blocks of the whole grid, through device memory; `grid_block_ns`: what each block adds
    atomic_ns         an atomic operation of one of many blocks at one address, behind that of another
    launch_ns         a kernel that does nothing, from its start to its end
    launch_behind_ns  from the end of a kernel to the start of the one behind it, if that was launched early
    late_launch_ns    what that takes more where launches are not early
    """

    dram_ns: float = 450.0
    dram_loaded_ns: float = 1400.0
    l2_ns: float = 156.0
    shared_ns: float = 17.0
    shuffle_ns: float = 14.0
    block_barrier_ns: float = 20.0
    cluster_start_ns: float = 600.0
    cluster_ns: float = 300.0
    cluster_block_ns: float = 30.0
    block_hand_out_ns: float = 12.0
    cluster_hand_out_ns: float = 150.0
    grid_ns: float = 1400.0
    grid_block_ns: float = 6.0
    atomic_ns: float = 4.0
    launch_ns: float = 3300.0
    launch_behind_ns: float = 1000.0
    late_launch_ns: float = 1000.0


@record
class DeviceInfo:
    """One GPU as planning knows it. Sizes in bytes, `arch` as NVRTC takes it (`sm_90a`).

    l1_bytes            of an SM: what shared memory and the first-level cache share
    shared_reserved     of an SM's shared memory, what the driver takes for each block on it
    memory_bytes_per_ns what a long copy reads and writes
    cluster_share       (blocks of a cluster, part of the SMs on which such clusters find room): a cluster lies within one part
                        of the device. With a block an SM, an H200 holds 39 clusters of three blocks, 30 of four, 22 of five,
                        17 of six, 15 of seven or eight and seven of ten to sixteen
    """

    name: str
    arch: str
    sm_count: int
    max_threads_per_block: int = 1024
    max_threads_per_sm: int = 2048
    max_blocks_per_sm: int = 32
    registers_per_sm: int = 65536
    registers_per_thread: int = 255
    shared_per_block: int = 49152
    shared_per_block_optin: int = 232448
    shared_per_sm: int = 233472
    l2_bytes: int = 60 * 2**20
    memory_bytes_per_ns: float = 4275.0
    warp_size: int = WARP
    max_access_bytes: int = 16
    max_cluster: int = 16
    instruction_cache_bytes: int = 131072
    l1_bytes: int = 262144
    shared_reserved: int = 1024
    cluster_share: tuple[tuple[int, float], ...] = (
        (2, 1.0),
        (3, 0.89),
        (4, 0.91),
        (5, 0.84),
        (6, 0.78),
        (7, 0.8),
        (8, 0.91),
        (16, 0.85),
    )
    rates: Rates = Rates()
    latencies: Latencies = Latencies()

    @property
    def compute_capability(self) -> tuple[int, int]:
        """(major, minor), read off `arch`."""
        digits = self.arch.removeprefix("sm_").rstrip("af")
        return int(digits[:-1]), int(digits[-1])

    @property
    def copies_to_shared(self) -> bool:
        """Whether copies from device memory to shared memory pass no registers (cp.async)."""
        return self.compute_capability >= (8, 0)

    @property
    def launches_early(self) -> bool:
        """Whether a kernel may be launched before the one ahead of it ends (programmatic dependent launch)."""
        return self.compute_capability >= (9, 0)

    @property
    def memory_rate(self) -> float:
        """Bytes a microsecond that a long copy reads and writes."""
        return self.memory_bytes_per_ns * 1e3

    @property
    def sm_rate(self) -> float:
        """Bytes a microsecond of one SM where most others are idle."""
        return self.rates.sm_bytes_per_ns * 1e3

    @property
    def cycle(self) -> float:
        """Microseconds of a cycle of an SM."""
        return 1e-3 / self.rates.clock_ghz

    @property
    def issue_time(self) -> float:
        """Microseconds for an instruction of a warp where its SM starts as many as it can."""
        return self.cycle / self.rates.issue

    @property
    def thread_time(self) -> float:
        """Microseconds of an SM for one instruction of one thread, where it starts as many of warps as it can."""
        return self.issue_time / WARP

    @property
    def fp64_time(self) -> float:
        """Microseconds of an SM for one operation of one thread on Doubles."""
        return self.cycle / self.rates.fp64

    @property
    def first_to_last(self) -> float:
        """Microseconds from the first load of a block to its last store, without what lies between: memory is waited for
        twice."""
        return 2 * self.latencies.dram_ns / 1e3

    @property
    def cluster_start(self) -> float:
        """Microseconds until the blocks of a cluster are all there."""
        return self.latencies.cluster_start_ns / 1e3

    @property
    def launch(self) -> float:
        """Microseconds of a kernel that does nothing."""
        return self.latencies.launch_ns / 1e3

    @property
    def launch_behind(self) -> float:
        """Microseconds from the end of a kernel to the start of the next one (H200, `benchmarks.chain_time`: ten kernels of a
        row each take 12.4, launched late 21.3)."""
        late = 0.0 if self.launches_early else self.latencies.late_launch_ns
        return (self.latencies.launch_behind_ns + late) / 1e3

    @property
    def block_exchange(self) -> float:
        """Microseconds until the threads of a block know what all have: lanes join, warps leave it in shared memory, all meet,
        and lanes join what warps have left."""
        times, steps = self.latencies, (WARP - 1).bit_length()
        return (2 * steps * times.shuffle_ns + 2 * times.shared_ns + times.block_barrier_ns) / 1e3

    def cluster_exchange(self, blocks: int) -> float:
        """Microseconds of the same between the blocks of a cluster, beside that of a block."""
        return (self.latencies.cluster_ns + self.latencies.cluster_block_ns * blocks) / 1e3

    def grid_exchange(self, blocks: int) -> float:
        """Microseconds of the same between blocks of the grid, through device memory."""
        return (self.latencies.grid_ns + self.latencies.grid_block_ns * blocks) / 1e3

    @property
    def bytes_in_flight(self) -> float:
        """Bytes that an SM must have on their way for memory to be busy: latency times bandwidth (Little's law)."""
        return self.memory_bytes_per_ns * self.latencies.dram_loaded_ns / self.sm_count

    def clustered(self, blocks: int) -> float:
        """The part of the SMs that clusters of so many blocks use; those of a size that is not listed as the next larger."""
        return 1.0 if blocks == 1 else next((share for size, share in self.cluster_share if size >= blocks), 0.0)

    def clusters(self, blocks: int) -> int:
        """How many clusters of so many blocks, with an SM for each, are there at once; 0 if there are no such clusters."""
        return math.floor(self.sm_count * self.clustered(blocks) / blocks) if blocks <= self.max_cluster else 0

    def clusters_by_residency(self, blocks: int, most: int) -> tuple[int, ...]:
        """How many clusters of so many blocks are there at once, for each number of blocks that an SM has room for: 0, 1, ...
        to `most`. Two blocks of a cluster on each SM, and it takes half of the SMs: room is as for clusters of so many."""
        places = [0] * (most + 1)
        alone = [0, *(self.clusters(-(-blocks // on_one)) for on_one in range(1, most + 1))]
        for room in range(1, most + 1):
            places[room] = max(alone[on_one] + places[room - on_one] for on_one in range(1, room + 1))
        return tuple(places) if blocks <= self.max_cluster else (0,) * (most + 1)

    def with_speed(self, factor: float) -> DeviceInfo:
        """A device with the same capacities that does all in `factor` times less time: what is best on one is on the other."""
        rates, latencies = self.rates, self.latencies
        return replace(
            self,
            memory_bytes_per_ns=self.memory_bytes_per_ns * factor,
            rates=replace(
                rates,
                clock_ghz=rates.clock_ghz * factor,
                sm_bytes_per_ns=rates.sm_bytes_per_ns * factor,
                l2_bytes_per_ns=rates.l2_bytes_per_ns * factor,
            ),
            latencies=Latencies(*(getattr(latencies, f.name) / factor for f in fields(latencies))),
        )

    @staticmethod
    @short_traceback
    def preset(name: str) -> DeviceInfo:
        """A known device: `H200`, `H100`, or `sm_75` ... `sm_120a`.

        Raises DefinitionValueError for a name that is not known, listing those that are.
        """
        found = _PRESETS.get(name)
        if found is None:
            close = like_names(str(name), [known.lower() for known in _PRESETS])[:1]
            meant = "".join(f"did you mean {known!r}? " for known in _PRESETS if known.lower() in close)
            raise DefinitionValueError(f"no device preset {name!r}; {meant}known: {', '.join(_PRESETS)}")
        return found

    @staticmethod
    def like(arch: str) -> DeviceInfo:
        """The preset whose rates and latencies describe `arch` best: its own, else that of the newest architecture before it,
        else the oldest one."""
        known = {preset.compute_capability: preset for name, preset in _PRESETS.items() if name.startswith("sm_")}
        capability = replace(H200, arch=arch).compute_capability
        return known[max((c for c in known if c <= capability), default=min(known))]


# A call that lacks limits is told of the presets.
DeviceInfo.__init__ = short_traceback(DeviceInfo.__init__)


def largest_cluster(major: int) -> int:
    """Blocks of the largest cluster by the major number of the compute capability; above 8 a kernel has to opt in."""
    return 1 if major < 9 else 16 if major < 12 else 8


H200 = DeviceInfo("H200", "sm_90a", 132)

REACHED_OF_MEMORY = 0.89
"""Part of the nominal bandwidth that a long copy reaches (H200: 4.275 of 4.8 TB/s)."""

HELD_OF_CLOCK = 0.884
"""Part of the boost clock that is held under load (H200: 1.75 of 1.98 GHz)."""


def _preset(
    arch: str,
    *,
    sm_count: int,
    shared_kib: int,
    l1_kib: int,
    threads_per_sm: int,
    blocks_per_sm: int,
    l2_mib: int,
    nominal_bandwidth: float,
    boost_ghz: float,
    fp32: float,
    fp64: float,
    int32: float = 64.0,
    conversions: float = 64.0,
    conversions_64: float = 16.0,
) -> DeviceInfo:
    """By data sheets: KiB of an SM that may be shared memory and of what this shares with the first-level cache, the nominal
    bytes a nanosecond, the boost clock, lanes an SM and cycle. The rest by ratio to an H200."""
    major = int(arch.removeprefix("sm_").rstrip("af")) // 10
    clock = HELD_OF_CLOCK * boost_ghz
    memory_rate = nominal_bandwidth * REACHED_OF_MEMORY
    # On the chip as many cycles as an H200 takes; memory and the host are as far away as there.
    slower = H200.rates.clock_ghz / clock
    known = H200.latencies
    reserved = 1024 if major >= 8 else 0
    return replace(
        H200,
        name=arch,
        arch=arch,
        sm_count=sm_count,
        shared_per_block_optin=shared_kib * 1024 - reserved,
        shared_per_sm=shared_kib * 1024,
        max_threads_per_sm=threads_per_sm,
        max_blocks_per_sm=blocks_per_sm,
        l2_bytes=l2_mib * 2**20,
        memory_bytes_per_ns=memory_rate,
        max_access_bytes=32 if major >= 10 else 16,
        max_cluster=largest_cluster(major),
        l1_bytes=l1_kib * 1024,
        shared_reserved=reserved,
        cluster_share=tuple((n, share) for n, share in H200.cluster_share if n <= largest_cluster(major)),
        rates=replace(
            H200.rates,
            clock_ghz=clock,
            sm_bytes_per_ns=H200.rates.sm_bytes_per_ns / slower,
            l2_bytes_per_ns=H200.rates.l2_bytes_per_ns
            * max(sm_count / slower / H200.sm_count, memory_rate / H200.memory_bytes_per_ns),
            fp32=fp32,
            fp64=fp64,
            int32=int32,
            conversions=conversions,
            conversions_64=conversions_64,
        ),
        latencies=replace(
            known,
            l2_ns=known.l2_ns * slower,
            shared_ns=known.shared_ns * slower,
            shuffle_ns=known.shuffle_ns * slower,
            block_barrier_ns=known.block_barrier_ns * slower,
            cluster_start_ns=known.cluster_start_ns * slower,
            cluster_ns=known.cluster_ns * slower,
            cluster_block_ns=known.cluster_block_ns * slower,
            block_hand_out_ns=known.block_hand_out_ns * slower,
            cluster_hand_out_ns=known.cluster_hand_out_ns * slower,
        ),
    )


_T4 = _preset(
    "sm_75",
    sm_count=40,
    shared_kib=64,
    l1_kib=96,
    threads_per_sm=1024,
    blocks_per_sm=16,
    l2_mib=4,
    nominal_bandwidth=320.0,
    boost_ghz=1.59,
    fp32=64,
    fp64=2,
    conversions=16,
    conversions_64=2,
)
_A100 = _preset(
    "sm_80",
    sm_count=108,
    shared_kib=164,
    l1_kib=192,
    threads_per_sm=2048,
    blocks_per_sm=32,
    l2_mib=40,
    nominal_bandwidth=2039.0,
    boost_ghz=1.41,
    fp32=64,
    fp64=32,
    conversions=16,
)
_RTX_3090 = _preset(
    "sm_86",
    sm_count=84,
    shared_kib=100,
    l1_kib=128,
    threads_per_sm=1536,
    blocks_per_sm=16,
    l2_mib=6,
    nominal_bandwidth=936.0,
    boost_ghz=1.70,
    fp32=128,
    fp64=2,
    conversions=16,
    conversions_64=2,
)
_RTX_4090 = _preset(
    "sm_89",
    sm_count=128,
    shared_kib=100,
    l1_kib=128,
    threads_per_sm=1536,
    blocks_per_sm=24,
    l2_mib=72,
    nominal_bandwidth=1008.0,
    boost_ghz=2.52,
    fp32=128,
    fp64=2,
    conversions=16,
    conversions_64=2,
)
_B200 = _preset(
    "sm_100",
    sm_count=148,
    shared_kib=228,
    l1_kib=256,
    threads_per_sm=2048,
    blocks_per_sm=32,
    l2_mib=126,
    nominal_bandwidth=8000.0,
    boost_ghz=1.965,
    fp32=128,
    fp64=64,
)
_RTX_5090 = _preset(
    "sm_120",
    sm_count=170,
    shared_kib=100,
    l1_kib=128,
    threads_per_sm=1536,
    blocks_per_sm=24,
    l2_mib=96,
    nominal_bandwidth=1792.0,
    boost_ghz=2.41,
    fp32=128,
    fp64=2,
    int32=128,
    conversions_64=2,
)

_PRESETS: dict[str, DeviceInfo] = {
    "H200": H200,
    "H100": replace(H200, name="H100", l2_bytes=50 * 2**20, memory_bytes_per_ns=3350.0 * REACHED_OF_MEMORY),
    "sm_75": _T4,
    "sm_80": _A100,
    "sm_86": _RTX_3090,
    "sm_89": _RTX_4090,
    "sm_90": replace(H200, name="sm_90", arch="sm_90"),
    "sm_90a": replace(H200, name="sm_90a"),
    "sm_100": _B200,
    "sm_100a": replace(_B200, name="sm_100a", arch="sm_100a"),
    "sm_120": _RTX_5090,
    "sm_120a": replace(_RTX_5090, name="sm_120a", arch="sm_120a"),
}
