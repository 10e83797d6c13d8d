"""What a library computes, by NumPy, on the memory of the simulator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fuser.ir.facts import byte_span
from fuser.ir.ops.dtypes import compute_dtype
from fuser.ir.ops.numpy_functions import numpy_cast
from fuser.runtime.arrays import array_library
from fuser.runtime.kernels.library_calls import LibraryCall, Operand
from fuser.simulator.errors import Kind, SimulatorError
from fuser.simulator.lanes import Array
from fuser.simulator.memory import DeviceMemory


def call_numpy(call: LibraryCall, addresses: Sequence[int], memory: DeviceMemory) -> None:
    """Run a call. SimulatorError for an operand outside of memory, or of which an element was never written."""
    count = len(call.inputs)
    tensors: dict[str, Array] = {}
    for operand, address in zip(call.inputs, addresses[:count], strict=True):
        values, written = _seen(memory, operand, address)
        if not written.all():
            raise SimulatorError(
                Kind.uninitialised_read,
                f"{call.op} reads {int(np.count_nonzero(written == 0))} elements of {operand.name} that were never written",
                buffer=operand.name,
            )
        tensors[operand.name] = numpy_cast(values, compute_dtype(operand.dtype))
    if call.op == "scatter":
        _check_index(call, tensors)
    with np.errstate(all="ignore"):
        results = array_library.compute(np, call.op, tensors, dict(call.numbers))
    for operand, address, result in zip(call.outputs, addresses[count:], results, strict=True):
        values, written = _seen(memory, operand, address)
        values[...] = numpy_cast(np.asarray(result), operand.dtype)
        written[...] = 1


def _check_index(call: LibraryCall, tensors: dict[str, Array]) -> None:
    """SimulatorError for an index outside of its dim: NumPy would wrap one that is negative."""
    dim = dict(call.numbers)["dim"]
    assert isinstance(dim, int)
    array, index = tensors["arg"], tensors["index"]
    extent = array.shape[dim] if array.ndim else 1
    outside = index[(index < 0) | (index >= extent)]
    if outside.size:
        raise SimulatorError(
            Kind.out_of_bounds, f"scatter writes at index {int(outside[0])} of a dim of extent {extent}", buffer="arg"
        )


def _seen(memory: DeviceMemory, operand: Operand, address: int) -> tuple[Array, Array]:
    """(elements, written flags of their bytes) of memory, in place."""
    itemsize = operand.dtype.itemsize
    low, high = byte_span(operand.sizes, operand.strides, itemsize, 0)
    data, written = memory.bytes_at(address + low, high - low)
    steps = tuple(s * itemsize for s in operand.strides)
    values = np.ndarray(operand.sizes, operand.dtype.numpy, data, -low, steps)
    return values, np.ndarray((*operand.sizes, itemsize), np.uint8, written, -low, (*steps, 1))
