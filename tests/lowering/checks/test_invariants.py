"""Each invariant of a lowering pass rejects a body that breaks it, and holds for what the passes make."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from fuser.errors import InternalError
from fuser.ir.integers.integers import ONE, ZERO, Int, all_of, const, equal, less, symbol
from fuser.ir.kernel.kernel import (
    THREAD_SYMBOLS,
    Allocate,
    AtomicAdd,
    BlockBarrier,
    Buffer,
    Fence,
    For,
    If,
    Kernel,
    Literal,
    Load,
    Reduce,
    Role,
    Scan,
    Stmt,
    Store,
    VectorMove,
)
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import GLOBAL_MEMORY, CacheOp, MemoryType, ParallelType
from fuser.lowering import pipeline
from fuser.lowering.checks import invariants
from fuser.lowering.checks.invariants import ENSURES, check_invariants, invariants_after
from fuser.lowering.checks.pass_result import PassResult
from fuser.lowering.kernel_rewrites import map_body
from fuser.lowering.pipeline import PASSES, lower_fusion
from tests.fuzzing.random_schedules import generate

TID = THREAD_SYMBOLS[ParallelType.block_x]
N = symbol("n")
I = symbol("i", below=N)  # noqa: E741
ZERO_VALUE = Literal(0.0, DataType.Float)


def shared(name: str, size: Int = const(32)) -> Buffer:
    return Buffer(name, DataType.Float, MemoryType.shared, size)


A, B, R = shared("a"), shared("b"), Buffer("r", DataType.Float, MemoryType.local, ONE)
OUT = Buffer("out", DataType.Float, GLOBAL_MEMORY, N)
COUNTERS = Buffer("semaphores", DataType.Int32, GLOBAL_MEMORY, ONE)
ALLOCATED = (Allocate(A), Allocate(B), Allocate(R))
WRITE_A, WRITE_B = Store(A, TID, ZERO_VALUE), Store(B, TID, ZERO_VALUE)
READ_A, READ_B = Store(R, ZERO, Load(A, ZERO)), Store(R, ZERO, Load(B, ZERO))
BARRIER = BlockBarrier()
APART = {"a": ZERO, "b": const(128)}
COLLECTIVE = Reduce((R,), "add", (ZERO_VALUE,), (ParallelType.block_x,), (), False, ZERO, ONE, "r")


def broken(
    pass_name: str, *body: Stmt, offsets: dict[str, Int] | None = None, private: frozenset[str] = frozenset()
) -> str:
    with pytest.raises(InternalError) as caught:
        check_invariants(
            pass_name, PassResult(body, APART if offsets is None else offsets, private, frozenset({"out"}))
        )
    assert caught.value.pass_name == pass_name
    return str(caught.value)


def holds(
    pass_name: str, *body: Stmt, offsets: dict[str, Int] | None = None, private: frozenset[str] = frozenset()
) -> None:
    check_invariants(pass_name, PassResult(body, APART if offsets is None else offsets, private, frozenset({"out"})))


def test_every_pass_is_in_the_table() -> None:
    assert tuple(ENSURES) == PASSES
    assert invariants_after("expand_collectives") == list(ENSURES["expand_collectives"])
    assert set(ENSURES["insert_syncs"]) < set(invariants_after("merge_predicates"))


@pytest.mark.parametrize("stmt", [BARRIER, Fence(), AtomicAdd(None, COUNTERS, ZERO, ONE)])
def test_collectives_are_whole(stmt: Stmt) -> None:
    assert "collectives_are_unexpanded" in broken("build_loop_nests", *ALLOCATED, stmt)
    holds("build_loop_nests", *ALLOCATED, COLLECTIVE)


def test_no_collectives() -> None:
    scan = Scan(R, R, "add", ZERO_VALUE, (ParallelType.block_x,), (), (), (), "s")
    assert "this collective is not expanded" in broken("expand_collectives", *ALLOCATED, scan)
    text = broken("expand_collectives", *ALLOCATED, For(I, ZERO, N, ONE, (COLLECTIVE,)))
    assert "expand_collectives does not ensure no_collectives" in text
    assert "^ this collective is not expanded" in text


def test_semaphores_are_reset() -> None:
    add = AtomicAdd(None, COUNTERS, ZERO, ONE)
    reset = Store(COUNTERS, ZERO, Literal(0, DataType.Int32), Role.semaphore_reset)
    elsewhere = Store(COUNTERS, ONE, Literal(0, DataType.Int32), Role.semaphore_reset)
    assert "nothing sets this semaphore back to 0" in broken("expand_collectives", add, elsewhere)
    holds("expand_collectives", add, reset)


def test_shared_memory_is_placed() -> None:
    assert "has no place" in broken("allocate_shared", *ALLOCATED, offsets={"a": ZERO})
    assert "starts at byte 120, no multiple of 16" in broken(
        "allocate_shared", *ALLOCATED, offsets={"a": ZERO, "b": const(120)}
    )
    holds("allocate_shared", *ALLOCATED)


def test_shared_values_survive() -> None:
    body = (*ALLOCATED, WRITE_A, BARRIER, WRITE_B, BARRIER, READ_A)
    assert "reads a, over which b was written" in broken("allocate_shared", *body, offsets={"a": ZERO, "b": ZERO})
    # Overlapping by half is as bad.
    assert "reads a, over which b was written" in broken("allocate_shared", *body, offsets={"a": ZERO, "b": const(64)})
    holds("allocate_shared", *body)
    holds("allocate_shared", *ALLOCATED, WRITE_A, READ_A, WRITE_B, READ_B, offsets={"a": ZERO, "b": ZERO})


def test_shared_values_survive_round_a_loop() -> None:
    # What was written before the loop is read in its second round, after the first one wrote over it.
    loop = For(I, ZERO, N, ONE, (READ_A, WRITE_B, READ_B))
    assert "reads a" in broken("allocate_shared", *ALLOCATED, WRITE_A, loop, offsets={"a": ZERO, "b": ZERO})
    holds(
        "allocate_shared", *ALLOCATED, For(I, ZERO, N, ONE, (WRITE_A, READ_A, WRITE_B)), offsets={"a": ZERO, "b": ZERO}
    )


def test_sizes_may_be_symbolic() -> None:
    first, second = shared("a", N), shared("b")
    offsets = {"a": ZERO, "b": (N * 4 + 15) // 16 * 16}
    body = (
        Allocate(first),
        Allocate(second),
        Allocate(R),
        Store(first, TID, ZERO_VALUE),
        Store(second, TID, ZERO_VALUE),
    )
    holds("allocate_shared", *body, Store(R, ZERO, Load(first, ZERO)), offsets=offsets)


READ_AFTER_WRITE = "a is read with no barrier since a was written"


def test_no_block_race() -> None:
    assert READ_AFTER_WRITE in broken("insert_syncs", *ALLOCATED, WRITE_A, READ_A)
    assert "a is written with no barrier since a was read" in broken(
        "insert_syncs", *ALLOCATED, WRITE_A, BARRIER, READ_A, WRITE_A
    )
    holds("insert_syncs", *ALLOCATED, WRITE_A, BARRIER, READ_A)
    holds("insert_syncs", *ALLOCATED, WRITE_A, READ_A, private=frozenset("a"))
    holds("insert_syncs", *ALLOCATED, WRITE_A, READ_B)


def test_reused_memory_is_one_memory() -> None:
    body = (*ALLOCATED, WRITE_A, BARRIER, READ_A, WRITE_B)
    holds("insert_syncs", *body)
    assert "b is written with no barrier since a was read" in broken(
        "insert_syncs", *body, offsets={"a": ZERO, "b": ZERO}
    )


def test_device_memory_that_a_block_passes_values_through() -> None:
    assert "out is read with no barrier" in broken(
        "insert_syncs", *ALLOCATED, Store(OUT, TID, ZERO_VALUE), Store(R, ZERO, Load(OUT, ZERO))
    )


def test_pairs_round_a_loop() -> None:
    body = (WRITE_A, BARRIER, READ_A)
    assert "a is written with no barrier since a was read" in broken(
        "insert_syncs", *ALLOCATED, For(I, ZERO, N, ONE, body)
    )
    holds("insert_syncs", *ALLOCATED, For(I, ZERO, N, ONE, (*body, BARRIER)))


def test_a_loop_that_may_not_run_parts_nothing() -> None:
    body = (BARRIER, READ_B)
    assert READ_AFTER_WRITE in broken("insert_syncs", *ALLOCATED, WRITE_A, For(I, ZERO, N, ONE, body), READ_A)
    j = symbol("j", 0, 3)
    holds("insert_syncs", *ALLOCATED, WRITE_A, For(j, ZERO, const(4), ONE, body), READ_A)


def test_both_sides_of_a_test_are_paths() -> None:
    last = less(symbol("seen", 0), 1)
    one_side = If(last, (BARRIER,), (), Role.last_block)
    assert READ_AFTER_WRITE in broken("insert_syncs", *ALLOCATED, WRITE_A, one_side, READ_A)
    holds("insert_syncs", *ALLOCATED, WRITE_A, If(last, (BARRIER,), (BARRIER,), Role.last_block), READ_A)


@pytest.mark.parametrize("role", [Role.predicate, Role.owner, Role.unswitch])
def test_no_barrier_under_a_test_that_threads_decide_alone(role: Role) -> None:
    assert "a block barrier stands under this test" in broken("insert_syncs", If(less(TID, 4), (BARRIER,), role=role))


def test_reads_of_other_blocks_are_fresh() -> None:
    parts = Buffer("parts", DataType.Float, GLOBAL_MEMORY, N)
    stored = Store(parts, TID, ZERO_VALUE)
    fresh = Store(R, ZERO, Load(parts, ZERO, CacheOp["global"]))
    holds("insert_syncs", Allocate(R), stored, BARRIER, fresh)
    text = broken("insert_syncs", Allocate(R), stored, BARRIER, Store(R, ZERO, Load(parts, ZERO)))
    assert "parts, which other blocks write, is read through the first-level cache" in text
    assert "reads_of_other_blocks_are_fresh" in broken("insert_syncs", stored, VectorMove(R, ZERO, parts, ZERO, 1))
    holds("insert_syncs", Allocate(R), Store(OUT, TID, ZERO_VALUE), BARRIER, Store(R, ZERO, Load(OUT, ZERO)))
    holds("insert_syncs", stored, VectorMove(R, ZERO, parts, ZERO, 1), private=frozenset({"parts"}))


def test_barrier_before_signal() -> None:
    parts = Buffer("parts", DataType.Float, GLOBAL_MEMORY, N)
    stored, first = Store(parts, TID, ZERO_VALUE), equal(TID, 0)
    fresh = Store(R, ZERO, Load(parts, ZERO, CacheOp["global"]))
    signal = AtomicAdd(None, COUNTERS, ZERO, ONE, wrap=const(2))
    one = If(first, (signal,), role=Role.owner)
    holds("insert_syncs", stored, Fence(), BARRIER, one, fresh)
    holds("insert_syncs", If(first, (stored, Fence(), signal), role=Role.owner), fresh)
    assert "barrier_before_signal" in broken("insert_syncs", stored, Fence(), one, fresh)
    assert "barrier_before_signal" in broken("insert_syncs", BARRIER, stored, Fence(), one, BARRIER, fresh)
    some = If(less(I, 2), (BARRIER,), role=Role.plain)
    assert "threads may still be at" in broken("insert_syncs", stored, Fence(), some, one, fresh)
    maybe = For(I, ZERO, N, ONE, (BARRIER,))
    assert "threads may still be at" in broken("insert_syncs", stored, Fence(), maybe, one, fresh)


def test_no_unswitch_left() -> None:
    loop = For(I, ZERO, N, ONE, (), unswitch=True)
    assert "still asks for a hoisted test" in broken("unswitch_loops", If(less(N, 4), (loop,)))


def test_unswitched_sides_agree() -> None:
    inner = If(less(I, 4), (WRITE_A,))
    assert "do not write the same elements" in broken(
        "unswitch_loops", *ALLOCATED, If(less(N, 4), (WRITE_A,), (WRITE_B,), Role.unswitch)
    )
    holds("unswitch_loops", *ALLOCATED, If(less(N, 4), (WRITE_A,), (inner,), Role.unswitch))


def test_unswitched_side_leaves_out_what_is_done_where_a_test_fails() -> None:
    def verdict(check: Callable[..., Any], hoisted: tuple[Stmt, ...], tested: Stmt) -> Any:
        return check("unswitch_loops", *ALLOCATED, If(less(N, 4), hoisted, (tested,), Role.unswitch))

    one, other = less(I, 4), less(TID, 4)
    whole = If(one, (WRITE_A,), (WRITE_B,))
    verdict(holds, (WRITE_A,), whole)
    for wrong in ((WRITE_B,), (WRITE_A, WRITE_B), ()):
        assert "do not write the same elements" in verdict(broken, wrong, whole)
    # The other part of a test goes on deciding.
    two_parts = If(all_of(one, other), (WRITE_A,), (WRITE_B,))
    verdict(holds, (If(other, (WRITE_A,), (WRITE_B,)),), two_parts)
    assert "do not write the same elements" in verdict(broken, (If(other, (WRITE_A,)),), two_parts)
    # Only predicates are dropped.
    assert "do not write the same elements" in verdict(
        broken, (WRITE_A,), If(one, (WRITE_A,), (WRITE_B,), Role.last_block)
    )


def test_unswitched_sides_store_alike() -> None:
    """A value that only one branch of a test needs is computed there: the hoisted side, which has no such branch, keeps it."""
    one = less(I, 4)
    value = Buffer("v", DataType.Float, MemoryType.local, ONE)
    computed = Store(value, ZERO, ZERO_VALUE)
    sunk = If(one, (WRITE_A,), (computed, WRITE_B))
    unswitched = If(less(N, 4), (computed, WRITE_A), (sunk,), Role.unswitch)
    assert "do not write the same" in broken("merge_predicates", *ALLOCATED, Allocate(value), unswitched)
    holds("sink_into_branches", *ALLOCATED, Allocate(value), unswitched)
    other = If(less(N, 4), (computed, WRITE_B), (sunk,), Role.unswitch)
    assert "do not store the same" in broken("sink_into_branches", *ALLOCATED, Allocate(value), other)


def test_no_equal_neighbours() -> None:
    test = less(TID, N)
    pair = (If(test, (WRITE_A,)), Allocate(Buffer("s", DataType.Float, MemoryType.local, ONE)), If(test, (WRITE_B,)))
    assert "the statement before is under the same test" in broken("merge_predicates", *ALLOCATED, *pair)
    assert "the statement before" in broken(
        "merge_predicates", *ALLOCATED, For(I, ZERO, N, ONE, pair), private=frozenset("ab")
    )
    holds("merge_predicates", *ALLOCATED, pair[0], BARRIER, pair[2])
    # A shared array between them may take the place of another.
    holds("merge_predicates", pair[0], Allocate(B), pair[2])


# --- in the pipeline --------------------------------------------------------------------------------------------------


Change = Callable[[tuple[Stmt, ...]], tuple[Stmt, ...]]


class Sabotage:
    """Replaces the body that one pass made."""

    def __init__(self, pass_name: str, change: Change) -> None:
        self.pass_name = pass_name
        self.change = change
        self.made = 0

    def passed(self, name: str, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        if name != self.pass_name:
            return body
        changed = self.change(body)
        self.made += changed is not body
        return changed


def without_barriers(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    # Those of insert_syncs; the others belong to reductions over blocks.
    ours = ("is read", "is written")
    return map_body(body, lambda s: () if isinstance(s, BlockBarrier) and s.reason.endswith(ours) else None)


def caught_among(seeds: range, pass_name: str, change: Change) -> list[str]:
    """What lowering says about sabotaged random cases."""
    found: list[str] = []
    for seed in seeds:
        case = generate(seed)
        sabotage = Sabotage(pass_name, change)
        try:
            lower_fusion(case.schedule, case.facts, observer=sabotage)
        except InternalError as error:
            found.append(str(error))
            assert sabotage.made
        except Exception:
            continue
        else:
            assert not sabotage.made, f"seed {seed}: the damage went unnoticed"
    return found


def test_missing_barriers_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    found = caught_among(range(25), "insert_syncs", without_barriers)
    assert len(found) >= 5
    assert all("no_block_race" in text or "no barrier" in text for text in found)


def test_nothing_is_checked_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUSER_VERIFY", raising=False)
    for seed in range(10):
        case = generate(seed)
        try:
            lower_fusion(case.schedule, case.facts, observer=Sabotage("insert_syncs", without_barriers))
        except InternalError as error:
            pytest.fail(str(error))
        except Exception:
            continue


def test_what_a_pass_leaves_as_it_was_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    verified: list[str] = []
    asked: list[tuple[str, str | None]] = []
    verify, check = pipeline.verify_kernel, invariants.check_invariants

    def verify_and_note(kernel: Kernel, pass_name: str = "", *, is_final: bool = False) -> None:
        verified.append(pass_name)
        verify(kernel, pass_name, is_final=is_final)

    def check_and_note(pass_name: str, result: PassResult, checked_after: str | None = None) -> None:
        asked.append((pass_name, checked_after))
        check(pass_name, result, checked_after)

    class Observed:
        def __init__(self) -> None:
            self.bodies: dict[str, tuple[Stmt, ...]] = {}

        def passed(self, name: str, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
            self.bodies[name] = body
            return body

    monkeypatch.setattr(pipeline, "verify_kernel", verify_and_note)
    monkeypatch.setattr(invariants, "check_invariants", check_and_note)
    observed, case = Observed(), generate(100)
    lower_fusion(case.schedule, case.facts, observer=observed)
    assert [name for name, _ in asked] == [name for name in PASSES if name != "finish_kernel"]
    for before, (name, checked_after) in pairwise(asked):
        same = observed.bodies[name] is observed.bodies[before[0]]
        assert checked_after in (None, before[0])
        assert (checked_after is None) or same, f"{name} changed the body"
        assert (name in verified) is (checked_after is None)
    # What came to be known in between is checked with it: where shared memory lies.
    assert dict(asked)["allocate_shared"] is None
    assert 4 < len(verified) < len(PASSES) - 2


def test_only_what_was_checked_is_left_out() -> None:
    body = (*ALLOCATED, WRITE_A, WRITE_B, READ_A)
    result = PassResult(body, {"a": ZERO, "b": ZERO}, frozenset("ab"))
    with pytest.raises(InternalError, match="live_buffers_do_not_overlap"):
        check_invariants("allocate_shared", result, "expand_collectives")
    check_invariants("allocate_shared", result, "allocate_shared")


def test_random_schedules_pass_every_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    lowered = 0
    for seed in range(100, 200):
        case = generate(seed)
        try:
            lower_fusion(case.schedule, case.facts)
        except InternalError:
            raise
        except Exception:
            continue
        lowered += 1
    assert lowered > 70
