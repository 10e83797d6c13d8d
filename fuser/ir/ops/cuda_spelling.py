"""CUDA text of the pointwise ops, types, literals and casts, per compute dtype.

Grammar
    spelling := template with {0} {1} ... for the operands; names that start with `fuser_` are device functions
    operand  := a name, a literal of `cuda_literal`, a call or a parenthesised expression

A template uses no operand twice, so operands of any size may be substituted; what needs a value twice is a device
function (`codegen/device_functions.py`). Signed arithmetic goes through unsigned types, because it must wrap.
Math functions are the accurate ones that the compiler knows without a header.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fuser.ir.ops.dtypes import DataType, check_cast, kind_of

_DEVICE_NAME = re.compile(r"\bfuser_\w+")

CUDA_TYPES: dict[DataType, str] = {
    DataType.Double: "double",
    DataType.Float: "float",
    DataType.Half: "fuser_half",
    DataType.BFloat16: "fuser_bfloat16",
    DataType.Int: "long long",
    DataType.Int32: "int",
    DataType.UInt64: "unsigned long long",
    DataType.Index: "long long",
    DataType.Bool: "bool",
    DataType.ComplexFloat: "fuser_complex<float>",
    DataType.ComplexDouble: "fuser_complex<double>",
}


class CudaSpelling(NamedTuple):
    """Text of an op with `{i}` for its operands."""

    template: str

    @property
    def functions(self) -> tuple[str, ...]:
        """Names of the device functions and types that the text needs (their own needs not included)."""
        return device_names(self.template)

    def apply(self, *operands: str) -> str:
        """The template with the operands' texts filled in."""
        return self.template.format(*operands)


CudaRule = Callable[[DataType], CudaSpelling]
ConstantRule = Callable[[DataType, float], CudaSpelling | None]


def device_names(text: str) -> tuple[str, ...]:
    """The device functions and types that `text` names, in order of first appearance."""
    return tuple(dict.fromkeys(_DEVICE_NAME.findall(text)))


def spelled(
    *,
    floating: str | tuple[str, str] | None = None,
    integer: str | None = None,
    boolean: str | None = None,
    cplx: str | None = None,
) -> CudaRule:
    """A rule that picks a template by the kind of the compute dtype.

    `floating` is one template for both precisions or the pair (Float, Double). `{T}` stands for the name of the
    compute dtype, and for complex that of its parts. Asking for a missing kind is a TypeError.
    """
    single, double = floating if isinstance(floating, tuple) else (floating, floating)

    def rule(dtype: DataType) -> CudaSpelling:
        kind = kind_of(dtype)
        if kind == "f":
            template = double if dtype is DataType.Double else single if dtype is DataType.Float else None
        else:
            template = {"i": integer, "u": integer, "b": boolean, "c": cplx}.get(kind)
        if template is None:
            raise TypeError(f"no CUDA text for compute dtype {dtype.name}")
        part = {DataType.ComplexFloat: "float", DataType.ComplexDouble: "double"}.get(dtype, CUDA_TYPES[dtype])
        return CudaSpelling(template.replace("{T}", part))

    return rule


def math_function(name: str, *, arity: int = 1, cplx: str | None = None) -> CudaRule:
    """The library function `name` for doubles and `name` + "f" for floats."""
    arguments = ", ".join(f"{{{i}}}" for i in range(arity))
    return spelled(floating=(f"{name}f({arguments})", f"{name}({arguments})"), cplx=cplx and f"{cplx}({arguments})")


def no_cuda(dtype: DataType) -> CudaSpelling:
    """Composites and casts have no text of their own."""
    raise TypeError(f"this row has no CUDA text (asked for {dtype.name})")


_MULTIPLIED_POWERS = (-1.0, -0.5, 0.5, 1.0, 2.0, 3.0, 4.0)


def raised_to_constant(dtype: DataType, exponent: float) -> CudaSpelling | None:
    """Powers that a few multiplications or a root give: `fuser_pow` tests for them, and the tests fold away."""
    return CudaSpelling("fuser_pow({0}, {1})") if dtype.is_floating and exponent in _MULTIPLIED_POWERS else None


def divided_by_constant(dtype: DataType, divisor: float) -> CudaSpelling | None:
    """Division by a power of two is an exact product; for other divisors the reciprocal is a constant too."""
    if dtype is not DataType.Float or not 2.0**-60 <= abs(divisor) <= 2.0**60:
        return None
    if math.frexp(divisor)[0] in (0.5, -0.5):
        return CudaSpelling(f"({{0}} * {cuda_literal(1 / divisor, dtype)})")
    dividend = "{0}" if divisor > 0 else "(- {0})"
    texts = ", ".join(cuda_literal(x, dtype) for x in (abs(divisor), 1 / abs(divisor)))
    return CudaSpelling(f"fuser_divide_by({dividend}, {texts})")


def cuda_type(dtype: DataType) -> CudaSpelling:
    """The name of the type in generated text, as a spelling without operands (its `functions` define it).

    Raises TypeError for types that kernels cannot hold.
    """
    name = CUDA_TYPES.get(dtype)
    if name is None:
        raise TypeError(f"no CUDA type for {dtype.name}")
    return CudaSpelling(name)


def cuda_literal(value: complex | float | int | bool, dtype: DataType) -> str:
    """Exact text of a constant of `dtype`; the value is converted (and rounded once) first.

    Half and BFloat16 constants are their bits. Integers outside the type wrap.
    """
    match dtype:
        case DataType.Bool:
            return "true" if value != 0 else "false"
        case DataType.Int32 | DataType.Int | DataType.Index | DataType.UInt64:
            return _integer_literal(int(value.real) if isinstance(value, complex) else int(value), dtype)
        case DataType.ComplexFloat | DataType.ComplexDouble:
            number = complex(value)
            part = DataType.Float if dtype is DataType.ComplexFloat else DataType.Double
            return f"{CUDA_TYPES[dtype]}{{{cuda_literal(number.real, part)}, {cuda_literal(number.imag, part)}}}"
        case _:
            return _float_literal(value, dtype)


def _integer_literal(value: int, dtype: DataType) -> str:
    bits = 8 * dtype.itemsize
    value &= (1 << bits) - 1
    if dtype is DataType.UInt64:
        return f"{value}ull"
    if value >> (bits - 1):
        value -= 1 << bits
    suffix = "" if dtype is DataType.Int32 else "ll"
    if value == -(1 << (bits - 1)):
        return f"(-{-(value + 1)}{suffix} - 1)"  # the smallest value has no literal: its magnitude overflows
    return f"{value}{suffix}" if value >= 0 else f"(-{-value}{suffix})"


def _float_literal(value: complex | float | int, dtype: DataType) -> str:
    from fuser.ir.ops.numpy_functions import numpy_cast

    if isinstance(value, complex):
        value = value.real
    with np.errstate(all="ignore"):
        array = numpy_cast(
            np.asarray(value, np.int64 if isinstance(value, int) and _fits(value) else np.float64), dtype
        )
    if dtype.is_reduced_float:
        return f"{CUDA_TYPES[dtype]}{{0x{int(array.view(np.uint16)):04x}}}"
    number = float(array)
    if math.isfinite(number):
        text = repr(number) if dtype is DataType.Double else str(np.float32(number))
        text = text if any(c in text for c in ".e") else text + ".0"
        suffix = "" if dtype is DataType.Double else "f"
        return f"(-{text[1:]}{suffix})" if text.startswith("-") else f"{text}{suffix}"
    if dtype is DataType.Double:
        return f"__longlong_as_double(0x{int(array.view(np.uint64)):016x}ll)"
    return f"__int_as_float(0x{int(array.view(np.uint32)):08x})"


def _fits(value: int) -> bool:
    return -(1 << 63) <= value < 1 << 63


_TO_FLOAT = {DataType.Half: "fuser_half_to_float({0})", DataType.BFloat16: "fuser_bfloat16_to_float({0})"}
_CAST_SUFFIX = {
    DataType.Double: "double",
    DataType.Float: "float",
    DataType.Int: "int64",
    DataType.Index: "int64",
    DataType.Int32: "int32",
    DataType.UInt64: "uint64",
    DataType.Bool: "bool",
}


def cast_spelling(source: DataType, target: DataType) -> CudaSpelling:
    """Text that converts a value of `source` to `target`, both in their storage types.

    Floats round to nearest even once; float -> integer truncates; anything -> Bool is `!= 0`; complex -> real drops
    the imaginary part. Raises DefinitionRuntimeError for pairs that cannot be cast.
    """
    check_cast(source, target)
    return CudaSpelling(_cast_template(source, target))


def _cast_template(source: DataType, target: DataType) -> str:
    if CUDA_TYPES[source] == CUDA_TYPES[target]:
        return "{0}"
    if source.is_complex:
        if target.is_complex:
            part = "float" if target is DataType.ComplexFloat else "double"
            return f"fuser_complex_cast<{part}>({{0}})"
        if target is DataType.Bool:
            return "fuser_complex_to_bool({0})"
        part_type = DataType.Float if source is DataType.ComplexFloat else DataType.Double
        return _cast_template(part_type, target).replace("{0}", "({0}).re")
    if target.is_complex:
        part_type = DataType.Float if target is DataType.ComplexFloat else DataType.Double
        zero = "0.0f" if part_type is DataType.Float else "0.0"
        return f"{CUDA_TYPES[target]}{{{{{_cast_template(source, part_type)}, {zero}}}}}"
    if source in _TO_FLOAT:
        widened = _TO_FLOAT[source]
        return widened if target is DataType.Float else _cast_template(DataType.Float, target).replace("{0}", widened)
    if target is DataType.Bool:
        return "({0} != 0)"
    if target in (DataType.Half, DataType.BFloat16):
        name = "half" if target is DataType.Half else "bfloat16"
        return f"fuser_{_CAST_SUFFIX[source]}_to_{name}({{0}})"
    return f"({CUDA_TYPES[target]})({{0}})"
