"""A fusion whose reductions leave SMs idle is several kernels, each for the whole device, and still computes the same."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.compile_case import TextOnly
from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import compile_fusion
from fuser.compiler.recorder import KeepingRecorder
from fuser.ir.device_info import H200, DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.runtime.layouts import row_major
from fuser.schedule.params import InnerPersistentParams, OuterPersistentParams, Params, PointwiseParams, ReductionParams
from fuser.schedule.scheduler import Refused
from fuser.schedule.schedulers.inner_persistent import InnerPersistentScheduler
from fuser.schedule.schedulers.outer_persistent import OuterPersistentScheduler

D = DataType


def scaled(rank: int, dims: Sequence[int], *, centred: bool = False) -> FusionDefinition:
    """x over the sum of its absolute values along `dims`, after its mean along them is taken off if `centred`."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1] * rank, True, D.Float)
        y = x - x.mean(list(dims), True) if centred else x
        fd.add_output(y / fd.ops.sum(fd.ops.abs(y), list(dims), True))
    return fd


def stages_of(fd: FusionDefinition, shape: Sequence[int], device: DeviceInfo = H200) -> dict[str, str]:
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    strides = tuple(int(np.prod(shape[d + 1 :])) for d in range(len(shape)))
    recorder = KeepingRecorder()
    bound = bind_inputs(fusion, [TensorDescriptor(D.Float, tuple(shape), strides)])
    compile_fusion(fusion, bound, TextOnly(device), recorder=recorder)  # type: ignore[arg-type]
    return recorder.stages


def proposed(fd: FusionDefinition, shape: Sequence[int], device: DeviceInfo = H200) -> list[Params]:
    names = dict(vars(sys.modules["fuser.schedule.params"]))
    return [eval(text, names) for name, text in stages_of(fd, shape, device).items() if name.endswith("params.py")]


def blocks_of(params: Params, shape: Sequence[int]) -> int:
    """Blocks that share a row of that shape."""
    assert isinstance(params, ReductionParams)
    return params.grid_reduce


def test_what_is_computed_of_results_alone_splits_no_kernel() -> None:
    """The gradients of a gate and of what it scales: nothing of full size needs the sums."""
    with FusionDefinition() as fd:
        x, dy = (fd.define_tensor([-1, -1], True, D.Float) for _ in range(2))
        gate = fd.define_tensor([-1, 1], [True, None], D.Float)
        fd.add_output(dy * gate)
        fd.add_output(fd.ops.sum(x * dy, 1, keepdim=True) * gate * (1.0 - gate))
    assert fd.fusion is not None
    fusion, recorder = fd.fusion.ir_fusion, KeepingRecorder()
    given = [((24, 1 << 20), (1 << 20, 1)), ((24, 1 << 20), (1 << 20, 1)), ((24, 1), (1, 1))]
    bound = bind_inputs(fusion, [TensorDescriptor(D.Float, *g) for g in given])
    compile_fusion(fusion, bound, TextOnly(H200), recorder=recorder)  # type: ignore[arg-type]
    assert "kernels that use all SMs" not in recorder.stages["segments.py"]


@pytest.mark.parametrize("shape", [(6912, 2560), (4099, 4095), (1, 30_000_001), (511, 70_001)], ids=str)
def test_a_tensor_divided_by_its_norm_uses_all_sms(shape: tuple[int, ...]) -> None:
    total, last = proposed(scaled(2, [0, 1]), shape)
    assert blocks_of(total, shape) >= H200.sm_count
    assert isinstance(last, PointwiseParams)


def test_each_stage_is_a_kernel() -> None:
    mean, norm, last = proposed(scaled(2, [0, 1], centred=True), (8192, 8192))
    assert min(blocks_of(p, (8192, 8192)) for p in (mean, norm)) >= H200.sm_count
    assert isinstance(last, PointwiseParams)


@pytest.mark.parametrize("shape", [(512, 1024), (100_000, 256), (132, 2_000_000)], ids=str)
def test_rows_for_all_sms_stay_one_kernel(shape: tuple[int, ...]) -> None:
    (only,) = proposed(scaled(2, [1]), shape)
    assert isinstance(only, InnerPersistentParams | OuterPersistentParams | ReductionParams)


def test_nothing_is_one_kernel() -> None:
    for shape in ((0, 5), (5, 0), (0, 0)):
        assert len(proposed(scaled(2, [0, 1]), shape)) == 1


def test_a_little_is_one_kernel() -> None:
    assert len(proposed(scaled(2, [0, 1]), (64, 64))) == 1


def test_few_long_rows_are_shared() -> None:
    """However many rows there are, no kernel leaves most of the SMs idle."""
    for rows in (1, 2, 5, 17):
        params = proposed(scaled(2, [1]), (rows, 40_000_000 // rows))
        if len(params) == 1:
            assert not isinstance(params[0], ReductionParams)
        else:
            assert rows * blocks_of(params[0], (40_000_000 // rows,)) >= H200.sm_count / 2


def test_a_device_of_one_sm_has_nothing_to_gain() -> None:
    small = replace(H200, sm_count=1, memory_bytes_per_ns=H200.memory_bytes_per_ns / H200.sm_count)
    assert len(proposed(scaled(2, [0, 1]), (6912, 2560), small)) == 1


def test_explain_says_why() -> None:
    stages = stages_of(scaled(2, [0, 1]), (6912, 2560))
    assert "1 blocks of one kernel should take" in stages["segments.py"]
    assert "segment_set" in stages["fusion.ends.py"]


@settings(max_examples=12, deadline=None)
@given(st.integers(2, 40), st.integers(2, 70), st.booleans(), st.sampled_from([[0], [1], [0, 1]]))
def test_several_kernels_compute_the_same(rows: int, columns: int, centred: bool, dims: list[int]) -> None:
    x = np.random.default_rng(rows * 71 + columns).standard_normal((rows, columns)).astype("f4")
    fd = scaled(2, dims, centred=centred)
    with pytest.MonkeyPatch.context() as patch:
        # Whatever one kernel takes, and whichever scheduler would make it.
        patch.setattr(sys.modules["fuser.schedule.cost.kernel_split"], "ceil_div", lambda *_: 1e-9)
        patch.setattr(InnerPersistentScheduler, "propose", _refuses)
        patch.setattr(OuterPersistentScheduler, "propose", _refuses)
        (found,) = fd.execute([x], device="simulator")
        assert len(fd.program([x]).launches()) == 2 + centred
    wide = x.astype("f8")
    y = wide - wide.mean(tuple(dims), keepdims=True) if centred else wide
    np.testing.assert_allclose(np.asarray(found), y / np.abs(y).sum(tuple(dims), keepdims=True), rtol=1e-4, atol=1e-6)


def _refuses(*_: object) -> Refused:
    return Refused("for this test")


def standardized(fd: FusionDefinition, ops: int) -> None:
    """With more values of a column than its statistics, if that is asked for."""
    x = fd.define_tensor([-1, -1], True, D.Float)
    variance, mean = fd.ops.var_mean(x, [0], 0, True)
    y = (x - mean) / fd.ops.add(fd.ops.sqrt(variance), 1e-6)
    for k in range(ops):
        y = y * fd.ops.add(variance, float(k))
    fd.add_output(y)


@pytest.mark.parametrize(("more", "roots"), [(0, 1), (3, 0)])
def test_a_root_of_each_column_is_taken_once(more: int, roots: int) -> None:
    """Where that leaves no more to the next kernel than the statistics would."""
    with FusionDefinition() as fd:
        standardized(fd, more)
    texts = stages_of(fd, (1_000_003, 123))
    statistics, last = (texts[f"s{k}.kernel.cu"].split("fuser_kernel(")[1] for k in range(2))
    assert statistics.count("fuser_near_sqrt(") == roots
    assert (last.count("fuser_near_sqrt(") == 0) is (roots == 1)


def test_a_value_that_both_kernels_need_makes_no_third() -> None:
    """The least of a column is taken off its elements, and off its largest."""
    with FusionDefinition() as fd:
        o, x = fd.ops, fd.define_tensor([-1, -1], True, D.Float)
        least = o.min(x, [0], True)
        fd.add_output((x - least) / (o.max(x, [0], True) - least))
    assert len(proposed(fd, (300_007, 257))) == 2


@pytest.mark.parametrize("more", [0, 3])
@pytest.mark.parametrize("shape", [(70, 7), (33, 12), (5, 1)])
def test_what_columns_have_one_of_is_the_same_in_either_kernel(shape: tuple[int, int], more: int) -> None:
    x = np.random.default_rng(shape).standard_normal(shape).astype("f4") * 3 + 1
    with FusionDefinition() as fd:
        standardized(fd, more)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["fuser.schedule.cost.kernel_split"], "ceil_div", lambda *_: 1e-9)
        for scheduler in (InnerPersistentScheduler, OuterPersistentScheduler):
            patch.setattr(scheduler, "propose", _refuses)
        (found,) = fd.execute([x], device="simulator")
    wide = x.astype("f8")
    expected = (wide - wide.mean(0)) / (wide.std(0) + 1e-6)
    for k in range(more):
        expected = expected * (wide.var(0) + k)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-4, atol=1e-5)


def test_columns_of_odd_rows_are_reduced_by_more_blocks_than_are_resident() -> None:
    """Read by element, resident blocks would have a third of the bytes on their way that memory takes."""
    statistics, last = proposed(scaled(2, [0]), (1_000_003, 123))
    assert isinstance(statistics, ReductionParams)
    assert statistics.grid_reduce >= H200.sm_count / 4
    assert isinstance(last, PointwiseParams)
    assert last.vector > 1


def test_columns_of_whole_vectors_stay_one_kernel() -> None:
    assert len(proposed(scaled(2, [0]), (65_536, 1024))) == 1


def pooled(features: int) -> FusionDefinition:
    """Features of tokens, weighed by a softmax of scores that all features share."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1, features], True, D.Float)
        score = fd.define_tensor([-1, -1], True, D.Float)
        e = fd.ops.exp(score - fd.ops.max(score, [1], True))
        fd.add_output(fd.ops.sum(x * fd.ops.broadcast(e / fd.ops.sum(e, [1], True), [False, False, True]), [1]))
    return fd


def kernels_of(fd: FusionDefinition, *shapes: tuple[int, ...]) -> list[str]:
    assert fd.fusion is not None
    fusion, recorder = fd.fusion.ir_fusion, KeepingRecorder()
    bound = bind_inputs(fusion, [TensorDescriptor(D.Float, s, row_major(s), 256) for s in shapes])
    compile_fusion(fusion, bound, TextOnly(H200), recorder=recorder)  # type: ignore[arg-type]
    return [text for name, text in recorder.stages.items() if name.endswith("kernel.cu")]


def test_what_many_columns_share_is_computed_once() -> None:
    kernels = kernels_of(pooled(768), (96, 385, 768), (96, 385))
    assert len(kernels) == 2
    assert ["ex2" in text for text in kernels] == [True, False]


@pytest.mark.parametrize(("tokens", "features"), [(385, 2), (4, 768)], ids=str)
def test_what_few_share_or_is_little_stays_in_the_kernel(tokens: int, features: int) -> None:
    assert len(kernels_of(pooled(features), (96, tokens, features), (96, tokens))) == 1


@pytest.mark.parametrize("features", [3, 70])
def test_weights_from_a_kernel_of_their_own_are_the_same(features: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    monkeypatch.setattr(sys.modules["fuser.schedule.cost.kernel_split"], "OPERATION", 1e6)
    rng = np.random.default_rng(features)
    x, score = rng.standard_normal((3, 21, features), np.float32), rng.standard_normal((3, 21), np.float32)
    fd = pooled(features)
    (found,) = fd.execute([x, score])
    assert len(fd.program([x, score]).launches()) == 2
    weights = np.exp(score.astype(np.float64))
    weights /= weights.sum(1, keepdims=True)
    np.testing.assert_allclose(np.asarray(found), (x * weights[..., None]).sum(1), rtol=1e-4, atol=1e-5)


def test_results_that_need_results_are_several_kernels_as_well() -> None:
    """Mean deviations of few long rows, of which nothing of full size is stored."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, D.Float)
        fd.add_output(fd.ops.sum(fd.ops.abs(x - x.mean([1], True)), [1]))
    shape = (3, 30_000_001)
    for params in proposed(fd, shape):
        assert isinstance(params, ReductionParams)
        assert shape[0] * blocks_of(params, shape) >= H200.sm_count
