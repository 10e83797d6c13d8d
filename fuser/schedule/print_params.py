"""Parameters as text: as Python that rebuilds them, and how some differ from others."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from fuser.schedule.params import InnerPersistentParams, Params, PointwiseParams, ReductionParams


def params_text(params: Params) -> str:
    """Parameters, a field a line, without fields that have their default value; then the reasons, each on a line."""
    lines: list[str] = []
    for name, value in _chosen(params):
        if name == "reasons":
            lines += ["    reasons=(", *(f"        {reason!r}," for reason in value), "    ),"]
        else:
            lines.append(f"    {name}={value!r},")
    kind = type(params).__name__
    return "\n".join((f"{kind}(", *lines, ")")) if lines else f"{kind}()"


def params_line(params: Params) -> str:
    """The same in a line."""
    return f"{type(params).__name__}({', '.join(f'{name}={value!r}' for name, value in _chosen(params))})"


def _chosen(params: Params) -> list[tuple[str, Any]]:
    values = [(f, getattr(params, f.name)) for f in fields(params)]
    return [(f.name, value) for f, value in values if f.default is MISSING or value != f.default]


def difference(old: Params, new: Params) -> str:
    """The fields in which parameters differ, in words: `threads 128 instead of 256`."""
    if type(old) is not type(new):
        return f"{type(new).__name__} instead of {type(old).__name__}"
    words: list[str] = []
    for f in fields(new):
        was, now = getattr(old, f.name), getattr(new, f.name)
        if f.name == "reasons" or was == now:
            continue
        if isinstance(now, (PointwiseParams, ReductionParams, InnerPersistentParams)) and isinstance(was, type(now)):
            words.append(difference(was, now))
        else:
            words.append(f"{f.name} {now!r} instead of {was!r}")
    return ", ".join(words) or "nothing"
