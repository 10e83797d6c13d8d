"""Backward normalisations and batch normalisation on a GPU: the definitions of the simulator's tests, at real sizes.

Blocks wait for one another here in earnest: a grid that is not resident hangs or is refused, a counter that is not set back
spoils the next launch.
"""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.fusion.fusion import Fusion
from fuser.optimize.pipeline import optimize_fusion
from fuser.runtime.devices.device import get_device
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.schedule.schedulers import inner_outer_persistent
from tests.fusions import columns as of_columns
from tests.fusions import inner_outer
from tests.fusions import rows as of_rows
from tests.judging.harness import run_on
from tests.judging.oracle import Array

Float, Half, BFloat16 = DataType.Float, DataType.Half, DataType.BFloat16
TOLERANCE = {Float: 5e-5, Half: 3e-3, BFloat16: 2e-2}


def check(
    fusion: Fusion, arrays: list[Array], expected: list[Array], dtype: DataType, launches: int = 3
) -> CompiledKernel:
    """Compile, launch several times, and compare each result with float64."""
    device = get_device("cuda", 0)
    kernel = KernelCompiler(device).compile(fusion, [inner_outer.described(a) for a in arrays])
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == 0
    assert kernel.resources.stack_bytes == 0
    for _ in range(launches):
        found = run_on(device, kernel, fusion, arrays)
        for t, right in zip(fusion.output_tensors, expected, strict=True):
            scale = np.maximum(np.abs(right), np.sqrt(np.mean(right**2)))
            error = np.abs(found[t.name].astype(np.float64) - right)
            assert np.all(error <= TOLERANCE[dtype] * scale + 1e-6), (t.name, float(np.max(error / scale)))
    return kernel


@pytest.mark.parametrize("define", inner_outer.DEFINITIONS)
@pytest.mark.parametrize("dtype", [Float, Half, BFloat16])
@pytest.mark.parametrize(
    ("rows", "length"),
    [
        (1, 1),
        (100, 31),
        (4096, 1024),
        (2048, 4096),
        (3001, 257),
        (131, 5120),
        (20_000, 64),
        (2, 1000),
        (4, 7168),
        (10, 5120),
        (39, 1024),
        (64, 1024),
        (480, 64),
    ],
)
def test_rows_and_columns(
    define: inner_outer.Definition, dtype: DataType, rows: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As one kernel: two are test_side_by_side.py's.
    monkeypatch.setattr(inner_outer_persistent, "can_split_rows_and_columns", lambda _: False)
    if define is inner_outer.moments_both_ways and length > 2048:
        pytest.skip("its rows are three times as long, and do not fit on chip")
    arrays = inner_outer.arrays_for(define, rows, length, dtype)
    check(inner_outer.fusion_of(define, dtype), arrays, inner_outer.expected_of(define, arrays), dtype)


@pytest.mark.parametrize("define", of_columns.DEFINITIONS)
@pytest.mark.parametrize("dtype", [Float, Half, BFloat16])
@pytest.mark.parametrize(("rows", "columns"), [(20_000, 64), (16_725, 64), (9_000, 256), (70_001, 33), (3_000, 1000)])
def test_columns(define: of_columns.Definition, dtype: DataType, rows: int, columns: int) -> None:
    arrays = of_columns.arrays_for(define, rows, columns, dtype)
    kernel = check(of_columns.fusion_of(define, dtype), arrays, of_columns.expected_of(define, arrays), dtype)
    assert kernel.plan is not None
    assert kernel.plan.cooperative or kernel.plan.cluster is not None, "blocks share columns"


@pytest.mark.parametrize("dtype", [Float, Half, BFloat16])
@pytest.mark.parametrize(
    "shape",
    [
        (2, 3, 224, 224),
        (32, 64, 56, 56),
        (16, 100, 17, 19),
        (64, 200, 7, 7),
        (64, 2048, 7, 7),
        (4, 512, 31, 33),
        (8, 5, 300, 301),
    ],
)
def test_images(dtype: DataType, shape: tuple[int, int, int, int]) -> None:
    """Channels of images that lie apart: few rows, over clusters where there are fewer than processors."""
    rng = np.random.default_rng(shape)
    image = (rng.normal(size=shape) + 3).astype(dtype.numpy)
    weight = rng.normal(size=shape[1]).astype(np.float32)
    expected = of_rows.reference(of_rows.batch_norm, [image, weight])
    fusion = optimize_fusion(of_rows.fusion_of(of_rows.batch_norm, dtype), lambda *_: None)
    check(fusion, [image, weight], expected, dtype)
