"""The table of what tuning gains."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import tuned
from benchmarks.cases import public_cases
from tests.compiler.tuning_records import RECORD

CASE = next(iter(public_cases()))


def test_a_line_for_each_segment() -> None:
    (line,) = tuned.lines_of(CASE, RECORD, 1.25)
    assert line.split() == [
        CASE.name,
        *(
            "4.00",
            "2.00",
            "0.500",
            "1.2",
            "s",
            "unroll",
            "2",
            "instead",
            "of",
            "1",
            "(3",
            "candidates,",
            "out:",
            "spills)",
        ),
    ]


def test_cases_are_chosen_by_name_and_failures_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def run(case: Any, *_: object) -> Any:
        asked.append(case.name)
        if "layernorm" in case.name:
            raise RuntimeError("no")
        return RECORD

    monkeypatch.setattr(tuned, "tuned", run)
    assert tuned.main(["softmax_bf16_32768", "rmsnorm_bf16_32768"]) == 0
    assert asked == ["softmax_bf16_32768x1024", "rmsnorm_bf16_32768x1024"]
    shown = capsys.readouterr().out
    assert "2 segments: geometric mean of best over proposed 0.5000" in shown
    assert tuned.main(["layernorm_bf16_32768", "--losers"]) == 1
    assert "RuntimeError: no" in capsys.readouterr().out
