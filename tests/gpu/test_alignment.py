"""Rows that begin anywhere on a GPU: loads from any address, in every dtype and at every misalignment."""

from __future__ import annotations

from typing import Any

import pytest

from fuser import DataType, FusionDefinition

torch = pytest.importorskip("torch")

D = DataType
TORCH = {D.BFloat16: torch.bfloat16, D.Half: torch.float16, D.Float: torch.float32, D.Double: torch.float64}


def rows_of(rows: int, columns: int, dtype: DataType, offset: int, padding: int) -> Any:
    """Whole numbers, rows `columns + padding` apart, the base `offset` elements behind an aligned address."""
    pitch = columns + padding
    generator = torch.Generator(device="cuda").manual_seed(columns)
    memory = torch.randint(-1, 2, (offset + rows * pitch,), device="cuda", generator=generator).to(TORCH[dtype])
    return memory[offset:].view(rows, pitch)[:, :columns]


@pytest.mark.parametrize("offset", range(8))
@pytest.mark.parametrize("dtype", list(TORCH))
def test_every_misalignment(dtype: DataType, offset: int) -> None:
    for rows, columns, padding in (
        (9, 4099, 0),
        (9, 4096, 0),
        (100, 257, 0),
        (7, 1001, 3),
        (2, 50257, 0),
        # In shared memory, waited for in turn, what all rows share read before stores; and of another phase than the output.
        (300, 50257, 0),
        (300, 50257, 3),
        (1, 250003, 0),
    ):
        x, w = rows_of(rows, columns, dtype, offset, padding), rows_of(1, columns, dtype, offset // 2, 0)[0]
        with FusionDefinition() as fd:
            a = fd.define_tensor(shape=[-1, -1], contiguity=[False, True], dtype=dtype)
            b = fd.define_tensor(shape=[-1], contiguity=True, dtype=dtype)
            wide = fd.ops.cast(a, D.Double if dtype is D.Double else D.Float)
            sums = fd.ops.sum(wide, [1], keepdim=True)
            centred = fd.ops.mul(fd.ops.sub(wide, sums), fd.ops.broadcast(b, [True, False]))
            fd.add_output(fd.ops.cast(centred, dtype))
            fd.add_output(fd.ops.squeeze(sums, [1]))
        got, total = fd.execute([x, w])
        exact = x.double().sum(1)
        assert torch.equal(total.double(), exact), (rows, columns)
        assert torch.equal(got, ((x.double() - exact[:, None]) * w.double()).to(got.dtype)), (rows, columns)


@pytest.mark.parametrize("offset", [0, 1, 5])
@pytest.mark.parametrize("dtype", list(TORCH))
def test_columns_and_elements(dtype: DataType, offset: int) -> None:
    for rows, columns in ((300, 4099), (4000, 257), (64, 50257)):
        x, y = rows_of(rows, columns, dtype, offset, 0), rows_of(rows, columns, dtype, 0, 0)
        with FusionDefinition() as fd:
            a, b = (fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=dtype) for _ in range(2))
            fd.add_output(fd.ops.relu(fd.ops.add(a, b)))
        (got,) = fd.execute([x, y])
        assert torch.equal(got, torch.relu(x + y)), (rows, columns)
        with FusionDefinition() as fd:
            a = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=dtype)
            fd.add_output(fd.ops.sum(fd.ops.cast(a, D.Double if dtype is D.Double else D.Float), [0]))
        (got,) = fd.execute([x])
        assert torch.equal(got.double(), x.double().sum(0)), (rows, columns)
