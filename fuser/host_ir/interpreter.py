"""The reference executor of host programs: one instruction after another, every check made at every launch.

    bind      inputs described, device and stream chosen, streams joined
    execute   instructions in order; host arrays reach the device when a kernel first needs them
    finish    updated host arrays written back, outputs handed out in the caller's kind of array
    release   everything that did not go out, after errors too
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

from fuser.errors import FuserError, InputRuntimeError, InputTypeError, LaunchError
from fuser.host_ir.expressions import Size, SizeFunction, SlotSource, compile_sizes
from fuser.host_ir.instructions import Alias, Allocate, Argument, Copy, Deallocate, Fill, Instruction, LaunchKernel
from fuser.ir.dtypes import DataType
from fuser.ir.facts import TensorDescriptor
from fuser.runtime.arrays import (
    ArrayView,
    Scalar,
    describe_array,
    element_span,
    is_scalar,
    overlaps_itself,
    python_number,
    resolve_device,
    row_major,
)
from fuser.runtime.device import Device, Launch
from fuser.runtime.frameworks import Framework, Storage, framework_for
from fuser.runtime.plan_evaluation import LaunchValues, Triple, evaluation_of, scalar_as
from fuser.runtime.streams import keep_until_done, order_after, own_stream, stream_handle
from fuser.runtime.strided_copy import copy_strided, is_same_dense_layout
from fuser.runtime.variants import VARIANTS, KernelVariants

if TYPE_CHECKING:
    from fuser.host_ir.program import HostProgram
    from fuser.runtime.launch_params import LaunchParams

_GRID_LIMITS = (2**31 - 1, 65535, 65535)
_BLOCK_LIMITS = (1024, 1024, 64)


@dataclass(slots=True, eq=False)
class Tensor:
    """A tensor slot while the program runs. Strides and `offset` (from the storage's address) in elements."""

    storage: Storage
    dtype: DataType
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    # Of inputs: what the caller handed in.
    view: ArrayView | None = None

    @property
    def span(self) -> tuple[int, int]:
        """Bytes [first, past the last) that hold the elements, from the storage's address."""
        flat = TensorDescriptor(self.dtype, self.sizes, self.strides, address=self.offset * self.dtype.itemsize)
        return flat.byte_range


def interpret(program: HostProgram, inputs: Sequence[Any], stream: Any = None, device: Any = None) -> list[Any]:
    """Run a program once; `HostProgram.run` says what the arguments are."""
    run = _Run(program, inputs, stream, device)
    try:
        for index, instruction in enumerate(program.instructions):
            try:
                run.execute(instruction)
            except FuserError as error:
                error.add_note(_note(program, index))
                raise
        results = run.finish()
    finally:
        run.release()
    program.count(run.counts)
    return results


def _note(program: HostProgram, index: int) -> str:
    from fuser.host_ir.print import print_instruction

    return f"while running instruction {index} of a host program: {print_instruction(program.instructions[index])}"


class _Run:
    """State of one execution."""

    def __init__(self, program: HostProgram, inputs: Sequence[Any], stream: Any, device: Any) -> None:
        self.program = program
        self.tensors: dict[str, Tensor] = {}
        self.numbers: dict[str, Scalar] = {}
        # Memory to give back, by root slot; workspaces of a launch under names that no slot can have.
        self.owned: dict[str, Storage] = {}
        self.counts: dict[str, int] = {"runs": 1}
        views = self._bind(inputs)
        self.device: Device = _device_of(views, device)
        first = next(iter(views), None)
        self.framework: Framework = framework_for(first, self.device)
        self.views = views
        self.joined: list[int] = []
        self.in_use: list[object] = []
        self.stream = self._choose_stream(stream)

    # --- bind ---------------------------------------------------------------------------------------------------------

    def _bind(self, inputs: Sequence[Any]) -> list[ArrayView]:
        program = self.program
        facts = program.facts
        if len(inputs) != len(program.inputs):
            raise InputRuntimeError(
                f"Expected {len(program.inputs)} inputs ({', '.join(program.inputs)}), got {len(inputs)}"
            )
        views: list[ArrayView] = []
        for position, (name, value) in enumerate(zip(program.inputs, inputs, strict=True)):
            if is_scalar(value):
                if name in facts.tensor_inputs:
                    raise InputTypeError(f"Expected input {position}, {name}, to be a tensor but got scalar {value}")
                self.numbers[name] = python_number(value)
                continue
            view = value if isinstance(value, ArrayView) else describe_array(value)
            if name in facts.scalar_inputs:
                self.numbers[name] = _host_number(view, position, name)
                if name not in facts.tensor_inputs:
                    continue
            expected = facts.dtypes.get(name)
            if expected is not None and view.dtype is not expected:
                raise InputTypeError(
                    f"Expected input {position}, {name}, to be bound to a tensor of dtype {expected.c_name}, "
                    f"but got a tensor of dtype {view.dtype.c_name}"
                )
            if name in facts.updates:
                check_updatable(view, position, name)
            views.append(view)
            storage = _borrow(view)
            self.tensors[name] = Tensor(storage, view.dtype, view.sizes, view.strides, 0, view)
            if view.is_host:
                self.owned[name] = storage
        return views

    def _choose_stream(self, requested: Any) -> int:
        device = self.device
        if device.kind != "cuda":
            return 0
        current = self.framework.current_stream(device)
        if requested is not None:
            stream = stream_handle(requested)
        elif current is not None:
            stream = current
        else:
            others = (framework_for(v, device).current_stream(device) for v in self.views if not v.is_host)
            stream = next((s for s in others if s is not None), None) or own_stream(device)
        for view in self.views:
            if view.is_host or (view.kind == self.framework.kind and requested is None and current is not None):
                continue
            self._join(view, stream, is_explicit=requested is not None)
        return stream

    def _join(self, view: ArrayView, stream: int, is_explicit: bool) -> None:
        """Make the run's stream wait for the work that makes an input, and note who must wait for the run."""
        device = self.device
        match view.kind:
            case "torch" | "cupy":
                if is_explicit:
                    return  # whoever names a stream orders it against the library's own
                other = framework_for(view, device).current_stream(device)
            case "fuser":
                other = view.owner.stream
            case "jax" | "interface":
                self.in_use += (view.array, view.owner)
                other = _make_ready(view, stream)
            case "numpy":
                return
        if other is not None and other != stream and other not in self.joined:
            order_after(device, stream, other)
            self.joined.append(other)

    # --- execute ------------------------------------------------------------------------------------------------------

    def read(self, source: SlotSource) -> int:
        """Value of a leaf of a size expression."""
        if source.what == "scalar":
            value = self.numbers[source.slot]
            if not isinstance(value, int):
                raise InputTypeError(f"Scalar value {value} of {source.slot} is used as a size and must be an integer")
            return int(value)
        tensor = self.tensors[source.slot]
        row = tensor.sizes if source.what == "extent" else tensor.strides
        if source.dim >= len(row):
            raise InputRuntimeError(
                f"{source.what}({source.slot!r}, {source.dim}) is asked for, but the tensor has rank {len(row)}"
            )
        return row[source.dim]

    def sizes(self, values: tuple[Size, ...]) -> tuple[int, ...]:
        """Sizes with the slots' extents filled in."""
        return _size_function(values)(self)

    def execute(self, instruction: Instruction) -> None:
        match instruction:
            case Allocate(slot, shape, dtype, strides):
                sizes = self.sizes(shape)
                layout = row_major(sizes) if strides is None else self.sizes(strides)
                self._allocate(slot, sizes, layout, dtype)
            case Deallocate(slot):
                self.framework.release(self.device, self.owned.pop(slot), self.stream)
                self.count("deallocations")
            case Alias(slot, of, sizes, strides, offset):
                source = self.tensors[of]
                shape = source.sizes if sizes is None else self.sizes(sizes)
                if strides is not None:
                    layout = self.sizes(strides)
                else:
                    layout = source.strides if sizes is None else row_major(shape)
                (shift,) = self.sizes((offset,))
                self._alias(slot, of, shape, layout, shift)
            case Copy(dst, src):
                self._copy(dst, src)
            case Fill(slot, value):
                self._fill(slot, value)
            case LaunchKernel(kernel, args, launch):
                if kernel.plan is None:
                    self._launch_raw(instruction)
                else:
                    self._launch_planned(instruction, launch)
                del args
            case _:
                assert_never(instruction)

    def count(self, name: str, n: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + n

    def address(self, tensor: Tensor) -> int:
        """Address of the first element; a host array is copied to the device here."""
        storage = tensor.storage
        if storage.pending is not None:
            from fuser.runtime.host_arrays import copy_in

            root = next(t for t in self.tensors.values() if t.storage is storage and t.view is not None)
            assert root.view is not None
            copy_in(root.view, storage, self.device, self.framework, self.stream)
            self.count("host_to_device")
        return storage.address + tensor.offset * tensor.dtype.itemsize

    def _allocate(self, slot: str, sizes: tuple[int, ...], strides: tuple[int, ...], dtype: DataType) -> None:
        if any(n < 0 for n in sizes) or any(s < 0 for s in strides):
            raise InputRuntimeError(f"slot {slot!r} would have shape {list(sizes)} with strides {list(strides)}")
        if slot in self.program.facts.escaping:
            storage = self.framework.new_array(self.device, dtype, sizes, strides, self.stream)
        else:
            nbytes = element_span(sizes, strides) * dtype.itemsize
            storage = self.framework.scratch(self.device, nbytes, self.stream)
        self.owned[slot] = storage
        self.tensors[slot] = Tensor(storage, dtype, sizes, strides)
        self.count("allocations")

    def _alias(self, slot: str, of: str, sizes: tuple[int, ...], strides: tuple[int, ...], shift: int) -> None:
        source = self.tensors[of]
        root = self.tensors[self.program.facts.roots[of]]
        tensor = Tensor(source.storage, source.dtype, sizes, strides, source.offset + shift)
        low, high = tensor.span
        first, last = root.span
        if low != high and not (first <= low and high <= last):
            raise InputRuntimeError(
                f"alias {slot!r} with shape {list(sizes)}, strides {list(strides)} and offset {shift} needs bytes "
                f"[{low}, {high}) of {of!r}, which has [{first}, {last})"
            )
        self.tensors[slot] = tensor

    def _copy(self, dst: str, src: str) -> None:
        target, source = self.tensors[dst], self.tensors[src]
        if target.sizes != source.sizes:
            raise InputRuntimeError(f"{src!r} of shape {list(source.sizes)} is copied to {dst!r} of shape {list(target.sizes)}")
        self.count("copies")
        if 0 in target.sizes:
            return
        to, at = self.address(target), self.address(source)
        if is_same_dense_layout(target.sizes, target.strides, source.strides):
            span = target.span
            self.device.copy(to, at, span[1] - span[0], self.stream)
            return
        copy_strided(self.device, target.dtype, target.sizes, to, target.strides, at, source.strides, self.stream)

    def _fill(self, slot: str, value: Scalar) -> None:
        import numpy as np

        tensor = self.tensors[slot]
        self.count("fills")
        if 0 in tensor.sizes:
            return
        pattern = np.asarray(scalar_as(value, tensor.dtype, slot)).astype(tensor.dtype.numpy).tobytes()
        address = self.address(tensor)
        if is_same_dense_layout(tensor.sizes, tensor.strides, tensor.strides):
            self.device.fill(address, pattern, element_span(tensor.sizes, tensor.strides), self.stream)
            return
        one = self._workspace(len(pattern))
        self.device.fill(one.address, pattern, 1, self.stream)
        nowhere = (0,) * len(tensor.sizes)
        copy_strided(self.device, tensor.dtype, tensor.sizes, address, tensor.strides, one.address, nowhere, self.stream)
        self._release_workspaces()

    # --- launches -----------------------------------------------------------------------------------------------------

    def _number(self, arg: Argument) -> Scalar:
        return self.numbers[arg] if isinstance(arg, str) else arg

    def _launch_planned(self, instruction: LaunchKernel, launch: LaunchParams | None) -> None:
        kernel = instruction.kernel
        evaluation = evaluation_of(kernel)
        plan = evaluation.plan
        count = len(plan.tensor_arguments)
        tensors = [self.tensors[a] for a in instruction.args[:count] if isinstance(a, str)]
        numbers = [self._number(a) for a in instruction.args[count:]]
        addresses = [self.address(t) for t in tensors]
        values = evaluation.evaluate([t.sizes for t in tensors], [t.strides for t in tensors], addresses, numbers)
        if launch is not None:
            _check_constraint(kernel.entry, launch, values)
        if values.is_empty:
            self.count("skipped_launches")
            return
        sizes = Launch(
            values.grid,
            values.block,
            values.shared_bytes,
            None if launch is None else launch.cluster,
            plan.cooperative,
        )
        check_launch(kernel.entry, sizes, self.device)
        workspaces = [
            self._workspace(n * w.dtype.itemsize).address for n, w in zip(values.workspaces, plan.workspaces, strict=True)
        ]
        semaphores = 0 if values.semaphores is None else self.device.semaphores(values.semaphores, self.stream)
        arguments = evaluation.arguments(values, addresses, workspaces, semaphores)
        self._launch(instruction, sizes, arguments)
        self._release_workspaces()

    def _launch_raw(self, instruction: LaunchKernel) -> None:
        kernel, launch = instruction.kernel, instruction.launch
        if launch is None:
            raise LaunchError(f"kernel {kernel.entry} is raw source and needs launch=LaunchParams(...)")
        from fuser.runtime.raw_signature import RawKind, RawParameter

        arguments: list[Scalar] = []
        for parameter, arg in zip(kernel.parameters, instruction.args, strict=True):
            if isinstance(parameter, RawParameter) and parameter.kind is RawKind.pointer and isinstance(arg, str):
                arguments.append(self.address(self.tensors[arg]))
            else:
                arguments.append(self._number(arg))
        sizes = launch.launch()
        check_launch(kernel.entry, sizes, self.device)
        self._launch(instruction, sizes, arguments)

    def _launch(self, instruction: LaunchKernel, sizes: Launch, arguments: list[Scalar]) -> None:
        variants: KernelVariants = getattr(self.device, "variants", VARIANTS)
        before = variants.counters()
        self.device.launch(instruction.kernel, sizes, arguments, self.stream)
        after = variants.counters()
        compiled = after.compiles - before.compiles
        self.count("launches")
        self.count("variant_hits", after.hits - before.hits)
        # A kernel that brought a binary needs another one only for a larger block.
        self.count("recompiles" if instruction.kernel.cubin is not None else "compiles", compiled)

    def _workspace(self, nbytes: int) -> Storage:
        storage = self.framework.scratch(self.device, nbytes, self.stream)
        self.owned[f"\0{len(self.owned)}"] = storage
        self.count("allocations")
        return storage

    def _release_workspaces(self) -> None:
        for name in [n for n in self.owned if n.startswith("\0")]:
            self.framework.release(self.device, self.owned.pop(name), self.stream)

    # --- finish -------------------------------------------------------------------------------------------------------

    def finish(self) -> list[Any]:
        """Write updates back to host arrays and make the outputs."""
        program = self.program
        for name in program.updates:
            tensor = self.tensors[name]
            if tensor.view is not None and tensor.view.is_host:
                from fuser.runtime.host_arrays import copy_back

                copy_back(tensor.view, tensor.storage, self.device, self.stream)
                self.count("device_to_host")
        made: dict[str, Any] = {}
        for name in program.outputs:
            if name not in made:
                made[name] = self._output(name)
        for other in self.joined:
            order_after(self.device, other, self.stream)
        keep_until_done(self.device, self.stream, self.in_use)
        return [made[name] for name in program.outputs]

    def _output(self, name: str) -> Any:
        tensor = self.tensors[name]
        if tensor.view is not None:
            return tensor.view.array
        if tensor.storage.host is None and self.framework.kind == "numpy":
            self.count("device_to_host")
        return self.framework.deliver(
            self.device, tensor.storage, tensor.dtype, tensor.sizes, tensor.strides, tensor.offset, self.stream
        )

    def release(self) -> None:
        """Give back what did not go out."""
        errors: list[FuserError] = []
        for storage in self.owned.values():
            try:
                self.framework.release(self.device, storage, self.stream)
            except FuserError as error:
                errors.append(error)
        self.owned.clear()
        if errors:
            raise errors[0]


def _device_of(views: Sequence[ArrayView], requested: Any) -> Device:
    if requested is not None and hasattr(requested, "allocate") and hasattr(requested, "launch"):
        return requested
    return resolve_device(views, requested)


def _borrow(view: ArrayView) -> Storage:
    """The caller's memory as storage."""
    if view.is_host:
        from fuser.runtime.host_arrays import host_storage

        return host_storage(view)
    span = element_span(view.sizes, view.strides) if all(s >= 0 for s in view.strides) else 0
    array = view.owner.owner if view.kind == "fuser" else view.owner
    return Storage(view.address, span * view.dtype.itemsize, array)


def _host_number(view: ArrayView, position: int, name: str) -> Scalar:
    """The value of a rank-0 array in host memory."""
    if view.sizes or not view.is_host:
        where = "" if view.is_host else f" on {view.device[0]}:{view.device[1]}"
        raise InputTypeError(
            f"Expected input {position}, {name}, to be a scalar but got {view.dtype.c_name} tensor of rank "
            f"{len(view.sizes)}{where}"
        )
    from fuser.runtime.host_arrays import as_numpy

    return python_number(as_numpy(view)[()])


def _make_ready(view: ArrayView, stream: int) -> int | None:
    """Order `stream` after the work that makes a JAX or foreign array; a stream that is still to be joined, or None."""
    if view.kind == "jax":
        from fuser.runtime.jax_arrays import ready_on

        ready_on(view.array, stream)
        return None
    interface = getattr(view.array, "__cuda_array_interface__", None)
    if interface is not None:
        from fuser.runtime.dlpack import raw_stream

        number = interface.get("stream")
        return None if number is None else raw_stream(int(number))
    from fuser.runtime.dlpack import import_tensor

    import_tensor(view.array, stream)
    return None


def check_updatable(view: ArrayView, position: int, name: str) -> None:
    """Raise InputRuntimeError if an array cannot be updated in place."""
    what = f"Input {position}, {name}, is updated in place, but"
    if view.kind == "jax":
        raise InputRuntimeError(f"{what} JAX arrays are immutable: return the new value as an output (no alias_input)")
    if view.owner is not view.array and view.kind == "torch":
        raise InputRuntimeError(f"{what} it is a lazily conjugated or negated tensor: call resolve_conj() or resolve_neg()")
    if overlaps_itself(view.sizes, view.strides):
        raise InputRuntimeError(
            f"{what} its elements overlap in memory (shape {list(view.sizes)}, strides {list(view.strides)}): clone it first"
        )
    if view.kind == "numpy" and not view.array.flags.writeable:
        raise InputRuntimeError(f"{what} it is read-only")


def _check_constraint(entry: str, wanted: LaunchParams, values: LaunchValues) -> None:
    """A set extent must be what the plan computes."""
    for name, n, actual in zip(_EXTENT_NAMES, wanted.extents, (*values.grid, *values.block), strict=True):
        if n not in (-1, actual):
            raise LaunchError(f"kernel {entry}: the launch asks for {name}={n}, but its schedule needs {actual}")
    if wanted.shared and wanted.shared != values.shared_bytes:
        raise LaunchError(
            f"kernel {entry}: the launch asks for {wanted.shared} bytes of dynamic shared memory, but its schedule needs "
            f"{values.shared_bytes}"
        )


_EXTENT_NAMES = ("gdimx", "gdimy", "gdimz", "bdimx", "bdimy", "bdimz")


def check_launch(entry: str, launch: Launch, device: Device) -> None:
    """Raise LaunchError for sizes that no launch on the device can have."""
    _check_extents(entry, "grid", launch.grid, _GRID_LIMITS)
    limit = device.info.max_threads_per_block
    if launch.threads > limit:
        raise LaunchError(f"kernel {entry}: a block of {launch.block} has {launch.threads} threads, the device holds {limit}")
    _check_extents(entry, "block", launch.block, _BLOCK_LIMITS)
    if launch.shared_bytes > device.info.shared_per_block_optin:
        raise LaunchError(
            f"kernel {entry}: {launch.shared_bytes} bytes of dynamic shared memory, the device holds "
            f"{device.info.shared_per_block_optin} for a block"
        )


def _check_extents(entry: str, what: str, extents: Triple, limits: Triple) -> None:
    for axis, n, limit in zip("xyz", extents, limits, strict=True):
        if not 1 <= n <= limit:
            raise LaunchError(f"kernel {entry}: {what}.{axis} is {n}, outside [1, {limit}]")


# --- compiled sizes ---------------------------------------------------------------------------------------------------

_size_functions: dict[tuple[Size, ...], SizeFunction] = {}


def _size_function(values: tuple[Size, ...]) -> SizeFunction:
    """The compiled form of a row of sizes. Expressions are interned, so the row itself is the key."""
    found = _size_functions.get(values)
    if found is None:
        found = _size_functions[values] = compile_sizes(values)
    return found
