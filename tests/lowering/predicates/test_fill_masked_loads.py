"""Reads that are left out give what held values begin as; what stands behind them is not tested."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fuser import DataType
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import DeviceInfo
from fuser.ir.enums import MemoryType
from fuser.ir.integers import ONE, ZERO, Int, Symbol, const, less, symbol
from fuser.ir.kernel import Allocate, Buffer, Cast, For, If, Literal, Load, Role, Stmt, Store, VectorMove, walk
from fuser.lowering import pipeline
from fuser.lowering.predicates.fill_masked_loads import fill_masked_loads
from fuser.runtime.nvrtc import is_available
from fuser.simulator.device import SimulatorDevice
from tests.harness import run_on
from tests.schedule.schedulers.test_chained_reduction import (
    arrays_for,
    cross_entropy,
    described,
    expected_of,
    fusion_of,
)

B, F = DataType.BFloat16, DataType.Float
H200 = DeviceInfo.preset("H200")
T = Buffer("t", B, MemoryType["global"], const(1 << 20))
ROW = Buffer("row", B, MemoryType.local, const(32))
KEPT = Buffer("kept", F, MemoryType.local, const(32))
WIDE = Buffer("wide", F, MemoryType.local, ONE)
OTHER = Buffer("other", F, MemoryType.local, const(32))
N = symbol("n", 0, 1000)
J, U, V, L = symbol("j", 0, 31), symbol("u", 0, 3), symbol("v", 0, 3), symbol("l", 0, 7)


def loop(index: Symbol, count: int, *body: Stmt) -> For:
    return For(index, ZERO, const(count), ONE, body, unroll=True)


def begun(value: float = -math.inf) -> For:
    return loop(J, 32, Store(KEPT, J, Literal(value, F), Role.initialise))


def read(limit: Int = N, *, shared: bool = False) -> For:
    source = Buffer("s", B, MemoryType.shared, const(1 << 10)) if shared else T
    return loop(U, 4, If(less(U, limit), (VectorMove(ROW, U * 8, source, U * 8, 8),)))


def kept(limit: Int = N, *, at: Int | None = None) -> For:
    place = V * 8 + L if at is None else at
    cast = Store(WIDE, ZERO, Cast(Load(ROW, V * 8 + L), F))
    inner = (Allocate(WIDE), If(less(V, limit), (cast,)), If(less(V, limit), (Store(KEPT, place, Load(WIDE, ZERO)),)))
    return loop(V, 4, loop(L, 8, *inner))


def test_reads_are_filled_and_values_untested() -> None:
    begins = begun()
    first, reads, values = fill_masked_loads((begins, read(), kept()))
    assert first is begins
    (tested,) = (s for s in walk((reads,)) if isinstance(s, If))
    assert [s.index for s in tested.orelse if isinstance(s, Store)] == [U * 8 + k for k in range(8)]
    assert all(isinstance(s, Store) and s.value == Literal(-math.inf, B) for s in tested.orelse)
    assert not any(isinstance(s, If) for s in walk((values,)))
    assert sum(isinstance(s, Store) for s in walk((values,))) == 2


@pytest.mark.parametrize(
    "body",
    [
        (begun(0.0), read(), kept()),  # they begin as something else
        (begun(), read(N - 1), kept()),  # another test
        (begun(), read(), kept(), loop(J, 32, Store(OTHER, J, Cast(Load(ROW, J), F)))),  # somebody else reads it
        (begun(), read(shared=True), kept()),
        (begun(), kept(), read()),  # the values are those of the trip before
        (begun(), read(), kept(at=const(31) - V * 8 - L)),  # other places
    ],
)
def test_others_stay(body: tuple[Stmt, ...]) -> None:
    assert fill_masked_loads(body) == body


@pytest.mark.parametrize("dtype", [DataType.BFloat16, F])
@pytest.mark.parametrize(("rows", "columns"), [(37, 1000), (300, 72), (5, 4104)])
def test_values(rows: int, columns: int, dtype: DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows far below zero: anything but -infinity would show. One row of nothing but that has no sum."""
    monkeypatch.setenv("FUSER_VERIFY", "passes,proofs")
    fusion = fusion_of(cross_entropy, dtype)
    arrays = arrays_for(cross_entropy, rows, columns, dtype)
    arrays[0] = (np.asarray(arrays[0]).astype(np.float32) - 60).astype(dtype.numpy)
    simulator = SimulatorDevice(info=replace(H200, sm_count=2))
    kernel = KernelCompiler(simulator).compile(fusion, [described(a) for a in arrays])
    assert kernel.kernel_ir is not None
    filled = [s for s in walk(kernel.kernel_ir.body) if isinstance(s, If) and s.orelse and _fills(s.orelse)]
    assert filled, "some turn is not known to be whole"
    found = run_on(simulator, kernel, fusion, arrays)
    (expected,) = expected_of(cross_entropy, arrays)
    np.testing.assert_allclose(found[fusion.output_tensors[0].name], expected, rtol=2e-5)


def _fills(orelse: tuple[Stmt, ...]) -> bool:
    return all(isinstance(s, Store) and s.value == Literal(-math.inf, s.buffer.dtype) for s in orelse)


def test_another_filling_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_zeros(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        from fuser.lowering.kernel_rewrites import map_body

        def change(s: Stmt) -> tuple[Stmt, ...] | None:
            if not isinstance(s, If) or not s.orelse or not _fills(s.orelse):
                return None
            zeros = tuple(
                Store(o.buffer, o.index, Literal(0.0, o.buffer.dtype)) for o in s.orelse if isinstance(o, Store)
            )
            return (If(s.condition, s.then, zeros, s.role),)

        return map_body(fill_masked_loads(body), change)

    monkeypatch.setattr(pipeline, "fill_masked_loads", with_zeros)
    fusion = fusion_of(cross_entropy, F)
    arrays = arrays_for(cross_entropy, 37, 1000, F)
    simulator = SimulatorDevice(info=replace(H200, sm_count=2))
    kernel = KernelCompiler(simulator).compile(fusion, [described(a) for a in arrays])
    found = run_on(simulator, kernel, fusion, arrays)
    (expected,) = expected_of(cross_entropy, arrays)
    assert not np.allclose(found[fusion.output_tensors[0].name], expected, rtol=2e-5)


@pytest.mark.skipif(not is_available(), reason="no NVRTC")
@pytest.mark.parametrize("dtype", [DataType.BFloat16, DataType.Half, F])
def test_text_fills_whole_registers(dtype: DataType) -> None:
    arrays = [replace(described(a), sizes=(5000, *a.shape[1:])) for a in arrays_for(cross_entropy, 2, 1000, dtype)]
    kernel = KernelCompiler(H200).compile(fusion_of(cross_entropy, dtype), arrays)
    word = {DataType.BFloat16: "0xff80ff80u", DataType.Half: "0xfc00fc00u", F: "0xff800000u"}[dtype]
    assert f"make_uint4({word}, {word}, {word}, {word})" in str(kernel.source)
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == 0
