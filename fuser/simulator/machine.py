"""The state of one launch: positions of blocks and threads, what waves are made of, and what all of them share."""

from __future__ import annotations

import math

import numpy as np

from fuser.ir.integers.integers import Symbol
from fuser.ir.kernel.kernel import THREAD_SYMBOLS, ScalarParameter
from fuser.ir.ops.enums import ParallelType
from fuser.ir.ops.op_table import numpy_cast
from fuser.runtime.launch import Launch
from fuser.simulator.binding import Binding
from fuser.simulator.communication import Communication
from fuser.simulator.indices import INT32_MAX, INT32_MIN, IndexGuard, Ranges, SymbolGuard
from fuser.simulator.lanes import SITE_MASK, Array, Index
from fuser.simulator.program import Program
from fuser.simulator.shadow import Clock
from fuser.simulator.views import MemoryView, RegisterArray, RunningWave

BlockPosition = tuple[int, int, int]


def cluster_blocks(launch: Launch) -> int:
    """Blocks of a cluster, 1 without clusters."""
    return math.prod(launch.cluster) if launch.cluster is not None else 1


class Machine:
    """One launch. Blocks are numbered by their place in `blocks`, which has their linear positions in the grid."""

    def __init__(
        self,
        program: Program,
        binding: Binding,
        launch: Launch,
        blocks: Array,
        seed: int,
        checks: bool,
        trip_limit: int,
    ) -> None:
        self.program = program
        self.binding = binding
        self.launch = launch
        self.blocks = blocks
        self.rng = np.random.default_rng((seed, 1))
        self.clock = Clock(len(blocks), launch.threads, has_warp_barriers=program.has_warp_barriers)
        self.clock.cluster_size = cluster_blocks(launch)
        self.communication = Communication(self.clock) if program.has_communication and checks else None
        self.index_bits = program.kernel.index_bits
        self.checks = checks
        self.steps = 0
        self.trips = 0
        self.trip_limit = trip_limit
        numbers = {buffer: number for number, buffer in enumerate(program.buffers)}
        accesses = {number: site.buffer for number, site in program.sites.items() if site.buffer is not None}
        self.site_buffers = np.full(max(len(accesses), SITE_MASK) + 1, -1)
        for number, buffer in accesses.items():
            self.site_buffers[number] = numbers[buffer]
        self.scalars = {
            parameter.name: numpy_cast(np.asarray(value), parameter.dtype)
            for parameter, value in zip(program.kernel.parameters, binding.arguments, strict=True)
            if isinstance(parameter, ScalarParameter)
        }
        self.guards: dict[int, IndexGuard] = {}
        self.symbol_guards: dict[int, SymbolGuard] = {}
        self._make_guards()
        self.shadows = binding.make_shadows(self.clock) if checks else {}
        self._thread_symbols = self._positions(launch.block, np.arange(launch.threads)[None, :])

    # --- what a wave is made of ---------------------------------------------------------------------------------------

    def _positions(self, sizes: BlockPosition, linear: Array) -> tuple[Index, Index, Index]:
        x: Index = linear % sizes[0] if sizes[0] > 1 else 0
        y: Index = linear // sizes[0] % sizes[1] if sizes[1] > 1 else 0
        z: Index = linear // (sizes[0] * sizes[1]) if sizes[2] > 1 else 0
        return x, y, z

    def wave_symbols(self, first: int, blocks: int) -> list[Index]:
        """Values of `program.symbols` in a wave."""
        x, y, z = self._positions(self.launch.grid, self.blocks[first : first + blocks, None])
        if blocks == 1:
            x, y, z = (p if isinstance(p, int) else int(p[0, 0]) for p in (x, y, z))
        tx, ty, tz = self._thread_symbols
        positions: dict[Symbol, Index] = {
            THREAD_SYMBOLS[ParallelType.grid_x]: x,
            THREAD_SYMBOLS[ParallelType.grid_y]: y,
            THREAD_SYMBOLS[ParallelType.grid_z]: z,
            THREAD_SYMBOLS[ParallelType.block_x]: tx,
            THREAD_SYMBOLS[ParallelType.block_y]: ty,
            THREAD_SYMBOLS[ParallelType.block_z]: tz,
        }
        return [positions[s] if s in positions else self.binding.values[s] for s in self.program.symbols]

    def wave_buffers(self, wave: RunningWave) -> list[MemoryView | RegisterArray]:
        """Views of `program.buffers` for a wave; shared memory and registers are new."""
        arena = self.binding.make_arena(wave) if any(b.is_shared for b in self.program.buffers) else None
        result: list[MemoryView | RegisterArray] = []
        for buffer in self.program.buffers:
            if buffer.is_register:
                result.append(RegisterArray(wave, buffer, buffer.size.value))
            elif buffer.is_shared:
                assert arena is not None
                result.append(arena.view(buffer))
            else:
                result.append(self.binding.view(wave, buffer, self.shadows))
        return result

    def thread_position(self, linear: int) -> BlockPosition:
        bx, by, _ = self.launch.block
        return linear % bx, linear // bx % by, linear // (bx * by)

    def block_position(self, number: int) -> BlockPosition:
        gx, gy, _ = self.launch.grid
        linear = int(self.blocks[number])
        return linear % gx, linear // gx % gy, linear // (gx * gy)

    def _make_guards(self) -> None:
        ranges = Ranges()
        for symbol, value in self.binding.values.items():
            ranges.define(symbol, value, value)
        for sizes, types in (
            (self.launch.grid, (ParallelType.grid_x, ParallelType.grid_y, ParallelType.grid_z)),
            (self.launch.block, (ParallelType.block_x, ParallelType.block_y, ParallelType.block_z)),
        ):
            for size, axis in zip(sizes, types, strict=True):
                ranges.define(THREAD_SYMBOLS[axis], 0, size - 1)
        for number, definition in enumerate(self.program.definitions):
            match definition.sources:
                case ():
                    low, high = INT32_MIN, INT32_MAX
                case (value,):
                    low, high = ranges.of(value)
                case _:
                    low = ranges.of(definition.sources[0])[0]
                    high = max(low, ranges.of(definition.sources[1])[1] - 1)
            ranges.define(definition.symbol, low, high)
            below = definition.symbol.below
            extent = (
                self.binding.extent_of(below) if definition.given is not None and isinstance(below, Symbol) else None
            )
            symbol_guard = SymbolGuard.make(definition, low, high, ranges, extent)
            if symbol_guard is not None:
                self.symbol_guards[number] = symbol_guard
        for number, outputs in enumerate(self.program.evaluations):
            guard = IndexGuard.make(outputs, ranges, is_int32=self.index_bits == 32)
            if guard is not None:
                self.guards[number] = guard
