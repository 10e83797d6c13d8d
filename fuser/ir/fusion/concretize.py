"""What is known of a fusion when inputs are bound: dims that turn out to have one element, slices that turn out to take a whole
dim, and which dims a reshape makes of which.

Results of `full`, `iota`, `expand`, `slice`, `pad` and `cat` may have extents that are known only when inputs are bound. Where
such an extent is 1 the dim combines with any other, as one that was written as 1 would.

    Before:  t1 = full([c0]);  t2 = add(t0[t0_size0], t1[c0])       constraint c0 == t0_size0
    After:   t1 = full([1]);   t2 = add(t0[t0_size0], t1[b 1])      no constraint, for c0 = 1

A slice whose end is clamped to the extent takes all of a dim where it would end behind it: the result has that very dim, which
nothing reads at other indices then.

    Before:  t1 = slice(t0[t0_size0, t0_size1], [1, 0], [n, 4096])      t1[.., min(4096, t0_size1)]
    After:   t1[.., t0_size1], for t0_size1 <= 4096

So do bounds that are clamped to the dim, where it reaches as far: what is cut off at both ends has a known number of elements.

    Before:  t1 = slice(t0[t0_size0], [min(1, t0_size0)], [min(2, t0_size0)])
    After:   t1 = slice(t0[t0_size0], [1], [2]), for t0_size0 >= 2

Where only such dims meet, the result's extent is that of the first that is not 1.

    Before:  t2 = add(t0[c0], t1[c1]);  t2[select(c0 == 1, c1, c0)]
    After:   t2[c1], for c0 = 1; t2[c0] and constraint c0 == c1, for c0 > 1

A reshape of symbolic extents is resolved: for t0 of [4, 6], t1 = reshape(t0, [2, 2, c0]) splits the first dim of t0 and keeps
the second. What follows holds for every shape of equal `resolutions`. A dim of an input that has one element in all of these
shapes is one that was defined as 1: to take it away is no read, and reads around it stay in one kernel.

    Before:  t1 = relu(t0[t0_size0, t0_size1]);  t2 = reshape(t1, [t0_size0 * t0_size1])
    After:   t1 = relu(t0[b 1, t0_size1]);  t2 = squeeze(t1)[t0_size1], for t0_size0 = 1

An extent of at most eight becomes a number if its dim alone is reduced and the result is reduced again (docs/decisions/0025):
planes, such as channels, and coordinates of what all pairs of points have. Each is code of its own then
(optimize/unroll_packed_dims.py).

    Before:  t2 = sub(t0[n, 1, t0_size1], t1[1, m, t1_size1]);  t3 = sum(t2, [2])          constraint t0_size1 == t1_size1
    After:   t2 = sub(t0[n, 1, 3], t1[1, m, 3]);  t3 = sum(t2, [2]), for t0_size1 = t1_size1 = 3
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import product
from typing import assert_never

from fuser.errors import DefinitionRuntimeError, InputRuntimeError
from fuser.ir.fusion.dim_pairs import position_pairs
from fuser.ir.fusion.extent_binding import check_constraints
from fuser.ir.fusion.fusion import (
    Broadcast,
    Cat,
    Expand,
    Expr,
    ExpSum,
    ExtentConstraint,
    ExtentOp,
    Full,
    Fusion,
    Gather,
    GatherKind,
    Iota,
    LibraryOp,
    Permute,
    Pointwise,
    Random,
    Reduction,
    Reshape,
    Resize,
    Scalar,
    ScalarOp,
    Scan,
    Squeeze,
    Tensor,
    TensorExpr,
    Welford,
    Window,
    expr_outputs,
    memory_order,
    row_major_order,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.fusion.library_ops import LIBRARY_OPS
from fuser.ir.fusion.library_regions import has_calls, places_of
from fuser.ir.fusion.memoized import memoized
from fuser.ir.fusion.output_layout import output_stride_order
from fuser.ir.fusion.reduced_again import is_reduced_again
from fuser.ir.fusion.reshape_dims import Resolution, resolve
from fuser.ir.fusion.tensors import IterDomain, IterKind, place_in_root
from fuser.ir.fusion.user_names import extent_text, value_name
from fuser.ir.fusion.views import view_chain, viewed
from fuser.ir.integers.integer_nodes import Environment
from fuser.ir.integers.integers import ONE, ZERO, Int, Max, Min, Select, Symbol, const, replaced
from fuser.ir.ops.scans import SCANS

MOST_ELEMENTS = 8
"""Of a dim that is worth a kernel of its own: see `_small_extents`."""

# Per input tensor: (size, stride) of each dim.
Layouts = Mapping[str, Sequence[tuple[int, int]]]


def dynamic_extents(fusion: Fusion) -> tuple[tuple[Int, Int], ...]:
    """Pairs of an extent that is known only when inputs are bound and what it may turn out to be equal to: 1, for extents of
    factories, expansions and resizes; the extent of the dim that is sliced, for a slice that may take all of it; bounds of
    slices that are not clamped; those of the operands, where all of them may be 1; a few, for coordinates and planes."""
    few = [const(k) for k in range(1, MOST_ELEMENTS + 1)]
    return tuple(dict.fromkeys((*_choices(fusion), *product(_small_extents(fusion), few))))


@memoized
def _choices(fusion: Fusion) -> tuple[tuple[Int, Int], ...]:
    """Those of `dynamic_extents` that decide what an expr is."""
    found: dict[tuple[Int, Int], None] = {}
    for expr in fusion.exprs:
        match expr:
            case Full() | Iota() | Random():
                found.update({(d.extent, ONE): None for d in expr.output.logical if not d.extent.is_const})
            case Expand():
                found.update({(e, ONE): None for e in _expanded_extents(expr) if e is not None and not e.is_const})
            case Resize():
                sizes = list(zip(expr.input.visible, expr.output.produced, strict=True))
                made = [(a, b.extent) for a, b in sizes if b.extent is not a.extent and not b.extent.is_const]
                found.update({(e, ONE): None for _, e in made})
                if expr.fill is None:
                    found.update({(e, a.extent): None for a, e in made if not a.is_broadcast})
                    found.update(dict.fromkeys(_clamped_bounds(expr)))
            case LibraryOp():
                found.update({(e, ONE): None for e in expr.extents if not e.is_const})
                for joined, extents in _joined_by_library(expr):
                    found.update({(e, ONE): None for e in (*extents, joined)})
                    found.update({(joined, e): None for e in extents})
            case Pointwise() | Gather():
                for joined, extents in _joined_extents(expr):
                    found.update({(e, ONE): None for e in (*extents, joined)})
                    found.update({(joined, e): None for e in extents})
            case _:
                pass
    return tuple(found)


def _small_extents(fusion: Fusion) -> Iterator[Int]:
    """Extents of inputs along a dim that alone is reduced, where the result is reduced again: any dim but the last one, and
    the last one of what has more dims than any input that it is computed from."""
    own = {d.extent for t in fusion.input_tensors for d in t.visible if isinstance(d.extent, Symbol)}
    same: dict[Int, frozenset[Int]] = {}
    for c in fusion.constraints:
        both = same.get(c.left, frozenset({c.left})) | same.get(c.right, frozenset({c.right}))
        same.update(dict.fromkeys(both, both))
    sources: dict[Tensor, frozenset[Tensor]] = {t: frozenset({t}) for t in fusion.input_tensors}
    found: dict[Int, None] = {}
    for expr in fusion.tensor_exprs:
        of = frozenset[Tensor]().union(*(sources.get(t, frozenset()) for t in tensor_inputs(expr)))
        sources.update(dict.fromkeys(tensor_outputs(expr), of))
        if not isinstance(expr, Reduction) or not is_reduced_again(fusion, expr.output):
            continue
        axes = [k for k, d in enumerate(expr.output.produced) if d.is_reduction]
        extent = expr.input.visible[axes[0]].extent
        wanted = same.get(extent, frozenset({extent})) & own
        if len(axes) > 1 or not wanted:
            continue
        if axes == [expr.input.ndim - 1]:
            classes = {same.get(d.extent, frozenset({d.extent})) for d in expr.input.visible if not d.is_broadcast}
            dims_of = ({d.extent for d in t.visible} for t in of)
            if not of or any(all(c & dims for c in classes) for dims in dims_of):
                continue
        found.update(dict.fromkeys(wanted))
    yield from found


def _clamped_bounds(expr: Resize) -> Iterator[tuple[Int, Int]]:
    """Ends of a slice that are clamped to the dim, with what they are where the dim reaches as far."""
    for b, w in zip(expr.output.produced, expr.windows, strict=True):
        for bound in (w.offset, w.offset + b.extent * w.step):
            if isinstance(bound, Min):
                yield from ((bound, a) for a in bound.arguments if a.is_const)
            elif isinstance(bound, Max):
                yield from ((bound, a) for a in bound.arguments if not a.is_const and not isinstance(a, (Min, Max)))


def _joined_extents(expr: Pointwise | Gather) -> Iterator[tuple[Int, list[Int]]]:
    """Extents of the result that are a choice between those of the operands, with these; see `joined_extent`."""
    if isinstance(expr, Gather) and expr.kind is not GatherKind.take_along_axis:
        return
    for i, d in enumerate(expr.output.visible):
        if not d.is_broadcast:
            sources = [t.visible[i] for t in tensor_inputs(expr)]
            extents = [s.extent for s in sources if not s.is_broadcast]
            if d.extent not in extents:
                yield d.extent, extents


def _joined_by_library(expr: LibraryOp) -> Iterator[tuple[Int, list[Int]]]:
    """As `_joined_extents`, of dims that broadcast in a library's op."""
    for d, met in LIBRARY_OPS[expr.op].meets(expr):
        extents = [s.extent for s in met if not s.is_broadcast]
        if not d.is_broadcast and d.extent not in extents:
            yield d.extent, extents


def equal_extents(pairs: Sequence[tuple[Int, Int]], extents: Mapping[str, int]) -> frozenset[tuple[Int, Int]]:
    """Those of `dynamic_extents(fusion)` that are equal for these values of the extent symbols."""
    values = Environment(extents)
    return frozenset((e, other) for e, other in pairs if e.compute(values) == other.compute(values))


def _expanded_extents(expr: Expand) -> list[Int | None]:
    """Per output dim the extent it is expanded to; None where it is kept."""
    added = expr.output.ndim - expr.input.ndim
    result: list[Int | None] = []
    for i, d in enumerate(expr.output.visible):
        source = expr.input.visible[i - added] if i >= added else None
        result.append(d.extent if source is None or source.extent is not d.extent else None)
    return result


def reshapes_of(fusion: Fusion) -> tuple[Reshape, ...]:
    """Exprs whose resolutions decide what a fusion is."""
    return tuple(e for e in fusion.exprs if isinstance(e, Reshape))


def resolutions(fusion: Fusion, extents: Mapping[str, int], layouts: Layouts) -> tuple[Resolution, ...]:
    """How each of `reshapes_of(fusion)` is done for these values of the extent symbols and these layouts of inputs.

    Raises InputRuntimeError (`Total element counts across view operation must match`) where numbers of elements differ.
    """
    found: list[Resolution] = []
    # Results of reshapes that are copied: what follows is a view of the copy.
    copied: set[Tensor] = set()
    for e in reshapes_of(fusion):
        found.append(_resolution(fusion, e, extents, layouts, copied))
        if found[-1].copies and has_calls(fusion):
            copied.add(e.output)
    return tuple(found)


def _resolution(
    fusion: Fusion, expr: Reshape, extents: Mapping[str, int], layouts: Layouts, copied: Set[Tensor]
) -> Resolution:
    source, output = expr.input, expr.output

    def values(dims: Sequence[Int]) -> list[int]:
        try:
            return [e.evaluate(extents) for e in dims]
        except ZeroDivisionError:
            return [-1]

    old = [d.extent for d in source.visible]
    new = [d.extent for d in output.visible]
    sizes, new_sizes = values(old), values(new)
    found = resolve(sizes, new_sizes, [e.is_const for e in old], [e.is_const for e in new])
    given = expr.extents or (None,) * len(new)
    zeros = [n == 0 and (e.is_const or s is not None) for n, e, s in zip(new_sizes, new, given, strict=False)]
    if found is None or (0 in sizes and not any(zeros)):
        raise InputRuntimeError(
            f"Total element counts across view operation must match: {value_name(fusion, source)} of shape {sizes}, "
            f"{math.prod(sizes)} elements, cannot become {_shape_text(fusion, new, new_sizes)}",
            location=output.location,
        )
    if found.is_empty:
        return found
    chain = view_chain(fusion, source, lambda t: t in fusion.inputs or t in copied or _is_stored(fusion, t, expr))
    if chain is None:
        return found
    root = chain[0]
    if root.name not in layouts and root in fusion.inputs:
        return found
    dims: list[tuple[int, int]] | None = list(layouts.get(root.name, ()))
    if root not in fusion.inputs:
        order = row_major_order(root.ndim) if root in copied else _stored_order(fusion, root)
        dims = _dense(values([ONE if d.is_broadcast else d.extent for d in root.visible]), order)
    for view in (*chain[1], expr):
        dims = None if dims is None else viewed(view, dims, values([d.extent for d in view.output.visible]))
    return replace(found, copies=True) if dims is None else found


def _is_stored(fusion: Fusion, t: Tensor, reader: Reshape) -> bool:
    """Whether a value is in memory when an expr reads it, or a view of it, because a library call stands between the two."""
    maker = fusion.definitions.get(t)
    if maker is None or not has_calls(fusion) or isinstance(maker, (Broadcast, Permute, Reshape, Squeeze)):
        return False
    if isinstance(maker, LibraryOp):
        return True
    places = _places(fusion)
    return isinstance(maker, TensorExpr) and places[maker] != places[reader]


@memoized
def _places(fusion: Fusion) -> dict[TensorExpr, int]:
    return places_of(fusion)


def _stored_order(fusion: Fusion, t: Tensor) -> tuple[int, ...]:
    """The memory order of what is stored between calls."""
    if isinstance(fusion.definitions[t], LibraryOp) or t not in fusion.output_tensors:
        return t.stride_order
    return output_stride_order(fusion, t)


def _dense(sizes: Sequence[int], order: Sequence[int]) -> list[tuple[int, int]]:
    strides = [0] * len(sizes)
    running = 1
    for d in sorted(range(len(sizes)), key=order.__getitem__):
        strides[d] = running
        running *= sizes[d]
    return list(zip(sizes, strides, strict=True))


def _shape_text(fusion: Fusion, extents: Sequence[Int], sizes: Sequence[int]) -> str:
    """`[x.size(0)//5, 5] = [2, 5]`, or what of it says something."""
    text = f"[{', '.join(extent_text(fusion, e) for e in extents)}]"
    return text if len(sizes) != len(extents) or text == str(sizes) else f"{text} = {sizes}"


def concretize(fusion: Fusion, extents: Mapping[str, int], resolved: tuple[Resolution, ...] | None = None) -> Fusion:
    """The fusion for these values of the extent symbols, under the same names; itself if no dynamic extent is what it may
    turn out to be, and every reshape is resolved.

    `resolved`: the resolutions for these inputs; found for dense ones if they are not given.

    Raises InputRuntimeError where a size that is told contradicts a dim that has to be 1.
    """
    equal = equal_extents(dynamic_extents(fusion), extents)
    reshapes = reshapes_of(fusion)
    if resolved is None:
        resolved = resolutions(fusion, extents, {})
    changed = any(not e.is_resolved or r.copies for e, r in zip(reshapes, resolved, strict=True))
    if not equal and not changed:
        return fusion
    resolution_of = dict(zip((e.output for e in reshapes), resolved, strict=True))
    decided = equal.intersection(_choices(fusion))
    made = _Rebuild(fusion, decided, resolution_of, {}).run()
    # Only what has to be equal now is: an extent of a reshape may be 1, and meet any other.
    small = frozenset(_small_extents(made))
    numbers = {e: other for e, other in equal if e in small and other.is_const}
    numbers.update(dict.fromkeys(_ones_of_inputs(made), ONE))
    if not numbers:
        return made
    # Of what these have to be equal to nothing is left to see.
    checked = [c for c in made.constraints if not numbers.keys().isdisjoint((*c.left.symbols, *c.right.symbols))]
    try:
        return _Rebuild(fusion, decided, resolution_of, numbers, checked).run()
    except DefinitionRuntimeError:
        # Inputs that do not fit a size that is told are the caller's: the constraints say which.
        check_constraints(made, extents)
        raise


def _ones_of_inputs(fusion: Fusion) -> frozenset[Int]:
    """Extents of inputs that have to be 1, as a reshape or a squeeze takes the dims away, or to be equal to one that is."""
    own = {d.extent for t in fusion.input_tensors for d in t.visible if isinstance(d.extent, Symbol)}
    pairs = [p for c in fusion.constraints for p in ((c.left, c.right), (c.right, c.left))]
    ones: set[Int] = {ONE}
    while more := {b for a, b in pairs if a in ones and b in own - ones}:
        ones |= more
    return frozenset(ones - {ONE})


def _with_numbers(tensor: Tensor, numbers: Mapping[Int, Int]) -> Tensor:
    """An input, as if dims of these extents had been defined as the numbers."""
    if numbers.keys().isdisjoint(d.extent for d in tensor.logical):
        return tensor
    kinds = {ONE: IterKind.broadcast}
    told = [(d, numbers.get(d.extent)) for d in tensor.logical]
    logical = tuple(d if n is None else IterDomain(d.name, n, kinds.get(n, d.kind)) for d, n in told)
    order = memory_order(tensor.stride_order)
    flags = zip(order, tensor.contiguity, strict=True)
    contiguity = tuple(None if logical[d].is_broadcast else flag for d, flag in flags)
    return replace(tensor, logical=logical, contiguity=contiguity)


class _Rebuild:
    """The exprs of a fusion made anew by a builder, which infers dims from operands."""

    def __init__(
        self,
        fusion: Fusion,
        equal: frozenset[tuple[Int, Int]],
        resolved: Mapping[Tensor, Resolution],
        numbers: Mapping[Int, Int],
        constraints: Sequence[ExtentConstraint] = (),
    ) -> None:
        self.resolved = resolved
        self.fusion = fusion
        self.equal = equal
        self.ones = frozenset(e for e, other in equal if other is ONE)
        # A scalar that is 1 is 1 wherever an extent mentions it. An input's size stays a symbol, as its dim never broadcasts,
        # unless it is one of the numbers: what it has to be equal to is checked as before.
        self.known: dict[Int, Int] = {
            e: ONE
            for e in self.ones
            if isinstance(e, (Select, Min)) or (isinstance(e, Symbol) and e.name in fusion.extent_scalars)
        }
        self.known.update(numbers)
        # So is an extent that is a dim's: in the order of exprs, so that one of a slice of a slice is that of the first dim.
        for e, other in _choices(fusion):
            if (e, other) in equal and e not in self.ones and other.weight < e.weight:
                self.known.setdefault(e, replaced(other, self.known))
        self.builder = FusionBuilder.of_concrete(fusion)
        self.tensors = {t: _with_numbers(t, numbers) for t in fusion.input_tensors}
        self.builder.inputs = [self.tensors[v] if isinstance(v, Tensor) else v for v in fusion.inputs]
        self.builder.constraints = [(None, c) for c in constraints]
        self.scalars: dict[Scalar, Scalar] = {}

    def run(self) -> Fusion:
        for expr in self.fusion.exprs:
            # What is made anew, and what it asks for, is still for the line that the user wrote.
            self.builder.location = expr_outputs(expr)[0].location
            match expr:
                case ScalarOp():
                    self._scalar_op(expr)
                    continue
                case ExtentOp():
                    self._extent_op(expr)
                    continue
                case _:
                    made = self._rebuild(expr)
            for old, new in zip(expr_outputs(expr), made, strict=True):
                assert isinstance(old, Tensor)
                assert old.name == new.name
                self.tensors[old] = new
        for output in self.fusion.outputs:
            self.builder.location = output.tensor.location
            alias = None if output.alias_of is None else self.tensors[output.alias_of]
            self.builder.add_output(self.tensors[output.tensor], alias)
        return self.builder.freeze()

    def _scalar_op(self, expr: ScalarOp) -> None:
        inputs = tuple(self._operand(s) for s in expr.inputs)
        output = expr.output
        if output.expression is not None:
            output = replace(output, expression=self._extent(output.expression))
        self.scalars[expr.output] = output
        self.builder.exprs.append(ScalarOp(expr.op, inputs, output))

    def _extent_op(self, expr: ExtentOp) -> None:
        tensor = self.tensors[expr.tensor]
        extent = tensor.visible[expr.dim].extent
        if extent.is_const:
            self.scalars[expr.output] = replace(expr.output, value=extent.value, expression=extent)
            return
        output = self.scalars[expr.output] = replace(expr.output, expression=extent)
        self.builder.exprs.append(ExtentOp(tensor, expr.dim, output))

    def _operand(self, scalar: Scalar) -> Scalar:
        return self.scalars.get(scalar, scalar)

    def _extent(self, extent: Int) -> Int:
        made = ONE if extent in self.ones else replaced(extent, self.known)
        # What is left of a choice among several ends may be one that is known.
        return made if made is extent else replaced(made, self.known)

    def _given(self, extent: Int, scalar: Scalar | None) -> Scalar | None:
        """The scalar an extent was given as; None where it is a constant now."""
        return None if scalar is None or self._extent(extent).is_const else self._operand(scalar)

    def _named(self, *names: str) -> None:
        self.builder.given_names.extend(names)

    def _rebuild(self, expr: Expr) -> tuple[Tensor, ...]:
        b, get = self.builder, self.tensors
        match expr:
            case Pointwise(op="stride_order"):
                self._named(expr.output.name)
                (source,) = tensor_inputs(expr)
                return (b.stride_order(get[source], expr.output.stride_order),)
            case Pointwise():
                self._named(expr.output.name)
                return (
                    b.pointwise(
                        expr.op,
                        [get[v] if isinstance(v, Tensor) else self._operand(v) for v in expr.inputs],
                        expr.output.dtype,
                    ),
                )
            case Reduction():
                return (self._reduction(expr),)
            case Welford():
                return self._welford(expr)
            case Scan():
                return (self._scan(expr),)
            case Broadcast():
                self._named(expr.output.name)
                return (b.broadcast(get[expr.input], expr.flags),)
            case Squeeze():
                self._named(expr.output.name)
                return (b.squeeze(get[expr.input], expr.flags),)
            case Expand():
                self._named(expr.output.name)
                source = get[expr.input]
                added = expr.output.ndim - source.ndim
                extents: list[Int | None] = []
                for i, (d, scalar) in enumerate(zip(expr.output.visible, expr.extents, strict=True)):
                    # Of a dim that was not known to have one element the result has the dim's extent, not that asked for.
                    asked = d.extent if scalar is None else b.extent_of_scalar(scalar)
                    kept = i >= added and expr.input.visible[i - added].extent is asked
                    extents.append(None if kept else self._extent(asked))
                scalars = [self._given(d.extent, s) for d, s in zip(expr.output.visible, expr.extents, strict=True)]
                return (b.expand(source, extents, scalars),)
            case Permute():
                self._named(expr.output.name)
                return (b.permute(get[expr.input], expr.dims),)
            case Reshape():
                return (self._reshape(expr),)
            case Resize():
                self._named(expr.output.name)
                return (self._resize(expr),)
            case Cat():
                self._named(expr.output.name)
                return (b.cat([get[t] for t in expr.inputs], expr.dim, [self._extent(e) for e in expr.bounds]),)
            case Gather():
                self._named(expr.output.name)
                windows = [self._window(w) for w in expr.windows]
                seen = [self._extent(d.extent) for _, d in position_pairs(expr, expr.input, expr.output)]
                fill = self._resolved(expr.fill)
                return (b.gather(expr.kind, get[expr.input], get[expr.index], expr.dim, windows, seen, fill),)
            case Full():
                self._named(expr.output.name)
                sizes = [d.extent for d in expr.output.logical]
                given = [self._given(e, s) for e, s in zip(sizes, expr.extents, strict=True)]
                return (b.full([self._extent(e) for e in sizes], self._operand(expr.value), expr.output.dtype, given),)
            case Iota():
                self._named(expr.output.name)
                length = expr.output.logical[0].extent
                scalar = self._given(length, expr.length)
                return (
                    b.iota(
                        self._extent(length),
                        self._operand(expr.start),
                        self._operand(expr.step),
                        expr.output.dtype,
                        scalar,
                    ),
                )
            case Random():
                return (self._random(expr),)
            case LibraryOp():
                values = [get[v] if isinstance(v, Tensor) else self._operand(v) for v in expr.inputs]
                self._named(*(t.name for t in expr.outputs))
                named = dict(zip(expr.names, values, strict=True))
                return b.library(expr.op, named, dict(expr.options), [self._extent(e) for e in expr.extents])
            case ScalarOp() | ExtentOp():
                raise AssertionError("scalars are not rebuilt")
            case ExpSum():
                raise AssertionError("sums of exponentials are made later, by optimize_fusion")
            case unreachable:
                assert_never(unreachable)

    def _reshape(self, expr: Reshape) -> Tensor:
        source, resolution = self.tensors[expr.input], self.resolved[expr.output]
        if resolution.copies:
            source = self.builder.pointwise("set", [source], source.dtype)
        extents: list[Int | None] = []
        for d, given in zip(expr.output.visible, expr.extents or (None,) * expr.output.ndim, strict=True):
            extent = self._extent(d.extent)
            extents.append(extent if extent.is_const or given is not None or expr.is_resolved else None)
        return self.builder.resolved_reshape(source, extents, resolution, expr.output.name)

    def _resize(self, expr: Resize) -> Tensor:
        source = self.tensors[expr.input]
        windows: list[Window] = []
        extents: list[Int] = []
        wholes: list[bool] = []
        for a, b, new, w in zip(expr.input.visible, expr.output.produced, source.visible, expr.windows, strict=True):
            takes_all = expr.fill is None and not w.pieces and w.step == 1 and (b.extent, a.extent) in self.equal
            wholes.append(takes_all and b.extent not in self.ones)
            if wholes[-1]:
                windows.append(Window(ZERO, ZERO, new.extent))
                extents.append(new.extent)
                continue
            # A dim of an input goes by its symbol, though that is 1 elsewhere: a window ends where its dim does.
            end = new.extent if w.end is a.extent else self._extent(w.end)
            windows.append(replace(self._window(w), end=end))
            extents.append(new.extent if a.extent is b.extent else self._extent(b.extent))
            if expr.fill is not None:
                self.builder.require_padded(len(extents) - 1, extents[-1])
            else:
                self.builder.require_inside(len(extents) - 1, windows[-1], extents[-1], new.extent)
        scalars = [
            (None, None) if whole else (self._resolved(first), self._resolved(second))
            for whole, (first, second) in zip(wholes, expr.scalars or [(None, None)] * len(wholes), strict=True)
        ]
        fill = self._resolved(expr.fill)
        parts: dict[IterDomain, list[Int]] = {d: [] for d in expr.output.produced}
        for d in expr.output.visible:
            parts[place_in_root(d)[0]].append(self._extent(d.extent))
        return self.builder.resize(source, windows, extents, fill, scalars, tuple(parts.values()))

    def _window(self, w: Window) -> Window:
        pieces = tuple((self._extent(first), self._extent(offset)) for first, offset in w.pieces)
        return Window(self._extent(w.offset), self._extent(w.begin), self._extent(w.end), pieces, w.step)

    def _resolved(self, scalar: Scalar | None) -> Scalar | None:
        return None if scalar is None else self._operand(scalar)

    def _random(self, expr: Random) -> Tensor:
        self._named(expr.output.name)
        sizes = [d.extent for d in expr.output.logical]
        given = [self._given(e, s) for e, s in zip(sizes, expr.extents, strict=True)]
        first, second = (self._operand(s) for s in expr.parameters)
        state = None
        if expr.state is not None:
            seed, offset = (self.tensors[v] if isinstance(v, Tensor) else self._operand(v) for v in expr.state)
            state = (seed, offset)
        extents = [self._extent(e) for e in sizes]
        return self.builder.random(expr.distribution, (first, second), extents, expr.output.dtype, given, state)

    def _split_axes(self, source: Tensor, output: Tensor) -> tuple[list[int], list[int]]:
        """(reduced dims that have one element now, the others)."""
        axes = [i for i, d in enumerate(output.produced) if d.is_reduction]
        return [a for a in axes if source.visible[a].is_broadcast], [
            a for a in axes if not source.visible[a].is_broadcast
        ]

    def _squeezed(self, source: Tensor, trivial: list[int], rest: list[int]) -> tuple[Tensor, list[int]]:
        """`source` without its trivial axes, and what the others are called then."""
        if not trivial:
            return source, rest
        squeezed = self.builder.squeeze(source, [d in trivial for d in range(source.ndim)])
        return squeezed, [a - sum(t < a for t in trivial) for a in rest]

    def _reduction(self, expr: Reduction) -> Tensor:
        source = self.tensors[expr.input]
        trivial, rest = self._split_axes(source, expr.output)
        if not rest:
            self._named(expr.output.name)
            return self.builder.squeeze(source, [d in trivial for d in range(source.ndim)])
        squeezed, axes = self._squeezed(source, trivial, rest)
        self._named(expr.output.name)
        return self.builder.reduction(expr.op, squeezed, axes, expr.output.dtype)

    def _scan(self, expr: Scan) -> Tensor:
        source = self.tensors[expr.input]
        init = None if expr.init is None else self._operand(expr.init)
        self._named(expr.output.name)
        if source.visible[expr.dim].is_broadcast:
            return self.builder.scan_of_one(SCANS[expr.op].combine, source, init)
        return self.builder.scan(expr.op, source, expr.dim, init)

    def _welford(self, expr: Welford) -> tuple[Tensor, Tensor, Tensor]:
        source = self.tensors[expr.input]
        names = (expr.mean.name, expr.m2.name, expr.count.name)
        trivial, rest = self._split_axes(source, expr.mean)
        if rest:
            squeezed, axes = self._squeezed(source, trivial, rest)
            self._named(*names)
            return self.builder.welford(squeezed, axes)
        # One element each: it is the mean, deviates by x - x and counts 1.
        self._named(names[0])
        mean = self.builder.squeeze(source, [d in trivial for d in range(source.ndim)])
        self._named(names[1])
        deviation = self.builder.pointwise("sub", [mean, mean], mean.dtype)
        extents = [d.extent for d in mean.visible]
        scalars = [None if e.is_const else self.builder.size(mean, i) for i, e in enumerate(extents)]
        one = self.builder.constant(1, expr.count.dtype)
        self._named(names[2])
        return mean, deviation, self.builder.full(extents, one, expr.count.dtype, scalars)
