"""Which tensors share loops: inlining positions, promotion of broadcasts, and whether an order of the loops exists.

Tensor T inlined at position p shares its first p loops with each of its consumers. Sharing is transitive; tensors that
share a loop form its *loop class*. Where T has a broadcast axis that a consumer's loop resolves, T is computed in the wider
loop: the broadcast is *promoted* (fuser.ir.fusion.iteration_graph.unify). What has one element in all is computed
there as it is: its axes further in would become loops over the same element. A loop that may have no iteration is not
shared with results that are there all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.errors import SchedulingError
from fuser.ir.fusion.fusion import Scan, tensor_inputs, tensor_outputs
from fuser.ir.fusion.iteration_graph import Group, IterationGraph, leaves, unify
from fuser.ir.ops.enums import ParallelType
from fuser.ir.schedule.scan_loops import collective_depth
from fuser.ir.schedule.scheduled_fusion import ScheduledFusion, TensorState


class LoopSharing:
    """Loop classes and promotions of a scheduled fusion. Names stand for exprs: the first result's name."""

    def __init__(self, builder: ScheduledFusion, graph: IterationGraph) -> None:
        self.builder = builder
        self.graph = graph
        self.leader: dict[str, str] = {}
        self.order: dict[str, int] = {}
        self.edges: dict[str, list[str]] = {}
        self.scans: dict[str, Scan] = {}
        for i, expr in enumerate(builder.exprs):
            outputs = tensor_outputs(expr)
            if isinstance(expr, Scan):
                self.scans[expr.output.name] = expr
            for t in outputs:
                self.leader[t.name] = outputs[0].name
            self.order[outputs[0].name] = i
            self.edges[outputs[0].name] = []
        for expr in builder.exprs:
            target = tensor_outputs(expr)[0].name
            for t in tensor_inputs(expr):
                producer = self.leader.get(t.name)
                if producer is not None and target not in self.edges[producer]:
                    self.edges[producer].append(target)
        # Consumers of a leader: of any sibling.
        self.positions: dict[str, int] = dict.fromkeys(self.order, 0)
        self.promotions: dict[str, dict[Group, Group]] = {}
        self._loops: dict[str, list[Group]] = {}
        # Of each loop that is shared the one that stands for its class, and the exprs of that class by it.
        self._class: dict[tuple[str, int], tuple[str, int]] = {}
        self._members: dict[tuple[str, int], list[str]] = {}

    # --- promoted loops ---

    def loops(self, name: str) -> list[Group]:
        """Promoted loop groups of a tensor (of its expr)."""
        leader = self.leader[name]
        found = self._loops.get(leader)
        if found is None:
            promoted = self.promotions.get(leader)
            found = [self.graph.group(a, promoted) for a in self.builder.state(leader).loop]
            self._loops[leader] = found
        return found

    def set_position(self, leader: str, position: int) -> int:
        """Inline an expr's results at up to `position`; returns the position that the graph allows, and applies it."""
        self._loops.pop(leader, None)
        self.promotions.pop(leader, None)
        unified, promoted = self._unified(leader, position)
        reached = self._ordered(leader, unified)
        if reached < unified:
            reason = self.stopped_by
            _, promoted = self._unified(leader, reached)
            self.stopped_by = reason
        self.promotions[leader] = promoted
        self.positions[leader] = reached
        for consumer in self.edges[leader]:
            for k in range(reached):
                self._union((leader, k), (consumer, k))
        return reached

    def _unified(self, leader: str, position: int) -> tuple[int, dict[Group, Group]]:
        state = self.builder.state(leader)
        consumers = self.edges[leader]
        promoted: dict[Group, Group] = {}
        self.stopped_by = ""
        if not consumers:
            self.stopped_by = f"{leader} has no consumers"
            return 0, promoted
        scan = self.scans.get(leader)
        complete = len(state.loop) if scan is None else collective_depth(scan, state)
        readers = [(c, self.builder.state(c), self.loops(c)) for c in consumers]
        # One element is computed wherever its consumers are; no axis of it becomes one of theirs.
        is_one = all(self.graph.group(a).is_broadcast for a in state.loop)
        for k in range(min(position, len(state.loop))):
            axis = state.loop[k]
            if k >= complete:
                self.stopped_by = (
                    f"axis {k} of {leader} is scanned by several threads, its consumers need what all of them hold"
                )
                return k, promoted
            if axis.is_reduction:
                self.stopped_by = f"axis {k} of {leader} is reduced, its consumers need the complete result"
                return k, promoted
            parallel_type = state.parallel_type(axis)
            if parallel_type is ParallelType.vectorize:
                self.stopped_by = f"axis {k} of {leader} is vectorized"
                return k, promoted
            trial = dict(promoted)
            for consumer, theirs, loops in readers:
                if k >= len(loops):
                    self.stopped_by = f"{consumer} has only {len(loops)} loop axes"
                    return k, promoted
                their_type = theirs.parallel_type(theirs.loop[k])
                if their_type is ParallelType.vectorize:
                    self.stopped_by = f"axis {k} of its consumer {consumer} is vectorized"
                    return k, promoted
                if not is_one and not unify(self.graph, axis, loops[k], trial):
                    self.stopped_by = f"axis {k} of {leader} is not the same loop as axis {k} of {consumer}"
                    return k, promoted
                # Shared loops have one parallel type; a serial axis takes the other's.
                if parallel_type is not their_type and ParallelType.serial not in (parallel_type, their_type):
                    self.stopped_by = f"axis {k} of {leader} and of {consumer} have different parallel types"
                    return k, promoted
            if is_one and self._has_done_without(k, consumers):
                self.stopped_by = (
                    f"axis {k} of {leader} is needed by results that are there if the loop of others runs never"
                )
                return k, promoted
            # What one consumer promotes, another may have met as it was.
            if len(trial) > len(promoted) and not self._is_shared(leader, k + 1, trial):
                self.stopped_by = f"axis {k} of {leader} is not one loop of all its consumers"
                return k, promoted
            taken = self._dim_run_twice(state, {leaf: t for leaf, t in trial.items() if leaf not in promoted})
            if taken is not None:
                self.stopped_by = (
                    f"axis {k} of {leader} would be a loop over {taken.name}, which it has a loop over already"
                )
                return k, promoted
            promoted = trial
        return min(position, len(state.loop)), promoted

    def _has_done_without(self, k: int, consumers: Sequence[str]) -> bool:
        """Whether some consumers of one element are computed in no loop over others at depth k, and the rest in one that may be
        empty: all would be computed there."""
        is_alone = False
        least: list[int | None] = []
        for consumer in consumers:
            members = self._members.get(self.find((consumer, k)), [consumer])
            loops = [loop for loop in (self.loops(n)[k] for n in members) if not loop.is_broadcast]
            is_alone |= not loops
            least += [loop.extent.lo for loop in loops]
        return is_alone and any(n is None or n < 1 for n in least)

    def _is_shared(self, leader: str, depth: int, promoted: dict[Group, Group]) -> bool:
        """Whether the first `depth` axes, promoted so, are those of every consumer."""
        groups = [self.graph.group(a, promoted) for a in self.builder.state(leader).loop[:depth]]
        return all(g is self.loops(c)[j] for c in self.edges[leader] for j, g in enumerate(groups))

    def _dim_run_twice(self, state: TensorState, promoted: dict[Group, Group]) -> Group | None:
        """A dim of the tensor's own that one of its broadcast axes would be promoted to."""
        if not promoted:
            return None
        own = {d for a in state.loop if not a.is_broadcast for d in leaves(self.graph.group(a))}
        return next((d for target in promoted.values() for d in leaves(target) if d in own), None)

    # --- loop classes ---

    def find(self, key: tuple[str, int]) -> tuple[str, int]:
        """Representative of the loop class of axis k of an expr."""
        return self._class.get(key, key)

    def _union(self, a: tuple[str, int], b: tuple[str, int]) -> None:
        kept, joined = self.find(a), self.find(b)
        if kept == joined:
            return
        # The exprs of the smaller class are told: a long chain of exprs is joined one by one.
        large, small = self._members.pop(kept, [kept[0]]), self._members.pop(joined, [joined[0]])
        if len(large) < len(small):
            kept, large, small = joined, small, large
        depth = kept[1]
        for name in small:
            self._class[name, depth] = kept
        large += small
        self._members[kept] = large

    def _ordered(self, leader: str, position: int) -> int:
        """The largest position up to `position` at which the loops can still be put in order."""
        for k in range(position):
            if self._is_cyclic(leader, k):
                self.stopped_by = f"loop {k} would have to be left and entered again between the consumers of {leader}"
                return k
        return position

    def _is_cyclic(self, leader: str, k: int) -> bool:
        """Whether joining `leader` with its consumers at depth k closes a cycle between loop classes."""
        own = self.find((leader, k))
        consumers = {self.find((c, k)) for c in self.edges[leader]}
        if len(consumers) == 1 and own not in self._members:
            # All ways from an expr alone lead into one class, and classes have no cycle so far: none leads back.
            return False
        joined = {own} | consumers
        start = [n for c in joined for n in self._members.get(c, (c[0],))]
        inside = set(start)
        if any(t in inside and n != leader and self.positions[n] <= k for n in start for t in self.edges[n]):
            return True  # a member needs another's complete result
        seen: set[tuple[str, int]] = set()
        stack = [self.find((t, k)) for n in start for t in self.edges[n] if t not in inside]
        while stack:
            c = stack.pop()
            if c in joined:
                return True
            if c in seen:
                continue
            seen.add(c)
            for n in self._members.get(c, (c[0],)):
                for t in self.edges[n]:
                    target = self.find((t, k))
                    if target != c:
                        stack.append(target)
        return False


def share_loops(builder: ScheduledFusion, graph: IterationGraph) -> LoopSharing:
    """Loop classes of the inline positions that a schedule holds.

    Raises SchedulingError where a position is not legal any more (a transform after inlining).
    """
    sharing = LoopSharing(builder, graph)
    for expr in reversed(builder.exprs):
        leader = tensor_outputs(expr)[0].name
        wanted = builder.state(leader).inline_at
        if sharing.set_position(leader, wanted) < wanted:
            raise SchedulingError(f"{leader} cannot stay inlined at position {wanted}: {sharing.stopped_by}")
    return sharing


class Inliner:
    """Sets inline positions of a builder, consumers before producers."""

    def __init__(self, builder: ScheduledFusion) -> None:
        self.builder = builder
        self.reason = ""
        graph = builder.exact_graph()
        self.sharing = share_loops(builder, graph)

    def inline(self, name: str, position: int | None) -> int:
        """Inline a tensor at `position` (None: the deepest legal one), never less than it already is; returns the result."""
        leader = self.sharing.leader.get(name)
        if leader is None:
            return 0
        state = self.builder.state(leader)
        if any(
            n in self.builder.output_names and not self.sharing.edges[leader] for n in self.builder.siblings(leader)
        ):
            return len(state.loop)  # nothing consumes it: any position is trivially met
        wanted = len(state.loop) if position is None else position
        wanted = max(wanted, state.inline_at)
        reached = self.sharing.set_position(leader, wanted)
        self.reason = self.sharing.stopped_by
        for n in self.builder.siblings(leader):
            self.builder.state(n).inline_at = reached
        return reached
