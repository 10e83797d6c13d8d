"""Bind the arguments of an execution to a fusion's inputs: count, kinds, ranks, dtypes, static sizes, equal extents.

Everything that can be wrong with an input is said here, before anything is compiled or enqueued.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fuser.errors import InputError, InputRuntimeError, InputTypeError
from fuser.ir.dtypes import DataType
from fuser.ir.extent_binding import check_constraints
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion import ExtentOp, Fusion, IterDomain, Scalar, ScalarOp, Tensor
from fuser.ir.integers import Int, Symbol, symbol
from fuser.ir.scalar_evaluation import evaluate_scalar_op
from fuser.records import record
from fuser.runtime.arrays import ArrayView, describe_array, is_scalar, overlaps_itself, python_number, share_elements
from fuser.runtime.device import Device
from fuser.runtime.generator import draw_state
from fuser.source_location import caller_location

Number = bool | int | float | complex


@record(eq=False)
class BoundInputs:
    """Arguments that fit.

    values      per fusion input an ArrayView or a number, for the host program
    tensors     descriptor of each tensor input by name
    scalars     value of each scalar by name, computed ones included where they are integers used as extents
    extents     value of each extent symbol
    """

    values: tuple[ArrayView | Number, ...]
    tensors: dict[str, TensorDescriptor]
    scalars: dict[str, Number]
    extents: dict[Symbol, int]

    def evaluate(self, expression: Int) -> int:
        """Value of an extent expression for these inputs."""
        return expression.evaluate(self.extents)


def flatten(inputs: Iterable[Any]) -> list[Any]:
    """Arguments with nested lists and tuples flattened one level. Raises InputTypeError for what holds no arguments."""
    if not isinstance(inputs, Iterable) or isinstance(inputs, (str, bytes)):
        raise InputTypeError(
            f"the inputs must be a list or another iterable of arrays and numbers, got {type(inputs).__name__}",
            location=caller_location(),
        )
    flat: list[Any] = []
    for value in inputs:
        if isinstance(value, (list, tuple)):
            flat.extend(value)
        else:
            flat.append(value)
    return flat


def bind_inputs(fusion: Fusion, inputs: Iterable[Any], *, check_extents: bool = True) -> BoundInputs:
    """Check arguments against a fusion and describe them.

    Arguments may be arrays, numbers, ArrayViews, or TensorDescriptors (for compiling without data). `check_extents` False
    leaves out which extents must be equal: whoever concretizes the fusion first asks that of the result.
    Raises InputRuntimeError naming the input, InputTypeError for what is no array.
    """
    flat = flatten(inputs)
    if len(flat) != len(fusion.inputs):
        names = ", ".join(v.name for v in fusion.inputs) or "none"
        raise InputRuntimeError(
            f"Expected {len(fusion.inputs)} inputs ({names}), got {len(flat)}", location=caller_location()
        )
    values: list[ArrayView | Number] = []
    tensors: dict[str, TensorDescriptor] = {}
    scalars: dict[str, Number] = {}
    extents: dict[Symbol, int] = {}
    for position, (spec, value) in enumerate(zip(fusion.inputs, flat, strict=True)):
        if isinstance(spec, Scalar):
            number = _bind_scalar(spec, value, position)
            values.append(number)
            scalars[spec.name] = number
            continue
        visible = spec.visible
        view, descriptor = _bind_tensor(spec, visible, value, position)
        values.append(view)
        tensors[spec.name] = descriptor
        _bind_extents(spec, visible, descriptor, position, extents)
    _bind_computed_scalars(fusion, scalars, extents)
    if check_extents:
        check_constraints(fusion, {s.name: n for s, n in extents.items()})
    _check_updates(fusion, values)
    return BoundInputs(tuple(values), tensors, scalars, extents)


def drawn_state(fusion: Fusion, bound: BoundInputs, device: Device) -> tuple[int, ...]:
    """(seed, offset) for the random exprs of one execution, which advances the generator by them; () if there are none.

    The generator is that of the library of the first tensor input, as memory and results are.
    """
    count = fusion.draws
    if not count:
        return ()
    first = next((v for v in bound.values if isinstance(v, ArrayView) and v.array is not None), None)
    return draw_state(first, device, count)


def _described(value: Any, spec: Tensor | Scalar, position: int) -> ArrayView:
    try:
        return describe_array(value)
    except InputError as error:
        raise type(error)(f"{error.message} (input {position}, {spec.name})", location=spec.location) from None


def _bind_scalar(spec: Scalar, value: Any, position: int) -> Number:
    if not is_scalar(value):
        view = value if isinstance(value, ArrayView) else _described(value, spec, position)
        raise InputRuntimeError(
            f"Expected input {position}, {spec.name}, to be a scalar but got {view.dtype.c_name} tensor of rank "
            f"{len(view.sizes)}",
            location=spec.location,
        )
    number = python_number(value)
    kinds = (DataType.Bool, DataType.Int, DataType.Double, DataType.ComplexDouble)
    python_types = (bool, int, float, complex)
    got = next(i for i, t in enumerate(python_types) if isinstance(number, t))
    wanted = 3 if spec.dtype.is_complex else 2 if spec.dtype.is_floating else 1 if spec.dtype.is_integral else 0
    if got > wanted:
        raise InputRuntimeError(
            f"Scalar value {number} is not compatible with the expected data type: {spec.dtype.c_name}. "
            f"(input {position}, {spec.name}; a {kinds[got].c_name} would be narrowed)",
            location=spec.location,
        )
    if spec.dtype.is_integral:
        bits = spec.dtype.itemsize * 8
        low, high = (0, 2**bits) if spec.dtype is DataType.UInt64 else (-(2 ** (bits - 1)), 2 ** (bits - 1))
        if not low <= int(number.real) < high:
            raise InputRuntimeError(
                f"Scalar value {number} is not compatible with the expected data type: {spec.dtype.c_name}. "
                f"(input {position}, {spec.name}; it is out of range)",
                location=spec.location,
            )
    return python_types[wanted](number)  # type: ignore[arg-type]


def _bind_tensor(
    spec: Tensor, visible: Sequence[IterDomain], value: Any, position: int
) -> tuple[ArrayView | Number, TensorDescriptor]:
    if isinstance(value, TensorDescriptor):
        view = ArrayView("fuser", value.dtype, value.sizes, value.strides, value.address, ("cpu", 0), None, None)
        descriptor = value
    else:
        if is_scalar(value):
            if not spec.is_cpu:
                raise InputRuntimeError(
                    f"Expected input {position}, {spec.name}, to be an at::Tensor but got scalar {value}",
                    location=spec.location,
                )
            number = python_number(value)
            return number, TensorDescriptor(spec.dtype, (), ())
        view = value if isinstance(value, ArrayView) else _described(value, spec, position)
        if spec.dtype is DataType.Index and view.dtype is DataType.Int32:
            view = describe_array(_widened(view.array))
        if min(view.strides, default=0) < 0:
            raise InputRuntimeError(
                f"Expected input {position}, {spec.name}, to have strides >= 0, but got {list(view.strides)}; pass a copy",
                location=spec.location,
            )
        descriptor = view.descriptor()
    if len(view.sizes) != len(visible):
        raise InputRuntimeError(
            f"Expected input {position}, {spec.name}, to be bound to a tensor of rank {len(visible)}, but got a tensor of "
            f"rank {len(view.sizes)}",
            location=spec.location,
        )
    same = view.dtype is spec.dtype or {view.dtype, spec.dtype} == {DataType.Index, DataType.Int}
    if not same:
        raise InputRuntimeError(
            f"Expected input {position}, {spec.name}, to be bound to a tensor of dtype {spec.dtype.c_name}, but got a "
            f"tensor of dtype {view.dtype.c_name}",
            location=spec.location,
        )
    return view, descriptor


def _widened(array: Any) -> Any:
    """An int32 array as int64: tensors of dtype Index are int64 in memory."""
    return array.long() if hasattr(array, "long") else array.astype("int64")


def _bind_extents(
    spec: Tensor,
    visible: Sequence[IterDomain],
    descriptor: TensorDescriptor,
    position: int,
    extents: dict[Symbol, int],
) -> None:
    for d, (dim, size) in enumerate(zip(visible, descriptor.sizes, strict=True)):
        if isinstance(dim.extent, Symbol):
            known = extents.setdefault(dim.extent, size)
            if known != size:
                raise InputRuntimeError(
                    f"a conflict was found with 2 different sizes: dim {d} of input {position}, {spec.name}, is {size}, "
                    f"{dim.extent} is {known}",
                    location=spec.location,
                )
        elif dim.extent.is_const and dim.extent.value != size:
            raise InputRuntimeError(
                f"Expected input {position}, {spec.name}, to have extent {dim.extent.value} in dim {d}, but got {size}",
                location=spec.location,
            )


def _bind_computed_scalars(fusion: Fusion, scalars: dict[str, Number], extents: dict[Symbol, int]) -> None:
    """Scalars that shapes need: user scalars, extents, and arithmetic on them."""
    if not fusion.extent_scalars:
        return

    def bind_extent(scalar: Scalar) -> None:
        if scalar.name not in fusion.extent_scalars:
            return
        value = scalars[scalar.name]
        if not isinstance(value, int) or value < 0:
            raise InputRuntimeError(
                f"the scalar {scalar.name} is used as an extent and must be an integer >= 0, got {value}",
                location=scalar.location,
            )
        extents[symbol(scalar.name, 0)] = int(value)

    for spec in fusion.input_scalars:
        bind_extent(spec)
    for expr in fusion.exprs:
        match expr:
            case ExtentOp():
                assert expr.output.expression is not None
                scalars[expr.output.name] = expr.output.expression.evaluate(extents)
            case ScalarOp():
                operands = [s.value if s.value is not None else scalars[s.name] for s in expr.inputs]
                scalars[expr.output.name] = evaluate_scalar_op(expr, operands)
            case _:
                continue
        bind_extent(expr.output)


def _check_updates(fusion: Fusion, values: Sequence[ArrayView | Number]) -> None:
    """A tensor updated in place must not store two of its elements in one place, nor an element of another one updated."""
    updated: dict[int, ArrayView] = {}
    for output in fusion.outputs:
        if output.alias_of is None:
            continue
        position = fusion.inputs.index(output.alias_of)
        view = values[position]
        if not isinstance(view, ArrayView) or view.array is None:
            continue
        if overlaps_itself(view.sizes, view.strides):
            raise InputRuntimeError(
                f"input {position}, {output.alias_of.name}, is updated in place, but its elements overlap in memory "
                f"(shape {list(view.sizes)}, strides {list(view.strides)}); pass a contiguous copy",
                location=output.alias_of.location,
            )
        for other, earlier in updated.items():
            if other != position and share_elements(earlier, view):
                raise InputRuntimeError(
                    f"inputs {other}, {fusion.inputs[other].name}, and {position}, {output.alias_of.name}, are both updated in "
                    "place, but they overlap in memory; pass a copy of one of them",
                    location=output.alias_of.location,
                )
        updated[position] = view
