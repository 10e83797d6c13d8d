"""Build the loop nests of a scheduled fusion: exprs in order, sharing loops, indexed and predicated.

Before: exprs over tensors, each with a loop domain, parallel types and an inline position.
After:  kernel IR statements with collectives (`Reduce`, `Scan`) and without barriers.

Stands first: everything after it works on statements. Collectives stay whole because barriers and shared memory are decided
once all of them are known.

Here are the loops themselves; the layers below are in `nest_statements.py` (statements), `nest_vectors.py` (wide and displaced
moves), `nest_storage.py` (buffers and partials), `nest_values.py` (reads and values), `nest_predicates.py` (offsets and tests)
and `nest_state.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from fuser.errors import InternalError, SchedulingError
from fuser.ir.fusion.fusion import Reducing, tensor_inputs, tensor_outputs
from fuser.ir.fusion.iteration_graph import Group, GroupSplit
from fuser.ir.integers.integers import ONE, ZERO, Symbol, symbol
from fuser.ir.kernel.kernel import Allocate, Buffer, For, If, LetPhase, Role, Stmt, walk
from fuser.ir.kernel.kernel_accesses import stmt_reads, stmt_writes
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import THREAD_TYPES, MemoryType, ParallelType
from fuser.lowering.context import is_argument, is_derived_from
from fuser.lowering.loop_nests.indexing import Indexer
from fuser.lowering.loop_nests.nest_state import Nest
from fuser.lowering.loop_nests.nest_statements import NestStatements

# Stands for the index of a loop where it only matters that there is one.
_ANYWHERE = symbol("anywhere", 0)


@dataclass(slots=True, eq=False)
class LoweredBody:
    """Result of the pass."""

    body: tuple[Stmt, ...]
    arguments: dict[str, Buffer]
    workspaces: list[Buffer]
    thread_private: set[str]
    scalars: dict[str, DataType] = field(default_factory=dict)
    cooperative: bool = False
    # Device-memory tensors that some blocks write and others read.
    shared_across_blocks: frozenset[str] = frozenset()
    # Outputs that may share the storage of the input they alias.
    in_place: tuple[str, ...] = ()


class NestBuilder(NestStatements):
    """One use: `build()`."""

    def build(self) -> LoweredBody:
        """Lower every expr."""
        self._check_aligned_splits()
        body = self._body(list(self.exprs), 0, Nest({}))
        phases = [LetPhase(phase, self.arguments[name], width) for (name, width), phase in self.phases.items()]
        body = [*phases, *body]
        self._log_extents()
        private = {name for name, private in self.shared_reads.items() if private}
        cooperative = self.cooperative or bool(self.shared_across_blocks)
        if cooperative and self.builder.cluster:
            raise SchedulingError(
                f"blocks wait for the whole grid, because {self._cross_block_reason()}, and stand in clusters: "
                "a kernel does one or the other"
            )
        shared = frozenset(self.shared_across_blocks)
        return LoweredBody(tuple(body), self.arguments, self.workspaces, private, self.scalars, cooperative, shared)

    def _check_aligned_splits(self) -> None:
        """Where rows are cut at aligned places, each at its own, a value per place of a part belongs to one row."""
        splits = [s for s in self.graph.transforms() if isinstance(s, GroupSplit) and s.aligned is not None]
        for split in splits:
            for leader in self.exprs:
                kept = self._kept_loops(leader)
                places = [g for g in kept if is_derived_from(g, split.outer) or is_derived_from(g, split.inner)]
                known = Indexer(self.graph, dict.fromkeys(kept, _ANYWHERE), rows=self._rows_of)
                if not places or known.missing_elements(split) is not None:
                    continue
                users = self.sharing.edges[leader]
                if users and all(g not in self._kept_loops(user) for user in users for g in places):
                    continue  # all places are reduced in the end, whichever elements they have
                raise SchedulingError(
                    f"{leader} has a value for each place of a row of {split.aligned}, whose rows are cut each at its own "
                    f"aligned places, and not for each row: split {split.source.name} without aligning it",
                    location=self.context.state(leader).tensor.location,
                )

    def _kept_loops(self, leader: str) -> list[Group]:
        return [g for a, g, _ in self.context.axes(leader) if not a.is_reduction]

    def _cross_block_reason(self) -> str:
        if self.shared_across_blocks:
            return f"{min(self.shared_across_blocks)} is written by some and read by others"
        leader = next(name for name, spread in self.grid_broadcast.items() if spread)
        return f"all of them need {leader}, which is reduced across them"

    def _body(self, members: list[str], depth: int, nest: Nest) -> list[Stmt]:
        """Statements of exprs that share the loops around `depth`."""
        stmts: list[Stmt] = []
        for node in self._ordered_nodes(members, depth):
            guards = self._guards(node)
            outer_guards, outer_flags = self._guarded_by, set(self._flags)
            self._guarded_by = outer_guards | set(guards)
            inner: list[Stmt] = []
            for name in node:
                inner += self._before_loop(name, depth, nest)
            loops = self.context.loops(node[0])
            if len(loops) == depth:
                inner += self._statement(node[0], nest)
            else:
                inner += self._loop(node, depth, nest)
            for name in node:
                inner += self._after_loop(name, depth, nest)
            for guard in guards.values():
                # Storage is declared outside the test, where later guarded nests see it too.
                declared = [s for s in inner if isinstance(s, Allocate)]
                rest = tuple(s for s in inner if not isinstance(s, Allocate))
                inner = [*declared, If(guard, rest, role=Role.last_block)]
            self._guarded_by = outer_guards
            if guards:
                self._flags = outer_flags
            stmts += inner
        return stmts

    def _ordered_nodes(self, members: list[str], depth: int) -> list[list[str]]:
        """Exprs grouped by the loop they share at `depth`, in dependency order.

        Where that leaves a choice, inputs that are to be loaded first come first, then those that wait for fewer values in
        device memory, so that one wait serves many; else it is definition order.
        """
        keys: dict[str, object] = {}
        nodes: dict[object, list[str]] = {}
        for name in members:
            inside = len(self.context.loops(name)) > depth
            key: object = self.sharing.find((name, depth)) if inside else name
            keys[name] = key
            nodes.setdefault(key, []).append(name)
        if len(nodes) == 1:
            return list(nodes.values())
        waits_for: dict[object, set[object]] = {k: set() for k in nodes}
        followers: dict[object, list[object]] = {k: [] for k in nodes}
        for name in members:
            for consumer in self.sharing.edges[name]:
                if consumer in keys and keys[consumer] != keys[name]:
                    waits_for[keys[consumer]].add(keys[name])
                    followers[keys[name]].append(keys[consumer])
        position = {k: i for i, k in enumerate(nodes)}
        free = [(self._wait_count(nodes[k]), i, k) for k, i in position.items() if not waits_for[k]]
        heapify(free)
        ordered: list[list[str]] = []
        while free:
            ready = heappop(free)[2]
            ordered.append(nodes.pop(ready))
            for k in followers[ready]:
                if ready in waits_for[k]:
                    waits_for[k].remove(ready)
                    if not waits_for[k]:
                        heappush(free, (self._wait_count(nodes[k]), position[k], k))
        if nodes:
            a, b, *_ = (names[0] for names in nodes.values())
            raise SchedulingError(f"no order of the loops exists: {a} and {b} need each other's loops first")
        return ordered

    def _wait_count(self, node: list[str]) -> int:
        """How many waits for other blocks come before a node."""
        return max(self._waits[n] for n in node)

    def _loop(self, node: list[str], depth: int, nest: Nest) -> list[Stmt]:
        """The loop that the exprs of a node share at `depth`."""
        groups = list(dict.fromkeys(self.context.loops(n)[depth] for n in node))
        # What has one element in all shares a loop as it is.
        solid = [g for g in groups if not g.is_broadcast] or groups[:1]
        if len(solid) > 1:
            # Groups of loops that are shared are one, or all but one are broadcast.
            raise InternalError(
                f"{', '.join(node)} share loop {depth} but disagree on its group", pass_name="build_loop_nests"
            )
        group = solid[0]
        parallel = ParallelType.serial
        for name in node:
            state = self.context.state(name)
            p = state.parallel_type(state.loop[depth])
            if p is not ParallelType.serial:
                parallel = p
        indices = {**nest.indices, **dict.fromkeys((g for g in groups if g.is_broadcast), ZERO)}
        if parallel in THREAD_TYPES:
            # An extent-1 axis is computed by all workers alike: whoever stores it says which one writes.
            indices[group] = ZERO if group.is_broadcast else self.context.thread_index(parallel)
            return self._body(node, depth + 1, Nest(indices, nest.serial, nest.vector))
        extent = group.extent
        if parallel is ParallelType.vectorize:
            if not extent.is_const:
                raise SchedulingError(f"{node[0]}: a vectorized axis needs a constant extent, it has {extent}")
            lane = self._new_symbol(extent, "v")
            indices[group] = lane
            self._unrolled.add(lane)
            return self._body(node, depth + 1, Nest(indices, nest.serial, (lane, extent.value)))
        if extent is ONE or group.is_broadcast:
            # All of a broadcast that nothing resolves is one element, whatever it was split into.
            indices[group] = ZERO
            return self._body(node, depth + 1, Nest(indices, nest.serial, nest.vector))
        index = self._new_symbol(extent)
        is_backward = any(s.loop[depth] in s.backwards for s in map(self.context.state, node))
        indices[group] = extent - 1 - index if is_backward else index
        unroll = is_requested = parallel in (ParallelType.unroll, ParallelType.unswitch)
        if unroll and not extent.is_const:
            raise SchedulingError(f"{node[0]}: an {parallel.name} axis needs a constant extent, it has {extent}")
        if not unroll and extent.is_const and self._holds_registers(node, depth):
            unroll = True
        if unroll:
            self._unrolled.add(index)
        flags = set(self._flags)
        inner = self._body(node, depth + 1, Nest(indices, (*nest.serial, (index, extent)), nest.vector))
        self._flags = flags
        if unroll and not _indexes_registers(inner, index) and (not is_requested or _has_runtime_loop(inner)):
            # No register needs the index as a constant. Around a loop of unknown length unrolling multiplies code for nothing.
            unroll = False
        return [For(index, ZERO, extent, ONE, tuple(inner), unroll, parallel is ParallelType.unswitch)]

    def _holds_registers(self, node: list[str], depth: int) -> bool:
        """Whether the loop indexes a register array: such arrays need constant indices to stay in registers."""
        for name in node:
            # A sum has one place whatever the loop that it is over.
            summed = self.context.state(name).loop[depth].is_reduction
            for t in (*tensor_inputs(self.exprs[name]), *(() if summed else tensor_outputs(self.exprs[name]))):
                if is_argument(self.context, t.name):
                    continue
                state = self.context.state(t.name)
                if state.memory is MemoryType.local and (t.name not in node or state.inline_at <= depth):
                    return True
        return (
            any(
                self._accumulator_depth(n) <= depth
                for n in node
                if isinstance(self.exprs[n], Reducing) and not self.context.state(n).loop[depth].is_reduction
            )
            or any((start := self._group_depth(n)) is not None and start <= depth for n in node)
            or any(depth in self.scans[n].indexing for n in node if n in self.scans)
        )


def _has_runtime_loop(body: Sequence[Stmt]) -> bool:
    """Whether a loop inside has an iteration count that is known only at run time."""
    return any(isinstance(s, For) and not (s.start.is_const and s.stop.is_const) for s in walk(tuple(body)))


def _indexes_registers(body: Sequence[Stmt], index: Symbol) -> bool:
    """Whether a register array inside is indexed by `index`: then the loop must become constants."""
    return any(
        buffer.is_register and index in at.symbols
        for s in walk(tuple(body))
        for buffer, at in (*stmt_reads(s), *stmt_writes(s))
    )
