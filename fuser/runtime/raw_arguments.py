"""Arguments of raw kernels against the declared parameters. Everything is checked before a device is touched.

    argument := array                   for a pointer: torch, CuPy, NumPy, or __cuda_array_interface__; None is nullptr
              | number                  for a scalar: converted to the declared type, which must hold it
              | bytes                   for a struct by value: exactly its size (bytes, NumPy record, ctypes structure)

A raw kernel may take element types that fusions do not (8- and 16-bit integers, structs), so arrays are read here by
NumPy's dtype names and not through `arrays.describe_array`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from fuser.errors import LaunchError, LaunchTypeError, LaunchValueError
from fuser.runtime import driver
from fuser.runtime.kernels.pack import PackedValue
from fuser.runtime.kernels.raw_signature import RawKind, RawParameter

if TYPE_CHECKING:
    import numpy as np

    from fuser.runtime.arrays.device_tensor import DeviceTensor


class RawArray(NamedTuple):
    """An array as a raw kernel sees it. `dtype` is NumPy's name; `device` is a CUDA index, None for host memory.

    `library` is torch, cupy, numpy, fuser or interface; `stream` is where an interface says its values are written.
    """

    library: str
    dtype: str
    itemsize: int
    numel: int
    address: int
    device: int | None
    is_contiguous: bool
    is_writable: bool
    layout: str
    owner: Any
    stream: int | None = None

    @property
    def nbytes(self) -> int:
        return self.itemsize * self.numel


class CheckedArgument(NamedTuple):
    """A value to pack, or an array whose address takes its place (a host array: that of its copy on the device)."""

    value: PackedValue
    array: RawArray | None = None
    is_output: bool = False


def check_arguments(
    entry: str, parameters: Sequence[RawParameter], arguments: Sequence[object], device: int | None
) -> tuple[CheckedArgument, ...]:
    """Every argument against its parameter; `device` is the kernel's CUDA index, None for that of the first array.

    Raises LaunchTypeError for a wrong count, kind, dtype or layout, LaunchValueError for a value out of range, of a
    wrong size or misaligned, and LaunchError for memory of another device. All name the parameter.
    """
    if len(arguments) != len(parameters):
        declared = ", ".join(describe_parameter(p) for p in parameters) or "none"
        raise LaunchTypeError(f"{entry} takes {len(parameters)} arguments ({declared}), got {len(arguments)}")
    checked: list[CheckedArgument] = []
    for position, (parameter, argument) in enumerate(zip(parameters, arguments, strict=True)):
        where = f"argument {position} of {entry} ({describe_parameter(parameter)})"
        match parameter.kind:
            case RawKind.pointer:
                found = _check_pointer(where, parameter, argument)
                array = found.array
                if array is not None and array.device is not None and array.numel:
                    if device is not None and array.device != device:
                        raise LaunchError(
                            f"{where}: the array is on cuda:{array.device}, and the kernel runs on cuda:{device}"
                        )
                    device = array.device
                checked.append(found)
            case RawKind.scalar:
                checked.append(CheckedArgument(_check_scalar(where, parameter, argument)))
            case RawKind.struct:
                checked.append(CheckedArgument(_check_struct(where, parameter, argument)))
            case _:
                assert_never(parameter.kind)
    return tuple(checked)


def describe_parameter(parameter: RawParameter) -> str:
    """`const float* x`, or the type alone where the name is not known."""
    return f"{parameter.type_name} {parameter.name}".rstrip()


# --- pointers ---------------------------------------------------------------------------------------------------------


def _check_pointer(where: str, parameter: RawParameter, argument: object) -> CheckedArgument:
    if argument is None:
        return CheckedArgument(0)
    array = read_array(argument)
    if array is None:
        raise LaunchTypeError(f"{where}: expected an array, got {type(argument).__name__} {_short(argument)}")
    _check_dtype(where, parameter, array)
    if not array.is_contiguous:
        raise LaunchTypeError(f"{where}: expected a C-contiguous array, got {array.layout}; make a contiguous copy")
    if array.library != "numpy" and array.device is None:
        raise LaunchError(
            f"{where}: the {array.library} array is in host memory; move it to the GPU or pass it as NumPy"
        )
    if not parameter.is_const and not array.is_writable:
        raise LaunchTypeError(
            f"{where}: the array is read-only, and the kernel may write through a pointer to non-const"
        )
    if array.device is not None and array.address % parameter.pointee_alignment:
        raise LaunchValueError(
            f"{where}: the address {array.address:#x} is not a multiple of {parameter.pointee_alignment} bytes"
        )
    return CheckedArgument(array.address, array, not parameter.is_const)


def _check_dtype(where: str, parameter: RawParameter, array: RawArray) -> None:
    expected = parameter.dtype
    if expected:
        # Plain char is what C leaves open: bytes of either sign.
        accepted = ("int8", "uint8") if _bare(parameter) == "char*" else (expected,)
        if array.dtype not in accepted:
            raise LaunchTypeError(f"{where}: expected an array of {' or '.join(accepted)}, got {array.dtype}")
        if array.nbytes % (parameter.pointee or 1):
            raise LaunchValueError(
                f"{where}: {array.numel} elements of {array.dtype} are no whole number of {_bare(parameter).removesuffix('*')}"
            )
    elif parameter.type_name.endswith("T**"):
        if array.dtype not in ("int64", "uint64"):
            raise LaunchTypeError(f"{where}: expected an array of uint64 addresses, got {array.dtype}")
    elif parameter.pointee:
        whole = array.itemsize == parameter.pointee
        raw = array.dtype in ("int8", "uint8") and array.nbytes % parameter.pointee == 0
        if not whole and not raw:
            raise LaunchTypeError(
                f"{where}: expected elements of {parameter.pointee} bytes, or uint8 in a multiple of that; got "
                f"{array.numel} of {array.dtype} ({array.itemsize} bytes)"
            )


def _bare(parameter: RawParameter) -> str:
    return parameter.type_name.removeprefix("const ")


def read_array(argument: Any) -> RawArray | None:
    """An array of any accepted library, or None for what is no array. Imports no library."""
    for base in type(argument).__mro__:
        match base.__module__.partition(".")[0]:
            case "torch":
                return _read_torch(argument) if hasattr(argument, "data_ptr") else None
            case "cupy":
                return _read_cupy(argument) if hasattr(argument, "data") else None
            case "numpy":
                return _read_numpy(argument) if base.__name__ == "ndarray" else None
            case "fuser" if base.__name__ == "DeviceTensor":
                return _read_device_tensor(argument)
            case _:
                pass
    if getattr(argument, "__cuda_array_interface__", None) is not None:
        return _read_interface(argument)
    return None


def _read_torch(tensor: Any) -> RawArray:
    sizes, strides = tuple(tensor.shape), tuple(tensor.stride())
    if tensor.is_neg() or (tensor.is_complex() and tensor.is_conj()):
        raise LaunchTypeError(
            "a torch tensor with a pending negation or conjugation: call .resolve_neg().resolve_conj()"
        )
    return RawArray(
        "torch",
        str(tensor.dtype).removeprefix("torch."),
        tensor.element_size(),
        tensor.numel(),
        tensor.data_ptr(),
        tensor.get_device() if tensor.is_cuda else None,
        bool(tensor.is_contiguous()),
        True,
        f"sizes {sizes} with strides {strides}",
        tensor,
    )


def _read_cupy(array: Any) -> RawArray:
    return RawArray(
        "cupy",
        array.dtype.name,
        array.dtype.itemsize,
        array.size,
        array.data.ptr,
        array.device.id,
        bool(array.flags.c_contiguous),
        True,
        f"shape {array.shape} with strides of {array.strides} bytes",
        array,
    )


def _read_numpy(array: np.ndarray[Any, Any]) -> RawArray:
    return RawArray(
        "numpy",
        _dtype_name(array.dtype),
        array.dtype.itemsize,
        array.size,
        array.ctypes.data,
        None,
        array.flags.c_contiguous,
        array.flags.writeable,
        f"shape {array.shape} with strides of {array.strides} bytes",
        array,
    )


def _read_device_tensor(tensor: DeviceTensor) -> RawArray:
    itemsize = tensor.dtype.itemsize
    return RawArray(
        "fuser",
        tensor.dtype.numpy.name,
        itemsize,
        math.prod(tensor.shape),
        tensor.address,
        tensor.device.index if tensor.device.kind == "cuda" else None,
        _is_dense(tensor.shape, tensor.strides, 1),
        True,
        f"shape {tensor.shape} with strides {tensor.strides}",
        tensor,
        tensor.stream,
    )


def _read_interface(array: Any) -> RawArray:
    import numpy as np

    interface = array.__cuda_array_interface__
    dtype = np.dtype(interface["typestr"])
    sizes = tuple(int(n) for n in interface["shape"])
    steps = interface.get("strides")
    address, is_read_only = interface["data"]
    is_contiguous = steps is None or _is_dense(sizes, steps, dtype.itemsize)
    return RawArray(
        "interface",
        _dtype_name(dtype),
        dtype.itemsize,
        math.prod(sizes),
        int(address),
        _interface_device(array, int(address)),
        is_contiguous,
        not is_read_only,
        f"shape {sizes} with strides of {steps} bytes",
        array,
        interface.get("stream"),
    )


def _interface_device(array: Any, address: int) -> int:
    """The device an interface's memory is on: as its DLPack side says, else as the driver says."""
    if hasattr(array, "__dlpack_device__"):
        return int(array.__dlpack_device__()[1])
    if address == 0 or driver.device_count() == 0:
        return 0
    attribute = driver.bindings().CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    return int(driver.call("cuPointerGetAttribute", attribute, address))


def _is_dense(sizes: Sequence[int], steps: Sequence[int], unit: int) -> bool:
    """Whether steps are those of row-major elements of `unit`; where there is one element or none, any step is."""
    for n, step in zip(reversed(sizes), reversed(steps), strict=True):
        if n > 1 and step != unit:
            return 0 in sizes
        unit *= n
    return True


def _dtype_name(dtype: np.dtype[Any]) -> str:
    """NumPy's name, marked where the bytes are in foreign order, so that it matches nothing."""
    return dtype.name if dtype.isnative else f"{dtype.name} in foreign byte order"


# --- scalars and structs ----------------------------------------------------------------------------------------------

_INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
_LARGEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38}


def _check_scalar(where: str, parameter: RawParameter, argument: Any) -> PackedValue:
    if type(argument).__module__ == "numpy" and hasattr(argument, "item") and not hasattr(argument, "__len__"):
        argument = argument.item()
    if read_array(argument) is not None:
        raise LaunchTypeError(f"{where}: expected a number, got an array; pass its value, as .item() gives it")
    dtype = parameter.dtype
    if dtype in _INTEGER_BITS:
        if not hasattr(argument, "__index__"):
            raise LaunchTypeError(f"{where}: expected an integer, got {type(argument).__name__} {_short(argument)}")
        number = int(argument.__index__())
        bits = _INTEGER_BITS[dtype]
        low, high = (0, 2**bits - 1) if dtype[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if not low <= number <= high:
            raise LaunchValueError(f"{where}: {number} is outside [{low}, {high}]")
        return number
    if dtype == "bool":
        if not isinstance(argument, (bool, int)):
            raise LaunchTypeError(f"{where}: expected a bool, got {type(argument).__name__} {_short(argument)}")
        if argument not in (0, 1):
            raise LaunchValueError(f"{where}: expected True, False, 0 or 1, got {argument}")
        return bool(argument)
    if isinstance(argument, (str, bytes, complex)) or not hasattr(argument, "__float__"):
        raise LaunchTypeError(f"{where}: expected a real number, got {type(argument).__name__} {_short(argument)}")
    try:
        real = float(argument)
    except OverflowError:
        raise LaunchValueError(f"{where}: {_short(argument)} is too large for {parameter.type_name}") from None
    largest = _LARGEST.get(dtype)
    if largest is not None and math.isfinite(real) and abs(real) > largest:
        raise LaunchValueError(f"{where}: {real!r} is too large for {parameter.type_name} (at most {largest!r})")
    return real


def _check_struct(where: str, parameter: RawParameter, argument: Any) -> PackedValue:
    dtype = getattr(argument, "dtype", None)
    if dtype is not None and dtype.kind != "V" and dtype.name != "uint8":
        raise LaunchTypeError(f"{where}: expected bytes or a record, got {type(argument).__name__} of {dtype}")
    try:
        data = memoryview(argument).tobytes()
    except TypeError:
        raise LaunchTypeError(
            f"{where}: expected {parameter.nbytes} bytes, got {type(argument).__name__} {_short(argument)}; "
            "struct.pack or a NumPy record gives them"
        ) from None
    if len(data) != parameter.nbytes:
        raise LaunchValueError(f"{where}: expected {parameter.nbytes} bytes, got {len(data)}")
    return data


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
