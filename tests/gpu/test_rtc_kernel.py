"""Raw kernels run for real: the right calls of tests/runtime/test_rtc_kernel.py, and their results."""

from typing import Any

import numpy as np
import pytest

from fuser.errors import LaunchError, LaunchTypeError
from fuser.runtime.kernels.launch_params import LaunchParams
from fuser.runtime.rtc_kernel import RtcKernel
from tests.runtime.raw_calls import ONE, PARAMS, RIGHT, SOURCE, WRONG, DeviceArray

_kernels: dict[str, RtcKernel] = {}


def compiled(entry: str) -> RtcKernel:
    if entry not in _kernels:
        _kernels[entry] = RtcKernel(SOURCE, entry).compile()
    return _kernels[entry]


# Calls without made-up addresses: with_addresses follows the ones it is given.
REAL = [
    (entry, args)
    for entry, args in RIGHT
    if entry != "with_addresses" and not any(a is None or isinstance(a, DeviceArray) for a in args)
]


@pytest.mark.parametrize(("entry", "args"), REAL)
def test_right_calls_run(entry: str, args: tuple[Any, ...]) -> None:
    assert compiled(entry).run(args, ONE) >= 0


@pytest.mark.parametrize(("entry", "args", "error", "text"), WRONG)
def test_wrong_calls_launch_nothing(entry: str, args: tuple[Any, ...], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        compiled(entry).run(args, ONE)
    assert text in str(caught.value)


def test_scale() -> None:
    x = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    y = np.zeros_like(x)
    elapsed = compiled("scale").run((y, x, 2.5, 1000), LaunchParams(8, 1, 1, 128, 1, 1))
    assert 0 < elapsed < 1000
    assert np.array_equal(y, np.float32(2.5) * x)


def test_scalars_arrive_as_declared() -> None:
    y = np.zeros(1)
    compiled("wide").run((y, -5, 2**32 - 1, 200, True, 1, 7), ONE)
    assert y[0] == -5 + 2**32 - 1 + 200 + 0.5 + 1 + 7


def test_struct_arrives_as_declared() -> None:
    y = np.zeros(1)
    compiled("with_struct").run((y, PARAMS), ONE)
    assert y[0] == 1.0 + 2.0 + 3 + 4 + 5


def test_vectors() -> None:
    y = np.zeros((64, 4), np.float32)
    compiled("with_vectors").run((y, np.float32([1, 2]).tobytes()), ONE)
    assert np.array_equal(y, np.tile(np.float32([1, 2, 1, 2]), (64, 1)))


def test_template() -> None:
    y = np.zeros(8)
    compiled("fill<double, 8>").run((y, 1.5), ONE)
    assert y.tolist() == [1.5] * 8


def test_array_that_is_const_is_not_copied_back() -> None:
    x = np.frombuffer(np.ones(64, np.float32).tobytes(), np.float32)
    y = np.zeros(64, np.float32)
    compiled("scale").run((y, x, 3.0, 64), ONE)
    assert y.tolist() == [3.0] * 64


def test_one_array_twice() -> None:
    x = np.ones(64, np.float32)
    compiled("scale").run((x, x, 3.0, 64), ONE)
    assert x.tolist() == [3.0] * 64


@pytest.mark.parametrize("threads", [128, 256, 512, 1024])
def test_growing_block(threads: int) -> None:
    y = np.zeros(1024, np.float32)
    compiled("growing").run((y,), LaunchParams(1, 1, 1, threads, 1, 1))
    assert y.sum() == threads


def test_fixed_bounds() -> None:
    y = np.zeros(1024, np.float32)
    compiled("narrow").run((y,), LaunchParams(1, 1, 1, 128, 1, 1))
    assert y.sum() == 128
    with pytest.raises(LaunchError, match="above the launch bounds of its source, 128"):
        compiled("narrow").run((y,), LaunchParams(1, 1, 1, 256, 1, 1))


def test_dynamic_shared_memory() -> None:
    source = """
        extern "C" __global__ void last(int* y, int n) {
            extern __shared__ int s[];
            for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = i;
            __syncthreads();
            if (threadIdx.x == 0) y[0] = s[n - 1];
        }
    """
    y = np.zeros(1, np.int32)
    n = 80_000 // 4
    RtcKernel(source, "last").compile().run((y, n), LaunchParams(1, 1, 1, 128, 1, 1, shared=4 * n))
    assert y[0] == n - 1


@pytest.mark.torch
def test_torch_tensors() -> None:
    import torch

    x = torch.randn(1000, device="cuda")
    y = torch.empty_like(x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    for chosen in (None, stream, stream.cuda_stream):
        y.zero_()
        torch.cuda.synchronize()
        compiled("scale").run((y, x, 2.0, 1000), LaunchParams(8, 1, 1, 128, 1, 1), stream=chosen)
        assert torch.equal(y, x * 2)
    with torch.cuda.stream(stream):
        z = x + 1
        compiled("scale").run((y, z, 2.0, 1000), LaunchParams(8, 1, 1, 128, 1, 1))
        assert torch.equal(y, z * 2)


@pytest.mark.torch
def test_wrong_torch_tensors() -> None:
    import torch

    kernel = compiled("scale")
    x = torch.randn(64, device="cuda")
    with pytest.raises(LaunchError, match="the torch array is in host memory"):
        kernel.run((x, x.cpu(), 2.0, 64), ONE)
    with pytest.raises(LaunchTypeError, match="expected an array of float32, got float16"):
        kernel.run((x, x.half(), 2.0, 64), ONE)
    with pytest.raises(LaunchTypeError, match="expected a C-contiguous array, got sizes"):
        kernel.run((x.view(8, 8).t(), x, 2.0, 64), ONE)
    kernel.run((torch.empty_like(x)[16:], x[16:], 2.0, 48), ONE)


@pytest.mark.torch
def test_bfloat16_through_the_sources_own_type() -> None:
    import torch

    y = torch.zeros(4, device="cuda", dtype=torch.bfloat16)
    c = torch.zeros(1, device="cuda", dtype=torch.int8)
    compiled("with_own_type").run((y, None, c), ONE)
    assert y.tolist() == [1.0, 0.0, 0.0, 0.0]
    assert c.item() == 1
