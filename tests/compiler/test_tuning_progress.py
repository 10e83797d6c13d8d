"""The line that says how far tuning is."""

from __future__ import annotations

import io

import pytest

from fuser.compiler.tuning_progress import TuningLine, TuningStep


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_told_and_cleared() -> None:
    terminal = Terminal()
    with TuningLine(2, terminal, after_s=0.0) as line:
        line.tell(TuningStep(0, 2, 9, None, 59.6))
        line.tell(TuningStep(1, 8, 9, 12.344, 5.0))
    first, second, blank, after = terminal.getvalue().split("\r")[1:]
    assert first == "fuser: tuning segment 1 of 2, candidate 3 of 9, nothing measured yet, 60 s left"
    assert second.rstrip() == "fuser: tuning segment 2 of 2, candidate 9 of 9, best 12.34 us, 5 s left"
    assert len(second) == len(first)
    assert blank == " " * len(first)
    assert after == ""


def test_nothing_is_told_of_what_is_over_soon_or_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, after_s in ((Terminal(), 1e9), (io.StringIO(), 0.0)):
        with TuningLine(1, stream, after_s) as line:
            line.tell(TuningStep(0, 0, 1, None, 1.0))
        assert stream.getvalue() == ""
    monkeypatch.setenv("FUSER_PROGRESS", "off")
    hidden = Terminal()
    with TuningLine(1, hidden, 0.0) as line:
        line.tell(TuningStep(0, 0, 1, None, 1.0))
    assert hidden.getvalue() == ""


def test_a_terminal_that_goes_is_no_error() -> None:
    class Going(Terminal):
        def write(self, text: str) -> int:
            raise OSError("gone")

    with TuningLine(1, Going(), after_s=0.0) as line:
        line.tell(TuningStep(0, 0, 1, None, 1.0))
        line.tell(TuningStep(0, 0, 1, None, 1.0))
