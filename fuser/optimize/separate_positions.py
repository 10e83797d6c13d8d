"""Make positions anew for each set of dims that they stand along.

Before: t1 = iota(n); t2 = broadcast(t1, [False, True]); t3 = broadcast(t1, [True, False]); t4 = ge(t2, t3)
After:  t1 = iota(n); t5 = iota(n); t2 = broadcast(t1, [False, True]); t3 = broadcast(t5, [True, False]); t4 = ge(t2, t3)

The rows and the columns of a square would be one dim, which no kernel has twice: `t1` would be a kernel of its own. What is
computed of no tensor costs a few instructions, and nothing to read. Where the dims meet behind other exprs, each of these has
positions of its own.

Before: t2 = broadcast(t1, [True, False]); t5 = ge(t2, t3[n, 1]); t6 = ge(t2, t4[n, 1]), of which t5 is broadcast along rows
        and t6 along columns of the same images
After:  t6 reads t2 and t1 made anew

Stands before the passes that ask which dims are one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from fuser.ir.fusion.fusion import (
    Broadcast,
    Cat,
    Expr,
    ExtentOp,
    Full,
    Fusion,
    Iota,
    IterDomain,
    Permute,
    Pointwise,
    Resize,
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
        # The exprs so far of tensors that are computed of no tensor but such as have a single element.
        self.positions: dict[Tensor, TensorExpr] = {}
        self.single = {t for t in fusion.input_tensors if all(d.is_broadcast for d in t.visible)}
        graph = fusion.resolved_dims
        self.group = graph.group
        self.twice = {g for t in fusion.tensors for g, n in Counter(map(graph.group, t.visible)).items() if n > 1}
        # Positions along such dims that an expr reads which is none.
        self.read: set[Tensor] = set()

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
            self._append(self._with_own_positions(expr))
        is_same = len(self.exprs) == len(self.fusion.exprs)
        return self.fusion if is_same else replace(self.fusion, exprs=tuple(self.exprs))

    def _with_own_positions(self, expr: Expr) -> Expr:
        """An expr of other tensors, too, with positions along dims that meet themselves which no other one reads."""
        if not self.twice or isinstance(expr, (ScalarOp, ExtentOp)) or self._is_position(expr):
            return expr
        own: dict[Tensor, Tensor] = {}
        for t in tensor_inputs(expr):
            chain = self._chain(t) if t in self.positions else ()
            if any(self.group(d) in self.twice for s in chain for d in s.visible):
                if not self.read.isdisjoint(chain):
                    own[t] = self._again(t, {})
                self.read.update(chain)
        return map_expr(expr, own) if own else expr

    def _chain(self, t: Tensor) -> set[Tensor]:
        """A position and all that it is computed of."""
        found, left = {t}, [t]
        while left:
            new = set(tensor_inputs(self.positions[left.pop()])) - found
            found |= new
            left.extend(new - self.single)
        return found

    def _append(self, expr: Expr) -> None:
        self.exprs.append(expr)
        if isinstance(expr, (ScalarOp, ExtentOp)):
            return
        if self._is_position(expr):
            self.positions |= dict.fromkeys(tensor_outputs(expr), expr)

    def _is_position(self, expr: TensorExpr) -> bool:
        is_cheap = isinstance(expr, (Iota, Full, Pointwise, Broadcast, Squeeze, Permute, Resize, Cat))
        is_end = isinstance(expr, Pointwise) and expr.op == "segment_set"
        return is_cheap and not is_end and self.positions.keys() >= set(tensor_inputs(expr)) - self.single

    def _again(self, t: Tensor, done: dict[Tensor, Tensor]) -> Tensor:
        """Another tensor of the same values."""
        if t not in done:
            expr = self.positions[t]
            operands = {s: self._again(s, done) for s in tensor_inputs(expr) if s not in self.single}
            name = f"t{self.number}"
            self.number += 1
            dims = tuple(IterDomain(f"{name}.{i}", d.extent, d.kind, d.expanded) for i, d in enumerate(t.logical))
            done[t] = replace(t, name=name, logical=dims)
            self._append(map_expr(expr, {**operands, t: done[t]}))
        return done[t]
