"""Make positions anew for each set of dims that they stand along.

Before: t1 = iota(n); t2 = broadcast(t1, [False, True]); t3 = broadcast(t1, [True, False]); t4 = ge(t2, t3)
After:  t1 = iota(n); t5 = iota(n); t2 = broadcast(t1, [False, True]); t3 = broadcast(t5, [True, False]); t4 = ge(t2, t3)

The rows and the columns of a square would be one dim, which no kernel has twice: `t1` would be a kernel of its own. What is
computed of no tensor costs a few instructions, and nothing to read.

Stands before the passes that ask which dims are one.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.ir.fusion.fusion import (
    Broadcast,
    Expr,
    ExtentOp,
    Full,
    Fusion,
    Iota,
    IterDomain,
    Permute,
    Pointwise,
    ScalarOp,
    Squeeze,
    Tensor,
    TensorExpr,
    map_expr,
    next_number,
    tensor_inputs,
    tensor_outputs,
)


def separate_positions(fusion: Fusion) -> Fusion:
    """The same outputs, with a chain of exprs for each way in which a value computed of no tensor is broadcast."""
    return _Separate(fusion).run()


class _Separate:
    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self.number = next_number(fusion)
        self.exprs: list[Expr] = []
        # The exprs so far of tensors that are computed of no tensor.
        self.positions: dict[Tensor, TensorExpr] = {}

    def run(self) -> Fusion:
        ways: dict[Tensor, tuple[bool, ...]] = {}
        made: dict[tuple[Tensor, tuple[bool, ...]], Tensor] = {}
        for e in self.fusion.exprs:
            expr = e
            if isinstance(e, Broadcast) and e.input in self.positions and ways.setdefault(e.input, e.flags) != e.flags:
                key = e.input, e.flags
                if key not in made:
                    made[key] = self._again(e.input, {})
                expr = map_expr(e, {e.input: made[key]})
            self._append(expr)
        return replace(self.fusion, exprs=tuple(self.exprs)) if made else self.fusion

    def _append(self, expr: Expr) -> None:
        self.exprs.append(expr)
        if isinstance(expr, (ScalarOp, ExtentOp)):
            return
        is_cheap = isinstance(expr, (Iota, Full, Pointwise, Broadcast, Squeeze, Permute))
        is_cheap = is_cheap and not (isinstance(expr, Pointwise) and expr.op == "segment_set")
        if is_cheap and self.positions.keys() >= set(tensor_inputs(expr)):
            self.positions |= dict.fromkeys(tensor_outputs(expr), expr)

    def _again(self, t: Tensor, done: dict[Tensor, Tensor]) -> Tensor:
        """Another tensor of the same values."""
        if t not in done:
            expr = self.positions[t]
            operands = {s: self._again(s, done) for s in tensor_inputs(expr)}
            name = f"t{self.number}"
            self.number += 1
            dims = tuple(IterDomain(f"{name}.{i}", d.extent, d.kind, d.expanded) for i, d in enumerate(t.logical))
            done[t] = replace(t, name=name, logical=dims)
            self._append(map_expr(expr, {**operands, t: done[t]}))
        return done[t]
