"""Gradients whose rows lie over clusters, one of many that each have some of the rows: right in every regime."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import DeviceInfo
from fuser.ir.kernel import ExchangeWait, GridBarrier, walk
from fuser.runtime.compiled_kernel import CompiledKernel
from fuser.schedule.inner_outer_persistent import PassShape, columns_of_block
from fuser.schedule.params import InnerOuterParams, Refused, SegmentInputs
from fuser.schedule.segment import segment_fusion
from fuser.schedule.sides import find_sides
from fuser.simulator.device import SimulatorDevice
from tests.harness import run_on
from tests.schedule.test_inner_outer_persistent import (
    DEFINITIONS,
    Definition,
    arrays_for,
    described,
    expected_of,
    fusion_of,
    layer_norm_backward,
)

H200 = DeviceInfo.preset("H200")
Float, BFloat16 = DataType.Float, DataType.BFloat16


def check(
    define: Definition,
    rows: int,
    length: int,
    dtype: DataType = Float,
    *,
    sharing: int,
    blocks: int,
    threads: int,
    vector: int = 1,
    side_by_side: int = 1,
    at_once: int = 1,
) -> CompiledKernel:
    """The kernel of such parameters, whose results are right."""
    arrays = arrays_for(define, rows, length, dtype)
    fusion = fusion_of(define, dtype)
    (segment,) = segment_fusion(fusion).segments
    bound = bind_inputs(fusion, [described(a) for a in arrays])
    inputs = SegmentInputs(bound.tensors, bound.evaluate)
    found = find_sides(fusion, inputs, vector)
    assert not isinstance(found, Refused)
    batch = -(-found.length // (found.vector * threads * sharing))
    bounds = found.bounds(inputs, threads * batch * found.vector * sharing)
    assert not isinstance(bounds, Refused)
    shape = PassShape(threads, batch, side_by_side, at_once, 1, blocks * sharing, 0, 0)
    across = columns_of_block(found.length, shape)
    params = InnerOuterParams(
        found.order,
        found.sides.reference.name,
        across,
        threads // across,
        batch,
        found.vector,
        found.vectorized,
        side_by_side,
        at_once,
        blocks,
        1,
        rows > blocks * side_by_side * at_once,
        bounds,
        sharing,
        True,
        joined=True,
    )
    device = SimulatorDevice(info=H200)
    kernel, _ = KernelCompiler(device).compile_segment(segment, bound, params)
    results = run_on(device, kernel, fusion, arrays)
    bound_of = 3e-5 if dtype is Float else 1.5e-2
    for t, expected in zip(fusion.output_tensors, expected_of(define, arrays), strict=True):
        value = results[t.name].astype(np.float64)
        scale = np.maximum(np.abs(expected), np.sqrt(np.mean(expected**2)))
        assert np.all(np.abs(value - expected) <= bound_of * scale + 1e-6), t.name
    return kernel


@pytest.mark.parametrize("define", DEFINITIONS)
@pytest.mark.parametrize(
    ("sharing", "blocks", "threads", "vector"), [(2, 3, 64, 1), (4, 2, 32, 4), (2, 2, 32, 2), (8, 1, 32, 1)]
)
@pytest.mark.parametrize(("side_by_side", "at_once"), [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_any_regime(
    define: Definition, sharing: int, blocks: int, threads: int, vector: int, side_by_side: int, at_once: int
) -> None:
    kernel = check(
        define,
        19,
        300,
        sharing=sharing,
        blocks=blocks,
        threads=threads,
        vector=vector,
        side_by_side=side_by_side,
        at_once=at_once,
    )
    assert kernel.plan is not None
    assert kernel.plan.cooperative
    assert kernel.plan.cluster == (sharing, 1, 1)


@pytest.mark.parametrize("define", DEFINITIONS)
def test_sixteen_bits(define: Definition) -> None:
    check(define, 13, 1032, BFloat16, sharing=4, blocks=3, threads=32, vector=8)


def test_rows_meet_in_clusters_and_columns_once() -> None:
    kernel = check(layer_norm_backward, 20, 512, sharing=4, blocks=5, threads=32, vector=4)
    assert kernel.kernel_ir is not None
    stmts = list(walk(kernel.kernel_ir.body))
    assert sum(isinstance(s, ExchangeWait) for s in stmts) <= 2
    assert sum(isinstance(s, GridBarrier) for s in stmts) <= 1
