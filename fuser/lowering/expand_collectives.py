"""Turn every collective into shuffles, shared exchanges, atomics and fences.

Before: Reduce(t3_partial, add, block=(block_x), grid=())
After:  butterflies inside a warp; one shared slot per warp, read by every thread; across blocks one partial per block in a
        workspace, one semaphore, and the last block (or, after a wait, every block) sums the partials in block order.
        Reductions over the same blocks share the semaphore: what needs two results finds them in one last block.
        A GridBarrier is one counter that every block adds to and waits for; the last block to leave sets it back.
        Scans: see expand_scan.py.

Stands before shared memory is laid out and barriers are inserted: both treat scratch like any other shared buffer. Only the
barriers of the grid protocol, which order fences and not shared accesses, are written here.

Publication across blocks: every writer stores and fences, and (after a barrier, where several threads wrote) one thread adds
to the semaphore. Every thread that reads fences after that addition was seen, behind the barrier that passes it on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from fuser.errors import SchedulingError
from fuser.ir.dtypes import DataType
from fuser.ir.enums import BLOCK_TYPES, GLOBAL_MEMORY, GRID_TYPES, CacheOp, MemoryType, ParallelType
from fuser.ir.integers import (
    ONE,
    ZERO,
    Cond,
    Int,
    Symbol,
    all_of,
    const,
    equal,
    less,
    maximum,
    prove_less,
    select,
    symbol,
)
from fuser.ir.kernel import (
    Allocate,
    AtomicAdd,
    BlockBarrier,
    Buffer,
    Call,
    Fence,
    For,
    GridBarrier,
    If,
    IndexValue,
    Let,
    Literal,
    Load,
    LoadIndex,
    Reduce,
    Role,
    Scan,
    Shuffle,
    ShuffleKind,
    SpinWait,
    Stmt,
    Store,
    Value,
    child_bodies,
    stmt_reads,
    stmt_writes,
    walk,
)
from fuser.ir.op_table import compute_dtype
from fuser.lowering.compensated_sum import COMBINE, join_sums
from fuser.lowering.exact_welford import COMBINE_EXACTLY, pool_exactly
from fuser.lowering.exp_sum import COMBINE_EXACTLY as EXACT_EXP_SUM
from fuser.lowering.exp_sum import exp_sum_combine, exp_sum_parts, exp_sum_scaled
from fuser.lowering.expand_cluster import enter_cluster, exchange_by_lanes, exchange_in_cluster, told_buffers
from fuser.lowering.expand_group import Places, exchange_in_group, leave_group
from fuser.lowering.expand_scan import BlockThreads, expand_scan
from fuser.lowering.expand_scan_cluster import expand_scan_of_cluster
from fuser.lowering.spread_joins import Joined, Spread, spread_groups, spread_join
from fuser.lowering.welford import CommonJoin, pool_statistics, welford_combine
from fuser.lowering.wide_welford import pool_wide
from fuser.records import record

WARP = 32
_NO_CLUSTER: Mapping[ParallelType, int] = MappingProxyType({})


@dataclass(slots=True, eq=False)
class Expanded:
    """The body without collectives, and what the launch must supply.

    told    shared buffers that each thread reads behind a wait of its own, and no barrier
    """

    body: tuple[Stmt, ...]
    workspaces: list[Buffer] = field(default_factory=list)
    semaphores: Buffer | None = None
    told: frozenset[str] = frozenset()


def expand_collectives(
    body: tuple[Stmt, ...],
    threads: Mapping[ParallelType, Symbol],
    sizes: Mapping[ParallelType, Int],
    cluster: Mapping[ParallelType, int] = _NO_CLUSTER,
) -> Expanded:
    """Expand every collective of a body.

    threads, sizes   index and extent of each parallel axis of the kernel
    cluster          blocks of a cluster along a grid axis
    """
    expander = _Expander(threads, sizes, cluster)
    result = expander.whole(body)
    if cluster:
        result = enter_cluster(result, expander.thread)
    _check_last_blocks(result, expander.last_blocks, frozenset())
    told = told_buffers(result) if cluster else frozenset[str]()
    return Expanded(result, expander.workspaces, expander.semaphore_buffer(), told)


def _grid_key(stmt: Stmt) -> object:
    """What two reductions over blocks must have in common to share a semaphore; None for other statements."""
    if not isinstance(stmt, Reduce) or not stmt.grid_axes:
        return None
    return stmt.grid_axes, stmt.block_axes, stmt.copy_axes, stmt.slot, stmt.slots, stmt.grid_broadcast


def _same_threads(a: Reduce, b: Reduce) -> bool:
    return (a.block_axes, a.cluster_axes) == (b.block_axes, b.cluster_axes)


def _mentions(item: Stmt | tuple[Reduce, ...], buffers: set[Buffer]) -> bool:
    return any(
        b in buffers
        for s in walk(item if isinstance(item, tuple) else (item,))
        for b, _ in (*stmt_reads(s), *stmt_writes(s))
    )


def _joined(items: list[Stmt | tuple[Reduce, ...]]) -> list[Stmt | tuple[Reduce, ...]]:
    """Reductions over the same threads, brought together.

    A later one moves up past what does not compute its partials, or an earlier one down past what does not use its result.
    """
    result: list[Stmt | tuple[Reduce, ...]] = []
    waiting = list(items)
    while waiting:
        item = waiting.pop(0)
        if not isinstance(item, Reduce) or item.grid_axes:
            result.append(item)
            continue
        together = [item]
        touched: set[Buffer] = set()
        rest: list[Stmt | tuple[Reduce, ...]] = []
        for i, other in enumerate(waiting):
            if isinstance(other, tuple):
                rest += waiting[i:]
                break
            if isinstance(other, Reduce) and not other.grid_axes and _same_threads(other, item):
                mine = {p for r in together for p in r.partials}
                if not touched.isdisjoint(other.partials) and not any(_mentions(s, mine) for s in rest):
                    # Nothing between needs what is reduced so far: that can wait.
                    result += rest
                    rest, touched = [], set()
                if touched.isdisjoint(other.partials):
                    together.append(other)
                    continue
            for inner in walk((other,)):
                touched.update(buffer for buffer, _ in stmt_writes(inner))
                if isinstance(inner, Reduce):
                    touched.update(inner.partials)
                if isinstance(inner, Allocate):
                    touched.add(inner.buffer)
            rest.append(other)
        waiting = rest
        result.append(item if len(together) == 1 else tuple(together))
    return result


def _gathered(body: tuple[Stmt, ...]) -> list[Stmt | tuple[Reduce, ...]]:
    """The statements, with the reductions over the same blocks brought together.

    They meet where the last of them stands. Of what stands between, the tests for the last block of an earlier one follow, and
    what reads its result with all that depends on that; a reduction among these is left for a later meeting.
    """
    items: list[Stmt | tuple[Reduce, ...]] = list(body)
    for key in dict.fromkeys(k for k in map(_grid_key, body) if k is not None):
        together = [s for s in body if isinstance(s, Reduce) and _grid_key(s) == key]
        while len(together) > 1:
            first, last = items.index(together[0]), items.index(together[-1])
            flags = {r.last_block for r in together}
            before: list[Stmt | tuple[Reduce, ...]] = []
            after: list[Stmt | tuple[Reduce, ...]] = []
            meeting: list[Reduce] = []
            # Results of those that meet, and what is written after them.
            late: set[Buffer] = set()
            for item in items[first : last + 1]:
                if not isinstance(item, tuple) and _needs(item, flags, late):
                    after.append(item)
                    late.update(b for s in walk((item,)) for b, _ in stmt_writes(s))
                elif isinstance(item, Reduce) and item in together:
                    meeting.append(item)
                    late.update(item.partials)
                else:
                    before.append(item)
            items[first : last + 1] = [*before, tuple(meeting) if len(meeting) > 1 else meeting[0], *after]
            together = [r for r in together if r not in meeting]
    return items


def _needs(stmt: Stmt, flags: set[Symbol | None], late: set[Buffer]) -> bool:
    """Whether a statement tests for one of the last blocks, or reads or writes what is there only after a meeting."""
    for inner in walk((stmt,)):
        if isinstance(inner, If) and not flags.isdisjoint(inner.condition.symbols):
            return True
        if any(buffer in late for buffer, _ in (*stmt_reads(inner), *stmt_writes(inner))):
            return True
    return False


def _executions(outer: Int | None, loop: For) -> Int | None:
    """How often the body of a loop ran before, of which `outer` counts the executions."""
    if outer is None or loop.start is not ZERO or loop.step is not ONE:
        return None
    return outer * loop.stop + loop.symbol


def _check_last_blocks(body: tuple[Stmt, ...], groups: Mapping[Symbol, int], inside: frozenset[int]) -> None:
    """Raise SchedulingError for work that needs the last blocks of two semaphores: they may be two blocks."""
    for stmt in body:
        entered = inside
        if isinstance(stmt, If):
            entered = inside | {groups[s] for s in stmt.condition.symbols if s in groups}
            if len(entered) > 1:
                names = ", ".join(sorted(s.name for s, g in groups.items() if g in entered))
                raise SchedulingError(
                    "a value needs the results of grid reductions that end in different blocks "
                    f"({names}); reduce them over the same parallel axes"
                )
        for inner in child_bodies(stmt):
            _check_last_blocks(inner, groups, entered)


class _Expander:
    def __init__(
        self,
        threads: Mapping[ParallelType, Symbol],
        sizes: Mapping[ParallelType, Int],
        cluster: Mapping[ParallelType, int],
    ) -> None:
        self.threads = threads
        self.sizes = sizes
        self.cluster = cluster
        # How often the statements at hand ran before; None where that is not known.
        self.execution: Int | None = ZERO
        self.active = [p for p in reversed(BLOCK_TYPES) if p in sizes and not _is_one(sizes[p])]
        self.active.sort(key=lambda p: (ParallelType.block_x, ParallelType.block_y, ParallelType.block_z).index(p))
        self.workspaces: list[Buffer] = []
        self.semaphores: Int = ZERO
        self._semaphores = Buffer("semaphores", DataType.Int32, GLOBAL_MEMORY, ZERO)
        self.last_blocks: dict[Symbol, int] = {}
        self._arrivals: tuple[Int, Int] | None = None
        # By the axes that groups of blocks lie along: indices of this block's counters, and how often it meets by the last.
        self._groups: dict[tuple[ParallelType, ...], tuple[list[Int], Int]] = {}
        # Of reductions whose results the threads of a block have one by one.
        self._owners: dict[Reduce, Joined] = {}
        self._count = 0

    def whole(self, stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """The body of a kernel without collectives."""
        body = (*self.body(stmts), *self._leave_groups())
        return body if self._arrivals is None else (*body, *self._leave_grid(*self._arrivals))

    def body(self, stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """Statements without collectives."""
        result: list[Stmt] = []
        for item in _joined(_gathered(stmts)):
            match item:
                case tuple():
                    if self._meets_in_group(item[0]):
                        result += self._group(item)
                        continue
                    if item[0].cluster_axes:
                        result += self._exchanged(item)
                    elif item[0].block_axes:
                        result += self._blocks(item)
                    if item[0].grid_axes:
                        broadcast = item[0].grid_broadcast
                        result += self._grid_broadcast(item) if broadcast else self._grid_last_block(item)
                case Reduce():
                    result += self.expand(item)
                case GridBarrier():
                    result += self._grid_barrier(item)
                case Scan():
                    result += self._scanned(item)
                case For():
                    outer = self.execution
                    self.execution = _executions(outer, item)
                    inner = self.body(item.body)
                    self.execution = outer
                    result.append(item if inner == item.body else replace(item, body=inner))
                case If():
                    outer, self.execution = self.execution, None
                    then, orelse = self.body(item.then), self.body(item.orelse)
                    self.execution = outer
                    unchanged = then == item.then and orelse == item.orelse
                    result.append(item if unchanged else replace(item, then=then, orelse=orelse))
                case _:
                    result.append(item)
        return tuple(result)

    def semaphore_buffer(self) -> Buffer | None:
        if self.semaphores is ZERO:
            return None
        object.__setattr__(self._semaphores, "size", self.semaphores)
        return self._semaphores

    # --- positions ---

    @property
    def thread(self) -> Int:
        """Linear index of the thread in its block."""
        return self._linear(self.active)

    def _linear(self, axes: Sequence[ParallelType], index: Mapping[ParallelType, Int] | None = None) -> Int:
        """Position among `axes`, the first one fastest."""
        position: Int = ZERO
        for p in reversed(axes):
            position = position * self.sizes[p] + (index[p] if index else self.threads[p])
        return position

    def _count_of(self, axes: Sequence[ParallelType]) -> Int:
        count: Int = ONE
        for p in axes:
            count = count * self.sizes[p]
        return count

    def _block_threads(self) -> BlockThreads:
        return BlockThreads(
            self.active, self.threads, self.sizes, self._linear, self._count_of, self._symbol, self._number
        )

    def _number(self) -> int:
        self._count += 1
        return self._count - 1

    def _symbol(self, prefix: str, extent: Int) -> Symbol:
        self._count += 1
        hi = extent.hi - 1 if extent.hi is not None and extent.hi >= 1 else None
        return symbol(f"{prefix}{self._count - 1}", 0, hi, below=extent)

    # --- expansion ---

    def expand(self, r: Reduce) -> list[Stmt]:
        """Statements of one collective."""
        if self._meets_in_group(r):
            return self._group((r,))
        stmts = self._exchanged((r,)) if r.cluster_axes else self._blocks((r,)) if r.block_axes else []
        if r.grid_axes:
            stmts += self._grid_broadcast((r,)) if r.grid_broadcast else self._grid_last_block((r,))
        return stmts

    def _scanned(self, scan: Scan) -> list[Stmt]:
        block = self._block_threads()
        if not scan.cluster_axes:
            return expand_scan(scan, block)
        (axis,) = scan.cluster_axes
        size = self.cluster[axis]
        return expand_scan_of_cluster(scan, block, size, self.threads[axis] % size, execution=self.execution)

    def _exchanged(self, reduces: Sequence[Reduce]) -> list[Stmt]:
        """Reductions over the blocks of a cluster, and the threads of each block where there are several."""
        r = reduces[0]
        (axis,) = r.cluster_axes
        size = self.cluster[axis]
        total = self._count_of(self.active)
        if total.is_const and total.value % WARP == 0 and set(self.active) == set(r.block_axes):
            values = total.value // WARP
            by_warps = size * values <= _TOLD_BY_WARPS
            if by_warps:
                alone = [s for one in reduces for s in self._butterflies(one, WARP)]
            else:
                alone, values = self._blocks(reduces), 1
            return alone + exchange_by_lanes(
                reduces,
                size,
                self.threads[axis] % size,
                self._linear(self.active),
                values,
                self._symbol,
                self._each,
                self._combine_each,
                self._butterflies,
                execution=self.execution,
                by_warps=by_warps,
            )
        spread = [p for p in self.active if p in r.block_axes]
        lanes = [p for p in self.active if p not in r.block_axes]
        blocks = self._blocks(reduces) if r.block_axes else []
        return blocks + exchange_in_cluster(
            reduces,
            size,
            self.threads[axis] % size,
            self._linear(spread),
            self._count_of(spread),
            self._linear(lanes),
            self._count_of(lanes),
            self._symbol,
            self._elements,
            self._combine,
            execution=self.execution,
        )

    def _elements(self, r: Reduce, make: Callable[[Int], list[Stmt]]) -> list[Stmt]:
        """`make(e)` for every element of the partials."""
        count = r.partials[0].size
        if _is_one(count):
            return make(ZERO)
        e = self._symbol("e", count)
        return [For(e, ZERO, count, ONE, tuple(make(e)), unroll=True)]

    def _each(self, r: Reduce, make: Callable[[int, Int], list[Stmt]]) -> list[Stmt]:
        """`make(i, e)` for every element of every partial; for a count that the elements have in common once."""
        wide = [i for i in range(len(r.partials)) if not _is_common(r, i)]
        common = [s for i in range(len(r.partials)) if i not in wide for s in make(i, ZERO)]
        return [*common, *self._elements(r, lambda e: [s for i in wide for s in make(i, e)])]

    def _combine_each(self, r: Reduce, other: Callable[[int, Int], Value]) -> list[Stmt]:
        """Join `other(i, e)` to every element e of every partial i."""
        if not _is_common(r, 2):
            return self._elements(r, lambda e: self._combine(r, e, tuple(other(i, e) for i in range(len(r.partials)))))
        join = CommonJoin(r.partials, f"{r.name}_c{self._number()}")
        has_rest = r.combine == COMBINE_EXACTLY
        return [
            *join.counted(other(2, ZERO)),
            *self._elements(r, lambda e: join.element(e, other(0, e), other(1, e), other(3, e) if has_rest else None)),
        ]

    def _join_all(
        self, r: Reduce, others: Callable[[int, Int, Int], Value], number: Int, *, unroll: bool = False
    ) -> list[Stmt]:
        """Set every partial to what `number` threads have together: `others(i, e, k)` is element e of partial i of thread k."""
        if r.combine == "welford" and not r.partials[0].dtype.is_complex:
            name = f"{r.name}_c{self._number()}"
            return pool_statistics(
                r.partials, others, number, lambda make: self._elements(r, make), self._symbol, name, unroll=unroll
            )
        if r.combine == COMBINE_EXACTLY:
            name = f"{r.name}_c{self._number()}"
            pool = pool_wide if r.partials[0].dtype is DataType.Float else pool_exactly
            return pool(
                r.partials, others, number, lambda make: self._elements(r, make), self._symbol, name, unroll=unroll
            )
        if r.combine in _EXP_SUMS:
            name, is_exact = f"{r.name}_p{self._number()}", r.combine == EXACT_EXP_SUM

            def parts(e: Int) -> list[Stmt]:
                def read(i: int, k: Int) -> Value:
                    return others(i, e, k)

                return exp_sum_parts(r.partials, e, number, read, name, self._symbol, unroll=unroll, is_exact=is_exact)

            return self._elements(r, parts)
        k = self._symbol("k", number)

        def first(i: int, e: Int) -> list[Stmt]:
            return [Store(r.partials[i], e, others(i, e, ZERO))]

        rest = self._combine_each(r, lambda i, e: others(i, e, k))
        return [*self._each(r, first), For(k, ONE, number, ONE, tuple(rest), unroll=unroll)]

    def _combine(self, r: Reduce, at: Int, other: tuple[Value, ...]) -> list[Stmt]:
        if r.combine in ("welford", COMBINE_EXACTLY):
            self._count += 1
            return welford_combine(r.partials, at, other, f"{r.name}_c{self._count - 1}")
        if r.combine == COMBINE:
            self._count += 1
            return join_sums(r.partials, at, other, f"{r.name}_c{self._count - 1}")
        if r.combine in _EXP_SUMS:
            name = f"{r.name}_c{self._number()}"
            return exp_sum_combine(r.partials, at, other, name, is_exact=r.combine == EXACT_EXP_SUM)
        partial = r.partials[0]
        dtype = partial.dtype
        return [Store(partial, at, Call(r.combine, (Load(partial, at), other[0]), compute_dtype(dtype), dtype))]

    # --- within a block ---

    def _blocks(self, reduces: Sequence[Reduce]) -> list[Stmt]:
        """Reductions over the same threads: all of them publish before any reads, so that one barrier serves all."""
        parts = [self._block_parts(r) for r in reduces]
        return [s for publish, _ in parts for s in publish] + [s for _, collect in parts for s in collect]

    def _block_parts(self, r: Reduce) -> tuple[list[Stmt], list[Stmt]]:
        """What a thread does before and after the barrier that its peers' values need."""
        reduced = [p for p in self.active if p in r.block_axes]
        total = self._count_of(self.active)
        count = self._count_of(reduced)
        contiguous = reduced == self.active[: len(reduced)]
        if contiguous and count.is_const and total.is_const and total.value % WARP == 0:
            if count.value <= WARP and count.value & (count.value - 1) == 0:
                return self._butterflies(r, count.value), []
            if count.value % WARP == 0:
                return self._warp_then_slots(r, count.value, total.value)
        return self._exchange(r, reduced, total, count)

    def _butterflies(self, r: Reduce, width: int, stride: int = 1) -> list[Stmt]:
        """Join the lanes of each aligned group of `width` that are a multiple of `stride` apart."""
        if r.combine in _EXP_SUMS:
            return self._butterflies_of_pair(r, width, stride)
        if not _is_common(r, 2):
            return self._elements(r, lambda e: self._butterfly(r, e, width, stride))
        stmts: list[Stmt] = []
        offset = width // 2
        while offset >= stride:
            lane = const(offset)
            number = self._number()
            got = tuple(Buffer(f"{p.name}_x{number}", p.dtype, MemoryType.local, p.size) for p in r.partials)

            def shuffle(i: int, e: Int, got: tuple[Buffer, ...] = got, lane: Int = lane) -> list[Stmt]:
                return [Shuffle(got[i], e, Load(r.partials[i], e), ShuffleKind.xor, lane)]

            stmts += [*(Allocate(b) for b in got), *self._each(r, shuffle)]
            stmts += self._combine_each(r, lambda i, e, got=got: Load(got[i], e))
            offset //= 2
        return stmts

    def _butterflies_of_pair(self, r: Reduce, width: int, stride: int) -> list[Stmt]:
        """The maximum of all lanes first: then each scales its total once, and the totals are added."""
        largest = r.partials[0]
        old = Buffer(f"{largest.name}_own{self._number()}", largest.dtype, MemoryType.local, largest.size)

        def alone(partial: int, combine: str) -> list[Stmt]:
            one = replace(r, partials=(r.partials[partial],), identity=(r.identity[partial],), combine=combine)
            return self._butterflies(one, width, stride)

        return [
            Allocate(old),
            *self._elements(r, lambda e: [Store(old, e, Load(largest, e))]),
            *alone(0, "maximum"),
            *self._elements(r, lambda e: exp_sum_scaled(r.partials, e, old, is_exact=r.combine == EXACT_EXP_SUM)),
            *alone(1, "add"),
        ]

    def _butterfly(self, r: Reduce, at: Int, width: int, stride: int) -> list[Stmt]:
        """All lanes of each aligned group of `width`, a multiple of `stride` apart, end with what they have together."""
        stmts: list[Stmt] = []
        offset = width // 2
        while offset >= stride:
            received: list[Buffer] = []
            for partial in r.partials:
                self._count += 1
                other = Buffer(f"{partial.name}_x{self._count - 1}", partial.dtype, MemoryType.local, ONE)
                stmts += [
                    Allocate(other),
                    Shuffle(other, ZERO, Load(partial, at), ShuffleKind.xor, const(offset)),
                ]
                received.append(other)
            stmts += self._combine(r, at, tuple(Load(b, ZERO) for b in received))
            offset //= 2
        return stmts

    def _scratch(self, r: Reduce, size: Int) -> tuple[Buffer, ...]:
        self._count += 1
        return tuple(
            Buffer(f"{p.name}_shared{self._count - 1}", p.dtype, MemoryType.shared, p.size * size) for p in r.partials
        )

    def _warp_then_slots(self, r: Reduce, count: int, total: int) -> tuple[list[Stmt], list[Stmt]]:
        stmts = self._butterflies(r, WARP)
        if count == WARP:
            return stmts, []
        warps, per_group = total // WARP, count // WARP
        linear = self._linear(self.active)
        scratch = self._scratch(r, const(warps))
        stmts += [Allocate(b) for b in scratch]

        def place(e: Int) -> Int:
            return e * warps + linear // count * per_group

        def write(i: int, e: Int) -> list[Stmt]:
            return [Store(scratch[i], e * warps + linear // WARP, Load(r.partials[i], e))]

        stmts.append(If(equal(linear % WARP, 0), tuple(self._each(r, write)), role=Role.owner))
        if r.combine == COMBINE and per_group <= WARP and per_group & (per_group - 1) == 0:
            # Each addition waits for six: lanes read a slot each and join them in few steps.
            own = linear % per_group

            def read(i: int, e: Int) -> list[Stmt]:
                return [Store(r.partials[i], e, Load(scratch[i], place(e) + own))]

            return stmts, [*self._each(r, read), *self._butterflies(r, per_group)]
        join = self._join_all(r, lambda i, e, k: Load(scratch[i], place(e) + k), const(per_group), unroll=True)
        return stmts, join

    def _exchange(
        self, r: Reduce, reduced: Sequence[ParallelType], total: Int, count: Int
    ) -> tuple[list[Stmt], list[Stmt]]:
        """Every thread writes its partials; each element of a group is joined by one of its threads, in order of the reduced
        axes, and read by all. Where that is little work, or how much is not known, every thread does all of it for itself and
        saves a barrier."""
        groups = spread_groups(count, r.partials[0].size)
        if groups:
            return self._exchange_spread(r, reduced, total.value, count.value, groups)
        scratch = self._scratch(r, total)
        linear = self._linear(self.active)
        stmts: list[Stmt] = [Allocate(b) for b in scratch]

        def write(i: int, e: Int) -> list[Stmt]:
            return [Store(scratch[i], e * total + linear, Load(r.partials[i], e))]

        def place(e: Int, position: Int) -> Int:
            index: dict[ParallelType, Int] = {p: self.threads[p] for p in self.active}
            for p in reduced:
                index[p] = position % self.sizes[p] if p is not reduced[-1] else position
                position = position // self.sizes[p]
            return e * total + self._linear(self.active, index)

        stmts += self._each(r, write)
        size = r.partials[0].size
        if not count.is_const or count.value * size.value <= _OWN_WORK:
            return stmts, self._join_all(r, lambda i, e, k: Load(scratch[i], place(e, k)), count)
        kept = [p for p in self.active if p not in reduced]
        lanes, lane = self._count_of(kept), self._linear(kept)
        results = self._scratch(r, lanes)
        collect: list[Stmt] = [Allocate(b) for b in results]
        for start in range(0, size.value, count.value):
            element = self._linear(reduced) + start
            at = [ZERO if _is_common(r, i) else element for i in range(len(r.partials))]
            number = self._number()
            own = tuple(Buffer(f"{p.name}_own{number}", p.dtype, MemoryType.local, ONE) for p in r.partials)
            work: list[Stmt] = [Allocate(b) for b in own]

            def peer(i: int, _: Int, k: Int, at: list[Int] = at) -> Value:
                return Load(scratch[i], place(at[i], k))

            work += self._join_all(replace(r, partials=own), peer, count)
            for i, (b, result) in enumerate(zip(own, results, strict=True)):
                found = Store(result, at[i] * lanes + lane, Load(b, ZERO))
                if not _is_common(r, i):
                    work.append(found)
                elif start == 0:
                    work.append(If(equal(element, 0), (found,), role=Role.owner))
            collect += work if prove_less(element, size) else [If(less(element, size), tuple(work), role=Role.owner)]

        def read(i: int, e: Int) -> list[Stmt]:
            return [Store(r.partials[i], e, Load(results[i], e * lanes + lane))]

        return stmts, collect + self._each(r, read)

    def _exchange_spread(
        self, r: Reduce, reduced: Sequence[ParallelType], total: int, count: int, groups: int
    ) -> tuple[list[Stmt], list[Stmt]]:
        """Many threads for each element: they join in two steps, and those of a warp before that by butterflies."""
        kept = [p for p in self.active if p not in reduced]
        lanes, lane, position = self._count_of(kept).value, self._linear(kept), self._linear(reduced)
        in_warps = kept == self.active[: len(kept)] and WARP % lanes == 0 and total % WARP == 0
        joined = WARP // lanes if in_warps and count // (WARP // lanes) % groups == 0 else 1
        parts = count // joined
        stmts = self._butterflies(r, WARP, lanes) if joined > 1 else []
        scratch = self._scratch(r, const(parts * lanes))
        spread = Spread(
            position, const(count), r.partials[0].size.value, groups, lane, const(lanes), lambda i: _is_common(r, i)
        )
        per = parts // groups

        def write(i: int, e: Int) -> list[Stmt]:
            return [Store(scratch[i], (e * parts + position // joined) * lanes + lane, Load(r.partials[i], e))]

        def own_parts(one: Reduce, at: list[Int]) -> list[Stmt]:
            def part(i: int, _: Int, k: Int) -> Value:
                return Load(scratch[i], (at[i] * parts + spread.group * per + k) * lanes + lane)

            return self._join_all(one, part, const(per))

        publish = _guarded(equal(position % joined, 0), self._each(r, write))
        joined_by = self._spread_join(r, spread, own_parts)
        self._owners[r] = joined_by
        return [*stmts, *(Allocate(b) for b in scratch), *publish], joined_by.stmts

    def _spread_join(self, r: Reduce, spread: Spread, first: Callable[[Reduce, list[Int]], list[Stmt]]) -> Joined:
        def join(one: Reduce, value: Callable[[int, Int, Int], Value], parts: int) -> list[Stmt]:
            return self._join_all(one, value, const(parts), unroll=True)

        return spread_join(r, spread, first, join, self._scratch, self._each, self._number)

    # --- across blocks ---

    def _grid_parts(self, r: Reduce) -> _GridParts:
        grid = [p for p in GRID_TYPES if p in self.sizes]
        reduced = [p for p in grid if p in r.grid_axes]
        kept = [p for p in grid if p not in r.grid_axes]
        shared = (*r.block_axes, *r.copy_axes)
        lanes = [p for p in self.active if p not in shared]
        spread = [p for p in self.active if p in shared]
        blocks = self._count_of(reduced)
        segment = self._linear(kept) * r.slots + r.slot
        segments = self._count_of(kept) * r.slots
        lane_count = self._count_of(lanes)
        self._count += 1
        buffers = tuple(
            Buffer(f"{p.name}_blocks{self._count - 1}", p.dtype, GLOBAL_MEMORY, segments * p.size * blocks * lane_count)
            for p in r.partials
        )
        self.workspaces += buffers

        def place(i: int, e: Int, block: Int) -> Int:
            return ((segment * r.partials[i].size + e) * blocks + block) * lane_count + self._linear(lanes)

        return _GridParts(buffers, place, self._linear(reduced), blocks, segment, segments, lanes, spread)

    def _publish(self, reduces: Sequence[Reduce], parts: Sequence[_GridParts], after: Sequence[Stmt]) -> list[Stmt]:
        """Store this block's partials, then let one thread add to the semaphore and go on with `after`."""
        owners = [self._owners.get(r) for r in reduces]
        first = owners[0]
        if first is not None and all(o is not None and o.owner is first.owner for o in owners):
            return self._publish_owned([o for o in owners if o is not None], parts, after)
        stores: list[Stmt] = []
        for r, part in zip(reduces, parts, strict=True):

            def write(i: int, e: Int, r: Reduce = r, part: _GridParts = part) -> list[Stmt]:
                return [Store(part.buffers[i], part.place(i, e, part.block), Load(r.partials[i], e))]

            stores += self._each(r, write)
        stores.append(Fence())
        g = parts[0]
        writes = all_of(*(equal(self.threads[p], 0) for p in g.spread))
        one_thread = all_of(*(equal(self.threads[p], 0) for p in self.active))
        if writes is one_thread:
            # The writer is the thread that signals: its own fence is enough.
            return _guarded(one_thread, [*stores, *after])
        return [
            *_guarded(writes, stores),
            BlockBarrier("every thread's partial is published before one thread signals"),
            *_guarded(one_thread, list(after)),
        ]

    def _publish_owned(
        self, owners: Sequence[Joined], parts: Sequence[_GridParts], after: Sequence[Stmt]
    ) -> list[Stmt]:
        """The same where threads have one result each: all store at once."""
        stores: list[Stmt] = []
        for o, part in zip(owners, parts, strict=True):

            def place(i: int, e: Int, part: _GridParts = part) -> Int:
                return part.place(i, e, part.block)

            stores += o.stored(part.buffers, place)
        one_thread = all_of(*(equal(self.threads[p], 0) for p in self.active))
        return [
            *_guarded(owners[0].owner, [*stores, Fence()]),
            BlockBarrier("every thread's partial is published before one thread signals"),
            *_guarded(one_thread, list(after)),
        ]

    def _warps_finish(self, g: _GridParts, most: int) -> bool:
        """Whether each warp of the last block joins all partials by itself: few of them, and one result a block."""
        threads = self._count_of(self.active)
        whole = threads.is_const and threads.value % WARP == 0 and not g.lanes
        return whole and g.blocks.is_const and g.blocks.value <= min(most, _OWN_TURNS) * WARP

    def _finish(self, r: Reduce, g: _GridParts) -> list[Stmt]:
        """Join the partials of all blocks; threads along the block's reduced axes, and those with copies, share the work.

        A thread asks for several partials before it uses the first: they come from device memory, one wait serves all.
        """
        # A block has a thread, though an extent that nothing bounds from below may be 0: then nothing is launched.
        count = maximum(self._count_of(g.spread), ONE)
        size = r.partials[0].size
        groups = spread_groups(count, size)
        if groups and g.blocks.is_const and -(-g.blocks.value // groups) <= _FINISH_BATCH:
            return self._finish_spread(r, g, groups)
        most = max(1, _FINISH_BATCH // size.value)
        by_warps = self._warps_finish(g, most)
        mine = self._linear(g.spread)
        if by_warps:
            count, mine = const(WARP), mine % WARP
        if count.is_const and g.blocks.is_const:
            most = min(most, -(-g.blocks.value // count.value))
        batch = const(most)
        stmts: list[Stmt] = []

        def start(i: int, e: Int) -> list[Stmt]:
            return [Store(r.partials[i], e, r.identity[i], Role.initialise)]

        stmts += self._each(r, start)
        number = self._number()
        got = tuple(Buffer(f"{p.name}_got{number}", p.dtype, MemoryType.local, batch * p.size) for p in r.partials)
        b = self._symbol("b", g.blocks)

        def each(make: Callable[[Int], list[Stmt]]) -> list[Stmt]:
            if batch is ONE:
                return make(ZERO)
            j = self._symbol("j", batch)
            return [For(j, ZERO, batch, ONE, tuple(make(j)), unroll=True)]

        def load(j: Int) -> list[Stmt]:
            block = b + j * count

            def blank(i: int, e: Int) -> list[Stmt]:
                return [Store(got[i], j * r.partials[i].size + e, r.identity[i], Role.initialise)]

            def ask(i: int, e: Int) -> list[Stmt]:
                value = Load(g.buffers[i], g.place(i, e, block), _LEVEL_2)
                return [Store(got[i], j * r.partials[i].size + e, value)]

            loads = self._each(r, ask)
            if batch is ONE:
                return loads
            return [*self._each(r, blank), If(less(block, g.blocks), tuple(loads), role=Role.predicate)]

        def add(j: Int) -> list[Stmt]:
            return self._combine_each(r, lambda i, e: Load(got[i], j * r.partials[i].size + e))

        turn = (*(Allocate(t) for t in got), *each(load), *each(add))
        stmts.append(For(b, mine, g.blocks, count * batch, turn))
        if by_warps:
            stmts += self._butterflies(r, WARP)
        elif g.spread:
            stmts += self._blocks((replace(r, block_axes=tuple(g.spread)),))
        return stmts

    def _finish_spread(self, r: Reduce, g: _GridParts, groups: int) -> list[Stmt]:
        """Join the partials of not too many blocks: a thread asks for all of its own, those of one result, at once."""
        size = r.partials[0].size.value
        per = -(-g.blocks.value // groups)
        spread = Spread(
            self._linear(g.spread),
            self._count_of(g.spread),
            size,
            groups,
            self._linear(g.lanes),
            self._count_of(g.lanes),
            lambda i: _is_common(r, i),
        )

        def own_parts(one: Reduce, at: list[Int]) -> list[Stmt]:
            number = self._number()
            got = tuple(Buffer(f"{p.name}_got{number}", p.dtype, MemoryType.local, const(per)) for p in one.partials)
            stmts: list[Stmt] = [Allocate(b) for b in got]
            for j in range(per):
                block = spread.group + j * groups
                blank = [Store(b, const(j), one.identity[i], Role.initialise) for i, b in enumerate(got)]
                loads = [
                    Store(b, const(j), Load(g.buffers[i], g.place(i, at[i], block), _LEVEL_2))
                    for i, b in enumerate(got)
                ]
                inside = less(block, g.blocks)
                stmts += (
                    loads if prove_less(block, g.blocks) else [*blank, If(inside, tuple(loads), role=Role.predicate)]
                )
            return stmts + self._join_all(one, lambda i, _, k: Load(got[i], k), const(per), unroll=True)

        return self._spread_join(r, spread, own_parts).stmts

    def _grid_last_block(self, reduces: Sequence[Reduce]) -> list[Stmt]:
        """Reductions over the same blocks, with one semaphore: the block that arrives last finishes all of them."""
        parts = [self._grid_parts(r) for r in reduces]
        g = parts[0]
        base = self.semaphores
        self.semaphores = base + g.segments
        at = base + g.segment
        old = self._symbol("arrived", g.blocks)
        one_thread = all_of(*(equal(self.threads[p], 0) for p in self.active))
        signal: list[Stmt] = [AtomicAdd(old, self._semaphores, at, ONE)]
        stmts: list[Stmt] = []
        seen = old
        if not self.active:
            stmts += self._publish(reduces, parts, signal)
        else:
            self._count += 1
            flag = Buffer(f"{reduces[0].name}_arrived{self._count - 1}", DataType.Int32, MemoryType.shared, ONE)
            seen = self._symbol("seen", g.blocks)
            after = [*signal, Store(flag, ZERO, IndexValue(old, DataType.Int32))]
            stmts += [Allocate(flag), *self._publish(reduces, parts, after), LoadIndex(seen, flag, ZERO)]
        group = len(self.last_blocks)
        last: list[Stmt] = [Fence()]
        for r, part in zip(reduces, parts, strict=True):
            assert r.last_block is not None
            self.last_blocks[r.last_block] = group
            stmts.append(Let(r.last_block, select(equal(seen, g.blocks - 1), ONE, ZERO)))
            last += self._finish(r, part)
        last += _guarded(one_thread, [Store(self._semaphores, at, Literal(0, DataType.Int32), Role.semaphore_reset)])
        assert reduces[0].last_block is not None
        return [*stmts, If(equal(reduces[0].last_block, 1), tuple(last), role=Role.last_block)]

    def _grid_broadcast(self, reduces: Sequence[Reduce]) -> list[Stmt]:
        """Reductions over the same blocks, with one semaphore: all blocks wait for all, and each finishes all of them."""
        parts = [self._grid_parts(r) for r in reduces]
        g = parts[0]
        base = self.semaphores
        self.semaphores = base + g.segments * 2
        arrive, depart = base + g.segment * 2, base + g.segment * 2 + 1
        left = self._symbol("left", g.blocks)
        one_thread = all_of(*(equal(self.threads[p], 0) for p in self.active))
        wait: list[Stmt] = [
            AtomicAdd(None, self._semaphores, arrive, ONE),
            SpinWait(self._semaphores, arrive, g.blocks),
        ]
        zero = Literal(0, DataType.Int32)
        leave: list[Stmt] = [
            AtomicAdd(left, self._semaphores, depart, ONE),
            If(
                equal(left, g.blocks - 1),
                (
                    Fence(),
                    Store(self._semaphores, arrive, zero, Role.semaphore_reset),
                    Store(self._semaphores, depart, zero, Role.semaphore_reset),
                ),
                role=Role.last_block,
            ),
        ]
        barrier: list[Stmt] = [BlockBarrier("all blocks have arrived")] if self.active else []
        finish = [s for r, part in zip(reduces, parts, strict=True) for s in self._finish(r, part)]
        return [*self._publish(reduces, parts, wait), *barrier, Fence(), *finish, *_guarded(one_thread, leave)]

    # --- groups of blocks ---

    def _meets_in_group(self, r: Reduce) -> bool:
        """Whether all blocks of a group go on with the result, and each of them is whole warps that reduce together."""
        blocks, threads = self._count_of(r.grid_axes), self._count_of(self.active)
        return (
            r.grid_broadcast
            and set(r.block_axes) == set(self.active)
            and blocks.is_const
            and threads.is_const
            and threads.value % WARP == 0
        )

    def _group(self, reduces: Sequence[Reduce]) -> list[Stmt]:
        """Reductions over the blocks of a group and all threads of each, with one counter."""
        parts = [self._grid_parts(r) for r in reduces]
        kept = [p for p in GRID_TYPES if p in self.sizes and p not in reduces[0].grid_axes]
        counter = self.semaphores + self._linear(kept)
        self.semaphores = self.semaphores + self._count_of(kept)
        blocks = parts[0].blocks.value
        before, _ = self._groups.get(reduces[0].grid_axes, ([], ONE))
        self._groups[reduces[0].grid_axes] = [*before, counter], reduces[0].slots
        return exchange_in_group(
            reduces,
            [Places(g.buffers, g.place) for g in parts],
            parts[0].block,
            blocks,
            self._linear(self.active),
            self._count_of(self.active).value // WARP,
            self._semaphores,
            counter,
            self._number(),
            self._each,
            self._combine_each,
            self._butterflies,
        )

    def _leave_groups(self) -> list[Stmt]:
        one_thread = all_of(*(equal(self.threads[p], 0) for p in self.active))
        stmts: list[Stmt] = []
        for axes, (counters, slots) in self._groups.items():
            blocks = self._count_of(axes).value
            left = self._symbol("left", blocks * (slots + 1))
            stmts += leave_group(self._semaphores, counters, blocks, slots, left)
        return _guarded(one_thread, stmts) if stmts else []

    # --- the whole grid ---

    def _grid_barrier(self, barrier: GridBarrier) -> list[Stmt]:
        """Every block adds one to a counter that only grows, and waits until it is that of the barrier."""
        if self._arrivals is None:
            self._arrivals = self.semaphores, barrier.slots
            self.semaphores = self.semaphores + 1
        at, _ = self._arrivals
        blocks = self._count_of([p for p in GRID_TYPES if p in self.sizes])
        one_thread = all_of(*(equal(self.threads[p], 0) for p in self.active))
        wait: list[Stmt] = [
            AtomicAdd(None, self._semaphores, at, ONE),
            SpinWait(self._semaphores, at, blocks * (barrier.slot + 1)),
        ]
        if not self.active:
            return [Fence(), *wait, Fence()]
        return [
            Fence(),
            BlockBarrier(barrier.reason),
            *_guarded(one_thread, wait),
            BlockBarrier("all blocks have arrived"),
            Fence(),
        ]

    def _leave_grid(self, at: Int, slots: Int) -> list[Stmt]:
        """Every block adds one more when it is done with waiting; the last one sets the counter back."""
        blocks = self._count_of([p for p in GRID_TYPES if p in self.sizes])
        one_thread = all_of(*(equal(self.threads[p], 0) for p in self.active))
        left = self._symbol("left", blocks * (slots + 1))
        reset = Store(self._semaphores, at, Literal(0, DataType.Int32), Role.semaphore_reset)
        leave: list[Stmt] = [
            AtomicAdd(left, self._semaphores, at, ONE),
            If(equal(left, blocks * (slots + 1) - 1), (Fence(), reset), role=Role.last_block),
        ]
        return _guarded(one_thread, leave)


_EXP_SUMS = ("exp_sum", EXACT_EXP_SUM)
_LEVEL_2 = CacheOp["global"]
# Values that the warps of a cluster may tell each of its blocks: two for each lane.
_TOLD_BY_WARPS = 64
# Partials that a thread reads from shared memory rather than wait for another thread to join them.
_OWN_WORK = 16
# Partials of other blocks that a lane joins rather than wait for the other warps of its block.
_OWN_TURNS = 4
# Partials that a thread of the last block asks for at once.
_FINISH_BATCH = 16


@record(eq=False)
class _GridParts:
    """Addresses of one grid reduction: `place(partial, element, block)` in its workspace.

    lanes, spread   axes whose threads have results of their own, and those that work on one result together
    """

    buffers: tuple[Buffer, ...]
    place: Callable[[int, Int, Int], Int]
    block: Int
    blocks: Int
    segment: Int
    segments: Int
    lanes: list[ParallelType]
    spread: list[ParallelType]


def _guarded(condition: Cond, stmts: list[Stmt]) -> list[Stmt]:
    if condition is all_of():
        return stmts
    return [If(condition, tuple(stmts), role=Role.owner)]


def _is_common(r: Reduce, i: int) -> bool:
    """Whether partial i is one count for all elements of the others."""
    return i < len(r.partials) and r.partials[i].size is not r.partials[0].size


def _is_one(size: Int) -> bool:
    return size.is_const and size.value == 1
