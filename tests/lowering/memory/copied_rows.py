"""Schedules whose rows are copied to shared memory asynchronously, and kernels made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fuser.ir.fusion.fusion import Pointwise, Tensor
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.kernel.kernel import (
    Kernel,
    Stmt,
    walk,
)
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import LoadStoreOpType, ParallelType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.lowering.kernel_rewrites import map_body
from fuser.schedule.analysis.data_passes import recompute_cheap_values
from tests.judging.harness import Lowered, collect_facts, integers

GX, BX, VECTOR = ParallelType.grid_x, ParallelType.block_x, ParallelType.vectorize
Float = DataType.Float


def rows_in_shared_memory(
    length: int,
    threads: int,
    *,
    blocks: int = 0,
    dtype: DataType = Float,
    vector: int = 4,
    ahead: bool = True,
    trips: int = 1,
    rows: int = -1,
) -> ScheduleBuilder:
    """x - max(row) + sum(x - max(row)) with the row in shared memory; `blocks` that go over the rows, 0 for one of each."""
    b = FusionBuilder()
    x = b.input_tensor(dtype, [rows, length])

    def wide(t: Tensor) -> Tensor:
        return b.broadcast(t, [False, True])

    top = b.reduction("max", x, [1], dtype)
    total = b.reduction("sum", b.pointwise("sub", [x, wide(top)], dtype), [1], dtype)
    out = b.pointwise("add", [b.pointwise("sub", [x, wide(top)], dtype), wide(total)], dtype)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    placed = s.cache_after(x.name, LoadStoreOpType.cp_async)
    s.cache_after(placed)
    s.cache_before(out.name)
    recompute_cheap_values(s, inputs_only=True)
    s.split(top.name, 1, vector)
    s.split(top.name, 1, threads)
    if blocks:
        s.split(top.name, 0, blocks)
    s.transform_like(top.name)
    s.parallelize(top.name, int(blocks > 0), GX)
    s.parallelize(top.name, int(blocks > 0) + 2, BX)
    s.parallelize_like(top.name)
    for t in s.tensors:
        expr = s.definition(t.name)
        reads = isinstance(expr, Pointwise) and expr.op == "set" and expr.inputs[0] is s.state(placed).tensor
        if vector > 1 and (reads or t.name in (placed, out.name)):
            s.parallelize(t.name, -1, VECTOR)
    s.inline_most([t.name for t in s.tensors if t.name != placed and t.name not in s.input_names])
    if blocks:
        s.inline_at(placed, 1, selected=[placed])
        if ahead:
            s.load_ahead(placed, iterations=trips)
    return s


def lowered(s: ScheduleBuilder, rows: int = 7) -> tuple[Lowered, list[np.ndarray]]:
    t = s.fusion.input_tensors[0]
    length = t.visible[1].extent.value
    x = [integers((rows, length), t.dtype)]
    return Lowered.of(s, collect_facts(s.fusion, x)), x


def count(kernel: Kernel, kind: type[Stmt]) -> int:
    return sum(isinstance(s, kind) for s in walk(kernel.body))


def changed(kernel: Kernel, rewrite: Callable[[Stmt], tuple[Stmt, ...] | None]) -> Kernel:
    body = map_body(kernel.body, rewrite)
    assert body is not kernel.body
    return replace(kernel, body=body)
