"""Early launches on a GPU: the same bits as without, on streams, in graphs and captures, with memory that is used again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.chain_time import norms
from fuser import DataType, FusionDefinition, HostProgram, LaunchKernel, LaunchParams, RtcKernel
from fuser.host_ir.instructions.expressions import extent
from fuser.host_ir.instructions.instructions import Allocate, Fill, Switch
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.devices.device import get_device
from fuser.runtime.kernels.nvrtc import compile_to_cubin

REPLAYS = 10_000


@pytest.fixture
def device() -> Any:
    found = get_device("cuda", 0)
    if found.info.compute_capability < (9, 0):
        pytest.skip("no early launches below compute capability 9.0")
    return found


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def chain() -> FusionDefinition:
    """x, y and z of one buffer each, used again: writes behind reads and behind writes, and a diamond at the end."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], dtype=DataType.Float, contiguity=True)
        a = fd.ops.segment_set(x * 3.0 + 1.0)
        b = fd.ops.segment_set(fd.ops.sin(a) * 2.0)
        c = fd.ops.segment_set(b * b - x)
        left = fd.ops.segment_set(fd.ops.sqrt(fd.ops.abs(c)))
        right = fd.ops.segment_set(c * 0.5 + a)
        fd.add_output(left - right)
        fd.add_output(x + 1.0, x)
    return fd


def without(monkeypatch: pytest.MonkeyPatch, make: Any) -> Any:
    with monkeypatch.context() as patch:
        patch.setenv("FUSER_PDL", "off")
        return make()


def test_chains_are_bit_equal_over_many_replays(torch: Any, device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    n = 8192
    start = torch.randn(n, device="cuda")
    inputs = [start.clone()]
    program = chain().program(inputs)
    off = without(monkeypatch, lambda: HostProgram(program.inputs, program.outputs, program.instructions))
    with monkeypatch.context() as patch:
        patch.setenv("FUSER_PDL", "off")
        want = [t.clone() for t in off.run([start.clone()])]
        assert off.counters()["launches_early"] == 0
    program.run([start.clone()])
    assert program.counters()["launches_early"] >= 3
    bad = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(REPLAYS // 4):
        inputs[0].copy_(start)
        got = program.run(inputs)
        bad += sum((g != w).sum() for g, w in zip(got, want, strict=True))
    captured = program.capture(inputs)
    for _ in range(REPLAYS // 4 * 3):
        inputs[0].copy_(start)
        got = captured.replay()
        bad += sum((g != w).sum() for g, w in zip(got, want, strict=True))
    assert int(bad) == 0


@pytest.mark.parametrize("shape", [(1, 64), (16, 1024), (130, 4096), (4000, 512), (1024, 16384)])
def test_norms_are_those_without(
    torch: Any, device: Any, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int]
) -> None:
    rows, columns = shape
    inputs = [torch.randn(rows, columns, device="cuda").bfloat16()]
    inputs += [torch.randn(columns, device="cuda").bfloat16() for _ in range(10)]
    (want,) = without(monkeypatch, lambda: norms().execute(inputs))
    fd = norms()
    for _ in range(50):
        (got,) = fd.execute(inputs)
        assert torch.equal(got, want)
    (got,) = fd.execute(inputs, graph=True)
    assert torch.equal(got, want)
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        (within,) = fd.execute(inputs)
    for _ in range(50):
        within.zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(within, want)
    counters = fd.program(inputs).counters()
    assert counters["launches_early"] == counters["launches"] // 10 * 9


def test_other_sizes_of_a_graph(torch: Any, device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """From few blocks to more than there is room for, and back."""
    fd = norms()
    weights = [torch.randn(512, device="cuda").bfloat16() for _ in range(10)]
    for rows in (8, 16, 20000, 16, 24000, 8):
        inputs = [torch.randn(rows, 512, device="cuda").bfloat16(), *weights]
        (got,) = fd.execute(inputs, graph=True)
        (want,) = without(monkeypatch, lambda inputs=inputs: norms().execute(inputs))
        assert torch.equal(got, want)


def test_behind_a_kernel_and_a_fill(device: Any) -> None:
    """An early edge and one that is not lead to one node."""
    with FusionDefinition() as fd:
        t, u = (fd.define_tensor([-1], dtype=DataType.Float, contiguity=True) for _ in range(2))
        fd.add_output(fd.ops.segment_set(t * 2.0) + u)
    x = np.arange(5000, dtype=np.float32)
    whole = fd.program([DeviceTensor.from_numpy(a, device) for a in (x, x)])
    first, second = (i.kernel for i in whole.instructions if isinstance(i, LaunchKernel))
    n = extent("x", 0)
    made = [Allocate(s, (n,), DataType.Float) for s in ("y", "u", "z")]
    program = HostProgram(
        ("x",), ("z",), (*made, Fill("u", 7.0), LaunchKernel(first, ("x", "y")), LaunchKernel(second, ("y", "u", "z")))
    )
    given = DeviceTensor.from_numpy(x, device)
    captured = program.capture([given])
    for _ in range(100):
        for (z,) in (program.run([given]), captured.replay()):
            np.testing.assert_array_equal(np.asarray(z), 2.0 * x + 7.0)
    assert program.counters()["launches_early"] >= 100


def test_behind_a_cooperative_kernel(torch: Any, device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], dtype=DataType.Float, contiguity=True)
        var, mean = fd.ops.var_mean(x, dims=[0], correction=0, keepdim=True)
        y = fd.ops.segment_set((x - mean) * fd.ops.rsqrt(var + 1e-5))
        fd.add_output(fd.ops.relu(y) * 2.0)
    given = torch.randn(16384, 1024, device="cuda")
    program = fd.program([given])
    plans = [i.kernel.plan for i in program.instructions if isinstance(i, LaunchKernel)]
    assert [(p.cooperative, p.waits_first) for p in plans if p is not None] == [(True, False), (False, True)]
    off = HostProgram(program.inputs, program.outputs, program.instructions)
    (want,) = without(monkeypatch, lambda: off.run([given]))
    captured = program.capture([given])
    for _ in range(20):
        for (got,) in (program.run([given]), captured.replay()):
            assert torch.equal(got, want)
    assert program.counters()["launches_early"] >= 20


def test_a_graph_with_a_choice_and_early_edges(device: Any) -> None:
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1], dtype=DataType.Float, contiguity=True)
        fd.add_output(fd.ops.segment_set(fd.ops.segment_set(t * 2.0) + 3.0))
    x = np.arange(3000, dtype=np.float32)
    whole = fd.program([DeviceTensor.from_numpy(x, device)])
    first, second = (i.kernel for i in whole.instructions if isinstance(i, LaunchKernel))
    n = extent("x", 0)
    program = HostProgram(
        ("x", "k"),
        ("z", "w"),
        (
            *(Allocate(s, (n,), DataType.Float) for s in ("y", "z", "w")),
            LaunchKernel(first, ("x", "y")),
            LaunchKernel(second, ("y", "z")),
            Switch("k", ((LaunchKernel(second, ("z", "w")),), (Fill("w", 5.0),)), (Fill("w", -1.0),)),
            LaunchKernel(second, ("w", "z")),
        ),
    )
    given = DeviceTensor.from_numpy(x, device)
    for k, w in ((0, 2 * x + 6), (1, np.full_like(x, 5.0))):
        inputs = [given, DeviceTensor.from_numpy(np.array([k]), device)]
        captured = program.capture(inputs)
        for _ in range(50):
            for outputs in (program.run(inputs), captured.replay()):
                np.testing.assert_array_equal(np.asarray(outputs[0]), w + 3)
                np.testing.assert_array_equal(np.asarray(outputs[1]), w)


def test_in_a_capture_memory_of_the_device_is_between(torch: Any, device: Any) -> None:
    """What the program takes for intermediates is taken and given back by nodes of the graph."""
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1], dtype=DataType.Float, contiguity=True)
        fd.add_output(fd.ops.segment_set(fd.ops.segment_set(t + 3.0) - 4.0) + 2.0, t)
    x = np.arange(5000, dtype=np.float32)
    given = DeviceTensor.from_numpy(x, device)
    program = fd.program([given])
    stream = torch.cuda.Stream()
    raw = stream.cuda_stream
    program.run([given], raw)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        program.run([given], raw)
    for _ in range(20):
        graph.replay()
    torch.cuda.synchronize()
    np.testing.assert_array_equal(np.asarray(given), x + 21.0)


def test_a_binary_without_its_wait_does_not_start_early(device: Any, unlowered: list[str]) -> None:
    """It would read what the kernel before, which takes long, has not written yet."""
    slow = RtcKernel(
        'extern "C" __global__ void slow(float* x, float* y, int n) { long long t = clock64(); while (clock64() - t < '
        "2000000) { } int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] + 1.0f; }",
        "slow",
    ).compile()
    x = np.arange(1024, dtype=np.float32)
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1], dtype=DataType.Float, contiguity=True)
        fd.add_output(fd.ops.segment_set(fd.ops.segment_set(t * 2.0) + 3.0))
    whole = fd.program([DeviceTensor.from_numpy(x, device)])
    second = [i.kernel for i in whole.instructions if isinstance(i, LaunchKernel)][1]
    assert second.plan is not None
    assert second.plan.waits_first
    text = second.source.replace('asm volatile("griddepcontrol.wait;" ::: "memory");', "")
    made = compile_to_cubin(text, [second.entry], second.arch, (*second.options, "-DFUSER_MAX_THREADS=1024"))
    stripped = replace(second, source=text, cubin=made.cubin, content_hash="stripped")
    for kernel, says in ((second, False), (stripped, True)):
        n = extent("x", 0)
        program = HostProgram(
            ("x",),
            ("z",),
            (
                Allocate("y", (n,), DataType.Float),
                LaunchKernel(slow, ("x", "y", 1024), LaunchParams(4, 1, 1, 256, 1, 1)),
                Allocate("z", (n,), DataType.Float),
                LaunchKernel(kernel, ("y", "z")),
            ),
        )
        for _ in range(3):
            (z,) = program.run([DeviceTensor.from_numpy(x, device)])
            np.testing.assert_array_equal(np.asarray(z), x + 4.0)
        assert any("does not start early" in said for said in unlowered) is says
    unlowered.clear()
