"""The iteration-domain graph: which iteration domains are the same, and the transforms between them.

Nodes are *groups* of iteration domains. Dimensions are grouped once, by union-find over the ops (`dim_pairs`); an axis made
by a transform belongs to the group that the same transform makes of the groups of its sources. Transforms on groups are
hash-consed, so two tensors that were both split by 128 share the resulting groups without anyone replaying anything.

A slice or pad makes a new dim of one of its operand's: no loop over the one is a loop over the other (`displaced_dims`).

Two views: the exact view groups dims that iterate over the same extent; the resolving view also groups a broadcast dim with
the dim that resolves it. The exact view serves lowering, the resolving one serves the propagation of schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from fuser.ir.fusion.dim_pairs import dim_pairs, position_pairs
from fuser.ir.fusion.fusion_exprs import Gather, Reshape, Resize, TensorExpr, tensor_inputs, tensor_outputs
from fuser.ir.fusion.tensors import IterDomain, Merge, Split, Tensor, split_count
from fuser.ir.integers.integers import ONE, Int, Symbol
from fuser.records import record


@dataclass(slots=True, eq=False)
class Group:
    """A node: iteration domains that are the same. `origin` is the transform that makes it, if one does; `has_broadcast`
    says whether any dim that it is made of is a broadcast dim, which might be promoted."""

    name: str
    extent: Int
    is_broadcast: bool
    origin: GroupTransform | None = None
    uses: list[GroupTransform] = field(default_factory=list)
    has_broadcast: bool = False

    def __repr__(self) -> str:
        return f"<{self.name}: {self.extent}>"


@record(eq=False)
class GroupSplit:
    """source = outer * inner extent + inner, less how far behind a multiple of the factor a row of `aligned` begins."""

    source: Group
    factor: Int
    inner_split: bool
    outer: Group
    inner: Group
    divides: bool
    aligned: str | None = None


@record(eq=False)
class GroupMerge:
    outer: Group
    inner: Group
    result: Group


@record(eq=False)
class GroupSwizzle:
    """The element at place `result` of row `by` is element `source`: result = source ^ (by % extent)."""

    by: Group
    source: Group
    result: Group


GroupTransform = GroupSplit | GroupMerge | GroupSwizzle


def as_it_is(extent: Int) -> Int:
    return extent


class IterationGraph:
    """Groups of the iteration domains of some tensors.

    `resolving`: the resolving view. `rewrite` maps extents (facts, canonical symbols). `links`: dims that are the same, though
    no expr says so.
    """

    def __init__(
        self,
        exprs: Iterable[TensorExpr],
        tensors: Iterable[Tensor],
        *,
        resolving: bool = False,
        rewrite: Callable[[Int], Int] = as_it_is,
        links: Iterable[tuple[IterDomain, IterDomain]] = (),
    ) -> None:
        # Of each dim, in order of first sight, the one that stands for its class; and the classes of more than one.
        self._leader: dict[IterDomain, IterDomain] = {d: d for t in tensors for d in (*t.produced, *t.logical)}
        self._rewrite = rewrite
        self._members: dict[IterDomain, list[IterDomain]] = {}
        self._groups: dict[IterDomain, Group] = {}
        # Dims that reshapes relate: each is a group of its own, edges lead from one to the others.
        self._reshaped: set[IterDomain] = set()
        self._splits: dict[tuple[Group, Int, bool, str | None], GroupSplit] = {}
        self._merges: dict[tuple[Group, Group], GroupMerge] = {}
        self._swizzles: dict[tuple[Group, Group], GroupSwizzle] = {}
        windows: dict[tuple[object, ...], IterDomain] = {}
        reshapes: list[Reshape | Resize] = []
        for expr in exprs:
            for a, b in paired_dims(expr, resolving=resolving):
                self._union(a, b)
            if isinstance(expr, (Resize, Gather)):
                self._join_windows(expr, windows)
            if isinstance(expr, (Reshape, Resize)) and expr.output.root is not None:
                reshapes.append(expr)
            outputs = tensor_outputs(expr)
            for sibling in outputs[1:]:
                for a, b in zip(outputs[0].produced, sibling.produced, strict=True):
                    self._union(a, b)
        for a, b in links:
            if resolving or a.is_broadcast == b.is_broadcast:
                self._union(a, b)
        products = [p for expr in reshapes for p in _products(expr)]
        self._reshaped = {d for p in products for d in p}
        self._join_products(products)
        self._members = {}
        for d, leader in self._leader.items():
            self._members.setdefault(leader, []).append(d)
        for product in products:
            self._relate(*map(self.group, product))

    def _join_products(self, products: Sequence[tuple[IterDomain, IterDomain, IterDomain]]) -> None:
        """Two (whole, outer, inner) of the same parts are the same whole; of the same whole and extents, the same parts."""
        changed = True
        while changed:
            changed = False
            known: dict[tuple[object, object], tuple[IterDomain, IterDomain, IterDomain]] = {}
            for p in products:
                whole, outer, inner = map(self._find, p)
                for key in ((outer, inner), (whole, p[2].extent)):
                    for a, b in zip(known.setdefault(key, p), p, strict=True):
                        if self._find(a) is not self._find(b):
                            self._union(a, b)
                            changed = True

    def _relate(self, whole: Group, outer: Group, inner: Group) -> None:
        """An exact transform of dims is a split and a merge at once: indices are found in both directions."""
        if (outer, inner) not in self._merges:
            self._merges[outer, inner] = merge = GroupMerge(outer, inner, whole)
            outer.uses.append(merge)
            inner.uses.append(merge)
        key = (whole, inner.extent, True, None)
        if key not in self._splits:
            self._splits[key] = split = GroupSplit(whole, inner.extent, True, outer, inner, True)
            whole.uses.append(split)

    def _join_windows(self, expr: Resize | Gather, known: dict[tuple[object, ...], IterDomain]) -> None:
        """Equal windows of one dim are the same dim, whichever expr made them: a slice and its recomputation share loops."""
        gathered = expr.dim if isinstance(expr, Gather) else None
        pairs = position_pairs(expr, expr.input, expr.output)
        for i, ((a, b), window) in enumerate(zip(pairs, expr.windows, strict=False)):
            if i == gathered:
                continue
            first = known.setdefault((a, window.offset, window.pieces, window.step, b.extent), b)
            if first is not b and first.is_broadcast == b.is_broadcast:
                self._union(first, b)

    # --- union-find over dims ---

    def _find(self, d: IterDomain) -> IterDomain:
        return self._leader.setdefault(d, d)

    def _union(self, a: IterDomain, b: IterDomain) -> None:
        kept, joined = self._find(a), self._find(b)
        if kept is joined:
            return
        # The members of the smaller class are told who stands for them now.
        large, small = self._members.pop(kept, [kept]), self._members.pop(joined, [joined])
        if len(large) < len(small):
            kept, large, small = joined, small, large
        for d in small:
            self._leader[d] = kept
        large += small
        self._members[kept] = large

    def settled(self) -> IterationGraph:
        """This graph with the groups of all its dims made: asking for them then changes nothing, from any thread."""
        for d in self._leader:
            self.group(d)
        return self

    def same_dims(self, d: IterDomain) -> list[IterDomain]:
        """Every dim in the class of a dim, in order of first sight."""
        return self._members.get(self._leader.get(d, d), [d])

    # --- groups ---

    def concrete_groups(self, dims: Iterable[IterDomain | None]) -> frozenset[Group]:
        """The groups of dims along which there are several elements. None: no dim."""
        return frozenset(self.group(d) for d in dims if d is not None and not d.is_broadcast)

    def group(self, d: IterDomain, promoted: Mapping[Group, Group] | None = None) -> Group:
        """The group of a dim or axis; `promoted` replaces leaf groups (a broadcast computed in a wider loop)."""
        if promoted:
            return self._promoted_group(d, promoted)
        known = self._groups.get(d)
        if known is not None:
            return known
        root = self._leader.get(d, d)
        found = self._groups.get(root)
        if found is None:
            members = self._members.get(root, [d])
            made = next((m for m in members if m.definition is not None and m not in self._reshaped), None)
            found = self._derived(made) if made is not None else self._leaf(members)
            self._groups[root] = found
        self._groups[d] = found
        return found

    def _leaf(self, members: list[IterDomain]) -> Group:
        concrete = [m for m in members if not m.is_broadcast]
        # A constant is best; of others what facts can be about, the size of an argument.
        known = next((m for m in concrete if m.extent.is_const), None)
        chosen = known or next((m for m in concrete if isinstance(m.extent, Symbol)), (concrete or members)[0])
        has_broadcast = len(concrete) < len(members)
        extent = self._rewrite(chosen.extent)
        # What is known to have one element is like a broadcast dim: whoever needs the element has it. Not where it is combined
        # with others along the dim: there every worker counts.
        is_broadcast = not concrete or (extent is ONE and not any(m.is_reduction for m in members))
        return Group(chosen.name, extent, is_broadcast, has_broadcast=has_broadcast)

    def _derived(self, d: IterDomain, promoted: Mapping[Group, Group] | None = None) -> Group:
        t = d.definition
        if isinstance(t, Split):
            made = self.split(self.group(t.source, promoted), t.factor, t.inner_split, t.aligned)
            return made.outer if t.outer is d else made.inner
        assert isinstance(t, Merge)
        return self.merge(self.group(t.outer, promoted), self.group(t.inner, promoted)).result

    def _promoted_group(self, d: IterDomain, promoted: Mapping[Group, Group]) -> Group:
        group = self.group(d)
        if d.definition is None or not group.has_broadcast:
            return promoted.get(group, group)
        return self._derived(d, promoted)

    def split(self, source: Group, factor: Int, inner_split: bool, aligned: str | None = None) -> GroupSplit:
        """The (interned) split of a group."""
        key = (source, factor, inner_split, aligned)
        found = self._splits.get(key)
        if found is None:
            count = split_count(source.extent, factor, aligned=aligned is not None)
            outer_extent, inner_extent = (count, factor) if inner_split else (factor, count)
            outer = Group(f"{source.name}/{factor}", outer_extent, source.is_broadcast)
            inner = Group(f"{source.name}%{factor}", inner_extent, source.is_broadcast)
            outer.has_broadcast = inner.has_broadcast = source.has_broadcast
            rest = source.extent % factor
            divides = aligned is None and rest.is_const and rest.value == 0
            found = GroupSplit(source, factor, inner_split, outer, inner, divides, aligned)
            outer.origin = inner.origin = found
            source.uses.append(found)
            self._splits[key] = found
        return found

    def merge(self, outer: Group, inner: Group) -> GroupMerge:
        """The (interned) merge of two groups."""
        found = self._merges.get((outer, inner))
        if found is None:
            result = Group(
                f"{outer.name}*{inner.name}", outer.extent * inner.extent, outer.is_broadcast and inner.is_broadcast
            )
            result.has_broadcast = outer.has_broadcast or inner.has_broadcast
            found = GroupMerge(outer, inner, result)
            result.origin = found
            outer.uses.append(found)
            inner.uses.append(found)
            self._merges[outer, inner] = found
        return found

    def swizzle(self, by: Group, source: Group) -> GroupSwizzle:
        """The (interned) swizzle of a group by another."""
        found = self._swizzles.get((by, source))
        if found is None:
            result = Group(f"{source.name}^{by.name}", source.extent, source.is_broadcast)
            result.has_broadcast = by.has_broadcast or source.has_broadcast
            found = GroupSwizzle(by, source, result)
            result.origin = found
            source.uses.append(found)
            self._swizzles[by, source] = found
        return found

    def transforms(self) -> list[GroupSplit | GroupMerge]:
        """Every split and merge of groups made so far."""
        return [*self._splits.values(), *self._merges.values()]

    def find_split(
        self, source: Group, factor: Int, inner_split: bool, aligned: str | None = None
    ) -> GroupSplit | None:
        """The split of a group, if some tensor splits it so."""
        return self._splits.get((source, factor, inner_split, aligned))

    def find_merge(self, outer: Group, inner: Group) -> Group | None:
        """The group of the merge of two groups, if some tensor merges them."""
        found = self._merges.get((outer, inner))
        return found.result if found is not None else None


@lru_cache(maxsize=1 << 12)
def paired_dims(expr: TensorExpr, *, resolving: bool) -> tuple[tuple[IterDomain, IterDomain], ...]:
    """The dims of operands and results that an expr makes the same: graphs are made anew for every few verbs of a schedule,
    of exprs that are for the most part those of the one before."""
    return tuple(
        [
            (a, b)
            for producer in tensor_inputs(expr)
            for consumer in tensor_outputs(expr)
            for a, b in dim_pairs(expr, producer, consumer)
            if resolving or a.is_broadcast == b.is_broadcast
        ]
    )


def _products(expr: Reshape | Resize) -> list[tuple[IterDomain, IterDomain, IterDomain]]:
    """(whole, outer, inner) of each transform between the root and the logical dims of a result."""
    found: dict[tuple[IterDomain, IterDomain, IterDomain], None] = {}
    pending = list(expr.output.logical)
    while pending:
        match pending.pop().definition:
            case Split() as t:
                found[t.source, t.outer, t.inner] = None
                pending.append(t.source)
            case Merge() as t:
                found[t.result, t.outer, t.inner] = None
                pending += (t.outer, t.inner)
            case _:
                pass
    return list(found)


def leaves(group: Group) -> set[Group]:
    """The groups of dims that a group is made of."""
    match group.origin:
        case GroupSplit() as s:
            return leaves(s.source)
        case GroupMerge() as m:
            return leaves(m.outer) | leaves(m.inner)
        case GroupSwizzle() as s:
            return leaves(s.source)
        case None:
            return {group}


def unify(graph: IterationGraph, axis: IterDomain, target: Group, promoted: dict[Group, Group]) -> bool:
    """Whether an axis becomes `target` by promoting broadcast leaves; extends `promoted` when it does.

    A broadcast dim that is computed inside a loop over the dim that resolves it is *promoted* to it: its axis is the same
    transform of the wider dim. On failure `promoted` may hold additions: pass a copy.
    """
    current = graph.group(axis, promoted)
    if current is target:
        return True
    t = axis.definition
    if t is None:
        leaf = graph.group(axis)
        if not axis.is_broadcast or leaf in promoted:
            return False
        promoted[leaf] = target
        return True
    if isinstance(t, Split):
        wholes = _wholes_of(graph, axis, t, target)
        return any(_unify_all(graph, [(t.source, whole)], promoted) for whole in wholes)
    return any(
        _unify_all(graph, [(t.outer, outer), (t.inner, inner)], promoted) for outer, inner in _parts_of(graph, target)
    )


def _unify_all(graph: IterationGraph, pairs: Sequence[tuple[IterDomain, Group]], promoted: dict[Group, Group]) -> bool:
    """Whether all axes become their targets; `promoted` is as it was if not."""
    trial = dict(promoted)
    if not all(unify(graph, axis, target, trial) for axis, target in pairs):
        return False
    promoted.update(trial)
    return True


def _wholes_of(graph: IterationGraph, axis: IterDomain, made: Split, target: Group) -> Iterator[Group]:
    """The groups of which `target` is the part that `axis` is of its source: the one it is split from, and dims that a reshape
    makes of it."""
    wholes = [target.origin.source] if isinstance(target.origin, GroupSplit) else []
    wholes += [use.result for use in target.uses if isinstance(use, GroupMerge)]
    for whole in wholes:
        split = graph.find_split(whole, made.factor, made.inner_split, made.aligned)
        if split is not None and (split.outer if made.outer is axis else split.inner) is target:
            yield whole


def _parts_of(graph: IterationGraph, target: Group) -> Iterator[tuple[Group, Group]]:
    """The (outer, inner) whose merge is `target`: those it is merged from, and dims that a reshape makes of it."""
    if isinstance(target.origin, GroupMerge):
        yield target.origin.outer, target.origin.inner
        return
    for use in target.uses:
        if isinstance(use, GroupSplit) and graph.find_merge(use.outer, use.inner) is target:
            yield use.outer, use.inner
