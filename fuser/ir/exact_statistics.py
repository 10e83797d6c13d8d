"""Which statistics are worth more than a Float: asked by schedules and by lowering."""

from __future__ import annotations

from fuser.ir.dtypes import DataType
from fuser.ir.fusion import ExpSum, Pointwise, TensorExpr, Welford
from fuser.ir.scheduled_fusion import ScheduledFusion
from fuser.ir.wide_results import wide_results


def exact_statistics(builder: ScheduledFusion) -> frozenset[str]:
    """Names of the means of Welford exprs of real numbers whose results show in an output to more than 16 bits."""
    exprs = [e for e in builder.exprs if isinstance(e, Welford) and not e.mean.dtype.is_complex]
    if not exprs:
        return frozenset()
    wide = wide_results(builder)
    return frozenset(e.mean.name for e in exprs if e.mean.name in wide or e.m2.name in wide)


def in_double(builder: ScheduledFusion) -> frozenset[str]:
    """Those of them that are of Floats, and are added up in Double."""
    exact = exact_statistics(builder)
    return frozenset(
        e.mean.name
        for e in builder.exprs
        if isinstance(e, Welford) and e.mean.name in exact and e.mean.dtype is DataType.Float
    )


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
