"""Sums that carry along what rounding loses: pairs (total, rest) of register arrays, whose sum is the value.

Terms join a running total in a chain, and the totals of threads and blocks in a tree. In a plain sum each of these steps rounds
the total; here what a step loses is added up beside it, and added to the total at the end. A sum of n terms is then off by
half an ulp of its own and n**2 squared roundings, instead of n roundings of the largest total on the way.

A sum is compensated where something wider than 16 bits comes of it: a rounding to 16 bits hides what it would gain, and so do
terms that are coarse themselves.
"""

from __future__ import annotations

from fuser.ir.coarse_ops import COARSE
from fuser.ir.dtypes import DataType
from fuser.ir.enums import MemoryType
from fuser.ir.fusion import Pointwise, Reduction
from fuser.ir.integers import ONE, ZERO, Int
from fuser.ir.kernel import Allocate, Buffer, Call, Load, Stmt, Store, Value
from fuser.ir.schedule import ScheduleBuilder
from fuser.ir.wide_results import wide_results

COMBINE = "compensated_add"
"""What a collective over (total, rest) is called."""


def compensated_sums(builder: ScheduleBuilder) -> frozenset[str]:
    """Names of the sums of Float or Double that show in an output to more than 16 bits, those of coarse terms left out."""
    wide = wide_results(builder)
    coarse = {e.output.name for e in builder.exprs if isinstance(e, Pointwise) and e.op in COARSE}
    sums = [e for e in builder.exprs if isinstance(e, Reduction) and e.op == "sum"]
    return frozenset(e.output.name for e in sums if e.output.name in wide and e.input.name not in coarse)


def rest_of(total: Buffer) -> Buffer:
    """The register array beside `total`."""
    return Buffer(f"{total.name}_rest", total.dtype, MemoryType.local, total.size)


def add_term(total: Buffer, rest: Buffer, at: Int, term: Value, name: str) -> list[Stmt]:
    """Add a term (Kahan's difference, with the losses summed apart as Neumaier 1974 does).

    s = total + x; rest += x - (s - total); total = s

    Exact unless |x| exceeds |total|, as in the first steps; then what is lost is an ulp of x, not of a sum. `total` is what
    a plain sum would be, so infinities and nan are where they would be.
    """
    dtype = total.dtype
    x, s = (Buffer(f"{name}_{part}", dtype, MemoryType.local, ONE) for part in ("x", "s"))
    lost = _call("sub", Load(x, ZERO), _call("sub", Load(s, ZERO), Load(total, at), dtype), dtype)
    return [
        Allocate(x),
        Allocate(s),
        Store(x, ZERO, term),
        Store(s, ZERO, _call("add", Load(total, at), Load(x, ZERO), dtype)),
        Store(rest, at, _call("add", Load(rest, at), lost, dtype)),
        Store(total, at, Load(s, ZERO)),
    ]


def join_sums(pair: tuple[Buffer, ...], at: Int, other: tuple[Value, ...], name: str) -> list[Stmt]:
    """Add another pair: the sum of the totals is split exactly (Knuth's TwoSum), whichever is the larger.

    s = a + b; z = s - a; rest = (rest_a + rest_b) + ((a - (s - z)) + (b - z))

    Threads that join the same two pairs in either order get the same pair.
    """
    total, rest = pair
    dtype = total.dtype
    b, s, z = (Buffer(f"{name}_{part}", dtype, MemoryType.local, ONE) for part in ("b", "s", "z"))
    first = _call("sub", Load(total, at), _call("sub", Load(s, ZERO), Load(z, ZERO), dtype), dtype)
    lost = _call("add", first, _call("sub", Load(b, ZERO), Load(z, ZERO), dtype), dtype)
    return [
        *(Allocate(made) for made in (b, s, z)),
        Store(b, ZERO, other[0]),
        Store(s, ZERO, _call("add", Load(total, at), Load(b, ZERO), dtype)),
        Store(z, ZERO, _call("sub", Load(s, ZERO), Load(total, at), dtype)),
        Store(rest, at, _call("add", _call("add", Load(rest, at), other[1], dtype), lost, dtype)),
        Store(total, at, Load(s, ZERO)),
    ]


def finish_sum(total: Buffer, rest: Buffer, at: Int, name: str) -> list[Stmt]:
    """total += rest; a total that is not finite stays, for its rest is nan."""
    dtype = total.dtype
    value = Buffer(f"{name}_value", dtype, MemoryType.local, ONE)
    is_number = Call("eq", (Load(value, ZERO), Load(value, ZERO)), dtype, DataType.Bool)
    return [
        Allocate(value),
        Store(value, ZERO, _call("add", Load(total, at), Load(rest, at), dtype)),
        Store(total, at, Call("where", (is_number, Load(value, ZERO), Load(total, at)), dtype, dtype)),
    ]


def _call(op: str, a: Value, b: Value, dtype: DataType) -> Call:
    return Call(op, (a, b), dtype, dtype)
