"""Kernels of a segment, run on the real values of a call without a trace of it: what tuning measures and checks.

    RealValues    the values of a program's slots on the device: inputs of the call as they are, and what segments made of them
    Trial         a kernel, ready to run on them; what it makes goes to memory of its own

No kernel writes an input: an output that updates one goes to memory that lies as the input does, at an address with the same
low bits. So a kernel may run any number of times, and the call that follows finds its inputs as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from fuser.compiler.bind_inputs import BoundInputs
from fuser.host_ir.executors.run_inputs import host_number, make_ready
from fuser.host_ir.instructions.expressions import Size, SlotSource, size_value
from fuser.host_ir.instructions.instructions import CallLibrary, LaunchKernel, LibraryArgument
from fuser.host_ir.instructions.slot_layouts import SlotLayouts, updated_by
from fuser.host_ir.program import HostProgram
from fuser.ir.fusion.fusion import GENERATOR_STATE, Fusion, LibraryOp, Scalar, Tensor
from fuser.ir.fusion.tolerances import folded_elements, rounded_to, tolerance_of, tolerance_of_results
from fuser.ir.ops.dtypes import DataType
from fuser.records import record
from fuser.runtime.array_view import MAX_ALIGNMENT, ArrayView
from fuser.runtime.arrays.device_tensor import DeviceTensor, tensor_over
from fuser.runtime.arrays.storage import Framework, Storage
from fuser.runtime.devices.device import Device
from fuser.runtime.devices.streams import join_streams
from fuser.runtime.devices.strided_copy import copy_strided
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.layouts import element_span, row_major
from fuser.schedule.params import Params
from fuser.schedule.segmentation.segment import Segment

_POISON = b"\xa5"
"""Every byte of memory that a kernel is to write: what it leaves out shows, as both kernels that are compared find it so."""


@record(eq=False)
class Trial:
    """A kernel of a segment that is ready to run.

    outputs   what a run writes, by name
    slots     those and what it reads, by name: the inputs of `program`, in order
    run       enqueues one run
    """

    params: Params
    kernel: CompiledKernel
    outputs: Mapping[str, DeviceTensor]
    program: HostProgram
    slots: Mapping[str, DeviceTensor]
    run: Callable[[], None]


class RealValues:
    """Values of the slots of a program for one call. A context: at its end all memory that was taken goes back."""

    def __init__(self, fusion: Fusion, bound: BoundInputs, device: Device, framework: Framework, stream: int) -> None:
        self.fusion = fusion
        self.device = device
        self.stream = stream
        self._framework = framework
        self._bound = bound
        self._layouts = SlotLayouts(fusion)
        self._taken: list[Storage] = []
        self._slots: dict[str, DeviceTensor] = {}
        # What a call would draw is not known here, and no time depends on it.
        self._numbers: dict[str, bool | int | float | complex] = {**dict.fromkeys(GENERATOR_STATE, 1), **bound.scalars}
        try:
            for spec, value in zip(fusion.inputs, bound.values, strict=True):
                if isinstance(spec, Tensor) and spec.is_cpu:
                    self._numbers[spec.name] = host_number(value) if isinstance(value, ArrayView) else value
                elif isinstance(value, ArrayView):
                    self._slots[spec.name] = self._input(value)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give all memory back."""
        self._slots.clear()
        while self._taken:
            self._framework.release(self.device, self._taken.pop(), self.stream)

    # --- trials -------------------------------------------------------------------------------------------------------

    def trial(
        self, segment: Segment, params: Params, kernel: CompiledKernel, outputs: Mapping[str, DeviceTensor]
    ) -> Trial:
        """A kernel of a segment whose inputs are there, writing to `outputs`."""
        plan = kernel.plan
        assert plan is not None
        extents = {s.name: n for s, n in self._bound.extents.items()}
        carried = {s.name for s in segment.extent_inputs}
        numbers = [extents[n] if n in carried else self._numbers[n] for n in plan.scalar_arguments]
        names = tuple(dict.fromkeys(plan.tensor_arguments))
        program = HostProgram(names, (), (LaunchKernel(kernel, (*plan.tensor_arguments, *numbers)),))
        slots = {n: outputs[n] if n in outputs else self._slots[n] for n in names}
        tensors = list(slots.values())

        def run() -> None:
            program.run(tensors, self.stream, device=self.device)

        return Trial(params, kernel, outputs, program, slots, run)

    def outputs_for(self, segment: Segment, kernel: CompiledKernel) -> dict[str, DeviceTensor]:
        """Memory for what a kernel of a segment writes, laid out as its host program would."""
        assert kernel.plan is not None
        inputs = {t.name for t in segment.fusion.input_tensors}
        tensors = {t.name: t for t in segment.fusion.output_tensors}
        return {
            name: self._output(tensors[name], segment)
            for name in dict.fromkeys(kernel.plan.tensor_arguments)
            if name not in inputs
        }

    def poison(self, trial: Trial) -> None:
        """Fill what a trial writes with bytes that no kernel leaves."""
        for t in trial.outputs.values():
            span = element_span(t.shape, t.strides) * t.dtype.itemsize
            if span:
                self.device.fill(t.address, _POISON, span, self.stream)

    def keep(self, outputs: Mapping[str, DeviceTensor]) -> None:
        """What a segment has made is there for the next ones."""
        self._slots.update(outputs)

    def view(self, segment: Segment) -> None:
        """What a segment of views makes."""
        for t in segment.fusion.output_tensors:
            if t.name in self._slots:
                continue
            view = self._layouts.view(t, self._slots)
            seen = self._slots[view.of].view(self._values(view.sizes), self._values(view.strides))
            if view.is_copied:
                own = self._layouts.own_strides(t)
                strides = row_major(seen.shape) if own is None else self._values(own)
                made = self._memory(t, seen.shape, strides)
                copy_strided(
                    self.device, t.dtype, seen.shape, made.address, strides, seen.address, seen.strides, self.stream
                )
                seen = made
            self._slots[t.name] = seen

    def call(self, segment: Segment, call: LibraryOp) -> None:
        """What a library makes of a segment."""
        arguments: dict[str, LibraryArgument] = dict(call.options)
        read: dict[str, DeviceTensor] = {}
        for name, value in zip(call.names, call.inputs, strict=True):
            if isinstance(value, Tensor):
                arguments[name] = value.name
                read[value.name] = self._slots[value.name]
            else:
                arguments[name] = self._number(value)
        made = {t.name: self._output(t, segment) for t in call.outputs}
        slots = {**read, **made}
        program = HostProgram(tuple(slots), (), (CallLibrary(call.op, tuple(made), arguments),))
        program.run([self._of_library(t) for t in slots.values()], self.stream, device=self.device)
        self._slots.update(made)

    def _number(self, value: Scalar) -> bool | int | float | complex:
        if value.value is not None:
            return value.value
        if value.name in self._numbers:
            return self._numbers[value.name]
        assert value.expression is not None
        return self._bound.evaluate(value.expression)

    def _of_library(self, t: DeviceTensor) -> Any:
        """A tensor as the library that the call's own arrays are of has it."""
        if self.device.kind != "cuda" or self._framework.kind != "torch":
            return t
        from fuser.runtime.arrays.torch_arrays import torch_over

        return torch_over(t)

    def release(self, outputs: Mapping[str, DeviceTensor]) -> None:
        """Give back what candidates wrote to."""
        owners = {id(t.owner) for t in outputs.values()}
        for storage in [s for s in self._taken if id(s) in owners]:
            self._taken.remove(storage)
            self._framework.release(self.device, storage, self.stream)

    # --- memory -------------------------------------------------------------------------------------------------------

    def _input(self, view: ArrayView) -> DeviceTensor:
        if view.is_host:
            from fuser.runtime.arrays.host_arrays import copy_in, host_storage

            storage = host_storage(view)
            copy_in(view, storage, self.device, self._framework, self.stream)
            self._taken.append(storage)
            return DeviceTensor(
                self.device, view.dtype, view.sizes, view.strides, storage.address, storage, self.stream
            )
        other = view.owner.stream if view.kind == "fuser" else None
        if view.kind in ("jax", "interface"):
            other = make_ready(view, self.stream)
        if other is not None:
            join_streams(self.device, self.stream, (other,))
        return tensor_over(view, self.device, self.stream)

    def _output(self, t: Tensor, segment: Segment) -> DeviceTensor:
        sizes = self._values(self._layouts.shape(t))
        found = self._layouts.strides(t, segment.fusion)
        strides = row_major(sizes) if found is None else self._values(found)
        target = updated_by(t, segment.fusion)
        shift = 0 if target is None else self._slots[target.name].address % MAX_ALIGNMENT
        return self._memory(t, sizes, strides, shift)

    def _memory(self, t: Tensor, sizes: Sequence[int], strides: Sequence[int], shift: int = 0) -> DeviceTensor:
        nbytes = element_span(sizes, strides) * t.dtype.itemsize + shift
        storage = self._framework.scratch(self.device, nbytes, self.stream)
        self._taken.append(storage)
        dtype = DataType.Int if t.dtype is DataType.Index else t.dtype  # what Index is in memory
        return DeviceTensor(self.device, dtype, sizes, strides, storage.address + shift, storage, self.stream)

    def read(self, source: SlotSource) -> int:
        """Value of a leaf of a size."""
        if source.what == "scalar":
            return int(self._numbers[source.slot].real)
        t = self._slots[source.slot]
        return (t.shape if source.what == "extent" else t.strides)[source.dim]

    def _values(self, sizes: Sequence[Size]) -> tuple[int, ...]:
        return tuple(size_value(n, self) for n in sizes)


# --- results ----------------------------------------------------------------------------------------------------------


class Expected:
    """What the proposal makes of a segment, on the host, and how far others may be off."""

    def __init__(self, segment: Segment, bound: BoundInputs, trial: Trial) -> None:
        extents = {s.name: n for s, n in bound.extents.items()}
        folded = folded_elements(segment.fusion, extents)
        count = {t.name: n for t, n in folded.items()}
        self._values = {name: t.numpy() for name, t in trial.outputs.items()}
        self._folded = {name: count.get(name, 1) for name in self._values}
        rounded = {t.name: dtype for t, dtype in rounded_to(segment.fusion).items()}
        self._rounded = {name: rounded.get(name, t.dtype) for name, t in trial.outputs.items()}

    def difference(self, trial: Trial) -> str | None:
        """Where what a trial has made differs from it by more than two results may, in words; None if nowhere.

        Elements that are not numbers of a float, and whatever is computed exactly, are equal bit by bit.
        """
        for name, t in trial.outputs.items():
            text = _difference(t, t.numpy(), self._values[name], self._folded[name], self._rounded[name])
            if text is not None:
                return f"{name}: {text}"
        return None


def _difference(
    t: DeviceTensor, actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], folded: int, rounded: DataType
) -> str | None:
    bits = f"u{t.dtype.itemsize}" if t.dtype.itemsize <= 8 else None
    if bits is not None:
        unequal = actual.view(bits) != expected.view(bits)
    else:
        unequal = (actual != expected) & ~(np.isnan(actual) & np.isnan(expected))
    if not unequal.any():
        return None
    count = int(np.count_nonzero(unequal))
    if tolerance_of(t.dtype, folded) != (0.0, 0.0):
        wide = np.complex128 if t.dtype.is_complex else np.float64
        a, e = actual[unequal].astype(wide), expected[unequal].astype(wide)
        absolute, relative = tolerance_of_results(t.dtype, folded, rounded, e)
        # Each of the two may be off.
        with np.errstate(invalid="ignore"):
            is_near = np.abs(a - e) <= 2 * (absolute + relative * np.abs(e))
        is_same = is_near | (a == e) | (np.isnan(a) & np.isnan(e))
        count = int(np.count_nonzero(~is_same))
        if not count:
            return None
    return f"{count} of {actual.size} elements differ"
