"""Offsets and predicates of loop nests: the offset of a tensor's element, and the predicates of a statement.

A thread exceeds an extent only through a split that does not divide or a padded parallel axis. Each such edge gives a
predicate, which is dropped if ranges prove it. Every decision is logged for FUSER_VERIFY=proofs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fuser.errors import SchedulingError
from fuser.ir.facts import Aligned
from fuser.ir.fusion.fusion import Tensor
from fuser.ir.fusion.iteration_graph import Group, GroupMerge, GroupSplit, GroupSwizzle
from fuser.ir.integers.integers import (
    ONE,
    ZERO,
    Cond,
    Int,
    Symbol,
    all_of,
    const,
    equal,
    less,
    prove_less,
    symbol,
)
from fuser.ir.integers.proofs import Claim, Relation, Term
from fuser.ir.kernel.kernel import Buffer, Role, Stmt
from fuser.ir.ops.enums import THREAD_TYPES, ParallelType
from fuser.lowering.context import TensorLayout, is_shared_by, stored_axes
from fuser.lowering.loop_nests.divide_once import divide_once
from fuser.lowering.loop_nests.indexing import Indexer
from fuser.lowering.loop_nests.nest_state import NestState
from fuser.lowering.parallel_axes import guarded
from fuser.lowering.predicates.hoisted_tests import holds_for_larger, holds_for_smaller, step_of_test


class NestPredicates(NestState):
    """Indices, offsets, tests and claims."""

    def _indexer(self, indices: Mapping[Group, Int]) -> Indexer:
        return Indexer(self.graph, indices, self.context.proofs, self._rows_of)

    def _operand_indexer(self, indices: Mapping[Group, Int], loops: Indexer) -> Indexer:
        """Of the operand of a displaced read: its rows are cut where those of the loops are, whichever row of it is read."""

        def rows(split: GroupSplit) -> tuple[Sequence[tuple[Group, Int]], Int] | None:
            lead = loops.missing_elements(split)
            return None if lead is None else ((), lead)

        return Indexer(self.graph, indices, self.context.proofs, rows)

    def _rows_of(self, split: GroupSplit) -> tuple[Sequence[tuple[Group, Int]], Int]:
        """The other axes of the tensor that a split is aligned to, and the misalignment of its base."""
        known = self._aligned_rows.get(split)
        if known is None:
            assert split.aligned is not None
            t = self.builder.state(split.aligned).tensor
            # Dim by dim, or with runs of dims as one, where the schedule has merged the row's own.
            axes = next(
                (a for a in (stored_axes(self.context, t, fold=f) for f in (False, True)) if (split.source, ONE) in a),
                (),
            )
            rest = tuple((g, stride) for g, stride in axes if g is not split.source)
            if not split.source.is_broadcast and not axes:
                raise SchedulingError(
                    f"cannot align {split.source.name} to {t.name}, whose elements along it are not neighbours",
                    location=t.location,
                )
            known = (
                ((), ZERO)
                if split.source.is_broadcast
                else (rest, self._misalignment_elements(t, split.inner.extent.value))
            )
            self._aligned_rows[split] = known
        return known

    def _misalignment_elements(self, t: Tensor, width: int) -> Int:
        """The misalignment of a tensor: how many elements after a multiple of `width` elements in memory it begins.

        0 for what the launch allocates and what the facts call aligned.
        """
        argument = self.context.alias_of.get(t.name, t)
        if self._has_aligned_base(argument, width * argument.dtype.itemsize):
            return ZERO
        known = self.phases.get((argument.name, width))
        if known is None:
            known = self.phases[argument.name, width] = symbol(f"{argument.name}_phase", 0, width - 1)
        return known

    def _has_aligned_base(self, argument: Tensor, nbytes: int) -> bool:
        """Whether a tensor is known to begin at a multiple of so many bytes. What the launch allocates does."""
        return argument.name not in self.builder.input_names or any(
            isinstance(f, Aligned) and f.tensor == argument.name and f.bytes % nbytes == 0 for f in self.context.facts
        )

    def _log_claim(
        self,
        what: str,
        left: Term,
        relation: Relation,
        right: Term,
        premises: tuple[Cond, ...] = (),
        decision: Cond | None = None,
    ) -> None:
        if self.context.proofs is not None:
            self.context.proofs.add(Claim("build_loop_nests", what, left, relation, right, premises, decision))

    def _log_extents(self) -> None:
        """What groups say about their extents."""
        for t in self.graph.transforms():
            if isinstance(t, GroupMerge):
                self._log_claim(
                    f"extent of {t.result.name}", t.result.extent, "==", ("*", t.outer.extent, t.inner.extent)
                )
                continue
            count = t.outer if t.inner_split else t.inner
            extent = t.source.extent if t.aligned is None else t.source.extent + (t.factor - 1)
            parts: Term = ("//", ("+", ("+", extent, t.factor), const(-1)), t.factor)
            self._log_claim(f"extent of {count.name}", count.extent, "==", parts)
            if t.divides:
                self._log_claim(f"split of {t.source.name}", t.source.extent, "|", t.factor)

    def _is_inside(self, what: str, index: Int, extent: Int) -> bool:
        """Whether an index is proved to be below an extent: a predicate that need not be tested."""
        inside = prove_less(index, extent)
        if inside:
            self._log_claim(f"dropped predicate of {what}", index, "<", extent)
        return inside

    def _test(self, what: str, index: Int, extent: Int) -> Cond:
        test = less(index, extent)
        self._log_claim(f"predicate of {what}", index, "<", extent, decision=test)
        return test

    def _offset(self, indexer: Indexer, axes: Sequence[tuple[Group, Int]], t: Tensor) -> Int:
        offset: Int = ZERO
        unsimplified: Term = ZERO
        for group, stride in axes:
            index = indexer.index(group)
            if index is None:
                raise SchedulingError(
                    f"{t.name} cannot be indexed: its axis {group.name} does not follow from the loops around its use",
                    location=t.location,
                )
            offset = offset + index * stride
            unsimplified = ("+", unsimplified, ("*", index, stride))
        self._log_claim(f"offset of {t.name}", offset, "==", unsimplified)
        return divide_once(offset, self._unrolled)

    def _check_register_index(self, buffer: Buffer, offset: Int, t: Tensor) -> None:
        """Registers have no addresses: their index must be a constant once the marked loops are unrolled."""
        dynamic = sorted(s.name for s in offset.symbols - self._unrolled) if buffer.is_register else []
        if dynamic:
            raise SchedulingError(
                f"{t.name} is kept in registers, but element {offset} of it is used, which depends on {', '.join(dynamic)}: "
                "inline it, give those loops constant extents, or move it to shared memory",
                location=t.location,
            )

    def _predicate_list(self, leader: str, loops: Sequence[Group], indexer: Indexer) -> list[Cond]:
        """index < extent for every split on the way to the loops that does not divide, and every padded parallel axis."""
        conds: dict[Cond, None] = {}
        kinds = {g: p for _, g, p in self.context.axes(leader)}
        bounded: set[GroupSplit] = set()
        for split in inexact_splits(loops):
            index = indexer.padded(split)
            if index is None:
                continue
            if split.aligned is not None and not prove_less(const(-1), index):
                conds[self._test(leader, const(-1), index)] = None
            bounded.add(split)
            parent = split.source.origin
            implied = isinstance(parent, GroupSplit) and parent in bounded and parent.outer is split.source
            # The index of the whole takes 0 for an outer part of extent 1: it says nothing about that part's padding.
            if implied and isinstance(parent, GroupSplit) and split.source.extent is not ONE:
                # outer * f + inner < E implies outer < ceil(E / f)
                whole = indexer.index(parent.source)
                assert whole is not None
                given = (less(whole, parent.source.extent),)
                self._log_claim(f"implied predicate of {leader}", index, "<", split.source.extent, given)
                continue
            if not self._is_inside(leader, index, split.source.extent):
                conds[self._test(leader, index, split.source.extent)] = None
        for group in loops:
            p = kinds.get(group, ParallelType.serial)
            index = indexer.loops.get(group)
            origin = group.origin
            if isinstance(origin, GroupSplit) and origin in bounded and origin.outer is group and origin.inner_split:
                continue  # the same
            if (
                p in THREAD_TYPES
                and index is not None
                and not group.is_broadcast
                and not self._is_inside(leader, index, group.extent)
            ):
                conds[self._test(leader, index, group.extent)] = None
        return list(conds)

    def _predicates(self, leader: str, loops: Sequence[Group], indexer: Indexer) -> Cond:
        return all_of(*self._predicate_list(leader, loops, indexer))

    def _guarded(
        self, stmts: list[Stmt], indexer: Indexer, loops: Sequence[Group], leader: str, target: TensorLayout
    ) -> list[Stmt]:
        """Predicates, and for memory that several threads share, the test that lets one of the holders write."""
        owner = self._owner_condition(leader, target, indexer)
        return guarded(self._predicates(leader, loops, indexer), guarded(owner, stmts), Role.predicate)

    def _owner_condition(self, leader: str, target: TensorLayout, indexer: Indexer) -> Cond:
        memory = target.buffer.memory
        axes = self.context.axes(leader)
        spread = {p for axis, group, p in axes if not axis.is_reduction and not group.is_broadcast}
        conds: list[Cond] = []
        for p in THREAD_TYPES:
            size = self.context.sizes.get(p)
            if size is None or size is ONE or p in spread or not is_shared_by(memory, p):
                continue
            if p.is_grid and self._is_last_block_only(leader, p):
                continue
            conds.append(equal(self.context.threads[p], 0))
        if self._needs_single_writer(target.tensor):
            for wide in self.sharing.promotions[leader].values():
                index = indexer.index(wide)
                if index is not None:
                    conds.append(equal(index, 0))
        return all_of(*conds)


def predicate_for_all_lanes(test: Cond, index: Symbol, count: int) -> Cond:
    """A test that holds for all values of `index` below `count` if it holds: the test at the first or the last of them."""
    if holds_for_larger(test, index):
        return test.substitute({index: 0})
    if holds_for_smaller(test, index):
        return test.substitute({index: count - 1})
    return all_of(*(test.substitute({index: k}) for k in range(count)))


def predicate_for_any_lane(test: Cond, index: Symbol, count: int) -> Cond | None:
    """A test that holds if the test holds for any value of `index` below `count`, which are those up to some, or from some on;
    None where that is not known. If the easiest of both kinds hold, and an extent is between, so does some value."""
    step = step_of_test(test, index)
    if step is ONE:
        return test.substitute({index: count - 1})
    if step is const(-1):
        return test.substitute({index: 0})
    return None


def inexact_splits(loops: Sequence[Group]) -> list[GroupSplit]:
    """The splits on the way to some loops that are not known to divide, outer before inner."""
    found: dict[GroupSplit, None] = {}
    seen: set[Group] = set()

    def visit(group: Group) -> None:
        if group in seen:
            return
        seen.add(group)
        match group.origin:
            case GroupSplit() as s:
                visit(s.source)
                if not s.divides:
                    found[s] = None
            case GroupMerge() as m:
                visit(m.outer)
                visit(m.inner)
            case GroupSwizzle() | None:
                # Places in memory are swizzled, loops are not.
                pass

    for group in loops:
        visit(group)
    return list(found)
