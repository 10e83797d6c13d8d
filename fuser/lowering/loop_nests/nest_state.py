"""The state of the construction of loop nests: storage and partials so far, waits for other blocks, grid reductions.

The base class of the chain of classes that is `NestBuilder` (`build_loop_nests.py`): state, predicates, values, storage,
vectors, statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fuser.errors import SchedulingError
from fuser.ir.fusion.fusion import Reducing, Scan, Tensor, TensorExpr, tensor_inputs, tensor_outputs
from fuser.ir.fusion.iteration_graph import Group, GroupSplit
from fuser.ir.integers.integers import ONE, Cond, Int, Symbol, equal, symbol
from fuser.ir.kernel.kernel import Buffer
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import BLOCK_TYPES, GLOBAL_MEMORY, GRID_TYPES, THREAD_TYPES, ParallelType
from fuser.lowering.combiners.exp_sum import FoldBuffer
from fuser.lowering.combiners.welford import WelfordStep
from fuser.lowering.context import LoweringContext, TensorLayout, is_argument
from fuser.lowering.loop_nests.scan_nests import ScanNest, plan_scan
from fuser.lowering.name_counter import NameCounter
from fuser.records import record


@record(eq=False)
class Nest:
    """Loops around a statement: index of each loop group, and the serial loops among them with their extents."""

    indices: dict[Group, Int]
    serial: tuple[tuple[Symbol, Int], ...] = ()
    vector: tuple[Symbol, int] | None = None


@dataclass(slots=True, eq=False)
class Accumulator:
    """Per-thread partials of a reduction: one register array per result, over the axes inside `depth`.

    `step` (Welford) holds what all elements of a thread have in common: how many values each has seen.
    `fold_buffer` are the values that a thread collects before it folds them (ExpSum), or between the mean and the
    squares (Welford).
    """

    depth: int
    buffers: tuple[Buffer, ...]
    axes: tuple[tuple[Group, Int], ...]
    last_block: Symbol | None = None
    step: WelfordStep | None = None
    fold_buffer: FoldBuffer | None = None


class NestState:
    """State of one build, and questions about reductions across blocks."""

    def __init__(self, context: LoweringContext) -> None:
        self.context = context
        self.builder = context.builder
        self.sharing = context.sharing
        self.graph = context.graph
        self.exprs: dict[str, TensorExpr] = {tensor_outputs(e)[0].name: e for e in self.builder.exprs}
        self.leaders = self.sharing.leader
        self.storage: dict[str, TensorLayout] = {}
        self.accumulators: dict[str, Accumulator] = {}
        self.scans: dict[str, ScanNest] = {
            name: plan_scan(context, e) for name, e in self.exprs.items() if isinstance(e, Scan)
        }
        self.arguments: dict[str, Buffer] = {}
        self.workspaces: list[Buffer] = []
        self.scalars: dict[str, DataType] = {}
        self.shared_reads: dict[str, bool] = {}
        self.cooperative = False
        self.shared_across_blocks: set[str] = set()
        # Numbers for the names of temporaries and of indices.
        self._next = NameCounter()
        self._aligned_rows: dict[GroupSplit, tuple[Sequence[tuple[Group, Int]], Int]] = {}
        # By (argument, vector width): how many elements after an aligned address an argument that rows are split at begins.
        self.phases: dict[tuple[str, int], Symbol] = {}
        # Loop variables that unrolling turns into constants: registers can only be indexed by those.
        self._unrolled: set[Symbol] = set()
        # Buffers in shared memory of which every place of a vector is filled, whatever of it is in a row.
        self._filled: set[Buffer] = set()
        self._last_block: dict[str, set[str]] = {}
        self._guarded_by: set[str] = set()
        # Grid reductions whose last-block flag is in scope.
        self._flags: set[str] = set()
        self._find_grid_reductions()
        self._waits = self._count_waits()

    def _count_waits(self) -> dict[str, int]:
        """For each expr, after how many waits for other blocks it should be: as many as it needs, or as all its uses need.

        What is only used later is computed later: it needs no registers until then.
        """
        waits: dict[str, int] = {}
        for leader, expr in self.exprs.items():
            producers = [(t, self.leaders[t.name]) for t in tensor_inputs(expr) if t.name in self.leaders]
            waits[leader] = max((waits[p] + self._is_waited_for(t, p) for t, p in producers), default=0)
        for leader in reversed(self.exprs):
            if not self._is_waited_for(self.builder.state(leader).tensor, leader):
                uses = [waits[c] for c in self.sharing.edges[leader]]
                waits[leader] = max(waits[leader], min(uses, default=0))
        return waits

    def _is_waited_for(self, t: Tensor, leader: str) -> bool:
        return self.context.state(t.name).memory is GLOBAL_MEMORY or self.grid_broadcast.get(leader, False)

    def _new_symbol(self, extent: Int, prefix: str = "i") -> Symbol:
        hi = extent.hi - 1 if extent.hi is not None and extent.hi >= 1 else None
        return symbol(f"{prefix}{self._next()}", 0, hi, below=extent)

    def _downstream(self, leader: str) -> set[str]:
        found: set[str] = set()
        stack = [leader]
        while stack:
            for consumer in self.sharing.edges[stack.pop()]:
                if consumer not in found:
                    found.add(consumer)
                    stack.append(consumer)
        return found

    def _find_grid_reductions(self) -> None:
        """For each expr, the grid reductions whose result only the last block holds and that it depends on."""
        self.grid_broadcast: dict[str, bool] = {}
        for leader in self.exprs:
            axes = self._reduction_types(leader, GRID_TYPES)
            if not axes:
                continue
            downstream = self._downstream(leader)
            # Other blocks need the result if they compute something of it. So does another reduction over blocks or over a
            # serial loop around this one: the last blocks of its parts would differ.
            spread = any(
                self._reduction_types(name, GRID_TYPES) or self._reduces_over_enclosing_loop(name, leader)
                for name in downstream
            ) or any(
                p in axes and not group.is_broadcast for name in downstream for p, group in self._parallel_axes(name)
            )
            self.grid_broadcast[leader] = spread
            self.cooperative |= spread
            if spread:
                continue
            for name in downstream:
                self._last_block.setdefault(name, set()).add(leader)

    def _reduces_over_enclosing_loop(self, name: str, leader: str) -> bool:
        """Whether `name` reduces over a serial loop that `leader` is computed in."""
        state = self.context.state(name)
        return any(
            axis.is_reduction
            and state.parallel_type(axis) not in THREAD_TYPES
            and self.sharing.find((name, k)) == self.sharing.find((leader, k))
            for k, axis in enumerate(state.loop)
        )

    def _parallel_axes(self, leader: str) -> list[tuple[ParallelType, Group]]:
        return [(p, group) for _, group, p in self.context.axes(leader) if p in THREAD_TYPES]

    def _reduction_types(
        self, leader: str, among: Sequence[ParallelType], *, in_cluster: bool = False
    ) -> tuple[ParallelType, ...]:
        """Parallel types of the reduction axes of the expr that computes `leader`; those of a cluster are apart."""
        if not isinstance(self.exprs[leader], Reducing):
            return ()
        state = self.context.state(leader)
        sizes = self.context.sizes
        return tuple(
            p
            for p in among
            if (p in self.builder.cluster) is in_cluster
            and any(a.is_reduction and state.parallel_type(a) is p for a in state.loop)
            and sizes[p] is not ONE
        )

    def _cluster_types(self, leader: str) -> tuple[ParallelType, ...]:
        """The cluster axis, if the expr that computes `leader` reduces along it."""
        found = self._reduction_types(leader, GRID_TYPES, in_cluster=True)
        for p in found:
            size = self.context.sizes[p]
            if not (size.is_const and size.value == self.builder.cluster[p]):
                raise SchedulingError(
                    f"{leader} is reduced over {p.name}, a cluster of {self.builder.cluster[p]} blocks: the axis must have "
                    f"that extent, not {size}"
                )
        return found

    def _replicated_types(self, leader: str) -> tuple[ParallelType, ...]:
        """Axes of the block that an expr has no loop for: all threads along them compute the same."""
        reduced = self._reduction_types(leader, BLOCK_TYPES)
        own = {*reduced, *(p for p, group in self._parallel_axes(leader) if not group.is_broadcast)}
        return tuple(p for p in BLOCK_TYPES if p in self.context.sizes and p not in own)

    def _guards(self, node: list[str]) -> dict[str, Cond]:
        """Tests for work of the last block, where the whole node depends on a grid reduction outside it."""
        common: set[str] | None = None
        for name in node:
            needed = {r for r in self._last_block.get(name, ()) if r not in node}
            common = needed if common is None else common & needed
        guards: dict[str, Cond] = {}
        for r in sorted(common or (), key=lambda n: self.sharing.order[n]):
            if r in self._guarded_by:
                continue
            accumulator = self.accumulators.get(r)
            flag = accumulator.last_block if accumulator is not None else None
            if flag is None or r not in self._flags:
                raise SchedulingError(
                    f"{node[0]} needs the grid reduction {r} outside the loops and last-block tests that {r} is computed under"
                )
            guards[r] = equal(flag, 1)
        return guards

    def _is_last_block_only(self, leader: str, p: ParallelType) -> bool:
        """Whether only the last block along a grid axis gets here: it is the one that holds a reduction's result."""
        sources = set(self._last_block.get(leader, ()))
        if leader in self.grid_broadcast and not self.grid_broadcast[leader]:
            sources.add(leader)
        return any(p in self._reduction_types(r, GRID_TYPES) for r in sources)

    def _needs_single_writer(self, t: Tensor) -> bool:
        """Whether a tensor stored by its own dims is computed along wider ones, where only the first worker writes."""
        return is_argument(self.context, t.name) and bool(self.sharing.promotions.get(self.leaders[t.name]))
