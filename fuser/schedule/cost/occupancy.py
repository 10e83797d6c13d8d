"""How many blocks an SM holds at once, by the threads, registers and shared memory of one."""

from __future__ import annotations

from fuser.ir.device_info import REGISTER_STEP, WARP, DeviceInfo
from fuser.runtime.variants import rung_of


def granted_registers(registers: int) -> int:
    """Registers of a thread, as they are handed out."""
    return -(-registers // REGISTER_STEP) * REGISTER_STEP


def most_registers(threads: int, device: DeviceInfo) -> int:
    """Registers that a thread of a block of so many may have."""
    return min(device.registers_per_thread, rung_of(threads)[1])


def resident_blocks(threads: int, registers: int, device: DeviceInfo, shared: int = 0) -> int:
    """Blocks that an SM holds. `shared`: bytes of a block, with what the device reserves."""
    taken = -(-threads // WARP) * WARP
    found = min(
        device.max_threads_per_sm // taken,
        device.registers_per_sm // (granted_registers(registers) * taken),
        device.max_blocks_per_sm,
    )
    return min(found, device.shared_per_sm // shared) if shared else found
