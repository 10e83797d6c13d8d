"""The ops that random definitions are made of: each takes the steps so far and adds one, or none where no value suits it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fuser import DataType
from tests.fuzzing.random_steps import MOST_ELEMENTS, Array, Step, Steps, combine, joined_ones, rounding

_BEHIND = 1_000_000
"""Behind the end of any dim."""
_WIDE = {DataType.Half: DataType.Float, DataType.BFloat16: DataType.Float}

_EXACT_UNARY: tuple[tuple[str, Callable[[Array], Any], str], ...] = (
    # name, on numbers, of which kinds of dtype
    ("neg", np.negative, "fi"),
    ("abs", np.abs, "fi"),
    ("relu", lambda x: np.maximum(x, 0), "fi"),
    ("sign", np.sign, "fi"),
    ("floor", np.floor, "f"),
    ("round", np.round, "f"),
    ("trunc", np.trunc, "f"),
    ("frac", lambda x: x - np.trunc(x), "f"),
    ("isfinite", np.isfinite, "f"),
    ("logical_not", lambda x: x == 0, "fib"),
    ("bitwise_not", np.invert, "ib"),
    ("set", lambda x: x, "fib"),
    ("segment_set", lambda x: x, "fib"),
)
_CONTINUOUS = ("neg", "abs", "relu", "set", "segment_set")
_ROUNDED_UNARY: tuple[tuple[str, Callable[[Array], Any], float], ...] = (
    # name, on numbers, the largest operand
    ("exp", np.exp, 6),
    ("sigmoid", lambda x: 1 / (1 + np.exp(-x)), 50),
    ("tanh", np.tanh, 50),
    ("sin", np.sin, 50),
    ("silu", lambda x: x / (1 + np.exp(-x)), 50),
)
_BINARY: tuple[tuple[str, Callable[[Array, Array], Any]], ...] = (
    ("add", np.add),
    ("sub", np.subtract),
    ("mul", np.multiply),
    ("maximum", np.maximum),
    ("minimum", np.minimum),
)
_DECIDING: tuple[tuple[str, Callable[[Array, Array], Any]], ...] = (
    ("lt", np.less),
    ("ge", np.greater_equal),
    ("eq", np.equal),
    ("logical_and", np.logical_and),
)


def _kind(step: Step) -> str:
    return "f" if step.is_float else "i" if step.is_integer else "b"


def unary(s: Steps) -> None:
    """An op that is exact for multiples of a quarter."""
    name, on_numbers, kinds = s.rng.choice(_EXACT_UNARY)
    i = s.pick(lambda v: _kind(v) in kinds and (v.error == 0 or name in _CONTINUOUS))
    if i is not None:
        x = s.steps[i]
        s.add([i], lambda fd, t: getattr(fd.ops, name)(t), on_numbers(x.wide), x.ones, error=x.error)


def rounded_unary(s: Steps) -> None:
    """A function whose derivative is not above that of exp, on small numbers."""
    name, on_numbers, limit = s.rng.choice(_ROUNDED_UNARY)
    i = s.pick(lambda v: v.is_float and v.largest <= limit and v.error < 1e-3)
    if i is not None:
        x = s.steps[i]
        made = np.asarray(on_numbers(x.wide))
        largest = float(np.max(np.abs(made), initial=1))
        error = 2 * x.error * max(1.0, largest) + 8 * rounding(_WIDE.get(x.dtype, x.dtype), largest * max(1, x.largest))
        s.add([i], lambda fd, t: getattr(fd.ops, name)(t), made, x.ones, error=error)


def root(s: Steps) -> None:
    """The reciprocal of a square root, away from zero."""
    i = s.pick(lambda v: v.is_float and v.error == 0 and v.largest <= 64)
    if i is not None:
        x = s.steps[i]
        s.add(
            [i],
            lambda fd, t: fd.ops.rsqrt(fd.ops.add(fd.ops.mul(t, t), 1.0)),
            1 / np.sqrt(x.wide * x.wide + 1),
            x.ones,
            error=8 * rounding(_WIDE.get(x.dtype, x.dtype), 1),
        )


def binary(s: Steps) -> None:
    """Arithmetic of two values, of any two dtypes."""
    name, on_numbers = s.rng.choice(_BINARY)
    i = s.pick(lambda v: v.dtype is not DataType.Bool)
    if i is None:
        return
    k = s.partner(i)
    x, y = s.steps[i], s.steps[k]
    # A tensor of rank 0 takes the kind of the other one, and numbers that it has no room for would be cut.
    if (x.ndim == 0) != (y.ndim == 0) and _kind(x) != _kind(y):
        return
    error = x.error + y.error if name != "mul" else x.error * y.largest + y.error * x.largest + x.error * y.error
    made = on_numbers(*(v.wide.astype(np.float64 if x.is_float or y.is_float else np.int64) for v in (x, y)))
    s.add([i, k], lambda fd, a, b: getattr(fd.ops, name)(a, b), made, joined_ones(x, y), error=error)


def deciding(s: Steps) -> None:
    """A comparison of exact numbers."""
    name, on_numbers = s.rng.choice(_DECIDING)
    i = s.pick(lambda v: v.error == 0)
    if i is None:
        return
    k = s.partner(i)
    x, y = s.steps[i], s.steps[k]
    if y.error or ((x.ndim == 0) != (y.ndim == 0) and x.dtype is not y.dtype):
        return
    made = on_numbers(x.wide, y.wide)
    s.add([i, k], lambda fd, a, b: getattr(fd.ops, name)(a, b), made, joined_ones(x, y))


def quotient(s: Steps) -> None:
    """A division by at least one, or what it leaves."""
    i = s.pick(lambda v: v.is_float and v.error == 0 and v.largest <= 1000)
    if i is None:
        return
    k = s.partner(i)
    x, y = s.steps[i], s.steps[k]
    if y.error or not y.is_float or y.largest > 1000 or (x.ndim == 0) != (y.ndim == 0):
        return
    divisor = np.abs(y.wide) + 1
    name, made, is_exact = s.rng.choice(
        (
            ("div", x.wide / divisor, False),
            ("fmod", np.fmod(x.wide, divisor), True),
            ("remainder", np.remainder(x.wide, divisor), True),
        )
    )
    dtype = DataType.Double if DataType.Double in (x.dtype, y.dtype) else DataType.Float
    s.add(
        [i, k],
        lambda fd, a, b: getattr(fd.ops, name)(a, fd.ops.add(fd.ops.abs(b), 1.0)),
        made,
        joined_ones(x, y),
        error=0 if is_exact else 4 * rounding(dtype, x.largest),
    )


def choice(s: Steps) -> None:
    """`where` of three values, or of two and a number."""
    i = s.pick(lambda v: v.dtype is DataType.Bool)
    if i is None:
        return
    k = s.partner(i)
    c, x = s.steps[i], s.steps[k]
    if x.ndim == 0 or x.dtype is DataType.Bool:
        return
    if s.rng.random() < 0.5:
        number = s.rng.choice((0.0, 1.5, -2.0) if x.is_float else (0, 3))
        made = np.where(c.wide, x.wide, number)
        s.add([i, k], lambda fd, a, b: fd.ops.where(a, b, number), made, joined_ones(c, x), error=x.error)
        return
    m = s.pick(lambda v: v.dtype is x.dtype and v.ndim > 0 and combine(v, x) and combine(v, c))
    if m is not None:
        y = s.steps[m]
        made = np.where(c.wide, x.wide, y.wide)
        error = max(x.error, y.error)
        s.add([i, k, m], lambda fd, a, b, d: fd.ops.where(a, b, d), made, joined_ones(c, x, y), error=error)


def cast(s: Steps) -> None:
    dtype = s.rng.choice((*_WIDE, DataType.Float, DataType.Double, DataType.Int, DataType.Int32, DataType.Bool))
    is_float = dtype.is_floating
    i = s.pick(lambda v: is_float or v.error == 0)
    if i is not None:
        x = s.steps[i]
        s.add([i], lambda fd, t: fd.ops.cast(t, dtype), x.wide, x.ones, error=x.error)


def clamp(s: Steps) -> None:
    i = s.pick(lambda v: v.dtype is not DataType.Bool)
    if i is not None:
        x = s.steps[i]
        low, high = (s.rng.choice((None, -2.0)), 2.5) if x.is_float else (s.rng.choice((None, -2)), 5)
        made = np.clip(x.wide, low, high)
        s.add([i], lambda fd, t: fd.ops.clamp(t, low, high), made, x.ones, error=x.error)


def with_scalar(s: Steps) -> None:
    """Arithmetic with a number, or with a scalar input."""
    i = s.pick(lambda v: v.ndim > 0 and v.dtype is not DataType.Bool)
    if i is None:
        return
    x = s.steps[i]
    name, on_numbers = s.rng.choice(_BINARY)
    number = s.rng.choice((2.0, -0.5, 1.25) if x.is_float else (2, -3))
    made, error = on_numbers(x.wide, np.asarray(number)), (2 if name == "mul" else 1) * x.error
    if s.rng.random() < 0.5:
        s.add([i], lambda fd, t: getattr(fd.ops, name)(t, number), made, x.ones, error=error)
    else:
        s.add([i, s.scalar(number)], lambda fd, t, c: getattr(fd.ops, name)(t, c), made, x.ones, error=error)


# --- reductions and scans ---------------------------------------------------------------------------------------------


def _some_dims(s: Steps, x: Step) -> list[int]:
    return sorted(s.rng.sample(range(x.ndim), s.rng.randint(1, x.ndim)))


def _reduced_ones(x: Step, dims: Sequence[int], keepdim: bool) -> list[bool]:
    return [d in dims or one for d, one in enumerate(x.ones) if keepdim or d not in dims]


def reduction(s: Steps) -> None:
    name = s.rng.choice(("sum", "sum", "max", "min"))
    i = s.pick(lambda v: v.ndim > 0 and (name == "sum" or v.wide.size > 0))
    if i is None:
        return
    x = s.steps[i]
    dims, keepdim = _some_dims(s, x), s.rng.random() < 0.5
    count = math.prod(x.shape[d] for d in dims)
    # A dim may be counted from either end.
    given = [d - x.ndim if s.rng.random() < 0.3 else d for d in dims]
    wide = x.wide.astype(np.float64 if x.is_float else np.int64)
    if name == "sum":
        if x.largest * count > 1e6:
            return
        made, error = np.sum(wide, tuple(dims), keepdims=keepdim), x.error * count
        dtype = s.rng.choice((None, None, DataType.Double))
        extra = () if dtype is None else (dtype,)
    else:
        made = (np.max if name == "max" else np.min)(x.wide, tuple(dims), keepdims=keepdim)
        error, extra = x.error, ()
    ones = _reduced_ones(x, dims, keepdim)
    s.add([i], lambda fd, t: getattr(fd.ops, name)(t, given, keepdim, *extra), made, ones, error=error)


def statistics(s: Steps) -> None:
    """Mean or variance."""
    i = s.pick(lambda v: v.ndim > 0 and v.is_float and v.largest <= 1000)
    if i is None:
        return
    x = s.steps[i]
    dims, keepdim, correction = _some_dims(s, x), s.rng.random() < 0.5, s.rng.choice((0, 0, 1))
    count = math.prod(x.shape[d] for d in dims)
    if count <= correction:
        return
    axes, ones, dtype = tuple(dims), _reduced_ones(x, dims, keepdim), _WIDE.get(x.dtype, x.dtype)
    large = max(1.0, x.largest)
    error = 8 * (x.error + rounding(dtype, large))
    if s.rng.random() < 0.5:
        made = np.mean(x.wide, axes, keepdims=keepdim)
        s.add([i], lambda fd, t: fd.ops.var_mean(t, dims, correction, keepdim)[1], made, ones, error=error)
    else:
        made = np.var(x.wide, axes, ddof=correction, keepdims=keepdim)
        s.add([i], lambda fd, t: fd.ops.var(t, dims, correction, keepdim), made, ones, error=error * large)


def scan(s: Steps) -> None:
    name = s.rng.choice(("cumsum", "cumsum", "cummax", "cummin"))
    i = s.pick(lambda v: v.ndim > 0 and v.dtype is not DataType.Bool and v.wide.size < 6000)
    if i is None:
        return
    x = s.steps[i]
    dim = s.rng.randrange(x.ndim)
    if x.largest * x.shape[dim] > 1500:
        return
    on_numbers = {"cumsum": np.cumsum, "cummax": np.maximum.accumulate, "cummin": np.minimum.accumulate}[name]
    made = on_numbers(x.wide, axis=dim) if x.wide.size else x.wide
    s.add([i], lambda fd, t: getattr(fd.ops, name)(t, dim), made, x.ones, error=x.error * max(1, x.shape[dim]))


def normalisation(s: Steps) -> None:
    """A softmax or layer norm over some dims."""
    i = s.pick(lambda v: v.ndim > 0 and v.is_float and v.wide.size > 0 and v.largest <= 50 and v.error < 1e-3)
    if i is None:
        return
    x, rng = s.steps[i], s.rng
    dims, dtype = _some_dims(s, x), _WIDE.get(x.dtype, x.dtype)
    axes = tuple(dims)
    narrow = x.dtype is not dtype and rng.random() < 0.6
    kind = rng.choice(("softmax", "layer norm", "rms norm"))

    def define(fd: Any, t: Any) -> Any:
        o = fd.ops
        t = o.cast(t, dtype)
        if kind == "softmax":
            e = o.exp(o.sub(t, o.max(t, dims, True)))
            made = o.div(e, o.sum(e, dims, True))
        elif kind == "layer norm":
            variance, mean = o.var_mean(t, dims, 0, True)
            made = o.mul(o.sub(t, mean), o.rsqrt(o.add(variance, 1.0)))
        else:
            made = o.mul(t, o.rsqrt(o.add(o.mul(o.sum(o.mul(t, t), dims, True), 0.125), 1.0)))
        return o.cast(made, x.dtype) if narrow else made

    if kind == "softmax":
        e = np.exp(x.wide - x.wide.max(axes, keepdims=True))
        made = e / e.sum(axes, keepdims=True)
    elif kind == "layer norm":
        made = (x.wide - x.wide.mean(axes, keepdims=True)) / np.sqrt(x.wide.var(axes, keepdims=True) + 1)
    else:
        made = x.wide / np.sqrt((x.wide * x.wide).sum(axes, keepdims=True) / 8 + 1)
    error = 64 * (x.error + rounding(dtype, x.largest)) * max(1.0, x.largest)
    s.add([i], define, made, x.ones, error=error)


# --- views, windows, indices, factories -------------------------------------------------------------------------------


def _extent(s: Steps) -> tuple[int, tuple[int, int] | None]:
    """An extent for an op that is told one, and the tensor and dim that it is asked of; None: it is written as a number."""
    if s.is_static or s.rng.random() < 0.2:
        return s.rng.choice((*s.extents, 1)), None
    i = s.pick(lambda v: v.ndim > 0)
    if i is None:
        return 1, None
    dim = s.rng.randrange(s.steps[i].ndim)
    return s.steps[i].shape[dim], (i, dim)


def _is_one(s: Steps, extent: tuple[int, tuple[int, int] | None]) -> bool:
    """Whether the extent is known to be 1 when it is defined."""
    number, owner = extent
    return number == 1 and (owner is None or s.steps[owner[0]].ones[owner[1]])


def _asked(fd: Any, extent: tuple[int, tuple[int, int] | None], tensors: Iterator[Any]) -> Any:
    """The extent as the op is told it; `tensors`: of those that are asked, in order."""
    number, owner = extent
    return number if owner is None else fd.ops.size(next(tensors), owner[1])


def broadcast_in_dim(s: Steps) -> None:
    i = s.pick(lambda v: v.ndim < 4)
    if i is None:
        return
    x, rng = s.steps[i], s.rng
    rank = rng.randint(max(1, x.ndim), 4)
    places = sorted(rng.sample(range(rank), x.ndim))
    extents = [_extent(s) for _ in range(rank)]
    for k, (place, n, one) in enumerate(zip(places, x.shape, x.ones, strict=True)):
        if rng.random() < 0.5 or not one:
            extents[place] = n, None if s.is_static else (i, k)
    shape = [n for n, _ in extents]
    source = [1] * rank
    for place, n in zip(places, x.shape, strict=True):
        source[place] = n
    owners = [owner[0] for _, owner in extents if owner is not None]
    if s.draws.said(math.prod(shape) <= MOST_ELEMENTS):
        made = np.broadcast_to(x.wide.reshape(source), shape)
        ones = [_is_one(s, e) for e in extents]

        def define(fd: Any, t: Any, *asked: Any) -> Any:
            tensors = iter(asked)
            return fd.ops.broadcast_in_dim(t, [_asked(fd, e, tensors) for e in extents], places)

        s.add([i, *owners], define, made, ones, error=x.error)


def expand(s: Steps) -> None:
    i = s.pick(lambda v: any(v.ones))
    if i is None:
        return
    x = s.steps[i]
    extents = [_extent(s) if one else (-1, None) for one in x.ones]
    shape = [n if n != -1 else m for (n, _), m in zip(extents, x.shape, strict=True)]
    owners = [owner[0] for _, owner in extents if owner is not None]
    if s.draws.said(math.prod(shape) <= MOST_ELEMENTS):
        ones = [one and (e[0] == -1 or _is_one(s, e)) for one, e in zip(x.ones, extents, strict=True)]
        made = np.broadcast_to(x.wide, shape)

        def define(fd: Any, t: Any, *asked: Any) -> Any:
            tensors = iter(asked)
            return fd.ops.expand(t, [_asked(fd, e, tensors) for e in extents])

        s.add([i, *owners], define, made, ones, error=x.error)


def turned(s: Steps, i: int) -> int | None:
    """A value with its dims in another order."""
    x = s.steps[i]
    order = s.rng.sample(range(x.ndim), x.ndim)
    made, ones = x.wide.transpose(order), [x.ones[d] for d in order]
    return s.add([i], lambda fd, t: fd.ops.permute(t, order), made, ones, error=x.error)


def turn(s: Steps) -> None:
    """`permute`, or the same elements in another order of memory."""
    i = s.pick(lambda v: v.ndim > 0)
    if i is None:
        return
    if s.rng.random() < 0.6:
        turned(s, i)
        return
    x = s.steps[i]
    order = s.rng.sample(range(x.ndim), x.ndim)
    s.add([i], lambda fd, t: fd.ops.stride_order(t, order), x.wide, x.ones, error=x.error)


def reshape(s: Steps) -> None:
    i = s.pick(lambda v: v.ndim > 0 and v.wide.size > 0)
    if i is None:
        return
    x, rng = s.steps[i], s.rng
    shape, rest = [], x.wide.size
    while rest > 1 and len(shape) < 3:
        shape.append(rng.choice([n for n in range(1, rest + 1) if rest % n == 0]))
        rest //= shape[-1]
    shape.append(rest)
    rng.shuffle(shape)
    if rng.random() < 0.3:
        shape.insert(rng.randrange(len(shape) + 1), 1)
    asked = list(shape)
    if rng.random() < 0.3:
        asked[rng.randrange(len(asked))] = -1
    ones = [n == 1 for n in shape]
    s.add([i], lambda fd, t: fd.ops.reshape(t, asked), x.wide.reshape(shape), ones, error=x.error)


def flatten(s: Steps, i: int) -> int | None:
    """A value with some neighbouring dims as one, whatever their extents are."""
    x = s.steps[i]
    if x.ndim < 2 or not s.draws.said(x.wide.size > 0):
        return None
    first = s.rng.randrange(x.ndim - 1)
    end = s.rng.randint(first + 2, x.ndim)
    made = x.wide.reshape((*x.shape[:first], -1, *x.shape[end:]))
    ones = [*x.ones[:first], all(x.ones[first:end]), *x.ones[end:]]

    def define(fd: Any, t: Any) -> Any:
        sizes = [1 if one else fd.ops.size(t, d) for d, one in enumerate(x.ones)]
        return fd.ops.reshape(t, [*sizes[:first], -1, *sizes[end:]])

    return s.add([i], define, made, ones, error=x.error)


def merge(s: Steps) -> None:
    i = s.pick(lambda v: v.ndim > 1)
    if i is not None:
        flatten(s, i)


def squeeze(s: Steps) -> None:
    i = s.pick(lambda v: any(v.ones))
    if i is None:
        return
    x = s.steps[i]
    dims = [d for d, one in enumerate(x.ones) if one and s.rng.random() < 0.7]
    if dims:
        ones = [one for d, one in enumerate(x.ones) if d not in dims]
        s.add([i], lambda fd, t: fd.ops.squeeze(t, dims), x.wide.squeeze(tuple(dims)), ones, error=x.error)


def window(s: Steps) -> None:
    """A slice, along one dim more often than along all."""
    i = s.pick(lambda v: v.ndim > 0)
    if i is None:
        return
    x, rng = s.steps[i], s.rng
    begin = [rng.randint(0, n) for n in x.shape]
    end = [rng.randint(b, n + 1) for b, n in zip(begin, x.shape, strict=True)]
    # An end is clamped to the extent.
    end = [_BEHIND if rng.random() < 0.2 else e for e in end]
    if rng.random() < 0.6:
        kept = rng.randrange(x.ndim)
        begin = [b if d == kept else 0 for d, b in enumerate(begin)]
        end = [e if d == kept else 1 if one else _BEHIND for d, (e, one) in enumerate(zip(end, x.ones, strict=True))]
    steps = [rng.choice((1, 1, 1, 2, 3)) if n > 1 else 1 for n in x.shape]
    made = x.wide[tuple(slice(b, e, k) for b, e, k in zip(begin, end, steps, strict=True))]
    s.add([i], lambda fd, t: fd.ops.slice(t, begin, end, steps), made, _window_ones(x, made), error=x.error)


def _window_ones(x: Step, made: Array) -> list[bool]:
    """A dim that is as long as before is what it was before."""
    return [one if n == m else m == 1 for n, m, one in zip(x.shape, made.shape, x.ones, strict=True)]


def pad(s: Steps) -> None:
    i = s.pick(lambda v: v.ndim > 0)
    if i is None:
        return
    x, rng = s.steps[i], s.rng
    dims = rng.randint(1, x.ndim)
    widths = [rng.choice((0, 0, 1, 2, 5)) for _ in range(2 * dims)]
    around = [(0, 0)] * (x.ndim - dims) + [(widths[2 * k], widths[2 * k + 1]) for k in reversed(range(dims))]
    fill = rng.choice((None, 1.5 if x.is_float else 3 if x.is_integer else True))
    made = np.pad(x.wide, around, constant_values=0 if fill is None else fill)
    extra = () if fill is None else (fill,)
    s.add([i], lambda fd, t: fd.ops.pad(t, widths, *extra), made, _window_ones(x, made), error=x.error)


def cat(s: Steps) -> None:
    i = s.pick(lambda v: v.ndim > 0)
    if i is None:
        return
    x = s.steps[i]
    dim = s.rng.randrange(x.ndim)

    def others(v: Step) -> list[tuple[int, bool]]:
        return [p for d, p in enumerate(zip(v.shape, v.ones, strict=True)) if d != dim]

    found = [
        k
        for k in (s.pick(lambda v: v.dtype is x.dtype and v.ndim == x.ndim and others(v) == others(x)),)
        if k is not None
    ]
    parts = [i, *(s.rng.choice((i, *found)) for _ in range(s.rng.randint(1, 2)))]
    made = np.concatenate([s.steps[k].wide for k in parts], dim)
    # One element and nothing else: a definition knows that of static extents alone.
    ones = [one and d != dim for d, one in enumerate(x.ones)]
    s.add(parts, lambda fd, *t: fd.ops.cat(list(t), dim), made, ones, error=max(s.steps[k].error for k in parts))


def chosen(s: Steps) -> None:
    """Elements along a dim that indices say."""
    i = s.pick(lambda v: v.ndim > 0 and v.wide.size > 0)
    if i is None:
        return
    x, rng = s.steps[i], s.rng
    dim = rng.randrange(x.ndim)
    count, n = rng.choice([e for e in s.extents if e] or [1]), x.shape[dim]
    name = rng.choice(("index_select", "select", "gather", "take_along_axis"))
    if name == "select":
        at = rng.randrange(n)
        ones = [one for d, one in enumerate(x.ones) if d != dim]
        s.add([i], lambda fd, t: fd.ops.select(t, at, dim), x.wide.take(at, dim), ones, error=x.error)
        return
    shape = [count if d == dim else m for d, m in enumerate(x.shape)]
    if not s.draws.said(math.prod(shape) <= MOST_ELEMENTS):
        return
    if name == "index_select":
        k = s.index((count,), n, (False,))
        made = x.wide.take(s.steps[k].wide, dim)
    else:
        k = s.index(shape, n, [one and d != dim for d, one in enumerate(x.ones)])
        made = np.take_along_axis(x.wide, s.steps[k].wide, dim)
    ones = [one and d != dim for d, one in enumerate(x.ones)]
    s.add([i, k], lambda fd, t, index: getattr(fd.ops, name)(t, index, dim), made, ones, error=x.error)


def factory(s: Steps) -> None:
    rng = s.rng
    dtype: DataType | None = None
    number = 0.0
    if rng.random() < 0.5:
        extents = [_extent(s)]
        made = np.arange(extents[0][0]) * 2 + 3
    else:
        extents = [_extent(s) for _ in range(rng.randint(1, 3))]
        dtype, number = rng.choice(((DataType.Float, 2.5), (DataType.Int, 2), (DataType.BFloat16, -0.5)))
        shape = [n for n, _ in extents]
        if not s.draws.said(math.prod(shape) <= MOST_ELEMENTS):
            return
        made = np.full(shape, number)

    def define(fd: Any, *asked: Any) -> Any:
        tensors = iter(asked)
        sizes = [_asked(fd, e, tensors) for e in extents]
        return fd.ops.iota(sizes[0], 3, 2) if dtype is None else fd.ops.full(sizes, number, dtype)

    s.add([o[0] for _, o in extents if o is not None], define, made, [_is_one(s, e) for e in extents])


def triangle(s: Steps) -> None:
    i = s.pick(lambda v: v.ndim >= 2)
    if i is not None:
        x, diagonal = s.steps[i], s.rng.randint(-2, 3)
        s.add([i], lambda fd, t: fd.ops.triu(t, diagonal), np.triu(x.wide, diagonal), x.ones, error=x.error)


OPS: tuple[Callable[[Steps], None], ...] = (
    *(
        unary,
        unary,
        unary,
        unary,
        rounded_unary,
        root,
        binary,
        binary,
        binary,
        deciding,
        quotient,
        choice,
        cast,
        clamp,
        with_scalar,
    ),
    *(reduction, reduction, reduction, statistics, scan, scan, normalisation, normalisation),
    *(
        broadcast_in_dim,
        expand,
        turn,
        reshape,
        merge,
        merge,
        squeeze,
        window,
        pad,
        cat,
        chosen,
        chosen,
        factory,
        triangle,
    ),
)
"""Every op, the more often the more there is to find."""
