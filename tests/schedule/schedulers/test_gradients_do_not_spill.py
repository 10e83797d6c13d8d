"""Gradients of layer norm, of rows that begin anywhere or are converted: what threads are given is what their kernels take."""

from __future__ import annotations

import pytest

from benchmarks.compile_case import compile_case
from benchmarks.norm_cases import layer_norm_backward
from fuser import DataType, DeviceInfo
from fuser.runtime.kernels.nvrtc import is_available

Half, BFloat16, Float, Double = DataType.Half, DataType.BFloat16, DataType.Float, DataType.Double


@pytest.mark.in_turns
@pytest.mark.skipif(not is_available(), reason="needs NVRTC")
@pytest.mark.parametrize(
    ("rows", "length", "dtype"),
    [
        (4096, 1024, Half),
        (2048, 4096, Half),
        (9, 50257, Float),
        (3, 50257, Double),
        (20, 50257, Double),
        (40, 50257, Double),
        (100_003, 257, BFloat16),
        (20_000, 333, BFloat16),
        (20_000, 333, Float),
    ],
)
def test_nothing_spills(rows: int, length: int, dtype: DataType) -> None:
    for launch in compile_case(layer_norm_backward(rows, length, dtype)).launches():
        resources = launch.kernel.resources
        assert resources is not None
        assert resources.spill_bytes == resources.stack_bytes == 0


@pytest.mark.skipif(not is_available(), reason="needs NVRTC")
@pytest.mark.parametrize(
    ("rows", "length", "name"), [(37, 128_256, "sm_120"), (37, 128_256, "sm_80"), (37, 128_256, "H200")]
)
def test_columns_over_all_processors_do_not_spill(rows: int, length: int, name: str) -> None:
    """As many rows are on their way at once as registers last, of what is proposed or of the next candidate."""
    for launch in compile_case(layer_norm_backward(rows, length, Float), DeviceInfo.preset(name)).launches():
        resources = launch.kernel.resources
        assert resources is not None
        assert resources.spill_bytes == resources.stack_bytes == 0
