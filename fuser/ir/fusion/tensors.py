"""Values of a fusion: tensors with their dims, and scalars. The grammar stands in fusion.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from fuser.ir.integers.integers import ONE, Int, ceil_div
from fuser.ir.ops.dtypes import DataType
from fuser.records import record
from fuser.source_location import SourceLocation


class IterKind(Enum):
    iteration = "i"
    reduction = "r"
    broadcast = "b"

    __hash__ = object.__hash__


@dataclass(slots=True, eq=False)
class IterDomain:
    """One dimension, or an axis that transforms made of dimensions. Compares by identity; never changed once made.

    `expanded`: one stored element is seen `extent` times. `definition` is the transform that made it, if one did.
    """

    name: str
    extent: Int
    kind: IterKind = IterKind.iteration
    expanded: bool = False
    definition: Transform | None = None

    @property
    def is_broadcast(self) -> bool:
        return self.kind is IterKind.broadcast

    @property
    def is_reduction(self) -> bool:
        return self.kind is IterKind.reduction

    def __repr__(self) -> str:
        return f"{self.kind.value}{{{self.name}: {self.extent}}}"


@record(eq=False)
class Split:
    """`source` of extent E becomes (outer, inner) = (ceil(E/f), f), or (f, ceil(E/f)) if not `inner_split`.

    With `aligned`, the name of an argument, the parts begin at multiples of f elements of its memory: the first one has its
    first elements before the row, and there are ceil((E+f-1)/f) of them.
    """

    source: IterDomain
    factor: Int
    inner_split: bool
    outer: IterDomain
    inner: IterDomain
    aligned: str | None = None


def split_count(extent: Int, factor: Int, *, aligned: bool) -> Int:
    """Parts that a split makes of an extent; the first of those that are aligned may hold a single element of it."""
    return ceil_div(extent + (factor - 1) if aligned else extent, factor)


@record(eq=False)
class Merge:
    """(outer, inner) become one axis of their product."""

    outer: IterDomain
    inner: IterDomain
    result: IterDomain


Transform = Split | Merge


@record(eq=False)
class Scalar:
    """A scalar value. `value` is its constant, if it is one; `expression` its value as an integer expression where it
    has one (constants, extents)."""

    name: str
    dtype: DataType
    value: bool | int | float | complex | None = None
    expression: Int | None = None
    location: SourceLocation | None = None

    @property
    def is_constant(self) -> bool:
        return self.value is not None

    def __repr__(self) -> str:
        return repr(self.value) if self.is_constant else self.name


@record(eq=False)
class Tensor:
    """A tensor value.

    logical       dims as the user sees them, reduced ones included
    root          dims as the defining expr produces them, where root -> logical transforms exist (rfactor, reshape); else None
    stride_order  per visible dim, its rank from fastest (0) to slowest; as in define_tensor
    contiguity    in memory order, slowest dim first; None for broadcast and expanded dims
    """

    name: str
    dtype: DataType
    logical: tuple[IterDomain, ...]
    stride_order: tuple[int, ...]
    contiguity: tuple[bool | None, ...]
    root: tuple[IterDomain, ...] | None = None
    is_cpu: bool = False
    location: SourceLocation | None = None

    @property
    def visible(self) -> tuple[IterDomain, ...]:
        """Logical dims without the reduced ones: what users index and consumers see."""
        return _visible(self.logical)

    @property
    def produced(self) -> tuple[IterDomain, ...]:
        """Dims as the defining expr produces them."""
        return self.root if self.root is not None else self.logical

    @property
    def ndim(self) -> int:
        return len(self.visible)

    def __repr__(self) -> str:
        return f"{self.name}[{', '.join(map(repr, self.logical))}]"


def place_in_root(d: IterDomain) -> tuple[IterDomain, Int]:
    """The root that a dim is a part of, and elements of that from one index of the dim to the next."""
    elements = ONE
    while isinstance(made := d.definition, Split):
        elements = elements * made.factor if made.outer is d else elements
        d = made.source
    return d, elements


@lru_cache(maxsize=1 << 12)
def _visible(logical: tuple[IterDomain, ...]) -> tuple[IterDomain, ...]:
    return tuple([d for d in logical if d.kind is not IterKind.reduction])


Val = Tensor | Scalar


def row_major_order(ndim: int) -> tuple[int, ...]:
    """Stride order of a row-major tensor."""
    return tuple(range(ndim - 1, -1, -1))


def memory_order(stride_order: Sequence[int]) -> tuple[int, ...]:
    """Visible dims from slowest to fastest."""
    ndim = len(stride_order)
    order = [0] * ndim
    for dim, rank in enumerate(stride_order):
        order[ndim - 1 - rank] = dim
    return tuple(order)
