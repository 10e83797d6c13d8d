"""Fusion IR: the algorithm, immutable once built, schedule-free.

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
            | Resize(input, output, windows, fill) slice and pad: per dim, result[i] = input[i + offset] for begin <= i < end
            | Cat(inputs, output, dim, bounds)     input k where bounds[k-1] <= index along dim < bounds[k]
            | Gather(kind, input, index, output, dim)   the index along dim is read from `index`
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
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from fuser.ir.dtypes import DataType
from fuser.ir.integers import Int, ceil_div
from fuser.records import record
from fuser.source_location import SourceLocation

if TYPE_CHECKING:
    from fuser.ir.fusion_equality import Structure
    from fuser.ir.iteration_graph import IterationGraph


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


@lru_cache(maxsize=1 << 12)
def _visible(logical: tuple[IterDomain, ...]) -> tuple[IterDomain, ...]:
    return tuple([d for d in logical if d.kind is not IterKind.reduction])


Val = Tensor | Scalar


# --- exprs ------------------------------------------------------------------------------------------------------------


@record(eq=False)
class Pointwise:
    op: str
    inputs: tuple[Val, ...]
    output: Tensor


@record(eq=False)
class Reduction:
    op: str
    input: Tensor
    output: Tensor


@record(eq=False)
class Welford:
    """Mean, sum of squared deviations and count over the reduced dims. An rfactored second stage takes the triple of the
    first (`partial` = its m2 and count)."""

    input: Tensor
    mean: Tensor
    m2: Tensor
    count: Tensor
    partial: tuple[Tensor, Tensor] | None = None


@record(eq=False)
class ExpSum:
    """The largest element over the reduced dims, and the sum of exp(element - largest): what a softmax and the logarithm of a
    sum of exponentials need of a row, in one pass.

    As max, sub, exp and sum give it: a nan makes both nan, an infinity the sum, and so does a row of nothing but -infinity. An
    rfactored second stage takes the pair of the first (`partial` = its total). `op` is what the exponentials were in the
    definition: exp, or a coarse form of it.
    """

    input: Tensor
    largest: Tensor
    total: Tensor
    op: str = "exp"
    partial: Tensor | None = None


@record(eq=False)
class Scan:
    """Output element i along visible dim `dim` folds `init`, if there is one, and input elements 0 to i."""

    op: str
    input: Tensor
    init: Scalar | None
    output: Tensor
    dim: int

    @property
    def axis(self) -> IterDomain:
        """The output's dim that the scan runs along."""
        return self.output.produced[self.dim]


@record(eq=False)
class Broadcast:
    input: Tensor
    output: Tensor
    flags: tuple[bool, ...]


@record(eq=False)
class Squeeze:
    input: Tensor
    output: Tensor
    flags: tuple[bool, ...]


@record(eq=False)
class Expand:
    """`extents`: per output dim, the scalar its extent was given as; None where it is a constant or kept."""

    input: Tensor
    output: Tensor
    extents: tuple[Scalar | None, ...] = ()


@record(eq=False)
class Permute:
    input: Tensor
    output: Tensor
    dims: tuple[int, ...]


@record(eq=False)
class Reshape:
    """The elements of the input in row-major order of its logical dims, under other dims.

    A *resolved* one has root dims, those of the input, and its logical dims are made of them by exact merges and splits; no
    dim has one element. Others have no root: which dims follow from which is known when inputs are bound
    (`fuser.ir.concretize` resolves them).

    `extents`: per output dim, the scalar its extent was given as; None where it is a constant or follows from the others.
    """

    input: Tensor
    output: Tensor
    extents: tuple[Scalar | None, ...] = ()

    @property
    def is_resolved(self) -> bool:
        return self.output.root is not None


@record
class Window:
    """One dim of a Resize: element i of the result is element i + `offset` of the input where `begin` <= i < `end`."""

    offset: Int
    begin: Int
    end: Int


@record(eq=False)
class Resize:
    """Slices, pads and what they compose to: a window of the input, `fill` around it.

    fill      None where every window spans the result
    scalars   (start, end) of each sliced dim, (left, right) of each padded one: the scalars these were given as, None for
              constants
    """

    input: Tensor
    output: Tensor
    windows: tuple[Window, ...]
    fill: Scalar | None = None
    scalars: tuple[tuple[Scalar | None, Scalar | None], ...] = ()


@record(eq=False)
class Cat:
    """Element i along `dim` comes from the input k with bounds[k-1] <= i < bounds[k] (nothing bounds the first and last).

    The inputs have the shape of the result; of each, only that part is used.
    """

    inputs: tuple[Tensor, ...]
    output: Tensor
    dim: int
    bounds: tuple[Int, ...]


class GatherKind(Enum):
    """`index_select` puts the dims of the index (one of extent 1 for rank 0) in the place of the gathered dim, for each index
    all that lies there; the others take one element per index, and `take_along_axis` broadcasts the other dims."""

    index_select = "index_select"
    gather = "gather"
    take_along_axis = "take_along_axis"

    __hash__ = object.__hash__


@record(eq=False)
class Gather:
    """Elements of the input whose index along `dim` is read from `index`; other dims are read at the result's index.

    An index outside the extent of the dim is the caller's fault: what is read then is unspecified.
    """

    kind: GatherKind
    input: Tensor
    index: Tensor
    output: Tensor
    dim: int


@record(eq=False)
class Full:
    """`extents`: per dim, the scalar its extent was given as; None where it is a constant."""

    value: Scalar
    output: Tensor
    extents: tuple[Scalar | None, ...] = ()


@record(eq=False)
class Iota:
    """start + i * step. `length`: the scalar the extent was given as, None where it is a constant."""

    start: Scalar
    step: Scalar
    output: Tensor
    length: Scalar | None = None


class Distribution(Enum):
    """What random numbers follow, and what their two parameters are."""

    uniform = "uniform"  # lower end, included; upper end, excluded
    normal = "normal"  # mean, standard deviation

    __hash__ = object.__hash__


# Scalars that an execution supplies where a Random has no state of its own: names of kernel and program arguments.
GENERATOR_STATE = ("rng_seed", "rng_offset")


@record(eq=False)
class Random:
    """Independent numbers of a distribution; `fuser.ir.random_numbers` says which.

    state    (seed, offset), Int scalars or tensors of rank 0; None: those of the generator
    ordinal  without a state: the position among the fusion's random exprs that have none, in canonical order, added to
             the generator's offset. A frozen fusion has it; it follows from the rest
    extents  per dim, the scalar its extent was given as; None where it is a constant
    """

    distribution: Distribution
    parameters: tuple[Scalar, Scalar]
    output: Tensor
    extents: tuple[Scalar | None, ...] = ()
    state: tuple[Val, Val] | None = None
    ordinal: int = 0


Option = bool | int | float | None
"""A parameter of a library's op that is known by definition."""


@record(eq=False)
class LibraryOp:
    """An op that a library computes: no kernel does, and nothing is fused with it. `fuser.ir.library_ops` has the rows.

    names    of each input the parameter of the op that it is for
    options  the op's other parameters, by name
    extents  of dims of the results that are as long as a scalar says
    """

    op: str
    inputs: tuple[Val, ...]
    names: tuple[str, ...]
    outputs: tuple[Tensor, ...]
    options: tuple[tuple[str, Option], ...] = ()
    extents: tuple[Int, ...] = ()

    def input(self, name: str) -> Val | None:
        """The value of a parameter; None for one that was left out."""
        return next((v for n, v in zip(self.names, self.inputs, strict=True) if n == name), None)


@record(eq=False)
class ScalarOp:
    op: str
    inputs: tuple[Scalar, ...]
    output: Scalar


@record(eq=False)
class ExtentOp:
    tensor: Tensor
    dim: int
    output: Scalar


TensorExpr = (
    Pointwise
    | Reduction
    | Welford
    | ExpSum
    | Scan
    | Broadcast
    | Squeeze
    | Expand
    | Permute
    | Reshape
    | Resize
    | Cat
    | Gather
    | Full
    | Iota
    | Random
    | LibraryOp
)
Expr = TensorExpr | ScalarOp | ExtentOp
Reducing = Reduction | Welford | ExpSum
"""The exprs whose results lack dims of their operand."""


def has_steps(expr: Reducing) -> bool:
    """Whether it can be two exprs, over some of the dims and over the others: no sum of exponentials, and no statistics of
    complex numbers."""
    return isinstance(expr, Reduction) or (isinstance(expr, Welford) and not expr.mean.dtype.is_complex)


# Exprs never change, and every walk over a fusion asks each for its operands and results.
@lru_cache(maxsize=1 << 12)
def expr_inputs(expr: Expr) -> tuple[Val, ...]:
    """Operands, left to right."""
    match expr:
        case Pointwise() | ScalarOp() | Cat() | LibraryOp():
            return expr.inputs
        case Resize():
            return (expr.input,) if expr.fill is None else (expr.input, expr.fill)
        case Gather():
            return (expr.input, expr.index)
        case Welford():
            return (expr.input, *(expr.partial or ()))
        case ExpSum():
            return (expr.input,) if expr.partial is None else (expr.input, expr.partial)
        case Scan():
            return (expr.input,) if expr.init is None else (expr.input, expr.init)
        case Reduction() | Broadcast() | Squeeze() | Expand() | Permute() | Reshape():
            return (expr.input,)
        case Full():
            return (expr.value,)
        case Iota():
            return (expr.start, expr.step)
        case Random():
            return (*expr.parameters, *(expr.state or ()))
        case ExtentOp():
            return (expr.tensor,)


def expr_outputs(expr: Expr) -> tuple[Val, ...]:
    """Results, in order."""
    return (expr.output,) if isinstance(expr, (ScalarOp, ExtentOp)) else tensor_outputs(expr)


def next_number(fusion: Fusion) -> int:
    """The first n from which on no value is called t<n> or c<n>: constants and inputs that nothing reads count as well."""
    values = (v for e in fusion.exprs for v in (*expr_inputs(e), *extent_operands(e), *expr_outputs(e)))
    names = [v.name for v in (*fusion.inputs, *values)]
    return 1 + max((int(n[1:]) for n in names if n[1:].isdecimal()), default=0)


def extent_operands(expr: Expr) -> tuple[Scalar, ...]:
    """Scalars that only say how large the result is: the host needs them, a kernel does not."""
    match expr:
        case Expand() | Reshape() | Full() | Random():
            return tuple(s for s in expr.extents if s is not None)
        case Iota():
            return () if expr.length is None else (expr.length,)
        case Resize():
            return tuple(s for pair in expr.scalars for s in pair if s is not None)
        case _:
            return ()


def expr_extents(expr: Expr) -> tuple[Int, ...]:
    """Integer expressions that an expr computes with: where windows and parts begin and end."""
    match expr:
        case Resize():
            return tuple(e for w in expr.windows for e in (w.offset, w.begin, w.end))
        case Cat():
            return expr.bounds
        case LibraryOp():
            return expr.extents
        case _:
            return ()


@lru_cache(maxsize=1 << 12)
def tensor_inputs(expr: Expr) -> tuple[Tensor, ...]:
    """Tensor operands, left to right."""
    return tuple([v for v in expr_inputs(expr) if isinstance(v, Tensor)])


@lru_cache(maxsize=1 << 12)
def tensor_outputs(expr: TensorExpr) -> tuple[Tensor, ...]:
    """Tensor results."""
    if isinstance(expr, Welford):
        return (expr.mean, expr.m2, expr.count)
    if isinstance(expr, LibraryOp):
        return expr.outputs
    return (expr.largest, expr.total) if isinstance(expr, ExpSum) else (expr.output,)


# Pointwise ops whose result is the operand: `segment_set` also asks for a kernel of its own, and a `stride_order` that is an
# output has the memory order of its tensor whatever its inputs have.
COPIES = frozenset(("set", "segment_set", "stride_order"))


def is_copy(expr: TensorExpr) -> bool:
    """Whether each element of the result is one of `tensor_inputs(expr)[0]`, or a constant: such can be moved as vectors."""
    return isinstance(expr, (Resize, Gather)) or (isinstance(expr, Pointwise) and expr.op in ("set", "stride_order"))


def map_expr(expr: TensorExpr, tensors: dict[Tensor, Tensor]) -> TensorExpr:
    """The same expr over replaced tensors."""

    def get(t: Tensor) -> Tensor:
        return tensors.get(t, t)

    match expr:
        case Pointwise():
            return Pointwise(
                expr.op, tuple(get(v) if isinstance(v, Tensor) else v for v in expr.inputs), get(expr.output)
            )
        case Reduction():
            return Reduction(expr.op, get(expr.input), get(expr.output))
        case Welford():
            partial = (get(expr.partial[0]), get(expr.partial[1])) if expr.partial else None
            return Welford(get(expr.input), get(expr.mean), get(expr.m2), get(expr.count), partial)
        case ExpSum():
            total = None if expr.partial is None else get(expr.partial)
            return ExpSum(get(expr.input), get(expr.largest), get(expr.total), expr.op, total)
        case Scan():
            return Scan(expr.op, get(expr.input), expr.init, get(expr.output), expr.dim)
        case Broadcast():
            return Broadcast(get(expr.input), get(expr.output), expr.flags)
        case Squeeze():
            return Squeeze(get(expr.input), get(expr.output), expr.flags)
        case Expand():
            return Expand(get(expr.input), get(expr.output), expr.extents)
        case Permute():
            return Permute(get(expr.input), get(expr.output), expr.dims)
        case Reshape():
            return Reshape(get(expr.input), get(expr.output), expr.extents)
        case Resize():
            return Resize(get(expr.input), get(expr.output), expr.windows, expr.fill, expr.scalars)
        case Cat():
            return Cat(tuple(map(get, expr.inputs)), get(expr.output), expr.dim, expr.bounds)
        case Gather():
            return Gather(expr.kind, get(expr.input), get(expr.index), get(expr.output), expr.dim)
        case Full():
            return Full(expr.value, get(expr.output), expr.extents)
        case Iota():
            return Iota(expr.start, expr.step, get(expr.output), expr.length)
        case Random():
            state = None
            if expr.state is not None:
                seed, offset = (get(v) if isinstance(v, Tensor) else v for v in expr.state)
                state = (seed, offset)
            return replace(expr, output=get(expr.output), state=state)
        case LibraryOp():
            inputs = tuple(get(v) if isinstance(v, Tensor) else v for v in expr.inputs)
            return replace(expr, inputs=inputs, outputs=tuple(map(get, expr.outputs)))


# --- fusion -----------------------------------------------------------------------------------------------------------


@record
class Output:
    """One `add_output`. `alias_of`: the input whose storage the tensor is written to; `hidden`: not in the returned list."""

    tensor: Tensor
    alias_of: Tensor | None = None

    @property
    def hidden(self) -> bool:
        """An in-place update returns nothing."""
        return self.alias_of is not None


@record
class ExtentConstraint:
    """Two extents that must be equal when inputs are bound. `what` names the op and dims for the message."""

    left: Int
    right: Int
    what: str
    location: SourceLocation | None = None


@dataclass(frozen=True, eq=False)
class Fusion:
    """An immutable fusion. Equality and hash are structural (fuser.ir.fusion_equality); names do not count."""

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
        from fuser.ir.fusion_equality import structure_of

        return structure_of(self)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Fusion) and self.structure == other.structure

    def __hash__(self) -> int:
        return hash(self.structure)

    @cached_property
    def answers(self) -> dict[object, Any]:
        """What has been found out about the structure, by question: see fuser.ir.once."""
        return {}

    @cached_property
    def dims(self) -> IterationGraph:
        """Which dims are the same: the exact view. Shared, so ask for groups of dims only."""
        from fuser.ir.iteration_graph import IterationGraph

        return IterationGraph(self.tensor_exprs, self.tensors).settled()

    @cached_property
    def resolved_dims(self) -> IterationGraph:
        """The resolving view, in which a broadcast dim is the dim that resolves it. Shared as well."""
        from fuser.ir.iteration_graph import IterationGraph

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
