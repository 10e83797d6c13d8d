"""Marks reads of rows with the cache hint evict_last: their lines stay in L2 longer than others.

A kernel that reads rows and writes rows is 2 to 4 % faster if the lines that it has read stay longer than those that it
writes. No line is read twice because of the hint: the gain is the same with alternating inputs, after any other kernel, with
a clean or a dirty cache, and in chains of kernels (benchmarks/NOTES.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from fuser.ir.fusion.iteration_graph import Group
from fuser.ir.ops.enums import CacheOp
from fuser.ir.schedule.schedule import ScheduleBuilder


def evict_last(builder: ScheduleBuilder, copies: Mapping[str, str], along: Set[Group]) -> None:
    """Hint the reads of inputs that have rows, with the dims `along`, into registers: `copies`, by argument.

    Asynchronous copies to shared memory cannot have the hint (`codegen/statements.py` says why).
    """
    graph = builder.graph()
    for argument, copy in copies.items():
        if argument not in builder.input_names:
            continue
        own = graph.concrete_groups(builder.state(argument).tensor.visible)
        if not own & along or own <= along:
            continue
        for reader in builder.consumers(argument):
            if reader.name == copy:
                builder.set_cache_op(reader.name, CacheOp.evict_last)
