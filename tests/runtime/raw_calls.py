"""Calls of a raw kernel with parameters of every kind: right ones, and wrong ones with their errors."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import ml_dtypes
import numpy as np

from fuser.errors import LaunchError, LaunchTypeError, LaunchValueError
from fuser.runtime.kernels.launch_params import LaunchParams

SOURCE = r"""
typedef float real;
using index_t = long long;
#define WIDE double
struct params { float a; double b; int c[3]; };
struct bf16 { unsigned short bits; };
enum class mode : unsigned char { a, b };

extern "C" __global__ void scale(real* y, const real* __restrict__ x, real a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i];
}
extern "C" __global__ void wide(WIDE* y, index_t n, unsigned int u, unsigned char c, bool b, mode m, size_t s) {
    if (threadIdx.x == 0) y[0] = n + u + c + (b ? 0.5 : 0.0) + (int)m + s;
}
extern "C" __global__ void with_struct(double* y, const params p) { y[0] = p.a + p.b + p.c[0] + p.c[1] + p.c[2]; }
extern "C" __global__ void with_vectors(float4* y, float2 a) { y[threadIdx.x] = make_float4(a.x, a.y, a.x, a.y); }
extern "C" __global__ void with_own_type(bf16* y, const void* x, char* c) { y[0].bits = 0x3f80; c[0] = 1; }
extern "C" __global__ void with_addresses(float** rows) { rows[0][0] = 1; }
extern "C" __global__ void nothing() {}
template <class T, int N> __global__ void fill(T* y, T value) {
    if (threadIdx.x < N) y[threadIdx.x] = value;
}
extern "C" __global__ void __launch_bounds__(128) narrow(float* y) { y[threadIdx.x] = 1; }
extern "C" __global__ void __launch_bounds__(FUSER_MAX_THREADS) growing(float* y) { y[threadIdx.x] = 1; }
"""


class DeviceArray:
    """An array in the memory of a CUDA device, as other libraries show theirs."""

    def __init__(
        self,
        typestr: str,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
        *,
        device: int = 0,
        address: int = 0x7F0000000000,
        read_only: bool = False,
    ) -> None:
        self.device = device
        self.__cuda_array_interface__ = {
            "typestr": typestr,
            "shape": shape,
            "strides": strides,
            "data": (address, read_only),
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device

    def __repr__(self) -> str:
        return "DeviceArray"


def torch_like(**attributes: Any) -> Any:
    """An object that looks like a torch tensor in host memory; torch itself need not be installed."""
    kind = type("Tensor", (), {"__module__": "torch"})
    tensor = kind()
    defaults: dict[str, Any] = {
        "dtype": "torch.float32",
        "shape": (64,),
        "stride": lambda: (1,),
        "is_neg": lambda: False,
        "is_complex": lambda: False,
        "element_size": lambda: 4,
        "numel": lambda: 64,
        "data_ptr": lambda: 0x7F0000000000,
        "is_cuda": False,
        "get_device": lambda: 0,
        "is_contiguous": lambda: True,
    }
    for name, value in {**defaults, **attributes}.items():
        setattr(tensor, name, value)
    return tensor


def f32(n: int = 64) -> np.ndarray:
    return np.ones(n, np.float32)


class CParams(ctypes.Structure):
    _fields_ = (("a", ctypes.c_float), ("b", ctypes.c_double), ("c", ctypes.c_int * 3))


PARAMS = struct.pack("<f4xd3i4x", 1.0, 2.0, 3, 4, 5)

PARAMS_RECORD = np.dtype([("a", "f4"), ("b", "f8"), ("c", "i4", 3)], align=True)

D = DeviceArray

ONE = LaunchParams(1, 1, 1, 64, 1, 1)

# entry, arguments
RIGHT: list[tuple[str, tuple[Any, ...]]] = [
    ("scale", (f32(), f32(), 2.0, 64)),
    ("scale", (f32(), f32(), 2, np.int32(64))),
    ("scale", (f32(), f32(), np.float32(0.5), np.uint8(64))),
    ("scale", (f32(), f32(), float("inf"), 64)),
    ("scale", (f32(), f32(), float("nan"), -(2**31))),
    ("scale", (f32(), f32(), -3.4028234663852886e38, 2**31 - 1)),
    ("scale", (f32(128)[64:], f32(128)[:64], 2.0, 64)),
    ("scale", (f32().reshape(4, 1, 16), f32().reshape(8, 8), 2.0, 64)),
    ("scale", (np.empty(0, np.float32), f32(0), 2.0, 0)),
    ("scale", (None, None, 2.0, 0)),
    ("scale", (D("<f4", (64,)), D("<f4", (8, 8), (32, 4)), 2.0, 64)),
    ("scale", (D("<f4", (64,)), D("<f4", (64,), read_only=True), 2.0, 64)),
    ("scale", (D("<f4", (1, 64), (4, 4)), f32(), 2.0, 64)),
    ("wide", (np.zeros(1), 2**63 - 1, 2**32 - 1, 255, True, 1, 2**64 - 1)),
    ("wide", (np.zeros(1), -(2**63), 0, 0, False, 0, 0)),
    ("wide", (np.zeros(1), True, np.uint64(7), 7, np.bool_(True), 7, 7)),
    ("wide", (np.zeros(1), 0, 0, 0, 1, 0, 0)),
    ("with_struct", (np.zeros(1), PARAMS)),
    ("with_struct", (np.zeros(1), bytearray(PARAMS))),
    ("with_struct", (np.zeros(1), memoryview(PARAMS))),
    ("with_struct", (np.zeros(1), CParams(1.0, 2.0, (ctypes.c_int * 3)(3, 4, 5)))),
    ("with_struct", (np.zeros(1), np.array((1.0, 2.0, (3, 4, 5)), PARAMS_RECORD))),
    ("with_struct", (np.zeros(1), np.array([(1.0, 2.0, (3, 4, 5))], PARAMS_RECORD)[0])),
    ("with_vectors", (f32(256), struct.pack("<ff", 1, 2))),
    ("with_own_type", (np.zeros(1, ml_dtypes.bfloat16), f32(), np.zeros(1, np.int8))),
    ("with_own_type", (np.zeros(1, np.uint16), np.zeros(3, np.complex64), np.zeros(1, np.uint8))),
    ("with_own_type", (np.zeros(2, np.uint8), None, np.zeros(1, np.int8))),
    ("with_addresses", (np.zeros(2, np.uint64),)),
    ("nothing", ()),
    ("fill<double, 8>", (np.zeros(8), 1.5)),
    ("fill<unsigned short, 4>", (np.zeros(4, np.uint16), 65535)),
]

# entry, arguments, error, what its text says
WRONG: list[tuple[str, tuple[Any, ...], type[Exception], str]] = [
    # counts
    (
        "scale",
        (f32(), f32(), 2.0),
        LaunchTypeError,
        "scale takes 4 arguments (float* y, const float* x, float a, int n), got 3",
    ),
    ("scale", (f32(), f32(), 2.0, 64, 1), LaunchTypeError, "scale takes 4 arguments"),
    ("scale", (), LaunchTypeError, "got 0"),
    ("nothing", (1,), LaunchTypeError, "nothing takes 0 arguments (none), got 1"),
    # dtypes of pointers
    (
        "scale",
        (np.zeros(64), f32(), 2.0, 64),
        LaunchTypeError,
        "argument 0 of scale (float* y): expected an array of float32, got float64",
    ),
    (
        "scale",
        (f32(), np.zeros(64, np.int32), 2.0, 64),
        LaunchTypeError,
        "argument 1 of scale (const float* x): expected an array of float32, got int32",
    ),
    ("scale", (f32(), np.zeros(64, np.float16), 2.0, 64), LaunchTypeError, "got float16"),
    ("scale", (f32(), np.zeros(64, ">f4"), 2.0, 64), LaunchTypeError, "got float32 in foreign byte order"),
    ("scale", (f32(), np.zeros(64, ml_dtypes.bfloat16), 2.0, 64), LaunchTypeError, "got bfloat16"),
    (
        "scale",
        (D("<f8", (64,)), f32(), 2.0, 64),
        LaunchTypeError,
        "argument 0 of scale (float* y): expected an array of float32, got float64",
    ),
    (
        "wide",
        (f32(), 0, 0, 0, 0, 0, 0),
        LaunchTypeError,
        "argument 0 of wide (double* y): expected an array of float64, got float32",
    ),
    (
        "fill<double, 8>",
        (f32(), 1.0),
        LaunchTypeError,
        "argument 0 of fill<double, 8> (double* y): expected an array of float64, got float32",
    ),
    ("fill<unsigned short, 4>", (np.zeros(4, np.int16), 1), LaunchTypeError, "expected an array of uint16, got int16"),
    (
        "with_vectors",
        (np.zeros(256, np.int32), bytes(8)),
        LaunchTypeError,
        "argument 0 of with_vectors (float4* y): expected an array of float32, got int32",
    ),
    (
        "with_own_type",
        (np.zeros(1, np.float32), None, np.zeros(1, np.int8)),
        LaunchTypeError,
        "(struct of 2 bytes* y): expected elements of 2 bytes",
    ),
    (
        "with_own_type",
        (np.zeros(1, np.int16), None, np.zeros(1, np.int16)),
        LaunchTypeError,
        "(char* c): expected an array of int8 or uint8, got int16",
    ),
    (
        "with_addresses",
        (np.zeros(2, np.float32),),
        LaunchTypeError,
        "(T** rows): expected an array of uint64 addresses, got float32",
    ),
    # values for pointers, arrays for values
    (
        "scale",
        (1.0, f32(), 2.0, 64),
        LaunchTypeError,
        "argument 0 of scale (float* y): expected an array, got float 1.0",
    ),
    (
        "scale",
        (f32(), 0x7F0000000000, 2.0, 64),
        LaunchTypeError,
        "argument 1 of scale (const float* x): expected an array, got int 139",
    ),
    ("scale", (f32(), [1.0], 2.0, 64), LaunchTypeError, "expected an array, got list [1.0]"),
    (
        "scale",
        (f32(), f32(), f32(1), 64),
        LaunchTypeError,
        "argument 2 of scale (float a): expected a number, got an array",
    ),
    (
        "scale",
        (f32(), f32(), 2.0, np.array(64)),
        LaunchTypeError,
        "argument 3 of scale (int n): expected a number, got an array",
    ),
    # kinds and ranges of scalars
    (
        "scale",
        (f32(), f32(), 2.0, 64.0),
        LaunchTypeError,
        "argument 3 of scale (int n): expected an integer, got float 64.0",
    ),
    ("scale", (f32(), f32(), 2.0, "64"), LaunchTypeError, "expected an integer, got str '64'"),
    ("scale", (f32(), f32(), 2.0, None), LaunchTypeError, "expected an integer, got NoneType None"),
    (
        "scale",
        (f32(), f32(), 1j, 64),
        LaunchTypeError,
        "argument 2 of scale (float a): expected a real number, got complex 1j",
    ),
    ("scale", (f32(), f32(), "2", 64), LaunchTypeError, "expected a real number, got str '2'"),
    (
        "scale",
        (f32(), f32(), 2.0, 2**31),
        LaunchValueError,
        "argument 3 of scale (int n): 2147483648 is outside [-2147483648, 2147483647]",
    ),
    (
        "scale",
        (f32(), f32(), 1e39, 64),
        LaunchValueError,
        "argument 2 of scale (float a): 1e+39 is too large for float",
    ),
    ("scale", (f32(), f32(), 10**400, 64), LaunchValueError, "is too large for float"),
    ("wide", (np.zeros(1), 2**63, 0, 0, 0, 0, 0), LaunchValueError, "(long long n): 9223372036854775808 is outside"),
    (
        "wide",
        (np.zeros(1), 0, -1, 0, 0, 0, 0),
        LaunchValueError,
        "argument 2 of wide (unsigned int u): -1 is outside [0, 4294967295]",
    ),
    ("wide", (np.zeros(1), 0, 0, 256, 0, 0, 0), LaunchValueError, "(unsigned char c): 256 is outside [0, 255]"),
    ("wide", (np.zeros(1), 0, 0, 0, 2, 0, 0), LaunchValueError, "(bool b): expected True, False, 0 or 1, got 2"),
    ("wide", (np.zeros(1), 0, 0, 0, 1.0, 0, 0), LaunchTypeError, "(bool b): expected a bool, got float 1.0"),
    ("wide", (np.zeros(1), 0, 0, 0, 0, 300, 0), LaunchValueError, "(unsigned char m): 300 is outside"),
    ("wide", (np.zeros(1), 0, 0, 0, 0, 0, -1), LaunchValueError, "(unsigned long s): -1 is outside"),
    (
        "fill<unsigned short, 4>",
        (np.zeros(4, np.uint16), 65536),
        LaunchValueError,
        "(unsigned short value): 65536 is outside [0, 65535]",
    ),
    # structs
    (
        "with_struct",
        (np.zeros(1), PARAMS[:-1]),
        LaunchValueError,
        "argument 1 of with_struct (struct of 32 bytes p): expected 32 bytes, got 31",
    ),
    ("with_struct", (np.zeros(1), 1.0), LaunchTypeError, "expected 32 bytes, got float 1.0"),
    ("with_struct", (np.zeros(1), (1.0, 2.0)), LaunchTypeError, "expected 32 bytes, got tuple"),
    (
        "with_struct",
        (np.zeros(1), np.zeros(8, np.float32)),
        LaunchTypeError,
        "expected bytes or a record, got ndarray of float32",
    ),
    ("with_vectors", (f32(256), bytes(4)), LaunchValueError, "(float2 of 8 bytes a): expected 8 bytes, got 4"),
    # layout, access, alignment, whole elements
    (
        "scale",
        (f32(128)[::2], f32(), 2.0, 64),
        LaunchTypeError,
        "argument 0 of scale (float* y): expected a C-contiguous array, got shape (64,) with strides of (8,) bytes",
    ),
    ("scale", (f32(), f32(64).reshape(8, 8).T, 2.0, 64), LaunchTypeError, "expected a C-contiguous array"),
    ("scale", (f32(), np.broadcast_to(np.float32(1), 64), 2.0, 64), LaunchTypeError, "expected a C-contiguous array"),
    ("scale", (f32(), f32()[::-1], 2.0, 64), LaunchTypeError, "expected a C-contiguous array"),
    (
        "scale",
        (D("<f4", (8, 8), (4, 32)), f32(), 2.0, 64),
        LaunchTypeError,
        "got shape (8, 8) with strides of (4, 32) bytes",
    ),
    (
        "scale",
        (np.frombuffer(bytes(256), np.float32), f32(), 2.0, 64),
        LaunchTypeError,
        "argument 0 of scale (float* y): the array is read-only",
    ),
    ("scale", (D("<f4", (64,), read_only=True), f32(), 2.0, 64), LaunchTypeError, "the array is read-only"),
    (
        "scale",
        (D("<f4", (64,), address=0x7F0000000002), f32(), 2.0, 64),
        LaunchValueError,
        "the address 0x7f0000000002 is not a multiple of 4 bytes",
    ),
    (
        "with_vectors",
        (D("<f4", (256,), address=0x7F0000000004), bytes(8)),
        LaunchValueError,
        "is not a multiple of 16 bytes",
    ),
    ("with_vectors", (f32(255), bytes(8)), LaunchValueError, "255 elements of float32 are no whole number of float4"),
    # devices
    (
        "scale",
        (D("<f4", (64,), device=1), D("<f4", (64,), device=0), 2.0, 64),
        LaunchError,
        "argument 1 of scale (const float* x): the array is on cuda:0, and the kernel runs on cuda:1",
    ),
    (
        "scale",
        (torch_like(), f32(), 2.0, 64),
        LaunchError,
        "argument 0 of scale (float* y): the torch array is in host memory",
    ),
    (
        "scale",
        (f32(), torch_like(dtype="torch.bfloat16", is_cuda=True), 2.0, 64),
        LaunchTypeError,
        "expected an array of float32, got bfloat16",
    ),
    (
        "scale",
        (f32(), torch_like(is_cuda=True, is_contiguous=lambda: False), 2.0, 64),
        LaunchTypeError,
        "got sizes (64,) with strides (1,)",
    ),
]
