"""Compute in dims that every reshape keeps: a reshape of something computed becomes nothing.

Each dim is cut into *parts* so that the dims of both sides of a reshape are the same parts in the same order. Exprs are made
again over parts; inputs are seen as their parts, which needs no copy whatever their strides are, and outputs are seen as the
dims they are made of.

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

from fuser.ir.fusion.dim_pairs import dim_pairs, displaced_dims, position_pairs
from fuser.ir.fusion.fusion import (
    Broadcast,
    Cat,
    Expand,
    Expr,
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
    next_number,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.fusion.reshape_dims import Resolution, Run, product
from fuser.ir.fusion.views import ViewExpr, runs_of, view_chain
from fuser.ir.integers.integers import ZERO, Int, const


def split_reshaped_dims(fusion: Fusion) -> Fusion:
    """The same outputs, with reshapes at inputs and outputs only where dims have common parts."""
    if not any(isinstance(e, Reshape) and e.is_resolved for e in fusion.exprs):
        return fusion
    return _Rebuild(fusion, Parts(fusion)).run()


class Parts:
    """Parts of the dims of a fusion, and the reshapes that are left as they are."""

    def __init__(self, fusion: Fusion) -> None:
        self._parent: dict[IterDomain, IterDomain] = {}
        self._parts: dict[IterDomain, list[Int]] = {}
        self.left: set[Reshape] = set()
        whole: set[IterDomain] = set()
        relations: list[tuple[Reshape, list[IterDomain], list[IterDomain]]] = []
        for e in fusion.tensor_exprs:
            is_read = isinstance(e, Resize) and e.input in fusion.inputs
            whole.update(_whole_dims(e) if not is_read else ())
            for source in tensor_inputs(e):
                for result in tensor_outputs(e):
                    for a, b in dim_pairs(e, source, result) if not is_read else _kept_pairs(e):
                        if not a.is_broadcast and not b.is_broadcast:
                            self._parent[self._find(a)] = self._find(b)
            if isinstance(e, Reshape) and e.is_resolved:
                root, logical = e.output.produced, e.output.logical
                for run in runs_of(e):
                    if not run.is_kept:
                        relations.append((e, [root[i] for i in run.inputs], [logical[j] for j in run.outputs]))
        for t in fusion.tensors:
            for d in (*t.produced, *t.logical):
                known = self._parts.get(self._find(d))
                if known is None or d.extent.is_const:
                    self._parts[self._find(d)] = [d.extent]
        self._whole = {self._find(d) for d in whole}
        # This ends: a change cuts some part, or replaces parts by simpler ones that there are. All parts have more than one
        # element, so that there are no more of them than the elements of a tensor have factors.
        changed = True
        while changed:
            changed = False
            for e, left, right in relations:
                if e in self.left:
                    continue
                found = self._refined(left, right)
                if found is None:
                    self.left.add(e)
                for d, parts in (found or {}).items():
                    if parts != self._parts[d]:
                        self._parts[d] = parts
                        changed = True

    def _find(self, d: IterDomain) -> IterDomain:
        parent = self._parent
        while (above := parent.get(d, d)) is not d:
            parent[d] = d = parent.get(above, above)
        return d

    def _refined(self, left: Sequence[IterDomain], right: Sequence[IterDomain]) -> dict[IterDomain, list[Int]] | None:
        """New parts of the dims on both sides of a run; None if they have none in common."""
        sides = [[self._find(d) for d in side] for side in (left, right)]
        pieces = common_parts([[e for d in side for e in self._parts[d]] for side in sides])
        if pieces is None:
            return None
        found: dict[IterDomain, list[Int]] = {}
        for side, made in zip(sides, pieces, strict=True):
            queue = iter(made)
            for d in side:
                parts = [p for _ in self._parts[d] for p in next(queue)]
                if (len(parts) > 1 and d in self._whole) or found.setdefault(d, parts) != parts:
                    return None
        return found

    def of(self, d: IterDomain) -> list[Int]:
        """Extents of the parts of a dim, slowest first; its own extent if it is whole."""
        parts = self.shared(d)
        return parts if len(parts) > 1 else [d.extent]

    def shared(self, d: IterDomain) -> list[Int]:
        """The same, with the extent that is known of it anywhere."""
        return [d.extent] if d.is_broadcast else self._parts[self._find(d)]

    def count(self, dims: Sequence[IterDomain]) -> int:
        """Parts of some dims."""
        return sum(len(self.of(d)) for d in dims)


def common_parts(sides: Sequence[Sequence[Int]]) -> tuple[list[list[Int]], list[list[Int]]] | None:
    """Two lists of extents with one product, each extent cut so that the pieces of both are the same; None if impossible.

    Pieces are found from the innermost out. Of two extents that are equal the simpler one is the piece.
    """
    rest = list(sides[0]), list(sides[1])
    pieces: tuple[list[list[Int]], list[list[Int]]] = ([[] for _ in rest[0]], [[] for _ in rest[1]])

    def put(side: int, position: int, piece: Int) -> None:
        pieces[side][position].insert(0, piece)

    while len(rest[0]) > 1 and len(rest[1]) > 1:
        # Equal extents are told apart by where they stand: only these two are compared.
        a, b = rest[0].pop(), rest[1].pop()
        if a is not b and not (a.is_const and b.is_const):
            return None
        taken = a if a is b or a.value < b.value else b
        for side, e in enumerate((a, b)):
            put(side, len(rest[side]), taken)
            if e is not taken:
                if e.value % taken.value:
                    return None
                rest[side].append(const(e.value // taken.value))
    if not rest[0] or not rest[1]:
        return pieces if not rest[0] and not rest[1] else None
    if len(rest[0]) == 1 == len(rest[1]):
        for side in (0, 1):
            put(side, 0, min(rest[0][0], rest[1][0], key=_simplicity))
        return pieces
    # What is left of one extent are all those that are left of the other side.
    one = 0 if len(rest[0]) == 1 else 1
    for position in reversed(range(len(rest[1 - one]))):
        put(one, 0, rest[1 - one][position])
        put(1 - one, position, rest[1 - one][position])
    return pieces


def _simplicity(e: Int) -> tuple[bool, int, str]:
    """A total order of extents, constants first."""
    return not e.is_const, e.weight, e.order


def _kept_pairs(e: TensorExpr) -> list[tuple[IterDomain, IterDomain]]:
    """The dims that a read of an input takes as they are."""
    assert isinstance(e, Resize)
    return [
        (a, b)
        for a, b, w in zip(e.input.visible, e.output.produced, e.windows, strict=True)
        if a.extent is b.extent and not w.moves and w.begin is ZERO and w.end is b.extent
    ]


def _whole_dims(e: Expr) -> list[IterDomain]:
    """Dims that an expr cannot take in parts."""
    found: list[IterDomain] = []
    match e:
        case Gather() if e.windows:
            found += [d for pair in position_pairs(e, e.input, e.output) for d in pair]
        case Gather(kind=GatherKind.index_select):
            # The dims of the index, and those beside the gathered one, are dims of the result as they are.
            found += e.input.visible[e.dim : e.dim + 1]
        case Gather() if _is_along_index(e):
            found += e.input.visible[e.dim : e.dim + 1]
        case Gather():
            found += [*e.input.visible, *e.index.visible, *e.output.visible]
        case Resize():
            found += [d for pair in displaced_dims(e, e.input, e.output) for d in pair if d is not None]
            found += [d for d, w in zip(e.output.visible, e.windows, strict=True) if w.begin is not ZERO]
            found += [d for d, w in zip(e.output.visible, e.windows, strict=True) if w.end is not d.extent]
        case Cat():
            found += [t.visible[e.dim] for t in (*e.inputs, e.output)]
        case Scan():
            found += [e.axis]
        case Iota():
            found += e.output.logical
        case Squeeze():
            found += [d for d, gone in zip(e.input.visible, e.flags, strict=True) if gone]
        case _:
            pass
    return [d for d in found if not d.is_broadcast]


def _is_along_index(expr: Gather) -> bool:
    """Whether the dims of a lookup are those of its index: each can be seen as its parts, and what is looked up has all of
    them but the gathered one, or one element in their places."""
    if expr.windows or expr.kind is GatherKind.index_select:
        return False
    pairs = enumerate(zip(expr.input.visible, expr.index.visible, strict=True))
    return expr.kind is GatherKind.take_along_axis or all(d == expr.dim or a.extent is b.extent for d, (a, b) in pairs)


class _Rebuild:
    """The exprs of a fusion over parts of dims. One use: `run()`."""

    def __init__(self, fusion: Fusion, parts: Parts) -> None:
        self.fusion = fusion
        self.parts = parts
        self.builder = FusionBuilder(is_concrete=True)
        self.builder.inputs = list(fusion.inputs)
        self.builder.extent_scalars = dict(fusion.extent_scalars)
        self.builder.next_number = next_number(fusion)
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

    def _position(self, dims: Sequence[IterDomain], dim: int) -> int:
        return self.parts.count(dims[:dim])

    def _places(self, dims: Sequence[IterDomain], order: Sequence[int]) -> list[int]:
        """Positions of the parts of some dims, in that order."""
        found: list[int] = []
        for d in order:
            first = self._position(dims, d)
            found += range(first, first + len(self.parts.of(dims[d])))
        return found

    def _flags(self, dims: Sequence[IterDomain], flags: Sequence[bool]) -> list[bool]:
        return [f for d, f in zip(dims, flags, strict=True) for _ in self.parts.of(d)]

    def _extents(self, dims: Sequence[IterDomain]) -> list[Int]:
        return [e for d in dims for e in self.parts.of(d)]

    def _scalars(self, dims: Sequence[IterDomain], given: Sequence[Scalar | None]) -> list[Scalar | None]:
        scalars = given or (None,) * len(dims)
        return [
            s if len(self.parts.of(d)) == 1 else None
            for d, s in zip(dims, scalars, strict=True)
            for _ in self.parts.of(d)
        ]

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

    def _rebuild(self, expr: Expr) -> tuple[Tensor, ...]:
        b, new = self.builder, self.tensors
        match expr:
            case Pointwise(op="stride_order"):
                (source,) = tensor_inputs(expr)
                self._named(expr.output)
                made = b.pointwise("stride_order", [new[source]], expr.output.dtype)
                self.orders[made] = self._order(expr.output)
                return (made,)
            case Pointwise():
                dims = expr.output.visible
                operands = [self._fitting(v, dims) if isinstance(v, Tensor) else v for v in expr.inputs]
                self._named(expr.output)
                return (b.pointwise(expr.op, operands, expr.output.dtype),)
            case Reduction():
                self._named(expr.output)
                return (b.reduction(expr.op, new[expr.input], self._axes(expr.output), expr.output.dtype),)
            case Welford():
                self._named(expr.mean, expr.m2, expr.count)
                return b.welford(new[expr.input], self._axes(expr.mean))
            case ExpSum():
                self._named(expr.largest, expr.total)
                return b.exp_sum(new[expr.input], self._axes(expr.total), expr.op)
            case Scan():
                self._named(expr.output)
                return (b.scan(expr.op, new[expr.input], self._position(expr.output.visible, expr.dim), expr.init),)
            case Broadcast():
                self._named(expr.output)
                return (b.broadcast(new[expr.input], self._flags(expr.output.visible, expr.flags)),)
            case Squeeze():
                self._named(expr.output)
                return (b.squeeze(new[expr.input], self._flags(expr.input.visible, expr.flags)),)
            case Expand():
                return (self._expand(expr),)
            case Permute():
                self._named(expr.output)
                return (b.permute(new[expr.input], self._places(expr.input.visible, expr.dims)),)
            case Reshape():
                return (self._reshape(expr),)
            case Resize():
                return (self._read(expr) if expr.input in self.fusion.inputs else self._resize(expr),)
            case Cat():
                parts = [self._fitting(t, expr.output.visible) for t in expr.inputs]
                self._named(expr.output)
                return (b.cat(parts, self._position(expr.output.visible, expr.dim), expr.bounds),)
            case Gather() if _is_along_index(expr):
                dims = expr.output.visible
                # Of several parts that an index lies in, the gathered dim stands in the place of the first one.
                source, index = self._fitting(expr.input, dims), self._fitting(expr.index, dims)
                self._named(expr.output)
                return (b.gather(GatherKind.take_along_axis, source, index, self._position(dims, expr.dim)),)
            case Gather():
                self._named(expr.output)
                dim = self._position(expr.input.visible, expr.dim)
                extents = [d.extent for _, d in position_pairs(expr, expr.input, expr.output)]
                source, index = new[expr.input], new[expr.index]
                return (b.gather(expr.kind, source, index, dim, expr.windows, extents, expr.fill),)
            case Full():
                dims = expr.output.visible
                self._named(expr.output)
                given = self._scalars(dims, expr.extents)
                return (b.full(self._extents(dims), expr.value, expr.output.dtype, given),)
            case Iota():
                self._named(expr.output)
                (length,) = expr.output.visible
                return (b.iota(length.extent, expr.start, expr.step, expr.output.dtype, expr.length),)
            case Random():
                return (self._random(expr),)
            case ScalarOp() | ExtentOp():
                raise AssertionError("scalars are not rebuilt")
            case LibraryOp():
                raise AssertionError("passes see what is between library calls")

    def _axes(self, output: Tensor) -> list[int]:
        """Reduced dims of the operand."""
        flags = self._flags(output.logical, [d.is_reduction for d in output.logical])
        return [i for i, reduced in enumerate(flags) if reduced]

    def _expand(self, expr: Expand) -> Tensor:
        added = expr.output.ndim - expr.input.ndim
        source = self._fitting(expr.input, expr.output.visible[added:])
        extents: list[Int | None] = []
        for i, d in enumerate(expr.output.visible):
            a = expr.input.visible[i - added] if i >= added else None
            is_new = a is None or (a.is_broadcast and not d.is_broadcast)
            extents += self.parts.of(d) if is_new else [None] * len(self.parts.of(d))
        self._named(expr.output)
        return self.builder.expand(source, extents, self._scalars(expr.output.visible, expr.extents))

    def _random(self, expr: Random) -> Tensor:
        state = None
        if expr.state is not None:
            seed, offset = (self.tensors[v] if isinstance(v, Tensor) else v for v in expr.state)
            state = (seed, offset)
        dims = expr.output.visible
        self._named(expr.output)
        given = self._scalars(dims, expr.extents)
        b = self.builder
        return b.random(expr.distribution, expr.parameters, self._extents(dims), expr.output.dtype, given, state)

    def _known_extent(self, d: IterDomain) -> Int:
        """The extent of a dim, as a number where its parts say it: accesses across parts need to know what divides it."""
        total = product(self.parts.of(d))
        return total if total.is_const else d.extent

    def _read(self, expr: Resize) -> Tensor:
        """A window of an input: dims that are moved are whole there, and may be parts in the result."""
        kept = _kept_pairs(expr)
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

    def _resize(self, expr: Resize) -> Tensor:
        source = self._fitting(expr.input, expr.output.visible)
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
        self._named(expr.output)
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
        first = self._position(dims, expr.dim)
        sizes = [self.builder.size(new, first + k) for k in range(len(self.parts.of(dims[expr.dim])))]
        total = sizes[0]
        for s in sizes[1:-1]:
            total = self.builder.scalar_op("mul", [total, s], expr.output.dtype)
        operands, op = ((total, sizes[-1]), "mul") if len(sizes) > 1 else ((total,), "cast")
        self.builder.exprs.append(ScalarOp(op, operands, expr.output))

    # --- outputs ---

    def _order(self, output: Tensor) -> tuple[int, ...]:
        """Memory order of an output's parts: those of one dim are neighbours."""
        places = self._places(output.visible, memory_order(output.stride_order))
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
