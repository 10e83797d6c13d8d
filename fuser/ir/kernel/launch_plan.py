"""How a launch is computed from its arguments: symbolic grid, block, shared memory and workspaces.

Grammar
    plan     := LaunchPlan(bindings, scalars, grid, block, shared_bytes, workspaces, semaphores, cooperative, cluster,
                           exchanges)
    binding  := Binding(symbol, source)
    source   := ExtentOf(argument, dim) | StrideOf(argument, dim) | ScalarOf(name)
    scalar   := ScalarStep(name, dtype, op, operands)    host arithmetic, in order; an operand is a name or a number

A launch argument list is: tensor inputs, then outputs, then user scalars (rank-0 host tensors among them). `bindings` give
every symbol that the expressions of the plan and the kernel's ExtentParameters mention; the expressions become one Python code
object on first use.
"""

from __future__ import annotations

from enum import Enum

from fuser.ir.integers.integers import Int, Symbol
from fuser.ir.ops.dtypes import DataType
from fuser.records import record

LIMIT_REMEDIES = {
    "block": "split the axis, as in tv.split(axis, 128), and bind the inner axis alone to threads",
    "grid": "split the axis, or bind it to grid_x, which takes 2**31 - 1 blocks",
    "shared": "split the axes of the tensor and inline it, so that a block holds a part of it",
}
"""What to do about a schedule that needs more than the device has, by what there is too much of."""


@record
class ExtentOf:
    """Extent of dimension `dim` (logical order) of tensor argument `argument`."""

    argument: int
    dim: int


@record
class StrideOf:
    """Stride in elements of dimension `dim` of tensor argument `argument`."""

    argument: int
    dim: int


@record
class ScalarOf:
    """Value of an integer scalar: a user scalar or a ScalarStep, by name."""

    name: str


@record
class Binding:
    symbol: Symbol
    source: ExtentOf | StrideOf | ScalarOf


@record
class ScalarStep:
    """`name = op(operands)` on the host, in `dtype`; `op` is a row of the op table, "cast", or "extent" with operands
    (argument, dim)."""

    name: str
    dtype: DataType
    op: str
    operands: tuple[str | bool | int | float | complex, ...]


@record
class Workspace:
    """`count` elements of scratch in device memory, uninitialised."""

    name: str
    dtype: DataType
    count: Int


class BlockExchange(Enum):
    """How blocks of a kernel combine their results; the value is the explanation that `explain` prints."""

    cluster = "distributed shared memory: the blocks of a cluster store into each other's shared memory"
    flagged_stores = (
        "flagged stores: each block stores its results with flags; the last block by number waits for all flags"
    )
    last_block = "a counter: the block that arrives last combines the results of all blocks"
    all_blocks = "counters for which all blocks of the grid or of a group wait (cooperative launch)"


@record
class LaunchPlan:
    """Symbolic launch."""

    tensor_arguments: tuple[str, ...]  # ids, inputs then outputs
    scalar_arguments: tuple[str, ...]  # names of user scalars, in order
    bindings: tuple[Binding, ...]
    scalars: tuple[ScalarStep, ...]
    grid: tuple[Int, Int, Int]
    block: tuple[Int, Int, Int]
    shared_bytes: Int
    workspaces: tuple[Workspace, ...] = ()
    semaphores: Int | None = None
    cooperative: bool = False
    # Shape (logical order) and strides of each output, over the bound symbols.
    output_shapes: tuple[tuple[Int, ...], ...] = ()
    output_strides: tuple[tuple[Int, ...], ...] = ()
    # Rank and element type of each tensor argument; empty where they are not known.
    ranks: tuple[int, ...] = ()
    dtypes: tuple[DataType, ...] = ()
    # Outputs that may share the storage of the input they alias; others that alias one need a temporary and a copy.
    in_place: tuple[str, ...] = ()
    # Blocks of a cluster along x, y and z; None for a launch without clusters.
    cluster: tuple[int, int, int] | None = None
    # The next kernel may start as soon as all blocks of this one have started, if the next one is `co_resident`.
    starts_next: bool = False
    # May run at the same time as the kernel before it: it uses nothing that that one writes or frees, and ends after it.
    co_resident: bool = False
    # Waits for the launches before it ahead of all else that it does with memory, so that it may start while they end.
    waits_first: bool = False
    exchanges: tuple[BlockExchange, ...] = ()

    @property
    def waiting_blocks(self) -> int:
        """The number of blocks that wait for others which may not be resident yet; 0 if no block waits, or all are resident."""
        if BlockExchange.flagged_stores not in self.exchanges or self.cooperative:
            return 0
        x, y, z = self.cluster or (1, 1, 1)
        return x * y * z
