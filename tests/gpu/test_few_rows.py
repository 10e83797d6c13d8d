"""Reductions of few rows and little data on a GPU: clusters and last blocks join the parts of a row, and results repeat."""

from __future__ import annotations

from typing import Any

import pytest

from fuser import DataType, FusionDefinition

torch = pytest.importorskip("torch")

DTYPES = {"float32": DataType.Float, "bfloat16": DataType.BFloat16, "float64": DataType.Double, "int64": DataType.Int}
SHAPES = [(1, 50257), (2, 128256), (39, 50257), (100, 16385), (200, 20000), (3, 250003), (51, 5120), (1, 2**20)]


def reduced(op: str, t: Any, dims: list[int]) -> Any:
    """The op over some dims of a torch tensor, 16-bit types in Float."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1] * t.ndim, True, DTYPES[str(t.dtype).removeprefix("torch.")])
        x = fd.ops.cast(x, DataType.Float) if t.dtype is torch.bfloat16 else x
        fd.add_output(getattr(fd.ops, op)(x, dims))
    (out,) = fd.execute([t])
    return out


@pytest.mark.parametrize("dims", [[1], [0, 1]], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_and_maxima(dtype: str, shape: tuple[int, int], dims: list[int]) -> None:
    generator = torch.Generator(device="cuda").manual_seed(1)
    x = torch.randint(-9, 10, shape, device="cuda", generator=generator).to(getattr(torch, dtype))
    for _ in range(3):
        assert torch.equal(reduced("sum", x, dims).double(), x.double().sum(dims)), "integers are exact in any order"
        assert torch.equal(reduced("max", x, dims).double(), x.double().amax(dims))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_results_repeat(shape: tuple[int, int]) -> None:
    x = torch.randn(shape, device="cuda", generator=torch.Generator(device="cuda").manual_seed(2))
    first = reduced("sum", x, [0, 1])
    assert all(torch.equal(first, reduced("sum", x, [0, 1])) for _ in range(20))
