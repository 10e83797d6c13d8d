"""Statistics of several parts together, each part looked at once. Part of the pass expand_collectives.

    d_k = mean_k - mean_0;  n = sum(n_k);  a = sum(n_k d_k);  b = sum(m2_k + n_k d_k^2)
    mean = mean_0 + a / n;  m2 = b - a^2 / n, and not below 0

`pool_statistics` looks at each part twice: it rounds less, but parts that come from device memory all stay in registers until
the last has come. The first part is one of those that are joined, so b is at most as many times m2 as there are parts; it has
values if any part has.
"""

from __future__ import annotations

from collections.abc import Callable

from fuser.ir.dtypes import DataType
from fuser.ir.enums import MemoryType
from fuser.ir.integers import ONE, ZERO, Int, Symbol
from fuser.ir.kernel import Allocate, Buffer, Call, Cast, For, Literal, Load, Reduce, Role, Stmt, Store, Value
from fuser.ir.op_table import compute_dtype
from fuser.lowering.join_partials import Joins
from fuser.lowering.welford import temporary


def join_at_once(joins: Joins, r: Reduce, part: Callable[[int, Int, Int], Value], number: Int) -> list[Stmt]:
    """Set the partials to what parts have together, all of them asked for before: `part(i, e, k)` is element e of partial i of
    part k."""
    if r.combine == "welford" and not r.partials[0].dtype.is_complex:
        return pool_once(joins, r.partials, part, number, f"{r.name}_c{joins.axes.number()}")
    return joins.join_all(r, part, number, unroll=True)


def pool_once(
    joins: Joins,
    acc: tuple[Buffer, ...],
    others: Callable[[int, Int, Int], Value],
    number: Int,
    name: str,
    *,
    origin: Value | None = None,
    meet: Callable[[tuple[Buffer, ...]], list[Stmt]] | None = None,
) -> list[Stmt]:
    """Set (mean, m2, count) to those of `number` triples together: `others(i, e, k)` is array i of triple k for element e.

    origin   what means are differences from, if not the mean of triple 0
    meet     adds up (a, b, n) over threads that have one element each, of other triples and the same origin
    """
    mean, m2, count = acc
    is_common = count.size is not mean.size
    real, dtype, integral = m2.dtype, mean.dtype, compute_dtype(count.dtype)
    total = Buffer(f"{name}_total", count.dtype, MemoryType.local, count.size)
    moved = Buffer(f"{name}_moved", dtype, MemoryType.local, mean.size)
    weight, share = temporary(f"{name}_weight", real), temporary(f"{name}_share", real)
    delta, pulled = temporary(f"{name}_delta", dtype), temporary(f"{name}_pulled", dtype)
    k: Symbol = joins.axes.symbol("k", number)

    def call(op: str, a: Value, b: Value, d: DataType) -> Call:
        return Call(op, (a, b), d, d)

    def elements(make: Callable[[Int], list[Stmt]]) -> list[Stmt]:
        if mean.size is ONE:
            return make(ZERO)
        e = joins.axes.symbol("e", mean.size)
        return [For(e, ZERO, mean.size, ONE, tuple(make(e)), unroll=True)]

    def each(once: Callable[[Int], list[Stmt]], rest: Callable[[Int], list[Stmt]]) -> list[Stmt]:
        return [*once(ZERO), *elements(rest)] if is_common else elements(lambda e: [*once(e), *rest(e)])

    def nothing(e: Int) -> list[Stmt]:
        return [Store(total, e, Literal(0, count.dtype), Role.initialise)]

    def start(e: Int) -> list[Stmt]:
        zero = [(moved, dtype), (m2, real)]
        return [
            Store(mean, e, others(0, e, ZERO) if origin is None else origin),
            *(Store(b, e, Literal(0.0, d), Role.initialise) for b, d in zero),
        ]

    def count_up(e: Int) -> list[Stmt]:
        return [
            Store(weight, ZERO, Cast(others(2, e, k), real)),
            Store(total, e, Call("add", (Load(total, e), others(2, e, k)), integral, count.dtype)),
        ]

    def add(e: Int) -> list[Stmt]:
        squares = call("mul", Load(pulled, ZERO), Load(delta, ZERO), real)
        return [
            Store(delta, ZERO, call("sub", others(0, e, k), Load(mean, e), dtype)),
            Store(pulled, ZERO, call("mul", Load(delta, ZERO), Load(weight, ZERO), dtype)),
            Store(moved, e, call("add", Load(moved, e), Load(pulled, ZERO), dtype)),
            Store(m2, e, call("add", call("add", Load(m2, e), others(1, e, k), real), squares, real)),
        ]

    def divide(e: Int) -> list[Stmt]:
        is_empty = Call("eq", (Load(total, e), Literal(0, count.dtype)), integral, DataType.Bool)
        inverse = call("div", Literal(1.0, real), Cast(Load(total, e), real), real)
        return [
            Store(share, ZERO, Call("where", (is_empty, Literal(0.0, real), inverse), real, real)),
            Store(count, e, Load(total, e)),
        ]

    def settle(e: Int) -> list[Stmt]:
        left = call("sub", Load(m2, e), call("mul", Load(moved, e), Load(pulled, ZERO), real), real)
        return [
            Store(pulled, ZERO, call("mul", Load(moved, e), Load(share, ZERO), dtype)),
            Store(m2, e, call("maximum", left, Literal(0.0, real), real)),
            Store(mean, e, call("add", Load(mean, e), Load(pulled, ZERO), dtype)),
        ]

    return [
        *(Allocate(b) for b in (total, moved, weight, share, delta, pulled)),
        *each(nothing, start),
        For(k, ZERO, number, ONE, tuple(each(count_up, add)), unroll=True),
        *(() if meet is None else meet((moved, m2, total))),
        *each(divide, settle),
    ]
