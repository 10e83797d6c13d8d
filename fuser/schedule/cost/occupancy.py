"""How many blocks an SM holds at once, by the threads, registers and shared memory of one."""

from __future__ import annotations

from fuser.ir.device_info import REGISTER_STEP, WARP, DeviceInfo
from fuser.runtime.kernels.variants import registers_among, rung_of


def allocated_registers(registers: int) -> int:
    """Registers of a thread, as they are handed out."""
    return -(-registers // REGISTER_STEP) * REGISTER_STEP


def max_registers(threads: int, device: DeviceInfo) -> int:
    """Registers that a thread of a block of so many may have."""
    return min(device.registers_per_thread, rung_of(threads)[1])


def resident_blocks(threads: int, registers: int, device: DeviceInfo, shared: int = 0) -> int:
    """Blocks that an SM holds. `shared`: bytes of a block, with what the device reserves."""
    taken = -(-threads // WARP) * WARP
    found = min(
        device.max_threads_per_sm // taken,
        device.registers_per_sm // (allocated_registers(registers) * taken),
        device.max_blocks_per_sm,
    )
    return min(found, device.shared_per_sm // shared) if shared else found


def fitting_blocks(threads: int, registers: int, device: DeviceInfo, shared: int = 0) -> int:
    """The same; 0 where threads would not have their registers."""
    fits = allocated_registers(registers) <= max_registers(threads, device)
    return resident_blocks(threads, registers, device, shared) if fits else 0


def launch_bounds_blocks(threads: int, registers: int) -> int:
    """Blocks of so many threads that a binary may be compiled for, if each thread is to have so many registers.

    Launch bounds are those of a rung of block sizes: blocks of 704 threads are bounded as those of 768.
    """
    top = rung_of(threads)[0]
    tops = 0
    while registers_among(top * (tops + 1)) >= registers:
        tops += 1
    return tops * top // threads
