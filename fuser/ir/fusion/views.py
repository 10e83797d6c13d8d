"""Views: exprs whose result is its operand's memory seen with other sizes and strides."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from fuser.ir.fusion.fusion import Broadcast, Fusion, IterDomain, Merge, Permute, Reshape, Split, Squeeze, Tensor
from fuser.ir.fusion.reshape_dims import Run, resolve

ViewExpr = Broadcast | Squeeze | Permute | Reshape


def view_chain(fusion: Fusion, tensor: Tensor, known: Callable[[Tensor], bool]) -> tuple[Tensor, list[ViewExpr]] | None:
    """The nearest known tensor that `tensor` is a view of, with the views from there on; None if it has to be computed."""
    chain: list[ViewExpr] = []
    while not known(tensor):
        expr = fusion.definitions.get(tensor)
        if not isinstance(expr, (Broadcast, Squeeze, Permute, Reshape)):
            return None
        chain.append(expr)
        tensor = expr.input
    return tensor, chain[::-1]


def viewed(expr: ViewExpr, dims: Sequence[tuple[int, int]], new_sizes: Sequence[int]) -> list[tuple[int, int]] | None:
    """(size, stride) of each dim of the view of something with these `dims`; None where strides cannot say it.

    `new_sizes`: of the result; only a reshape looks at them.
    """
    match expr:
        case Broadcast():
            old = iter(dims)
            return [(1, 0) if new else next(old) for new in expr.flags]
        case Squeeze():
            return [d for d, gone in zip(dims, expr.flags, strict=True) if not gone]
        case Permute():
            return [dims[d] for d in expr.dims]
        case Reshape():
            return _reshaped(dims, new_sizes)


def _reshaped(dims: Sequence[tuple[int, int]], new_sizes: Sequence[int]) -> list[tuple[int, int]] | None:
    sizes = [n for n, _ in dims]
    flags = [True] * len(sizes), [True] * len(new_sizes)
    resolution = resolve(sizes, new_sizes, *flags)
    if resolution is None:
        return None
    if resolution.is_empty:
        return [(n, 0) for n in new_sizes]
    long = [d for d in dims if d[0] != 1]
    wanted = [n for n in new_sizes if n != 1]
    strides: list[int] = []
    for run in resolution.runs:
        mine = [long[i] for i in run.inputs]
        if any(a[1] != b[0] * b[1] for a, b in itertools.pairwise(mine)):
            return None
        strides += run_strides([wanted[j] for j in run.outputs], mine[-1][1])
    found = iter(strides)
    return [(n, 0 if n == 1 else next(found)) for n in new_sizes]


def run_strides(sizes: Sequence[int], stride: int) -> list[int]:
    """Strides of dims that lie like one long dim of the given stride."""
    result: list[int] = []
    for n in reversed(sizes):
        result.insert(0, stride)
        stride = stride * n
    return result


def runs_of(expr: Reshape) -> tuple[Run, ...]:
    """Which dims of a resolved reshape are made of which, by the transforms that its result has."""
    output = expr.output
    assert output.root is not None
    position = {d: i for i, d in enumerate(output.root)}

    def sources(d: IterDomain) -> list[int]:
        match d.definition:
            case None:
                return [position[d]]
            case Split(source=source):
                return sources(source)
            case Merge(outer=outer, inner=inner):
                return [*sources(outer), *sources(inner)]

    runs: dict[tuple[int, ...], list[int]] = {}
    for j, d in enumerate(output.logical):
        runs.setdefault(tuple(sources(d)), []).append(j)
    return tuple(Run(a, tuple(b)) for a, b in runs.items())
