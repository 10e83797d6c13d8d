"""Times of other systems as they were recorded once, scaled to the GPU at hand.

    recorded/peers_h200.json
        device    where the figures are from
        copies    [[bytes read plus written, microseconds], ...] of the best plain copy there
        cases     case name -> peer -> microseconds

A figure is scaled by (our copy of the same bytes now) / (the recorded copy, interpolated): a GPU that is slower today,
or another one, is held against what the peer would take on it.
"""

from __future__ import annotations

import bisect
import json
from dataclasses import dataclass
from pathlib import Path

RECORDED = Path(__file__).resolve().parent / "recorded" / "peers_h200.json"


@dataclass(frozen=True, slots=True)
class RecordedPeers:
    """See the module."""

    device: str
    copies: tuple[tuple[float, float], ...]
    cases: dict[str, dict[str, float]]

    @staticmethod
    def load(path: Path = RECORDED) -> RecordedPeers:
        found = json.loads(path.read_text(encoding="utf-8"))
        copies = tuple((float(n), float(us)) for n, us in found["copies"])
        return RecordedPeers(found["device"], copies, found["cases"])

    def copy_time(self, nbytes: int) -> float:
        """Microseconds of the recorded copy: a latency plus bytes at a rate, between and beyond the recorded sizes."""
        sizes = [n for n, _ in self.copies]
        k = min(max(bisect.bisect_right(sizes, nbytes), 1), len(sizes) - 1)
        (n0, t0), (n1, t1) = self.copies[k - 1], self.copies[k]
        return t0 + (nbytes - n0) * (t1 - t0) / (n1 - n0)

    def scaled(self, case: str, nbytes: int, copy_now: float) -> dict[str, float]:
        """Peer -> microseconds here, for a case whose bytes our copy moves in `copy_now` microseconds."""
        factor = copy_now / self.copy_time(nbytes)
        return {peer: us * factor for peer, us in self.cases.get(case, {}).items()}
