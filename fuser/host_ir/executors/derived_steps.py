"""The steps that a run would leave, without running them; and a run of steps that are known, without binding anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fuser.errors import FuserError
from fuser.host_ir.executors.interpreter import CountingFrame, InterpretedRun, Tensor
from fuser.host_ir.executors.run_history import RunHistory
from fuser.host_ir.executors.run_inputs import device_of
from fuser.host_ir.executors.steps import BoundProgram, CopyInStep, InstructionStep, LaunchStep
from fuser.host_ir.instructions.bodies import bodies_of
from fuser.host_ir.instructions.instructions import CallLibrary
from fuser.host_ir.passes.verified_program import VerifiedProgram
from fuser.ir.integers.number_trace import UntraceableError, settled
from fuser.runtime.array_view import ArrayView
from fuser.runtime.arrays.frameworks import framework_for
from fuser.runtime.scalars import Scalar


def derived_steps(
    program: VerifiedProgram, history: RunHistory, inputs: Sequence[ArrayView | Scalar], device: Any = None
) -> BoundProgram:
    """What `interpret_and_bind` would bind, with the checks that it makes; inputs that are arrays are in device memory.

    Memory that the program takes has the address 0 here: an allocator gives any that is aligned well enough. Sizes, strides
    and addresses may be numbers of a trace (`fuser.ir.integers.number_trace`); those of blocks are asked for, so that
    functions of the trace lead to launches that run the same binaries.

    Raises UntraceableError for arrays in host memory and for programs with bodies or several streams, whose steps are more than
    what sizes make of instructions, and with calls of libraries, whose operands are checked with sizes that are known; and what
    a run raises before it enqueues anything.
    """
    if len(program.facts.streams) > 1 or any(isinstance(i, CallLibrary) or bodies_of(i) for i in program.instructions):
        raise UntraceableError("a program with bodies, several streams or calls of libraries")
    run = _Unrun(program, history, inputs, device)
    run.execute_body(program.instructions, 0)
    return run.bound()


class _Unrun(InterpretedRun):
    def __init__(
        self, program: VerifiedProgram, history: RunHistory, inputs: Sequence[ArrayView | Scalar], device: Any
    ) -> None:
        self.begin(program, history, inputs)
        views = list(self.inputs.values())
        if any(view.is_host for view in views):
            raise UntraceableError("arrays in host memory")
        self.device = device_of(views, device)
        self.framework = framework_for(views[0] if views else None, self.device)
        self.frame = CountingFrame(self.device, self.framework, 0, len(program.roots), self.numbers)
        for name, view in self.inputs.items():
            self.frame.addresses[program.roots[name]] = view.address

    def do(self, step: InstructionStep) -> None:
        if isinstance(step, LaunchStep):
            settled(step.launch.block)

    def _address(self, tensor: Tensor) -> int:
        return self.frame.addresses[tensor.root] + tensor.offset * tensor.dtype.itemsize


def run_steps(bound: BoundProgram, inputs: Sequence[ArrayView | Scalar], stream: Any) -> list[Any]:
    """Run steps that were derived for these inputs, device arrays and numbers of its program's caller.

    Raises what a run raises of what does not follow from sizes: errors of streams and of the driver, and of memory.
    """
    run = _Rerun(bound, inputs, stream)
    try:
        for step in bound.steps:
            assert not isinstance(step, CopyInStep)
            run.frame.run(step)
        results = run.finish()
    except FuserError as error:
        error.add_note("while running a host program for sizes that were bound like those of earlier runs")
        raise
    finally:
        run.frame.release()
    bound.history.count(bound.counts)
    bound.history.count(run.frame.chosen)
    return results


class _Rerun(InterpretedRun):
    def __init__(self, bound: BoundProgram, inputs: Sequence[ArrayView | Scalar], stream: Any) -> None:
        self.program = program = bound.program
        self.history = bound.history
        self.bound_program = bound
        self.device, self.framework = bound.device, bound.framework
        self.inputs = {}
        self.numbers = {}
        state = () if bound.draw is None else bound.draw()
        for name, value in zip(program.inputs, (*inputs, *state), strict=True):
            if isinstance(value, ArrayView):
                self.inputs[name] = value
            else:
                self.numbers[name] = value
        self.place(stream)

    def _output(self, name: str) -> Any:
        plan = self.bound_program.outputs[self.program.outputs.index(name)]
        if plan.input is not None:
            return self.inputs[name].array
        storage = self.frame.storages[plan.root]
        assert storage is not None
        return self.framework.deliver(
            self.device, storage, plan.dtype, plan.sizes, plan.strides, plan.offset, self.stream
        )


__all__ = ["derived_steps", "run_steps"]
