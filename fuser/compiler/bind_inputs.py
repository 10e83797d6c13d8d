"""Bind the arguments of an execution to a fusion's inputs: count, kinds, ranks, dtypes, static sizes, equal extents.

Wrong kinds, ranks, dtypes and static sizes are reported here, unequal extents by `check_constraints`
(ir/fusion/extent_binding.py), invalid reshapes by ir/fusion/concretize.py: all before anything is compiled or enqueued.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from fuser.errors import ElementTypeError, InputError, InputRuntimeError, InputTypeError
from fuser.ir.facts import TensorDescriptor, shared_memory
from fuser.ir.fusion.extent_binding import asked_text, check_constraints
from fuser.ir.fusion.fusion import ExtentOp, Fusion, IterDomain, Scalar, ScalarOp, Tensor
from fuser.ir.fusion.scalar_evaluation import evaluate_scalar_op
from fuser.ir.fusion.user_names import extent_text, input_label, input_list, input_name, input_subject, value_name
from fuser.ir.integers.integers import Int, Symbol, symbol
from fuser.ir.ops.dtypes import DataType
from fuser.records import record
from fuser.runtime.array_view import ArrayView, share_elements, strides_in_memory
from fuser.runtime.arrays.arrays import cast_text, describe_array, input_sequence, library_of
from fuser.runtime.devices.device import Device
from fuser.runtime.generator import draw_state
from fuser.runtime.layouts import overlaps_itself
from fuser.runtime.scalars import is_scalar, python_number
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
        if isinstance(expression, Symbol):
            found = self.extents.get(expression)
            if found is not None:
                return found
        return expression.evaluate(self.extents)


def flatten(inputs: Iterable[Any]) -> list[Any]:
    """Arguments with nested lists and tuples flattened one level. Raises InputTypeError for what holds no arguments."""
    flat: list[Any] = []
    for position, value in enumerate(input_sequence(inputs)):
        if not isinstance(value, (list, tuple)) or isinstance(value, ArrayView):
            flat.append(value)
            continue
        if any(isinstance(v, (list, tuple)) for v in value):
            raise InputTypeError(
                f"input {position} is a Python list of lists, which is no array: pass np.array(values, np.float32)"
            )
        flat.extend(value)
    return flat


def bind_inputs(fusion: Fusion, inputs: Iterable[Any], *, check_extents: bool = True) -> BoundInputs:
    """Check arguments against a fusion and describe them.

    Arguments may be arrays, numbers, ArrayViews, or TensorDescriptors (for compiling without data). `check_extents` False
    leaves out which extents must be equal: whoever concretizes the fusion first asks that of the result.
    Raises InputRuntimeError naming the input, InputTypeError for what is no array.
    """
    given = input_sequence(inputs)
    flat = flatten(given)
    if len(flat) != len(fusion.inputs):
        raise _wrong_count(fusion, given, len(flat))
    values: list[ArrayView | Number] = []
    tensors: dict[str, TensorDescriptor] = {}
    scalars: dict[str, Number] = {}
    extents: dict[Symbol, int] = {}
    for position, (spec, value) in enumerate(zip(fusion.inputs, flat, strict=True)):
        if isinstance(spec, Scalar):
            number = _bind_scalar(fusion, spec, value, position)
            values.append(number)
            scalars[spec.name] = number
            continue
        visible = spec.visible
        view, descriptor = _bind_tensor(fusion, spec, visible, value, position)
        values.append(view)
        tensors[spec.name] = descriptor
        _bind_extents(fusion, spec, visible, descriptor, position, extents)
    _bind_computed_scalars(fusion, scalars, extents)
    if check_extents:
        check_constraints(fusion, {s.name: n for s, n in extents.items()})
    _check_updates(fusion, values)
    return BoundInputs(tuple(values), tensors, scalars, extents)


def overlaps(bound: BoundInputs) -> tuple[tuple[int, int], ...]:
    """Pairs of tensors whose bytes meet, by position. What has no storage yet meets nothing, as facts have it."""
    return shared_memory(tuple(t.byte_range if t.address else (0, 0) for t in bound.tensors.values()))


def updates_apart(fusion: Fusion, bound: BoundInputs) -> frozenset[str]:
    """Inputs that are updated and share memory with no other one: nobody reads it by another name."""
    updated = {o.alias_of.name for o in fusion.outputs if o.alias_of is not None}
    if not updated:
        return frozenset()
    names = tuple(bound.tensors)
    return frozenset(updated.difference(names[i] for pair in overlaps(bound) for i in pair))


def drawn_state(fusion: Fusion, bound: BoundInputs, device: Device) -> tuple[int, ...]:
    """(seed, offset) for the random exprs of one execution, which advances the generator by them; () if there are none.

    The generator is that of the library of the first tensor input, as memory and results are.
    """
    count = fusion.draws
    if not count:
        return ()
    first = next((v for v in bound.values if isinstance(v, ArrayView) and v.array is not None), None)
    return draw_state(first, device, count)


def drawing(fusion: Fusion, bound: BoundInputs, device: Device) -> Callable[[], tuple[int, int]]:
    """`drawn_state` for calls like this one, without its inputs."""
    first = next((v for v in bound.values if isinstance(v, ArrayView) and v.array is not None), None)
    # Of its library and device alone.
    kept = None if first is None else first._replace(owner=None, array=None, sizes=(), strides=(), address=0)
    return partial(draw_state, kept, device, fusion.draws)


def fixing_scalars(fusion: Fusion) -> frozenset[Scalar]:
    """The scalar inputs that extents or host arithmetic depend on; the others only pass through to kernels."""
    found = {s for s in fusion.input_scalars if s.name in fusion.extent_scalars}
    for expr in fusion.exprs:
        if isinstance(expr, ScalarOp):
            found.update(s for s in expr.inputs if s in fusion.input_scalars)
    return frozenset(found)


def _wrong_count(fusion: Fusion, given: Iterable[Any], count: int) -> InputRuntimeError:
    wanted = len(fusion.inputs)
    lists = sum(isinstance(v, (list, tuple)) for v in given) if isinstance(given, (list, tuple)) else 0
    nested = (
        "; a list within the list counts as its items: pass np.array(values, np.float32) for a tensor" if lists else ""
    )
    return InputRuntimeError(
        f"Expected {wanted} input{'s' * (wanted != 1)} ({input_list(fusion)}), got {count}{nested}",
        location=caller_location(),
    )


def _described(fusion: Fusion, value: Any, spec: Tensor | Scalar, position: int) -> ArrayView:
    try:
        return describe_array(value)
    except InputError as error:
        remedy = ""
        if isinstance(error, ElementTypeError) and isinstance(spec, Tensor):
            remedy = f": pass {cast_text(library_of(value), spec.dtype)}, as {spec.dtype!r} is what it is defined as"
        raise type(error)(
            f"{error.message} ({input_label(fusion, position)}){remedy}", location=spec.location
        ) from None


def _bind_scalar(fusion: Fusion, spec: Scalar, value: Any, position: int) -> Number:
    if not is_scalar(value):
        view = value if isinstance(value, ArrayView) else _described(fusion, value, spec, position)
        raise InputRuntimeError(
            f"Expected input {position}, {input_name(fusion, position)}, to be a scalar but got {view.dtype.c_name} tensor "
            f"of rank {len(view.sizes)}: pass a Python number, or define it by fd.define_tensor",
            location=spec.location,
        )
    number = python_number(value)
    kinds = (DataType.Bool, DataType.Int, DataType.Double, DataType.ComplexDouble)
    python_types = (bool, int, float, complex)
    got = next(i for i, t in enumerate(python_types) if isinstance(number, t))
    wanted = 3 if spec.dtype.is_complex else 2 if spec.dtype.is_floating else 1 if spec.dtype.is_integral else 0
    # A complex number is spelled as C++ does, as its type is.
    shown = f"({number.real:g},{number.imag:g})" if isinstance(number, complex) else number
    misfit = f"Scalar value {shown} is not compatible with the expected data type: {spec.dtype.c_name}."
    if got > wanted:
        raise InputRuntimeError(
            f"{misfit} Pass {python_types[wanted].__name__}(...) for {input_label(fusion, position)}, or define it as "
            f"{kinds[got]!r}",
            location=spec.location,
        )
    if spec.dtype.is_integral:
        low, high = spec.dtype.integer_range
        if not low <= int(number.real) < high:
            wider = ", or define it as DataType.Int" if spec.dtype is DataType.Int32 else ""
            raise InputRuntimeError(
                f"{misfit} Pass a number from {low} to {high - 1} for {input_label(fusion, position)}{wider}",
                location=spec.location,
            )
    try:
        return python_types[wanted](number)  # type: ignore[arg-type]
    except OverflowError:
        raise InputRuntimeError(
            f"Scalar value of {int(number.real).bit_length()} bits is not compatible with the expected data type: "
            f"{spec.dtype.c_name}. Pass a number below 2**1024 for {input_label(fusion, position)}",
            location=spec.location,
        ) from None


def _bind_tensor(
    fusion: Fusion, spec: Tensor, visible: Sequence[IterDomain], value: Any, position: int
) -> tuple[ArrayView | Number, TensorDescriptor]:
    if isinstance(value, TensorDescriptor):
        view = ArrayView("fuser", value.dtype, value.sizes, value.strides, value.address, ("cpu", 0), None, None)
        descriptor = value
    else:
        if is_scalar(value):
            if not spec.is_cpu:
                raise InputRuntimeError(
                    f"Expected input {position}, {input_name(fusion, position)}, to be an at::Tensor but got scalar {value}: "
                    f"pass an array of rank {len(visible)}, or define it by fd.define_scalar",
                    location=spec.location,
                )
            number = python_number(value)
            return number, TensorDescriptor(spec.dtype, (), ())
        view = value if isinstance(value, ArrayView) else _described(fusion, value, spec, position)
        if spec.dtype is DataType.Index and view.dtype is DataType.Int32:
            view = describe_array(_widened(view.array))
        if min(view.strides, default=0) < 0:
            raise InputRuntimeError(
                f"Expected input {position}, {input_name(fusion, position)}, to have strides >= 0, but got "
                f"{list(view.strides)}; pass a copy",
                location=spec.location,
            )
        descriptor = view.descriptor()
    if len(view.sizes) != len(visible):
        raise InputRuntimeError(
            f"Expected input {position}, {input_name(fusion, position)}, to be bound to a tensor of rank {len(visible)}, but "
            f"got a tensor of rank {len(view.sizes)}: pass one like {_shape_text(visible)}, or define the input as "
            f"{[-1] * len(view.sizes)} for shape {list(view.sizes)}",
            location=spec.location,
        )
    same = view.dtype is spec.dtype or {view.dtype, spec.dtype} == {DataType.Index, DataType.Int}
    if not same:
        raise InputRuntimeError(
            f"Expected input {position}, {input_name(fusion, position)}, to be bound to a tensor of dtype "
            f"{spec.dtype.c_name}, but got a tensor of dtype {view.dtype.c_name}: pass {cast_text(view.kind, spec.dtype)}, "
            f"or define the input as {view.dtype!r}",
            location=spec.location,
        )
    return view, descriptor


def _shape_text(visible: Sequence[IterDomain]) -> str:
    """A shape as it is defined: `[-1, 4]`."""
    return f"[{', '.join(str(d.extent) if d.extent.is_const else '-1' for d in visible)}]"


def _widened(array: Any) -> Any:
    """An int32 array as int64: tensors of dtype Index are int64 in memory."""
    return array.long() if hasattr(array, "long") else array.astype("int64")


def _bind_extents(
    fusion: Fusion,
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
                    f"a conflict was found with 2 different sizes: dim {d} of {input_subject(fusion, position)} is {size}, "
                    f"{extent_text(fusion, dim.extent)} is {known}",
                    location=spec.location,
                )
        elif dim.extent.is_const and dim.extent.value != size:
            raise InputRuntimeError(
                f"Expected input {position}, {input_name(fusion, position)}, to have extent {dim.extent.value} in dim {d}, but "
                f"got {size} (shape {list(descriptor.sizes)}); a dim that is defined as -1 takes any extent",
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
                f"the scalar {value_name(fusion, scalar)} is used as an extent and must be an integer >= 0, got {value}"
                f"{asked_text(fusion, scalar)}",
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
        if overlaps_itself(view.sizes, strides_in_memory(view)):
            raise InputRuntimeError(
                f"{input_subject(fusion, position)} is updated in place, but its elements overlap in memory "
                f"(shape {list(view.sizes)}, strides {list(strides_in_memory(view))}); pass a contiguous copy",
                location=output.alias_of.location,
            )
        for other, earlier in updated.items():
            if other != position and share_elements(earlier, view):
                raise InputRuntimeError(
                    f"{input_subject(fusion, other)} and {input_subject(fusion, position)} are both updated in place, but they "
                    "overlap in memory; pass a copy of one of them",
                    location=output.alias_of.location,
                )
        updated[position] = view
