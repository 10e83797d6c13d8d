"""Ops that libraries compute: what they take, and what shapes, element types and memory orders their results have.

A row says all that a definition, a host program and its checks need to know of an op; what computes it is in
`runtime/arrays/array_library.py` and `runtime/arrays/torch_library.py`. The same rule serves tensors whose sizes are
symbols and, when a host program is bound, tensors whose sizes are known.

    matmul       [.., M, K] x [.., K, N] -> [.., M, N]; of a vector the dim that it lacks is dropped; leading dims broadcast
    linear       [.., K] x [N, K] (+ [N]) -> [.., N]
    grouped_mm   [m, k] x [k, n] -> [g, m, n];  [g, m, k] x [k, n] -> [m, n];  [m, k] x [g, k, n] -> [m, n]; cut by offsets [g]
    topk         k elements of a dim, and where they are
    argsort      the indices that sort a dim
    scatter      a copy of a tensor, with elements of another one where indices say
    sdpfa_fwd, sdpfa_bwd   attention (`attention_rules.py`)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fuser.errors import DefinitionRuntimeError, InputRuntimeError
from fuser.ir.fusion import attention_rules as attention
from fuser.ir.fusion.fusion import IterDomain, IterKind, LibraryOp, Scalar, Tensor, tensor_inputs
from fuser.ir.fusion.library_calls import Call, Dim, LibraryRow, Result, check_floating, kept
from fuser.ir.integers.axis_range import outside_text
from fuser.ir.integers.integers import Int
from fuser.ir.ops.dtypes import DataType

# --- matrix products --------------------------------------------------------------------------------------------------


def _matmul(call: Call) -> Sequence[Result]:
    a, b = call.tensor("arg1"), call.tensor("arg2")
    if not a.ndim or not b.ndim:
        raise DefinitionRuntimeError(
            f"matmul(): operands must have at least one dim, got ranks {a.ndim} and {b.ndim}: multiply by mul"
        )
    dtype = check_floating("matmul", {"arg1": a, "arg2": b})
    left, right = a.visible, b.visible
    call.dims.require_same(left[-1], right[-2:][0], "matmul, the dims that are summed over")
    dims = [call.dims.joined_dim("matmul", met, i) for i, met in enumerate(_batches(a, b))]
    if a.ndim > 1:
        dims.append(kept(left[-2]))
    if b.ndim > 1:
        dims.append(kept(right[-1]))
    return (Result(dtype, tuple(dims)),)


def _batches(*operands: Tensor) -> list[list[IterDomain]]:
    """Leading dims that meet, in order."""
    rows = [t.visible[:-2] for t in operands]
    rank = max(map(len, rows))
    return [[row[i - rank] for row in rows if i - rank >= -len(row)] for i in range(rank)]


def _batches_of_result(expr: LibraryOp) -> Sequence[tuple[IterDomain, list[IterDomain]]]:
    return list(zip(expr.outputs[0].visible, _batches(*tensor_inputs(expr)), strict=False))


def _linear(call: Call) -> Sequence[Result]:
    a, weight, bias = call.tensor("arg1"), call.tensor("arg2"), call.optional("bias")
    if not a.ndim:
        raise DefinitionRuntimeError("linear(): arg1 must have at least one dim, got rank 0")
    if weight.ndim < 2:
        raise DefinitionRuntimeError(f"linear(): arg2 must have at least 2 dims, [N, K], got rank {weight.ndim}")
    if bias is not None and not bias.ndim:
        raise DefinitionRuntimeError("linear(): bias must have at least one dim, [N], got rank 0")
    if weight.ndim > 2 or (bias is not None and bias.ndim > 1):
        ranks = f"{weight.ndim}" if bias is None else f"{weight.ndim} and {bias.ndim}"
        raise DefinitionRuntimeError(
            f"linear(): arg2 is [N, K] and bias [N], got rank {ranks}: more dims are those of several devices, which are not "
            "supported yet; matmul takes batches"
        )
    dtype = check_floating("linear", {"arg1": a, "arg2": weight, "bias": bias})
    call.dims.require_same(a.visible[-1], weight.visible[-1], "linear, the dims that are summed over")
    # How long the bias is the execution checks, which knows the sizes that the message tells of.
    return (Result(dtype, (*map(kept, a.visible[:-1]), kept(weight.visible[0]))),)


def _check_linear(sizes: Mapping[str, tuple[int, ...]], numbers: Mapping[str, Any]) -> None:
    bias = sizes.get("bias")
    shape = [*sizes["arg1"][:-1], sizes["arg2"][0]]
    if bias is not None and bias[0] != shape[-1]:
        raise InputRuntimeError(
            f"linear(): The expanded size of the tensor ({shape[-1]}) must match the existing size ({bias[0]}) at "
            f"non-singleton dimension {len(shape) - 1}.  Target sizes: {shape}.  Tensor sizes: {list(bias)}"
        )


def _last_dim_of(name: str) -> Callable[[LibraryOp], IterDomain | None]:
    def folded(expr: LibraryOp) -> IterDomain | None:
        t = expr.input(name)
        return t.visible[-1] if isinstance(t, Tensor) and t.ndim else None

    return folded


# --- groups -----------------------------------------------------------------------------------------------------------


def _grouped_mm(call: Call) -> Sequence[Result]:
    a, b, offsets = (call.tensor(name) for name in ("mat1", "mat2", "offsets"))
    if offsets.ndim != 1 or offsets.dtype is not DataType.Int32:
        raise DefinitionRuntimeError(
            f"grouped_mm(): offsets are the ends of groups, Int32[g], got {offsets.dtype.name} of rank {offsets.ndim}"
        )
    dtype = check_floating("grouped_mm", {"mat1": a, "mat2": b})
    groups = offsets.visible[0]
    summed = "grouped_mm, the dims that are summed over"
    counted = "grouped_mm, the number of groups"
    match a.ndim, b.ndim:
        case 2, 2:
            call.dims.require_same(a.visible[1], b.visible[0], summed)
            dims = (groups, a.visible[0], b.visible[1])
        case 3, 2:
            call.dims.require_same(a.visible[2], b.visible[0], summed)
            call.dims.require_same(a.visible[0], groups, counted)
            dims = (a.visible[1], b.visible[1])
        case 2, 3:
            call.dims.require_same(a.visible[1], b.visible[1], summed)
            call.dims.require_same(b.visible[0], groups, counted)
            dims = (a.visible[0], b.visible[2])
        case ranks:
            raise DefinitionRuntimeError(
                f"grouped_mm(): one of the matrices, or none, has 3 dims and the others 2, got ranks {ranks[0]} and {ranks[1]}"
            )
    return (Result(dtype, tuple(map(kept, dims))),)


# --- search and scatter -----------------------------------------------------------------------------------------------


def _check_sortable(op: str, t: Tensor) -> None:
    if t.dtype.is_complex:
        raise DefinitionRuntimeError(f"{op}(): complex numbers have no order, got {t.dtype.name}")


def _dim_of(op: str, call: Call, t: Tensor) -> int:
    """The dim that an op works along; a tensor of rank 0 has one."""
    dim, rank = call.options["dim"], max(t.ndim, 1)
    assert isinstance(dim, int)
    if not -rank <= dim < rank:
        raise DefinitionRuntimeError(f"{op}(): {outside_text('dim', dim, rank)}")
    return dim % rank


def _topk(call: Call) -> Sequence[Result]:
    t = call.tensor("arg")
    _check_sortable("topk", t)
    dim = _dim_of("topk", call, t)
    (k,) = call.extents
    number = call.values.get("k")
    if isinstance(number, Scalar) and not number.dtype.is_integral:
        raise DefinitionRuntimeError(f"topk(): k must be an integer, got {number.dtype.name}")
    if k.is_const and k.value < 0:
        raise DefinitionRuntimeError(f"topk(): k is {k}: Invalid resized domain extent")
    if not t.ndim:
        if not k.is_const or k.value != 1:
            raise DefinitionRuntimeError(
                f"topk(): k is {k}, out of range for a tensor of rank 0, which has one element"
            )
        return (Result(t.dtype, ()), Result(DataType.Int, ()))
    extent = t.visible[dim].extent
    if k.is_const and extent.is_const and k.value > extent.value:
        raise DefinitionRuntimeError(f"topk(): k is {k}, out of range for dim {dim}, of extent {extent}")
    call.dims.require_natural(extent - k, f"topk(): k is out of range for dim {dim}")
    dims = tuple(_made(k) if d == dim else kept(domain) for d, domain in enumerate(t.visible))
    return (Result(t.dtype, dims), Result(DataType.Int, dims))


def _made(extent: Int) -> Dim:
    """A dim as long as a scalar says."""
    is_one = extent.is_const and extent.value == 1
    return extent, IterKind.broadcast if is_one else IterKind.iteration, False


def _argsort(call: Call) -> Sequence[Result]:
    t = call.tensor("arg")
    _check_sortable("argsort", t)
    _dim_of("argsort", call, t)
    return (Result(DataType.Int, tuple(map(kept, t.visible))),)


def _scatter(call: Call) -> Sequence[Result]:
    t, index = call.tensor("arg"), call.tensor("index")
    src = call.optional("src")
    for name, other in (("index", index), ("src", src)):
        if other is not None and other.ndim != t.ndim:
            raise DefinitionRuntimeError(
                f"scatter(): Tensor arguments have different dimensions: {t.ndim} of arg, {other.ndim} of {name}"
            )
    dim, rank = call.options["dim"], max(t.ndim, 1)
    assert isinstance(dim, int)
    if not -rank <= dim < rank:
        raise DefinitionRuntimeError(
            f"scatter(): Tensor arguments have dimension {t.ndim} so dim argument must satisfy -{t.ndim} <= dim < {t.ndim}, "
            f"but received {dim}"
        )
    if index.dtype not in (DataType.Int, DataType.Int32, DataType.Index):
        raise DefinitionRuntimeError(
            f"scatter(): the index must be a tensor of dtype Int or Int32, got {index.dtype.name}"
        )
    if src is not None and src.dtype is not t.dtype:
        raise DefinitionRuntimeError(f"scatter(): arg is {t.dtype.name} and src {src.dtype.name}: cast it")
    for d, i in enumerate(index.visible):
        if d != dim % rank:
            _require_room(call, t.visible[d], i, f"scatter(): dim {d} of index is longer than that of arg")
        if src is not None:
            _require_room(call, src.visible[d], i, f"scatter(): dim {d} of index is longer than that of src")
    return (Result(t.dtype, tuple(map(kept, t.visible))),)


def _require_room(call: Call, room: IterDomain, taken: IterDomain, what: str) -> None:
    rest = room.extent - taken.extent
    if rest.is_const and rest.value < 0:
        raise DefinitionRuntimeError(f"{what}, {taken.extent} and {room.extent}")
    call.dims.require_natural(rest, what)


_PRODUCTS = "matrix products need tensor cores, which no kernel of this project uses yet"
_SORTS = "sorting needs threads to exchange all of a row, and no kernel of this project does that yet"
_SCATTERS = "kernels of this project write each element of a result where they compute it"
_ATTENTION = "attention keeps scores on chip between two matrix products, which no kernel of this project does yet"


LIBRARY_OPS: dict[str, LibraryRow] = {
    row.name: row
    for row in (
        LibraryRow(
            "matmul",
            ("arg1", "arg2"),
            _matmul,
            ("out",),
            _PRODUCTS,
            folded=_last_dim_of("arg1"),
            meets=_batches_of_result,
        ),
        LibraryRow(
            "linear",
            ("arg1", "arg2", "bias"),
            _linear,
            ("out",),
            _PRODUCTS,
            optional=("bias",),
            check=_check_linear,
            folded=_last_dim_of("arg1"),
        ),
        LibraryRow(
            "grouped_mm",
            ("mat1", "mat2", "offsets"),
            _grouped_mm,
            ("out",),
            _PRODUCTS,
            folded=_last_dim_of("mat1"),
        ),
        LibraryRow(
            "topk",
            ("arg",),
            _topk,
            ("values", "indices"),
            _SORTS,
            numbers=("k",),
            options=("dim", "largest", "sorted"),
            extents=("k",),
            defaults={"dim": -1, "largest": True, "sorted": False},
        ),
        LibraryRow(
            "argsort",
            ("arg",),
            _argsort,
            ("indices",),
            _SORTS,
            options=("dim", "descending", "stable"),
            defaults={"descending": False, "stable": False},
        ),
        LibraryRow(
            "scatter",
            ("arg", "index", "src"),
            _scatter,
            ("out",),
            _SCATTERS,
            optional=("src",),
            numbers=("value",),
            options=("dim",),
            spelled={"value": "src"},
        ),
        LibraryRow(
            "sdpfa_fwd",
            ("query", "key", "value", "bias", "mask"),
            attention.forward,
            ("out", "logsumexp", "philox_seed", "philox_offset"),
            _ATTENTION,
            optional=("bias", "mask"),
            numbers=attention.NUMBERS,
            folded=attention.folded,
        ),
        LibraryRow(
            "sdpfa_bwd",
            ("grad_output", "query", "key", "value", "output", "logsumexp", "philox_seed", "philox_offset"),
            attention.backward,
            ("grad_query", "grad_key", "grad_value"),
            _ATTENTION,
            numbers=attention.NUMBERS,
            nullable=attention.NUMBERS,
            order=(
                *("grad_output", "query", "key", "value", "output", "logsumexp", "dropout_p", "is_causal"),
                *("philox_seed", "philox_offset", "scale"),
            ),
            folded=attention.folded,
        ),
    )
}


def library_results(op: str, call: Call) -> Sequence[Result]:
    """The results of an op. Raises DefinitionRuntimeError for operands that do not fit."""
    return LIBRARY_OPS[op].results(call)
