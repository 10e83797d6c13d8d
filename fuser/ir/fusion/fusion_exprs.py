"""Exprs of a fusion, what they read and make, and the outputs they are for. The grammar and semantics stand in fusion.py."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from functools import lru_cache

from fuser.ir.fusion.tensors import IterDomain, Scalar, Tensor, Val
from fuser.ir.integers.integers import ZERO, Int
from fuser.records import record


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
    definition: exp, or an approximate form of it.
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
    (`fuser.ir.fusion.concretize` resolves them).

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
    """One dim of a Resize: element i of the result is element i * `step` + `offset` of the input where `begin` <= i < `end`.

    pieces   (first, offset): from element `first` on another offset holds, up to the next of them. They are in order
    step     1 where there are pieces
    """

    offset: Int
    begin: Int
    end: Int
    pieces: tuple[tuple[Int, Int], ...] = ()
    step: int = 1

    @property
    def moves(self) -> bool:
        """Whether elements are found at other indices than their own."""
        return self.offset is not ZERO or bool(self.pieces) or self.step != 1

    @property
    def seams(self) -> tuple[Int, ...]:
        """Where a run of neighbours may end, and by what each is moved."""
        return (self.offset, self.begin, self.end, *(e for piece in self.pieces for e in piece))

    def of(self, inner: Window) -> Window | None:
        """What this window shows of what `inner` shows, which spans its result; None where both have pieces, or one has them
        and the other a step."""
        if self.pieces and inner.pieces:
            return None
        if (self.pieces or inner.pieces) and (self.step != 1 or inner.step != 1):
            return None
        pieces = [(first, offset + inner.offset) for first, offset in self.pieces]
        pieces += [(first - self.offset, self.offset + offset) for first, offset in inner.pieces]
        offset = self.offset * inner.step + inner.offset
        return Window(offset, self.begin, self.end, tuple(pieces), self.step * inner.step)


@record(eq=False)
class Resize:
    """Slices, pads and what they compose to: a window of the input, `fill` around it. A roll has windows of two pieces.

    Windows are those of `output.produced`. A dim of these that is split, into dims of the result, is the root of them.

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

    windows   of a part of what is looked up: per dim of the input where the elements are found, as in a Resize; that of
              `dim` says nothing. Empty where dims are read whole
    fill      of an `index_select`: what is around the windows; None where every window spans the result
    """

    kind: GatherKind
    input: Tensor
    index: Tensor
    output: Tensor
    dim: int
    windows: tuple[Window, ...] = ()
    fill: Scalar | None = None


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
    """Independent numbers of a distribution; `fuser.ir.fusion.random_numbers` says which.

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
    """An op that a library computes: no kernel does, and nothing is fused with it. `fuser.ir.fusion.library_ops` has the rows.

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
    """Whether it can be two exprs, over some of the dims and over the others: no sum of exponentials."""
    return not isinstance(expr, ExpSum)


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
            return (expr.input, expr.index) if expr.fill is None else (expr.input, expr.index, expr.fill)
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
        case Resize() | Gather():
            return tuple(e for w in expr.windows for e in w.seams)
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
    """The same expr over replaced tensors: itself where it has none of them."""
    if tensors.keys().isdisjoint((*tensor_inputs(expr), *tensor_outputs(expr))):
        return expr

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
            source, index, output = get(expr.input), get(expr.index), get(expr.output)
            return Gather(expr.kind, source, index, output, expr.dim, expr.windows, expr.fill)
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


@record
class Output:
    """One `add_output`. `alias_of`: the input whose storage the tensor is written to; `hidden`: not in the returned list."""

    tensor: Tensor
    alias_of: Tensor | None = None

    @property
    def hidden(self) -> bool:
        """An in-place update returns nothing."""
        return self.alias_of is not None
