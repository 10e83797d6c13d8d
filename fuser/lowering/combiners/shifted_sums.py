"""Statistics that threads join as sums: of differences from a value of each thread's own, and of their squares, in Double.

A partial is (sum, sum of squares, count, shift), as `wide_welford.add_wide` makes it. Sums of differences from a become those
of differences from b by a few fused multiply-adds, and are added up then:

    d = a - b;  sum' = n d + sum;  squares' = squares + d (sum' + sum)

No step divides: the mean and the squares of the differences from it come of the complete sums, once. Both shifts are values of
the data, so squares are larger than those of the differences from the mean by no more than a factor of the number of values
(`wide_welford`). A partial of no values is four zeros, and counts nothing where it is not the first: of those that are joined
the first has values if any has.
"""

from __future__ import annotations

from collections.abc import Callable

from fuser.ir.dtypes import DataType
from fuser.ir.enums import MemoryType
from fuser.ir.integers import ONE, ZERO, Int, Symbol
from fuser.ir.kernel import (
    Allocate,
    Buffer,
    Call,
    Cast,
    For,
    Literal,
    Load,
    Shuffle,
    ShuffleKind,
    Stmt,
    Store,
    Value,
)
from fuser.ir.op_table import compute_dtype
from fuser.lowering.parallel_axes import WARP

SHIFTED = "shifted_sums"
"""What a collective over (sum, sum of squares, count, shift) is called."""

Double = DataType.Double
Elements = Callable[[Callable[[Int], list[Stmt]]], list[Stmt]]


def moved_to(acc: tuple[Buffer, ...], origin: Buffer, elements: Elements, name: str) -> list[Stmt]:
    """Make sums of differences from each element's own shift those of differences from its `origin`."""
    total, squares, count, shift = acc
    is_common = count.size is not total.size
    d, moved, number = (_register(f"{name}_{part}") for part in ("away", "moved", "number"))

    def weigh(e: Int) -> list[Stmt]:
        return [Store(number, ZERO, Cast(Load(count, e), Double))]

    def move(e: Int) -> list[Stmt]:
        both = _call("add", Load(moved, ZERO), Load(total, e))
        return [
            *([] if is_common else weigh(e)),
            Store(d, ZERO, _call("sub", Load(shift, e), Load(origin, e))),
            Store(moved, ZERO, _fma(Load(number, ZERO), Load(d, ZERO), Load(total, e))),
            Store(squares, e, _fma(Load(d, ZERO), both, Load(squares, e))),
            Store(total, e, Load(moved, ZERO)),
            Store(shift, e, Load(origin, e)),
        ]

    return [*(Allocate(b) for b in (d, moved, number)), *(weigh(ZERO) if is_common else []), *elements(move)]


def to_first_lane(
    acc: tuple[Buffer, ...], first: Int, elements: Elements, number: int, width: int = WARP
) -> list[Stmt]:
    """The same for the lanes of each aligned group of `width`, about the shift of lane `first` of it."""
    shift = acc[3]
    name = f"{acc[0].name}_l{number}"
    origin = Buffer(f"{name}_origin", shift.dtype, MemoryType.local, shift.size)

    def tell(e: Int) -> list[Stmt]:
        return [Shuffle(origin, e, Load(shift, e), ShuffleKind.index, first, width)]

    return [Allocate(origin), *elements(tell), *moved_to(acc, origin, elements, name)]


def joined(acc: tuple[Buffer, ...], at: Int, count_at: Int, other: tuple[Value, ...], name: str) -> list[Stmt]:
    """Join one other partial to element `at`: its shift stays, if it has values yet. Counts are still to be added."""
    total, squares, count, shift = acc
    sum_b, squares_b, count_b, shift_b = other
    d, moved = _register(f"{name}_away"), _register(f"{name}_moved")
    none_yet = Call("eq", (Load(count, count_at), Literal(0, count.dtype)), compute_dtype(count.dtype), DataType.Bool)
    return [
        *(Allocate(b) for b in (d, moved)),
        Store(shift, at, Call("where", (none_yet, shift_b, Load(shift, at)), Double, Double)),
        Store(d, ZERO, _call("sub", shift_b, Load(shift, at))),
        Store(moved, ZERO, _fma(Cast(count_b, Double), Load(d, ZERO), sum_b)),
        Store(total, at, _call("add", Load(total, at), Load(moved, ZERO))),
        Store(squares, at, _call("add", Load(squares, at), _moved_squares(d, moved, sum_b, squares_b))),
    ]


def pool_sums(
    acc: tuple[Buffer, ...],
    others: Callable[[int, Int, Int], Value],
    number: Int,
    elements: Elements,
    make_symbol: Callable[[str, Int], Symbol],
    name: str,
    *,
    unroll: bool = False,
) -> list[Stmt]:
    """Set all four to what `number` partials have together, about the first one's shift; see `welford.pool_statistics`."""
    total, squares, count, shift = acc
    is_common = count.size is not total.size
    d, moved, weight = (_register(f"{name}_{part}") for part in ("away", "moved", "weight"))
    k = make_symbol("k", number)

    def each(once: Callable[[Int], list[Stmt]], rest: Callable[[Int], list[Stmt]]) -> list[Stmt]:
        return [*once(ZERO), *elements(rest)] if is_common else elements(lambda e: [*once(e), *rest(e)])

    def clear(e: Int) -> list[Stmt]:
        return [Store(count, e, others(2, e, ZERO))]

    def start(e: Int) -> list[Stmt]:
        return [Store(b, e, others(i, e, ZERO)) for i, b in ((0, total), (1, squares), (3, shift))]

    def weigh(e: Int) -> list[Stmt]:
        both = Call("add", (Load(count, e), others(2, e, k)), compute_dtype(count.dtype), count.dtype)
        return [Store(weight, ZERO, Cast(others(2, e, k), Double)), Store(count, e, both)]

    def add(e: Int) -> list[Stmt]:
        sum_b, squares_b = others(0, e, k), others(1, e, k)
        return [
            Store(d, ZERO, _call("sub", others(3, e, k), Load(shift, e))),
            Store(moved, ZERO, _fma(Load(weight, ZERO), Load(d, ZERO), sum_b)),
            Store(total, e, _call("add", Load(total, e), Load(moved, ZERO))),
            Store(squares, e, _call("add", Load(squares, e), _moved_squares(d, moved, sum_b, squares_b))),
        ]

    return [
        *(Allocate(b) for b in (d, moved, weight)),
        *each(clear, start),
        For(k, ONE, number, ONE, tuple(each(weigh, add)), unroll=unroll),
    ]


def _moved_squares(d: Buffer, moved: Buffer, sum_b: Value, squares_b: Value) -> Value:
    return _fma(Load(d, ZERO), _call("add", Load(moved, ZERO), sum_b), squares_b)


def _fma(a: Value, b: Value, c: Value) -> Value:
    return Call("fma", (a, b, c), Double, Double)


def _call(op: str, a: Value, b: Value) -> Call:
    return Call(op, (a, b), Double, Double)


def _register(name: str) -> Buffer:
    return Buffer(name, Double, MemoryType.local, ONE)
