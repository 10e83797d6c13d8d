"""Combines partial results within one thread. Part of the pass expand_collectives.

A reduction has one or several partials (`ir/kernel/kernel.py::Reduce`), each an array of elements; `combine` is the
operation that makes the partials of two threads those of both. Every protocol, within a warp or across the grid, ends in
this operation.
"""

from __future__ import annotations

from collections.abc import Callable

from fuser.ir.integers.integers import ONE, ZERO, Int, const
from fuser.ir.kernel.kernel import Buffer, Call, For, Load, Reduce, Role, Stmt, Store, Value
from fuser.ir.ops.enums import MemoryType
from fuser.ir.ops.op_table import compute_dtype
from fuser.lowering.combiners.combiner_values import PartialsReader
from fuser.lowering.combiners.exp_sum import exp_sum_combine, exp_sum_combine_many
from fuser.lowering.combiners.welford import CommonCountCombine, welford_combine
from fuser.lowering.combiners.welford_combine_many import welford_combine_many
from fuser.lowering.parallel_axes import ParallelAxes


class PartialCombiner:
    """Statements that move and combine partials; `axes` gives names."""

    def __init__(self, axes: ParallelAxes) -> None:
        self.axes = axes

    def elements(self, r: Reduce, make: Callable[[Int], list[Stmt]]) -> list[Stmt]:
        """`make(e)` for every element of the partials."""
        count = r.partials[0].size
        if count is ONE:
            return make(ZERO)
        e = self.axes.symbol("e", count)
        return [For(e, ZERO, count, ONE, tuple(make(e)), unroll=True)]

    def each(self, r: Reduce, make: Callable[[int, Int], list[Stmt]]) -> list[Stmt]:
        """`make(i, e)` for every element of every partial; for a count that the elements have in common once."""
        wide = [i for i in range(len(r.partials)) if not is_shared_count(r, i)]
        common = [s for i in range(len(r.partials)) if i not in wide for s in make(i, ZERO)]
        return [*common, *self.elements(r, lambda e: [s for i in wide for s in make(i, e)])]

    def load(self, r: Reduce, value: Callable[[int, Int], Value]) -> list[Stmt]:
        """Set element e of every partial i to `value(i, e)`."""
        return self.each(r, lambda i, e: [Store(r.partials[i], e, value(i, e))])

    def clear(self, r: Reduce) -> list[Stmt]:
        """Set every partial to its identity."""
        return self.each(r, lambda i, e: [Store(r.partials[i], e, r.identity[i], Role.initialise)])

    def store(self, r: Reduce, at: Callable[[int, Int], tuple[Buffer, Int]]) -> list[Stmt]:
        """Store element e of every partial i at `at(i, e)`: a buffer and the index in it."""
        return self.each(r, lambda i, e: [Store(*at(i, e), Load(r.partials[i], e))])

    def combine_each(self, r: Reduce, other: Callable[[int, Int], Value]) -> list[Stmt]:
        """Join `other(i, e)` to every element e of every partial i."""
        if not is_shared_count(r, 2):
            return self.elements(r, lambda e: self.combine(r, e, tuple(other(i, e) for i in range(len(r.partials)))))
        join = CommonCountCombine(r.partials, f"{r.name}_c{self.axes.number()}")
        return [*join.counted(other(2, ZERO)), *self.elements(r, lambda e: join.element(e, other(0, e), other(1, e)))]

    def combine_all(
        self, r: Reduce, others: Callable[[int, Int, Int], Value], number: Int, *, unroll: bool = False
    ) -> list[Stmt]:
        """Set every partial to what `number` threads have together: `others(i, e, k)` is element e of partial i of thread k.

        Unrolled, they are combined in pairs, pairs of pairs, and so on: short chains round less, and are waited for less.
        """
        parts = PartialsReader(others, number, self.axes.symbol, unroll)
        if r.combine == "welford":
            name = f"{r.name}_c{self.axes.number()}"
            return welford_combine_many(r.partials, parts, lambda make: self.elements(r, make), name)
        if r.combine == "exp_sum":
            name = f"{r.name}_p{self.axes.number()}"
            return self.elements(r, lambda e: exp_sum_combine_many(r.partials, e, parts, name))
        if unroll and number.is_const and number.value > 2:
            return self.elements(r, lambda e: self._by_pairs(r, e, lambda k: others(0, e, k), number.value))
        k = parts.index()
        rest = self.combine_each(r, lambda i, e: others(i, e, k))
        return [*self.load(r, lambda i, e: others(i, e, ZERO)), parts.loop(k, rest, ONE)]

    def own(self, r: Reduce) -> tuple[Buffer, ...]:
        """Registers for one element of every partial."""
        number = self.axes.number()
        return tuple(Buffer(f"{p.name}_own{number}", p.dtype, MemoryType.local, ONE) for p in r.partials)

    def _by_pairs(self, r: Reduce, at: Int, read: Callable[[Int], Value], number: int) -> list[Stmt]:
        """Set element `at` to what `number` values have together.

        One expression: compiled as it is written, it holds a value for each of its levels. Loops over the levels held half of
        all values, 32 to 59 registers a thread.
        """
        partial = r.partials[0]
        dtype = partial.dtype

        def joined(first: int, count: int) -> Value:
            if count == 1:
                return read(const(first))
            half = (count + 1) // 2
            both = joined(first, half), joined(first + half, count - half)
            return Call(r.combine, both, compute_dtype(dtype), dtype)

        return [Store(partial, at, joined(0, number))]

    def combine(self, r: Reduce, at: Int, other: tuple[Value, ...]) -> list[Stmt]:
        """Join one value of each partial to element `at` of it."""
        if r.combine == "welford":
            number = self.axes.number()
            return welford_combine(r.partials, at, other, f"{r.name}_c{number}")
        if r.combine == "exp_sum":
            return exp_sum_combine(r.partials, at, other, f"{r.name}_c{self.axes.number()}")
        partial = r.partials[0]
        dtype = partial.dtype
        return [Store(partial, at, Call(r.combine, (Load(partial, at), other[0]), compute_dtype(dtype), dtype))]


def is_shared_count(r: Reduce, i: int) -> bool:
    """Whether partial i is one count for all elements of the others."""
    return i < len(r.partials) and r.partials[i].size is not r.partials[0].size
