"""Sums that carry along what rounding loses: pairs (total, rest) of register arrays, whose sum is the value.

Terms join a running total in a chain, and the totals of threads and blocks in a tree. In a plain sum each of these steps rounds
the total; here what a step loses is added up beside it, and added to the total at the end. A sum of n terms is then off by
half an ulp of its own and n**2 squared roundings, instead of n roundings of the largest total on the way.

A sum is compensated where something wider than 16 bits comes of it: a rounding to 16 bits hides what it would gain, and so do
terms that are approximate themselves. It does not where the sum is subtracted from elements, as in the gradient of
softmax: what is left may be small beside either.
"""

from __future__ import annotations

from typing import TypeGuard

from fuser.ir.approximate_ops import APPROXIMATE
from fuser.ir.dtypes import DataType
from fuser.ir.enums import GRID_TYPES, MemoryType
from fuser.ir.exact_ops import DIVIDE_BY_SUM, SCALED_DIVISOR
from fuser.ir.fusion import COPIES, Broadcast, Pointwise, Reduction, Tensor, TensorExpr, tensor_inputs, tensor_outputs
from fuser.ir.integers import ONE, ZERO, Int
from fuser.ir.kernel import Allocate, Buffer, Call, Load, Stmt, Store, Value
from fuser.ir.schedule import ScheduleBuilder
from fuser.ir.wide_results import WIDE, wide_results

COMBINE = "compensated_add"
"""What a collective over (total, rest) is called."""


def compensated_sums(builder: ScheduleBuilder) -> frozenset[str]:
    """Names of the sums in Float or Double that show in an output to more than 16 bits, or are subtracted from elements.

    Those of approximate terms are left out.
    """
    wide = wide_results(builder)
    coarse = {e.output for e in builder.exprs if isinstance(e, Pointwise) and e.op in APPROXIMATE}
    sums = {e.output for e in builder.exprs if _is_sum(e) for t in tensor_inputs(e) if t not in coarse}
    subtracted = {t.name for t in _subtracted(builder) if t in sums}
    return frozenset(t.name for t in sums if t.name in wide) | subtracted


def cancelling_sums(builder: ScheduleBuilder) -> frozenset[str]:
    """Names of sums that are subtracted from elements, and of the partial sums that make them up.

    What is left after the subtraction may be far smaller than the terms, and a total may come close to zero on the way: there
    each step's loss has to be exact, `add_term(exact=True)`.
    """
    found = set(_subtracted(builder))
    for e in reversed(builder.exprs):
        if _is_sum(e) and e.output in found:
            found.update(tensor_inputs(e))
    return frozenset(t.name for t in found)


def tree_sums(builder: ScheduleBuilder) -> frozenset[str]:
    """Names of the sums in Double that threads join without what each has lost.

    A tree of joins loses little, and a pair takes seven operations for one, each of which waits for the last.

    They meet other tensors before they show in an output, so that they are rounded again; no element has them subtracted, nor
    is divided by them: quotients would be off by what joins lose, all of a row alike. What is made of them by sums, products
    and quotients is not subtracted either, unless several blocks join them: there it would take too long.
    """
    shown = set(builder.output_names)
    for e in reversed(builder.exprs):
        inputs = tensor_inputs(e)
        if len(inputs) == 1 and any(t.name in shown for t in tensor_outputs(e)):
            shown.add(inputs[0].name)
    sums = {e.output.name for e in builder.exprs if _is_sum(e) and e.output.dtype is DataType.Double}
    within = {n for n in sums if not _crosses_blocks(builder, n)}
    divisors = {e.inputs[0].name for e in builder.exprs if isinstance(e, Pointwise) and e.op == SCALED_DIVISOR.name}
    spread = {e.output: e.input.name for e in builder.exprs if isinstance(e, Broadcast)}
    divisors |= {
        spread.get(e.inputs[1], "")
        for e in builder.exprs
        if isinstance(e, Pointwise) and e.op == DIVIDE_BY_SUM.name and isinstance(e.inputs[1], Tensor)
    }
    return frozenset(sums - shown - divisors - cancelling_sums(builder) - (_later_subtracted(builder) & within))


_LINEAR = frozenset(("add", "sub", "mul", "div", "truediv", "neg", "fma")) | COPIES


def _later_subtracted(builder: ScheduleBuilder) -> set[str]:
    """Names of sums from which sums, products and quotients lead to what elements have subtracted: of what is left, an error of
    such a sum may be many units of the last place."""
    below: set[str] = set()
    found: set[str] = set()
    for e in reversed(builder.exprs):
        names = [t.name for t in tensor_outputs(e)]
        if isinstance(e, Reduction):
            found.update(n for n in names if n in below)
        elif _subtracts(e):
            below.update(t.name for t in tensor_inputs(e)[1:])
        elif isinstance(e, Broadcast) or (isinstance(e, Pointwise) and e.op in _LINEAR):
            if any(n in below for n in names):
                below.update(t.name for t in tensor_inputs(e))
    return found


def _crosses_blocks(builder: ScheduleBuilder, name: str) -> bool:
    state = builder.state(name)
    return any(axis.is_reduction and state.parallel_type(axis) in GRID_TYPES for axis in state.loop)


def _subtracted(builder: ScheduleBuilder) -> set[Tensor]:
    spread = {e.output: e.input for e in builder.exprs if isinstance(e, Broadcast)}
    return {spread[v] for e in builder.exprs if _subtracts(e) for v in tensor_inputs(e) if v in spread}


def _is_sum(expr: TensorExpr) -> TypeGuard[Reduction]:
    return isinstance(expr, Reduction) and expr.op == "sum" and expr.output.dtype in WIDE


def _subtracts(expr: TensorExpr) -> bool:
    return isinstance(expr, Pointwise) and expr.op == "sub"


def rest_of(total: Buffer) -> Buffer:
    """The register array beside `total`."""
    return Buffer(f"{total.name}_rest", total.dtype, MemoryType.local, total.size)


def add_term(total: Buffer, rest: Buffer, at: Int, term: Value, name: str, *, exact: bool) -> list[Stmt]:
    """Add a term: the losses are summed apart (Neumaier 1974), and `total` is what a plain sum would be, so that infinities
    and nan are where they would be.

    exact   what a step loses is found whichever of total and term is the larger: six operations, and one for the rest.
            Else three and one (Dekker's FastTwoSum), exact where the total is the larger; where a term is, at most a
            rounding of that term is lost, which is small beside a sum that does not cancel.
    """
    if exact:
        return _add(total, rest, at, term, [], name)
    dtype = total.dtype
    x, s = (Buffer(f"{name}_{part}", dtype, MemoryType.local, ONE) for part in ("x", "s"))
    kept = _call("sub", Load(s, ZERO), Load(total, at), dtype)
    return [
        *(Allocate(made) for made in (x, s)),
        Store(x, ZERO, term),
        Store(s, ZERO, _call("add", Load(total, at), Load(x, ZERO), dtype)),
        Store(rest, at, _call("add", Load(rest, at), _call("sub", Load(x, ZERO), kept, dtype), dtype)),
        Store(total, at, Load(s, ZERO)),
    ]


def join_sums(pair: tuple[Buffer, ...], at: Int, other: tuple[Value, ...], name: str) -> list[Stmt]:
    """Add another pair. Threads that join the same two pairs in either order get the same pair."""
    total, rest = pair
    term, more = other
    joined = Store(rest, at, _call("add", Load(rest, at), more, rest.dtype))
    return _add(total, rest, at, term, [joined], name)


def _add(total: Buffer, rest: Buffer, at: Int, term: Value, before: list[Stmt], name: str) -> list[Stmt]:
    """The sum of a total and a term is split exactly, whichever is the larger; `before`: what happens to `rest` first."""
    dtype = total.dtype
    stmts, s, lost = split_sum(Load(total, at), term, dtype, name)
    return [
        *stmts,
        *before,
        Store(rest, at, _call("add", Load(rest, at), lost, dtype)),
        Store(total, at, s),
    ]


def split_sum(a: Value, term: Value, dtype: DataType, name: str) -> tuple[list[Stmt], Value, Value]:
    """Statements, the rounded sum of two numbers, and what rounding loses: a + term = sum + lost (Knuth's TwoSum).

    s = a + x; z = s - a; lost = (a - (s - z)) + (x - z). `a` is read three times.
    """
    x, s, z = (Buffer(f"{name}_{part}", dtype, MemoryType.local, ONE) for part in ("x", "s", "z"))
    first = _call("sub", a, _call("sub", Load(s, ZERO), Load(z, ZERO), dtype), dtype)
    lost = _call("add", first, _call("sub", Load(x, ZERO), Load(z, ZERO), dtype), dtype)
    stmts: list[Stmt] = [
        *(Allocate(made) for made in (x, s, z)),
        Store(x, ZERO, term),
        Store(s, ZERO, _call("add", a, Load(x, ZERO), dtype)),
        Store(z, ZERO, _call("sub", Load(s, ZERO), a, dtype)),
    ]
    return stmts, Load(s, ZERO), lost


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
