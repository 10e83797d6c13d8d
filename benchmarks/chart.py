"""Results as an SVG: a bar per case for the fraction of a copy's speed, a mark for the best peer. Text only, no library."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from benchmarks.results_table import FLOOR, FLOORS, Row

_LABEL, _BARS, _NOTE = 290, 520, 150
_LINE, _TOP = 18, 64
_FULL = 1.1
"""The fraction at the right end of the bars."""


def bar_chart(rows: Sequence[Row], title: str, note: str) -> str:
    """The SVG text. Rows without a time show their status in place of a bar."""
    width, height = _LABEL + _BARS + _NOTE, _TOP + _LINE * len(rows) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="10" y="20" font-size="14">{escape(title)}</text>',
        f'<text x="10" y="36" fill="#555">{escape(note)}</text>',
    ]
    bottom = _TOP + _LINE * len(rows)
    for tenth in range(0, 12, 2):
        x = _position(tenth / 10)
        parts.append(f'<line x1="{x}" y1="{_TOP - 6}" x2="{x}" y2="{bottom}" stroke="#ddd"/>')
        parts.append(f'<text x="{x}" y="{_TOP - 10}" text-anchor="middle" fill="#555">{tenth / 10:g}</text>')
    for k, row in enumerate(rows):
        parts += _bar(row, _TOP + k * _LINE)
    parts.append(
        f'<text x="{_LABEL}" y="{bottom + 18}" fill="#555">bars: fraction of the speed of a plain copy of the same bytes; '
        "line: the best peer; * a recorded peer</text>"
    )
    return "\n".join([*parts, "</svg>", ""])


def _position(fraction: float) -> float:
    return round(_LABEL + _BARS * min(fraction, _FULL) / _FULL, 1)


def _bar(row: Row, y: int) -> list[str]:
    middle = y + 11
    parts = [f'<text x="{_LABEL - 8}" y="{middle}" text-anchor="end">{escape(row.name)}</text>']
    fraction, peer = row.fraction, row.best_peer
    if fraction is None or row.copy is None:
        return [*parts, f'<text x="{_LABEL + 4}" y="{middle}" fill="#a33">{escape(row.status)}</text>']
    right = row.status == "ok" and fraction >= FLOORS.get(row.name, FLOOR)
    colour = "#4878a8" if right else "#c8964b" if row.status == "ok" else "#b04040"
    length = round(_position(fraction) - _LABEL, 1)
    parts.append(f'<rect x="{_LABEL}" y="{y + 2}" width="{length}" height="{_LINE - 5}" fill="{colour}"/>')
    text = f"{fraction:.2f}"
    if peer is not None:
        x = _position(row.copy / peer[1])
        parts.append(f'<line x1="{x}" y1="{y + 1}" x2="{x}" y2="{y + _LINE - 2}" stroke="black" stroke-width="2"/>')
        text += f", {peer[0]} {row.copy / peer[1]:.2f}"
    return [*parts, f'<text x="{_LABEL + _BARS + 8}" y="{middle}">{escape(text)}</text>']
