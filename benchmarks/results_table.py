"""Rows of results: the terminal table, geometric means, and what misses its limit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.case import Case
from benchmarks.cases import TINY_CASE

Status = Literal["ok", "wrong", "unsupported", "failed"]

FLOOR = 0.85
GEOMEAN = 0.95
FLOORS: dict[str, float] = {"batchnorm_cl_bf16_64x256x64x64": 0.72, "softmax_bf16_64x1048576": 0.75}
"""Least fraction of a copy for cases whose data does not fit on chip and has to be read twice."""
AGAINST_PEER = 0.98
ABOVE_EMPTY_US = 1.0
DEFAULT_COMPILE = "compile"
"""The name of torch.compile's default mode among peers."""


@dataclass(frozen=True, slots=True)
class Row:
    """One case. Times in microseconds; peers whose name ends in `*` were recorded elsewhere and scaled.

    copy, ours, host   None where they were not measured
    spread             (p10, p90) of ours
    """

    name: str
    nbytes: int
    status: Status
    text: str
    copy: float | None = None
    ours: float | None = None
    spread: tuple[float, float] | None = None
    host: float | None = None
    kernels: int | None = None
    peers: tuple[tuple[str, float], ...] = ()
    is_poisoned: bool = True

    @property
    def fraction(self) -> float | None:
        """Of the copy's speed."""
        return None if self.copy is None or self.ours is None else self.copy / self.ours

    @property
    def best_peer(self) -> tuple[str, float] | None:
        return min(self.peers, key=lambda p: p[1]) if self.peers else None

    @property
    def against_peer(self) -> float | None:
        """How many times as fast as the best peer."""
        best = self.best_peer
        return None if best is None or self.ours is None else best[1] / self.ours

    def peer(self, name: str) -> float | None:
        """Time of a peer, measured or recorded."""
        return next((us for peer, us in self.peers if peer.rstrip("*") == name), None)


def row_of(found: dict[str, Any], case: Case) -> Row:
    """What a worker reported of a case, as a row again."""
    if "lost" in found:
        return Row(case.name, case.nbytes, "failed", found["lost"])
    return row_from(found["row"])


def row_from(fields: dict[str, Any]) -> Row:
    """A row that was JSON in between."""
    fields = dict(fields)
    fields["peers"] = tuple((name, us) for name, us in fields["peers"])
    fields["spread"] = tuple(fields["spread"]) if fields["spread"] is not None else None
    return Row(**fields)


def geomean(values: Iterable[float]) -> float | None:
    """None for no values."""
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs)) if logs else None


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


_COLUMNS = "case,MB,copy us,ours us,p10..p90,of copy,peer us,best peer,x peer,host us,krn,check"
HEADER: tuple[str, ...] = tuple(_COLUMNS.split(","))


def table(rows: Sequence[Row]) -> str:
    """All rows, aligned; peers marked `*` are recorded figures, scaled by the copy."""
    lines: list[tuple[str, ...]] = [HEADER]
    for r in rows:
        peer = r.best_peer
        lines.append(
            (
                r.name,
                f"{r.nbytes / 1e6:.1f}",
                _cell(r.copy, ".1f"),
                _cell(r.ours, ".1f"),
                "-" if r.spread is None else f"{r.spread[0]:.1f}..{r.spread[1]:.1f}",
                _cell(r.fraction, ".3f"),
                _cell(None if peer is None else peer[1], ".1f"),
                "-" if peer is None else peer[0],
                _cell(r.against_peer, ".2f"),
                _cell(r.host, ".1f"),
                _cell(r.kernels, "d"),
                f"{r.status}: {r.text}" + ("" if r.is_poisoned else " (not poisoned)"),
            )
        )
    widths = [max(len(line[c]) for line in lines) for c in range(len(HEADER))]
    left = {0, 7, 11}
    return "\n".join(
        "  ".join(
            t.ljust(w) if c in left else t.rjust(w) for c, (t, w) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def counts(rows: Sequence[Row]) -> str:
    """How many of each status."""
    return ", ".join(
        f"{n} {status}"
        for status in ("ok", "wrong", "failed", "unsupported")
        if (n := sum(r.status == status for r in rows))
    )


def summary(rows: Sequence[Row], empty: float | None) -> str:
    """Counts, geometric means, and every limit that is missed."""
    timed = [r for r in rows if r.ours is not None]
    large = [r for r in timed if r.name != TINY_CASE]
    lines = [f"{len(rows)} cases: {counts(rows)}"]
    for what, values in (
        ("fraction of the copy, without the tiny case", [f for r in large if (f := r.fraction) is not None]),
        ("times as fast as torch.compile", [p / r.ours for r in timed if r.ours and (p := r.peer(DEFAULT_COMPILE))]),
        ("times as fast as the best peer", [f for r in timed if (f := r.against_peer) is not None]),
    ):
        mean = geomean(values)
        if mean is not None:
            lines.append(f"geometric mean of {len(values)}: {mean:.3f} {what}")
    if empty is not None:
        lines.append(f"an empty kernel takes {empty:.2f} us")
    misses = missed_limits(rows, empty)
    lines.append(f"{len(misses)} limits missed" + (":" if misses else ""))
    return "\n".join([*lines, *(f"  {m}" for m in misses)])


def missed_limits(rows: Sequence[Row], empty: float | None) -> list[str]:
    """One line each."""
    misses: list[str] = []
    fractions: list[float] = []
    for r in rows:
        if r.status != "ok":
            misses.append(f"{r.name}: {r.status}")
        if r.ours is None:
            continue
        if r.name == TINY_CASE:
            if empty is not None and r.ours > empty + ABOVE_EMPTY_US:
                misses.append(f"{r.name}: {r.ours:.2f} us, at most {empty + ABOVE_EMPTY_US:.2f}")
        elif r.fraction is not None:
            fractions.append(r.fraction)
            floor = FLOORS.get(r.name, FLOOR)
            if r.fraction < floor:
                misses.append(f"{r.name}: {r.fraction:.3f} of the copy, at least {floor}")
        peer = r.best_peer
        if peer is not None and peer[1] < AGAINST_PEER * r.ours:
            misses.append(f"{r.name}: {peer[1] / r.ours:.2f} times as fast as {peer[0]}, at least {AGAINST_PEER}")
    mean = geomean(fractions)
    if mean is not None and mean < GEOMEAN:
        misses.append(f"geometric mean {mean:.3f} of the copy, at least {GEOMEAN}")
    return misses
