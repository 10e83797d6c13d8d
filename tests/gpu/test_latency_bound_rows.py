"""Reductions of few rows and little data on a GPU: clusters and last blocks join the parts of a row, and results repeat."""

from __future__ import annotations

from typing import Any

import pytest

from fuser import DataType, FusionDefinition

torch = pytest.importorskip("torch")

DTYPES = {"float32": DataType.Float, "bfloat16": DataType.BFloat16, "float64": DataType.Double, "int64": DataType.Int}
SHAPES = [(1, 50257), (2, 128256), (39, 50257), (100, 16385), (200, 20000), (3, 250003), (51, 5120), (1, 2**20)]
SHAPES += [(1, 1000), (118, 257), (4, 5120), (518, 1000), (1497, 257), (234, 1023)]


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


ROWS = [
    (1, 3072, 0),
    (1, 16384, 0),
    (4, 7168, 1),
    (4, 128256, 0),
    (1, 50257, 0),
    (13, 16384, 0),
    (17, 5120, 3),
    (90, 257, 0),
]


@pytest.mark.parametrize(("rows", "length", "pad"), ROWS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_rows_that_are_needed_again(dtype: str, rows: int, length: int, pad: int) -> None:
    """Rows over the blocks of a cluster, at any address: numbers of which all sums are exact, so that results are."""
    generator = torch.Generator(device="cuda").manual_seed(3)
    x = torch.randint(-3, 4, (rows, length + pad), device="cuda", generator=generator).to(getattr(torch, dtype))
    w = torch.randint(-2, 3, (length + pad,), device="cuda", generator=generator).to(getattr(torch, dtype))
    x, w = x[:, pad:], w[pad:]
    with FusionDefinition() as fd:
        a = fd.define_tensor([-1, -1], [False, True], DTYPES[dtype])
        b = fd.define_tensor([-1], True, DTYPES[dtype])
        wide = DataType.Double if dtype == "float64" else DataType.Float
        f = fd.ops.cast(a, wide)
        y = fd.ops.sub(f, fd.ops.sum(f, [1], keepdim=True))
        fd.add_output(fd.ops.mul(y, fd.ops.cast(fd.ops.broadcast(b, [True, False]), wide)))
    want = (x.double() - x.double().sum(1, keepdim=True)) * w.double()
    for _ in range(5):
        assert torch.equal(fd.execute([x, w])[0].double(), want)
