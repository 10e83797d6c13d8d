"""The words for a dim or an axis that a tensor does not have."""

from __future__ import annotations


def outside_text(what: str, index: int, total: int, of: str = "") -> str:
    """`dim 2 is out of range: there are 2, from -2 to 1`, and the fragment that callers match."""
    valid = "there is 1, called 0 or -1" if total == 1 else f"there are {total}, from {-total} to {total - 1}"
    return (
        f"{what} {index}{of} is out of range: {valid if total else 'there are none'}. "
        f"Tried to access out of boundary index {index}. total index: {total}"
    )
