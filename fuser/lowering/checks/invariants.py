"""What each lowering pass ensures, as code: named checks, run after every pass when FUSER_VERIFY has `passes`.

    build_loop_nests      collectives_are_unexpanded          no barrier, shuffle, atomic or fence yet
    prefetch_loads        collectives_are_unexpanded
    partial_residency     collectives_are_unexpanded
    pipeline_copies       collectives_are_unexpanded
                          copies_are_waited_for               a wait separates copies to a buffer from its reads
    insert_grid_barriers  no_grid_race                        a grid barrier separates conflicting accesses of different blocks
    expand_collectives    no_collectives                      every Reduce, Scan and GridBarrier is expanded
                          semaphores_are_reset                additions to a semaphore are undone
    allocate_shared       shared_buffers_have_offsets         multiples of 16
                          live_buffers_do_not_overlap         no write to an overlapping buffer between a write and its read
    insert_syncs          no_block_race                       a barrier separates conflicting accesses of different threads
                          reads_of_other_blocks_are_fresh     values that other blocks write are read past the L1 cache
                          barrier_before_signal               a barrier separates writes for other blocks from the signal
    unswitch_loops        no_unswitch_left                    no loop is still marked for unswitching
                          unswitched_branches_agree           both branches of a hoisted test write the same elements
    merge_predicates      equal_predicates_are_merged         adjacent statements are under different predicates
    sink_into_branches    unswitched_branches_store_the_same  as unswitched_branches_agree, without registers

Checks share no code with the passes. A check also holds after later passes, with two exceptions: collectives are expanded
later, and a value that one branch of a hoisted test needs is later computed in that branch alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from fuser.errors import InternalError
from fuser.ir.integers.integers import ZERO, Cond, Int, conjuncts, prove_divisible, prove_less_equal
from fuser.ir.integers.proofs import Claim, counterexample
from fuser.ir.kernel.kernel import (
    Allocate,
    AsyncCopy,
    AtomicAdd,
    Buffer,
    For,
    GridBarrier,
    If,
    Reduce,
    Role,
    Scan,
    Stmt,
    Store,
    VectorMove,
    child_bodies,
    walk,
)
from fuser.ir.kernel.kernel_accesses import stmt_reads, stmt_writes
from fuser.ir.kernel.print_kernel import print_around
from fuser.ir.kernel.statement_scopes import Scope, scope_of
from fuser.lowering.checks.pass_result import Findings, PassResult
from fuser.lowering.checks.sync_checks import (
    barrier_before_signal,
    copies_are_waited_for,
    no_block_race,
    no_grid_race,
    reads_of_other_blocks_are_fresh,
)

Invariant = Callable[[PassResult, Findings], None]


def check_invariants(pass_name: str, result: PassResult, checked_after: str | None = None) -> None:
    """Raise InternalError, naming the invariant and showing the statements, if a pass did not ensure what it should.

    `checked_after` is an earlier pass that left the same result: what was found to hold then is not looked at again.
    """
    known = [] if checked_after is None else invariants_after(checked_after)
    for invariant in invariants_after(pass_name):
        if invariant in known:
            continue
        findings = Findings()
        invariant(result, findings)
        if findings.statement_messages or findings.messages:
            shown = dict(list(findings.statement_messages.items())[:4])
            parts = [f"{pass_name} does not ensure {invariant.__name__}", *findings.messages[:4]]
            raise InternalError("\n".join([*parts, print_around(result.body, shown)]), pass_name=pass_name)


# --- the checks -------------------------------------------------------------------------------------------------------


def collectives_are_unexpanded(result: PassResult, found: Findings) -> None:
    """No barrier, shuffle, atomic or fence yet: later passes decide about them once all collectives are known."""
    for stmt in walk(result.body):
        if scope_of(stmt) > Scope.thread and not isinstance(stmt, (Reduce, Scan)):
            found.mark(stmt, "threads communicate before collectives are expanded")


def no_collectives(result: PassResult, found: Findings) -> None:
    """Every Reduce, Scan and GridBarrier is expanded."""
    for stmt in walk(result.body):
        if isinstance(stmt, (Reduce, Scan, GridBarrier)):
            found.mark(stmt, "this collective is not expanded")


def semaphores_are_reset(result: PassResult, found: Findings) -> None:
    """What is added to a semaphore is taken back by some statement, so that the next launch finds it zero."""
    reset = {
        (s.buffer, s.index)
        for s in walk(result.body)
        if (isinstance(s, Store) and s.role is Role.semaphore_reset)
        or (isinstance(s, AtomicAdd) and s.wrap is not None)
    }
    for stmt in walk(result.body):
        if isinstance(stmt, AtomicAdd) and (stmt.buffer, stmt.index) not in reset:
            found.mark(stmt, "nothing sets this semaphore back to 0")


def shared_buffers_have_offsets(result: PassResult, found: Findings) -> None:
    """Every shared buffer has an offset, a multiple of 16."""
    assert result.offsets is not None
    for stmt in walk(result.body):
        if not isinstance(stmt, Allocate) or not stmt.buffer.is_shared:
            continue
        offset = result.offsets.get(stmt.buffer.name)
        if offset is None:
            found.mark(stmt, "this buffer has no place in shared memory")
        elif not prove_divisible(offset, 16):
            found.mark(stmt, f"this buffer starts at byte {offset}, no multiple of 16")


def live_buffers_do_not_overlap(result: PassResult, found: Findings) -> None:
    """Between a write of a shared buffer and a read of it, no buffer whose place overlaps is written."""
    assert result.offsets is not None
    offsets = result.offsets
    buffers = {s.buffer for s in walk(result.body) if isinstance(s, Allocate) and s.buffer.is_shared}
    placed = [b for b in sorted(buffers, key=lambda b: b.name) if b.name in offsets]
    overlapping: dict[Buffer, list[Buffer]] = {b: [] for b in placed}
    for i, a in enumerate(placed):
        for b in placed[i + 1 :]:
            if not (_ends_before(a, b, offsets) or _ends_before(b, a, offsets)):
                overlapping[a].append(b)
                overlapping[b].append(a)
    # The buffer that overwrote each buffer since it was last written.
    lost: dict[Buffer, Buffer] = {}
    for stmt in _trace(result.body):
        for buffer, _ in stmt_reads(stmt):
            if buffer in lost:
                found.mark(stmt, f"reads {buffer.name}, over which {lost[buffer].name} was written")
        for buffer, _ in stmt_writes(stmt):
            lost.pop(buffer, None)
            for other in overlapping.get(buffer, ()):
                lost[other] = buffer


def _ends_before(a: Buffer, b: Buffer, offsets: Mapping[str, Int]) -> bool:
    end, start = offsets[a.name] + a.size * a.dtype.itemsize, offsets[b.name]
    # Roundings of symbolic sizes are beyond the integer rules: such places count as apart if no sizes tried say otherwise.
    return prove_less_equal(end, start) or counterexample(Claim("", "", end, "<", start + 1)) is None


def _trace(body: Sequence[Stmt]) -> Iterator[Stmt]:
    """The simple statements in an order of execution: loops run twice, both sides of a test one after the other."""
    for stmt in body:
        if not isinstance(stmt, (For, If)):
            yield stmt
        for inner in child_bodies(stmt) * (2 if isinstance(stmt, For) else 1):
            yield from _trace(inner)


def no_unswitch_left(result: PassResult, found: Findings) -> None:
    """No loop asks for a hoisted test any more."""
    for stmt in walk(result.body):
        if isinstance(stmt, For) and stmt.unswitch:
            found.mark(stmt, "this loop still asks for a hoisted test")


def unswitched_branches_agree(result: PassResult, found: Findings) -> None:
    """Both sides of a hoisted test write the same elements in the same order.

    What the tested side does only where a test fails is none of this, unless the other side still tests a part of it.
    """
    for stmt, hoisted, tested in _unswitched_writes(result.body):
        if hoisted != tested:
            found.mark(stmt, "the two sides of this test do not write the same elements")


def unswitched_branches_store_the_same(result: PassResult, found: Findings) -> None:
    """As unswitched_branches_agree, of all memory but registers."""
    for stmt, hoisted, tested in _unswitched_writes(result.body):
        if [w for w in hoisted if not w[0].is_register] != [w for w in tested if not w[0].is_register]:
            found.mark(stmt, "the two sides of this test do not store the same elements")


_Write = tuple[Buffer, Int, int]


def _unswitched_writes(body: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, list[_Write], list[_Write]]]:
    """Hoisted tests, with what each of their sides writes."""
    for stmt in walk(body):
        if isinstance(stmt, If) and stmt.role is Role.unswitch:
            tests = [s.condition for s in walk(stmt.then) if isinstance(s, If) and s.role is Role.predicate]
            left = {part for test in tests for part in conjuncts(test)}
            yield stmt, list(_writes_under(stmt.then, None)), list(_writes_under(stmt.orelse, left))


def _writes_under(body: Sequence[Stmt], left: AbstractSet[Cond] | None) -> Iterator[_Write]:
    """(buffer, first index, elements) of all writes but those that are done where a predicate fails of which no part is in
    `left`, and those of the second sides of hoisted tests: both sides are held against each other by themselves. None: of all.

    What a loop writes one element after the other counts as what one access writes.
    """
    for stmt in body:
        width = stmt.width if isinstance(stmt, (VectorMove, AsyncCopy)) else 1
        yield from ((buffer, index, width) for buffer, index in stmt_writes(stmt))
        if isinstance(stmt, For):
            for buffer, index, width in _writes_under(stmt.body, left):
                first = index.substitute({stmt.symbol: 0})
                is_run = width == 1 and stmt.start is ZERO and stmt.stop.is_const and index - first is stmt.symbol
                yield (buffer, first, stmt.stop.value) if is_run else (buffer, index, width)
        elif isinstance(stmt, If):
            yield from _writes_under(stmt.then, left)
            if stmt.role is Role.unswitch and left is not None:
                continue
            if stmt.role is not Role.predicate or left is None or not left.isdisjoint(conjuncts(stmt.condition)):
                yield from _writes_under(stmt.orelse, left)


def equal_predicates_are_merged(result: PassResult, found: Findings) -> None:
    """Neighbouring statements, declarations of registers aside, are under different tests."""

    def visit(body: Sequence[Stmt]) -> None:
        before: Stmt | None = None
        for stmt in body:
            if isinstance(stmt, Allocate) and stmt.buffer.is_register:
                continue
            if (
                isinstance(stmt, If)
                and isinstance(before, If)
                and stmt.condition is before.condition
                and stmt.role is before.role
                and stmt.role is not Role.unswitch
                and not (stmt.orelse or before.orelse)
            ):
                found.mark(stmt, "the statement before is under the same test")
            for inner in child_bodies(stmt):
                visit(inner)
            before = stmt

    visit(result.body)


# --- which holds when -------------------------------------------------------------------------------------------------

ENSURES: dict[str, tuple[Invariant, ...]] = {
    "build_loop_nests": (collectives_are_unexpanded,),
    "prefetch_loads": (collectives_are_unexpanded,),
    "partial_residency": (collectives_are_unexpanded,),
    "pipeline_copies": (collectives_are_unexpanded, copies_are_waited_for),
    "insert_grid_barriers": (no_grid_race,),
    "expand_collectives": (no_collectives, semaphores_are_reset),
    "allocate_shared": (shared_buffers_have_offsets, live_buffers_do_not_overlap),
    "insert_syncs": (no_block_race, reads_of_other_blocks_are_fresh, barrier_before_signal),
    "peel_loops": (),
    "unswitch_loops": (no_unswitch_left, unswitched_branches_agree),
    "merge_predicates": (equal_predicates_are_merged,),
    "sink_into_branches": (unswitched_branches_store_the_same,),
    "finish_kernel": (),
}
"""What each pass ensures, in the order of the passes."""

# What these ensure is about collectives that are whole, and ends with the next pass.
_BEFORE_EXPANSION = (
    "build_loop_nests",
    "prefetch_loads",
    "partial_residency",
    "pipeline_copies",
    "insert_grid_barriers",
)


def invariants_after(pass_name: str) -> list[Invariant]:
    """What holds after a pass: what it ensures, and what the passes before it did."""
    if pass_name in _BEFORE_EXPANSION:
        return list(ENSURES[pass_name])
    names = [name for name in ENSURES if name not in _BEFORE_EXPANSION]
    checks = [check for name in names[: names.index(pass_name) + 1] for check in ENSURES[name]]
    return [c for c in checks if c is not unswitched_branches_agree or unswitched_branches_store_the_same not in checks]
