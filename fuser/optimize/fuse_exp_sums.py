"""Take a maximum and the sum of the exponentials below it in one pass over the data.

Before: t1 = max(t0, dims); t2 = broadcast(t1); t3 = exp(sub(t0, t2)); t4 = sum(t3, dims)
After:  t1, t4 = exp_sum(t0, dims); t2 and t3 where something else uses them

Softmax, log-softmax, the logarithm of a sum of exponentials and cross-entropy have this form. A scheduler that keeps the row on
chip may go back to two passes (`fuser.ir.schedule.two_pass`): the exponentials are then computed once.
"""

from __future__ import annotations

from fuser.ir.fusion.fusion import Broadcast, Expr, ExpSum, Fusion, Pointwise, Reduction, Tensor, Val
from fuser.ir.ops.op_table import compute_dtype
from fuser.optimize.remove_dead_code import remove_dead_code

_EXPONENTIALS = ("exp", "coarse_exp", "coarse_exp_of_negative")


def fuse_exp_sums(fusion: Fusion) -> Fusion:
    """The same outputs, with such pairs of reductions joined."""
    made: dict[Expr, ExpSum] = {}
    gone: set[Expr] = set()
    for total in fusion.tensor_exprs:
        largest = _maximum_below(total, fusion)
        if largest is None or largest in made:
            continue
        assert isinstance(total, Reduction)
        power = fusion.definitions[total.input]
        assert isinstance(power, Pointwise)
        made[largest] = ExpSum(largest.input, largest.output, total.output, power.op)
        gone.add(total)
    if not made:
        return fusion
    exprs = tuple(made.get(e, e) for e in fusion.exprs if e not in gone)
    result = Fusion(fusion.inputs, exprs, fusion.outputs, fusion.constraints, fusion.extent_scalars)
    return remove_dead_code(result)


def _maximum_below(expr: Expr, fusion: Fusion) -> Reduction | None:
    """The max(x, dims) of expr = sum(exp(x - max(x, dims)), dims), or None."""
    if not (isinstance(expr, Reduction) and expr.op == "sum"):
        return None
    power = fusion.definitions.get(expr.input)
    if not (isinstance(power, Pointwise) and power.op in _EXPONENTIALS):
        return None
    below = fusion.definitions.get(power.inputs[0])
    if not (isinstance(below, Pointwise) and below.op == "sub"):
        return None
    x, shift = below.inputs
    if not (isinstance(x, Tensor) and x.dtype.is_floating and x.dtype is compute_dtype(x.dtype)):
        return None
    if not (below.output.dtype is power.output.dtype is expr.output.dtype is x.dtype):
        return None
    wide = _definition(shift, fusion)
    largest = _definition(wide.input, fusion) if isinstance(wide, Broadcast) else None
    if not (isinstance(wide, Broadcast) and isinstance(largest, Reduction) and largest.op == "max"):
        return None
    kinds = tuple(d.is_reduction for d in largest.output.logical)
    if largest.input is not x or wide.flags != kinds or kinds != tuple(d.is_reduction for d in expr.output.logical):
        return None
    return largest


def _definition(value: Val, fusion: Fusion) -> Expr | None:
    """What computes a value, behind copies."""
    expr = fusion.definitions.get(value)
    while isinstance(expr, Pointwise) and expr.op == "set":
        expr = fusion.definitions.get(expr.inputs[0])
    return expr
