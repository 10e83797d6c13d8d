"""Splits a list of exprs into segments from first to last, each as long as some scheduler accepts it.

A range of exprs in definition order never depends on a later range. The length of a range is found by doubling and halving:
schedulers are asked O(n log n) times for n exprs. If a stage failed on the sizes of a range, its outputs that have only cheap
values in common are tried one by one first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from fuser.ir.fusion.fusion import (
    Fusion,
    Tensor,
    TensorExpr,
    Val,
    expr_inputs,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.sub_fusion import sub_fusion, tensor_expr
from fuser.schedule.analysis.independent_outputs import independent_outputs
from fuser.schedule.segmentation.segment import Segment, SizeRefusal, accepted_segment, choose_scheduler, segment_of


def greedy_segments(
    fusion: Fusion, exprs: Sequence[TensorExpr], size_refusals: Collection[SizeRefusal]
) -> list[Segment]:
    """Segments of exprs in order, each as long as some scheduler accepts it."""
    segments: list[Segment] = []
    start = 0
    while start < len(exprs):
        subsets, end = _independent_run(fusion, exprs, start, size_refusals)
        if subsets:
            segments += subsets
            start = end
            continue
        end = _longest_accepted(fusion, exprs, start, size_refusals)
        if end < len(exprs) and any(r.divisor is not None for r in size_refusals):
            end = _cheapest_boundary(exprs, start, end)
        segments.append(segment_of(fusion, exprs[start:end], size_refusals))
        start = end
    return segments


def _cheapest_boundary(exprs: Sequence[TensorExpr], start: int, end: int) -> int:
    """The end, in the second half of a range, at which the fewest large tensors are stored for later ranges."""
    readers: dict[Tensor, int] = {}
    for k, e in enumerate(exprs):
        readers |= dict.fromkeys(tensor_inputs(e), k)
    made = {t: k for k, e in enumerate(exprs) for t in tensor_outputs(e)}

    def intermediate_count(at: int) -> int:
        # What is reduced is small.
        return sum(
            0 if any(d.is_reduction for d in t.logical) else 1
            for t, k in made.items()
            if start <= k < at <= readers.get(t, -1)
        )

    return min(range(end, start + (end - start) // 2, -1), key=intermediate_count)


def _longest_accepted(
    fusion: Fusion, exprs: Sequence[TensorExpr], start: int, size_refusals: Collection[SizeRefusal]
) -> int:
    """End of the longest accepted range from `start`, found by doubling and then halving the step."""

    def works(end: int) -> bool:
        return accepted_segment(*sub_fusion(fusion, exprs[start:end]), size_refusals) is not None

    good, step = start + 1, 1
    while good < len(exprs) and works(min(good + step, len(exprs))):
        good = min(good + step, len(exprs))
        step *= 2
    while step > 1:
        step //= 2
        if good + step <= len(exprs) and works(good + step):
            good += step
    return good


def _independent_run(
    fusion: Fusion, exprs: Sequence[TensorExpr], start: int, size_refusals: Collection[SizeRefusal]
) -> tuple[list[Segment], int]:
    """Segments of the independent outputs of a range whose sizes were refused, and its end; no segments if there is none."""
    if not size_refusals:
        return [], start
    parts = [r for r in size_refusals if r.divisor is not None]
    end = _longest_accepted(fusion, exprs, start, parts)
    run, _ = sub_fusion(fusion, exprs[start:end])
    scheduler, _ = choose_scheduler(run, parts)
    fitting, _ = choose_scheduler(run, size_refusals)
    return (independent_segments(fusion, run, size_refusals) if scheduler is not fitting else []), end


def independent_segments(fusion: Fusion, run: Fusion, size_refusals: Collection[SizeRefusal]) -> list[Segment]:
    """A segment for each independent subset of outputs (`independent_outputs`) of a range, if schedulers accept all of them.

    No segment reads what another one computes, so that two at a time run co-resident. `run`: the whole fusion, or a part of it.
    """
    found: list[Segment] = []
    members = set(run.tensor_exprs)
    if not members.issubset(fusion.tensor_exprs):
        return []
    for exprs in independent_outputs(run):
        own = set(exprs)
        others = {t for e in members - own for t in tensor_outputs(e)}
        # Values that other subsets compute, too, are not outputs of this one.
        rest = tuple(e for e in fusion.exprs if e in own or e not in members)
        alone = replace(fusion, exprs=rest, outputs=tuple(o for o in fusion.outputs if o.tensor not in others))
        segment = accepted_segment(*sub_fusion(alone, exprs), size_refusals)
        if segment is None:
            return []
        is_second = len(found) % 2 == 1
        found.append(replace(segment, starts_next=not is_second, co_resident=is_second))
    return found


def depth_first(fusion: Fusion, made: Collection[Tensor] = ()) -> list[TensorExpr]:
    """Exprs depth first from the outputs, so that chains stay together; none of those that only what is `made` needs."""
    seen: dict[TensorExpr, None] = {}
    definitions = fusion.definitions

    def visit(value: Val) -> None:
        stack: list[tuple[Val, bool]] = [(value, False)]
        while stack:
            v, ready = stack.pop()
            expr = definitions.get(v)
            if expr is None or v in made or expr in seen or not tensor_expr(expr):
                continue
            if ready:
                seen[expr] = None  # type: ignore[index]
                continue
            stack.append((v, True))
            stack += [(i, False) for i in reversed(expr_inputs(expr)) if isinstance(i, Tensor)]

    for output in fusion.outputs:
        visit(output.tensor)
    return list(seen)
