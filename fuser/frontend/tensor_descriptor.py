"""`compute_tensor_descriptor`: contiguity and stride order of a strided layout. Plain ints and bools, a few microseconds."""

from __future__ import annotations

from collections.abc import Sequence

from fuser.errors import DefinitionRuntimeError
from fuser.source_location import caller_location
from fuser.tracebacks import short_traceback


@short_traceback
def compute_tensor_descriptor(
    sizes: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[bool | None, ...], tuple[int, ...]]:
    """(contiguity in memory order, slowest dim first; stride_order in logical order, 0 = fastest) of a layout.

    Contiguity is None for a dim of size 1 or stride 0, else whether its stride is size * stride of the next faster
    dim that is not None (1 if there is none).
    Raises DefinitionRuntimeError if the lengths differ or a stride is negative.
    """
    n = len(sizes)
    if n != len(strides):
        raise DefinitionRuntimeError(
            f"compute_tensor_descriptor: {n} sizes but {len(strides)} strides", location=caller_location()
        )
    order: list[int] = []
    zeros: list[int] = []
    for d in range(n):
        stride = strides[d]
        if stride > 0:
            order.append(d)
        elif stride == 0:
            zeros.append(d)
        else:
            raise DefinitionRuntimeError(
                f"compute_tensor_descriptor: strides must not be negative, got {stride} for dim {d}",
                location=caller_location(),
            )
    order.sort(key=strides.__getitem__, reverse=True)
    for d in zeros:
        order.insert(d, d)
    stride_order = [0] * n
    contiguity: list[bool | None] = [None] * n
    expected = 1
    for position in range(n - 1, -1, -1):
        d = order[position]
        stride_order[d] = n - 1 - position
        size, stride = sizes[d], strides[d]
        if size != 1 and stride != 0:
            contiguity[position] = stride == expected
            expected = size * stride
    return tuple(contiguity), tuple(stride_order)
