"""What a run of a host program asks of the arrays it is given: their device, their memory, the work that makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fuser.errors import InputRuntimeError, InputTypeError
from fuser.runtime.array_view import ArrayView
from fuser.runtime.arrays.device_choice import refuse_host_tensor, resolve_device
from fuser.runtime.arrays.storage import Storage
from fuser.runtime.devices.device import Device
from fuser.runtime.devices.streams import stream_handle
from fuser.runtime.layouts import element_span, overlaps_itself
from fuser.runtime.scalars import Scalar, python_number


def device_of(views: Sequence[ArrayView], requested: Any) -> Device:
    """The device of a run: the one given, or what `resolve_device` finds."""
    if requested is None or not hasattr(requested, "launch"):
        return resolve_device(views, requested)
    for view in views:
        if view.kind == "fuser":
            is_here = view.owner.device is requested
        else:
            is_here = view.is_host or view.device == (requested.kind, requested.index)
        if not is_here:
            raise InputRuntimeError(
                f"Expected inputs on device {requested.kind}:{requested.index}, got one on "
                f"{view.device[0]}:{view.device[1]}" + (" of another device object" if view.kind == "fuser" else "")
            )
        if requested.kind == "cuda":
            refuse_host_tensor(view, f"cuda:{requested.index}")
    return requested


def borrow(view: ArrayView) -> Storage:
    """The caller's memory as storage."""
    if view.is_host:
        from fuser.runtime.arrays.host_arrays import host_storage

        return host_storage(view)
    span = element_span(view.sizes, view.strides) if all(s >= 0 for s in view.strides) else 0
    array = view.owner.owner if view.kind == "fuser" else view.owner
    return Storage(view.address, span * view.dtype.itemsize, array)


def host_number(view: ArrayView) -> Scalar:
    """The value of a rank-0 array in host memory."""
    from fuser.runtime.arrays.host_arrays import as_numpy

    return python_number(as_numpy(view)[()])


def check_stream(stream: Any, takes: str) -> None:
    """Raise InputTypeError for what is no stream, inputs above all, on any device; `takes` says what the call takes."""
    try:
        stream_handle(stream)
    except InputTypeError as error:
        raise InputTypeError(f"{takes}, and a stream after it: {error.message}") from None


def no_number(position: int, name: str, view: ArrayView) -> InputTypeError:
    """The error of an array where a program takes a number; one of rank 0 in host memory is a number."""
    where = "" if view.is_host else f" on {view.device[0]}:{view.device[1]}"
    return InputTypeError(
        f"Expected input {position}, {name}, to be a scalar but got {view.dtype.c_name} tensor of rank "
        f"{len(view.sizes)}{where}: pass a Python number"
    )


def make_ready(view: ArrayView, stream: int) -> int | None:
    """Order `stream` after the work that makes a JAX or foreign array; a stream that is still to be joined, or None."""
    if view.kind == "jax":
        from fuser.runtime.arrays.jax_arrays import ready_on

        ready_on(view.array, stream)
        return None
    interface = getattr(view.array, "__cuda_array_interface__", None)
    if interface is not None:
        from fuser.runtime.arrays.dlpack import raw_stream

        number = interface.get("stream")
        return None if number is None else raw_stream(int(number))
    from fuser.runtime.arrays.dlpack import import_tensor

    import_tensor(view.array, stream)
    return None


def check_updatable(view: ArrayView, position: int, name: str) -> None:
    """Raise InputRuntimeError if an array cannot be updated in place."""
    what = f"Input {position}, {name}, is updated in place, but"
    if view.kind == "jax":
        raise InputRuntimeError(f"{what} JAX arrays are immutable: return the new value as an output (no alias_input)")
    if view.owner is not view.array and view.kind == "torch":
        raise InputRuntimeError(
            f"{what} it is a lazily conjugated or negated tensor: call resolve_conj() or resolve_neg()"
        )
    if overlaps_itself(view.sizes, view.strides):
        raise InputRuntimeError(
            f"{what} its elements overlap in memory (shape {list(view.sizes)}, strides {list(view.strides)}): clone it first"
        )
    if view.kind == "numpy" and not view.array.flags.writeable:
        raise InputRuntimeError(f"{what} it is read-only: pass a copy of it")
