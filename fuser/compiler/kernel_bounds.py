"""What a kernel is compiled for: threads of a block, registers that they may have, and what its binary spills."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, assert_never

from fuser.compiler.bind_inputs import BoundInputs
from fuser.ir.integers.integers import Int
from fuser.ir.kernel.kernel_demand import demand_of
from fuser.runtime.kernels.compiled_kernel import BlocksBy, CompiledKernel
from fuser.runtime.kernels.variants import registers_among, rung_of

if TYPE_CHECKING:
    from fuser.runtime.kernels.nvrtc import CompileResult


def fewer_blocks(kernel: CompiledKernel) -> Sequence[int]:
    """Blocks a processor to ask for where a kernel spills, in the order to try.

    Where no number was asked for, ptxas aims at one of its own, and may spill for it. What a schedule asks for is for speed
    alone, unless all blocks must be there at once. What a user asks for stands, as does their limit of registers.
    """
    if kernel.register_cap is not None:
        return ()
    match kernel.blocks_by:
        case BlocksBy.compiler:
            return (1,)
        case BlocksBy.schedule:
            is_needed = kernel.plan is not None and kernel.plan.cooperative
            return () if is_needed else range(kernel.min_blocks - 1, 0, -1)
        case BlocksBy.user | BlocksBy.spills:
            return ()
        case _:
            assert_never(kernel.blocks_by)


def spare_registers(kernel: CompiledKernel, bound: BoundInputs) -> int:
    """Registers that a thread of the block for these inputs may have, beyond those that it must keep."""
    assert kernel.kernel_ir is not None
    top, _ = rung_of(max(1, min(threads_of_block(kernel, bound), 1024)))
    return registers_among(top * max(1, kernel.kernel_ir.min_blocks)) - demand_of(kernel.kernel_ir.body).registers


def unplanned(kernel: CompiledKernel) -> str:
    """What a binary does that its schedule did not plan with, in words; none for one that is as planned."""
    spilled = spill_bytes(kernel)
    if spilled:
        return f"spills {spilled} bytes"
    planned = 0 if kernel.kernel_ir is None else kernel.kernel_ir.min_blocks
    if kernel.min_blocks < planned:
        return f"spills with {planned} blocks on a processor, as planned, and is compiled for {kernel.min_blocks}"
    return ""


def threads_of_block(kernel: CompiledKernel, bound: BoundInputs) -> int:
    """Threads of a block for these inputs."""
    assert kernel.plan is not None
    return math.prod(evaluated(extent, kernel, bound) for extent in kernel.plan.block)


def evaluated(expression: Int, kernel: CompiledKernel, bound: BoundInputs) -> int:
    """Value of an expression of the launch plan for these inputs."""
    assert kernel.plan is not None
    return expression.evaluate(
        {b.symbol: bound.extents.get(b.symbol, _by_name(bound, b.symbol.name)) for b in kernel.plan.bindings}
    )


def _by_name(bound: BoundInputs, name: str) -> int:
    return next((v for s, v in bound.extents.items() if s.name == name), 1)


def has_spilled(result: CompileResult, entry: str) -> bool:
    found = result.resources.get(entry)
    return found is not None and found.spill_bytes > 0


def spill_bytes(kernel: CompiledKernel) -> int:
    """Bytes that its binary spills; 0 without one."""
    return 0 if kernel.resources is None else kernel.resources.spill_bytes
