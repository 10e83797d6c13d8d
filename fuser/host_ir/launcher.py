"""The default executor: runs the bound steps of an earlier run again where the arguments have the same key.

    key := per tensor input (dtype, sizes, strides, low bits of the address), per number that sizes depend on its value

The first run of a key goes through the interpreter, which makes every check; what it proved depends on the key alone,
but for two things that are checked here each time: that inputs do not overlap where a kernel assumes it, and that all
inputs are in memory of one device and one library. Anything else than device arrays of one library on its current stream
(host arrays, mixed libraries, JAX) is the interpreter's.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from fuser.errors import FuserError, LaunchError
from fuser.host_ir.expressions import Size, sources_of
from fuser.host_ir.instructions import Alias, Allocate, LaunchKernel
from fuser.host_ir.interpreter import interpret_and_bind
from fuser.host_ir.run_inputs import borrow, device_of, host_number
from fuser.host_ir.steps import BoundProgram, Frame
from fuser.ir.facts import Aligned
from fuser.ir.integers import Int
from fuser.runtime.arrays import ArrayView, Scalar, describe_array, is_scalar, python_number
from fuser.runtime.device import Device, get_device
from fuser.runtime.frameworks import Framework, framework_for
from fuser.runtime.plan_evaluation import evaluation_of
from fuser.runtime.streams import own_stream, stream_handle

if TYPE_CHECKING:
    from fuser.host_ir.program import HostProgram

# A program that sees this many keys starts anew: its shapes never repeat.
_MAX_KEYS = 1024
_MIXED = "inputs of several libraries or devices"
# Types whose instances are known to be arrays: they need not be asked whether they are numbers.
_array_types: set[type] = {ArrayView}


class Launcher:
    """The bound programs of one host program, by key."""

    __slots__ = ("_address_mask", "_bound", "_fixing", "_interpreted", "_lock", "_program", "_views_inputs")

    def __init__(self, program: HostProgram) -> None:
        self._program = program
        self._lock = threading.Lock()
        self._bound: dict[Hashable, BoundProgram] = {}
        # Runs that were left to the interpreter, by reason.
        self._interpreted: dict[str, int] = {}
        alignment = 1
        fixing: set[str] = set()
        sizes: list[Size] = []
        for instruction in program.instructions:
            match instruction:
                case LaunchKernel(kernel, args):
                    sizes += [a for a in args if isinstance(a, Int)]
                    if kernel.plan is None:
                        continue
                    alignment = max((alignment, *(f.bytes for f in kernel.facts if isinstance(f, Aligned))))
                    used = evaluation_of(kernel).fixing_scalars
                    numbers = args[len(kernel.plan.tensor_arguments) :]
                    for name, arg in zip(kernel.plan.scalar_arguments, numbers, strict=True):
                        if name in used and isinstance(arg, str):
                            fixing.add(arg)
                case Allocate(_, shape, _, strides):
                    sizes += (*shape, *(strides or ()))
                case Alias(_, _, shape, strides, offset):
                    sizes += (*(shape or ()), *(strides or ()), offset)
                case _:
                    pass
        fixing.update(source.slot for size in sizes for source in sources_of(size) if source.what == "scalar")
        self._address_mask = alignment - 1
        self._fixing = frozenset(fixing)
        # Views of inputs among the outputs need the input's storage.
        self._views_inputs = bool(program.facts.escaping.intersection(program.inputs))

    def run(self, inputs: Sequence[Any], stream: Any, device: Any) -> list[Any]:
        """Run once; `HostProgram.run` says what the arguments are."""
        program = self._program
        if len(inputs) != len(program.inputs):
            return self._interpret(None, inputs, stream, device, "not as many inputs as the program has")
        first: ArrayView | None = None
        views: list[ArrayView | None] = []
        numbers: dict[str, Scalar] = {}
        key: list[Hashable] = []
        mask = self._address_mask
        tensors = program.facts.tensor_inputs
        for name, value in zip(program.inputs, inputs, strict=True):
            kind = type(value)
            if kind not in _array_types:
                if is_scalar(value):
                    numbers[name] = number = python_number(value)
                    key.append((type(number), number) if name in self._fixing else None)
                    views.append(None)
                    continue
                view = describe_array(value)
                _array_types.add(kind)
            else:
                view = value if kind is ArrayView else describe_array(value)
            if name not in tensors and view.is_host and not view.sizes:
                numbers[name] = number = host_number(view)
                key.append((type(number), number) if name in self._fixing else None)
                views.append(None)
                continue
            views.append(view)
            head = view if first is None else first
            first = head
            if view.kind != head.kind or view.device != head.device or view.owner is not view.array:
                return self._interpret(None, _known(inputs, views), stream, device, _MIXED)
            key.append((view.dtype, view.sizes, view.strides, view.address & mask))
        if first is None or first.device[0] == "cpu" or first.kind in ("jax", "interface", "numpy"):
            return self._interpret(None, _known(inputs, views), stream, device, _why_not_bound(first))
        target = _target(first, views, device)
        framework = framework_for(first, target)
        handle = _stream_of(framework, target, views, stream)
        if handle is None:
            return self._interpret(None, _known(inputs, views), stream, device, "streams have to be joined")
        # Kinds are part of the key: the same layouts may come from two libraries, whose results differ.
        whole = (first.kind, first.device, *key)
        bound = self._bound.get(whole)
        if bound is None:
            return self._interpret(whole, _known(inputs, views), stream, device)
        if not _are_disjoint(bound, views):
            return self._interpret(whole, _known(inputs, views), stream, device, "inputs overlap where they may not")
        return self._replay(bound, views, numbers, target, framework, handle)

    def _interpret(
        self, key: Hashable | None, inputs: Sequence[Any], stream: Any, device: Any, why: str | None = None
    ) -> list[Any]:
        """`why` the steps of an earlier run cannot be used; None for the first run of a key."""
        if why is not None:
            with self._lock:
                self._interpreted[why] = self._interpreted.get(why, 0) + 1
        results, bound = interpret_and_bind(self._program, inputs, stream, device)
        if key is not None:
            with self._lock:
                if len(self._bound) >= _MAX_KEYS:
                    self._retire()
                self._bound.setdefault(key, bound)
        return results

    def _retire(self) -> None:
        """Forget all keys; what their replays counted stays counted. The lock is held."""
        for bound in self._bound.values():
            self._program.count({"replays": bound.replays})
            self._program.count({name: n * bound.replays for name, n in bound.counts.items()})
        self._bound.clear()

    def _replay(
        self,
        bound: BoundProgram,
        views: Sequence[ArrayView | None],
        numbers: dict[str, Scalar],
        device: Device,
        framework: Framework,
        stream: int,
    ) -> list[Any]:
        program = self._program
        frame = Frame(device, framework, stream, len(program.root_names), numbers)
        for position, view in enumerate(views):
            if view is not None:
                # Inputs are the first roots, in order.
                frame.addresses[position] = view.address
                if self._views_inputs:
                    frame.storages[position] = borrow(view)
        try:
            for step in bound.steps:
                step.run(frame)
            results: list[Any] = []
            made: dict[int, Any] = {}
            for plan in bound.outputs:
                if plan.input is not None:
                    view = views[plan.input]
                    assert view is not None
                    results.append(view.array)
                    continue
                array = made.get(id(plan))
                if array is None:
                    storage = frame.storages[plan.root]
                    if storage is None:
                        raise LaunchError(f"output memory of root {plan.root} is gone")
                    array = framework.deliver(
                        device, storage, plan.dtype, plan.sizes, plan.strides, plan.offset, stream
                    )
                    made[id(plan)] = array
                results.append(array)
        except FuserError as error:
            error.add_note("while running a host program for arguments like those of an earlier run")
            raise
        finally:
            frame.release()
        with self._lock:
            bound.replays += 1
        return results

    def interpreted(self) -> dict[str, int]:
        """How many runs were left to the interpreter, by reason; the first of each key does not count."""
        with self._lock:
            return dict(self._interpreted)

    def counters(self) -> dict[str, int]:
        """What replays add to the program's counters; `replays` is their number."""
        with self._lock:
            known = list(self._bound.values())
        total = {"replays": sum(b.replays for b in known)}
        for bound in known:
            for name, n in bound.counts.items():
                total[name] = total.get(name, 0) + n * bound.replays
        return total


def _why_not_bound(first: ArrayView | None) -> str:
    if first is None:
        return "no input is an array"
    if first.device[0] == "cpu":
        return "inputs are in host memory"
    return "inputs of JAX" if first.kind == "jax" else "inputs of a library that is not known"


def _target(first: ArrayView, views: Sequence[ArrayView | None], device: Any) -> Device:
    """The device of a run whose tensors are all in one place; the common answers without a search."""
    if device is None or (type(device) is int and first.device == ("cuda", device)):
        return first.owner.device if first.kind == "fuser" else get_device(*first.device)
    return device_of([v for v in views if v is not None], device)


def _known(inputs: Sequence[Any], views: Sequence[ArrayView | None]) -> list[Any]:
    """The inputs with their views where they were described already."""
    described = [value if view is None else view for value, view in zip(inputs, views, strict=False)]
    return [*described, *inputs[len(views) :]]


def _stream_of(framework: Framework, device: Device, views: Sequence[ArrayView | None], requested: Any) -> int | None:
    """The stream of a replay, or None where streams have to be joined first."""
    if device.kind != "cuda":
        return 0
    if requested is not None:
        return stream_handle(requested) if framework.kind in ("torch", "cupy") else None
    current = framework.current_stream(device)
    if current is not None:
        return current
    stream = own_stream(device)
    return stream if all(v is None or v.owner.stream == stream for v in views) else None


def _are_disjoint(bound: BoundProgram, views: Sequence[ArrayView | None]) -> bool:
    """Whether inputs that must not overlap still do not. Inputs are the first roots, in order."""
    for root_a, low_a, high_a, root_b, low_b, high_b in bound.disjoint:
        a, b = views[root_a], views[root_b]
        if a is None or b is None:
            return False
        if a.address + low_a < b.address + high_b and b.address + low_b < a.address + high_a:
            return False
    return True
