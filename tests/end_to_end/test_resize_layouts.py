"""Slices, pads, concatenations and gathers of every dtype and memory layout on the simulator, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.simulator.device import SimulatorDevice
from tests.devices.device_layouts import place_all
from tests.frontend.building import NUMPY_DTYPES

D = DataType
Array = np.ndarray[Any, Any]
SHAPE = (6, 20)
INDEX = np.array([5, 0, 5, 3])

OPS: dict[str, tuple[Callable[[Any, Any, Any], Any], Callable[[Array], Array]]] = {
    "slice": (lambda o, x, i: o.slice(x, [1, 4], [5, 12]), lambda x: x[1:5, 4:12]),
    "odd slice": (lambda o, x, i: o.slice(x, [0, 3], [6, 10]), lambda x: x[:, 3:10]),
    "empty slice": (lambda o, x, i: o.slice(x, [2, 7], [2, 9]), lambda x: x[2:2, 7:9]),
    "pad": (lambda o, x, i: o.pad(x, [4, 4, 1, 0]), lambda x: np.pad(x, [(1, 0), (4, 4)])),
    "crop": (lambda o, x, i: o.pad(x, [-3, 2]), lambda x: np.pad(x[:, 3:], [(0, 0), (0, 2)])),
    "cat": (lambda o, x, i: o.cat([x, o.slice(x, [0, 1], [6, 4])], 1), lambda x: np.concatenate([x, x[:, 1:4]], 1)),
    "cat of rows": (lambda o, x, i: o.cat([x, x, x], 0), lambda x: np.concatenate([x, x, x], 0)),
    "computed": (
        lambda o, x, i: o.cat([o.slice(o.set(x), [0, 10], [6, 20]), o.pad(o.set(x), [0, -10])], 1),
        lambda x: np.concatenate([x[:, 10:], x[:, :10]], 1),
    ),
    "rows": (lambda o, x, i: o.index_select(x, i, 0), lambda x: x[INDEX]),
    "columns": (lambda o, x, i: o.index_select(o.set(x), i, 1), lambda x: x[:, INDEX]),
}
LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "rows": np.ascontiguousarray,
    "columns": np.asfortranarray,
    "padded": lambda x: np.pad(x, [(0, 0), (0, 5)])[:, :20],
    "every other": lambda x: np.repeat(x, 2, 1)[:, ::2],
    "off by one": lambda x: np.pad(x, [(0, 0), (1, 3)])[:, 1:21],
}


def values(dtype: DataType) -> Array:
    numbers = np.random.default_rng(0).integers(0, 2 if dtype is D.Bool else 100, SHAPE)
    return np.asarray(numbers + 1j * numbers[::-1] if dtype.is_complex else numbers).astype(dtype.numpy)


@pytest.mark.in_turns
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=lambda d: d.name)
def test_every_op(dtype: DataType, layout: str) -> None:
    with FusionDefinition() as fd:
        x, i = fd.define_tensor([-1, -1], True, dtype), fd.define_tensor([-1], True, D.Int)
        for build, _ in OPS.values():
            fd.add_output(build(fd.ops, x, i))
    placed = place_all(SimulatorDevice(), [LAYOUTS[layout](values(dtype)), INDEX])
    for (name, (_, expected)), found in zip(OPS.items(), fd.execute(placed), strict=True):
        assert isinstance(found, DeviceTensor)
        result = found.numpy()
        assert result.dtype == dtype.numpy, name
        np.testing.assert_array_equal(result, expected(values(dtype)), err_msg=name)
