"""Memory order of outputs: a function of the definition alone, so that equal definitions give equal strides.

An output takes the layout of the input it updates in place. Any other inherits from its reference input: of the inputs
it depends on, the one with the most dims that are neither broadcast nor expanded. The dims of the reference that map
exactly onto the output become, fastest first, the output's fastest dims; the rest stay in logical order outside them. What
a reshape makes of a dim is in its place; what it makes of several is in the place of the innermost.
Inputs that tie and disagree give a row-major output.
"""

from __future__ import annotations

from fuser.ir.dim_pairs import dim_pairs, displaced_dims
from fuser.ir.fusion import (
    Fusion,
    IterDomain,
    Pointwise,
    Reshape,
    Tensor,
    memory_order,
    row_major_order,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.views import runs_of


def output_stride_order(fusion: Fusion, output: Tensor) -> tuple[int, ...]:
    """Per visible dim of an output, its rank from fastest (0) to slowest."""
    return output_stride_orders(fusion)[output]


def output_stride_orders(fusion: Fusion) -> dict[Tensor, tuple[int, ...]]:
    """`output_stride_order` of every output."""
    aliases = {o.tensor: o.alias_of for o in fusion.outputs if o.alias_of is not None}
    groups = _exact_groups(fusion)
    made = _made_of(fusion, groups)
    orders: dict[Tensor, tuple[int, ...]] = {}
    for output in fusion.output_tensors:
        target = aliases.get(output)
        if target is not None:
            orders[output] = target.stride_order
        elif (
            _is_given(fusion, output)
            or output in fusion.input_tensors
            or output.stride_order != row_major_order(output.ndim)
        ):
            orders[output] = output.stride_order
        else:
            orders[output] = _inherited_order(output, _reference_inputs(fusion, output), groups, made)
    return orders


def _is_given(fusion: Fusion, output: Tensor) -> bool:
    """Whether the definition says the memory order itself."""
    expr = fusion.definitions.get(output)
    return isinstance(expr, Pointwise) and expr.op == "stride_order"


def _reference_inputs(fusion: Fusion, output: Tensor) -> list[Tensor]:
    """The inputs that `output` depends on with the most dims that hold more than one stored element."""
    found: dict[Tensor, None] = {}
    seen: set[Tensor] = set()
    pending = [output]
    while pending:
        tensor = pending.pop()
        if tensor in seen:
            continue
        seen.add(tensor)
        expr = fusion.definitions.get(tensor)
        if expr is None:
            found[tensor] = None
        else:
            pending.extend(tensor_inputs(expr))
    inputs = [t for t in fusion.input_tensors if t in found]
    counts = [sum(not d.is_broadcast and not d.expanded for d in t.visible) for t in inputs]
    return [t for t, n in zip(inputs, counts, strict=True) if n == max(counts)]


Groups = dict[IterDomain, IterDomain]
MadeOf = dict[IterDomain, list[list[IterDomain]]]
"""Per group: what reshapes have in its place on their other side, slowest first."""


def _made_of(fusion: Fusion, groups: Groups) -> MadeOf:
    found: MadeOf = {}
    for e in fusion.tensor_exprs:
        if isinstance(e, Reshape) and e.is_resolved:
            for run in runs_of(e):
                left = [groups[e.output.produced[i]] for i in run.inputs]
                right = [groups[e.output.logical[j]] for j in run.outputs]
                for a, b in () if run.is_kept else ((left, right), (right, left)):
                    for i, group in enumerate(a):
                        found.setdefault(group, []).append(b if i == len(a) - 1 else [])
    return found


def _in_place_of(group: IterDomain, wanted: set[IterDomain], made: MadeOf, seen: set[IterDomain]) -> list[IterDomain]:
    """The wanted groups that stand for a group, slowest first."""
    if group in wanted or group in seen:
        return [group]
    for parts in made.get(group, ()):
        found = [g for p in parts for g in _in_place_of(p, wanted, made, seen | {group})]
        if found and all(g in wanted for g in found):
            return found
    return []


def _inherited_order(output: Tensor, references: list[Tensor], groups: Groups, made: MadeOf) -> tuple[int, ...]:
    orders = {_order_after(output, reference, groups, made) for reference in references}
    return orders.pop() if len(orders) == 1 else row_major_order(output.ndim)


def _order_after(output: Tensor, reference: Tensor, groups: Groups, made: MadeOf) -> tuple[int, ...]:
    remaining = list(range(output.ndim))
    fastest_first: list[int] = []
    wanted = {groups[d] for d in output.visible}
    for source in reversed(memory_order(reference.stride_order)):
        for group in reversed(_in_place_of(groups[reference.visible[source]], wanted, made, set())):
            match = next((d for d in remaining if groups[output.visible[d]] is group), None)
            if match is not None:
                remaining.remove(match)
                fastest_first.append(match)
    fastest_first += reversed(remaining)
    order = [0] * output.ndim
    for rank, dim in enumerate(fastest_first):
        order[dim] = rank
    return tuple(order)


def _exact_groups(fusion: Fusion) -> dict[IterDomain, IterDomain]:
    """A representative of each dim's group: dims that ops iterate together, and those they resize; broadcast dims with
    broadcast dims only."""
    parent: dict[IterDomain, IterDomain] = {d: d for t in fusion.tensors for d in (*t.logical, *t.produced)}

    def find(d: IterDomain) -> IterDomain:
        while parent[d] is not d:
            parent[d] = parent[parent[d]]
            d = parent[d]
        return d

    for expr in fusion.tensor_exprs:
        for producer in tensor_inputs(expr):
            for consumer in tensor_outputs(expr):
                for a, b in dim_pairs(expr, producer, consumer):
                    if a.is_broadcast == b.is_broadcast:
                        parent[find(a)] = find(b)
                # A sliced or padded dim keeps its place in memory.
                for a, b in displaced_dims(expr, producer, consumer):
                    if b is not None and a.is_broadcast == b.is_broadcast:
                        parent[find(a)] = find(b)
    return {d: find(d) for d in parent}
