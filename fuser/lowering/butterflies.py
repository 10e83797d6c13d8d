"""Reductions over the lanes of a warp, by shuffles. Part of the pass expand_collectives.

Every lane exchanges its partials with the lane whose number differs in one bit, joins, and goes on with the next bit: in the
end all lanes have the same bits. The count that the elements of statistics have in common is exchanged once.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.ir.enums import MemoryType
from fuser.ir.integers import ONE, ZERO, Int, const
from fuser.ir.kernel import Allocate, Buffer, Literal, Load, Reduce, Role, Shuffle, ShuffleKind, Stmt, Store
from fuser.lowering.compensated_sum import COMBINE, finish_sum
from fuser.lowering.exp_sum import COMBINE_EXACTLY as EXACT_EXP_SUM
from fuser.lowering.exp_sum import exp_sum_scaled
from fuser.lowering.join_partials import EXP_SUMS, Joins, is_common


def butterflies(joins: Joins, r: Reduce, width: int, stride: int = 1, *, keeps_rest: bool = False) -> list[Stmt]:
    """Join the lanes of each aligned group of `width` that are a multiple of `stride` apart.

    keeps_rest   what the additions of totals of exponentials lose is not lost, where those are to be exact
    """
    if r.combine in EXP_SUMS:
        return _of_pair(joins, r, width, stride, keeps_rest=keeps_rest and r.combine == EXACT_EXP_SUM)
    if not is_common(r, 2):
        return joins.elements(r, lambda e: _of_element(joins, r, e, width, stride))
    stmts: list[Stmt] = []
    offset = width // 2
    while offset >= stride:
        lane = const(offset)
        number = joins.axes.number()
        got = tuple(Buffer(f"{p.name}_x{number}", p.dtype, MemoryType.local, p.size) for p in r.partials)

        def shuffle(i: int, e: Int, got: tuple[Buffer, ...] = got, lane: Int = lane) -> list[Stmt]:
            return [Shuffle(got[i], e, Load(r.partials[i], e), ShuffleKind.xor, lane)]

        stmts += [*(Allocate(b) for b in got), *joins.each(r, shuffle)]
        stmts += joins.combine_each(r, lambda i, e, got=got: Load(got[i], e))
        offset //= 2
    return stmts


def _of_pair(joins: Joins, r: Reduce, width: int, stride: int, *, keeps_rest: bool) -> list[Stmt]:
    """The maximum of all lanes first: then each scales its total once, and the totals are added."""
    largest, total = r.partials
    old = Buffer(f"{largest.name}_own{joins.axes.number()}", largest.dtype, MemoryType.local, largest.size)

    def alone(partial: int, combine: str) -> list[Stmt]:
        one = replace(r, partials=(r.partials[partial],), identity=(r.identity[partial],), combine=combine)
        return butterflies(joins, one, width, stride)

    return [
        Allocate(old),
        *joins.elements(r, lambda e: [Store(old, e, Load(largest, e))]),
        *alone(0, "maximum"),
        *joins.elements(r, lambda e: exp_sum_scaled(r.partials, e, old, is_exact=r.combine == EXACT_EXP_SUM)),
        *(_with_rests(joins, r, total, width, stride) if keeps_rest else alone(1, "add")),
    ]


def _with_rests(joins: Joins, r: Reduce, total: Buffer, width: int, stride: int) -> list[Stmt]:
    """Add up the totals and what is lost apart."""
    name, zero = f"{r.name}_r{joins.axes.number()}", Literal(0.0, total.dtype)
    lost = Buffer(f"{name}_lost", total.dtype, MemoryType.local, total.size)
    both = replace(r, partials=(total, lost), identity=(zero, zero), combine=COMBINE)
    return [
        Allocate(lost),
        *joins.elements(r, lambda e: [Store(lost, e, zero, Role.initialise)]),
        *butterflies(joins, both, width, stride),
        *joins.elements(r, lambda e: finish_sum(total, lost, e, name)),
    ]


def _of_element(joins: Joins, r: Reduce, at: Int, width: int, stride: int) -> list[Stmt]:
    """All lanes of each aligned group of `width`, a multiple of `stride` apart, end with what they have together."""
    stmts: list[Stmt] = []
    offset = width // 2
    while offset >= stride:
        received: list[Buffer] = []
        for partial in r.partials:
            number = joins.axes.number()
            other = Buffer(f"{partial.name}_x{number}", partial.dtype, MemoryType.local, ONE)
            stmts += [
                Allocate(other),
                Shuffle(other, ZERO, Load(partial, at), ShuffleKind.xor, const(offset)),
            ]
            received.append(other)
        stmts += joins.combine(r, at, tuple(Load(b, ZERO) for b in received))
        offset //= 2
    return stmts
