"""What a scheduler chose, as text: Python that makes the parameters again."""

from __future__ import annotations

from dataclasses import MISSING, fields

from fuser.schedule.params import Params


def params_text(params: Params) -> str:
    """Parameters, a field a line, without those that are as they are unless something is chosen; then why, a reason a line."""
    lines: list[str] = []
    for f in fields(params):
        value = getattr(params, f.name)
        if f.default is not MISSING and value == f.default:
            continue
        if f.name == "reasons":
            lines += ["    reasons=(", *(f"        {reason!r}," for reason in value), "    ),"]
        else:
            lines.append(f"    {f.name}={value!r},")
    name = type(params).__name__
    return "\n".join((f"{name}(", *lines, ")")) if lines else f"{name}()"
