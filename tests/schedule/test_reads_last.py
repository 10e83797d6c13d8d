"""Rows that are read once leave the second-level cache last; what all rows share, and what is written, does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import H200
from fuser.ir.dtypes import DataType
from fuser.ir.enums import CacheOp
from fuser.ir.kernel import AsyncCopy, VectorMove, walk
from fuser.runtime import nvrtc
from fuser.schedule.inner_persistent import InnerPersistentScheduler
from fuser.schedule.params import InnerPersistentParams, Params, Refused
from fuser.simulator.device import SimulatorDevice
from tests.schedule.test_rows_in_shared import (
    Definition,
    add_norm,
    described,
    fusion_of,
    layer_norm,
    shapes_of,
    softmax,
)

BF16 = DataType.BFloat16


@pytest.mark.parametrize("define", [softmax, layer_norm, add_norm])
@pytest.mark.parametrize("length", [1024, 4096, 65536])
def test_reads_of_rows_alone_are_hinted(define: Definition, length: int) -> None:
    fusion = fusion_of(define, BF16)
    compiler = KernelCompiler(SimulatorDevice(info=H200))
    made = compiler.compile(fusion, [described(BF16, *s) for s in shapes_of(define, 4096, length)])
    assert made.kernel_ir is not None
    rows = {t.name for t in fusion.input_tensors if t.ndim == 2}
    reads = [s for s in walk(made.kernel_ir.body) if isinstance(s, (VectorMove, AsyncCopy)) and s.src.is_global]
    assert {s.src.name for s in reads if s.cache is CacheOp.evict_last} == rows
    assert all(s.cache is CacheOp.unspecified for s in reads if s.src.name not in rows)
    writes = [s for s in walk(made.kernel_ir.body) if isinstance(s, VectorMove) and s.dst.is_global]
    assert writes
    assert all(s.cache is CacheOp.unspecified for s in writes)


@pytest.mark.parametrize(("length", "instruction"), [(4096, "ld.global.L2::cache_hint"), (65536, "cp.async.cg")])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_text_compiles(length: int, instruction: str, arch: str) -> None:
    compiler = KernelCompiler(SimulatorDevice(info=H200))
    shapes = shapes_of(layer_norm, 4096, length)
    made = compiler.compile(fusion_of(layer_norm, BF16), [described(BF16, *s) for s in shapes])
    assert f"{instruction}" in made.source
    assert "L2::cache_hint" in made.source
    assert made.plan is not None
    if made.plan.cluster is None or arch == "sm_90a":
        result = nvrtc.compile_to_cubin(made.source, [made.entry], arch, ["-DFUSER_MAX_THREADS=1024"])
        assert result.resources[made.entry].spill_bytes == 0


def test_copies_under_a_test_are_plain() -> None:
    """A policy there has been miscompiled: see `_async_copy` in `codegen/statements.py`."""
    compiler = KernelCompiler(SimulatorDevice(info=H200))
    made = compiler.compile(fusion_of(softmax, BF16), [described(BF16, 8192, 32008)])
    assert "fuser_copy_async_16(" in made.source
    assert "fuser_copy_last_async" not in made.source
    assert ");  // evict_last is left out beside a test" in made.source


def test_copies_beside_one_under_a_test_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four accesses of 1024 threads the last is tested: ptxas took an odd register for the policy of another one."""
    propose = InnerPersistentScheduler.propose

    def changed(self: InnerPersistentScheduler, segment: Any, *arguments: Any) -> Params | Refused:
        params = propose(self, segment, *arguments)
        assert isinstance(params, InnerPersistentParams)
        bounds = tuple((name, dim, 1024 * 7 * 2 + 1, 1024 * 8 * 2) for name, dim, _, _ in params.bounds)
        return replace(params, threads=1024, batch=8, cluster=1, bounds=bounds)

    monkeypatch.setattr(InnerPersistentScheduler, "propose", changed)
    compiler = KernelCompiler(SimulatorDevice(info=H200))
    shapes = [described(DataType.Double, *s) for s in shapes_of(layer_norm, 4096, 16384)]
    made = compiler.compile(fusion_of(layer_norm, DataType.Double), shapes)
    assert made.kernel_ir is not None
    assert any(s.cache is CacheOp.evict_last for s in walk(made.kernel_ir.body) if isinstance(s, AsyncCopy))
    assert made.source.count(");  // evict_last is left out beside a test") == 2
    assert "fuser_copy_last_async" not in made.source
