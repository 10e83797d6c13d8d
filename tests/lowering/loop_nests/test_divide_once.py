"""One division for the elements of a thread."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.integers.integers import FloorDiv, Int, Mod, symbol
from fuser.ir.kernel.kernel import For, IndexValue, Store, Value, value_operands, walk
from fuser.ir.kernel.kernel_accesses import stmt_reads
from fuser.ir.ops.dtypes import DataType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.lowering.loop_nests.divide_once import divide_once
from tests.fusions.kernel_corpus import BX, GX, UNROLL, spread
from tests.judging.harness import check, collect_facts, integers

A, K = symbol("a", 0, 10_000), symbol("i", 0, 7)
J = symbol("j", 0, 1)
N, SHORT = symbol("n", 8, 300), symbol("m", 1, 300)


@pytest.mark.parametrize(
    "offset",
    [(8 * A + K) % N, (8 * A + K) // N, 3 * ((8 * A + K) % N) + (8 * A + K) // N * 5 + K, (8 * A + K) % N * N + A],
)
def test_offsets_stay(offset: Int) -> None:
    made = divide_once(offset, {K})
    assert made is not offset
    # A second index, of whole threads, stays where it is.
    far = offset.substitute({A: A + 100 * J})
    assert divide_once(far, {J, K}) is made.substitute({A: A + 100 * J})
    draw = random.Random(0)
    for _ in range(2000):
        n = draw.choice((8, 9, 13, 257, 300))
        values = {A: draw.randrange(0, 10_000), K: draw.randrange(8), N: n}
        assert made.evaluate(values) == offset.evaluate(values)


@pytest.mark.parametrize(
    "offset",
    [
        (8 * A + K) % SHORT,  # shorter than a thread's elements
        (8 * A + 2 * K) % N,
        (A * K) % N,
        (8 * A + 2 * K) // N,
        A % N + K,
        8 * A + K,
        (A + K) % (N + K),
    ],
)
def test_offsets_that_keep_their_divisions(offset: Int) -> None:
    assert divide_once(offset, {K}) is offset
    assert divide_once((8 * A + K) % N, set()) is (8 * A + K) % N


def test_the_image_of_an_element_takes_one_division() -> None:
    """Not one by the width and another by the height, the second of which nothing could be said of."""
    row = (8 * A + K + 1) // 61
    made = divide_once((row + 5 * J) // 59, {K})
    quotients = [f for f in _divisions(made) if isinstance(f, FloorDiv)]
    assert [f.divisor.value for f in quotients] == [61 * 59]
    assert all(K not in f.symbols for f in quotients)
    for a in range(0, 10_000, 7):
        for k in (0, 3, 7):
            values = {A: a, K: k, J: a % 2}
            assert made.evaluate(values) == ((8 * a + k + 1) // 61 + 5 * (a % 2)) // 59
    far = symbol("far", 0, 2**30)
    assert divide_once((row + far) // 59, {K}) is (row + far) // 59, "more than 32 bits"


def _divisions(value: Int) -> list[Int]:
    found: list[Int] = []
    for monomial, _ in value.terms:
        for factor in monomial:
            if isinstance(factor, (FloorDiv, Mod)):
                found += [factor, *_divisions(factor.numerator)]
    return found


@pytest.mark.parametrize("shape", [(5, 8), (7, 13), (3, 257), (1, 300)])
def test_rows_beside_one_run(shape: tuple[int, int]) -> None:
    """A vector beside a matrix that is one run, four elements a thread, on the simulator."""
    b = FusionBuilder()
    x, v = b.input_tensor(DataType.Float, [-1, -1]), b.input_tensor(DataType.Float, [-1])
    out = b.pointwise("add", [x, b.broadcast(v, [True, False])], DataType.Float)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    s.require_extent_range(v.name, 0, 8, 1000)
    s.merge(out.name, 0, 1)
    s.split(out.name, 0, 8)
    s.split(out.name, 0, 32)
    spread(s, out.name, (GX, BX, UNROLL))
    arrays = [integers(shape), integers(shape[1:])]
    kernel = check(s, arrays, facts=collect_facts(s.fusion, arrays) | frozenset(s.required_facts))
    lanes = {st.symbol for st in walk(kernel.body) if isinstance(st, For) and st.unroll}
    read = {o for st in walk(kernel.body) for b, o in stmt_reads(st) if b.name == v.name}
    assert read
    assert all(divide_once(o, lanes) is o or shape[0] == 1 for o in read)
    assert any(o.symbols & lanes for o in read)


@pytest.mark.parametrize("shape", [(5, 8), (7, 13), (1, 300)])
def test_positions_along_one_run(shape: tuple[int, int]) -> None:
    """Columns are counted from indices, and not read: they are values, of which a mask is made."""
    b = FusionBuilder()
    x, v = b.input_tensor(DataType.Float, [-1, -1]), b.input_tensor(DataType.Float, [-1])
    zero, one = (b.constant(n, DataType.Int) for n in (0, 1))
    column = b.pointwise("cast", [b.iota(v.visible[0].extent, zero, one, DataType.Int)], DataType.Float)
    out = b.pointwise("add", [x, b.broadcast(column, [True, False])], DataType.Float)
    b.add_output(b.pointwise("add", [out, b.broadcast(v, [True, False])], DataType.Float))
    s = ScheduleBuilder(b.freeze())
    (name,) = s.output_names
    s.require_extent_range(v.name, 0, 8, 1000)
    s.merge(name, 0, 1)
    s.split(name, 0, 8)
    s.split(name, 0, 32)
    spread(s, name, (GX, BX, UNROLL))
    s.inline_most()
    arrays = [integers(shape), integers(shape[1:])]
    kernel = check(s, arrays, facts=collect_facts(s.fusion, arrays) | frozenset(s.required_facts))
    lanes = {st.symbol for st in walk(kernel.body) if isinstance(st, For) and st.unroll}
    positions = [i for st in walk(kernel.body) if isinstance(st, Store) for i in _positions(st.value)]
    assert any(i.symbols & lanes for i in positions)
    assert all(divide_once(i, lanes) is i or shape[0] == 1 for i in positions)


def _positions(value: Value) -> Iterator[Int]:
    if isinstance(value, IndexValue):
        yield value.expression
    for operand in value_operands(value):
        yield from _positions(operand)
