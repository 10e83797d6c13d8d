"""Which dims of a reshape follow from which: runs of neighbours with equal numbers of elements.

    [4, 6, 5] -> [24, 5]        [4, 6] make [24], [5] stays
    [64, 256] -> [64, 32, 8]    [64] stays, [256] makes [32, 8]
    [4, 6] -> [6, 4]            [4, 6] make [6, 4]: as rows of one long dim

Dims of one element take no part: they are dropped before and added after. A *resolution* says all this for the sizes at
hand; a reshape of constant extents has one from the start, others get theirs when inputs are bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fuser.ir.fusion.fusion import IterDomain, Merge, Split
from fuser.ir.integers.integers import ONE, Int
from fuser.records import record


@record
class Run:
    """Neighbouring dims of the input and those of the result that are made of them, by position among dims of more than one
    element. `sizes`: of the input's and of the result's, where both have several and some extent is not constant, or several
    of one side are not constant whose product is."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    sizes: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    @property
    def is_kept(self) -> bool:
        """Whether it is one dim before and after."""
        return len(self.inputs) == 1 == len(self.outputs)


@record
class Resolution:
    """How a reshape is done for some sizes.

    dropped   per dim of the input, whether it has one element
    added     the same per dim of the result
    is_empty  there is no element at all: nothing else counts then
    copies    the input is a view whose elements do not lie so that the result could be another one
    """

    dropped: tuple[bool, ...]
    added: tuple[bool, ...]
    runs: tuple[Run, ...]
    is_empty: bool = False
    copies: bool = False


def resolve(
    sizes: Sequence[int], new_sizes: Sequence[int], constant: Sequence[bool], new_constant: Sequence[bool]
) -> Resolution | None:
    """The resolution of a reshape between two shapes, or None if they have different numbers of elements.

    `constant`, `new_constant`: per dim, whether its size is the same for all inputs.
    """
    if min((*sizes, *new_sizes), default=1) < 0 or math.prod(sizes) != math.prod(new_sizes):
        return None
    dropped, added = tuple(n == 1 for n in sizes), tuple(n == 1 for n in new_sizes)
    if 0 in sizes:
        return Resolution(dropped, added, (), is_empty=True)
    a = [(n, c) for n, c in zip(sizes, constant, strict=True) if n != 1]
    b = [(n, c) for n, c in zip(new_sizes, new_constant, strict=True) if n != 1]
    runs: list[Run] = []
    i = j = 0
    while i < len(a):
        first, second = i + 1, j + 1
        left, right = a[i][0], b[j][0]
        while left != right:
            if left < right:
                left *= a[first][0]
                first += 1
            else:
                right *= b[second][0]
                second += 1
        mine, others = a[i:first], b[j:second]
        known = None
        several = len(mine) > 1 and len(others) > 1
        if (several and not all(c for _, c in (*mine, *others))) or _is_fixed(mine, others) or _is_fixed(others, mine):
            known = tuple(n for n, _ in mine), tuple(n for n, _ in others)
        runs.append(Run(tuple(range(i, first)), tuple(range(j, second)), known))
        i, j = first, second
    return Resolution(dropped, added, tuple(runs))


def _is_fixed(made: Sequence[tuple[int, bool]], whole: Sequence[tuple[int, bool]]) -> bool:
    """Whether some dims have a constant number of elements, and it is not known how many each of them has.

    Other sizes of theirs with that product are no case worth a common program: what is done for these knows them.
    """
    return all(c for _, c in whole) and sum(not c for _, c in made) > 1


def transformed(name: str, whole: Sequence[IterDomain], extents: Sequence[Int]) -> list[IterDomain]:
    """Dims of the given extents made of neighbouring ones: these are merged, then split from the innermost on."""
    merged = whole[0]
    for d in whole[1:]:
        made = IterDomain(f"({merged.name}*{d.name})", merged.extent * d.extent)
        made.definition = Merge(merged, d, made)
        merged = made
    if len(extents) == 1:
        merged.extent = extents[0]
        return [merged]
    result: list[IterDomain] = []
    for i in range(len(extents) - 1, 0, -1):
        rest = product(extents[:i])
        outer = IterDomain(f"{name}.{merged.name}/{extents[i]}", rest)
        inner = IterDomain(f"{name}.{merged.name}%{extents[i]}", extents[i])
        outer.definition = inner.definition = Split(merged, extents[i], True, outer, inner)
        result.insert(0, inner)
        merged = outer
    return [merged, *result]


def product(extents: Sequence[Int]) -> Int:
    """The number of elements of some dims."""
    total = ONE
    for e in extents:
        total = total * e
    return total
