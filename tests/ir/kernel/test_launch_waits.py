"""Which kernels may start while the launches before them end: those that touch no memory before they have waited."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuser.errors import InternalError
from fuser.ir.integers.integers import const, less, symbol
from fuser.ir.kernel.kernel import (
    Allocate,
    AtomicAdd,
    BlockBarrier,
    Comment,
    For,
    If,
    Kernel,
    LaunchWait,
    Let,
    Literal,
    Load,
    Stmt,
    VectorMove,
)
from fuser.ir.kernel.launch_waits import starting_early, why_not_early
from fuser.ir.kernel.print_kernel import print_kernel
from fuser.ir.kernel.verify_kernel import verify_kernel
from fuser.ir.ops.dtypes import DataType
from tests.codegen.golden_corpus import BID, FLOAT, TID, ZERO, N, corpus_kernels, kernel, registers, store, tensor

OUT, COUNTERS = tensor("out", FLOAT), tensor("counters", DataType.Int32, 4)
IN = tensor("x", FLOAT)
R, R4 = registers("r", FLOAT), registers("r4", FLOAT, 4)
ONE = Literal(1.0, FLOAT)
ROW = symbol("i", 0, 2**20)
WAIT = LaunchWait()


def of(*body: Stmt) -> Kernel:
    return kernel("k", (COUNTERS, IN), (OUT,), *body)


def early(*body: Stmt) -> Kernel:
    """A kernel that says that it waits first."""
    made = of(*body)
    return replace(made, plan=replace(made.plan, waits_first=True))


HARMLESS = (
    Comment("nothing"),
    Let(ROW, BID * 128 + TID),
    Allocate(R),
    store(R, ONE),
    If(less(ROW, N), (store(R, ONE),)),
)
BEFORE = {
    "a store": (store(OUT, ONE), "Store stands before"),
    "a read": (store(R, Load(IN, ZERO)), "Store stands before"),
    "a wide read": (VectorMove(R4, ZERO, IN, ZERO, 4), "VectorMove stands before"),
    "a read under a test": (If(less(TID, const(4)), (store(R, Load(IN, ZERO)),)), "Store stands before"),
    "a counter": (AtomicAdd(None, COUNTERS, ZERO, const(1)), "AtomicAdd stands before"),
    "a barrier": (BlockBarrier(), "BlockBarrier stands before"),
    "a wait of some": (If(less(TID, const(4)), (WAIT,)), "not all of its threads wait"),
    "a wait in a loop": (For(ROW, ZERO, TID, const(1), (WAIT,)), "not all of its threads wait"),
}


@pytest.mark.parametrize(("stmt", "why"), BEFORE.values(), ids=BEFORE)
def test_what_stands_before_the_wait(stmt: Stmt, why: str) -> None:
    assert why in (why_not_early(early(Allocate(R), Allocate(R4), stmt, WAIT)) or "")
    assert why_not_early(early(Allocate(R), Allocate(R4), WAIT, stmt)) is None
    with pytest.raises(InternalError, match="the launch plan says that it may start early, and"):
        verify_kernel(early(Allocate(R), Allocate(R4), stmt, WAIT, store(OUT, ONE)))


def test_what_computes_may_stand_before_the_wait() -> None:
    made = early(*HARMLESS, WAIT, store(OUT, Load(R, ZERO)))
    assert why_not_early(made) is None
    verify_kernel(made)


def test_a_kernel_without_its_wait() -> None:
    why = "it does not wait for the launches before"
    assert why_not_early(early(store(OUT, ONE))) == why
    assert why_not_early(early()) == why


def test_launches_that_others_wait_for() -> None:
    made = of(store(OUT, ONE))
    for changes in ({"cooperative": True}, {"starts_next": True}):
        kept = replace(made, plan=replace(made.plan, **changes))  # type: ignore[arg-type]
        assert starting_early(kept) is kept


def test_kernels_that_are_to_start_early_wait_first() -> None:
    """Of the corpus all but those that wait for their whole grid, or read what they take to be constant."""
    made = 0
    for k in corpus_kernels():
        found = starting_early(k)
        if found is k:
            assert k.plan.cooperative or why_not_early(replace(k, body=(WAIT, *k.body))) is not None
            continue
        made += 1
        assert found.plan.waits_first
        assert found.body == (found.body[0], *k.body)
        verify_kernel(found, is_final=True)
        assert "wait for the launches before" in print_kernel(found)
        assert ", may start early" in print_kernel(found)
    assert made > 10
