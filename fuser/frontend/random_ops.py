"""Random ops: uniform, normal, rand_like, randn_like (section 3.11 of the contract)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fuser.errors import DefinitionRuntimeError
from fuser.frontend import scalars
from fuser.frontend.factories import factory_extents
from fuser.frontend.handles import TensorView, Val
from fuser.frontend.operation import (
    ArgumentMismatch,
    Number,
    dtype_argument,
    extent_list_argument,
    fusion_of,
    operand_argument,
    operation,
    scalar_argument,
    tensor_argument,
)
from fuser.ir.fusion import fusion as ir
from fuser.ir.fusion.fusion import Distribution
from fuser.ir.ops.dtypes import DataType

if TYPE_CHECKING:
    from fuser.ir.fusion.fusion_builder import FusionBuilder


def _random(
    distribution: Distribution,
    parameters: Sequence[tuple[str, object]],
    shape: object,
    rng_seed: object,
    rng_offset: object,
    dtype: object,
) -> TensorView:
    name = distribution.value
    first, second = (scalar_argument(parameter, value) for parameter, value in parameters)
    entries = extent_list_argument("shape", shape)
    result = dtype_argument("dtype", dtype)
    state = _state_arguments(rng_seed, rng_offset)
    _require_floating(name, result)
    fusion = fusion_of(name, first, second, *entries, *state)
    builder = fusion.builder()
    extents, given = factory_extents(name, builder, entries)
    values = (_parameter(name, builder, first), _parameter(name, builder, second))
    places = tuple(_state_value(builder, v) for v in state)
    pair = (places[0], places[1]) if places else None
    return fusion.tensor_handle(builder.random(distribution, values, extents, result, given, pair))


def _require_floating(name: str, dtype: DataType) -> None:
    if not dtype.is_floating or not dtype.is_supported:
        raise DefinitionRuntimeError(
            f"{name}(): Random distributions only create floating point types, got {dtype.name}"
        )


def _state_arguments(rng_seed: object, rng_offset: object) -> tuple[Val | Number, ...]:
    """(seed, offset), or () where neither is given."""
    if (rng_seed is None) != (rng_offset is None):
        raise DefinitionRuntimeError("rng_seed and rng_offset must be provided together!")
    if rng_seed is None:
        return ()
    found: list[Val | Number] = []
    for name, given in (("rng_seed", rng_seed), ("rng_offset", rng_offset)):
        value = operand_argument(name, given)
        if isinstance(value, TensorView) and value.node.ndim:
            raise DefinitionRuntimeError(f"{name} must be a scalar or a tensor of rank 0, got rank {value.node.ndim}")
        if isinstance(value, Val):
            if not value.node.dtype.is_integral:
                raise DefinitionRuntimeError(f"{name} must be an integer, got dtype {value.node.dtype.name}")
        elif isinstance(value, bool) or not isinstance(value, int):
            raise ArgumentMismatch(f"{name} must be an integer, got {type(value).__name__}.")
        found.append(value)
    return tuple(found)


def _state_value(builder: FusionBuilder, value: Val | Number) -> ir.Val:
    return value.node if isinstance(value, Val) else scalars.constant(builder, value)


def _parameter(name: str, builder: FusionBuilder, value: Val | Number) -> ir.Scalar:
    """A parameter as a scalar; numbers are Double, however they were written."""
    if isinstance(value, Val):
        assert isinstance(value.node, ir.Scalar)
        if value.node.dtype.is_complex:
            raise DefinitionRuntimeError(f"{name}() does not support complex operands")
        return value.node
    if isinstance(value, complex):
        raise DefinitionRuntimeError(f"{name}() does not support complex operands")
    return scalars.constant(builder, float(value), DataType.Double)


@operation(
    "uniform(minval: Val | number, maxval: Val | number, shape: Sequence[Val | int], *, rng_seed: Val | int | None = None, "
    "rng_offset: Val | int | None = None, dtype: DataType = DataType.Float) -> TensorView"
)
def uniform(
    minval: object,
    maxval: object,
    shape: object,
    *,
    rng_seed: object = None,
    rng_offset: object = None,
    dtype: object = DataType.Float,
) -> TensorView:
    """Uniform random numbers in [minval, maxval): the upper end is never returned, also after rounding to a 16-bit type.

    What rounds to the upper end becomes minval, as in torch: one number in 2**12 of [0, 1) in Half, one in 2**9 in BFloat16.
    Compare in Float where such a share matters (a drop rate, say).

    A number depends on (rng_seed, rng_offset, position of the element) alone; without the two, each execution takes the state
    of the generator (torch's on the GPU, else the one that `fuser.manual_seed` sets) and advances it. An empty interval gives
    minval. Raises DefinitionRuntimeError for one of rng_seed and rng_offset without the other and for dtypes that are not
    floating.
    """
    return _random(Distribution.uniform, (("minval", minval), ("maxval", maxval)), shape, rng_seed, rng_offset, dtype)


@operation(
    "normal(mean: Val | number, std: Val | number, shape: Sequence[Val | int], *, rng_seed: Val | int | None = None, "
    "rng_offset: Val | int | None = None, dtype: DataType = DataType.Float) -> TensorView"
)
def normal(
    mean: object,
    std: object,
    shape: object,
    *,
    rng_seed: object = None,
    rng_offset: object = None,
    dtype: object = DataType.Float,
) -> TensorView:
    """Normal random numbers by Box and Muller; the rest is as for `uniform`.

    Raises DefinitionRuntimeError for a constant std below 0 as well.
    """
    constant = std.node.value if isinstance(std, Val) and isinstance(std.node, ir.Scalar) else std
    if isinstance(constant, int | float) and constant < 0:
        raise DefinitionRuntimeError(f"std must not be negative, got {constant}")
    return _random(Distribution.normal, (("mean", mean), ("std", std)), shape, rng_seed, rng_offset, dtype)


def _random_like(name: str, distribution: Distribution, doc: str) -> Callable[..., TensorView]:
    @operation(f"{name}(x: TensorView, /) -> TensorView")
    def op(x: object, /) -> TensorView:
        tensor = tensor_argument("x", x)
        _require_floating(name, tensor.node.dtype)
        fusion = fusion_of(name, tensor)
        shape = [fusion.size(tensor, d) for d in range(tensor.node.ndim)]
        return _random(distribution, (("", 0.0), ("", 1.0)), shape, None, None, tensor.node.dtype)

    op.__doc__ = f"{doc}\n\nRaises DefinitionRuntimeError for tensors that are not floating."
    return op


rand_like = _random_like(
    "rand_like",
    Distribution.uniform,
    "Uniform random numbers in [0, 1) of the shape and dtype of x, as `uniform` draws them.",
)
randn_like = _random_like(
    "randn_like",
    Distribution.normal,
    "Standard normal random numbers of the shape and dtype of x, as `normal` draws them.",
)

RANDOM_OPS: dict[str, Callable[..., object]] = {
    "uniform": uniform,
    "normal": normal,
    "rand_like": rand_like,
    "randn_like": randn_like,
}
"""Every op of this module by name."""
