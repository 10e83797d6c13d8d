"""Ops that libraries compute: what they take, and what shapes, element types and memory orders their results have.

A row says all that a definition, a host program and its checks need to know of an op; what computes it is in
`runtime/array_library.py` and `runtime/torch_library.py`. The same rule serves tensors whose sizes are symbols and, when a
host program is bound, tensors whose sizes are known.

    matmul       [.., M, K] x [.., K, N] -> [.., M, N]; of a vector the dim that it lacks is dropped; leading dims broadcast
    linear       [.., K] x [N, K] (+ [N]) -> [.., N]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol, TypeAlias

from fuser.errors import DefinitionRuntimeError, InputRuntimeError
from fuser.ir.dtypes import DataType
from fuser.ir.fusion import IterDomain, IterKind, LibraryOp, Option, Scalar, Tensor, Val, tensor_inputs
from fuser.ir.integers import Int
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
    # What options are where they are not given.
    defaults: Mapping[str, Option] = field(default_factory=dict)

    @property
    def parameters(self) -> tuple[str, ...]:
        return (*self.tensors, *self.numbers, *self.options)


def _kept(d: IterDomain) -> Dim:
    """A dim as results have it: what an operand sees several times is stored as often."""
    return d.extent, d.kind, False


# --- matrix products --------------------------------------------------------------------------------------------------


def _check_floating(op: str, tensors: Mapping[str, Tensor | None]) -> DataType:
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


def _matmul(call: Call) -> Sequence[Result]:
    a, b = call.tensor("arg1"), call.tensor("arg2")
    if not a.ndim or not b.ndim:
        raise DefinitionRuntimeError(
            f"matmul(): operands must have at least one dim, got ranks {a.ndim} and {b.ndim}: multiply by mul"
        )
    dtype = _check_floating("matmul", {"arg1": a, "arg2": b})
    left, right = a.visible, b.visible
    call.dims.require_same(left[-1], right[-2:][0], "matmul, the dims that are summed over")
    dims = [call.dims.joined_dim("matmul", met, i) for i, met in enumerate(_batches(a, b))]
    if a.ndim > 1:
        dims.append(_kept(left[-2]))
    if b.ndim > 1:
        dims.append(_kept(right[-1]))
    return (Result(dtype, tuple(dims)),)


def _batches(*operands: Tensor) -> list[list[IterDomain]]:
    """Leading dims that meet, in order."""
    rows = [t.visible[:-2] for t in operands]
    rank = max(map(len, rows))
    return [[row[i - rank] for row in rows if i - rank >= -len(row)] for i in range(rank)]


def _batches_of_result(expr: LibraryOp) -> Sequence[tuple[IterDomain, list[IterDomain]]]:
    return list(zip(expr.outputs[0].visible, _batches(*tensor_inputs(expr)), strict=False))


def _linear(call: Call) -> Sequence[Result]:
    a, weight, bias = call.tensor("arg1"), call.tensor("arg2"), call.optional("bias")
    if not a.ndim:
        raise DefinitionRuntimeError("linear(): arg1 must have at least one dim, got rank 0")
    if weight.ndim < 2:
        raise DefinitionRuntimeError(f"linear(): arg2 must have at least 2 dims, [N, K], got rank {weight.ndim}")
    if bias is not None and not bias.ndim:
        raise DefinitionRuntimeError("linear(): bias must have at least one dim, [N], got rank 0")
    if weight.ndim > 2 or (bias is not None and bias.ndim > 1):
        ranks = f"{weight.ndim}" if bias is None else f"{weight.ndim} and {bias.ndim}"
        raise DefinitionRuntimeError(
            f"linear(): arg2 is [N, K] and bias [N], got rank {ranks}: more dims are those of several devices, which are not "
            "supported yet; matmul takes batches"
        )
    dtype = _check_floating("linear", {"arg1": a, "arg2": weight, "bias": bias})
    call.dims.require_same(a.visible[-1], weight.visible[-1], "linear, the dims that are summed over")
    # How long the bias is the execution checks, which knows the sizes that the message tells of.
    return (Result(dtype, (*map(_kept, a.visible[:-1]), _kept(weight.visible[0]))),)


def _check_linear(sizes: Mapping[str, tuple[int, ...]], numbers: Mapping[str, Any]) -> None:
    bias = sizes.get("bias")
    shape = [*sizes["arg1"][:-1], sizes["arg2"][0]]
    if bias is not None and bias[0] != shape[-1]:
        raise InputRuntimeError(
            f"linear(): The expanded size of the tensor ({shape[-1]}) must match the existing size ({bias[0]}) at "
            f"non-singleton dimension {len(shape) - 1}.  Target sizes: {shape}.  Tensor sizes: {list(bias)}"
        )


def _last_dim_of(name: str) -> Callable[[LibraryOp], IterDomain | None]:
    def folded(expr: LibraryOp) -> IterDomain | None:
        t = expr.input(name)
        return t.visible[-1] if isinstance(t, Tensor) and t.ndim else None

    return folded


_PRODUCTS = "matrix products need tensor cores, which no kernel of this project uses yet"


LIBRARY_OPS: dict[str, LibraryRow] = {
    row.name: row
    for row in (
        LibraryRow(
            "matmul",
            ("arg1", "arg2"),
            _matmul,
            ("out",),
            _PRODUCTS,
            folded=_last_dim_of("arg1"),
            meets=_batches_of_result,
        ),
        LibraryRow(
            "linear",
            ("arg1", "arg2", "bias"),
            _linear,
            ("out",),
            _PRODUCTS,
            optional=("bias",),
            check=_check_linear,
            folded=_last_dim_of("arg1"),
        ),
    )
}


def library_results(op: str, call: Call) -> Sequence[Result]:
    """The results of an op. Raises DefinitionRuntimeError for operands that do not fit."""
    return LIBRARY_OPS[op].results(call)


def scalar_operands(expr: LibraryOp) -> list[tuple[str, Scalar]]:
    """Numbers that an op takes, by parameter."""
    return [(n, v) for n, v in zip(expr.names, expr.inputs, strict=True) if isinstance(v, Scalar)]
