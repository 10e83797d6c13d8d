"""Results as files, and parts of a set as one result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.results_files import Results, merged, write
from tests.benchmarks.result_rows import GOOD

ROWS = [replace(GOOD, name=name) for name in "abcde"]


def results(*rows: int, gpu: str = "X", seconds: float = 10.0) -> Results:
    return Results("everyday", {"gpu": gpu}, 2.0, [ROWS[k] for k in rows], seconds)


def test_parts_merge_to_what_one_run_would_have_written(tmp_path: Path) -> None:
    write(results(0, 2, 4), tmp_path, "everyday.1of2")
    write(results(1, 3), tmp_path, "everyday.2of2")
    files = sorted(tmp_path.glob("*.json"))
    found = merged("everyday", files, list("abcde"))
    assert found == results(0, 1, 2, 3, 4, seconds=20.0)
    assert found.text().startswith("X\n\n")
    assert (tmp_path / "everyday.1of2.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([results(0, 1), results(2, 3, 4, gpu="Y")], "another environment"),
        ([results(0, 1, 2), results(2, 3, 4)], "in more than one part: c"),
        ([results(0, 1), results(2, 3)], "in no part: e"),
        ([results(0, 1, 2, 3, 4, 0)], "in more than one part: a"),
    ],
)
def test_parts_that_do_not_fit_are_told(parts: list[Results], text: str, tmp_path: Path) -> None:
    for k, part in enumerate(parts):
        write(part, tmp_path, str(k))
    with pytest.raises(ValueError, match=text):
        merged("everyday", sorted(tmp_path.glob("*.json")), list("abcde"))


def test_a_case_of_another_set_is_told(tmp_path: Path) -> None:
    write(results(0, 1), tmp_path, "part")
    with pytest.raises(ValueError, match="no cases of the set: b"):
        merged("everyday", [tmp_path / "part.json"], ["a"])
