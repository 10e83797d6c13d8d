"""Verbs that carry a reference's loop domain, parallel types or inline position over to other tensors.

What is the same dim is asked of the resolving view of the iteration-domain graph.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.errors import SchedulingError
from fuser.ir.fusion.fusion import Fusion, IterDomain, IterKind, Merge, Split, tensor_outputs
from fuser.ir.fusion.iteration_graph import Group, GroupMerge, GroupSplit, GroupSwizzle, IterationGraph
from fuser.ir.fusion.iteration_graph import leaves as dims_of
from fuser.ir.integers.integers import const
from fuser.ir.ops.enums import ParallelType
from fuser.ir.schedule.inlining import Inliner
from fuser.ir.schedule.scheduled_fusion import Record, ScheduledFusion, TensorState, merge_axes, split_axis


class PropagationVerbs(ScheduledFusion):
    """Transforms, parallel types and inlining of many tensors at once."""

    def __init__(self, fusion: Fusion) -> None:
        super().__init__(fusion)
        # What the latest verb that inlined found out, and how many records there were after it.
        self._inlined: tuple[Inliner, int] | None = None

    def transform_like(self, reference: str, selected: Sequence[str] | None = None) -> None:
        """Give all (or the selected) tensors the loop domain of the reference, as far as their dims reach.

        A dim of the reference that a tensor lacks becomes a broadcast axis of its loop domain where it is merged with, or
        stands before, one that the tensor has; trailing axes over missing dims are left out.
        """
        graph = self.graph()
        source = self.state(reference)
        targets = [graph.group(a) for a in source.loop]
        if len(set(targets)) != len(targets):
            raise SchedulingError(
                f"cannot transform other tensors like {reference}: two of its axes are the same dimension"
            )
        names = [n for n in self._selected(selected) if n != reference]
        for name in names:
            if name not in self.siblings(reference) and name not in self.input_names and self.state(name).inline_at:
                raise SchedulingError(f"cannot transform {name}: it is already inlined")
        done: set[str] = set(self.siblings(reference))
        before = {n: (list(s.loop), dict(s.parallel), list(s.extras)) for n, s in self.states.items()}
        for name in names:
            if name in done or name in self.input_names:
                continue
            done.update(self.siblings(name))
            try:
                for sibling in self.siblings(name):
                    self._transform_to(self.state(sibling), targets, source, graph)
            except SchedulingError:
                for n, (loop, parallel, extras) in before.items():
                    s = self.state(n)
                    s.loop, s.parallel, s.extras = loop, parallel, extras
                raise
        self._regroup()
        self.records.append(Record("transform_like", reference, (_recorded(selected),)))

    def _transform_to(
        self, state: TensorState, targets: list[Group], source: TensorState, graph: IterationGraph
    ) -> None:
        available: dict[Group, IterDomain] = {}
        for axis in state.loop:
            available.setdefault(graph.group(axis), axis)
        extras: list[tuple[IterDomain, IterDomain]] = []
        # What the tensor has, or had before it was transformed. Axes that only stand in the place of others' say nothing.
        added = {a for a, _ in state.extras}
        own = {d for axis in state.loop if not added.issuperset(origins(axis)) for d in dims_of(graph.group(axis))}

        def reach(group: Group) -> IterDomain | None:
            found = available.get(group)
            if found is not None:
                return found
            origin = group.origin
            match origin:
                case GroupSplit():
                    axis = reach(origin.source)
                    if axis is None:
                        return None
                    made = split_axis(axis, origin.factor, origin.inner_split, origin.aligned)
                    available.pop(origin.source, None)
                    available[origin.outer], available[origin.inner] = made.outer, made.inner
                    return available[group]
                case GroupMerge():
                    outer, inner = reach(origin.outer), reach(origin.inner)
                    if outer is None and inner is None:
                        return None
                    outer = outer if outer is not None else add(origin.outer)
                    inner = inner if inner is not None else add(origin.inner)
                    if len({d.kind for d in (outer, inner) if not d.is_broadcast}) == 2:
                        # A result of a reduction cannot follow a merge of reduced and kept dims.
                        raise _Unreachable
                    available.pop(origin.outer, None)
                    available.pop(origin.inner, None)
                    available[group] = merge_axes(outer, inner).result
                    return available[group]
                case None:
                    axis = across(group, {group})
                    return axis if axis is not None else beside_added(group)
                case GroupSwizzle():
                    return None

        def across(group: Group, visited: set[Group]) -> IterDomain | None:
            """A dim that a reshape makes of others that are there: its edges lead both ways, none is the origin."""

            def found(other: Group) -> IterDomain | None:
                if other in available or other.origin is not None or other in visited:
                    return available.get(other)
                return across(other, visited | {other})

            for use in group.uses:
                match use:
                    case GroupSplit(aligned=None) if use.outer.origin is None:
                        outer, inner = found(use.outer), found(use.inner)
                        if outer is None or inner is None:
                            continue
                        del available[use.outer], available[use.inner]
                        available[group] = merge_axes(outer, inner).result
                        return available[group]
                    case GroupMerge() if use.result.origin is None:
                        whole = found(use.result)
                        if whole is None:
                            continue
                        parts = split_axis(whole, use.inner.extent, True)
                        del available[use.result]
                        available[use.outer], available[use.inner] = parts.outer, parts.inner
                        return available[group]
                    case _:
                        pass
            return None

        def beside_added(group: Group) -> IterDomain | None:
            """A dim that a reshape makes of two of which one is there, and the other one is no dim of the tensor."""
            for use in group.uses:
                if isinstance(use, GroupSplit) and graph.find_merge(use.outer, use.inner) is group:
                    parts = use.outer, use.inner
                    missing = [g for g in parts if g not in available and own.isdisjoint(dims_of(g))]
                    if len(missing) == 1 and any(g in available for g in parts):
                        add(missing[0])
                        outer, inner = (available.pop(g) for g in parts)
                        available[group] = merge_axes(outer, inner).result
                        return available[group]
            return None

        def add(group: Group) -> IterDomain:
            """A broadcast axis in the place of a group that the tensor lacks."""
            if not own.isdisjoint(dims_of(group)):
                raise SchedulingError(
                    f"cannot transform {state.tensor.name} like {source.tensor.name}: {group.name} is already split or "
                    "merged in another way there"
                )
            extra = IterDomain(f"{state.tensor.name}.+{group.name}", const(1), IterKind.broadcast)
            followed = (a for axis in source.loop for a in (axis, *_ancestors(axis)))
            extras.extend([(extra, a) for a in followed if graph.group(a) is group][:1])
            available[group] = extra
            return extra

        reached: list[IterDomain | None] = []
        for target in targets:
            known = dict(available), list(extras)
            try:
                reached.append(reach(target))
            except _Unreachable:
                available, extras = known
                reached.append(None)
        last = max((i for i, a in enumerate(reached) if a is not None), default=-1)
        for i in range(last + 1):
            if reached[i] is None:
                reached[i] = add(targets[i])
        # An axis found early may have been transformed further since (a merge took it): look it up again.
        head = [available[g] for g in targets[: last + 1] if g in available]
        made = set(map(id, head))
        consumed = {id(leaf) for axis in head for leaf in _ancestors(axis)}
        rest = [a for a in state.loop if id(a) not in made and id(a) not in consumed]
        rest += [
            a
            for a in available.values()
            if id(a) not in made
            and id(a) not in consumed
            and a not in state.loop
            and a not in rest
            and not a.is_broadcast
        ]
        parallel = {a: p for a, p in state.parallel.items() if id(a) in made or a in rest}
        state.loop = head + rest
        state.parallel = parallel
        state.extras += extras

    def parallelize_like(
        self,
        reference: str,
        position: int = -1,
        selected: Sequence[str] | None = None,
        types: frozenset[ParallelType] = frozenset(),
        propagate_padding: bool = True,
    ) -> None:
        """Copy parallel types of the reference's first `position` axes (-1: all) to the axes of other tensors that map."""
        graph = self.graph()
        source = self.state(reference)
        count = len(source.loop) if position == -1 else position
        wanted: dict[Group, ParallelType] = {}
        for axis in source.loop[:count]:
            parallel_type = source.parallel_type(axis)
            if not types or parallel_type in types:
                wanted.setdefault(graph.group(axis), parallel_type)
        for name in self._selected(selected):
            state = self.state(name)
            if name == reference or name in self.input_names:
                continue
            for axis in state.loop:
                parallel_type = wanted.get(graph.group(axis))
                if parallel_type is not None and not (parallel_type is ParallelType.serial and axis in state.parallel):
                    self._set_parallel(state, axis, parallel_type)
        self.records.append(
            Record("parallelize_like", reference, (position, _recorded(selected), types, propagate_padding))
        )

    def inline_most(self, selected: Sequence[str] | None = None, limits: Sequence[tuple[str, int]] = ()) -> None:
        """Compute all (or the selected) tensors at the deepest legal loop of their consumers.

        `limits`: (name, position) of some. Consumers come first, as what they share says where a producer may stand: tensors
        that are to stand further out belong to the same call, with a limit.
        """
        inliner = self._take_inliner()
        deepest = dict(limits)
        for name in self._reverse_order(selected):
            inliner.inline(name, deepest.get(name))
        self.records.append(Record("inline_most", "", (_recorded(selected), tuple(limits))))
        self._inlined = inliner, len(self.records)

    def inline_at(
        self, reference: str, position: int = -1, best_effort: bool = False, selected: Sequence[str] | None = None
    ) -> None:
        """Inline all (or the selected) tensors at the position that matches `position` of the reference.

        Raises SchedulingError where that is impossible and not `best_effort`.
        """
        state = self.state(reference)
        count = position + len(state.loop) + 1 if position < 0 else position
        if not 0 <= count <= len(state.loop):
            raise SchedulingError(f"cannot inline at position {position} of {reference}: it has {len(state.loop)} axes")
        inliner = self._take_inliner()
        before = {n: s.inline_at for n, s in self.states.items()}
        for name in self._reverse_order(selected):
            wanted = self.common_loops(name, reference, count)
            reached = inliner.inline(name, wanted)
            if reached < wanted and not best_effort:
                for n, p in before.items():
                    self.states[n].inline_at = p
                raise SchedulingError(
                    f"cannot inline {name} at position {wanted} (position {count} of {reference}): "
                    f"{inliner.reason or 'it has no consumer that shares these loops'}"
                )
        self.records.append(Record("inline_at", reference, (position, best_effort, _recorded(selected))))
        self._inlined = inliner, len(self.records)

    def common_loops(self, name: str, reference: str, count: int) -> int:
        """How many of a tensor's outermost loops are among the `count` outermost of the reference."""
        graph = self.graph()
        groups = {graph.group(a) for a in self.state(reference).loop[:count]}
        loop = self.state(name).loop
        return next((k for k, axis in enumerate(loop) if graph.group(axis) not in groups), len(loop))

    def _take_inliner(self) -> Inliner:
        """The one of the verb before, if that inlined: nothing else has changed since. Else one that begins with what holds."""
        kept, self._inlined = self._inlined, None
        return kept[0] if kept is not None and kept[1] == len(self.records) else Inliner(self)

    def _reverse_order(self, selected: Sequence[str] | None) -> list[str]:
        names = [t.name for e in self.exprs for t in tensor_outputs(e)]
        wanted = set(names if selected is None else selected)
        return [n for n in reversed(names) if n in wanted]

    def _selected(self, selected: Sequence[str] | None) -> Sequence[str]:
        return [t.name for t in self.tensors] if selected is None else selected


def _recorded(selected: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if selected is None else tuple(selected)


class _Unreachable(Exception):
    """A group of the reference that a tensor has the dims of and cannot make."""


def origins(axis: IterDomain) -> list[IterDomain]:
    """The dims and added axes that a loop axis was made from."""
    return [a for a in (axis, *_ancestors(axis)) if a.definition is None]


def merged_dims(axis: IterDomain) -> list[IterDomain]:
    """The dims and added axes that a loop axis is a part of, slowest first."""
    match axis.definition:
        case None:
            return [axis]
        case Split() as t:
            return merged_dims(t.source)
        case Merge() as t:
            return [*merged_dims(t.outer), *merged_dims(t.inner)]


def _ancestors(axis: IterDomain) -> list[IterDomain]:
    """Every axis and dim a loop axis was made from."""
    t = axis.definition
    match t:
        case None:
            return []
        case Split():
            return [t.source, *_ancestors(t.source)]
        case Merge():
            return [t.outer, t.inner, *_ancestors(t.outer), *_ancestors(t.inner)]
