"""Fusions that between them use every op family and every way a program is put together, with makers of their inputs.

Grammar
    case := FusionCase(name, family, arguments, define)
    argument := Arg(dims, dtype, order, values)     dims is words: a letter is a symbolic extent, a number a static one
              | Num(dtype, value)                   a scalar
              | SizeOf(letter)                      an Int scalar that holds an extent
    sizes := extent of each letter

`define` gets the definition and its inputs, in order, and adds the outputs. The tests of facts, threads, random sizes and the
sanitizer run all take their fusions from here; `expected` is the reference evaluator's word for them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_values
from fuser.frontend.validate import host_array
from fuser.ir.fusion import fusion as ir
from fuser.ir.fusion.extent_binding import bind_extents
from fuser.ir.fusion.tolerances import folded_elements

Array = np.ndarray[Any, Any]
Number = bool | int | float | complex
Define = Callable[..., None]
Sizes = Mapping[str, int]

D = DataType
Float, Double, Half, BFloat16 = D.Float, D.Double, D.Half, D.BFloat16
Int, Int32, Bool = D.Int, D.Int32, D.Bool

ALIGNED: Sizes = {"A": 3, "B": 8, "R": 6, "C": 48, "H": 16, "W": 24}
RAGGED: Sizes = {"A": 2, "B": 5, "R": 7, "C": 37, "H": 9, "W": 11}
ONES: Sizes = {"A": 1, "B": 1, "R": 1, "C": 5, "H": 3, "W": 1}
EMPTY: Sizes = {"A": 2, "B": 3, "R": 4, "C": 0, "H": 0, "W": 2}
LARGE: Sizes = {"A": 4, "B": 16, "R": 130, "C": 520, "H": 64, "W": 40}
SIZES: Mapping[str, Sizes] = {"aligned": ALIGNED, "ragged": RAGGED, "ones": ONES, "empty": EMPTY}


@dataclass(frozen=True, slots=True)
class Arg:
    """A tensor argument. `order`: memory order, slowest dim first, None for row major. `values`: normal, positive, whole, or
    `below <letter>` for indices of a dim."""

    dims: str
    dtype: DataType = Float
    order: tuple[int, ...] | None = None
    values: str = "normal"

    def shape(self, sizes: Sizes) -> tuple[int, ...]:
        """Extents for these sizes."""
        return tuple(int(word) if word.isdecimal() else sizes[word] for word in self.dims.split())

    def define(self, fd: FusionDefinition) -> Any:
        """The fusion input."""
        words = self.dims.split()
        shape = [int(word) if word.isdecimal() else -1 for word in words]
        if self.order is None:
            return fd.define_tensor(shape, True, self.dtype)
        ranks = [len(words) - 1 - self.order.index(d) for d in range(len(words))]
        return fd.define_tensor(shape, True, self.dtype, stride_order=ranks)

    def make(self, sizes: Sizes, rng: np.random.Generator) -> Array:
        """An array of this argument in its memory order."""
        shape = self.shape(sizes)
        order = self.order or tuple(range(len(shape)))
        stored_shape = tuple(shape[d] for d in order)
        if self.values.startswith("below "):
            limit = sizes[self.values.removeprefix("below ")]
            stored = np.asarray(rng.integers(0, max(limit, 1), stored_shape)).astype(self.dtype.numpy)
        else:
            stored = _values(self.values, self.dtype, stored_shape, rng)
        return stored.transpose([order.index(d) for d in range(len(shape))])


@dataclass(frozen=True, slots=True)
class Num:
    """A scalar argument."""

    dtype: DataType
    value: Number

    def define(self, fd: FusionDefinition) -> Any:
        """The fusion input."""
        return fd.define_scalar(self.dtype)


@dataclass(frozen=True, slots=True)
class SizeOf:
    """An Int scalar that holds the extent of a letter."""

    letter: str

    def define(self, fd: FusionDefinition) -> Any:
        """The fusion input."""
        return fd.define_scalar(Int)


@dataclass(frozen=True, slots=True, eq=False)
class FusionCase:
    """A named fusion. `empty_is_defined` False: a reduction without elements has no value to compare."""

    name: str
    family: str
    arguments: tuple[Arg | Num | SizeOf, ...]
    build: Define
    empty_is_defined: bool = True

    def define(self) -> FusionDefinition:
        """A fresh definition."""
        with FusionDefinition() as fd:
            self.build(fd, *(a.define(fd) for a in self.arguments))
        return fd

    def inputs(self, sizes: Sizes, seed: int = 0) -> list[Any]:
        """NumPy arrays and numbers, one per input."""
        rng = np.random.default_rng((seed, zlib.crc32(self.name.encode())))
        made: list[Any] = []
        for a in self.arguments:
            match a:
                case Arg():
                    made.append(a.make(sizes, rng))
                case Num():
                    made.append(a.value)
                case SizeOf():
                    made.append(sizes[a.letter])
        return made


def _values(kind: str, dtype: DataType, shape: Sequence[int], rng: np.random.Generator) -> Array:
    if dtype is Bool:
        return np.asarray(rng.integers(0, 2, tuple(shape))).astype(np.bool_)
    if dtype.is_integral or kind == "whole":
        return np.asarray(rng.integers(-8, 9, tuple(shape))).astype(dtype.numpy)
    normal = np.asarray(rng.standard_normal(tuple(shape)) + 0.25)
    if dtype.is_complex:
        return np.asarray(normal + 1j * rng.standard_normal(tuple(shape))).astype(dtype.numpy)
    return (np.abs(normal) + 0.5 if kind == "positive" else normal).astype(dtype.numpy)


# --- expected results -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Expected:
    """Returned outputs, and new contents of updated inputs by position; with the elements folded into each."""

    outputs: list[Array]
    updates: dict[int, Array]
    folded: list[int]
    folded_updates: dict[int, int]


def expected(fusion: ir.Fusion, inputs: Sequence[Any]) -> Expected:
    """What the fusion is to compute for NumPy arguments."""
    values = evaluate_values(fusion, inputs)
    binding = bind_extents(fusion, [a.shape if isinstance(a, np.ndarray) else a for a in inputs])
    folded = folded_elements(fusion, binding.extents)
    updates: dict[int, Array] = {}
    counts: dict[int, int] = {}
    for o in fusion.outputs:
        if o.alias_of is not None:
            position = fusion.inputs.index(o.alias_of)
            updates[position] = np.array(values[o.tensor.name])
            counts[position] = folded[o.tensor]
    shown = [o.tensor for o in fusion.outputs if not o.hidden]
    # An output that is also written in place is returned as the updated input.
    return Expected([np.array(values[t.name]) for t in shown], updates, [folded[t] for t in shown], counts)


def assert_close(result: Any, reference: Array, folded: int, what: str) -> None:
    """Equal shape and dtype; integers equal, floats within a few roundings and log2(n) of them for n folded elements.

    The absolute part follows the size of the tensor's values, so that zeros do not pass.
    """
    actual = host_array(result)
    assert actual.shape == reference.shape, f"{what}: shape {actual.shape}, expected {reference.shape}"
    assert actual.dtype == reference.dtype, f"{what}: dtype {actual.dtype}, expected {reference.dtype}"
    if actual.dtype.kind in "biu":
        np.testing.assert_array_equal(actual, reference, err_msg=what)
        return
    import ml_dtypes

    eps = float(ml_dtypes.finfo(reference.dtype).eps)
    wide = np.complex128 if reference.dtype.kind == "c" else np.float64
    out, ref = actual.astype(wide), reference.astype(wide)
    finite = ref[np.isfinite(ref)]
    scale = float(np.sqrt(np.mean(np.abs(finite) ** 2))) if finite.size else 0.0
    margin = eps * (16 + 4 * np.log2(max(folded, 1)))
    np.testing.assert_allclose(out, ref, rtol=margin, atol=margin * scale, err_msg=what)


# --- registry ---------------------------------------------------------------------------------------------------------

CORPUS: list[FusionCase] = []


def _fusion(family: str, *arguments: Arg | Num | SizeOf, empty: bool = True) -> Callable[[Define], Define]:
    def register(build: Define) -> Define:
        CORPUS.append(FusionCase(build.__name__, family, arguments, build, empty))
        return build

    return register


def case(name: str) -> FusionCase:
    """The case of that name."""
    return next(c for c in CORPUS if c.name == name)


def _like(fd: FusionDefinition, x: Any, row: Any, dims: Sequence[int]) -> Any:
    """`row` seen in the shape of `x`."""
    return fd.ops.broadcast_in_dim(row, x.shape(), list(dims))


# --- pointwise --------------------------------------------------------------------------------------------------------


@_fusion("pointwise", Arg("R C"), Arg("R C"))
def add_two(fd: FusionDefinition, x: Any, y: Any) -> None:
    fd.add_output(x + y)


@_fusion("pointwise", Arg("R C", BFloat16), Arg("C", BFloat16))
def bias_gelu(fd: FusionDefinition, x: Any, b: Any) -> None:
    y = fd.ops.add(x, _like(fd, x, b, [1]))
    z = y * 0.5 * (1.0 + fd.ops.erf(y * 0.7071067811865476))
    fd.add_output(fd.ops.cast(z, BFloat16))


@_fusion("pointwise", Arg("R C", Half), Arg("R C", Half))
def swiglu(fd: FusionDefinition, gate: Any, up: Any) -> None:
    fd.add_output(fd.ops.cast(fd.ops.silu(gate) * up, Half))


@_fusion("pointwise", Arg("R C", Double))
def polynomial_in_double(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(x * x * x - x * 2.0 + 0.5)


@_fusion("pointwise", Arg("R C", values="positive"))
def square_root_and_logarithm(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sqrt(x) + fd.ops.log(x))


@_fusion("pointwise", Arg("A B C"), Arg("A B C", Bool))
def masked_fill(fd: FusionDefinition, x: Any, mask: Any) -> None:
    fd.add_output(fd.ops.where(mask, x, -1.0e4))


@_fusion("pointwise", Arg("R C"), Num(Double, 0.75), Num(Double, -1.5))
def scale_and_shift(fd: FusionDefinition, x: Any, a: Any, b: Any) -> None:
    fd.add_output(x * a + b)


@_fusion("pointwise", Arg("C"))
def one_dimension(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.tanh(x))


@_fusion("pointwise", Arg(""), Arg(""))
def rank_zero(fd: FusionDefinition, x: Any, y: Any) -> None:
    fd.add_output(x * y)


@_fusion("pointwise", Arg("A B R C W", Half))
def five_dimensions(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.relu(x))


@_fusion("pointwise", Arg("4 R 16"))
def static_extents(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.exp(x) - 1.0)


# --- several outputs --------------------------------------------------------------------------------------------------


@_fusion("outputs", Arg("R C"))
def sine_and_cosine(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sin(x))
    fd.add_output(fd.ops.cos(x))


@_fusion("outputs", Arg("R C"))
def intermediate_returned(fd: FusionDefinition, x: Any) -> None:
    y = fd.ops.exp(x)
    fd.add_output(y)
    fd.add_output(y * 2.0)


@_fusion("outputs", Arg("R C"))
def one_tensor_twice(fd: FusionDefinition, x: Any) -> None:
    y = x + 1.0
    fd.add_output(y)
    fd.add_output(y)


@_fusion("outputs", Arg("R C"), Arg("C"))
def outputs_of_two_ranks(fd: FusionDefinition, x: Any, b: Any) -> None:
    c = b * 3.0
    fd.add_output(c)
    fd.add_output(x - _like(fd, x, c, [1]))


# --- broadcasts -------------------------------------------------------------------------------------------------------


@_fusion("broadcast", Arg("R C"), Arg("R"))
def row_bias(fd: FusionDefinition, x: Any, b: Any) -> None:
    fd.add_output(x + fd.ops.broadcast(b, [False, True]))


@_fusion("broadcast", Arg("R"), Arg("C"))
def outer_product(fd: FusionDefinition, a: Any, b: Any) -> None:
    fd.add_output(fd.ops.broadcast(a, [False, True]) * fd.ops.broadcast(b, [True, False]))


@_fusion("broadcast", Arg("R 1"), Arg("1 C"))
def declared_broadcast_dims(fd: FusionDefinition, a: Any, b: Any) -> None:
    fd.add_output(a + b)


@_fusion("broadcast", Arg("A B C"), Arg("B"))
def channel_scale(fd: FusionDefinition, x: Any, s: Any) -> None:
    fd.add_output(x * _like(fd, x, s, [1]))


@_fusion("broadcast", Arg("R C"), Arg(""))
def rank_zero_operand(fd: FusionDefinition, x: Any, s: Any) -> None:
    fd.add_output(x * s)


@_fusion("broadcast", Arg("C"), SizeOf("R"))
def expand_by_a_scalar(fd: FusionDefinition, b: Any, n: Any) -> None:
    fd.add_output(fd.ops.expand(fd.ops.broadcast(b, [True, False]), [n, -1]) + 1.0)


# --- layouts ----------------------------------------------------------------------------------------------------------


@_fusion("layout", Arg("R C"))
def transpose_and_scale(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.permute(x, [1, 0]) * 2.0)


@_fusion("layout", Arg("R C", order=(1, 0)), Arg("R C"))
def mixed_orders(fd: FusionDefinition, x: Any, y: Any) -> None:
    fd.add_output(x + y)


@_fusion("layout", Arg("A B H W", Half, order=(0, 2, 3, 1)), Arg("B", Half))
def channels_last(fd: FusionDefinition, x: Any, b: Any) -> None:
    fd.add_output(fd.ops.relu(fd.ops.add(x, _like(fd, x, b, [1]))))


@_fusion("layout", Arg("A R C"))
def permute_three(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.neg(fd.ops.permute(x, [2, 0, 1])))


@_fusion("layout", Arg("R 1 C"), Arg("R C"))
def squeezed_operand(fd: FusionDefinition, x: Any, y: Any) -> None:
    fd.add_output(fd.ops.squeeze(x, [1]) + y)


# --- views ------------------------------------------------------------------------------------------------------------


@_fusion("view", Arg("R C"))
def transposed_view(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.permute(x, [1, 0]))


@_fusion("view", Arg("R C"))
def broadcast_view(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.broadcast(x, [False, True, False]))


@_fusion("view", Arg("R C"))
def input_and_its_square(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(x)
    fd.add_output(x * x)
    fd.add_output(fd.ops.permute(x, [1, 0]))


# --- slices, pads, concatenations, gathers ------------------------------------------------------------------------------


@_fusion("resize", Arg("A R 16", BFloat16), Arg("R 16", BFloat16), Arg("R 16", BFloat16))
def rotary_embedding(fd: FusionDefinition, q: Any, cos: Any, sin: Any) -> None:
    a, r = q.size(0), q.size(1)
    first, second = fd.ops.slice(q, [0, 0, 0], [a, r, 8]), fd.ops.slice(q, [0, 0, 8], [a, r, 16])
    turned = fd.ops.cat([fd.ops.neg(second), fd.ops.cast(first, Float)], -1)
    fd.add_output(fd.ops.cast(q * _like(fd, q, cos, [1, 2]) + turned * _like(fd, q, sin, [1, 2]), BFloat16))


@_fusion("resize", Arg("R C"))
def halves_of_any_length(fd: FusionDefinition, x: Any) -> None:
    half = x.size(1) // 2 + 1
    first = fd.ops.slice(x, [0, 0], [x.size(0), half])
    second = fd.ops.slice(x, [0, x.size(1) - half], [x.size(0), x.size(1)])
    fd.add_output(fd.ops.cat([fd.ops.neg(second), first], 1) * 2.0)


@_fusion("resize", Arg("R 24", Half))
def gated_halves(fd: FusionDefinition, x: Any) -> None:
    gate, up = fd.ops.slice(x, [0, 0], [x.size(0), 12]), fd.ops.slice(x, [0, 12], [x.size(0), 24])
    fd.add_output(fd.ops.cast(fd.ops.silu(gate) * up, Half))


@_fusion("resize", Arg("R C"), Arg("R 3"), Arg("R C"))
def three_side_by_side(fd: FusionDefinition, x: Any, y: Any, z: Any) -> None:
    fd.add_output(fd.ops.cat([x * 2.0, y, fd.ops.exp(z)], 1))


@_fusion("resize", Arg("R C"))
def padded_on_both_sides(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.pad(fd.ops.exp(x), [2, 1, 0, 3], -1.0))


@_fusion("resize", Arg("R C"))
def sum_of_a_padded_row(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sum(fd.ops.pad(x, [1, 5], 0.5), [1]))


@_fusion("resize", Arg("R 40"))
def softmax_of_a_slice(fd: FusionDefinition, x: Any) -> None:
    part = fd.ops.slice(x, [0, 8], [x.size(0), 40])
    e = fd.ops.exp(part - fd.ops.max(part, [1], True))
    fd.add_output(e / fd.ops.sum(e, [1], True))


@_fusion("resize", Arg("R C"))
def neighbours_in_place(fd: FusionDefinition, x: Any) -> None:
    """Each element becomes the sum of its neighbours: no thread may write before others have read."""
    left = fd.ops.pad(x, [1, -1])
    right = fd.ops.pad(x, [-1, 1])
    fd.add_output(left + right, x)


@_fusion("resize", Arg("B 24", BFloat16), Arg("R", Int, values="below B"))
def scaled_embedding(fd: FusionDefinition, table: Any, index: Any) -> None:
    fd.add_output(fd.ops.cast(fd.ops.index_select(table, index, 0) * 4.0, BFloat16))


@_fusion("resize", Arg("R B"), Arg("R", D.Int32, values="below B"))
def cross_entropy_of_rows(fd: FusionDefinition, x: Any, target: Any) -> None:
    high = fd.ops.max(x, [1], True)
    total = fd.ops.sum(fd.ops.exp(x - high), [1], True)
    picked = fd.ops.take_along_axis(x, fd.ops.broadcast(target, [False, True]), 1)
    fd.add_output(fd.ops.squeeze(fd.ops.log(total) + high - picked, [1]))


@_fusion("resize", Arg("B W"), Arg("B W", Int, values="below B"))
def gathered_columns(fd: FusionDefinition, x: Any, index: Any) -> None:
    fd.add_output(fd.ops.gather(x * 2.0, index, 0))


# --- in place ---------------------------------------------------------------------------------------------------------


@_fusion("in place", Arg("R C"))
def increment(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(x + 1.0, x)


@_fusion("in place", Arg("C"), Arg("C"), Arg("C"))
def momentum_step(fd: FusionDefinition, p: Any, g: Any, m: Any) -> None:
    updated = m * 0.9 + g
    fd.add_output(updated, m)
    fd.add_output(p - updated * 0.1, p)


@_fusion("in place", Arg("C"), Arg("C"), Arg("C"), Arg("C", values="positive"), Num(Double, 0.01))
def adam_step(fd: FusionDefinition, p: Any, g: Any, m: Any, v: Any, rate: Any) -> None:
    first = m * 0.9 + g * 0.1
    second = v * 0.999 + g * g * 0.001
    fd.add_output(first, m)
    fd.add_output(second, v)
    fd.add_output(p - first / (fd.ops.sqrt(second) + 1.0e-8) * rate, p)


@_fusion("in place", Arg("R C"), Arg("R C"))
def swap(fd: FusionDefinition, x: Any, y: Any) -> None:
    fd.add_output(fd.ops.set(y), x)
    fd.add_output(fd.ops.set(x), y)


@_fusion("in place", Arg("R C"))
def update_and_return(fd: FusionDefinition, x: Any) -> None:
    y = x * 2.0
    fd.add_output(y, x)
    fd.add_output(x + 3.0)


@_fusion("in place", Arg("R C"), Arg("C"), empty=False)
def running_mean(fd: FusionDefinition, x: Any, mean: Any) -> None:
    _, batch = fd.ops.var_mean(x, [0])
    fd.add_output(mean * 0.9 + batch * 0.1, mean)
    fd.add_output(x - _like(fd, x, batch, [1]))


@_fusion("in place", Arg("R C"), Arg("C R"))
def swap_transposed(fd: FusionDefinition, x: Any, y: Any) -> None:
    fd.add_output(fd.ops.permute(y, [1, 0]), x)
    fd.add_output(fd.ops.permute(x, [1, 0]), y)


@_fusion("in place", Arg("R C"), Arg("B"))
def view_of_the_old_value(fd: FusionDefinition, x: Any, y: Any) -> None:
    fd.add_output(fd.ops.permute(x, [1, 0]))
    fd.add_output(y * 2.0)
    fd.add_output(x + 1.0, x)


@_fusion("in place", Arg("R C", values="whole"), Arg("B"))
def view_of_the_new_value(fd: FusionDefinition, x: Any, y: Any) -> None:
    updated = x + 1.0
    fd.add_output(updated, x)
    fd.add_output(y * 2.0)
    fd.add_output(fd.ops.permute(updated, [1, 0]))
    fd.add_output(fd.ops.sum(updated, [0]))
    fd.add_output(fd.ops.sum(updated, [1]))


@_fusion("in place", Arg("C"), Arg("C"))
def one_value_into_two_inputs(fd: FusionDefinition, x: Any, y: Any) -> None:
    total = x + y
    fd.add_output(total, x)
    fd.add_output(total, y)


# --- reductions -------------------------------------------------------------------------------------------------------


@_fusion("reduction", Arg("R C", values="whole"))
def inner_sum(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sum(x, [1]))


@_fusion("reduction", Arg("C R", values="whole"))
def outer_sum(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sum(x, [0]))


@_fusion("reduction", Arg("R C", values="whole"))
def full_sum(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sum(x))


@_fusion("reduction", Arg("A B C", values="whole"))
def middle_sum(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sum(x, [1]))


@_fusion("reduction", Arg("A B C", values="whole"))
def outer_and_inner_sum(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sum(x, [0, 2]))


@_fusion("reduction", Arg("R C", Half, values="whole"))
def half_column_sum(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sum(x, [0]))


@_fusion("reduction", Arg("R C"))
def maximum_and_minimum(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.max(x, [1]))
    fd.add_output(fd.ops.min(x, [1]))


@_fusion("reduction", Arg("R C", values="positive"))
def product_of_rows(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.prod(fd.ops.rsqrt(x), [1]))


@_fusion("reduction", Arg("R C", order=(1, 0), values="whole"))
def column_major_row_sum(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sum(x, [1]))


@_fusion("reduction", Arg("R C"), Arg("R C"))
def squared_error(fd: FusionDefinition, x: Any, y: Any) -> None:
    d = x - y
    fd.add_output(fd.ops.sum(d * d))


@_fusion("reduction", Arg("R C", values="whole"), Arg("C", values="whole"))
def weighted_sum(fd: FusionDefinition, x: Any, w: Any) -> None:
    fd.add_output(fd.ops.sum(x * _like(fd, x, w, [1]), [1]))


@_fusion("reduction", Arg("R C", values="whole"))
def sum_then_scale(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.relu(fd.ops.sum(x, [1])) * 0.5)


@_fusion("reduction", Arg("4 8 16", values="whole"))
def static_reduction(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sum(x, [0, 2]))


# --- scans ------------------------------------------------------------------------------------------------------------


@_fusion("scan", Arg("R C", values="whole"))
def running_sum(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.cumsum(x, 1))


@_fusion("scan", Arg("C R", values="whole"))
def running_sum_of_columns(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.cumsum(x, 0))


@_fusion("scan", Arg("A B C", Int))
def running_sum_in_the_middle(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.cumsum(x, 1, 7))


@_fusion("scan", Arg("R C", order=(1, 0)))
def running_extremes_of_column_major_rows(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.cummax(x, 1))
    fd.add_output(fd.ops.cummin(x, 1, 0.5))


@_fusion("scan", Arg("R C", Half), Arg("R"), Arg("C"), Arg("R C", Bool))
def masked_weighted_running_sum(fd: FusionDefinition, x: Any, scale: Any, bias: Any, mask: Any) -> None:
    weighted = fd.ops.cast(x, Float) * _like(fd, x, scale, [0])
    total = fd.ops.cumsum(fd.ops.where(mask, weighted, 0.0), 1)
    fd.add_output(fd.ops.cast(total + _like(fd, x, bias, [1]), Half))


@_fusion("scan", Arg("R C", values="whole"), Num(Double, 2.0))
def running_sum_of_a_running_sum(fd: FusionDefinition, x: Any, start: Any) -> None:
    first = fd.ops.cumsum(x, 1, start)
    fd.add_output(first)
    fd.add_output(fd.ops.cumsum(first, 1) - x)


@_fusion("scan", Arg("R C", values="whole"))
def increments_summed_in_place(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.cumsum(x, 1), x)


# --- Welford ----------------------------------------------------------------------------------------------------------


@_fusion("welford", Arg("R C"), empty=False)
def variance_of_rows(fd: FusionDefinition, x: Any) -> None:
    variance, mean = fd.ops.var_mean(x, [1], 0)
    fd.add_output(variance)
    fd.add_output(mean)


@_fusion("welford", Arg("A B C"), empty=False)
def variance_of_channels(fd: FusionDefinition, x: Any) -> None:
    variance, mean = fd.ops.var_mean(x, [0, 2], 0)
    fd.add_output(variance)
    fd.add_output(mean)


@_fusion("welford", Arg("R C"), empty=False)
def welford_triple(fd: FusionDefinition, x: Any) -> None:
    for t in fd.ops.welford(x, [0]):
        fd.add_output(t)


# --- normalisations ---------------------------------------------------------------------------------------------------


@_fusion("norm", Arg("R C"))
def softmax(fd: FusionDefinition, x: Any) -> None:
    e = fd.ops.exp(x - fd.ops.max(x, 1, keepdim=True))
    fd.add_output(e / fd.ops.sum(e, 1, keepdim=True))


@_fusion("norm", Arg("R C", BFloat16))
def log_softmax(fd: FusionDefinition, x: Any) -> None:
    x = fd.ops.cast(x, Float)
    shifted = x - fd.ops.max(x, 1, keepdim=True)
    fd.add_output(fd.ops.cast(shifted - fd.ops.log(fd.ops.sum(fd.ops.exp(shifted), 1, keepdim=True)), BFloat16))


@_fusion("norm", Arg("R C", Half), Arg("C", Half), Arg("C", Half), empty=False)
def layer_norm(fd: FusionDefinition, x: Any, w: Any, b: Any) -> None:
    wide = fd.ops.cast(x, Float)
    variance, mean = fd.ops.var_mean(wide, [1], 0, True)
    y = (wide - mean) * fd.ops.rsqrt(variance + 1.0e-5)
    fd.add_output(fd.ops.cast(y * _like(fd, x, w, [1]) + _like(fd, x, b, [1]), Half))
    fd.add_output(mean)


@_fusion("norm", Arg("R C"), Arg("C"), empty=False)
def rms_norm(fd: FusionDefinition, x: Any, w: Any) -> None:
    mean = fd.ops.sum(x * x, [1], True) / x.size(1)
    fd.add_output(x * fd.ops.rsqrt(mean + 1.0e-6) * _like(fd, x, w, [1]))


@_fusion("norm", Arg("A B H W"), empty=False)
def batch_norm(fd: FusionDefinition, x: Any) -> None:
    variance, mean = fd.ops.var_mean(x, [0, 2, 3], 0, True)
    fd.add_output((x - mean) * fd.ops.rsqrt(variance + 1.0e-3))


@_fusion("norm", Arg("C R"))
def outer_softmax(fd: FusionDefinition, x: Any) -> None:
    e = fd.ops.exp(x - fd.ops.max(x, 0, keepdim=True))
    fd.add_output(e / fd.ops.sum(e, 0, keepdim=True))


# --- losses -----------------------------------------------------------------------------------------------------------


@_fusion("loss", Arg("R C"), Arg("R", Int))
def cross_entropy(fd: FusionDefinition, logits: Any, labels: Any) -> None:
    m = fd.ops.max(logits, 1, keepdim=True)
    e = fd.ops.sum(fd.ops.exp(logits - m), 1, keepdim=True)
    logp = logits - m - fd.ops.log(e)
    column = fd.ops.broadcast(fd.ops.iota(logits.size(1)), [True, False])
    picked = fd.ops.where(fd.ops.eq(column, fd.ops.broadcast(fd.ops.abs(labels), [False, True])), logp, 0.0)
    fd.add_output(fd.ops.neg(fd.ops.sum(picked, [1])))


@_fusion("loss", Arg("R C"), Arg("R C"))
def huber(fd: FusionDefinition, x: Any, y: Any) -> None:
    d = fd.ops.abs(x - y)
    fd.add_output(fd.ops.sum(fd.ops.where(fd.ops.lt(d, 1.0), d * d * 0.5, d - 0.5)))


@_fusion("loss", Arg("R C"), Arg("R C", Bool))
def masked_mean(fd: FusionDefinition, x: Any, mask: Any) -> None:
    count = fd.ops.sum(fd.ops.cast(mask, Float))
    fd.add_output(fd.ops.sum(fd.ops.where(mask, x, 0.0)) / (count + 1.0))


# --- factories --------------------------------------------------------------------------------------------------------


@_fusion("factory", Arg("R C"))
def add_positions(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(x + fd.ops.broadcast(fd.ops.cast(fd.ops.iota(x.size(1)), Float), [True, False]))


@_fusion("factory", SizeOf("C"), Num(Double, 2.5))
def full_of_a_scalar(fd: FusionDefinition, n: Any, value: Any) -> None:
    fd.add_output(fd.ops.full([n], value, Float))


@_fusion("factory", SizeOf("R"))
def computed_extent(fd: FusionDefinition, n: Any) -> None:
    fd.add_output(fd.ops.full([n * 2 + 1, 3], 1.5, Double))


@_fusion("factory", SizeOf("C"))
def iota_alone(fd: FusionDefinition, n: Any) -> None:
    fd.add_output(fd.ops.iota(n, 3, 2))


# --- random numbers ---------------------------------------------------------------------------------------------------


@_fusion("random", Arg("R C", BFloat16), Num(Int, 7), Num(Int, 2**40 + 3))
def dropout(fd: FusionDefinition, x: Any, seed: Any, offset: Any) -> None:
    drawn = fd.ops.uniform(0.0, 1.0, x.shape(), rng_seed=seed, rng_offset=offset, dtype=BFloat16)
    fd.add_output(fd.ops.cast(x * (drawn >= 0.1) * (1.0 / 0.9), BFloat16))


@_fusion("random", Arg("R C"), Arg("", Int), Arg("", Int))
def noise_of_a_state_in_memory(fd: FusionDefinition, x: Any, seed: Any, offset: Any) -> None:
    fd.add_output(x + fd.ops.normal(0.5, 2.0, x.shape(), rng_seed=seed, rng_offset=offset))


@_fusion("random", Arg("A B C", order=(1, 2, 0)), Num(Double, -1.5))
def uniform_of_another_order(fd: FusionDefinition, x: Any, low: Any) -> None:
    row = fd.ops.uniform(low, 4.0, [x.size(2)], rng_seed=-1, rng_offset=5, dtype=Half)
    fd.add_output(x + fd.ops.uniform(low, 4.0, x.shape(), rng_seed=2, rng_offset=6) + row)


@_fusion("random", Arg("R C", BFloat16), empty=False)
def dropout_before_a_normalisation(fd: FusionDefinition, x: Any) -> None:
    kept = x * (fd.ops.uniform(0.0, 1.0, x.shape(), rng_seed=11, rng_offset=12) >= 0.25)
    variance, mean = fd.ops.var_mean(kept, [1], 0, True)
    fd.add_output((kept - mean) * fd.ops.rsqrt(variance + 1.0e-3))
    fd.add_output(fd.ops.cast(kept, BFloat16))


@_fusion("random", SizeOf("R"), SizeOf("C"))
def random_numbers_alone(fd: FusionDefinition, rows: Any, columns: Any) -> None:
    fd.add_output(fd.ops.uniform(-1.0, 1.0, [rows, columns], rng_seed=3, rng_offset=4, dtype=Double))
    fd.add_output(fd.ops.normal(0.0, 1.0, [rows, columns], rng_seed=3, rng_offset=4, dtype=Half))


# --- other dtypes -----------------------------------------------------------------------------------------------------


@_fusion("integers", Arg("R C", Int32), Arg("R C", Int32))
def bit_operations(fd: FusionDefinition, x: Any, y: Any) -> None:
    fd.add_output((x & y) ^ ((x | y) << 2))


@_fusion("integers", Arg("R C", Int))
def integer_row_sums(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sum(x * x, [1]))


@_fusion("integers", Arg("R C", Bool))
def count_of_true(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sum(x, [0]))


@_fusion("complex", Arg("R C", D.ComplexFloat), Arg("R C", D.ComplexFloat))
def complex_product(fd: FusionDefinition, x: Any, y: Any) -> None:
    fd.add_output(x * y)


@_fusion("complex", Arg("R C", D.ComplexDouble))
def complex_sum(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sum(x, [1]))


# --- several segments -------------------------------------------------------------------------------------------------


@_fusion("segments", Arg("R C", values="whole"))
def area_sums(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.cumsum(fd.ops.cumsum(x, 0), 1))
    fd.add_output(fd.ops.sum(fd.ops.cumsum(x, 1), [1]))


@_fusion("segments", Arg("R C", values="whole"))
def sums_both_ways(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sum(x, [0]))
    fd.add_output(fd.ops.sum(x, [1]))


@_fusion("segments", Arg("R C"))
def forced_boundary(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.segment_set(fd.ops.exp(x)) * 2.0)


@_fusion("segments", Arg("R C"), Arg("C R"))
def unrelated_halves(fd: FusionDefinition, x: Any, y: Any) -> None:
    fd.add_output(x * 2.0)
    fd.add_output(fd.ops.sum(y, [0]))


@_fusion("segments", Arg("R C"), empty=False)
def norm_rows_then_columns(fd: FusionDefinition, x: Any) -> None:
    rows = x / (fd.ops.sum(fd.ops.abs(x), [1], True) + 1.0)
    fd.add_output(rows / (fd.ops.sum(fd.ops.abs(rows), [0], True) + 1.0))


@_fusion("segments", Arg("R C"), Arg("C"), Arg("R C"), empty=False)
def layer_norm_backward(fd: FusionDefinition, x: Any, w: Any, grad: Any) -> None:
    n = x.size(1)
    variance, mean = fd.ops.var_mean(x, [1], 0, True)
    inverse = fd.ops.rsqrt(variance + 1.0e-5)
    normed = (x - mean) * inverse
    scaled = grad * _like(fd, x, w, [1])
    a = fd.ops.sum(scaled, [1], True) / n
    b = fd.ops.sum(scaled * normed, [1], True) / n
    fd.add_output((scaled - a - normed * b) * inverse)
    fd.add_output(fd.ops.sum(grad * normed, [0]))
    fd.add_output(fd.ops.sum(grad, [0]))


@_fusion("segments", Arg("R C", values="positive"), Arg("R H", values="positive"), empty=False)
def ratio_of_sums(fd: FusionDefinition, x: Any, y: Any) -> None:
    fd.add_output(fd.ops.sum(x, [1]) / fd.ops.sum(y, [1]))


@_fusion("segments", Arg("R C"), Arg("H"), Num(Double, 1.0))
def clipped_to_their_norm(fd: FusionDefinition, x: Any, y: Any, limit: Any) -> None:
    norm = fd.ops.sqrt(fd.ops.sum(x * x) + fd.ops.sum(y * y))
    factor = limit / (norm + 1.0e-6)
    fd.add_output(x * factor, x)
    fd.add_output(y * factor, y)
    fd.add_output(norm)


@_fusion("segments", Arg("C"), Arg("R C", values="whole"))
def view_read_by_two_segments(fd: FusionDefinition, b: Any, x: Any) -> None:
    row = fd.ops.broadcast(b, [True, False])
    fd.add_output(row)
    fd.add_output(fd.ops.sum(row + x, [0]))
    fd.add_output(fd.ops.sum(row + x, [1]))


@_fusion("segments", Arg("R C", values="whole"))
def scaled_by_column_sum(fd: FusionDefinition, x: Any) -> None:
    total = fd.ops.sum(x, [0])
    fd.add_output(fd.ops.permute(x, [1, 0]) * fd.ops.broadcast(total, [False, True]))
