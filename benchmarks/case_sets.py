"""What `benchmarks.run` may be asked for: sets of cases, parts of them, and the systems beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.case import Case
from benchmarks.cases import cases_named, public_cases
from benchmarks.everyday import everyday_cases

SETS: dict[str, Callable[[], list[Case]]] = {"public": public_cases, "everyday": everyday_cases}
"""Name -> its cases; nothing is allocated."""

PEERS: dict[str, tuple[str, ...]] = {
    "none": (),
    "eager": ("eager",),
    "compile": ("eager", "compile"),
    "all": ("eager", "compile", "compile max"),
}
"""Name -> the systems that are measured beside ours, as `measure` names them."""


def chosen_cases(name: str, patterns: Sequence[str], part: tuple[int, int] | None) -> list[Case]:
    """Cases of a set whose name contains one of `patterns`, and of these the part (K, N): every N-th from the K-th on.

    Raises ValueError for a pattern that is in no name.
    """
    cases = cases_named(SETS[name](), patterns)
    # Strides, not runs: every part has cases of all families and sizes.
    return cases if part is None else cases[part[0] - 1 :: part[1]]


def part_text(text: str) -> tuple[int, int]:
    """ "2/3" as (2, 3). Raises ValueError for anything else, and where the first is not one of the second."""
    part, _, parts = text.partition("/")
    found = int(part), int(parts)
    if not 1 <= found[0] <= found[1]:
        raise ValueError(f"part {text} is none of {parts}")
    return found
