"""Long rows on a GPU, in shared memory and in registers: softmax and norms against float64, launched several times."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
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


def norm_beside_floats(fd: FusionDefinition, dtype: DataType) -> None:
    """Layer norm with weights of Float, of which nothing shows to more than the elements' bits."""
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype, contiguity=True)
    weight, bias = (fd.define_tensor(shape=[-1], dtype=DataType.Float, contiguity=True) for _ in range(2))
    wide = fd.ops.cast(x, DataType.Float)
    variance, mean = fd.ops.var_mean(wide, [1], 0, True)
    scaled = fd.ops.mul(fd.ops.sub(wide, mean), fd.ops.rsqrt(fd.ops.add(variance, 1e-5)))
    weight, bias = (fd.ops.broadcast(t, [True, False]) for t in (weight, bias))
    fd.add_output(fd.ops.cast(fd.ops.add(fd.ops.mul(scaled, weight), bias), dtype))


@pytest.mark.parametrize("dtype", [DataType.BFloat16, DataType.Half])
@pytest.mark.parametrize(
    ("rows", "length"), [(1, 50257), (9, 50257), (300, 50257), (700, 33333), (41, 250003), (50, 128256)]
)
def test_norms_beside_floats_at_every_phase(dtype: DataType, rows: int, length: int) -> None:
    """Statistics in one pass, of rows that are cut at both ends, of few rows and of many."""
    device = get_device("cuda", 0)
    rng = np.random.default_rng(length)
    x = (rng.normal(size=(rows, length)) + 2.0).astype(np.float32).astype(dtype.numpy)
    weight, bias = (rng.normal(size=length).astype(np.float32) for _ in range(2))
    fusion = fusion_of(norm_beside_floats, dtype)
    facts = [described(dtype, rows, length), described(DataType.Float, length), described(DataType.Float, length)]
    kernel = KernelCompiler(device).compile(fusion, facts)
    if kernel.resources is not None:
        assert kernel.resources.spill_bytes == 0
    wide = x.astype(np.float64)
    spread = np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    expected = (wide - wide.mean(1, keepdims=True)) / spread * weight + bias
    for _ in range(3):
        (found,) = run_on(device, kernel, fusion, [x, weight, bias]).values()
        error = np.abs(found.astype(np.float64) - expected)
        assert np.max(error / (np.abs(expected) + 1.0)) <= (8e-3 if dtype is DataType.BFloat16 else 1e-3)


@pytest.mark.parametrize("dtype", [DataType.Float, DataType.BFloat16])
@pytest.mark.parametrize(
    ("rows", "length", "padding"), [(70, 50257, 8), (700, 50257, 3), (33, 128257, 64), (301, 20011, 1)]
)
def test_rows_of_another_pitch(dtype: DataType, rows: int, length: int, padding: int) -> None:
    """Some or all of them begin where their results do; of 16 bits exponentials are summed in one pass."""
    torch = pytest.importorskip("torch")
    wide = torch.randn(rows, length + padding, device="cuda")
    x = wide.to(torch.bfloat16 if dtype is DataType.BFloat16 else torch.float32)[:, :length]
    with FusionDefinition() as fd:
        read = fd.ops.cast(fd.define_tensor(shape=[-1, -1], dtype=dtype), DataType.Float)
        e = fd.ops.exp(fd.ops.sub(read, fd.ops.max(read, [1], keepdim=True)))
        fd.add_output(fd.ops.cast(fd.ops.div(e, fd.ops.sum(e, [1], keepdim=True)), dtype))
    expected = torch.softmax(x.double(), 1)
    for _ in range(3):
        (found,) = fd.execute([x])
        error = ((found.double() - expected) / expected).abs().max().item()
        assert error <= (2.0**-8 if dtype is DataType.BFloat16 else 1e-6)


CASES = [(64, 1 << 20), (67, 1 << 20), (300, 65536), (301, 131072), (1000, 50000), (5, 1_000_000), (40, 262144)]


@pytest.mark.parametrize("define", [softmax, layer_norm, add_norm])
@pytest.mark.parametrize("dtype", [DataType.BFloat16, DataType.Float])
@pytest.mark.parametrize(("rows", "length"), CASES, ids=str)
def test_long_rows(define: Definition, dtype: DataType, rows: int, length: int) -> None:
    device = get_device("cuda", 0)
    shapes = shapes_of(define, rows, length)
    rng = np.random.default_rng(5)
    arrays = [rng.normal(size=s).astype(np.float32).astype(dtype.numpy) for s in shapes]
    # As the optimizer leaves it: a maximum and a sum of exponentials are one reduction.
    fusion = fuse_exp_sums(fusion_of(define, dtype))
    kernel = KernelCompiler(device).compile(fusion, [described(dtype, *s) for s in shapes])
    if kernel.resources is not None:
        assert kernel.resources.spill_bytes == 0
    expected = reference(define, arrays)
    tolerance = 5e-5 if dtype is DataType.Float else 1.5e-2
    for _ in range(3):
        found = run_on(device, kernel, fusion, arrays)
        for t, right in zip(fusion.output_tensors, expected, strict=True):
            scale = np.maximum(np.abs(right), np.sqrt(np.mean(right**2)))
            assert np.max(np.abs(found[t.name].astype(np.float64) - right) / scale) <= tolerance
