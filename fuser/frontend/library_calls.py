"""Ops that are handed to a library (sections 3.5, 3.7 and 3.9 of the contract): matmul, linear."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from fuser.frontend.handles import TensorView
from fuser.frontend.operation import fusion_of, operation, tensor_argument
from fuser.ir.fusion import Option, Val

if TYPE_CHECKING:
    from fuser.frontend.handles import Val as Handle
    from fuser.ir.fusion import Tensor
    from fuser.ir.fusion_builder import FusionBuilder


def _on_device(builder: FusionBuilder, tensor: Tensor) -> Tensor:
    """A tensor that libraries can read: one that lies in host memory goes through a kernel, which takes it by value."""
    return builder.pointwise("set", [tensor], tensor.dtype) if tensor.is_cpu else tensor


def _called(
    op: str, operands: Mapping[str, Handle | None], options: Mapping[str, Option] | None = None
) -> tuple[TensorView, ...]:
    """The results of an op. Operands that were left out are None."""
    given = {name: value for name, value in operands.items() if value is not None}
    fusion = fusion_of(op, *given.values())
    builder = fusion.builder()
    nodes: dict[str, Val] = {
        name: _on_device(builder, value.node) if isinstance(value, TensorView) else value.node
        for name, value in given.items()
    }
    return tuple(fusion.tensor_handle(t) for t in builder.library(op, nodes, options))


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


LIBRARY_CALLS: dict[str, Callable[..., object]] = {
    "matmul": matmul,
    "linear": linear,
}
"""Every op of this module by name."""
