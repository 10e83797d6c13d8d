"""Vector moves in loop nests: on the simulator against the oracle; refusals by message."""

from __future__ import annotations

import pytest

from fuser.ir.facts import Aligned, DenseStride, ExtentDivisible, StrideDivisible, UnitStride
from fuser.ir.kernel.kernel import VectorMove, walk
from fuser.ir.ops.dtypes import DataType
from fuser.ir.schedule.schedule import ScheduleBuilder
from tests.fusions.kernel_corpus import BX, GX, SHARED, VECTOR, schedule_axes
from tests.judging.harness import check, collect_facts, integers, refusal
from tests.lowering.small_fusions import copied, negated, of_type, predicates

Float, Half, Int, Int32, Double = DataType.Float, DataType.Half, DataType.Int, DataType.Int32, DataType.Double


def vectorized(s: ScheduleBuilder, loaded: str, out: str, width: int) -> None:
    s.split(out, len(s.state(out).loop) - 1, width)
    s.transform_like(out)
    last = len(s.state(out).loop) - 1
    s.parallelize(out, 0, GX)
    s.parallelize_like(out)
    s.parallelize(out, last, VECTOR)
    s.parallelize(loaded, last, VECTOR)
    s.inline_most()


@pytest.mark.parametrize(("dtype", "width"), [(Float, 4), (Float, 2), (Half, 8), (Double, 2), (Int, 2)])
def test_vectorized_loads_and_stores(dtype: DataType, width: int) -> None:
    s, loaded, _, out = copied(-1, -1, dtype=dtype)
    vectorized(s, loaded, out, width)
    kernel = check(s, [integers((3, 16), dtype)])
    moves = [m for m in of_type(kernel, VectorMove) if isinstance(m, VectorMove)]
    assert [m.width for m in moves] == [width, width]


def test_vectorized_load_through_shared_memory() -> None:
    s, loaded, _, out = copied(-1, -1)
    s.set_memory_type(loaded, SHARED)
    vectorized(s, loaded, out, 4)
    kernel = check(s, [integers((3, 16))])
    assert any(isinstance(m, VectorMove) and m.dst.is_shared for m in walk(kernel.body))


def test_vectors_behind_a_tail_predicate() -> None:
    s, loaded, _, out = copied(-1)
    s.split(out, 0, 4)
    s.split(out, 0, 8)
    s.transform_like(out)
    schedule_axes(s, out, (GX, BX))
    s.parallelize_like(out)
    s.parallelize(out, 2, VECTOR)
    s.parallelize(loaded, 2, VECTOR)
    s.inline_most()
    kernel = check(s, [integers((36,))])
    assert predicates(kernel)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (Aligned, "the base address of t0 is not known to be aligned to 16 bytes"),
        (ExtentDivisible, "not known to be"),
        (UnitStride, "t0 is not contiguous along the vectorized axis"),
        (DenseStride, "the offset"),
    ],
)
def test_vectors_are_refused_where_a_fact_is_missing(missing: type, message: str) -> None:
    s, loaded, _, out = copied(-1, -1)
    vectorized(s, loaded, out, 4)
    facts = collect_facts(s.fusion, [integers((3, 16))])
    less = frozenset(f for f in facts if not isinstance(f, missing))
    assert message in refusal(s, less)


def test_vectors_of_a_strided_input_need_divisible_strides() -> None:
    s, loaded, _, out = copied(-1, -1)
    vectorized(s, loaded, out, 4)
    check(s, [integers((3, 20))[:, :16]])
    assert "not known to be a multiple" in refusal(s, collect_facts(s.fusion, [integers((3, 18))[:, :16]]))
    assert StrideDivisible("t0", 0, 8) in collect_facts(s.fusion, [integers((3, 18))[:, :16]])


def test_vector_of_arithmetic_is_refused() -> None:
    fusion, _, out = negated(-1)
    s = ScheduleBuilder(fusion)
    s.split(out.name, 0, 4)
    s.parallelize(out.name, 1, VECTOR)
    assert "only a copy can" in refusal(s)


def test_vector_wider_than_an_access_is_refused() -> None:
    s, loaded, _, out = copied(-1, -1)
    vectorized(s, loaded, out, 8)
    assert "one access would be 32 bytes" in refusal(s, collect_facts(s.fusion, [integers((3, 16))]))


def test_vectorized_symbolic_extent_is_refused() -> None:
    s, _, _, out = copied(-1, -1)
    s.transform_like(out)
    s.parallelize(out, 1, VECTOR)
    s.inline_most()
    for name in ("t0_cache_after_0", "t1_cache_before_0"):
        s.set_memory_type(name, SHARED)
    assert "needs a constant extent" in refusal(s)


def test_rows_shorter_than_a_vector_have_no_whole_one() -> None:
    s, loaded, _, out = copied(3)
    s.split(out, 0, 4)
    s.transform_like(out)
    s.parallelize(out, 0, GX)
    s.parallelize_like(out)
    s.parallelize(loaded, 1, VECTOR)
    s.allow_misaligned(loaded)
    s.inline_most()
    kernel = check(s, [integers((3,))])
    assert not of_type(kernel, VectorMove)
