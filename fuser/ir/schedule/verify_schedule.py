"""The rules of scheduled fusions as code: what verbs and schedulers may leave in a `ScheduleBuilder`.

Structure: a verb that breaks one of these is a bug (InternalError)
    exprs       every operand is an input or the result of an expr before; names are unique; each state holds the tensor
                that the exprs hold; dims that meet are of one extent
    domains     loop axes follow from the logical dims (and extra broadcast axes) by splits and merges, every one used
                once and none lost but broadcast ones; so do logical dims from root dims
    transforms  extents and kinds of what a split or merge made
    siblings    results of one expr have the same loops, parallel types, positions
    layouts     stride order and contiguity fit the rank

Legality: a schedule that a user may write and that cannot be lowered (SchedulingError)
    parallel    no axis of a mesh; a grid or block type once per tensor; a vectorized axis is the last one, of constant
                extent, of a copy, and not reduced; unroll and unswitch of constant extent, by the bounds that the schedule
                asks for
    memory      inputs and outputs in global memory
    allocation  a permutation of the visible dims or of the loop axes, and of these only for intermediates
    inlining    positions inside the loop domain that the shared loops allow (`share_loops`)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fuser.errors import InternalError, SchedulingError
from fuser.ir.fusion.dim_pairs import dim_pairs
from fuser.ir.fusion.fusion import (
    IterDomain,
    IterKind,
    Merge,
    Split,
    Tensor,
    Transform,
    is_copy,
    split_count,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.iteration_graph import IterationGraph
from fuser.ir.ops.enums import GLOBAL_MEMORY, ParallelType
from fuser.ir.schedule.canonical_symbols import canonical_symbols
from fuser.ir.schedule.inlining import share_loops
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.ir.schedule.scheduled_fusion import TensorState

_UNROLLED = (ParallelType.unroll, ParallelType.unswitch, ParallelType.vectorize)
# More than this many findings in one message help nobody.
_MOST_FINDINGS = 8


def verify_schedule(builder: ScheduleBuilder, made_by: str = "schedule") -> None:
    """Check a schedule.

    Raises InternalError, naming `made_by`, if its structure is broken; SchedulingError if it is sound and cannot be lowered.
    """
    findings = structure_problems(builder)
    if findings:
        text = "\n  ".join(findings[:_MOST_FINDINGS])
        raise InternalError(f"the schedule is malformed:\n  {text}\n{builder}", pass_name=made_by)
    findings = legality_problems(builder)
    if findings:
        raise SchedulingError("; ".join(findings[:_MOST_FINDINGS]))
    # Raises for an inline position that the shared loops do not allow.
    share_loops(builder, builder.exact_graph())


# --- structure --------------------------------------------------------------------------------------------------------


def structure_problems(builder: ScheduleBuilder) -> list[str]:
    """What no verb may leave behind, in words."""
    findings: list[str] = []
    findings += _expr_problems(builder)
    if findings:
        return findings
    for t in builder.tensors:
        state = builder.states[t.name]
        findings += _layout_problems(t)
        findings += _domain_problems(state)
        leader = builder.siblings(t.name)[0]
        if leader != t.name:
            findings += _sibling_problems(builder.states[leader], state)
    return findings


def _expr_problems(builder: ScheduleBuilder) -> list[str]:
    findings: list[str] = []
    defined: dict[str, Tensor] = {t.name: builder.states[t.name].tensor for t in builder.fusion.input_tensors}
    for expr in builder.exprs:
        outputs = tensor_outputs(expr)
        name = outputs[0].name
        for t in tensor_inputs(expr):
            if defined.get(t.name) is not t:
                findings.append(f"{name} reads {t.name}, which no expr before it defines")
        for t in outputs:
            state = builder.states.get(t.name)
            if t.name in defined:
                findings.append(f"{t.name} is defined twice")
            elif state is None:
                findings.append(f"{t.name} has no state")
            elif state.tensor is not t:
                findings.append(f"the state of {t.name} is of another tensor of that name")
            defined[t.name] = t
        if builder.siblings(name) != tuple(t.name for t in outputs):
            findings.append(f"the siblings of {name} are {builder.siblings(name)}")
        for source in tensor_inputs(expr):
            for target in outputs:
                try:
                    pairs = list(dim_pairs(expr, source, target))
                except (ValueError, IndexError):
                    findings.append(f"the ranks of {source!r} and {target!r} do not meet")
                    continue
                for a, b in pairs:
                    if a.extent.is_const and b.extent.is_const and a.extent is not b.extent and not a.is_broadcast:
                        findings.append(f"dim {a!r} of {source.name} meets {b!r} of {target.name}")
    findings += [f"{n} has a state and no expr" for n in builder.states if n not in defined]
    findings += [f"the output {n} is not defined" for n in sorted(builder.output_names) if n not in defined]
    return findings


def _layout_problems(t: Tensor) -> list[str]:
    if sorted(t.stride_order) != list(range(t.ndim)) or len(t.contiguity) != t.ndim:
        return [f"{t.name} of rank {t.ndim} has stride order {t.stride_order} and contiguity {t.contiguity}"]
    return []


def _domain_problems(state: TensorState) -> list[str]:
    t = state.tensor
    findings: list[str] = []
    if t.root is not None:
        findings += _derivation_problems(f"the logical domain of {t.name}", t.root, t.logical, is_of_roots=True)
    extras = [axis for axis, _ in state.extras]
    findings += _derivation_problems(f"the loop domain of {t.name}", t.logical, state.loop, extras)
    findings += [
        f"{t.name} has a parallel type for {a!r}, no axis of its loops" for a in state.parallel if a not in state.loop
    ]
    if not 0 <= state.inline_at <= len(state.loop):
        findings.append(f"{t.name} is inlined at {state.inline_at}, it has {len(state.loop)} loop axes")
    return findings


def _derivation_problems(
    what: str,
    sources: Sequence[IterDomain],
    targets: Sequence[IterDomain],
    extras: Iterable[IterDomain] = (),
    *,
    is_of_roots: bool = False,
) -> list[str]:
    """Whether `targets` are what splits and merges make of `sources`, which may be roots, and extra broadcast axes."""
    findings: list[str] = []
    if len(set(targets)) != len(targets):
        findings.append(f"{what} has an axis twice")
    known = set(sources)
    allowed = set(extras)
    transforms: dict[Transform, None] = {}
    leaves: set[IterDomain] = set()

    def visit(axis: IterDomain) -> None:
        if axis in known:
            leaves.add(axis)
            return
        made = axis.definition
        if made is None:
            # Loops may run over a broadcast axis that is no dim: it stands for a dim of another tensor.
            if axis not in allowed and not axis.is_broadcast:
                findings.append(f"{what} holds {axis!r}, which comes from no dim of the tensor")
            return
        if made in transforms:
            return
        for source in _sources(made):
            visit(source)
        transforms[made] = None

    for axis in targets:
        visit(axis)
    used: dict[IterDomain, Transform] = {}
    made_axes: set[IterDomain] = set()
    for made in transforms:
        findings += [f"{what}: {problem}" for problem in _transform_problems(made, of_root=is_of_roots)]
        made_axes.update(_results(made))
        for source in _sources(made):
            if source in used:
                findings.append(f"{what} uses {source!r} in two transforms")
            used[source] = made
    for axis in targets:
        # rfactor keeps a broadcast dim that its reduced axes were merged with: its one index is 0 in both places.
        if axis in used and not axis.is_broadcast:
            findings.append(f"{what} holds {axis!r} and what was made of it")
    ends = set(targets)
    for axis in (*sources, *made_axes):
        if axis not in used and axis not in ends and not axis.is_broadcast:
            findings.append(f"{what} has lost {axis!r}")
    return findings


def _sources(t: Transform) -> tuple[IterDomain, ...]:
    return (t.source,) if isinstance(t, Split) else (t.outer, t.inner)


def _results(t: Transform) -> tuple[IterDomain, ...]:
    return (t.outer, t.inner) if isinstance(t, Split) else (t.result,)


def _transform_problems(t: Transform, *, of_root: bool) -> list[str]:
    if any(axis.definition is not t for axis in _results(t)):
        return [f"the results of {t} do not name it as their definition"]
    match t:
        case Split(source, factor, inner_split, outer, inner, aligned):
            count = split_count(source.extent, factor, aligned=aligned is not None)
            sizes = (count, factor) if inner_split else (factor, count)
            # The parts of a root are those of a definition, which may say more than its symbol: launches check their product.
            is_said = of_root and not source.extent.is_const and (inner if inner_split else outer).extent is factor
            if (outer.extent, inner.extent) != sizes and not is_said:
                return [f"the split of {source!r} by {factor} made {outer!r} and {inner!r}"]
            # rfactor turns some reduced axes of the first stage into iterated ones.
            kinds = {IterKind.reduction, IterKind.iteration} if source.is_reduction else {source.kind}
            if not {outer.kind, inner.kind} <= kinds:
                return [f"the split of {source!r} made {outer!r} and {inner!r}, of another kind"]
        case Merge(outer, inner, result):
            if result.extent is not outer.extent * inner.extent:
                return [f"the merge of {outer!r} and {inner!r} made {result!r}"]
            kinds = {d.kind for d in (outer, inner) if not d.is_broadcast}
            if result.kind not in (kinds or {IterKind.broadcast}) and not (
                kinds == {IterKind.reduction} and result.kind is IterKind.iteration
            ):
                return [f"the merge of {outer!r} and {inner!r} made {result!r}, of another kind"]
    return []


def _sibling_problems(leader: TensorState, state: TensorState) -> list[str]:
    a, b = leader.tensor.name, state.tensor.name

    def shape(s: TensorState) -> list[tuple[object, ...]]:
        return [(axis.extent, axis.kind, s.parallel_type(axis)) for axis in s.loop]

    findings: list[str] = []
    if shape(leader) != shape(state):
        findings.append(f"the siblings {a} and {b} have different loops")
    if leader.inline_at != state.inline_at:
        findings.append(f"the siblings {a} and {b} are inlined at {leader.inline_at} and {state.inline_at}")
    return findings


# --- legality ---------------------------------------------------------------------------------------------------------


def legality_problems(builder: ScheduleBuilder) -> list[str]:
    """What lowering would refuse about single tensors, in words."""
    findings: list[str] = []
    arguments = builder.input_names | builder.output_names
    known = canonical_symbols(builder, frozenset(builder.required_facts))
    graph = builder.exact_graph(lambda extent: extent.substitute(known))
    for t in builder.tensors:
        state = builder.states[t.name]
        if t.name in arguments and state.memory is not GLOBAL_MEMORY:
            findings.append(f"{t.name} is an input or output and lives in {state.memory.name} memory")
        findings += _allocation_problems(state, t.name in arguments)
        findings += _parallel_problems(builder, state, graph)
    return findings


def _makes_loops(state: TensorState, allocation: set[IterDomain]) -> bool:
    """Whether the loop axes are the axes of the allocation domain, or were made of all of them since."""
    met: set[IterDomain] = set()

    def visit(axis: IterDomain) -> bool:
        if axis in allocation:
            met.add(axis)
            return True
        if axis.definition is None:
            return axis.is_broadcast
        return all(visit(source) for source in _sources(axis.definition))

    return all(visit(axis) for axis in state.loop if not axis.is_reduction) and met == allocation


def _allocation_problems(state: TensorState, is_argument: bool) -> list[str]:
    if state.allocation is None:
        return []
    name, chosen = state.tensor.name, sorted(map(id, state.allocation))
    if chosen == sorted(map(id, state.tensor.visible)):
        return []
    if not _makes_loops(state, set(state.allocation)):
        # A verb after set_allocation_domain may have split the axes that it names.
        return [f"the allocation domain of {name} is no permutation of its dims or of its loop axes"]
    return [f"{name} is an input or output: its allocation domain is over its dims"] if is_argument else []


def _parallel_problems(builder: ScheduleBuilder, state: TensorState, graph: IterationGraph) -> list[str]:
    findings: list[str] = []
    name = state.tensor.name
    seen: set[ParallelType] = set()
    for position, axis in enumerate(state.loop):
        p = state.parallel_type(axis)
        if p.is_mesh or p in (ParallelType.mma, ParallelType.tma, ParallelType.stream):
            findings.append(f"axis {position} of {name} is {p.name}, which is not supported")
        if p.is_thread and p in seen:
            findings.append(f"{name} has two loop axes on {p.name}: a {p.name} axis appears once per tensor")
        seen.add(p)
        if p in _UNROLLED and not graph.group(axis).extent.is_const:
            findings.append(f"axis {position} of {name} is {p.name} and has the extent {axis.extent}, no constant")
        if p is ParallelType.vectorize:
            expr = builder.definition(name)
            if axis.is_reduction or expr is None or not is_copy(expr):
                findings.append(f"{name} cannot be vectorized: only a copy can (cache_before or cache_after makes one)")
            if position < builder.innermost(name):
                findings.append(f"the vectorized axis of {name} is not its innermost of more than one element")
    return findings
