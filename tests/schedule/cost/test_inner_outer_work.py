"""The work of mappings of gradients: what takes longer, what is measured, and which mapping is proposed."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from fuser.ir.device_info import DeviceInfo
from fuser.schedule.cost.estimate import total_time
from fuser.schedule.cost.inner_outer_mappings import CLUSTER, STATISTICS, SUMS, InnerOuterMapping
from fuser.schedule.cost.inner_outer_space import InnerOuterSpace
from fuser.schedule.cost.inner_outer_work import (
    INNER_OUTER,
    inner_outer_reasons,
    inner_outer_work_of,
    two_kernel_work,
)
from tests.schedule.random_gradient_space import random_gradient_space

H200 = DeviceInfo.preset("H200")


def layer_norm(rows: int, length: int, itemsize: int, vector: int = 0) -> InnerOuterSpace:
    """A gradient of layer norm."""
    is_double = itemsize == 8
    space = random_gradient_space(random.Random(0), rows, length, itemsize=itemsize, vector=vector or 16 // itemsize)
    return replace(
        space,
        loaded=2 * itemsize,
        moved=3 * itemsize,
        arguments=3,
        read_sizes=(itemsize, itemsize),
        weight_sizes=(itemsize,),
        sums=2,
        statistics=2,
        exchanges=1,
        column_registers=4 if is_double else 2,
        operations=41 if itemsize == 2 else 36,
        row_operations=20,
    )


def time_of(space: InnerOuterSpace, m: InnerOuterMapping, device: DeviceInfo = H200) -> float:
    return total_time(inner_outer_work_of(space, m, device), device)


@pytest.mark.parametrize("seed", range(40))
def test_more_takes_longer(seed: int) -> None:
    """More rows, more operations, rows that are waited for; all of it in twice the time on a device half as fast."""
    space = random_gradient_space(random.Random(seed))
    slow = H200.with_speed(0.5)
    for time, m in INNER_OUTER.ranked(space, H200)[:20]:
        assert time_of(replace(space, operations=2 * space.operations), m) > time
        if m.exchange != CLUSTER:
            assert time_of(replace(space, rows=3 * space.rows), m) > time
        if m.loads_next:
            assert time_of(space, m._replace(loads_next=False)) >= time
        assert time_of(space, m, slow) == pytest.approx(2 * time)
    assert total_time(two_kernel_work(space, slow), slow) == pytest.approx(
        2 * total_time(two_kernel_work(space, H200), H200)
    )


@pytest.mark.parametrize("seed", range(20))
def test_the_first_is_about_the_fastest(seed: int) -> None:
    ranked = INNER_OUTER.ranked(random_gradient_space(random.Random(seed)), H200)
    times = [time for time, _ in ranked]
    assert times[1:] == sorted(times[1:])
    assert times[0] <= 1.05 * min(times)


MEASURED = [
    (layer_norm(16384, 4096, 2), InnerOuterMapping(SUMS, 8, 256, 2, 1, 132, 2, 1, True), 114.5),
    (layer_norm(32768, 1024, 2), InnerOuterMapping(SUMS, 8, 64, 2, 1, 132, 8, 1, True), 60.1),
    (layer_norm(4506, 7168, 4), InnerOuterMapping(SUMS, 4, 256, 7, 1, 132, 1, 1, True), 109.2),
    (layer_norm(1774, 1024, 8), InnerOuterMapping(SUMS, 2, 128, 4, 1, 132, 2, 2, True), 20.2),
    (layer_norm(3932, 5120, 8), InnerOuterMapping(SUMS, 2, 320, 8, 1, 132, 1, 1, True, True), 130.5),
    (layer_norm(37, 128_256, 4), InnerOuterMapping(STATISTICS, 4, 256, 1, 126, 1, 1, 8, True), 33.3),
    (layer_norm(6, 250_003, 4, 1), InnerOuterMapping(STATISTICS, 1, 320, 6, 131, 1, 1, 6), 14.2),
    (layer_norm(16, 50_257, 8, 1), InnerOuterMapping(STATISTICS, 1, 192, 2, 131, 1, 1, 16, False, True), 16.6),
    (layer_norm(6, 5120, 4), InnerOuterMapping(CLUSTER, 2, 32, 5, 16, 1, 6, 1), 5.4),
    (layer_norm(35, 64, 4), InnerOuterMapping(CLUSTER, 4, 16, 1, 1, 4, 10, 1), 4.8),
]
"""Gradients of layer norm on an H200, in microseconds (benchmarks/data, benchmarks/results)."""


@pytest.mark.parametrize(("space", "m", "us"), MEASURED)
def test_estimates_are_near_what_was_measured(space: InnerOuterSpace, m: InnerOuterMapping, us: float) -> None:
    assert time_of(space, m) == pytest.approx(us, rel=0.25)


def test_reasons_say_what_other_mappings_would_take() -> None:
    reasons = list(inner_outer_reasons(layer_norm(300, 4096, 2), H200))
    assert len(reasons) == 7
    assert all("us (memory" in reason for reason in reasons[1:])
    assert reasons[-1].startswith("two kernels")
