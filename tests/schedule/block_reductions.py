"""Reductions on a tiny device: proposals, other candidates, and results of each on the simulator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.ir.device_info import H200, DeviceInfo
from fuser.ir.fact_collection import collect_facts
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import Fusion
from fuser.schedule.params import ReductionParams
from fuser.schedule.scheduler import SegmentInputs
from fuser.schedule.schedulers.reduction import ReductionScheduler
from tests.judging.harness import Lowered, run

Array = np.ndarray[Any, Any]

D = DataType

# So few threads and SMs that small inputs reach the regimes of large ones.
TINY = replace(H200, name="tiny", sm_count=2, max_threads_per_sm=1024)
NARROW = replace(TINY, sm_count=7)
"""A device that small data fill, with a number of SMs that divides nothing."""

SCHEDULER = ReductionScheduler()


def reduction(op: str, dims: Sequence[int], rank: int, dtype: DataType, order: Sequence[int] | None = None) -> Fusion:
    """`op` over `dims` of one input; of a 16-bit type it is computed and returned in Float."""
    with FusionDefinition() as fd:
        ranks = None if order is None else [rank - 1 - list(order).index(d) for d in range(rank)]
        x = fd.define_tensor([-1] * rank, True, dtype, stride_order=ranks)
        x = fd.ops.cast(x, D.Float) if dtype.is_reduced_float else x
        if op == "var_mean":
            for result in fd.ops.var_mean(x, dims, 1, False):
                fd.add_output(result)
        else:
            fd.add_output(getattr(fd.ops, op)(x, dims))
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def propose(fusion: Fusion, inputs: Sequence[Any], device: DeviceInfo = TINY) -> ReductionParams:
    bound = bind_inputs(fusion, inputs)
    params = SCHEDULER.propose_block_reduction(fusion, SegmentInputs(bound.tensors, bound.evaluate), device)
    assert isinstance(params, ReductionParams)
    return params


def candidates(fusion: Fusion, inputs: Sequence[Any], device: DeviceInfo = TINY) -> Iterator[ReductionParams]:
    """The proposal, and all others."""
    bound = bind_inputs(fusion, inputs)
    for params in SCHEDULER.candidates(fusion, SegmentInputs(bound.tensors, bound.evaluate), device):
        assert isinstance(params, ReductionParams)
        yield params


def simulate(fusion: Fusion, inputs: Sequence[Array], params: ReductionParams, seed: int = 0) -> list[Array]:
    scheduled = SCHEDULER.apply(fusion, params)
    bound = bind_inputs(fusion, inputs)
    lowered = Lowered.of(scheduled, collect_facts(scheduled, bound.tensors, bound.evaluate))
    outputs = run(lowered, inputs, seed=seed).check()
    return [outputs[t.name] for t in fusion.output_tensors]


def described(shape: Sequence[int], dtype: DataType, order: Sequence[int] | None = None) -> TensorDescriptor:
    strides = [0] * len(shape)
    running = 1
    for d in reversed(order or range(len(shape))):
        strides[d] = running
        running *= shape[d]
    return TensorDescriptor(dtype, tuple(shape), tuple(strides))
