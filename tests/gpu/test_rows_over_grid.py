"""Few long rows over groups of blocks on a GPU: softmax and norms against float64, the same in several launches."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.optimize.fuse_exp_sums import fuse_exp_sums
from fuser.runtime.devices.device import get_device
from tests.fusions.rows import (
    Definition,
    add_norm,
    described,
    fusion_of,
    layer_norm,
    reference,
    shapes_of,
    softmax,
)
from tests.judging.harness import run_on

CASES = [
    (64, 1 << 20),
    (67, 1 << 20),
    (1, 50257),
    (1, 1 << 20),
    (2, 250_003),
    (4, 128_256),
    (5, 1_000_003),
    (3, 4_000_000),
]


@pytest.mark.parametrize("define", [softmax, layer_norm, add_norm])
@pytest.mark.parametrize("dtype", [DataType.BFloat16, DataType.Float])
@pytest.mark.parametrize(("rows", "length"), CASES, ids=str)
def test_few_long_rows(define: Definition, dtype: DataType, rows: int, length: int) -> None:
    device = get_device("cuda", 0)
    shapes = shapes_of(define, rows, length)
    rng = np.random.default_rng(5)
    arrays = [rng.normal(size=s).astype(np.float32).astype(dtype.numpy) for s in shapes]
    fusion = fuse_exp_sums(fusion_of(define, dtype))
    kernel = KernelCompiler(device).compile(fusion, [described(dtype, *s) for s in shapes])
    if kernel.resources is not None:
        assert kernel.resources.spill_bytes == 0
    expected = reference(define, arrays)
    tolerance = 5e-5 if dtype is DataType.Float else 1.5e-2
    first: dict[str, np.ndarray] = {}
    for _ in range(4):
        found = run_on(device, kernel, fusion, arrays)
        for t, right in zip(fusion.output_tensors, expected, strict=True):
            scale = np.maximum(np.abs(right), np.sqrt(np.mean(right**2)))
            assert np.max(np.abs(found[t.name].astype(np.float64) - right) / scale) <= tolerance
            assert np.array_equal(first.setdefault(t.name, found[t.name]), found[t.name]), "results repeat"
