"""Library calls as rules see them: operands, the dims that meet, results, and what a row of `library_ops` says of an op."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol, TypeAlias

from fuser.errors import DefinitionRuntimeError
from fuser.ir.fusion.fusion import IterDomain, IterKind, LibraryOp, Option, Tensor, Val
from fuser.ir.integers.integers import Int
from fuser.ir.ops.dtypes import DataType
from fuser.records import record

Dim: TypeAlias = tuple[Int, IterKind, bool]


class DimRules(Protocol):
    """What a rule asks of dims that meet. Both raise DefinitionRuntimeError for static extents that differ."""

    def joined_dim(self, op: str, operands: Sequence[IterDomain], position: int) -> Dim:
        """The dim of the result where these meet and broadcast."""
        ...

    def require_same(self, left: IterDomain, right: IterDomain, what: str) -> None:
        """Ask that two dims have one extent. Where one is known to have one element, the other is as well."""
        ...

    def require_natural(self, extent: Int, what: str) -> None:
        """Ask that an extent is not negative."""
        ...


@record
class Call:
    """An op with its operands: `values` by parameter, and what is known by definition."""

    values: Mapping[str, Val]
    options: Mapping[str, Option]
    extents: tuple[Int, ...]
    dims: DimRules

    def tensor(self, name: str) -> Tensor:
        """The tensor of a parameter that is not optional."""
        value = self.values[name]
        assert isinstance(value, Tensor)
        return value

    def optional(self, name: str) -> Tensor | None:
        """The tensor of a parameter, if it was given."""
        value = self.values.get(name)
        return value if isinstance(value, Tensor) else None


@record
class Result:
    """One result. `stride_order`: its memory order, None for row major."""

    dtype: DataType
    dims: tuple[Dim, ...]
    stride_order: tuple[int, ...] | None = None


@record(eq=False)
class LibraryRow:
    """One op.

    tensors   parameters that are tensors; those in `optional` may be left out
    numbers   parameters that are numbers or scalars of the fusion, all of which may be left out
    options   parameters that are constants of the definition
    results   the rule for its results. Raises DefinitionRuntimeError for operands that do not fit
    outputs   names of its results
    folded    the dim of an operand of which each element of the result takes all, for tolerances; None if there is none
    reason    why no kernel of this project computes it
    """

    name: str
    tensors: tuple[str, ...]
    results: Callable[[Call], Sequence[Result]]
    outputs: tuple[str, ...]
    reason: str
    optional: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    folded: Callable[[LibraryOp], IterDomain | None] = lambda expr: None
    # Dims of the first result where dims of operands meet and broadcast, each with those.
    meets: Callable[[LibraryOp], Sequence[tuple[IterDomain, list[IterDomain]]]] = lambda expr: ()
    # Numbers that are extents of results, and what else runs must fulfil: it raises InputRuntimeError for sizes and numbers.
    extents: tuple[str, ...] = ()
    check: Callable[[Mapping[str, tuple[int, ...]], Mapping[str, Any]], None] | None = None
    # What options are where they are not given; and parameters that are asked for, and may be None.
    defaults: Mapping[str, Option] = field(default_factory=dict)
    nullable: tuple[str, ...] = ()
    # The order of the parameters where it is not tensors, numbers, options; how one is spelled in a definition.
    order: tuple[str, ...] = ()
    spelled: Mapping[str, str] = field(default_factory=dict)

    @property
    def parameters(self) -> tuple[str, ...]:
        """All, in the order of the definition's op."""
        return self.order or (*self.tensors, *self.numbers, *self.options)


def kept(d: IterDomain) -> Dim:
    """A dim as results have it: what an operand sees several times is stored as often."""
    return d.extent, d.kind, False


def check_floating(op: str, tensors: Mapping[str, Tensor | None]) -> DataType:
    """The element type of operands, which must be one, and floating."""
    given = {name: t.dtype for name, t in tensors.items() if t is not None}
    first = next(iter(given.values()))
    if any(dtype is not first for dtype in given.values()):
        texts = ", ".join(f"{name} {dtype.name}" for name, dtype in given.items())
        raise DefinitionRuntimeError(f"{op}(): operands must have one dtype, got {texts}: cast them")
    if not first.is_floating or first.itemsize < 2:
        raise DefinitionRuntimeError(
            f"{op}(): operands must be Half, BFloat16, Float or Double, got {first.name}: cast them"
        )
    return first
