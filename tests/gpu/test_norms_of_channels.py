"""Norms over channels on a GPU: few channels that come last, columns in one turn, short odd parts, weights of a row's parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fuser import DataType, FusionDefinition

torch = pytest.importorskip("torch")

DTYPES = {"float32": DataType.Float, "bfloat16": DataType.BFloat16, "float16": DataType.Half}
ULP = {"float32": 2.0**-22, "bfloat16": 2.0**-8, "float16": 2.0**-11}


def normed(x: Any, w: Any, b: Any, axes: Sequence[int], dtype: str, *, last: bool) -> Any:
    """x normalised over some axes, times the weight of its channel, plus its bias."""
    with FusionDefinition() as fd:
        order = (3, 0, 2, 1) if last else None
        image = fd.define_tensor([-1] * 4, True, DTYPES[dtype], stride_order=order)
        weight, bias = (fd.define_tensor([-1], True, DataType.Float) for _ in range(2))
        f = fd.ops.cast(image, DataType.Float)
        variance, mean = fd.ops.var_mean(f, list(axes), 0, True)
        y = fd.ops.mul(fd.ops.sub(f, mean), fd.ops.rsqrt(fd.ops.add(variance, 1e-5)))
        wide = [fd.ops.broadcast(v, [True, False, True, True]) for v in (weight, bias)]
        fd.add_output(fd.ops.cast(fd.ops.add(fd.ops.mul(y, wide[0]), wide[1]), DTYPES[dtype]))
    first = fd.execute([x, w, b])[0]
    assert all(torch.equal(first, fd.execute([x, w, b])[0]) for _ in range(10)), "results repeat"
    return first


CASES = [
    ((2, 3, 224, 224), (0, 2, 3), True),
    ((1, 4, 99, 101), (0, 2, 3), True),
    ((16, 100, 17, 19), (0, 2, 3), True),
    ((1, 512, 31, 33), (0, 2, 3), True),
    ((8, 256, 28, 28), (0, 2, 3), True),
    ((64, 2048, 7, 7), (0, 2, 3), False),
    ((9, 512, 7, 7), (0, 2, 3), False),
    ((2, 3, 224, 224), (1, 2, 3), False),
    ((1, 5, 128, 96), (1, 2, 3), False),
    ((2, 3, 224, 224), (0, 2, 3), False),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "axes", "last"), CASES, ids=str)
def test_results(shape: tuple[int, ...], axes: Sequence[int], last: bool, dtype: str) -> None:
    generator = torch.Generator(device="cuda").manual_seed(4)
    x = (torch.randn(shape, device="cuda", generator=generator) + 2).to(getattr(torch, dtype))
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    w, b = (torch.randn(shape[1], device="cuda", generator=generator) for _ in range(2))
    exact = x.double()
    variance, mean = torch.var_mean(exact, tuple(axes), correction=0, keepdim=True)
    scale, shift = (v.double().view(1, -1, 1, 1) for v in (w, b))
    want = (exact - mean) * torch.rsqrt(variance + 1e-5) * scale + shift
    got = normed(x, w, b, axes, dtype, last=last).double()
    room = want.abs() + scale.abs() + shift.abs()
    assert ((got - want).abs() / room).max().item() < 2 * ULP[dtype]
