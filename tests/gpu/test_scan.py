"""Scans on a GPU: every op, long rows, columns, and sums no less accurate than torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.ir.ops.op_table import SCANS

torch = pytest.importorskip("torch")

DTYPES = {
    "float32": DataType.Float,
    "float16": DataType.Half,
    "bfloat16": DataType.BFloat16,
    "float64": DataType.Double,
    "int32": DataType.Int32,
    "int64": DataType.Int,
}
SHAPES = [(16384, 4096), (3, 1_000_003), (70000, 5), (513, 4097), (1, 2**22), (4096, 33), (2, 3)]
SHAPES += [(22, 128256), (88, 50257), (1, 50257), (7, 8193), (748, 5120), (900, 7168), (3000, 257)]


def scan(name: str, t: Any, dim: int, init: float | None = None) -> Any:
    """The op on a torch tensor."""
    with FusionDefinition() as fd:
        dtype = DTYPES[str(t.dtype).removeprefix("torch.")]
        fd.add_output(getattr(fd.ops, name)(fd.define_tensor([-1] * t.ndim, True, dtype), dim, init))
    (out,) = fd.execute([t])
    return out


def draw(shape: tuple[int, ...], dtype: str) -> Any:
    generator = torch.Generator(device="cuda").manual_seed(0)
    if dtype.startswith("int"):
        return torch.randint(-9, 10, shape, device="cuda", dtype=getattr(torch, dtype), generator=generator)
    return torch.randn(shape, device="cuda", generator=generator).to(getattr(torch, dtype))


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_are_no_less_accurate_than_those_of_torch(shape: tuple[int, int], dim: int) -> None:
    x = draw(shape, "float32")
    exact = torch.cumsum(x.double(), dim)
    ours = (scan("cumsum", x, dim).double() - exact).abs().max().item()
    theirs = (torch.cumsum(x, dim).double() - exact).abs().max().item()
    scale = np.finfo(np.float32).eps * exact.abs().max().item()
    assert ours <= max(2 * theirs, 4 * scale), (ours, theirs)


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_are_exact(dtype: str, dim: int) -> None:
    for shape in SHAPES:
        x = draw(shape, dtype)
        assert torch.equal(scan("cumsum", x, dim), torch.cumsum(x, dim, dtype=x.dtype)), shape
        assert torch.equal(scan("cummax", x, dim, 3), torch.cummax(x, dim).values.clamp(min=3)), shape


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("name", ["cummin", "cummax"])
def test_extremes(name: str, dim: int) -> None:
    x = draw((1000, 4097), "float32")
    x[500, 2000] = float("nan")
    expected = getattr(torch, name)(x, dim).values
    assert torch.equal(scan(name, x, dim).nan_to_num(7.0), expected.nan_to_num(7.0))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_floats_are_rounded_once(dtype: str) -> None:
    x = draw((512, 8192), dtype)
    exact = torch.cumsum(x.double(), 1)
    out = scan("cumsum", x, 1)
    step = torch.finfo(x.dtype).eps
    assert ((out.double() - exact).abs() <= 0.51 * step * exact.abs() + 1e-4 * exact.abs().max()).all()


def test_results_repeat() -> None:
    for shape in SHAPES:
        for dim in (0, 1):
            x = draw(shape, "float32")
            first = scan("cumsum", x, dim)
            assert all(torch.equal(first, scan("cumsum", x, dim)) for _ in range(3))


def test_more_than_2_to_the_31_elements(much_memory: None) -> None:
    if torch.cuda.mem_get_info()[0] < 20 * 2**30:
        pytest.skip("needs 20 GiB of free device memory")
    x = torch.ones((3, 2**30), device="cuda", dtype=torch.float16)
    out = scan("cummax", x, 1, 2.0)
    assert bool((out == 2.0).all())


def test_every_scan_is_covered() -> None:
    assert sorted(SCANS) == ["cummax", "cummin", "cumprod", "cumsum"]
    x = draw((100, 1000), "float32").abs().clamp(0.9, 1.1)
    torch.testing.assert_close(scan("cumprod", x, 1), torch.cumprod(x.double(), 1).float(), rtol=2e-4, atol=0)
