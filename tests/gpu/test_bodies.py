"""Conditions and loops of host programs on a GPU: every way to run gives what NumPy gives, call after call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.devices.device import get_device
from tests.fuzzing.random_host_programs import generate_nested
from tests.host_ir.kernels import scale_kernel


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("chunk", range(3))
def test_random_programs_give_the_same_in_every_way(chunk: int, *, streams: bool) -> None:
    device: Any = get_device("cuda", 0)
    kernel = scale_kernel(arch=device.info.arch)
    for seed in range(chunk * 60, chunk * 60 + 60):
        made = generate_nested(seed, kernel, streams=streams)
        arrays = made.arrays(seed)
        captured = made.program.capture([DeviceTensor.from_numpy(arrays[0], device), 0, 0])
        for n, m in ((0, 0), (3, 1), (2, 3), (3, 2), (1, 1), (3, 1), (0, 0)):
            want = made.expected(arrays, n, m)
            for run in (made.program.interpret, made.program.run, captured.run):
                x = DeviceTensor.from_numpy(arrays[0], device)
                (out,) = run([x, n, m])
                for got, expected in zip((out, x), want, strict=True):
                    assert np.array_equal(np.asarray(got), expected), f"seed {seed}, n {n}, m {m}, {run}"
