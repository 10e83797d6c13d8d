"""Checks of the order of accesses: block barriers, waits for asynchronous copies, grid barriers (invariants.py lists them)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from fuser.ir.integers.integers import ONE, ZERO, Cond, Int, conjuncts, const, negate, prove_less, symbol
from fuser.ir.kernel.kernel import (
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    AtomicAdd,
    BlockBarrier,
    Buffer,
    ClusterWait,
    For,
    GridBarrier,
    If,
    Load,
    Post,
    RemoteStore,
    Role,
    Shuffle,
    Stmt,
    Store,
    VectorMove,
    WarpBarrier,
    walk,
)
from fuser.ir.kernel.kernel_accesses import buffers_read, buffers_written, stmt_reads, stmt_writes, value_loads
from fuser.ir.ops.enums import CacheOp
from fuser.lowering.checks.pass_result import Findings, PassResult
from fuser.lowering.kernel_rewrites import substitute_symbols
from fuser.records import record

_DIVERGENT = (Role.predicate, Role.owner, Role.unswitch)


def no_block_race(result: PassResult, found: Findings) -> None:
    """On every path, a barrier parts any two accesses of one memory by different threads of which one is a write."""
    if not result.one_thread:
        _Paths(result, found).walk(result.body, frozenset())


@record
class _Access:
    memory: object
    buffer: Buffer
    is_write: bool


class _Paths:
    """A forward dataflow analysis: the accesses since the last barrier, over all paths."""

    def __init__(self, result: PassResult, found: Findings) -> None:
        self.result = result
        self.found = found

    def walk(self, body: Sequence[Stmt], open_accesses: frozenset[_Access]) -> frozenset[_Access]:
        """Accesses still open after a statement list."""
        for stmt in body:
            match stmt:
                case BlockBarrier() | ClusterWait():
                    open_accesses = frozenset()
                case For():
                    once = self.walk(stmt.body, open_accesses)
                    again = self.walk(stmt.body, once)
                    runs = prove_less(stmt.start, stmt.stop)
                    open_accesses = again if runs else again | open_accesses
                case If():
                    then = self.walk(stmt.then, open_accesses)
                    orelse = self.walk(stmt.orelse, open_accesses)
                    if stmt.role in _DIVERGENT and any(
                        isinstance(s, (BlockBarrier, ClusterWait)) for s in walk((stmt,))
                    ):
                        self.found.mark(stmt, "a block barrier stands under this test, which a thread decides alone")
                    open_accesses = then | orelse
                case _:
                    made = self._accesses(stmt)
                    for b in made:
                        for a in open_accesses:
                            self._check_pair(stmt, a, b)
                    open_accesses |= made
        return open_accesses

    def _check_pair(self, stmt: Stmt, a: _Access, b: _Access) -> None:
        if a.memory is not b.memory or not (a.is_write or b.is_write):
            return
        if a.buffer is b.buffer and (a.buffer.name in self.result.thread_private or (a.is_write and b.is_write)):
            # Two writes of one buffer with no read between them go to different elements.
            return
        words = {False: "read", True: "written"}
        self.found.mark(
            stmt,
            f"{b.buffer.name} is {words[b.is_write]} with no barrier since {a.buffer.name} was {words[a.is_write]}",
        )

    def _accesses(self, stmt: Stmt) -> frozenset[_Access]:
        made: set[_Access] = set()
        for accesses, is_write in ((stmt_reads(stmt), False), (stmt_writes(stmt), True)):
            for buffer, _ in accesses:
                if buffer.is_shared and self.result.offsets is not None:
                    # Buffers at different offsets do not overlap (`live_buffers_do_not_overlap` checks that).
                    memory = self.result.offsets.get(buffer.name, ZERO)
                    made.add(_Access(memory, buffer, is_write))
                elif buffer.is_global and buffer.name in self.result.shared_within_block:
                    made.add(_Access(buffer, buffer, is_write))
        return frozenset(made)


def reads_of_other_blocks_are_fresh(result: PassResult, found: Findings) -> None:
    """What other blocks write in the same kernel is read past the first-level cache, which may hold what was there before."""
    crosses = _passed_between_blocks(result)
    for stmt in walk(result.body):
        loads = [(x.buffer, x.cache) for x in _loads(stmt)]
        if isinstance(stmt, (VectorMove, AsyncCopy)):
            loads.append((stmt.src, stmt.cache))
        for buffer, cache in loads:
            if buffer in crosses and cache is not CacheOp["global"]:
                found.mark(stmt, f"{buffer.name}, which other blocks write, is read through the first-level cache")


def _loads(stmt: Stmt) -> Iterator[Load]:
    match stmt:
        case Store() | RemoteStore():
            yield from value_loads(stmt.value)
        case Shuffle():
            yield from value_loads(stmt.src)
        case Post():
            for value in stmt.values:
                yield from value_loads(value)
        case _:
            pass


def barrier_before_signal(result: PassResult, found: Findings) -> None:
    """On every path, a barrier parts what threads write for other blocks from the signal that one of them gives."""
    if not result.one_thread:
        _CrossBlockStores(_passed_between_blocks(result), found).walk(result.body, frozenset(), frozenset())


def _passed_between_blocks(result: PassResult) -> frozenset[Buffer]:
    """Device memory that the kernel writes and reads, but for what only threads of one block pass on, or a thread to itself."""
    passed = buffers_written(result.body) & buffers_read(result.body)
    within = (result.shared_within_block | result.thread_private) - result.shared_across_blocks
    return frozenset(b for b in passed if b.is_global and b.name not in within)


class _CrossBlockStores:
    """A forward dataflow analysis: the predicates of the stores for other blocks since the last barrier, over all paths."""

    def __init__(self, crosses: AbstractSet[Buffer], found: Findings) -> None:
        self.crosses = crosses
        self.found = found

    def walk(
        self, body: Sequence[Stmt], tests: frozenset[Cond], stores: frozenset[frozenset[Cond]]
    ) -> frozenset[frozenset[Cond]]:
        for stmt in body:
            match stmt:
                case BlockBarrier() | WarpBarrier() | ClusterWait():
                    stores = frozenset()
                case For():
                    stores = stores | self.walk(stmt.body, tests, self.walk(stmt.body, tests, stores))
                case If():
                    then = self.walk(stmt.then, tests.union(conjuncts(stmt.condition)), stores)
                    stores = then | self.walk(stmt.orelse, tests.union(conjuncts(negate(stmt.condition))), stores)
                case Store() | VectorMove():
                    if any(b in self.crosses for b, _ in stmt_writes(stmt)):
                        stores |= {tests}
                case AtomicAdd():
                    # A thread that signals has done what it did itself: nobody else comes where its tests hold.
                    if not all(tests <= around for around in stores):
                        self.found.mark(stmt, "threads may still be at what this one says is there")
                case _:
                    pass
        return stores


_Copied = tuple[Buffer, Int, int]
"""Elements that a copy fills: buffer, first one, how many."""
_Groups = tuple[frozenset[_Copied], ...]


def copies_are_waited_for(result: PassResult, found: Findings) -> None:
    """On every path, a wait for their group parts the copies to a buffer from its reads."""
    _wait_for(result.body, (frozenset(),), found)


def _wait_for(body: Sequence[Stmt], groups: _Groups, found: Findings) -> _Groups:
    """What the thread's groups fill after a statement list, oldest first; the last one is not committed yet.

    A loop of a few iterations around copies is followed iteration by iteration. Another one that waits for nothing is
    looked at once: copies in one of its iterations and reads in another are of other elements.
    """
    for stmt in body:
        match stmt:
            case AsyncCopy():
                groups = (*groups[:-1], groups[-1] | {(stmt.dst, stmt.dst_index, stmt.width)})
            case AsyncCommit():
                groups = (*groups, frozenset())
            case AsyncWait(pending):
                groups = groups[max(0, len(groups) - 1 - pending) :]
            case For() if (few := _few_iterations(stmt, groups)) is not None:
                for iteration in few:
                    groups = _wait_for(substitute_symbols(stmt.body, {stmt.symbol: const(iteration)}), groups, found)
            case For():
                before, waits = groups, any(isinstance(s, AsyncWait) for s in walk(stmt.body))
                for iteration in range(4 if waits else 1):
                    groups = _wait_for(_iteration_of(stmt, iteration) if waits else stmt.body, groups, found)
                if not prove_less(stmt.start, stmt.stop):
                    groups = _merge_paths(before, groups)
            case If():
                groups = _merge_paths(_wait_for(stmt.then, groups, found), _wait_for(stmt.orelse, groups, found))
            case _:
                pass
        for buffer, index in stmt_reads(stmt):
            width = stmt.width if isinstance(stmt, VectorMove) else 1
            if any(_may_overlap((buffer, index, width), c) for group in groups for c in group):
                found.mark(stmt, f"reads {buffer.name} while copies to it are on their way")
    return _without_empty(groups)


def _iteration_of(loop: For, iteration: int) -> tuple[Stmt, ...]:
    """The body in one of the iterations from any even one on: copies may have a place for every other iteration."""
    if loop.start is not ZERO or loop.step is not ONE:
        return loop.body
    return substitute_symbols(loop.body, {loop.symbol: 2 * symbol(f"{loop.symbol.name}_pair", 0) + iteration})


_FEW_ITERATIONS = 64


def _few_iterations(loop: For, groups: _Groups) -> range | None:
    """Those of a loop that copies, or reads what is copied, if they are few; else None."""
    iterations = loop.values
    if iterations is None or len(iterations) > _FEW_ITERATIONS:
        return None
    copied = {buffer for group in groups for buffer, _, _ in group}
    moves = any(isinstance(s, AsyncCopy) or any(b in copied for b, _ in stmt_reads(s)) for s in walk(loop.body))
    return iterations if moves else None


def _may_overlap(a: _Copied, b: _Copied) -> bool:
    """Whether two stretches may have an element in common."""
    if a[0] is not b[0]:
        return False
    apart = a[1] - b[1]
    return not (apart.is_const and (apart.value >= b[2] or -apart.value >= a[2]))


def _merge_paths(a: _Groups, b: _Groups) -> _Groups:
    """The groups of one of two paths, matched from the latest on."""
    longest = max(len(a), len(b))
    a, b = (*([frozenset[_Copied]()] * (longest - len(a))), *a), (*([frozenset[_Copied]()] * (longest - len(b))), *b)
    return tuple(x | y for x, y in zip(a, b, strict=True))


def _without_empty(groups: _Groups) -> _Groups:
    """Without the oldest groups that fill nothing: waiting for them is free."""
    first = next((k for k, group in enumerate(groups) if group), len(groups) - 1)
    return groups[first:]


def no_grid_race(result: PassResult, found: Findings) -> None:
    """On every path, a wait of the whole grid parts writes of a tensor that crosses blocks from its reads, and back.

    The wait must be where every block passes: under no test, and in no loop whose number of iterations differs between blocks.
    """
    _CrossBlockAccesses(result.shared_across_blocks, found).walk(result.body, frozenset(), "")


class _CrossBlockAccesses:
    """A forward dataflow analysis: the (buffer, is written) accessed since the last grid barrier, over all paths."""

    def __init__(self, shared_across_blocks: AbstractSet[str], found: Findings) -> None:
        self.shared_across_blocks = shared_across_blocks
        self.found = found

    def walk(
        self, body: Sequence[Stmt], pending: frozenset[tuple[Buffer, bool]], apart: str
    ) -> frozenset[tuple[Buffer, bool]]:
        """What is pending after a statement list; `apart` says why blocks may not all be there."""
        for stmt in body:
            match stmt:
                case GridBarrier():
                    pending = frozenset()
                    if apart:
                        self.found.mark(stmt, f"not every block comes here: {apart}")
                case For():
                    bounds = stmt.start.symbols | stmt.stop.symbols | stmt.step.symbols
                    uneven = any(s.name.startswith("blockIdx") for s in bounds)
                    reason = apart or (f"the loop over {stmt.symbol}" if uneven else "")
                    once = self.walk(stmt.body, pending, reason)
                    again = self.walk(stmt.body, once, reason)
                    pending = again if prove_less(stmt.start, stmt.stop) else again | pending
                case If():
                    reason = apart or f"the test {stmt.condition}"
                    pending = self.walk(stmt.then, pending, reason) | self.walk(stmt.orelse, pending, reason)
                case _:
                    made = {(b, False) for b, _ in stmt_reads(stmt) if self._crosses_blocks(b)}
                    made |= {(b, True) for b, _ in stmt_writes(stmt) if self._crosses_blocks(b)}
                    for buffer, is_write in made:
                        if (buffer, not is_write) in pending:
                            words = ("read", "written") if is_write else ("written", "read")
                            self.found.mark(
                                stmt,
                                f"{buffer.name} was {words[0]} by other blocks, and no wait of the grid has been since",
                            )
                    pending |= made
        return pending

    def _crosses_blocks(self, buffer: Buffer) -> bool:
        return buffer.is_global and buffer.name in self.shared_across_blocks
