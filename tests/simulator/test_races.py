"""Races inside a block and between blocks that never meet: the right program is silent, each broken one is reported."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fuser.ir.integers.integers import equal, less, symbol
from fuser.ir.kernel.kernel import Allocate, BlockBarrier, If, Shuffle, ShuffleKind, Stmt, WarpBarrier
from fuser.simulator.errors import Kind, SimulatorError
from fuser.simulator.run_kernel import Report
from tests.simulator.kernels import (
    BX,
    THREADS,
    TX,
    Run,
    as_int,
    block_reduction,
    call,
    kernel,
    load,
    loop,
    move,
    output,
    registers,
    shared,
    source,
    store,
    tensor,
)


def failure(report: Report, kind: Kind = Kind.race) -> SimulatorError:
    assert report.error is not None, "nothing was reported"
    assert report.error.kind is kind, report.error
    return report.error


def through_shared(*between: Stmt, distance: int, threads: int = 64) -> Report:
    """Every thread writes its element of a shared array and reads the one `distance` further."""
    tile, out = shared("tile", threads), tensor("out", threads * 2)
    body = (
        Allocate(tile),
        store(tile, TX, 1.0),
        *between,
        store(out, BX * threads + TX, load(tile, (TX + distance) % threads)),
    )
    run = Run(kernel([output(out)], *body, offsets={"tile": 0}), None)
    return run(2, threads, shared_bytes=4 * threads)


def test_a_block_barrier_orders_the_block() -> None:
    through_shared(BlockBarrier(), distance=33).check()


def test_missing_block_barrier() -> None:
    error = failure(through_shared(distance=1))
    assert error.buffer == "tile"
    assert error.first is not None
    assert error.second is not None
    assert (error.first.action, error.second.action) == ("write", "read")
    assert error.first.index == error.second.index
    assert error.first.thread != error.second.thread
    assert error.first.block == error.second.block
    assert error.first.path == "body[1]"
    assert error.first.statement == "tile[threadIdx.x] = 1.0:Float"
    assert error.second.path == "body[2]"
    assert "tile[" in str(error)
    assert "by thread (" in str(error)


def test_reading_what_the_thread_wrote_itself_needs_no_barrier() -> None:
    through_shared(distance=0).check()


@pytest.mark.parametrize("reads_other_warp", [False, True])
def test_a_warp_barrier_orders_a_warp_only(reads_other_warp: bool) -> None:
    tile, out = shared("tile", 64), tensor("out", 64)
    neighbour = 63 - TX if reads_other_warp else TX // 32 * 32 + (TX + 1) % 32
    body = (Allocate(tile), store(tile, TX, 1.0), WarpBarrier(), store(out, TX, load(tile, neighbour)))
    report = Run(kernel([output(out)], *body, offsets={"tile": 0}), None)(1, 64, shared_bytes=256)
    if reads_other_warp:
        failure(report)
    else:
        report.check()


def test_lanes_of_one_warp_race_too() -> None:
    failure(through_shared(distance=1, threads=32))


def test_a_warp_barrier_does_not_order_other_warps() -> None:
    failure(through_shared(WarpBarrier(), distance=32))


def test_two_threads_write_one_element_even_with_equal_values() -> None:
    out = tensor("out", 32)
    error = failure(Run(kernel([output(out)], store(out, TX // 2, 1.0)), None)())
    assert error.buffer == "out"
    assert error.first is not None
    assert error.second is not None
    assert error.first.path == error.second.path == "body[0]"
    assert error.first.thread != error.second.thread


def test_two_blocks_write_one_element() -> None:
    out = tensor("out", 32)
    error = failure(Run(kernel([output(out)], store(out, TX, 1.0)), None)(2))
    assert error.first is not None
    assert error.second is not None
    assert error.first.block != error.second.block


def test_all_threads_write_one_element() -> None:
    out = tensor("out", 1)
    failure(Run(kernel([output(out)], store(out, 0, 1.0)), None)())
    Run(kernel([output(out)], If(equal(TX, 0), (store(out, 0, 1.0),))), None)().check()


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_block_reads_what_another_one_writes_whatever_the_order(order: tuple[int, ...]) -> None:
    x = tensor("x", 96)
    place = BX * THREADS + TX
    tested = kernel([output(x)], store(x, place, load(x, (place + 32) % 96)))
    run = Run(tested, np.zeros(96, np.float32))
    error = failure(run(3, 32, order=[(b, 0, 0) for b in order]))
    assert error.first is not None
    assert error.second is not None
    assert {error.first.action, error.second.action} == {"read", "write"}


def test_in_place_by_the_same_thread_is_no_race() -> None:
    x = tensor("x", 64)
    place = BX * THREADS + TX
    run = Run(kernel([output(x)], store(x, place, call("neg", load(x, place)))), np.ones(64, np.float32))
    run(2).check()
    assert (run["x"] == -1).all()


def test_in_place_with_another_index_map() -> None:
    x, y = tensor("x", 64), tensor("y", 64)
    place = BX * THREADS + TX
    run = Run(kernel([source(x), output(y)], store(y, place, load(x, 63 - place))), np.ones(64, np.float32), None)
    run.values[1] = run.values[0]
    error = failure(run(2))
    assert error.first is not None
    assert {error.first.buffer, error.buffer} == {"x", "y"}


def test_vector_and_element_accesses_of_the_same_bytes() -> None:
    x, y = tensor("x", 128), tensor("y", 128)
    r = registers("r", 4)

    def run(distance: int) -> Report:
        body = (Allocate(r), move(r, 0, x, TX * 4, 4), move(y, TX * 4, r, 0, 4), store(y, TX * 4 + distance, 0.0))
        return Run(kernel([source(x), output(y)], *body), np.ones(128, np.float32), None)()

    run(3).check()
    body = (Allocate(r), move(r, 0, x, TX * 4, 4), move(y, TX * 4, r, 0, 4), store(y, (TX * 4 + 5) % 128, 0.0))
    failure(Run(kernel([source(x), output(y)], *body), np.ones(128, np.float32), None)())


@pytest.mark.parametrize("threads", [64, 128])
def test_scratch_of_a_reduction_is_reused(threads: int) -> None:
    """Two reductions through one scratch array: each starts with a barrier, or the second overwrites what is still read."""
    out = tensor("out", 2)
    value, scratch = registers("value"), shared("scratch", threads // 32)

    def body(*, with_barrier: bool) -> list[Stmt]:
        first = block_reduction(value, scratch, "add", 0.0, threads)
        second = block_reduction(value, scratch, "add", 0.0, threads)
        if not with_barrier:
            where = next(n for n, s in enumerate(second) if isinstance(s, BlockBarrier))
            second = (*second[:where], *second[where + 1 :])
        end = If(equal(TX, 0), (store(out, BX, load(value)),))
        return [Allocate(value), Allocate(scratch), store(value, 0, 1.0), *first, *second, end]

    run = Run(kernel([output(out)], *body(with_barrier=True), offsets={"scratch": 0}), None)
    run(2, threads, shared_bytes=16).check()
    assert (run["out"] == threads * threads).all()
    broken = Run(kernel([output(out)], *body(with_barrier=False), offsets={"scratch": 0}), None)
    error = failure(broken(2, threads, shared_bytes=16))
    assert error.buffer == "scratch"
    assert error.first is not None
    assert error.second is not None
    assert (error.first.action, error.second.action) == ("read", "write")


def test_write_after_read_in_a_loop() -> None:
    tile, x, out = shared("tile", 64), tensor("x", 256), tensor("out", 256)
    i = symbol("i", 0, 3)

    def run(*at_the_end: Stmt) -> Report:
        body = loop(
            i,
            4,
            store(tile, TX, load(x, i * 64 + TX)),
            BlockBarrier(),
            store(out, i * 64 + TX, load(tile, 63 - TX)),
            *at_the_end,
        )
        tested = kernel([source(x), output(out)], Allocate(tile), body, offsets={"tile": 0})
        return Run(tested, np.ones(256, np.float32), None)(1, 64, shared_bytes=256)

    run(BlockBarrier()).check()
    error = failure(run())
    assert error.buffer == "tile"
    assert error.first is not None
    assert error.first.path.startswith("body[1].body[2]")


def test_a_reader_of_another_warp_is_not_forgotten() -> None:
    """All threads read one element; a warp barrier orders the readers of warp 0 before its write, not those of warp 1."""
    tile, out = shared("tile", 1), tensor("out", 64)

    def run(barrier: Stmt) -> Report:
        body = (
            Allocate(tile),
            If(equal(TX, 0), (store(tile, 0, 1.0),)),
            BlockBarrier(),
            If(less(31, TX), (store(out, TX, load(tile)),)),
            If(less(TX, 32), (store(out, TX, load(tile)),)),
            barrier,
            If(equal(TX, 0), (store(tile, 0, 2.0),)),
        )
        return Run(kernel([output(out)], *body, offsets={"tile": 0}), None)(1, 64, shared_bytes=4)

    run(BlockBarrier()).check()
    failure(run(WarpBarrier()))


def test_shared_buffers_on_the_same_bytes() -> None:
    """Two buffers of different dtypes alias; a barrier must stand between the last read of one and the write of the other."""
    floats, halves = shared("floats", 64), shared("halves", 64, source(tensor("h", 1)).buffer.dtype)
    out = tensor("out", 128)

    def run(*between: Stmt) -> Report:
        body = (
            Allocate(floats),
            Allocate(halves),
            store(floats, TX, 1.0),
            BlockBarrier(),
            store(out, TX, load(floats, 63 - TX)),
            *between,
            store(halves, TX, 2.0),
            BlockBarrier(),
            store(out, TX + 64, load(halves, 63 - TX)),
        )
        tested = kernel([output(out)], *body, offsets={"floats": 0, "halves": 128})
        return Run(tested, None)(1, 64, shared_bytes=512)

    run(BlockBarrier()).check()
    error = failure(run())
    assert error.first is not None
    assert (error.first.buffer, error.buffer) == ("floats", "halves")


def test_shuffles_do_not_order_memory() -> None:
    r = registers("r")
    failure(
        through_shared(
            Allocate(r), store(r, 0, 1.0), Shuffle(r, as_int(0), load(r), ShuffleKind.xor, as_int(1)), distance=1
        )
    )


def test_races_are_not_looked_for_when_asked() -> None:
    out = tensor("out", 32)
    run = Run(kernel([output(out)], store(out, TX // 2, 1.0), store(out, TX // 2 + 16, 1.0)), None)
    run(checks=False).check()
    assert (run["out"] == 1).all()
