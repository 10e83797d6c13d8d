"""Rows of Doubles on a GPU: groups of the grid hold rows that begin anywhere, registers keep exponentials, results repeat."""

from __future__ import annotations

from typing import Any

import pytest

from fuser import DataType, FusionDefinition

torch = pytest.importorskip("torch")

# Rows, elements, elements between rows, elements before the first.
SHAPES = [
    (10, 250_003, 0, 0),
    (29, 250_003, 0, 1),
    (30, 128_256, 3, 0),
    (30, 128_256, 3, 1),
    (68, 16_384, 0, 0),
    (101, 5120, 0, 0),
    (23, 128_256, 0, 0),
    (5003, 64, 0, 0),
    (300, 5003, 0, 0),
]


def laid_out(rows: int, length: int, gap: int, before: int) -> Any:
    generator = torch.Generator(device="cuda").manual_seed(length + gap)
    memory = torch.randn(before + rows * (length + gap), device="cuda", dtype=torch.float64, generator=generator)
    return memory[before:].view(rows, length + gap)[:, :length]


@pytest.mark.parametrize(("rows", "length", "gap", "before"), SHAPES)
def test_softmax(rows: int, length: int, gap: int, before: int) -> None:
    x = laid_out(rows, length, gap, before)
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1], dtype=DataType.Double)
        e = fd.ops.exp(t - fd.ops.max(t, [1], keepdim=True))
        fd.add_output(e / fd.ops.sum(e, [1], keepdim=True))
    (found,) = fd.execute([x])
    torch.testing.assert_close(found, torch.softmax(x, 1), rtol=4e-15, atol=0)
    assert all(torch.equal(found, fd.execute([x])[0]) for _ in range(5))


@pytest.mark.parametrize(("rows", "length", "gap", "before"), SHAPES)
def test_layer_norm(rows: int, length: int, gap: int, before: int) -> None:
    x, w = laid_out(rows, length, gap, before), laid_out(1, length, 0, 0)[0]
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1], dtype=DataType.Double)
        weight = fd.define_tensor([-1], True, DataType.Double)
        variance, mean = fd.ops.var_mean(t, [1], 0, True)
        y = (t - mean) * fd.ops.rsqrt(variance + 1e-5)
        fd.add_output(y * fd.ops.broadcast(weight, [True, False]))
    (found,) = fd.execute([x, w])
    want = torch.nn.functional.layer_norm(x, [length], w, None, 1e-5)
    torch.testing.assert_close(found, want, rtol=1e-12, atol=1e-12)
    assert all(torch.equal(found, fd.execute([x, w])[0]) for _ in range(5))
