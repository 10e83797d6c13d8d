"""A scheduled fusion: exprs over tensors (those that verbs made included), a `TensorState` for each, and the records.

What verbs change and everyone asks; the verbs stand above (`fuser.ir.schedule.schedule`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from keyword import iskeyword
from typing import Any

from fuser.errors import SchedulingError
from fuser.ir.facts import ExtentDivisible, ExtentWithin
from fuser.ir.fusion.fusion import (
    ExpSum,
    Fusion,
    IterDomain,
    IterKind,
    Merge,
    Split,
    Tensor,
    TensorExpr,
    Welford,
    map_expr,
    split_count,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.iteration_graph import IterationGraph, as_it_is
from fuser.ir.fusion.user_names import value_name
from fuser.ir.integers.axis_range import outside_text
from fuser.ir.integers.integers import ONE, Int
from fuser.ir.ops.enums import GLOBAL_MEMORY, CacheOp, LoadStoreOpType, MemoryType, ParallelType
from fuser.records import record
from fuser.source_location import SourceLocation


@record
class Record:
    """One applied verb. `result` is the tensor it created, if it created one."""

    verb: str
    tensor: str
    arguments: tuple[object, ...]
    result: str | None = None

    def __str__(self) -> str:
        call = f"{self.tensor or 'schedule'}.{self.verb}({', '.join(_argument_text(a) for a in self.arguments)})"
        return f"{self.result} = {call}" if self.result else call


def _argument_text(argument: object) -> str:
    if isinstance(argument, Enum):
        kind, name = type(argument).__name__, argument.name
        return f"{kind}[{name!r}]" if iskeyword(name) else f"{kind}.{name}"
    if isinstance(argument, (tuple, frozenset)):
        items = sorted(argument, key=str) if isinstance(argument, frozenset) else argument
        return f"[{', '.join(_argument_text(a) for a in items)}]"
    return repr(argument)


@dataclass(slots=True, eq=False)
class TensorState:
    """What verbs set on one tensor.

    loop          the loop domain
    parallel      parallel type of loop axes; absent means serial
    inline_at     leading loop axes shared with all consumers (0: computed in a nest of its own)
    allocation    explicit allocation domain, slowest first; None for the default
    swizzles      (by, axis), positions in the allocation domain: what has index j lies at j ^ (i % extent), i that of `by`
    loads_ahead   filled for the next iteration of its loop while this one computes, or for the one after that,
                  where `iterations_ahead` is two; `must_load_ahead`: or else the schedule is refused
    backwards     serial loop axes that run from the last index to the first
    misaligned    its vector accesses may begin anywhere, and the ends of a row may cut them
    extras        broadcast axes of the loop domain that are not dims of the tensor, with the dim each one follows
    """

    tensor: Tensor
    loop: list[IterDomain]
    memory: MemoryType
    parallel: dict[IterDomain, ParallelType] = field(default_factory=dict)
    inline_at: int = 0
    allocation: tuple[IterDomain, ...] | None = None
    swizzles: tuple[tuple[int, int], ...] = ()
    cache_op: CacheOp = CacheOp.unspecified
    op_type: LoadStoreOpType = LoadStoreOpType.set
    extras: list[tuple[IterDomain, IterDomain]] = field(default_factory=list)
    backwards: set[IterDomain] = field(default_factory=set)
    loads_ahead: bool = False
    must_load_ahead: bool = False
    iterations_ahead: int = 1
    misaligned: bool = False

    def parallel_type(self, axis: IterDomain) -> ParallelType:
        """Parallel type of a loop axis."""
        return self.parallel.get(axis, ParallelType.serial)


def split_axis(axis: IterDomain, factor: Int, inner_split: bool, aligned: str | None = None) -> Split:
    """The two axes a split makes."""
    count = split_count(axis.extent, factor, aligned=aligned is not None)
    sizes = (count, factor) if inner_split else (factor, count)
    outer = IterDomain(f"{axis.name}/{factor}", sizes[0], axis.kind)
    inner = IterDomain(f"{axis.name}%{factor}", sizes[1], axis.kind)
    made = Split(axis, factor, inner_split, outer, inner, aligned)
    outer.definition = inner.definition = made
    return made


def merge_axes(outer: IterDomain, inner: IterDomain) -> Merge:
    """The axis a merge makes. Raises SchedulingError for a reduction merged with an iteration axis."""
    kinds = {d.kind for d in (outer, inner) if not d.is_broadcast}
    if len(kinds) == 2:
        raise SchedulingError(f"cannot merge {outer} with {inner}: one is reduced and the other is not")
    kind = kinds.pop() if kinds else IterKind.broadcast
    result = IterDomain(f"({outer.name}*{inner.name})", outer.extent * inner.extent, kind)
    result.definition = Merge(outer, inner, result)
    return result.definition


@record
class KeptIterations:
    """What a copy of an input loads in the first `iterations` of its loop stays in shared memory for `again`, another copy."""

    name: str
    again: str
    iterations: int


class ScheduledFusion:
    """State and queries. The verbs of `ScheduleBuilder` change it."""

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self.answers: dict[object, Any] = {}
        self.exprs = list(fusion.tensor_exprs)
        self.records: list[Record] = []
        # By the number of a record, the user's line that asked for it.
        self.places: dict[int, SourceLocation] = {}
        self.required_facts: list[ExtentWithin | ExtentDivisible] = []
        # Blocks that must fit on a processor at once; 0: it does not matter.
        self.blocks_per_sm = 0
        # Whether rows that share a block are tested once for all of them.
        # Inputs whose lines all threads of the launch together ask for before anything else.
        # Blocks of a cluster along a grid axis: a reduction axis of that type and constant extent is one of the cluster.
        self.cluster: dict[ParallelType, int] = {}
        self.kept_iterations: list[KeptIterations] = []
        # What rfactor made of pieces of dims: a reduction of one of these goes on with the one that it comes from. Where whole
        # dims are left, it is a reduction of what the first one leaves, as if the user had written two.
        self.partial_results: set[str] = set()
        # Dims of what is computed again and those that it was made like: nothing but that may say that they are the same.
        self.recomputed: list[tuple[IterDomain, IterDomain]] = []
        self.states: dict[str, TensorState] = {}
        self._siblings: dict[str, tuple[str, ...]] = {}
        self._created: dict[str, int] = {}
        self._graph: IterationGraph | None = None
        outputs = {t.name for t in fusion.output_tensors}
        inputs = {t.name for t in fusion.input_tensors}
        for t in fusion.tensors:
            memory = GLOBAL_MEMORY if t.name in outputs or t.name in inputs else MemoryType.local
            self.states[t.name] = TensorState(t, list(t.logical), memory)
        for expr in self.exprs:
            self._note_siblings(expr)
        self.input_names = frozenset(inputs)
        self.output_names = frozenset(outputs)

    def _note_siblings(self, expr: TensorExpr) -> None:
        if isinstance(expr, (Welford, ExpSum)):
            names = tuple(t.name for t in tensor_outputs(expr))
            for name in names:
                self._siblings[name] = names

    def __getstate__(self) -> dict[str, Any]:
        """Pickles and copies find what follows from the exprs anew."""
        return {**self.__dict__, "answers": {}}

    @property
    def exprs(self) -> list[TensorExpr]:
        """The exprs, in order. Verbs put another list in the place of this one."""
        return self._exprs

    @exprs.setter
    def exprs(self, exprs: list[TensorExpr]) -> None:
        self._exprs = exprs
        # What `memoized_while_unchanged` has found out about the exprs.
        self.answers = {}
        self._definitions: dict[str, TensorExpr] | None = None
        self._uses: dict[str, list[TensorExpr]] | None = None

    def state(self, name: str) -> TensorState:
        """State of a tensor by name."""
        return self.states[name]

    def siblings(self, name: str) -> tuple[str, ...]:
        """Names of the results of the expr that defines a tensor."""
        return self._siblings.get(name, (name,))

    def definition(self, name: str) -> TensorExpr | None:
        """The expr that computes a tensor, or None for inputs."""
        if self._definitions is None:
            self._definitions = {t.name: e for e in reversed(self._exprs) for t in tensor_outputs(e)}
        return self._definitions.get(name)

    def uses(self, name: str) -> list[TensorExpr]:
        """Exprs that read a tensor, in order."""
        if self._uses is None:
            self._uses = {}
            for e in self._exprs:
                for used in dict.fromkeys(t.name for t in tensor_inputs(e)):
                    self._uses.setdefault(used, []).append(e)
        return list(self._uses.get(name, ()))

    def consumers(self, name: str) -> list[Tensor]:
        """Distinct results of the exprs that read a tensor (one per expr: siblings share their loops)."""
        return [tensor_outputs(e)[0] for e in self.uses(name)]

    @property
    def tensors(self) -> list[Tensor]:
        """Inputs, then results in order."""
        inputs = [self.states[t.name].tensor for t in self.fusion.input_tensors]
        made = [t for e in self.exprs for t in tensor_outputs(e)]
        return list({t.name: t for t in inputs + made}.values())

    def exact_graph(self, rewrite: Callable[[Int], Int] = as_it_is) -> IterationGraph:
        """The exact view of the current tensors; `rewrite` maps extents."""
        return IterationGraph(self.exprs, self.tensors, rewrite=rewrite, links=self.recomputed)

    def graph(self) -> IterationGraph:
        """The resolving view of the current tensors, rebuilt after a verb that changed them."""
        if self._graph is None:
            links = [*self.recomputed, *(link for s in self.states.values() for link in s.extras)]
            self._graph = IterationGraph(self.exprs, self.tensors, resolving=True, links=links)
        return self._graph

    def _regroup(self) -> None:
        """Other dims than before are the same: the graph is made anew, and what was said of it is forgotten."""
        self._graph = None
        self.answers = {}

    def innermost(self, name: str) -> int:
        """Position of the last loop axis of a tensor that may have more than one element; -1 if none may.

        What is known to have one element makes no loop: a broadcast axis, or a concrete one that is the same as one of
        extent 1, as an expand makes it. Schedules put such axes behind all others.
        """
        graph = self.graph()
        axes = enumerate(self.state(name).loop)
        return max((i for i, a in axes if not a.is_broadcast and graph.group(a).extent is not ONE), default=-1)

    def __str__(self) -> str:
        return "\n".join(map(str, self.records))

    def replace_expr(self, expr: TensorExpr, made: Sequence[TensorExpr], replaced: Mapping[Tensor, Tensor]) -> None:
        """Put other exprs in the place of one. `replaced`: tensors that keep their name but not their dims.

        For modules that define verbs: `made` computes what `expr` did, over tensors that no schedule has touched.
        """
        at = next(i for i, e in enumerate(self.exprs) if e is expr)
        old = {t.name for t in tensor_outputs(expr)}
        for name in old:
            self._siblings.pop(name, None)
        for name in old - {t.name for e in made for t in tensor_outputs(e)}:
            del self.states[name]
        self._splice(at, made)
        self.exprs = [e if e in made else map_expr(e, dict(replaced)) for e in self.exprs]
        for e in made:
            for t in tensor_outputs(e):
                memory = self.states[t.name].memory if t.name in old else MemoryType.local
                self.states[t.name] = TensorState(t, list(t.logical), memory)
            self._note_siblings(e)
        self._regroup()

    def add_unscheduled(self, tensor: Tensor) -> None:
        """Note a tensor of registers whose expr a verb is about to put in. For modules that define verbs."""
        self.states[tensor.name] = TensorState(tensor, list(tensor.logical), MemoryType.local)

    def new_name(self, base: str, suffix: str) -> str:
        """A fresh stable name for a tensor that a verb makes of `base`."""
        key = f"{base}_{suffix}"
        number = self._created.get(key, 0)
        self._created[key] = number + 1
        return f"{key}_{number}"

    def _splice(self, at: int, made: Sequence[TensorExpr], count: int = 1) -> None:
        """Put other exprs in the place of `count` from `at` on."""
        self.exprs = [*self._exprs[:at], *made, *self._exprs[at + count :]]

    def _replace_tensor(self, old: Tensor, new: Tensor) -> None:
        self.exprs = [map_expr(e, {old: new}) for e in self.exprs]
        self.states[new.name].tensor = new
        self._regroup()

    def place_of(self, *arguments: object) -> SourceLocation | None:
        """The user's line of the last record with one of these arguments, such as a parallel type; None if no line is known."""
        for number in range(len(self.records) - 1, -1, -1):
            if number in self.places and any(a in arguments for a in self.records[number].arguments):
                return self.places[number]
        return None

    def _axis_position(self, state: TensorState, axis: int) -> int:
        n = len(state.loop)
        position = axis + n if axis < 0 else axis
        if not 0 <= position < n:
            raise SchedulingError(outside_text("loop axis", axis, n, f" of {value_name(self.fusion, state.tensor)}"))
        return position

    @staticmethod
    def _set_parallel(state: TensorState, axis: IterDomain, parallel_type: ParallelType) -> None:
        if parallel_type is ParallelType.serial:
            state.parallel.pop(axis, None)
        else:
            state.parallel[axis] = parallel_type
