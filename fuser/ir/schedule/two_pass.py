"""Statistics of a row that stays on chip, by simple reductions one after another.

The moments are sums of the values and of their deviations, instead of Welford's update:

    shift = sum(x) / n;  d = x - shift;  e = sum(d) / n
    mean = shift + e;    m2 = sum(d^2) - n e^2

The corrected two-pass algorithm (Chan, Golub, LeVeque: Algorithms for computing the sample variance, 1983): `e` is what the
rounding of the first sum left over. Welford's update needs a division per element and carries a chain of dependent steps; a
row that is held in registers can be summed twice for less, and more accurately. A row with infinities keeps `shift` as mean.

The sum of exponentials below a maximum is that again: the maximum first, then exponentials that serve other uses too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuser.errors import SchedulingError
from fuser.ir.fusion.fusion import (
    Broadcast,
    ExpSum,
    Full,
    IterDomain,
    IterKind,
    Pointwise,
    Reduction,
    Scalar,
    Tensor,
    TensorExpr,
    Val,
    Welford,
    row_major_order,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.integers.integers import ONE, Int, const
from fuser.ir.ops.approximate_ops import EXP_OF_NEGATIVE
from fuser.ir.ops.dtypes import DataType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuser.ir.schedule.scheduled_fusion import ScheduledFusion


def two_pass_welford(builder: ScheduledFusion, name: str) -> None:
    """Replace the Welford expr that defines `name`; the names of its results stay.

    Raises SchedulingError for a tensor that no Welford expr of full-size data defines, that is already scheduled, or of a
    complex dtype (whose m2 is of the real part type).
    """
    expr = builder.definition(name)
    if not isinstance(expr, Welford) or expr.partial is not None:
        raise SchedulingError(f"cannot compute {name} in two passes: it is not the result of a Welford reduction")
    if expr.input.dtype.is_complex:
        raise SchedulingError(f"cannot compute {name} in two passes: {expr.input.dtype.name} is complex")
    _check_unscheduled(builder, name, (expr.mean, expr.m2, expr.count))
    x = expr.input
    count: Int = ONE
    for d in expr.mean.logical:
        if d.is_reduction:
            count = count * d.extent
    made: list[TensorExpr] = []

    def tensor(
        suffix: str, dims: Sequence[IterDomain], kinds: Sequence[IterKind] | None = None, dtype: DataType | None = None
    ) -> Tensor:
        label = builder.new_name(expr.mean.name, suffix)
        logical = tuple(
            IterDomain(f"{label}.{i}", d.extent, d.kind if kinds is None else kinds[i], d.expanded)
            for i, d in enumerate(dims)
        )
        visible = [d for d in logical if not d.is_reduction]
        dense = tuple(None if d.is_broadcast or d.expanded else True for d in visible)
        return Tensor(
            label, dtype or expr.mean.dtype, logical, row_major_order(len(visible)), dense, location=expr.mean.location
        )

    kinds = [d.kind for d in expr.mean.logical]
    divisor = Scalar(builder.new_name(expr.mean.name, "count"), expr.mean.dtype, None, count, expr.mean.location)

    def reduced(suffix: str, of: Tensor) -> Tensor:
        result = tensor(suffix, of.visible, kinds)
        made.append(Reduction("sum", of, result))
        return result

    def pointwise(suffix: str, op: str, *inputs: Val, like: Tensor | None = None, boolean: bool = False) -> Tensor:
        source = like if like is not None else next(v for v in inputs if isinstance(v, Tensor))
        result = tensor(suffix, source.visible, dtype=DataType.Bool if boolean else None)
        made.append(Pointwise(op, inputs, result))
        return result

    shift = pointwise("shift", "div", reduced("sum", x), divisor)
    flags = tuple(kind is IterKind.reduction for kind in kinds)
    wide = [
        d if kind is not IterKind.reduction else IterDomain(f"{d.name}.1", const(1), IterKind.broadcast)
        for d, kind in zip(x.visible, kinds, strict=True)
    ]

    def spread(suffix: str, row: Tensor) -> Tensor:
        result = tensor(suffix, wide)
        made.append(Broadcast(row, result, flags))
        return result

    deviation = pointwise("deviation", "sub", x, spread("wide", shift))
    left = reduced("left", deviation)
    squares = reduced("squares", pointwise("square", "mul", deviation, deviation))
    mean, m2 = _kept(expr.mean), _kept(expr.m2)
    rest = pointwise("rest", "div", left, divisor)
    product = pointwise("product", "mul", left, rest)
    moved = pointwise("moved", "add", shift, rest)
    finite = pointwise("finite", "isfinite", rest, boolean=True)
    made.append(Pointwise("where", (finite, moved, shift), mean))
    made.append(Pointwise("sub", (squares, product), m2))
    replaced = {expr.mean: mean, expr.m2: m2}
    if any(expr.count in tensor_inputs(e) for e in builder.exprs) or expr.count.name in builder.output_names:
        number = _kept(expr.count)
        replaced[expr.count] = number
        made.append(Full(Scalar(f"{number.name}_value", DataType.Int, None, count, expr.mean.location), number))
    builder.replace_expr(expr, made, replaced)
    # Where only the mean is read there are no squares: what nothing reads is computed in no loop, and is in no place.
    for name in [e.output.name for e in reversed(builder.exprs) if isinstance(e, (Broadcast, Pointwise, Reduction))]:
        unused = builder.definition(name)
        if unused is not None and name not in builder.output_names and not builder.uses(name):
            builder.replace_expr(unused, [], {})


def two_pass_exp_sum(builder: ScheduledFusion, name: str) -> None:
    """Replace the ExpSum expr that defines `name` by a maximum and a sum; the names of its results stay.

    Exponentials that are there already, for other uses, are those that are summed. Raises SchedulingError for a tensor that no
    ExpSum expr of full-size data defines, or that is already scheduled.
    """
    expr = builder.definition(name)
    if not isinstance(expr, ExpSum) or expr.partial is not None:
        raise SchedulingError(f"cannot compute {name} in two passes: it is not the result of a sum of exponentials")
    _check_unscheduled(builder, name, (expr.largest, expr.total))
    x, largest, kinds = expr.input, expr.largest, tuple(d.is_reduction for d in expr.largest.logical)
    powers = _powers_below(builder, expr)
    if powers:
        builder.exprs = [e for e in builder.exprs if e not in powers]
    else:

        def tensor(suffix: str, dims: Sequence[IterDomain]) -> Tensor:
            label = builder.new_name(expr.total.name, suffix)
            logical = tuple(IterDomain(f"{label}.{i}", d.extent, d.kind, d.expanded) for i, d in enumerate(dims))
            dense = tuple(None if d.is_broadcast or d.expanded else True for d in logical)
            return Tensor(label, x.dtype, logical, row_major_order(len(dims)), dense, location=expr.total.location)

        one = [
            IterDomain("", const(1), IterKind.broadcast) if gone else d
            for d, gone in zip(x.visible, kinds, strict=True)
        ]
        wide, below, power = tensor("wide", one), tensor("below", x.visible), tensor("power", x.visible)
        powers = [
            Broadcast(largest, wide, kinds),
            Pointwise("sub", (x, wide), below),
            Pointwise(expr.op, (below,), power),
        ]
        for t in (wide, below, power):
            builder.add_unscheduled(t)
    total = Reduction("sum", tensor_outputs(powers[-1])[0], expr.total)
    builder.replace_expr(expr, [Reduction("max", x, largest), total], {})
    at = builder.exprs.index(total)
    builder.exprs = [*builder.exprs[:at], *powers, *builder.exprs[at:]]


def _powers_below(builder: ScheduledFusion, expr: ExpSum) -> list[TensorExpr]:
    """The exprs of exp(x - largest), where something computes it already; else nothing."""
    x, kinds = expr.input, tuple(d.is_reduction for d in expr.largest.logical)
    for wide in builder.uses(expr.largest.name):
        if not (isinstance(wide, Broadcast) and wide.flags == kinds):
            continue
        for below in builder.uses(wide.output.name):
            if not (isinstance(below, Pointwise) and below.op == "sub" and below.inputs == (x, wide.output)):
                continue
            for power in builder.uses(below.output.name):
                if not (isinstance(power, Pointwise) and power.op in (expr.op, EXP_OF_NEGATIVE.name)):
                    continue
                if power.output.dtype is x.dtype:
                    return [wide, below, power]
    return []


def _check_unscheduled(builder: ScheduledFusion, name: str, tensors: Sequence[Tensor]) -> None:
    for t in tensors:
        state = builder.state(t.name)
        if state.inline_at or state.loop != list(t.logical):
            raise SchedulingError(f"cannot compute {name} in two passes: {t.name} is already scheduled")


def _kept(tensor: Tensor) -> Tensor:
    """A reduction's result without its reduced dims."""
    return Tensor(
        tensor.name,
        tensor.dtype,
        tensor.visible,
        tensor.stride_order,
        tensor.contiguity,
        None,
        tensor.is_cpu,
        tensor.location,
    )
