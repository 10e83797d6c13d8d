"""Integer expressions: every rule by name, and properties of random expressions against direct evaluation."""

from __future__ import annotations

import copy
import itertools
import os
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fuser.ir.integers import integer_conditions, integers
from fuser.ir.integers.integers import (
    FALSE,
    ONE,
    RULES,
    TRUE,
    ZERO,
    Cond,
    Int,
    Rule,
    Substitution,
    Symbol,
    all_of,
    any_of,
    as_int,
    ceil_div,
    clear_memo,
    compile_function,
    compile_vectorized,
    const,
    equal,
    exclusive_or,
    from_parts,
    less,
    less_equal,
    maximum,
    minimum,
    negate,
    not_equal,
    parts_of,
    prove_divisible,
    prove_less,
    prove_less_equal,
    select,
    split_multiples,
    symbol,
    to_c,
    to_sympy,
)

# ------------------------------------------------------------------------------------------------------------ rules

fresh_counter = itertools.count(10**9)


def example_scope() -> dict[str, Any]:
    """The symbols that the examples of the rule table use, new nodes at every call so that no memo answers."""
    high = next(fresh_counter)
    scope: dict[str, Any] = {name: getattr(integers, name) for name in integers.__all__}
    for name in "xyz":
        scope[name] = symbol(name, 0, high)
    scope["i"] = symbol("i", hi=127, below=scope["z"] + high)
    scope["j"] = symbol("j", hi=127, below=scope["z"] + high)
    scope["v"] = symbol("v", hi=7, below=scope["z"] + high)
    scope["N"] = symbol("N", 1, high)
    scope["M"] = symbol("M", 1, high)
    scope["N8"] = symbol("N8", 8, high, multiple=8)
    scope["n"] = symbol("n", below=scope["N"])
    scope["m"] = symbol("m", below=scope["M"])
    scope["o"] = symbol("o", below=scope["N8"] // 8)
    return scope


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rule_example(rule: integers.Rule[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    fired: set[str] = set()

    def watch(row: integers.Rule[Any]) -> integers.Rule[Any]:
        def apply(*arguments: Any) -> Any:
            result = row.apply(*arguments)
            if result is not None:
                fired.add(row.name)
            return result

        return row._replace(apply=apply)

    for module in [sys.modules[name] for name in sys.modules if name.startswith("fuser.ir.integer")]:
        for name in [name for name in vars(module) if name.endswith("_RULES")]:
            monkeypatch.setattr(module, name, tuple(watch(row) for row in getattr(module, name)))
    clear_memo()
    scope = example_scope()
    assert str(eval(rule.example, scope)) == rule.result
    assert rule.name in fired
    clear_memo()


def test_rules_have_one_line_of_doc_and_unique_names() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all(rule.doc and "\n" not in rule.doc for rule in RULES)


# ------------------------------------------------------------------------------------------------------ normal form


def test_division_and_remainder_of_a_tile_cancel() -> None:
    i, j = symbol("i"), symbol("j", hi=127)
    flat = 128 * i + j
    assert flat // 128 is i
    assert flat % 128 is j
    assert flat // 128 * 128 + flat % 128 is flat


SIMPLIFIED = [
    ("(x//4)//8", "x//32"),
    ("x - (x//7)*7", "x%7"),
    ("x - (x//N)*N", "x%N"),
    ("(x//N)*N + x%N", "x"),
    ("(x + y)//N*N + (x + y)%N", "x + y"),
    ("(x//4)*4 + x%4 + y", "x + y"),
    ("y*((x//7)*7) + y*(x%7)", "x*y"),
    ("x//4%6", "(x//4)%6"),
    ("(x%24)%4", "x%4"),
    ("(x%24)//4*4 + x%4", "x%24"),
    ("x//24*24 + (x//4)%6*4 + x%4", "x"),
    ("(n + N*m)//N", "m"),
    ("(n + N*m)%N", "n"),
    ("((x*M + m)*N + n)//(M*N)", "x"),
    ("((x*M + m)*N + n)//N%M", "m"),
    ("((x*M + m)*N + n)//N//M", "x"),
    ("((x*M + m)*N + n)%(M*N)", "N*m + n"),
    ("(N8//8)*8", "N8"),
    ("N8*3//4", "6*(N8//8)"),
    ("N8%4", "0"),
    ("(o*8 + v)//8", "o"),
    ("(o*8 + v)//N8", "0"),
    ("(x*N8 + o*8 + v)//N8", "x"),
    ("(x*N8 + o*8 + v)%N8", "8*o + v"),
    ("(N8*x + v)//8", "(N8//8)*x"),
    ("(8*x + 3)//4", "2*x"),
    ("(8*x + 3)%4", "3"),
    ("(130*i + j)//128", "i + (2*i + j)//128"),
    ("(j + 128*x - 1)//128", "x + (j + 127)//128 - 1"),
    ("ceil_div(128*x, 128)", "x"),
    ("ceil_div(x, 1)", "x"),
    ("ceil_div(x, 128)", "(x + 127)//128"),
    ("ceil_div(ceil_div(x, 4), 8)", "(x + 31)//32"),
    ("minimum(j, 127)", "j"),
    ("maximum(j, 200)", "200"),
    ("minimum(minimum(x, 7), minimum(y, 5))", "min(5, x, y)"),
    ("minimum(n, N)", "n"),
    ("minimum(n, N - 1)", "n"),
    ("minimum(N, N*M)", "N"),
    ("less(n*M + m, N*M)", "True"),
    ("less(N, N)", "False"),
    ("equal(n, N)", "False"),
    ("not_equal(2*x, 2*y + 1)", "True"),
    ("less(x, 5)", "x < 5"),
    ("less(5, x)", "5 < x"),
    ("less_equal(x + 3, y)", "x + 2 < y"),
    ("less_equal(x, y + 3)", "x <= y + 3"),
    ("equal(x, y + 3)", "x == y + 3"),
    ("equal(x + 3, y)", "x + 3 == y"),
    ("not_equal(x, 0)", "x != 0"),
    ("equal(-2*x, -6)", "x == 3"),
    ("negate(less(x, y))", "y <= x"),
    ("negate(all_of(less(x, y), equal(x, 3)))", "y <= x or x != 3"),
    ("all_of()", "True"),
    ("any_of()", "False"),
    ("N - 1 - n", "N - n - 1"),
    ("-x", "-x"),
    ("3 - x", "3 - x"),
    ("-x - 3", "-x - 3"),
    ("(x + 1)*(x - 1)", "x*x - 1"),
    ("-(x//3)*2", "-2*(x//3)"),
    ("select(less(x, y), x, y)", "select(x < y, x, y)"),
    # Strides of a split axis stay apart; only what cancels is recombined.
    ("x//4*N + x%4*M", "M*(x%4) + N*(x//4)"),
    ("x//4 + 128*(x%4)", "128*(x%4) + x//4"),
    ("x%4 + x//4 - x", "-3*(x//4)"),
    ("minimum(minimum(2*x, y), 2*z)", "min(2*x, 2*z, y)"),
    ("minimum(minimum(2*x, 2*z), y)", "min(2*x, 2*z, y)"),
    ("(2*N - 1)//N", "1"),
    ("(2*N - 1)%N", "N - 1"),
    ("(N*x + N - 1 - n)//N", "x"),
    ("0 - x//3", "-(x//3)"),
    ("-(x%3) - 1", "-(x%3) - 1"),
    # A vector of 4 in rows of a length that 4 divides, and a row-major index taken apart and put together.
    ("(4*x + v%4)//N8", "x//(2*(N8//8))"),
    ("(4*x + v%4)%N8", "v%4 + 4*(x%(2*(N8//8)))"),
    ("((x//(N*M))*M + x//N%M)*N + x%N", "x"),
    ("(x//M*M + x%M)//M", "x//M"),
    ("(y%(N*M))//M*M + y%M", "y%(M*N)"),
    ("ceil_div(ceil_div(x, N)*N, N)", "(N + x - 1)//N"),
]


@pytest.mark.parametrize(("text", "expected"), SIMPLIFIED)
def test_normal_form(text: str, expected: str) -> None:
    assert str(eval(text, example_scope())) == expected


def test_equal_values_are_one_object() -> None:
    x, y = symbol("x"), symbol("y")
    assert symbol("x") is x
    assert symbol("x", 1) is not x
    assert symbol("b", below=128) is symbol("b", hi=127)
    assert x + y is y + x
    assert (x + 1) * (x - 1) is x * x - 1
    assert x * 0 is ZERO
    assert x - x is ZERO
    assert const(1) is ONE
    assert hash(x + y) == hash(y + x)
    assert 8 * symbol("N", multiple=4).unit is 2 * symbol("N", multiple=4)


def test_ranges_and_multiples() -> None:
    x, j = symbol("x"), symbol("j", hi=127)
    s = symbol("s", None, 5)
    n8 = symbol("N", 3, 30, multiple=8)
    assert ((128 * x + j).lo, (128 * x + j).hi) == (0, None)
    assert ((j - 128).lo, (j - 128).hi) == (-128, -1)
    assert ((-j).lo, (-j).hi) == (-127, 0)
    assert ((j * j).lo, (j * j).hi) == (0, 127 * 127)
    assert ((s * j).lo, (s * j).hi) == (None, 635)
    assert (((j + x) % 50).lo, ((j + x) % 50).hi) == (0, 49)
    assert ((j // 10).lo, (j // 10).hi) == (0, 12)
    assert (minimum(x, j).hi, maximum(x, j).hi) == (127, None)
    assert (n8.lo, n8.hi, n8.multiple) == (8, 24, 8)
    assert (n8 * x).multiple == 8
    assert (n8 * 3 + 20).multiple == 4
    assert ZERO.multiple == 0
    assert const(-6).multiple == 6
    assert (x + 1).symbols == frozenset((x,))
    assert (n8 // 8).symbols == frozenset((n8,))
    assert symbol("i", below=n8).hi == 23


def test_constants() -> None:
    assert (const(7).is_const, const(7).value, str(const(-7))) == (True, 7, "-7")
    assert const(-7) // 2 is const(-4)
    assert const(-7) % 2 is ONE
    assert divmod(const(7), const(2)) == (const(3), ONE)
    assert 7 // const(2) is const(3)
    assert 7 % const(4) is const(3)
    assert 7 - const(4) is const(3)
    seven: Any = np.int64(4)
    assert const(3) + seven is const(7)
    with pytest.raises(ValueError) as error:
        _ = symbol("x").value
    assert str(error.value) == "x is not a constant"


def test_errors() -> None:
    x = symbol("x")
    with pytest.raises(ZeroDivisionError) as zero:
        _ = x // 0
    assert str(zero.value) == "division of x by 0"
    with pytest.raises(ValueError) as negative:
        _ = x % -2
    assert str(negative.value) == "division of x by -2, which is negative"
    with pytest.raises(ValueError) as name:
        symbol("", multiple=1)
    assert str(name.value) == "symbol '': the name must not be empty and `multiple` must be positive, got 1"
    with pytest.raises(TypeError) as kind:
        as_int(1.5)  # type: ignore[arg-type]
    assert str(kind.value) == "expected an integer or an integer expression, got float"
    with pytest.raises(KeyError) as missing:
        (x + 1).evaluate({})
    assert missing.value.args == ("no value for the symbol 'x'",)
    with pytest.raises(ValueError) as parameter:
        compile_function([x + symbol("y")], [x])
    assert str(parameter.value) == "no parameter for the symbols y"
    for word, parts in [("@", (1, 2)), ("symbol", ("x", 0)), ("%", (x, TRUE)), ("and", ()), ("min", (x, TRUE))]:
        with pytest.raises(ValueError) as form:
            from_parts(word, parts)
        assert str(form.value) == f"{word!r} of {list(parts)!r} is no integer expression"
    for parts, text in [
        ((0, 3, 1, symbol("N", multiple=8)), "N cannot be a factor of a term"),
        ((0, 3, 1, TRUE), "True cannot be a factor of a term"),
        ((0, 3, 2, x), "[3, 2, x] is no term of a sum"),
    ]:
        with pytest.raises(ValueError) as form:
            from_parts("+", parts)
        assert str(form.value) == text
    with pytest.raises(AttributeError):
        x.lo = 3
    with pytest.raises(AttributeError):
        _ = x.missing  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        TRUE.value = False  # type: ignore[attr-defined]


def test_copies_and_pickles_are_the_same_object() -> None:
    x, n = symbol("x"), symbol("N", 8, multiple=8)
    i = symbol("i", below=n // 8)
    condition = any_of(all_of(less(x, n), equal(i, 3)), not_equal(x, i))
    chosen = select(condition, x // 3 + x % 5, minimum(x, n) * maximum(i, x))
    for node in (x, n, n // 8, i, chosen + 7, condition, TRUE, FALSE):
        assert copy.copy(node) is node
        assert copy.deepcopy(node) is node
        assert pickle.loads(pickle.dumps(node)) is node


def test_substitution() -> None:
    x, n = symbol("x"), symbol("N", 8, multiple=8)
    i = symbol("i", below=n // 8)
    assert (8 * i + 3).substitute({i: x // 8}) is 8 * (x // 8) + 3
    assert (n // 8 + x).substitute({n: 64}) is x + 8
    assert (x // n + x % n).substitute({n: 1}) is x
    assert select(less(x, 4), 12 // n, x).substitute({x: 9, n: 0}) is const(9)
    assert less(x, n).substitute({x: 3}) is TRUE
    assert all_of(less(x, n), less(3, x)).substitute({x: 5, n: 4}) is FALSE
    assert (x + 1).substitute({}) is x + 1
    many, y = Substitution({x: 5, n: 8}), symbol("y")
    for _ in range(2):
        assert many.integer(x // n + i) is i
        assert many.condition(less(x, n)) is TRUE
        assert many.condition(less(y, n)) is less(y, 8)


def test_each_operation_on_the_same_nodes_is_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def nothing(*arguments: object) -> None:
        asked.append(arguments)

    watching = Rule("watching", "answers nothing", "x", "x", nothing)
    monkeypatch.setattr(integer_conditions, "COMPARE_RULES", (watching, *integer_conditions.COMPARE_RULES))
    x, y = symbol("x"), symbol("y")
    clear_memo()
    opposites = [negate(less(x * y + 3 * x, y)) for _ in range(5)]
    assert len(set(opposites)) == 1
    assert len(asked) == len(set(asked)) == 2, "the comparison and its opposite"
    clear_memo()
    assert negate(less(x * y + 3 * x, y)) is opposites[0]
    assert len(asked) == 4


# ------------------------------------------------------------------------------------------------------------ proofs


def test_proofs_with_symbolic_bounds() -> None:
    big_i, big_j, big_k = (symbol(name, 1) for name in "IJK")
    i, j, k = symbol("i", below=big_i), symbol("j", below=big_j), symbol("k", below=big_k)
    assert prove_less((i * big_j + j) * big_k + k, big_i * big_j * big_k)
    assert not prove_less((i * big_j + j) * big_k + k + 1, big_i * big_j * big_k)
    assert prove_less_equal((i * big_j + j) * big_k + k + 1, big_i * big_j * big_k)
    n = symbol("N", 8, multiple=8)
    o, v = symbol("o", below=n // 8), symbol("v", below=8)
    assert prove_less(o * 8 + v, n)
    assert prove_divisible(o * 8, 8)
    assert prove_divisible(n * i, 4)
    assert prove_divisible(n * i, n)
    assert not prove_divisible(n + 4, 8)
    # The last tile may stick out.
    size = symbol("S", 1)
    tile, lane = symbol("tile", below=ceil_div(size, 128)), symbol("lane", below=128)
    assert not prove_less(tile * 128 + lane, size)
    assert prove_less(tile * 128 + lane, size + 127)
    assert not prove_less(tile * 128 + lane, size + 126)
    assert prove_less(tile * 128, size)
    # A triangle: the bound of one index is another.
    row = symbol("row", below=size)
    column = symbol("column", below=row + 1)
    assert prove_less(column, size)
    assert prove_less(column + row, 2 * size - 1)
    # Quotients, remainders, minimum and maximum.
    x = symbol("x", below=size * big_j)
    assert prove_less(x // big_j, size)
    assert prove_less(x % size, size)
    assert prove_less_equal(x // 3 * 3, x)
    assert prove_less(minimum(k, big_i - 1), big_i)
    assert prove_less_equal(big_i, maximum(big_i, j))
    assert prove_less(select(less(x, 5), i, big_i - 1), big_i)
    assert prove_less(big_i, big_i * 2)
    assert prove_less_equal(big_i + big_j, big_i * big_j + 1)


PROOF_EXTENTS = st.tuples(st.integers(0, 2), st.integers(0, 2), st.sampled_from([1, 1, 2, 3]))


@st.composite
def proof_problems(draw: st.DrawFn) -> tuple[list[Symbol], Int, Int]:
    """Extents and indices with symbolic bounds (extents unbounded above), and two expressions over them."""
    sizes = [symbol("A", draw(st.integers(0, 2))), symbol("B", 1), symbol("C", 0, multiple=draw(st.integers(1, 3)))]
    bounds = [sizes[0], sizes[1], sizes[2], ceil_div(sizes[0], 2), sizes[2] // sizes[2].multiple, sizes[0] * sizes[1]]
    indices: list[Symbol] = []
    for name in ("i", "j", "k")[: draw(st.integers(1, 3))]:
        below = draw(st.sampled_from([*bounds, *(index + 1 for index in indices)]))
        indices.append(symbol(name, below=below))
    leaves = [*sizes, *indices, *bounds]

    def expression() -> Int:
        total = const(draw(st.integers(-2, 2)))
        for _ in range(draw(st.integers(1, 3))):
            term = draw(st.sampled_from(leaves)) * draw(st.sampled_from([1, 1, 1, 2, 3, -1]))
            match draw(st.integers(0, 6)):
                case 0 | 1:
                    term = term * draw(st.sampled_from(leaves))
                case 2:
                    term = term // draw(st.sampled_from([2, 3, sizes[1]]))
                case 3:
                    term = term % draw(st.sampled_from([2, 3, sizes[1]]))
                case 4:
                    term = minimum(term, draw(st.sampled_from(leaves)))
                case 5:
                    term = maximum(term, draw(st.sampled_from(leaves)))
                case _:
                    pass
            total = total + term
        return total

    return [*sizes, *indices], expression(), expression()


def assignments(symbols: list[Symbol], most: int) -> Iterator[dict[Symbol, int]]:
    """All values of the symbols, in order of definition, up to `most` for those without an upper bound."""

    def extend(values: dict[Symbol, int], rest: list[Symbol]) -> Iterator[dict[Symbol, int]]:
        if not rest:
            yield dict(values)
            return
        head = rest[0]
        low = -most if head.lo is None else head.lo
        high = most if head.hi is None else head.hi
        if head.below is not None:
            high = min(high, head.below.evaluate(values) - 1)
        for value in range(low, high + 1):
            if value % head.multiple == 0:
                values[head] = value
                yield from extend(values, rest[1:])
                del values[head]

    return extend({}, symbols)


@given(proof_problems())
@settings(max_examples=200, deadline=None)
def test_proofs_hold_for_every_value(problem: tuple[list[Symbol], Int, Int]) -> None:
    symbols, a, b = problem
    below, below_equal, divisible = prove_less(a, b), prove_less_equal(a, b), prove_divisible(a, 2)
    decided = [c for c in (less(a, b), equal(a, b)) if c is TRUE or c is FALSE]
    assume(below or below_equal or divisible or decided)
    for values in itertools.islice(assignments(symbols, 4), 0, 2000, 3):
        x, y = a.evaluate(values), b.evaluate(values)
        assert not below or x < y
        assert not below_equal or x <= y
        assert not divisible or x % 2 == 0
        assert less(a, b) not in (TRUE, FALSE) or (less(a, b) is TRUE) == (x < y)
        assert equal(a, b) not in (TRUE, FALSE) or (equal(a, b) is TRUE) == (x == y)


# ----------------------------------------------------------------------------------- random expressions and oracles

Tree = Any  # ("leaf", Symbol) | ("const", int) | (operator, Tree, Tree) | ("select", condition, Tree, Tree)
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}
COMPARISONS: dict[str, tuple[Callable[[Int, Int], Cond], Callable[[int, int], bool]]] = {
    "<": (less, lambda a, b: a < b),
    "<=": (less_equal, lambda a, b: a <= b),
    "==": (equal, lambda a, b: a == b),
    "!=": (not_equal, lambda a, b: a != b),
}


@st.composite
def symbol_sets(draw: st.DrawFn) -> tuple[list[Symbol], dict[Symbol, int]]:
    """Four symbols, the last bounded by the first, with a value in range for each."""
    symbols: list[Symbol] = []
    values: dict[Symbol, int] = {}
    for name in ("N", "x", "y"):
        step = draw(st.sampled_from([1, 1, 1, 2, 4, 8]))
        lo = draw(st.sampled_from([0, 1, 1, 3, -5, None])) if name != "N" else draw(st.integers(1, 4))
        size = draw(st.sampled_from([0, 3, 7, 127]))
        hi = draw(st.sampled_from([None, (lo or 0) + size + step]))
        made = symbol(name, lo, hi, multiple=step)
        low = -20 if made.lo is None else made.lo
        high = low + 40 if made.hi is None else made.hi
        value = draw(st.integers(-(-low // step), high // step)) * step
        symbols.append(made)
        values[made] = value
    bound = symbols[0] // draw(st.sampled_from([1, 2])) + 1
    index = symbol("i", below=bound)
    symbols.append(index)
    values[index] = draw(st.integers(0, bound.evaluate(values) - 1))
    return symbols, values


def trees(symbols: list[Symbol]) -> st.SearchStrategy[Tree]:
    leaf = st.one_of(
        st.sampled_from([("leaf", s) for s in symbols]),
        st.integers(-9, 9).map(lambda n: ("const", n)),
    )
    divisor = st.one_of(
        st.sampled_from([1, 2, 3, 4, 8, 12, 128]).map(lambda n: ("const", n)),
        st.sampled_from([1, 2, 4]).map(lambda n: ("*", ("const", n), ("leaf", symbols[0]))),
        st.just(("+", ("leaf", symbols[0]), ("const", 1))),
    )

    def grow(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        condition = st.tuples(st.sampled_from(list(COMPARISONS)), inner, inner)
        return st.one_of(
            st.tuples(st.sampled_from(["+", "-", "+", "*"]), inner, inner),
            st.tuples(st.sampled_from(["//", "%"]), inner, divisor),
            # The shape that the rules are for: a multiple of the divisor, a rest, and a division.
            st.tuples(inner, inner, divisor, st.sampled_from(["//", "%"])).map(
                lambda t: (t[3], ("+", ("*", t[0], t[2]), t[1]), t[2])
            ),
            st.tuples(inner, divisor).map(lambda t: ("+", ("*", ("//", *t), t[1]), ("%", *t))),
            st.tuples(inner, divisor).map(lambda t: ("-", t[0], ("*", ("//", *t), t[1]))),
            st.tuples(st.sampled_from(["min", "max"]), inner, inner),
            st.tuples(st.just("select"), condition, inner, inner),
            # Operands of xor are bounded by what they are made of.
            st.tuples(st.just("xor"), inner, inner),
        )

    return st.recursive(leaf, grow, max_leaves=8)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Symbol], dict[Symbol, int], Tree]:
    symbols, values = draw(symbol_sets())
    return symbols, values, draw(trees(symbols))


def build(tree: Tree) -> Int:
    """The expression that the operators of the module make of a tree."""
    match tree:
        case ("leaf", leaf):
            return leaf
        case ("const", value):
            return const(value)
        case ("min", a, b):
            return minimum(build(a), build(b))
        case ("max", a, b):
            return maximum(build(a), build(b))
        case ("select", (comparison, c, d), a, b):
            return select(COMPARISONS[comparison][0](build(c), build(d)), build(a), build(b))
        case ("xor", a, b):
            left, right = build(a) % 16, build(b) % 8
            # What a remainder simplifies to need not be known to be bounded by numbers.
            assume(all(e.lo is not None and e.lo >= 0 and e.hi is not None for e in (left, right)))
            return exclusive_or(left, right)
        case (operator, a, b):
            return BINARY[operator](build(a), build(b))
        case _:
            raise TypeError(tree)


def direct(tree: Tree, values: dict[Symbol, int]) -> int:
    """The value of a tree, nothing simplified."""
    match tree:
        case ("leaf", leaf):
            return values[leaf]
        case ("const", value):
            return value
        case ("min", a, b):
            return min(direct(a, values), direct(b, values))
        case ("max", a, b):
            return max(direct(a, values), direct(b, values))
        case ("select", (comparison, c, d), a, b):
            holds = COMPARISONS[comparison][1](direct(c, values), direct(d, values))
            return direct(a if holds else b, values)
        case ("xor", a, b):
            return (direct(a, values) % 16) ^ (direct(b, values) % 8)
        case (operator, a, b):
            return BINARY[operator](direct(a, values), direct(b, values))
        case _:
            raise TypeError(tree)


def evaluate_c(text: str, values: dict[str, int]) -> int:
    """The value of a C expression: division towards zero, remainder with the sign of the numerator."""
    tokens = re.findall(r"\d+(?:LL)?|\w+|<=|==|!=|&&|\|\||[-+*/%^()<>?:]", text)
    assert "".join(tokens) == text.replace(" ", "")
    position = 0

    def accept(*choices: str) -> str | None:
        nonlocal position
        if position < len(tokens) and tokens[position] in choices:
            position += 1
            return tokens[position - 1]
        return None

    def primary() -> int:
        nonlocal position
        if accept("("):
            value = ternary()
            if accept("^"):
                value ^= ternary()
            assert accept(")")
            return value
        if accept("-"):
            return -primary()
        token = tokens[position]
        position += 1
        if token in ("true", "false"):
            return int(token == "true")
        return int(token.removesuffix("LL")) if token[0].isdigit() else values[token]

    def product() -> int:
        value = primary()
        while sign := accept("*", "/", "%"):
            other = primary()
            if sign == "*":
                value *= other
            else:
                quotient = abs(value) // abs(other) * (1 if (value < 0) == (other < 0) else -1)
                value = quotient if sign == "/" else value - quotient * other
        return value

    def total() -> int:
        value = product()
        while sign := accept("+", "-"):
            value += product() if sign == "+" else -product()
        return value

    def comparison() -> int:
        value = total()
        while sign := accept("<", "<=", ">", "==", "!="):
            other = total()
            value = int({"<": value < other, "<=": value <= other, ">": value > other, "==": value == other,
                         "!=": value != other}[sign])  # fmt: skip
        return value

    def conjunction() -> int:
        value = comparison()
        while accept("&&"):
            value = comparison() & value
        return value

    def disjunction() -> int:
        value = conjunction()
        while accept("||"):
            value = conjunction() | value
        return value

    def ternary() -> int:
        value = disjunction()
        if accept("?"):
            first = ternary()
            assert accept(":")
            second = ternary()
            return first if value else second
        return value

    result = ternary()
    assert position == len(tokens)
    return result


@given(cases())
@settings(max_examples=300, deadline=None)
def test_simplified_expressions_keep_their_value(case: tuple[list[Symbol], dict[Symbol, int], Tree]) -> None:
    symbols, values, tree = case
    node = build(tree)
    expected = direct(tree, values)
    named = {s.name: value for s, value in values.items()}
    assert node.evaluate(values) == expected
    assert node.evaluate(named) == expected
    assert node.lo is None or node.lo <= expected
    assert node.hi is None or expected <= node.hi
    assert expected % node.multiple == 0 if node.multiple else expected == 0
    assert node.symbols <= set(symbols)
    # Every form an expression takes has the same value.
    space = {"select": lambda c, a, b: a if c else b, **named}
    assert eval(str(node), space) == expected
    assert evaluate_c(to_c(node, suffix="LL"), named) == expected
    assert compile_function([node, node * 3 + 1], symbols)(*values.values()) == (expected, 3 * expected + 1)
    assert node.substitute(dict(values.items())) is const(expected)


@given(cases())
@settings(max_examples=150, deadline=None)
def test_building_again_gives_the_same_object(case: tuple[list[Symbol], dict[Symbol, int], Tree]) -> None:
    node = build(case[2])
    assert from_parts(*parts_of(node)) is node
    assert node.substitute({}).evaluate(case[1]) == node.evaluate(case[1])
    assert pickle.loads(pickle.dumps(node)) is node
    assert node - node is ZERO
    assert node + 0 is node
    assert node * 1 is node


@given(cases(), st.sampled_from(list(COMPARISONS)))
@settings(max_examples=120, deadline=None)
def test_conditions_keep_their_truth(case: tuple[list[Symbol], dict[Symbol, int], Tree], comparison: str) -> None:
    symbols, values, tree = case
    other = ("leaf", symbols[1])
    make, check = COMPARISONS[comparison]
    first = make(build(tree), build(other))
    holds = check(direct(tree, values), direct(other, values))
    second = less(symbols[1], symbols[2])
    holds_second = values[symbols[1]] < values[symbols[2]]
    named = {s.name: value for s, value in values.items()}
    for node, expected in [
        (first, holds),
        (negate(first), not holds),
        (all_of(first, second), holds and holds_second),
        (any_of(first, negate(second)), holds or not holds_second),
        (negate(all_of(first, any_of(first, second))), not holds),
        (all_of(first, negate(first)), False),
        (any_of(first, negate(first)), True),
    ]:
        assert node.evaluate(values) == expected
        assert node.substitute(dict(values.items())) is (TRUE if expected else FALSE)
        assert evaluate_c(to_c(node), named) == expected
        assert evaluate_c(to_c(node, unrolled=set(symbols[:2])), named) == expected
        assert eval(str(node), {"select": lambda c, a, b: a if c else b, **named}) == expected
        assert compile_function([node], symbols)(*values.values()) == (expected,)
        assert from_parts(*parts_of(node)) is node


def test_vectorized_functions_equal_scalar_ones() -> None:
    n, x = symbol("N", 1), symbol("x", None)
    i = symbol("i", below=n)
    condition = all_of(less(x, n), any_of(equal(i, 3), less(0, x)))
    outputs = [
        (x * n + i) // 12 + (x * n + i) % 12,
        minimum(minimum(x, i), n - 3),
        maximum(x // 4, i % 3),
        select(condition, x % n, -i),
        select(less(0, x), 100 // maximum(x, 1), 0),
        n - 1,
        const(5),
        condition,
        TRUE,
    ]
    rng = np.random.default_rng(0)
    ns = rng.integers(1, 9, 200)
    xs = rng.integers(-50, 50, 200)
    indices = rng.integers(0, ns)
    results = compile_vectorized(outputs, [n, x, i])(ns, xs, indices)
    scalar = compile_function(outputs, [n, x, i])
    for position in range(200):
        expected = scalar(int(ns[position]), int(xs[position]), int(indices[position]))
        got = tuple(r[position] if isinstance(r, np.ndarray) else r for r in results)
        assert got == expected
    assert results[3].dtype == np.int64
    # Ints and arrays mix and broadcast.
    mixed = compile_vectorized([x + n * i], [n, x, i])(3, xs[:, None], np.arange(3))
    assert mixed[0].shape == (200, 3)


def test_branches_that_are_not_taken_may_divide_by_zero() -> None:
    n, x = symbol("N", 0), symbol("x")
    guarded = select(less(0, n), x // n + (x // n) * x, 0)
    assert compile_function([guarded], [n, x])(0, 5) == (0,)
    assert guarded.evaluate({n: 0, x: 5}) == 0
    result = compile_vectorized([guarded], [n, x])(np.array([0, 2]), np.array([5, 5]))
    assert result[0].tolist() == [0, 12]


@given(
    st.integers(-40, 40), st.lists(st.tuples(st.integers(-24, 24), st.integers(0, 3)), max_size=5), st.integers(1, 16)
)
def test_multiples_are_split_off_by_term(constant: int, terms: list[tuple[int, int]], n: int) -> None:
    names = [symbol("a", 0, 9), symbol("b", 0, 7), symbol("c", 0, 100, multiple=8), symbol("d", 0, 5)]
    whole = const(constant)
    for coefficient, which in terms:
        whole = whole + names[which] * coefficient
    quotient, rest = split_multiples(whole, n)
    assert quotient * n + rest is whole
    for name in names:
        alone = rest.substitute({other: 0 for other in names if other is not name})
        left = alone - alone.constant
        assert left is ZERO or left.multiple % n != 0
    assert 0 <= rest.constant < n


def test_c_text() -> None:
    x, s, n = symbol("x"), symbol("s", None), symbol("N", 8, multiple=8)
    assert to_c(x // 8 + x % 8) == "x % 8 + x / 8"
    assert to_c((x + 1) // n * 3) == "3*((x + 1) / N)"
    assert to_c(s // 8) == "s / 8 - (s % 8 < 0)"
    i, m = symbol("i", 0, 14), symbol("M")
    assert to_c(less(512 * i + x, m)) == "512*i + x < M"
    assert to_c(less(512 * i + x, m), unrolled={i}) == "512*i < M - x"
    assert to_c(less_equal(m, 512 * i + x), unrolled={i}) == "M <= 512*i + x"
    assert to_c(less(512 * i, m), unrolled={i}) == "512*i < M"
    assert to_c(s % 8) == "(s % 8 + 8) % 8"
    assert to_c(n // 8 + x) == "N / 8 + x"
    assert to_c(minimum(x, 4)) == "(4 < x ? 4 : x)"
    assert to_c(select(less(x, n), x, 0)) == "(x < N ? x : 0)"
    assert to_c(all_of(less(x, n), any_of(equal(x, 3), less(s, 0)))) == "x < N && (s < 0 || x == 3)"
    assert to_c(TRUE) == "true"
    # A divisor is at least 1, even where its range does not say so: rounding up needs no care for the sign.
    extent = symbol("E")
    assert to_c(ceil_div(x, extent)) == "(E + x - 1) / E"
    assert ceil_div(x, extent).lo == 0
    assert to_c((x - s % 8) % 128) == "(x - (s % 8 + 8) % 8 + 128) % 128"
    assert to_c(x * 2 + 1, names=lambda s: f"p.{s.name}", suffix="LL") == "2LL*p.x + 1LL"


# ------------------------------------------------------------------------------------------------------------ SymPy


def sympy_of(tree: Tree) -> Any:
    """The tree in SymPy, without this module's arithmetic."""
    import sympy

    match tree:
        case ("leaf", leaf):
            return to_sympy(leaf)
        case ("const", value):
            return sympy.Integer(value)
        case ("min", a, b):
            return sympy.Min(sympy_of(a), sympy_of(b))
        case ("max", a, b):
            return sympy.Max(sympy_of(a), sympy_of(b))
        case ("select", (comparison, c, d), a, b):
            relation = {"<": sympy.Lt, "<=": sympy.Le, "==": sympy.Eq, "!=": sympy.Ne}[comparison]
            return sympy.Piecewise((sympy_of(a), relation(sympy_of(c), sympy_of(d))), (sympy_of(b), True))
        case ("//", a, b):
            return sympy.floor(sympy_of(a) / sympy_of(b))
        case ("%", a, b):
            return sympy.Mod(sympy_of(a), sympy_of(b))
        case ("xor", a, b):
            c, d = sympy.Mod(sympy_of(a), 16), sympy.Mod(sympy_of(b), 8)
            return sum(2**k * sympy.Mod(sympy.floor(c / 2**k) + sympy.floor(d / 2**k), 2) for k in range(4))
        case (operator, a, b):
            return BINARY[operator](sympy_of(a), sympy_of(b))
        case _:
            raise TypeError(tree)


@given(cases())
@settings(max_examples=150, deadline=None)
def test_sympy_agrees(case: tuple[list[Symbol], dict[Symbol, int], Tree]) -> None:
    _, values, tree = case
    node = build(tree)
    numbers = {to_sympy(s): value for s, value in values.items()}
    expected = direct(tree, values)
    assert to_sympy(node).xreplace(numbers) == expected
    assert sympy_of(tree).xreplace(numbers) == expected


def test_sympy_expands_products_to_the_same_polynomial() -> None:
    import sympy

    x, y, n = symbol("x"), symbol("y", None), symbol("N", 8, multiple=8)
    sx: Any = to_sympy(x)
    sy: Any = to_sympy(y)
    sn: Any = to_sympy(n)
    products: list[tuple[Int, Any]] = [
        ((x + y) * (x - y) * 3, (sx + sy) * (sx - sy) * 3),
        ((x + n + 1) * (y + 2) - x * y, (sx + sn + 1) * (sy + 2) - sx * sy),
    ]
    for ours, theirs in products:
        mine: Any = to_sympy(ours).subs(sympy.floor(sn / 8), sn / 8)
        assert sympy.expand(mine - theirs) == 0
    assert to_sympy(less(x, 3)) == sympy.Ge(2 - sx, 0)
    first: Any = sympy.Eq(sx - 3, 0)
    second: Any = sympy.Ne(sy - 2, 0)
    assert to_sympy(all_of(equal(x, 3), not_equal(y, 2))) == sympy.And(first, second)


# ------------------------------------------------------------------------------------- processes, threads and imports

DETERMINISM = """
from fuser.ir.integers.integers import *
names = ["zeta", "alpha", "mid", "beta", "N", "t10", "t2"]
symbols = [symbol(n, 0) for n in names]
total = const(3)
for k, s in enumerate(symbols):
    total = total + s * (k + 2) // 7 * symbols[k - 1] + minimum(s, symbols[k - 2] % 5) - s % (k + 3)
conditions = all_of(*(any_of(less(s, total), equal(s, k)) for k, s in enumerate(symbols)))
print(total, conditions, parts_of(total), to_c(total), to_c(conditions))
"""


def test_text_is_the_same_in_every_process() -> None:
    texts = {
        subprocess.run(
            [sys.executable, "-c", DETERMINISM],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.getcwd()},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1
    assert len(texts.pop()) > 500


def test_threads_get_the_same_nodes() -> None:
    barrier = threading.Barrier(8)
    results: list[list[Int]] = []

    def make() -> None:
        barrier.wait()
        made: list[Int] = []
        for k in range(150):
            n = symbol(f"thread_n{k}", 8, multiple=8)
            i = symbol(f"thread_i{k}", below=n // 8)
            made.extend((n, i, 8 * n.unit, (n * i + 3) // 7 % 5, minimum(n, 40 - i), (8 * i + 3) // n))
        results.append(made)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    for made in results[1:]:
        assert all(a is b for a, b in zip(results[0], made, strict=True))


def test_importing_the_module_loads_no_heavy_package() -> None:
    heavy = "('numpy', 'sympy', 'torch', 'cuda')"
    script = f"import sys; import fuser.ir.integers.integers; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "sympy" not in result.stdout
    assert "torch" not in result.stdout
