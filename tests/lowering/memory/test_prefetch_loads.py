"""Loads an iteration ahead: what moves, that results stay, and what cannot be loaded ahead."""

from __future__ import annotations

import pytest

from fuser.errors import SchedulingError
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.integers.integers import ONE, ZERO, const, symbol
from fuser.ir.kernel.kernel import Allocate, Buffer, Comment, For, If, Literal, Load, Stmt, Store, VectorMove, walk
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import GLOBAL_MEMORY, MemoryType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.lowering.memory.prefetch_loads import prefetch_loads
from tests.fusions.kernel_corpus import BX, GX, SERIAL, VECTOR, schedule_axes
from tests.judging.harness import check, collect_facts, integers

Float = DataType.Float
A = Buffer("a", Float, GLOBAL_MEMORY, const(8))
OUT = Buffer("out", Float, GLOBAL_MEMORY, const(8))
X = Buffer("x", Float, MemoryType.local, ONE)
N = symbol("n", 0, 100)
I = symbol("i", 0, 100, below=N)  # noqa: E741
FILL = Store(X, ZERO, Load(A, I))
USE = Store(OUT, I, Load(X, ZERO))


def kinds(body: tuple[Stmt, ...]) -> list[object]:
    return [kinds(s.body) if isinstance(s, For) else type(s).__name__ for s in body]


def test_loads_go_before_the_loop_and_into_the_trip_before() -> None:
    made = prefetch_loads((For(I, ZERO, N, ONE, (Allocate(X), FILL, USE)),), frozenset(["x"]))
    assert kinds(made) == ["Allocate", "If", ["Allocate", "Store", "If", "Store"]]
    loop = made[2]
    assert isinstance(loop, For)
    taken, again = loop.body[1], loop.body[2]
    assert isinstance(taken, Store)
    assert isinstance(taken.value, Load)
    assert taken.value.buffer.name == "x_next"
    assert isinstance(again, If)
    (ahead,) = again.then
    assert isinstance(ahead, Store)
    assert ahead.value == Load(A, I + 1)


def test_nothing_wanted_changes_nothing() -> None:
    body = (For(I, ZERO, N, ONE, (Allocate(X), FILL, USE)),)
    assert prefetch_loads(body, frozenset()) is body


@pytest.mark.parametrize(
    "body",
    [
        (Allocate(X), For(I, ZERO, N, ONE, (FILL, USE))),
        (For(I, ZERO, N, ONE, (Allocate(X), FILL, USE, Store(A, I, Literal(0.0, Float)))),),
        (For(I, ZERO, N, ONE, (Allocate(X), Store(X, ZERO, Literal(0.0, Float)), USE)),),
    ],
    ids=["filled for the loop outside", "kernel writes the input", "no load"],
)
def test_what_cannot_be_loaded_ahead_is_refused(body: tuple[Stmt, ...]) -> None:
    with pytest.raises(SchedulingError, match="x cannot be loaded an iteration ahead"):
        prefetch_loads(body, frozenset(["x"]), frozenset(["x"]))
    signal, *same = prefetch_loads(body, frozenset(["x"]))
    assert kinds(tuple(same)) == kinds(body), "where it is only wished for, nothing moves"
    assert isinstance(signal, Comment)
    assert signal.text.startswith("x is not loaded an iteration ahead: no serial loop fills it")


def rows_summed(vector: int) -> tuple[ScheduleBuilder, str]:
    """Columns of x[i, j] summed by a block for some rows, which it goes through one after the other."""
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    out = b.pointwise("neg", [b.pointwise("abs", [x], Float)], Float)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    copy = s.cache_after(x.name)
    n = out.name
    s.split(n, 0, 3)  # trips, blocks, j
    s.reorder(n, {0: 1})
    s.split(n, 2, vector)
    s.split(n, 2, 4)  # blocks, trips, j/4v, 4, v
    s.split(n, 2, 2)  # blocks, trips, 1, 2, 4, v
    s.transform_like(n)
    schedule_axes(s, n, (GX, SERIAL, SERIAL, SERIAL, BX))
    s.parallelize_like(n)
    s.require_extent_range(x.name, 1, 1, 8 * vector)
    s.inline_most([t.name for t in s.tensors if t.name not in (copy, x.name)])
    s.inline_at(n, 2, selected=[copy])
    return s, copy


@pytest.mark.parametrize("shape", [(1, 5), (3, 8), (4, 7), (11, 3), (9, 8)])
def test_results_stay(shape: tuple[int, int]) -> None:
    s, copy = rows_summed(1)
    s.load_ahead(copy)
    x = integers(shape)
    kernel = check(s, [x], facts=collect_facts(s.fusion, [x]) | frozenset(s.required_facts))
    assert any(isinstance(st, Allocate) and st.buffer.name == f"{copy}_next" for st in walk(kernel.body))


def test_wide_loads_stay_wide() -> None:
    s, copy = rows_summed(4)
    s.parallelize(copy, 5, VECTOR)
    s.load_ahead(copy)
    x = integers((7, 32))
    kernel = check(s, [x], facts=collect_facts(s.fusion, [x]) | frozenset(s.required_facts))
    assert sum(isinstance(st, VectorMove) and st.width == 4 for st in walk(kernel.body)) == 3


def test_only_copies_of_inputs_in_registers() -> None:
    s, copy = rows_summed(1)
    with pytest.raises(SchedulingError, match="it is no copy of an input in registers"):
        s.load_ahead("t1")
    s.set_memory_type(copy, MemoryType.shared)
    with pytest.raises(SchedulingError, match="it is no copy of an input in registers"):
        s.load_ahead(copy)
