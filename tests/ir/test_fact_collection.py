"""Facts about arguments whose vectors a schedule merges of several dims."""

from __future__ import annotations

import numpy as np

from fuser import FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.ir.fact_collection import collect_facts
from fuser.ir.facts import DenseStride, UnitStride
from fuser.ir.ops.enums import ParallelType
from fuser.ir.schedule.schedule import ScheduleBuilder


def test_vectors_of_dims_that_are_no_neighbours() -> None:
    """Merged in the order of the dims, which is not that in memory: what is told of each stride rests on others in a line."""
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.neg(fd.define_tensor([-1] * 3, [False] * 3)))
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    (x,) = fusion.input_tensors
    schedule = ScheduleBuilder(fusion)
    loaded = schedule.cache_after(x.name)
    schedule.merge(loaded, 0)
    schedule.merge(loaded, 0)
    schedule.split(loaded, 0, 4)
    schedule.parallelize(loaded, 1, ParallelType.vectorize)
    array = np.zeros((1, 5, 4), "f4").transpose(0, 2, 1)
    bound = bind_inputs(fusion, [array])
    facts = collect_facts(schedule, bound.tensors, bound.evaluate)
    assert UnitStride(x.name, 1) in facts
    assert DenseStride(x.name, 2, 1) in facts
