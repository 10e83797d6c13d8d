"""Exponentials that take the place of the row in shared memory: values, where they lie, and which rows are proposed so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import DeviceInfo
from fuser.ir.fusion import Fusion
from fuser.ir.kernel import Allocate, AsyncCopy, BlockBarrier, Kernel, VectorMove, walk
from fuser.optimize.pipeline import optimize_fusion
from fuser.schedule.held_rows import costly_types
from fuser.schedule.inner_persistent import InnerPersistentScheduler
from fuser.schedule.params import InnerPersistentParams, Params, Refused, SegmentInputs
from fuser.schedule.rows import find_rows
from fuser.schedule.rows_in_shared import rows_to_place
from fuser.simulator.device import SimulatorDevice
from tests.harness import run_on
from tests.schedule.test_inner_persistent import H200, described
from tests.schedule.test_rows_over_grid import over_grid


def softmax(dtype: DataType) -> Fusion:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], dtype=dtype, contiguity=True)
        e = fd.ops.exp(fd.ops.sub(x, fd.ops.max(x, [1], keepdim=True)))
        fd.add_output(fd.ops.div(e, fd.ops.sum(e, [1], keepdim=True)))
    assert fd.fusion is not None
    return optimize_fusion(fd.fusion.ir_fusion, lambda *_: None)


def force(monkeypatch: pytest.MonkeyPatch, groups: int, *, in_grid: bool) -> None:
    """Let the scheduler propose rows over blocks of two warps: a cluster, or a group of the grid."""

    def propose(
        self: InnerPersistentScheduler, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo
    ) -> Params | Refused:
        params = over_grid(segment, inputs, device, 64, 4, groups)
        rows = find_rows(segment, inputs)
        assert not isinstance(rows, Refused)
        placed = rows_to_place(rows.reads, rows.accesses.vectorized, rows.accesses.vector, device)
        turn = rows.accesses.misaligned
        return replace(
            params, in_shared=placed, one_pass=False, in_place=True, in_grid=int(in_grid), blocks=groups, in_turn=turn
        )

    monkeypatch.setattr(InnerPersistentScheduler, "propose", propose)


@pytest.mark.parametrize("dtype", [DataType.Float, DataType.Double])
@pytest.mark.parametrize(("rows", "length"), [(5, 1000), (3, 1544), (7, 997)])
@pytest.mark.parametrize(("groups", "in_grid"), [(0, False), (2, False), (2, True)])
def test_values(
    dtype: DataType, rows: int, length: int, groups: int, in_grid: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of clusters and of groups that go over them, of whole vectors and cut."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    force(monkeypatch, groups, in_grid=in_grid)
    fusion, device = softmax(dtype), SimulatorDevice(info=H200)
    kernel = KernelCompiler(device).compile(fusion, [described(dtype, rows, length)])
    assert kernel.kernel_ir is not None
    x = np.random.default_rng(3).normal(size=(rows, length)).astype(dtype.numpy)
    (found,) = run_on(device, kernel, fusion, [x]).values()
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(found, e / e.sum(1, keepdims=True), rtol=1e-5 if dtype is DataType.Float else 1e-14)
    lies_in_place(kernel.kernel_ir)


def lies_in_place(kernel: Kernel) -> None:
    (row,) = {s.dst for s in walk(kernel.body) if isinstance(s, AsyncCopy)}
    placed = [s.buffer for s in walk(kernel.body) if isinstance(s, Allocate) and s.buffer.is_shared]
    assert sum(b.size is row.size for b in placed) == 1, "the row and what it becomes share a place"
    assert any(isinstance(s, VectorMove) and s.dst is row for s in walk(kernel.body))
    assert not any(isinstance(s, BlockBarrier) and row.name in s.reason for s in walk(kernel.body))


def test_what_would_take_the_place_of_a_row() -> None:
    """Exponentials of the row's own type; of rows of 16 bits they are wider, and of statistics nothing is costly."""
    for dtype in (DataType.Float, DataType.Double):
        assert costly_types(softmax(dtype)) == {dtype}
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], dtype=DataType.Float, contiguity=True)
        variance, mean = fd.ops.var_mean(x, [1], 0, True)
        fd.add_output(fd.ops.mul(fd.ops.sub(x, mean), fd.ops.rsqrt(fd.ops.add(variance, 1e-5))))
    assert fd.fusion is not None
    assert not costly_types(fd.fusion.ir_fusion)


@pytest.mark.parametrize(
    ("rows", "length", "shape"),
    [(1495, 50257, (640, 10, 2)), (439, 128_256, (256, 16, 8)), (3000, 32768, (256, 16, 2))],
)
def test_long_rows_of_floats_are_proposed_so(rows: int, length: int, shape: tuple[int, int, int]) -> None:
    """The shapes that were faster than others on an H200."""
    fusion = softmax(DataType.Float)
    bound = bind_inputs(fusion, [described(DataType.Float, rows, length)])
    params = InnerPersistentScheduler().propose(fusion, SegmentInputs(bound.tensors, bound.evaluate), H200)
    assert isinstance(params, InnerPersistentParams)
    assert params.in_place
    assert not params.one_pass
    assert not params.in_grid
    assert (params.threads, params.batch, params.cluster) == shape
