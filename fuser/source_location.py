"""Where in the user's program a value was made: the nearest frame outside this package."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType
from typing import NamedTuple

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class SourceLocation(NamedTuple):
    """A line of the user's program."""

    filename: str
    lineno: int
    function: str

    def describe(self) -> str:
        """The place and, where the file can be read, the line itself."""
        import linecache

        text = linecache.getline(self.filename, self.lineno).strip()
        place = f'  at File "{self.filename}", line {self.lineno}, in {self.function}'
        return f"{place}\n    {text}" if text else place


def is_of_package(code: CodeType) -> bool:
    """Whether code is this package's, the methods of its records included."""
    return code.co_filename.startswith(_PACKAGE) or code.co_filename == "<record>"


def _passes_on(frame: FrameType) -> bool:
    """Whether a frame is no user's: this package's, or NumPy's, whose functions ask the values that they are handed."""
    return is_of_package(frame.f_code) or frame.f_globals.get("__name__", "").partition(".")[0] == "numpy"


def caller_location() -> SourceLocation | None:
    """The innermost frame that is neither this package's nor NumPy's, or None if every frame is."""
    frame = _caller()
    return None if frame is None else SourceLocation(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def caller_imports_name() -> bool:
    """Whether that frame asks for a name by `from module import name`."""
    from opcode import opmap

    frame = _caller()
    return frame is not None and frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"]


def _caller() -> FrameType | None:
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] - inspect.stack() costs milliseconds a call
    while frame is not None and _passes_on(frame):
        frame = frame.f_back
    return frame
