"""What Python asks of sizes and conditions that they cannot tell: what to write, at the user's line."""

from __future__ import annotations

import copy
import math
import operator
import traceback
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fuser.errors import DefinitionTypeError
from fuser.host_ir.instructions.expressions import all_of, any_of, equal, extent, less
from fuser.ir.integers.integers import const

N: Any = extent("x", 0)
P: Any = less(N, 3)

NO_VALUE = (
    "the size extent('x', 0) has no value until a program runs: compute with + - * // and %; ForLoop, If and Switch do what "
    "depends on values, and array.shape has the sizes of an array"
)
INTEGERS = "sizes are integers, computed by + - * // and %"
JOINED = "all_of(p, q) and any_of(p, q) join conditions"

MISTAKES: list[tuple[Callable[[], object], str]] = [
    *(
        (ask, NO_VALUE)
        for ask in (
            lambda: range(N),
            lambda: int(N),
            lambda: float(N),
            lambda: round(N),
            lambda: [1, 2, 3][N],
            lambda: [0] * N,
            lambda: math.sqrt(N),
            lambda: np.zeros((N, 4)),
        )
    ),
    *(
        (
            ask,
            "the size extent('x', 0) has no truth value until a program runs: If takes conditions, less(a, b), "
            "less_equal(a, b), equal(a, b) and not_equal(a, b) of fuser, and all_of(p, q) and "
            "any_of(p, q) join them",
        )
        for ask in (lambda: N and 3, lambda: not N, lambda: 1 if N else 2)
    ),
    (
        lambda: less("n", 3),  # type: ignore[arg-type]
        "less takes ints and expressions of extent(slot, dim), got 'n': scalar('n') is the number in that slot",
    ),
    (lambda: less(N, 2.5), "less takes ints and expressions of extent(slot, dim), got 2.5"),  # type: ignore[arg-type]
    (lambda: equal(None, N), "equal takes ints and expressions of extent(slot, dim), got None"),  # type: ignore[arg-type]
    (
        lambda: all_of([P, P]),  # type: ignore[arg-type]
        "all_of takes conditions, as less(a, b) and equal(a, b) make them, got list [extent('x', 0) < 3, extent('x', 0) < 3]: "
        "write all_of(p, q), without a list",
    ),
    (
        lambda: any_of(True, P),  # type: ignore[arg-type]
        "any_of takes conditions, as less(a, b) and equal(a, b) make them, got bool True",
    ),
    (lambda: N / 2, f"{INTEGERS}; they are divided by //"),
    (lambda: 2 / N, f"{INTEGERS}; they are divided by //"),
    (lambda: N**2, f"{INTEGERS}; n * n is the square of one"),
    (lambda: 2**N, f"{INTEGERS}; n * n is the square of one"),
    (lambda: N & 1, f"{INTEGERS}; {JOINED}"),
    (lambda: N << 1, f"{INTEGERS}; n * 2 and n // 2 shift one"),
    (
        lambda: P and P,
        f"the condition `extent('x', 0) < 3` has no truth value: {JOINED}, `condition is TRUE` asks whether it is always so",
    ),
    (lambda: P & P, f"the condition `extent('x', 0) < 3` has no operators: {JOINED}"),
    (lambda: True | P, f"the condition `extent('x', 0) < 3` has no operators: {JOINED}"),
    (
        lambda: ~P,
        "the condition `extent('x', 0) < 3` is not inverted by ~: If(condition, (), body) runs a body where it does not hold",
    ),
]


@pytest.mark.parametrize(("mistake", "text"), MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes(mistake: Callable[[], object], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUSER_TRACEBACK", raising=False)
    with pytest.raises(TypeError) as caught:
        mistake()
    assert isinstance(caught.value, DefinitionTypeError)
    assert caught.value.message == text
    assert caught.value.location is not None
    assert {frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)} == {__file__}


@pytest.mark.parametrize("other", [2.5, 1j, "2", Fraction(5, 2), np.float32(2.5)], ids=str)
@pytest.mark.parametrize("compute", [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod])
def test_numbers_that_are_no_integers(compute: Callable[[Any, Any], object], other: Any) -> None:
    for pair in ((N, other), (other, N)):
        if isinstance(pair[0], str) and compute in (operator.mod, operator.mul):
            continue  # a text's own
        with pytest.raises(DefinitionTypeError) as caught:
            compute(*pair)
        assert caught.value.message.startswith(f"{INTEGERS} of other integers, got ")
        assert caught.value.location is not None
        assert caught.value.location.filename == __file__


def test_operands_with_operators_of_their_own_are_asked() -> None:
    class Other:
        def __radd__(self, left: object) -> str:
            return "mine"

    assert N + Other() == "mine"
    assert list(np.array([1, 2]) * N) == [N, 2 * N]
    assert N + np.int32(2) is N + 2


def test_what_is_known_of_sizes_and_conditions_is_as_ever() -> None:
    assert const(4).value == 4
    assert copy.deepcopy(N) is N
    assert {N: 1}[extent("x", 0)] == 1
    assert all_of(P, P) is P
