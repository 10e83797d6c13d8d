"""JAX arrays: description and results. The one file that touches JAX.

JAX has no current stream: work runs on a stream of ours, inputs are made ready for it by `__dlpack__(stream=ours)`,
results go out through DLPack. JAX may reuse an input's memory as soon as its array is gone, without looking at our
stream, so an execution with JAX inputs keeps them until its work is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fuser.errors import InputTypeError
from fuser.runtime.array_view import ArrayView, framework_dtype
from fuser.runtime.arrays.device_memory import DeviceFramework, HostFramework
from fuser.runtime.arrays.storage import Framework
from fuser.runtime.devices.device import Device
from fuser.runtime.layouts import row_major

if TYPE_CHECKING:
    import numpy as np


def describe_jax(array: Any) -> ArrayView:
    """View of a JAX array on one device. Raises InputTypeError for traced values, sharded arrays and other devices."""
    import jax

    if isinstance(array, jax.core.Tracer) or not isinstance(array, jax.Array):
        raise InputTypeError(f"a {type(array).__name__} has no values yet: call fusions outside jit, grad and vmap")
    dtype = framework_dtype(array.dtype)
    devices = list(array.devices())
    if len(devices) != 1:
        raise InputTypeError(f"a JAX array spread over {len(devices)} devices is not supported: gather it to one first")
    sizes = tuple(array.shape)
    platform = devices[0].platform
    if platform == "cpu":
        # Values come out through NumPy, which may copy: no address is promised.
        return ArrayView("jax", dtype, sizes, row_major(sizes), 0, ("cpu", 0), array, array)
    if platform not in ("gpu", "cuda"):
        raise InputTypeError(f"JAX arrays on platform {platform} are not supported")
    # Not through DLPack: JAX either waits on the host for the values or takes a stream to wait on, and describing has none.
    index = getattr(devices[0], "local_hardware_id", None)
    index = devices[0].id if index is None else index
    order = _major_to_minor(array, len(sizes))
    strides = [1] * len(sizes)
    step = 1
    for d in reversed(order):
        strides[d] = step
        step *= sizes[d] or 1
    address = int(array.unsafe_buffer_pointer())
    return ArrayView("jax", dtype, sizes, tuple(strides), address, ("cuda", int(index)), array, array)


def _major_to_minor(array: Any, rank: int) -> tuple[int, ...]:
    """Dimensions in the order of memory, slowest first; row major where this JAX does not tell of other layouts."""
    layout = getattr(getattr(array, "format", None), "layout", None)
    order = getattr(layout, "major_to_minor", None)
    return tuple(range(rank)) if order is None else tuple(order)


def ready_on(array: Any, stream: int) -> Any:
    """Make later work of `stream` wait until the array is computed; the result keeps its memory alive."""
    from fuser.runtime.arrays.dlpack import import_tensor

    return import_tensor(array, stream).owner


def _from_numpy(array: np.ndarray[Any, Any]) -> Any:
    import jax

    return jax.numpy.asarray(array)


def _from_device(tensor: Any) -> Any:
    import jax

    return jax.dlpack.from_dlpack(tensor)


_host = HostFramework("jax", _from_numpy)
_device = DeviceFramework("jax", _from_device)


def jax_framework(device: Device) -> Framework:
    """JAX arrays over the device's memory; CPU arrays for results of the simulator."""
    return _device if device.kind == "cuda" else _host
