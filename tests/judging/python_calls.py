"""The work of Python code in calls: the same number on a busy machine as on an idle one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


def python_calls(run: Callable[[], object]) -> int:
    """How many Python functions (generators each time they go on) a second `run` calls: what is found once is there then."""
    run()
    calls = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return calls
