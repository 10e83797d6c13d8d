"""A benchmark case: one computation on given inputs, as we define it, as torch runs it, and as float64 says it should be."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.inputs import Input
from fuser.ir.ops.dtypes import DataType

if TYPE_CHECKING:
    from fuser.frontend.definition import FusionDefinition


class Wide(Protocol):
    """float64 arithmetic of one array library, so that a reference is written once.

    References use operators, `.sum`, `.mean`, `.cumsum` with NumPy's keywords, and functions of `xp` that NumPy and torch
    both have under one name. The rest is here.
    """

    xp: Any

    def wide(self, x: Any) -> Any:
        """As float64."""
        ...

    def round(self, x: Any, dtype: DataType) -> Any:
        """Rounded to `dtype`, as float64: where a definition rounds in between."""
        ...

    def pick(self, x: Any, index: Any) -> Any:
        """x[i, index[i]] for every row."""
        ...

    def permute(self, x: Any, dims: Sequence[int]) -> Any:
        """Dim i of the result is dim dims[i]."""
        ...

    def integers(self, x: Any) -> Any:
        """The nearest integers, as 64-bit ones."""
        ...


class NumpyWide:
    """On the host."""

    def __init__(self) -> None:
        import numpy as np

        self.xp: Any = np

    def wide(self, x: Any) -> Any:
        return x.astype(self.xp.float64)

    def round(self, x: Any, dtype: DataType) -> Any:
        return x.astype(dtype.numpy).astype(self.xp.float64)

    def pick(self, x: Any, index: Any) -> Any:
        return self.xp.take_along_axis(x, index[:, None], 1)[:, 0]

    def permute(self, x: Any, dims: Sequence[int]) -> Any:
        return self.xp.transpose(x, dims)

    def integers(self, x: Any) -> Any:
        return self.xp.rint(x).astype(self.xp.int64)


class LongWide(NumpyWide):
    """On the host, in longdouble: what is judged may be float64. Takes tensors of torch, too."""

    def _array(self, x: Any) -> Any:
        return x if isinstance(x, self.xp.ndarray) else x.cpu().numpy()

    def wide(self, x: Any) -> Any:
        return self._array(x).astype(self.xp.longdouble)

    def round(self, x: Any, dtype: DataType) -> Any:
        return x.astype(dtype.numpy).astype(self.xp.longdouble)

    def pick(self, x: Any, index: Any) -> Any:
        return super().pick(x, self._array(index))


class TorchWide:
    """On the device of the tensors."""

    def __init__(self) -> None:
        import torch

        self.xp: Any = torch

    def wide(self, x: Any) -> Any:
        return x.as_subclass(exactly_summed(self.xp)) if x.dtype is self.xp.float64 else x.double()

    def round(self, x: Any, dtype: DataType) -> Any:
        return x.to(getattr(self.xp, dtype.numpy.name)).double()

    def pick(self, x: Any, index: Any) -> Any:
        return x.gather(1, index[:, None])[:, 0]

    def permute(self, x: Any, dims: Sequence[int]) -> Any:
        return x.permute(tuple(dims))

    def integers(self, x: Any) -> Any:
        return x.round().to(self.xp.int64)


@cache
def exactly_summed(torch: Any) -> Any:
    """float64 tensors whose sums are rounded once, and means twice.

    What a plain sum in float64 is off by is more than what it should judge where the result is float64, too: 39 ulps for
    columns of 100003 products. Of narrower inputs nothing of it shows.
    """

    class Summed(torch.Tensor):
        def sum(self, axis: Any = None, keepdims: bool = False) -> Any:
            dims = range(self.dim()) if axis is None else axis if isinstance(axis, tuple) else (axis,)
            dims = sorted(d % self.dim() for d in dims)
            total = self.as_subclass(torch.Tensor)
            last = total.movedim(dims, tuple(range(-len(dims), 0))).flatten(self.dim() - len(dims))
            result = _sum_of_pairs(torch, last)
            for d in dims if keepdims else ():
                result = result.unsqueeze(d)
            return result.as_subclass(Summed)

        def mean(self, axis: Any = None, keepdims: bool = False) -> Any:
            total = self.sum(axis, keepdims)
            return total / (self.numel() / max(total.numel(), 1))

    return Summed


def _sum_of_pairs(torch: Any, x: Any) -> Any:
    """The sum over the last dim by halves, with what each addition loses (Knuth's TwoSum) added up beside it."""
    rest = torch.zeros_like(x)
    while x.shape[-1] > 1:
        if x.shape[-1] % 2:
            x, rest = (torch.nn.functional.pad(v, (0, 1)) for v in (x, rest))
        half = x.shape[-1] // 2
        a, b = x[..., :half], x[..., half:]
        x = a + b
        z = x - a
        rest = rest[..., :half] + rest[..., half:] + ((a - (x - z)) + (b - z))
    x, rest = x.sum(-1), rest.sum(-1)
    return torch.where(torch.isfinite(rest), x + rest, x)


def exact_running_sums(m: Wide, x: Any) -> Any:
    """Running sums of float64 numbers along the last dim, off by little more than a rounding. None near 1e300 or 1e-300.

    In integers: the leading bits of each number, as many as no sum of them overflows, and what those leave. A running sum in
    float64 is off by more than what it should judge where the result is float64, too.
    """
    count = int(x.shape[-1])
    largest = float(abs(x).max()) if count else 0.0
    if largest == 0.0:
        return x.cumsum(axis=-1)
    places = count.bit_length()
    scale = 2.0 ** (61 - math.frexp(largest)[1] - places)
    leading = m.integers(x * scale)
    left = m.integers((x - m.wide(leading) / scale) * scale * 2.0 ** (60 - places))
    return m.wide(leading.cumsum(axis=-1)) / scale + m.wide(left.cumsum(axis=-1)) / scale * 2.0 ** (places - 60)


# What Float arithmetic may be off before it is rounded to 16 bits: a sum, a reciprocal root and a product.
FLOAT_ERROR = 2.0**-21


@dataclass(frozen=True, slots=True, eq=False)
class Either:
    """Two values of one shape, each element of which may be right: a definition rounds in between, close to a tie."""

    lower: Any
    upper: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.lower.shape)


def either_rounding(m: Wide, x: Any, dtype: DataType, then: Callable[[Any], Any]) -> Any:
    """`then` of float64 `x` rounded to a 16-bit `dtype`, where what is rounded was computed in Float.

    A value within Float's error of the middle between two neighbours may become either of them: Either. Float and wider
    types round nothing more than every op does: then(x).
    """
    if dtype.itemsize > 2:
        return then(x)
    return Either(*(then(m.round(x * (1 + sign * FLOAT_ERROR), dtype)) for sign in (-1, 1)))


Define = Callable[..., Sequence[Any]]
"""(fd, *input tensors) -> output tensors, in the DSL."""
Eager = Callable[[Any], Callable[..., Any]]
"""torch -> a function of the inputs, which torch.compile takes too."""
Reference = Callable[..., Sequence[Any]]
"""(Wide, *inputs) -> the outputs in float64; Either where one of two values is right."""
Check = Callable[[Any, Callable[[], Any], Sequence[Any]], tuple[bool, str]]
"""(torch, run, inputs) -> (right, what was found), for results that are not a function of the inputs."""


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One case. `nbytes` is the least that has to be moved: every input read once, every output written once.

    name          family, dtype and sizes
    family        what limits and groups go by
    inputs        in the order of the definition
    output_bytes  bytes of all outputs
    read_bytes    bytes of the inputs that have to be read, where that is not all of them
    check         replaces the comparison with `reference`
    """

    name: str
    family: str
    inputs: tuple[Input, ...]
    output_bytes: int
    define: Define
    eager: Eager
    reference: Reference
    read_bytes: int | None = None
    check: Check | None = None

    @property
    def nbytes(self) -> int:
        read = self.read_bytes if self.read_bytes is not None else sum(i.nbytes for i in self.inputs)
        return read + self.output_bytes


def define_fusion(case: Case) -> FusionDefinition:
    """The case in the DSL: extents symbolic, layouts as the inputs have them.

    Raises NotSupportedError if it uses an op that is not there yet.
    """
    from fuser import FusionDefinition

    with FusionDefinition() as fd:
        tensors = [fd.define_tensor(sizes=i.shape, strides=i.strides, dtype=i.dtype) for i in case.inputs]
        for output in case.define(fd, *tensors):
            fd.add_output(output)
    return fd


def as_dtype(fd: FusionDefinition, tensor: Any, dtype: DataType) -> Any:
    """`tensor` cast to `dtype`, itself if it has it."""
    return tensor if tensor.dtype() is dtype else fd.ops.cast(tensor, dtype)


def wide_dtype(dtype: DataType) -> DataType:
    """What torch computes in: Float for 16-bit floats."""
    return DataType.Double if dtype is DataType.Double else DataType.Float


def as_tuple(results: Any) -> tuple[Any, ...]:
    """Outputs of a torch function or of ours, one or several."""
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def with_layout(case: Case, *, pad: int = 0, offset: int = 0, suffix: str = "") -> Case:
    """The same computation on inputs whose rows lie `pad` elements apart, `offset` elements off their alignment.

    Vectors have no rows to pad, and statistics of rows stay dense. Nothing in a family depends on layouts.
    """
    inputs = tuple(
        replace(i, pad=pad if len(i.shape) > 1 and i.shape[-1] > 1 else 0, offset=offset) for i in case.inputs
    )
    return replace(case, name=case.name + suffix, inputs=inputs)
