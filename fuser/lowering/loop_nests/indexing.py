"""The index of a group of iteration domains, found by walking the graph from the current loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fuser.ir.fusion.iteration_graph import Group, GroupMerge, GroupSplit, GroupSwizzle, IterationGraph
from fuser.ir.integers.integers import ONE, ZERO, Int, const, exclusive_or
from fuser.ir.integers.proofs import Claim, ProofLog, Term


class Indexer:
    """Indices inside one loop nest: `loops` gives the index of each loop group, everything else follows.

    Walking backwards through a split gives outer * inner_extent + inner, forwards // and %; through a merge backwards
    // and % by the inner extent, forwards outer * inner_extent + inner; a swizzle is its own inverse, j ^ (i % extent). A group
    of extent 1 has index 0. `rows` gives where a row starts, for aligned splits: (group, stride) of the other axes of the
    tensor that a split is aligned to, and the misalignment of its base, in elements; None where nobody knows. (Sum of index *
    stride + misalignment) modulo the factor is the number of elements that the first vector of the row lacks.
    """

    def __init__(
        self,
        graph: IterationGraph,
        loops: Mapping[Group, Int],
        proofs: ProofLog | None = None,
        rows: Callable[[GroupSplit], tuple[Sequence[tuple[Group, Int]], Int] | None] = lambda split: ((), ZERO),
    ) -> None:
        self.graph = graph
        self.loops = loops
        self.proofs = proofs
        self.rows = rows
        self._known: dict[Group, Int | None] = dict(loops)

    def index(self, group: Group) -> Int | None:
        """Index of a group, or None if the loops do not determine it."""
        return self._walk(group, set())

    def padded(self, split: GroupSplit) -> Int | None:
        """Index of a split's source as the loops count it: outside the extent where the split pads, even one of 1."""
        outer, inner = self.index(split.outer), self.index(split.inner)
        if outer is None or inner is None:
            return self.index(split.source)
        before = self._before(split, set())
        return None if before is None else outer * split.inner.extent + inner - before

    def missing_elements(self, split: GroupSplit) -> Int | None:
        """Elements that the first vector of a row lacks; None where the loops do not say where the row begins."""
        return self._before(split, set())

    def _before(self, split: GroupSplit, visiting: set[Group]) -> Int | None:
        """Elements of the first part of an aligned split that are before the row."""
        if split.aligned is None:
            return ZERO
        row = self.rows(split)
        if row is None:
            return None
        axes, start = row
        factor = split.inner.extent.value
        for group, stride in axes:
            if stride.multiple % factor == 0:
                continue  # all of them begin alike
            index = self._modulo(group, factor, visiting)
            if index is None:
                return None
            start = start + index * stride
        return start % split.factor

    def _modulo(self, group: Group, factor: int, visiting: set[Group]) -> Int | None:
        """A number that leaves the same rest as the index of a group: loops over multiples of the factor need not be known."""
        for use in group.uses:
            if isinstance(use, GroupSplit) and use.aligned is None and use.inner.extent.multiple % factor == 0:
                inner = self._walk(use.inner, visiting)
                if inner is not None:
                    return inner
        return self._walk(group, visiting)

    def _walk(self, group: Group, visiting: set[Group]) -> Int | None:
        known = self._known.get(group)
        if known is not None:
            return known
        if group.extent is ONE:
            self._known[group] = ZERO
            return ZERO
        if group in self._known or group in visiting:
            return None
        visiting.add(group)
        found = self._backward(group, visiting)
        if found is None:
            found = self._forward(group, visiting)
        visiting.discard(group)
        # A failure while other groups are on the stack may be due to them: only a clean failure is remembered.
        if found is not None or not visiting:
            self._known[group] = found
        return found

    def _backward(self, group: Group, visiting: set[Group]) -> Int | None:
        for use in group.uses:
            match use:
                case GroupSplit():
                    outer, inner = self._walk(use.outer, visiting), self._walk(use.inner, visiting)
                    before = self._before(use, visiting)
                    if outer is not None and inner is not None and before is not None:
                        return self._logged(
                            group,
                            outer * use.inner.extent + inner - before,
                            ("+", ("+", ("*", outer, use.inner.extent), inner), ("*", const(-1), before)),
                        )
                case GroupMerge():
                    merged = self._walk(use.result, visiting)
                    if merged is not None and use.outer.extent is ONE:
                        # Merged around another dim, one of one element changes no index: past the end neither divides.
                        return ZERO if use.outer is group else merged
                    if merged is not None:
                        return self._quotient(group, use.outer is group, merged, use.inner.extent)
                case GroupSwizzle():
                    place, by = self._walk(use.result, visiting), self._walk(use.by, visiting)
                    if place is not None and by is not None:
                        return self._swizzled(group, place, by)
        return None

    def _forward(self, group: Group, visiting: set[Group]) -> Int | None:
        origin = group.origin
        match origin:
            case GroupSplit():
                source, before = self._walk(origin.source, visiting), self._before(origin, visiting)
                if source is None or before is None:
                    return None
                return self._quotient(group, origin.outer is group, source + before, origin.inner.extent)
            case GroupMerge():
                outer, inner = self._walk(origin.outer, visiting), self._walk(origin.inner, visiting)
                if outer is None or inner is None:
                    return None
                return self._logged(
                    group, outer * origin.inner.extent + inner, ("+", ("*", outer, origin.inner.extent), inner)
                )
            case GroupSwizzle():
                source, by = self._walk(origin.source, visiting), self._walk(origin.by, visiting)
                return None if source is None or by is None else self._swizzled(group, source, by)
            case None:
                return None

    def _swizzled(self, group: Group, index: Int, by: Int) -> Int:
        # Inside the extent both are as they were; a thread beyond it stays inside the row.
        inside = index % group.extent
        row = by % group.extent
        return self._logged(group, exclusive_or(inside, row), ("^", inside, row))

    def _quotient(self, group: Group, is_outer: bool, index: Int, extent: Int) -> Int:
        if extent is ZERO:
            return ZERO  # inside a loop over nothing
        if is_outer:
            return self._logged(group, index // extent, ("//", index, extent))
        return self._logged(group, index % extent, ("%", index, extent))

    def _logged(self, group: Group, index: Int, unsimplified: Term) -> Int:
        if self.proofs is not None:
            self.proofs.add(Claim("build_loop_nests", f"index of {group.name}", index, "==", unsimplified))
        return index
