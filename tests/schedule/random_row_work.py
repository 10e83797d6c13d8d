"""Rows at random, as `cost/row_mappings.py` sees them: what they have of a real segment is that it fits together."""

from __future__ import annotations

import random

from fuser.schedule.cost.row_space import RowSpace


def random_row_work(
    rng: random.Random,
    rows: int = 0,
    length: int = 0,
    *,
    is_double: bool | None = None,
    is_misaligned: bool | None = None,
) -> RowSpace:
    """`rows`, `length`: 0 for any."""
    is_double = rng.random() < 0.2 if is_double is None else is_double
    itemsize = 8 if is_double else rng.choice((2, 4))
    vector = rng.choice((16 // itemsize, 16 // itemsize, 1))
    is_misaligned = rng.random() < 0.3 if is_misaligned is None else is_misaligned
    vector = 16 // itemsize if is_misaligned else vector
    is_cut = is_misaligned
    length = length or rng.choice((rng.randint(1, 300), rng.randint(1, 20_000), rng.randint(1, 2_000_000)))
    inputs, outputs, shared = rng.randint(1, 3), rng.randint(1, 2), rng.randint(0, 2)
    statistics, exponentials = rng.choice(((True, False), (False, True), (False, False)))
    passes = (False, True) if statistics or exponentials else (False,)
    wide = max(4, itemsize)
    # In the order in which they were first drawn, so that a seed stays the rows that it is.
    kept = tuple(inputs * rng.choice((itemsize, wide)) for _ in passes)
    return RowSpace(
        rows=rows or rng.choice((1, rng.randint(1, 300), rng.randint(1, 100_000))),
        length=length + (vector - 1 if is_cut else 0),
        vector=vector,
        itemsize=itemsize,
        loaded=inputs * itemsize,
        moved=(inputs + outputs) * itemsize,
        shared_bytes=shared * itemsize,
        inputs=inputs + shared,
        arguments=inputs + shared + outputs,
        kept=kept,
        passes=passes,
        data_pass_count=rng.randint(2, 4) if not statistics else 3,
        operations=rng.randint(2, 80),
        row_operations=rng.randint(0, 60),
        has_statistics=statistics,
        sums_exponentials=exponentials,
        is_double=is_double,
        is_cut=is_cut,
        is_misaligned=is_misaligned,
    )
