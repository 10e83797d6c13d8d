"""Statistics of Doubles that threads join as sums: of the values, and of the squares of differences from a value of their own.

A partial is (sum, sum of squares, count, shift, rest of the sum, that of the squares), as `exact_welford.add_exactly` makes it.
Sums of values are added up whatever the shifts are; squares of differences from b become those of differences from a first:

    d = b - a;  A = sum - n b;  squares' = squares + d (2 A + n d)

Sums and squares carry what their additions lose, so that a tree of joins costs no digits, and no step divides: the mean and the
squares of the differences from it come of the complete sums, once. Shifts are values of the data, so squares are larger than
those of the differences from the mean by no more than a factor of the number of values. A partial of no values is zeros, and
counts nothing where it is not the first: of those that are joined the first has values if any has.
"""

from __future__ import annotations

from collections.abc import Callable

from fuser.ir.dtypes import DataType
from fuser.ir.enums import MemoryType
from fuser.ir.integers import ONE, ZERO, Int
from fuser.ir.kernel import Allocate, Buffer, Call, Cast, Literal, Load, Shuffle, ShuffleKind, Stmt, Store, Value
from fuser.ir.op_table import compute_dtype
from fuser.lowering.compensated_sum import add_term, join_sums, split_sum

EXACT_SUMS = "exact_sums"
"""What a collective over (sum, sum of squares, count, shift, rest of the sum, that of the squares) is called."""
EXACT_MOMENTS = "exact_moments"
"""The same where all threads of a result have one shift (`common_shift`): (sum, sum of squares, count, and both rests)."""

Elements = Callable[[Callable[[Int], list[Stmt]]], list[Stmt]]


def joined_exactly(acc: tuple[Buffer, ...], at: Int, count_at: Int, other: tuple[Value, ...], name: str) -> list[Stmt]:
    """Join one other partial to element `at`: its shift stays, if it has values yet. Counts are still to be added."""
    count, shift = acc[2], acc[3]
    dtype = shift.dtype
    sum_b, squares_b, count_b, shift_b, rest_b, squares_rest_b = other
    none_yet = Call("eq", (Load(count, count_at), Literal(0, count.dtype)), compute_dtype(count.dtype), DataType.Bool)
    return [
        Store(shift, at, Call("where", (none_yet, shift_b, Load(shift, at)), dtype, dtype)),
        *join_sums((acc[0], acc[4]), at, (sum_b, rest_b), f"{name}_s"),
        *join_sums((acc[1], acc[5]), at, (squares_b, squares_rest_b), f"{name}_q"),
        *_moved((acc[1], acc[5]), at, (sum_b, rest_b), Cast(count_b, dtype), shift_b, Load(shift, at), name),
    ]


def moments_joined(acc: tuple[Buffer, ...], at: Int, other: tuple[Value, ...], name: str) -> list[Stmt]:
    """Join sums of differences from one shift to element `at`; counts are still to be added."""
    total, squares, _, rest, squares_rest = acc
    return [
        *join_sums((total, rest), at, (other[0], other[3]), f"{name}_s"),
        *join_sums((squares, squares_rest), at, (other[1], other[4]), f"{name}_q"),
    ]


def to_one_shift(acc: tuple[Buffer, ...], first: Int, elements: Elements, number: int, width: int) -> list[Stmt]:
    """Take the squares of the lanes of each aligned group of `width` about the shift of its lane `first`."""
    total, squares, count, shift, rest, squares_rest = acc
    name, dtype = f"{total.name}_l{number}", total.dtype
    origin = Buffer(f"{name}_origin", dtype, MemoryType.local, shift.size)
    is_common = count.size is not total.size

    def tell(e: Int) -> list[Stmt]:
        return [Shuffle(origin, e, Load(shift, e), ShuffleKind.index, first, width)]

    def move(e: Int) -> list[Stmt]:
        values = Cast(Load(count, ZERO if is_common else e), dtype)
        own = Load(total, e), Load(rest, e)
        return [
            *_moved((squares, squares_rest), e, own, values, Load(shift, e), Load(origin, e), name),
            Store(shift, e, Load(origin, e)),
        ]

    return [Allocate(origin), *elements(tell), *elements(move)]


def _moved(
    squares: tuple[Buffer, Buffer],
    at: Int,
    total: tuple[Value, Value],
    count: Value,
    shift: Value,
    origin: Value,
    name: str,
) -> list[Stmt]:
    """Add to squares what they gain where a part of their values, of this sum, are taken as differences from another value.

    d = shift - origin;  A = sum - n shift;  t = 2 A + n d;  squares += d t

    Each of these is a pair. Where the origin is far from all other values the squares of all parts are as large as that of the
    one value which counts, and roundings of each would be many of the result.
    """
    dtype = squares[0].dtype
    names = ("away", "away_rest", "common", "own", "own_rest", "part", "twice", "twice_rest", "gain")
    d, d_rest, common, own, own_rest, part, twice, twice_rest, gain = (_register(f"{name}_{n}", dtype) for n in names)

    def split(a: Value, b: Value, into: Buffer, lost: Buffer, of: str) -> list[Stmt]:
        stmts, s, missing = split_sum(a, b, dtype, f"{name}_{of}")
        return [*stmts, Store(into, ZERO, s), Store(lost, ZERO, missing)]

    def product(a: Value, b: Value) -> Value:
        return Call("product", (a, b), dtype, dtype)

    def error(a: Value, b: Value) -> Value:
        return Call("product_error", (a, b), dtype, dtype)

    def get(b: Buffer) -> Load:
        return Load(b, ZERO)

    left = _call("add", _call("sub", get(own_rest), error(count, shift)), total[1])
    lost_of_part = _fma(count, get(d_rest), error(count, get(d)))
    more = _call("add", _call("add", get(own_rest), get(own_rest)), lost_of_part)
    lost = _fma(get(d), get(twice_rest), _fma(get(d_rest), get(twice), error(get(d), get(twice))))
    return [
        *(Allocate(b) for b in (d, d_rest, common, own, own_rest, part, twice, twice_rest, gain)),
        *split(shift, _minus(origin), d, d_rest, "d"),
        Store(common, ZERO, product(count, shift)),
        *split(total[0], _minus(get(common)), own, own_rest, "a"),
        Store(own_rest, ZERO, left),
        Store(part, ZERO, product(count, get(d))),
        *split(_call("add", get(own), get(own)), get(part), twice, twice_rest, "t"),
        Store(twice_rest, ZERO, _call("add", get(twice_rest), more)),
        Store(gain, ZERO, product(get(d), get(twice))),
        *add_term(*squares, at, get(gain), f"{name}_g", exact=True),
        Store(squares[1], at, _call("add", Load(squares[1], at), lost)),
    ]


def _minus(value: Value) -> Value:
    return Call("neg", (value,), value.dtype, value.dtype)


def _fma(a: Value, b: Value, c: Value) -> Value:
    return Call("fma", (a, b, c), c.dtype, c.dtype)


def _call(op: str, a: Value, b: Value) -> Call:
    return Call(op, (a, b), a.dtype, a.dtype)


def _register(name: str, dtype: DataType) -> Buffer:
    return Buffer(name, dtype, MemoryType.local, ONE)
