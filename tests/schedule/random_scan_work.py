"""Scans of any sizes, types and surroundings, for tests of what holds for all of them."""

from __future__ import annotations

import random

from fuser.schedule.cost.rounding import round_up_length
from fuser.schedule.cost.scan_mappings import ScanSpace


def random_scan_work(
    chance: random.Random, *, inner: bool | None = None, kept: int | None = None, length: int | None = None
) -> ScanSpace:
    """One of them; what is given is as given."""

    def extent() -> int:
        return round_up_length(int(2 ** chance.uniform(0, 22))) if chance.random() < 0.9 else chance.randrange(4)

    itemsize = chance.choice([1, 2, 4, 8, 16])
    arguments = chance.randrange(1, 7)
    loaded = chance.randrange(arguments + 1) * itemsize
    return ScanSpace(
        inner=chance.random() < 0.5 if inner is None else inner,
        length=extent() if length is None else length,
        kept=extent() if kept is None else kept,
        vector=chance.choice([n for n in (1, 2, 4, 8, 16) if n * itemsize <= 16]),
        itemsize=itemsize,
        narrowest=min(itemsize, chance.choice([1, 2, 4, 8])),
        loaded=loaded,
        moved=arguments * itemsize,
        arguments=arguments,
        scans=chance.choice([1, 1, 1, 2, 5]),
        live=chance.choice([1, 1, 2, 3, 5, 30]),
        operations=chance.choice([0, 2, 20, 200]),
        most=chance.choice([1, 8, 64, 1000]),
        is_cut=chance.random() < 0.3,
        is_divided=chance.random() < 0.5,
        is_apart=chance.random() < 0.5,
    )
