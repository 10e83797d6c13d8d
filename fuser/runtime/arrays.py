"""What callers hand in: arrays of any library seen as one record, and the device they decide.

Grammar
    array := torch.Tensor | cupy.ndarray | jax.Array | numpy.ndarray | DeviceTensor
           | any object with __cuda_array_interface__ or __dlpack__
    view  := ArrayView(kind, dtype, sizes, strides, address, device, owner, array)
    device := ("cuda", index) | ("simulator", index) | ("cpu", 0)

Libraries are recognised by the module that defines the type, so none is imported before its own arrays come in. Each
has one file: `torch_arrays`, `cupy_arrays`, `jax_arrays`, `host_arrays` (NumPy), `device_tensor` (this project's own).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeGuard

from fuser.errors import ElementTypeError, InputAssertionError, InputRuntimeError, InputTypeError
from fuser.ir.dtypes import DataType, from_numpy_name, numpy_dtype
from fuser.ir.facts import TensorDescriptor
from fuser.options import DEVICE
from fuser.runtime import driver
from fuser.runtime.device import Device, get_device

if TYPE_CHECKING:
    import numpy as np

ArrayKind = Literal["torch", "cupy", "jax", "numpy", "fuser", "interface"]
Scalar = bool | int | float | complex

MAX_ALIGNMENT = 256
# Host arrays keep the low bits of their address when they are copied to a device, so that a misaligned input stays one.
KEPT_ALIGNMENT = 16


class ArrayView(NamedTuple):
    """An array as planning and launching see it. Strides in elements.

    `address` is 0 for a host array that has to be laid out anew (negative strides); its strides are then those of the
    copy. `array` is what the caller handed in. `owner` holds its values: the array itself, but another tensor where the
    array's own storage does not (a lazily conjugated one), which then cannot be updated in place.
    """

    kind: ArrayKind
    dtype: DataType
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    device: tuple[str, int]
    owner: Any
    array: Any

    @property
    def is_host(self) -> bool:
        """True for arrays in host memory: they are copied to the device and back."""
        return self.device[0] == "cpu"

    def descriptor(self) -> TensorDescriptor:
        """What planning sees. For a host array, the alignment that its copy on the device will have."""
        return TensorDescriptor(
            self.dtype, self.sizes, self.strides, alignment_of(self.address, self.is_host), self.address
        )


def alignment_of(address: int, is_host: bool = False) -> int:
    """Largest power of two, up to 256, that divides an address; for host arrays, the one their copy will have."""
    if is_host:
        address %= KEPT_ALIGNMENT
    low = address & (MAX_ALIGNMENT - 1)
    return low & -low if low else MAX_ALIGNMENT


def element_span(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to past the last one stored, for strides that are not negative; 0 without elements."""
    span = 1
    for n, s in zip(sizes, strides, strict=True):
        if n == 0:
            return 0
        span += (n - 1) * s
    return span


def overlaps_itself(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two different indices name the same element (an expanded dimension, a sliding window).

    Exact up to a million elements; above, a layout whose dimensions interleave without nesting counts as overlapping.
    """
    if 0 in sizes:
        return False
    dims = sorted((abs(s), n) for n, s in zip(sizes, strides, strict=True) if n > 1)
    reach = 0
    for stride, n in dims:
        if stride <= reach:
            return stride == 0 or _repeats_an_offset(dims)
        reach += (n - 1) * stride
    return False


def _repeats_an_offset(dims: Sequence[tuple[int, int]]) -> bool:
    import numpy as np

    offsets = np.zeros(1, np.int64)
    for stride, n in dims:
        if offsets.size * n > 1 << 20:
            return True
        offsets = (offsets[:, None] + np.arange(n, dtype=np.int64) * stride).reshape(-1)
        if np.unique(offsets).size != offsets.size:
            return True
    return False


def share_elements(a: ArrayView, b: ArrayView) -> bool:
    """Whether two arrays have a byte of an element in common. Exact up to a million elements; above, or with negative
    strides, byte ranges that meet count as shared."""
    if a.device != b.device:
        return False
    first, second = a.descriptor().byte_range, b.descriptor().byte_range
    if first[0] == first[1] or second[0] == second[1] or first[1] <= second[0] or second[1] <= first[0]:
        return False
    bytes_of = [_element_bytes(v) for v in (a, b)]
    if bytes_of[0] is None or bytes_of[1] is None:
        return True
    import numpy as np

    return bool(np.intersect1d(bytes_of[0], bytes_of[1]).size)


def _element_bytes(view: ArrayView) -> np.ndarray[Any, Any] | None:
    """Address of every byte that holds an element, or None for too many."""
    import numpy as np

    itemsize = view.dtype.itemsize
    if math.prod(view.sizes) * itemsize > 1 << 20:
        return None
    addresses = view.address + np.arange(itemsize, dtype=np.int64)
    for n, s in zip(view.sizes, view.strides, strict=True):
        addresses = (addresses[:, None] + np.arange(n, dtype=np.int64) * (s * itemsize)).reshape(-1)
    return addresses


# ---------------------------------------------------------------- scalars


def is_scalar(value: object) -> TypeGuard[Scalar]:
    """True for Python numbers and for NumPy's number objects (`np.float32(1)`), which `python_number` converts."""
    return isinstance(value, (bool, int, float, complex)) or _is_numpy_number(value)


def _is_numpy_number(value: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic)


def python_number(value: Any) -> Scalar:
    """A Python number from a Python or NumPy number. Raises InputTypeError for what is none."""
    if isinstance(value, (bool, int, float, complex)):
        return value if type(value) in (bool, int, float, complex) else _plain(value)
    if _is_numpy_number(value):
        item = value.item()
        if isinstance(item, (bool, int, float, complex)):
            return item
        if hasattr(item, "__float__"):  # ml_dtypes numbers stay what they are in item()
            return float(item)
    raise InputTypeError(f"expected a number, got {type(value).__name__}")


def _plain(value: Scalar) -> Scalar:
    """The Python number in an instance of a subclass (np.float64, IntEnum)."""
    if isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float) else complex(value)


# ---------------------------------------------------------------- description

# Framework dtype object -> DataType. torch dtypes and NumPy dtypes (which CuPy and JAX share) are all hashable.
_dtypes: dict[object, DataType] = {}


def framework_dtype(dtype: Any) -> DataType:
    """The DataType of a framework's dtype object. Raises InputTypeError naming the dtype if there is none."""
    found = _dtypes.get(dtype)
    if found is None:
        name = str(getattr(dtype, "name", dtype)).removeprefix("torch.")
        found = from_numpy_name(name)
        if found is None:
            raise ElementTypeError(f"tensors of dtype {name} are not supported")
        if not getattr(dtype, "isnative", True):
            raise ElementTypeError(f"tensors of dtype {name} in foreign byte order are not supported")
        _dtypes[dtype] = found
    return found


Describe = Callable[[Any], ArrayView]
_describers: dict[type, Describe] = {}


def describe_array(array: Any) -> ArrayView:
    """The view of an array of any accepted library; nothing is copied and no device work is waited for.

    Raises InputTypeError for objects that are no arrays, and for element types that are not supported, by name.
    """
    describe = _describers.get(type(array))
    if describe is None:
        describe = _find_describer(array)
        _describers[type(array)] = describe
    return describe(array)


def known_kind(array_type: type) -> ArrayKind | None:
    """The library of a type whose arrays were described before; None for others, numbers among them."""
    describe = _describers.get(array_type)
    return None if describe is None else _KIND_BY_DESCRIBER.get(describe.__name__, "interface")


_KIND_BY_DESCRIBER: dict[str, ArrayKind] = {
    "describe_torch": "torch",
    "describe_cupy": "cupy",
    "describe_jax": "jax",
    "describe_numpy": "numpy",
    "describe_device_tensor": "fuser",
}


def _find_describer(array: object) -> Describe:
    for base in type(array).__mro__:
        match base.__module__.partition(".")[0]:
            case "torch":
                from fuser.runtime.torch_arrays import describe_torch

                return describe_torch
            case "cupy":
                from fuser.runtime.cupy_arrays import describe_cupy

                return describe_cupy
            case "jax" | "jaxlib":
                from fuser.runtime.jax_arrays import describe_jax

                return describe_jax
            case "numpy":
                if not _is_plain_numpy(array):
                    raise _no_array(array)
                return describe_numpy
            case "fuser":
                from fuser.runtime.device_tensor import DeviceTensor, describe_device_tensor

                if isinstance(array, DeviceTensor):
                    return describe_device_tensor
            case _:
                pass
    if hasattr(type(array), "__cuda_array_interface__") or _offers_cuda_interface(array):
        return _describe_cuda_interface
    if hasattr(type(array), "__dlpack__"):
        return _describe_dlpack
    raise _no_array(array)


def _offers_cuda_interface(array: object) -> bool:
    try:
        return hasattr(array, "__cuda_array_interface__")
    except Exception as error:  # the object's own __getattr__ may raise anything
        what = f"asked for __cuda_array_interface__ it raised {type(error).__name__}: {error}"
        raise InputTypeError(f"{_no_array(array).message}; {what}") from error


def input_sequence(inputs: Any) -> Iterable[Any]:
    """The inputs of an execution, as handed in. Raises InputTypeError for what is no list of them, a single array above all."""
    what = type(inputs).__name__
    if isinstance(inputs, (list, tuple)):
        return inputs
    if (
        hasattr(type(inputs), "__array_interface__")
        or hasattr(inputs, "__cuda_array_interface__")
        or _has_dlpack(inputs)
    ):
        raise InputTypeError(
            f"the inputs must be a list of arrays and numbers, got a single {what} of shape {list(inputs.shape)}: put it in a "
            "list, [x]"
        )
    if isinstance(inputs, (str, bytes)) or not isinstance(inputs, Iterable):
        raise InputTypeError(f"the inputs must be a list of arrays and numbers, got {what}: put it in a list, [x]")
    if isinstance(inputs, Mapping):
        raise InputTypeError(
            f"the inputs must be a list in the order of their definition, got {what}: pass its values, in that order"
        )
    if isinstance(inputs, Set):
        raise InputTypeError(
            f"the inputs must be a list in the order of their definition, got {what}, which has no order"
        )
    return inputs


def _has_dlpack(value: object) -> bool:
    return hasattr(type(value), "__dlpack__")


def cast_text(kind: ArrayKind, dtype: DataType) -> str:
    """How a user converts an array of a library: `.astype(np.float32)`."""
    name = numpy_dtype(dtype).name
    match kind:
        case "torch":
            return f".to(torch.{name})"
        case "jax":
            return f".astype(jnp.{name})"
        case "cupy":
            return f".astype(cupy.{name})"
        case _ if name == "bfloat16":
            return ".astype(ml_dtypes.bfloat16)"
        case _:
            return f".astype(np.{'bool_' if name == 'bool' else name})"


def library_of(array: object) -> ArrayKind:
    """The library whose type an object is of."""
    match type(array).__module__.partition(".")[0]:
        case "torch" | "cupy" | "jax" | "numpy" | "fuser" as library:
            return library
        case "jaxlib":
            return "jax"
        case _:
            return "interface"


def _no_array(value: object) -> InputTypeError:
    if isinstance(value, (list, tuple)):
        return InputTypeError(
            f"expected an array or a number, got {type(value).__name__}: np.array(values, np.float32) makes an array of one"
        )
    return InputTypeError(
        f"expected an array or a number, got {type(value).__name__}: torch, CuPy, JAX and NumPy arrays and any object "
        "with __cuda_array_interface__ or __dlpack__ are accepted"
    )


def _is_plain_numpy(array: object) -> bool:
    """True for ndarrays whose values are all there is (a masked array has a mask besides)."""
    import numpy as np

    return isinstance(array, np.ndarray) and not isinstance(array, np.ma.MaskedArray)


def describe_numpy(array: np.ndarray[Any, Any]) -> ArrayView:
    """View of a NumPy array. One with negative strides, or strides that are no whole elements, is seen row major."""
    dtype = _dtypes.get(array.dtype) or framework_dtype(array.dtype)
    sizes = array.shape
    itemsize = dtype.itemsize
    address = array.ctypes.data
    strides: list[int] = []
    for step, n in zip(array.strides, sizes, strict=True):
        stride, rest = divmod(step, itemsize)
        if n > 1 and (rest or stride < 0):
            return ArrayView("numpy", dtype, sizes, row_major(sizes), 0, ("cpu", 0), array, array)
        strides.append(stride if n > 1 or (not rest and stride >= 0) else 1)
    if address % itemsize:
        return ArrayView("numpy", dtype, sizes, row_major(sizes), 0, ("cpu", 0), array, array)
    return ArrayView("numpy", dtype, sizes, tuple(strides), address, ("cpu", 0), array, array)


def row_major(sizes: Sequence[int]) -> tuple[int, ...]:
    """Dense row-major strides in elements; extents of 0 count as 1."""
    strides: list[int] = []
    step = 1
    for n in reversed(sizes):
        strides.append(step)
        step *= n or 1
    return tuple(reversed(strides))


def _describe_cuda_interface(array: Any) -> ArrayView:
    interface = array.__cuda_array_interface__
    typestr = interface["typestr"]
    import numpy as np

    dtype = framework_dtype(np.dtype(typestr))
    sizes = tuple(int(n) for n in interface["shape"])
    steps = interface.get("strides")
    if steps is None:
        strides = row_major(sizes)
    else:
        if any(step % dtype.itemsize for step in steps):
            what = f"strides {tuple(steps)} of a {type(array).__name__}"
            raise InputTypeError(f"{what} are not multiples of its {dtype.itemsize} bytes")
        strides = tuple(step // dtype.itemsize for step in steps)
    address = int(interface["data"][0])
    return ArrayView("interface", dtype, sizes, strides, address, ("cuda", cuda_device_of(address)), array, array)


def cuda_device_of(address: int) -> int:
    """Index of the device that an address belongs to; 0 for the null address of an empty array."""
    if address == 0:
        return 0
    attribute = driver.bindings().CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    try:
        return int(driver.call("cuPointerGetAttribute", attribute, address))
    except driver.DriverError as error:
        raise InputRuntimeError(f"{address:#x} is not an address of CUDA memory ({error.message})") from None


def _describe_dlpack(array: Any) -> ArrayView:
    from fuser.runtime.dlpack import import_tensor

    kind, _ = array.__dlpack_device__()
    # The stream is joined when the array is used; -1 asks the producer for no synchronisation.
    t = import_tensor(array, None if int(kind) in (1, 3) else -1)
    return ArrayView("interface", t.dtype, t.sizes, t.strides, t.address, t.device, t.owner, array)


# ---------------------------------------------------------------- devices

_MAX_DEVICE_INDEX = 255


def has_gpu() -> bool:
    """Whether there is a CUDA device."""
    return driver.device_count() > 0


def parse_device(requested: object) -> tuple[str, int | None]:
    """(kind, index or None) of a device argument: an int, "cuda", "cuda:1", "simulator" or a torch device.

    Raises InputAssertionError for any other device and InputRuntimeError for an index outside [0, 255].
    """
    text = getattr(requested, "type", None)
    if isinstance(requested, bool):
        raise InputAssertionError(f"{requested!r} is not a device; give an index, 'cuda:<index>' or 'simulator'")
    if isinstance(requested, int):
        kind, index = "cuda", requested
    elif isinstance(requested, str):
        kind, _, digits = requested.partition(":")
        if digits and not digits.isdecimal():
            raise InputAssertionError(f"{requested!r} is not a device; give an index, 'cuda:<index>' or 'simulator'")
        index = int(digits) if digits else None
    elif isinstance(text, str):
        kind, index = text, getattr(requested, "index", None)
    else:
        shown = repr(requested) if is_scalar(requested) else type(requested).__name__
        raise InputAssertionError(f"{shown} is not a device; give an index, 'cuda:<index>' or 'simulator'")
    if kind not in ("cuda", "simulator"):
        raise InputAssertionError(
            f"device {str(requested)!r} cannot be used; give an index, 'cuda:<index>' or 'simulator'"
        )
    if index is not None and not 0 <= index <= _MAX_DEVICE_INDEX:
        raise InputRuntimeError(f"device index {index} is outside [0, {_MAX_DEVICE_INDEX}]")
    return kind, index


def resolve_device(inputs: Iterable[object], requested: object = None) -> Device:
    """The device an execution runs on.

    `inputs` are ArrayViews (others, such as numbers, do not matter). In order: the device of the inputs that live on
    one, `requested`, FUSER_DEVICE, the current GPU, the simulator. Where all inputs are in host memory,
    FUSER_DEVICE=simulator overrides a requested GPU.
    Host arrays run on any device, but torch and JAX host tensors of rank > 0 only on the simulator.

    Raises InputRuntimeError for inputs on two devices or on another than the requested one, InputAssertionError for
    what is no usable device, NoDeviceError for a GPU that is not there.
    """
    views = [x for x in inputs if isinstance(x, ArrayView)]
    kind, index = (None, None) if requested is None else parse_device(requested)
    if kind == "simulator":
        index = index or 0
    found: tuple[str, int] | None = None
    for view in views:
        if view.device[0] == "cpu":
            continue
        if found is not None and view.device != found:
            raise InputRuntimeError(f"Expected all inputs on one device, got {_spell(found)} and {_spell(view.device)}")
        found = view.device
    if found is not None:
        if kind is not None and (kind != found[0] or (index is not None and index != found[1])):
            wanted = kind if index is None else f"{kind}:{index}"
            raise InputRuntimeError(f"Expected inputs on device {wanted}, got one on {_spell(found)}")
        # Our own tensors know their device, which need not be the registered one (a simulator made by hand).
        own = [view.owner.device for view in views if view.kind == "fuser"]
        if any(device is not own[0] for device in own):
            raise InputRuntimeError(f"Expected all inputs on one device, got several called {_spell(found)}")
        return own[0] if own else get_device(*found)
    if kind is None:
        kind, index = _default_device()
    elif kind == "cuda" and DEVICE.get() == "simulator":
        kind, index = "simulator", 0
    if kind == "cuda":
        if index is None:
            index = current_cuda_device()
        for view in views:
            refuse_host_tensor(view, f"cuda:{index}")
    return get_device(kind, index or 0)


def refuse_host_tensor(view: ArrayView, device: str) -> None:
    """Raise InputRuntimeError for a host tensor of a device framework that a GPU execution cannot take."""
    if view.device[0] == "cpu" and view.sizes and view.kind != "numpy":
        raise InputRuntimeError(
            f"Found unsupported device cpu, only scalar CPU or CUDA tensors are supported: a {view.kind} tensor of rank "
            f"{len(view.sizes)} in host memory cannot run on {device}; move it to the GPU or pass device='simulator'"
        )


def _default_device() -> tuple[str, int | None]:
    chosen = DEVICE.get()
    if chosen is not None:
        return parse_device(chosen)
    return ("cuda", None) if has_gpu() else ("simulator", 0)


def current_cuda_device() -> int:
    """Index of the framework's current device: torch's if the program imported it and it started CUDA, else 0."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return int(torch.cuda.current_device())
    return 0


def _spell(device: tuple[str, int]) -> str:
    return f"{device[0]}:{device[1]}"
