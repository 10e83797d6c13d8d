"""Compute in dims that every reshape keeps: a reshape of something computed becomes nothing.

Each dim is cut into *parts* so that the dims of both sides of a reshape are the same parts in the same order (dim_parts.py).
Exprs are made again over parts; inputs are seen as their parts, which needs no copy whatever their strides are, and outputs are
seen as the dims they are made of.

    Before: t1 = exp(t0[n, 256]);  t2 = reshape(t1, [n, 32, 8]);  t3 = max(t2, [2])
    After:  t4 = reshape(t0, [n, 32, 8]);  t1 = exp(t4);  t3 = max(t1, [2])

A slice, a pad or a roll of an input gives parts of a dim that is whole in the input: what is read is found from all of them.

    Before: t1 = slice(t0[n, 197], 1:197);  t2 = reshape(t1, [n, 14, 14])
    After:  t2 = slice(t0, 1:197), its second dim split into [14, 14]                      one Resize

A reshape whose sides have no common parts ([4, 6] -> [6, 4]), or would cut a dim that is read of something computed at other
indices (a slice, a gather, a scan), stays where it is: segments end there, and it is a view of what the one before leaves in
memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from fuser.ir.fusion.dim_pairs import position_pairs
from fuser.ir.fusion.fusion import (
    Broadcast,
    Cat,
    Expand,
    ExpSum,
    ExtentOp,
    Full,
    Fusion,
    Gather,
    GatherKind,
    Iota,
    IterDomain,
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
    memory_order,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.fusion.reshape_dims import Resolution, Run, product
from fuser.ir.fusion.views import ViewExpr, runs_of, view_chain
from fuser.ir.integers.integers import ZERO, Int
from fuser.optimize.dim_parts import Parts, is_along_index, kept_pairs


def split_reshaped_dims(fusion: Fusion) -> Fusion:
    """The same outputs, with reshapes at inputs and outputs only where dims have common parts."""
    if not any(isinstance(e, Reshape) and e.is_resolved for e in fusion.exprs):
        return fusion
    return _Rebuild(fusion, Parts(fusion)).run()


class _Rebuild:
    """The exprs of a fusion over parts of dims. One use: `run()`."""

    def __init__(self, fusion: Fusion, parts: Parts) -> None:
        self.fusion = fusion
        self.parts = parts
        self.builder = FusionBuilder.of_concrete(fusion)
        self.tensors: dict[Tensor, Tensor] = {}
        # Memory orders of results, where they are not row major.
        self.orders: dict[Tensor, tuple[int, ...]] = {}
        # Which result of the fusion a new tensor was made as.
        self.owner: dict[Tensor, Tensor] = {}
        self.returned = _views_of_inputs(fusion, fusion.output_tensors)
        self.input_views = _views_of_inputs(fusion, fusion.tensors)

    def run(self) -> Fusion:
        """The rewritten fusion."""
        from fuser.optimize.assign_output_layouts import with_stride_orders

        for t in self.fusion.input_tensors:
            self.builder.location = t.location
            self.tensors[t] = self._in_parts(t, t.visible)
        for expr in self.fusion.exprs:
            match expr:
                case ScalarOp():
                    self.builder.exprs.append(expr)
                case ExtentOp():
                    self._extent_op(expr)
                case _:
                    outputs = tensor_outputs(expr)
                    self.builder.location = outputs[0].location
                    for old, new in zip(outputs, self._rebuild(expr), strict=True):
                        self.tensors[old] = new
                        if not isinstance(expr, Reshape) or expr in self.parts.left:
                            self.owner.setdefault(new, old)
        self._outputs()
        self.builder.constraints += [(None, c) for c in self.fusion.constraints]
        return with_stride_orders(self.builder.freeze(), self.orders)

    # --- dims ---

    def _in_parts(self, tensor: Tensor, dims: Sequence[IterDomain]) -> Tensor:
        """A tensor of whole `dims` seen as its parts."""
        return self._seen(tensor, [self.parts.shared(d) for d in dims], to_parts=True)

    def _seen(
        self, tensor: Tensor, parts: Sequence[Sequence[Int]], *, to_parts: bool, name: str | None = None
    ) -> Tensor:
        """Whole dims seen as parts, or the other way round: the tensor itself where that is the same."""
        if name is None and all(len(p) == 1 for p in parts):
            return tensor
        runs: list[Run] = []
        one: list[bool] = []
        ones: list[bool] = []
        extents: list[Int] = []
        kept = made = position = 0
        for p in parts:
            count = len(p)
            is_one = count == 1 and tensor.visible[position].is_broadcast
            one += [is_one] * (1 if to_parts else count)
            ones += [is_one] * (count if to_parts else 1)
            extents += p if to_parts else [product(p)]
            position += 1 if to_parts else count
            if is_one:
                continue
            whole, cut = ((kept,), range(made, made + count)) if to_parts else ((made,), range(kept, kept + count))
            runs.append(Run(whole, tuple(cut)) if to_parts else Run(tuple(cut), whole))
            kept += 1 if to_parts else count
            made += count if to_parts else 1
        return self.builder.resolved_reshape(tensor, extents, Resolution(tuple(one), tuple(ones), tuple(runs)), name)

    def _fitting(self, tensor: Tensor, dims: Sequence[IterDomain]) -> Tensor:
        """The new form of an operand that meets these dims: a dim of one element becomes as many as the other has parts."""
        new = self.tensors[tensor]
        added = [len(self.parts.of(b)) - len(self.parts.of(a)) for a, b in zip(tensor.visible, dims, strict=True)]
        if not any(added):
            return new
        flags = [
            new_dim
            for a, more in zip(tensor.visible, added, strict=True)
            for new_dim in (*(False,) * len(self.parts.of(a)), *(True,) * more)
        ]
        return self.builder.broadcast(new, flags)

    # --- exprs ---

    def _named(self, *tensors: Tensor) -> None:
        """The next results keep names, unless those are for what users see of them."""
        self.builder.given_names += [self._name(t) for t in tensors]

    def _name(self, t: Tensor) -> str:
        is_seen = t in self.fusion.output_tensors and self.parts.count(t.visible) > t.ndim
        return self.builder.new_name("t") if is_seen or t in self.returned else t.name

    def _rebuild(self, expr: TensorExpr) -> tuple[Tensor, ...]:
        b = self.builder
        match expr:
            case Reshape():
                return (self._reshape(expr),)
            case Resize() if expr.input in self.fusion.inputs:
                return (self._read(expr),)
            case _:
                operands = self._operands(expr)
                self._named(*tensor_outputs(expr))
        match expr:
            case Pointwise():
                tensors = iter(operands)
                values = [next(tensors) if isinstance(v, Tensor) else v for v in expr.inputs]
                made = b.pointwise(expr.op, values, expr.output.dtype)
                if expr.op == "stride_order":
                    self.orders[made] = self._order(expr.output)
                return (made,)
            case Reduction():
                return (b.reduction(expr.op, operands[0], self._axes(expr.output), expr.output.dtype),)
            case Welford():
                return b.welford(operands[0], self._axes(expr.mean))
            case ExpSum():
                return b.exp_sum(operands[0], self._axes(expr.total), expr.op)
            case Scan():
                return (b.scan(expr.op, operands[0], self.parts.position(expr.output.visible, expr.dim), expr.init),)
            case Broadcast():
                return (b.broadcast(operands[0], self.parts.flags(expr.output.visible, expr.flags)),)
            case Squeeze():
                return (b.squeeze(operands[0], self.parts.flags(expr.input.visible, expr.flags)),)
            case Expand():
                return (self._expand(expr, operands[0]),)
            case Permute():
                return (b.permute(operands[0], self.parts.places(expr.input.visible, expr.dims)),)
            case Resize():
                return (self._resize(expr, operands[0]),)
            case Cat():
                return (b.cat(operands, self.parts.position(expr.output.visible, expr.dim), expr.bounds),)
            case Gather() if is_along_index(expr):
                # Of several parts that an index lies in, the gathered dim stands in the place of the first one.
                dim = self.parts.position(expr.output.visible, expr.dim)
                source, index = operands
                return (b.gather(GatherKind.take_along_axis, source, index, dim),)
            case Gather():
                dim = self.parts.position(expr.input.visible, expr.dim)
                extents = [d.extent for _, d in position_pairs(expr, expr.input, expr.output)]
                source, index = operands
                return (b.gather(expr.kind, source, index, dim, expr.windows, extents, expr.fill),)
            case Full():
                dims = expr.output.visible
                given = self.parts.scalars(dims, expr.extents)
                return (b.full(self.parts.extents(dims), expr.value, expr.output.dtype, given),)
            case Iota():
                (length,) = expr.output.visible
                return (b.iota(length.extent, expr.start, expr.step, expr.output.dtype, expr.length),)
            case Random():
                return (self._random(expr),)
            case LibraryOp():
                raise AssertionError("passes see what is between library calls")

    def _operands(self, expr: TensorExpr) -> list[Tensor]:
        """New forms of the operands, which have all parts of the dims that they meet in the result."""
        match expr:
            case Pointwise() | Cat() | Resize():
                return [self._fitting(v, expr.output.visible) for v in tensor_inputs(expr)]
            case Gather() if is_along_index(expr):
                return [self._fitting(v, expr.output.visible) for v in tensor_inputs(expr)]
            case Expand():
                return [self._fitting(expr.input, expr.output.visible[expr.output.ndim - expr.input.ndim :])]
            case _:
                return [self.tensors[v] for v in tensor_inputs(expr)]

    def _axes(self, output: Tensor) -> list[int]:
        """Reduced dims of the operand."""
        flags = self.parts.flags(output.logical, [d.is_reduction for d in output.logical])
        return [i for i, reduced in enumerate(flags) if reduced]

    def _expand(self, expr: Expand, source: Tensor) -> Tensor:
        added = expr.output.ndim - expr.input.ndim
        extents: list[Int | None] = []
        for i, d in enumerate(expr.output.visible):
            a = expr.input.visible[i - added] if i >= added else None
            is_new = a is None or (a.is_broadcast and not d.is_broadcast)
            extents += self.parts.of(d) if is_new else [None] * len(self.parts.of(d))
        return self.builder.expand(source, extents, self.parts.scalars(expr.output.visible, expr.extents))

    def _random(self, expr: Random) -> Tensor:
        state = None
        if expr.state is not None:
            seed, offset = (self.tensors[v] if isinstance(v, Tensor) else v for v in expr.state)
            state = (seed, offset)
        dims = expr.output.visible
        given = self.parts.scalars(dims, expr.extents)
        b = self.builder
        return b.random(expr.distribution, expr.parameters, self.parts.extents(dims), expr.output.dtype, given, state)

    def _known_extent(self, d: IterDomain) -> Int:
        """The extent of a dim, as a number where its parts say it: accesses across parts need to know what divides it."""
        total = product(self.parts.of(d))
        return total if total.is_const else d.extent

    def _read(self, expr: Resize) -> Tensor:
        """A window of an input: dims that are moved are whole there, and may be parts in the result."""
        kept = kept_pairs(expr)
        dims = [
            (self.parts.shared(a), None) if (a, b) in kept else ([a.extent], b)
            for a, b in zip(expr.input.visible, expr.output.visible, strict=True)
        ]
        source = self._seen(expr.input, [seen for seen, _ in dims], to_parts=True)
        windows: list[Window] = []
        extents: list[Int] = []
        parts: list[Sequence[Int]] = []
        given: list[tuple[Scalar | None, Scalar | None]] = []
        scalars = expr.scalars or ((None, None),) * len(dims)
        for (seen, moved), window, pair in zip(dims, expr.windows, scalars, strict=True):
            for _ in seen:
                whole = source.visible[len(extents)].extent
                extents.append(whole if moved is None else self._known_extent(moved))
                is_whole = moved is not None and window.end is moved.extent
                read = replace(window, end=extents[-1]) if is_whole else window
                windows.append(Window(ZERO, ZERO, whole) if moved is None else read)
                parts.append((extents[-1],) if moved is None else self.parts.of(moved))
                given.append(pair if len(seen) == 1 else (None, None))
        self._named(expr.output)
        return self.builder.resize(source, windows, extents, expr.fill, given, parts)

    def _resize(self, expr: Resize, source: Tensor) -> Tensor:
        windows: list[Window] = []
        extents: list[Int] = []
        for a, d, w in zip(expr.input.visible, expr.output.visible, expr.windows, strict=True):
            parts = self.parts.of(d)
            for e in parts:
                # What a part is called may differ from the extent of the dim that it is.
                extents.append(source.visible[len(extents)].extent if a.extent is d.extent else e)
                is_whole = len(parts) > 1 or w.end is d.extent
                kept = w if len(parts) == 1 else Window(ZERO, ZERO, extents[-1])
                # A window that reaches the end of the dim does so by whatever name: nothing is tested for it.
                windows.append(replace(kept, end=extents[-1]) if is_whole else kept)
        given = [
            pair if len(self.parts.of(d)) == 1 else (None, None)
            for d, pair in zip(expr.output.visible, expr.scalars or ((None, None),) * expr.output.ndim, strict=True)
            for _ in self.parts.of(d)
        ]
        return self.builder.resize(source, windows, extents, expr.fill, given)

    def _reshape(self, expr: Reshape) -> Tensor:
        """Nothing where the sides have common parts; else a view of what is in memory, seen as parts again."""
        source = self.tensors[expr.input]
        if expr not in self.parts.left:
            return source
        if expr.input in self.fusion.input_tensors:
            source = expr.input
        else:
            is_view = (
                isinstance(self.fusion.definitions.get(expr.input), ViewExpr) and expr.input not in self.input_views
            )
            if is_view or expr.input in self.fusion.output_tensors:
                # Outputs have a memory order of their own, and so have those that views are of.
                source = self.builder.pointwise("set", [source], source.dtype)
            source = self._seen(source, [self.parts.of(d) for d in expr.input.visible], to_parts=False)
        runs = runs_of(expr)
        output = expr.output
        resolution = Resolution((False,) * expr.input.ndim, (False,) * output.ndim, runs)
        name = self._name(output)
        made = self.builder.resolved_reshape(source, [d.extent for d in output.logical], resolution, name)
        return self._in_parts(made, output.visible)

    def _extent_op(self, expr: ExtentOp) -> None:
        tensor = expr.tensor
        if tensor in self.fusion.input_tensors:
            self.builder.exprs.append(expr)
            return
        new, dims = self.tensors[tensor], tensor.visible
        first = self.parts.position(dims, expr.dim)
        sizes = [self.builder.size(new, first + k) for k in range(len(self.parts.of(dims[expr.dim])))]
        total = sizes[0]
        for s in sizes[1:-1]:
            total = self.builder.scalar_op("mul", [total, s], expr.output.dtype)
        operands, op = ((total, sizes[-1]), "mul") if len(sizes) > 1 else ((total,), "cast")
        self.builder.exprs.append(ScalarOp(op, operands, expr.output))

    # --- outputs ---

    def _order(self, output: Tensor) -> tuple[int, ...]:
        """Memory order of an output's parts: those of one dim are neighbours."""
        places = self.parts.places(output.visible, memory_order(output.stride_order))
        order = [0] * len(places)
        for rank, place in enumerate(reversed(places)):
            order[place] = rank
        return tuple(order)

    def _outputs(self) -> None:
        """Outputs under their names: views of inputs as they were, others as what they are computed as, seen as their dims."""
        shown: dict[Tensor, Tensor] = {t: t for t in self.fusion.input_tensors}
        for expr in self.fusion.tensor_exprs:
            if tensor_outputs(expr)[0] in self.returned:
                self.builder.exprs.append(expr)
        for old in self.fusion.output_tensors:
            if old in shown or old in self.returned:
                shown.setdefault(old, old)
                continue
            self.builder.location = old.location
            new = self.tensors[old]
            is_seen = self.parts.count(old.visible) > old.ndim
            is_view = isinstance(self.fusion.definitions.get(old), ViewExpr)
            if self.owner.get(new) is not old or (is_seen and is_view):
                # What another output is made of has storage of its own. So has what a view is of, in an order of its own, in
                # which the parts of a dim need not be neighbours.
                if not is_seen:
                    self.builder.given_names.append(old.name)
                new = self.builder.pointwise("set", [new], new.dtype)
            self.orders[new] = self._order(old)
            if is_seen:
                new = self._seen(new, [self.parts.of(d) for d in old.visible], to_parts=False, name=old.name)
                self.orders[new] = old.stride_order
            shown[old] = new
        for o in self.fusion.outputs:
            self.builder.add_output(shown[o.tensor], o.alias_of)


def _views_of_inputs(fusion: Fusion, tensors: Iterable[Tensor]) -> set[Tensor]:
    """Those of some tensors that are views of inputs, and those that they are views of."""
    found: set[Tensor] = set()
    for t in tensors:
        chain = view_chain(fusion, t, fusion.input_tensors.__contains__)
        if chain is not None and not chain[0].is_cpu:
            found.update(e.output for e in chain[1])
    return found
