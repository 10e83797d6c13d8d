"""Reductions chained to reductions of rows on a GPU: the definitions of the simulator's tests, at real sizes."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.runtime.devices.device import get_device
from tests.fusions import chained_reductions as chained
from tests.judging.harness import run_on

Float, Double, Half, BFloat16 = DataType.Float, DataType.Double, DataType.Half, DataType.BFloat16
LAUNCHES = 5


@pytest.mark.parametrize("define", [*chained.STREAMED, *chained.ROWS_KEPT])
@pytest.mark.parametrize("dtype", [Float, Half, BFloat16, Double])
@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        *[(1, 1), (1, 5000), (4096, 1000), (9001, 257), (100_003, 64), (700, 32_000), (20_011, 200), (5003, 3072)],
        # Few rows: over clusters, a block each.
        *[(2, 7168), (5, 2057), (64, 5), (213, 257), (1000, 128), (2, 16_384), (7, 40_000), (42, 1000)],
    ],
)
def test_rows(define: chained.Definition, dtype: DataType, rows: int, columns: int) -> None:
    """Right, and the same bits at every launch: the order of the blocks does not count."""
    if define is chained.norm_of_column_sums and rows > 1000:
        pytest.skip("blocks share the sum of a column: this is cut into two kernels, which other tests cover")
    device = get_device("cuda", 0)
    arrays = chained.arrays_for(define, rows, columns, dtype)
    fusion = chained.fusion_of(define, dtype)
    kernel = KernelCompiler(device).compile(fusion, [chained.described(a) for a in arrays])
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == 0
    runs = [run_on(device, kernel, fusion, arrays) for _ in range(LAUNCHES)]
    for t, expected in zip(fusion.output_tensors, chained.expected_of(define, arrays), strict=True):
        value = runs[0][t.name]
        assert all(value.tobytes() == r[t.name].tobytes() for r in runs)
        spread = np.sqrt(rows * columns) if define in (chained.moments_of_sums, chained.norm_of_column_sums) else 1.0
        bound = 1e-11 if dtype is Double else 5e-5
        np.testing.assert_allclose(value.astype(np.float64), expected, rtol=bound, atol=bound * spread)
