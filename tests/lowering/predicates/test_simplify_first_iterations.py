"""Which loops ask in their first iteration only whether a value is the first that a thread counts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.ir.enums import MemoryType
from fuser.ir.integers import ONE, ZERO, Symbol, const, equal, less, symbol
from fuser.ir.kernel import Buffer, Call, For, If, Literal, Load, Role, Stmt, Store, Value, walk
from fuser.ir.kernel_accesses import stmt_writes
from fuser.lowering.predicates.simplify_first_iterations import simplify_first_iterations
from tests.schedule.analysis.test_alignment import laid_out
from tests.schedule.cost.test_peeled_rows import force

F, N = DataType.Float, DataType.Int32
COUNT, SHIFT, X = (
    Buffer(name, dtype, MemoryType.local, const(size)) for name, dtype, size in (("n", N, 1), ("s", F, 1), ("x", F, 8))
)


def steps(i: Symbol) -> tuple[Stmt, ...]:
    counted = Store(COUNT, ZERO, Call("add", (Load(COUNT, ZERO), Literal(1, N)), N, N))
    is_first = Call("eq", (Load(COUNT, ZERO), Literal(1, N)), N, DataType.Bool)
    kept = Store(SHIFT, ZERO, Call("where", (is_first, Load(X, i), Load(SHIFT, ZERO)), F, F))
    return counted, kept


def loop(i: Symbol, body: tuple[Stmt, ...], *, unroll: bool = True) -> For:
    return For(i, ZERO, const(8), ONE, body, unroll)


@pytest.fixture
def i() -> Symbol:
    return symbol("i", 0, 7)


def test_a_loop_without_tests_asks_once(i: Symbol) -> None:
    (changed,) = simplify_first_iterations((loop(i, steps(i)),))
    assert isinstance(changed, For)
    counted, asked = changed.body
    assert isinstance(counted, Store), "each iteration counts"
    assert isinstance(asked, If)
    assert asked.condition is equal(i, 0)
    assert isinstance(asked.then[0], Store)
    assert asked.then[0].buffer is SHIFT
    assert simplify_first_iterations((changed,)) == (changed,)


def test_the_second_value_is_asked_for_in_the_first_two_iterations(i: Symbol) -> None:
    counted, kept = steps(i)
    is_second = Call("eq", (Load(COUNT, ZERO), Literal(2, N)), N, DataType.Bool)
    nearer = Call("lt", (Load(X, i), Load(SHIFT, ZERO)), F, DataType.Bool)
    taken = Call("logical_and", (is_second, nearer), DataType.Bool, DataType.Bool)
    moved = tuple(Store(b, ZERO, Call("where", (taken, Load(X, i), Load(b, ZERO)), F, F)) for b in (SHIFT, X))
    (changed,) = simplify_first_iterations((loop(i, (counted, kept, *moved)),))
    assert isinstance(changed, For)
    assert [s.condition for s in changed.body if isinstance(s, If)] == [equal(i, 0), less(i, 2)]
    last = changed.body[-1]
    assert isinstance(last, If)
    assert (last.then, last.role) == (moved, Role.plain)
    third = Call("eq", (Load(COUNT, ZERO), Literal(3, N)), N, DataType.Bool)
    other = loop(i, (counted, Store(SHIFT, ZERO, Call("where", (third, Load(X, i), Load(SHIFT, ZERO)), F, F))))
    assert simplify_first_iterations((other,)) == (other,)


def test_loops_whose_values_are_tested_stay(i: Symbol) -> None:
    tested = loop(i, (If(less(i, 5), steps(i)),))
    rolled = loop(i, steps(i), unroll=False)
    uncounted = loop(i, steps(i)[1:])
    counted_behind = loop(i, steps(i)[::-1])
    for stmt in (tested, rolled, uncounted, counted_behind):
        assert simplify_first_iterations((stmt,)) == (stmt,)


@pytest.mark.parametrize("together", [1, 2, 3])
def test_rows_in_shared_memory(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statistics of whole vectors in one pass: a question a vector; where tests decide, one a value.

    Rows together count their values apart, and do not divide for each of them either.
    """
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    force(monkeypatch, 32, 6, 1, together, one_pass=True)
    x = np.random.default_rng(1).normal(300.0, 1.0, (17, 1401)).astype(DataType.BFloat16.numpy)
    with FusionDefinition() as fd:
        t = fd.define_tensor(shape=[-1, -1], dtype=DataType.BFloat16, contiguity=True)
        wide = fd.ops.cast(t, F)
        variance, mean = fd.ops.var_mean(wide, [1], 0, True)
        scaled = fd.ops.mul(fd.ops.sub(wide, mean), fd.ops.rsqrt(fd.ops.add(variance, 1e-5)))
        fd.add_output(fd.ops.cast(scaled, DataType.BFloat16))
    inputs = [laid_out(x, 1401, 0)]
    (found,) = fd.execute(inputs, device="simulator")
    real = x.astype(np.float64)
    want = (real - real.mean(1, keepdims=True)) / np.sqrt(real.var(1, keepdims=True) + 1e-5)
    assert np.abs(np.asarray(found).astype(np.float64) - want).max() < 1.2e-2 * np.abs(want).max()
    (launch,) = fd.program(inputs).launches()
    assert launch.kernel.kernel_ir is not None
    inner = [s for s in walk(launch.kernel.kernel_ir.body) if isinstance(s, For) and s.unroll]
    kept = [(s, t) for s in inner for t in s.body if _keeps((t,))]
    innermost = [(s, t) for s, t in kept if not any(isinstance(u, For) for u in s.body)]
    first = [t for s, t in innermost if isinstance(t, If) and t.condition is equal(s.symbol, 0)]
    assert len(first) == 2 < len(innermost), (
        "of vectors that are whole by one test or by their own, not of tested values"
    )
    assert not any(_divides(s.body) for s, _ in kept)


def _divides(body: tuple[Stmt, ...]) -> bool:
    values = [t.value for t in walk(body) if isinstance(t, Store)]
    return any(isinstance(v, Call) and v.op == "div" for value in values for v in _calls(value))


def _calls(value: Value) -> Iterator[Value]:
    yield value
    if isinstance(value, Call):
        for argument in value.args:
            yield from _calls(argument)


def _keeps(body: tuple[Stmt, ...]) -> bool:
    return any(buffer.name.endswith("_shift") for s in walk(body) for buffer, _ in stmt_writes(s))
