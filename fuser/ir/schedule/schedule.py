"""Schedules: records of verbs, and the state that follows from applying them to a fusion.

Grammar
    schedule := [record]
    record   := Record(verb, tensor, arguments, result)
    verb     := split(axis, factor, inner_split) | split_aligned(axis, factor, to) | merge(axis_o, axis_i) | reorder(old2new)
              | parallelize(position, type) | run_backwards(position) | load_ahead
              | keep_iterations(again, iterations)
              | set_memory_type(type) | set_cache_op(op) | set_allocation_domain(dims, contiguity)
              | swizzle(by, axis) | allow_misaligned
              | cache_after(op_type, cache_op, propagate, cached_uses) | cache_before(op_type, move_uses) | rfactor(axes)
              | recompute(uses) | two_pass
              | require_extent_range(dim, low, high) | require_extent_divisible(dim, divisor) | require_blocks_per_sm(count)
              | set_cluster(type, size)
              | transform_like(selected) | parallelize_like(position, selected, types, padding)
              | inline_most(selected, limits) | inline_at(position, best_effort, selected)

Records name tensors by stable name (`t7`; `t7_cache_after_0`, `t9_rfactor_0` for those a verb created) and axes by position
in the loop domain at the time of the verb, so a schedule replays on any copy of the fusion.

`ScheduleBuilder` applies verbs as they come to the scheduled fusion that it is (`scheduled_fusion.py`: exprs over tensors and
a `TensorState` for each, those that verbs created included). The verbs are in `schedule_transforms.py` (loop axes of one
tensor, the launch), `schedule_memory.py` (where tensors live), `schedule_tensors.py` (tensors that verbs make) and
`schedule_propagation.py` (many tensors at once).
"""

from __future__ import annotations

from collections.abc import Iterable

from fuser.ir.schedule.schedule_memory import MemoryVerbs
from fuser.ir.schedule.schedule_propagation import PropagationVerbs
from fuser.ir.schedule.schedule_tensors import TensorVerbs
from fuser.ir.schedule.schedule_transforms import TransformVerbs
from fuser.ir.schedule.scheduled_fusion import Record as Record


class ScheduleBuilder(TransformVerbs, MemoryVerbs, TensorVerbs, PropagationVerbs):
    """The scheduled fusion, changed by verbs. Every verb either applies whole, and is recorded, or raises SchedulingError."""

    def replay(self, records: Iterable[Record]) -> None:
        """Apply records made on an equal fusion."""
        for r in records:
            getattr(self, r.verb)(*((r.tensor,) if r.tensor else ()), *r.arguments)
