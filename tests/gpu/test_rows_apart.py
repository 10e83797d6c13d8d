"""Sums of everything over rows that lie apart, on a GPU: every element counts once, however blocks share them."""

from __future__ import annotations

import pytest

from fuser import FusionDefinition
from fuser.ir.ops.dtypes import DataType

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    "shape", [(468, 12825), (702, 1024), (10, 50257), (3, 1_000_003), (20_000, 64), (300, 64)], ids=str
)
@pytest.mark.parametrize(("pad", "first"), [(64, 0), (7, 3), (1, 1)])
@pytest.mark.parametrize("dtype", [DataType.BFloat16, DataType.Float, DataType.Double], ids=lambda d: d.name)
def test_every_element_counts_once(shape: tuple[int, int], pad: int, first: int, dtype: DataType) -> None:
    kinds = {DataType.BFloat16: torch.bfloat16, DataType.Float: torch.float32, DataType.Double: torch.float64}
    wide = torch.full((shape[0], shape[1] + pad), 64.0, dtype=kinds[dtype], device="cuda")
    x = wide[:, first : first + shape[1]]
    x.copy_(torch.randint(-3, 4, shape, device="cuda"))
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1], [False, True], dtype)
        fd.add_output(fd.ops.sum(fd.ops.cast(t, DataType.Float) if dtype is DataType.BFloat16 else t, [0, 1]))
    for _ in range(2):
        (found,) = fd.execute([x])
        assert float(found) == float(x.double().sum())
