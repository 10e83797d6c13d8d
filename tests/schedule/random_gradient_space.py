"""Gradients at random, as `cost/inner_outer_mappings.py` sees them: what they have of a real segment is that it fits
together."""

from __future__ import annotations

import random

from fuser.schedule.cost.inner_outer_space import OF_ROWS, InnerOuterSpace
from fuser.schedule.cost.rounding import round_up


def random_gradient_space(
    rng: random.Random,
    rows: int = 0,
    length: int = 0,
    *,
    itemsize: int = 0,
    vector: int = 0,
) -> InnerOuterSpace:
    """`rows`, `length`, `itemsize`, `vector`: 0 for any."""
    itemsize = itemsize or rng.choice((2, 2, 4, 8))
    vector = vector or rng.choice((16 // itemsize, 16 // itemsize, 1))
    length = length or rng.choice((rng.randint(1, 300), rng.randint(1, 20_000), rng.randint(1, 300_000)))
    inputs, sums, weights = rng.randint(1, 2), rng.randint(1, 2), rng.randint(0, 1)
    is_double = itemsize == 8
    return InnerOuterSpace(
        length=length,
        rows=round_up(rows or rng.choice((rng.randint(1, 20), rng.randint(1, 1000), rng.randint(1, 100_000))), OF_ROWS),
        vector=vector,
        copied=tuple(v for v in (8, 4, 2, 1) if v <= vector and itemsize * v in (4, 8, 16)),
        loaded=inputs * itemsize,
        moved=(inputs + 1) * itemsize,
        arguments=inputs + 1,
        read_sizes=(itemsize,) * inputs,
        weight_sizes=(itemsize,) * weights,
        kept_sizes=(),
        sums=sums,
        sum_bytes=8 if is_double else 4,
        statistics=rng.randint(1, 2),
        exchanges=rng.randint(1, 2),
        own_registers=62 if is_double else 46 if itemsize == 4 else 30,
        column_registers=sums * (2 if is_double else 1),
        statistic_registers=16 if is_double else 2,
        operations=rng.randint(12, 60),
        row_operations=rng.randint(0, 50),
        is_double=is_double,
    )
