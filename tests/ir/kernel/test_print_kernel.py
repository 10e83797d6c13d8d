"""The printed form of kernels: whole texts, and the neighbourhood of a statement."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuser.ir.integers.integers import const, symbol
from fuser.ir.kernel.kernel import Kernel, Literal, Reduce, Stmt, walk
from fuser.ir.kernel.print_kernel import body_lines, print_around, print_body, print_kernel, print_stmt
from fuser.ir.ops.enums import ParallelType
from tests.codegen.golden_corpus import (
    FLOAT,
    GOLDEN_KERNELS,
    corpus_kernels,
    grid_wait,
    loop,
    registers,
    store,
    tensor,
    warp_reduce,
)
from tests.conftest import Golden


@pytest.mark.parametrize("make", [*GOLDEN_KERNELS, grid_wait], ids=lambda make: make.__name__)
def test_text(make: Callable[[], Kernel], golden: Golden) -> None:
    golden.check(print_kernel(make()))


def test_one_line_per_statement_in_order() -> None:
    for k in corpus_kernels():
        lines = list(body_lines(k.body))
        assert [line.stmt for line in lines if line.stmt is not None] == list(walk(k.body))
        assert all("\n" not in line.text for line in lines)


def test_a_collective() -> None:
    mean, m2, count = registers("mean", FLOAT), registers("m2", FLOAT), registers("count", FLOAT)
    zero = Literal(0.0, FLOAT)
    collective = Reduce(
        (mean, m2, count),
        "welford",
        (zero, zero, zero),
        (ParallelType.block_x,),
        (ParallelType.grid_x,),
        True,
        symbol("i", 0, 3),
        const(4),
        "r1",
        symbol("last", 0, 1),
    )
    assert print_stmt(collective) == (
        "r1: reduce welford (mean, m2, count) over (block_x, grid_x) to all blocks, "
        "identity (0.0:Float, 0.0:Float, 0.0:Float), slot i of 4, last block in last"
    )


def test_the_neighbourhood_of_a_statement() -> None:
    out, j = tensor("out", FLOAT), symbol("j", 0, 9)
    body: tuple[Stmt, ...] = (loop(j, 10, *(store(out, Literal(float(n), FLOAT), j) for n in range(9))),)
    (nest,) = body
    (_, *stores) = walk(body)
    assert print_around(body, {id(stores[4]): "this one"}, context=1) == (
        "  ...\n    out[j] = 3.0:Float\n>   out[j] = 4.0:Float\n    ^ this one\n    out[j] = 5.0:Float\n  ..."
    )
    assert print_around(body, {id(nest): "first", id(stores[8]): "last"}, context=0) == (
        "> for j in 0 .. 10 step 1\n  ^ first\n  ...\n>   out[j] = 8.0:Float\n    ^ last"
    )


def test_a_body_prints_like_the_kernel() -> None:
    k = warp_reduce()
    assert print_kernel(k).endswith("\n".join(f"  {line}" for line in print_body(k.body).splitlines()) + "\n")
