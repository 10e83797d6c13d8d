"""Cases that run by turns: each has one, and no turn has much more to run than another."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from tests.project.turns import TURNS, waiting_items


@dataclass(frozen=True)
class Case:
    """What is asked of an item of pytest."""

    nodeid: str
    in_turns: bool = True

    def get_closest_marker(self, name: str) -> object | None:
        return name if self.in_turns and name == "in_turns" else None


def played(cases: list[Case], turn: int) -> list[Case]:
    items: Any = cases
    waiting = waiting_items(items, turn)
    return [case for case, item in zip(cases, items, strict=True) if item not in waiting]


@pytest.mark.parametrize("count", [1, 3, 4, 18])
def test_turns_in_a_row_run_every_case_once(count: int) -> None:
    cases = [Case(f"tests/test_sums.py::test_values[{k}-{k % 3}]") for k in range(count)]
    for first in (0, 7, 0xFFFFFFFF):
        turns = [played(cases, turn) for turn in range(first, first + TURNS)]
        assert Counter(case for turn in turns for case in turn) == Counter(cases)
        assert max(map(len, turns)) - min(map(len, turns)) <= 1


def test_tests_without_the_mark_run_always() -> None:
    cases = [Case(f"tests/test_sums.py::test_values[{k}]", in_turns=False) for k in range(9)]
    assert all(played(cases, turn) == cases for turn in range(TURNS))


def test_values_of_a_parameter_are_spread_over_the_turns() -> None:
    """A parameter of as many values as there are turns would else have one in each."""
    cases = [Case(f"tests/test_sums.py::test_values[{k}-{k % TURNS}]") for k in range(20 * TURNS)]
    for turn in range(TURNS):
        assert len({case.nodeid[-2] for case in played(cases, turn)}) == TURNS
