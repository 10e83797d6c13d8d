"""Facts: what a kernel assumes about the arguments it was compiled for, checked when a launch is bound.

Grammar
    facts := frozenset of fact
    fact  := ExtentIs(tensor, dim, value)            the extent is exactly `value`
           | ExtentDivisible(tensor, dim, divisor)
           | ExtentWithin(tensor, dim, low, high)    low <= extent <= high: the row fits where a schedule keeps it
           | UnitStride(tensor, dim)                 stride 1, or at most one element along the dim
           | ZeroStride(tensor, dim)                 stride 0: one stored element
           | DenseStride(tensor, dim, inner)         stride = extent(inner) * stride(inner), or extent <= 1; what facts
                                                     say of stride(inner) counts: see `told_stride`
           | StrideDivisible(tensor, dim, bytes)     stride in bytes, or extent <= 1
           | Aligned(tensor, bytes)                  base address
           | IndexBound(tensor, limit)               sum((extent-1)*|stride|) of the tensor is at most limit
           | LoopBound(limit, products)              every padded trip product of the kernel is at most limit
           | LaunchBound(limit, products)            blocks along y or z, or threads of a block, are at most limit
           | Disjoint(tensor, other)                 the bytes of two arguments do not overlap

Lowering may use nothing else about the first inputs. Every fact holds vacuously for a tensor without elements, `Disjoint` if
either has none, but for those about one extent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from fuser.ir.integers.integers import Int
from fuser.ir.integers.number_trace import searched
from fuser.ir.ops.dtypes import DataType
from fuser.records import record


def byte_span(sizes: Sequence[int], strides: Sequence[int], itemsize: int, address: int = 0) -> tuple[int, int]:
    """Addresses [first, past the last) of the stored bytes; empty for a tensor without elements."""
    low = high = 0
    for n, s in zip(sizes, strides, strict=True):
        if n == 0:
            return address, address
        span = (n - 1) * s
        if span < 0:
            low += span
        else:
            high += span
    return address + low * itemsize, address + (high + 1) * itemsize


@searched
@lru_cache(maxsize=16)
def shared_memory(ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Pairs of ranges [first, past the last) that share bytes, by position; an empty one shares none.

    Of a trace the pairs are guarded, and not the order in which an allocator has put the ranges.
    """
    found: list[tuple[int, int]] = []
    # Those so far that end behind where the next one begins.
    open_ranges: list[tuple[int, int]] = []
    for low, high, i in sorted((low, high, i) for i, (low, high) in enumerate(ranges) if low != high):
        open_ranges = [(end, other) for end, other in open_ranges if end > low]
        found += [(min(i, other), max(i, other)) for _, other in open_ranges]
        open_ranges.append((high, i))
    return tuple(sorted(found))


@record
class TensorDescriptor:
    """What planning and fact checks see of a tensor argument. Strides in elements.

    `alignment` is the largest power of two, up to 256, that divides the base address; `address` is 0 when there is no
    storage yet (a descriptor made by hand), and then overlaps cannot be seen.
    """

    dtype: DataType
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    alignment: int = 256
    address: int = 0

    @property
    def numel(self) -> int:
        """Number of elements the shape spans."""
        total = 1
        for n in self.sizes:
            total *= n
        return total

    @property
    def byte_range(self) -> tuple[int, int]:
        """Addresses [first, past the last) of the stored bytes; empty for a tensor without elements."""
        return byte_span(self.sizes, self.strides, self.dtype.itemsize, self.address)


def planned_layout(tensor: TensorDescriptor) -> TensorDescriptor:
    """What a kernel is planned for: of a tensor without elements, whose facts hold for any strides and any address, the layout
    that `layout_facts` says it has.

    A schedule made for its own strides would rest on facts that tell of others.
    """
    if tensor.numel:
        return tensor
    strides: list[int] = []
    running = 1
    for n in reversed(tensor.sizes):
        strides.insert(0, running)
        running *= max(n, 1)
    return TensorDescriptor(tensor.dtype, tensor.sizes, tuple(strides), address=tensor.address)


@record
class ExtentIs:
    tensor: str
    dim: int
    value: int


@record
class ExtentDivisible:
    tensor: str
    dim: int
    divisor: int


@record
class ExtentWithin:
    tensor: str
    dim: int
    low: int
    high: int


@record
class UnitStride:
    tensor: str
    dim: int


@record
class ZeroStride:
    tensor: str
    dim: int


@record
class DenseStride:
    tensor: str
    dim: int
    inner: int


@record
class StrideDivisible:
    tensor: str
    dim: int
    bytes: int


@record
class Aligned:
    tensor: str
    bytes: int


@record
class IndexBound:
    tensor: str
    limit: int


@record
class LoopBound:
    limit: int
    products: tuple[Int, ...]


@record
class LaunchBound(LoopBound):
    """What a launch can count: says nothing about indices."""


@record
class Disjoint:
    tensor: str
    other: str


Fact = (
    ExtentIs
    | ExtentDivisible
    | ExtentWithin
    | UnitStride
    | ZeroStride
    | DenseStride
    | StrideDivisible
    | Aligned
    | IndexBound
    | LoopBound
    | LaunchBound
    | Disjoint
)
Facts = frozenset[Fact]


StrideFact = UnitStride | ZeroStride | DenseStride
StrideFacts = Mapping[tuple[str, int], StrideFact]
"""What is known of the stride of (tensor, dim)."""


@record
class ToldStride:
    """A stride as facts tell it, and as kernels compute it: the product of `extents` and `constant`, or of `extents` and the
    stride of the dim `base`, which the launch passes as a number."""

    extents: tuple[int, ...]
    base: int | None
    constant: int = 1

    def of(self, t: TensorDescriptor) -> int:
        """Its value for an argument."""
        value = self.constant if self.base is None else t.strides[self.base]
        for dim in self.extents:
            value *= t.sizes[dim]
        return value


def stride_facts(facts: Iterable[Fact]) -> dict[tuple[str, int], StrideFact]:
    """Those about strides, by tensor and dim."""
    return {(f.tensor, f.dim): f for f in facts if isinstance(f, (UnitStride, ZeroStride, DenseStride))}


def told_stride(told: StrideFacts, tensor: str, dim: int) -> ToldStride:
    """The stride of a dim.

    A dim of one element may have any stride. What lies densely around it must not rest on that number, but on the same
    extents and strides as the kernel's index arithmetic: the fact about the dim of one element holds whatever it says.
    """
    extents: list[int] = []
    while True:
        match told.get((tensor, dim)):
            case DenseStride(_, _, inner):
                extents.append(inner)
                dim = inner
            case UnitStride():
                return ToldStride(tuple(extents), None)
            case ZeroStride():
                return ToldStride(tuple(extents), None, 0)
            case None:
                return ToldStride(tuple(extents), dim)


_NOTHING_TOLD: StrideFacts = {}


def holds(
    fact: Fact,
    tensors: Mapping[str, TensorDescriptor],
    evaluate: Callable[[Int], int],
    told: StrideFacts = _NOTHING_TOLD,
) -> bool:
    """Whether a fact is true of the arguments.

    evaluate   the value of a launch-plan expression for them
    told       what other facts say of strides
    """
    if isinstance(fact, LoopBound):
        return all(evaluate(p) <= fact.limit for p in fact.products)
    t = tensors[fact.tensor]
    if isinstance(fact, ExtentIs):
        return t.sizes[fact.dim] == fact.value
    if isinstance(fact, ExtentDivisible):
        return t.sizes[fact.dim] % fact.divisor == 0
    if isinstance(fact, ExtentWithin):
        return fact.low <= t.sizes[fact.dim] <= fact.high
    if t.numel == 0:
        return True
    match fact:
        case UnitStride(_, dim):
            return t.strides[dim] == 1 or t.sizes[dim] == 1
        case ZeroStride(_, dim):
            return t.strides[dim] == 0 or t.sizes[dim] == 1
        case DenseStride(name, dim, inner):
            return t.sizes[dim] == 1 or t.strides[dim] == t.sizes[inner] * told_stride(told, name, inner).of(t)
        case StrideDivisible(_, dim, nbytes):
            return t.sizes[dim] == 1 or t.strides[dim] * t.dtype.itemsize % nbytes == 0
        case Aligned(_, nbytes):
            return t.alignment % nbytes == 0
        case IndexBound(_, limit):
            return sum((n - 1) * abs(s) for n, s in zip(t.sizes, t.strides, strict=True)) <= limit
        case Disjoint(_, other):
            a, b = t.byte_range, tensors[other].byte_range
            is_unplaced = t.address == 0 or tensors[other].address == 0
            return is_unplaced or b[0] == b[1] or a[1] <= b[0] or b[1] <= a[0]


def first_broken(
    facts: Iterable[Fact], tensors: Mapping[str, TensorDescriptor], evaluate: Callable[[Int], int]
) -> Fact | None:
    """A fact that does not hold, or None if all do."""
    facts = tuple(facts)
    told = stride_facts(facts)
    return next((f for f in facts if not holds(f, tensors, evaluate, told)), None)


def those_that_hold(
    facts: Iterable[Fact], tensors: Mapping[str, TensorDescriptor], evaluate: Callable[[Int], int]
) -> set[Fact]:
    """The facts without those that do not hold, and without what rests on these."""
    kept = set(facts)
    while True:
        told = stride_facts(kept)
        broken: dict[Fact, int] = {}
        for f in kept:
            if not holds(f, tensors, evaluate, told):
                rests_on = told_stride(told, f.tensor, f.inner).extents if isinstance(f, DenseStride) else ()
                broken[f] = len(rests_on)
        if not broken:
            return kept
        # One that rests on others may hold without them.
        kept -= {f for f, depth in broken.items() if depth == min(broken.values())}


def layout_facts(name: str, tensor: TensorDescriptor) -> list[Fact]:
    """Strides of an argument as facts, in whatever order its dims are laid out: dims of stride 0, then from the fastest dim
    outwards each one that continues its neighbour densely. Where nothing holds, the kernel takes the stride as a number. A
    tensor without elements is row major (see `planned_layout`)."""
    if tensor.numel == 0:
        return _dense_row_major(name, len(tensor.sizes))
    facts: list[Fact] = []
    inner: int | None = None
    solid: int | None = None  # the last dim of more than one element
    running = 1
    rank = len(tensor.sizes)
    # Dims of one element fit anywhere: they keep their place between their neighbours in row-major order.
    order = sorted(range(rank), key=lambda d: (-tensor.strides[d] if tensor.sizes[d] != 1 else 0, d))
    placed = [d for d in order if tensor.sizes[d] != 1]
    for d in range(rank):
        if tensor.sizes[d] == 1:
            after = next((p for p, other in enumerate(placed) if other > d), len(placed))
            placed.insert(after, d)
    for d in reversed(placed):
        size, stride = tensor.sizes[d], tensor.strides[d]
        if size != 1 and stride == 0:
            facts.append(ZeroStride(name, d))
            continue
        if inner is None and (size == 1 or stride == 1):
            facts.append(UnitStride(name, d))
        elif inner is not None and (size == 1 or stride == running):
            # The stride of a dim of one element may be any number: a neighbour that does not fit it looks past it.
            fits = size == 1 or stride == tensor.sizes[inner] * tensor.strides[inner]
            beyond = inner if fits else solid
            facts.append(UnitStride(name, d) if beyond is None else DenseStride(name, d, beyond))
        if size != 1:
            solid = d
            running = stride
        elif inner is None:
            running = 1
        running *= size
        inner = d
    return facts


def _dense_row_major(name: str, rank: int) -> list[Fact]:
    if not rank:
        return []
    return [UnitStride(name, rank - 1), *(DenseStride(name, d, d + 1) for d in range(rank - 1))]
