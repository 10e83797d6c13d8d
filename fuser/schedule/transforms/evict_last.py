"""Ask that reads of rows leave the second-level cache last (evict_last).

A kernel that reads rows and writes rows is 2 to 4 % faster where the lines it has read stay longer than those it writes. The
hint does not make any line be read again: with alternating inputs, behind any other kernel, with a clean cache or one full of
dirty lines, and in chains of kernels, the gain is the same (benchmarks/NOTES.md).
"""

from __future__ import annotations

from collections.abc import Mapping

from fuser.ir.ops.enums import CacheOp
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.schedule.analysis.stages import reduced_groups_of


def evict_last(builder: ScheduleBuilder, copies: Mapping[str, str]) -> None:
    """Hint the reads of inputs that have a row for each row of the result into registers: `copies`, by argument.

    Asynchronous copies to shared memory cannot have the hint (`codegen/statements.py` says why).
    """
    graph = builder.graph()
    reduced = reduced_groups_of(builder)
    for argument, copy in copies.items():
        if argument not in builder.input_names:
            continue
        own = {graph.group(d) for d in builder.state(argument).tensor.visible if not d.is_broadcast}
        if not own & reduced or own <= reduced:
            continue
        for reader in builder.consumers(argument):
            if reader.name == copy:
                builder.set_cache_op(reader.name, CacheOp.evict_last)
