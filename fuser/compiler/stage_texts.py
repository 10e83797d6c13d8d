"""Texts of stages that no folder below prints: a schedule with its facts, and what ptxas reported."""

from __future__ import annotations

from fuser.ir.facts import Facts
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.runtime.kernels.compiled_kernel import CompiledKernel


def schedule_text(scheduled: ScheduleBuilder, facts: Facts) -> str:
    """The records of a schedule, the loops that follow, and the facts that its kernel assumes."""
    lines = ["# verbs", *(str(r) for r in scheduled.records), "", "# loops"]
    for name, state in scheduled.states.items():
        loops = ", ".join(f"{axis}:{state.parallel_type(axis).name}" for axis in state.loop)
        lines.append(f"# {name} ({state.memory.name}, inlined at {state.inline_at}): [{loops}]")
    lines += ["", "# facts", *(f"# {f}" for f in sorted(map(str, facts)))]
    return "\n".join(lines) + "\n"


def resource_text(kernel: CompiledKernel) -> str:
    """What ptxas reported."""
    r = kernel.resources
    if r is None or kernel.cubin is None:
        return "# no resource report\n"
    return (
        f"# {kernel.entry} for {kernel.arch}, {len(kernel.cubin)} bytes of machine code\n"
        f"# {r.registers} registers, {r.spill_bytes} bytes spilled, {r.stack_bytes} bytes of stack, "
        f"{r.static_shared_bytes} bytes of static shared memory\n"
        f"# serves blocks up to {kernel.max_block_size} threads\n"
        + "".join(f"# {line}\n" for line in kernel.blocks_text)
    )
