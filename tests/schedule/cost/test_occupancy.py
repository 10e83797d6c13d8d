"""Blocks of an SM: as many as each of its capacities has room for, and one more than that in none."""

from __future__ import annotations

import pytest

from fuser.ir.device_info import WARP, DeviceInfo
from fuser.runtime.kernels.variants import registers_among, rung_of
from fuser.schedule.cost.occupancy import allocated_registers, launch_bounds_blocks, max_registers, resident_blocks

H200 = DeviceInfo.preset("H200")


def fit(blocks: int, threads: int, registers: int, shared: int) -> bool:
    taken = -(-threads // WARP) * WARP
    return (
        blocks <= H200.max_blocks_per_sm
        and blocks * taken <= H200.max_threads_per_sm
        and blocks * taken * allocated_registers(registers) <= H200.registers_per_sm
        and blocks * shared <= H200.shared_per_sm
    )


@pytest.mark.parametrize("threads", [1, 32, 33, 96, 256, 1024])
@pytest.mark.parametrize("registers", [1, 24, 33, 128, 255])
@pytest.mark.parametrize("shared", [0, 1024, 50000, 1 << 20])
def test_one_more_does_not_fit(threads: int, registers: int, shared: int) -> None:
    found = resident_blocks(threads, registers, H200, shared)
    assert fit(found, threads, registers, shared)
    assert not fit(found + 1, threads, registers, shared)


def test_registers_are_granted_in_steps_and_by_rungs() -> None:
    assert [allocated_registers(n) for n in (1, 8, 9, 40)] == [8, 8, 16, 40]
    limits = [max_registers(threads, H200) for threads in (32, 256, 512, 1024)]
    assert limits == sorted(limits, reverse=True)
    assert all(n * threads <= H200.registers_per_sm for n, threads in zip(limits, (32, 256, 512, 1024), strict=True))


@pytest.mark.parametrize("threads", [32, 256, 320, 640, 704, 768, 800, 1024])
@pytest.mark.parametrize("registers", [24, 40, 46, 64, 128])
def test_a_binary_for_one_block_more_has_fewer_registers(threads: int, registers: int) -> None:
    """Bounds are those of a rung: what blocks of 704 threads may have is what blocks of 768 may."""
    top, found = rung_of(threads)[0], launch_bounds_blocks(threads, registers)

    def allowed(blocks: int) -> int:
        return registers_among(-(-blocks * threads // top) * top)

    assert not found or allowed(found) >= registers
    assert allowed(found + 1) < registers
