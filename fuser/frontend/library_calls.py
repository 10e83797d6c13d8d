"""Ops that a library computes (sections 3.5, 3.7 and 3.9 of the contract): matrix products, attention, sorting, scatter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from fuser.errors import DefinitionRuntimeError, NotSupportedError
from fuser.frontend import scalars
from fuser.frontend.handles import TensorView
from fuser.frontend.handles import Val as ValHandle
from fuser.frontend.operation import (
    bool_argument,
    fusion_of,
    int_argument,
    operation,
    scalar_argument,
    tensor_argument,
)
from fuser.ir.fusion.fusion import Option, Scalar, Val
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.op_table import check_cast

if TYPE_CHECKING:
    from fuser.ir.fusion.fusion import Tensor
    from fuser.ir.fusion.fusion_builder import FusionBuilder
    from fuser.ir.integers.integers import Int


def _on_device(builder: FusionBuilder, tensor: Tensor) -> Tensor:
    """A tensor that libraries can read: one that lies in host memory goes through a kernel, which takes it by value."""
    return builder.pointwise("set", [tensor], tensor.dtype) if tensor.is_cpu else tensor


def _called(
    op: str,
    operands: Mapping[str, ValHandle | None],
    options: Mapping[str, Option] | None = None,
    numbers: Mapping[str, Val] | None = None,
    extents: Sequence[Int] = (),
) -> tuple[TensorView, ...]:
    """The results of an op. Operands that were left out are None; `extents`: of dims that are as long as numbers say."""
    given = {name: value for name, value in operands.items() if value is not None}
    fusion = fusion_of(op, *given.values())
    builder = fusion.builder()
    nodes: dict[str, Val] = {
        name: _on_device(builder, value.node) if isinstance(value, TensorView) else value.node
        for name, value in given.items()
    }
    nodes.update(numbers or {})
    return tuple(fusion.tensor_handle(t) for t in builder.library(op, nodes, options, extents))


@operation("matmul(arg1: TensorView, arg2: TensorView) -> TensorView")
def matmul(arg1: object, arg2: object) -> TensorView:
    """arg1[.., M, K] @ arg2[.., K, N]: [.., M, N]. Of a vector the dim that it lacks is dropped; leading dims broadcast.

    Sums run in Float, of Double in Double, and are rounded once. Raises DefinitionRuntimeError for operands of rank 0, of
    other dtypes than one floating one, and for dims that do not fit.
    """
    (result,) = _called("matmul", {"arg1": tensor_argument("arg1", arg1), "arg2": tensor_argument("arg2", arg2)})
    return result


@operation("linear(arg1: TensorView, arg2: TensorView, bias: TensorView | None = None) -> TensorView")
def linear(arg1: object, arg2: object, bias: object = None) -> TensorView:
    """arg1[.., K] @ arg2[N, K] transposed + bias[N]: [.., N].

    Raises DefinitionRuntimeError for operands of other dtypes than one floating one, an arg2 of other rank than 2, a bias of
    other rank than 1, and for dims that do not fit. How long the bias is the execution checks.
    """
    operands = {
        "arg1": tensor_argument("arg1", arg1),
        "arg2": tensor_argument("arg2", arg2),
        "bias": None if bias is None else tensor_argument("bias", bias),
    }
    (result,) = _called("linear", operands)
    return result


@operation(
    "grouped_mm(mat1: TensorView, mat2: TensorView, offsets: TensorView) -> TensorView",
    "grouped_mm(mat1: TensorView, mat2: TensorView, offsets: TensorView, scale1: TensorView, scale2: TensorView, "
    "alpha: TensorView | None = None, bias: TensorView | None = None, beta: TensorView | None = None, "
    "dtype: DataType = DataType.BFloat16, output_block_scale_size: int = 0, "
    "output_block_scale_dtype: DataType = DataType.BFloat16, output_gamma: bool = False) -> "
    "tuple[TensorView, TensorView | None, TensorView | None]",
)
def grouped_mm(mat1: object, mat2: object, offsets: object, *scales: object, **more: object) -> TensorView:
    """Products of groups, whose ends along one dim are in offsets[g]: [m, k] x [k, n] gives [g, m, n], k is cut; [g, m, k] x
    [k, n] gives [m, n], n is cut; [m, k] x [g, k, n] gives [m, n], m is cut. What lies behind the last end is unspecified.

    Raises DefinitionRuntimeError for other ranks, dims that do not fit, offsets that are no Int32[g], operands of other dtypes
    than one floating one; NotSupportedError for scales, which come with 8- and 4-bit floats.
    """
    if scales or more:
        raise NotSupportedError("grouped_mm(): scales are not supported yet: they come with 8- and 4-bit floats")
    given = (("mat1", mat1), ("mat2", mat2), ("offsets", offsets))
    (result,) = _called("grouped_mm", {name: tensor_argument(name, value) for name, value in given})
    return result


@operation(
    "topk(arg: TensorView, k: Val | int, dim: int = -1, largest: bool = True, sorted: bool = False) -> "
    "tuple[TensorView, TensorView]"
)
def topk(
    arg: object, k: object, dim: object = -1, largest: object = True, sorted: object = False
) -> tuple[TensorView, ...]:
    """The k largest or smallest elements of a dim, and their indices (Int). A nan is larger than any number.

    Without `sorted` they come in any order. Raises DefinitionRuntimeError for a dim out of range, a k that is no integer,
    negative (`Invalid resized domain extent`) or longer than the dim (`k is .. out of range`), and for complex numbers; of a k
    that is a scalar the execution tells.
    """
    tv = tensor_argument("arg", arg)
    number = scalar_argument("k", k)
    fusion = fusion_of("topk", tv, number)
    builder = fusion.builder()
    scalar = number.node if isinstance(number, ValHandle) else scalars.constant(builder, number)
    assert isinstance(scalar, Scalar)
    if not scalar.dtype.is_integral or scalar.dtype is DataType.Bool:
        raise DefinitionRuntimeError(f"topk(): k must be an integer, got {scalar.dtype.name}")
    options: dict[str, Option] = {
        "dim": int_argument("dim", dim),
        "largest": bool_argument("largest", largest),
        "sorted": bool_argument("sorted", sorted),
    }
    return _called("topk", {"arg": tv}, options, {"k": scalar}, (scalars.extent_of(builder, scalar),))


@operation("argsort(arg: TensorView, dim: int, descending: bool = False, stable: bool = False) -> TensorView")
def argsort(arg: object, dim: object, descending: object = False, stable: object = False) -> TensorView:
    """The indices (Int) that sort a dim. A nan is larger than any number; `stable` keeps equal elements in order.

    Raises DefinitionRuntimeError for a dim out of range and for complex numbers.
    """
    options: dict[str, Option] = {
        "dim": int_argument("dim", dim),
        "descending": bool_argument("descending", descending),
        "stable": bool_argument("stable", stable),
    }
    (result,) = _called("argsort", {"arg": tensor_argument("arg", arg)}, options)
    return result


@operation("scatter(arg: TensorView, index: TensorView, src: TensorView | Val | number, dim: int) -> TensorView")
def scatter(arg: object, index: object, src: object, dim: object) -> TensorView:
    """A copy of arg with out[i, index[i, j, k], k] = src[i, j, k], for dim=1; src is a number, or like arg.

    Where two indices are equal one of them counts, which is not said. Indices are not wrapped, and what one outside of the dim
    does is unspecified; the simulator tells of it. Raises DefinitionRuntimeError for other ranks and dtypes, a dim out of
    range, and an index that is longer than src, or than arg along other dims.
    """
    tv, indices = tensor_argument("arg", arg), tensor_argument("index", index)
    operands: dict[str, ValHandle | None] = {"arg": tv, "index": indices}
    options: dict[str, Option] = {"dim": int_argument("dim", dim)}
    if isinstance(src, TensorView):
        (result,) = _called("scatter", {**operands, "src": src}, options)
        return result
    number = scalar_argument("src", src)
    fusion = fusion_of("scatter", tv, indices, number)
    scalar = number.node if isinstance(number, ValHandle) else scalars.constant(fusion.builder(), number)
    assert isinstance(scalar, Scalar)
    check_cast(scalar.dtype, tv.node.dtype)
    (result,) = _called("scatter", operands, options, {"value": scalar})
    return result


@operation(
    "sdpfa_fwd(query: TensorView, key: TensorView, value: TensorView, bias: TensorView | None = None, "
    "mask: TensorView | None = None, dropout_p: Val | number | None = None, is_causal: Val | bool | None = None, "
    "scale: Val | number | None = None) -> tuple[TensorView, TensorView, TensorView, TensorView]"
)
def sdpfa_fwd(
    query: object,
    key: object,
    value: object,
    bias: object = None,
    mask: object = None,
    dropout_p: object = None,
    is_causal: object = None,
    scale: object = None,
) -> tuple[TensorView, ...]:
    """Attention, softmax(query key^T * scale + bias) value, of query[N.., H, L, E], key[N.., H, S, E] and value[N.., H, S, Ev].

    Also the logarithm of the sum of exponentials of each row, [N.., H, L] in Float, and the state of the dropout. Where mask is
    False, and where a column is behind its row if is_causal, nothing is seen. Without scale it is 1/sqrt(E). Raises
    DefinitionRuntimeError for operands of other dtypes than one floating one, of other ranks than one of at least 4, and for
    dims that do not fit.
    """
    operands = {
        **{n: tensor_argument(n, t) for n, t in (("query", query), ("key", key), ("value", value))},
        **{n: None if t is None else tensor_argument(n, t) for n, t in (("bias", bias), ("mask", mask))},
    }
    return _attention("sdpfa_fwd", operands, dropout_p, is_causal, scale)


@operation(
    "sdpfa_bwd(grad_output: TensorView, query: TensorView, key: TensorView, value: TensorView, output: TensorView, "
    "logsumexp: TensorView, dropout_p: Val | number | None, is_causal: Val | bool | None, philox_seed: TensorView, "
    "philox_offset: TensorView, scale: Val | number | None) -> tuple[TensorView, TensorView, TensorView]"
)
def sdpfa_bwd(
    grad_output: object,
    query: object,
    key: object,
    value: object,
    output: object,
    logsumexp: object,
    dropout_p: object,
    is_causal: object,
    philox_seed: object,
    philox_offset: object,
    scale: object,
) -> tuple[TensorView, ...]:
    """Gradients of query, key and value of `sdpfa_fwd`, from that of its result and from what it gave.

    Raises DefinitionRuntimeError for operands of other dtypes than one floating one, of other ranks than 4 or 5, a logsumexp
    that has not one dim less, and for dims that do not fit.
    """
    given = {
        "grad_output": grad_output,
        "query": query,
        "key": key,
        "value": value,
        "output": output,
        "logsumexp": logsumexp,
        "philox_seed": philox_seed,
        "philox_offset": philox_offset,
    }
    operands = {name: tensor_argument(name, t) for name, t in given.items()}
    return _attention("sdpfa_bwd", operands, dropout_p, is_causal, scale)


def _attention(
    op: str, operands: Mapping[str, TensorView | None], dropout_p: object, is_causal: object, scale: object
) -> tuple[TensorView, ...]:
    fusion = fusion_of(op, *operands.values())
    builder = fusion.builder()
    numbers: dict[str, Val] = {}
    for name, value in (("dropout_p", dropout_p), ("is_causal", is_causal), ("scale", scale)):
        if value is None:
            continue
        number = scalar_argument(name, value)
        if isinstance(number, ValHandle):
            fusion.check_member(number, op)
            numbers[name] = number.node
        else:
            numbers[name] = scalars.constant(builder, number if name == "is_causal" else float(number.real))
    return _called(op, operands, None, numbers)


LIBRARY_CALLS: dict[str, Callable[..., object]] = {
    "argsort": argsort,
    "grouped_mm": grouped_mm,
    "linear": linear,
    "matmul": matmul,
    "scatter": scatter,
    "sdpfa_bwd": sdpfa_bwd,
    "sdpfa_fwd": sdpfa_fwd,
    "topk": topk,
}
"""Every op of this module by name."""
