"""Bugs of the compiler: a fault planted on request, and a script that shows a failure again."""

from __future__ import annotations

import os
from collections.abc import Callable

from fuser import options
from fuser.compiler.bind_inputs import BoundInputs
from fuser.errors import InternalError
from fuser.ir.kernel import Stmt
from fuser.ir.print_fusion import definition_text
from fuser.ir.schedule import ScheduleBuilder
from fuser.lowering.pipeline import PASSES


def fault_planter() -> Callable[[str, tuple[Stmt, ...]], tuple[Stmt, ...]] | None:
    """What FUSER_FAULT=<pass> asks for: a pass whose result has lost a statement that others need."""
    wanted = options.FAULT.get()
    if wanted is None:
        return None
    if wanted not in PASSES:
        from fuser.errors import InputValueError

        raise InputValueError(f"FUSER_FAULT={wanted} names no pass; the passes are {', '.join(PASSES)}")

    def plant(name: str, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        if name != wanted:
            return body
        raise InternalError(f"a fault was planted in {name} (FUSER_FAULT)", pass_name=name)

    return plant


def with_reproducer(error: InternalError, scheduled: ScheduleBuilder, bound: BoundInputs) -> InternalError:
    """The same error with the path of a script that raises it again."""
    folder = str(options.DUMP_DIR.get())
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"reproduce-{error.pass_name or 'compiler'}-{os.getpid()}.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(reproducer_text(error, scheduled, bound))
    return InternalError(
        f"{error.message}\nThis is a bug of fuser, in pass {error.pass_name or '?'}. To see it again: python {path}",
        pass_name=error.pass_name,
        reproducer=path,
        location=error.location,
    )


def reproducer_text(error: InternalError, scheduled: ScheduleBuilder, bound: BoundInputs) -> str:
    """A program that lowers the same schedule of the same fusion for the same inputs, without a device."""
    descriptors = [f"    {d!r},  # {name}" for name, d in bound.tensors.items()]
    tensors = iter(descriptors)
    lines: list[str] = []
    for v in scheduled.fusion.inputs:
        lines.append(next(tensors) if v.name in bound.tensors else f"    {bound.scalars.get(v.name)!r},  # {v.name}")
    fault = f'os.environ["FUSER_FAULT"] = {options.FAULT.get()!r}\n' if options.FAULT.get() else ""
    records = "\n".join(f"    {r!r}," for r in scheduled.records)
    return f'''"""Raises: {error.message.splitlines()[0]}"""
import os

{fault}from fuser import DataType, DeviceInfo, FusionDefinition
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.enums import CacheOp, LoadStoreOpType, MemoryType, ParallelType
from fuser.ir.facts import TensorDescriptor
from fuser.ir.schedule import Record, ScheduleBuilder

{definition_text(scheduled.fusion)}

with FusionDefinition() as fd:
    nvfuser_fusion(fd)

inputs = [
{chr(10).join(lines)}
]
records = [
{records}
]
schedule = ScheduleBuilder(fd.fusion.ir_fusion)
schedule.replay(records)
KernelCompiler(DeviceInfo.preset("H200")).compile(schedule, inputs)
print("no error")
'''
