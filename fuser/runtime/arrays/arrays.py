"""Arrays of any library, as callers hand them in: recognised and described.

Grammar
    array := torch.Tensor | cupy.ndarray | jax.Array | numpy.ndarray | DeviceTensor
           | any object with __cuda_array_interface__ or __dlpack__

Libraries are recognised by the module that defines the type, so none is imported before its own arrays come in. Each
has one file: `torch_arrays`, `cupy_arrays`, `jax_arrays`, `host_arrays` (NumPy), `device_tensor` (this project's own).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any

from fuser.errors import InputRuntimeError, InputTypeError
from fuser.ir.ops.dtypes import DataType, numpy_dtype
from fuser.runtime import driver
from fuser.runtime.array_view import ArrayKind, ArrayView, framework_dtype
from fuser.runtime.layouts import row_major

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
                from fuser.runtime.arrays.torch_arrays import describe_torch

                return describe_torch
            case "cupy":
                from fuser.runtime.arrays.cupy_arrays import describe_cupy

                return describe_cupy
            case "jax" | "jaxlib":
                from fuser.runtime.arrays.jax_arrays import describe_jax

                return describe_jax
            case "numpy":
                if not _is_plain_numpy(array):
                    raise _no_array(array)
                from fuser.runtime.arrays.host_arrays import describe_numpy

                return describe_numpy
            case "fuser":
                from fuser.runtime.arrays.device_tensor import DeviceTensor, describe_device_tensor

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
    from fuser.runtime.arrays.dlpack import import_tensor

    kind, _ = array.__dlpack_device__()
    # The stream is joined when the array is used; -1 asks the producer for no synchronisation.
    t = import_tensor(array, None if int(kind) in (1, 3) else -1)
    return ArrayView("interface", t.dtype, t.sizes, t.strides, t.address, t.device, t.owner, array)
