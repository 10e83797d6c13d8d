"""Parameters: the decisions of schedulers, which determine their schedules. A frozen record for each scheduler.

What many of them have:

    order           dims of the reference, slowest first
    vector          consecutive elements of a thread along the fastest dim
    vectorized      arguments that are contiguous along them: one access each
    vector_widths   elements of one access, for arguments where that is more than one
    access          where vectors begin
    extent_ranges   (input, dim, low, high): extents for which a schedule is right
    reasons         why, in sentences; not compared
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from fuser.records import record

ExtentRange = tuple[str, int, int, int]
"""(input, dim, low, high): an extent for which a schedule is right."""
ExtentMultiple = tuple[str, int, int]
"""(input, dim, divisor): an extent that must be a multiple."""


@record
class Aligned:
    """Vector accesses are aligned, and no vector is partial."""


@record
class Unaligned:
    """Vectors begin at multiples of their width from the start of a row, at any address. The last of a row may be partial."""


@record
class Peeled:
    """Vectors begin at aligned addresses of the argument `at`, and at any address of other arguments. The first and the last
    one of a row may be partial."""

    at: str


Access = Aligned | Unaligned | Peeled


@record
class NoOpParams:
    """Nothing to choose."""


@record
class ExprEvalParams:
    """Nothing to choose: one thread for each element.

    reasons   why no other scheduler was used
    """

    reasons: Sequence[str] = field(default=(), compare=False)


@record
class PointwiseParams:
    """Loops of a pointwise kernel.

    merged_dims       for each loop, slowest first: how many dims of `order` (of more than one element) make it. Several
                      numbers are runs of dims, each merged before all are: arguments may have some of the runs only
    block_shape       threads of x along the last loop (0: as many as it has iterations), of y along the loop before it
    unroll            vectors of a thread along the loop `unroll_loop`, all of which are loaded before the first is used
    unroll_loop       counted from the last loop, 0, of several loops
    sequential        the vectors of `unroll` are loaded and stored one after the other; shared values are computed before
    grid_axes         the number of grid axes at most: 1 if there are more blocks than y and z can have
    access            where vectors begin in a row, the dims of the last loop
    extent_ranges     (input, dim, low, high): extents for which the elements of a thread are in at most two rows
    extent_multiples  (input, dim, divisor): extents that must be multiples, so that no vector is partial
    tile_dims         number of last dims of `order` that are an inner tile: each thread has all of their elements
    tile_contiguous   arguments in which the last loop is next to the tile in memory: vectors are along both
    tile_vector_dims  (argument, dims): how many of the tile's fastest dims a vector is along, if not all
    whole_inputs      inputs that a thread loads as a whole, once: slices and pads of them select from its registers
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
    extent_ranges: tuple[ExtentRange, ...] = ()
    extent_multiples: tuple[ExtentMultiple, ...] = ()
    tile_dims: int = 0
    tile_contiguous: tuple[str, ...] = ()
    tile_vector_dims: tuple[tuple[str, int], ...] = ()
    whole_inputs: tuple[str, ...] = ()
    reasons: Sequence[str] = field(default=(), compare=False)


@record
class TransposeParams:
    """Tiles of a kernel whose arguments have two different groups of fastest dims, M and N; pairs are (along M, along N).

    order           dims of the reference output: others, those of M, those of N; dims of one element last
    merged_dims     how many dims of `order` are merged into each loop: others, M, N
    tile            elements of a tile
    vectors         consecutive elements of a thread
    tile_threads    adjacent threads along M, N
    via_shared      arguments that are contiguous along M: they are staged in shared memory
    block_threads   threads of a block
    grid_axes       the number of grid axes at most: 1 if there are more blocks than y and z can have
    block_order     M, 0, and N, 1, in the order of block indices, slowest first
    access          where vectors along N begin
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

    inner          the fastest dim is reduced: threads of x are along it
    block_reduce   threads along the reduced axes (x if inner, else y)
    block_iterate  threads along the kept axes (y if inner, else x)
    grid_reduce    blocks that share one reduction (1: none)
    unroll         accesses of a thread along the reduced axes that are issued before the first is used
    block_outer    threads of y along the reduced dims that are not contiguous with the fastest one, as an axis of their own; 0:
                   all reduced dims are one axis
    unroll_outer   as unroll, along that axis; one of the two is 1
    run_dims       with `block_outer`: how many of the fastest reduced dims are contiguous, and threads of x are along them; 0:
                   all up to the first kept one
    grid_along     with `block_outer`: blocks that share a reduction split each contiguous range, instead of sharing them out
    cluster        blocks that share a reduction are a cluster, and combine results through distributed shared memory
    extent_ranges  (input, dim, low, high): extents for which the elements of an access are in at most two rows
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
    extent_ranges: tuple[ExtentRange, ...] = ()
    reasons: Sequence[str] = field(default=(), compare=False)

    @property
    def in_flight(self) -> int:
        """Accesses of a thread that are issued before the first is used."""
        return self.unroll * self.unroll_outer


@record
class BlockGroups:
    """Block groups: blocks that share a row exchange results through device memory; all are resident.

    count      number of groups; each prefetches its next row
    resident   blocks that must fit on an SM
    """

    count: int
    resident: int


@record
class InnerPersistentParams:
    """A row in the registers of the threads along it, or in shared memory.

    threads          threads of x along a row
    rows             rows of a block (threads of y)
    batch            accesses of a thread along the row
    cluster          blocks that share a row
    groups           if these blocks are no cluster: block groups, which loop over the rows; None: each block or cluster has its
                     own rows
    inputs_only      only the row tensors are kept, and costly values are recomputed, too
    one_pass         maximum and sum of exponentials come from one pass and one exchange
    resident         blocks that must fit on an SM, which limits registers; 0: no such limit
    in_shared        row tensors in shared memory, filled by asynchronous copies; empty: all are in registers
    funnel_shifted   those of them that have another misalignment than the vectors: loaded into registers at any address first
    load_all_first   all inputs along a row are loaded before the first exchange, also those that only later data passes read
    """

    order: tuple[int, ...]
    threads: int
    rows: int
    batch: int
    vector: int
    vectorized: tuple[str, ...]
    extent_ranges: tuple[ExtentRange, ...]
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
    """Columns whose rows are read once, or twice by resident blocks.

    reduction          the loops. `grid_reduce` blocks share the rows of some columns: between data passes they wait for each
                       other, and then loop over their rows again. A single block, or a cluster, has all rows of its columns in
                       registers, `unroll` accesses per thread
    kept_iterations    the first iterations of the first pass, whose rows stay in shared memory for the second (0: none)
    extent_ranges      (input, dim, low, high): extents for which the rows fit in registers
    """

    reduction: ReductionParams
    kept_iterations: int = 0
    extent_ranges: tuple[ExtentRange, ...] = ()
    reasons: Sequence[str] = field(default=(), compare=False)


@record
class ChainedParams:
    """Reductions of rows, and of their results.

    rows             the loops of the rows
    blocks           blocks that loop over all rows; 0: as many as the loops of the rows have
    extent_ranges    (input, dim, low, high) of an extent that determines the number of blocks
    """

    rows: ReductionParams | InnerPersistentParams | OuterPersistentParams
    blocks: int
    extent_ranges: tuple[ExtentRange, ...] = ()
    reasons: Sequence[str] = field(default=(), compare=False)


@record
class ThreadReductionParams:
    """The loops of a pointwise kernel over the kept dims; the inner tile is all elements of a reduction."""

    loops: PointwiseParams
    reasons: Sequence[str] = field(default=(), compare=False)


@record
class ScanParams:
    """Loops of a scan.

    inner           the fastest dim is scanned: threads of x are along it
    block_scan      threads along the scanned dim (x if inner, else y)
    block_iterate   threads along the kept dims (y if inner, else x)
    batch           accesses of a thread along the scanned dim, all in registers at once
    cluster         blocks that share a row
    prefetch        the inputs of an iteration are loaded during the one before
    extent_ranges   (input, dim, low, high): extents for which a row takes one iteration; empty: a loop
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
    extent_ranges: tuple[ExtentRange, ...] = ()
    reasons: Sequence[str] = field(default=(), compare=False)


@record
class RowsOverGrid:
    """Resident blocks of the whole grid have rows of their own. They exchange sums of columns after the last row.

    per_sm   blocks that share an SM
    """

    blocks: int
    per_sm: int


@record
class ColumnsOverGrid:
    """Blocks of the grid, one per SM, have some columns of all rows. They exchange statistics of rows in each iteration."""

    blocks: int


@record
class OverCluster:
    """One cluster of `rows` times `columns` blocks has all rows at once; one of the numbers is 1."""

    rows: int
    columns: int


@record
class InnerOuterParams:
    """One pass over rows in registers, with sums of columns and statistics of rows.

    order           dims of the reference, slowest first: those of the rows, then those along a row
    reference       a result that is reduced along the rows
    distribution    which blocks have which rows and columns
    across          threads of x
    along           threads of y: with x they share a row, and later the partial sums of some columns
    batch           accesses of a thread along the row
    rows_per_block  rows of a block at once (threads of z)
    rows            rows that a thread loads at once
    prefetch        number of iterations between load and use of a row
    in_shared       row tensors in shared memory, filled by asynchronous copies; others are in registers
    """

    order: tuple[int, ...]
    reference: str
    distribution: RowsOverGrid | ColumnsOverGrid | OverCluster
    across: int
    along: int
    batch: int
    vector: int
    vectorized: tuple[str, ...]
    rows_per_block: int
    rows: int
    prefetch: int
    extent_ranges: tuple[ExtentRange, ...]
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
