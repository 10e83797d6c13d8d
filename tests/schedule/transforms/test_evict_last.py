"""Rows that are read once leave the second-level cache last; what all rows share, and what is written, does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuser.codegen.generate import generate_cuda
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import H200
from fuser.ir.kernel.kernel import AsyncCopy, Stmt, VectorMove, walk
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import CacheOp
from fuser.lowering.kernel_rewrites import map_body
from fuser.runtime.kernels import nvrtc
from fuser.simulator.device import SimulatorDevice
from tests.fusions.rows import Definition, add_norm, described, fusion_of, layer_norm, shapes_of, softmax
from tests.schedule.forced_rows import propose_only

BF16 = DataType.BFloat16


@pytest.mark.parametrize("define", [softmax, layer_norm, add_norm])
@pytest.mark.parametrize(("length", "in_shared"), [(1024, False), (4096, False), (65536, True)])
def test_reads_of_rows_into_registers_are_hinted_alone(
    define: Definition, length: int, in_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    propose_only(monkeypatch, lambda m: m.in_shared == in_shared)
    fusion = fusion_of(define, BF16)
    compiler = KernelCompiler(SimulatorDevice(info=H200))
    made = compiler.compile(fusion, [described(BF16, *s) for s in shapes_of(define, 4096, length)])
    assert made.kernel_ir is not None
    rows = {t.name for t in fusion.input_tensors if t.ndim == 2}
    statements = list(walk(made.kernel_ir.body))
    reads = [s for s in statements if isinstance(s, VectorMove) and s.src.is_global]
    copies = [s for s in statements if isinstance(s, AsyncCopy)]
    copied = {s.src.name for s in copies}
    assert bool(copies) == in_shared
    assert {s.src.name for s in reads if s.cache is CacheOp.evict_last} == rows - copied
    assert all(s.cache is CacheOp.unspecified for s in reads if s.src.name not in rows)
    assert all(s.cache is CacheOp.unspecified for s in copies)
    writes = [s for s in statements if isinstance(s, VectorMove) and s.dst.is_global]
    assert writes
    assert all(s.cache is CacheOp.unspecified for s in writes)


@pytest.mark.parametrize(("length", "instruction"), [(4096, "ld.global.L2::cache_hint"), (65536, "cp.async.cg")])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_text_compiles(length: int, instruction: str, arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    propose_only(monkeypatch, lambda m: m.in_shared == instruction.startswith("cp.async"))
    compiler = KernelCompiler(SimulatorDevice(info=H200))
    shapes = shapes_of(layer_norm, 4096, length)
    made = compiler.compile(fusion_of(layer_norm, BF16), [described(BF16, *s) for s in shapes])
    assert instruction in made.source
    assert made.plan is not None
    if made.plan.cluster is None or arch == "sm_90a":
        result = nvrtc.compile_to_cubin(made.source, [made.entry], arch, ["-DFUSER_MAX_THREADS=1024"])
        assert result.resources[made.entry].spill_bytes == 0


def test_no_asynchronous_copy_has_a_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even one that asks for it: ptxas takes a register for it that nothing has written."""
    propose_only(monkeypatch, lambda m: m.in_shared)
    compiler = KernelCompiler(SimulatorDevice(info=H200))
    made = compiler.compile(fusion_of(softmax, BF16), [described(BF16, 4096, 65536)])
    assert made.kernel_ir is not None

    def asking(s: Stmt) -> tuple[Stmt, ...] | None:
        return (replace(s, cache=CacheOp.evict_last),) if isinstance(s, AsyncCopy) else None

    text = generate_cuda(replace(made.kernel_ir, body=map_body(made.kernel_ir.body, asking))).text
    assert "fuser_copy_async_16(" in text
    assert "asynchronous copies have no evict_last" in text
    assert "L2::cache_hint" not in text
