"""Numbers around the ties of a 16-bit type, and the bits that rounding each of them once to nearest even gives.

The bits follow from how the numbers are made, between which two neighbours and on which side of their middle, so that no
conversion of NumPy, ml_dtypes or torch takes part: those of ml_dtypes and torch go through Float and round twice.
"""

from __future__ import annotations

import numpy as np

from fuser.ir.ops.dtypes import DataType
from tests.judging.accuracy import Array

WIDE = (DataType.Double, DataType.Float, DataType.Int, DataType.Int32, DataType.UInt64, DataType.ComplexDouble)
NARROW = (DataType.Half, DataType.BFloat16)
_INFINITY = {DataType.Half: 0x7C00, DataType.BFloat16: 0x7F80}
_OVERFLOW = {DataType.Half: 2.0**16, DataType.BFloat16: 2.0**128}


def around_ties(source: DataType, target: DataType) -> tuple[Array, Array]:
    """All ties between neighbours of `target` that `source` holds, with the numbers of `source` right below and above them.

    The second array is what they round to, as bits (uint16). Subnormal numbers, zeros of either sign and the edge where
    numbers become infinite are among them; for floating types infinities are too.
    """
    infinity = _INFINITY[target]
    low = np.arange(infinity, dtype=np.uint16)
    # Behind the largest finite number is the power of two that it would be followed by.
    ends = np.append(low.view(target.numpy).astype(np.float64), _OVERFLOW[target])
    ties = (ends[:-1] + ends[1:]) / 2
    up, even = low + np.uint16(1), low + (low & np.uint16(1))
    if source.is_integral:
        held = (ties == np.rint(ties)) & (ties < float(np.iinfo(source.numpy).max))
        middle = np.array([int(t) for t in ties[held]], source.numpy)
        values = np.concatenate([middle - middle.dtype.type(1), middle, middle + middle.dtype.type(1)])
        bits = np.concatenate([low[held], even[held], up[held]])
    else:
        kind = np.float32 if source is DataType.Float else np.float64
        middle = ties.astype(kind)
        below, above = np.nextafter(middle, kind(0)), np.nextafter(middle, kind(np.inf))
        values = np.concatenate(
            [below, middle, above, np.array([np.inf, np.finfo(kind).max, np.finfo(kind).smallest_subnormal])]
        )
        bits = np.concatenate([low, even, up, np.array([infinity, infinity, 0], np.uint16)])
    if source is not DataType.UInt64:
        negative = values != 0 if source.is_integral else np.ones(values.shape, np.bool_)
        values = np.concatenate([values, -values[negative]])
        bits = np.concatenate([bits, bits[negative] | np.uint16(0x8000)])
    return values.astype(source.numpy), bits
