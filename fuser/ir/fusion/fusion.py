"""Fusion IR: the algorithm, immutable once built, schedule-free. Its values are in tensors.py, its exprs in fusion_exprs.py.

Grammar
    fusion := Fusion(inputs: [val], exprs: [expr], outputs: [Output(tensor, alias_of, hidden)], constraints)
    val    := Tensor | Scalar
    Tensor := (name, dtype, logical: [IterDomain], root: [IterDomain] or None, stride_order, contiguity)
    IterDomain := (name, extent: Int, kind, expanded)            kind := iteration | reduction | broadcast
    expr   := Pointwise(op, inputs, output)        one row of the op table; `set` and `cast` included
            | Reduction(op, input, output)         sum, prod, max, min; reduced dims are output.logical of kind reduction
            | Welford(input, mean, m2, count)
            | ExpSum(input, largest, total)        the maximum and the sum of exp(input - maximum); only `optimize` makes it
            | Scan(op, input, init, output, dim)   cumsum, cumprod, cummin, cummax along a dim, from the value init (or None)
            | Broadcast(input, output, flags)      flags[d] True: output dim d is new, of extent 1
            | Squeeze(input, output, flags)        flags[d] True: input dim d (extent 1, or expanded) is dropped
            | Expand(input, output, extents)       broadcast dims become expanded dims of a given extent
            | Permute(input, output, dims)         output dim i is input dim dims[i]
            | Reshape(input, output, extents)      the elements in row-major order under other dims, see there
            | Resize(input, output, windows, fill) slice, pad: per dim, result[i] = input[i * step + offset], begin <= i < end
            | Cat(inputs, output, dim, bounds)     input k where bounds[k-1] <= index along dim < bounds[k]
            | Gather(kind, input, index, output, dim, windows, fill)   the index along dim is read from `index`
            | Full(value, output, extents) | Iota(start, step, output, length)
            | Random(distribution, parameters, output, extents, state, ordinal)
            | LibraryOp(op, inputs, names, outputs, options, extents)   what a library computes: rows of `library_ops`
            | ScalarOp(op, inputs, output)         host arithmetic
            | ExtentOp(tensor, dim, output)        the extent of a dim as a scalar

Semantics
    * SSA: every value is defined once, in `exprs` order; names `t<k>` / `c<k>` with k the creation number.
    * A dim of kind broadcast has one element and combines with any extent; which input dim meets which output dim of an
      expr is `dim_pairs`, the only definition of "the same dimension" in the project.
    * Extents are integer expressions over the symbols `t<k>_size<d>` (inputs) and `c<k>` (scalars used in shapes).
      Extents that an op requires to be equal and that are not equal by structure are listed in `constraints`.
    * A Random is a pure function of (seed, offset, position of the element): computing it twice gives the same numbers.
      Without a `state` of its own it takes the generator's, which the execution supplies (`GENERATOR_STATE`).
    * Result dims of Reduction/Welford/ExpSum of kind reduction are not visible to users or consumers.
    * Resize and Gather read their input at other indices than their own: such dims of the input are *displaced*
      (`displaced_dims`). No loop over the result is a loop over them.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from fuser.ir.fusion.fusion_equality import Structure, structure_of
from fuser.ir.fusion.fusion_exprs import (
    COPIES,
    GENERATOR_STATE,
    Broadcast,
    Cat,
    Distribution,
    Expand,
    Expr,
    ExpSum,
    ExtentOp,
    Full,
    Gather,
    GatherKind,
    Iota,
    LibraryOp,
    Option,
    Output,
    Permute,
    Pointwise,
    Random,
    Reducing,
    Reduction,
    Reshape,
    Resize,
    ScalarOp,
    Scan,
    Squeeze,
    TensorExpr,
    Welford,
    Window,
    expr_extents,
    expr_inputs,
    expr_outputs,
    extent_operands,
    has_steps,
    is_copy,
    map_expr,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.iteration_graph import IterationGraph
from fuser.ir.fusion.live_order import all_operands, exprs_below
from fuser.ir.fusion.tensors import (
    IterDomain,
    IterKind,
    Merge,
    Scalar,
    Split,
    Tensor,
    Transform,
    Val,
    memory_order,
    row_major_order,
    split_count,
)
from fuser.ir.integers.integers import Int
from fuser.records import record
from fuser.source_location import SourceLocation

__all__ = [
    "Broadcast",
    "COPIES",
    "Cat",
    "Distribution",
    "ExpSum",
    "Expand",
    "Expr",
    "ExtentConstraint",
    "ExtentOp",
    "Full",
    "Fusion",
    "GENERATOR_STATE",
    "Gather",
    "GatherKind",
    "Iota",
    "IterDomain",
    "IterKind",
    "LibraryOp",
    "Merge",
    "Option",
    "Output",
    "Permute",
    "Pointwise",
    "Random",
    "Reducing",
    "Reduction",
    "Reshape",
    "Resize",
    "Scalar",
    "ScalarOp",
    "Scan",
    "Split",
    "Squeeze",
    "Tensor",
    "TensorExpr",
    "Transform",
    "Val",
    "Welford",
    "Window",
    "expr_extents",
    "expr_inputs",
    "expr_outputs",
    "extent_operands",
    "has_steps",
    "is_copy",
    "live_exprs",
    "map_expr",
    "memory_order",
    "next_number",
    "row_major_order",
    "split_count",
    "tensor_inputs",
    "tensor_outputs",
    "undefined_leaves",
]


@record
class ExtentConstraint:
    """Two extents that must be equal when inputs are bound. `what` names the op and dims for the message."""

    left: Int
    right: Int
    what: str
    location: SourceLocation | None = None


@dataclass(frozen=True, eq=False)
class Fusion:
    """An immutable fusion. Equality and hash are structural (fuser.ir.fusion.fusion_equality); names do not count."""

    inputs: tuple[Val, ...]
    exprs: tuple[Expr, ...]
    outputs: tuple[Output, ...]
    constraints: tuple[ExtentConstraint, ...] = ()
    # (symbol name -> scalar name) of scalars used as extents
    extent_scalars: dict[str, str] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """Pickles and copies have the fields; what follows from them is found anew."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @cached_property
    def structure(self) -> Structure:
        """What equality and hash look at."""
        return structure_of(self.inputs, live_exprs(self), self.outputs)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Fusion) and self.structure == other.structure

    def __hash__(self) -> int:
        return hash(self.structure)

    @cached_property
    def answers(self) -> dict[object, Any]:
        """What has been found out about the structure, by question: see fuser.ir.fusion.memoized."""
        return {}

    @cached_property
    def dims(self) -> IterationGraph:
        """Which dims are the same: the exact view. Shared, so ask for groups of dims only."""
        return IterationGraph(self.tensor_exprs, self.tensors).settled()

    @cached_property
    def resolved_dims(self) -> IterationGraph:
        """The resolving view, in which a broadcast dim is the dim that resolves it. Shared as well."""
        return IterationGraph(self.tensor_exprs, self.tensors, resolving=True).settled()

    @cached_property
    def definitions(self) -> dict[Val, Expr]:
        """The expr that defines each computed value."""
        return {v: e for e in self.exprs for v in expr_outputs(e)}

    @cached_property
    def tensor_exprs(self) -> tuple[TensorExpr, ...]:
        """The exprs that kernels compute, in order."""
        return tuple(e for e in self.exprs if not isinstance(e, (ScalarOp, ExtentOp)))

    @cached_property
    def draws(self) -> int:
        """Number of random exprs that take the generator's state."""
        return sum(isinstance(e, Random) and e.state is None for e in self.exprs)

    @cached_property
    def input_tensors(self) -> tuple[Tensor, ...]:
        return tuple(v for v in self.inputs if isinstance(v, Tensor))

    @cached_property
    def input_scalars(self) -> tuple[Scalar, ...]:
        return tuple(v for v in self.inputs if isinstance(v, Scalar))

    @cached_property
    def output_tensors(self) -> tuple[Tensor, ...]:
        """Distinct output tensors in order of first registration."""
        return tuple(dict.fromkeys(o.tensor for o in self.outputs))

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor: inputs, then results in order."""
        made = itertools.chain.from_iterable(tensor_outputs(e) for e in self.tensor_exprs)
        return tuple(dict.fromkeys(itertools.chain(self.input_tensors, made)))

    def uses(self, value: Val) -> list[Expr]:
        """Exprs that read a value, in order."""
        return [e for e in self.exprs if value in expr_inputs(e)]


def live_exprs(fusion: Fusion) -> list[Expr]:
    """Exprs that outputs depend on, in depth-first post-order: outputs in order, operands left to right."""
    return exprs_below((o.tensor for o in fusion.outputs), fusion.definitions)


def undefined_leaves(fusion: Fusion) -> list[Val]:
    """Values that exprs or outputs read and nothing defines: neither inputs nor constants nor results."""
    known: set[Val] = {*fusion.inputs, *(v for e in fusion.exprs for v in expr_outputs(e))}
    read = [*(v for e in fusion.exprs for v in all_operands(e)), *(o.tensor for o in fusion.outputs)]
    missing = (v for v in read if v not in known and not (isinstance(v, Scalar) and v.is_constant))
    return list(dict.fromkeys(missing))


def next_number(fusion: Fusion) -> int:
    """The first n from which on no value is called t<n> or c<n>: constants and inputs that nothing reads count as well."""
    values = (v for e in fusion.exprs for v in (*expr_inputs(e), *extent_operands(e), *expr_outputs(e)))
    names = [v.name for v in (*fusion.inputs, *values)]
    return 1 + max((int(n[1:]) for n in names if n[1:].isdecimal()), default=0)
