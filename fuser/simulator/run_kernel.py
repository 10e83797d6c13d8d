"""Runs a kernel: binds its arguments, cuts the grid into waves, lets them run in some order, and looks at what is left.

Blocks run in an order drawn from the seed. Where blocks do not wait for one another, a wave of many blocks runs in lock
step; races are found by what happened before what (`shadow`), so that order does not matter for what is reported.
Blocks that wait (SpinWait) run one by one, switching at every atomic, or all in one wave if there are many threads; should
that wave get stuck, the kernel is run again block by block. So are blocks of which one receives from the others: one by one,
no more are there at once than have to be.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np

from fuser.errors import LaunchError
from fuser.ir.device_info import H200, DeviceInfo
from fuser.ir.kernel.kernel import Kernel, SemaphoreParameter
from fuser.records import record
from fuser.runtime.launch import ArgumentValue, Launch
from fuser.simulator.binding import bind_arguments
from fuser.simulator.compile import compile_kernel
from fuser.simulator.errors import Kind, SimulatorError
from fuser.simulator.lanes import MAX_THREADS, Array
from fuser.simulator.machine import BlockPosition, Machine, cluster_blocks
from fuser.simulator.memory import DeviceMemory, Region
from fuser.simulator.program import Program
from fuser.simulator.wave import Wave

# Threads of one wave: large enough that the cost of a statement is that of its arithmetic, small enough for the caches.
_WAVE_THREADS = 1 << 16
_WAVE_SHARED_BYTES = 1 << 26
# Kernels whose blocks wait run block by block up to this many threads.
_STEPPED_THREADS = 1 << 15
# Blocks that run interleaved where they do not wait.
_INTERLEAVED = 8
# Blocks, or clusters, that every device holds at once: one may wait for the others.
_FEWEST = 2
# Shared memory the driver takes per block.
_RESERVED_SHARED = 1024


@record
class Report:
    """What a simulated launch came to. `error` is the first defect found, None if there was none."""

    error: SimulatorError | None
    blocks: int
    waves: int
    interleaved: bool

    def check(self) -> None:
        """Raise the error, if there is one."""
        if self.error is not None:
            raise self.error


class _StuckWave(Exception):
    """The blocks of a wave wait for something that one of them does later."""


def run_kernel(
    kernel: Kernel,
    launch: Launch,
    arguments: Sequence[ArgumentValue],
    memory: DeviceMemory,
    *,
    seed: int = 0,
    block_order: Sequence[BlockPosition] | None = None,
    checks: bool = True,
    only_blocks: Sequence[BlockPosition] | None = None,
    info: DeviceInfo = H200,
    interleave: bool | None = None,
    trip_limit: int = 20_000_000,
) -> Report:
    """Run an expanded kernel.

    arguments    one value per kernel parameter, addresses for pointers
    seed         of the order of blocks and of atomics
    block_order  all blocks in the order to run them in, instead of a random one
    checks       False leaves out the search for races
    only_blocks  run just these blocks (semaphores are not looked at afterwards)
    interleave   run blocks that communicate one by one, switching at atomics; None decides by size
    trip_limit   loop trips of all waves together after which the kernel is taken to hang

    Raises LaunchError for sizes the device cannot hold and InternalError for IR that cannot run. Defects of the kernel are
    returned, not raised.
    """
    check_launch(launch, info)
    _check_cluster(launch, info)
    try:
        program = compile_kernel(kernel)
        if program.widest_access > info.max_access_bytes:
            message = f"an access of {program.widest_access} bytes; {info.name} has at most {info.max_access_bytes}"
            raise LaunchError(message)
        _check_resident(launch, info, program)
        blocks = _block_sequence(launch, block_order, only_blocks, seed)
        threads = len(blocks) * launch.threads
        stepped = program.has_communication and (
            interleave if interleave is not None else program.has_waits and threads <= _STEPPED_THREADS
        )
        binding = bind_arguments(program, launch, arguments, memory)
        is_waiting = program.has_waits or program.has_receives
        saved = binding.save() if is_waiting and not stepped else None
        machine = Machine(program, binding, launch, blocks, seed, checks, trip_limit)
        with np.errstate(all="ignore"):
            try:
                waves = run_stepped(machine) if stepped else run_waves(machine)
            except _StuckWave:
                assert saved is not None
                binding.restore(saved)
                stepped = True
                machine = Machine(program, binding, launch, blocks, seed, checks, trip_limit)
                waves = run_stepped(machine)
        if only_blocks is None:
            check_semaphores(machine)
    except SimulatorError as error:
        return Report(error, 0, 0, False)
    return Report(None, len(blocks), waves, stepped)


def check_launch(launch: Launch, info: DeviceInfo) -> None:
    """LaunchError for sizes that no launch on the device can have."""
    limits = ((2**31 - 1, 65535, 65535), (1024, 1024, 64))
    for name, sizes, most in zip(("grid", "block"), (launch.grid, launch.block), limits, strict=True):
        for axis, size, limit in zip("xyz", sizes, most, strict=True):
            if not 1 <= size <= limit:
                raise LaunchError(f"{name}.{axis} is {size}, it must be between 1 and {limit}")
    if launch.threads > info.max_threads_per_block:
        raise LaunchError(f"a block of {launch.threads} threads; {info.name} has at most {info.max_threads_per_block}")
    if launch.shared_bytes > info.shared_per_block_optin:
        most_shared = info.shared_per_block_optin
        raise LaunchError(
            f"{launch.shared_bytes} bytes of shared memory; {info.name} has at most {most_shared} per block"
        )


def _check_cluster(launch: Launch, info: DeviceInfo) -> None:
    if launch.cluster is None:
        return
    if cluster_blocks(launch) > info.max_cluster:
        raise LaunchError(f"a cluster of {cluster_blocks(launch)} blocks; {info.name} has at most {info.max_cluster}")
    for axis, blocks, size in zip("xyz", launch.grid, launch.cluster, strict=True):
        if size < 1 or blocks % size != 0:
            raise LaunchError(f"the grid of {blocks} blocks along {axis} is no multiple of the cluster's {size}")


def resident_blocks(launch: Launch, info: DeviceInfo) -> int:
    """How many blocks of a launch the device holds at once, registers not counted."""
    shared = launch.shared_bytes + _RESERVED_SHARED if launch.shared_bytes else 0
    warps = -(-launch.threads // info.warp_size)
    per_sm = min(info.max_blocks_per_sm, info.max_threads_per_sm // (warps * info.warp_size))
    if shared:
        per_sm = min(per_sm, info.shared_per_sm // shared)
    return per_sm * info.sm_count


def _check_resident(launch: Launch, info: DeviceInfo, program: Program) -> None:
    total = launch.grid[0] * launch.grid[1] * launch.grid[2]
    most = resident_blocks(launch, info)
    if launch.cooperative and total > most:
        message = f"a cooperative grid of {total} blocks; {info.name} holds {most} of them at once"
        raise SimulatorError(Kind.over_resident, message)
    if program.has_waits and not launch.cooperative:
        message = "blocks wait for one another, but the launch is not cooperative"
        raise SimulatorError(Kind.over_resident, message)


def _cluster_of(launch: Launch, blocks: Array) -> tuple[Array, Array]:
    """(cluster, rank in it) of linear block numbers."""
    assert launch.cluster is not None
    gx, gy, _ = launch.grid
    cx, cy, cz = launch.cluster
    x, y, z = blocks % gx, blocks // gx % gy, blocks // (gx * gy)
    number = x // cx + (gx // cx) * (y // cy + (gy // cy) * (z // cz))
    return number, x % cx + cx * (y % cy + cy * (z % cz))


def _in_clusters(launch: Launch, blocks: Array) -> Array:
    """The blocks cluster by cluster, in order of rank; clusters of which a block is named are run whole."""
    if cluster_blocks(launch) == 1:
        return blocks
    every = np.arange(launch.grid[0] * launch.grid[1] * launch.grid[2])
    number, rank = _cluster_of(launch, every)
    members = every[np.lexsort((rank, number))].reshape(-1, cluster_blocks(launch))
    wanted = list(dict.fromkeys(_cluster_of(launch, blocks)[0].tolist()))
    return members[wanted].reshape(-1)


def boundary_blocks(grid: BlockPosition) -> list[BlockPosition]:
    """The blocks at both ends and in the middle of every axis, and their neighbours."""

    def ends(size: int) -> list[int]:
        return sorted({i for i in (0, 1, size // 2, size - 2, size - 1) if 0 <= i < size})

    return [(x, y, z) for z in ends(grid[2]) for y in ends(grid[1]) for x in ends(grid[0])]


def _block_sequence(
    launch: Launch, order: Sequence[BlockPosition] | None, only: Sequence[BlockPosition] | None, seed: int
) -> Array:
    """Linear block numbers in the order of execution."""
    gx, gy, gz = launch.grid
    given = only if only is not None else order
    if given is not None:
        blocks = np.array([x + gx * (y + gy * z) for x, y, z in given], np.int64)
        if order is not None and only is None and sorted(blocks.tolist()) != list(range(gx * gy * gz)):
            raise LaunchError("block_order must name every block of the grid once")
        if only is not None:
            blocks = np.random.default_rng(seed).permutation(blocks)
    else:
        blocks = np.random.default_rng(seed).permutation(gx * gy * gz)
    blocks = _in_clusters(launch, blocks)
    if len(blocks) * launch.threads >= MAX_THREADS:
        raise LaunchError(f"{len(blocks)} blocks of {launch.threads} threads are too many to simulate; use only_blocks")
    return blocks


def _start(machine: Machine, first: int, blocks: int) -> tuple[Wave, Generator[bool, None, None] | None]:
    wave = Wave(machine, first, blocks)
    return wave, machine.program.function(wave)


def run_waves(machine: Machine) -> int:
    """Run all blocks, wave after wave; the number of waves."""
    total = len(machine.blocks)
    size = max(1, _WAVE_THREADS // machine.launch.threads)
    if machine.binding.shared_bytes:
        size = max(1, min(size, _WAVE_SHARED_BYTES // machine.binding.shared_bytes))
    cluster = machine.clock.cluster_size
    size = max(cluster, size // cluster * cluster)
    if machine.program.has_waits or machine.program.has_receives:
        size = total
    for first in range(0, total, size):
        try:
            _, running = _start(machine, first, min(size, total - first))
            if running is not None and any(running):
                raise _StuckWave
        except ZeroDivisionError:
            raise SimulatorError(Kind.division_by_zero, "an index divides by 0") from None
    return -(-total // size)


def run_stepped(machine: Machine) -> int:
    """Run all blocks one by one, switching at every atomic and wait; the number of blocks."""
    cluster = machine.clock.cluster_size
    waiting_to_start = list(range(0, len(machine.blocks), cluster))
    is_resident = machine.program.has_waits or machine.launch.cooperative
    most = len(machine.blocks) if is_resident else _FEWEST if machine.program.has_receives else _INTERLEAVED
    # Block, its generator, and at which step it was found waiting (-1: it can go on).
    running: list[tuple[Wave, Generator[bool, None, None], int]] = []
    while running or waiting_to_start:
        while waiting_to_start and len(running) < most:
            wave, generator = _start(machine, waiting_to_start.pop(0), cluster)
            if generator is not None:
                running.append((wave, generator, -1))
        able = [n for n, (_, _, step) in enumerate(running) if step != machine.steps]
        if not able:
            blocked = running[0][0].waiting
            assert blocked is not None
            raise blocked
        chosen = able[int(machine.rng.integers(len(able)))]
        wave, generator, _ = running[chosen]
        try:
            is_waiting = next(generator)
        except StopIteration:
            machine.steps += 1
            del running[chosen]
        except ZeroDivisionError:
            raise SimulatorError(Kind.division_by_zero, "an index divides by 0") from None
        else:
            running[chosen] = (wave, generator, machine.steps if is_waiting else -1)
    return len(machine.blocks)


def check_semaphores(machine: Machine) -> None:
    """Report a semaphore that the kernel left other than zero."""
    for parameter, address in zip(machine.program.kernel.parameters, machine.binding.arguments, strict=True):
        if not isinstance(parameter, SemaphoreParameter) or not isinstance(address, int):
            continue
        bound = machine.binding.buffers[parameter.buffer]
        if not isinstance(bound.region, Region):
            continue
        values = bound.region.data.view(parameter.buffer.dtype.numpy)[bound.base : bound.base + bound.size]
        left = np.flatnonzero(values)
        if left.size:
            index, value = int(left[0]), int(values[left[0]])
            message = f"{parameter.buffer.name}[{index}] is {value} after the kernel"
            raise SimulatorError(Kind.semaphore_not_reset, message, buffer=parameter.buffer.name)
