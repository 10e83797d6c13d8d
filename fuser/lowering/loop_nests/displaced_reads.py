"""Where a slice, pad or gather reads its operand: the index of each of the operand's dims, and the test of its windows.

The loops run over the dims of the result. From them follow the indices of the operand's dims, one by one, and from these all
other indices of the operand (merged dims of its storage, splits of its loops). Loops over dims that are not displaced are
used as they are; a loop that happens to run over a displaced dim must not be used for this read.
"""

from __future__ import annotations

from collections.abc import Callable

from fuser.errors import SchedulingError
from fuser.ir.fusion.dim_pairs import displaced_dims, position_pairs, windows_of
from fuser.ir.fusion.fusion import Gather, IterDomain, Resize, Tensor, Window
from fuser.ir.fusion.iteration_graph import Group, leaves
from fuser.ir.integers.integers import ZERO, Cond, Int, Symbol, less, prove_less, prove_less_equal, select
from fuser.lowering.context import LoweringContext
from fuser.lowering.loop_nests.indexing import Indexer


def operand_indices(
    context: LoweringContext,
    expr: Resize | Gather,
    indexer: Indexer,
    gathered: Int | None,
    vector: tuple[Symbol, int] | None = None,
) -> dict[Group, Int]:
    """Index of every dim of `expr.input` at the loops at hand. `gathered`: the index along the gathered dim.

    `vector`: index and number of the elements of one. Raises SchedulingError if it would cross from one piece to another.
    """
    source = expr.input
    lane, width = vector or (None, 1)
    found: dict[Group, Int] = {}
    # Nothing is read for an empty result, from wherever that would be.
    is_empty = any(d.extent is ZERO for d in expr.output.visible)
    for d, (a, b) in enumerate(position_pairs(expr, source, expr.output)):
        if a.is_broadcast:
            continue
        if isinstance(expr, Gather) and d == expr.dim:
            assert gathered is not None
            found[context.graph.group(a)] = gathered
            continue
        index = result_index(context, expr.output, b, indexer)
        if expr.windows and not is_empty:
            first = index if lane is None else index.substitute({lane: ZERO})
            window = expr.windows[d]
            if lane is not None and lane in index.symbols:
                cut = next((p for p, _ in window.pieces if (first - context.rewrite(p)).multiple % width), None)
                if cut is not None:
                    raise SchedulingError(
                        f"{expr.output.name} cannot be vectorized by {width}: elements from {cut} on are found elsewhere in "
                        f"{expr.input.name}",
                        location=expr.output.location,
                    )
                if window.step != 1 and width > 1:
                    raise SchedulingError(
                        f"{expr.output.name} cannot be vectorized by {width}: neighbours are {window.step} elements apart in "
                        f"{expr.input.name}",
                        location=expr.output.location,
                    )
            index = index * window.step + _offset(context, window, first)
        found[context.graph.group(a)] = index
    moved = {d for a, _ in displaced_dims(expr, source, expr.output) for d in leaves(context.graph.group(a))}
    for group, index in indexer.loops.items():
        if moved.isdisjoint(leaves(group)):
            found.setdefault(group, index)
    return found


def _offset(context: LoweringContext, window: Window, index: Int) -> Int:
    """By how much an index is moved."""
    offset = context.rewrite(window.offset)
    for first, other in window.pieces:
        offset = select(less(index, context.rewrite(first)), offset, context.rewrite(other))
    return offset


def result_index(context: LoweringContext, output: Tensor, d: IterDomain, indexer: Indexer) -> Int:
    """Index of a dim of a result at the loops at hand."""
    index = ZERO if d.is_broadcast else indexer.index(context.graph.group(d))
    if index is None:
        raise SchedulingError(
            f"{output.name} cannot be computed: its dim {d.name} does not follow from the loops around it",
            location=output.location,
        )
    return index


def window_tests(
    context: LoweringContext,
    expr: Resize | Gather,
    indexer: Indexer,
    claim: Callable[[Int, Int], None],
    test: Callable[[Int, Int], Cond],
    vector: tuple[Symbol, int] | None = None,
) -> list[Cond]:
    """begin <= index < end for every dim where that is not sure; of a `vector`, for its first element.

    `claim` logs left < right if that is proved, else `test` makes the test of left < right. Raises SchedulingError where a
    vector would cross an edge.
    """
    tests: list[Cond] = []
    lane, width = vector or (None, 1)
    for d, window in windows_of(expr):
        index = result_index(context, expr.output, d, indexer)
        first = index if lane is None else index.substitute({lane: ZERO})
        begin, end = context.rewrite(window.begin), context.rewrite(window.end)
        is_cut = False
        if begin is not ZERO:
            if prove_less_equal(begin, index):
                claim(begin, index + 1)
            else:
                tests.append(test(begin - 1, first))
                is_cut = (first - begin).multiple % width != 0
        if window.end is not d.extent:
            if prove_less(index, end):
                claim(index, end)
            else:
                tests.append(test(first, end))
                is_cut = is_cut or (end - first).multiple % width != 0
        if lane is not None and is_cut and lane in index.symbols:
            raise SchedulingError(
                f"{expr.output.name} cannot be vectorized by {width}: elements [{begin}, {end}) of {expr.input.name} do not "
                "begin and end at multiples of it",
                location=expr.output.location,
            )
    return tests
