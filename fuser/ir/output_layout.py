"""Memory order of outputs: a function of the definition alone, so that equal definitions give equal strides.

An output takes the layout of the input it updates in place. Any other inherits from its reference input: of the inputs
it depends on, the one with the most dims that are neither broadcast nor expanded. The dims of the reference that map
exactly onto the output become, fastest first, the output's fastest dims; the rest stay in logical order outside them.
Inputs that tie and disagree give a row-major output.
"""

from __future__ import annotations

from fuser.ir.fusion import (
    Fusion,
    IterDomain,
    Tensor,
    dim_pairs,
    displaced_dims,
    memory_order,
    row_major_order,
    tensor_inputs,
    tensor_outputs,
)


def output_stride_order(fusion: Fusion, output: Tensor) -> tuple[int, ...]:
    """Per visible dim of an output, its rank from fastest (0) to slowest."""
    return output_stride_orders(fusion)[output]


def output_stride_orders(fusion: Fusion) -> dict[Tensor, tuple[int, ...]]:
    """`output_stride_order` of every output."""
    aliases = {o.tensor: o.alias_of for o in fusion.outputs if o.alias_of is not None}
    groups = _exact_groups(fusion)
    orders: dict[Tensor, tuple[int, ...]] = {}
    for output in fusion.output_tensors:
        target = aliases.get(output)
        if target is not None:
            orders[output] = target.stride_order
        elif output in fusion.input_tensors or output.stride_order != row_major_order(output.ndim):
            orders[output] = output.stride_order
        else:
            orders[output] = _inherited_order(output, _reference_inputs(fusion, output), groups)
    return orders


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


def _inherited_order(output: Tensor, references: list[Tensor], groups: dict[IterDomain, IterDomain]) -> tuple[int, ...]:
    orders = {_order_after(output, reference, groups) for reference in references}
    return orders.pop() if len(orders) == 1 else row_major_order(output.ndim)


def _order_after(output: Tensor, reference: Tensor, groups: dict[IterDomain, IterDomain]) -> tuple[int, ...]:
    remaining = list(range(output.ndim))
    fastest_first: list[int] = []
    for source in reversed(memory_order(reference.stride_order)):
        group = groups[reference.visible[source]]
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
