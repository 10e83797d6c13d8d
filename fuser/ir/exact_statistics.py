"""Which statistics are worth more than a Float: asked by schedules and by lowering."""

from __future__ import annotations

from fuser.ir.dtypes import DataType
from fuser.ir.fusion import ExpSum, Pointwise, Tensor, TensorExpr, Welford, tensor_inputs, tensor_outputs
from fuser.ir.memoized import memoized_while_unchanged
from fuser.ir.scheduled_fusion import ScheduledFusion
from fuser.ir.wide_results import wide_results


@memoized_while_unchanged
def exact_statistics(builder: ScheduledFusion) -> frozenset[str]:
    """Names of the means of Welford exprs of real numbers whose results show in an output to more than 16 bits."""
    exprs = [e for e in builder.exprs if isinstance(e, Welford) and not e.mean.dtype.is_complex]
    if not exprs:
        return frozenset()
    wide = wide_results(builder)
    return frozenset(e.mean.name for e in exprs if e.mean.name in wide or e.m2.name in wide)


@memoized_while_unchanged
def in_double(builder: ScheduledFusion) -> frozenset[str]:
    """Those of them that are of Floats, and are added up in Double."""
    exact = exact_statistics(builder)
    return frozenset(
        e.mean.name
        for e in builder.exprs
        if isinstance(e, Welford) and e.mean.name in exact and e.mean.dtype is DataType.Float
    )


_DIGITS = {DataType.BFloat16: 8, DataType.Half: 11, DataType.Float8_e4m3fn: 4, DataType.Float8_e5m2: 3}
RUN_DIGITS = 8
"""Values of no more binary digits have squares of 16: a Float adds up a few of those without losing any, unless they are of
different size."""


def value_digits(builder: ScheduledFusion) -> dict[str, int]:
    """By the name of a mean in Double: binary digits of what the statistics are of, where that is rounded to 16 bits or fewer.

    Double holds the sum of such values and that of their squares so well that nothing need be subtracted first: their mean is
    never more than 2**12 deviations away, or they are but a few different numbers, and then the sums are exact.

    Statistics that the values themselves are combined with again are left out: threads hold those values in registers, and have
    none for two Doubles a result.
    """
    found: dict[str, int] = {}
    wide = in_double(builder)
    if not wide or meets_values(builder):
        return found
    for e in builder.exprs:
        if not isinstance(e, Welford) or e.mean.name not in wide:
            continue
        digits = _digits(builder.definition(e.input.name)) if e.partial is None else found.get(e.input.name)
        if digits is not None:
            found[e.mean.name] = digits
    return found


def shifted_sums(builder: ScheduledFusion) -> frozenset[str]:
    """Means in Double of values that are no 16-bit numbers, or meet them again: threads may join the sums of differences as
    they are, and no join of those divides.

    Where values meet their statistics again, threads hold those values meanwhile: lowering asks how many results they have.
    """
    wide = in_double(builder)
    return wide - value_digits(builder).keys() if wide else wide


@memoized_while_unchanged
def exact_sums(builder: ScheduledFusion) -> frozenset[str]:
    """Means of Doubles whose threads are joined by sums of values and of squares, with what those lose, if all of them can
    have one shift (lowering/combiners/common_shift.py).

    Those that meet their values again are left out, as in `value_digits`.
    """
    exact = exact_statistics(builder)
    found = (e.mean for e in builder.exprs if isinstance(e, Welford) and e.mean.name in exact)
    doubles = frozenset(t.name for t in found if t.dtype is DataType.Double)
    return frozenset() if not doubles or meets_values(builder) else doubles


@memoized_while_unchanged
def meets_values(builder: ScheduledFusion) -> bool:
    """Whether something as large as what statistics are of is computed from statistics."""
    after: set[str] = set()
    full = 0
    for e in builder.exprs:
        if isinstance(e, Welford):
            if e.partial is None:
                full = max(full, _size(e.input))
            after.update(t.name for t in tensor_outputs(e))
        elif any(t.name in after for t in tensor_inputs(e)):
            if any(_size(t) >= full for t in tensor_outputs(e)):
                return True
            after.update(t.name for t in tensor_outputs(e))
    return False


def _size(tensor: Tensor) -> int:
    """Dims of more than one element."""
    return sum(not d.is_broadcast and not d.is_reduction for d in tensor.logical)


def _digits(made: TensorExpr | None) -> int | None:
    if not (isinstance(made, Pointwise) and made.op == "cast" and isinstance(made.inputs[0], Tensor)):
        return None
    return _DIGITS.get(made.inputs[0].dtype)


def exact_exp_sums(builder: ScheduledFusion) -> frozenset[str]:
    """Names of the maxima of sums of exponentials that are to be exact: exp itself was asked for, of no 16-bit numbers."""
    found: set[str] = set()
    for e in builder.exprs:
        if isinstance(e, ExpSum) and e.op == "exp":
            made = builder.definition(e.input.name)
            if made.largest.name in found if isinstance(made, ExpSum) else not _is_narrow(made):
                found.add(e.largest.name)
    return frozenset(found)


def _is_narrow(made: TensorExpr | None) -> bool:
    return isinstance(made, Pointwise) and made.op == "cast" and made.inputs[0].dtype.is_reduced_float
