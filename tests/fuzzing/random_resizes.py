"""Random definitions that slice, pad, join and index tensors between elementwise ops and reductions, from a seed.

    case = generate(seed)               definition, NumPy arguments
    case = generate(seed, odd=True)     the same with slices that end behind their dims, at sizes of others, or some elements
                                        before the end, and arguments laid out as in `random_reshapes`

Grammar
    value := tensor of rank 1 to 3, of any extents, with the NumPy shape it has
    op    := unary | binary of equal shapes | slice | pad | cat | roll | index_select | gather | take_along_axis | select
           | permute | broadcast | squeeze | reduction | segment_set

Shapes are static or symbolic; slices start anywhere, have steps, and may be empty. Values are whole numbers
that Double and Int hold exactly, whatever the order of summation: results are compared bit by bit.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser import DataType, FusionDefinition
from tests.fuzzing.random_fusions import RandomFusion
from tests.fuzzing.random_reshapes import laid_out

CASES, PER_TEST = 60, 10
"""Seeds that tests take, and how many of them one test takes."""

_EXTENTS = (1, 2, 3, 5, 8, 16, 20, 33, 64)
_BEHIND = 2**31 - 1


class _Program:
    """Values so far, with their shapes for the inputs at hand."""

    def __init__(self, seed: int, odd: bool) -> None:
        self.odd = odd
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.dtype = self.rng.choice((DataType.Double, DataType.Int))
        self.fd = FusionDefinition()
        self.inputs: list[Any] = []
        self.values: list[tuple[Any, tuple[int, ...]]] = []

    def input(
        self, shape: Sequence[int], dtype: DataType | None = None, *, low: int = -4, high: int = 5, joins: bool = False
    ) -> Any:
        """A new tensor argument, each extent static or symbolic. `joins`: dims of one element are broadcast."""
        symbolic = self.rng.random() < 0.4
        declared = [-1 if symbolic and (n != 1 or (self.odd and not joins)) else n for n in shape]
        kind = dtype or self.dtype
        dense = [None if n == 1 else not self.odd for n in declared]
        tensor = self.fd.define_tensor(declared, dense, kind)
        drawn = np.asarray(self.numbers.integers(low, high, shape)).astype(kind.numpy)
        self.inputs.append(laid_out(self.rng, drawn) if self.odd else drawn)
        return tensor

    def add(self, tensor: Any, shape: Sequence[int]) -> None:
        """A value to go on with."""
        assert tensor.ndim == len(shape)
        self.values.append((tensor, tuple(shape)))

    def step(self) -> None:
        """One more op."""
        rng, ops = self.rng, self.fd.ops
        x, shape = rng.choice(self.values[-4:])
        rank = len(shape)
        axis = rng.randrange(rank)
        match rng.choice(("unary", "binary", "slice", "slice", "pad", "cat", "cat", "roll", "index", "view", "reduce")):
            case "unary":
                made = [ops.neg, ops.abs, ops.set, lambda t: t + 1, lambda t: t * 2, lambda t: ops.maximum(t, 1)]
                if rng.random() < 0.1:
                    made = [ops.segment_set]
                self.add(rng.choice(made)(x), shape)
            case "binary":
                others = [v for v, s in self.values if s == shape]
                self.add(rng.choice((ops.add, ops.sub, ops.minimum))(x, rng.choice(others)), shape)
            case "slice":
                self.slice(x, shape)
            case "pad":
                widths = [(0, 0)] * rank
                left, right = rng.randint(-2, 5), rng.randint(-2, 5)
                if shape[axis] + left + right > 0:
                    widths[axis] = left, right
                flat = [w for pair in reversed(widths) for w in pair]
                fill = rng.choice((None, 3.0 if self.dtype is DataType.Double else 3))
                self.add(ops.pad(x, flat, fill), [n + a + b for n, (a, b) in zip(shape, widths, strict=True)])
            case "cat":
                others = [
                    (v, s) for v, s in self.values if s[:axis] + s[axis + 1 :] == shape[:axis] + shape[axis + 1 :]
                ]
                parts = [(x, shape), *(rng.choice(others) for _ in range(rng.randint(0, 2)))]
                parts = [(v, s) for v, s in parts if len(s) == rank]
                rng.shuffle(parts)
                total = (*shape[:axis], sum(s[axis] for _, s in parts), *shape[axis + 1 :])
                if total[axis] <= 200:
                    self.add(ops.cat([v for v, _ in parts], axis), total)
            case "roll":
                self.roll(x, shape, axis)
            case "index":
                self.index(x, shape, axis)
            case "view":
                self.view(x, shape, axis)
            case _:
                if rank > 1 and rng.random() < 0.6:
                    reduced = rng.choice((ops.sum, ops.max))(x, [axis])
                    self.add(reduced, [n for d, n in enumerate(shape) if d != axis])

    def odd_slice(self, x: Any, shape: tuple[int, ...]) -> None:
        """A part that ends behind the dim, where another value's dim does, or so many before the end."""
        starts, ends, sizes = list[int](), list[Any](), list[int]()
        for d, n in enumerate(shape):
            other, sizes_of_other = self.rng.choice(self.values)
            at = self.rng.randrange(len(sizes_of_other))
            short = self.rng.choice((1, 2, 4))
            given = [(_BEHIND, n), (_BEHIND, n), (x.size(d), n), (other.size(at), min(n, sizes_of_other[at]))]
            if short < n:
                given.append((self.fd.ops.sub(x.size(d), short), n - short))
            end, stop = self.rng.choice(given)
            start = self.rng.choice((0, 0, 0, 1, 2))
            starts.append(start if start < stop else 0)
            ends.append(end)
            sizes.append(max(stop - starts[-1], 0))
        if all(sizes):
            self.add(self.fd.ops.slice(x, starts, ends), sizes)

    def slice(self, x: Any, shape: tuple[int, ...]) -> None:
        """A part, by constants or by extents."""
        if self.odd and self.rng.random() < 0.7:
            self.odd_slice(x, shape)
            return
        starts, ends = [], []
        for n in shape:
            start = self.rng.choice((0, 0, self.rng.randint(0, n), n // 2))
            end = self.rng.choice((n, n, n + 3, self.rng.randint(start, max(start, n)), max(start, n // 2)))
            starts.append(start)
            ends.append(end)
        if any(min(e, n) <= s for s, e, n in zip(starts, ends, shape, strict=True)) and self.rng.random() < 0.9:
            return
        given = [
            x.size(d) if e == n and self.rng.random() < 0.3 else e
            for d, (e, n) in enumerate(zip(ends, shape, strict=True))
        ]
        steps = [self.rng.choice((1, 1, 1, 2, 3)) for _ in shape]
        sizes = [max(min(e, n) - s, 0) for s, e, n in zip(starts, ends, shape, strict=True)]
        self.add(
            self.fd.ops.slice(x, starts, given, steps),
            [-(-size // step) for size, step in zip(sizes, steps, strict=True)],
        )

    def roll(self, x: Any, shape: tuple[int, ...], axis: int) -> None:
        """What lies behind a place before what lies in front of it, or another piece."""
        extent = shape[axis]
        at = self.rng.choice((0, 1, extent // 2, self.rng.randint(0, extent)))
        begin = self.rng.choice((0, 0, 0, self.rng.randint(0, at)))
        starts = [[k if d == axis else 0 for d in range(len(shape))] for k in (at, begin)]
        ends = [[k if d == axis else n for d, n in enumerate(shape)] for k in (extent, at)]
        if all(shape) and 0 < at < extent and begin < at:
            made = [self.fd.ops.slice(x, *part) for part in zip(starts, ends, strict=True)]
            self.add(self.fd.ops.cat(made, axis), [n - begin if d == axis else n for d, n in enumerate(shape)])

    def index(self, x: Any, shape: tuple[int, ...], axis: int) -> None:
        """Elements at indices that an argument holds, more than once or never."""
        rng, ops = self.rng, self.fd.ops
        dtype = rng.choice((DataType.Int, DataType.Int32))
        count = rng.choice((1, 3, 8))
        if not all(shape):
            return
        match rng.choice(("index_select", "gather", "take_along_axis", "select")):
            case "index_select":
                index = self.input([count], dtype, low=0, high=shape[axis])
                self.add(ops.index_select(x, index, axis), [*shape[:axis], count, *shape[axis + 1 :]])
            case "gather":
                lengths = [count if d == axis else rng.randint(max(1, n - 1), n) for d, n in enumerate(shape)]
                index = self.input(lengths, dtype, low=0, high=shape[axis])
                self.add(ops.gather(x, index, axis), lengths)
            case "take_along_axis":
                lengths = [count if d == axis else rng.choice((1, n)) for d, n in enumerate(shape)]
                index = self.input(lengths, dtype, low=0, high=shape[axis], joins=True)
                self.add(ops.take_along_axis(x, index, axis), [count if d == axis else n for d, n in enumerate(shape)])
            case _:
                if len(shape) > 1:
                    self.add(ops.select(x, rng.randrange(shape[axis]), axis), [*shape[:axis], *shape[axis + 1 :]])

    def view(self, x: Any, shape: tuple[int, ...], axis: int) -> None:
        """The same elements under other dims."""
        if len(shape) > 1 and self.rng.random() < 0.5:
            order = list(range(len(shape)))
            self.rng.shuffle(order)
            self.add(self.fd.ops.permute(x, order), [shape[d] for d in order])
        elif len(shape) < 3:
            flags = [False] * len(shape)
            flags.insert(axis, True)
            self.add(self.fd.ops.broadcast(x, flags), [*shape[:axis], 1, *shape[axis:]])
        elif shape[axis] == 1:
            self.add(self.fd.ops.squeeze(x, [axis]), [n for d, n in enumerate(shape) if d != axis])


def generate(seed: int, *, odd: bool = False) -> RandomFusion:
    """The definition of a seed."""
    made = _Program(seed, odd)
    rng = made.rng
    with made.fd as fd:
        sources: list[tuple[Any, tuple[int, ...]]] = []
        for _ in range(rng.randint(1, 2)):
            shape = [rng.choice(_EXTENTS) for _ in range(rng.randint(1, 3))]
            while np.prod(shape) > 3000:
                shape.pop()
            made.add(made.input(shape), shape)
            sources.append(made.values[-1])
        for _ in range(rng.randint(2, 10)):
            made.step()
        last = made.values[-4:]
        for value, _ in rng.sample(last, rng.randint(1, min(3, len(last)))):
            fd.add_output(value + 1 if rng.random() < 0.5 else value)
        target, shape = sources[0]
        updates = [v for v, s in made.values if s == shape and v is not target and all(v is not t for t, _ in sources)]
        if updates and rng.random() < 0.5:
            # What others read of the input is what it held before.
            fd.add_output(rng.choice(updates) + 1, target)
    return RandomFusion(seed, made.fd, made.inputs, False)
