"""Parts of a statistic joined by neighbours in a warp: who joins what, the same results, and no barrier too many."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import DeviceInfo
from fuser.ir.enums import MemoryType, ParallelType
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion import Fusion
from fuser.ir.integers import ONE, ZERO, const, symbol
from fuser.ir.kernel import Buffer, Literal, Reduce
from fuser.lowering.collectives.block_reduce_scatter import Scatter
from fuser.lowering.collectives.segmented_warp_reduce import warp_width
from fuser.optimize.pipeline import optimize_fusion
from fuser.runtime.compiled_kernel import CompiledKernel
from fuser.simulator.device import SimulatorDevice
from tests.harness import Lowered, run_on
from tests.kernel_corpus import Case
from tests.mutation import Judge, Verdict, What, describe, mutants
from tests.oracle import Array

H200 = DeviceInfo.preset("H200")
Float, Double, Half, Int32 = DataType.Float, DataType.Double, DataType.Half, DataType.Int32


def statistics(dtype: DataType = Float, combine: str = "welford") -> Reduce:
    kinds = {"mean": dtype, "m2": dtype, "count": Int32}
    partials = tuple(Buffer(n, d, MemoryType.local, ONE) for n, d in kinds.items())
    zeros = tuple(Literal(0, p.dtype) for p in partials)
    return Reduce(
        partials, combine, zeros, (ParallelType.block_y,), (), grid_broadcast=False, slot=ZERO, slots=ONE, name="t"
    )


@pytest.mark.parametrize(
    ("lanes", "threads", "size", "parts", "width"),
    [
        (4, 64, 4, 8, 8),
        (4, 64, 4, 16, 8),
        (8, 64, 8, 16, 1),
        (8, 32, 8, 16, 4),
        (8, 64, 8, 8, 4),
        (2, 128, 8, 8, 8),
        (8, 16, 8, 16, 2),
        (8, 8, 8, 16, 1),
        (8, 64, 8, 9, 1),
        (4, 64, 4, 4, 1),
        (32, 16, 4, 16, 1),
        (3, 64, 4, 16, 1),
    ],
)
def test_how_many_join_a_result(lanes: int, threads: int, size: int, parts: int, width: int) -> None:
    position = symbol("position", 0, threads - 1)
    lane = symbol("lane", 0, lanes - 1)
    spread = Scatter(position, const(threads), size, 1, lane, const(lanes), lambda i: i == 2, in_warps=True)
    assert warp_width(statistics(), spread, parts) == width
    for other in (statistics(Double), statistics(combine="add")):
        assert warp_width(other, spread, parts) == 1
    assert warp_width(statistics(), replace(spread, in_warps=False), parts) == 1


def batch_norm() -> Fusion:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], dtype=Half, contiguity=True)
        o = fd.ops
        f = o.cast(x, Float)
        variance, mean = o.var_mean(f, [0], 0, True)
        fd.add_output(o.cast(o.mul(o.sub(f, mean), o.rsqrt(o.add(variance, 1e-5))), Half))
    assert fd.fusion is not None
    return optimize_fusion(fd.fusion.ir_fusion, lambda *_: None)


def compiled(fusion: Fusion, shape: tuple[int, int]) -> CompiledKernel:
    described = [TensorDescriptor(Half, shape, (shape[1], 1))]
    return KernelCompiler(SimulatorDevice(info=H200)).compile(fusion, described)


@pytest.mark.parametrize("shape", [(2600, 48), (5168, 20), (1023, 64), (6272, 16)])
@pytest.mark.parametrize("offset", [0.0, 300.0])
def test_results(shape: tuple[int, int], offset: float) -> None:
    fusion = batch_norm()
    kernel = compiled(fusion, shape)
    assert kernel.plan is not None
    assert kernel.plan.cluster is not None
    assert re.search(r"_c\d+_moved_x\d+ = __shfl_xor_sync", kernel.source)
    x: Array = (np.random.default_rng(shape).normal(size=shape) + offset).astype(np.float16)
    (output,) = fusion.output_tensors
    found = run_on(SimulatorDevice(info=H200), kernel, fusion, [x])[output.name].astype(np.float64)
    exact = x.astype(np.float64)
    expected = (exact - exact.mean(0)) / np.sqrt(exact.var(0) + 1e-5)
    assert np.max(np.abs(found - expected) / (np.abs(expected) + 0.1)) < 2.0**-10


def test_every_missing_barrier_is_reported() -> None:
    fusion, shape = batch_norm(), (1023, 16)
    kernel = compiled(fusion, shape)
    assert kernel.kernel_ir is not None
    lowered = Lowered.from_kernel(fusion, kernel.kernel_ir, kernel.facts)
    case = Case("warps", "warps", lambda: pytest.fail("made already"), ((shape,),))
    judge = Judge(case, lowered)
    found = [m for m in mutants(kernel.kernel_ir) if m.what is What.barrier]
    assert found
    for mutant in found:
        verdict, evidence = judge.verdict(replace(mutant))
        assert verdict is Verdict.reported, f"{evidence}\n{describe(case, mutant)}"
