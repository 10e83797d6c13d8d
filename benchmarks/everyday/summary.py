"""What a run of the everyday cases comes to: two means, and the cases that are furthest behind."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.results_table import DEFAULT_COMPILE, Row, counts, geomean

TINY_US, EQUAL_US = 10.0, 0.3
"""Of kernels that take less than the first, times that differ by less than the second cannot be told apart."""
_WORST = 10


def against_compile(row: Row) -> float | None:
    """How many times as fast as torch.compile, 1 for tiny kernels that are as good as equal; None if not measured."""
    theirs = row.peer(DEFAULT_COMPILE)
    if theirs is None or row.ours is None:
        return None
    is_equal = row.ours < TINY_US and abs(row.ours - theirs) <= EQUAL_US
    return 1.0 if is_equal else theirs / row.ours


def everyday_summary(rows: Sequence[Row], empty: float | None) -> str:
    """Counts, geometric means, the worst cases against torch.compile and against the copy, and what is not right."""
    lines = [f"{len(rows)} cases: {counts(rows)}"]
    if empty is not None:
        lines.append(f"an empty kernel takes {empty:.2f} us")
    compiled = [(f, r) for r in rows if (f := against_compile(r)) is not None]
    copied = [(f, r) for r in rows if (f := r.fraction) is not None]
    equal = f"below {TINY_US:g} us, within {EQUAL_US} us counts as equal"
    for found, what in ((compiled, f"times as fast as torch.compile ({equal})"), (copied, "of the copy")):
        mean = geomean(f for f, _ in found)
        if mean is not None:
            lines.append(f"geometric mean of {len(found)}: {mean:.3f} {what}")
    lines += [f"{r.name}: {r.status}: {r.text}" for r in rows if r.status != "ok"]
    lines += _worst(compiled, "against torch.compile") + _worst(copied, "against the copy")
    return "\n".join(lines)


def _worst(found: Sequence[tuple[float, Row]], what: str) -> list[str]:
    worst = sorted(found, key=lambda f: f[0])[:_WORST]
    if not worst:
        return []
    return [f"the worst {len(worst)} {what}:", *(f"  {f:.3f}  {r.name}  {r.ours:.1f} us" for f, r in worst)]
