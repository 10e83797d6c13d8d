"""What `execute(save_repro_inputs=True)` remembers of its inputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fuser.frontend.validate import flatten_inputs
from fuser.ir.ops.dtypes import DataType
from fuser.records import record


@record
class FakeInput:
    """Shape, strides in elements, dtype, device and library of a tensor input, without its data."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: DataType
    device: str
    kind: str


def describe_inputs(inputs: Iterable[Any]) -> list[object]:
    """One `FakeInput` per tensor, scalars as they are; nested lists flattened one level."""
    from fuser.runtime.arrays.arrays import describe_array
    from fuser.runtime.scalars import is_scalar

    described: list[object] = []
    for value in flatten_inputs(inputs):
        if is_scalar(value):
            described.append(value)
            continue
        view = describe_array(value)
        kind, index = view.device
        device = kind if kind == "cpu" else f"{kind}:{index}"
        described.append(FakeInput(view.sizes, view.strides, view.dtype, device, view.kind))
    return described
