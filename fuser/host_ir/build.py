"""`build_host_program`: the program that runs the kernels of a segmented fusion.

For each segment: outputs are allocated, the kernel launched, and intermediates freed after their last reader. Views of inputs
become aliases. An output that updates an input is written there directly if its kernel allows it (`in_place`) and nobody
reads the input later; else into a temporary that is copied over at the end, after every read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fuser.errors import InternalError
from fuser.host_ir.expressions import extent, stride
from fuser.host_ir.instructions import Alias, Allocate, Copy, Deallocate, Instruction, LaunchKernel
from fuser.host_ir.program import HostProgram
from fuser.host_ir.scalar_sizes import ExtentSizes
from fuser.ir.fusion import GENERATOR_STATE, Broadcast, Fusion, Permute, Reshape, Squeeze, Tensor, memory_order
from fuser.ir.integers import ONE, Int, Symbol, as_int
from fuser.ir.views import ViewExpr, runs_of
from fuser.runtime.compiled_kernel import CompiledKernel


class SegmentLike(Protocol):
    """A segment as this layer sees it."""

    @property
    def fusion(self) -> Fusion: ...

    @property
    def extent_inputs(self) -> tuple[Symbol, ...]: ...


class SegmentedLike(Protocol):
    """A segmented fusion as this layer sees it."""

    @property
    def fusion(self) -> Fusion: ...

    @property
    def segments(self) -> Sequence[SegmentLike]: ...


def build_host_program(segmented: SegmentedLike, kernels: Sequence[CompiledKernel | None]) -> HostProgram:
    """The program. `kernels`: one per segment, None for segments of views."""
    return _Builder(segmented, kernels).build()


class _Builder:
    def __init__(self, segmented: SegmentedLike, kernels: Sequence[CompiledKernel | None]) -> None:
        self.segmented = segmented
        self.fusion = segmented.fusion
        self.kernels = kernels
        self.instructions: list[Instruction] = []
        self.made: set[str] = {v.name for v in self.fusion.inputs}
        self.extents = ExtentSizes(self.fusion)
        self.last_reader: dict[str, int] = {}
        for k, segment in enumerate(segmented.segments):
            for t in segment.fusion.input_tensors:
                self.last_reader[t.name] = k
        self.copies: list[Copy] = []
        self.slots: dict[str, str] = {}
        self.storage: dict[str, str] = {}  # a value written in place -> the input that holds it from then on
        self.viewed: dict[str, str] = {}  # a view -> the slot whose storage it shares
        self.updated = {o.alias_of.name for o in self.fusion.outputs if o.alias_of is not None}

    def build(self) -> HostProgram:
        returned = [o for o in self.fusion.outputs if not o.hidden]
        kept = {o.tensor.name for o in self.fusion.outputs}
        self._find_views(kept)
        for k, (segment, kernel) in enumerate(zip(self.segmented.segments, self.kernels, strict=True)):
            if kernel is None:
                for t in segment.fusion.output_tensors:
                    self._view(t)
            else:
                self._launch(k, segment, kernel)
            for name, last in self.last_reader.items():
                if last == k and name not in kept and name not in self.viewed and not self._is_input(name):
                    self.instructions.append(Deallocate(name))
        self._update_from_inputs()
        self.instructions += self.copies
        # A temporary of an in-place update is freed by the program's end unless it is returned.
        outputs = tuple(self.slots.get(o.tensor.name, o.tensor.name) for o in returned)
        inputs = (*(v.name for v in self.fusion.inputs), *self._generator_state())
        return HostProgram(inputs, outputs, tuple(self.instructions))

    def _generator_state(self) -> tuple[str, ...]:
        """The inputs that follow those of the fusion where it draws from the generator."""
        return GENERATOR_STATE if self.fusion.draws else ()

    def _find_views(self, kept: set[str]) -> None:
        """Which slots are views made by segments without kernels: they have no storage to free, and keep that of their source
        for as long as they are read themselves."""
        for segment, kernel in zip(self.segmented.segments, self.kernels, strict=True):
            if kernel is None:
                inputs = {t.name for t in segment.fusion.input_tensors}
                for t in segment.fusion.output_tensors:
                    source = t
                    while source.name not in inputs:
                        expr = self.fusion.definitions[source]
                        assert isinstance(expr, (Broadcast, Squeeze, Permute, Reshape))
                        source = expr.input
                    if source is not t:  # an input that is returned is no view
                        self.viewed[t.name] = source.name
        for name in reversed(list(self.viewed)):
            source_name = self.viewed[name]
            last = self.last_reader.get(name, -1)
            self.last_reader[source_name] = max(self.last_reader.get(source_name, -1), last)
            if name in kept:
                kept.add(source_name)

    def _reads_end(self, k: int) -> bool:
        """Whether no segment after `k` reads an input: it might overlap one that `k` writes, whatever its name."""
        return all(last <= k for name, last in self.last_reader.items() if self._is_input(name))

    def _is_input(self, name: str) -> bool:
        return any(v.name == name for v in self.fusion.inputs)

    def _size(self, expression: Int) -> Int | int:
        result = self.extents.of_extent(expression)
        return result.value if result.is_const else result

    def _shape(self, t: Tensor) -> tuple[Int | int, ...]:
        return tuple(1 if d.is_broadcast else self._size(d.extent) for d in t.visible)

    def _strides(self, t: Tensor) -> tuple[Int | int, ...] | None:
        order = memory_order(t.stride_order)
        if order == tuple(range(t.ndim)):
            return None
        strides: dict[int, Int | int] = {}
        running: Int = ONE
        for d in reversed(order):
            strides[d] = running.value if running.is_const else running
            size = self._shape(t)[d]
            running = running * size
        return tuple(strides[d] for d in range(t.ndim))

    def _view(self, t: Tensor) -> None:
        """An output that is another view of an input; a copy of the view if that input is yet to be written."""
        if t.name in self.made:
            return
        chain: list[ViewExpr] = []
        source = t
        while source.name not in self.made:
            expr = self.fusion.definitions.get(source)
            if not isinstance(expr, (Broadcast, Squeeze, Permute, Reshape)):
                raise InternalError(f"{t.name} is no view of an input", pass_name="build_host_program")
            chain.append(expr)
            source = expr.input
        slot = self.storage.get(source.name, source.name)
        sizes: list[Int | int] = [extent(slot, d) for d in range(source.ndim)]
        strides: list[Int | int] = [stride(slot, d) for d in range(source.ndim)]
        for expr in reversed(chain):
            match expr:
                case Broadcast():
                    old = iter(zip(sizes, strides, strict=True))
                    pairs = [(1, 0) if new else next(old) for new in expr.flags]
                    sizes, strides = [p[0] for p in pairs], [p[1] for p in pairs]
                case Squeeze():
                    sizes = [s for s, gone in zip(sizes, expr.flags, strict=True) if not gone]
                    strides = [s for s, gone in zip(strides, expr.flags, strict=True) if not gone]
                case Permute():
                    sizes, strides = [sizes[d] for d in expr.dims], [strides[d] for d in expr.dims]
                case Reshape():
                    sizes, strides = self._reshaped(expr, strides)
        root = source.name
        while root in self.viewed:
            root = self.viewed[root]
        is_copied = root in self.updated and t in self.fusion.output_tensors
        view = f"{t.name}_view" if is_copied else t.name
        self.instructions.append(Alias(view, slot, tuple(sizes), tuple(strides)))
        if is_copied:
            self.instructions += [Allocate(t.name, self._shape(t), t.dtype, self._strides(t)), Copy(t.name, view)]
        self.made.add(t.name)

    def _reshaped(self, expr: Reshape, strides: Sequence[Int | int]) -> tuple[list[Int | int], list[Int | int]]:
        """(sizes, strides) of a reshape of something that lies so that it is a view: each run of dims like one long dim."""
        sizes = list(self._shape(expr.output))
        found: list[Int | int] = [0] * len(sizes)
        for run in runs_of(expr):
            step = as_int(strides[run.inputs[-1]])
            for j in reversed(run.outputs):
                found[j] = step.value if step.is_const else step
                step = step * sizes[j]
        return sizes, found

    def _launch(self, k: int, segment: SegmentLike, kernel: CompiledKernel) -> None:
        plan = kernel.plan
        assert plan is not None
        arguments: list[str | Int] = []
        aliases = {o.tensor.name: o.alias_of for o in segment.fusion.outputs if o.alias_of is not None}
        inputs = {t.name for t in segment.fusion.input_tensors}
        tensors = {t.name: t for t in (*segment.fusion.input_tensors, *segment.fusion.output_tensors)}
        in_place = frozenset(plan.in_place)
        for name in plan.tensor_arguments:
            if name in inputs:
                arguments.append(self.storage.get(name, name))
                continue
            target = aliases.get(name)
            if target is not None and name in in_place and self._reads_end(k):
                arguments.append(target.name)
                self.slots[name] = target.name
                self.storage[name] = target.name
                self.made.add(name)
                continue
            t = tensors[name]
            strides = self._strides(t)
            if target is not None:
                strides = tuple(stride(target.name, d) for d in range(target.ndim))
                self.copies.append(Copy(target.name, name))
                self.slots[name] = target.name
            self.instructions.append(Allocate(name, self._shape(t), t.dtype, strides))
            self.made.add(name)
            arguments.append(name)
        carried = {s.name for s in segment.extent_inputs}
        symbols = {s.name: s for s in segment.extent_inputs}
        for name in plan.scalar_arguments:
            arguments.append(self.extents.of_symbol(symbols[name]) if name in carried else name)
        self.instructions.append(LaunchKernel(kernel, tuple(arguments)))

    def _update_from_inputs(self) -> None:
        """An in-place update whose new value is an input, a view of one, or made by a segment that does not read the target."""
        for o in self.fusion.outputs:
            if o.alias_of is None or o.tensor.name in self.slots:
                continue
            if o.tensor.name not in self.made:
                self._view(o.tensor)
            self.copies.append(Copy(o.alias_of.name, o.tensor.name))
            self.slots[o.tensor.name] = o.alias_of.name
