"""Binds launch arguments to the parameters of a kernel: which memory every buffer means, and the shadows over it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fuser.errors import InternalError, LaunchError
from fuser.ir.integers.integers import Int, Symbol
from fuser.ir.kernel.kernel import SIZE_SYMBOLS, Buffer, DivisorParameter, ExtentParameter, Kernel, ScalarParameter
from fuser.ir.ops.enums import ParallelType
from fuser.records import record
from fuser.runtime.launch import ArgumentValue, Launch
from fuser.simulator.errors import Kind, SimulatorError
from fuser.simulator.lanes import Array
from fuser.simulator.memory import ALIGNMENT, DeviceMemory, Region, VirtualRegion
from fuser.simulator.program import Program
from fuser.simulator.shadow import Clock, Shadow
from fuser.simulator.views import MemoryView, RunningWave, VirtualView


@record
class BoundBuffer:
    """Device memory of one parameter: element 0 is element `base` of the region; `size` elements may be used."""

    region: Region | VirtualRegion | None
    base: int
    size: int


Saved = list[tuple[Region, Array, Array]]


@record(eq=False)
class Binding:
    """A kernel's parameters in one launch. `values` has the symbols that the launch decides."""

    program: Program
    arguments: tuple[ArgumentValue, ...]
    values: dict[Symbol, int]
    buffers: dict[Buffer, BoundBuffer]
    shared_offsets: dict[Buffer, int]
    shared_bytes: int
    # Buffers whose every element held a value at the launch.
    initialised: frozenset[Buffer]

    def view(self, wave: RunningWave, buffer: Buffer, shadows: dict[Buffer, Shadow]) -> MemoryView:
        """A view of device memory."""
        bound = self.buffers[buffer]
        shadow = shadows.get(buffer)
        match bound.region:
            case VirtualRegion() as region:
                return VirtualView(wave, buffer, region, bound.base, bound.size, shadow)
            case Region() as region:
                flags = None if buffer in self.initialised else region.written
                return MemoryView(
                    wave, buffer, region.data, flags, base=bound.base, stride=0, size=bound.size, shadow=shadow
                )
            case None:
                empty = np.zeros(0, np.uint8)
                return MemoryView(wave, buffer, empty, None, base=0, stride=0, size=0, shadow=None)

    def extent_of(self, symbol: Symbol) -> int | None:
        """An extent that the kernel is not passed, by the elements of the buffers whose sizes it decides; None where none does.

        It is too large where the memory of all of them is larger than they are.
        """
        found: list[int] = []
        for buffer, bound in self.buffers.items():
            symbols = buffer.size.symbols
            if bound.region is None or symbol not in symbols or not symbols <= self.values.keys() | {symbol}:
                continue
            sizes = [buffer.size.evaluate({**self.values, symbol: n}) for n in (1, 2, 3)]
            step = sizes[1] - sizes[0]
            if 0 < step == sizes[2] - sizes[1] and (bound.size - sizes[0]) % step == 0:
                found.append((bound.size - sizes[0]) // step + 1)
        return min(found, default=None)

    def make_shadows(self, clock: Clock) -> dict[Buffer, Shadow]:
        """Shadows of the stretches of device memory that the kernel writes; buffers that overlap share one."""
        result: dict[Buffer, Shadow] = {}
        for group in self._overlapping():
            if not any(buffer in self.program.written for buffer in group):
                continue
            unit = min(self.program.access_bytes[buffer] for buffer in group)
            bound = self.buffers[group[0]]
            if isinstance(bound.region, VirtualRegion):
                shadow = Shadow(clock, 0, unit)
            else:
                starts = [self.buffers[b].base * b.dtype.itemsize for b in group]
                ends = [(self.buffers[b].base + self.buffers[b].size) * b.dtype.itemsize for b in group]
                origin = min(starts) // ALIGNMENT * ALIGNMENT
                shadow = Shadow(clock, -(-(max(ends) - origin) // unit), unit, origin)
            for buffer in group:
                result[buffer] = shadow
        return result

    def _overlapping(self) -> list[list[Buffer]]:
        """Accessed buffers of device memory, grouped by common bytes."""
        used = [b for b, bound in self.buffers.items() if b in self.program.access_bytes and bound.region is not None]
        used.sort(key=lambda b: self._address(b))
        groups: list[list[Buffer]] = []
        end = 0
        for buffer in used:
            start = self._address(buffer)
            if not groups or start >= end:
                groups.append([])
                end = start
            groups[-1].append(buffer)
            end = max(end, start + self.buffers[buffer].size * buffer.dtype.itemsize)
        return groups

    def _address(self, buffer: Buffer) -> int:
        bound = self.buffers[buffer]
        return (0 if bound.region is None else bound.region.address) + bound.base * buffer.dtype.itemsize

    def make_arena(self, wave: RunningWave) -> SharedArena:
        return SharedArena(self, wave)

    def save(self) -> Saved:
        """The contents of the memory that the kernel writes."""
        regions: dict[int, Region] = {}
        for buffer in self.program.written:
            bound = self.buffers.get(buffer)
            if bound is not None and isinstance(bound.region, Region):
                regions[bound.region.address] = bound.region
        return [(region, region.data.copy(), region.written.copy()) for region in regions.values()]

    def restore(self, saved: Saved) -> None:
        for region, data, written in saved:
            region.data[:] = data
            region.written[:] = written


class SharedArena:
    """Shared memory of the blocks of a wave: `shared_bytes` bytes each, one after the other, uninitialised."""

    def __init__(self, binding: Binding, wave: RunningWave) -> None:
        self.binding = binding
        self.wave = wave
        # Padded so that every block starts aligned.
        self.stride = -(-binding.shared_bytes // ALIGNMENT) * ALIGNMENT
        self.data = np.zeros(self.stride * wave.blocks, np.uint8)
        self.flags = np.zeros(self.stride * wave.blocks, np.uint8)
        self.shadow: Shadow | None = None
        if wave.checks:
            accesses = [n for b, n in binding.program.access_bytes.items() if b.is_shared]
            unit = min(accesses, default=ALIGNMENT)
            self.shadow = Shadow(wave.clock, len(self.data) // unit, unit)

    def view(self, buffer: Buffer) -> MemoryView:
        itemsize = buffer.dtype.itemsize
        offset = self.binding.shared_offsets[buffer]
        size = self._size(buffer)
        shares = any(
            other is not buffer
            and start < offset + size * itemsize
            and offset < start + self._size(other) * other.dtype.itemsize
            for other, start in self.binding.shared_offsets.items()
        )
        return MemoryView(
            self.wave,
            buffer,
            self.data,
            self.flags,
            base=offset // itemsize,
            stride=self.stride // itemsize,
            size=size,
            shadow=self.shadow,
            shares_bytes=shares,
        )

    def _size(self, buffer: Buffer) -> int:
        return buffer.size.evaluate(self.binding.values)


def bind_arguments(
    program: Program, launch: Launch, arguments: Sequence[ArgumentValue], memory: DeviceMemory
) -> Binding:
    """Bind one value per kernel parameter.

    LaunchError if their number or kinds do not fit; SimulatorError for a pointer that is not aligned to its type and for
    shared buffers outside the launch's shared memory.
    """
    kernel = program.kernel
    if len(arguments) != len(kernel.parameters):
        raise LaunchError(f"{kernel.name} takes {len(kernel.parameters)} arguments, got {len(arguments)}")
    axes = (
        ParallelType.grid_x,
        ParallelType.grid_y,
        ParallelType.grid_z,
        ParallelType.block_x,
        ParallelType.block_y,
        ParallelType.block_z,
    )
    values: dict[Symbol, int] = {
        SIZE_SYMBOLS[axis]: size for axis, size in zip(axes, (*launch.grid, *launch.block), strict=True)
    }
    pointers: list[tuple[Buffer, int]] = []
    divisors: list[tuple[Int, int]] = []
    for parameter, value in zip(kernel.parameters, arguments, strict=True):
        if isinstance(parameter, ScalarParameter):
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise LaunchError(f"{kernel.name}: expected an integer or an address, got {value!r}")
        if isinstance(parameter, ExtentParameter):
            values[parameter.symbol] = value
            _check_declared(parameter.symbol, value)
            if kernel.index_bits == 32 and not -(2**31) <= value < 2**31:
                message = f"{parameter.symbol.name} is {value}, the kernel has 32-bit indices"
                raise SimulatorError(Kind.index_overflow, message)
        elif isinstance(parameter, DivisorParameter):
            divisors.append((parameter.divisor, value))
        else:
            pointers.append((parameter.buffer, value))
    for divisor, value in divisors:
        if divisor.evaluate(values) != value:
            raise SimulatorError(Kind.symbol_range, f"{divisor} is {divisor.evaluate(values)}, the launch says {value}")
    buffers = {buffer: _bind_pointer(buffer, address, values, memory) for buffer, address in pointers}
    offsets = _shared_offsets(kernel, program, values, launch)
    initialised = frozenset(buffer for buffer, bound in buffers.items() if _is_initialised(buffer, bound))
    return Binding(program, tuple(arguments), values, buffers, offsets, launch.shared_bytes, initialised)


def _is_initialised(buffer: Buffer, bound: BoundBuffer) -> bool:
    if not isinstance(bound.region, Region):
        return False
    start = bound.base * buffer.dtype.itemsize
    return bool(bound.region.written[start : start + bound.size * buffer.dtype.itemsize].all())


def _check_declared(symbol: Symbol, value: int) -> None:
    low, high = symbol.lo, symbol.hi
    if (low is not None and value < low) or (high is not None and value > high) or value % symbol.multiple:
        message = f"{symbol.name} is {value}, declared in [{low}, {high}] and a multiple of {symbol.multiple}"
        raise SimulatorError(Kind.symbol_range, message)


def _bind_pointer(buffer: Buffer, address: int, values: dict[Symbol, int], memory: DeviceMemory) -> BoundBuffer:
    region = memory.find(address)
    if region is None or region.released:
        return BoundBuffer(None, 0, 0)
    offset = address - region.address
    itemsize = buffer.dtype.itemsize
    if offset % itemsize:
        message = f"{buffer.name} starts at {address:#x}, {buffer.dtype.name} needs a multiple of {itemsize}"
        raise SimulatorError(Kind.misaligned, message, buffer=buffer.name)
    size = (region.nbytes - offset) // itemsize
    declared = _evaluate(buffer.size, values)
    if isinstance(region, VirtualRegion) and region.dtype.numpy != buffer.dtype.numpy:
        raise LaunchError(f"{buffer.name} is {buffer.dtype.name}, its virtual memory holds {region.dtype.name}")
    return BoundBuffer(region, offset // itemsize, size if declared is None else max(0, min(size, declared)))


def _evaluate(size: Int, values: dict[Symbol, int]) -> int | None:
    """The size of a buffer, None if it names symbols that the kernel is not passed."""
    return size.evaluate(values) if size.symbols <= values.keys() else None


def _shared_offsets(kernel: Kernel, program: Program, values: dict[Symbol, int], launch: Launch) -> dict[Buffer, int]:
    result: dict[Buffer, int] = {}
    for buffer in program.buffers:
        if not buffer.is_shared:
            continue
        if buffer.name not in kernel.shared_offsets:
            raise InternalError(f"the shared buffer {buffer.name} has no place", pass_name="simulator")
        offset = kernel.shared_offsets[buffer.name].evaluate(values)
        nbytes = buffer.size.evaluate(values) * buffer.dtype.itemsize
        if offset % buffer.dtype.itemsize:
            message = f"{buffer.name} starts at byte {offset} of shared memory"
            raise SimulatorError(Kind.misaligned, message, buffer=buffer.name)
        if offset + nbytes > launch.shared_bytes:
            message = (
                f"{buffer.name} takes the bytes {offset} to {offset + nbytes} of shared memory, "
                f"the launch has {launch.shared_bytes}"
            )
            raise SimulatorError(Kind.out_of_bounds, message, buffer=buffer.name)
        result[buffer] = offset
    return result
