"""Random definitions of a few ops over one row-by-column space, from a seed: more kernels than one, views, updates in place.

    case = generate(seed)        definition, NumPy arguments

Grammar
    value := full [R, C] | turned [C, R] | rows [R] | columns [C] | row_means [R, 1] | column_means [1, C] | point []
    op    := unary | binary of equal shapes or with a broadcast | reduction | scan | broadcast | permute | segment_set

Values are whole numbers that Double and Int hold exactly, whatever the order of summation: results are compared bit by bit.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser import DataType, FusionDefinition

Array = np.ndarray[Any, Any]

CASES, PER_TEST = 120, 10
"""Seeds that tests take, and how many of them one test takes."""

SIZES = ((3, 5), (4, 8), (6, 12), (1, 7), (6, 1), (33, 20), (7, 130), (2, 64), (0, 4))

# Shapes that combine elementwise with a first one, and the shape of the result.
_JOINED = {
    ("full", "row_means"): "full",
    ("full", "column_means"): "full",
    ("full", "point"): "full",
    ("rows", "point"): "rows",
    ("columns", "point"): "columns",
    ("row_means", "column_means"): "full",
    ("turned", "point"): "turned",
}
_REDUCED = {
    "full": (
        ("rows", [1], False),
        ("columns", [0], False),
        ("row_means", [1], True),
        ("column_means", [0], True),
        ("point", [0, 1], False),
    ),
    "turned": (("columns", [1], False), ("rows", [0], False), ("point", [0, 1], False)),
    "rows": (("point", [0], False),),
    "columns": (("point", [0], False),),
}


@dataclass(frozen=True, slots=True, eq=False)
class RandomFusion:
    """`seed` makes it again. `only_views`: no output has to be computed."""

    seed: int
    fd: FusionDefinition
    inputs: list[Array]
    only_views: bool


@dataclass(slots=True, eq=False)
class _Value:
    tensor: Any
    shape: str
    is_view: bool


def generate(seed: int) -> RandomFusion:
    """The definition of a seed."""
    rng = random.Random(seed)
    rows, columns = rng.choice(SIZES)
    extents = {"full": (rows, columns), "turned": (columns, rows), "rows": (rows,), "columns": (columns,), "point": ()}
    dtype = rng.choice((DataType.Double, DataType.Int))
    only_views = rng.random() < 0.08
    values: list[_Value] = []
    inputs: list[Array] = []
    with FusionDefinition() as fd:
        for _ in range(rng.randint(1, 3)):
            shape = rng.choice(("full", "full", "full", "rows", "columns", "turned", "point"))
            sizes = extents[shape]
            tensor = fd.define_tensor([-1] * len(sizes), True, dtype)
            numbers = np.random.default_rng(seed + len(inputs)).integers(-4, 5, sizes)
            inputs.append(np.asarray(numbers).astype(dtype.numpy))
            values.append(_Value(tensor, shape, True))
        sources = list(values)
        for _ in range(rng.randint(0, 2) if only_views else rng.randint(2, 12)):
            made = _view(fd, rng, rng.choice(values)) if only_views else _op(fd, rng, values, dtype)
            if made is not None:
                values.append(made)
        _outputs(fd, rng, values, sources, only_views)
    return RandomFusion(seed, fd, inputs, only_views)


def _view(fd: FusionDefinition, rng: random.Random, value: _Value) -> _Value | None:
    match value.shape:
        case "full" | "turned":
            return _Value(
                fd.ops.permute(value.tensor, [1, 0]), "turned" if value.shape == "full" else "full", value.is_view
            )
        case "rows":
            return _Value(fd.ops.broadcast(value.tensor, [False, True]), "row_means", value.is_view)
        case "columns":
            return _Value(fd.ops.broadcast(value.tensor, [True, False]), "column_means", value.is_view)
        case "row_means":
            return _Value(fd.ops.squeeze(value.tensor, [1]), "rows", value.is_view)
        case "column_means":
            return _Value(fd.ops.squeeze(value.tensor, [0]), "columns", value.is_view)
        case _:
            return None


def _op(fd: FusionDefinition, rng: random.Random, values: list[_Value], dtype: DataType) -> _Value | None:
    ops = fd.ops
    seed = rng.randrange(1 << 40)
    a = rng.choice(values[-5:] if rng.random() < 0.7 else values)
    kind = rng.random()
    if kind < 0.25:
        unary: list[Callable[[Any], Any]] = [
            ops.neg,
            ops.abs,
            ops.set,
            lambda t: t + 1,
            lambda t: t * 2,
            lambda t: ops.where(ops.gt(t, 0), t, ops.neg(t) + 3),
            lambda t: t + ops.cast(ops.floor(ops.uniform(-4.0, 4.0, t.shape(), rng_seed=seed, rng_offset=1)), dtype),
        ]
        return _Value(rng.choice(unary)(a.tensor), a.shape, False)
    if kind < 0.30:
        return _Value(ops.segment_set(a.tensor), a.shape, False)
    if kind < 0.65:
        binary: list[Callable[[Any, Any], Any]] = [ops.add, ops.sub, ops.maximum, ops.minimum]
        if dtype is DataType.Int:
            binary.append(ops.mul)
        partners = [v for v in values if v.shape == a.shape or (a.shape, v.shape) in _JOINED]
        b = rng.choice(partners)
        shape = a.shape if a.shape == b.shape else _JOINED[a.shape, b.shape]
        return _Value(rng.choice(binary)(a.tensor, b.tensor), shape, False)
    if kind < 0.85 and a.shape in _REDUCED:
        shape, dims, keepdim = rng.choice(_REDUCED[a.shape])
        reduction = rng.choice((ops.sum, ops.sum, ops.max, ops.min))
        return _Value(reduction(a.tensor, dims, keepdim), shape, False)
    if kind < 0.93 and a.shape in _REDUCED:
        scan = rng.choice((ops.cumsum, ops.cumsum, ops.cummax, ops.cummin))
        dim = rng.randrange(2 if a.shape in ("full", "turned") else 1)
        return _Value(scan(a.tensor, dim, rng.choice((None, 2))), a.shape, False)
    return _view(fd, rng, a)


def _outputs(
    fd: FusionDefinition, rng: random.Random, values: list[_Value], sources: list[_Value], only_views: bool
) -> None:
    for value in rng.sample(values[-6:], min(rng.randint(1, 4), len(values[-6:]))):
        fd.add_output(value.tensor)
        if rng.random() < 0.1:
            fd.add_output(value.tensor)
    if rng.random() < 0.15:
        fd.add_output(rng.choice(sources).tensor)
    if only_views or rng.random() < 0.5:
        return
    updated: set[int] = set()
    for _ in range(rng.randint(1, 2)):
        target = rng.choice(sources)
        candidates = [v for v in values if v.shape == target.shape and v is not target and v not in sources]
        if candidates and id(target) not in updated:
            updated.add(id(target))
            fd.add_output(rng.choice(candidates).tensor, target.tensor)
