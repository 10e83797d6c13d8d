"""A host program for people: its text, and for each kernel how it is launched, what it assumes, what it uses."""

from __future__ import annotations

from typing import assert_never

from fuser import options
from fuser.host_ir.executors.run_history import RunHistory
from fuser.host_ir.instructions.bodies import equal_bodies, selector_of, walk
from fuser.host_ir.instructions.instructions import CallLibrary, Copy, Fill, LaunchKernel, SetStream, WaitEvent
from fuser.host_ir.instructions.print_instruction import kernel_label, print_instruction
from fuser.host_ir.passes.print_program import print_program
from fuser.host_ir.passes.stream_order import Name
from fuser.host_ir.passes.verified_program import VerifiedProgram
from fuser.ir.fusion.library_ops import LIBRARY_OPS
from fuser.ir.kernel.launch_plan import Binding, ExtentOf, LaunchPlan, ScalarOf, StrideOf
from fuser.ir.kernel.launch_waits import why_not_made_early
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.kernels.library_calls import LibraryCall, notes_of, operands_text


def explain_program(program: VerifiedProgram, history: RunHistory) -> str:
    """The program as Python, one paragraph per kernel, the counters that are not zero, and why runs
    were left to the interpreter."""
    parts = [print_program(program)]
    kernels = program.kernels
    parts += [_explain_kernel(label, kernel, n > 0) for n, (label, kernel) in enumerate(kernels.items())]
    parts += [_explain_call(call) for call in history.library_calls()]
    choices = _explain_choices(program)
    if choices:
        parts.append("\n".join(choices))
    if len(program.facts.streams) > 1:
        parts.append(_explain_streams(program))
    memory = history.memory()
    if memory is not None:
        most, total = memory
        parts.append(f"memory: at most {most} bytes at a time, of {total} that are asked for, for the latest new sizes")
    if program.facts.updates:
        parts.append(f"updated in place: {', '.join(program.facts.updates)}")
    counters = ", ".join(f"{name} {n}" for name, n in history.counters().items() if n)
    if counters:
        parts.append(f"so far: {counters}")
    parts += [f"left to the interpreter: {n} runs, {why}" for why, n in history.interpreted().items()]
    return "\n\n".join(parts) + "\n"


def _explain_call(call: LibraryCall) -> str:
    """What was handed to which library, why, and what that does beside the op."""
    lines = [
        f"{call.op}({operands_text(call.inputs)}) by {call.library}",
        f"  why         {LIBRARY_OPS[call.op].reason}",
    ]
    return "\n".join([*lines, *(f"  beside      {note}" for note in notes_of(call))])


def _explain_choices(program: VerifiedProgram) -> list[str]:
    """What the device decides, a line for each choice."""
    lines: list[str] = []
    for index, instruction in enumerate(walk(program.instructions)):
        slot = selector_of(instruction)
        if slot is not None:
            different = len(set(equal_bodies(instruction)))
            bodies = (
                f"{different} different bodies" if different > 1 else "bodies that are equal, so that nothing is chosen"
            )
            lines.append(f"choice: {slot!r} decides instruction {index}, {print_instruction(instruction)}: {bodies}")
    return lines


def _explain_streams(program: VerifiedProgram) -> str:
    """What goes to which stream, and how many orders of the device between streams that costs."""
    work: dict[Name, int] = dict.fromkeys(program.facts.streams, 0)
    current: Name = 0
    waits = 0
    for instruction in walk(program.instructions):
        if isinstance(instruction, SetStream):
            current = instruction.stream
        elif isinstance(instruction, (LaunchKernel, CallLibrary, Copy, Fill)):
            work[current] += 1
        elif isinstance(instruction, WaitEvent):
            waits += 1
    side = len(work) - 1
    lines = [f"stream {name!r}: {n} of the launches, copies and fills" for name, n in work.items()]
    lines.append(
        f"  ordered by  {waits} events of the program; {side} streams begin behind stream 0 and are joined to it"
    )
    return "\n".join(lines)


def _explain_start(kernel: CompiledKernel) -> str | None:
    """Whether a kernel that follows others starts while the one before it ends, and why not."""
    plan, body = kernel.plan, kernel.kernel_ir
    if plan is None:
        return None
    if plan.waits_first:
        off = f"; {options.PDL.env}=off is set" if not options.PDL.get() else ""
        return f"early, right behind another launch, on devices of compute capability 9.0 and later{off}"
    if plan.co_resident:
        return "with the kernel before it, of which it needs nothing"
    why = None if body is None else why_not_made_early(body)
    return None if why is None else f"when those before have ended: {why}"


def _explain_kernel(label: str, kernel: CompiledKernel, follows: bool) -> str:
    lines = [f'kernels["{label}"]: {kernel.entry} for {kernel.arch}, {kernel_label(kernel)}']
    if kernel.plan is None:
        lines.append("  raw source, no launch plan")
    else:
        lines += _explain_plan(kernel.plan)
    start = _explain_start(kernel) if follows else None
    if start is not None:
        lines.append(f"  starts      {start}")
    for fact in sorted(kernel.facts, key=repr):
        lines.append(f"  assumes     {fact}")
    if kernel.resources is not None:
        r = kernel.resources
        lines.append(
            f"  uses        {r.registers} registers, {r.spill_bytes} bytes spilled, {r.stack_bytes} bytes of stack, "
            f"{r.static_shared_bytes} bytes of static shared memory; blocks up to {kernel.max_block_size}"
        )
    lines += [f"  blocks      {line}" for line in kernel.blocks_text]
    return "\n".join(lines)


def _explain_plan(plan: LaunchPlan) -> list[str]:
    lines = [
        f"  arguments   {', '.join((*plan.tensor_arguments, *plan.scalar_arguments)) or 'none'}",
        f"  grid        ({', '.join(map(str, plan.grid))})" + (", cooperative" if plan.cooperative else ""),
        f"  block       ({', '.join(map(str, plan.block))})",
    ]
    if str(plan.shared_bytes) != "0":
        lines.append(f"  shared      {plan.shared_bytes} bytes")
    lines += [f"  workspace   {w.name}: {w.count} of {w.dtype.name}" for w in plan.workspaces]
    if plan.semaphores is not None:
        lines.append(f"  semaphores  {plan.semaphores}")
    lines += [f"  exchange    {exchange.value}" for exchange in plan.exchanges]
    # A symbol and the same symbol known to be divisible read one extent.
    lines += dict.fromkeys(f"  where       {b.symbol} = {_explain_source(b, plan)}" for b in plan.bindings)
    lines += [
        f"  computes    {s.name} = {s.op}({', '.join(map(str, s.operands))}) in {s.dtype.name}" for s in plan.scalars
    ]
    return lines


def _explain_source(binding: Binding, plan: LaunchPlan) -> str:
    match binding.source:
        case ExtentOf(argument, dim):
            return f"extent {dim} of {plan.tensor_arguments[argument]}"
        case StrideOf(argument, dim):
            return f"stride {dim} of {plan.tensor_arguments[argument]}"
        case ScalarOf(name):
            return f"scalar {name}"
        case _:
            assert_never(binding.source)
