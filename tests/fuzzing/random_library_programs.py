"""Random definitions that mix pointwise ops, reductions, views and random layouts with library calls.

Sizes are between 1 and 4, static or not. Floats alone, so that the reference evaluator bounds what comes out.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from fuser import FusionDefinition

Array = np.ndarray[Any, Any]


def generate(rng: random.Random, steps: int = 8) -> tuple[FusionDefinition, list[Array]]:
    """A definition and inputs for it."""
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    arrays: list[Array] = []
    fd = FusionDefinition()
    with fd:
        pool: list[tuple[Any, tuple[int, ...]]] = []

        def new_input(shape: tuple[int, ...]) -> Any:
            array = numbers.uniform(-1, 1, shape).astype(np.float32)
            if len(shape) > 1 and rng.random() < 0.3:
                array = np.swapaxes(np.ascontiguousarray(np.swapaxes(array, -1, -2)), -1, -2)
            arrays.append(array)
            return fd.from_array(array, static_sizes=rng.random() < 0.5)

        def size(low: int = 1) -> int:
            return rng.randint(low, 4)

        for _ in range(2):
            shape = tuple(size(2) for _ in range(rng.randint(2, 3)))
            pool.append((new_input(shape), shape))
        for _ in range(steps):
            tensor, shape = rng.choice(pool)
            pool.append(_step(fd, rng, tensor, shape, new_input, size))
        shown = {len(pool) - 1, *(k for k in range(2, len(pool)) if rng.random() < 0.25)}
        for k in sorted(shown):
            fd.add_output(pool[k][0])
    return fd, arrays


def _step(fd: FusionDefinition, rng: random.Random, t: Any, shape: tuple[int, ...], new_input: Any, size: Any) -> Any:
    ops = fd.ops
    rank = len(shape)
    kinds = ["unary", "unary", "scale"]
    if rank >= 1:
        kinds += ["matmul", "linear", "matmul", "sum"]
    if rank >= 2:
        kinds += ["permute", "merge", "transposed"]
    if rank <= 3:
        kinds += ["split", "broadcast"]
    match rng.choice(kinds):
        case "unary":
            return rng.choice((ops.tanh, ops.neg, ops.relu, ops.sigmoid))(t), shape
        case "scale":
            return ops.mul(t, 0.5), shape
        case "matmul":
            columns = size()
            rows = () if rng.random() < 0.2 else (columns,)
            batch = shape[:-2] if rng.random() < 0.5 and rows else ()
            other = new_input((*batch, shape[-1], *rows))
            return ops.mul(ops.matmul(t, other), 0.5), (*shape[:-1], *rows)
        case "linear":
            rows = size()
            weight = new_input((rows, shape[-1]))
            bias = (new_input((rows,)),) if rng.random() < 0.5 else ()
            return ops.linear(t, weight, *bias), (*shape[:-1], rows)
        case "sum":
            d = rng.randrange(rank)
            return ops.sum(t, dims=[d]), (*shape[:d], *shape[d + 1 :])
        case "permute":
            dims = rng.sample(range(rank), rank)
            return ops.permute(t, dims), tuple(shape[d] for d in dims)
        case "transposed":
            dims = [*range(rank - 2), rank - 1, rank - 2]
            other = ops.permute(t, dims)
            return ops.matmul(t, other), (*shape[:-2], shape[-2], shape[-2])
        case "merge":
            d = rng.randrange(rank - 1)
            merged = (*shape[:d], shape[d] * shape[d + 1], *shape[d + 2 :])
            return ops.reshape(t, list(merged)), merged
        case "split":
            splits = [(d, n) for d, n in enumerate(shape) if n > 1]
            if not splits:
                return ops.tanh(t), shape
            d, n = rng.choice(splits)
            factor = next(f for f in range(2, n + 1) if n % f == 0)
            parts = (*shape[:d], n // factor, factor, *shape[d + 1 :])
            return ops.reshape(t, list(parts)), parts
        case _:
            d = rng.randint(0, rank)
            return ops.broadcast(t, [k == d for k in range(rank + 1)]), (*shape[:d], 1, *shape[d:])
