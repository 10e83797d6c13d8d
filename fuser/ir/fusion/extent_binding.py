"""Values of a fusion's extent symbols and scalars, from the sizes and numbers of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fuser.errors import InputRuntimeError
from fuser.ir.fusion.fusion import (
    Broadcast,
    ExtentConstraint,
    ExtentOp,
    Fusion,
    LibraryOp,
    Pointwise,
    Scalar,
    ScalarOp,
    Tensor,
    expr_outputs,
)
from fuser.ir.fusion.scalar_evaluation import Number, evaluate_scalar_op, rounded_number
from fuser.ir.fusion.user_names import extent_text, input_name
from fuser.ir.integers.integer_nodes import Environment
from fuser.ir.integers.integers import ZERO, Int, maximum


class Binding(NamedTuple):
    """`extents`: value by symbol name; `scalars`: value by name of every input and computed scalar."""

    extents: dict[str, int]
    scalars: dict[str, Number]

    def extent(self, extent: Int) -> int:
        """The value of an extent."""
        return extent.value if extent.is_const else extent.evaluate(self.extents)

    def scalar(self, scalar: Scalar) -> Number:
        """The value of a scalar."""
        return self.scalars[scalar.name] if scalar.value is None else scalar.value


def bind_extents(fusion: Fusion, inputs: Sequence[tuple[int, ...] | Number]) -> Binding:
    """The binding for one tuple of sizes or one number per input.

    Raises InputRuntimeError for a size that contradicts a static one and for a negative number used as an extent.
    Constraints are the business of `check_constraints`, after dynamic size-1 dims are known.
    """
    bound = Binding({}, {})
    for index, (spec, value) in enumerate(zip(fusion.inputs, inputs, strict=True)):
        if isinstance(spec, Scalar):
            assert not isinstance(value, tuple)
            _bind_scalar(fusion, bound, spec, rounded_number(value, spec.dtype))
            continue
        assert isinstance(value, tuple)
        for d, (n, domain) in enumerate(zip(value, spec.visible, strict=True)):
            if domain.extent.is_const and domain.extent.value != n:
                raise InputRuntimeError(
                    f"Expected input {index}, {input_name(fusion, index)}, to have size {domain.extent} in dim {d}, but got "
                    f"{n}",
                    location=spec.location,
                )
            bound.extents[f"{spec.name}_size{d}"] = n
    for expr in fusion.exprs:
        match expr:
            case ScalarOp():
                value = evaluate_scalar_op(expr, [bound.scalar(s) for s in expr.inputs])
                _bind_scalar(fusion, bound, expr.output, value)
            case ExtentOp():
                assert expr.output.expression is not None
                _bind_scalar(fusion, bound, expr.output, bound.extent(expr.output.expression))
            case _:
                pass
    return bound


def _bind_scalar(fusion: Fusion, bound: Binding, scalar: Scalar, value: Number) -> None:
    bound.scalars[scalar.name] = value
    if scalar.name in fusion.extent_scalars:
        assert isinstance(value, int)
        if value < 0:
            raise InputRuntimeError(
                f"{scalar.name} is used as an extent and is {value}{asked_text(fusion, scalar)}",
                location=scalar.location,
            )
        bound.extents[scalar.name] = value


def asked_text(fusion: Fusion, scalar: Scalar) -> str:
    """What an error says of a library's op that takes a scalar as the extent of its result."""
    asks = next((e.op for e in fusion.exprs if isinstance(e, LibraryOp) and scalar in e.inputs), None)
    return "" if asks is None else f", in {asks}(): Invalid resized domain extent"


def check_constraints(fusion: Fusion, extents: Mapping[str, int]) -> None:
    """Raise InputRuntimeError if extents that an op needs to be equal are not, naming the op at the user's line."""
    values = Environment(extents)
    for constraint in fusion.constraints:
        left, right = constraint.left.compute(values), constraint.right.compute(values)
        if left != right and constraint.right is maximum(constraint.left, ZERO):
            raise InputRuntimeError(
                f"{constraint.what} ({extent_text(fusion, constraint.left)} is {left}, and must not be negative)",
                location=constraint.location,
            )
        if left != right:
            raise InputRuntimeError(
                f"{constraint.what}: a conflict was found with 2 different sizes, {left} and {right} "
                f"({extent_text(fusion, constraint.left)} and {extent_text(fusion, constraint.right)})"
                + (_BROADCAST_HINT if 1 in (left, right) else _lined_up_elsewhere(fusion, constraint, values)),
                location=constraint.location,
            )


def _lined_up_elsewhere(fusion: Fusion, constraint: ExtentConstraint, values: Environment) -> str:
    """What to write where an operand of fewer dims fits others of the other operand than the last ones, as a reduction does
    that keeps no dim.
    """
    here = [e for e in fusion.exprs if any(v.location == constraint.location for v in expr_outputs(e))]
    widened = {e.output: e.input for e in here if isinstance(e, Broadcast)}
    for op in here:
        if not isinstance(op, Pointwise):
            continue
        tensors = [v for v in op.inputs if isinstance(v, Tensor)]
        for narrow in tensors:
            if narrow not in widened:
                continue
            sizes = _sizes(widened[narrow], values)
            for wide in (_sizes(t, values) for t in tensors if t is not narrow):
                places = range(len(wide) - len(sizes))
                if any(wide[at : at + len(sizes)] == sizes for at in places):
                    return (
                        f": the shapes are {wide} and {sizes}, and dims are lined up from the last one; keepdim=True keeps the "
                        "dim of a reduction, unsqueeze(dim) makes one"
                    )
    return ""


def _sizes(tensor: Tensor, values: Environment) -> list[int]:
    return [d.extent.compute(values) for d in tensor.visible]


_BROADCAST_HINT = (
    ": a dim that is defined as -1 is not broadcast where it happens to be 1; define that dim as 1, or make it with "
    "fd.ops.broadcast_in_dim or fd.ops.expand"
)
