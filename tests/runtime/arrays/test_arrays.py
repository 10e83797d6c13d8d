"""Arrays of every kind as views, in and out of a device."""

from __future__ import annotations

import importlib.util
import sys
import types
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fuser.errors import InputTypeError
from fuser.ir.facts import TensorDescriptor
from fuser.ir.ops.dtypes import DataType
from fuser.runtime.array_view import alignment_of
from fuser.runtime.arrays.arrays import describe_array
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.arrays.dlpack import export_tensor, import_tensor
from fuser.runtime.arrays.frameworks import framework_for
from fuser.runtime.arrays.host_arrays import copy_back, copy_in, host_storage
from fuser.runtime.arrays.storage import Storage
from fuser.runtime.devices.host_bytes import read_elements, strided_view
from fuser.runtime.layouts import row_major
from fuser.simulator.device import SimulatorDevice

NUMPY_DTYPES = [
    (np.float64, DataType.Double),
    (np.float32, DataType.Float),
    (np.float16, DataType.Half),
    (ml_dtypes.bfloat16, DataType.BFloat16),
    (np.int64, DataType.Int),
    (np.int32, DataType.Int32),
    (np.uint64, DataType.UInt64),
    (np.bool_, DataType.Bool),
    (np.complex64, DataType.ComplexFloat),
    (np.complex128, DataType.ComplexDouble),
    (ml_dtypes.float8_e4m3fn, DataType.Float8_e4m3fn),
]


# ---------------------------------------------------------------- NumPy


@pytest.mark.parametrize(("dtype", "expected"), NUMPY_DTYPES)
def test_numpy_dtypes(dtype: Any, expected: DataType) -> None:
    x = np.zeros((2, 3), dtype)
    view = describe_array(x)
    assert view == ("numpy", expected, (2, 3), (3, 1), x.ctypes.data, ("cpu", 0), x, x)
    assert view.is_host


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.uint32, np.dtype("U3"), np.dtype(object)])
def test_other_dtypes_are_refused_by_name(dtype: Any) -> None:
    name = np.dtype(dtype).name
    with pytest.raises(InputTypeError, match=f"tensors of dtype {name} are not supported"):
        describe_array(np.zeros(2, dtype))
    with pytest.raises(TypeError):
        describe_array(np.zeros(2, dtype))


def test_foreign_byte_order_is_refused() -> None:
    other = ">f4" if sys.byteorder == "little" else "<f4"
    with pytest.raises(InputTypeError, match="float32 in foreign byte order"):
        describe_array(np.zeros(2, other))


@pytest.mark.parametrize("x", [None, "text", [1.0], object(), np.float32(1), np.ma.masked_array([1.0])])
def test_what_is_no_array(x: Any) -> None:
    with pytest.raises(InputTypeError, match="expected an array or a number"):
        describe_array(x)


def test_strides_of_numpy_views() -> None:
    x = np.zeros((4, 6), np.float32)
    assert describe_array(x.T).strides == (1, 6)
    assert describe_array(x[::2, 1:]).strides == (12, 1)
    assert describe_array(np.broadcast_to(x[0], (9, 6))).strides == (0, 1)
    assert describe_array(np.zeros(())).sizes == ()


@pytest.mark.parametrize(
    "x",
    [
        np.arange(6, dtype=np.float32)[::-1],
        np.arange(6, dtype=np.float32).reshape(2, 3)[:, ::-1],
        np.zeros(4, np.dtype([("a", np.float32), ("b", np.int8)], align=False))["a"],
        np.zeros(9, np.uint8)[1:].view(np.float32),
    ],
    ids=["reversed", "inner reversed", "field of a record", "odd address"],
)
def test_layouts_that_no_kernel_can_read_are_seen_row_major(x: np.ndarray[Any, Any]) -> None:
    view = describe_array(x)
    assert view.strides == row_major(x.shape)
    assert view.address == 0
    assert view.descriptor().alignment == 256


def test_descriptor_tells_the_alignment_of_the_copy() -> None:
    base = np.zeros(64, np.float32)
    first = (-base.ctypes.data // 4) % 4
    for shift, expected in ((0, 256), (1, 4), (2, 8), (3, 4), (4, 256)):
        assert describe_array(base[first + shift :][:8]).descriptor().alignment == expected
    assert alignment_of(0x1000) == 256
    assert alignment_of(0x1010) == 16
    assert alignment_of(0) == 256


# ---------------------------------------------------------------- in and out of a device


@pytest.mark.parametrize(
    ("sizes", "strides"),
    [((3, 4), (4, 1)), ((3, 4), (8, 2)), ((3, 4), (1, 3)), ((2, 3), (0, 1)), ((), ()), ((0, 4), (4, 1)), ((5,), (0,))],
)
def test_host_arrays_go_in_and_out_unchanged(sizes: tuple[int, ...], strides: tuple[int, ...]) -> None:
    device = SimulatorDevice()
    base = np.arange(64, dtype=np.float32)
    x = np.lib.stride_tricks.as_strided(base, sizes, [4 * s for s in strides])
    view = describe_array(x)
    framework = framework_for(view, device)
    storage = host_storage(view)
    copy_in(view, storage, device, framework, 0)
    out = np.zeros(storage.nbytes, np.uint8)
    read_elements(device, view.dtype, view.sizes, view.strides, storage.address, out, 0, 0)
    np.testing.assert_array_equal(strided_view(out, view.dtype, view.sizes, view.strides), x)
    framework.release(device, storage, 0)


def test_copy_back_leaves_the_bytes_between_elements_alone() -> None:
    device = SimulatorDevice()
    base = np.arange(8, dtype=np.float32)
    view = describe_array(base[::2])
    storage = host_storage(view)
    copy_in(view, storage, device, framework_for(view, device), 0)
    device.fill(storage.address, np.float32(-1).tobytes(), 7, 0)
    copy_back(view, storage, device, 0)
    np.testing.assert_array_equal(base, [-1, 1, -1, 3, -1, 5, -1, 7])


# ---------------------------------------------------------------- our own tensors


@pytest.mark.parametrize(("dtype", "ours"), NUMPY_DTYPES)
def test_device_tensor_round_trip(dtype: Any, ours: DataType) -> None:
    device = SimulatorDevice()
    x = np.arange(6).reshape(2, 3).astype(dtype)
    tensor = DeviceTensor.from_numpy(x, device)
    assert (tensor.dtype, tensor.shape, tensor.strides, tensor.ndim) == (ours, (2, 3), (3, 1), 2)
    np.testing.assert_array_equal(tensor.numpy(), x)
    np.testing.assert_array_equal(np.asarray(tensor.view((3, 2), (1, 3))), x.T)
    np.testing.assert_array_equal(tensor.view((2,), (1,), 4).numpy(), x.reshape(-1)[4:])
    assert describe_array(tensor).device == ("simulator", 0)


def test_device_tensor_memory_lives_as_long_as_any_view() -> None:
    device = SimulatorDevice()
    tensor = DeviceTensor.from_numpy(np.arange(4.0), device)
    view = tensor.view((2,), (1,), 2)
    del tensor
    np.testing.assert_array_equal(view.numpy(), [2, 3])
    address = view.address
    del view
    with pytest.raises(Exception, match="are not device memory"):
        device.copy_to_host(np.zeros(1), address, 0)


def test_device_tensor_of_the_simulator_exports_host_copies() -> None:
    tensor = DeviceTensor.from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3), SimulatorDevice())
    assert tensor.__dlpack_device__() == (1, 0)
    np.testing.assert_array_equal(np.from_dlpack(tensor.view((3, 2), (1, 3))), [[0, 3], [1, 4], [2, 5]])
    assert not hasattr(tensor, "__cuda_array_interface__")
    with pytest.raises(BufferError):
        tensor.__dlpack__(copy=False)
    with pytest.raises(BufferError):
        tensor.__dlpack__(dl_device=(2, 0))
    with pytest.raises(ValueError, match="must be copied"):
        np.array(tensor, copy=False)


# ---------------------------------------------------------------- DLPack


class _Exporter:
    """A foreign array in host memory."""

    def __init__(self, array: np.ndarray[Any, Any], dtype: DataType) -> None:
        self._array = array
        self._dtype = dtype

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, stream: object = None, **_: object) -> object:
        itemsize = self._array.itemsize
        strides = tuple(s // itemsize for s in self._array.strides)
        return export_tensor(self._dtype, self._array.shape, strides, self._array.ctypes.data, (1, 0), self._array)


@pytest.mark.parametrize(("dtype", "ours"), NUMPY_DTYPES)
def test_capsules_are_read_as_they_were_written(dtype: Any, ours: DataType) -> None:
    x = np.arange(12).reshape(3, 4).astype(dtype)[:, ::2]
    t = import_tensor(_Exporter(x, ours))
    assert t[:5] == (ours, (3, 2), (4, 2), x.ctypes.data, ("cpu", 0))
    if ours not in (DataType.BFloat16, DataType.Float8_e4m3fn):
        np.testing.assert_array_equal(np.from_dlpack(_Exporter(x, ours)), x)
        assert import_tensor(x).strides == (4, 2)


def test_capsules_keep_their_owner_alive_and_let_it_go() -> None:
    class Owner(np.ndarray):
        pass

    def refs(x: object) -> int:
        return sys.getrefcount(x)

    x = np.zeros(3, np.float32).view(Owner)
    before = refs(x)
    taken = import_tensor(_Exporter(x, DataType.Float))
    assert refs(x) == before + 1
    del taken
    assert refs(x) == before
    unused = _Exporter(x, DataType.Float).__dlpack__()
    assert refs(x) == before + 1
    del unused
    assert refs(x) == before


def test_foreign_host_arrays_are_described() -> None:
    x = np.arange(3, dtype=np.float32)
    view = describe_array(_Exporter(x, DataType.Float))
    assert view[:6] == ("interface", DataType.Float, (3,), (1,), x.ctypes.data, ("cpu", 0))


def test_unsupported_capsules() -> None:
    with pytest.raises(InputTypeError, match="tensors of dtype uint8 are not supported"):
        import_tensor(np.zeros(3, np.uint8))


# ---------------------------------------------------------------- torch, by a stand-in with its interface


class _TorchStandIn:
    """What is read of a torch tensor."""

    def __init__(self, dtype: object, strides: tuple[int, ...] = (1,), layout: object = "strided") -> None:
        self.dtype, self.layout = dtype, layout
        self.shape = (3,)
        self.is_cuda = True
        self._strides = strides
        self.negative = False

    def is_neg(self) -> bool:
        return self.negative

    def is_conj(self) -> bool:
        return False

    def resolve_conj(self) -> _TorchStandIn:
        return _TorchStandIn(self.dtype)

    def resolve_neg(self) -> _TorchStandIn:
        return self

    def get_device(self) -> int:
        return 1

    def stride(self) -> tuple[int, ...]:
        return self._strides

    def data_ptr(self) -> int:
        return 4096


class _TorchDtype:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"torch.{self._name}"


@pytest.fixture
def torch_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    import fuser.runtime.arrays.torch_arrays as torch_arrays

    module = types.ModuleType("torch")
    module.strided = "strided"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setattr(torch_arrays, "_strided", None)
    monkeypatch.setattr(_TorchStandIn, "__module__", "torch")


@pytest.mark.usefixtures("torch_stand_in")
def test_torch_tensors_are_read_without_their_interfaces() -> None:
    for name, expected in (("float32", DataType.Float), ("bfloat16", DataType.BFloat16), ("bool", DataType.Bool)):
        tensor = _TorchStandIn(_TorchDtype(name))
        assert describe_array(tensor) == ("torch", expected, (3,), (1,), 4096, ("cuda", 1), tensor, tensor)
    with pytest.raises(InputTypeError, match="tensors of dtype int8 are not supported"):
        describe_array(_TorchStandIn(_TorchDtype("int8")))
    with pytest.raises(InputTypeError, match="layout sparse are not supported"):
        describe_array(_TorchStandIn(_TorchDtype("float32"), layout="sparse"))
    lazy = _TorchStandIn(_TorchDtype("float32"))
    lazy.negative = True
    view = describe_array(lazy)
    assert view.array is lazy
    assert view.owner is not lazy


def test_results_take_the_kind_of_the_first_tensor() -> None:
    device = SimulatorDevice()
    assert framework_for(describe_array(np.zeros(1)), device).kind == "numpy"
    assert framework_for(None, device).kind == "fuser"
    tensor = DeviceTensor.from_numpy(np.zeros(1), device)
    framework = framework_for(describe_array(tensor), device)
    storage = framework.scratch(device, 8, 0)
    assert isinstance(storage, Storage)
    device.fill(storage.address, b"\0" * 8, 1, 0)
    result = framework.deliver(device, storage, DataType.Double, (1,), (1,), 0, 0)
    assert isinstance(result, DeviceTensor)
    assert storage.allocation is None
    assert isinstance(describe_array(tensor).descriptor(), TensorDescriptor)


# ---------------------------------------------------------------- the real libraries, where installed


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
def test_jax_arrays_on_the_host() -> None:
    import jax

    x = jax.numpy.arange(6, dtype=jax.numpy.bfloat16).reshape(2, 3)
    view = describe_array(x)
    assert view[:6] == ("jax", DataType.BFloat16, (2, 3), (3, 1), 0, ("cpu", 0))
    framework = framework_for(view, SimulatorDevice())
    storage = host_storage(view)
    out = framework.deliver(SimulatorDevice(), storage, view.dtype, (3, 2), (1, 3), 0, 0)
    assert isinstance(out, jax.Array)
    np.testing.assert_array_equal(np.asarray(out), np.asarray(x).T)


@pytest.mark.torch
def test_torch_tensors_on_the_host() -> None:
    import torch

    x = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).t()
    view = describe_array(x)
    assert view[:6] == ("torch", DataType.BFloat16, (3, 2), (1, 3), x.data_ptr(), ("cpu", 0))
    framework = framework_for(view, SimulatorDevice())
    out = framework.deliver(SimulatorDevice(), host_storage(view), view.dtype, (3, 2), (1, 3), 0, 0)
    assert out.equal(x)
