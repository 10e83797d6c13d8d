"""DLPack capsules, read and made with ctypes: how arrays of libraries this project does not know come in and ours go out.

Grammar (C layout, version 0 of the protocol, which every library accepts)
    capsule  := PyCapsule("dltensor") of managed          renamed "used_dltensor" by the one who takes it over
    managed  := tensor, manager_ctx, deleter              the taker calls deleter(managed) when done
    tensor   := data, device, ndim, dtype, shape, strides (elements, null = row major), byte_offset
    dtype    := code, bits, lanes
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import NamedTuple

from fuser.errors import ElementTypeError, InputTypeError
from fuser.ir.ops.dtypes import DataType

CPU = 1
CUDA = 2
_HOST_DEVICES = (1, 3)  # plain and page-locked host memory
_CUDA_DEVICES = (2, 13)  # device and managed memory

# (code, bits) of DLDataType.
_CODES: dict[DataType, tuple[int, int]] = {
    DataType.Double: (2, 64),
    DataType.Float: (2, 32),
    DataType.Half: (2, 16),
    DataType.BFloat16: (4, 16),
    DataType.Int: (0, 64),
    DataType.Index: (0, 64),
    DataType.Int32: (0, 32),
    DataType.UInt64: (1, 64),
    DataType.Bool: (6, 8),
    DataType.ComplexFloat: (5, 64),
    DataType.ComplexDouble: (5, 128),
    DataType.Float8_e4m3fn: (10, 8),
    DataType.Float8_e5m2: (12, 8),
}
_BY_CODE = {code: dtype for dtype, code in _CODES.items() if dtype is not DataType.Index}
_CODE_NAMES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("index", ctypes.c_int32))


class _DType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_NAME = b"dltensor"
_USED_NAME = b"used_dltensor"
_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_api = ctypes.pythonapi
_new_capsule = _api.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
# Prototypes of our own: setting restype on `_api.PyCapsule_GetPointer` itself would change it for every user of ctypes.
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", _api))
# A destructor gets a capsule whose reference count is already 0: it must stay a raw pointer there.
_raw_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_raw_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))


class ImportedTensor(NamedTuple):
    """What a capsule says. Strides in elements; `owner` keeps the memory alive; device kind "cuda" or "cpu"."""

    dtype: DataType
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    device: tuple[str, int]
    owner: object


class _Taken:
    """A tensor taken over from a capsule: calls its deleter when the last reference goes."""

    def __init__(self, managed: int) -> None:
        self._managed = managed

    # Bound early: at interpreter exit the names of this module may be gone.
    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing():
            return  # the memory goes with the process
        deleter = _Managed.from_address(self._managed).deleter
        if deleter:
            _Deleter(deleter)(self._managed)


def import_tensor(array: object, stream: int | None = None) -> ImportedTensor:
    """Take over the memory of an object with `__dlpack__`. `stream` is where it will be used, None for host memory.

    Raises InputTypeError for an element type or device that cannot be used.
    """
    capsule = array.__dlpack__() if stream is None else array.__dlpack__(stream=stream_number(stream))  # type: ignore[attr-defined]
    managed = _get_pointer(capsule, _NAME)
    _set_name(capsule, _USED_NAME)
    owner = _Taken(managed)
    t = _Managed.from_address(managed).tensor
    dtype = _BY_CODE.get((t.dtype.code, t.dtype.bits)) if t.dtype.lanes == 1 else None
    if dtype is None:
        name = f"{_CODE_NAMES.get(t.dtype.code, f'code {t.dtype.code} of ')}{t.dtype.bits}"
        raise ElementTypeError(f"tensors of dtype {name} are not supported (got {type(array).__name__})")
    sizes = tuple(t.shape[i] for i in range(t.ndim))
    strides = tuple(t.strides[i] for i in range(t.ndim)) if t.strides else dense_strides(sizes)
    if t.device.type in _CUDA_DEVICES:
        device = ("cuda", t.device.index)
    elif t.device.type in _HOST_DEVICES:
        device = ("cpu", 0)
    else:
        raise InputTypeError(
            f"arrays in memory of DLPack device type {t.device.type} are not supported: use a CUDA device"
        )
    return ImportedTensor(dtype, sizes, strides, (t.data or 0) + t.byte_offset, device, owner)


def stream_number(stream: int) -> int:
    """A raw stream handle as the protocol numbers it: the legacy default stream is 1."""
    return stream or 1


def raw_stream(number: int) -> int:
    """The raw handle of a protocol stream number (1: legacy default, 2: per-thread default, which is its own handle)."""
    return 0 if number == 1 else number


def dense_strides(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements; extents of 0 count as 1."""
    strides: list[int] = []
    step = 1
    for n in reversed(sizes):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


# Exported tensors by the address of their structure: the structure, its arrays and the memory's owner live here until
# the consumer calls the deleter.
# No lock: to forget one may give back what it was a view of, which is forgotten within.
_exported: dict[int, tuple[object, ...]] = {}


def _forget(managed: int | None) -> None:
    _exported.pop(managed or 0, None)


_deleter = _Deleter(_forget)


def _destroy(capsule: int | None) -> None:
    """Destructor of a capsule: a tensor that nobody took over is given back here."""
    if _raw_is_valid(capsule, _NAME):
        _forget(_raw_get_pointer(capsule, _NAME))


_destructor = _Deleter(_destroy)


def export_tensor(
    dtype: DataType,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    address: int,
    device: tuple[int, int],
    owner: object,
) -> object:
    """A capsule over memory that `owner` keeps alive. `device` is (DLPack device type, index)."""
    code = _CODES.get(dtype)
    if code is None:
        raise InputTypeError(f"DLPack has no element type for {dtype.name}")
    rank = len(sizes)
    shape_array = (ctypes.c_int64 * max(rank, 1))(*sizes)
    stride_array = (ctypes.c_int64 * max(rank, 1))(*strides)
    managed = _Managed()
    t = managed.tensor
    t.data, t.device, t.ndim, t.dtype = address, _Device(*device), rank, _DType(*code, 1)
    t.shape = ctypes.cast(shape_array, ctypes.POINTER(ctypes.c_int64))
    t.strides = ctypes.cast(stride_array, ctypes.POINTER(ctypes.c_int64))
    t.byte_offset = 0
    managed.deleter = ctypes.cast(_deleter, ctypes.c_void_p).value
    key = ctypes.addressof(managed)
    _exported[key] = (managed, shape_array, stride_array, owner)
    return _new_capsule(key, _NAME, ctypes.cast(_destructor, ctypes.c_void_p))
