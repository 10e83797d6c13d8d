"""Comparing results with references: tolerances, host copies, messages.

A tolerance is (absolute, relative): |out - ref| <= absolute + relative * |ref|, with equal nan and inf. It follows from
the dtype of an output and from n, the number of elements folded into one of its elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fuser.errors import DefinitionTypeError, FuserError, InputAssertionError, InputRuntimeError, InputTypeError
from fuser.frontend.fusion_handle import Fusion
from fuser.frontend.reference import evaluate_values, returned_tensors
from fuser.ir.fusion import fusion as ir
from fuser.ir.fusion.extent_binding import bind_extents
from fuser.ir.fusion.scalar_evaluation import Number
from fuser.ir.fusion.tolerances import (
    Tolerance,
    digits_of,
    folded_elements,
    rounded_to,
    tolerance_of,
    tolerance_of_results,
)
from fuser.runtime.generator import last_draw
from fuser.source_location import caller_location
from fuser.tracebacks import short_traceback

Array = np.ndarray[Any, Any]

# --- arrays -----------------------------------------------------------------------------------------------------------


def flatten_inputs(inputs: Iterable[Any]) -> list[Any]:
    """Inputs with a nested list or tuple flattened one level."""
    flat: list[Any] = []
    for value in inputs:
        if isinstance(value, list | tuple):
            flat.extend(value)
        else:
            flat.append(value)
    return flat


def host_array(value: Any) -> Array:
    """An array of any accepted library in host memory, as NumPy. Raises InputTypeError for what is no array."""
    if isinstance(value, np.ndarray):
        return value
    from fuser.runtime.arrays.arrays import describe_array

    view = describe_array(value)
    match view.kind:
        case "torch":
            from fuser.runtime.arrays.torch_arrays import torch_to_numpy

            return torch_to_numpy(value.detach().cpu())
        case "cupy":
            return np.asarray(value.get())
        case "fuser":
            return value.numpy()
        case _:
            return np.asarray(value)


def _argument(spec: ir.Val, value: Any) -> Array | Number:
    if isinstance(spec, ir.Tensor):
        return host_array(value)
    from fuser.runtime.scalars import python_number

    return python_number(value)


def host_arguments(fusion: ir.Fusion, inputs: Iterable[Any]) -> list[Array | Number]:
    """Inputs of an execution as NumPy arrays and numbers. Raises InputRuntimeError for a wrong count."""
    flat = flatten_inputs(inputs)
    if len(flat) != len(fusion.inputs):
        raise InputRuntimeError(f"expected {len(fusion.inputs)} inputs, got {len(flat)}")
    return [_argument(spec, value) for spec, value in zip(fusion.inputs, flat, strict=True)]


# --- tolerances -------------------------------------------------------------------------------------------------------


def output_tolerances(fusion: ir.Fusion, arguments: Sequence[Array | Number]) -> list[Tolerance]:
    """One pair per returned output."""
    folded = _folded(fusion, arguments)
    return [tolerance_of(t.dtype, folded[t]) for t in returned_tensors(fusion)]


def _folded(fusion: ir.Fusion, arguments: Sequence[Array | Number]) -> dict[ir.Tensor, int]:
    binding = bind_extents(fusion, [a.shape if isinstance(a, np.ndarray) else a for a in arguments])
    return folded_elements(fusion, binding.extents)


@short_traceback
def get_val_tolerances(fusion: Fusion, args: Iterable[Any]) -> list[Tolerance]:
    """(absolute, relative) tolerance of each output for these inputs; in-place updates are skipped."""
    current = _ir_of("get_val_tolerances", fusion)
    return output_tolerances(current, host_arguments(current, args))


def _ir_of(call: str, fusion: object) -> ir.Fusion:
    if isinstance(fusion, ir.Fusion):
        return fusion
    if isinstance(fusion, Fusion):
        return fusion.ir_fusion
    raise DefinitionTypeError(
        f"{call}(): incompatible function arguments. Expected a Fusion, got {type(fusion).__name__}",
        location=caller_location(),
    )


# --- comparison -------------------------------------------------------------------------------------------------------


def compare_arrays(
    index: int, actual: Array, expected: Array, tolerance: Tolerance, error: type[FuserError], digits: int = 53
) -> None:
    """Raise `error` naming the output, the largest error and its position unless `actual` is close to `expected`.

    digits  bits that it is rounded to: one unit of so many bits off is close, however large it is
    """
    if actual.shape != expected.shape:
        raise error(f"output {index} has shape {actual.shape}, the reference has shape {expected.shape}")
    absolute, relative = tolerance
    if expected.dtype.kind in "biu" and actual.dtype.kind in "biu":
        wrong = actual != expected
        deviation = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    else:
        wide = np.complex128 if "c" in (actual.dtype.kind, expected.dtype.kind) else np.float64
        out, ref = actual.astype(wide), expected.astype(wide)
        with np.errstate(all="ignore"):
            deviation = np.abs(out - ref)
            size = np.abs(ref)
            unit = np.ldexp(1.0, np.frexp(size)[1] - digits)
            close = deviation <= np.maximum(absolute + relative * size, unit)
        same = (out == ref) | (np.isnan(out) & np.isnan(ref))
        # An infinite reference would make the bound infinite: such elements must be equal.
        wrong = ~(same | (close & np.isfinite(ref) & np.isfinite(out)))
    if not wrong.any():
        return
    size = np.where(wrong, np.where(np.isnan(deviation), np.inf, deviation), -1.0)
    position = tuple(int(i) for i in np.unravel_index(int(np.argmax(size)), size.shape))
    raise error(
        f"output {index} differs from the reference in {int(wrong.sum())} of {wrong.size} elements: largest error "
        f"{float(deviation[position]):.6g} at {position} ({actual[position]}, reference {expected[position]}); "
        f"tolerance {absolute:.3g} + {relative:.3g} * |reference|"
    )


def validate_outputs(
    fusion: ir.Fusion, outputs: Sequence[Any], inputs: Iterable[Any], references: Sequence[Any] | None
) -> None:
    """Compare the outputs of an execution with references, or with the reference evaluator if there are none.

    Raises InputAssertionError on mismatch with references, InputRuntimeError on mismatch without.
    """
    if references is not None and not isinstance(references, (list, tuple)):
        raise InputTypeError(
            f"reference_outputs must be a list of arrays, one per output, got one {type(references).__name__}: write "
            "[reference]"
        )
    arguments = host_arguments(fusion, inputs)
    error: type[FuserError] = InputRuntimeError if references is None else InputAssertionError
    if references is None:
        # The execution that made the outputs is the last one of this thread.
        values = evaluate_values(fusion, arguments, last_draw() if fusion.draws else None)
        expected = [values[t.name] for t in returned_tensors(fusion)]
    else:
        expected = [host_array(r) if not isinstance(r, int | float | complex) else np.asarray(r) for r in references]
    if len(outputs) != len(expected):
        raise error(f"the fusion returned {len(outputs)} outputs, there are {len(expected)} references")
    folded = _folded(fusion, arguments)
    rounded = rounded_to(fusion)
    for index, (out, ref, t) in enumerate(zip(outputs, expected, returned_tensors(fusion), strict=True)):
        wide = ref.astype(np.complex128 if t.dtype.is_complex else np.float64)
        tolerance = tolerance_of_results(t.dtype, folded[t], rounded[t], wide)
        compare_arrays(index, host_array(out), ref, tolerance, error, digits_of(t.dtype))


@short_traceback
def validate_with_auto_inferred_outputs(fusion: Fusion, fusion_outputs: Sequence[Any], args: Iterable[Any]) -> None:
    """Compare outputs with what the reference evaluator computes for `args`.

    Raises InputRuntimeError on mismatch. Inputs that were updated in place must be given as they were before.
    """
    current = _ir_of("validate_with_auto_inferred_outputs", fusion)
    if isinstance(fusion_outputs, str) or not isinstance(fusion_outputs, Sequence):
        raise InputTypeError(f"fusion_outputs must be a list of arrays, got {type(fusion_outputs).__name__}")
    validate_outputs(current, fusion_outputs, args, None)
