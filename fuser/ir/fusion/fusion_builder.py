"""`FusionBuilder`: makes the exprs of a fusion one by one, inferring dims, and freezes it.

It is layers, each a class over the one below: exprs that reduce or scan and outputs (here), what moves elements
(`fusion_views.py`), values, factories and pointwise exprs (`fusion_values.py`).

The builder knows shapes, not dtypes rules: the frontend decides result dtypes and inserts casts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fuser.errors import DefinitionRuntimeError
from fuser.ir.fusion.fusion import (
    ExpSum,
    ExtentConstraint,
    Fusion,
    IterKind,
    Output,
    Random,
    Reduction,
    Scalar,
    Scan,
    Tensor,
    Val,
    Welford,
    expr_extents,
    expr_inputs,
    expr_outputs,
    extent_operands,
    next_number,
)
from fuser.ir.fusion.fusion_views import ViewBuilder
from fuser.ir.fusion.live_order import exprs_below
from fuser.ir.ops.dtypes import DataType


class FusionBuilder(ViewBuilder):
    """Collects inputs, exprs and outputs. Not thread safe: one builder belongs to one definition."""

    @classmethod
    def of_concrete(cls, fusion: Fusion) -> FusionBuilder:
        """A builder of another form of a fusion whose dims of one element are known: same inputs, and names that are free."""
        builder = cls(is_concrete=True)
        builder.inputs = list(fusion.inputs)
        builder.extent_scalars = dict(fusion.extent_scalars)
        builder.next_number = next_number(fusion)
        return builder

    def _reduced(self, tensor: Tensor, axes: Sequence[int], dtype: DataType) -> Tensor:
        dims = [(d.extent, IterKind.reduction if i in axes else d.kind, False) for i, d in enumerate(tensor.visible)]
        return self.tensor(dtype, dims)

    def reduction(self, op: str, tensor: Tensor, axes: Sequence[int], dtype: DataType) -> Tensor:
        """Reduce visible dims `axes` (non-negative, unique, none of kind broadcast: squeeze those)."""
        output = self._reduced(tensor, axes, dtype)
        self.exprs.append(Reduction(op, tensor, output))
        return output

    def welford(self, tensor: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """(mean, m2, count) over visible dims `axes`; count is Index."""
        mean, m2 = self._reduced(tensor, axes, tensor.dtype), self._reduced(tensor, axes, tensor.dtype)
        count = self._reduced(tensor, axes, DataType.Index)
        self.exprs.append(Welford(tensor, mean, m2, count))
        return mean, m2, count

    def exp_sum(self, tensor: Tensor, axes: Sequence[int], op: str = "exp") -> tuple[Tensor, Tensor]:
        """(largest, total) over visible dims `axes`."""
        largest, total = self._reduced(tensor, axes, tensor.dtype), self._reduced(tensor, axes, tensor.dtype)
        self.exprs.append(ExpSum(tensor, largest, total, op))
        return largest, total

    def scan(self, op: str, tensor: Tensor, dim: int, init: Scalar | None = None) -> Tensor:
        """A running fold along visible dim `dim` (non-negative; not of kind broadcast), from `init`."""
        output = self.tensor(tensor.dtype, [(d.extent, d.kind, False) for d in tensor.visible])
        self.exprs.append(Scan(op, tensor, init, output, dim))
        return output

    def scan_of_one(self, combine: str, tensor: Tensor, init: Scalar | None) -> Tensor:
        """What a scan along a dim of one element is: the fold of `init` and that element by the pointwise op `combine`."""
        return self.pointwise(
            "set" if init is None else combine, [tensor] if init is None else [init, tensor], tensor.dtype
        )

    def add_output(self, tensor: Tensor, alias_of: Tensor | None = None) -> None:
        """Register an output; ranks and dtypes are the frontend's business.

        Raises DefinitionRuntimeError where a static extent differs from that of the input to update.
        """
        if alias_of is not None:
            for i, (d, target) in enumerate(zip(tensor.visible, alias_of.visible, strict=True)):
                if d.extent is target.extent:
                    continue
                if d.extent.is_const and target.extent.is_const:
                    raise DefinitionRuntimeError(
                        f"Expected sizes to match in add_output: dim {i} of the output has extent {d.extent}, that of the "
                        f"input to update {target.extent}",
                        location=self.here(),
                    )
                what = f"add_output into {alias_of.name}, dim {i}"
                self.constraints.append((None, ExtentConstraint(d.extent, target.extent, what, self.here())))
        self.outputs.append(Output(tensor, alias_of))

    def freeze(self) -> Fusion:
        """The fusion built so far, less what no output needs."""
        live = self._live_positions()
        self._number_random_exprs()
        return Fusion(
            tuple(self.inputs),
            tuple(e for i, e in enumerate(self.exprs) if i in live),
            tuple(self.outputs),
            tuple(c for i, c in self.constraints if i is None or i in live),
            self._live_extent_scalars(live),
        )

    def _number_random_exprs(self) -> None:
        """Give the exprs that draw from the generator their ordinals, which depend on what the outputs are."""
        drawing = {e: i for i, e in enumerate(self.exprs) if isinstance(e, Random) and e.state is None}
        if not drawing:
            return
        definitions = {v: e for e in self.exprs for v in expr_outputs(e)}
        order = [e for e in exprs_below((o.tensor for o in self.outputs), definitions) if e in drawing]
        for ordinal, expr in enumerate(order):
            assert isinstance(expr, Random)
            if expr.ordinal != ordinal:
                self.exprs[drawing[expr]] = replace(expr, ordinal=ordinal)

    def _live_extent_scalars(self, live: set[int]) -> dict[str, str]:
        if not self.extent_scalars:
            return {}
        used = {
            s.name for i, c in self.constraints if i is None or i in live for s in (*c.left.symbols, *c.right.symbols)
        }
        for value in (v for i in live for v in expr_outputs(self.exprs[i])):
            extents = [d.extent for d in value.logical] if isinstance(value, Tensor) else [value.expression]
            used.update(s.name for e in extents if e is not None for s in e.symbols)
        used.update(s.name for i in live for e in expr_extents(self.exprs[i]) for s in e.symbols)
        return {name: scalar for name, scalar in self.extent_scalars.items() if name in used}

    def _live_positions(self) -> set[int]:
        needed: set[Val] = {o.tensor for o in self.outputs}
        # Scalars that only extents and constraints mention: a pass may have made those.
        named: set[str] = set()
        live: set[int] = set()
        bounds: dict[int | None, set[str]] = {}
        for i, c in self.constraints if self.extent_scalars else ():
            symbols = {s.name for s in (*c.left.symbols, *c.right.symbols)}
            bounds.setdefault(i, set()).update(self.extent_scalars[s] for s in symbols if s in self.extent_scalars)
        named.update(bounds.get(None, ()))
        for i in range(len(self.exprs) - 1, -1, -1):
            expr = self.exprs[i]
            outputs = expr_outputs(expr)
            if needed.isdisjoint(outputs) and named.isdisjoint(v.name for v in outputs):
                continue
            live.add(i)
            needed.update(expr_inputs(expr))
            needed.update(extent_operands(expr))
            if self.extent_scalars:
                extents = [d.extent for v in outputs if isinstance(v, Tensor) for d in v.logical]
                symbols = {s.name for e in (*extents, *expr_extents(expr)) for s in e.symbols}
                named.update(self.extent_scalars[s] for s in symbols if s in self.extent_scalars)
                named.update(bounds.get(i, ()))
        return live
