"""Prints parameters as Python that rebuilds them."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from fuser.schedule.params import Params


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
