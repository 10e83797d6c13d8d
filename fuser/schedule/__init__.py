"""The schedulers: each takes a segment, proposes parameters, and applies them as scheduling verbs."""

from __future__ import annotations

from typing import NoReturn

from fuser.errors import missing_from_module
from fuser.tracebacks import short_traceback


@short_traceback
def __getattr__(name: str) -> NoReturn:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise missing_from_module(
        f"this folder has the schedulers and no {name!r}; scheduling functions are fd.sched.{name}, or those of "
        "`from fuser import schedule`",
        name,
    )
