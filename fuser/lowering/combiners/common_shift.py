"""One shift for all threads of a result: what they have is then added up as it is, and no join moves it.

Statistics are sums of values and of squares of differences from a value of the data. Where each thread takes one of its own,
every join has to move one side's squares to the other's shift: forty operations in Double, most of them one behind the other.
Where a result is of elements of an input, each of its threads reads the first of those beside its own, and knows the shift of
all others; the reads are on their way together with those of the first iteration.

Of Doubles a second value is read, of a thread in the middle of the block, and the first is the shift only where both are close:
where data are far from zero, and the first is not far from them. Differences are exact then, all but few (P. H. Sterbenz,
"Floating-point computation", 1974). Elsewhere they may be larger than values, and lose a bit; equal values lose the same, and
squares that a shift far from the mean makes large magnify it: the variance of a running maximum was off by 190 units, that of
seventeen values with the largest first by 4.4. So the shift is 0 there, from which nothing is lost: sums are exact enough for
a mean that is some deviations away. A value that is not finite is no shift.

Their shift is rounded to a Float. The last bits of one that is much smaller than the other values would be lost from every
difference alike, and errors of one sign do not average out: variances were off by three units.
"""

from __future__ import annotations

from fuser.ir.dtypes import DataType
from fuser.ir.integers import Int
from fuser.ir.kernel import Buffer, Call, Cast, Literal, Load, Store, Value

_LARGEST = {DataType.Float: 3.4028234663852886e38, DataType.Double: 1.7976931348623157e308}
CLOSE = 0.0625
"""Part of the first value by which a second may differ: of data that are a hundred deviations from zero they differ by less."""
NOISE = 2.0**-96


def choose_shift(shift: Buffer, firsts: tuple[Buffer, ...], at: Int) -> Store:
    """Set element `at` of the shift; `firsts`: one or two values of every result, nan for a second that is not there."""
    first = Load(firsts[0], at)
    dtype = first.dtype
    chosen: Value = first
    if len(firsts) > 1:
        # Of a second value that is not there, which is nan, this is false.
        away = _size(Call("sub", (Load(firsts[1], at), first), dtype, dtype))
        bound = Call("mul", (Literal(CLOSE, dtype), _size(first)), dtype, dtype)
        is_apart = Call("lt", (bound, away), dtype, DataType.Bool)
        chosen = Call("where", (is_apart, Literal(0.0, dtype), first), dtype, dtype)
    finite = Call("le", (_size(chosen), Literal(_LARGEST[dtype], dtype)), dtype, DataType.Bool)
    chosen = Call("where", (finite, chosen, Literal(0.0, dtype)), dtype, dtype)
    if dtype is DataType.Double:
        is_float = Call("le", (_size(chosen), Literal(_LARGEST[DataType.Float], dtype)), dtype, DataType.Bool)
        rounded = Cast(Cast(chosen, DataType.Float), dtype)
        chosen = Call("where", (is_float, rounded, chosen), dtype, dtype)
    return Store(shift, at, chosen if shift.dtype is dtype else Cast(chosen, shift.dtype))


def without_noise(m2: Value, squares: Value) -> Value:
    """The squares of differences from the mean, 0 for values that are all the same: differences from a rounded shift are not 0.

    `squares`: of differences from the shift, as sums with their rests. What is left of those for values that are all the same
    is below 2**-100 of them; of others, two of which differ by a unit, above 2**-56 over their number.
    """
    dtype = m2.dtype
    bound = Call("mul", (squares, Literal(NOISE, dtype)), dtype, dtype)
    is_noise = Call("lt", (m2, bound), dtype, DataType.Bool)
    return Call("where", (is_noise, Literal(0.0, dtype), m2), dtype, dtype)


def _size(value: Value) -> Value:
    return Call("abs", (value,), value.dtype, value.dtype)
