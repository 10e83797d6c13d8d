"""Interned values: one object per value as long as anyone has it, and none that nobody has."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fuser.ir.integers import integer_nodes, interning
from fuser.ir.integers.integers import Cond, Int, const, less, maximum, select, symbol
from fuser.ir.integers.interning import drop_unused
from tests.fuzzing.random_fusions import generate


class Value:
    """`parts` it holds on to; `me` is itself, within a tuple, if it has a cycle."""

    def __init__(self, *parts: object, cycle: bool = False) -> None:
        self.parts = parts
        self.me: tuple[object, ...] = (self,) if cycle else ()


def cycle_of(value: Value) -> tuple[object, ...]:
    return (value.me,) if value.me else ()


@pytest.mark.parametrize("cycle", [False, True])
def test_what_only_the_table_has_goes(cycle: bool) -> None:
    held = Value(cycle=cycle)
    table = {"held": held, "not": Value(cycle=cycle)}
    drop_unused([table], cycle_of)
    assert table == {"held": held}


def test_what_values_refer_to_stays_as_long_as_they_do() -> None:
    inner: dict[str, Value] = {"a": Value(), "b": Value(), "c": Value()}
    outer: dict[str, Value] = {"on a": Value(inner["a"]), "on b": Value(inner["b"])}
    held = outer["on a"]
    drop_unused([inner, outer], cycle_of)
    assert set(outer) == {"on a"}
    assert set(inner) == {"a"}
    del held
    drop_unused([inner, outer], cycle_of)
    assert not outer
    assert not inner


def test_a_value_whose_cycle_is_shared_stays() -> None:
    table = {"a": Value(cycle=True), "b": Value(cycle=True)}
    shared = table["a"].me
    drop_unused([table], cycle_of)
    assert list(table) == ["a"]
    assert shared[0] is table["a"]


def test_what_is_found_while_entries_go_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread finds a value after its references were counted, before it is out of the table."""
    table = {"a": Value(), "b": Value()}
    found: list[Value] = []
    count = interning._is_unused  # pyright: ignore[reportPrivateUsage]

    def counted(where: Any, key: object, cycle: Any) -> bool:
        unused = count(where, key, cycle)
        if where is table and key == "a" and not found:
            found.append(table["a"])
        return unused

    monkeypatch.setattr(interning, "_is_unused", counted)
    drop_unused([table], cycle_of)
    assert table == {"a": found[0]}


def test_an_interrupt_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    held = [Value(), Value()]
    table = dict(enumerate(held))
    asked: list[object] = []
    count = interning._is_unused  # pyright: ignore[reportPrivateUsage]

    class Interrupting(dict[Any, Any]):
        def __delitem__(self, key: object) -> None:
            super().__delitem__(key)
            raise KeyboardInterrupt

    def counted(where: Any, key: object, cycle: Any) -> bool:
        asked.append(key)
        return len(asked) == 1 or count(where, key, cycle)

    monkeypatch.setattr(interning, "_is_unused", counted)
    interrupting = Interrupting(table)
    with pytest.raises(KeyboardInterrupt):
        drop_unused([interrupting], cycle_of)
    assert interrupting == table
    assert not interning._leaving  # pyright: ignore[reportPrivateUsage]


def test_a_forked_child_has_what_its_parent_was_dropping() -> None:
    table, taken = {"a": Value()}, {"b": Value()}
    interning._leaving.append((table, taken))  # pyright: ignore[reportPrivateUsage]
    interning._put_back()  # pyright: ignore[reportPrivateUsage]
    assert set(table) == {"a", "b"}
    assert not interning._leaving  # pyright: ignore[reportPrivateUsage]


# --- integer expressions ----------------------------------------------------------------------------------------------


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tables are looked through all the time."""
    monkeypatch.setattr(integer_nodes, "_FEW", 8)
    monkeypatch.setattr(integer_nodes, "_most_sums", 8)
    yield
    monkeypatch.undo()
    integer_nodes.drop_unused_nodes()


NAMES = [symbol(f"interned.{n}", multiple=m) for n, m in enumerate((1, 1, 4, 8))]


def expression(seed: int, depth: int = 4) -> Int:
    rng = random.Random(seed)

    def made(depth: int) -> Int:
        if depth == 0:
            return rng.choice(NAMES) if rng.random() < 0.7 else const(rng.randint(-9, 9))
        a, b = made(depth - 1), made(depth - 1)
        match rng.randint(0, 6):
            case 0 | 1:
                return a + b * rng.randint(1, 5)
            case 2:
                return a * rng.randint(1, 3) - b
            case 3:
                return a // rng.randint(1, 9)
            case 4:
                return a % rng.randint(1, 9) + b
            case 5:
                return maximum(a, b)
            case _:
                return select(less(a, b), a, b + 1)

    return made(depth)


@pytest.mark.usefixtures("few")
def test_equal_expressions_are_one_object_whatever_goes_meanwhile() -> None:
    wrong: list[int] = []

    def run(first: int) -> None:
        kept: dict[int, tuple[Int, str]] = {}
        rng = random.Random(first)
        for _ in range(300):
            seed = rng.randrange(40)
            made = expression(seed)
            if seed in kept and (kept[seed][0] is not made or str(made) != kept[seed][1]):
                wrong.append(seed)
            kept[seed] = (made, str(made))
            if rng.random() < 0.3:
                kept.pop(rng.choice(list(kept)))

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.usefixtures("few")
def test_an_expression_is_what_it_was_once_it_is_made_again() -> None:
    for seed in range(60):
        text, order = str(expression(seed)), expression(seed).order
        integer_nodes.drop_unused_nodes()
        assert (str(expression(seed)), expression(seed).order) == (text, order)


def test_conditions_and_atoms_that_are_held_stay() -> None:
    x, y = NAMES[0], NAMES[1]

    def made() -> list[Int | Cond]:
        chosen = select(less(x, y), x, y * 3)
        return [x // 7, x % 7, maximum(x, y), less(x, y), chosen, x // 7 + 1, (x // 7) * 5]

    held = made()
    # An atom that only a sum of its terms has.
    only = (y // 11) + 5
    integer_nodes.drop_unused_nodes()
    assert all(a is b for a, b in zip(held, made(), strict=True))
    assert (y // 11) + 5 is only


def test_fusions_that_are_gone_leave_few_expressions() -> None:
    def sums() -> int:
        gc.collect()
        integer_nodes.drop_unused_nodes()
        return len(integer_nodes._sums)  # pyright: ignore[reportPrivateUsage]

    def run(seeds: range) -> None:
        for seed in seeds:
            made = generate(seed)
            made.fd.execute(made.inputs)

    run(range(500, 510))
    before = sums()
    run(range(510, 540))
    assert sums() < before + 400
