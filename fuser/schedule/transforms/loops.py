"""Steps that schedules have in common: facts about extents, the tensor whose loops are made, axes as one, types of loops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fuser.ir.fusion.fusion import is_copy, tensor_inputs, tensor_outputs
from fuser.ir.ops.enums import ParallelType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.schedule.analysis.data_passes import row_reductions
from fuser.schedule.analysis.reference import concrete_dims
from fuser.schedule.params import ExtentMultiple, ExtentRange


def require_extents(
    builder: ScheduleBuilder,
    ranges: Iterable[ExtentRange],
    multiples: Iterable[ExtentMultiple] = (),
) -> None:
    """Ask for facts about extents: (input, dim, low, high), and (input, dim, divisor)."""
    for tensor, dim, low, high in ranges:
        builder.require_extent_range(tensor, dim, low, high)
    for tensor, dim, divisor in multiples:
        builder.require_extent_divisible(tensor, dim, divisor)


def reference_result(builder: ScheduleBuilder) -> str:
    """The result of the first reduction of most dims: others of the same dims may lack those of one element."""
    graph = builder.graph()
    results = [tensor_outputs(e)[0] for e in row_reductions(builder)]
    return max(results, key=lambda t: concrete_dims(graph, t)).name


def computed_source(builder: ScheduleBuilder, name: str) -> str:
    """The name under which a result is computed: an output has become a copy of it."""
    definition = builder.definition(name)
    return tensor_inputs(definition)[0].name if definition is not None and is_copy(definition) else name


def merge_axes(builder: ScheduleBuilder, name: str, at: int, count: int) -> None:
    """Make one axis of the `count` from `at` on."""
    for _ in range(count - 1):
        builder.merge(name, at, at + 1)


def merge_runs(builder: ScheduleBuilder, name: str, at: int, runs: Sequence[int]) -> None:
    """Make one axis of those from `at` on: each run of neighbours first, then the runs."""
    for k, length in enumerate(runs):
        merge_axes(builder, name, at + k, length)
    merge_axes(builder, name, at, len(runs))


def split_grid_stride(builder: ScheduleBuilder, name: str, blocks: int) -> int:
    """Make loop 0 of a tensor a grid-stride loop of `blocks` blocks, if that is not 0; the number of loops added after loop 0.

    Adjacent blocks have adjacent indices in each iteration.
    """
    if blocks == 0:
        return 0
    builder.split(name, 0, blocks)
    builder.reorder(name, {0: 1})
    return 1


def set_loop_types(
    builder: ScheduleBuilder,
    name: str,
    types: Iterable[tuple[int, ParallelType]],
    others: Sequence[str] | None = None,
) -> None:
    """Give loops of the reference their types, and those of all tensors, or of `others`, that are the same."""
    for position, parallel_type in types:
        builder.parallelize(name, position, parallel_type)
    builder.parallelize_like(name, -1, others)


def unswitch(builder: ScheduleBuilder, name: str, position: int) -> None:
    """Test once for all iterations of a loop, in all tensors."""
    builder.parallelize(name, position, ParallelType.unswitch)
    builder.parallelize_like(name, types=frozenset({ParallelType.unswitch}))
