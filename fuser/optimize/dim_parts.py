"""Which parts the dims of a fusion are cut into, so that both sides of a reshape are the same parts in the same order."""

from __future__ import annotations

from collections.abc import Sequence

from fuser.ir.fusion.dim_pairs import dim_pairs, displaced_dims, position_pairs
from fuser.ir.fusion.fusion import (
    Cat,
    Expr,
    Fusion,
    Gather,
    GatherKind,
    Iota,
    IterDomain,
    Reshape,
    Resize,
    Scalar,
    Scan,
    Squeeze,
    TensorExpr,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.views import runs_of
from fuser.ir.integers.integers import ZERO, Int, const


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
                    for a, b in dim_pairs(e, source, result) if not is_read else kept_pairs(e):
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

    def extents(self, dims: Sequence[IterDomain]) -> list[Int]:
        """Of all parts of some dims."""
        return [e for d in dims for e in self.of(d)]

    def position(self, dims: Sequence[IterDomain], dim: int) -> int:
        """Of the first part of one of some dims."""
        return self.count(dims[:dim])

    def places(self, dims: Sequence[IterDomain], order: Sequence[int]) -> list[int]:
        """Positions of the parts of some dims, in that order."""
        found: list[int] = []
        for d in order:
            first = self.position(dims, d)
            found += range(first, first + len(self.of(dims[d])))
        return found

    def flags(self, dims: Sequence[IterDomain], flags: Sequence[bool]) -> list[bool]:
        """Of dims for their parts."""
        return [f for d, f in zip(dims, flags, strict=True) for _ in self.of(d)]

    def scalars(self, dims: Sequence[IterDomain], given: Sequence[Scalar | None]) -> list[Scalar | None]:
        """What extents of dims were given as, for their parts: for those of a dim that is cut it is not known."""
        scalars = given or (None,) * len(dims)
        return [s if len(self.of(d)) == 1 else None for d, s in zip(dims, scalars, strict=True) for _ in self.of(d)]


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


def kept_pairs(e: TensorExpr) -> list[tuple[IterDomain, IterDomain]]:
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
        case Gather() if is_along_index(e):
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


def is_along_index(expr: Gather) -> bool:
    """Whether the dims of a lookup are those of its index: each can be seen as its parts, and what is looked up has all of
    them but the gathered one, or one element in their places."""
    if expr.windows or expr.kind is GatherKind.index_select:
        return False
    pairs = enumerate(zip(expr.input.visible, expr.index.visible, strict=True))
    return expr.kind is GatherKind.take_along_axis or all(d == expr.dim or a.extent is b.extent for d, (a, b) in pairs)
