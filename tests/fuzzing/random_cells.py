"""Random definitions whose innermost dims are few elements: stacked, interleaved, sliced, repeated and packed values.

    fd, arguments, expected = generate(seed)

Values are [m, n] or [n], each with a NumPy twin. They come from inputs of that shape, from broadcast ones, and from slices of
inputs [.., n, k], [.., n * k] and [.., k, n]; results are such values, stacks of them [.., n, k], those as [.., n * k],
repeated values, and stacks with the new dim before n. Values are small whole numbers, which every dtype holds exactly.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from fuser import DataType, FusionDefinition
from tests.fuzzing.random_reshapes import laid_out

_DTYPES = (DataType.Float, DataType.Half, DataType.BFloat16, DataType.Int32, DataType.Double)
_EXTENTS = (1, 3, 8, 12, 16, 24, 33, 64)
_CELLS = (1, 2, 3, 4, 5, 8)


class _Program:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.dtype = self.rng.choice(_DTYPES)
        self.fd = FusionDefinition()
        self.ops: Any = self.fd.ops
        self.arguments: list[Any] = []
        self.shape = tuple(self.rng.choice(_EXTENTS) for _ in range(self.rng.choice((1, 2, 2))))
        self.symbolic = self.rng.random() < 0.5
        self.results: list[Any] = []

    def input(self, shape: tuple[int, ...]) -> tuple[Any, Any]:
        declared = [-1 if self.symbolic and n != 1 else n for n in shape]
        is_odd = self.rng.random() < 0.3
        dense = [None if n == 1 else not is_odd for n in declared]
        x = self.numbers.integers(-3, 4, shape).astype(self.dtype.numpy)
        self.arguments.append(laid_out(self.rng, x) if is_odd else x)
        return self.fd.define_tensor(declared, dense, self.dtype), x

    def value(self) -> list[tuple[Any, Any]]:
        """Some values."""
        o, shape, k = self.ops, self.shape, self.rng.choice(_CELLS)
        lead = list(range(len(shape)))
        kind = self.rng.choice(("plain", "cell", "cell", "flat", "flat", "before", "row"))
        if kind == "plain":
            return [self.input(shape)]
        if kind == "row":
            t, x = self.input(shape[-1:])
            return [(o.broadcast_in_dim(t, list(shape), lead[-1:]), np.broadcast_to(x, shape))]
        if kind == "before":
            t, x = self.input((*shape[:-1], k, shape[-1]))
            t, x = o.permute(t, [*lead[:-1], len(shape), len(shape) - 1]), np.swapaxes(x, -1, -2)
        elif kind == "flat":
            t, x = self.input((*shape[:-1], shape[-1] * k))
            t, x = o.reshape(t, [*shape, k]), x.reshape(*shape, k)
        else:
            t, x = self.input((*shape, k))
        chosen = self.rng.sample(range(k), self.rng.randint(1, k))
        return [(self.pick(t, i), x[..., i]) for i in chosen]

    def pick(self, t: Any, i: int) -> Any:
        n = len(self.shape)
        return self.ops.squeeze(self.ops.slice(t, [0] * n + [i], [*self.shape, i + 1]), [n])

    def run(self) -> tuple[FusionDefinition, list[Any], list[Any]]:
        """The definition."""
        with self.fd:
            values = [v for _ in range(self.rng.randint(1, 3)) for v in self.value()]
            for _ in range(self.rng.randint(0, 3)):
                (a, x), (b, y) = self.rng.choice(values), self.rng.choice(values)
                values.append((self.ops.cast(a + b, self.dtype), (x + y).astype(self.dtype.numpy)))
            for _ in range(self.rng.choice((1, 1, 2))):
                t, x = self.result(values)
                self.fd.add_output(t)
                self.results.append(np.ascontiguousarray(x))
        return self.fd, self.arguments, self.results

    def result(self, values: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        o, shape, n = self.ops, self.shape, len(self.shape)
        lead = list(range(n))
        kind = self.rng.choice(("value", "stack", "stack", "flat", "flat", "repeat", "before"))
        k = self.rng.choice(_CELLS)
        if kind == "value":
            t, x = self.rng.choice(values)
            return o.neg(t), -x
        if kind == "repeat":
            t, x = self.rng.choice(values)
            t = o.expand(o.broadcast_in_dim(o.neg(t), [*shape, 1], lead), [*shape, k])
            return o.reshape(t, [*shape[:-1], shape[-1] * k]), np.repeat(-x, k, -1)
        chosen = [self.rng.choice(values) for _ in range(max(k, 2))]
        at = n - 1 if kind == "before" else n
        places = [d for d in range(n + 1) if d != at]
        full = list(shape)
        full.insert(at, 1)
        t = o.cat([o.broadcast_in_dim(t, full, places) for t, _ in chosen], at)
        x = np.stack([x for _, x in chosen], at)
        if kind == "flat":
            return o.reshape(t, [*shape[:-1], shape[-1] * len(chosen)]), x.reshape(*shape[:-1], -1)
        return t, x


def generate(seed: int) -> tuple[FusionDefinition, list[Any], list[Any]]:
    """Definition, arguments and expected results."""
    return _Program(seed).run()
