"""Do not round to 16 bits what already is a 16-bit number, and is read as a Float again.

Before: t2 = cast(t1, Float); t3 = neg(t2); t4 = cast(t3, BFloat16); t6 = cat([t4, t5]); t7 = cast(t6, Float)
After:  t2 = cast(t1, Float); t3 = neg(t2); t8 = cast(t5, Float); t7 = cat([t3, t8])

Here t1 and t5 are BFloat16. Signs, magnitudes, selections and extremes of 16-bit numbers are such numbers. A concatenation of
computed tensors has one after displaced reads are moved to inputs: pads stand between before.
"""

from __future__ import annotations

from fuser.ir.fusion.fusion import (
    Cat,
    Expr,
    Fusion,
    IterDomain,
    Pointwise,
    Scalar,
    Tensor,
    Val,
    expr_inputs,
    expr_outputs,
    next_number,
)
from fuser.ir.ops.dtypes import DataType
from fuser.optimize.remove_dead_code import remove_dead_code

_NARROW = (DataType.BFloat16, DataType.Half)
_KEEPING = frozenset(("neg", "abs", "relu", "maximum", "minimum", "set"))


def drop_exact_roundings(fusion: Fusion) -> Fusion:
    """The same values, with casts to 16 bits and back left out where neither changes anything."""
    found = _Roundings(fusion)
    replaced: dict[Expr, tuple[Expr, ...]] = {}
    for expr in fusion.exprs:
        narrow = _cast_operand(expr, DataType.Float)
        if narrow is not None and narrow.dtype in _NARROW:
            made = found.widened(narrow, expr_outputs(expr)[0])
            if made is not None:
                replaced[expr] = made
    if not replaced:
        return fusion
    exprs = tuple(new for e in fusion.exprs for new in replaced.get(e, (e,)))
    return remove_dead_code(Fusion(fusion.inputs, exprs, fusion.outputs, fusion.constraints, fusion.extent_scalars))


class _Roundings:
    """What is known of the 16-bit tensors of a fusion."""

    def __init__(self, fusion: Fusion) -> None:
        self.definitions = fusion.definitions
        self.outputs = set(fusion.output_tensors)
        self.uses: dict[Val, int] = {}
        for expr in fusion.exprs:
            for value in expr_inputs(expr):
                self.uses[value] = self.uses.get(value, 0) + 1
        self.narrow = _narrow_numbers(fusion)
        self.next_number = next_number(fusion)

    def widened(self, narrow: Tensor, result: Val) -> tuple[Expr, ...] | None:
        """Exprs that make `result`, `narrow` as Floats, without the roundings; None where there are none to leave out.

        What is also an output or has other uses is made anyway.
        """
        if narrow in self.outputs or self.uses[narrow] > 1 or not isinstance(result, Tensor):
            return None
        source = self._unrounded(narrow)
        if source is not None:
            return (Pointwise("set", (source,), result),)
        whole = self.definitions.get(narrow)
        if not isinstance(whole, Cat):
            return None
        sources = [self._unrounded(t) for t in whole.inputs]
        if not any(sources):
            return None
        made: list[Expr] = []
        parts: list[Tensor] = []
        for part, known in zip(whole.inputs, sources, strict=True):
            if known is None:
                known = self._float_like(part)
                made.append(Pointwise("cast", (part,), known))
            parts.append(known)
        return (*made, Cat(tuple(parts), result, whole.dim, whole.bounds))

    def _unrounded(self, narrow: Tensor) -> Tensor | None:
        """The Float that a 16-bit tensor is without a loss."""
        expr = self.definitions.get(narrow)
        source = None if expr is None else _cast_operand(expr, narrow.dtype)
        return source if source is not None and self.narrow.get(source) is narrow.dtype else None

    def _float_like(self, tensor: Tensor) -> Tensor:
        name = f"t{self.next_number}"
        self.next_number += 1
        dims = tuple(IterDomain(f"{name}_d{k}", d.extent, d.kind, d.expanded) for k, d in enumerate(tensor.visible))
        return Tensor(name, DataType.Float, dims, tensor.stride_order, tensor.contiguity, None, False, tensor.location)


def _cast_operand(expr: Expr, dtype: DataType) -> Tensor | None:
    """The tensor that an expr casts to `dtype`."""
    if not (isinstance(expr, Pointwise) and expr.op == "cast" and expr.output.dtype is dtype):
        return None
    (operand,) = expr.inputs
    return operand if isinstance(operand, Tensor) else None


def _narrow_numbers(fusion: Fusion) -> dict[Val, DataType]:
    """Floats whose elements are numbers of a 16-bit type, and that type."""
    found: dict[Val, DataType] = {}
    for expr in fusion.exprs:
        if not (isinstance(expr, Pointwise) and expr.output.dtype is DataType.Float):
            continue
        if expr.op == "cast":
            kinds = {v.dtype for v in expr.inputs}
        elif expr.op == "where" or expr.op in _KEEPING:
            operands = expr.inputs[1:] if expr.op == "where" else expr.inputs
            # Zero is a number of either type.
            kinds = {found.get(v) for v in operands if not (isinstance(v, Scalar) and v.value == 0)}
        else:
            continue
        kind = kinds.pop() if len(kinds) == 1 else None
        if kind is not None and kind in _NARROW:
            found[expr.output] = kind
    return found
