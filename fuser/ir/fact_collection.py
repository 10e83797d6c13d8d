"""Which facts a scheduled fusion asks for, and which of them hold for the arguments at hand.

Always required: the layout of every input and which of its dims have one element, the bound that allows 32-bit indices, that
the launch can count its blocks and threads where their number depends on extents, and that an output written in place
overlaps no other input. A vectorized copy asks for the alignment and divisibility of its argument, `require_extent_range`
for a bound. Nothing else enters a kernel's key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from itertools import pairwise

from fuser.ir.facts import (
    Aligned,
    DenseStride,
    Disjoint,
    ExtentDivisible,
    ExtentIs,
    Fact,
    Facts,
    IndexBound,
    LaunchBound,
    LoopBound,
    StrideDivisible,
    TensorDescriptor,
    UnitStride,
    ZeroStride,
    holds,
    layout_facts,
    planned_layout,
    stride_facts,
    those_that_hold,
)
from fuser.ir.fusion.fusion import IterDomain, Tensor, is_copy, memory_order, tensor_inputs, tensor_outputs
from fuser.ir.integers.integers import ONE, Int, Symbol
from fuser.ir.ops.enums import ParallelType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.ir.schedule.schedule_propagation import merged_dims

INDEX_LIMIT = 2**30
GRID_LIMIT = 65535
"""Blocks along y and along z."""
THREAD_LIMIT = 1024
"""Threads of a block."""


def collect_facts(
    scheduled: ScheduleBuilder,
    tensors: Mapping[str, TensorDescriptor],
    evaluate: Callable[[Int], int],
    *,
    index_bits: int | None = None,
) -> Facts:
    """The facts a schedule asks for that hold.

    tensors      descriptors of the fusion's tensor inputs by name
    evaluate     value of an extent expression for these inputs
    index_bits   32 asks for the bound and refuses nothing; 64 does not ask; None asks, and takes it if it holds
    """
    tensors = {name: planned_layout(t) for name, t in tensors.items()}
    facts: list[Fact] = []
    for t in scheduled.fusion.input_tensors:
        if not t.is_cpu:
            facts += layout_facts(t.name, tensors[t.name])
            facts += _known_extents(t, tensors[t.name])
    for t, width in vectorized_arguments(scheduled):
        described = tensors.get(t.name)
        if described is None:  # an output: its storage is ours, its extents are the inputs'
            facts += _output_vector_facts(scheduled, t, width, evaluate)
        else:
            facts = _with_run(t.name, described, facts, _dims_of_vectors(scheduled, t))
            facts += _vector_facts(t, width, described, frozenset(facts))
    facts += scheduled.required_facts
    facts += _disjoint_facts(scheduled)
    facts += _launch_facts(scheduled)
    kept = those_that_hold(facts, tensors, evaluate)
    if index_bits != 64:
        bounds: list[Fact] = [
            IndexBound(t.name, INDEX_LIMIT) for t in scheduled.fusion.input_tensors if t.visible and not t.is_cpu
        ]
        bounds.append(LoopBound(INDEX_LIMIT, loop_products(scheduled)))
        if all(holds(f, tensors, evaluate) for f in bounds):
            kept.update(bounds)
    return frozenset(kept)


def _known_extents(tensor: Tensor, described: TensorDescriptor) -> list[Fact]:
    """Dims of one element, as such: schedules leave them and their strides out of account, which may be any numbers. And those
    that are numbers in the fusion, as told or as found when inputs were bound: kernels have no others."""
    dims = enumerate(zip(tensor.visible, described.sizes, strict=True))
    return [
        ExtentIs(tensor.name, i, n)
        for i, (d, n) in dims
        if d.extent.is_const or (n == 1 and isinstance(d.extent, Symbol))
    ]


def declared_facts(scheduled: ScheduleBuilder, *, index_bits: int | None = None) -> Facts:
    """The facts of inputs that lie as they were declared and suit every vectorized access: what source is printed for when
    there are no inputs."""
    facts: list[Fact] = []
    for t in scheduled.fusion.input_tensors:
        if t.is_cpu:
            continue
        inner: int | None = None
        for d, contiguous in zip(reversed(memory_order(t.stride_order)), reversed(t.contiguity), strict=True):
            if contiguous is None:
                if t.visible[d].expanded:
                    facts.append(ZeroStride(t.name, d))
                continue
            if contiguous:
                facts.append(UnitStride(t.name, d) if inner is None else DenseStride(t.name, d, inner))
            inner = d
        if t.visible and index_bits != 64:
            facts.append(IndexBound(t.name, INDEX_LIMIT))
    for t, width in vectorized_arguments(scheduled):
        if t.name in scheduled.input_names:
            nbytes = width * t.dtype.itemsize
            order = memory_order(t.stride_order)
            facts += [Aligned(t.name, nbytes), ExtentDivisible(t.name, order[-1], width)]
            facts += [StrideDivisible(t.name, d, nbytes) for d in order[:-1]]
    facts += scheduled.required_facts
    if index_bits != 64:
        facts.append(LoopBound(INDEX_LIMIT, loop_products(scheduled)))
    return frozenset(facts)


def vectorized_arguments(scheduled: ScheduleBuilder) -> list[tuple[Tensor, int]]:
    """(argument, width) for every argument that a vectorized copy reads or writes."""
    found: list[tuple[Tensor, int]] = []
    arguments = scheduled.input_names | scheduled.output_names
    for expr in scheduled.exprs:
        if not is_copy(expr):
            continue
        result = tensor_outputs(expr)[0]
        state = scheduled.state(result.name)
        for axis in state.loop:
            if state.parallel_type(axis) is ParallelType.vectorize and axis.extent.is_const:
                moved = (*tensor_inputs(expr)[:1], result)
                found += [(t, axis.extent.value) for t in moved if t.name in arguments]
    return found


def _output_vector_facts(
    scheduled: ScheduleBuilder, tensor: Tensor, width: int, evaluate: Callable[[Int], int]
) -> list[Fact]:
    """The fastest extent that is divisible, as a fact about the input that has it."""
    owners: dict[Int, tuple[str, int]] = {
        d.extent: (t.name, i)
        for t in scheduled.fusion.input_tensors
        if not t.is_cpu
        for i, d in enumerate(t.visible)
        if isinstance(d.extent, Symbol)
    }
    # If no input has the output's own symbols: equal extents of inputs.
    extent = divisible_extent_of_output(tensor, width, owners, evaluate, lambda d: [d.extent])
    if extent is None:
        graph = scheduled.exact_graph()
        extent = divisible_extent_of_output(
            tensor, width, owners, evaluate, lambda d: [m.extent for m in graph.same_dims(d)]
        )
    return [] if extent is None else [ExtentDivisible(*owners[extent], width)]


def divisible_extent_of_output(
    tensor: Tensor,
    width: int,
    owned: Container[Int],
    evaluate: Callable[[Int], int],
    extents: Callable[[IterDomain], Iterable[Int]],
) -> Int | None:
    """The extent that must be divisible if vectors of `width` are stored: the fastest divisible one of those that are `owned`
    by dims of inputs. Expressions are not required to be divisible: that implies nothing about their symbols.

    extents  what is known to be the extent of a dim
    """
    for dim in reversed(memory_order(tensor.stride_order)):
        for extent in extents(tensor.visible[dim]):
            if extent in owned and evaluate(extent) % width == 0:
                return extent
    return None


def _dims_of_vectors(scheduled: ScheduleBuilder, tensor: Tensor) -> list[int]:
    """The dims of an argument that are merged into the vectorized loops of its copies, slowest first."""
    found: dict[int, None] = {}
    for expr in scheduled.exprs:
        if is_copy(expr) and tensor in tensor_inputs(expr)[:1]:
            result = tensor_outputs(expr)[0]
            state = scheduled.state(result.name)
            for axis in state.loop:
                if state.parallel_type(axis) is ParallelType.vectorize:
                    found |= dict.fromkeys(result.visible.index(d) for d in merged_dims(axis) if d in result.visible)
    return list(found)


def _with_run(name: str, described: TensorDescriptor, facts: list[Fact], run: Sequence[int]) -> list[Fact]:
    """The facts of an argument such that the dims merged into its vectors (`run`, slowest first) are neighbours where they are.

    Dims of one element, whose strides may be any numbers, are told to lie where the schedule has merged them: dense around the
    next dim of the run, or inside the last one that has more. Those in no vector have a stride of 0: none begins behind one.
    Of a run that ends in another dim there is nothing to tell: two would be told around each other.
    """
    told = stride_facts(f for f in facts if getattr(f, "tensor", None) == name)
    ones = {d for d, n in enumerate(described.sizes) if n == 1}
    units = [d for d, s in enumerate(described.strides) if s == 1 and d not in ones]
    wide = [d for d in run if d not in ones]
    if len(units) != 1 or not run or wide[-1:] not in ([], units):
        return facts
    inside: list[int] = []
    while isinstance(fact := told.get((name, inside[-1] if inside else units[0])), DenseStride):
        inside.append(fact.inner)
    around = {f.inner for f in told.values() if isinstance(f, DenseStride)}
    apart = [d for d in ones - around - set(run) if isinstance(told.get((name, d)), UnitStride)]
    if not inside and not apart and ones.isdisjoint(run):
        return facts
    told[name, units[0]] = UnitStride(name, units[0])
    for dim in (*inside, *apart):
        told[name, dim] = ZeroStride(name, dim)
    for dim, inner in pairwise(run):
        if dim in ones or dim in units or isinstance(told.get((name, dim)), DenseStride):
            told[name, dim] = DenseStride(name, dim, inner)
    if run[-1] in ones:
        told[name, run[-1]] = UnitStride(name, run[-1])
    # What lay around a dim that has moved may lie around the run.
    for (_, dim), fact in list(told.items()):
        is_broken = dim not in run and not holds(fact, {name: described}, lambda e: e.value, told)
        if is_broken and isinstance(fact, DenseStride) and dim not in ones:
            told[name, dim] = DenseStride(name, dim, run[0])
    strides = (UnitStride, ZeroStride, DenseStride)
    return [*(f for f in facts if not isinstance(f, strides) or f.tensor != name), *told.values()]


def _vector_facts(tensor: Tensor, width: int, described: TensorDescriptor, layout: frozenset[Fact]) -> list[Fact]:
    nbytes = width * tensor.dtype.itemsize
    facts: list[Fact] = [Aligned(tensor.name, nbytes)]
    zero = [d for d in range(len(described.sizes)) if ZeroStride(tensor.name, d) in layout]
    facts += [ExtentDivisible(tensor.name, d, width) for d in divisible_dims_of_input(tensor, width, described, zero)]
    order = _fastest_first(described)
    facts += [
        StrideDivisible(tensor.name, d, nbytes) for d in order if described.strides[d] != 1 and described.sizes[d] != 1
    ]
    return facts


def divisible_dims_of_input(
    tensor: Tensor, width: int, described: TensorDescriptor, zero: Collection[int] = ()
) -> list[int]:
    """The dims whose extents must be divisible if vectors of `width` are read, of those that are.

    The divisor of the linear index may come from any dim but those of stride 0 (`zero`): the fastest that has it is enough.
    """
    dims: list[int] = []
    for d in _fastest_first(described):
        if d in zero or described.sizes[d] == 1:
            continue
        extent = tensor.visible[d].extent
        if not isinstance(extent, Symbol) and extent.multiple % width != 0:
            # An intermediate's extent that is an expression: a fact about it says nothing about what it is made of.
            continue
        dims.append(d)
        if described.sizes[d] % width == 0:
            break
    return dims


def _fastest_first(described: TensorDescriptor) -> list[int]:
    return sorted(range(len(described.sizes)), key=lambda d: (described.strides[d], -d))


def _disjoint_facts(scheduled: ScheduleBuilder) -> list[Fact]:
    facts: list[Fact] = []
    for output in scheduled.fusion.outputs:
        if output.alias_of is None:
            continue
        facts += [
            Disjoint(output.alias_of.name, t.name)
            for t in scheduled.fusion.input_tensors
            if t is not output.alias_of and not t.is_cpu
        ]
    return facts


def _launch_facts(scheduled: ScheduleBuilder) -> list[Fact]:
    """Limits of the launch for what follows from extents: blocks along y and z, and the threads that one binary serves."""
    blocks: dict[Int, None] = {}
    threads: dict[Int, None] = {}
    for expr in scheduled.exprs:
        state = scheduled.state(tensor_outputs(expr)[0].name)
        product: Int = ONE
        for axis in state.loop:
            parallel_type = state.parallel_type(axis)
            if parallel_type.is_block:
                product = product * axis.extent
            elif parallel_type in (ParallelType.grid_y, ParallelType.grid_z) and not axis.extent.is_const:
                blocks[axis.extent] = None
        if not product.is_const:
            threads[product] = None
    facts: list[Fact] = []
    if blocks:
        facts.append(LaunchBound(GRID_LIMIT, tuple(blocks)))
    if threads:
        # A block that grows gets another variant of the same kernel: only the hardware's limit counts.
        facts.append(LaunchBound(THREAD_LIMIT, tuple(threads)))
    return facts


def loop_products(scheduled: ScheduleBuilder) -> tuple[Int, ...]:
    """Padded trip product of every loop nest: the largest index that can arise."""
    products: dict[Int, None] = {}
    for expr in scheduled.exprs:
        product: Int = ONE
        for axis in scheduled.state(tensor_outputs(expr)[0].name).loop:
            product = product * axis.extent
        if not product.is_const or product.value > INDEX_LIMIT:
            products[product] = None
    return tuple(products)
