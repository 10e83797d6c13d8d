"""Whether two things are alike, through tuples and records, of which some compare by identity."""

from __future__ import annotations

from typing import Any


def same_structure(a: Any, b: Any) -> bool:
    """Equal types and equal values, down to what is no tuple, dictionary or record."""
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same_structure, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same_structure(a[k], b[k]) for k in a)
    if hasattr(type(a), "__record_defaults__"):
        return all(same_structure(getattr(a, name), getattr(b, name)) for name in type(a).__match_args__)
    return a is b or bool(a == b)
