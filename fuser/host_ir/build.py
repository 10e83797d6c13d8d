"""`build_host_program`: the program that runs the kernels of a segmented fusion, and calls libraries for the rest.

For each segment: outputs are allocated, the kernel launched or the library called, and intermediates freed after their last
reader, whose memory later ones take (`reuse_memory.py`). Views of inputs become aliases.

All reads of inputs come before all updates, as far as a caller can tell. An output that updates an input is written there
directly if its kernel allows it (`in_place`) and nobody reads that memory later: by the name of the input, or by that of
another one that shares memory with it. Where others are read later, the program is one for inputs that share none, and says
so (`RequireDisjoint`). Else it is written into a temporary that is copied over at the end, after every read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fuser.host_ir.instructions.instructions import (
    Alias,
    Allocate,
    CallLibrary,
    Copy,
    Deallocate,
    Instruction,
    LaunchKernel,
    LibraryArgument,
    RequireDisjoint,
)
from fuser.host_ir.instructions.slot_layouts import SegmentedLike, SegmentLike, SlotLayouts, updated_by
from fuser.host_ir.passes.reuse_memory import reuse_memory
from fuser.host_ir.program import HostProgram
from fuser.ir.fusion.fusion import GENERATOR_STATE, LibraryOp, Scalar, Tensor
from fuser.ir.integers.integers import Int
from fuser.runtime.kernels.compiled_kernel import CompiledKernel


def build_host_program(
    segmented: SegmentedLike, kernels: Sequence[CompiledKernel | None], apart: Collection[str] = ()
) -> HostProgram:
    """The program.

    kernels  one per segment, None for segments of views and library calls
    apart    inputs that share memory with no other one in the calls that the program is for; where it rests on that, it asks it
    """
    return _Builder(segmented, kernels, apart).build()


def _call_of(segment: SegmentLike) -> LibraryOp | None:
    only = segment.fusion.tensor_exprs[0] if len(segment.fusion.tensor_exprs) == 1 else None
    return only if isinstance(only, LibraryOp) else None


class _Builder:
    def __init__(
        self, segmented: SegmentedLike, kernels: Sequence[CompiledKernel | None], apart: Collection[str]
    ) -> None:
        self.segmented = segmented
        self.fusion = segmented.fusion
        self.kernels = kernels
        self.apart = apart
        # Inputs of which the program requires that they are apart, and from which others.
        self.required: dict[str, None] = {}
        self.required_of: set[str] = set()
        self.instructions: list[Instruction] = []
        self.inputs = frozenset(v.name for v in self.fusion.inputs)
        self.made: set[str] = set(self.inputs)
        self.layouts = SlotLayouts(self.fusion)
        self.last_reader: dict[str, int] = {}
        for k, segment in enumerate(segmented.segments):
            for t in segment.fusion.input_tensors:
                self.last_reader[t.name] = k
        # A copy from the memory of an input comes before those from memory of the program: these may write that input.
        self.copies_of_inputs: list[Copy] = []
        self.copies: list[Copy] = []
        self.slots: dict[str, str] = {}
        self.storage: dict[str, str] = {}  # a value written in place -> the input that holds it from then on
        self.viewed: dict[str, str] = {}  # a view -> the slot whose storage it shares
        self.shown: dict[str, str] = {}  # an alias -> the slot whose memory it is

    def build(self) -> HostProgram:
        returned = [o for o in self.fusion.outputs if not o.hidden]
        kept = {o.tensor.name for o in self.fusion.outputs}
        self._find_views(kept)
        for k, (segment, kernel) in enumerate(zip(self.segmented.segments, self.kernels, strict=True)):
            call = _call_of(segment)
            if call is not None:
                self._call(k, segment, call)
            elif kernel is None:
                for t in segment.fusion.output_tensors:
                    self._view(t)
            else:
                self._launch(k, segment, kernel)
            for name, last in self.last_reader.items():
                if last == k and name not in kept and name not in self.viewed and name not in self.inputs:
                    self.instructions.append(Deallocate(name))
        self._update_from_inputs()
        self.instructions += (*self.copies_of_inputs, *self.copies)
        if self.required:
            others = [t.name for t in self.fusion.input_tensors if t.name in self.required_of - self.required.keys()]
            self.instructions.insert(0, RequireDisjoint(tuple(self.required), others))
        # A temporary of an in-place update is freed by the program's end unless it is returned.
        outputs = tuple(self.slots.get(o.tensor.name, o.tensor.name) for o in returned)
        inputs = (*(v.name for v in self.fusion.inputs), *self._generator_state())
        return HostProgram(inputs, outputs, reuse_memory(outputs, self.instructions))

    def _generator_state(self) -> tuple[str, ...]:
        """The inputs that follow those of the fusion where it draws from the generator."""
        return GENERATOR_STATE if self.fusion.draws else ()

    def _find_views(self, kept: set[str]) -> None:
        """Which slots are views made by segments without kernels: they have no storage to free, and keep that of their source
        for as long as they are read themselves."""
        made = set(self.made)
        for segment, kernel in zip(self.segmented.segments, self.kernels, strict=True):
            for t in segment.fusion.output_tensors:
                if t.name not in made and kernel is None and _call_of(segment) is None:
                    # Not always an input of its segment: a kernel may have stored what is between it and the view.
                    self.viewed[t.name] = self.layouts.viewed(t, made)[0].name
                made.add(t.name)
        updates = {o.tensor.name: o.alias_of.name for o in self.fusion.outputs if o.alias_of is not None}
        for name in updates:
            source_name = self._memory_of(name)
            # A view of what is updated is copied where it is made.
            if name in self.inputs or (name in self.viewed and source_name not in updates.values()):
                self.last_reader[source_name] = len(self.segmented.segments)  # a copy at the end
        for name in reversed(list(self.viewed)):
            source_name = self.viewed[name]
            last = self.last_reader.get(name, -1)
            self.last_reader[source_name] = max(self.last_reader.get(source_name, -1), last)
            if name in kept:
                kept.add(source_name)

    def _is_read_before(self, target: Tensor, k: int, kernel: CompiledKernel) -> bool:
        """Whether all that reads the memory of an input comes before segment `k`, or in it; requires what that rests on."""
        others = {name for name, last in self.last_reader.items() if last > k and name in self.inputs}
        if kernel.plan is not None and kernel.plan.co_resident:
            # It runs while the kernel before it still reads.
            beside = next((j for j in reversed(range(k)) if self.kernels[j] is not None), k)
            read = self.segmented.segments[beside].fusion.input_tensors
            others |= self.inputs.intersection(self._memory_of(t.name) for t in read)
        return not others or (target.name not in others and self._require_apart(target.name, others))

    def _require_apart(self, name: str, others: Collection[str]) -> bool:
        """Whether the program is one for inputs of which one shares no memory with others; requires it."""
        if name not in self.apart:
            return False
        self.required[name] = None
        self.required_of.update(t.name for t in self.fusion.input_tensors if t.name in others and not t.is_cpu)
        return True

    def _memory_of(self, name: str) -> str:
        """The slot that has the memory of a value."""
        while name in self.viewed:
            name = self.viewed[name]
        return self.storage.get(name, name)

    def _view(self, t: Tensor) -> None:
        """An output that is another view of an input; a copy of the view if that input is yet to be written."""
        if t.name in self.made:
            return
        view = self.layouts.view(t, self.made, self.storage)
        slot = f"{t.name}_view" if view.is_copied else t.name
        self.instructions.append(Alias(slot, view.of, view.sizes, view.strides))
        self.shown[slot] = self.shown.get(view.of, view.of)
        if view.is_copied:
            layouts = self.layouts
            self.instructions += [
                Allocate(t.name, layouts.shape(t), t.dtype, layouts.own_strides(t)),
                Copy(t.name, slot),
            ]
        self.made.add(t.name)

    def _launch(self, k: int, segment: SegmentLike, kernel: CompiledKernel) -> None:
        plan = kernel.plan
        assert plan is not None
        arguments: list[str | Int] = []
        inputs = {t.name for t in segment.fusion.input_tensors}
        tensors = {t.name: t for t in (*segment.fusion.input_tensors, *segment.fusion.output_tensors)}
        in_place = frozenset(plan.in_place)
        for name in plan.tensor_arguments:
            if name in inputs:
                arguments.append(self.storage.get(name, name))
                continue
            t = tensors[name]
            target = updated_by(t, segment.fusion)
            if target is not None and name in in_place and self._is_read_before(target, k, kernel):
                arguments.append(target.name)
                self.slots[name] = target.name
                self.storage[name] = target.name
                self.made.add(name)
                continue
            if target is not None:
                self.copies.append(Copy(target.name, name))
                self.slots[name] = target.name
            strides = self.layouts.strides(t, segment.fusion)
            self.instructions.append(Allocate(name, self.layouts.shape(t), t.dtype, strides))
            self.made.add(name)
            arguments.append(name)
        carried = {s.name for s in segment.extent_inputs}
        symbols = {s.name: s for s in segment.extent_inputs}
        for name in plan.scalar_arguments:
            arguments.append(self.layouts.extents.of_symbol(symbols[name]) if name in carried else name)
        self.instructions.append(LaunchKernel(kernel, tuple(arguments)))

    def _call(self, k: int, segment: SegmentLike, call: LibraryOp) -> None:
        """Results of a library are written into slots that are made for them, and copied over what they update at the end."""
        arguments: dict[str, LibraryArgument] = dict(call.options)
        for name, value in zip(call.names, call.inputs, strict=True):
            if isinstance(value, Tensor):
                arguments[name] = self.storage.get(value.name, value.name)
            else:
                arguments[name] = self._number(value)
        outputs: list[str] = []
        made = {t.name: t for t in segment.fusion.output_tensors}
        for t in call.outputs:
            # One that nobody reads is written all the same.
            target = updated_by(t, segment.fusion)
            if target is not None:
                self.copies.append(Copy(target.name, t.name))
                self.slots[t.name] = target.name
            strides = self.layouts.strides(t, segment.fusion)
            self.instructions.append(Allocate(t.name, self.layouts.shape(t), t.dtype, strides))
            self.made.add(t.name)
            outputs.append(t.name)
        self.instructions.append(CallLibrary(call.op, outputs, arguments))
        for t in call.outputs:
            if t.name not in made:
                self.instructions.append(Deallocate(t.name))

    def _number(self, value: Scalar) -> LibraryArgument:
        """A number that a call takes."""
        if value.value is not None:
            return value.value
        if value.name in self.inputs:
            return value.name
        if value.expression is not None:
            return self.layouts.extents.of_extent(value.expression)
        return self.layouts.extents.of_scalar(value.name)

    def _update_from_inputs(self) -> None:
        """An in-place update whose new value is an input, a view of one, or made by a segment that does not read the target."""
        for o in self.fusion.outputs:
            if o.alias_of is None or o.tensor.name in self.slots:
                continue
            if o.tensor.name not in self.made:
                self._view(o.tensor)
            self.slots[o.tensor.name] = o.alias_of.name
            source = o.tensor.name
            memory = self.shown.get(source, source)
            if memory not in self.inputs:
                self.copies.append(Copy(o.alias_of.name, source))
                continue
            earlier = [copy.dst for copy in self.copies_of_inputs]
            if not all(self._require_apart(name, (memory,)) for name in earlier):
                source = f"{source}_copy"
                layouts = self.layouts
                shape, strides = layouts.shape(o.tensor), layouts.own_strides(o.tensor)
                self.instructions += [Allocate(source, shape, o.tensor.dtype, strides), Copy(source, o.tensor.name)]
                self.copies.append(Copy(o.alias_of.name, source))
                continue
            self.copies_of_inputs.append(Copy(o.alias_of.name, source))
