"""Values that one branch needs are computed there, others where they were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.ir.integers.integers import Int, const, less, symbol
from fuser.ir.kernel.kernel import Allocate, Buffer, Call, For, If, Load, Role, Stmt, Store, Value
from fuser.ir.ops.enums import GLOBAL_MEMORY, MemoryType
from fuser.lowering.predicates.sink_into_branches import sink_into_branches
from tests.frontend.building import evaluate

Float = DataType.Float
INDEX, J = symbol("i", 0), symbol("j", 0, 7)
X, Y, Z, A, B, C = (Buffer(n, Float, MemoryType.local, const(8)) for n in "xyzabc")
G = Buffer("g", Float, GLOBAL_MEMORY, const(64))


def of(op: str, *buffers: Buffer, at: Int = INDEX) -> Value:
    return Call(op, tuple(Load(b, at) for b in buffers), Float, Float)


def store(buffer: Buffer, value: Value | Buffer, at: Int = INDEX) -> Store:
    return Store(buffer, at, Load(value, at) if isinstance(value, Buffer) else value)


def choice(then: Sequence[Stmt], orelse: Sequence[Stmt], at: Int = INDEX) -> If:
    return If(less(at, const(4)), tuple(then), tuple(orelse))


def test_each_branch_has_what_it_needs() -> None:
    first, second = store(A, of("log", X)), store(B, of("erf", Y))
    (found,) = sink_into_branches((first, second, choice([store(Z, A)], [store(Z, B)])))
    assert isinstance(found, If)
    assert found.then[0] is first
    assert found.orelse[0] is second


def test_chains_sink_as_a_whole_into_nested_branches() -> None:
    steps = store(A, of("neg", X)), store(B, of("log", A)), store(C, of("neg", B))
    nested = choice([store(Z, C)], [store(Z, Y)], INDEX + 2)
    (found,) = sink_into_branches((*steps, choice([store(Z, X)], [nested])))
    assert isinstance(found, If)
    (inner,) = found.orelse
    assert isinstance(inner, If)
    assert inner.then[:3] == steps


@pytest.mark.parametrize(
    "stays",
    [
        (store(A, of("add", X, Y)), choice([store(Z, A)], [store(Z, X)])),  # as cheap as a branch
        (store(A, of("log", X)), choice([store(Z, A)], [store(Y, A)])),  # both need it
        (store(A, of("log", X)), choice([store(Z, A)], [store(Z, X)]), store(Y, A)),  # needed behind the test
        (store(A, of("log", G)), choice([store(Z, A)], [store(Z, X)])),  # a load
        (store(A, of("log", X)), store(X, Y), choice([store(Z, A)], [store(Z, Y)])),  # of what changes
        (store(G, of("log", X)), choice([store(Z, G)], [store(Z, Y)])),  # others may see it
        (store(A, of("log", X)), If(less(INDEX, const(4)), (store(Z, A),), (), Role.predicate)),  # one branch
        (store(A, of("log", X)), store(A, Y), choice([store(Z, A)], [store(Z, X)])),  # stored twice
    ],
)
def test_what_stays(stays: tuple[Stmt, ...]) -> None:
    assert sink_into_branches(stays) == stays


def test_both_versions_of_an_unswitched_loop_have_buffers_of_their_own() -> None:
    def version() -> tuple[Stmt, ...]:
        return Allocate(A), store(A, of("log", X)), choice([store(Z, A)], [store(Z, Y)])

    (found,) = sink_into_branches((If(less(J, const(4)), version(), version(), Role.unswitch),))
    assert isinstance(found, If)
    for body in (found.then, found.orelse):
        _, chosen = body
        assert isinstance(chosen, If)
        assert len(chosen.then) == 2
    # One of them reads it behind the test.
    both = If(less(J, const(4)), version(), (*version(), store(Y, A)), Role.unswitch)
    (found,) = sink_into_branches((both,))
    assert isinstance(found, If)
    assert [len(found.then), len(found.orelse)] == [2, 4]


def test_tests_of_counters_are_known_when_the_text_is_compiled() -> None:
    inside = store(A, of("log", X, at=J), J), choice([store(Z, A, J)], [store(Z, Y, J)], J)
    unrolled = For(J, const(0), const(8), const(1), inside, unroll=True)
    assert sink_into_branches((unrolled,)) == (unrolled,)
    (found,) = sink_into_branches((For(J, const(0), const(8), const(1), inside),))
    assert isinstance(found, For)
    assert len(found.body) == 1


@pytest.mark.parametrize("shape", [(5, 33), (3, 200), (17, 64)])
@pytest.mark.parametrize("dim", [0, 1])
def test_parts_of_a_concatenation_are_right(shape: tuple[int, int], dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part computed otherwise, one of them from another's operand."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    with FusionDefinition() as fd:
        x, y, z = (fd.define_tensor([-1, -1], True) for _ in range(3))
        half = fd.ops.sigmoid(x)
        parts = [fd.ops.tanh(half) * 2.0, fd.ops.exp(y), fd.ops.erf(z) + half]
        fd.add_output(fd.ops.cat(parts, dim) * 2.0)
    rng = np.random.default_rng(1)
    arrays: list[Any] = [rng.normal(size=shape).astype(np.float32) for _ in range(3)]
    (found,) = fd.execute(arrays, device="simulator")
    np.testing.assert_allclose(np.asarray(found), evaluate(fd, *arrays)[0], rtol=2e-6, atol=1e-6)
