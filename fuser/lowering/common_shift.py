"""One shift for all threads of a result: what they have is then added up as it is, and no join moves it.

Statistics are sums of values and of squares of differences from a value of the data. Where each thread takes one of its own,
every join has to move one side's squares to the other's shift: forty operations in Double, most of them one behind the other.
Where a result is of elements of an input, each of its threads reads the first of those beside its own, and knows the shift of
all others; the reads are on their way together with those of the first turn.

Of Doubles a second value is read, of a thread in the middle of the block, which is the shift where it is much nearer to zero: a
value far from all others would cost squares their digits. A value that is not finite is no shift.

Their shift is rounded to a Float. The last bits of one that is much smaller than the other values would be lost from every
difference alike, and errors of one sign do not average out: variances were off by three units.
"""

from __future__ import annotations

from fuser.ir.dtypes import DataType
from fuser.ir.integers import Int
from fuser.ir.kernel import Buffer, Call, Cast, Literal, Load, Store, Value

_LARGEST = {DataType.Float: 3.4028234663852886e38, DataType.Double: 1.7976931348623157e308}
MUCH_NEARER = 0.0625
"""Times the first value: of data around a mean the first is as good a shift as the second, and not the one nearer to zero."""
NOISE = 2.0**-96


def choose_shift(shift: Buffer, firsts: tuple[Buffer, ...], at: Int) -> Store:
    """Set element `at` of the shift; `firsts`: one or two values of every result."""
    first = Load(firsts[0], at)
    dtype = first.dtype
    size = _size(first)
    chosen: Value = first
    if len(firsts) > 1:
        second = Load(firsts[1], at)
        bound = Call("mul", (Literal(MUCH_NEARER, dtype), size), dtype, dtype)
        is_nearer = Call("lt", (_size(second), bound), dtype, DataType.Bool)
        chosen = Call("where", (is_nearer, second, first), dtype, dtype)
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
