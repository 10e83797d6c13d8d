"""Blocks that communicate: publication, acquisition, waiting, semaphores. Each step left out is reported."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fuser.ir.device_info import DeviceInfo
from fuser.ir.integers.integers import equal, less, select, symbol
from fuser.ir.kernel.kernel import (
    Allocate,
    AtomicAdd,
    BlockBarrier,
    ExtentParameter,
    Fence,
    If,
    IndexValue,
    Kernel,
    LoadIndex,
    SemaphoreParameter,
    SpinWait,
    Stmt,
    Store,
    WorkspaceParameter,
)
from fuser.simulator.errors import Kind, SimulatorError
from fuser.simulator.run_kernel import Report
from tests.simulator.kernels import (
    BX,
    GRID,
    INT32,
    TX,
    N,
    Run,
    as_int,
    call,
    kernel,
    load,
    loop,
    output,
    registers,
    shared,
    source,
    store,
    tensor,
)

SEEDS = range(6)
THREADS = 64
BLOCKS = 5

# Both ways of running blocks that communicate.
both_ways = pytest.mark.parametrize("interleave", [False, True], ids=["waves", "interleaved"])


def failure(report: Report, kind: Kind = Kind.race) -> SimulatorError:
    assert report.error is not None, "nothing was reported"
    assert report.error.kind is kind, report.error
    return report.error


def last_block_sum(without: str = "") -> Kernel:
    """out[t] = sum over blocks of x[block, t], by the block that arrives last. `without` leaves one step out."""
    x, partial, out = tensor("x", N), tensor("partial", N), tensor("out", THREADS)
    semaphore, flag = tensor("semaphore", 1, INT32), shared("flag", 1, INT32)
    old, is_last, b = symbol("old", None), symbol("is_last", None), symbol("b", 0)
    total = registers("total")

    def step(name: str, *stmts: Stmt) -> tuple[Stmt, ...]:
        return () if name == without else stmts

    finish = (
        *step("acquire fence", Fence()),
        Allocate(total),
        store(total, 0, 0.0),
        loop(b, GRID, store(total, 0, call("add", load(total), load(partial, b * THREADS + TX)))),
        store(out, TX, load(total)),
        *step("reset", If(equal(TX, 0), (store(semaphore, 0, 0),))),
    )
    arrive = (
        AtomicAdd(old, semaphore, as_int(0), as_int(1)),
        Store(flag, as_int(0), IndexValue(select(equal(old, GRID - 1), as_int(1), as_int(0)), INT32)),
    )
    body = (
        Allocate(flag),
        store(partial, BX * THREADS + TX, load(x, BX * THREADS + TX)),
        *step("release fence", Fence()),
        *step("release barrier", BlockBarrier()),
        If(equal(TX, 0), arrive),
        *step("acquire barrier", BlockBarrier()),
        LoadIndex(is_last, flag, as_int(0)),
        If(equal(is_last, 1), finish),
    )
    parameters = [source(x), WorkspaceParameter(partial), output(out), SemaphoreParameter(semaphore)]
    return kernel([*parameters, ExtentParameter(N)], *body, offsets={"flag": 0})


def run_last_block(tested: Kernel, seed: int, interleave: bool | None, blocks: int = BLOCKS) -> tuple[Report, Run]:
    x = np.arange(blocks * THREADS, dtype=np.float32)
    run = Run(tested, x, None, None, None, x.size)
    return run(blocks, THREADS, shared_bytes=4, seed=seed, interleave=interleave), run


@both_ways
@pytest.mark.parametrize("seed", SEEDS)
def test_last_block(seed: int, interleave: bool) -> None:
    report, run = run_last_block(last_block_sum(), seed, interleave)
    report.check()
    expected = np.arange(BLOCKS * THREADS, dtype=np.float32).reshape(BLOCKS, THREADS).sum(0)
    np.testing.assert_array_equal(run["out"], expected)


def test_last_block_of_many_waves() -> None:
    report, run = run_last_block(last_block_sum(), 0, None, blocks=3000)
    report.check()
    assert report.waves > 1
    np.testing.assert_allclose(run["out"][0], np.arange(0, 3000 * THREADS, THREADS).sum(), rtol=1e-4)


@both_ways
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("without", "buffer"),
    [
        ("release fence", "partial"),
        ("release barrier", "partial"),
        ("acquire fence", "partial"),
        ("acquire barrier", "flag"),
    ],
)
def test_last_block_with_a_step_left_out(without: str, buffer: str, seed: int, interleave: bool) -> None:
    report, _ = run_last_block(last_block_sum(without), seed, interleave)
    error = failure(report)
    assert error.buffer == buffer
    assert error.first is not None
    assert error.second is not None
    if buffer == "partial":
        assert error.first.action == "write"
        assert error.second.action == "read"
        assert error.first.block != error.second.block


@both_ways
def test_semaphore_is_not_reset(interleave: bool) -> None:
    report, _ = run_last_block(last_block_sum("reset"), 0, interleave)
    error = failure(report, Kind.semaphore_not_reset)
    assert error.buffer == "semaphore"
    assert f"is {BLOCKS}" in error.message


def test_a_fence_by_another_thread_publishes_nothing() -> None:
    """Thread 0 alone fences: what the other threads wrote is not published."""
    tested = last_block_sum("release fence")
    where = next(n for n, s in enumerate(tested.body) if isinstance(s, BlockBarrier))
    body = (*tested.body[:where], If(equal(TX, 0), (Fence(),)), *tested.body[where:])
    report, _ = run_last_block(kernel(tested.parameters, *body, offsets={"flag": 0}), 0, None)
    error = failure(report)
    assert error.first is not None
    assert error.first.thread != (0, 0, 0)


# --- grid waits -------------------------------------------------------------------------------------------------------


def grid_wait(
    semaphore_index: int = 0, without: str = "", arrivals: int = 0, *, acquire: bool = False, release: bool = False
) -> tuple[Stmt, ...]:
    """All blocks wait for all; the counter is left at the number of blocks."""
    semaphore = SEMAPHORE

    def step(name: str, *stmts: Stmt) -> tuple[Stmt, ...]:
        return () if name == without else stmts

    return (
        *step("release fence", Fence()),
        *step("release barrier", BlockBarrier()),
        If(
            equal(TX, 0),
            (
                AtomicAdd(None, semaphore, as_int(semaphore_index), as_int(1), release=release),
                SpinWait(semaphore, as_int(semaphore_index), GRID + arrivals, acquire),
            ),
        ),
        *step("acquire barrier", BlockBarrier()),
        *step("acquire fence", Fence()),
    )


SEMAPHORE = tensor("semaphore", 2, INT32)


def neighbours(wait: tuple[Stmt, ...], *, reset: str = "ordered") -> Kernel:
    """Every block writes a row of a workspace and, after a grid wait, reads the row of the next block."""
    rows, out = tensor("rows", N), tensor("out", N)
    place = BX * THREADS + TX
    old = symbol("left", None)
    clear = (store(SEMAPHORE, 0, 0), store(SEMAPHORE, 1, 0))
    ends: dict[str, tuple[Stmt, ...]] = {
        # Every block counts that it is past the wait; the last one resets.
        "ordered": (
            Fence(),
            If(
                equal(TX, 0),
                (AtomicAdd(old, SEMAPHORE, as_int(1), as_int(1)), If(equal(old, GRID - 1), (Fence(), *clear))),
            ),
        ),
        "by block 0": (If(equal(BX, 0), (If(equal(TX, 0), clear),)),),
        "none": (),
    }
    body = (
        store(rows, place, 3.0),
        *wait,
        store(out, place, load(rows, (place + THREADS) % N)),
        *ends[reset],
    )
    parameters = [WorkspaceParameter(rows), output(out), SemaphoreParameter(SEMAPHORE), ExtentParameter(N)]
    return kernel(parameters, *body)


def run_neighbours(tested: Kernel, seed: int, interleave: bool | None, **launch: object) -> tuple[Report, Run]:
    run = Run(tested, None, None, None, BLOCKS * THREADS)
    return run(BLOCKS, THREADS, seed=seed, interleave=interleave, cooperative=True, **launch), run  # type: ignore[arg-type]


@both_ways
@pytest.mark.parametrize("seed", SEEDS)
def test_grid_wait(seed: int, interleave: bool) -> None:
    report, run = run_neighbours(neighbours(grid_wait()), seed, interleave)
    report.check()
    assert report.interleaved is interleave
    assert (run["out"] == 3).all()


@both_ways
@pytest.mark.parametrize("seed", SEEDS)
def test_an_addition_that_releases_needs_no_fence(seed: int, interleave: bool) -> None:
    report, run = run_neighbours(neighbours(grid_wait(without="release fence", release=True)), seed, interleave)
    report.check()
    assert (run["out"] == 3).all()


@both_ways
@pytest.mark.parametrize("seed", SEEDS)
def test_it_releases_nothing_of_threads_that_it_has_not_met(seed: int, interleave: bool) -> None:
    wait = tuple(s for s in grid_wait(without="release barrier", release=True) if not isinstance(s, Fence))
    report, _ = run_neighbours(neighbours((*wait, Fence())), seed, interleave)
    failure(report)


@both_ways
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("without", ["release fence", "acquire fence", "acquire barrier"])
def test_grid_wait_with_a_step_left_out(without: str, seed: int, interleave: bool) -> None:
    report, _ = run_neighbours(neighbours(grid_wait(without=without)), seed, interleave)
    assert failure(report).buffer == "rows"


@both_ways
@pytest.mark.parametrize("seed", SEEDS)
def test_what_an_acquiring_wait_saw_needs_no_fence(seed: int, interleave: bool) -> None:
    report, run = run_neighbours(neighbours(grid_wait(without="acquire fence", acquire=True)), seed, interleave)
    report.check()
    assert (run["out"] == 3).all()


@both_ways
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("without", ["release fence", "acquire barrier"])
def test_an_acquiring_wait_is_no_barrier(without: str, seed: int, interleave: bool) -> None:
    """Nor does it help what was never published."""
    wait = grid_wait(without=without, acquire=True)
    report, _ = run_neighbours(neighbours(wait[:-1]), seed, interleave)
    assert failure(report).buffer == "rows"


@both_ways
@pytest.mark.parametrize("seed", SEEDS)
def test_reset_while_others_may_still_wait(seed: int, interleave: bool) -> None:
    report, _ = run_neighbours(neighbours(grid_wait(), reset="by block 0"), seed, interleave)
    assert report.error is not None
    # A block that has not yet looked waits for ever; one that has looked races with the store.
    assert report.error.kind in (Kind.race, Kind.deadlock)
    if not interleave:
        assert report.error.kind is Kind.race
        assert report.error.buffer == "semaphore"


def test_grid_wait_without_reset() -> None:
    report, _ = run_neighbours(neighbours(grid_wait(), reset="none"), 0, None)
    failure(report, Kind.semaphore_not_reset)


@both_ways
def test_waiting_for_more_blocks_than_there_are(interleave: bool) -> None:
    report, _ = run_neighbours(neighbours(grid_wait(arrivals=1)), 0, interleave)
    error = failure(report, Kind.deadlock)
    assert error.buffer == "semaphore"
    assert error.second is not None
    assert error.second.action == "wait"
    assert error.second.index == 0


def test_more_waiting_blocks_than_the_device_holds() -> None:
    small = DeviceInfo("small", "sm_90a", 2, max_blocks_per_sm=2)
    report, _ = run_neighbours(neighbours(grid_wait()), 0, None, info=small)
    error = failure(report, Kind.over_resident)
    assert error.message == (
        "more waiting blocks than fit: a cooperative grid of 5 blocks; small holds 4 of them at once"
    )
    run = Run(neighbours(grid_wait()), None, None, None, BLOCKS * THREADS)
    error = failure(run(BLOCKS, THREADS, cooperative=False), Kind.over_resident)
    assert "not cooperative" in error.message


@both_ways
@pytest.mark.parametrize("seed", SEEDS)
def test_a_chain_of_blocks(seed: int, interleave: bool) -> None:
    """Block b adds to what block b - 1 left, as in a scan: a wave of all blocks cannot run this in lock step."""
    value, flags = tensor("value", THREADS), tensor("flags", BLOCKS, INT32)

    def chain(*, with_fence: bool) -> Kernel:
        fence = (Fence(),) if with_fence else ()
        body = (
            If(
                less(0, BX),
                (
                    If(equal(TX, 0), (SpinWait(flags, BX - 1, as_int(1)),)),
                    BlockBarrier(),
                    *fence,
                    store(value, TX, call("add", load(value, TX), load(value, TX))),
                ),
                (store(value, TX, 1.0),),
            ),
            *fence,
            BlockBarrier(),
            If(equal(TX, 0), (AtomicAdd(None, flags, BX, as_int(1)),)),
        )
        return kernel([output(value), WorkspaceParameter(flags)], *body)

    def run(*, with_fence: bool) -> tuple[Report, Run]:
        made = Run(chain(with_fence=with_fence), None, np.zeros(BLOCKS, np.int32))
        return made(BLOCKS, THREADS, cooperative=True, seed=seed, interleave=interleave), made

    report, made = run(with_fence=True)
    report.check()
    assert report.interleaved
    assert (made["value"] == 2 ** (BLOCKS - 1)).all()
    assert failure(run(with_fence=False)[0]).buffer == "value"


# --- atomics ----------------------------------------------------------------------------------------------------------


@both_ways
def test_atomics_count(interleave: bool) -> None:
    counter, out = tensor("counter", 1, INT32), tensor("out", BLOCKS * THREADS, INT32)
    old = symbol("old", None)
    body = (
        AtomicAdd(old, counter, as_int(0), as_int(1)),
        Store(out, BX * THREADS + TX, IndexValue(old, INT32)),
    )
    run = Run(kernel([WorkspaceParameter(counter), output(out)], *body), np.zeros(1, np.int32), None)
    run(BLOCKS, THREADS, interleave=interleave).check()
    assert sorted(run["out"].tolist()) == list(range(BLOCKS * THREADS))


@both_ways
@pytest.mark.parametrize(
    "plain",
    [
        lambda counter, out, x: LoadIndex(x, counter, as_int(0)),
        lambda counter, out, x: store(counter, 0, 7),
    ],
    ids=["read", "write"],
)
@pytest.mark.parametrize("atomic_first", [False, True])
def test_an_atomic_and_a_plain_access(plain: Callable[..., Stmt], atomic_first: bool, interleave: bool) -> None:
    counter = tensor("counter", 1, INT32)
    atomic = If(equal(TX, 0), (AtomicAdd(None, counter, as_int(0), as_int(1)),))
    other = If(equal(TX, 1), (plain(counter, None, symbol("x", None)),))
    body = (atomic, other) if atomic_first else (other, atomic)
    run = Run(kernel([WorkspaceParameter(counter)], *body), np.zeros(1, np.int32))
    error = failure(run(1, 32, interleave=interleave))
    assert error.buffer == "counter"
    ordered = (body[0], BlockBarrier(), body[1])
    Run(kernel([WorkspaceParameter(counter)], *ordered), np.zeros(1, np.int32))(1, 32, interleave=interleave).check()


def test_atomics_in_shared_memory() -> None:
    counts, out = shared("counts", 4, INT32), tensor("out", 8, INT32)
    body = (
        Allocate(counts),
        If(less(TX, 4), (store(counts, TX, 0),)),
        BlockBarrier(),
        AtomicAdd(None, counts, TX % 4, as_int(1)),
        BlockBarrier(),
        If(less(TX, 4), (store(out, BX * 4 + TX, load(counts, TX)),)),
    )
    run = Run(kernel([output(out)], *body, offsets={"counts": 0}), None)
    run(2, 64, shared_bytes=16).check()
    assert (run["out"] == 16).all()


def test_an_uninitialised_counter() -> None:
    counter = tensor("counter", 1, INT32)
    run = Run(kernel([WorkspaceParameter(counter)], AtomicAdd(None, counter, as_int(0), as_int(1))), None)
    assert failure(run(), Kind.uninitialised_read).buffer == "counter"
