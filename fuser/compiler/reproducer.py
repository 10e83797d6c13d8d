"""Bugs of the compiler: a fault planted on request, and a script that shows a failure again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence

from fuser import options
from fuser.compiler.bind_inputs import BoundInputs
from fuser.errors import InternalError
from fuser.ir.fusion.fusion import ExpSum, Fusion, Tensor, expr_outputs, live_exprs
from fuser.ir.fusion.print_fusion import definition_text
from fuser.ir.kernel.kernel import Allocate, Stmt
from fuser.ir.ops.enums import SchedulerType
from fuser.ir.schedule.schedule import Record, ScheduleBuilder
from fuser.lowering.pipeline import PASSES
from fuser.optimize.assign_output_layouts import with_stride_orders


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
        lost = next((s for s in body if isinstance(s, Allocate)), None)
        if lost is None:
            raise InternalError(f"FUSER_FAULT={wanted} found nothing to lose in this kernel", pass_name=name)
        return tuple(s for s in body if s is not lost)

    return plant


def with_reproducer(error: InternalError, scheduled: ScheduleBuilder, bound: BoundInputs) -> InternalError:
    """The same error with the path of a script that raises it again."""
    text = reproducer_text(error, scheduled, bound)
    path, again = script_or_why_none(lambda: _write(error.pass_name or "compiler", text))
    return InternalError(
        f"{error.message}\nThis is a bug of fuser, in pass {error.pass_name or '?'}. {again}",
        pass_name=error.pass_name,
        reproducer=path,
        location=error.location,
    )


def script_or_why_none(write: Callable[[], str]) -> tuple[str | None, str]:
    """The path of the script that `write` writes, and what to say about it. A folder that cannot be written hides no bug."""
    try:
        path = write()
    except OSError as error:
        return None, (
            f"A script that shows it again cannot be written to {options.DUMP_DIR.get()} ({error.strerror or error}): "
            f"set {options.DUMP_DIR.env} to a folder that can be written"
        )
    return path, f"To see it again: python {path}"


def _write(name: str, text: str) -> str:
    """The path of a script."""
    folder = str(options.DUMP_DIR.get())
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"reproduce-{name}-{os.getpid()}.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def write_segment_reproducer(why: str, segment: Fusion, scheduler: SchedulerType, bound: BoundInputs | None) -> str:
    """The path of a script in which a scheduler meets the same segment, with the same inputs if there are any."""
    # A definition has the two reductions that a pass joined.
    joins = any(isinstance(e, ExpSum) for e in segment.exprs)
    defined = "fuse_exp_sums(fd.fusion.ir_fusion)" if joins else "fd.fusion.ir_fusion"
    inputs = "" if bound is None else "\n".join(f"    {_argument(v.name, bound)}," for v in segment.inputs)
    compiled = 'KernelCompiler(DeviceInfo.preset("H200")).compile(Segment(fusion, scheduler, ()), inputs)'
    text = f'''"""Raises: {why.splitlines()[0]}"""
from fuser import DataType, DeviceInfo, FusionDefinition
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.compiler.reproducer import laid_out
from fuser.ir.ops.enums import SchedulerType
from fuser.ir.facts import TensorDescriptor
from fuser.optimize.fuse_exp_sums import fuse_exp_sums
from fuser.schedule.segmentation.registry import LAST_RESORT, scheduler_by_type
from fuser.schedule.segmentation.segment import Segment

{definition_text(segment)}

with FusionDefinition() as fd:
    nvfuser_fusion(fd)

inputs = [
{inputs}
]
fusion = laid_out({defined}, {[t.stride_order for t in _values(segment)]!r})
scheduler = scheduler_by_type({scheduler!r}) or LAST_RESORT
{"scheduler.accepts(fusion)" if bound is None else compiled}
print("no error")
'''
    return _write(scheduler.name, text)


def reproducer_text(error: InternalError, scheduled: ScheduleBuilder, bound: BoundInputs) -> str:
    """A program that lowers the same schedule of the same fusion for the same inputs, without a device."""
    fusion = scheduled.fusion
    inputs = "\n".join(f"    {_argument(v.name, bound)}," for v in fusion.inputs)
    records = "\n".join(f"    {r!r}," for r in scheduled.records)
    fault = f'os.environ["FUSER_FAULT"] = {options.FAULT.get()!r}\n' if options.FAULT.get() else ""
    # A definition has the two reductions that a pass joined.
    joins = any(isinstance(e, ExpSum) for e in fusion.exprs)
    defined = "fuse_exp_sums(fd.fusion.ir_fusion)" if joins else "fd.fusion.ir_fusion"
    return f'''"""Raises: {error.message.splitlines()[0]}"""
import os

{fault}from fuser import DataType, DeviceInfo, FusionDefinition
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.compiler.reproducer import laid_out, renamed, result_names
from fuser.ir.ops.enums import CacheOp, LoadStoreOpType, MemoryType, ParallelType
from fuser.ir.facts import TensorDescriptor
from fuser.ir.schedule.schedule import Record, ScheduleBuilder
from fuser.optimize.fuse_exp_sums import fuse_exp_sums

{definition_text(fusion)}

with FusionDefinition() as fd:
    nvfuser_fusion(fd)

inputs = [
{inputs}
]
records = [
{records}
]
# The tensors' names where the schedule was made; here they have others.
names = {result_names(fusion)!r}
fusion = laid_out({defined}, {[t.stride_order for t in _values(fusion)]!r})
schedule = ScheduleBuilder(fusion)
schedule.replay(renamed(records, dict(zip(names, result_names(fusion)))))
KernelCompiler(DeviceInfo.preset("H200")).compile(schedule, inputs)
print("no error")
'''


def _argument(name: str, bound: BoundInputs) -> str:
    """An input as the text that rebuilds it."""
    if name in bound.tensors:
        return repr(bound.tensors[name])
    value = bound.scalars.get(name)
    # A segment takes extents that none of its tensors has as scalars.
    return repr(next((n for s, n in bound.extents.items() if s.name == name), 1) if value is None else value)


def _values(fusion: Fusion) -> list[Tensor]:
    """Input tensors and all results, in an order that depends on the structure alone."""
    made = [v for e in live_exprs(fusion) for v in expr_outputs(e) if isinstance(v, Tensor)]
    return [*fusion.input_tensors, *made]


def result_names(fusion: Fusion) -> list[str]:
    """Names of the input tensors and of all results, in that order."""
    return [t.name for t in _values(fusion)]


def laid_out(fusion: Fusion, orders: Sequence[tuple[int, ...]]) -> Fusion:
    """The fusion with these memory orders of its values, in the same order."""
    return with_stride_orders(fusion, dict(zip(_values(fusion), orders, strict=True)))


def renamed(records: Iterable[Record], names: Mapping[str, str]) -> list[Record]:
    """Records about tensors of other names; `t7_cache_after_0` follows `t7`."""

    def rename(value: object) -> object:
        if isinstance(value, str):
            base, separator, rest = value.partition("_")
            return names.get(value) or names.get(base, base) + separator + rest
        if isinstance(value, tuple):
            return tuple(rename(v) for v in value)
        return frozenset(rename(v) for v in value) if isinstance(value, frozenset) else value

    return [
        Record(r.verb, str(rename(r.tensor)), tuple(rename(a) for a in r.arguments), r.result and str(rename(r.result)))
        for r in records
    ]
