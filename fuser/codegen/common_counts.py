"""Counts by which a thread divides several Doubles: their reciprocal is computed once.

A quotient of Doubles takes thirty operations or more, each in the time of two of Floats. By a count, the rounded reciprocal and
the remainder give the same rounding in four, but for quotients below the normal numbers, which may be a unit off (H200:
layer_norm backward f64 74x250003, where all threads compute the means of three rows at once, 183.6 us, so 177.6).
"""

from __future__ import annotations

from fuser.ir.dtypes import DataType
from fuser.ir.kernel import Call, Cast, For, If, Kernel, ScalarArgument, Stmt, Store, Value, value_operands

_OPS = {"div", "truediv"}


def common_counts(kernel: Kernel) -> frozenset[str]:
    """Names of extents, as scalar arguments of Double, by which a thread divides more than one Double in an unrolled loop."""
    counts: set[str] = set()
    for step in kernel.plan.scalars:
        if step.op == "extent" or (step.op == "cast" and step.operands[0] in counts):
            counts.add(step.name)
    return frozenset(_divisors(kernel.body, is_repeated=False)) & counts if counts else frozenset()


def common_count(call: Call, counts: frozenset[str]) -> bool:
    """Whether a call is a quotient of Doubles by one of those."""
    return _divisor(call) in counts


def _divisors(body: tuple[Stmt, ...], *, is_repeated: bool) -> set[str]:
    found: set[str] = set()
    for stmt in body:
        match stmt:
            case For():
                trips = stmt.stop - stmt.start
                found |= _divisors(stmt.body, is_repeated=is_repeated or (trips.is_const and trips.value > 1))
            case If():
                found |= _divisors(stmt.then, is_repeated=is_repeated) | _divisors(stmt.orelse, is_repeated=is_repeated)
            case Store(value=value) if is_repeated:
                found |= _of_value(value)
            case _:
                pass
    return found


def _of_value(value: Value) -> set[str]:
    found = set[str]().union(*map(_of_value, value_operands(value)))
    divisor = _divisor(value) if isinstance(value, Call) else None
    return found if divisor is None else found | {divisor}


def _divisor(call: Call) -> str | None:
    if call.op not in _OPS or call.compute is not DataType.Double:
        return None
    divisor = call.args[1]
    while isinstance(divisor, Cast):
        divisor = divisor.value
    return divisor.name if isinstance(divisor, ScalarArgument) else None
