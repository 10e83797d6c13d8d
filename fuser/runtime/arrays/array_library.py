"""Ops of libraries over arrays of NumPy or of CuPy, which have one interface: `xp` is either module.

Operands of 16 bits come as Floats; results are in the type that they were computed in, and whoever stores them rounds once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from fuser.errors import LaunchError

# Arrays of either module.
Array: TypeAlias = Any
Tensors: TypeAlias = Mapping[str, Array]
Numbers: TypeAlias = Mapping[str, Any]


def compute(xp: Any, op: str, tensors: Tensors, numbers: Numbers) -> tuple[Array, ...]:
    """The results of an op of `fuser.ir.fusion.library_ops`."""
    return _OPS[op](xp, tensors, numbers)


def _matmul(xp: Any, tensors: Tensors, numbers: Numbers) -> tuple[Array, ...]:
    return (xp.matmul(tensors["arg1"], tensors["arg2"]),)


def _linear(xp: Any, tensors: Tensors, numbers: Numbers) -> tuple[Array, ...]:
    product = xp.matmul(tensors["arg1"], tensors["arg2"].T)
    bias = tensors.get("bias")
    return (product if bias is None else product + bias,)


def _grouped_mm(xp: Any, tensors: Tensors, numbers: Numbers) -> tuple[Array, ...]:
    """The host reads where groups end."""
    a, b = tensors["mat1"], tensors["mat2"]
    ends = [int(end) for end in tensors["offsets"].tolist()]
    spans = [slice(first, end) for first, end in zip([0, *ends], ends, strict=False)]
    if a.ndim == b.ndim:
        return (xp.stack([xp.matmul(a[:, span], b[span]) for span in spans]),)
    out = xp.zeros((a.shape[-2], b.shape[-1]), a.dtype)
    for group, span in enumerate(spans):
        if a.ndim == 3:
            out[:, span] = xp.matmul(a[group], b[:, span])
        else:
            out[span] = xp.matmul(a[span], b[group])
    return (out,)


def _order(xp: Any, array: Array, dim: int, *, descending: bool) -> Array:
    """Indices that sort a dim, equal elements in order; a nan is the largest."""
    if array.ndim == 0:
        return xp.zeros((), "int64")
    keys = array.astype("uint8") if array.dtype.kind == "b" else array
    if not descending:
        return xp.argsort(keys, axis=dim, kind="stable")
    # Backwards twice, so that equal elements keep their order.
    found = xp.argsort(xp.flip(keys, dim), axis=dim, kind="stable")
    return array.shape[dim] - 1 - xp.flip(found, dim)


def _topk(xp: Any, tensors: Tensors, numbers: Numbers) -> tuple[Array, ...]:
    array, dim = tensors["arg"], numbers["dim"]
    order = _order(xp, array, dim, descending=numbers["largest"])
    if array.ndim == 0:
        return array, order
    first = xp.take(order, xp.arange(numbers["k"]), axis=dim)
    return xp.take_along_axis(array, first, axis=dim), first


def _argsort(xp: Any, tensors: Tensors, numbers: Numbers) -> tuple[Array, ...]:
    return (_order(xp, tensors["arg"], numbers["dim"], descending=numbers["descending"]),)


def _scatter(xp: Any, tensors: Tensors, numbers: Numbers) -> tuple[Array, ...]:
    out, index = tensors["arg"].copy(), tensors["index"]
    src = tensors.get("src")
    whole = out.reshape(1) if out.ndim == 0 else out
    where = index.reshape(1) if index.ndim == 0 else index
    places: list[Any] = []
    for d, n in enumerate(where.shape):
        row = xp.arange(n).reshape([-1 if k == d else 1 for k in range(where.ndim)])
        places.append(xp.broadcast_to(row, where.shape))
    places[numbers["dim"]] = where
    if src is None:
        whole[tuple(places)] = numbers["value"]
    else:
        shaped = src.reshape(1) if src.ndim == 0 else src
        whole[tuple(places)] = shaped[tuple(slice(0, n) for n in where.shape)]
    return (out,)


# --- attention --------------------------------------------------------------------------------------------------------


def _scores(xp: Any, tensors: Tensors, numbers: Numbers) -> Array:
    """Scaled products of queries and keys, what is not seen at minus infinity."""
    query, key = tensors["query"], tensors["key"]
    scale = numbers.get("scale")
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scores = xp.matmul(query, xp.swapaxes(key, -1, -2)) * query.dtype.type(factor)
    bias, mask = tensors.get("bias"), tensors.get("mask")
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = xp.where(mask, scores, -xp.inf)
    if numbers.get("is_causal"):
        rows, columns = xp.arange(scores.shape[-2])[:, None], xp.arange(scores.shape[-1])
        scores = xp.where(columns <= rows, scores, -xp.inf)
    return scores.astype(query.dtype)


def _log_sums(xp: Any, scores: Array) -> Array:
    """Logarithms of the sums of exponentials of rows; of a row of which nothing is seen minus infinity."""
    if scores.shape[-1] == 0:
        return xp.full(scores.shape[:-1], -xp.inf, scores.dtype)
    largest = scores.max(axis=-1, keepdims=True)
    shift = xp.where(xp.isfinite(largest), largest, 0)
    return xp.log(xp.exp(scores - shift).sum(axis=-1)) + shift[..., 0]


def _weights(xp: Any, scores: Array, log_sums: Array) -> Array:
    """The softmax of rows; zeros where nothing is seen."""
    sums = log_sums[..., None]
    return xp.where(xp.isneginf(sums), 0, xp.exp(scores - sums)).astype(scores.dtype)


def _sdpfa_fwd(xp: Any, tensors: Tensors, numbers: Numbers) -> tuple[Array, ...]:
    _refuse_dropout(numbers)
    scores = _scores(xp, tensors, numbers)
    log_sums = _log_sums(xp, scores)
    out = xp.matmul(_weights(xp, scores, log_sums), tensors["value"])
    return out, log_sums, xp.zeros(2, "uint64"), xp.zeros((), "uint64")


def _sdpfa_bwd(xp: Any, tensors: Tensors, numbers: Numbers) -> tuple[Array, ...]:
    _refuse_dropout(numbers)
    grad, query, key, value = (tensors[name] for name in ("grad_output", "query", "key", "value"))
    scores = _scores(xp, tensors, numbers)
    # What was kept is in float: too few digits for doubles.
    log_sums = _log_sums(xp, scores) if query.dtype.itemsize == 8 else tensors["logsumexp"]
    weights = _weights(xp, scores, log_sums)
    inner = (grad * tensors["output"]).sum(axis=-1, keepdims=True)
    scale = numbers.get("scale")
    factor = query.dtype.type(query.shape[-1] ** -0.5 if scale is None else scale)
    slopes = weights * (xp.matmul(grad, xp.swapaxes(value, -1, -2)) - inner) * factor
    return (
        xp.matmul(slopes, key),
        xp.matmul(xp.swapaxes(slopes, -1, -2), query),
        xp.matmul(xp.swapaxes(weights, -1, -2), grad),
    )


def _refuse_dropout(numbers: Numbers) -> None:
    if numbers.get("dropout_p"):
        raise LaunchError(
            "dropout within attention draws random numbers of torch: hand in tensors of torch, or apply dropout outside of it"
        )


_OPS: dict[str, Callable[[Any, Tensors, Numbers], tuple[Array, ...]]] = {
    "argsort": _argsort,
    "grouped_mm": _grouped_mm,
    "linear": _linear,
    "matmul": _matmul,
    "scatter": _scatter,
    "sdpfa_bwd": _sdpfa_bwd,
    "sdpfa_fwd": _sdpfa_fwd,
    "topk": _topk,
}
