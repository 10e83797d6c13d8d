"""Which device inputs, arguments and options decide."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest

from fuser.errors import InputAssertionError, InputRuntimeError
from fuser.ir.ops.dtypes import DataType
from fuser.runtime.array_view import ArrayView
from fuser.runtime.arrays import device_choice
from fuser.runtime.arrays.arrays import describe_array
from fuser.runtime.arrays.device_choice import parse_device, resolve_device
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.devices.device import get_device
from fuser.runtime.layouts import row_major


def _view(device: tuple[str, int], kind: Any = "torch", sizes: tuple[int, ...] = (2,)) -> ArrayView:
    return ArrayView(kind, DataType.Float, sizes, row_major(sizes), 256, device, None, None)


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        (0, ("cuda", 0)),
        (255, ("cuda", 255)),
        ("cuda", ("cuda", None)),
        ("cuda:1", ("cuda", 1)),
        ("simulator", ("simulator", None)),
        (types.SimpleNamespace(type="cuda", index=2), ("cuda", 2)),
    ],
)
def test_device_arguments(requested: Any, expected: tuple[str, int | None]) -> None:
    assert parse_device(requested) == expected


@pytest.mark.parametrize(
    "requested", ["cpu", "cuda:x", "meta", 1.5, True, (0,), types.SimpleNamespace(type="cpu", index=None)]
)
def test_other_devices_are_refused(requested: Any) -> None:
    with pytest.raises(InputAssertionError, match="give an index, 'cuda:<index>' or 'simulator'"):
        resolve_device([], requested)


@pytest.mark.parametrize("requested", [256, -1, "cuda:999"])
def test_device_index_out_of_range(requested: Any) -> None:
    with pytest.raises(InputRuntimeError, match=r"is outside \[0, 255\]"):
        resolve_device([], requested)


def test_inputs_decide_the_device() -> None:
    simulated = get_device("simulator", 0)
    tensor = describe_array(DeviceTensor.empty(simulated, (2,), DataType.Float))
    host = describe_array(np.zeros(2))
    assert resolve_device([host, tensor, 3.0]) is simulated
    assert resolve_device([host], "simulator") is simulated
    with pytest.raises(InputRuntimeError, match="Expected inputs on device cuda:1, got one on simulator:0"):
        resolve_device([tensor], 1)
    with pytest.raises(InputRuntimeError, match="Expected all inputs on one device, got simulator:0 and cuda:1"):
        resolve_device([tensor, _view(("cuda", 1))])
    with pytest.raises(InputRuntimeError, match="got one on cuda:0"):
        resolve_device([_view(("cuda", 0))], "simulator")


def test_environment_forces_the_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    simulated = get_device("simulator", 0)
    assert resolve_device([describe_array(np.zeros(2))]) is simulated
    assert resolve_device([], 0) is simulated


def test_numpy_runs_on_the_simulator_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_choice.driver, "device_count", lambda: 0)
    assert resolve_device([describe_array(np.zeros(2))]).kind == "simulator"
    assert resolve_device([]).kind == "simulator"


def test_host_tensors_of_device_libraries_need_the_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_choice, "get_device", lambda kind, index: (kind, index))
    tensor, number = _view(("cpu", 0)), _view(("cpu", 0), sizes=())
    assert resolve_device([tensor], "simulator") == ("simulator", 0)
    assert resolve_device([number], 1) == ("cuda", 1)
    with pytest.raises(
        InputRuntimeError, match="Found unsupported device cpu, only scalar CPU or CUDA tensors are supported"
    ):
        resolve_device([tensor], 1)
