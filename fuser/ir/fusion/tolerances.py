"""How far results may be off: (absolute, relative) by the dtype of an output and the number of elements folded into one of its
elements. |out - ref| <= absolute + relative * |ref| for data of unit variance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fuser.ir.fusion.fusion import Fusion, LibraryOp, Reducing, Scan, Tensor, tensor_inputs, tensor_outputs
from fuser.ir.fusion.library_ops import LIBRARY_OPS
from fuser.ir.ops.dtypes import DataType

if TYPE_CHECKING:
    import numpy as np

Tolerance = tuple[float, float]


def tolerance_of(dtype: DataType, n: int) -> Tolerance:
    """(absolute, relative) for an output of `dtype` whose elements fold `n` elements each; (0, 0) is exact."""
    if not (dtype.is_floating or dtype.is_complex):
        return 0.0, 0.0
    is_double = dtype in (DataType.Double, DataType.ComplexDouble)
    is_single = dtype in (DataType.Float, DataType.ComplexFloat)
    if n <= 1:
        if is_double:
            return 4e-15, 4e-15
        return (1.7e-6, 2.2e-6) if is_single else (2.0**-8, 2.0**-7)
    exponent = max(n, 4)
    margin = 2 * (1 << (exponent - 1).bit_length())
    # Error of summing m numbers of unit variance in Float; half an ulp of a result of size about sqrt(m).
    summation = 7.5e-7 * margin**0.58
    half_ulp = 2.0 ** (-8 + math.ceil((math.log2(margin) - 2) / 2))
    if is_single:
        absolute = summation
    elif is_double:
        absolute = summation * 2.0**-29
    else:
        absolute = half_ulp if dtype is DataType.Half else 10 * half_ulp
    return absolute, absolute / 100


_DIGITS = {
    DataType.Double: 53,
    DataType.ComplexDouble: 53,
    DataType.Float: 24,
    DataType.ComplexFloat: 24,
    DataType.Half: 11,
    DataType.BFloat16: 8,
}


def digits_of(dtype: DataType) -> int:
    """Bits of a significand; 53 where values are exact."""
    return _DIGITS.get(dtype, 53)


def tolerance_of_results(dtype: DataType, n: int, rounded: DataType, results: np.ndarray) -> Tolerance:
    """`tolerance_of` for results of any size, with what rounding on their way adds; (0, 0) is exact.

    rounded  what `rounded_to` says of the output: a unit of a coarser type than its own, at the size of the results, is added
    results  those that others are compared with
    """
    import numpy as np

    absolute, relative = tolerance_of(dtype, n)
    finite = np.abs(results[np.isfinite(results)])
    most = float(finite.max()) if finite.size else 0.0
    if not absolute or not most:
        return absolute, relative
    # The root of the mean square; squares of what is large are not finite.
    size = most * float(np.sqrt(np.mean((finite / most) ** 2)))
    absolute *= max(1.0, size / math.sqrt(max(n, 1)))
    if digits_of(rounded) < digits_of(dtype):
        unit = 2.0 ** (1 - digits_of(rounded))
        return absolute + unit * size, relative + unit
    return absolute, relative


def rounded_to(fusion: Fusion) -> dict[Tensor, DataType]:
    """Per tensor the type of fewest bits that it, or a value that it is computed from, is rounded to.

    That of an input, which is what it is, is Double. Two that compute the same may round such a value to either side.
    """
    found: dict[Tensor, DataType] = dict.fromkeys(fusion.input_tensors, DataType.Double)
    for expr in fusion.tensor_exprs:
        before = min((found[t] for t in tensor_inputs(expr)), key=digits_of, default=DataType.Double)
        found.update({t: min(t.dtype, before, key=digits_of) for t in tensor_outputs(expr)})
    return found


def folded_elements(fusion: Fusion, extents: Mapping[str, int]) -> dict[Tensor, int]:
    """Per tensor, how many elements are folded into one of its elements, for these values of the extent symbols."""
    folded: dict[Tensor, int] = dict.fromkeys(fusion.input_tensors, 1)
    for expr in fusion.tensor_exprs:
        n = max((folded[t] for t in tensor_inputs(expr)), default=1)
        outputs = tensor_outputs(expr)
        if isinstance(expr, Reducing):
            for d in outputs[0].produced:
                if d.is_reduction:
                    n *= d.extent.evaluate(extents)
        elif isinstance(expr, Scan):
            n *= expr.axis.extent.evaluate(extents)
        elif isinstance(expr, LibraryOp):
            dim = LIBRARY_OPS[expr.op].folded(expr)
            n *= 1 if dim is None else dim.extent.evaluate(extents)
        folded.update(dict.fromkeys(outputs, n))
    return folded
