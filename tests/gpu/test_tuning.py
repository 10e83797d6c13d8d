"""Tuning on a GPU: real times, real inputs, and results as without it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition, HostProgram, LaunchKernel, LaunchParams, RtcKernel, Tuning
from fuser.compiler import tuning as module
from fuser.compiler.segment_trial import Trial
from fuser.compiler.tuning_record import TABLE, Fate, TuningRecord, mark_of
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.devices.device import get_device

BRIEF = Tuning(rounds=5)
OUT = (Fate.wrong, Fate.failed, Fate.slow)


@pytest.fixture(autouse=True)
def no_records() -> Iterator[None]:
    TABLE.forget()
    yield
    TABLE.forget()


@pytest.fixture
def device() -> Any:
    return get_device("cuda", 0)


def softmax(dtype: DataType = DataType.BFloat16) -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.ops.cast(fd.define_tensor([-1, -1], dtype=dtype, contiguity=True), DataType.Float)
        e = fd.ops.exp(x - fd.ops.broadcast(fd.ops.max(x, dims=[1]), [False, True]))
        y = e / fd.ops.broadcast(fd.ops.sum(e, dims=[1]), [False, True])
        fd.add_output(fd.ops.cast(y, dtype))
    return fd


def bias_gelu() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], dtype=DataType.Float, contiguity=True)
        b = fd.define_tensor([-1], dtype=DataType.Float, contiguity=True)
        z = x + fd.ops.broadcast(b, [True, False])
        fd.add_output(z * (fd.ops.erf(z * 0.70710678) + 1.0) * 0.5)
    return fd


def transpose_add() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], dtype=DataType.Float, contiguity=True)
        y = fd.define_tensor([-1, -1], dtype=DataType.Float, contiguity=True)
        fd.add_output(fd.ops.permute(x, [1, 0]) + y)
    return fd


def sum_outer() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], dtype=DataType.Float, contiguity=True)
        fd.add_output(fd.ops.sum(x, dims=[0]))
    return fd


def sum_all() -> FusionDefinition:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.sum(fd.define_tensor([-1, -1], dtype=DataType.Float, contiguity=True)))
    return fd


def cumsum() -> FusionDefinition:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.cumsum(fd.define_tensor([-1, -1], dtype=DataType.Float, contiguity=True), 1))
    return fd


def batch_norm() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], dtype=DataType.Float, contiguity=True)
        var, mean = fd.ops.var_mean(x, dims=[0], correction=0, keepdim=True)
        fd.add_output((x - mean) * fd.ops.rsqrt(var + 1e-5))
    return fd


CASES: dict[str, tuple[Callable[[], FusionDefinition], list[tuple[int, ...]]]] = {
    "bias_gelu": (bias_gelu, [(2048, 3072), (3072,)]),
    "softmax": (lambda: softmax(DataType.Float), [(4096, 2048)]),
    "transpose_add": (transpose_add, [(2048, 1536), (1536, 2048)]),
    "sum_outer": (sum_outer, [(8192, 1024)]),
    "sum_all": (sum_all, [(2048, 4096)]),
    "cumsum": (cumsum, [(512, 4096)]),
    "batch_norm": (batch_norm, [(8192, 256)]),
    "ragged": (bias_gelu, [(333, 1001), (1001,)]),
}


def arrays(shapes: list[tuple[int, ...]], seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def on_device(device: Any, given: list[Any]) -> list[Any]:
    return [DeviceTensor.from_numpy(a, device) for a in given]


def made() -> TuningRecord:
    (record,) = TABLE.made()
    return record


@pytest.mark.parametrize("name", list(CASES))
def test_every_candidate_is_right_and_the_winner_is_measured(device: Any, name: str) -> None:
    define, shapes = CASES[name]
    inputs = arrays(shapes)
    plain = [np.asarray(y) for y in define().execute(on_device(device, inputs))]
    fd = define()
    placed = on_device(device, inputs)
    tuned = [np.asarray(y) for y in fd.execute(placed, tune=BRIEF)]
    for was, got in zip(plain, tuned, strict=True):
        np.testing.assert_allclose(got, was, rtol=2e-5, atol=2e-4)
    for given, there in zip(inputs, placed, strict=True):
        np.testing.assert_array_equal(np.asarray(there), given)
    for segment in made().segments:
        assert [(c.fate, c.why, c.params) for c in segment.candidates if c.fate in OUT] == []
        assert segment.best.us is not None
        assert 0.5 < segment.best.us < 10_000
        assert segment.best.us <= (segment.candidates[0].us or 0.0)
    # Whoever comes next runs the winner.
    again = [np.asarray(y) for y in fd.execute(placed)]
    for got, later in zip(tuned, again, strict=True):
        np.testing.assert_array_equal(got, later)
    (kernel, *_) = fd.fec.kernels(placed)
    assert mark_of(kernel) in {s.best.kernel for s in made().segments}


def test_in_place_and_grid_sums_are_bit_equal(device: Any) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], dtype=DataType.Float, contiguity=True)
        total = fd.define_tensor([-1], dtype=DataType.Float, contiguity=True)
        fd.add_output(fd.ops.sum(x, dims=[0]) + total, total)
        fd.add_output(fd.ops.sum(x))
    x = np.random.default_rng(0).integers(-8, 8, (4096, 1024)).astype(np.float32)
    plain, tuned = on_device(device, [x, np.ones(1024, np.float32)]), on_device(device, [x, np.ones(1024, np.float32)])
    (want,) = fd.execute(plain)
    (got,) = fd.execute(tuned, tune=BRIEF)
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
    np.testing.assert_array_equal(np.asarray(tuned[1]), np.asarray(plain[1]))
    np.testing.assert_array_equal(np.asarray(tuned[1]), 1 + x.sum(0))


def test_wrong_and_failing_candidates_are_out(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    make = module.RealValues.trial
    calls: list[Any] = []

    def trial(self: Any, *arguments: Any) -> Trial:
        kept = make(self, *arguments)
        if "unlike the proposal" not in str(getattr(kept.params, "reasons", ())):
            return kept
        calls.append(kept.params)
        number = len(calls)

        def run() -> None:
            kept.run()
            if number % 2:
                raise RuntimeError("planted")
            (out,) = kept.outputs.values()
            device.fill(out.address, b"\0\0\0\0", 1, self.stream)

        return replace(kept, run=run)

    monkeypatch.setattr(module.RealValues, "trial", trial)
    x = on_device(device, arrays([(1024, 1024)]))
    fd = softmax(DataType.Float)
    (want,) = fd.execute(x)
    (got,) = fd.execute(x, tune=BRIEF)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=1e-7)
    (segment,) = made().segments
    assert {c.fate for c in segment.candidates if c.params in calls} == {Fate.failed, Fate.wrong}


@pytest.mark.torch
def test_torch_tensors_and_graphs_and_captures() -> None:
    torch = pytest.importorskip("torch")
    x = torch.randn(2048, 1024, device="cuda", dtype=torch.bfloat16)
    want = torch.softmax(x.float(), 1)
    fd = softmax()
    stream = torch.cuda.Stream()
    fd.execute([x])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        (within,) = fd.execute([x], tune=BRIEF)
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(within.float(), want, rtol=2e-2, atol=1e-4)
    # Nothing was measured in there.
    assert TABLE.made() == ()
    (y,) = fd.execute([x], graph=True, tune=BRIEF)
    torch.testing.assert_close(y.float(), want, rtol=2e-2, atol=1e-4)
    assert len(TABLE.made()) == 1
    with torch.cuda.stream(stream):
        (y,) = fd.execute([x])
    stream.synchronize()
    torch.testing.assert_close(y.float(), want, rtol=2e-2, atol=1e-4)


def test_host_arrays(device: Any) -> None:
    (x,) = arrays([(512, 1024)])
    fd = softmax(DataType.Float)
    (want,) = fd.execute([x])
    (got,) = fd.execute([x], tune=BRIEF)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)
    assert made().key.device == device.info


FAULT = 'extern "C" __global__ void fault(float* x, float* y) { *(volatile float*)8 = x[0]; }'
# A loop that ptxas sees no end of is one that it leaves out.
HANG = 'extern "C" __global__ void hang(float* x, float* y) { while (clock64() != 0) { } y[0] = x[0]; }'


def raw(source: str, entry: str, names: tuple[str, str]) -> HostProgram:
    return HostProgram(
        names, (), (LaunchKernel(RtcKernel(source, entry).compile(), names, LaunchParams(1, 1, 1, 32, 1, 1)),)
    )


def test_candidates_that_fault_or_hang_are_out_and_the_context_lives(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = module.RealValues.trial
    planted: dict[int, str] = {}

    def trial(self: Any, *arguments: Any) -> Trial:
        kept = make(self, *arguments)
        if "unlike the proposal" not in str(getattr(kept.params, "reasons", ())) or len(planted) >= 3:
            return kept
        source, entry = (FAULT, "fault") if len(planted) % 2 == 0 else (HANG, "hang")
        planted[len(planted)] = entry
        names = next(n for n in kept.slots if n not in kept.outputs), next(iter(kept.outputs))
        return replace(kept, program=raw(source, entry, names))

    monkeypatch.setattr(module.RealValues, "trial", trial)
    x = on_device(device, arrays([(1024, 1024)]))
    fd = softmax(DataType.Float)
    (want,) = fd.execute(x)
    (got,) = fd.execute(x, tune=Tuning(rounds=5, limit_s=3.0))
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=1e-7)
    (segment,) = made().segments
    out = [(c.fate, c.why) for c in segment.candidates if c.fate in OUT]
    told = [(c.fate.name, c.why[:80], c.params.reasons) for c in segment.candidates]
    assert [fate for fate, _ in out] == [Fate.failed, Fate.slow, Fate.failed], told
    assert "still running after 3 s" in out[1][1]
    assert any(c.fate is Fate.measured for c in segment.candidates[1:])
    # Nothing was lost here.
    (later,) = fd.execute(on_device(device, arrays([(1024, 1024)])))
    np.testing.assert_array_equal(np.asarray(later), np.asarray(got))


def test_calls_run_the_proposal_until_candidates_are_compiled(device: Any) -> None:
    asked = Tuning(rounds=5, wait=False)
    fd, x = softmax(DataType.Float), on_device(device, arrays([(777, 2048)]))
    (plain,) = softmax(DataType.Float).execute(x)
    (first,) = fd.execute(x, tune=asked)
    if not TABLE.made():
        np.testing.assert_array_equal(np.asarray(first), np.asarray(plain))
    for _ in range(600):
        (later,) = fd.execute(x, tune=asked)
        if TABLE.made():
            break
        time.sleep(0.1)
    assert len(TABLE.made()) == 1
    np.testing.assert_allclose(np.asarray(later), np.asarray(plain), rtol=1e-5, atol=1e-7)
    (again,) = fd.execute(x, tune=asked)
    np.testing.assert_array_equal(np.asarray(again), np.asarray(later))


def test_library_calls_between_segments(device: Any) -> None:
    torch = pytest.importorskip("torch")
    del device
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], dtype=DataType.BFloat16, contiguity=True)
        w = fd.define_tensor([-1, -1], dtype=DataType.BFloat16, contiguity=True)
        y = fd.ops.cast(fd.ops.matmul(x, w), DataType.Float)
        fd.add_output(fd.ops.cast(y * fd.ops.sigmoid(y), DataType.BFloat16))
    x, w = (torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for n, k in ((1024, 256), (256, 2048)))
    (got,) = fd.execute([x, w], tune=BRIEF)
    want = torch.nn.functional.silu((x @ w).float())
    torch.testing.assert_close(got.float(), want, rtol=2e-2, atol=2e-2)
    assert len(made().segments) == 1
