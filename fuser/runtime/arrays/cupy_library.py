"""Library calls by CuPy, for arrays of all libraries but torch: arrays over the memory of slots, without copies."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from fuser.ir.ops.dtypes import DataType
from fuser.runtime.arrays import array_library
from fuser.runtime.kernels.library_calls import LibraryCall, Operand
from fuser.runtime.layouts import element_span

if TYPE_CHECKING:
    from fuser.runtime.devices.device import Device


def run(device: Device, call: LibraryCall, addresses: Sequence[int], stream: int) -> None:
    """Enqueue a call on `stream`. `addresses`: of its inputs, then of its outputs."""
    import cupy

    from fuser.runtime.arrays.cupy_arrays import external_stream

    with ExitStack() as stack:
        stack.enter_context(cupy.cuda.Device(device.index))
        if int(cupy.cuda.get_current_stream().ptr) != stream:
            stack.enter_context(external_stream(stream))
        _compute(device.index, call, addresses)


def why_not_recorded(device: Device, call: LibraryCall) -> str:
    """Why a call is no part of a graph, and is made at each launch."""
    return "CuPy computes nothing on a stream that is captured"


def _compute(index: int, call: LibraryCall, addresses: Sequence[int]) -> None:
    import cupy

    operands = (*call.inputs, *call.outputs)
    arrays = [_array(index, o, address) for o, address in zip(operands, addresses, strict=True)]
    count = len(call.inputs)
    tensors = {o.name: _widened(o, a) for o, a in zip(call.inputs, arrays, strict=False)}
    results = array_library.compute(cupy, call.op, tensors, dict(call.numbers))
    for operand, target, result in zip(call.outputs, arrays[count:], results, strict=True):
        target[...] = _narrowed(operand, result)


def _array(index: int, operand: Operand, address: int) -> Any:
    """Memory as an array; BFloat16 as the integers of its bits, which every CuPy has."""
    import cupy

    dtype = "uint16" if operand.dtype is DataType.BFloat16 else operand.dtype.numpy
    itemsize = operand.dtype.itemsize
    span = element_span(operand.sizes, operand.strides) * itemsize
    # With the device: CuPy would ask the driver, which knows nothing of the null pointer, where there are no elements.
    memory = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(address, span, None, index), 0)
    return cupy.ndarray(operand.sizes, dtype, memory, tuple(s * itemsize for s in operand.strides))


def _widened(operand: Operand, array: Any) -> Any:
    if operand.dtype is DataType.BFloat16:
        return (array.astype("uint32") << 16).view("float32")
    return array.astype("float32") if operand.dtype is DataType.Half else array


def _narrowed(operand: Operand, result: Any) -> Any:
    import cupy

    if operand.dtype is not DataType.BFloat16:
        return result.astype(operand.dtype.numpy)
    # Of a number `ascontiguousarray` makes a vector.
    bits = cupy.ascontiguousarray(result.astype("float32")).reshape(result.shape).view("uint32")
    # To nearest, ties to even; a nan keeps its highest bits and stays one.
    rounded = (bits + (((bits >> 16) & 1) + 0x7FFF)) >> 16
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return cupy.where(is_nan, (bits >> 16) | 0x40, rounded).astype("uint16")
