"""A program runs on whatever satisfies its kernels' facts, and refuses whatever breaks one."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fuser.compiler.bind_inputs import BoundInputs, bind_inputs
from fuser.compiler.builds import at_once
from fuser.compiler.compile_fusion import compile_segments, inputs_of_segments, plan_fusion
from fuser.compiler.executor_cache import FusionExecutorCache
from fuser.compiler.kernel_compiler import KernelCompiler, SizesRefusedError
from fuser.compiler.recorder import Recorder
from fuser.compiler.segment_failures import Recut, until_sizes_fit
from fuser.errors import InputRuntimeError
from fuser.host_ir.program import HostProgram
from fuser.ir.facts import (
    Aligned,
    DenseStride,
    Disjoint,
    ExtentDivisible,
    ExtentIs,
    ExtentWithin,
    Fact,
    IndexBound,
    LoopBound,
    StrideDivisible,
    TensorDescriptor,
    UnitStride,
    ZeroStride,
    first_broken,
)
from fuser.ir.fusion.fusion import Fusion, Tensor
from fuser.ir.integers.integers import Symbol
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.devices.device import Device, get_device
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.kernels.plan_evaluation import evaluation_of, facts_hold
from fuser.runtime.layouts import element_span
from fuser.schedule.segmentation.segmentation import SegmentedFusion
from tests.devices.device_layouts import place
from tests.fusions.fusion_corpus import ALIGNED, CORPUS, Arg, FusionCase, SizeOf, assert_close, case, expected

FURTHER = 10

# Facts about a view, or about a value written in place, are facts about an input under another name: not drawn for here.
UNDRAWN = {"view_of_the_new_value", "view_read_by_two_segments"}

NAMES = [c.name for c in CORPUS if c.name not in UNDRAWN]

PADDED = [n for n in NAMES if any(isinstance(a, Arg) and len(a.dims.split()) > 1 for a in case(n).arguments)]


@dataclass(frozen=True, slots=True)
class Layout:
    """Strides of a tensor in elements, and its address modulo 256."""

    strides: tuple[int, ...]
    shift: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A program compiled for some arguments, and what it was compiled from."""

    case: FusionCase
    fusion: Fusion
    device: Device
    segmented: SegmentedFusion
    kernels: tuple[CompiledKernel | None, ...]
    program: HostProgram
    sizes: Mapping[str, int]
    layouts: Sequence[Layout | None]

    @property
    def where(self) -> Any:
        """The device for calls without tensors."""
        return None if self.fusion.input_tensors else self.device.kind

    def facts(self) -> list[Fact]:
        """Facts of all kernels, in a fixed order."""
        return sorted({f for k in self.kernels if k is not None for f in k.facts}, key=repr)

    def descriptors(self, sizes: Mapping[str, int], layouts: Sequence[Layout | None]) -> list[Any]:
        """Arguments without data."""
        found: list[Any] = []
        for a, layout in zip(self.case.arguments, layouts, strict=True):
            if isinstance(a, Arg):
                assert layout is not None
                alignment = 256 if layout.shift == 0 else layout.shift & -layout.shift
                found.append(TensorDescriptor(a.dtype, a.shape(sizes), layout.strides, alignment))
            else:
                found.append(sizes[a.letter] if isinstance(a, SizeOf) else a.value)
        return found

    def broken(self, bound: BoundInputs) -> Fact | None:
        """A fact of some kernel that does not hold for these arguments."""
        for inputs, kernel in zip(inputs_of_segments(self.segmented, bound), self.kernels, strict=True):
            if kernel is None:
                continue
            found = first_broken(kernel.facts, inputs.tensors, inputs.evaluate)
            assert facts_hold(kernel, inputs.tensors, inputs.evaluate) == (found is None)
            if found is not None:
                return found
        return None

    def params(self, bound: BoundInputs, device: Device | None = None) -> list[object]:
        """What the schedulers would choose for these arguments."""
        compiler = KernelCompiler(device or self.device)
        every = inputs_of_segments(self.segmented, bound)
        return [
            compiler.propose(segment, inputs)
            for segment, inputs, kernel in zip(self.segmented.segments, every, self.kernels, strict=True)
            if kernel is not None
        ]

    def arguments(
        self, sizes: Mapping[str, int], layouts: Sequence[Layout | None], seed: int
    ) -> tuple[list[Any], list[Any]]:
        """(NumPy arguments, the same on the device in these layouts)."""
        plain = self.case.inputs(sizes, seed)
        placed: list[Any] = []
        for i, (value, layout) in enumerate(zip(plain, layouts, strict=True)):
            if layout is None:
                placed.append(value)
                continue
            tensor = place(self.device, value, layout.strides, layout.shift)
            plain[i] = tensor.numpy()  # an expanded dim stores one element
            placed.append(tensor)
        return plain, placed

    def check(self, results: Sequence[Any], plain: Sequence[Any], placed: Sequence[Any], what: str) -> None:
        """Results and updated inputs against the reference."""
        want = expected(self.fusion, plain)
        for i, (out, ref, n) in enumerate(zip(results, want.outputs, want.folded, strict=True)):
            assert_close(out, ref, n, f"{what}, output {i}")
        for position, ref in want.updates.items():
            assert_close(placed[position], ref, want.folded_updates[position], f"{what}, update {position}")


def dense(argument: Arg, sizes: Mapping[str, int], padding: int = 0) -> Layout:
    """The argument's memory order; every dim but the slowest is followed by `padding` elements' gap."""
    shape = argument.shape(sizes)
    strides = [0] * len(shape)
    running = 1
    for d in reversed(argument.order or range(len(shape))):
        strides[d] = running
        running = running * shape[d] + (padding if shape[d] > 1 else 0)
    return Layout(tuple(strides))


def subject(case: FusionCase, device: Device, sizes: Mapping[str, int] = ALIGNED, padding: int = 0) -> Subject:
    """The case compiled for `device`."""
    fusion = case.define().fusion
    assert fusion is not None
    whole = fusion.ir_fusion
    layouts = [dense(a, sizes, padding) if isinstance(a, Arg) else None for a in case.arguments]

    def attempt(without: frozenset[Recut], reasons: Sequence[str]) -> Subject:
        segmented = plan_fusion(whole, Recorder(), without, reasons)
        made = Subject(case, whole, device, segmented, (), HostProgram((), (), ()), sizes, layouts)
        program, kernels = compile_segments(
            segmented,
            bind_inputs(whole, made.descriptors(sizes, layouts)),
            lambda _, segment, inputs, start: at_once(
                lambda: KernelCompiler(device).compile_segment(segment, inputs)[0]
            ),
            Recorder(),
        )
        return replace(made, kernels=kernels, program=program)

    return until_sizes_fit(attempt)


# --- arguments that satisfy the facts and no more ---------------------------------------------------------------------


def loose_layout(
    name: str, argument: Arg, sizes: Mapping[str, int], facts: Sequence[Fact], rng: random.Random
) -> Layout:
    """Strides and alignment that the facts about `name` ask for; what they leave open is padded and misaligned."""
    shape = argument.shape(sizes)
    itemsize = argument.dtype.itemsize
    mine = [f for f in facts if not isinstance(f, LoopBound) and f.tensor == name]
    strides: dict[int, int] = {}
    inner_of: dict[int, int] = {}
    step: dict[int, int] = {}
    alignment = itemsize
    for f in mine:
        match f:
            case UnitStride(_, dim):
                strides[dim] = 1
            case ZeroStride(_, dim):
                strides[dim] = 0
            case DenseStride(_, dim, inner):
                inner_of[dim] = inner
            case StrideDivisible(_, dim, nbytes):
                step[dim] = max(nbytes // itemsize, 1)
            case Aligned(_, nbytes):
                alignment = max(alignment, nbytes)
            case _:
                pass
    pending = [d for d in reversed(argument.order or range(len(shape))) if d not in strides]
    while pending:
        ready = next((d for d in pending if inner_of.get(d) in strides), None)
        if ready is not None:
            inner = inner_of[ready]
            strides[ready] = shape[inner] * strides[inner]
            pending.remove(ready)
            continue
        free = next(d for d in pending if d not in inner_of)
        pending.remove(free)
        reach = 1 + sum((shape[d] - 1) * s for d, s in strides.items())
        unit = step.get(free, 1)
        stride = -(-(reach + rng.randint(1, 5)) // unit) * unit
        # Not dense by chance: the kernel for a dense layout is another one.
        strides[free] = stride + unit * any(stride == shape[d] * s for d, s in strides.items())
    return Layout(tuple(strides[d] for d in range(len(shape))), alignment % 256)


def further(subject: Subject, count: int, seed: int) -> Iterator[tuple[Mapping[str, int], list[Layout | None]]]:
    """`count` sets of extents and layouts for which all facts hold."""
    rng = random.Random(seed)
    facts = subject.facts()
    letters = sorted({w for a in subject.case.arguments if isinstance(a, Arg) for w in a.dims.split() if w.isalpha()})
    letters += [a.letter for a in subject.case.arguments if isinstance(a, SizeOf)]
    found = 0
    seen = {tuple(subject.sizes[letter] for letter in letters)}
    for _ in range(5000):
        sizes = dict(subject.sizes)
        if letters and rng.random() < 0.5:  # near the first shape, where the same parameters are likely
            letter = rng.choice(letters)
            sizes[letter] = max(2, sizes[letter] + rng.choice((-8, -4, -2, -1, 1, 2, 4, 8, 12, 16, 24, 32)))
        else:
            for letter in letters:
                n = rng.choice((rng.randint(2, 40), 4 * rng.randint(1, 16), 8 * rng.randint(1, 12)))
                sizes[letter] = n if len(letters) < 4 else min(n, 12)
        drawn = tuple(sizes[letter] for letter in letters)
        if letters and drawn in seen:
            continue
        seen.add(drawn)
        layouts = [
            loose_layout(spec.name, a, sizes, facts, rng) if isinstance(a, Arg) else None
            for spec, a in zip(subject.fusion.inputs, subject.case.arguments, strict=True)
        ]
        if subject.broken(bind_inputs(subject.fusion, subject.descriptors(sizes, layouts))) is None:
            yield sizes, layouts
            found += 1
            if found == count:
                return
    raise AssertionError(f"found {found} of {count} further shapes for {subject.case.name}")


def check_many_shapes(subject: Subject, count: int = FURTHER) -> None:
    """Further shapes run on the program; those with the same parameters share kernels in a cache."""
    runs_on = subject.device if subject.where is None else get_device(subject.where)
    alike: dict[tuple[object, ...], list[tuple[Mapping[str, int], list[Layout | None]]]] = {}
    for number, (sizes, layouts) in enumerate([(subject.sizes, subject.layouts), *further(subject, count, seed=1)]):
        what = f"{subject.case.name} for {sizes}"
        plain, placed = subject.arguments(sizes, layouts, number)
        before = subject.program.counters()
        subject.check(_run(subject, placed), plain, placed, what)
        after = subject.program.counters()
        assert after["compiles"] == before["compiles"], what
        if after["recompiles"] != before["recompiles"]:
            # A block that follows the extents outgrew its rung: one more binary of the same kernel, once.
            plain, placed = subject.arguments(sizes, layouts, number)
            subject.check(_run(subject, placed), plain, placed, what)
            assert subject.program.counters()["recompiles"] == after["recompiles"], what
        params = subject.params(bind_inputs(subject.fusion, subject.descriptors(sizes, layouts)), runs_on)
        alike.setdefault(tuple(params), []).append((sizes, list(layouts)))
    # All facts of the first shape's kernels hold for the others; of those alike some share kernels, whoever is first.
    first, most = next(iter(alike.values())), max(alike.values(), key=len)
    cache, compiled = FusionExecutorCache(_handle(subject.case)), list[int]()
    for number, (sizes, layouts) in enumerate(first if len(first) > 1 else most):
        what = f"{subject.case.name} for {sizes}"
        plain, placed = subject.arguments(sizes, layouts, number)
        subject.check(cache.execute(placed, device=subject.where), plain, placed, what)
        compiled.append(cache.counters()["kernels_compiled"])
        assert len(first) == 1 or compiled[-1] == compiled[0], what
    is_shared = compiled[-1] < len(compiled) * compiled[0]
    assert is_shared or not compiled[0] or count < FURTHER, f"no two shapes of {subject.case.name} share a kernel"


def _run(subject: Subject, placed: Sequence[Any]) -> list[Any]:
    return subject.program.run(placed, device=subject.device)


def _handle(case: FusionCase) -> Any:
    fusion = case.define().fusion
    assert fusion is not None
    return fusion


# --- arguments that break one fact ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Break:
    """Arguments for which `fact` does not hold. `overlap`: positions of two inputs that share memory."""

    fact: Fact
    sizes: Mapping[str, int]
    layouts: Sequence[Layout | None]
    has_data: bool = True
    overlap: tuple[int, int] | None = None


def breaks(subject: Subject) -> Iterator[Break]:
    """One for each fact that arguments can break. Facts about static extents, and alignment to one element, cannot be."""
    for fact in subject.facts():
        found = _break(subject, fact)
        if found is not None:
            yield found


def _break(subject: Subject, fact: Fact) -> Break | None:
    positions = {spec.name: i for i, spec in enumerate(subject.fusion.inputs)}
    if isinstance(fact, LoopBound):
        return _beyond_the_bound(subject, fact) if fact.products else None
    if isinstance(fact, IndexBound):
        return _beyond_the_bound(subject, fact)
    if isinstance(fact, ExtentDivisible):
        return _indivisible(subject, fact)
    position = positions.get(fact.tensor)
    if position is None:
        return None  # an intermediate: its layout and place are ours
    argument, layout = subject.case.arguments[position], subject.layouts[position]
    assert isinstance(argument, Arg)
    assert layout is not None
    shape = argument.shape(subject.sizes)
    strides, shift = list(layout.strides), layout.shift
    match fact:
        case UnitStride(_, dim):
            if shape[dim] == 1:
                return None
            strides = [2 * s for s in strides]
        case ZeroStride(_, dim):
            strides[dim] = element_span(shape, strides)
        case DenseStride(_, dim, _):
            if shape[dim] == 1:
                return None
            _widen(strides, shape, dim, 16)
        case StrideDivisible(_, dim, nbytes):
            if shape[dim] == 1 or argument.dtype.itemsize % nbytes == 0:
                return None
            _widen(strides, shape, dim, 1)
        case Aligned(_, nbytes):
            if nbytes <= argument.dtype.itemsize:
                return None
            shift = nbytes // 2
        case Disjoint(tensor, other):
            if other not in positions:
                return None
            return Break(fact, subject.sizes, subject.layouts, overlap=(positions[tensor], positions[other]))
        case ExtentIs():
            return None
        case ExtentWithin():
            return _too_long(subject, fact)
    layouts = list(subject.layouts)
    layouts[position] = Layout(tuple(strides), shift)
    return Break(fact, subject.sizes, layouts)


def _widen(strides: list[int], shape: Sequence[int], dim: int, by: int) -> None:
    """Put `by` elements between the steps of `dim`, and everything outside it further out."""
    old = strides[dim]
    for d, s in enumerate(strides):
        if d == dim:
            strides[d] = s + by
        elif s > old or (s == old and d < dim):
            strides[d] = s + by * shape[dim] * (s // max(old * shape[dim], 1) or 1)


def _letters(subject: Subject) -> dict[str, str]:
    """Letter of each extent symbol, by the symbol's name."""
    found: dict[str, str] = {}
    for spec, a in zip(subject.fusion.inputs, subject.case.arguments, strict=True):
        if isinstance(a, Arg) and isinstance(spec, Tensor):
            for word, dim in zip(a.dims.split(), spec.visible, strict=True):
                if isinstance(dim.extent, Symbol):
                    found[dim.extent.name] = word
        elif isinstance(a, SizeOf):
            found[spec.name] = a.letter
    return found


def _indivisible(subject: Subject, fact: ExtentDivisible) -> Break | None:
    letters = _letters(subject)
    tensors = {t.name: t for s in subject.segmented.segments for t in s.fusion.input_tensors}
    extent = tensors[fact.tensor].visible[fact.dim].extent
    if not isinstance(extent, Symbol):
        return None
    letter = letters[extent.name]
    sizes = {**subject.sizes, letter: subject.sizes[letter] + 1}
    return Break(fact, sizes, [dense(a, sizes) if isinstance(a, Arg) else None for a in subject.case.arguments])


def _too_long(subject: Subject, fact: ExtentWithin) -> Break | None:
    letters = _letters(subject)
    tensors = {t.name: t for s in subject.segmented.segments for t in s.fusion.input_tensors}
    extent = tensors[fact.tensor].visible[fact.dim].extent
    assert isinstance(extent, Symbol), "a constant extent needs no fact"
    sizes = {**subject.sizes, letters[extent.name]: fact.high + 1}
    return Break(fact, sizes, [dense(a, sizes) if isinstance(a, Arg) else None for a in subject.case.arguments])


def _beyond_the_bound(subject: Subject, fact: Fact) -> Break | None:
    """Extents of which one is huge. There is no such memory: descriptors only."""
    for letter in sorted(set(_letters(subject).values())):
        sizes = {**subject.sizes, letter: 2**31 + subject.sizes[letter]}
        layouts = [dense(a, sizes) if isinstance(a, Arg) else None for a in subject.case.arguments]
        bound = bind_inputs(subject.fusion, subject.descriptors(sizes, layouts))
        for inputs, kernel in zip(inputs_of_segments(subject.segmented, bound), subject.kernels, strict=True):
            if kernel is not None and fact in kernel.facts:
                if first_broken([fact], inputs.tensors, inputs.evaluate) is not None:
                    return Break(fact, sizes, layouts, has_data=False)
    return None


def check_refusals(subject: Subject) -> list[Fact]:
    """Every break is refused by the program, and the cache answers it with another kernel; the facts that were broken."""
    cache = FusionExecutorCache(_handle(subject.case))
    _, placed = subject.arguments(subject.sizes, subject.layouts, 0)
    cache.execute(placed, device=subject.where)
    broken: list[Fact] = []
    for b in breaks(subject):
        broken.append(b.fact)
        what = f"{subject.case.name} with {b.fact} broken"
        if not b.has_data:
            _check_refused_by_plan(subject, b, what)
            continue
        plain, placed = subject.arguments(b.sizes, b.layouts, 3)
        if b.overlap is not None:
            plain, placed = _overlapping(subject, b.overlap)
        with pytest.raises(InputRuntimeError, match="it was compiled for"):
            _run(subject, placed)
        if b.overlap is not None and len(_updated(subject).intersection(b.overlap)) == 2:
            with pytest.raises(InputRuntimeError, match="are both updated in place, but they overlap in memory"):
                cache.execute(placed, device=subject.where)
            continue
        compiled = cache.counters()["kernels_compiled"]
        first = set(cache.kernels(subject.arguments(subject.sizes, subject.layouts, 0)[1], subject.where))
        results = cache.execute(placed, device=subject.where)
        subject.check(results, plain, placed, what)
        assert cache.counters()["kernels_compiled"] >= compiled
        taken = cache.kernels(placed, subject.where)
        assert all(b.fact not in k.facts for k in taken), what
        assert not first >= set(taken), what
    return broken


def _updated(subject: Subject) -> set[int]:
    """Positions of inputs that are updated in place."""
    return {subject.fusion.inputs.index(o.alias_of) for o in subject.fusion.outputs if o.alias_of is not None}


def _check_refused_by_plan(subject: Subject, b: Break, what: str) -> None:
    """The launch plan refuses the sizes, and the kernel compiled for them does without the fact."""
    bound = bind_inputs(subject.fusion, subject.descriptors(b.sizes, b.layouts))
    every = inputs_of_segments(subject.segmented, bound)
    for segment, inputs, kernel in zip(subject.segmented.segments, every, subject.kernels, strict=True):
        if kernel is None or b.fact not in kernel.facts:
            continue
        if first_broken([b.fact], inputs.tensors, inputs.evaluate) is None:
            continue
        assert kernel.plan is not None
        evaluation = evaluation_of(kernel)
        count = len(segment.fusion.input_tensors)
        described = [inputs.tensors[n] for n in kernel.plan.tensor_arguments[:count]]
        scalars = [inputs.scalars.get(n, inputs.extents.get(n, 1)) for n in kernel.plan.scalar_arguments]  # type: ignore[call-overload]
        made = evaluation.output_layouts([t.sizes for t in described], [t.strides for t in described], scalars)
        with pytest.raises(InputRuntimeError, match="it was compiled for"):
            evaluation.evaluate(
                [*(t.sizes for t in described), *(s for s, _ in made)],
                [*(t.strides for t in described), *(s for _, s in made)],
                [4096] * (len(described) + len(made)),
                scalars,
            )
        try:
            other = KernelCompiler(subject.device).compile_segment(segment, inputs)[0]
        except SizesRefusedError:
            continue  # the cache cuts the fusion in another way for such sizes
        assert b.fact not in other.facts, what
        assert other.source != kernel.source or other.kernel_ir != kernel.kernel_ir, what


def _overlapping(subject: Subject, positions: tuple[int, int]) -> tuple[list[Any], list[Any]]:
    """Arguments of which two share memory as far as it goes."""
    plain, placed = subject.arguments(subject.sizes, subject.layouts, 3)
    a, b = (placed[p] for p in positions)
    assert isinstance(a, DeviceTensor)
    assert isinstance(b, DeviceTensor)
    large, small = (a, b) if element_span(a.shape, a.strides) >= element_span(b.shape, b.strides) else (b, a)
    assert large.dtype is small.dtype, "overlapping arguments of two element types are not drawn"
    shared = large.view(small.shape, small.strides)
    placed = [shared if v is small else v for v in placed]
    plain = [v.numpy().copy() if isinstance(v, DeviceTensor) else p for v, p in zip(placed, plain, strict=True)]
    return plain, placed
