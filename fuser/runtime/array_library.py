"""Ops of libraries over arrays of NumPy or of CuPy, which have one interface: `xp` is either module.

Operands of 16 bits come as Floats; results are in the type that they were computed in, and whoever stores them rounds once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

# Arrays of either module.
Array: TypeAlias = Any
Tensors: TypeAlias = Mapping[str, Array]
Numbers: TypeAlias = Mapping[str, Any]


def compute(xp: Any, op: str, tensors: Tensors, numbers: Numbers) -> tuple[Array, ...]:
    """The results of an op of `fuser.ir.library_ops`."""
    return _OPS[op](xp, tensors, numbers)


def _matmul(xp: Any, tensors: Tensors, numbers: Numbers) -> tuple[Array, ...]:
    return (xp.matmul(tensors["arg1"], tensors["arg2"]),)


def _linear(xp: Any, tensors: Tensors, numbers: Numbers) -> tuple[Array, ...]:
    product = xp.matmul(tensors["arg1"], tensors["arg2"].T)
    bias = tensors.get("bias")
    return (product if bias is None else product + bias,)


_OPS: dict[str, Callable[[Any, Tensors, Numbers], tuple[Array, ...]]] = {
    "matmul": _matmul,
    "linear": _linear,
}
