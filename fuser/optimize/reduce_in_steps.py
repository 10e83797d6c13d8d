"""Reduce some dims first, and then the rest of what is reduced, in an expr of its own.

Before: t1 = sum(t0, [1, 2, 4])
After:  t2 = sum(t0, [1, 2]); t1 = sum(t2, [2])

    t1, t2, t3 = welford(t0, [1, 2, 4])
    ->  t4, t5, t6 = welford(t0, [1, 2]); t1 = div(sum(t4, [2]), extent of 4); t3 = sum(t6, [2])
        t7 = sub(t4, broadcast(t1)); t2 = sum(add(t5, mul(mul(t7, t7), extent of 1 * extent of 2)), [2])

The squared deviations of all elements are those within each part, and that of the part's mean from the mean of all, once
for each element of the part (Chan, Golub and LeVeque 1979); all parts have as many. What passes between the steps is of the
type that sums are held in, so that nothing is rounded to 16 bits between them.

No pass of the pipeline: whether two steps are faster depends on sizes (`schedule/cost/two_kernel_reduction.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from fuser.ir.fusion.fusion import (
    Broadcast,
    Expr,
    ExtentOp,
    Fusion,
    IterDomain,
    IterKind,
    Output,
    Pointwise,
    Reducing,
    Reduction,
    Scalar,
    ScalarOp,
    Tensor,
    Welford,
    has_steps,
    map_expr,
    next_number,
    row_major_order,
    tensor_outputs,
)
from fuser.ir.integers.integers import const
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.op_table import compute_dtype
from fuser.optimize.remove_dead_code import remove_dead_code


def reduce_in_steps(fusion: Fusion, last: Mapping[str, Collection[int]]) -> Fusion:
    """The same outputs, with some reductions in two steps.

    last    by the name of a reduction's first result: the reduced dims of its operand that the second step is over. Exprs that
            reduce no such results stay as they are
    """
    steps = _Steps(fusion)
    exprs: list[Expr] = []
    for expr in fusion.exprs:
        moved = steps.moved(expr)
        results = tensor_outputs(moved) if isinstance(moved, Reducing) else ()
        if results and isinstance(moved, Reducing) and has_steps(moved) and results[0].name in last:
            exprs += steps.of(moved, last[results[0].name])
        else:
            exprs.append(moved)
    outputs = tuple(Output(steps.replaced.get(o.tensor, o.tensor), o.alias_of) for o in fusion.outputs)
    made = Fusion(fusion.inputs, tuple(exprs), outputs, fusion.constraints, fusion.extent_scalars)
    return remove_dead_code(made)


class _Steps:
    """Makes the exprs of both steps. `replaced`: results by what they were."""

    def __init__(self, fusion: Fusion) -> None:
        self._number = next_number(fusion)
        self.replaced: dict[Tensor, Tensor] = {}

    def moved(self, expr: Expr) -> Expr:
        """An expr of what results are now."""
        if isinstance(expr, ExtentOp):
            return ExtentOp(self.replaced.get(expr.tensor, expr.tensor), expr.dim, expr.output)
        return expr if isinstance(expr, ScalarOp) else map_expr(expr, self.replaced)

    def of(self, expr: Reducing, last: Collection[int]) -> list[Expr]:
        """The exprs in place of one; results keep their names."""
        if isinstance(expr, Reduction):
            return self._sum(expr, last)
        assert isinstance(expr, Welford)
        return self._welford(expr, last)

    def _sum(self, expr: Reduction, last: Collection[int]) -> list[Expr]:
        result = expr.output
        wide = compute_dtype(result.dtype)
        first, then = _first(result, last), _places(result, last)
        if wide is result.dtype:
            part = self._reduced(wide, expr.input, first)
            total = self._reduced(wide, part, then, result)
            self.replaced[result] = total
            return [Reduction(expr.op, expr.input, part), Reduction(expr.op, part, total)]
        source = self._tensor(wide, expr.input.visible, expr.input)
        part = self._reduced(wide, source, first)
        total = self._reduced(wide, part, then)
        rounded = self.replaced[result] = self._tensor(result.dtype, total.visible, result, result)
        return [
            Pointwise("cast", (expr.input,), source),
            Reduction(expr.op, source, part),
            Reduction(expr.op, part, total),
            Pointwise("cast", (total,), rounded),
        ]

    def _welford(self, expr: Welford, last: Collection[int]) -> list[Expr]:
        first, then = _first(expr.mean, last), _places(expr.mean, last)
        means, within, counts = (self._reduced(t.dtype, expr.input, first) for t in tensor_outputs(expr))
        dtype, visible = expr.mean.dtype, means.visible
        total = self._reduced(dtype, means, then)
        mean = self._tensor(dtype, total.visible, expr.mean, expr.mean)
        narrow = self._tensor(dtype, [_one() if i in then else d for i, d in enumerate(visible)], means)
        apart, squares, spread, parts = (self._tensor(dtype, visible, means) for _ in range(4))
        m2 = self._reduced(dtype, parts, then, expr.m2)
        count = self._reduced(expr.count.dtype, counts, then, expr.count)
        of_part, elements = self._elements(expr.input, first)
        of_all, number = self._elements(means, then)
        self.replaced |= {expr.mean: mean, expr.m2: m2, expr.count: count}
        return [
            Welford(expr.input, means, within, counts),
            *of_part,
            *of_all,
            Reduction("sum", means, total),
            Pointwise("div", (total, number), mean),
            Broadcast(mean, narrow, tuple(i in then for i in range(len(visible)))),
            Pointwise("sub", (means, narrow), apart),
            Pointwise("mul", (apart, apart), squares),
            Pointwise("mul", (squares, elements), spread),
            Pointwise("add", (within, spread), parts),
            Reduction("sum", parts, m2),
            Reduction("sum", counts, count),
        ]

    def _elements(self, tensor: Tensor, dims: Sequence[int]) -> tuple[list[Expr], Scalar]:
        """How many elements some dims have, as a number that tensors are multiplied by, with what computes it."""
        extents = [tensor.visible[d].extent for d in dims]
        product = const(1)
        for extent in extents:
            product = product * extent
        if product.is_const:
            return [], Scalar(self._name("c"), DataType.Double, float(product.value), None, tensor.location)
        exprs: list[Expr] = []
        total: Scalar | None = None
        for d, extent in zip(dims, extents, strict=True):
            size = Scalar(self._name("c"), DataType.Int, None, extent, tensor.location)
            if extent.is_const:
                size = Scalar(size.name, DataType.Int, extent.value, extent, tensor.location)
            else:
                exprs.append(ExtentOp(tensor, d, size))
            if total is not None:
                known = total.expression
                both = None if known is None else known * extent
                joined = Scalar(self._name("c"), DataType.Int, None, both, tensor.location)
                exprs.append(ScalarOp("mul", (total, size), joined))
                size = joined
            total = size
        assert total is not None
        wide = Scalar(self._name("c"), DataType.Double, None, None, tensor.location)
        return [*exprs, ScalarOp("cast", (total,), wide)], wide

    def _name(self, prefix: str) -> str:
        self._number += 1
        return f"{prefix}{self._number - 1}"

    def _reduced(self, dtype: DataType, source: Tensor, axes: Collection[int], result: Tensor | None = None) -> Tensor:
        """What reducing some dims of `source` gives; `result`: in place of that."""
        dims = [
            IterDomain("", d.extent, IterKind.reduction if i in axes else d.kind, d.expanded and i not in axes)
            for i, d in enumerate(source.visible)
        ]
        return self._tensor(dtype, dims, source, result)

    def _tensor(
        self, dtype: DataType, dims: Iterable[IterDomain], source: Tensor, result: Tensor | None = None
    ) -> Tensor:
        """A tensor with dims like these, made of `source`: a dense one, or with the name and the layout of a `result`."""
        name = self._name("t") if result is None else result.name
        new = tuple(IterDomain(f"{name}.{i}", d.extent, d.kind, d.expanded) for i, d in enumerate(dims))
        if result is not None:
            order, contiguity, location = result.stride_order, result.contiguity, result.location
        else:
            visible = [d for d in new if not d.is_reduction]
            order, location = row_major_order(len(visible)), source.location
            contiguity = tuple(None if d.is_broadcast or d.expanded else True for d in visible)
        return Tensor(name, dtype, new, order, contiguity, None, source.is_cpu, location)


def _one() -> IterDomain:
    return IterDomain("", const(1), IterKind.broadcast)


def _first(result: Tensor, last: Collection[int]) -> list[int]:
    """The reduced dims of the operand that the first step is over."""
    return [i for i, d in enumerate(result.logical) if d.is_reduction and i not in last]


def _places(result: Tensor, last: Collection[int]) -> list[int]:
    """Where the dims of the second step are among those that the first leaves."""
    kept = [i for i, d in enumerate(result.logical) if not d.is_reduction or i in last]
    return [k for k, i in enumerate(kept) if i in last]
