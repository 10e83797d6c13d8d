"""Rows in shared memory: which rows go there, values on small devices, one read of the data, and few registers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fuser import DataType
from fuser.codegen.generate import generate_cuda
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.ir.kernel import AsyncCopy, AsyncWait, walk
from fuser.runtime import nvrtc
from fuser.schedule.cost.rows_in_shared import choose_shared_shape
from fuser.schedule.cost.scratch_budget import BESIDE_ROW
from fuser.schedule.params import InnerPersistentParams, Params, Refused, SegmentInputs
from fuser.schedule.schedulers.inner_persistent import InnerPersistentScheduler
from fuser.simulator.device import SimulatorDevice
from tests.harness import run_on
from tests.schedule.schedulers.test_inner_persistent import (
    H200,
    Definition,
    add_norm,
    described,
    fusion_of,
    layer_norm,
    reference,
    softmax,
)

SMALL = replace(H200, sm_count=16, registers_per_thread=33, max_threads_per_block=64)
"""No row fits in registers."""


def device_for(held: int, resident: int) -> DeviceInfo:
    """A small device: a block holds `held` bytes of a row at most, and an SM `resident` such blocks."""
    room = held + BESIDE_ROW
    return replace(SMALL, shared_per_block_optin=room, shared_per_sm=resident * room)


def proposed(
    define: Definition, device: DeviceInfo, *shapes: tuple[int, ...], dtype: DataType
) -> InnerPersistentParams:
    return proposed_for(define, device, *(described(dtype, *s) for s in shapes), dtype=dtype)


def proposed_for(
    define: Definition, device: DeviceInfo, *inputs: TensorDescriptor, dtype: DataType
) -> InnerPersistentParams:
    fusion = fusion_of(define, dtype)
    bound = bind_inputs(fusion, list(inputs))
    params = InnerPersistentScheduler().propose(fusion, SegmentInputs(bound.tensors, bound.evaluate), device)
    assert isinstance(params, InnerPersistentParams)
    return params


def shapes_of(define: Definition, rows: int, length: int) -> list[tuple[int, ...]]:
    shapes: dict[Definition, list[tuple[int, ...]]] = {
        softmax: [(rows, length)],
        layer_norm: [(rows, length), (length,)],
        add_norm: [(rows, length)] * 2,
    }
    return shapes[define]


def go_over_rows(monkeypatch: pytest.MonkeyPatch, blocks: int) -> None:
    """Let proposals have so many groups of blocks that go over the rows."""
    propose = InnerPersistentScheduler.propose

    def changed(self: InnerPersistentScheduler, *arguments: Any) -> Params | Refused:
        params = propose(self, *arguments)
        assert isinstance(params, InnerPersistentParams)
        return replace(params, blocks=blocks)

    monkeypatch.setattr(InnerPersistentScheduler, "propose", changed)


@pytest.mark.parametrize("define", [softmax, layer_norm, add_norm])
@pytest.mark.parametrize("dtype", [DataType.Float, DataType.BFloat16])
@pytest.mark.parametrize(("rows", "length"), [(3, 1000), (33, 1544)])
@pytest.mark.parametrize(("held", "resident", "blocks"), [(7168, 1, 0), (7168, 1, 5), (2048, 3, 0), (2048, 1, 4)])
def test_values(
    define: Definition,
    dtype: DataType,
    rows: int,
    length: int,
    held: int,
    resident: int,
    blocks: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One block a row and several, one row a block and many, whole and ragged accesses."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    shapes = shapes_of(define, rows, length)
    device = device_for(held, resident)
    go_over_rows(monkeypatch, blocks)
    params = proposed(define, device, *shapes, dtype=dtype)
    assert params.in_shared == tuple(t.name for t in fusion_of(define, dtype).input_tensors if t.ndim == 2)
    if held == 2048 and length > 1000:
        assert params.cluster > 1
    fusion = fusion_of(define, dtype)
    kernel = KernelCompiler(SimulatorDevice(info=device)).compile(fusion, [described(dtype, *s) for s in shapes])
    rng = np.random.default_rng(3)
    arrays = [rng.normal(size=s).astype(dtype.numpy) for s in shapes]
    found = run_on(SimulatorDevice(info=device), kernel, fusion, arrays)
    tolerance = 2e-5 if dtype is DataType.Float else 1.2e-2
    for t, expected in zip(fusion.output_tensors, reference(define, arrays), strict=True):
        scale = np.maximum(np.abs(expected), np.sqrt(np.mean(expected**2)))
        assert np.all(np.abs(found[t.name].astype(np.float64) - expected) <= tolerance * scale + 1e-6)


def test_the_data_is_read_once_and_copied_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    device = device_for(2048, 1)
    go_over_rows(monkeypatch, 4)
    kernel = KernelCompiler(SimulatorDevice(info=device)).compile(
        fusion_of(softmax, DataType.BFloat16), [described(DataType.BFloat16, 33, 1024)]
    )
    assert kernel.kernel_ir is not None
    copies = [s for s in walk(kernel.kernel_ir.body) if isinstance(s, AsyncCopy)]
    assert [s.width for s in copies] == [8, 8], "the first row, and the next one"
    waits = [s.pending for s in walk(kernel.kernel_ir.body) if isinstance(s, AsyncWait)]
    assert waits == [1, 0], "the pieces of a row are waited for one after the other"
    assert kernel.source.count("&t0[") == 2


@pytest.mark.parametrize(
    ("define", "rows", "length"),
    [(softmax, 2048, 65536), (softmax, 64, 1 << 20), (layer_norm, 2048, 65536), (add_norm, 2048, 65536)],
)
def test_threads_are_small(define: Definition, rows: int, length: int) -> None:
    dtype = DataType.BFloat16
    compiler = KernelCompiler(SimulatorDevice(info=H200))
    made = compiler.compile(fusion_of(define, dtype), [described(dtype, *s) for s in shapes_of(define, rows, length)])
    assert made.kernel_ir is not None
    source = generate_cuda(made.kernel_ir)
    result = nvrtc.compile_to_cubin(source.text, [source.entry], "sm_90a", ["-DFUSER_MAX_THREADS=1024"])
    resources = result.resources[source.entry]
    assert resources.spill_bytes == resources.stack_bytes == 0
    assert resources.registers <= 48


def test_rows_that_registers_hold_well_stay_there() -> None:
    for length in (1024, 4096, 8192):
        assert not proposed(softmax, H200, (4096, length), dtype=DataType.BFloat16).in_shared
    for length in (16384, 32768, 65536):
        assert proposed(softmax, H200, (2048, length), dtype=DataType.BFloat16).in_shared
    assert not proposed(layer_norm, H200, (4096, 32768), (32768,), dtype=DataType.BFloat16).in_shared


def test_how_rows_that_begin_anywhere_are_copied() -> None:
    cut = proposed(softmax, H200, (2048, 65537), dtype=DataType.BFloat16)
    assert cut.in_shared == ("t0",), "whole but for the ends of a row"
    assert cut.aligned_to
    padded = TensorDescriptor(DataType.BFloat16, (2048, 65537), (65540, 1))
    elsewhere = proposed_for(softmax, H200, padded, dtype=DataType.BFloat16)
    assert elsewhere.funnel_shifted == elsewhere.in_shared == ("t0",)
    assert not cut.funnel_shifted


def test_what_cannot_be_copied_while_threads_go_on_stays_in_registers() -> None:
    old = replace(DeviceInfo.preset("sm_75"), max_cluster=16)
    assert not proposed(softmax, old, (2048, 65536), dtype=DataType.BFloat16).in_shared


@pytest.mark.parametrize("length", [1024, 3072, 50000, 65536, 131072, 1 << 20, 1_000_000])
@pytest.mark.parametrize("loaded", [2, 4, 8])
@pytest.mark.parametrize("exchanges", [1, 2])
def test_shapes(length: int, loaded: int, exchanges: int) -> None:
    shape = choose_shared_shape(length, 4, loaded, exchanges, H200)
    if shape is None:
        assert length * loaded > 16 * (H200.shared_per_block_optin - 4 * BESIDE_ROW)
        return
    assert shape.threads * shape.batch * shape.cluster * 4 >= length
    held = shape.threads * shape.batch * 4 * loaded
    assert held + BESIDE_ROW <= H200.shared_per_block_optin
    assert shape.resident * held == shape.in_flight <= H200.shared_per_sm


def test_shapes_that_were_best_on_an_h200() -> None:
    """(length, bytes read for each element, exchanges) -> (blocks of a cluster, threads), with accesses of 8 elements."""
    found = {
        key: choose_shared_shape(key[0], 8, key[1], key[2], H200)
        for key in ((65536, 2, 2), (1 << 20, 2, 2), (16384, 2, 2), (32768, 4, 1))
    }
    params = proposed(softmax, H200, (2048, 65536), dtype=DataType.BFloat16)
    assert (params.cluster, params.threads) == (2, 512), "its maximum and its sum are two exchanges"
    shapes = [(s.cluster, s.threads) for s in found.values() if s is not None]
    assert shapes == [(2, 512), (16, 1024), (1, 256), (1, 512)]
