"""Quotients of Doubles by an extent that a thread divides several by."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest

from fuser.codegen.common_counts import common_counts
from fuser.codegen.generate import generate_cuda
from fuser.ir.dtypes import DataType
from fuser.ir.integers import const, symbol
from fuser.ir.kernel import Allocate, Cast, Kernel, ScalarArgument
from fuser.ir.launch_plan import ScalarStep
from tests.codegen.golden_corpus import FLOAT, at, call, kernel, loop, registers, store, tensor

DOUBLE = DataType.Double
STEPS = (
    ScalarStep("n", DataType.Int, "extent", (0, 0)),
    ScalarStep("c", DOUBLE, "cast", ("n",)),
    ScalarStep("s", DOUBLE, "add", ("c", 1.0)),
)


def _dividing(divisor: str, trips: int, dtype: DataType = DOUBLE) -> Kernel:
    """Each of some values of a thread is divided by a scalar argument."""
    sums, out, i = registers("sums", dtype, 4), tensor("out", dtype), symbol("i", 0, max(trips - 1, 0))
    number = ScalarArgument(divisor, DOUBLE)
    scalar = number if dtype is DOUBLE else Cast(number, dtype)
    divide = store(out, call("truediv", at(sums, i), scalar, compute=dtype), i)
    made = kernel(
        "k", (), (out,), Allocate(sums), loop(i, const(trips), divide, unroll=True), scalars=((divisor, DOUBLE),)
    )
    return replace(made, plan=replace(made.plan, scalars=STEPS))


def test_several_doubles_by_an_extent_share_its_reciprocal() -> None:
    text = generate_cuda(_dividing("c", 4)).text
    assert "out[i] = fuser_divide_by_extent(sums[i], c);" in text
    assert "double r = 1.0 / b" in text


@pytest.mark.parametrize(
    ("divisor", "trips", "dtype"), [("c", 1, DOUBLE), ("s", 4, DOUBLE), ("c", 4, FLOAT)], ids=["one", "other", "float"]
)
def test_others_are_divided_as_they_are(divisor: str, trips: int, dtype: DataType) -> None:
    made = _dividing(divisor, trips, dtype)
    assert not common_counts(made)
    assert "fuser_divide_by_extent" not in generate_cuda(made).text


def test_steps_of_the_function_round_correctly() -> None:
    draw = Random(0)
    for _ in range(20000):
        a = draw.choice((-1, 1)) * draw.uniform(1, 2) * 2.0 ** draw.randint(-900, 900)
        b = float(draw.choice((draw.randint(1, 2**31), 2 ** draw.randint(1, 31) - 1, draw.randint(1, 1000))))
        if draw.random() < 0.3:
            a = (a / b) * b  # close to a quotient
        r = 1.0 / b
        q = a * r
        rest = float(Fraction(q) * Fraction(b) - Fraction(a))
        assert float(Fraction(q) - Fraction(rest) * Fraction(r)) == a / b
