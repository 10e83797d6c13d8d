"""Data passes of a segment with reductions, and the values that are kept on chip between them.

A *data pass* reads the full-size data once. It ends in reductions and scans whose inputs depend on the same number of earlier
ones, or in full-size outputs. A full-size value that two data passes need is either kept on chip or recomputed from kept
values; the result of a scan is kept.

All reductions of a segment reduce the same dims, except *chained* ones: these reduce the results of others over other dims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set

from fuser.ir.fusion.fusion import (
    Broadcast,
    ExpSum,
    Fusion,
    Pointwise,
    Reducing,
    Scan,
    Tensor,
    TensorExpr,
    Welford,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.iteration_graph import Group, IterationGraph
from fuser.ir.fusion.memoized import memoized, memoized_while_unchanged
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.records import record

_CHEAP = frozenset(
    {"set", "cast", "add", "sub", "mul", "neg", "abs", "relu", "where", "minimum", "maximum", "fmin", "fmax"}
    | {"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not", "clamp", "threshold"}
    | {"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "ceil", "floor", "trunc"}
)
"""Pointwise ops that cost an instruction or two: computing them again is cheaper than the registers to keep them."""


def chained_reductions(
    exprs: Iterable[TensorExpr], graph: IterationGraph, partial: Set[str] = frozenset()
) -> frozenset[TensorExpr]:
    """Reductions of what is left after others: over other dims than the largest one, of values without the dims of that.

    graph     the resolving view
    partial   names of partial results: a reduction of one goes on with the reduction that it comes from
    """
    given = list(exprs)
    reduced = _reduced_groups(given, graph, partial)
    kept = {e: {g for g in map(graph.group, tensor_outputs(e)[0].visible) if not g.is_broadcast} for e in reduced}
    size = {e: len(own | kept[e]) for e, own in reduced.items()}
    if len(set(reduced.values())) < 2:
        return frozenset()
    along = reduced[max(size, key=size.__getitem__)]
    return frozenset(
        e
        for e, own in reduced.items()
        if own
        and own.isdisjoint(along)
        and not any(graph.group(d) in along for d in tensor_inputs(e)[0].visible if not d.is_broadcast)
    )


def _reduced_groups(
    exprs: Iterable[TensorExpr], graph: IterationGraph, partial: Set[str]
) -> dict[TensorExpr, frozenset[Group]]:
    """What each reduction reduces, with all of its parts: the dims themselves, and those that parts reduce of them."""
    chains: dict[str, list[Reducing]] = {}
    found: dict[TensorExpr, frozenset[Group]] = {}
    for e in exprs:
        if isinstance(e, Reducing):
            source = tensor_inputs(e)[0].name
            chain = chains[source] if source in partial else []
            chain.append(e)
            chains.update((t.name, chain) for t in tensor_outputs(e))
    for chain in chains.values():
        if chain[0] not in found:
            results = [tensor_outputs(e)[0] for e in chain]
            dims = (d for t in results for d in (*t.logical, *(t.root or ())) if d.is_reduction)
            groups = frozenset(g for g in map(graph.group, dims) if not g.is_broadcast)
            found.update((e, groups) for e in chain)
    return found


@memoized
def empty_schedule(segment: Fusion) -> ScheduleBuilder:
    """A schedule without verbs, for questions about the segment itself. Nobody may change it."""
    builder = ScheduleBuilder(segment)
    # Several threads may ask: the groups of its dims are there before the first one does.
    builder.graph().settled()
    return builder


@memoized_while_unchanged
def row_reductions(builder: ScheduleBuilder) -> tuple[Reducing, ...]:
    """The reductions of a schedule that are not chained, in order."""
    chained = chained_reductions(builder.exprs, builder.graph(), builder.partial_results)
    return tuple(e for e in builder.exprs if isinstance(e, Reducing) and e not in chained)


def may_take_two_passes(expr: TensorExpr | None) -> bool:
    """Whether an expr is a statistic, or a sum of exponentials, that two data passes may take in place of one."""
    return isinstance(expr, ExpSum) or (isinstance(expr, Welford) and not expr.input.dtype.is_complex)


@memoized_while_unchanged
def reduced_groups_of(builder: ScheduleBuilder) -> frozenset[Group]:
    """Groups of the dims that the reductions of a schedule reduce, but for chained ones.

    Of a reduction in parts these are the dims of the whole, and what the parts reduce of them.
    """
    graph = builder.graph()
    results = [t for e in row_reductions(builder) for t in tensor_outputs(e)[:1]]
    dims = (d for t in results for d in (*t.logical, *(t.root or ())) if d.is_reduction)
    return frozenset(map(graph.group, dims))


@memoized_while_unchanged
def data_pass_indices(builder: ScheduleBuilder) -> dict[str, int]:
    """Data pass of each sink: results of reductions and scans, and full-size outputs. It is how many reductions and scans must
    come before, in a row.

    The parts of a reduction are of one data pass.
    """
    depth: dict[str, int] = {}
    result: dict[str, int] = {}
    own = set(row_reductions(builder))
    for expr in builder.exprs:
        below = max((depth.get(t.name, 0) for t in tensor_inputs(expr)), default=0)
        is_sink = expr in own or isinstance(expr, Scan)
        if is_sink and tensor_inputs(expr)[0].name in builder.partial_results:
            below -= 1
        for t in tensor_outputs(expr):
            depth[t.name] = below + is_sink
            if is_sink:
                result[t.name] = below
    graph = builder.graph()
    reduced = reduced_groups_of(builder)
    for name in builder.output_names - builder.input_names:
        t = builder.state(name).tensor
        if any(graph.group(d) in reduced for d in t.visible) and not isinstance(builder.definition(name), Scan):
            result[name] = depth.get(name, 0)
    return result


def sink_pass_count(builder: ScheduleBuilder) -> int:
    """In how many data passes sinks are."""
    return len(set(data_pass_indices(builder).values()))


def is_cheap(builder: ScheduleBuilder, name: str) -> bool:
    """Whether computing a tensor again from its operands costs next to nothing."""
    expr = builder.definition(name)
    if isinstance(expr, Pointwise):
        return expr.op in _CHEAP
    return not isinstance(expr, (Reducing, Scan))


@memoized_while_unchanged
def _full_size(builder: ScheduleBuilder) -> tuple[frozenset[str], frozenset[str]]:
    """Names of the tensors with dims that are reduced; and of those with elements of their own along all of a row.

    An element along some of a row's dims only is for several threads of the row: none could keep it for itself.
    """
    graph = builder.graph()
    reduced = reduced_groups_of(builder)
    along = {t.name: graph.concrete_groups(t.visible) & reduced for t in builder.tensors}
    rows: set[frozenset[Group]] = set()
    for e in row_reductions(builder):
        source, result = tensor_inputs(e)[0], tensor_outputs(e)[0]
        if source.name not in builder.partial_results:
            dims = (d for d in (*result.logical, *(result.root or ())) if d.is_reduction)
            rows.add(frozenset(map(graph.group, dims)) & along[source.name])
    wide = {t.name for t in builder.tensors if any(graph.group(d) in reduced for d in t.visible)}
    full = {name for name, groups in along.items() if groups and any(row <= groups for row in rows)}
    return frozenset(wide), frozenset(full)


@record
class PersistentBuffer:
    """A full-size value that stays on chip from the data pass that computes it to the last that needs it."""

    name: str
    first: int
    last: int


def recompute_except(
    builder: ScheduleBuilder, keep: Callable[[str], bool] = lambda name: False
) -> tuple[tuple[PersistentBuffer, ...], dict[str, list[str]]]:
    """Recompute full-size values that several data passes need, once per further data pass, but for those to keep.

    Returns what is kept, and the second computations of the others by name.
    """
    kept, stage, again = _plan_passes(builder, keep)
    made: dict[str, list[str]] = {}
    for name, later in again.items():
        by_stage: dict[int, list[str]] = {}
        for use in builder.uses(name):
            target = tensor_outputs(use)[0].name
            by_stage.setdefault(stage.get(target, 0), []).append(target)
        for s in later:
            clone = builder.recompute(name, by_stage[s])
            stage[clone] = s
            made.setdefault(name, []).append(clone)
    return kept, made


def _plan_passes(
    builder: ScheduleBuilder, keep: Callable[[str], bool]
) -> tuple[tuple[PersistentBuffer, ...], dict[str, int], dict[str, list[int]]]:
    """What is kept between data passes, that of each tensor, and the further ones of those computed again, last first."""
    level = data_pass_indices(builder)
    wide, _ = _full_size(builder)
    stage: dict[str, int] = dict(level)
    kept: list[PersistentBuffer] = []
    again: dict[str, list[int]] = {}
    order = [t.name for e in builder.exprs for t in tensor_outputs(e)]
    for name in reversed(order):
        is_scanned = isinstance(builder.definition(name), Scan)
        if name not in wide or (name in level and not is_scanned) or name in builder.input_names:
            continue
        needed: set[int] = set()
        for use in builder.uses(name):
            target = tensor_outputs(use)[0].name
            needed.add(stage.get(target, 0))
            needed.update(again.get(target, ()))
        if not needed:
            continue
        if is_scanned:
            kept.append(PersistentBuffer(name, level[name], max(needed)))
            continue
        first, *later = sorted(needed)
        stage[name] = first
        if later and keep(name):
            kept.append(PersistentBuffer(name, first, later[-1]))
        elif later:
            again[name] = later
    return tuple(kept), stage, again


def defining_passes(builder: ScheduleBuilder) -> dict[str, int]:
    """The data pass in which each full-size value is first computed, or read."""
    return _plan_passes(builder, lambda name: False)[1]


@memoized_while_unchanged
def computing_pass_counts(builder: ScheduleBuilder) -> dict[str, int]:
    """For each full-size value that several data passes need: in how many data passes it is computed if no value is kept."""
    return {name: 1 + len(later) for name, later in _plan_passes(builder, lambda name: False)[2].items()}


def recompute_cheap_values(
    builder: ScheduleBuilder,
    *,
    few_registers: bool = False,
    inputs_only: bool = False,
    anew: Callable[[str], bool] = lambda _: False,
) -> tuple[PersistentBuffer, ...]:
    """Recompute cheap full-size values that several data passes need, once per further pass; returns those kept instead.

    A value is kept if it is costly, if it is a copy of an input (which a recomputation would read again), or if that takes
    fewer bytes than keeping what it is computed from. With `few_registers` the last does not count: where only copies and
    costly values are kept, many results share what each needs. With `inputs_only` nothing but copies of inputs is kept.
    What is to be `anew` is read, or computed, in each data pass whatever that takes.
    """
    worth = _is_kept(builder, few_registers=few_registers, inputs_only=inputs_only)
    return recompute_except(builder, lambda name: not anew(name) and worth(name))[0]


def recompute_parts_of_rows(builder: ScheduleBuilder) -> None:
    """Compute values that have some of the reduced dims, but not all, once for each use.

    These dims are merged: what lacks one of them is spread over threads in another way than what has them all, and cannot be
    kept for several loops.
    """
    graph, reduced = builder.graph(), reduced_groups_of(builder)
    row = frozenset(g for g in reduced if not g.is_broadcast)
    for e in reversed(builder.exprs):
        name = tensor_outputs(e)[0].name
        own = row.intersection(graph.group(d) for d in builder.state(name).tensor.visible if not d.is_broadcast)
        if isinstance(e, (Pointwise, Broadcast)) and own and own < row and name not in builder.output_names:
            for use in builder.uses(name)[1:]:
                builder.recompute(name, [use])


def kept_values(builder: ScheduleBuilder) -> tuple[PersistentBuffer, ...]:
    """What `recompute_cheap_values` would keep by default; it changes nothing."""
    return _plan_passes(builder, _is_kept(builder, few_registers=False, inputs_only=False))[0]


def _is_kept(builder: ScheduleBuilder, *, few_registers: bool, inputs_only: bool) -> Callable[[str], bool]:
    _, full = _full_size(builder)
    kept: set[str] = set()

    def nbytes(t: Tensor) -> int:
        return t.dtype.itemsize

    def is_worth_keeping(name: str) -> bool:
        expr = builder.definition(name)
        assert expr is not None
        sources = [t for t in dict.fromkeys(tensor_inputs(expr)) if t.name in full or t.name in builder.input_names]
        if any(t.name in builder.input_names for t in sources):
            return True
        if inputs_only:
            return False
        if not is_cheap(builder, name):
            return True
        if few_registers:
            return False
        return nbytes(builder.state(name).tensor) < sum(nbytes(t) for t in sources if t.name not in kept)

    def keep(name: str) -> bool:
        worth = name in full and is_worth_keeping(name)
        if worth:
            kept.add(name)
        return worth

    return keep
