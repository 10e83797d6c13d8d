"""Values that blocks post to one another on a GPU: right, and the same bits, in many launches one behind the other."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.runtime.devices.device import get_device
from tests.fusions import chained_reductions as chained
from tests.judging.harness import run_on

LAUNCHES = 300


@pytest.mark.parametrize("dtype", [DataType.Float, DataType.Double, DataType.BFloat16])
@pytest.mark.parametrize(
    ("rows", "columns"), [(1, 3000), (2, 16_384), (42, 1000), (214, 2057), (1000, 300), (23, 128_256)]
)
def test_losses(rows: int, columns: int, dtype: DataType) -> None:
    device = get_device("cuda", 0)
    arrays = chained.arrays_for(chained.cross_entropy, rows, columns, dtype)
    fusion = chained.fusion_of(chained.cross_entropy, dtype)
    kernel = KernelCompiler(device).compile(fusion, [chained.described(a) for a in arrays])
    found = {run_on(device, kernel, fusion, arrays)[fusion.output_tensors[0].name].tobytes() for _ in range(20)}
    assert len(found) == 1
    (expected,) = chained.expected_of(chained.cross_entropy, arrays)
    value = np.frombuffer(found.pop(), fusion.output_tensors[0].dtype.numpy)
    np.testing.assert_allclose(value.astype(np.float64), expected, rtol=5e-5)


@pytest.mark.parametrize("dtype", [DataType.Float, DataType.Double])
def test_sums_one_behind_the_other(dtype: DataType) -> None:
    """Each launch finds the places empty that the one before has left."""
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.sum(fd.define_tensor([-1], True, dtype), [0]))
    x = np.random.default_rng(0).integers(-8, 9, 500_003).astype(dtype.numpy)
    for _ in range(LAUNCHES):
        (found,) = fd.execute([x], device="cuda")
        assert float(found) == float(x.sum())


@pytest.mark.parametrize(("rows", "columns"), [(7776, 1024), (3853, 1000), (2113, 513)])
def test_short_rows_that_begin_anywhere(rows: int, columns: int) -> None:
    """They are read element by element, by blocks that go over them."""
    device = get_device("cuda", 0)
    x, target = chained.arrays_for(chained.cross_entropy, rows, columns + 1, DataType.Float)
    arrays = [x[:, :-1], np.minimum(target, columns - 1)]
    fusion = chained.fusion_of(chained.cross_entropy, DataType.Float)
    kernel = KernelCompiler(device).compile(fusion, [chained.described(a) for a in arrays])
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == 0
    found = {run_on(device, kernel, fusion, arrays)[fusion.output_tensors[0].name].tobytes() for _ in range(5)}
    assert len(found) == 1
    (expected,) = chained.expected_of(chained.cross_entropy, arrays)
    np.testing.assert_allclose(np.frombuffer(found.pop(), np.float32).astype(np.float64), expected, rtol=5e-5)


def test_graphs_that_are_captured_apart_run_at_once() -> None:
    """Each capture has places of its own (docs/decisions/0013-blocks-that-wait.md)."""
    torch = pytest.importorskip("torch")
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.sum(fd.define_tensor([-1], True, DataType.Float), [0]))
    inputs = [torch.full((500_003,), float(k + 1), device="cuda") for k in range(4)]
    captured = []
    for x in inputs:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            fd.execute([x])
            stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                (result,) = fd.execute([x])
        captured.append((stream, graph, result))
    torch.cuda.synchronize()
    for _ in range(LAUNCHES):
        for stream, graph, _ in captured:
            with torch.cuda.stream(stream):
                graph.replay()
    torch.cuda.synchronize()
    assert [float(result) for _, _, result in captured] == [500_003.0 * (k + 1) for k in range(4)]
