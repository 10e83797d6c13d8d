"""Mean and sum of squared differences of the partial results of many threads, combined by one of them."""

from __future__ import annotations

from collections.abc import Callable

from fuser.ir.integers.integers import ZERO, Int
from fuser.ir.kernel.kernel import Allocate, Buffer, Cast, Literal, Load, Role, Stmt, Store
from fuser.ir.ops.enums import MemoryType
from fuser.lowering.combiners.combiner_values import (
    Elements,
    PartialsReader,
    accumulate,
    compute,
    increment,
    safe_ratio,
    subtract_square,
    temporary,
)
from fuser.lowering.combiners.shifted_sums import centred
from fuser.runtime.kernels.variants import MAX_BLOCK


def welford_combine_many(acc: tuple[Buffer, ...], parts: PartialsReader, elements: Elements, name: str) -> list[Stmt]:
    """Set (mean, m2, count) to those of all triples combined.

    n = sum(n_k);  centre = sum(n_k mean_k) / n;  d_k = mean_k - centre;  f = sum(n_k d_k) / n
    mean = centre + f;  m2 = sum(m2_k + n_k d_k^2) - f sum(n_k d_k), and not below 0

    One division for all of them instead of one for each, and no step waits for the mean of those before. What rounding of the
    centre left over is added in the end, so that it costs no digits; see `centred`. A triple of no values has weight 0.
    """
    mean, m2, count = acc
    common = count.size is not mean.size
    dtype = mean.dtype
    total = Buffer(f"{name}_total", count.dtype, MemoryType.local, count.size)
    moved = Buffer(f"{name}_moved", dtype, MemoryType.local, mean.size)
    weight, inverse = temporary(f"{name}_weight", dtype), temporary(f"{name}_inverse", dtype)
    delta, weighted = temporary(f"{name}_delta", dtype), temporary(f"{name}_weighted", dtype)
    most = MAX_BLOCK if parts.number.hi is None else parts.number.hi
    k, j = parts.index(), parts.index()

    def zero(buffer: Buffer, e: Int) -> Store:
        return Store(buffer, e, Literal(0.0, buffer.dtype), Role.initialise)

    def each(once: Callable[[Int], list[Stmt]], rest: Callable[[Int], list[Stmt]]) -> list[Stmt]:
        """`once` for each count, `rest` for each element."""
        return [*once(ZERO), *elements(rest)] if common else elements(lambda e: [*once(e), *rest(e)])

    def load_weight(e: Int, k: Int) -> Store:
        return Store(weight, ZERO, Cast(parts.read(2, e, k), dtype))

    def sum_counts(e: Int) -> list[Stmt]:
        return [load_weight(e, k), Store(total, e, increment(total, e, parts.read(2, e, k)))]

    def sum_weighted_means(e: Int) -> list[Stmt]:
        change = compute("mul", dtype, parts.read(0, e, k), Load(weight, ZERO))
        return [accumulate(moved, e, change)]

    def divide(e: Int) -> list[Stmt]:
        reciprocal = safe_ratio(Literal(1.0, dtype), Load(total, e), dtype)
        return [Store(inverse, ZERO, reciprocal), Store(count, e, Load(total, e))]

    def set_combined_mean(e: Int) -> list[Stmt]:
        means = centred(mean, e, Load(moved, e), Load(inverse, ZERO), parts.read(0, e, ZERO), most)
        return [*means, zero(moved, e), zero(m2, e)]

    def add(e: Int) -> list[Stmt]:
        gain = compute("mul", dtype, Load(delta, ZERO), Load(weighted, ZERO))
        return [
            Store(delta, ZERO, compute("sub", dtype, parts.read(0, e, j), Load(mean, e))),
            Store(weighted, ZERO, compute("mul", dtype, Load(delta, ZERO), Load(weight, ZERO))),
            accumulate(moved, e, Load(weighted, ZERO)),
            accumulate(m2, e, compute("add", dtype, parts.read(1, e, j), gain)),
        ]

    def finish(e: Int) -> list[Stmt]:
        change = compute("mul", dtype, Load(moved, e), Load(inverse, ZERO))
        return [subtract_square(m2, e, Load(moved, e), change), accumulate(mean, e, change)]

    return [
        *(Allocate(b) for b in (total, moved, weight, inverse, delta, weighted)),
        *each(lambda e: [Store(total, e, Literal(0, count.dtype), Role.initialise)], lambda e: [zero(moved, e)]),
        parts.loop(k, each(sum_counts, sum_weighted_means)),
        *each(divide, set_combined_mean),
        parts.loop(j, each(lambda e: [load_weight(e, j)], add)),
        *each(lambda e: [] if common or mean.size.value == 1 else divide(e), finish),
    ]
