"""The rules of kernel IR for parameters and the launch plan: what holds before the first statement (`verify_kernel`)."""

from __future__ import annotations

from fuser.ir.integers.integers import Int
from fuser.ir.kernel.kernel import (
    Buffer,
    DivisorParameter,
    ExtentParameter,
    ScalarParameter,
    SemaphoreParameter,
    TensorParameter,
    WorkspaceParameter,
)
from fuser.ir.kernel.verify_kernel_values import ValueRules
from fuser.ir.ops.dtypes import DataType


class HeaderRules(ValueRules):
    """What is true of a kernel before its first statement."""

    def _header(self) -> None:
        kernel, plan = self.kernel, self.kernel.plan
        if not kernel.name.isidentifier() or not kernel.name.isascii():
            self.findings.append(f"the name {kernel.name!r} is no identifier")
        if kernel.index_bits not in (32, 64):
            self.findings.append(f"index_bits is {kernel.index_bits}, expected 32 or 64")
        if plan.cooperative and plan.cluster is not None:
            self.findings.append(
                "the launch is cooperative and has clusters: how many blocks of clusters fit on the device at once is not "
                "known here, so that blocks that wait for the whole grid might wait for ever"
            )
        bound = {binding.symbol for binding in plan.bindings}
        workspaces = {workspace.name: workspace for workspace in plan.workspaces}
        sizes = (*plan.grid, *plan.block, plan.shared_bytes, *(w.count for w in plan.workspaces))
        for size in sizes if plan.semaphores is None else (*sizes, plan.semaphores):
            unbound = sorted(s.name for s in size.symbols - bound)
            if unbound:
                self.findings.append(
                    f"the launch plan computes {size} from {', '.join(unbound)}, which it does not bind"
                )
        divisors: set[Int] = set()
        supplied = set(plan.scalar_arguments) | {step.name for step in plan.scalars}
        for parameter in kernel.parameters:
            match parameter:
                case TensorParameter(buffer, tensor, argument, _):
                    self._parameter_buffer(buffer)
                    if not 0 <= argument < len(plan.tensor_arguments):
                        self.findings.append(f"{buffer.name}: no tensor argument {argument} in the launch plan")
                    elif plan.tensor_arguments[argument] != tensor:
                        expected = plan.tensor_arguments[argument]
                        self.findings.append(f"{buffer.name}: argument {argument} is {expected}, not {tensor}")
                case WorkspaceParameter(buffer):
                    self._parameter_buffer(buffer)
                    workspace = workspaces.get(buffer.name)
                    if workspace is None or workspace.dtype is not buffer.dtype:
                        self.findings.append(f"workspace {buffer.name} is not supplied by the launch plan")
                case SemaphoreParameter(buffer):
                    self._parameter_buffer(buffer)
                    if buffer.dtype is not DataType.Int32:
                        self.findings.append(f"semaphores {buffer.name} are {buffer.dtype.name}, expected Int32")
                    if plan.semaphores is None:
                        self.findings.append(f"semaphores {buffer.name} are not supplied by the launch plan")
                case ExtentParameter(symbol):
                    if not self._new_symbol(symbol):
                        self.findings.append(f"extent {symbol.name} is a parameter twice")
                    if symbol not in bound:
                        self.findings.append(f"extent {symbol.name} is not bound by the launch plan")
                    self.symbols.add(symbol)
                case DivisorParameter(divisor):
                    if kernel.index_bits != 32:
                        self.findings.append(f"{divisor} is a divisor of {kernel.index_bits}-bit indices")
                    if divisor in divisors:
                        self.findings.append(f"divisor {divisor} is a parameter twice")
                    if divisor.is_const or divisor.symbols - bound:
                        self.findings.append(f"divisor {divisor} is not computed by the launch plan")
                    divisors.add(divisor)
                case ScalarParameter(name, dtype):
                    if name in self.scalars:
                        self.findings.append(f"scalar {name} is a parameter twice")
                    if name not in supplied:
                        self.findings.append(f"scalar {name} is not supplied by the launch plan")
                    self.scalars[name] = dtype

    def _parameter_buffer(self, buffer: Buffer) -> None:
        if not buffer.is_global:
            self.findings.append(f"parameter {buffer.name} is in {buffer.memory.name} memory")
        if buffer.name in self.buffer_names:
            self.findings.append(f"two buffers are named {buffer.name}")
        self.buffer_names[buffer.name] = buffer
        self.buffers.add(buffer)
