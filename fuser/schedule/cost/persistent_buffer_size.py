"""What the structure of a segment says about persistent rows: their data passes, and the bytes of an element kept between them.

The schedulers ask for it for every shape; it is found once for each segment.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from fuser.ir.fusion.fusion import Fusion, Welford, tensor_outputs
from fuser.ir.fusion.memoized import memoized
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.records import record
from fuser.schedule.analysis.data_passes import (
    defining_passes,
    empty_schedule,
    kept_values,
    may_take_two_passes,
    reduced_groups_of,
    row_reductions,
    sink_pass_count,
)
from fuser.schedule.transforms.vectorize import cache_arguments


def use_two_pass_statistics(builder: ScheduleBuilder, *, one_pass: bool = False) -> None:
    """Welford's update only pays where data is read once: what is kept is summed twice. So may exponentials be.

    one_pass   neither is: one exchange joins them
    """
    for name in _two_pass_results(builder, one_pass=one_pass):
        builder.two_pass(name)


def _two_pass_results(builder: ScheduleBuilder, *, one_pass: bool) -> tuple[str, ...]:
    """The first results of what is computed so."""
    if one_pass:
        return ()
    return tuple(tensor_outputs(expr)[0].name for expr in row_reductions(builder) if may_take_two_passes(expr))


@record
class PersistentBufferSize:
    """What a row in registers takes: how many data passes it goes through, and the bytes per element that are on chip at once.

    pass_count      statistics in two passes are counted as what they become
    kept            at most: what is kept between a data pass and the next
    has_late_input  whether an input of full size is first read behind a reduction, access by access between stores
    late_bytes      bytes of an element of all inputs along a row that are first read behind a reduction, such as weights
    """

    pass_count: int
    kept: int
    has_late_input: bool
    late_bytes: int = 0


@memoized
@lru_cache(maxsize=256)
def persistent_buffer_size(segment: Fusion, *, one_pass: bool) -> PersistentBufferSize:
    """See `PersistentBufferSize`. `one_pass`: see `use_two_pass_statistics`. Found once for all fusions that are equal, too."""
    names = _two_pass_results(empty_schedule(segment), one_pass=one_pass)
    if one_pass and names == _two_pass_results(empty_schedule(segment), one_pass=False):
        return persistent_buffer_size(segment, one_pass=False)
    builder = ScheduleBuilder(segment)
    for name in names:
        builder.two_pass(name)
    copies = cache_arguments(builder)
    pass_count = sink_pass_count(builder)
    graph, reduced, first = builder.graph(), reduced_groups_of(builder), defining_passes(builder)
    dims = {
        made: graph.concrete_groups(builder.state(name).tensor.visible)
        for name, made in copies.items()
        if name in builder.input_names
    }
    # What lacks a dim, such as weights, comes from a cache; of a single row all are alike.
    most = max(map(len, dims.values()), default=0)
    is_late = any(first.get(made, 0) > 0 and len(own) == most and bool(own - reduced) for made, own in dims.items())
    late = sum(builder.state(made).tensor.dtype.itemsize for made in inputs_first_read_after_reduction(builder, copies))
    return PersistentBufferSize(pass_count, _kept_bytes(builder), is_late, late)


def inputs_first_read_after_reduction(builder: ScheduleBuilder, copies: Mapping[str, str]) -> tuple[str, ...]:
    """Copies of inputs that a data pass behind a reduction reads first. `copies`: of `cache_arguments`.

    They have every dim of a row: what has some of them is read by threads other than those that would hold it.
    """
    graph, reduced, first = builder.graph(), reduced_groups_of(builder), defining_passes(builder)

    def is_along(name: str) -> bool:
        dims = builder.state(name).tensor.visible
        return reduced <= graph.concrete_groups(dims)

    read = [made for name, made in copies.items() if name in builder.input_names]
    return tuple(made for made in read if first.get(made, 0) > 0 and is_along(made))


def _kept_bytes(builder: ScheduleBuilder) -> int:
    kept = kept_values(builder)
    size = {k.name: builder.state(k.name).tensor.dtype.itemsize for k in kept}
    passes = {s for k in kept for s in range(k.first, k.last)}
    return max((sum(size[k.name] for k in kept if k.first <= s < k.last) for s in passes), default=0)


@memoized
def has_statistics(segment: Fusion) -> bool:
    """Whether a mean and a variance of rows are taken."""
    reductions = row_reductions(empty_schedule(segment))
    return any(isinstance(e, Welford) and not e.input.dtype.is_complex for e in reductions)
