"""A line on a terminal that says how far tuning is, and is gone when it is over."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self, TextIO

from fuser import options
from fuser.compiler.builds import TOLD_AFTER_S
from fuser.records import record


@record
class TuningStep:
    """How far it is: numbers from 0, the best median so far in microseconds (None: nothing is measured yet), seconds left."""

    segment: int
    candidate: int
    candidates: int
    best_us: float | None
    left_s: float


class TuningLine:
    """Says so on stderr, if that is a terminal, from `TOLD_AFTER_S` seconds on. A context."""

    def __init__(self, segments: int, stream: TextIO | None = None, after_s: float = TOLD_AFTER_S) -> None:
        self._segments = segments
        self._stream = stream if stream is not None else sys.stderr
        self._begun = time.monotonic()
        self._after_s = after_s
        self._shown = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._shown:
            self._write(f"\r{' ' * self._shown}\r")

    def tell(self, step: TuningStep) -> None:
        """Show a step, if anybody could see it."""
        if self._stream is None or not self._stream.isatty() or not options.PROGRESS.get():
            return
        if time.monotonic() - self._begun < self._after_s:
            return
        best = "nothing measured yet" if step.best_us is None else f"best {step.best_us:.2f} us"
        line = (
            f"fuser: tuning segment {step.segment + 1} of {self._segments}, candidate {step.candidate + 1} of "
            f"{step.candidates}, {best}, {step.left_s:.0f} s left"
        )
        self._write(f"\r{line:<{self._shown}}")
        self._shown = max(self._shown, len(line))

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._shown = 0  # the terminal is gone
