"""When reductions are done in two steps, and what the kernels of both are: whole vectors, enough blocks, the right values."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.compile_case import TextOnly
from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import compile_fusion
from fuser.compiler.recorder import KeepingRecorder
from fuser.ir.device_info import BURST_BYTES, H200, DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.schedule.cost.two_kernel_reduction import TwoKernelTimes, burst_overhead, compare_times
from fuser.schedule.params import Aligned, InnerPersistentParams, NoOpParams, Params, PointwiseParams, ReductionParams

D = DataType
Array = np.ndarray[Any, Any]


def strides(n: int, c: int, h: int, w: int, *, last: bool) -> list[int]:
    return [c * h * w, 1, w * c, c] if last else [c * h * w, h * w, w, 1]


def group_norm(
    n: int, g: int, k: int, h: int, w: int, dtype: DataType, *, last: bool = True, only: bool = False
) -> FusionDefinition:
    """`only`: the statistics."""
    full, split = [n, g * k, h, w], [n, g, k, h, w]
    with FusionDefinition() as fd:
        o = fd.ops
        x = fd.define_tensor(sizes=full, strides=strides(n, g * k, h, w, last=last), dtype=dtype)
        wide = D.Double if dtype is D.Double else D.Float
        x5 = o.reshape(o.cast(x, wide), split)
        var, mean = o.var_mean(x5, [2, 3, 4], 0, False)
        if only:
            fd.add_output(var)
            fd.add_output(mean)
            return fd
        weight = fd.define_tensor(sizes=[g * k], strides=[1], dtype=dtype)
        y = o.sub(x5, o.broadcast_in_dim(mean, split, [0, 1]))
        y = o.reshape(o.mul(y, o.broadcast_in_dim(o.rsqrt(o.add(var, 1e-5)), split, [0, 1])), full)
        y = o.cast(o.mul(y, o.broadcast_in_dim(o.cast(weight, wide), full, [1])), dtype)
        fd.add_output(o.stride_order(y, [3, 0, 2, 1]) if last else y)
    return fd


def proposed(fd: FusionDefinition, shape: tuple[int, ...], dtype: DataType, device: DeviceInfo = H200) -> list[Params]:
    """What is proposed for each kernel of a program for an image of that shape (n, c, h, w), with channels last."""
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    n, c, h, w = shape
    given = [TensorDescriptor(dtype, shape, tuple(strides(n, c, h, w, last=True)))]
    given += [TensorDescriptor(dtype, (c,), (1,)) for _ in fusion.input_tensors[1:]]
    recorder = KeepingRecorder()
    compile_fusion(fusion, bind_inputs(fusion, given), TextOnly(device), recorder=recorder)  # type: ignore[arg-type]
    attempts = recorder.stages["segments.py"].count("# segment ")
    prefixes = [""] if attempts == 1 else [f"s{k}." for k in range(attempts)]
    names = vars(sys.modules["fuser.schedule.params"])
    found = [recorder.stages.get(f"{p}params.py", "NoOpParams()") for p in prefixes]
    every = [eval(text, dict(names)) for text in found]
    return [p for p in every if not isinstance(p, NoOpParams)]


def norm_of(n: int, g: int, k: int, h: int, w: int, dtype: DataType, *, only: bool = False) -> list[Params]:
    return proposed(group_norm(n, g, k, h, w, dtype, only=only), (n, g * k, h, w), dtype)


def always_in_steps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        sys.modules["fuser.schedule.cost.two_kernel_reduction"], "compare_times", lambda *_: TwoKernelTimes(2.0, 1.0, 3)
    )


def test_bursts_of_runs() -> None:
    """Runs of 20 bytes begin at each multiple of 4: each touches one burst or two, as often as each of 16 places says."""
    for run in (2, 4, 8, 12, 16, 20, 32, 40, 64, 80, 100, 128, 200):
        touched = sum((k * run + run - 1) // BURST_BYTES - k * run // BURST_BYTES + 1 for k in range(BURST_BYTES))
        assert burst_overhead(run) == pytest.approx(touched / run)
        assert burst_overhead(run) >= 1
        assert (burst_overhead(run) == 1) == (run % BURST_BYTES == 0)


@pytest.mark.parametrize("dtype", [D.BFloat16, D.Half, D.Float], ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(32, 32, 10, 96, 96), (16, 8, 6, 128, 112), (24, 40, 5, 80, 96)], ids=str)
def test_short_runs_of_much_data_are_reduced_as_columns(shape: tuple[int, ...], dtype: DataType) -> None:
    n, g, k, _, _ = shape
    columns, rows, last = norm_of(*shape, dtype)
    assert isinstance(columns, ReductionParams)
    assert not columns.inner
    assert columns.vector * dtype.itemsize == 16
    assert columns.access == Aligned()
    blocks = -(-n * g * k // (columns.block_iterate * columns.vector)) * columns.grid_reduce
    threads = blocks * columns.block_iterate * columns.block_reduce
    assert threads >= H200.sm_count * 400, "the SMs have warps to hide the latency of their loads"
    assert isinstance(rows, InnerPersistentParams)
    assert isinstance(last, PointwiseParams)
    assert all(width >= last.vector for _, width in last.vector_widths), "an access takes all elements that it may"
    assert last.vector > 1 or k % 2
    # Threads of x go along the channels, so that neighbours in a warp are neighbours in memory.
    assert last.order[-2:] == (1, 2)


def test_statistics_alone_are_reduced_as_columns() -> None:
    columns, rows = norm_of(32, 32, 10, 96, 96, D.BFloat16, only=True)
    assert isinstance(columns, ReductionParams)
    assert not columns.inner
    assert columns.vector == 8
    assert isinstance(rows, InnerPersistentParams)


@pytest.mark.parametrize(
    "shape", [(32, 16, 64, 64, 64), (2, 32, 10, 16, 16), (16, 1, 320, 64, 64), (8, 256, 1, 32, 32)], ids=str
)
def test_long_runs_and_little_data_stay_one_kernel(shape: tuple[int, ...]) -> None:
    assert len(norm_of(*shape, D.BFloat16)) == 1


MEASURED = [
    ((32, 32, 8, 64, 64), False, 104.0, 56.3),
    ((16, 32, 16, 64, 64), False, 79.6, 59.2),
    ((8, 32, 20, 32, 32), False, 14.4, 16.7),
    ((32, 32, 20, 32, 32), False, 55.1, 41.4),
    ((16, 32, 30, 64, 64), False, 222.8, 105.1),
    ((8, 3, 7, 55, 53), False, 7.3, 12.1),
    ((40, 33, 7, 55, 53), False, 133.2, 89.5),
    ((1, 32, 10, 64, 64), False, 9.7, 12.6),
    ((2, 32, 10, 64, 64), False, 14.2, 18.6),
    ((4, 32, 10, 64, 64), False, 25.9, 19.6),
    ((8, 32, 10, 64, 64), False, 37.7, 26.7),
    ((32, 32, 16, 64, 64), True, 64.0, 42.2),
    ((32, 32, 20, 32, 32), True, 27.4, 22.7),
    ((2, 32, 10, 64, 64), True, 10.9, 15.0),
]
"""(shape, statistics only, microseconds of one kernel, of two steps), as measured on an H200."""


def test_what_is_chosen_is_about_as_fast_as_the_best_of_what_was_measured() -> None:
    taken = [one if len(norm_of(*s, D.BFloat16, only=only)) == 1 else steps for s, only, one, steps in MEASURED]
    ratios = [time / min(one, steps) for time, (_, _, one, steps) in zip(taken, MEASURED, strict=True)]
    assert max(ratios) < 1.5
    assert sum(ratios) / len(ratios) < 1.05


@settings(deadline=None, max_examples=6)
@given(st.integers(1, 48), st.sampled_from([2, 8, 33]), st.integers(1, 4), st.sampled_from([16, 56, 96]), st.booleans())
def test_runs_that_fill_bursts_stay_one_kernel(n: int, g: int, bursts: int, side: int, only: bool) -> None:
    """Nothing is wasted that a second pass could save."""
    found = norm_of(n, g, bursts * BURST_BYTES // 2, side, side, D.BFloat16, only=only)
    assert sum(isinstance(p, ReductionParams) and not p.inner for p in found) == 0


@pytest.mark.parametrize("only", [False, True])
@pytest.mark.parametrize("n", [1, 4, 32])
def test_late_launches_and_slow_memories_cost_more(n: int, *, only: bool) -> None:
    """The same params: launches are time of two steps alone, bytes of both, and of one kernel more."""
    late = replace(H200, arch="sm_89")
    slow = replace(H200, memory_bytes_per_ns=H200.memory_bytes_per_ns / 4)
    compared: list[tuple[TwoKernelTimes | None, ...]] = []

    def compare(*args: Any) -> TwoKernelTimes | None:
        compared.append(tuple(compare_times(*args[:-1], device) for device in (H200, late, slow)))
        return None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["fuser.schedule.cost.two_kernel_reduction"], "compare_times", compare)
        norm_of(n, 32, 10, 64, 64, D.BFloat16, only=only)
    ((here, behind, slower),) = compared
    assert here is not None
    assert behind is not None
    assert slower is not None
    assert behind.one == here.one
    assert behind.steps > here.steps
    assert slower.one > here.one
    assert slower.one - slower.steps > here.one - here.steps


def test_a_slower_memory_gains_more() -> None:
    """The second pass of two steps costs bytes, as sectors do; what launches cost counts for less."""
    shape = (1, 32, 5, 64, 64)
    slow = DeviceInfo("slow", "sm_90a", 132, memory_bytes_per_ns=200.0)
    fd = group_norm(*shape, D.BFloat16, only=True)
    assert len(proposed(fd, (1, 160, 64, 64), D.BFloat16)) == 1
    assert len(proposed(fd, (1, 160, 64, 64), D.BFloat16, slow)) == 2


@settings(deadline=None, max_examples=12)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 7), st.integers(1, 6), st.integers(1, 6)),
    st.sampled_from([D.BFloat16, D.Half, D.Float, D.Double]),
    st.booleans(),
    st.booleans(),
)
def test_values(shape: tuple[int, int, int, int, int], dtype: DataType, last: bool, only: bool) -> None:
    """In two steps wherever they can be, on the simulator."""
    n, g, k, h, w = shape
    rng = np.random.default_rng(shape)
    x = (rng.standard_normal((n, g * k, h, w)) * 2 + 3).astype(dtype.numpy)
    image = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2) if last else x
    weight = rng.standard_normal(g * k).astype(dtype.numpy)
    with pytest.MonkeyPatch.context() as patch:
        always_in_steps(patch)
        fd = group_norm(*shape, dtype, last=last, only=only)
        found = fd.execute([image] if only else [image, weight], device="simulator")
    exact = x.astype("f8").reshape(n, g, -1)
    mean, variance = exact.mean(2, keepdims=True), exact.var(2, keepdims=True)
    if only:
        wanted = [variance[..., 0], mean[..., 0]]
    else:
        hat = ((exact - mean) / np.sqrt(variance + 1e-5)).reshape(x.shape)
        wanted = [hat * weight.astype("f8")[None, :, None, None]]
    tolerance = {D.BFloat16: 1e-2, D.Half: 2e-3, D.Float: 1e-5, D.Double: 1e-12}[
        D.Float if only and dtype is not D.Double else dtype
    ]
    for now, then in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(now, "f8"), then, rtol=tolerance, atol=tolerance * 2)


def test_extents_that_are_not_known() -> None:
    """A tensor of rank 5 whose groups and channels are extents of the input."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1] * 4, True, D.Float)
        var, mean = fd.ops.var_mean(x, [1, 3], 0, True)
        fd.add_output((x - mean) * fd.ops.rsqrt(var + 1e-5))
    for shape in ((2, 5, 4, 3), (3, 7, 2, 6)):
        x = np.random.default_rng(0).standard_normal(shape).astype("f4")
        with pytest.MonkeyPatch.context() as patch:
            always_in_steps(patch)
            (found,) = fd.execute([x], device="simulator")
            assert len(fd.program([x]).launches()) == 3
        wanted = (x - x.mean((1, 3), keepdims=True)) / np.sqrt(x.var((1, 3), keepdims=True) + 1e-5)
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(0, 3, 4, 1), (2, 0, 4, 1), (2, 3, 0, 1), (2, 3, 4, 1)])
def test_empty_rows_that_not_all_inputs_have(shape: tuple[int, int, int, int]) -> None:
    """What is read may have elements where rows have none."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, D.Float)
        mask = fd.define_tensor([-1, -1, -1, 1], [True, True, True, None], D.Bool)
        y = fd.ops.where(mask, fd.ops.broadcast(x, [True, True, False, False]), 0.0)
        fd.add_output(fd.ops.sum(y, [0, 1, 3]))
    arguments = [np.arange(4 * 5, dtype="f4").reshape(4, 5)[: shape[2]], np.ones(shape, np.bool_)]
    (found,) = fd.execute(arguments, device="simulator")
    np.testing.assert_array_equal(found, np.where(arguments[1], arguments[0], 0).sum((0, 1, 3)))


def test_explain_says_why() -> None:
    fd = group_norm(32, 32, 10, 96, 96, D.BFloat16, only=True)
    assert fd.fusion is not None
    recorder = KeepingRecorder()
    given = [TensorDescriptor(D.BFloat16, (32, 320, 96, 96), tuple(strides(32, 320, 96, 96, last=True)))]
    bound = bind_inputs(fd.fusion.ir_fusion, given)
    compile_fusion(fd.fusion.ir_fusion, bound, TextOnly(), recorder=recorder)  # type: ignore[arg-type]
    assert "rows are runs of 20 bytes that lie apart" in recorder.stages["segments.py"]
    assert "fusion.in_steps.py" in recorder.stages
