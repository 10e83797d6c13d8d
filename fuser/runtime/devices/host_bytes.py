"""What a device holds, as bytes of the host: read with the layout it has there, and seen as an array again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from fuser.ir.ops.dtypes import DataType
from fuser.runtime.devices.device import Device
from fuser.runtime.layouts import element_span, has_gaps

if TYPE_CHECKING:
    import numpy as np

Bytes: TypeAlias = "np.ndarray[Any, Any]"


def strided_view(
    data: Bytes, dtype: DataType, sizes: Sequence[int], strides: Sequence[int], offset: int = 0
) -> np.ndarray[Any, Any]:
    """Bytes seen as an array; strides and offset in elements."""
    import numpy as np

    itemsize = dtype.itemsize
    return np.ndarray(tuple(sizes), dtype.numpy, data, offset * itemsize, tuple(s * itemsize for s in strides))


def read_elements(
    device: Device,
    dtype: DataType,
    sizes: Sequence[int],
    strides: Sequence[int],
    address: int,
    out: Bytes,
    at: int,
    stream: int,
) -> None:
    """Copy a tensor's stored span from `address` to byte `at` of `out`; strides not negative.

    Bytes between the elements are copied along on a GPU. The simulator objects to reading what nobody wrote, so there
    they are left out.
    """
    itemsize = dtype.itemsize
    nbytes = element_span(sizes, strides) * itemsize
    if nbytes == 0:
        return
    if device.kind == "cuda" or not has_gaps(sizes, strides):
        device.copy_to_host(out[at : at + nbytes], address, stream)
        return
    import numpy as np

    run = next((d for d in range(len(sizes)) if strides[d] == 1), None)
    width = itemsize * (1 if run is None else sizes[run])
    # An expanded dimension stores one element, however often it is seen.
    outer = [(sizes[d] if strides[d] else 1, strides[d]) for d in range(len(sizes)) if d != run]
    for index in np.ndindex(*(n for n, _ in outer)):
        offset = sum(i * s for i, (_, s) in zip(index, outer, strict=True)) * itemsize
        device.copy_to_host(out[at + offset : at + offset + width], address + offset, stream)


def read_number(device: Device, dtype: DataType, address: int, stream: int) -> int:
    """The integer or Bool at `address`, when all work of `stream` is done: the host waits for it.

    Raises LaunchError while the stream is captured.
    """
    import numpy as np

    host = np.zeros(1, dtype.numpy)
    device.copy_to_host(host, address, stream)
    return int(host[0])
