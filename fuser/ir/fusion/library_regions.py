"""Regions: the exprs between library calls, segmented and, by most passes, optimized separately (`part` in names).

    t1 = relu(t0); t2 = matmul(t1, w); t3 = add(t2, b); t4 = tanh(t0); t5 = matmul(t3, v)
    ->  [t1]   t2 = matmul   [t3]   t5 = matmul   [t4]

Nothing is fused across a call, but exprs on either side of it may be. The depth of a value is the number of calls on the
longest path below it. Exprs of one depth are a region; the calls that read it follow. An expr that only later regions read is
in the first of those, where it is computed together with what reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

from fuser.ir.fusion.fusion import (
    Expr,
    ExtentOp,
    Fusion,
    LibraryOp,
    Output,
    Random,
    Reducing,
    Scalar,
    ScalarOp,
    Scan,
    Tensor,
    TensorExpr,
    Val,
    expr_inputs,
    expr_outputs,
    extent_operands,
    map_expr,
    next_number,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.sub_fusion import bare, tensor_expr
from fuser.ir.fusion.views import ViewExpr
from fuser.ir.ops.dtypes import DataType

Part = LibraryOp | tuple[TensorExpr, ...]


def has_calls(fusion: Fusion) -> bool:
    """Whether a library computes some of a fusion."""
    return any(isinstance(e, LibraryOp) for e in fusion.exprs)


def parts_of(fusion: Fusion) -> list[Part]:
    """Calls, and what lies between them, in an order that respects their data."""
    places = places_of(fusion)
    parts: list[Part] = []
    for place in range(max(places.values(), default=-1) + 1):
        members = [e for e in fusion.tensor_exprs if places[e] == place]
        between = tuple(e for e in members if not isinstance(e, LibraryOp))
        if between:
            parts.append(between)
        parts += [e for e in members if isinstance(e, LibraryOp)]
    return parts


def places_of(fusion: Fusion) -> dict[TensorExpr, int]:
    """Of each expr a number, equal for those of one part: 2*n behind n calls one behind the other, 2*n + 1 for calls there and
    views that only those read.
    """
    depths = _depths(fusion)
    places = {e: 2 * d + isinstance(e, LibraryOp) for e, d in depths.items()}
    readers = _readers(fusion)
    shown = set(fusion.output_tensors)
    for e in reversed(fusion.tensor_exprs):
        if isinstance(e, ViewExpr) and e.output not in shown and e in readers:
            # Libraries read memory as it lies.
            places[e] += all(places[r] == places[e] + 1 for r in readers[e])
    return places


def _readers(fusion: Fusion) -> dict[TensorExpr, list[TensorExpr]]:
    """Of each expr those that read its results."""
    made = {t: e for e in fusion.tensor_exprs for t in tensor_outputs(e)}
    readers: dict[TensorExpr, list[TensorExpr]] = {}
    for e in fusion.tensor_exprs:
        for t in tensor_inputs(e):
            if t in made:
                readers.setdefault(made[t], []).append(e)
    return readers


def _depths(fusion: Fusion) -> dict[TensorExpr, int]:
    """Of each expr how many calls lie one behind the other below it, or below what first reads it."""
    made = {t: e for e in fusion.tensor_exprs for t in tensor_outputs(e)}
    depths: dict[TensorExpr, int] = {}
    for e in fusion.tensor_exprs:
        below = [made[t] for t in tensor_inputs(e) if t in made]
        depths[e] = max((depths[b] + isinstance(b, LibraryOp) for b in below), default=0)
    readers = _readers(fusion)
    shown = set(fusion.output_tensors)
    for e in reversed(fusion.tensor_exprs):
        # What is reduced is small, and better kept than what it is made of.
        if isinstance(e, (LibraryOp, Scan, *Reducing.__args__)) or not shown.isdisjoint(tensor_outputs(e)):
            continue
        depths[e] = min((depths[r] for r in readers.get(e, ())), default=depths[e])
    return depths


def rewrite_parts(fusion: Fusion, run: Callable[[Fusion], Fusion]) -> Fusion:
    """A rewrite of what lies between the calls of a fusion, each part by itself: no pass has to know what a call is.

    Operands and results of calls are outputs and inputs of parts, and so stay what they are.
    """
    if not has_calls(fusion):
        return run(fusion)
    return _Rewrite(fusion, run).result()


class _Rewrite:
    def __init__(self, fusion: Fusion, run: Callable[[Fusion], Fusion]) -> None:
        self.fusion = fusion
        self.run = run
        self.tensors: dict[Tensor, Tensor] = {}  # as they were -> as they are
        self.scalars: dict[str, Scalar] = {}
        self.exprs: list[Expr] = []
        self.constraints = list(fusion.constraints)
        self.extent_scalars = dict(fusion.extent_scalars)
        self.first_free = next_number(fusion)
        self.ordinals = {e.output.name: e.ordinal for e in fusion.exprs if isinstance(e, Random)}

    def result(self) -> Fusion:
        for part in parts_of(self.fusion):
            if isinstance(part, LibraryOp):
                self._keep(self._mapped(part))
            else:
                self._rewrite(part)
        for e in self.fusion.exprs:
            if not tensor_expr(e) and expr_outputs(e)[0].name not in self.scalars:
                self._keep(self._mapped(e))
        outputs = tuple(Output(self._now(o.tensor), o.alias_of) for o in self.fusion.outputs)
        return Fusion(
            self.fusion.inputs,
            tuple(_in_order(self.exprs)),
            outputs,
            tuple(dict.fromkeys(self.constraints)),
            self.extent_scalars,
        )

    def _rewrite(self, part: Sequence[TensorExpr]) -> None:
        fusion = self.fusion
        own = set(part)
        made = {t for e in part for t in tensor_outputs(e)}
        exprs = [self._mapped(e) for e in fusion.exprs if e in own or not tensor_expr(e)]
        now = {self._now(t) for t in made}
        read = [v for e in exprs for v in expr_inputs(e) if isinstance(v, Tensor) and v not in now]
        # What other parts make comes as an input, whatever it was made of.
        foreign = {t: bare(t) for t in dict.fromkeys(read) if t not in fusion.inputs}
        exprs = [_with_tensors(e, foreign) for e in exprs]
        needed = {t for e in fusion.tensor_exprs if e not in own for t in tensor_inputs(e)}
        inputs = set(fusion.input_tensors)
        outputs = [Output(o.tensor, o.alias_of if o.alias_of in inputs else None) for o in fusion.outputs]
        outputs = [o for o in outputs if o.tensor in made]
        listed = {o.tensor for o in outputs}
        outputs += [Output(t) for e in part for t in tensor_outputs(e) if t in needed and t not in listed]
        # An input that nothing reads: names from its number on are free.
        mark = Scalar(f"c{self.first_free}", DataType.Int)
        found = self.run(
            Fusion(
                (*fusion.inputs, *foreign.values(), mark),
                tuple(exprs),
                tuple(outputs),
                fusion.constraints,
                fusion.extent_scalars,
            )
        )
        self.first_free = max(self.first_free, next_number(found))
        back = {new: old for old, new in foreign.items()}
        for e in found.exprs:
            e = _with_tensors(e, back)
            if isinstance(e, Random) and e.state is None:
                e = replace(e, ordinal=self.ordinals.get(e.output.name, e.ordinal))
            self._keep(e)
        by_name = {o.tensor.name: o.tensor for o in found.outputs}
        self.tensors.update({t: by_name[t.name] for t in made if t.name in by_name})
        self.constraints += [c for c in found.constraints if c not in fusion.constraints]
        self.extent_scalars.update(found.extent_scalars)

    def _now(self, t: Tensor) -> Tensor:
        return self.tensors.get(t, t)

    def _mapped(self, e: Expr) -> Expr:
        return _with_tensors(e, self.tensors)

    def _keep(self, e: Expr) -> None:
        """Parts that use one scalar have each their own of its name: they become one again."""
        if isinstance(e, (ScalarOp, ExtentOp)):
            if e.output.name in self.scalars:
                return
            self.scalars[e.output.name] = e.output
        self.exprs.append(_with_scalars(e, self.scalars))


def _with_tensors(e: Expr, tensors: dict[Tensor, Tensor]) -> Expr:
    if not tensors:
        return e
    if isinstance(e, ExtentOp):
        return replace(e, tensor=tensors.get(e.tensor, e.tensor))
    return e if isinstance(e, ScalarOp) else map_expr(e, tensors)


def _with_scalars(e: Expr, scalars: dict[str, Scalar]) -> Expr:
    def get(value: Any) -> Any:
        if isinstance(value, Scalar):
            return scalars.get(value.name, value)
        return tuple(map(get, value)) if type(value) is tuple else value

    changes = {f.name: new for f in fields(e) if (new := get(old := getattr(e, f.name))) is not old and new != old}
    return replace(e, **changes) if changes else e


def _in_order(exprs: Sequence[Expr]) -> list[Expr]:
    """Exprs behind what they read, otherwise as they come."""
    made: dict[Val, Expr] = {v: e for e in exprs for v in expr_outputs(e)}
    found: dict[Expr, None] = {}
    for root in exprs:
        stack = [(root, False)]
        while stack:
            e, is_ready = stack.pop()
            if e in found:
                continue
            if is_ready:
                found[e] = None
                continue
            stack.append((e, True))
            below = [made[v] for v in (*expr_inputs(e), *extent_operands(e)) if v in made]
            stack += [(b, False) for b in reversed(below) if b not in found]
    return list(found)
