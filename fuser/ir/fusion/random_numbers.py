"""Random numbers in NumPy: what kernels compute, bit by bit for uniform numbers. Philox4x32-10 and what is made of its words.

Philox (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) turns a counter of 128 bits and a key of 64
into four words of 32, without any state:

    key      seed
    counter  (offset, position), 64 bits each, low word first
    position i // m of the element with logical row-major linear index i; it takes lane i % m
    m        4, and 2 for Double: an element takes one word (w0 w1 w2 w3), a Double two ((w0 w1), (w2 w3))

So a number depends on (seed, offset, i) alone: neither on the schedule, nor on strides, nor on how many kernels there are.

    unit     Float   (w + 0.5) * 2**-32, w rounded to Float first
             Double  (k + 0.5) * 2**-53, k the upper 53 bits of the two words, the first of them on top
             both in (0, 1]: the sum may round to 1
    uniform  low + u * (high - low), each step rounded, with u = unit or 0 where that is 1; rounded to the result's dtype;
             `low` where that is not below `high`. An empty interval gives `low`
    normal   mean + std * sqrt(-2 log(u1)) * (cos(2 pi u2) on even lanes, sin(2 pi u2) on odd ones), by Box and Muller. u1 and
             u2 are the units of lanes 2k and 2k + 1 for Float; Double lanes share one call: u1 is the unit of lane 0, u2 of
             lane 1
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fuser.ir.fusion.fusion import Distribution
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.op_table import compute_dtype, numpy_cast

Array = npt.NDArray[Any]
Words = tuple[Array, Array, Array, Array]

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def lanes_of(dtype: DataType) -> int:
    """Elements of `dtype` that one call of Philox serves."""
    return 2 if dtype is DataType.Double else 4


def philox(seed: Array | int, offset: Array | int, position: Array | int) -> Words:
    """Four words (uint64 arrays below 2**32) for each (seed, offset, position); integers of 64 bits, signed or not."""
    key = _halves(seed)
    c0, c1 = _halves(offset)
    c2, c3 = _halves(position)
    k0, k1 = key
    first, second = (np.uint64(m) for m in MULTIPLIERS)
    step0, step1 = (np.uint64(s) for s in KEY_STEPS)
    for _ in range(ROUNDS):
        a, b = first * c0, second * c2
        c0, c1, c2, c3 = (b >> _HALF) ^ c1 ^ k0, b & _LOW, (a >> _HALF) ^ c3 ^ k1, a & _LOW
        k0, k1 = (k0 + step0) & _LOW, (k1 + step1) & _LOW
    c0, c1, c2, c3 = np.broadcast_arrays(c0, c1, c2, c3)
    return c0, c1, c2, c3


def random_values(
    distribution: Distribution,
    seed: Array | int,
    offset: Array | int,
    index: Array | int,
    parameters: tuple[Array | float, Array | float],
    dtype: DataType,
) -> Array:
    """Numbers of `dtype` for elements with the linear indices `index`; parameters as `Distribution` says."""
    compute = compute_dtype(dtype)
    index = np.asarray(index, np.int64)
    lanes = lanes_of(dtype)
    words = philox(seed, offset, index // lanes)
    first, second = (np.asarray(numpy_cast(np.asarray(p), compute)) for p in parameters)
    with np.errstate(all="ignore"):
        if distribution is Distribution.uniform:
            return _uniform(_unit(words, index % lanes, compute), first, second, dtype)
        z = _standard_normal(words, index % lanes, compute)
        return np.asarray(numpy_cast(np.asarray(first + second * z), dtype))


def _halves(value: Array | int) -> tuple[Array, Array]:
    """The lower and the upper 32 bits."""
    if isinstance(value, int):
        value = np.asarray(value % (1 << 64), np.uint64)
    bits = np.asarray(value).astype(np.uint64)
    return np.asarray(bits & _LOW), np.asarray(bits >> _HALF)


def _unit(words: Words, lane: Array, compute: DataType) -> Array:
    if compute is DataType.Double:
        high, low = (np.where(lane == 0, a, b) for a, b in ((words[0], words[2]), (words[1], words[3])))
        whole = ((high << _HALF) | low) >> np.uint64(11)
        return np.asarray(whole.astype(np.float64) * 2.0**-53 + 2.0**-54)
    word = np.select([lane == 0, lane == 1, lane == 2], words[:3], words[3])
    return np.asarray(word.astype(np.float32) * np.float32(2.0**-32) + np.float32(2.0**-33))


def _uniform(unit: Array, low: Array, high: Array, dtype: DataType) -> Array:
    u = np.where(unit >= 1, unit.dtype.type(0), unit)
    rounded = np.asarray(numpy_cast(np.asarray(low + u * (high - low)), dtype))
    # The upper end is what `dtype` makes of it, which may lie below the number given.
    end = numpy_cast(np.asarray(numpy_cast(high, dtype)), compute_dtype(dtype))
    return np.where(numpy_cast(rounded, compute_dtype(dtype)) >= end, numpy_cast(low, dtype), rounded)


def _standard_normal(words: Words, lane: Array, compute: DataType) -> Array:
    first = np.zeros_like(lane) if compute is DataType.Double else lane - lane % 2
    # Float rounds once at the end: its functions are more precise than the type in kernels, too.
    u1, u2 = (_unit(words, at, compute).astype(np.float64) for at in (first, first + 1))
    angle = 2 * np.pi * u2
    z = np.sqrt(-2 * np.log(u1)) * np.where(lane % 2 == 0, np.cos(angle), np.sin(angle))
    return np.asarray(z.astype(compute.numpy))
