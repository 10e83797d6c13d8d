"""Which dims of an operand and of a result an op iterates together, and which it reads at other indices."""

from __future__ import annotations

from collections.abc import Iterator

from fuser.ir.fusion.fusion_exprs import (
    Broadcast,
    Cat,
    Expand,
    ExpSum,
    Full,
    Gather,
    GatherKind,
    Iota,
    LibraryOp,
    Permute,
    Pointwise,
    Random,
    Reduction,
    Reshape,
    Resize,
    Scan,
    Squeeze,
    TensorExpr,
    Welford,
    Window,
)
from fuser.ir.fusion.tensors import IterDomain, Tensor


def dim_pairs(expr: TensorExpr, producer: Tensor, consumer: Tensor) -> Iterator[tuple[IterDomain, IterDomain]]:
    """(dim of `producer`, dim of `consumer`) for each pair that an op iterates together.

    A broadcast dim of the producer may meet an iteration dim of the consumer; dims made or dropped by the op are not listed.
    """
    source, target = producer.visible, consumer.produced
    match expr:
        case Pointwise() | Reduction() | Welford() | ExpSum() | Scan() | Expand() | Cat():
            # Expand may add dims on the left.
            yield from zip(source, target[len(target) - len(source) :], strict=True)
        case Broadcast():
            yield from zip(source, (d for d, new in zip(target, expr.flags, strict=True) if not new), strict=True)
        case Squeeze():
            yield from zip((d for d, gone in zip(source, expr.flags, strict=True) if not gone), target, strict=True)
        case Permute():
            for d, position in zip(target, expr.dims, strict=True):
                yield source[position], d
        case Resize() | Gather():
            yield from (
                pair for pair in position_pairs(expr, producer, consumer) if not _is_displaced(expr, producer, *pair)
            )
        case Reshape():
            if expr.is_resolved:
                yield from zip(source, target, strict=True)
        case Full() | Iota() | Random() | LibraryOp():  # a library's loops are its own
            return


def displaced_dims(
    expr: TensorExpr, producer: Tensor, consumer: Tensor
) -> Iterator[tuple[IterDomain, IterDomain | None]]:
    """(dim of `producer`, dim of `consumer` in its place) for each dim that is read at another index than the consumer's.

    The index along a sliced dim follows from that of the consumer; along a gathered dim it does not (None).
    """
    if isinstance(expr, (Resize, Gather)):
        for a, b in position_pairs(expr, producer, consumer):
            if _is_displaced(expr, producer, a, b):
                is_gathered = isinstance(expr, Gather) and producer.visible[expr.dim] is a
                yield a, None if is_gathered else b


def position_pairs(
    expr: Resize | Gather, producer: Tensor, consumer: Tensor
) -> Iterator[tuple[IterDomain, IterDomain]]:
    """Dims of the producer with those of the consumer that stand in their places."""
    source, target = producer.visible, consumer.produced
    if not (isinstance(expr, Gather) and expr.kind is GatherKind.index_select):
        yield from zip(source, target, strict=True)
    elif producer is expr.index:
        yield from zip(source, target[expr.dim :], strict=False)
    else:
        after = target[expr.dim + max(expr.index.ndim, 1) :]
        yield from zip(source, (*target[: expr.dim + 1], *after), strict=True)


def windows_of(expr: Resize | Gather) -> Iterator[tuple[IterDomain, Window]]:
    """Dims of the result with the windows along them. A gathered dim has none."""
    for d, (_, b) in enumerate(position_pairs(expr, expr.input, expr.output) if expr.windows else ()):
        if not (isinstance(expr, Gather) and d == expr.dim):
            yield b, expr.windows[d]


def _is_displaced(expr: Resize | Gather, producer: Tensor, a: IterDomain, b: IterDomain) -> bool:
    if isinstance(expr, Resize):
        window = expr.windows[expr.input.visible.index(a)]
        return window.moves or a.extent is not b.extent
    if producer is expr.index:
        return False
    if producer.visible[expr.dim] is a:
        return True
    if expr.windows:
        window = expr.windows[expr.input.visible.index(a)]
        return not a.is_broadcast and (window.moves or a.extent is not b.extent)
    return expr.kind is GatherKind.gather and a.extent is not b.extent
