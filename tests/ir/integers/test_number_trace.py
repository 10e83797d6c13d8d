"""Functions of traces return what the calculation would, and nothing where it would go another way."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuser.ir.integers.number_trace import MOST_LINES, NumberTrace, UntraceableError, as_told, has_traced, settled
from fuser.records import record

Calculation = Callable[..., Any]


def traced(calculation: Calculation, *numbers: int) -> Callable[..., Any]:
    """The function of a calculation that was traced for some numbers, of numbers one by one."""
    trace = NumberTrace()
    find = trace.function(calculation(*map(trace.leaf, numbers)))
    return lambda *others: find(others)


def test_the_same_way_gives_what_the_calculation_gives() -> None:
    def blocks(n: int, width: int) -> Any:
        most = max(-(-n // width), 4) if n > 512 else 1
        return most, (most * width, "threads"), n / width < 3.5

    find = traced(blocks, 2000, 128)
    assert find(2000, 128) == blocks(2000, 128) == (16, (2048, "threads"), False)
    assert find(4096, 64) == blocks(4096, 64)
    assert find(100, 128) is None
    assert find(600, 512) is None  # of the two arguments of max the other one


_BINARY = ("+", "-", "*", "//", "%", "/", "<<", ">>", "&", "|", "^", "**", "min", "max", "<", "<=", "==", "!=")
_UNARY = ("neg", "abs", "ceil", "floor", "round", "bit_length", "prod", "sum", "range", "sorted", "bool")


@st.composite
def _programs(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """Steps of an op and two values, by number: two leaves and what earlier steps have made."""
    count = draw(st.integers(1, 12))
    ops = st.sampled_from((*_BINARY, *_UNARY))
    return [(draw(ops), draw(st.integers(-3, k + 1)), draw(st.integers(-3, k + 1))) for k in range(count)]


def _calculated(steps: list[tuple[str, int, int]], x: Any, y: Any) -> Any:
    values: list[Any] = [x, y]
    for op, i, j in steps:
        # Numbers below 0 are constants.
        a, b = (values[k] if k >= 0 else -k * 3 - 5 for k in (i, j))
        values.append(_step(op, a, b))
    return tuple(values)


def _step(op: str, a: Any, b: Any) -> Any:
    match op:
        case "neg":
            return -a
        case "abs":
            return abs(a)
        case "ceil":
            return math.ceil(a)
        case "floor":
            return math.floor(a)
        case "round":
            return round(a)
        case "bit_length":
            return math.ceil(a).bit_length()
        case "prod":
            return math.prod([a, b, 2])
        case "sum":
            return sum((a, b))
        case "range":
            return len(range(math.floor(a) % 50))
        case "sorted":
            return sorted([b, a, 3])[1]
        case "bool":
            return 1 if a else b
        case "min" | "max":
            return {"min": min, "max": max}[op](a, b)
        case "<" | "<=" | "==" | "!=":
            return 7 if {"<": a < b, "<=": a <= b, "==": a == b, "!=": a != b}[op] else 8
        case "**":
            return abs(a) % 9 ** (abs(b) % 3)
        case "<<" | ">>" | "&" | "|" | "^":
            a, b = math.floor(a) % 1000, math.floor(b) % 20
        case _:
            pass
    given: Any = {
        "+": lambda: a + b,
        "-": lambda: a - b,
        "*": lambda: a * b,
        "//": lambda: a // b,
        "%": lambda: a % b,
        "/": lambda: a / b,
        "<<": lambda: a << b,
        ">>": lambda: a >> b,
        "&": lambda: a & b,
        "|": lambda: a | b,
        "^": lambda: a ^ b,
    }
    return given[op]()


def _outcome(steps: list[tuple[str, int, int]], x: int, y: int) -> Any:
    try:
        return tuple((type(v), v) for v in _calculated(steps, x, y))
    except (ArithmeticError, ValueError) as error:
        return type(error)


_numbers = st.integers(0, 6) | st.integers(0, 3000) | st.sampled_from((2**31, 2**31 - 1, 2**40))


@given(_programs(), st.tuples(_numbers, _numbers), st.lists(st.tuples(_numbers, _numbers), max_size=8))
def test_whatever_is_calculated(
    steps: list[tuple[str, int, int]], first: tuple[int, int], others: list[tuple[int, int]]
) -> None:
    trace = NumberTrace()
    try:
        find = trace.function(_calculated(steps, *map(trace.leaf, first)))
    except (ArithmeticError, ValueError) as error:
        failed: type = type(error)
        assert _outcome(steps, *first) is failed
        return
    assert tuple((type(v), v) for v in find(first)) == _outcome(steps, *first)
    for numbers in others:
        try:
            found = find(numbers)
        except (ArithmeticError, ValueError) as error:
            failed = type(error)
            assert _outcome(steps, *numbers) is failed
            continue
        if found is not None:
            assert tuple((type(v), v) for v in found) == _outcome(steps, *numbers)


@pytest.mark.parametrize(
    "ask",
    [
        lambda n: len(range(n)),
        lambda n: "abcdefghijk"[n],
        lambda n: [0] * n,
        lambda n: math.log2(n),
        lambda n: math.gcd(n, 12),
        lambda n: int(n),
        lambda n: float(n),
        lambda n: complex(n),
    ],
)
def test_what_is_asked_for_as_a_plain_number_is_asked_to_be_the_same(ask: Calculation) -> None:
    find = traced(lambda n: (ask(n), n)[1], 8)
    assert find(8) == 8
    assert find(9) is None


def test_texts_ask_nothing() -> None:
    find = traced(lambda n: (f"{n} {n:5d} {n!r} {n!s}", n + 1), 8)
    assert find(9) == ("8     8 8 8", 10)


def test_a_key_of_a_dictionary_cannot_be_traced() -> None:
    with pytest.raises(UntraceableError, match="a number of a trace is a key"):
        traced(lambda n: {n: 1}, 8)


def test_an_error_for_an_answer_does_not_hide_what_cannot_be_traced() -> None:
    def careless(n: int) -> int:
        try:
            return hash(n)
        except Exception:
            return 0

    with pytest.raises(UntraceableError):
        traced(careless, 8)


def _or_zero(calculate: Calculation) -> Calculation:
    """A calculation that takes an error for the answer 0."""

    def careless(n: int) -> Any:
        try:
            return calculate(n), n
        except (ArithmeticError, ValueError):
            return 0, n

    return careless


@pytest.mark.parametrize(
    ("calculate", "fails", "works"),
    [
        (lambda n: 100 // n, 0, 5),
        (lambda n: 100.0 / n, 0, 5),
        (lambda n: 100 % n, 0, 7),
        (lambda n: 1 << n, -1, 3),
        (lambda n: n**-1, 0, 2),
        (lambda n: math.ceil(n * 1e308), 1000, 0),
    ],
)
def test_an_error_for_an_answer_is_that_of_its_numbers(calculate: Calculation, fails: int, works: int) -> None:
    careless = _or_zero(calculate)
    find = traced(careless, fails)
    assert find(fails) == careless(fails) == (0, fails)
    assert find(works) is None


def test_powers_stay_of_one_kind() -> None:
    find = traced(lambda n: 3 if isinstance(2**n, int) else 5, 2)
    assert (find(7), find(-1)) == (3, None)
    find = traced(lambda n: ((n * 1.0) ** 0.5, n), 4)
    assert (find(9), find(-1)) == ((3.0, 9), None)
    assert traced(lambda n: (-4.0) ** (n * 1.0), 2)(3) is None


class _Four(enum.IntEnum):
    four = 4


@pytest.mark.parametrize("four", [_Four.four, 4 + 0j])
def test_what_answers_for_itself_cannot_be_traced(four: Any) -> None:
    """Such numbers would say that they are not equal."""
    for ask in (lambda n: n == four, lambda n: four == n, lambda n: n * four):
        with pytest.raises(UntraceableError, match="a number meets"):
            traced(ask, 4)


def test_numbers_of_two_traces_do_not_meet() -> None:
    other = NumberTrace().leaf(3)
    for meet in (lambda n: n + other, lambda n: n < other, lambda n: other):
        with pytest.raises(UntraceableError, match="numbers of two traces meet"):
            traced(meet, 8)


def test_what_is_no_number_is_not_taken_for_one() -> None:
    with pytest.raises(UntraceableError, match=r"\*\* 0.5 is \("):  # a complex number
        traced(lambda n: (-n) ** 0.5, 8)
    with pytest.raises(TypeError):
        traced(lambda n: n + "1", 8)
    assert traced(lambda n: (n == "8", n is None, n == None), 8)(3) == (False, False, False)  # noqa: E711


def test_numbers_pass_for_ints_and_floats() -> None:
    trace = NumberTrace()
    n = trace.leaf(3)
    assert isinstance(n, int)
    assert isinstance(n / 2, float)
    assert not isinstance(n / 2, int)
    assert (n / 2).real == 1.5


def test_constants_are_what_they_were() -> None:
    find = traced(lambda n: (-3 * n, n - -3, n < math.inf, -math.inf < n, n * 0.1, n > -0.5, True + n), 8)
    assert find(9) == (-27, 12, True, True, 9 * 0.1, True, 10)


def test_what_was_found_equal_is_one_number_from_then_on() -> None:
    def calculation(n: int, m: int, one: int) -> Any:
        if n == m and one == 1:
            return n * one, m + 0, (n + 2) - (m + 2), one << 3
        return 0, 0, 0, 0

    trace = NumberTrace()
    result = calculation(*map(trace.leaf, (8, 8, 1)))
    assert result[3] == 8
    assert type(result[3]) is int
    assert trace.function(result).__code__.co_names == ()
    find = trace.function(result)
    assert find((5, 5, 1)) == (5, 5, 0, 8)
    assert find((5, 6, 1)) is None
    assert find((5, 5, 2)) is None


def test_equal_floats_need_not_be_one() -> None:
    find = traced(lambda n: (n * 0.0 == n * -0.0, n * -0.0), 8)
    assert [str(v) for v in find(3)] == ["True", "-0.0"]


def test_a_division_that_nobody_uses_still_fails() -> None:
    def wasteful(n: int, m: int) -> int:
        _ = n // m
        return n

    find = traced(wasteful, 8, 2)
    assert find(9, 4) == 9
    with pytest.raises(ZeroDivisionError):
        find(9, 0)


@record
class _Shape:
    sizes: tuple[int, ...]
    name: str


def test_records_are_made_anew_and_other_things_returned() -> None:
    thing = object()
    find = traced(lambda n: (_Shape((n, 2 * n), "x"), _Shape((1,), "y"), thing), 8)
    found = find(5)
    assert found == (_Shape((5, 10), "x"), _Shape((1,), "y"), thing)
    assert find(6)[1] is found[1]


def test_settled_values_were_asked_for() -> None:
    def calculation(n: int) -> Any:
        shape = _Shape((n, 7), "x")
        assert has_traced(shape)
        plain = settled(shape)
        assert not has_traced(plain)
        assert {plain: 1}[_Shape((8, 7), "x")] == 1
        return plain

    find = traced(calculation, 8)
    assert find(8) == _Shape((8, 7), "x")
    assert find(9) is None
    assert settled(thing := (1, "a", None)) is thing


def test_long_calculations_are_given_up() -> None:
    def endless(n: int) -> int:
        for _ in range(MOST_LINES + 1):
            n += 1
        return n

    with pytest.raises(UntraceableError, match=f"more than {MOST_LINES} lines"):
        traced(endless, 8)


def test_a_number_for_a_text_asks_nothing() -> None:
    told: list[int] = []

    def doubled(n: int) -> int:
        told.append(as_told(n))
        return 2 * n

    find = traced(doubled, 5)
    assert type(told[0]) is int
    assert told == [5]
    assert find(7) == 14
    assert as_told(3) == 3
