"""Enumerations that the public surface and the IR share (members exist even where support comes later)."""

from __future__ import annotations

import re
from enum import Enum
from keyword import iskeyword

from fuser.ir.ops.dtypes import attach_entries
from fuser.ir.ops.named_enums import Named


class ParallelType(Enum, metaclass=Named):
    """What a loop axis becomes: devices, blockIdx, threadIdx, or a kind of loop."""

    mesh_x = 0
    mesh_y = 1
    mesh_z = 2
    grid_x = 3
    grid_y = 4
    grid_z = 5
    block_z = 6
    block_y = 7
    block_x = 8
    mma = 9
    serial = 10
    tma = 11
    unroll = 12
    unswitch = 13
    vectorize = 14
    stream = 15

    __hash__ = object.__hash__

    @staticmethod
    def spelled(value: object) -> ParallelType | None:
        """CUDA's names of blockIdx.x and threadIdx.x, and nvFuser's."""
        found = re.fullmatch(r"(blockidx|threadidx|bid|tid)[._]?([xyz])", value) if isinstance(value, str) else None
        if found is None:
            return None
        return ParallelType[f"{'grid' if found[1].startswith('b') else 'block'}_{found[2]}"]

    def __repr__(self) -> str:
        return f"ParallelType.{self.name}"

    @property
    def is_grid(self) -> bool:
        """True for blockIdx axes."""
        return self in GRID_TYPES

    @property
    def is_block(self) -> bool:
        """True for threadIdx axes."""
        return self in BLOCK_TYPES

    @property
    def is_thread(self) -> bool:
        """True for blockIdx and threadIdx axes: the loop is replaced by parallel workers."""
        return self in THREAD_TYPES

    @property
    def is_mesh(self) -> bool:
        return self in (ParallelType.mesh_x, ParallelType.mesh_y, ParallelType.mesh_z)


GRID_TYPES = (ParallelType.grid_x, ParallelType.grid_y, ParallelType.grid_z)
BLOCK_TYPES = (ParallelType.block_x, ParallelType.block_y, ParallelType.block_z)
THREAD_TYPES = GRID_TYPES + BLOCK_TYPES


class MemoryType(Enum, metaclass=Named):
    """Where a tensor lives."""

    local = 0
    shared = 1
    # `global` is a keyword, so the member is made below under that very name.
    vars()["global"] = 2
    tensor = 3
    symmetric = 4

    def __repr__(self) -> str:
        return f"MemoryType[{self.name!r}]" if iskeyword(self.name) else f"MemoryType.{self.name}"


GLOBAL_MEMORY: MemoryType = MemoryType["global"]


class LoadStoreOpType(Enum, metaclass=Named):
    """How a copy is carried out."""

    set = 0
    load_matrix = 1
    cp_async = 2
    tma = 3

    def __repr__(self) -> str:
        return f"LoadStoreOpType.{self.name}"


class CacheOp(Enum, metaclass=Named):
    """Cache hint of an access to device memory."""

    unspecified = 0
    all_levels = 1
    streaming = 2
    # `global` is a keyword here too: ld.global.cg, cached in L2 only.
    vars()["global"] = 3
    evict_last = 4

    def __repr__(self) -> str:
        return f"CacheOp[{self.name!r}]" if iskeyword(self.name) else f"CacheOp.{self.name}"


class IdMappingMode(Enum, metaclass=Named):
    """Which relation makes two iteration domains the same."""

    exact = 0
    almost_exact = 1
    broadcast = 2
    permissive = 3
    loop = 4


class SchedulerType(Enum, metaclass=Named):
    """Which scheduler made (or shall make) a schedule."""

    none = 0
    no_op = 1
    pointwise = 2
    matmul = 3
    reduction = 4
    inner_persistent = 5
    inner_outer_persistent = 6
    outer_persistent = 7
    transpose = 8
    expr_eval = 9
    resize = 10
    scan = 11
    chained_reduction = 12
    thread_reduction = 13

    def __repr__(self) -> str:
        return f"SchedulerType.{self.name}"


class CommunicatorBackend(Enum, metaclass=Named):
    """Library that carries collectives between GPUs."""

    nccl = 0
    ucc = 1
    cuda = 2


class MatmulTilingStrategy(Enum, metaclass=Named):
    """How output tiles are handed to blocks."""

    one_tile_per_cta = 0
    distribute_tiles_across_sms = 1
    distribute_stages_across_sms = 2


class MatmulBufferingLoopLevel(Enum, metaclass=Named):
    """Level at which operand buffers are kept."""

    cta_tiles = 0
    warp_tiles = 1


class MatmulCircularBufferingStrategy(Enum, metaclass=Named):
    """Who issues the loads of a circular buffer."""

    pipelined = 0
    warp_specialized = 1


class MatmulTileRasterizationOrder(Enum, metaclass=Named):
    """Order in which output tiles are walked."""

    column_major = 0
    row_major = 1


class MmaMacroArch(Enum, metaclass=Named):
    """Architecture of a matrix instruction."""

    no_mma = 0
    volta = 1
    turing = 2
    ampere = 3
    hopper = 4
    blackwell_1cta = 5
    blackwell_2cta = 6


for _enum, _docs in (
    (
        ParallelType,
        {
            "grid_x": "blockIdx.x",
            "grid_y": "blockIdx.y",
            "grid_z": "blockIdx.z",
            "block_x": "threadIdx.x",
            "block_y": "threadIdx.y",
            "block_z": "threadIdx.z",
            "serial": "a loop",
            "unroll": "an unrolled loop",
            "unswitch": "an unrolled loop with one hoisted bounds test",
            "vectorize": "one vector access",
        },
    ),
    (
        MemoryType,
        {"local": "registers", "shared": "shared by a block", "global": "device memory"},
    ),
    (
        LoadStoreOpType,
        {"set": "plain", "load_matrix": "ldmatrix", "cp_async": "sm80 async copy", "tma": "bulk tensor copy"},
    ),
    (
        CacheOp,
        {"all_levels": "ca", "streaming": "cs", "global": "cg", "evict_last": "reads only: what is read leaves last"},
    ),
    (IdMappingMode, {}),
    (SchedulerType, {}),
    (CommunicatorBackend, {}),
    (MatmulTilingStrategy, {}),
    (MatmulBufferingLoopLevel, {}),
    (MatmulCircularBufferingStrategy, {}),
    (MatmulTileRasterizationOrder, {}),
    (MmaMacroArch, {}),
):
    attach_entries(_enum, _docs)
