"""`ArrayView`: an array of any library as one record, and what every file that makes one needs.

view   := ArrayView(kind, dtype, sizes, strides, address, device, owner, array)
device := ("cuda", index) | ("simulator", index) | ("cpu", 0)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fuser.errors import ElementTypeError
from fuser.ir.facts import TensorDescriptor
from fuser.ir.ops.dtypes import DataType, from_numpy_name

if TYPE_CHECKING:
    import numpy as np

ArrayKind = Literal["torch", "cupy", "jax", "numpy", "fuser", "interface"]

MAX_ALIGNMENT = 256
# Host arrays keep the low bits of their address when they are copied to a device, so that a misaligned input stays one.
KEPT_ALIGNMENT = 16


_MOST_WORK = 1 << 16
"""Candidates that NumPy looks at to find a common element."""


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


def strides_in_memory(view: ArrayView) -> tuple[int, ...]:
    """Strides of what the caller handed in, in elements; those of a view are of its copy where it is laid out anew."""
    if view.kind == "numpy" and not view.address:
        return tuple(s // view.dtype.itemsize for s in view.array.strides)
    return view.strides


def share_elements(a: ArrayView, b: ArrayView) -> bool:
    """Whether two arrays have a byte of an element in common. Exact up to a million elements, and of more where that is found
    out soon; else byte ranges that meet count as shared."""
    if a.device != b.device:
        return False
    if a.kind == b.kind == "numpy" and not (a.address and b.address):
        # The address of a copy with other strides says nothing.
        return _numpy_arrays_share(a.array, b.array)
    first, second = a.descriptor().byte_range, b.descriptor().byte_range
    if first[0] == first[1] or second[0] == second[1] or first[1] <= second[0] or second[1] <= first[0]:
        return False
    bytes_of = [_element_bytes(v) for v in (a, b)]
    if bytes_of[0] is None or bytes_of[1] is None:
        return True
    import numpy as np

    return bool(np.intersect1d(bytes_of[0], bytes_of[1]).size)


def _numpy_arrays_share(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    import numpy as np

    try:
        # NumPy's stubs allow two numbers only, its documentation any.
        return np.shares_memory(a, b, max_work=_MOST_WORK)  # pyright: ignore[reportArgumentType]
    except np.exceptions.TooHardError:
        return True


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
