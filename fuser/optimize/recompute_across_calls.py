"""Behind a library call, what costs next to nothing is computed again instead of written before it and read behind it.

Before: t1 = cast(t0, Float); t2 = matmul(f(t1), t9); t3 = add(t2, t1)         t1 is stored in Float
After:  t1 = cast(t0, Float); t2 = matmul(f(t1), t9); t4 = cast(t0, Float); t3 = add(t2, t4)

Computed again is what makes more bytes than it reads: casts to wider types, expansions, factories, and views of such. What is
an output is there anyway.

Stands before all passes that see parts between calls by themselves: those do not see what crosses a call.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.ir.fusion.fusion import (
    Expand,
    Expr,
    Full,
    Fusion,
    Iota,
    IterDomain,
    LibraryOp,
    Pointwise,
    Tensor,
    TensorExpr,
    map_expr,
    next_number,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.library_regions import has_calls, places_of
from fuser.ir.fusion.sub_fusion import tensor_expr
from fuser.ir.fusion.views import ViewExpr


def recompute_across_calls(fusion: Fusion) -> Fusion:
    """The same results, with less that is stored between calls."""
    return _Recompute(fusion).run() if has_calls(fusion) else fusion


class _Recompute:
    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self.parts = {e: place // 2 for e, place in places_of(fusion).items()}
        self.number = next_number(fusion)
        self.shown = set(fusion.output_tensors)
        self.exprs: list[Expr] = []
        # What was computed again, by tensor and part.
        self.made: dict[tuple[Tensor, int], Tensor] = {}

    def run(self) -> Fusion:
        for e in self.fusion.exprs:
            if not isinstance(e, TensorExpr) or isinstance(e, LibraryOp):
                self.exprs.append(e)
                continue
            again = {t: self._in_part(t, self.parts[e]) for t in tensor_inputs(e)}
            changed = {t: new for t, new in again.items() if new is not t}
            self.exprs.append(map_expr(e, changed) if changed else e)
        return replace(self.fusion, exprs=tuple(self.exprs)) if self.made else self.fusion

    def _in_part(self, t: Tensor, part: int) -> Tensor:
        """A value as a part reads it: itself, or what is computed of the same."""
        maker = self.fusion.definitions.get(t)
        if not isinstance(maker, TensorExpr) or self.parts[maker] == part or not self._is_cheap(maker):
            return t
        if t in self.shown:
            return t
        found = self.made.get((t, part))
        if found is None:
            operands = {s: self._in_part(s, part) for s in tensor_inputs(maker)}
            name = f"t{self.number}"
            self.number += 1
            dims = tuple(IterDomain(f"{name}.{i}", d.extent, d.kind, d.expanded) for i, d in enumerate(t.logical))
            found = self.made[t, part] = replace(t, name=name, logical=dims)
            self.exprs.append(map_expr(maker, {**operands, t: found}))
        return found

    def _is_cheap(self, e: TensorExpr) -> bool:
        """Whether it reads less than it makes."""
        (t, *_) = tensor_outputs(e)
        if t.root is not None:
            return False
        match e:
            case Full() | Iota() | Expand():
                return True
            case Pointwise(op="cast"):
                (source,) = tensor_inputs(e)
                return source.dtype.itemsize < t.dtype.itemsize
            case _ if isinstance(e, ViewExpr):
                maker = self.fusion.definitions.get(e.input)
                return isinstance(maker, TensorExpr) and tensor_expr(maker) and self._is_cheap(maker)
            case _:
                return False
