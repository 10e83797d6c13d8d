"""Outputs written into an input's storage: directly where no read is overtaken, else through a temporary."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from fuser.ir.fusion.fusion import Tensor
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.integers.integers import ONE, TRUE, ZERO, Cond, Int, Symbol, const, equal, less, symbol
from fuser.ir.kernel.kernel import (
    BlockBarrier,
    Buffer,
    For,
    If,
    Let,
    Load,
    LoadIndex,
    Stmt,
    Store,
    VectorMove,
)
from fuser.ir.ops.dtypes import DataType
from fuser.ir.schedule.schedule import ScheduleBuilder
from tests.fusions.kernel_corpus import BX, BY, GX, SERIAL, SHARED, schedule_axes, spread
from tests.judging.harness import check, integers
from tests.lowering.memory.kernel_bodies import (
    BLOCK,
    BLOCKS,
    HELD,
    LATER,
    OWN,
    PLACE,
    ROWS,
    THREADS,
    X,
    Y,
    allowed,
    loop,
    read,
    write,
)

Float = DataType.Float


def updated(*, permuted: bool = False) -> tuple[ScheduleBuilder, Tensor, Tensor]:
    """x += y, or x = x.T + y."""
    b = FusionBuilder()
    x, y = b.input_tensor(Float, [-1, -1]), b.input_tensor(Float, [-1, -1])
    source = b.permute(x, [1, 0]) if permuted else x
    out = b.pointwise("add", [source, y], Float)
    b.add_output(out, x)
    return ScheduleBuilder(b.freeze()), x, out


def in_place(s: ScheduleBuilder, *shape: int) -> tuple[str, ...]:
    """Outputs that need no temporary; the kernel is right."""
    kernel = check(s, [integers(shape), integers(shape, seed=1)], seeds=(0, 1, 2))
    return kernel.plan.in_place


def test_elementwise_update_is_direct() -> None:
    s, _, out = updated()
    s.merge(out.name, 0)
    s.split(out.name, 0, 8)
    schedule_axes(s, out.name, (GX, BX))
    assert in_place(s, 5, 7) == (out.name,)


def test_update_through_copies_in_registers_is_direct() -> None:
    s, x, out = updated()
    s.cache_after(x.name)
    s.cache_before(out.name)
    s.split(out.name, 1, 4)
    spread(s, out.name, (GX, SERIAL, BX))
    assert in_place(s, 5, 8) == (out.name,)


def test_strided_storage_is_updated_in_its_own_layout() -> None:
    s, _, out = updated()
    schedule_axes(s, out.name, (GX, BX))
    kernel = check(s, [integers((5, 14))[:, ::2], integers((5, 7), seed=1)])
    assert kernel.plan.in_place == (out.name,)


def test_transposed_read_needs_a_temporary() -> None:
    s, _, out = updated(permuted=True)
    s.inline_most()
    schedule_axes(s, out.name, (BY, BX))
    s.parallelize_like(out.name)
    assert in_place(s, 5, 5) == ()


def test_read_by_another_thread_needs_a_temporary() -> None:
    s, x, out = updated()
    cached = s.cache_after(x.name)
    s.set_memory_type(cached, SHARED)
    s.split(cached, 1, 4)
    s.split(out.name, 1, 4)
    s.parallelize(cached, 1, BX)
    s.parallelize(out.name, 2, BX)
    s.inline_at(out.name, 1)
    assert in_place(s, 3, 16) == ()


def test_read_after_the_write_needs_a_temporary() -> None:
    b = FusionBuilder()
    x, y = b.input_tensor(Float, [-1]), b.input_tensor(Float, [-1])
    out = b.pointwise("add", [x, y], Float)
    late = b.pointwise("neg", [x], Float)
    b.add_output(out, x)
    b.add_output(late)
    for order in ((0, 1), (1, 0)):
        s = ScheduleBuilder(b.freeze())
        for name in (out.name, late.name):
            s.split(name, 0, 4)
            s.parallelize(name, 1, BX)
        if order == (1, 0):
            # The other output first: then nothing is read behind the write.
            s.exprs.reverse()
        kernel = check(s, [integers((9,)), integers((9,), seed=1)])
        assert kernel.plan.in_place == (() if order == (0, 1) else (out.name,))


@pytest.mark.parametrize("cached", [False, True])
def test_redundant_readers_need_a_temporary(cached: bool) -> None:
    """One of the threads along y writes x; where it lies in registers they all read it."""
    b = FusionBuilder()
    x, y = b.input_tensor(Float, [-1]), b.input_tensor(Float, [-1, -1])
    out = b.pointwise("neg", [x], Float)
    wide = b.pointwise("neg", [y], Float)
    b.add_output(out, x)
    b.add_output(wide)
    s = ScheduleBuilder(b.freeze())
    for name in (s.cache_after(x.name), out.name) if cached else (out.name,):
        s.parallelize(name, 0, BX)
    schedule_axes(s, wide.name, (BY, BX))
    kernel = check(s, [integers((6,)), integers((3, 6), seed=1)])
    assert kernel.plan.in_place == (() if cached else (out.name,))


def test_normalisation_in_place_over_a_row_that_the_block_reads_twice() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    r = b.reduction("sum", x, [1], Float)
    out = b.pointwise("sub", [x, b.broadcast(r, [False, True])], Float)
    b.add_output(out, x)
    s = ScheduleBuilder(b.freeze())
    s.split(out.name, 1, 32)
    spread(s, out.name, (GX, SERIAL, BX))
    kernel = check(s, [integers((3, 70))], seeds=(0, 1))
    assert kernel.plan.in_place == (out.name,)


def test_output_that_is_no_alias_is_not_listed() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1])
    b.add_output(b.pointwise("neg", [x], Float))
    kernel = check(ScheduleBuilder(b.freeze()), [np.ones(3, np.float32)])
    assert kernel.plan.in_place == ()


# --- the rule, on statements ------------------------------------------------------------------------------------------


def test_own_elements() -> None:
    assert allowed(read(OWN), write(OWN))
    assert not allowed(write(OWN), read(OWN))
    assert allowed(write(OWN)), "nothing reads it"


def test_elements_of_others() -> None:
    """Read by all, written by one: never without a barrier, and never by another block."""
    first = 4 * BLOCK
    assert not allowed(read(first), write(OWN))
    assert allowed(read(first), BlockBarrier(), write(OWN))
    assert not allowed(BlockBarrier(), read(first), write(OWN), BlockBarrier())
    assert allowed(read(first + 3), BlockBarrier(), write(OWN))
    assert not allowed(read(first + 4), BlockBarrier(), write(OWN)), "the block has no fifth thread"
    assert not allowed(read(ZERO), BlockBarrier(), write(OWN))
    only = If(equal(PLACE, 0), (write(BLOCK),))
    assert not allowed(read(BLOCK), only)
    assert allowed(read(BLOCK), BlockBarrier(), only)


def test_what_is_read_in_loops() -> None:
    row = 12 * BLOCK + PLACE
    whole = loop("", 3, read(row + 4 * ROWS), i=ROWS)
    assert allowed(whole, loop("", 3, write(row + 4 * LATER), i=LATER))
    assert not allowed(loop("", 3, write(row + 4 * LATER), i=LATER), whole)
    assert allowed(loop("", 3, read(row + 4 * ROWS), write(row + 4 * ROWS), i=ROWS))
    backwards = loop("", 3, write(row + 8 - 4 * LATER), i=LATER)
    assert allowed(whole, backwards)
    # The next one is read ahead, or the one before it again.
    ahead = If(less(ROWS + 1, 3), (read(row + 4 * ROWS + 4),))
    assert allowed(read(row), loop("", 3, ahead, write(row + 4 * ROWS), i=ROWS))
    assert not allowed(loop("", 3, read(row + 4 * ROWS - 4), write(row + 4 * ROWS), i=ROWS))
    assert not allowed(loop("", 3, read(row + 4 * ROWS + 4), write(row + 4 * ROWS), i=ROWS)), (
        "the last is another block's"
    )
    # Some threads do not come to the store, so that another one may.
    k = symbol("k", 0, THREADS)
    some = For(k, ZERO, PLACE, ONE, (write(4 * OWN + k),))
    assert not allowed(read(4 * OWN), some, If(equal(PLACE, 1), (write(4 * OWN - 4),)))
    # One shared by all, for each row: a barrier in every iteration.
    shared, own = read(4 * ROWS), write(4 * ROWS + PLACE)
    assert not allowed(loop("", 3, shared, own, i=ROWS))


def test_tests_and_vectors() -> None:
    n = symbol("n", 0)
    inside, four = less(OWN, n), 4 * OWN
    assert allowed(If(inside, (read(OWN),)), If(inside, (write(OWN),)))
    assert allowed(If(less(OWN, n - 1), (read(OWN),)), If(inside, (write(OWN),)))
    assert not allowed(read(OWN), If(inside, (write(OWN),))), "who writes what lies behind the end?"
    wide = VectorMove(HELD, ZERO, X, four, 4)
    assert allowed(wide, VectorMove(Y, four, HELD, ZERO, 4))
    assert allowed(wide, loop("", 4, write(four + symbol("i", 0, 3)), i=symbol("i", 0, 3)))
    each = loop("", 4, If(less(four + symbol("i", 0, 3), n), (write(four + symbol("i", 0, 3)),)), i=symbol("i", 0, 3))
    whole = less(four + 3, n)
    assert not allowed(wide, each)
    assert allowed(If(whole, (wide,)), If(whole, (VectorMove(Y, four, HELD, ZERO, 4),), (each,)))
    assert not allowed(VectorMove(HELD, ZERO, X, four, 4, cut=True), VectorMove(Y, four, HELD, ZERO, 4))


def test_indices_that_were_named_or_loaded() -> None:
    named, loaded = symbol("named", 0), symbol("loaded", 0)
    assert allowed(Let(named, OWN), read(named), write(OWN))
    numbers = Buffer("numbers", DataType.Int32, X.memory, const(8))
    once, again = LoadIndex(loaded, numbers, OWN), LoadIndex(loaded, numbers, 7 - OWN)
    assert not allowed(once, read(loaded), write(OWN))
    assert not allowed(once, read(loaded), again, write(loaded))


# --- the same, against all threads of random bodies -------------------------------------------------------------------


@dataclass
class Trace:
    """What one thread does: (element, barriers passed before it) of its reads and writes, in order."""

    events: list[tuple[bool, int, int]]
    barriers: int = 0


def follow(body: Sequence[Stmt], values: dict[Symbol, int], trace: Trace) -> None:
    for stmt in body:
        match stmt:
            case For():
                for k in range(stmt.start.evaluate(values), stmt.stop.evaluate(values)):
                    follow(stmt.body, values | {stmt.symbol: k}, trace)
            case If():
                follow(stmt.then if stmt.condition.evaluate(values) else stmt.orelse, values, trace)
            case BlockBarrier():
                trace.barriers += 1
            case Store(buffer=buffer, index=index, value=value):
                if isinstance(value, Load):
                    trace.events.append((False, value.index.evaluate(values), trace.barriers))
                elif buffer is Y:
                    trace.events.append((True, index.evaluate(values), trace.barriers))
            case _:
                raise AssertionError(stmt)


def is_right(body: Sequence[Stmt]) -> bool | None:
    """Whether every read comes before the write of its element, for certain; None if an element is written twice."""
    traces: dict[tuple[int, int], Trace] = {}
    for block in range(BLOCKS):
        for place in range(THREADS):
            trace = traces[block, place] = Trace([])
            follow(body, {PLACE: place, BLOCK: block}, trace)
    writers: dict[int, list[tuple[tuple[int, int], int, int]]] = defaultdict(list)
    for who, trace in traces.items():
        for k, (is_write, element, barriers) in enumerate(trace.events):
            if is_write:
                writers[element].append((who, k, barriers))
    if any(len(found) > 1 for found in writers.values()):
        return None
    for who, trace in traces.items():
        for k, (is_write, element, barriers) in enumerate(trace.events):
            if is_write or element not in writers:
                continue
            ((writer, at, passed),) = writers[element]
            if writer == who and at < k:
                return False
            if writer != who and (writer[0] != who[0] or passed <= barriers):
                return False
    return True


def random_body(rng: random.Random) -> tuple[Stmt, ...]:
    """Two or three nests over rows of elements, read and written one way or another, with barriers here and there."""
    columns, rows = rng.choice((1, 2, 3)), rng.choice((1, 2))
    last = rng.choice((0, 1, 5))
    pitch = 4 * columns

    def nest(number: int, is_write: bool) -> Stmt:
        c, r = symbol(f"c{number}", 0, columns - 1), symbol(f"r{number}", 0, rows - 1)
        column: Int = 4 * (columns - 1 - c if rng.random() < 0.2 else c)
        row: Int = rows * BLOCK + r
        place: Int = PLACE
        if not is_write and rng.random() < 0.5:
            change = rng.randrange(5)
            place = (ZERO, PLACE, const(2), PLACE, PLACE)[change]
            column = column if change == 1 else ZERO if change < 3 else column + rng.choice((-4, 0, 4))
            row = row + rng.choice((0, 0, 1)) if change == 4 else row
        index = row * pitch + column + place
        stmt: Stmt = write(index) if is_write else read(index)
        tests: list[Cond] = [less(index, 2 * rows * pitch - last) if rng.random() < 0.8 else TRUE]
        tests += [less(ZERO, index + 1)] * (not is_write)
        for test in tests:
            stmt = stmt if test is TRUE else If(test, (stmt,))
        inner = (stmt, *([BlockBarrier()] if rng.random() < 0.1 else []))
        return loop("", rows, loop("", columns, *inner, i=c), i=r)

    stmts: list[Stmt] = [nest(0, False)]
    for number in range(1, rng.choice((2, 3))):
        stmts += [BlockBarrier()] * (rng.random() < 0.4)
        stmts.append(nest(number, False))
    stmts += [BlockBarrier()] * (rng.random() < 0.4)
    stmts.append(nest(9, True))
    if rng.random() < 0.1:
        rng.shuffle(stmts)
    return tuple(stmts)


def bodies(count: int) -> Iterator[tuple[tuple[Stmt, ...], bool]]:
    rng = random.Random(7)
    while count:
        body = random_body(rng)
        right = is_right(body)
        if right is not None:
            count -= 1
            yield body, right


def test_nothing_is_overtaken_in_random_bodies() -> None:
    found = [(right, allowed(*body)) for body, right in bodies(400)]
    assert (False, True) not in found
    direct, right = found.count((True, True)), sum(right for right, _ in found)
    assert direct > 0.6 * right > 40, f"{direct} of {right} that could be direct are"
