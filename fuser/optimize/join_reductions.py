"""Reduce once what is reduced in steps with nothing between them.

Before: t1 = sum(t0[n, k, m], [1]); t2 = sum(t1, [0])
After:  t2 = sum(t0, [0, 1])

Sums that are scaled by a number between, as means are, are scaled behind both:

Before: t1 = sum(t0[n, k, m], [2]); t2 = div(t1, c3); t4 = sum(t2, [1])
After:  t5 = sum(t0, [1, 2]); t4 = div(t5, c3)

Kernels would store and read `t1`. Steps that another reduction needs (`nest_reductions`) stay, and those whose results are
rounded between. A sum that is scaled behind is rounded once where each of its terms was. It is an infinity where the sum of
what is not scaled is larger than any number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count

from fuser.ir.fusion.fusion import (
    Expr,
    ExtentOp,
    Fusion,
    IterDomain,
    IterKind,
    Pointwise,
    Reduction,
    Tensor,
    TensorExpr,
    next_number,
    tensor_inputs,
)
from fuser.ir.ops.op_table import compute_dtype
from fuser.optimize.nest_reductions import nest_reductions
from fuser.optimize.remove_dead_code import remove_dead_code
from fuser.optimize.replace_exprs import replace_exprs


def join_reductions(fusion: Fusion) -> Fusion:
    """The same outputs, with one reduction in place of two of the same kind, the second of what the first one leaves."""
    read = [*fusion.output_tensors, *(t for e in fusion.tensor_exprs for t in tensor_inputs(e))]
    readers = Counter(t.name for t in read)
    replaced: dict[Tensor, Tensor] = {}
    first: dict[Tensor, Reduction] = {}
    scaled: dict[Tensor, Pointwise] = {}
    numbers = count(next_number(fusion))

    def joined_with_first(_: TensorExpr, made: TensorExpr) -> Iterator[Expr]:
        if isinstance(made, Pointwise) and _is_scaled_sum(made, first) and readers[_source(made).name] == 1:
            scaled[made.output] = made
        if isinstance(made, Reduction):
            scale = scaled.get(made.input)
            inner = first.get(made.input if scale is None else _source(scale))
            if inner is not None and _is_one(inner, made) and readers[made.input.name] == 1:
                output = _joined(inner, made)
                if scale is not None:
                    output = replace(output, name=f"t{next(numbers)}")
                first[output] = Reduction(made.op, inner.input, output)
                yield first[output]
                replaced[made.output] = output
                if scale is not None:
                    replaced[made.output] = _like_result(made.output, output)
                    inputs = tuple(output if v is inner.output else v for v in scale.inputs)
                    yield replace(scale, inputs=inputs, output=replaced[made.output])
                return
            first[made.output] = made
        yield made

    changed = replace_exprs(fusion, replaced, joined_with_first)
    if not replaced:
        return fusion
    joined = remove_dead_code(_asking_inputs(changed))
    return joined if nest_reductions(joined) is joined else fusion


def _is_one(inner: Reduction, outer: Reduction) -> bool:
    dtype = inner.output.dtype
    return inner.op == outer.op and dtype is outer.output.dtype and compute_dtype(dtype) is dtype


def _asking_inputs(fusion: Fusion) -> Fusion:
    """The same, where extents of inputs are asked for, not those of what is computed: nothing is for the sake of its size."""
    places = {d.extent: (t, i) for t in fusion.input_tensors for i, d in enumerate(t.visible) if not d.is_broadcast}

    def asked(expr: Expr) -> Expr:
        if not isinstance(expr, ExtentOp) or expr.tensor in fusion.input_tensors:
            return expr
        return ExtentOp(*places.get(expr.tensor.visible[expr.dim].extent, (expr.tensor, expr.dim)), expr.output)

    return replace(fusion, exprs=tuple(map(asked, fusion.exprs)))


def _source(scale: Pointwise) -> Tensor:
    return next(v for v in scale.inputs if isinstance(v, Tensor))


def _is_scaled_sum(expr: Pointwise, sums: Mapping[Tensor, Reduction]) -> bool:
    """Whether an op multiplies a sum by a number, or divides it by one."""
    tensors = [v for v in expr.inputs if isinstance(v, Tensor)]
    if expr.op not in ("mul", "truediv", "near_truediv") or len(tensors) != 1:
        return False
    if expr.op != "mul" and expr.inputs[0] is not tensors[0]:
        return False
    made = sums.get(tensors[0])
    return (
        made is not None
        and made.op == "sum"
        and expr.output.dtype is made.output.dtype
        and made.output.dtype.is_floating
    )


def _like_result(result: Tensor, source: Tensor) -> Tensor:
    """The result of an op on elements of `source`, in the place of `result`."""
    dims = [d for d in source.logical if not d.is_reduction]
    logical = tuple(IterDomain(f"{result.name}.{i}", d.extent, d.kind, d.expanded) for i, d in enumerate(dims))
    return replace(result, logical=logical)


def _joined(inner: Reduction, outer: Reduction) -> Tensor:
    """The result of both, with dims of its own where the first one reduces."""
    left = iter(outer.output.logical)
    name = outer.output.name
    dims = tuple(
        IterDomain(f"{name}.{inner.output.name}.{i}", d.extent, IterKind.reduction, False)
        if d.is_reduction
        else next(left)
        for i, d in enumerate(inner.output.logical)
    )
    return replace(outer.output, logical=dims)
