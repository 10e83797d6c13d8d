"""Sums of exponentials of rows of Doubles: shapes, their times, and registers."""

from __future__ import annotations

import pytest

from benchmarks.compile_case import compile_case
from benchmarks.reduction_cases import cross_entropy
from fuser import DataType
from fuser.ir.device_info import H200
from fuser.runtime.nvrtc import is_available
from fuser.schedule.held_doubles import LEAST_STEPS, choose_held_shape, held_time, plan_held_doubles
from fuser.schedule.plan_reduction import Space


def space(kept: int, reduced: int, *, misaligned: bool = False, held: int = 32, wide: bool = True) -> Space:
    return Space(
        inner=True,
        kept=kept,
        reduced=reduced,
        run=reduced,
        runs=1,
        vector=2,
        bytes_per_step=16,
        heavy=False,
        may_split=True,
        held=held,
        wide=wide,
        exact=True,
        misaligned=misaligned,
    )


@pytest.mark.parametrize("kept", [67, 133, 789, 1313, 8192, 100_003])
@pytest.mark.parametrize("reduced", [257, 1000, 1003, 5120, 16384, 250_003])
def test_shapes_fit(kept: int, reduced: int) -> None:
    found = choose_held_shape(space(kept, reduced, misaligned=reduced % 2 > 0), H200)
    assert found.accesses * 2 <= 32
    assert found.threads * found.rows <= H200.max_threads_per_block
    assert found.threads & (found.threads - 1) == 0
    # The last access of a trip is not idle for all threads.
    assert (found.accesses - 1) * found.threads < -(-reduced // 2)


@pytest.mark.parametrize(
    ("kept", "reduced", "threads", "accesses", "rows", "measured"),
    [
        (100_003, 1000, 64, 8, 2, 290.0),
        (100_003, 1000, 32, 8, 4, 238.0),
        (100_003, 1000, 64, 4, 2, 278.0),
        (100_003, 1000, 128, 4, 1, 378.0),
        (789, 50257, 128, 8, 1, 118.5),
        (789, 50257, 128, 4, 1, 126.0),
        (789, 50257, 512, 4, 1, 99.7),
        (789, 50257, 256, 7, 1, 102.0),
        (1313, 7168, 128, 7, 1, 31.8),
        (1313, 7168, 128, 4, 1, 34.6),
        (1313, 7168, 512, 4, 1, 40.7),
        (534, 5120, 128, 5, 1, 14.9),
        (534, 5120, 128, 4, 1, 15.4),
        (534, 5120, 256, 5, 1, 16.3),
    ],
)
def test_times_are_about_those_of_an_h200(
    kept: int, reduced: int, threads: int, accesses: int, rows: int, measured: float
) -> None:
    """With what any kernel takes."""
    found = space(kept, reduced, misaligned=reduced % 2 > 0)
    assert 3.5 + held_time(found, -(-reduced // 2), threads, accesses, rows, H200) == pytest.approx(measured, rel=0.15)


def test_others_are_planned_as_before() -> None:
    assert plan_held_doubles(space(500, 5120, wide=False), H200) is None
    assert plan_held_doubles(space(500, 5120, held=0), H200) is None
    assert plan_held_doubles(space(66, 5120), H200) is None, "blocks share rows"
    assert plan_held_doubles(space(500, 2 * LEAST_STEPS - 2), H200) is None
    assert plan_held_doubles(space(500, 5120), H200) is not None


@pytest.mark.skipif(not is_available(), reason="no NVRTC")
@pytest.mark.parametrize(
    ("rows", "columns"), [(101, 50257), (117, 250_003), (100_003, 1000), (1313, 7168), (300, 5003)]
)
def test_losses_are_one_kernel_without_spills(rows: int, columns: int) -> None:
    program = compile_case(cross_entropy(rows, columns, DataType.Double))
    (kernel,) = program.kernels.values()
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == kernel.resources.stack_bytes == 0


@pytest.mark.parametrize(
    ("kept", "reduced", "resident"),
    [(1313, 7168, 6), (1200, 3072, 6), (700, 7168, 0), (100_003, 1000, 0), (101, 50_257, 0)],
)
def test_registers_are_asked_for_where_that_saves_a_wave(kept: int, reduced: int, resident: int) -> None:
    found = plan_held_doubles(space(kept, reduced), H200)
    assert found is not None
    assert found.resident == resident
