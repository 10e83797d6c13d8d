"""What a benchmark runs on, said once: as torch tensors, as NumPy arrays, and as descriptors without data.

    Input(shape, dtype, fill, limit, order, pad, offset)

All three have the same sizes, strides and alignment. Values are drawn anew for each seed; none is the same for all
elements, and sums do not cancel by symmetry.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from fuser.ir.facts import TensorDescriptor
from fuser.ir.ops.dtypes import DataType

if TYPE_CHECKING:
    import numpy as np

BF16, F16, F32, F64 = DataType.BFloat16, DataType.Half, DataType.Float, DataType.Double
INT64, INT32, BOOL = DataType.Int, DataType.Int32, DataType.Bool

SHORT_NAMES: dict[DataType, str] = {
    BF16: "bf16",
    F16: "f16",
    F32: "f32",
    F64: "f64",
    INT64: "i64",
    INT32: "i32",
    BOOL: "bool",
}
"""How case names spell a dtype."""

_ALIGNMENT = 256


class Fill(Enum):
    """How values are drawn."""

    NORMAL = "standard normal"
    SHIFTED = "normal around 1, deviation 1/2: weights, and sums that do not cancel"
    POSITIVE = "uniform in [1/2, 3/2)"
    RISING = "the same, sorted along the last dim"
    PROBABILITY = "positive, sums to 1 along the last dim"
    INDEX = "integers in [0, limit)"
    ANGLE = "uniform in [-1, 1)"
    BITS = "any bits: whole numbers over the full range of the dtype"
    MOSTLY = "True in three of four places"


@dataclass(frozen=True, slots=True)
class Input:
    """One tensor input.

    shape    sizes
    dtype    element type
    fill     distribution of the values
    limit    upper end of INDEX values
    order    memory order, slowest dim first; None is row major
    pad      elements between the end of the fastest dim and the next row
    offset   elements by which the base address is off its alignment
    """

    shape: tuple[int, ...]
    dtype: DataType = BF16
    fill: Fill = Fill.NORMAL
    limit: int = 0
    order: tuple[int, ...] | None = None
    pad: int = 0
    offset: int = 0

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements: what has to be read, not what the padding spans."""
        return self.numel * self.dtype.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """In elements."""
        order = self.order if self.order is not None else tuple(range(len(self.shape)))
        strides = [1] * len(self.shape)
        running = 1
        for position, dim in enumerate(reversed(order)):
            strides[dim] = running
            running *= self.shape[dim]
            if position == 0:
                running += self.pad
        return tuple(strides)

    @property
    def span(self) -> int:
        """Elements from the base of the storage to past the last element, the offset included."""
        if self.numel == 0:
            return self.offset
        return self.offset + 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))

    def descriptor(self) -> TensorDescriptor:
        """The input without data, as in a fresh allocation."""
        shift = self.offset * self.dtype.itemsize
        alignment = min(shift & -shift, _ALIGNMENT) or _ALIGNMENT
        return TensorDescriptor(self.dtype, self.shape, self.strides, alignment)


def numpy_inputs(inputs: Sequence[Input], seed: int) -> list[np.ndarray[Any, Any]]:
    """Fresh arrays."""
    import numpy as np

    generator = np.random.default_rng(seed)
    return [_numpy_input(given, generator) for given in inputs]


def _numpy_input(given: Input, generator: np.random.Generator) -> np.ndarray[Any, Any]:
    import numpy as np

    values: Any
    match given.fill:
        case Fill.NORMAL:
            values = generator.standard_normal(given.shape)
        case Fill.SHIFTED:
            values = 1 + 0.5 * generator.standard_normal(given.shape)
        case Fill.POSITIVE:
            values = 0.5 + generator.random(given.shape)
        case Fill.RISING:
            values = np.sort(0.5 + generator.random(given.shape), -1)
        case Fill.PROBABILITY:
            weights = np.exp(generator.standard_normal(given.shape))
            values = weights / weights.sum(-1, keepdims=True)
        case Fill.ANGLE:
            values = 2 * generator.random(given.shape) - 1
        case Fill.INDEX:
            values = generator.integers(0, given.limit, given.shape)
        case Fill.BITS:
            values = generator.integers(*_range_of(given.dtype), given.shape)
        case Fill.MOSTLY:
            values = generator.random(given.shape) < 0.75
    storage = np.zeros(max(given.span, 1), given.dtype.numpy)
    strides = [s * given.dtype.itemsize for s in given.strides]
    view = np.lib.stride_tricks.as_strided(storage[given.offset :], given.shape, strides)
    view[...] = values
    return view


def torch_inputs(inputs: Sequence[Input], seed: int, device: str = "cuda") -> list[Any]:
    """Fresh torch tensors on `device`."""
    import torch

    generator = torch.Generator(device=device)
    generator.manual_seed(seed)
    return [_torch_input(given, generator, device) for given in inputs]


def _torch_input(given: Input, generator: Any, device: str) -> Any:
    import torch

    dtype = torch_dtype(given.dtype)
    storage = torch.zeros(max(given.span, 1), dtype=dtype, device=device)
    view = storage.as_strided(given.shape, given.strides, given.offset)
    if given.fill is Fill.INDEX:
        return view.random_(0, given.limit, generator=generator)
    if given.fill is Fill.PROBABILITY:
        view.normal_(generator=generator)
        return view.copy_(torch.softmax(view, -1))
    if given.fill is Fill.RISING:
        view.uniform_(0.5, 1.5, generator=generator)
        return view.copy_(view.sort(-1).values)
    match given.fill:
        case Fill.NORMAL:
            return view.normal_(generator=generator)
        case Fill.SHIFTED:
            return view.normal_(1.0, 0.5, generator=generator)
        case Fill.POSITIVE:
            return view.uniform_(0.5, 1.5, generator=generator)
        case Fill.ANGLE:
            return view.uniform_(-1.0, 1.0, generator=generator)
        case Fill.BITS:
            return view.random_(*_range_of(given.dtype), generator=generator)
        case Fill.MOSTLY:
            return view.bernoulli_(0.75, generator=generator)


def _range_of(dtype: DataType) -> tuple[int, int]:
    """The least number of an integer dtype, and one past the largest."""
    half = 1 << (8 * dtype.itemsize - 1)
    return -half, half


def torch_dtype(dtype: DataType) -> Any:
    """torch's dtype object."""
    import torch

    return getattr(torch, dtype.numpy.name)
