"""What attention takes and gives, forward and backward: rules of `library_ops`.

sdpfa_fwd   query [N.., H, L, E], key [N.., H, S, E], value [N.., H, S, Ev] -> out [N.., H, L, Ev], logsumexp [N.., H, L]
sdpfa_bwd   the same with grad_output and output, both [N.., H, L, Ev] -> gradients like query, key and value
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fuser.errors import DefinitionRuntimeError
from fuser.ir.fusion.fusion import IterDomain, IterKind, LibraryOp, Scalar, Tensor, row_major_order
from fuser.ir.fusion.library_calls import Call, Result, check_floating, kept
from fuser.ir.integers.integers import const
from fuser.ir.ops.dtypes import DataType

NUMBERS = ("dropout_p", "is_causal", "scale")


def forward(call: Call) -> Sequence[Result]:
    """Results of sdpfa_fwd."""
    op = "sdpfa_fwd"
    query, key, value = (call.tensor(name) for name in ("query", "key", "value"))
    dtype = _check_operands(op, call, {"query": query, "key": key, "value": value})
    scores = (*query.visible[:-1], key.visible[-2])
    for name in ("bias", "mask"):
        t = call.optional(name)
        if t is None:
            continue
        wanted = dtype if name == "bias" else DataType.Bool
        if t.dtype is not wanted:
            raise DefinitionRuntimeError(f"{op}(): {name} is {t.dtype.name}, expected {wanted.name}")
        if t.ndim != query.ndim:
            raise DefinitionRuntimeError(f"{op}(): {name} has rank {t.ndim}, expected that of query, {query.ndim}")
        for d, s in zip(t.visible, scores, strict=True):
            if not d.is_broadcast:
                call.dims.require_same(d, s, f"{op}, the dims of {name} and of the scores")
    out = (*map(kept, query.visible[:-1]), kept(value.visible[-1]))
    seed = ((const(2), IterKind.iteration, False),)
    return (
        Result(dtype, out, _order(query)),
        Result(DataType.Float, out[:-1]),
        Result(DataType.UInt64, seed),
        Result(DataType.UInt64, ()),
    )


def backward(call: Call) -> Sequence[Result]:
    """Results of sdpfa_bwd."""
    op = "sdpfa_bwd"
    names = ("grad_output", "query", "key", "value", "output")
    tensors = {name: call.tensor(name) for name in names}
    dtype = _check_operands(op, call, tensors)
    query, key, value = (tensors[name] for name in ("query", "key", "value"))
    if query.ndim > 5:
        raise DefinitionRuntimeError(f"{op}(): operands have rank 4 or 5, got {query.ndim}")
    for name in ("grad_output", "output"):
        dims = (*query.visible[:-1], value.visible[-1])
        for d, wanted in zip(tensors[name].visible, dims, strict=True):
            call.dims.require_same(d, wanted, f"{op}, the dims of {name} and of the result of attention")
    logsumexp = call.tensor("logsumexp")
    if logsumexp.ndim != query.ndim - 1:
        raise DefinitionRuntimeError(
            f"{op}(): logsumexp has rank {logsumexp.ndim}, expected one less than query, {query.ndim - 1}"
        )
    for d, wanted in zip(logsumexp.visible, query.visible[:-1], strict=True):
        call.dims.require_same(d, wanted, f"{op}, the dims of logsumexp and of query")
    return tuple(Result(dtype, tuple(map(kept, t.visible)), _order(t)) for t in (query, key, value))


def _check_operands(op: str, call: Call, tensors: Mapping[str, Tensor]) -> DataType:
    dtype = check_floating(op, tensors)
    query = tensors["query"]
    ranks = {name: t.ndim for name, t in tensors.items()}
    if len(set(ranks.values())) > 1 or query.ndim < 4:
        texts = ", ".join(f"{name} {rank}" for name, rank in ranks.items())
        raise DefinitionRuntimeError(f"{op}(): operands have one rank of at least 4, [N.., H, L, E], got {texts}")
    key, value = tensors["key"], tensors["value"]
    for t, name in ((key, "key"), (value, "value")):
        for a, b in zip(query.visible[:-2], t.visible[:-2], strict=True):
            call.dims.require_same(a, b, f"{op}, the batches and heads of query and {name}")
    call.dims.require_same(query.visible[-1], key.visible[-1], f"{op}, the last dims of query and key")
    call.dims.require_same(key.visible[-2], value.visible[-2], f"{op}, the lengths of key and value")
    kinds = {"is_causal": DataType.Bool}
    for name in NUMBERS:
        number = call.values.get(name)
        if isinstance(number, Scalar):
            is_bool = number.dtype is DataType.Bool
            if is_bool is not (name in kinds) or number.dtype.is_complex:
                raise DefinitionRuntimeError(f"{op}(): {name} is {number.dtype.name}")
    return dtype


def _order(like: Tensor) -> tuple[int, ...] | None:
    """The memory order of a result: that of an operand."""
    return None if like.stride_order == row_major_order(like.ndim) else like.stride_order


def folded(expr: LibraryOp) -> IterDomain | None:
    """The keys, of which each result is a sum."""
    key = expr.input("key")
    return key.visible[-2] if isinstance(key, Tensor) else None
