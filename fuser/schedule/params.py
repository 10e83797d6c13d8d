"""What schedulers decide: parameters, from which a schedule follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from fuser.records import record


@record
class Aligned:
    """Accesses of vectors are aligned and whole."""


@record
class Unaligned:
    """They begin anywhere: at multiples of the vector from where a row does. The end of the row may cut the last of them."""


@record
class Peeled:
    """They begin where an argument, `at`, is aligned; those to others anywhere. Both ends of a row may cut a vector."""

    at: str


Access = Aligned | Unaligned | Peeled


@record
class NoOpParams:
    """Nothing to choose."""


@record
class ExprEvalParams:
    """Nothing to choose: a thread for each element.

    reasons   why it came to that, in words
    """

    reasons: Sequence[str] = field(default=(), compare=False)


@record
class PointwiseParams:
    """Loops of a pointwise kernel.

    order             dims of the reference output, slowest first
    merged_dims       for each loop, slowest first: how many dims of `order` (of more than one element) make it. Several
                      numbers are runs of dims, each merged before all are: arguments may have some of the runs only
    vector            consecutive elements of a thread along the last loop
    vector_widths     elements of one access, for arguments where that is more than one
    block_shape       threads of x along the last loop (0: as many as it has iterations), of y along the loop before it
    unroll            vectors of a thread along the loop `unroll_loop`, all of which are loaded before the first is used
    unroll_loop       counted from the last loop, 0, of several loops
    sequential        those of `unroll` follow one another, each loaded and stored by itself: what they share is computed before
    grid_axes         axes of the grid that blocks are counted along, at most: one where y and z cannot count so many
    access            where the accesses of vectors begin; a row is the last loop's dims
    extent_ranges     (input, dim, low, high): extents with which a thread's elements lie in two rows at most
    extent_multiples  (input, dim, divisor): extents that are multiples, so that no vector is cut
    tile_dims         dims of `order` behind all loops, of few elements: a thread takes all of these, a tile
    tile_contiguous   arguments in which the last loop is next to the tile in memory: vectors go along both
    tile_vector_dims  (argument, dims): how many of the tile's fastest dims a vector goes along, where these are not all
    whole_inputs      inputs that a thread reads whole, once: slices and pads of them select from its registers
    reasons           why, in words
    """

    order: tuple[int, ...]
    merged_dims: tuple[tuple[int, ...], ...]
    vector: int
    vector_widths: tuple[tuple[str, int], ...]
    block_shape: tuple[int, int]
    unroll: int = 1
    unroll_loop: int = 1
    sequential: bool = False
    grid_axes: int = 3
    access: Access = Aligned()
    extent_ranges: tuple[tuple[str, int, int, int], ...] = ()
    extent_multiples: tuple[tuple[str, int, int], ...] = ()
    tile_dims: int = 0
    tile_contiguous: tuple[str, ...] = ()
    tile_vector_dims: tuple[tuple[str, int], ...] = ()
    whole_inputs: tuple[str, ...] = ()
    reasons: Sequence[str] = field(default=(), compare=False)


@record
class TransposeParams:
    """Tiles of a kernel whose arguments lie along two different runs of dims, M and N; pairs are (along M, along N).

    order           dims of the reference output: others, those of M, those of N; dims of one element last
    merged_dims     how many dims of `order` are merged into each loop: others, M, N
    tile            elements of a tile
    vectors         consecutive elements of a thread
    tile_threads    threads that are neighbours along a run
    vector_widths   elements of one access, for arguments where that is more than one
    via_shared      arguments that lie along M: they pass through shared memory
    block_threads   threads of a block
    grid_axes       axes of the grid that blocks are counted along, at most: one where y and z cannot count so many
    block_order     M, 0, and N, 1, in the order in which blocks are counted, slowest first
    access          where the accesses along N begin
    reasons         why, in words
    """

    order: tuple[int, ...]
    merged_dims: tuple[int, ...]
    tile: tuple[int, int]
    vectors: tuple[int, int]
    tile_threads: tuple[int, int]
    vector_widths: tuple[tuple[str, int], ...]
    via_shared: tuple[str, ...]
    block_threads: int
    grid_axes: int = 3
    block_order: tuple[int, int] = (0, 1)
    access: Aligned | Peeled = Aligned()
    reasons: Sequence[str] = field(default=(), compare=False)


@record
class ReductionParams:
    """Loops of a reduction.

    order          dims of the reference, slowest first
    inner          the fastest dim is reduced: threads of x walk along it
    block_reduce   threads along the reduced axes (x if inner, else y)
    block_iterate  threads along the kept axes (y if inner, else x)
    vector         consecutive elements of a thread along the fastest dim
    vectorized     arguments that are contiguous along them: one access each
    grid_reduce    blocks that share one reduction (1: none)
    unroll         accesses of a thread along the reduced axes that are issued before the first is used
    block_outer    threads (y) along the reduced dims that are no neighbours in memory of the fastest one, as an axis of
                   their own; 0: all reduced dims are one axis
    unroll_outer   the same along that axis; of the two one is 1
    run_dims       with `block_outer`: how many of the fastest reduced dims threads of x walk along, as those are
                   neighbours in memory; 0: all up to the first kept one
    grid_along     with `block_outer`: blocks that share one reduction have parts of all those runs, and not some of the
                   runs
    access         where these begin
    cluster        blocks that share a reduction are a cluster, and join their parts through shared memory
    streaming      what is reduced leaves the second-level cache first: it is read once, and more than the cache holds
    reasons        why, in words; no part of what is compared
    """

    order: tuple[int, ...]
    inner: bool
    block_reduce: int
    block_iterate: int
    vector: int
    vectorized: tuple[str, ...]
    grid_reduce: int
    unroll: int = 1
    block_outer: int = 0
    unroll_outer: int = 1
    run_dims: int = 0
    grid_along: bool = False
    access: Access = Aligned()
    cluster: bool = False
    streaming: bool = False
    reasons: Sequence[str] = field(default=(), compare=False)

    @property
    def in_flight(self) -> int:
        """Accesses of a thread that are issued before the first is used."""
        return self.unroll * self.unroll_outer


@record
class BlockGroups:
    """Groups of blocks that meet in device memory; all of them are there at once.

    count      of groups; each loads the next row while it works on one
    resident   blocks that an SM must hold
    """

    count: int
    resident: int


@record
class InnerPersistentParams:
    """A row in the registers of the threads along it, or in shared memory.

    order            dims of the reference, slowest first
    threads          threads of x along a row
    rows             rows of a block (threads of y)
    batch            accesses of a thread along the row
    cluster          blocks that share a row
    groups           where those of a row are no cluster: they meet in device memory, and go over the rows; else a row each
    inputs_only      whether costly values are computed again, too, and only the row tensors kept
    one_pass         whether maximum and sum of exponentials come from one pass and one exchange
    resident         blocks that must fit on a processor: registers are held to that; 0: as many as the compiler leaves
                     room for
    in_shared        row tensors that lie in shared memory, which asynchronous copies fill; none: in registers
    funnel_shifted   of those the ones that begin elsewhere than the vectors: they pass through registers, by accesses
                     at any address
    load_all_first            whether all inputs along a row are read before the first exchange, those of later stages too
    vector           consecutive elements of an access
    vectorized       arguments that are contiguous along them: one access each
    extent_ranges           (input, dim, low, high): extents for which the row fits
    access           where these begin
    reasons          why, in words; no part of the kernel's key
    """

    order: tuple[int, ...]
    threads: int
    rows: int
    batch: int
    vector: int
    vectorized: tuple[str, ...]
    extent_ranges: tuple[tuple[str, int, int, int], ...]
    cluster: int = 1
    inputs_only: bool = False
    in_shared: tuple[str, ...] = ()
    access: Access = Aligned()
    one_pass: bool = False
    groups: BlockGroups | None = None
    resident: int = 0
    funnel_shifted: tuple[str, ...] = ()
    load_all_first: bool = False
    reasons: Sequence[str] = field(default=(), compare=False)


@record
class OuterPersistentParams:
    """Columns whose rows are read once, or twice by blocks that stay.

    reduction          the loops. `grid_reduce` blocks share the rows of some columns: they wait for one another between stages
                       and go over their rows once more. One, or a cluster, has all rows of its columns in registers, `unroll`
                       accesses of a thread
    kept_iterations    the first iterations of the first pass, whose rows stay in shared memory for the second (0: none)
    extent_ranges             (input, dim, low, high): extents for which the rows fit in registers
    reasons            why, in words; no part of what is compared
    """

    reduction: ReductionParams
    kept_iterations: int = 0
    extent_ranges: tuple[tuple[str, int, int, int], ...] = ()
    reasons: Sequence[str] = field(default=(), compare=False)


@record
class ChainedParams:
    """Reductions of rows, and of what they leave.

    rows      the loops of the rows
    blocks    that go over all of them; 0: as many as the loops of the rows have
    extent_ranges    (input, dim, low, high) of an extent that the blocks' number follows from
    reasons   why, in words; no part of what is compared
    """

    rows: ReductionParams | InnerPersistentParams | OuterPersistentParams
    blocks: int
    extent_ranges: tuple[tuple[str, int, int, int], ...] = ()
    reasons: Sequence[str] = field(default=(), compare=False)


@record
class ThreadReductionParams:
    """Loops over what is kept, as of a pointwise kernel, whose tile is all that is reduced: a thread takes it whole.

    reasons   why, in words; no part of what is compared
    """

    loops: PointwiseParams
    reasons: Sequence[str] = field(default=(), compare=False)


@record
class ScanParams:
    """Loops of a scan.

    order           dims of the reference, slowest first
    inner           the fastest dim is scanned: threads of x walk along it
    block_scan      threads along the scanned dim (x if inner, else y)
    block_iterate   threads along the kept dims (y if inner, else x)
    batch           accesses of a thread along the scanned dim that it holds in registers at once
    vector          consecutive elements of a thread along the fastest dim
    vectorized      arguments that are contiguous along them: one access each
    access          where these begin
    cluster         blocks that share a row
    ahead           what a step needs is loaded while the one before it computes
    extent_ranges          (input, dim, low, high): extents for which a row takes one step; none: a loop over steps
    reasons         why, in words; no part of what is compared
    """

    order: tuple[int, ...]
    inner: bool
    block_scan: int
    block_iterate: int
    batch: int
    vector: int
    vectorized: tuple[str, ...]
    access: Access = Aligned()
    cluster: int = 1
    prefetch: bool = False
    extent_ranges: tuple[tuple[str, int, int, int], ...] = ()
    reasons: Sequence[str] = field(default=(), compare=False)


@record
class RowSplit:
    """Blocks of the whole grid, which is resident, with rows of their own. They exchange sums of columns behind the last row.

    per_sm   blocks that share an SM
    """

    blocks: int
    per_sm: int


@record
class ColumnSplit:
    """Blocks of the grid, an SM each, with some columns of all rows. They exchange statistics of rows in each iteration."""

    blocks: int


@record
class ClusterSplit:
    """One cluster of `rows` times `columns` blocks that has all rows at once; one of the numbers is 1."""

    rows: int
    columns: int


@record
class InnerOuterParams:
    """One pass over rows that are held in registers, with sums of columns beside statistics of rows.

    order           dims of the reference, slowest first: those of the rows, then those along a row
    reference       a result that is reduced along the rows
    split           which blocks have which rows and columns
    across          threads of x
    along           threads of y: with x they share a row, and afterwards the parts of some columns
    batch           accesses of a thread along the row
    vector          consecutive elements of an access
    vectorized      arguments that are contiguous along them: one access each
    side_by_side    rows of a block at once (threads of z)
    rows            rows that a thread has on their way at once
    prefetch        iterations that rows are loaded before they are used; 0: in the same
    extent_ranges          (input, dim, low, high): extents for which the row fits
    in_shared       row tensors that lie in shared memory, which asynchronous copies fill; others are in registers
    reasons         why, in words; no part of the kernel's key
    """

    order: tuple[int, ...]
    reference: str
    split: RowSplit | ColumnSplit | ClusterSplit
    across: int
    along: int
    batch: int
    vector: int
    vectorized: tuple[str, ...]
    rows_per_block: int
    rows: int
    prefetch: int
    extent_ranges: tuple[tuple[str, int, int, int], ...]
    in_shared: tuple[str, ...] = ()
    reasons: Sequence[str] = field(default=(), compare=False)


Params = (
    NoOpParams
    | ExprEvalParams
    | PointwiseParams
    | TransposeParams
    | ReductionParams
    | InnerPersistentParams
    | InnerOuterParams
    | OuterPersistentParams
    | ChainedParams
    | ThreadReductionParams
    | ScanParams
)
ParamsClass = type[Params]
