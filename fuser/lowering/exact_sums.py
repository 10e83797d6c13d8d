"""Statistics of Doubles that threads join as sums: of the values, and of the squares of differences from a value of their own.

A partial is (sum, sum of squares, count, shift, rest of the sum, that of the squares), as `exact_welford.add_exactly` makes it.
Sums of values are added up whatever the shifts are; squares of differences from b become those of differences from a first:

    d = b - a;  A = sum - n b + rest;  squares' = squares + d (2 A + n d)

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
from fuser.lowering.compensated_sum import add_term, join_sums

EXACT_SUMS = "exact_sums"
"""What a collective over (sum, sum of squares, count, shift, rest of the sum, that of the squares) is called."""

Elements = Callable[[Callable[[Int], list[Stmt]]], list[Stmt]]


def joined_exactly(acc: tuple[Buffer, ...], at: Int, count_at: Int, other: tuple[Value, ...], name: str) -> list[Stmt]:
    """Join one other partial to element `at`: its shift stays, if it has values yet. Counts are still to be added."""
    count, shift = acc[2], acc[3]
    dtype = shift.dtype
    sum_b, squares_b, count_b, shift_b, rest_b, squares_rest_b = other
    d = _register(f"{name}_away", dtype)
    none_yet = Call("eq", (Load(count, count_at), Literal(0, count.dtype)), compute_dtype(count.dtype), DataType.Bool)
    gain = _gain(d, sum_b, rest_b, Cast(count_b, dtype), shift_b)
    return [
        Allocate(d),
        Store(shift, at, Call("where", (none_yet, shift_b, Load(shift, at)), dtype, dtype)),
        Store(d, ZERO, _call("sub", shift_b, Load(shift, at))),
        *join_sums((acc[0], acc[4]), at, (sum_b, rest_b), f"{name}_s"),
        *join_sums((acc[1], acc[5]), at, (squares_b, squares_rest_b), f"{name}_q"),
        *add_term(acc[1], acc[5], at, gain, f"{name}_g", exact=True),
    ]


def to_one_shift(acc: tuple[Buffer, ...], first: Int, elements: Elements, number: int, width: int) -> list[Stmt]:
    """Make the squares of the lanes of each aligned group of `width` those of differences from the shift of its lane `first`."""
    total, squares, count, shift, rest, squares_rest = acc
    name, dtype = f"{total.name}_l{number}", total.dtype
    origin = Buffer(f"{name}_origin", dtype, MemoryType.local, shift.size)
    d = _register(f"{name}_away", dtype)
    is_common = count.size is not total.size

    def tell(e: Int) -> list[Stmt]:
        return [Shuffle(origin, e, Load(shift, e), ShuffleKind.index, first, width)]

    def move(e: Int) -> list[Stmt]:
        number_of = Cast(Load(count, ZERO if is_common else e), dtype)
        gain = _gain(d, Load(total, e), Load(rest, e), number_of, Load(shift, e))
        return [
            Store(d, ZERO, _call("sub", Load(shift, e), Load(origin, e))),
            *add_term(squares, squares_rest, e, gain, f"{name}_g", exact=True),
            Store(shift, e, Load(origin, e)),
        ]

    return [Allocate(origin), Allocate(d), *elements(tell), *elements(move)]


def _gain(d: Buffer, total: Value, rest: Value, number: Value, shift: Value) -> Value:
    """d (2 A + n d), A = total - n shift + rest."""
    dtype, by = d.dtype, Load(d, ZERO)
    own = _call("add", _fma(_minus(number), shift, total), rest)
    return Call("mul", (by, _fma(number, by, _call("add", own, own))), dtype, dtype)


def _minus(value: Value) -> Value:
    return Call("neg", (value,), value.dtype, value.dtype)


def _fma(a: Value, b: Value, c: Value) -> Value:
    return Call("fma", (a, b, c), c.dtype, c.dtype)


def _call(op: str, a: Value, b: Value) -> Call:
    return Call(op, (a, b), a.dtype, a.dtype)


def _register(name: str, dtype: DataType) -> Buffer:
    return Buffer(name, dtype, MemoryType.local, ONE)
