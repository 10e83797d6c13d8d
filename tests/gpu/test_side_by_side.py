"""Kernels that run side by side: whoever comes next on the stream finds the results of both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from tests.fusions.inner_outer import arrays_for, expected_of, layer_norm_backward

BFloat16, Float = DataType.BFloat16, DataType.Float
SHAPES = [(20, 16384), (256, 1000), (500, 257), (128, 8192), (39, 1024), (1000, 7168)]


@pytest.fixture
def torch() -> Any:
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return module


def definition(dtype: DataType) -> FusionDefinition:
    with FusionDefinition() as fd:
        layer_norm_backward(fd, dtype)
    return fd


def check(results: list[Any], expected: list[Any]) -> None:
    for result, right in zip(results, expected, strict=True):
        scale = np.maximum(np.abs(right), np.sqrt(np.mean(right**2)))
        assert np.all(np.abs(result.cpu().numpy() - right) <= 5e-5 * scale + 1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_follows_sees_both(torch: Any, shape: tuple[int, int]) -> None:
    """Sums of all results, on the same stream, right behind: of the first kernel's above all, which may be done last."""
    fd = definition(Float)
    arrays = arrays_for(layer_norm_backward, *shape, Float)
    inputs = [torch.from_numpy(a).cuda() for a in arrays]
    check(fd.execute(inputs), expected_of(layer_norm_backward, arrays))
    wanted = [float(r.double().sum()) for r in fd.execute(inputs)]
    found = []
    for _ in range(100):
        results = fd.execute(inputs)
        found.append([r.double().sum() for r in results])
        # The memory is taken again by the next run.
        for r in results:
            r.fill_(float("nan"))
    for sums in found:
        assert [float(s) for s in sums] == wanted


def test_in_a_graph(torch: Any) -> None:
    fd = definition(Float)
    arrays = arrays_for(layer_norm_backward, 256, 1000, Float)
    inputs = [torch.from_numpy(a).cuda() for a in arrays]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        fd.execute(inputs)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            results = fd.execute(inputs)
    for _ in range(3):
        for r in results:
            r.fill_(float("nan"))
        torch.cuda.synchronize()
        graph.replay()
        torch.cuda.synchronize()
        check(results, expected_of(layer_norm_backward, arrays))
