"""What a run of the benchmarks may be asked for: sets, parts and defaults."""

from __future__ import annotations

import pytest

from benchmarks.case_sets import SETS, chosen_cases, part_text
from benchmarks.run import parse


@pytest.mark.parametrize("name", SETS)
def test_parts_are_the_whole_once(name: str) -> None:
    names = [c.name for c in SETS[name]()]
    parts = [[c.name for c in chosen_cases(name, (), (k, 3))] for k in (1, 2, 3)]
    assert sorted(n for part in parts for n in part) == sorted(names)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_patterns_choose_before_parts_do() -> None:
    chosen = chosen_cases("everyday", ["rmsnorm"], (1, 1))
    assert chosen
    assert all("rmsnorm" in c.name for c in chosen)
    with pytest.raises(ValueError, match="no case has 'softmin' in its name"):
        chosen_cases("everyday", ["softmin"], None)


def test_part_texts() -> None:
    assert part_text("2/3") == (2, 3)
    for text in ("0/3", "4/3", "2", "a/b", "1/0"):
        with pytest.raises(ValueError):
            part_text(text)


def test_each_set_has_its_own_defaults() -> None:
    public, everyday = parse([]), parse(["--set", "everyday"])
    assert (public.peers, public.jobs, public.timeout) == ("all", 0, 900.0)
    assert (everyday.peers, everyday.timeout) == ("compile", 120.0)
    assert everyday.jobs >= 1
    assert parse(["--set", "everyday", "--jobs", "0"]).jobs == 0
    with pytest.raises(SystemExit):
        parse(["--part", "1/2"])
