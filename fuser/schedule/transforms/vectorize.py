"""Copies of arguments in registers, and vector accesses for them: the first scheduling primitives of all schedules."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from fuser.ir.fusion.fusion import tensor_inputs, tensor_outputs
from fuser.ir.integers.integers import const
from fuser.ir.ops.enums import ParallelType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.schedule.analysis.input_reads import displaced_name, is_displaced
from fuser.schedule.params import Access, Aligned, Peeled, PointwiseParams


def cache_arguments(
    builder: ScheduleBuilder, whole_inputs: Collection[str] = (), apart: Collection[str] = ()
) -> dict[str, str]:
    """Copies of the inputs, and outputs as copies of what computes them: argument -> name of the copy's result.

    A slice, pad or gather of an input is itself a copy, under the name of that read (`analysis/input_reads.py`). Those of
    `whole_inputs` read the copy of all of it. What gives the tensors `apart` reads none of these copies.
    """
    copies: dict[str, str] = {}
    for t in builder.fusion.input_tensors:
        readers = [] if t.is_cpu else builder.uses(t.name)
        uses = [e for e in readers if tensor_outputs(e)[0].name not in apart]
        direct = uses if t.name in whole_inputs else [e for e in uses if not is_displaced(e, t)]
        copies |= {displaced_name(e, t): tensor_outputs(e)[0].name for e in uses if e not in direct}
        if direct:
            copies[t.name] = builder.cache_after(t.name, cached_uses=direct if len(direct) < len(readers) else ())
    reads = {made: read for read, made in copies.items()}
    for t in builder.fusion.output_tensors:
        if t.name not in builder.input_names:
            # What others read of an output stays in registers: whoever stores an element need not be the one that reads it.
            before = builder.cache_before(t.name, move_uses=bool(builder.uses(t.name)))
            if t.name in reads:
                copies[reads[t.name]] = before
            copies[t.name] = t.name
    return copies


def split_vector(builder: ScheduleBuilder, name: str, axis: int, vector: int, access: Access) -> None:
    """Split an axis into vectors, which begin at multiples of `vector`, or at aligned addresses of an argument."""
    if isinstance(access, Peeled):
        builder.split_aligned(name, axis, vector, access.at)
    else:
        builder.split(name, axis, vector)


def vectorize(
    builder: ScheduleBuilder, copies: Mapping[str, str], arguments: Iterable[str], access: Access = Aligned()
) -> None:
    """Vectorize the innermost loop axis of the copies of some arguments (dims of one element may come after it)."""
    for argument in arguments:
        name = copies.get(argument)
        if name is not None:
            builder.parallelize(name, builder.innermost(name), ParallelType.vectorize)
            if not isinstance(access, Aligned):
                builder.allow_misaligned(name)


def vectorize_by(
    builder: ScheduleBuilder, copies: Mapping[str, str], widths: Mapping[str, int], access: Access
) -> None:
    """The same with an own width for each argument, a divisor of the axis: a wider type needs several accesses."""
    for argument, width in widths.items():
        name = copies.get(argument)
        if name is None:
            continue
        if not isinstance(access, Aligned):
            builder.parallelize(name, builder.innermost(name), ParallelType.serial)
            builder.allow_misaligned(name)
        _vectorize_innermost(builder, name, width)


def vectorize_tile(builder: ScheduleBuilder, copies: Mapping[str, str], params: PointwiseParams, first: int) -> None:
    """Vectorize the copies of arguments where a thread has an inner tile.

    first   position of the thread's own loop over the dims around the tile, if `vector` > 1; the loops of the inner tile, or
            of an input that is read as a whole, follow it
    """
    inside = first + (params.vector > 1)
    tails = dict(params.tile_vector_dims)
    for argument, width in params.vector_widths:
        name = copies.get(argument)
        if name is None:
            continue
        last = builder.innermost(name)
        if argument in params.tile_contiguous:
            at = last - tails.get(argument, last - first)
            if at > first:
                builder.reorder(name, {first: at})
                made = builder.definition(name)
                if argument in builder.output_names and made is not None:
                    # A value that is stored by vectors has their order in registers.
                    builder.reorder(tensor_inputs(made)[0].name, {first: at})
        else:
            at = max(inside, last + 1 - tails.get(argument, last)) if last >= inside else last
        for _ in range(last - at):
            builder.merge(name, at, at + 1)
        _vectorize_innermost(builder, name, width)


def _vectorize_innermost(builder: ScheduleBuilder, name: str, width: int) -> None:
    """The innermost loop, or its last `width` elements, as one access."""
    innermost = builder.innermost(name)
    if builder.state(name).loop[innermost].extent is not const(width):
        builder.split(name, innermost, width)
        innermost += 1
    builder.parallelize(name, innermost, ParallelType.vectorize)
