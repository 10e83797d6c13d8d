"""Reshapes and memory orders on a GPU: random programs bit by bit, group norm, views that share storage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.frontend.validate import host_array
from fuser.runtime.devices.cuda_device import CudaDevice
from tests.fuzzing.exact_runs import check
from tests.fuzzing.random_reshapes import generate

D = DataType


@pytest.fixture(scope="module")
def device() -> CudaDevice:
    return CudaDevice(0)


@pytest.mark.parametrize("start", range(0, 60, 10))
def test_random_reshapes(start: int, device: CudaDevice) -> None:
    for seed in range(start, start + 10):
        check(generate(seed), device)


@pytest.mark.parametrize("shape", [(4, 256, 64, 64), (3, 30, 17, 19)])
@pytest.mark.parametrize("last", [False, True], ids=["rows", "channels_last"])
def test_group_norm(shape: tuple[int, ...], last: bool) -> None:
    torch: Any = pytest.importorskip("torch")
    groups = shape[1] // (8 if shape[1] % 8 == 0 else 5)
    n, c, *rest = shape
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1] * 4, True, D.BFloat16)
        w, b = fd.define_tensor([-1], True), fd.define_tensor([-1], True)
        wide = fd.ops.reshape(fd.ops.cast(x, D.Float), [n, groups, c // groups, *rest])
        variance, mean = fd.ops.var_mean(wide, [2, 3, 4], 0, True)
        normal = fd.ops.reshape((wide - mean) * fd.ops.rsqrt(variance + 1e-5), list(shape))
        w, b = (fd.ops.broadcast(t, [True, False, True, True]) for t in (w, b))
        fd.add_output(fd.ops.cast(normal * w + b, D.BFloat16))
    kind = torch.channels_last if last else torch.contiguous_format
    a = torch.randn(shape, device="cuda").to(torch.bfloat16).to(memory_format=kind)
    weight, bias = torch.randn(c, device="cuda"), torch.randn(c, device="cuda")
    (found,) = fd.execute([a, weight, bias])
    expected = torch.nn.functional.group_norm(a.double(), groups, weight.double(), bias.double())
    assert found.shape == a.shape
    assert found.dtype is torch.bfloat16
    torch.testing.assert_close(found.double(), expected, atol=3e-2, rtol=1e-2)


def test_a_returned_reshape_shares_storage() -> None:
    torch: Any = pytest.importorskip("torch")
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.reshape(fd.define_tensor([-1, -1], True), [-1]))
    a = torch.arange(24.0, device="cuda").reshape(4, 6)
    (found,) = fd.execute([a])
    assert found.data_ptr() == a.data_ptr()
    (copied,) = fd.execute([a.t()])
    assert copied.data_ptr() != a.data_ptr()
    assert torch.equal(copied, a.t().reshape(-1))


@pytest.mark.parametrize("shape", [(2, 5, 3, 8), (4, 128, 16, 64)])
def test_stride_order(shape: tuple[int, ...]) -> None:
    torch: Any = pytest.importorskip("torch")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1] * 4, True, D.Half)
        fd.add_output(fd.ops.stride_order(fd.ops.permute(x, [0, 2, 1, 3]), [3, 2, 1, 0]))
        fd.add_output(fd.ops.stride_order(x, [0, 3, 1, 2]))
    a = torch.randn(shape, device="cuda").half()
    dense, turned = fd.execute([a])
    assert dense.is_contiguous()
    assert torch.equal(dense, a.transpose(1, 2))
    np.testing.assert_array_equal(host_array(turned), host_array(a))
    n, _, h, w = shape
    assert turned.stride() == (1, n * h * w, n, n * h)
