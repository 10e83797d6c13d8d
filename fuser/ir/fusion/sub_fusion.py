"""`sub_fusion`: some exprs of a fusion as a fusion of their own. `exprs_for`: which exprs some tensors take."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from fuser.ir.fusion.fusion import (
    ExtentOp,
    Fusion,
    IterDomain,
    Output,
    Scalar,
    ScalarOp,
    Tensor,
    TensorExpr,
    expr_extents,
    expr_inputs,
    extent_operands,
    map_expr,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.live_order import exprs_below
from fuser.ir.integers.integers import Symbol
from fuser.ir.ops.dtypes import DataType


def tensor_expr(expr: object) -> bool:
    """Whether an expr is computed by kernels."""
    return not isinstance(expr, (ScalarOp, ExtentOp))


def exprs_for(fusion: Fusion, wanted: Iterable[Tensor], made: Collection[Tensor] = ()) -> list[TensorExpr]:
    """Exprs that compute some tensors from inputs and from those that are made, in order.

    A tensor of which only the size is asked is not computed: its extents are known from those of others.
    """
    needed = set(wanted)
    found: list[TensorExpr] = []
    for e in reversed(fusion.tensor_exprs):
        if any(t in needed and t not in made for t in tensor_outputs(e)):
            found.append(e)
            needed.update(tensor_inputs(e))
    return found[::-1]


def sub_fusion(fusion: Fusion, exprs: Sequence[TensorExpr]) -> tuple[Fusion, tuple[Symbol, ...]]:
    """Some exprs as a fusion of their own: inputs are what they read from outside, outputs what others read of them."""
    inside = set(exprs)
    made = dict.fromkeys(t for e in exprs for t in tensor_outputs(e))
    read: dict[Tensor, None] = {}
    for e in exprs:
        for v in expr_inputs(e):
            if isinstance(v, Tensor) and v not in made:
                read[v] = None
    needed_outside = {
        v for e in fusion.tensor_exprs if e not in inside for v in expr_inputs(e) if isinstance(v, Tensor)
    }
    outputs: list[Output] = []
    for o in fusion.outputs:
        if o.tensor in made:
            outputs.append(o if o.alias_of is None or o.alias_of in read else Output(o.tensor))
    listed = {o.tensor for o in outputs}
    outputs += [Output(t) for t in made if t in needed_outside and t not in listed]
    outputs.sort(key=lambda o: _number(o.tensor.name))
    scalars = [v for v in fusion.inputs if isinstance(v, Scalar)]
    members = dict.fromkeys((*read, *made))
    scalar_exprs = _scalar_exprs(fusion, exprs, members)
    carried = {d.extent for t in read for d in t.visible if isinstance(d.extent, Symbol)}
    mentioned: set[Symbol] = {s for t in members for d in t.logical for s in d.extent.symbols}
    mentioned |= {s for e in exprs for x in expr_extents(e) for s in x.symbols}
    foreign = [e for e in scalar_exprs if isinstance(e, ExtentOp) and e.tensor not in members]
    mentioned |= {s for e in foreign for s in e.tensor.visible[e.dim].extent.symbols}
    scalar_extents = dict(fusion.extent_scalars)
    missing = sorted((s for s in mentioned if s not in carried and s.name not in scalar_extents), key=lambda s: s.name)
    extra = {s: Scalar(s.name, DataType.Int) for s in missing}
    order = {e: i for i, e in enumerate(fusion.exprs)}
    plain = {t: bare(t) for t in read if t.root is not None}
    # Extents of other segments' tensors, asked of a tensor whose own size is one of them, would need themselves.
    sized = {t for t in made if foreign and not set(foreign).isdisjoint(exprs_below((t,), fusion.definitions))}
    own = [_own_extent(e, members, [t for t in members if t not in sized], extra) for e in scalar_exprs]
    part = Fusion(
        (*(plain.get(t, t) for t in read), *scalars, *extra.values()),
        (
            *(ExtentOp(plain.get(e.tensor, e.tensor), e.dim, e.output) if isinstance(e, ExtentOp) else e for e in own),
            *(map_expr(e, plain) if plain else e for e in sorted(exprs, key=order.__getitem__)),
        ),
        tuple(outputs),
        (),
        {**scalar_extents, **{s.name: s.name for s in missing}},
    )
    return part, tuple(missing)


def bare(t: Tensor) -> Tensor:
    """A tensor that another segment made by transforming dims, as dims of its own."""
    dims = tuple(IterDomain(d.name, d.extent, d.kind, d.expanded) for d in t.visible)
    return replace(t, logical=dims, root=None)


def _scalar_exprs(
    fusion: Fusion, exprs: Sequence[TensorExpr], members: Collection[Tensor]
) -> tuple[ScalarOp | ExtentOp, ...]:
    """Host arithmetic that some exprs and the extents of their tensors need, in order."""
    symbols = {s.name for t in members for d in t.logical for s in d.extent.symbols}
    symbols |= {s.name for e in exprs for x in expr_extents(e) for s in x.symbols}
    needed: set[str] = {scalar for symbol, scalar in fusion.extent_scalars.items() if symbol in symbols}
    for e in exprs:
        needed.update(v.name for v in (*expr_inputs(e), *extent_operands(e)) if isinstance(v, Scalar))
    found: list[ScalarOp | ExtentOp] = []
    for e in reversed(fusion.exprs):
        if isinstance(e, (ScalarOp, ExtentOp)) and e.output.name in needed:
            found.append(e)
            match e:
                case ScalarOp():
                    needed.update(v.name for v in e.inputs)
                case ExtentOp() if e.tensor not in members:
                    asked = e.tensor.visible[e.dim].extent.symbols
                    needed.update(fusion.extent_scalars[s.name] for s in asked if s.name in fusion.extent_scalars)
                case _:
                    pass
    return tuple(reversed(found))


def _own_extent(
    expr: ScalarOp | ExtentOp, members: Collection[Tensor], asked: Sequence[Tensor], extra: Mapping[Symbol, Scalar]
) -> ScalarOp | ExtentOp:
    """An extent of a tensor of another segment: `asked` of a tensor of this one or of the scalar that is passed for it.

    Where none has it the tensor stays, of which nothing else is there: values of extents come from those of symbols.
    """
    if not isinstance(expr, ExtentOp) or expr.tensor in members:
        return expr
    extent = expr.tensor.visible[expr.dim].extent
    if isinstance(extent, Symbol) and extent in extra:
        return ScalarOp("cast", (extra[extent],), expr.output)
    for t in asked:
        for d, dim in enumerate(t.visible):
            if dim.extent is extent and not dim.is_broadcast:
                return ExtentOp(t, d, expr.output)
    return expr


def _number(name: str) -> int:
    digits = "".join(c for c in name if c.isdigit())
    return int(digits) if digits else 0
