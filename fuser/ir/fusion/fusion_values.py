"""Values of a fusion that is being made: inputs, constants, factories, pointwise exprs, and the dims that operands join to."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from fuser.errors import DefinitionRuntimeError
from fuser.ir.fusion.dim_pairs import dim_pairs
from fuser.ir.fusion.fusion import (
    COPIES,
    Distribution,
    Expr,
    ExtentConstraint,
    ExtentOp,
    Full,
    Iota,
    IterDomain,
    IterKind,
    LibraryOp,
    Option,
    Output,
    Pointwise,
    Random,
    Reshape,
    Scalar,
    ScalarOp,
    Tensor,
    Val,
    row_major_order,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.library_calls import Call
from fuser.ir.fusion.library_ops import library_results
from fuser.ir.fusion.views import runs_of
from fuser.ir.integers.integer_nodes import select_atom
from fuser.ir.integers.integers import FALSE, ONE, TRUE, ZERO, Int, const, equal, maximum, symbol
from fuser.ir.ops.dtypes import DataType
from fuser.source_location import SourceLocation, caller_location


class ValueBuilder:
    """Names, values and constraints; see FusionBuilder, which stands on top.

    is_concrete  whether inputs are bound: every dim that turns out to have one element then is known to, and dims that meet
                 are equal. Before that, the extent where only such dims meet is a choice between theirs
    """

    def __init__(self, *, is_concrete: bool = False) -> None:
        self.is_concrete = is_concrete
        self.inputs: list[Val] = []
        self.exprs: list[Expr] = []
        self.outputs: list[Output] = []
        # (position of the expr that asks for it, constraint): constraints of dead exprs are dropped with them. None: an
        # output asks for it.
        self.constraints: list[tuple[int | None, ExtentConstraint]] = []
        self.extent_scalars: dict[str, str] = {}
        self._sizes: dict[tuple[Tensor, int], Scalar] = {}
        # Dims of the first so many exprs that may turn out to have one element and meet other sizes then.
        self._late: set[IterDomain] = set()
        self._looked_at = 0
        self.next_number = 0
        # Names that the next results take instead of fresh ones, when a fusion is rebuilt under its old names.
        self.given_names: deque[str] = deque()
        # The line that results are made for, when a pass makes them; None: the caller's.
        self.location: SourceLocation | None = None

    def here(self) -> SourceLocation | None:
        """The user's line that something is made for."""
        return self.location or caller_location()

    def new_name(self, prefix: str) -> str:
        """A fresh name, `t<k>` or `c<k>`."""
        if self.given_names:
            return self.given_names.popleft()
        self.next_number += 1
        return f"{prefix}{self.next_number - 1}"

    def tensor(
        self,
        dtype: DataType,
        dims: Sequence[tuple[Int, IterKind, bool]],
        *,
        stride_order: tuple[int, ...] | None = None,
        contiguity: tuple[bool | None, ...] | None = None,
        is_cpu: bool = False,
        name: str | None = None,
    ) -> Tensor:
        """A tensor value with dims given as (extent, kind, expanded); dense row major unless a layout is given."""
        name = name or self.new_name("t")
        logical = tuple(
            IterDomain(f"{name}.{i}", extent, kind, expanded) for i, (extent, kind, expanded) in enumerate(dims)
        )
        visible = [d for d in logical if not d.is_reduction]
        order = stride_order if stride_order is not None else row_major_order(len(visible))
        if contiguity is None:
            memory = [visible[i] for i in sorted(range(len(visible)), key=lambda d: -order[d])]
            contiguity = tuple(None if d.is_broadcast or d.expanded else True for d in memory)
        location = self.here()
        return Tensor(name, dtype, logical, order, contiguity, None, is_cpu, location)

    def input_tensor(
        self,
        dtype: DataType,
        shape: Sequence[int],
        *,
        expanded: Sequence[bool] = (),
        stride_order: tuple[int, ...] | None = None,
        contiguity: tuple[bool | None, ...] | None = None,
        is_cpu: bool = False,
        register: bool = True,
    ) -> Tensor:
        """A fusion input. Shape entries: -1 symbolic, 1 broadcast, 0 or above 1 static."""
        name = self.new_name("t")
        dims: list[tuple[Int, IterKind, bool]] = []
        for d, n in enumerate(shape):
            is_expanded = bool(expanded) and expanded[d]
            extent = symbol(f"{name}_size{d}", 0) if n == -1 else const(n)
            kind = IterKind.broadcast if n == 1 and not is_expanded else IterKind.iteration
            dims.append((extent, kind, is_expanded))
        result = self.tensor(dtype, dims, stride_order=stride_order, contiguity=contiguity, is_cpu=is_cpu, name=name)
        if register:
            self.inputs.append(result)
        return result

    def input_scalar(self, dtype: DataType, *, register: bool = True) -> Scalar:
        """A symbolic scalar input."""
        result = Scalar(self.new_name("c"), dtype, location=self.here())
        if register:
            self.inputs.append(result)
        return result

    def constant(self, value: bool | int | float | complex, dtype: DataType) -> Scalar:
        """A constant; `value` already converted to the Python type of `dtype`."""
        expression = const(int(value)) if dtype.is_integral and isinstance(value, int) else None
        return Scalar(self.new_name("c"), dtype, value, expression, self.here())

    def extent_of_scalar(self, scalar: Scalar) -> Int:
        """The integer expression of a scalar used as an extent (a fresh non-negative symbol if it is not a known one)."""
        if scalar.expression is not None:
            return scalar.expression
        self.extent_scalars[scalar.name] = scalar.name
        return symbol(scalar.name, 0)

    def _require_equal(self, left: Int, right: Int, what: str) -> None:
        """Ask that two extents are equal for the expr that is being made (it is appended after its dims are known)."""
        self.constraints.append((len(self.exprs), ExtentConstraint(left, right, what, self.here())))

    def scalar_op(self, op: str, inputs: Sequence[Scalar], dtype: DataType, expression: Int | None = None) -> Scalar:
        """Host arithmetic; constants are the caller's business to fold.

        `expression`: the result as an integer expression, where it is one of extents.
        """
        output = Scalar(self.new_name("c"), dtype, None, expression, self.here())
        self.exprs.append(ScalarOp(op, tuple(inputs), output))
        return output

    def size(self, tensor: Tensor, dim: int) -> Scalar:
        """Extent of visible dim `dim` as an Int scalar, the one that was made for it if there is one; a constant where the
        extent is one."""
        extent = tensor.visible[dim].extent
        if extent.is_const:
            return Scalar(self.new_name("c"), DataType.Int, extent.value, extent, self.here())
        output = self._sizes.get((tensor, dim))
        if output is None or self.given_names:
            output = Scalar(self.new_name("c"), DataType.Int, None, extent, self.here())
            self.exprs.append(ExtentOp(tensor, dim, output))
            self._sizes[tensor, dim] = output
        return output

    def pointwise(self, op: str, inputs: Sequence[Val], dtype: DataType) -> Tensor:
        """An elementwise op over tensors of equal rank (size-1 broadcast dims combine with any extent) and scalars.

        Raises DefinitionRuntimeError where two static extents differ; symbolic ones become constraints.
        """
        tensors = [v for v in inputs if isinstance(v, Tensor)]
        dims = [self._joined_dim(op, [t.visible[i] for t in tensors], i) for i in range(tensors[0].ndim)]
        if op == "cast" or op in COPIES:
            dims = [(d.extent, d.kind, d.expanded) for d in tensors[0].visible]
        output = self.tensor(dtype, dims)
        self.exprs.append(Pointwise(op, tuple(inputs), output))
        return output

    def stride_order(self, tensor: Tensor, order: Sequence[int]) -> Tensor:
        """A dense copy in the given memory order (ranks per dim from fastest 0 to slowest)."""
        dims = [(d.extent, d.kind, d.expanded) for d in tensor.visible]
        output = self.tensor(tensor.dtype, dims, stride_order=tuple(order))
        self.exprs.append(Pointwise("stride_order", (tensor,), output))
        return output

    def _joined_dim(self, op: str, operands: Sequence[IterDomain], position: int) -> tuple[Int, IterKind, bool]:
        concrete = [d for d in operands if not d.is_broadcast]
        if not concrete:
            return const(1), IterKind.broadcast, False
        chosen = next((d for d in concrete if d.extent.is_const), concrete[0])
        differing = [d for d in concrete if d.extent is not chosen.extent]
        for other in differing:
            if other.extent.is_const and chosen.extent.is_const:
                sizes = [str(d.extent) for d in operands]
                raise DefinitionRuntimeError(
                    f"Expected sizes to match in {op}: dim {position} of the operands has extents {', '.join(sizes)}",
                    location=self.here(),
                )
            self._require_equal(chosen.extent, other.extent, f"{op}, dim {position}")
        if not differing or chosen.extent.is_const:
            return chosen.extent, IterKind.iteration, False
        fixed = next((d for d in concrete if self._is_fixed(d)), None)
        if fixed is not None:
            return fixed.extent, IterKind.iteration, False
        joined = chosen.extent if self.is_concrete else joined_extent([d.extent for d in concrete])
        if joined is not chosen.extent:
            self._require_equal(joined, chosen.extent, f"{op}, dim {position}")
        return joined, IterKind.iteration, False

    def library(
        self,
        op: str,
        values: Mapping[str, Val],
        options: Mapping[str, Option] | None = None,
        extents: Sequence[Int] = (),
    ) -> tuple[Tensor, ...]:
        """The results of an op of `library_ops`; `extents`: of dims that are as long as a scalar says.

        Raises DefinitionRuntimeError for operands that do not fit; symbolic extents become constraints.
        """
        given = options or {}
        results = library_results(op, Call(values, given, tuple(extents), self))
        outputs = tuple(self.tensor(r.dtype, r.dims, stride_order=r.stride_order) for r in results)
        names = tuple(values)
        self.exprs.append(LibraryOp(op, tuple(values.values()), names, outputs, tuple(given.items()), tuple(extents)))
        return outputs

    def joined_dim(self, op: str, operands: Sequence[IterDomain], position: int) -> tuple[Int, IterKind, bool]:
        """The dim of the result where these dims meet and broadcast."""
        return self._joined_dim(op, operands, position)

    def require_same(self, left: IterDomain, right: IterDomain, what: str) -> None:
        """Ask that two dims have one extent."""
        if left.extent is right.extent:
            return
        is_one = left.is_broadcast is not right.is_broadcast
        if is_one or (left.extent.is_const and right.extent.is_const):
            raise DefinitionRuntimeError(
                f"{what}: they have extents {left.extent} and {right.extent}"
                + (", and where one is known to be 1 the other must be" if is_one else ""),
                location=self.here(),
            )
        self._require_equal(left.extent, right.extent, what)

    def require_natural(self, extent: Int, what: str) -> None:
        """Ask that an extent is not negative: a constraint, where that is not known."""
        if extent.lo is None or extent.lo < 0:
            self._require_equal(extent, maximum(extent, ZERO), what)

    def _is_fixed(self, dim: IterDomain) -> bool:
        """Whether a dim stays what it is where it has one element, as those of inputs do: it meets no other size then.

        Others are made by factories, expansions, resizes, and reshapes that are resolved when inputs are bound.
        """
        exprs, self._looked_at = self.exprs[self._looked_at :], len(self.exprs)
        for e in exprs:
            if isinstance(e, (ScalarOp, ExtentOp)):
                continue
            for output in tensor_outputs(e):
                fixed: set[IterDomain] = set()
                for source in tensor_inputs(e):
                    pairs = dim_pairs(e, source, output)
                    fixed.update(b for a, b in pairs if not a.is_broadcast and a not in self._late)
                if isinstance(e, LibraryOp):
                    late = {d.extent for t in tensor_inputs(e) for d in t.visible if d in self._late}
                    fixed.update(d for d in output.logical if d.extent not in late and d.extent not in e.extents)
                if isinstance(e, Reshape) and e.is_resolved:
                    for run in runs_of(e):
                        if fixed.issuperset(output.produced[i] for i in run.inputs):
                            fixed.update(output.logical[j] for j in run.outputs)
                self._late.update(d for d in output.logical if d not in fixed and not d.extent.is_const)
        return dim not in self._late

    def _factory_dims(self, extents: Sequence[Int]) -> list[tuple[Int, IterKind, bool]]:
        return [(e, IterKind.broadcast if e.is_const and e.value == 1 else IterKind.iteration, False) for e in extents]

    def full(
        self, extents: Sequence[Int], value: Scalar, dtype: DataType, scalars: Sequence[Scalar | None] = ()
    ) -> Tensor:
        """A tensor of one value. `scalars`: per dim the scalar its extent was given as, None for constants."""
        output = self.tensor(dtype, self._factory_dims(extents))
        self.exprs.append(Full(value, output, tuple(scalars) or (None,) * len(extents)))
        return output

    def iota(self, length: Int, start: Scalar, step: Scalar, dtype: DataType, scalar: Scalar | None = None) -> Tensor:
        """start + i * step. `scalar`: the one the length was given as, None for a constant."""
        output = self.tensor(dtype, self._factory_dims([length]))
        self.exprs.append(Iota(start, step, output, scalar))
        return output

    def random(
        self,
        distribution: Distribution,
        parameters: tuple[Scalar, Scalar],
        extents: Sequence[Int],
        dtype: DataType,
        scalars: Sequence[Scalar | None] = (),
        state: tuple[Val, Val] | None = None,
    ) -> Tensor:
        """A tensor of random numbers. `scalars`: per dim the scalar its extent was given as, None for constants.

        `state`: (seed, offset), integer scalars or tensors of rank 0; None takes the generator's at execution.
        """
        output = self.tensor(dtype, self._factory_dims(extents))
        given = tuple(scalars) or (None,) * len(extents)
        self.exprs.append(Random(distribution, parameters, output, given, state))
        return output


def joined_extent(extents: Sequence[Int]) -> Int:
    """The extent of dims that are equal, but for those that turn out to be 1: the first that is not."""
    joined = extents[-1]
    for e in reversed(extents[:-1]):
        is_one = equal(e, ONE)
        if e is joined or is_one is FALSE:
            joined = e
        elif is_one is not TRUE:
            # One atom, so that what is made of it can be made of the one that is chosen.
            joined = select_atom(is_one, joined, e)
    return joined
