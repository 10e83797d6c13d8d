"""Early launches: those that start while the launch before them ends, by programmatic dependent launch (PDL).

An edge between two launches is early where the second waits by itself for what the first stores (`LaunchPlan.waits_first`,
ir/kernel/launch_waits.py). Its blocks are placed when those of the first have ended: what the device does between two
kernels is done by then. Nothing tells it to place them sooner (griddepcontrol.launch_dependents): blocks that wait
would take room from those that work. So an early launch costs nothing where it gains nothing: H200, `python -m
benchmarks.chain_time`.

On a stream the edge is an attribute of the second launch; in a graph it is one of the edge itself. As all blocks of an early
launch wait before they end, who waits for it has waited for those before it as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from fuser import options
from fuser.ir.device_info import DeviceInfo
from fuser.runtime.kernels.commands import Command, Edges, KernelCommand
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.launch import Launch

_may: WeakKeyDictionary[CompiledKernel, bool] = WeakKeyDictionary()


def starts_early(kernel: CompiledKernel, launch: Launch, info: DeviceInfo) -> bool:
    """Whether a launch starts while the one right before it ends."""
    if launch.cooperative or info.compute_capability < (9, 0) or not options.PDL.get():
        return False
    return _waits_first(kernel)


def may_be_overlapped(kernel: CompiledKernel) -> bool:
    """Whether a launch may start early behind one of this kernel.

    Not where it lets the next one start before its blocks have ended: that is for its partner, whose room it would take.
    """
    return kernel.plan is None or not kernel.plan.starts_next


def early_edges(commands: Sequence[Command], edges: Edges, info: DeviceInfo) -> tuple[tuple[int, ...], ...]:
    """Of each command those that it waits for by early edges: other kernels, if it is one that may."""
    return tuple(
        tuple(n for n in before if _may_overlap(commands[n])) if is_early(command, info) else ()
        for command, before in zip(commands, edges, strict=True)
    )


def _may_overlap(command: Command) -> bool:
    return isinstance(command, KernelCommand) and may_be_overlapped(command.kernel)


def is_early(command: Command, info: DeviceInfo) -> bool:
    """Whether a command is a launch that starts while the kernels that it waits for end."""
    return isinstance(command, KernelCommand) and starts_early(command.kernel, command.launch, info)


def _waits_first(kernel: CompiledKernel) -> bool:
    if kernel.plan is None or not kernel.plan.waits_first:
        return False
    known = _may.get(kernel)
    if known is None:
        from fuser.ir.kernel.launch_waits import why_not_early

        # A file may say what it likes.
        _may[kernel] = known = kernel.kernel_ir is None or why_not_early(kernel.kernel_ir) is None
    return known
