"""The rules of fusion IR as code: run when a definition is complete, and after every optimize pass when asked.

What is checked
    names        every value has a name of its own
    order        every operand is an input, a constant, or the result of an expr before
    dims         no dim belongs to two tensors; only results of reshapes have root dims and transforms, which lead from these
                 to the logical dims; a broadcast dim has one element; only results of reductions have reduced dims; layouts
                 fit the rank
    meeting      operands and results of an expr have the ranks it asks for, and dims that meet (`dim_pairs`) are of one
                 extent, by structure or by a constraint
    dtypes       as the row of the op table says
    reductions   something is reduced, nothing of kind broadcast is; results of a welford or of a sum of exponentials agree
    outputs      defined tensors; an alias is an input of the same rank and dtype
    extents      every extent symbol is the size of an input or a scalar of the fusion

Three layers, each a class over the one below: dims that meet (`verify_fusion_dims`), each kind of expr (`verify_fusion_exprs`),
and here values and the order of exprs.
"""

from __future__ import annotations

from typing import NoReturn

from fuser.errors import InternalError
from fuser.ir.fusion.fusion import (
    Expr,
    Fusion,
    IterDomain,
    IterKind,
    Reducing,
    Reshape,
    Resize,
    Scalar,
    Tensor,
    Val,
    expr_extents,
    expr_inputs,
    expr_outputs,
    extent_operands,
    memory_order,
)
from fuser.ir.fusion.verify_fusion_exprs import ExprRules
from fuser.ir.integers.integers import ONE, Int, Symbol

# More than this many findings in one message help nobody.
_MOST_FINDINGS = 8


def verify_fusion(fusion: Fusion, pass_name: str = "define") -> None:
    """Raise InternalError, with every culprit named, if a whole fusion breaks a rule. `pass_name` is what made it."""
    check = _Check(fusion)
    check.run()
    if check.findings:
        _refuse(check, fusion, pass_name)


def fusion_problems(fusion: Fusion) -> list[str]:
    """Every broken rule, in words; empty for a well-formed fusion."""
    check = _Check(fusion)
    check.run()
    return check.findings


def _refuse(check: _Check, fusion: Fusion, pass_name: str) -> NoReturn:
    from fuser.ir.fusion.print_fusion import math_text

    shown = [f"  {finding}" for finding in check.findings[:_MOST_FINDINGS]]
    try:
        text = math_text(fusion)
    except Exception as error:  # what is malformed need not print
        text = f"(the exprs cannot be printed: {error})"
    raise InternalError(
        "\n".join([f"the fusion is malformed after {pass_name}", *shown, text]),
        pass_name=pass_name,
        location=check.location,
    )


class _Check(ExprRules):
    """One walk over a fusion."""

    def __init__(self, fusion: Fusion) -> None:
        super().__init__()
        self.fusion = fusion
        self.names: dict[str, Val] = {}
        self.defined: set[Val] = set()
        self.dims: dict[IterDomain, str] = {}
        self.extents: dict[Int, str] = {}

    def run(self) -> None:
        """The whole fusion."""
        fusion = self.fusion
        for c in fusion.constraints:
            self.equal[self._same(c.right)] = self._same(c.left)
        inputs = set(fusion.inputs)
        if len(inputs) != len(fusion.inputs):
            self._find("an input is listed twice")
        for v in fusion.inputs:
            self._define(v)
            if isinstance(v, Tensor):
                self._tensor(v, is_reduced=False)
            elif v.value is not None:
                self._find(f"the input {v.name} is a constant")
        for expr in fusion.exprs:
            self._expr(expr)
        for output in fusion.outputs:
            self._output(output.tensor, output.alias_of, inputs)
        self._extent_symbols()

    # --- values -------------------------------------------------------------------------------------------------------

    def _define(self, value: Val) -> None:
        if self.names.setdefault(value.name, value) is not value or not value.name:
            self._find(f"two values are named {value.name!r}", value)
        if value in self.defined:
            self._find(f"{value.name} is defined twice", value)
        self.defined.add(value)

    def _operand(self, value: Val, of: str) -> None:
        if value in self.defined:
            return
        if isinstance(value, Scalar) and value.value is not None:
            if self.names.setdefault(value.name, value) is not value:
                self._find(f"two values are named {value.name!r}", value)
            return
        self._find(f"{of} reads {value.name}, which nothing before it defines", value)

    def _tensor(self, t: Tensor, *, is_reduced: bool, is_reshaped: bool = False) -> None:
        reduced = False
        visible: list[IterDomain] = []
        for d in t.logical:
            owner = self.dims.setdefault(d, t.name)
            if owner is not t.name:
                self._find(f"dim {d.name} belongs to {owner} and to {t.name}", t)
            if d.definition is not None and not is_reshaped:
                self._find(
                    f"dim {d.name} of {t.name} is made by a transform; schedules have those, definitions do not", t
                )
            if d.kind is IterKind.broadcast:
                if d.extent is not ONE or d.expanded:
                    self._find(
                        f"the broadcast dim {d.name} of {t.name} has extent {d.extent}, expected 1, not expanded", t
                    )
            elif d.extent not in self.extents:
                self.extents[d.extent] = t.name
            if d.kind is IterKind.reduction:
                reduced = True
            else:
                visible.append(d)
        if reduced is not is_reduced:
            expected = "has no reduced dim" if is_reduced else "has a reduced dim, but is not the result of a reduction"
            self._find(f"{t.name} {expected}", t)
        if t.root is not None and not is_reshaped:
            self._find(f"{t.name} has a root domain; schedules make those, definitions do not", t)
        ndim = len(visible)
        order = t.stride_order
        if len(order) != ndim or len(t.contiguity) != ndim or (ndim > 1 and sorted(order) != list(range(ndim))):
            self._find(f"{t.name} of rank {ndim} has stride order {order} and contiguity {t.contiguity}", t)
            return
        for place, dim in enumerate(memory_order(order) if ndim > 1 else range(ndim)):
            d = visible[dim]
            if (t.contiguity[place] is None) is not (d.expanded or d.kind is IterKind.broadcast):
                self._find(
                    f"contiguity {t.contiguity} of {t.name} does not fit its dim {dim}: None is for one stored element",
                    t,
                )

    def _extent_symbols(self) -> None:
        known = {d.extent for t in self.fusion.input_tensors for d in t.logical}
        # A constraint may be of the size of any dim, also of one that is known to have one element.
        sizes = {f"{t.name}_size{d}" for t in self.fusion.input_tensors for d in range(t.ndim)}
        scalars = self.fusion.extent_scalars
        constrained: dict[Int, str] = {}
        for c in self.fusion.constraints:
            constrained.setdefault(c.left, f"a constraint of {c.what}")
            constrained.setdefault(c.right, f"a constraint of {c.what}")
        for extent, owner in (*self.extents.items(), *constrained.items()):
            if extent in known and isinstance(extent, Symbol):
                continue
            for s in extent.symbols:
                if s in known or (s.name in sizes and extent in constrained and extent not in self.extents):
                    continue
                scalar = self.names.get(scalars.get(s.name, ""))
                if not isinstance(scalar, Scalar) or scalar not in self.defined:
                    self._find(f"the extent {extent} of {owner} mentions {s.name}, which no input and no scalar gives")

    def _output(self, tensor: Tensor, alias: Tensor | None, inputs: set[Val]) -> None:
        if tensor not in self.defined:
            self._find(f"the output {tensor.name} is not defined", tensor)
        if alias is None:
            return
        if alias not in inputs:
            self._find(f"{tensor.name} is written to {alias.name}, which is no input", tensor)
        if tensor in inputs:
            self._find(f"the input {tensor.name} is written to another input without a copy", tensor)
        if alias.dtype is not tensor.dtype or alias.ndim != tensor.ndim:
            self._find(
                f"{tensor.name} ({tensor.dtype.name}, rank {tensor.ndim}) is written to {alias.name} "
                f"({alias.dtype.name}, rank {alias.ndim})",
                tensor,
            )

    def _expr(self, expr: Expr) -> None:
        outputs = expr_outputs(expr)
        name = outputs[0].name
        for v in expr_inputs(expr):
            self._operand(v, name)
        for v in extent_operands(expr):
            self._operand(v, name)
        for e in expr_extents(expr):
            self.extents.setdefault(e, name)
        is_reduction = isinstance(expr, Reducing)
        for v in outputs:
            self._define(v)
            if isinstance(v, Tensor):
                self._tensor(v, is_reduced=is_reduction, is_reshaped=isinstance(expr, (Reshape, Resize)))
        self._meets(expr)
