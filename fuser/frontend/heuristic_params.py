"""Editable schedule parameters under nvFuser's names: plain data, converted by the schedulers that understand them.

Grammar
    params := HeuristicParams | PointwiseParams | ReductionParams | ScanParams | MatmulParams
    tile   := GemmTile(m, n, k)

All fields can be read and written; `scheduler_type` can only be read. Equality and hash look at every field.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

from fuser.errors import DefinitionAttributeError
from fuser.ir.ops.enums import (
    MatmulBufferingLoopLevel,
    MatmulCircularBufferingStrategy,
    MatmulTileRasterizationOrder,
    MatmulTilingStrategy,
    MmaMacroArch,
    ParallelType,
    SchedulerType,
)
from fuser.missing_names import like_names
from fuser.tracebacks import short_traceback

if TYPE_CHECKING:
    from fuser.compiler.compile_params import CompileParams
    from fuser.runtime.kernels.launch_params import LaunchParams


def _launch_params() -> LaunchParams:
    from fuser.runtime.kernels.launch_params import LaunchParams

    return LaunchParams()


def _compile_params() -> CompileParams:
    from fuser.compiler.compile_params import CompileParams

    return CompileParams()


@dataclass
class HeuristicParams:
    """What every scheduler's parameters have: launch constraints and compile settings."""

    lparams: LaunchParams = field(default_factory=_launch_params, repr=False, kw_only=True)
    cparams: CompileParams = field(default_factory=_compile_params, repr=False, kw_only=True)

    kind: ClassVar[SchedulerType] = SchedulerType.none

    @property
    def scheduler_type(self) -> SchedulerType:
        """The scheduler these parameters are for."""
        return self.kind

    if not TYPE_CHECKING:

        @short_traceback
        def __setattr__(self, name: str, value: Any) -> None:
            """Set a field. Raises DefinitionAttributeError for a name that is none."""
            names = [f.name for f in fields(self)]
            if name not in names and not hasattr(type(self), name):
                like = like_names(name, names)
                meant = f"did you mean {like[0]}?" if like else f"they are {', '.join(names)}"
                raise DefinitionAttributeError(f"{type(self).__name__} has no field {name!r}; {meant}", name)
            object.__setattr__(self, name, value)

    def hash(self) -> int:
        """A hash of every field; equal parameters have equal ones."""
        return hash(repr((type(self).__name__, [(f.name, getattr(self, f.name)) for f in fields(self)])))

    def __hash__(self) -> int:
        return self.hash()

    def __str__(self) -> str:
        lines = [f"{type(self).__name__} ({self.scheduler_type.name})"]
        lines += [f"  {f.name}: {_shown(getattr(self, f.name))}" for f in fields(self)]
        return "\n".join(lines)


def _shown(value: Any) -> str:
    return value.name if hasattr(value, "name") and hasattr(value, "value") else str(value)


@dataclass
class PointwiseParams(HeuristicParams):
    """Parameters of the pointwise scheduler."""

    break_point: int = 0
    split_block: bool = False
    split_grid_y_dim: bool = False
    flip_grid_binding: bool = False
    vectorization_factor: int = 1
    unroll_factor_inner: int = 1
    unroll_factor_outer: int = 1

    kind: ClassVar[SchedulerType] = SchedulerType.pointwise
    __hash__ = HeuristicParams.__hash__


@dataclass
class ReductionParams(HeuristicParams):
    """Parameters of the reduction and persistent schedulers."""

    fastest_dim: bool = False
    persistent_kernel: bool = False
    project_persistent_buffers: bool = False
    schedule_3d: bool = False
    flip_grid: bool = False
    cross_block_inner_reduction: bool = False
    cross_grid_inner_reduction: bool = False
    unroll_factor_inner_reduction: int = 1
    unroll_factor_top_of_vectorization: int = 1
    vectorize_inner_reduction: bool = False
    split_grid_dim_inner_reduction: bool = False
    pad_inner_reduction_to_warp: bool = False
    batches_per_block_inner_reduction: int = 1
    block_dim_inner_reduction: ParallelType = ParallelType.serial
    grid_dim_inner_reduction: ParallelType = ParallelType.serial
    multiple_reds_per_blk: bool = False
    unroll_factor_iter_dom: int = 1
    vectorize_iter_dom: bool = False
    split_grid_dim_iter_dom_inner: bool = False
    split_grid_dim_iter_dom_outer: bool = False
    block_dim_iter_dom: ParallelType = ParallelType.serial
    grid_dim_iter_dom: ParallelType = ParallelType.serial
    cross_block_outer_reduction: bool = False
    cross_grid_outer_reduction: bool = False
    batches_per_block_outer_reduction: int = 1
    unroll_factor_outer_reduction: int = 1
    block_dim_outer_reduction: ParallelType = ParallelType.serial
    grid_dim_outer_reduction: ParallelType = ParallelType.serial
    compute_persistent_buffer_with_first_consumer: bool = False
    static_bdimx: bool = False
    static_bdimy: bool = False
    combined_inner_outer: bool = False
    tidx_for_outer_reduction: bool = False
    pad_outer_reduction_to_warp: bool = False
    combined_split_grid_inner_dim: bool = False
    vectorization_factor_outer: int = 1
    vectorization_factor_tmp_gmem_write: int = 1
    block_dim_inner_reduction_extra: ParallelType = ParallelType.serial
    reduction_scheduler: SchedulerType = field(default=SchedulerType.reduction, repr=False, kw_only=True)

    __hash__ = HeuristicParams.__hash__

    @property
    def scheduler_type(self) -> SchedulerType:
        """The reduction or persistent scheduler these parameters are for."""
        return self.reduction_scheduler


@dataclass
class ScanParams(HeuristicParams):
    """Parameters of the scan scheduler: nvFuser has no fields for them."""

    kind: ClassVar[SchedulerType] = SchedulerType.scan
    __hash__ = HeuristicParams.__hash__


@dataclass
class TransposeParams(HeuristicParams):
    """Parameters of the transpose scheduler: nvFuser's bindings have no fields for them."""

    kind: ClassVar[SchedulerType] = SchedulerType.transpose
    __hash__ = HeuristicParams.__hash__


# --- matmul -----------------------------------------------------------------------------------------------------------


@dataclass(unsafe_hash=True)
class GemmTile:
    """Extents of a tile."""

    m: int
    n: int
    k: int


@dataclass(unsafe_hash=True)
class MatMulTileOptions:
    """Tiles of a block and of a warp."""

    cta_tile: GemmTile = field(default_factory=lambda: GemmTile(128, 128, 32))
    warp_tile: GemmTile = field(default_factory=lambda: GemmTile(64, 64, 32))


@dataclass(unsafe_hash=True, init=False)
class CircularBufferOptions:
    """Circular buffers between global, shared and register memory."""

    circular_buffer_smem_write: bool
    circular_buffer_smem_read: bool
    smem_circular_buffer_stage: int
    smem_circular_buffer_prefetch_gap: int

    def __init__(
        self, smem_write: bool = False, smem_read: bool = False, stage: int = 2, prefetch_gap: int = 1
    ) -> None:
        self.circular_buffer_smem_write = smem_write
        self.circular_buffer_smem_read = smem_read
        self.smem_circular_buffer_stage = stage
        self.smem_circular_buffer_prefetch_gap = prefetch_gap


@dataclass(unsafe_hash=True)
class SupportedVectorization:
    """Vector widths in elements of the operands and of the epilogue."""

    a: int
    b: int
    epilogue: int


@dataclass(unsafe_hash=True)
class ClusterDims:
    """Blocks of a cluster along the tile grid."""

    m: int = 1
    n: int = 1


@dataclass(frozen=True)
class MmaMacro:
    """A matrix instruction."""

    arch: MmaMacroArch = MmaMacroArch.no_mma
    m: int = 1
    n: int = 1
    k: int = 1


@dataclass(unsafe_hash=True)
class MmaMacroEncode:
    """The parts of a matrix instruction, editable."""

    arch: MmaMacroArch
    m: int
    n: int
    k: int

    def mma_macro(self) -> MmaMacro:
        """The instruction of these parts."""
        return MmaMacro(self.arch, self.m, self.n, self.k)


@dataclass
class MatmulParams(HeuristicParams):
    """Parameters of the matmul scheduler."""

    tile_sizes: MatMulTileOptions = field(default_factory=MatMulTileOptions)
    circular_buffer_options: CircularBufferOptions = field(default_factory=CircularBufferOptions)
    supported_vec_size: SupportedVectorization = field(default_factory=lambda: SupportedVectorization(1, 1, 1))
    async_gmem_load_operands: bool = False
    grid_traversal_factor: tuple[int, int] = (1, 1)
    use_smem_epilogue: bool = False
    use_ldst_matrix: bool = False
    promote_prologue_smem_reuse: bool = False
    splitk_factor: int = 1
    tiling_strategy: MatmulTilingStrategy = MatmulTilingStrategy.one_tile_per_cta
    buffering_loop_level: MatmulBufferingLoopLevel = MatmulBufferingLoopLevel.cta_tiles
    circular_buffering_strategy: MatmulCircularBufferingStrategy = MatmulCircularBufferingStrategy.pipelined
    cta_order: MatmulTileRasterizationOrder = MatmulTileRasterizationOrder.row_major
    cluster_dims: ClusterDims = field(default_factory=ClusterDims)
    mma_macro: MmaMacro = field(default_factory=MmaMacro)

    kind: ClassVar[SchedulerType] = SchedulerType.matmul
    __hash__ = HeuristicParams.__hash__
