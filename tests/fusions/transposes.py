"""Fusions whose inputs and outputs are laid out along different dims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser import DataType, FusionDefinition

Array = np.ndarray[Any, Any]

Define = Callable[[FusionDefinition], None]

BFloat16, Float, Half, Double, Int32, Bool = (
    DataType.BFloat16,
    DataType.Float,
    DataType.Half,
    DataType.Double,
    DataType.Int32,
    DataType.Bool,
)


def turned(dtype: DataType) -> Define:
    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1, -1], True, dtype)
        fd.add_output(fd.ops.set(fd.ops.permute(x, [1, 0])))

    return define


def rounded_plus(dtype: DataType) -> Define:
    def define(fd: FusionDefinition) -> None:
        x, y = fd.define_tensor([-1, -1], True, dtype), fd.define_tensor([-1, -1], True, dtype)
        fd.add_output(fd.ops.cast(fd.ops.add(fd.ops.permute(x, [1, 0]), y), dtype))

    return define


def added(fd: FusionDefinition) -> None:
    x, y = fd.define_tensor([-1, -1], True, Float), fd.define_tensor([-1, -1], True, Float)
    fd.add_output(fd.ops.permute(x, [1, 0]) + y)


def mixed(fd: FusionDefinition) -> None:
    x, y = fd.define_tensor([-1, -1], True, BFloat16), fd.define_tensor([-1, -1], True, Float)
    fd.add_output(fd.ops.cast(fd.ops.permute(x, [1, 0]), Float) + y)


def both_ways(fd: FusionDefinition) -> None:
    """Inputs, outputs and operands of both layouts, with a row and a column operand."""
    x, y = fd.define_tensor([-1, -1], True, Float), fd.define_tensor([-1, -1], True, Float)
    row, column = fd.define_tensor([-1], True, Float), fd.define_tensor([-1], True, Float)
    t = fd.ops.permute(x, [1, 0]) * 2.0 + y
    t = t + fd.ops.broadcast(row, [True, False]) + fd.ops.broadcast(column, [False, True])
    fd.add_output(t)
    fd.add_output(fd.ops.permute(t, [1, 0]) * 3.0)


def channels_last(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1] * 4, True, Half)
    fd.add_output(fd.ops.neg(fd.ops.permute(x, [0, 2, 3, 1])))


def reversed_dims(fd: FusionDefinition) -> None:
    fd.add_output(fd.ops.neg(fd.ops.permute(fd.define_tensor([-1] * 3, True, Float), [2, 1, 0])))


def whole(shape: Sequence[int], dtype: DataType = Float) -> Array:
    return np.random.default_rng(0).integers(-8, 8, tuple(shape)).astype(dtype.numpy)
