"""Maximum and sum of exponentials in one pass: values, special values, schedules; on the simulator against NumPy in double."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import ExpSum, Fusion
from fuser.ir.kernel.kernel import BlockBarrier, Call, For, Store, Value, value_operands, walk
from fuser.ir.ops.enums import ParallelType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.optimize.fuse_exp_sums import fuse_exp_sums
from tests.judging.harness import Lowered, run

Float, Double, BFloat16 = DataType.Float, DataType.Double, DataType.BFloat16


def pair(dtype: DataType = Float, dim: int = 1) -> Fusion:
    """Largest and sum of exponentials of each row (or column)."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, dtype)
        wide = fd.ops.cast(x, Float) if dtype is BFloat16 else x
        largest = fd.ops.max(wide, [dim], keepdim=True)
        fd.add_output(fd.ops.sum(fd.ops.exp(fd.ops.sub(wide, largest)), [dim]))
        fd.add_output(fd.ops.squeeze(largest, [dim]))
    assert fd.fusion is not None
    fused = fuse_exp_sums(fd.fusion.ir_fusion)
    assert any(isinstance(e, ExpSum) for e in fused.tensor_exprs)
    return fused


def special_rows(columns: int, dtype: Any = np.float32) -> np.ndarray:
    """Rows of nothing but -infinity, mostly of it, with an infinity, with nan, rising, falling, constant and huge."""
    rng = np.random.default_rng(columns)
    x = rng.normal(size=(12, columns)) * 3
    x[0] = -np.inf
    x[1, :-1] = -np.inf
    x[2, 1:] = -np.inf
    x[3, columns // 2] = np.inf
    x[4, columns // 3] = np.nan
    x[5] = np.linspace(-400, 400, columns)
    x[6] = np.linspace(400, -400, columns)
    x[7] = 12345
    x[8] = np.where(rng.random(columns) < 0.5, -3e38, 3e38)
    x[9, ::2] = -np.inf
    x[10, 0], x[10, -1] = np.inf, -np.inf
    return x.astype(dtype)


def expected(x: np.ndarray, axis: int = 1) -> tuple[np.ndarray, np.ndarray]:
    wide = x.astype(np.longdouble if x.dtype == np.float64 else np.float64)
    with np.errstate(all="ignore"):
        largest = wide.max(axis=axis, keepdims=True)
        return np.exp(wide - largest).sum(axis=axis), largest.squeeze(axis)


def check(builder: ScheduleBuilder, x: np.ndarray, axis: int = 1) -> Any:
    lowered = Lowered.of(builder)
    found = run(lowered, [x]).check()
    total, largest = (found[t.name] for t in builder.fusion.output_tensors)
    want_total, want_largest = expected(x, axis)
    np.testing.assert_array_equal(largest, want_largest.astype(x.dtype))
    np.testing.assert_allclose(total, want_total.astype(x.dtype), rtol=40 * np.finfo(x.dtype).eps)
    return lowered.kernel


def names(fusion: Fusion) -> tuple[str, str]:
    (expr,) = (e for e in fusion.tensor_exprs if isinstance(e, ExpSum))
    return expr.largest.name, expr.total.name


def serial(s: ScheduleBuilder, name: str) -> None:
    """One thread a row, one element at a time."""


def grouped(s: ScheduleBuilder, name: str) -> None:
    """Groups of four elements of a thread, of which the last may be cut short."""
    s.split(name, 1, 4)
    s.parallelize(name, 2, ParallelType.unroll)


def warps(s: ScheduleBuilder, name: str) -> None:
    s.split(name, 1, 64)
    s.split(name, 1, 2)
    s.reorder(name, {2: 3})
    s.parallelize(name, 2, ParallelType.block_x)
    s.parallelize(name, 3, ParallelType.unroll)


def odd_threads(s: ScheduleBuilder, name: str) -> None:
    s.split(name, 1, 5)
    s.parallelize(name, 2, ParallelType.block_y)
    s.parallelize(name, 0, ParallelType.block_x)


def many_blocks(s: ScheduleBuilder, name: str) -> None:
    s.split(name, 1, 3, False)
    s.split(name, 2, 32)
    s.parallelize(name, 1, ParallelType.grid_y)
    s.parallelize(name, 3, ParallelType.block_x)


def partial_rows(s: ScheduleBuilder, name: str) -> None:
    s.split(name, 1, 4)
    s.rfactor(name, [1])


def partial_threads(s: ScheduleBuilder, name: str) -> None:
    s.split(name, 1, 32)
    s.rfactor(name, [1])
    s.parallelize(name, 1, ParallelType.block_x)


SCHEDULES: list[Callable[[ScheduleBuilder, str], None]] = [
    serial, grouped, warps, odd_threads, many_blocks, partial_rows, partial_threads,
]  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("columns", [1, 7, 64, 201])
def test_special_values_of_rows(schedule: Callable[[ScheduleBuilder, str], None], columns: int) -> None:
    s = ScheduleBuilder(pair())
    name = names(s.fusion)[0]
    schedule(s, name)
    s.transform_like(name)
    s.parallelize_like(name)
    s.inline_most()
    check(s, special_rows(columns))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_special_values_of_columns(dtype: Any) -> None:
    """Several kept elements a thread, whose groups of rows are folded together."""
    s = ScheduleBuilder(pair(Double if dtype is np.float64 else Float, 0))
    name = names(s.fusion)[0]
    s.split(name, 1, 4)  # [R, K/4, 4]
    s.split(name, 0, 3)  # [R/3, 3, K/4, 4]
    s.reorder(name, {2: 0})
    s.parallelize(name, 0, ParallelType.block_x)
    s.parallelize(name, 2, ParallelType.unroll)
    s.transform_like(name)
    s.parallelize_like(name)
    s.inline_most()
    check(s, np.ascontiguousarray(special_rows(20, dtype).T), 0)


def test_a_group_costs_one_exponential_an_element_and_one_scaling() -> None:
    s = ScheduleBuilder(pair())
    name = names(s.fusion)[0]
    s.split(name, 1, 16)
    s.parallelize(name, 2, ParallelType.unroll)
    s.transform_like(name)
    s.parallelize_like(name)
    s.inline_most()
    kernel = check(s, special_rows(64))

    def count(stmts: Any, times: int = 1) -> int:
        total = 0
        for stmt in stmts:
            if isinstance(stmt, For):
                trips = stmt.stop - stmt.start
                total += count(stmt.body, times * (trips.value if stmt.unroll and trips.is_const else 1))
            elif isinstance(stmt, Store):
                total += times * exponentials(stmt.value)
            else:
                total += count([b for body in _bodies(stmt) for b in body], times)
        return total

    assert count(kernel.body) == 16 + 1


def exponentials(value: Value) -> int:
    return (isinstance(value, Call) and value.op in ("exp", "exp_summand", "exp_of_negative")) + sum(
        map(exponentials, value_operands(value))
    )


def _bodies(stmt: Any) -> list[Any]:
    return [getattr(stmt, name) for name in ("then", "orelse") if hasattr(stmt, name)]


def test_one_barrier_for_both() -> None:
    s = ScheduleBuilder(pair())
    name = names(s.fusion)[0]
    warps(s, name)
    s.parallelize(name, 0, ParallelType.grid_x)
    s.transform_like(name)
    s.parallelize_like(name)
    s.inline_most()
    kernel = check(s, special_rows(201))
    assert sum(isinstance(b, BlockBarrier) for b in walk(kernel.body)) == 1


@pytest.mark.parametrize("columns", [32000, 1000])
def test_a_stream_takes_few_registers(columns: int) -> None:
    x = TensorDescriptor(BFloat16, (8192, columns), (columns, 1))
    kernel = KernelCompiler(DeviceInfo.preset("H200")).compile(pair(BFloat16), [x])
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == 0
    assert kernel.resources.registers <= 64


def test_an_empty_row_is_no_row_of_infinities() -> None:
    s = ScheduleBuilder(pair())
    s.inline_most()
    found = run(Lowered.of(s), [np.zeros((3, 0), np.float32)]).check()
    total, largest = (found[t.name] for t in s.fusion.output_tensors)
    np.testing.assert_array_equal(total, 0)
    np.testing.assert_array_equal(largest, -np.inf)
