"""Build the loop nests of a scheduled fusion: exprs in order, sharing loops, indexed and predicated.

Before: exprs over tensors, each with a loop domain, parallel types and an inline position.
After:  kernel IR statements with collectives (`Reduce`, `Scan`) and without barriers.

Stands first: everything after it works on statements. Collectives stay whole because barriers and shared memory are decided
once all of them are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fuser.errors import InternalError, SchedulingError
from fuser.ir.dtypes import DataType
from fuser.ir.enums import BLOCK_TYPES, GLOBAL_MEMORY, GRID_TYPES, THREAD_TYPES, CacheOp, MemoryType, ParallelType
from fuser.ir.facts import Aligned
from fuser.ir.fusion import (
    COPIES,
    GENERATOR_STATE,
    Broadcast,
    Cat,
    Expand,
    Full,
    Gather,
    Iota,
    Permute,
    Pointwise,
    Random,
    Reduction,
    Reshape,
    Resize,
    Scalar,
    Scan,
    Squeeze,
    Tensor,
    TensorExpr,
    Val,
    Welford,
    is_copy,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.integers import FALSE, ONE, ZERO, Cond, Int, Symbol, all_of, const, equal, less, prove_less, symbol
from fuser.ir.iteration_graph import Group, GroupMerge, GroupSplit, GroupSwizzle
from fuser.ir.kernel import (
    Allocate,
    Buffer,
    Call,
    Cast,
    For,
    If,
    IndexValue,
    Literal,
    Load,
    LoadIndex,
    RandomValue,
    Reduce,
    Role,
    ScalarArgument,
    Stmt,
    Store,
    Value,
    VectorMove,
    stmt_reads,
    stmt_writes,
    walk,
)
from fuser.ir.op_table import POINTWISE, REDUCTIONS, compute_dtype
from fuser.ir.proofs import Claim, Relation, Term
from fuser.lowering.context import (
    LoweringContext,
    Storage,
    global_storage,
    is_argument,
    is_shared_by,
    local_storage,
    row_major_axes,
)
from fuser.lowering.displaced_reads import operand_indices, result_index, window_tests
from fuser.lowering.indexing import Indexer
from fuser.lowering.scan_nests import ScanNest, plan_scan
from fuser.lowering.unswitch_loops import is_prefix
from fuser.lowering.welford import WelfordStep, temporary, welford_add, welford_combine, welford_join

MAX_REGISTER_ELEMENTS = 4096
# What other blocks wrote must come from the cache that all share: a processor's own may hold the line as it was.
_LEVEL_2 = CacheOp["global"]


@dataclass(frozen=True, slots=True, eq=False)
class Nest:
    """Loops around a statement: index of each loop group, and the serial loops among them with their extents."""

    indices: dict[Group, Int]
    serial: tuple[tuple[Symbol, Int], ...] = ()
    vector: tuple[Symbol, int] | None = None


@dataclass(slots=True, eq=False)
class Accumulator:
    """Per-thread partials of a reduction: one register array per result, over the axes inside `depth`.

    `step` (Welford) holds what all elements of a thread have in common: how many values each has seen.
    """

    depth: int
    buffers: tuple[Buffer, ...]
    axes: tuple[tuple[Group, Int], ...]
    last_block: Symbol | None = None
    step: WelfordStep | None = None


@dataclass(slots=True, eq=False)
class LoweredBody:
    """Result of the pass."""

    body: tuple[Stmt, ...]
    arguments: dict[str, Buffer]
    workspaces: list[Buffer]
    private_buffers: set[str]
    scalars: dict[str, DataType] = field(default_factory=dict)
    cooperative: bool = False
    # Device-memory tensors that some blocks write and others read.
    crossing: frozenset[str] = frozenset()
    # Outputs that may share the storage of the input they alias.
    in_place: tuple[str, ...] = ()


class NestBuilder:
    """One use: `build()`."""

    def __init__(self, context: LoweringContext) -> None:
        self.context = context
        self.builder = context.builder
        self.sharing = context.sharing
        self.graph = context.graph
        self.exprs: dict[str, TensorExpr] = {tensor_outputs(e)[0].name: e for e in self.builder.exprs}
        self.leaders = self.sharing.leader
        self.storage: dict[str, Storage] = {}
        self.accumulators: dict[str, Accumulator] = {}
        self.scans: dict[str, ScanNest] = {
            name: plan_scan(context, e) for name, e in self.exprs.items() if isinstance(e, Scan)
        }
        self.arguments: dict[str, Buffer] = {}
        self.workspaces: list[Buffer] = []
        self.scalars: dict[str, DataType] = {}
        self.shared_reads: dict[str, bool] = {}
        self.cooperative = False
        self.crossing: set[str] = set()
        self._symbol_count = 0
        # Loop variables that unrolling turns into constants: registers can only be indexed by those.
        self._unrolled: set[Symbol] = set()
        self._last_block: dict[str, set[str]] = {}
        self._guarded_by: set[str] = set()
        # Grid reductions whose last-block flag is in scope.
        self._flags: set[str] = set()
        self._find_grid_reductions()
        self._waits = self._count_waits()

    # --- preparation ---

    def _count_waits(self) -> dict[str, int]:
        """For each expr, behind how many waits for other blocks it should stand: as many as it needs, or as all its uses need.

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
        self._symbol_count += 1
        hi = extent.hi - 1 if extent.hi is not None and extent.hi >= 1 else None
        return symbol(f"{prefix}{self._symbol_count - 1}", 0, hi, below=extent)

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
                self._reduction_types(name, GRID_TYPES) or self._sums_over_executions(name, leader)
                for name in downstream
            ) or any(
                p in axes and not group.is_broadcast for name in downstream for p, group in self._parallel_axes(name)
            )
            self.grid_broadcast[leader] = spread
            if spread:
                self.cooperative = True
                continue
            for name in downstream:
                self._last_block.setdefault(name, set()).add(leader)

    def _sums_over_executions(self, name: str, leader: str) -> bool:
        """Whether `name` reduces over a serial loop that `leader` is computed in."""
        state = self.context.state(name)
        return any(
            axis.is_reduction
            and state.parallel_type(axis) not in THREAD_TYPES
            and self.sharing.find((name, k)) == self.sharing.find((leader, k))
            for k, axis in enumerate(state.loop)
        )

    def _parallel_axes(self, leader: str) -> list[tuple[ParallelType, Group]]:
        state = self.context.state(leader)
        return [
            (p, group)
            for axis, group in zip(state.loop, self.context.loops(leader), strict=True)
            if (p := state.parallel_type(axis)) in THREAD_TYPES
        ]

    def _reduction_types(
        self, leader: str, among: Sequence[ParallelType], *, in_cluster: bool = False
    ) -> tuple[ParallelType, ...]:
        """Parallel types of the reduction axes of the expr that computes `leader`; those of a cluster are apart."""
        if not isinstance(self.exprs[leader], (Reduction, Welford)):
            return ()
        state = self.context.state(leader)
        sizes = self.context.sizes
        return tuple(
            p
            for p in among
            if (p in self.builder.cluster) is in_cluster
            and any(a.is_reduction and state.parallel_type(a) is p for a in state.loop)
            and not _is_one(sizes[p])
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

    # --- nests ---

    def build(self) -> LoweredBody:
        """Lower every expr."""
        body = self._body(list(self.exprs), 0, Nest({}))
        self._claim_transforms()
        private = {name for name, private in self.shared_reads.items() if private}
        cooperative = self.cooperative or bool(self.crossing)
        return LoweredBody(
            tuple(body), self.arguments, self.workspaces, private, self.scalars, cooperative, frozenset(self.crossing)
        )

    def _body(self, members: list[str], depth: int, nest: Nest) -> list[Stmt]:
        """Statements of exprs that share the loops around `depth`."""
        stmts: list[Stmt] = []
        for node in self._ordered_nodes(members, depth):
            guards = self._guards(node)
            outer_guards, outer_flags = self._guarded_by, set(self._flags)
            self._guarded_by = outer_guards | set(guards)
            inner: list[Stmt] = []
            for name in node:
                inner += self._open(name, depth)
            loops = self.context.loops(node[0])
            if len(loops) == depth:
                inner += self._statement(node[0], nest)
            else:
                inner += self._loop(node, depth, nest)
            for name in node:
                inner += self._close(name, depth, nest)
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

    def _ordered_nodes(self, members: list[str], depth: int) -> list[list[str]]:
        """Exprs grouped by the loop they share at `depth`, in dependency order.

        Where that leaves a choice, those that wait for fewer values in device memory come first, so that one wait serves many;
        else it is definition order.
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
        waiting: dict[object, set[object]] = {k: set() for k in nodes}
        for name in members:
            for consumer in self.sharing.edges[name]:
                if consumer in keys and keys[consumer] != keys[name]:
                    waiting[keys[consumer]].add(keys[name])
        ordered: list[list[str]] = []
        remaining = list(nodes)
        done: set[object] = set()
        while remaining:
            free = (k for k in remaining if waiting[k] <= done)
            ready = min(free, key=lambda k: max(self._waits[n] for n in nodes[k]), default=None)
            if ready is None:
                a, b = nodes[remaining[0]][0], nodes[remaining[1]][0]
                raise SchedulingError(f"no order of the loops exists: {a} and {b} need each other's loops first")
            remaining.remove(ready)
            done.add(ready)
            ordered.append(nodes[ready])
        return ordered

    def _loop(self, node: list[str], depth: int, nest: Nest) -> list[Stmt]:
        """The loop that the exprs of a node share at `depth`."""
        groups = {self.context.loops(n)[depth] for n in node}
        group = next(iter(groups)) if len(groups) == 1 else self._widest(node, depth)
        parallel = ParallelType.serial
        for name in node:
            state = self.context.state(name)
            p = state.parallel_type(state.loop[depth])
            if p is not ParallelType.serial:
                parallel = p
        indices = dict(nest.indices)
        if parallel in THREAD_TYPES:
            # An extent-1 axis is computed by all workers alike: whoever stores it says which one writes.
            indices[group] = ZERO if group.is_broadcast else self.context.threads[parallel]
            return self._body(node, depth + 1, Nest(indices, nest.serial, nest.vector))
        extent = group.extent
        if parallel is ParallelType.vectorize:
            if not extent.is_const:
                raise SchedulingError(f"{node[0]}: a vectorized axis needs a constant extent, it has {extent}")
            lane = self._new_symbol(extent, "v")
            indices[group] = lane
            self._unrolled.add(lane)
            return self._body(node, depth + 1, Nest(indices, nest.serial, (lane, extent.value)))
        if _is_one(extent) or group.is_broadcast:
            # All of a broadcast that nothing resolves is one element, whatever it was split into.
            indices[group] = ZERO
            return self._body(node, depth + 1, Nest(indices, nest.serial, nest.vector))
        index = self._new_symbol(extent)
        indices[group] = extent - 1 - index if self._runs_backwards(node, depth) else index
        unroll = asked = parallel in (ParallelType.unroll, ParallelType.unswitch)
        if unroll and not extent.is_const:
            raise SchedulingError(f"{node[0]}: an {parallel.name} axis needs a constant extent, it has {extent}")
        if not unroll and extent.is_const and self._holds_registers(node, depth):
            unroll = True
        if unroll:
            self._unrolled.add(index)
        flags = set(self._flags)
        inner = self._body(node, depth + 1, Nest(indices, (*nest.serial, (index, extent)), nest.vector))
        self._flags = flags
        if unroll and not _indexes_registers(inner, index) and (not asked or _has_runtime_loop(inner)):
            # No register needs the index as a constant. Around a loop of unknown length unrolling multiplies code for nothing.
            unroll = False
        return [For(index, ZERO, extent, ONE, tuple(inner), unroll, parallel is ParallelType.unswitch)]

    def _runs_backwards(self, node: list[str], depth: int) -> bool:
        states = (self.context.state(name) for name in node)
        return any(s.loop[depth] in s.backwards for s in states)

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
        return any(
            self._accumulator_depth(n) <= depth
            for n in node
            if isinstance(self.exprs[n], (Reduction, Welford)) and not self.context.state(n).loop[depth].is_reduction
        ) or any(self.scans[n].indexes_registers(depth) for n in node if n in self.scans)

    def _widest(self, node: list[str], depth: int) -> Group:
        raise InternalError(
            f"{', '.join(node)} share loop {depth} but disagree on its group", pass_name="build_loop_nests"
        )

    # --- allocation, initialisation and completion ---

    def _accumulator_depth(self, name: str) -> int:
        """Depth at which the partials of a reduction live: outside its reduction axes where the rest fits in registers."""
        state = self.context.state(name)
        loops = self.context.loops(name)
        first = next((k for k, a in enumerate(state.loop) if a.is_reduction), len(loops))
        inside = 1
        for axis, group in list(zip(state.loop, loops, strict=True))[first:]:
            if axis.is_reduction or group.is_broadcast or state.parallel_type(axis) in THREAD_TYPES:
                continue
            inside = inside * group.extent.value if group.extent.is_const else MAX_REGISTER_ELEMENTS + 1
        if inside <= MAX_REGISTER_ELEMENTS:
            return first
        serial = [k for k, a in enumerate(state.loop) if a.is_reduction and state.parallel_type(a) not in THREAD_TYPES]
        return serial[0] if serial else len(loops)

    def _open(self, leader: str, depth: int) -> list[Stmt]:
        """What must stand before the loop at `depth`: storage, and partials with their identities."""
        expr = self.exprs[leader]
        stmts: list[Stmt] = []
        reduces = isinstance(expr, (Reduction, Welford))
        accumulator_depth = self._accumulator_depth(leader) if reduces else -1
        if reduces and accumulator_depth == depth:
            accumulator = self._make_accumulator(leader, depth)
            self.accumulators[leader] = accumulator
            stmts += [Allocate(b) for b in accumulator.buffers]
            step = accumulator.step
            # A count in common is kept in `step`, and spread over the elements when it is complete.
            kept = accumulator.buffers if step is None else accumulator.buffers[:2]
            for buffer, identity in zip(kept, self._identities(expr), strict=False):
                stmts += self._fill(buffer, identity)
            if step is not None:
                stmts += [Allocate(b) for b in (step.count, step.fraction, step.weight)]
                stmts.append(Store(step.count, ZERO, Literal(0, step.count.dtype), Role.initialise))
        if leader in self.scans:
            stmts += self._open_scan(leader, self.scans[leader], depth)
        position = self.sharing.positions[leader]
        for t in tensor_outputs(expr):
            if position == depth and t.name not in self.storage and not is_argument(self.context, t.name):
                self._place(t, stmts)
        return stmts

    def _place(self, t: Tensor, stmts: list[Stmt]) -> None:
        """Give an intermediate its storage."""
        state = self.context.state(t.name)
        leader = self.leaders[t.name]
        accumulator = self.accumulators.get(leader)
        if (
            state.memory is MemoryType.local
            and accumulator is not None
            and accumulator.depth == self.sharing.positions[leader]
            and state.allocation is None
        ):
            index = [o.name for o in tensor_outputs(self.exprs[leader])].index(t.name)
            if accumulator.buffers[index].dtype is t.dtype:
                self.storage[t.name] = Storage(t, accumulator.buffers[index], accumulator.axes)
                return
        storage = local_storage(self.context, t, state.memory)
        size = storage.buffer.size
        if state.memory is MemoryType.local and (not size.is_const or size.value > MAX_REGISTER_ELEMENTS):
            raise SchedulingError(
                f"{t.name} would need {size} registers per thread: split and parallelize its loops, inline it, or move it to "
                "shared memory",
                location=t.location,
            )
        self.storage[t.name] = storage
        if storage.buffer.is_global:
            self.workspaces.append(storage.buffer)
        else:
            stmts.append(Allocate(storage.buffer))

    def _make_accumulator(self, leader: str, depth: int) -> Accumulator:
        state = self.context.state(leader)
        loops = self.context.loops(leader)
        kept: list[Group] = []
        for k, (axis, group) in enumerate(zip(state.loop, loops, strict=True)):
            if k < depth or axis.is_reduction or group.is_broadcast or state.parallel_type(axis) in THREAD_TYPES:
                continue
            kept.append(group)
        axes: list[tuple[Group, Int]] = []
        running: Int = ONE
        for group in reversed(kept):
            axes.append((group, running))
            running = running * group.extent
        if not running.is_const:
            raise SchedulingError(f"{leader} needs {running} partial sums per thread: that must be a constant")
        buffers = tuple(
            Buffer(f"{t.name}_partial", accumulator_dtype(t.dtype), MemoryType.local, running)
            for t in tensor_outputs(self.exprs[leader])
        )
        return Accumulator(depth, buffers, tuple(reversed(axes)), step=self._welford_step(leader, depth, buffers))

    def _welford_step(self, leader: str, depth: int, buffers: tuple[Buffer, ...]) -> WelfordStep | None:
        """A count for all elements of a thread, where every step of the reduced loops visits each of them once."""
        if not self._counts_together(leader, depth):
            return None
        # A thread of a kernel with 32-bit indices sees fewer than 2**31 elements.
        count = DataType.Int32 if self.context.index_bits == 32 else DataType.Int
        real = buffers[1].dtype
        return WelfordStep(
            temporary(f"{leader}_seen", count),
            temporary(f"{leader}_fraction", real),
            temporary(f"{leader}_weight", real),
        )

    def _counts_together(self, leader: str, depth: int) -> bool:
        expr = self.exprs[leader]
        if not isinstance(expr, Welford):
            return False
        serial = [is_reduction for is_reduction, _ in self._serial_axes(leader, depth)]
        if serial != sorted(serial, reverse=True):
            return False  # a loop over kept dims runs around one over reduced dims
        if expr.partial is None:
            return True
        # Partials that a thread joins have a count in common if they are its own and had one.
        source = self.leaders.get(expr.input.name, "")
        if source not in self.exprs or any(self._reduction_types(source, among) for among in (BLOCK_TYPES, GRID_TYPES)):
            return False
        state = self.context.state(expr.input.name)
        inside = self._accumulator_depth(source)
        return (
            state.memory is MemoryType.local
            and state.allocation is None
            and all(accumulator_dtype(t.dtype) is t.dtype for t in tensor_outputs(self.exprs[source]))
            and inside == self.sharing.positions[source]
            and self._counts_together(source, inside)
        )

    def _serial_axes(self, leader: str, depth: int) -> list[tuple[bool, Group]]:
        """(is reduced, group) of the loops from `depth` on that a thread runs through."""
        state = self.context.state(leader)
        return [
            (a.is_reduction, group)
            for a, group in zip(state.loop[depth:], self.context.loops(leader)[depth:], strict=True)
            if not group.is_broadcast and not _is_one(group.extent) and state.parallel_type(a) not in THREAD_TYPES
        ]

    def _identities(self, expr: TensorExpr) -> tuple[Literal, ...]:
        if isinstance(expr, Reduction):
            dtype = accumulator_dtype(expr.output.dtype)
            return (Literal(REDUCTIONS[expr.op].identity(dtype), dtype),)
        assert isinstance(expr, Welford)
        return tuple(
            Literal(0 if t.dtype.is_integral else 0.0, accumulator_dtype(t.dtype)) for t in tensor_outputs(expr)
        )

    def _open_scan(self, leader: str, nest: ScanNest, depth: int) -> list[Stmt]:
        stmts: list[Stmt] = []
        if depth == nest.start:
            init: Value = nest.identity
            if nest.expr.init is not None:
                init = Cast(self._read(nest.expr.init, self._indexer({})), nest.carry.dtype)
            stmts += [Allocate(nest.carry), *self._fill(nest.carry, init)]
        if depth == nest.depth and nest.collective is not None:
            values = nest.collective.values
            stmts.append(Allocate(values))
            self.accumulators[leader] = Accumulator(depth, (values,), nest.axes)
        return stmts

    def _fill(self, buffer: Buffer, value: Value) -> list[Stmt]:
        if buffer.size.value == 1:
            return [Store(buffer, ZERO, value, Role.initialise)]
        i = self._new_symbol(buffer.size)
        return [For(i, ZERO, buffer.size, ONE, (Store(buffer, i, value, Role.initialise),), unroll=True)]

    def _spread_count(self, counts: Buffer, seen: Buffer) -> list[Stmt]:
        """Every element has seen as many values."""
        value: Value = Load(seen, ZERO)
        if seen.dtype is not counts.dtype:
            value = Cast(value, counts.dtype)
        if counts.size.value == 1:
            return [Store(counts, ZERO, value)]
        i = self._new_symbol(counts.size)
        return [For(i, ZERO, counts.size, ONE, (Store(counts, i, value),), unroll=True)]

    def _close(self, leader: str, depth: int, nest: Nest) -> list[Stmt]:
        """What must stand after the loop at `depth`: the collective of a reduction, and its stores."""
        accumulator = self.accumulators.get(leader)
        if accumulator is None or accumulator.depth != depth:
            return []
        expr = self.exprs[leader]
        stmts: list[Stmt] = []
        block_axes = self._reduction_types(leader, BLOCK_TYPES)
        grid_axes = self._reduction_types(leader, GRID_TYPES)
        scan = self.scans.get(leader)
        if scan is not None and scan.collective is not None:
            stmts.append(scan.collective)
        if block_axes or grid_axes or self._cluster_types(leader):
            stmts.append(self._collective(leader, accumulator, block_axes, grid_axes, nest))
        if accumulator.step is not None:
            stmts += self._spread_count(accumulator.buffers[2], accumulator.step.count)
        stores: list[Stmt] = []
        for t, partial in zip(tensor_outputs(expr), accumulator.buffers, strict=True):
            target = self.storage.get(t.name)
            if target is None and is_argument(self.context, t.name):
                target = self._argument_storage(t)
            if target is None or target.buffer is partial:
                continue
            stores += self._store_result(leader, t, target, accumulator, partial, nest)
        if stores and accumulator.last_block is not None:
            stores = [If(equal(accumulator.last_block, 1), tuple(stores), role=Role.last_block)]
        closing: list[Stmt] = [*stmts, *stores]
        for guard in self._guards([leader]).values():
            # The parts came from a reduction over blocks inside these loops: only its last block has them.
            if closing:
                closing = [If(guard, tuple(closing), role=Role.last_block)]
        return closing

    def _collective(
        self,
        leader: str,
        accumulator: Accumulator,
        block_axes: tuple[ParallelType, ...],
        grid_axes: tuple[ParallelType, ...],
        nest: Nest,
    ) -> Reduce:
        expr = self.exprs[leader]
        slot: Int = ZERO
        slots: Int = ONE
        if grid_axes:
            for s, extent in nest.serial:
                slot = slot * extent + s
                slots = slots * extent
            if not self.grid_broadcast[leader]:
                accumulator.last_block = symbol(f"{leader}_is_last", 0, 1)
                self._flags.add(leader)
        combine = (
            "welford"
            if isinstance(expr, Welford)
            else REDUCTIONS[expr.op].combine
            if isinstance(expr, Reduction)
            else ""
        )
        partials, identities = accumulator.buffers, self._identities(expr)
        if accumulator.step is not None:
            count = accumulator.step.count
            partials, identities = (*partials[:2], count), (*identities[:2], Literal(0, count.dtype))
        return Reduce(
            partials,
            combine,
            identities,
            block_axes,
            grid_axes,
            self.grid_broadcast.get(leader, False),
            slot,
            slots,
            leader,
            accumulator.last_block,
            self._cluster_types(leader),
        )

    def _store_result(
        self, leader: str, t: Tensor, target: Storage, accumulator: Accumulator, partial: Buffer, nest: Nest
    ) -> list[Stmt]:
        """Copy a finished partial to where the tensor lives, over the axes that the partial holds."""
        state = self.context.state(leader)
        loops = self.context.loops(leader)
        indices = dict(nest.indices)
        opened: list[tuple[Symbol, Int]] = []
        kept: list[Group] = []
        for k, (axis, group) in enumerate(zip(state.loop, loops, strict=True)):
            p = state.parallel_type(axis)
            if axis.is_reduction:
                continue
            kept.append(group)
            if k < accumulator.depth:
                continue
            if p in THREAD_TYPES:
                indices[group] = ZERO if group.is_broadcast else self.context.threads[p]
            elif _is_one(group.extent):
                indices[group] = ZERO
            else:
                i = self._new_symbol(group.extent)
                self._unrolled.add(i)
                indices[group] = i
                opened.append((i, group.extent))
        indexer = self._indexer(indices)
        value: Value = Load(partial, self._offset(indexer, accumulator.axes, t))
        if partial.dtype is not target.buffer.dtype:
            value = Cast(value, target.buffer.dtype)
        stmt: Stmt = Store(target.buffer, self._offset(indexer, target.axes, t), value)
        stmts = self._guarded([stmt], indexer, kept, leader, target)
        for i, extent in reversed(opened):
            nested: list[Stmt] = [For(i, ZERO, extent, ONE, tuple(stmts), unroll=True)]
            stmts = nested
        return stmts

    # --- statements ---

    def _statement(self, leader: str, nest: Nest) -> list[Stmt]:
        """The statement that computes an expr, inside all its loops."""
        expr = self.exprs[leader]
        indexer = self._indexer(nest.indices)
        loops = self.context.loops(leader)
        if isinstance(expr, (Reduction, Welford)):
            stmts = self._accumulate(leader, expr, indexer)
            if self._reads_partials(expr, indexer):
                return stmts
            return self._predicated(stmts, self._predicates(leader, loops, indexer))
        if nest.vector is None and isinstance(expr, Scan):
            return self._fold(leader, self.scans[leader], expr, indexer, loops)
        target = self._target(expr.output)
        if nest.vector is not None:
            return self._vector_move(leader, expr, target, nest, loops)
        offset = self._offset(indexer, target.axes, expr.output)
        self._check_register_index(target.buffer, offset, expr.output)
        if isinstance(expr, (Resize, Gather)):
            before, source = self._displaced(expr, indexer, None)
            value = self._hinted(self._read(expr.input, source), expr.output)
            store = Store(target.buffer, offset, value)
            stmts = before + self._windowed(expr, store, [offset], target.buffer, indexer)
        elif isinstance(expr, Cat):
            stmts = self._parts(expr, target.buffer, offset, indexer)
        else:
            stmts = list[Stmt]([Store(target.buffer, offset, self._value(expr, indexer))])
        return self._guarded(stmts, indexer, loops, leader, target)

    def _displaced(self, expr: Resize | Gather, indexer: Indexer, lane: Symbol | None) -> tuple[list[Stmt], Indexer]:
        """What must come before a displaced read, and the indices of its operand.

        A vector along `lane` has one gathered index. Raises SchedulingError if its elements have their own.
        """
        if isinstance(expr, Resize):
            return [], self._indexer(operand_indices(self.context, expr, indexer, None))
        index = self._read(expr.index, indexer)
        if not isinstance(index, Load):
            raise InternalError(f"the index {expr.index.name} is not in memory", pass_name="build_loop_nests")
        if lane is not None:
            own = [result_index(self.context, expr.index, d, indexer) for d in expr.index.visible]
            if any(lane in i.symbols for i in own):
                raise SchedulingError(
                    f"{expr.output.name} cannot be vectorized: each element has an index of its own",
                    location=expr.output.location,
                )
            index = Load(index.buffer, index.index.substitute({lane: ZERO}))
        found = self._new_symbol(self.graph.group(expr.input.visible[expr.dim]).extent, "at")
        before: list[Stmt] = []
        if not index.buffer.is_register:
            held = Buffer(f"{expr.output.name}_{found.name}", index.dtype, MemoryType.local, ONE)
            before = [Allocate(held), Store(held, ZERO, index)]
            index = Load(held, ZERO)
        before.append(LoadIndex(found, index.buffer, index.index))
        return before, self._indexer(operand_indices(self.context, expr, indexer, found))

    def _windowed(
        self,
        expr: Resize | Gather,
        move: Stmt,
        targets: Sequence[Int],
        buffer: Buffer,
        indexer: Indexer,
        lane: Symbol | None = None,
    ) -> list[Stmt]:
        """`move` where the windows of a resize hold; its fill at the `targets` elsewhere."""
        if isinstance(expr, Gather) or expr.fill is None:
            return [move]
        what = f"window of {expr.output.name}"
        tests = window_tests(
            self.context,
            expr,
            indexer,
            lambda low, high: self._claim(f"dropped {what}", low, "<", high),
            lambda low, high: self._test(what, low, high),
            lane,
            len(targets),
        )
        if not tests:
            return [move]
        fill = self._read(expr.fill, indexer)
        if fill.dtype is not buffer.dtype:
            fill = Cast(fill, buffer.dtype)
        inside, outside = all_of(*tests), tuple(Store(buffer, i, fill) for i in targets)
        return list(outside) if inside is FALSE else [If(inside, (move,), outside)]

    def _fold(self, leader: str, nest: ScanNest, expr: Scan, indexer: Indexer, loops: list[Group]) -> list[Stmt]:
        """One element of a scan: kept for the collective, or folded into the carried value at once."""
        t = expr.output
        value = self._read(expr.input, indexer)
        within = self._predicates(leader, loops, indexer)
        if nest.collective is not None:
            values, at = nest.collective.values, self._offset(indexer, nest.axes, t)
            self._check_register_index(values, at, t)
            kept: Stmt = Store(values, at, value)
            if within is all_of():
                return [kept]
            return [If(within, (kept,), (Store(values, at, nest.identity, Role.initialise),))]
        carry, at = nest.carry, self._offset(indexer, nest.carry_axes, t)
        self._check_register_index(carry, at, t)
        compute = compute_dtype(carry.dtype)
        folded = Store(carry, at, Call(nest.combine, (Load(carry, at), value), compute, carry.dtype))
        target = self._target(t)
        offset = self._offset(indexer, target.axes, t)
        self._check_register_index(target.buffer, offset, t)
        result = Store(target.buffer, offset, Load(carry, at))
        return [*self._predicated([folded], within), *self._guarded([result], indexer, loops, leader, target)]

    def _target(self, t: Tensor) -> Storage:
        found = self.storage.get(t.name)
        return found if found is not None else self._argument_storage(t)

    def _argument_storage(self, t: Tensor) -> Storage:
        found = self.storage.get(t.name)
        if found is None:
            # What the strides span, not the number of elements: rows may be padded.
            strides = self.context.strides(t)
            size: Int = ONE
            for i, d in enumerate(t.visible):
                size = size + (self.graph.group(d).extent - 1) * strides[i]
            buffer = Buffer(t.name, t.dtype, self.context.state(t.name).memory, size, t.name)
            found = global_storage(self.context, t, buffer)
            self.storage[t.name] = found
            self.arguments[t.name] = buffer
        return found

    # --- claims, for FUSER_VERIFY=proofs ---

    def _indexer(self, indices: Mapping[Group, Int]) -> Indexer:
        return Indexer(self.graph, indices, self.context.proofs)

    def _claim(
        self,
        what: str,
        left: Term,
        relation: Relation,
        right: Term,
        premises: tuple[Cond, ...] = (),
        decision: Cond | None = None,
    ) -> None:
        if self.context.proofs is not None:
            self.context.proofs.add(Claim("build_loop_nests", what, left, relation, right, premises, decision))

    def _claim_transforms(self) -> None:
        """What groups say about their extents."""
        for t in self.graph.transforms():
            if isinstance(t, GroupMerge):
                self._claim(f"extent of {t.result.name}", t.result.extent, "==", ("*", t.outer.extent, t.inner.extent))
                continue
            count = t.outer if t.inner_split else t.inner
            parts: Term = ("//", ("+", ("+", t.source.extent, t.factor), const(-1)), t.factor)
            self._claim(f"extent of {count.name}", count.extent, "==", parts)
            if t.divides:
                self._claim(f"split of {t.source.name}", t.source.extent, "|", t.factor)

    def _is_inside(self, what: str, index: Int, extent: Int) -> bool:
        """Whether an index is proved to be below an extent: a predicate that need not be tested."""
        inside = prove_less(index, extent)
        if inside:
            self._claim(f"dropped predicate of {what}", index, "<", extent)
        return inside

    def _test(self, what: str, index: Int, extent: Int) -> Cond:
        test = less(index, extent)
        self._claim(f"predicate of {what}", index, "<", extent, decision=test)
        return test

    def _offset(self, indexer: Indexer, axes: Sequence[tuple[Group, Int]], t: Tensor) -> Int:
        offset: Int = ZERO
        unsimplified: Term = ZERO
        for group, stride in axes:
            index = indexer.index(group)
            if index is None:
                raise SchedulingError(
                    f"{t.name} cannot be indexed: its axis {group.name} does not follow from the loops around its use",
                    location=t.location,
                )
            offset = offset + index * stride
            unsimplified = ("+", unsimplified, ("*", index, stride))
        self._claim(f"offset of {t.name}", offset, "==", unsimplified)
        return offset

    def _check_register_index(self, buffer: Buffer, offset: Int, t: Tensor) -> None:
        """Registers have no addresses: their index must be a constant once the marked loops are unrolled."""
        dynamic = sorted(s.name for s in offset.symbols - self._unrolled) if buffer.is_register else []
        if dynamic:
            raise SchedulingError(
                f"{t.name} is kept in registers, but element {offset} of it is used, which depends on {', '.join(dynamic)}: "
                "inline it, give those loops constant extents, or move it to shared memory",
                location=t.location,
            )

    def _value(self, expr: TensorExpr, indexer: Indexer) -> Value:
        match expr:
            case Pointwise():
                args = tuple(self._read(v, indexer) for v in expr.inputs)
                if expr.op in COPIES:
                    return self._hinted(args[0], expr.output)
                if expr.op == "cast":
                    return Cast(args[0], expr.output.dtype)
                return Call(expr.op, args, call_dtype(expr), expr.output.dtype)
            case Squeeze():
                # A dropped dim has one element, or one that is seen many times: any index will do.
                gone = [self.graph.group(d) for d, gone in zip(expr.input.visible, expr.flags, strict=True) if gone]
                first = {g: ZERO for g in gone if indexer.index(g) is None}
                return self._read(expr.input, self._indexer({**indexer.loops, **first}) if first else indexer)
            case Broadcast() | Expand() | Permute() | Reshape():
                return self._read(expr.input, indexer)
            case Cat() | Resize() | Gather():
                raise InternalError("what chooses between reads is a statement", pass_name="build_loop_nests")
            case Full():
                value = self._read(expr.value, indexer)
                return value if value.dtype is expr.output.dtype else Cast(value, expr.output.dtype)
            case Iota():
                return self._iota(expr, indexer)
            case Random():
                return self._random(expr, indexer)
            case Reduction() | Welford() | Scan():
                raise InternalError("a reduction or scan is no value", pass_name="build_loop_nests")

    def _parts(self, expr: Cat, target: Buffer, offset: Int, indexer: Indexer) -> list[Stmt]:
        """The operand in whose part the index lies."""
        position = result_index(self.context, expr.output, expr.output.visible[expr.dim], indexer)
        stmt: Stmt = Store(target, offset, self._read(expr.inputs[-1], indexer))
        for source, bound in reversed(list(zip(expr.inputs, expr.bounds, strict=False))):
            is_before = self._test(f"part of {expr.output.name}", position, self.context.rewrite(bound))
            if is_before is not FALSE:
                stmt = If(is_before, (Store(target, offset, self._read(source, indexer)),), (stmt,))
        return [stmt]

    def _hinted(self, value: Value, copy: Tensor) -> Value:
        """The cache hint of a copy is about its read of device memory."""
        if isinstance(value, Load) and value.buffer.is_global and value.cache is CacheOp.unspecified:
            return Load(value.buffer, value.index, self.context.state(copy.name).cache_op)
        return value

    def _iota(self, expr: Iota, indexer: Indexer) -> Value:
        dtype = expr.output.dtype
        dim = expr.output.visible[0]
        index = ZERO if dim.is_broadcast else indexer.index(self.graph.group(dim))
        if index is None:
            raise SchedulingError(f"{expr.output.name} cannot be indexed")
        position: Value = IndexValue(index, DataType.Int)
        # UInt64 has no arithmetic of its own; that of Int wraps to the same bits.
        compute = DataType.Int if dtype is DataType.UInt64 else compute_dtype(dtype)
        step, start = self._read(expr.step, indexer), self._read(expr.start, indexer)
        if not (isinstance(step, Literal) and step.value == 1):
            position = Call("mul", (position, step), compute, compute)
        if not (isinstance(start, Literal) and start.value == 0):
            position = Call("add", (position, start), compute, compute)
        return position if position.dtype is dtype else Cast(position, dtype)

    def _random(self, expr: Random, indexer: Indexer) -> Value:
        index = self._offset(indexer, row_major_axes(self.context, expr.output), expr.output)
        if expr.state is not None:
            seed, offset = (self._read(v, indexer) for v in expr.state)
        else:
            self.scalars.update(dict.fromkeys(GENERATOR_STATE, DataType.Int))
            seed, offset = (ScalarArgument(name, DataType.Int) for name in GENERATOR_STATE)
            if expr.ordinal:
                ordinal = Literal(expr.ordinal, DataType.Int)
                offset = Call("add", (offset, ordinal), DataType.Int, DataType.Int)
        first, second = (self._read(v, indexer) for v in expr.parameters)
        return RandomValue(expr.distribution, index, seed, offset, (first, second), expr.output.dtype)

    def _read(self, value: Val, indexer: Indexer) -> Value:
        """An operand at the loops at hand."""
        if isinstance(value, Scalar):
            if value.value is not None:
                return Literal(value.value, value.dtype)
            if value.expression is not None:
                extent = self.context.rewrite(value.expression)
                if value.dtype.is_integral:
                    return IndexValue(extent, value.dtype)
                return Cast(IndexValue(extent, DataType.Int), value.dtype)
            self.scalars[value.name] = value.dtype
            return ScalarArgument(value.name, value.dtype)
        if value.is_cpu:
            self.scalars[value.name] = value.dtype
            return ScalarArgument(value.name, value.dtype)
        storage = self._target(value)
        crosses = self._crosses_blocks(value, indexer)
        offset = self._offset(indexer, storage.axes, value)
        self._check_register_index(storage.buffer, offset, value)
        return Load(storage.buffer, offset, _LEVEL_2 if crosses else CacheOp.unspecified)

    def _crosses_blocks(self, t: Tensor, indexer: Indexer) -> bool:
        """Whether a read is of what another block may have written in this kernel.

        Raises SchedulingError where a value spread over threads is read by a thread that does not hold it, and lives in memory
        that the reader does not share.
        """
        leader = self.leaders.get(t.name)
        if leader is None:
            return False
        state = self.context.state(t.name)
        memory = state.memory
        held: set[ParallelType] = set()
        for k, (axis, group) in enumerate(zip(state.loop, self.context.loops(t.name), strict=True)):
            p = state.parallel_type(axis)
            if p not in THREAD_TYPES or axis.is_reduction or group.is_broadcast:
                continue
            if k < self.sharing.positions[leader] or indexer.index(group) is self.context.threads[p]:
                held.add(p)
            elif not is_shared_by(memory, p):
                needed = "shared or global" if p.is_block else "global"
                raise SchedulingError(
                    f"{t.name} is spread over {p.name} along {group.name}, and is read by a thread that does not hold it: "
                    f"it must live in {needed} memory",
                    location=t.location,
                )
        if memory is MemoryType.local:
            return False
        # Workers that do not hold elements of their own read what the first of them wrote.
        if self._promoted_writes(t):
            held.clear()
        others = {p for p, size in self.context.sizes.items() if is_shared_by(memory, p) and not _is_one(size)} - held
        private = not any(p.is_block for p in others)
        self.shared_reads[t.name] = self.shared_reads.get(t.name, True) and private
        crosses = any(p.is_grid and not self._is_last_block_only(leader, p) for p in others)
        if crosses:
            self.crossing.add(t.name)
        return crosses

    def _promoted_writes(self, t: Tensor) -> bool:
        """Whether a tensor stored by its own dims is computed along wider ones, where only the first worker writes."""
        return is_argument(self.context, t.name) and bool(self.sharing.promotions.get(self.leaders[t.name]))

    def _accumulate(self, leader: str, expr: Reduction | Welford, indexer: Indexer) -> list[Stmt]:
        accumulator = self.accumulators[leader]
        offset = self._offset(indexer, accumulator.axes, tensor_outputs(expr)[0])
        self._check_register_index(accumulator.buffers[0], offset, tensor_outputs(expr)[0])
        if isinstance(expr, Reduction):
            buffer = accumulator.buffers[0]
            value = self._read(expr.input, indexer)
            compute = compute_dtype(buffer.dtype)
            combined = Call(REDUCTIONS[expr.op].combine, (Load(buffer, offset), value), compute, buffer.dtype)
            return [Store(buffer, offset, combined)]
        name = f"{leader}_w{self._next()}"
        step = accumulator.step
        if expr.partial is None:
            seen = self._seen_before(leader, accumulator, indexer)
            return welford_add(accumulator.buffers, offset, self._read(expr.input, indexer), name, step, seen)
        other = tuple(self._read(t, indexer) for t in (expr.input, *expr.partial))
        if step is None:
            return welford_combine(accumulator.buffers, offset, other, name)
        source = self.accumulators[self.leaders[expr.input.name]].step
        if (
            source is None
            or self.storage[expr.input.name].buffer is not self.accumulators[self.leaders[expr.input.name]].buffers[0]
        ):
            raise InternalError(f"the partials that {leader} joins were counted apart", pass_name="build_loop_nests")
        return welford_join(accumulator.buffers, offset, other, name, step, source, self._lane(leader, expr, indexer))

    def _seen_before(self, leader: str, accumulator: Accumulator, indexer: Indexer) -> Int | None:
        """How many values a thread has seen before the one at hand, if that is the index of an unrolled loop: the one loop
        over reduced dims, whose tests hold for all iterations before one for which they hold."""
        loops = [group for is_reduction, group in self._serial_axes(leader, accumulator.depth) if is_reduction]
        index = indexer.index(loops[0]) if len(loops) == 1 else None
        if not isinstance(index, Symbol) or index not in self._unrolled:
            return None
        for test in self._predicate_list(leader, self.context.loops(leader), indexer):
            if index in test.symbols and not is_prefix(test, index):
                return None
        return index

    def _lane(self, leader: str, expr: Welford, indexer: Indexer) -> Int | None:
        """Which of a thread's partials is read, if all are joined from the first to the last; else None."""
        accumulator, storage = self.accumulators[leader], self.storage[expr.input.name]
        joined = [group for _, group in self._serial_axes(leader, accumulator.depth)]
        if len(storage.axes) != 1 or joined != [storage.axes[0][0]]:
            return None
        return indexer.index(joined[0])

    def _reads_partials(self, expr: Reduction | Welford, indexer: Indexer) -> bool:
        """Whether the operands are partials of the same reduction in registers: outside its extents a thread holds the
        identity there, so that adding it needs no test."""
        for t in tensor_inputs(expr):
            leader = self.leaders.get(t.name)
            first = self.exprs[leader] if leader is not None else None
            accumulator = self.accumulators.get(leader) if leader is not None else None
            storage = self.storage.get(t.name)
            if accumulator is None or storage is None or storage.buffer not in accumulator.buffers:
                return False
            if isinstance(expr, Reduction) and not (isinstance(first, Reduction) and first.op == expr.op):
                return False
            if isinstance(expr, Welford) and (expr.partial is None or not isinstance(first, Welford)):
                return False
            for group, _ in storage.axes:
                index = indexer.index(group)
                if index is None or not self._is_inside(t.name, index, group.extent):
                    return False
        return True

    def _next(self) -> int:
        self._symbol_count += 1
        return self._symbol_count - 1

    def _vector_move(
        self, leader: str, expr: TensorExpr, target: Storage, nest: Nest, loops: list[Group]
    ) -> list[Stmt]:
        """One wide access for the copy inside a vectorized axis."""
        assert nest.vector is not None
        lane, width = nest.vector
        t = tensor_outputs(expr)[0]
        operands = tensor_inputs(expr)
        if not is_copy(expr) or not operands:
            raise SchedulingError(
                f"{t.name} cannot be vectorized: only a copy can (cache_before or cache_after makes one)",
                location=t.location,
            )
        source_tensor = operands[0]
        nbytes = width * t.dtype.itemsize
        if nbytes not in (1, 2, 4, 8, 16):
            raise SchedulingError(
                f"{t.name} cannot be vectorized by {width}: one access would be {nbytes} bytes, at most 16 and a power of two",
                location=t.location,
            )
        indexer = self._indexer(nest.indices)
        source = self._target(source_tensor)
        before, source_indexer = list[Stmt](), indexer
        if isinstance(expr, (Resize, Gather)):
            before, source_indexer = self._displaced(expr, indexer, lane)
        crosses = self._crosses_blocks(source_tensor, source_indexer)
        starts: list[Int] = []
        for storage, tensor, indices in ((target, t, indexer), (source, source_tensor, source_indexer)):
            offset = self._offset(indices, storage.axes, tensor)
            start = offset.substitute({lane: 0})
            if offset - start is not lane:
                raise SchedulingError(
                    f"{t.name} cannot be vectorized: {tensor.name} is not contiguous along the vectorized axis "
                    f"(its offset is {offset}); the extents must be divisible by {width} and the stride must be 1",
                    location=t.location,
                )
            if not storage.buffer.is_register and start.multiple % width != 0:
                raise SchedulingError(
                    f"{t.name} cannot be vectorized by {width}: the offset {start} of {tensor.name} is not known to be a "
                    f"multiple of {width} elements ({nbytes} bytes)",
                    location=t.location,
                )
            self._check_alignment(t, tensor, storage.buffer, nbytes)
            self._claim(f"vector of {tensor.name}", offset, "==", ("+", start, lane))
            if not storage.buffer.is_register:
                self._claim(f"start of the vector of {tensor.name}", start, "|", const(width))
            starts.append(start)
        self._check_whole_vectors(t, loops, indexer, lane, width)
        at_zero = self._indexer({g: i.substitute({lane: 0}) for g, i in nest.indices.items()})
        cache = self.context.state(t.name).cache_op if source.buffer.is_global else CacheOp.unspecified
        cache = _LEVEL_2 if crosses else cache
        if width == 1:
            stmt: Stmt = Store(target.buffer, starts[0], Load(source.buffer, starts[1], cache))
        else:
            stmt = VectorMove(target.buffer, starts[0], source.buffer, starts[1], width, cache)
        stmts: list[Stmt] = [stmt]
        if isinstance(expr, (Resize, Gather)):
            targets = [starts[0] + v for v in range(width)]
            stmts = before + self._windowed(expr, stmt, targets, target.buffer, indexer, lane)
        return self._guarded(stmts, at_zero, loops, leader, target)

    def _check_alignment(self, t: Tensor, tensor: Tensor, buffer: Buffer, nbytes: int) -> None:
        """A wide access to an argument needs a base that the facts call aligned; what the launch allocates is."""
        argument = self.context.alias_of.get(tensor.name, tensor)
        if not buffer.is_global or argument.name not in self.builder.input_names:
            return
        if not any(
            isinstance(f, Aligned) and f.tensor == argument.name and f.bytes % nbytes == 0 for f in self.context.facts
        ):
            raise SchedulingError(
                f"{t.name} cannot be vectorized: the base address of {argument.name} is not known to be aligned to "
                f"{nbytes} bytes",
                location=t.location,
            )

    def _check_whole_vectors(
        self, t: Tensor, loops: Sequence[Group], indexer: Indexer, lane: Symbol, width: int
    ) -> None:
        """Predicates see the first element of a vector: the others must be inside whenever it is."""
        for split in _inexact_splits(loops):
            index = _padded_index(split, indexer)
            if index is None or lane not in index.symbols:
                continue
            first = index.substitute({lane: 0})
            room = split.source.extent - first
            if index - first is not lane or room.multiple % width != 0:
                raise SchedulingError(
                    f"{t.name} cannot be vectorized by {width}: the extent {split.source.extent} along the vectorized axis is "
                    f"not known to be divisible by {width}",
                    location=t.location,
                )
            self._claim(f"room for the vector of {t.name}", room, "|", const(width))

    # --- predicates ---

    def _predicate_list(self, leader: str, loops: Sequence[Group], indexer: Indexer) -> list[Cond]:
        """index < extent for every split on the way to the loops that does not divide, and every padded parallel axis."""
        conds: dict[Cond, None] = {}
        state = self.context.state(leader)
        kinds = {g: state.parallel_type(a) for a, g in zip(state.loop, self.context.loops(leader), strict=True)}
        bounded: set[GroupSplit] = set()
        for split in _inexact_splits(loops):
            index = _padded_index(split, indexer)
            if index is None:
                continue
            bounded.add(split)
            parent = split.source.origin
            implied = isinstance(parent, GroupSplit) and parent in bounded and parent.outer is split.source
            # The index of the whole takes 0 for an outer part of extent 1: it says nothing about that part's padding.
            if implied and isinstance(parent, GroupSplit) and not _is_one(split.source.extent):
                # outer * f + inner < E implies outer < ceil(E / f)
                whole = indexer.index(parent.source)
                assert whole is not None
                given = (less(whole, parent.source.extent),)
                self._claim(f"implied predicate of {leader}", index, "<", split.source.extent, given)
                continue
            if not self._is_inside(leader, index, split.source.extent):
                conds[self._test(leader, index, split.source.extent)] = None
        for group in loops:
            p = kinds.get(group, ParallelType.serial)
            index = indexer.loops.get(group)
            origin = group.origin
            if isinstance(origin, GroupSplit) and origin in bounded and origin.outer is group and origin.inner_split:
                continue  # the same
            if (
                p in THREAD_TYPES
                and index is not None
                and not group.is_broadcast
                and not self._is_inside(leader, index, group.extent)
            ):
                conds[self._test(leader, index, group.extent)] = None
        return list(conds)

    def _predicates(self, leader: str, loops: Sequence[Group], indexer: Indexer) -> Cond:
        return all_of(*self._predicate_list(leader, loops, indexer))

    @staticmethod
    def _predicated(stmts: list[Stmt], condition: Cond, role: Role = Role.predicate) -> list[Stmt]:
        if condition is all_of():
            return stmts
        return [If(condition, tuple(stmts), role=role)]

    def _guarded(
        self, stmts: list[Stmt], indexer: Indexer, loops: Sequence[Group], leader: str, target: Storage
    ) -> list[Stmt]:
        """Predicates, and for memory that several threads share, the test that lets one of the holders write."""
        owner = self._owner_condition(leader, target, indexer)
        stmts = self._predicated(stmts, owner, Role.owner)
        return self._predicated(stmts, self._predicates(leader, loops, indexer))

    def _owner_condition(self, leader: str, target: Storage, indexer: Indexer) -> Cond:
        state = self.context.state(leader)
        memory = target.buffer.memory
        spread: set[ParallelType] = set()
        for axis, group in zip(state.loop, self.context.loops(leader), strict=True):
            if not axis.is_reduction and not group.is_broadcast:
                spread.add(state.parallel_type(axis))
        conds: list[Cond] = []
        for p in THREAD_TYPES:
            size = self.context.sizes.get(p)
            if size is None or _is_one(size) or p in spread or not is_shared_by(memory, p):
                continue
            if p.is_grid and self._is_last_block_only(leader, p):
                continue
            conds.append(equal(self.context.threads[p], 0))
        if self._promoted_writes(target.tensor):
            for wide in self.sharing.promotions[leader].values():
                index = indexer.index(wide)
                if index is not None:
                    conds.append(equal(index, 0))
        return all_of(*conds)

    def _is_last_block_only(self, leader: str, p: ParallelType) -> bool:
        """Whether only the last block along a grid axis gets here: it is the one that holds a reduction's result."""
        sources = set(self._last_block.get(leader, ()))
        if leader in self.grid_broadcast and not self.grid_broadcast[leader]:
            sources.add(leader)
        return any(p in self._reduction_types(r, GRID_TYPES) for r in sources)


def _is_one(size: Int) -> bool:
    return size.is_const and size.value == 1


def _padded_index(split: GroupSplit, indexer: Indexer) -> Int | None:
    """Index of a split's source as the loops count it: beyond the extent where the split pads, even that of one element."""
    outer, inner = indexer.index(split.outer), indexer.index(split.inner)
    if outer is None or inner is None:
        return indexer.index(split.source)
    return outer * split.inner.extent + inner


def _inexact_splits(loops: Sequence[Group]) -> list[GroupSplit]:
    """The splits on the way to some loops that are not known to divide, outer before inner."""
    found: dict[GroupSplit, None] = {}
    seen: set[Group] = set()

    def visit(group: Group) -> None:
        if group in seen:
            return
        seen.add(group)
        match group.origin:
            case GroupSplit() as s:
                visit(s.source)
                if not s.divides:
                    found[s] = None
            case GroupMerge() as m:
                visit(m.outer)
                visit(m.inner)
            case GroupSwizzle() | None:
                # Places in memory are swizzled, loops are not.
                pass

    for group in loops:
        visit(group)
    return list(found)


def accumulator_dtype(dtype: DataType) -> DataType:
    """What partial results are held in: Float for the narrow floats, so that only the result is rounded."""
    return compute_dtype(dtype) if dtype.is_reduced_float else dtype


def _has_runtime_loop(body: Sequence[Stmt]) -> bool:
    """Whether a loop inside has a trip count that is known only at run time."""
    return any(isinstance(s, For) and not (s.start.is_const and s.stop.is_const) for s in walk(tuple(body)))


def _indexes_registers(body: Sequence[Stmt], index: Symbol) -> bool:
    """Whether a register array inside is indexed by `index`: then the loop must become constants."""
    return any(
        buffer.is_register and index in at.symbols
        for s in walk(tuple(body))
        for buffer, at in (*stmt_reads(s), *stmt_writes(s))
    )


def call_dtype(expr: Pointwise) -> DataType:
    """Compute dtype of a pointwise expr: of its result for `where`, else of its operands."""
    if expr.op == "where":
        return compute_dtype(expr.output.dtype)
    tensors = [v for v in expr.inputs if isinstance(v, Tensor)]
    dtype = tensors[0].dtype
    return dtype if dtype.is_reduced_float and POINTWISE[expr.op].in_own_type else compute_dtype(dtype)
