"""Random definitions that reshape tensors between elementwise ops, reductions, permutations and slices, from a seed.

    case = generate(seed)               definition, NumPy arguments, some of them not dense
    case = generate(seed, odd=True)     the same of shapes whose extents repeat, with dims of one element that are symbols and
                                        have any stride, and gaps between rows

Every value is reshaped in many ways: dims are merged, split, both, given as numbers, as extents of other dims or as -1; extents
are static or symbolic. Values are whole numbers that Double holds exactly, whatever the order of summation: results are
compared bit by bit.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser import DataType, FusionDefinition
from tests.fuzzing.random_fusions import RandomFusion

_TOTALS = (24, 48, 60, 64, 96, 128)
_SQUARES = (9, 16, 36, 64, 81, 144)


def square_shape(rng: random.Random, total: int) -> list[int]:
    """Extents of this product, most of them equal, and some that are 1."""
    root = round(total**0.5)
    shape = rng.choice([[root, root], [total], [root, root], [root // 2, 2, root] if root % 2 == 0 else [root, root]])
    for _ in range(rng.randint(0, 2)):
        shape = [*shape]
        shape.insert(rng.randrange(len(shape) + 1), 1)
    return shape


def laid_out(rng: random.Random, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array with gaps, its dims turned in memory, and other strides of dims of one element, each now and then."""
    if rng.random() < 0.4:
        array = np.repeat(array, 2, -1)[..., ::2] if rng.random() < 0.3 else _with_gap(array)
    if rng.random() < 0.4:
        order = rng.sample(range(array.ndim), array.ndim)
        array = np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))
    ones = rng.choice([None, 0, 3, 1000])
    strides = [
        s if n != 1 or ones is None else ones * array.itemsize for n, s in zip(array.shape, array.strides, strict=True)
    ]
    return np.lib.stride_tricks.as_strided(array, array.shape, strides)


def _with_gap(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    wide = np.zeros((*array.shape[:-1], array.shape[-1] + 2), array.dtype)
    wide[..., :-2] = array
    return wide[..., :-2]


def some_shape(rng: random.Random, total: int) -> list[int]:
    """Extents of this product, a 1 among them now and then."""
    shape: list[int] = []
    for _ in range(rng.randint(0, 3)):
        n = rng.choice([d for d in range(1, total + 1) if total % d == 0])
        shape.append(n)
        total //= n
    shape.append(total)
    rng.shuffle(shape)
    if rng.random() < 0.2:
        shape.insert(rng.randrange(len(shape) + 1), 1)
    return shape


class _Program:
    """Values so far, with their shapes for the inputs at hand."""

    def __init__(self, seed: int, odd: bool) -> None:
        self.odd = odd
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.fd = FusionDefinition()
        self.inputs: list[Any] = []
        self.values: list[tuple[Any, tuple[int, ...]]] = []

    def input(self, shape: Sequence[int]) -> Any:
        """A new tensor argument, static or symbolic, dense or with its dims turned in memory."""
        symbolic = self.rng.random() < 0.5
        if self.odd:
            drawn = self.numbers.integers(-4, 5, shape).astype(np.float64)
            self.inputs.append(laid_out(self.rng, drawn))
            declared = [-1 if symbolic else n for n in shape]
            return self.fd.define_tensor(declared, [None if n == 1 else False for n in declared], DataType.Double)
        array = self.numbers.integers(-4, 5, shape).astype(np.float64)
        if self.rng.random() < 0.3:
            array = np.asfortranarray(array)
        self.inputs.append(array)
        return self.fd.define_tensor([-1 if symbolic and n != 1 else n for n in shape], True, DataType.Double)

    def add(self, tensor: Any, shape: Sequence[int]) -> None:
        """A value to go on with."""
        assert tensor.ndim == len(shape)
        self.values.append((tensor, tuple(shape)))

    def step(self) -> None:
        """One more op."""
        rng, ops = self.rng, self.fd.ops
        x, shape = rng.choice(self.values[-4:])
        rank = len(shape)
        axes = sorted(rng.sample(range(rank), rng.randint(1, max(1, rank - 1))))
        match rng.choice(("unary", "binary", "reshape", "reshape", "reshape", "reduce", "norm", "view", "slice")):
            case "unary":
                self.add(rng.choice((ops.neg, ops.set, lambda t: t * 2))(x), shape)
            case "binary":
                self.add(ops.add(x, rng.choice([v for v, s in self.values if s == shape])), shape)
            case "reshape":
                self.reshape(x, shape)
            case "reduce" if rank > 1:
                keepdim = rng.random() < 0.5
                kept = [1 if d in axes else n for d, n in enumerate(shape) if keepdim or d not in axes]
                self.add(ops.sum(x, axes, keepdim=keepdim), kept)
            case "norm" if rank > 1:
                self.add(ops.sub(x, ops.max(x, axes, keepdim=True)), shape)
            case "view":
                order = rng.sample(range(rank), rank)
                self.add(ops.permute(x, order), [shape[d] for d in order])
            case "slice" if shape[axes[0]] > 2:
                starts, ends = [0] * rank, list(shape)
                starts[axes[0]] = 1
                self.add(ops.slice(x, starts, ends), [e - s for s, e in zip(starts, ends, strict=True)])
            case _:
                pass

    def reshape(self, x: Any, shape: tuple[int, ...]) -> None:
        """x under other dims."""
        total = math.prod(shape)
        is_square = self.odd and round(total**0.5) ** 2 == total
        wanted = square_shape(self.rng, total) if is_square else some_shape(self.rng, total)
        given: list[Any] = list(wanted)
        for i, n in enumerate(wanted):
            same = [d for d, m in enumerate(shape) if m == n != 1]
            if same and self.rng.random() < 0.4:
                given[i] = x.size(self.rng.choice(same))
        if self.rng.random() < 0.3:
            given[self.rng.randrange(len(given))] = -1
        self.add(self.fd.ops.reshape(x, given), wanted)


def generate(seed: int, *, odd: bool = False) -> RandomFusion:
    """The definition of a seed."""
    made = _Program(seed, odd)
    rng = made.rng
    total = rng.choice(_SQUARES if odd else _TOTALS)
    with made.fd as fd:
        for _ in range(rng.randint(1, 3)):
            shape = square_shape(rng, total) if odd else some_shape(rng, total)
            made.add(made.input(shape), shape)
        sources = list(made.values)
        for _ in range(rng.randint(3, 9)):
            made.step()
        for value, _ in made.values[-rng.randint(1, 3) :]:
            fd.add_output(value)
        updates = [(v, s) for v, s in made.values[len(sources) :] for _, shape in sources[:1] if s == shape]
        if updates and rng.random() < 0.3:
            fd.add_output(rng.choice(updates)[0], sources[0][0])
    return RandomFusion(seed, fd, made.inputs, False)
