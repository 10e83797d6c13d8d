"""Loops of many rows of exponentials: few threads a row, whole sectors, blocks that go over the rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fuser import DataType
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import DeviceInfo
from fuser.ir.kernel import AtomicAdd, Post, walk
from fuser.runtime.nvrtc import is_available
from fuser.schedule.cost import online_softmax_rows
from fuser.schedule.cost.online_softmax_rows import OnlineSoftmaxRows, choose_online_softmax_rows
from fuser.schedule.schedulers import chained_reduction
from fuser.simulator.device import SimulatorDevice
from tests.schedule.schedulers.test_chained_reduction import (
    arrays_for,
    cross_entropy,
    described,
    expected_of,
    fusion_of,
    run_on,
)

BFloat16, Half, Float, Double = DataType.BFloat16, DataType.Half, DataType.Float, DataType.Double
H200 = DeviceInfo.preset("H200")


def choose(rows: int, columns: int, itemsize: int, vector: int = 0) -> OnlineSoftmaxRows:
    found = choose_online_softmax_rows(rows, columns, vector or 16 // itemsize, itemsize, 8192, H200)
    assert found is not None
    return found


@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("columns", [64, 257, 1000, 1024, 3072, 4096])
@pytest.mark.parametrize("rows", [300, 5000, 44_486, 1_000_003])
def test_shapes_fit(rows: int, columns: int, itemsize: int) -> None:
    found = choose(rows, columns, itemsize)
    vector = 16 // itemsize
    assert found.threads * found.rows_per_block <= max(online_softmax_rows.BLOCK_THREADS)
    assert found.threads * vector * itemsize >= online_softmax_rows.LEAST_BYTES
    assert found.unroll * vector <= (online_softmax_rows.HELD if itemsize > 2 else online_softmax_rows.MOST_HELD)
    assert 0 <= found.blocks < -(-rows // found.rows_per_block)
    assert (found.blocks or -(-rows // found.rows_per_block)) <= 8192


def test_short_rows_have_few_threads() -> None:
    threads = [choose(40_000, n, 2).threads for n in (64, 1024, 16_384)]
    assert threads == sorted(threads)
    assert threads[0] <= 8 < threads[2]


def test_few_rows_have_many_threads() -> None:
    assert choose(300, 4096, 2).threads > choose(30_000, 4096, 2).threads


@pytest.mark.parametrize("dtype", [BFloat16, Float])
@pytest.mark.parametrize(("rows", "columns"), [(300, 24), (213, 257), (700, 64), (129, 520), (45, 1000)])
@pytest.mark.parametrize("sms", [1, 4])
def test_values(rows: int, columns: int, dtype: DataType, sms: int) -> None:
    """Of a small device, whose blocks go over many rows."""
    fusion = fusion_of(cross_entropy, dtype)
    arrays = arrays_for(cross_entropy, rows, columns, dtype)
    simulator = SimulatorDevice(info=replace(H200, sm_count=sms))
    kernel = KernelCompiler(simulator).compile(fusion, [described(a) for a in arrays])
    found = run_on(simulator, kernel, fusion, arrays)
    (expected,) = expected_of(cross_entropy, arrays)
    np.testing.assert_allclose(found[fusion.output_tensors[0].name], expected, rtol=2e-5)


@pytest.mark.parametrize(
    "shape", [(2, 4, 64, 3), (4, 2, 32, 2), (8, 1, 16, 0), (16, 3, 8, 5), (64, 1, 2, 4), (96, 1, 1, 7)]
)
def test_values_of_any_loops(shape: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    forced = OnlineSoftmaxRows(*shape, 1.0)
    monkeypatch.setattr(chained_reduction, "choose_online_softmax_rows", lambda *_: forced)
    monkeypatch.setattr(chained_reduction, "FEW_ROWS", 0)
    fusion = fusion_of(cross_entropy, Float)
    arrays = arrays_for(cross_entropy, 301, 132, Float)
    simulator = SimulatorDevice(info=H200)
    kernel = KernelCompiler(simulator).compile(fusion, [described(a) for a in arrays])
    found = run_on(simulator, kernel, fusion, arrays)
    (expected,) = expected_of(cross_entropy, arrays)
    np.testing.assert_allclose(found[fusion.output_tensors[0].name], expected, rtol=2e-5)


@pytest.mark.skipif(not is_available(), reason="no NVRTC")
@pytest.mark.parametrize("dtype", [BFloat16, Float])
@pytest.mark.parametrize(("rows", "columns"), [(100_003, 64), (20_011, 1000), (2382, 5120), (737, 3072)])
def test_kernels_do_not_spill(rows: int, columns: int, dtype: DataType) -> None:
    arrays = [replace(described(a), sizes=(rows, *a.shape[1:])) for a in arrays_for(cross_entropy, 2, columns, dtype)]
    kernel = KernelCompiler(H200).compile(fusion_of(cross_entropy, dtype), arrays)
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == 0
    assert kernel.resources.registers <= 64


def test_blocks_that_are_few_post_what_they_have() -> None:
    arrays = [replace(described(a), sizes=(44_486, *a.shape[1:])) for a in arrays_for(cross_entropy, 2, 3072, BFloat16)]
    kernel = KernelCompiler(SimulatorDevice(info=H200)).compile(fusion_of(cross_entropy, BFloat16), arrays)
    assert kernel.kernel_ir is not None
    posts = any(isinstance(s, Post) for s in walk(kernel.kernel_ir.body))
    assert posts != any(isinstance(s, AtomicAdd) for s in walk(kernel.kernel_ir.body))
