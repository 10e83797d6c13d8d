"""The rules of fusion IR for dims that meet: the layer below the rules of exprs (`verify_fusion_exprs`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fuser.ir.fusion.dim_pairs import dim_pairs, displaced_dims
from fuser.ir.fusion.fusion import (
    COPIES,
    Broadcast,
    Expand,
    Gather,
    IterDomain,
    IterKind,
    Permute,
    Pointwise,
    Reducing,
    Reshape,
    Resize,
    Squeeze,
    Tensor,
    Val,
)
from fuser.ir.integers.integers import ONE, Int
from fuser.ir.ops.approximate_ops import ROUND_TO_BFLOAT16
from fuser.source_location import SourceLocation

_COPIES = COPIES | {"cast", ROUND_TO_BFLOAT16.name}


class DimRules:
    """What was found so far, and which extents are equal."""

    def __init__(self) -> None:
        self.findings: list[str] = []
        self.location: SourceLocation | None = None
        # Extents that constraints make equal, by representative.
        self.equal: dict[Int, Int] = {}

    def _find(self, message: str, value: Val | None = None) -> None:
        self.findings.append(message)
        if self.location is None and value is not None:
            self.location = value.location

    def _same(self, extent: Int) -> Int:
        found = self.equal.get(extent, extent)
        while found is not extent:
            extent = found
            found = self.equal.get(extent, extent)
        return extent

    def _ranks(self, output: Tensor, fits: bool, what: str) -> bool:
        if not fits:
            self._find(f"{output.name}: {what} do not fit the ranks", output)
        return fits

    def _pairs(
        self,
        expr: Broadcast | Squeeze | Expand | Permute | Reshape | Resize | Gather,
        source: Tensor,
        output: Tensor,
        fit: Callable[[IterDomain, IterDomain], bool],
    ) -> None:
        for a, b in dim_pairs(expr, source, output):
            if not fit(a, b) or not (a.is_broadcast or self._same(a.extent) is self._same(b.extent)):
                self._find(f"{output.name}: dim {a!r} of {source.name} cannot become {b!r}", output)

    def _displaced(self, expr: Resize | Gather, source: Tensor, output: Tensor) -> None:
        for a, b in displaced_dims(expr, source, output):
            if b is not None and b.is_broadcast is not (b.extent is ONE):
                self._find(f"{output.name}: dim {a!r} of {source.name} cannot become {b!r}", output)

    def _joined_dims(self, sources: Sequence[Tensor], output: Tensor, dims: Sequence[int] | None = None) -> None:
        """Dims that follow from operands as those of a pointwise op do."""
        for i in range(output.ndim) if dims is None else dims:
            b = output.visible[i]
            known = [t.visible[i] for t in sources if t.ndim == output.ndim]
            concrete = [a for a in known if not a.is_broadcast]
            fits = all(self._same(a.extent) is self._same(b.extent) for a in concrete)
            if len(known) != len(sources) or not fits or b.expanded or b.is_broadcast is bool(concrete):
                self._find(f"{output.name}: dim {b!r} does not follow from {known}", output)

    def _pointwise_dims(self, expr: Pointwise, output: Tensor) -> None:
        joined = [False] * len(output.logical)
        copies = expr.op in _COPIES
        any_tensor = False
        for source in expr.inputs:
            if not isinstance(source, Tensor):
                continue
            any_tensor = True
            visible = source.visible
            if len(visible) != len(joined):
                self._find(f"{output.name}: {source.name} of rank {len(visible)} meets rank {len(joined)}", output)
                return
            for i, (a, b) in enumerate(zip(visible, output.logical, strict=True)):
                if a.kind is IterKind.broadcast:
                    if not copies or b.kind is IterKind.broadcast:
                        continue
                elif b.kind is not IterKind.broadcast:
                    joined[i] = True
                    same = a.extent is b.extent or self._same(a.extent) is self._same(b.extent)
                    if same and (not copies or a.expanded is b.expanded):
                        continue
                self._find(f"{output.name}: dim {a!r} of {source.name} cannot meet {b!r}", output)
        if not any_tensor:
            self._find(f"{output.name}: {expr.op} has no tensor operand", output)
        if not copies:
            for d, concrete in zip(output.logical, joined, strict=True):
                if d.expanded or (d.kind is IterKind.broadcast) is concrete:
                    self._find(f"{output.name}: dim {d!r} does not follow from the operands", output)

    def _reduced(self, expr: Reducing, source: Tensor, output: Tensor) -> None:
        if source.ndim != len(output.logical):
            self._find(
                f"{output.name}: rank {source.ndim} of {source.name} does not meet {len(output.logical)}", output
            )
            return
        for a, b in dim_pairs(expr, source, output):
            if b.is_reduction and a.is_broadcast:
                self._find(f"{output.name}: the broadcast dim {a.name} of {source.name} is reduced, squeeze it", output)
            elif a.is_broadcast is not b.is_broadcast or self._same(a.extent) is not self._same(b.extent):
                self._find(f"{output.name}: dim {a!r} of {source.name} cannot become {b!r}", output)
