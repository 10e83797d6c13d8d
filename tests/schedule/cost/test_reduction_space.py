"""Loads that a thread may have on their way: what else is in its registers, and what keeps memory busy, decide."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuser.schedule.cost.reduction_space import LEAST_BYTES, MAX_UNROLL, THREAD_BYTES, Space, most_in_flight

PLAIN = Space(
    inner=True, kept=4096, reduced=4096, run=4096, runs=1, vector=8, bytes_per_step=16, heavy=False, may_split=True
)


def test_a_plain_sum_has_all_that_it_may() -> None:
    for vector, size in ((8, 16), (4, 16), (2, 16), (1, 8)):
        space = replace(PLAIN, vector=vector, bytes_per_step=size, partials=1)
        assert most_in_flight(space) == min(THREAD_BYTES // size, MAX_UNROLL)


@pytest.mark.parametrize("field", ["partials", "written"])
def test_what_takes_registers_leaves_fewer_loads(field: str) -> None:
    counts = [most_in_flight(replace(PLAIN, **{field: n})) for n in range(12)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]
    assert all(n * PLAIN.bytes_per_step >= LEAST_BYTES - PLAIN.bytes_per_step for n in counts)


def test_one_access_is_always_made() -> None:
    assert most_in_flight(replace(PLAIN, bytes_per_step=512, partials=40)) == 1
