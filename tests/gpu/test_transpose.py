"""Turned tiles on a GPU: the fusions of tests/schedule/schedulers/test_transpose.py at sizes with many tiles and
ragged edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.executor_cache import FusionExecutorCache
from fuser.runtime.devices.device import Device, get_device
from tests.devices.device_layouts import place_all
from tests.fusions.transposes import (
    Array,
    Define,
    added,
    both_ways,
    channels_last,
    mixed,
    reversed_dims,
    rounded_plus,
    turned,
    whole,
)


@pytest.fixture(scope="module")
def device() -> Device:
    return get_device("cuda", 0)


def run(define: Define, arrays: Sequence[Array], device: Device) -> list[Any]:
    with FusionDefinition() as fd:
        define(fd)
    assert fd.fusion is not None
    return [np.asarray(r) for r in FusionExecutorCache(fd.fusion).execute(place_all(device, arrays))]


SIZES = [(1024, 2048), (2047, 1025), (4100, 1000), (999, 130), (64, 8192), (8191, 33)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [DataType.Bool, DataType.BFloat16, DataType.Half, DataType.Float, DataType.Double])
def test_turned(size: tuple[int, int], dtype: DataType, device: Device) -> None:
    x = whole(size, dtype)
    np.testing.assert_array_equal(run(turned(dtype), [x], device)[0], x.T)


@pytest.mark.parametrize("size", [(269, 5003), (5003, 269), (2001, 1031), (70, 50257)])
@pytest.mark.parametrize("dtype", [DataType.BFloat16, DataType.Half, DataType.Float])
def test_rows_that_begin_anywhere(size: tuple[int, int], dtype: DataType, device: Device) -> None:
    x, y = whole(size, dtype), whole((size[1], size[0]), dtype)
    np.testing.assert_array_equal(run(rounded_plus(dtype), [x, y], device)[0], x.T + y)


@pytest.mark.parametrize("size", SIZES)
def test_operands_of_both_layouts(size: tuple[int, int], device: Device) -> None:
    n, m = size
    x, y, row, column = whole((n, m)), whole((m, n)), whole((n,)), whole((m,))
    want = x.T * 2 + y + row + column[:, None]
    first, second = run(both_ways, [x, y, row, column], device)
    np.testing.assert_array_equal(first, want)
    np.testing.assert_array_equal(second, want.T * 3)
    np.testing.assert_array_equal(run(mixed, [x.astype(DataType.BFloat16.numpy), y], device)[0], x.T + y)
    np.testing.assert_array_equal(run(added, [x, y], device)[0], x.T + y)


@pytest.mark.parametrize("shape", [(8, 64, 56, 56), (3, 129, 17, 23), (64, 256, 7, 7)])
def test_channels_last(shape: tuple[int, ...], device: Device) -> None:
    x = whole(shape, DataType.Half)
    np.testing.assert_array_equal(run(channels_last, [x], device)[0], -x.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("shape", [(200, 30, 400), (40, 60, 501), (500, 2, 3), (333, 34, 35)])
def test_short_runs(shape: tuple[int, ...], device: Device) -> None:
    x = whole(shape)
    np.testing.assert_array_equal(run(reversed_dims, [x], device)[0], -x.transpose(2, 1, 0))
