"""Values as CUDA expressions.

Every text is an operand in the sense of `ir/ops/cuda_spelling.py`: a name, an element, a literal, a call or a parenthesised
expression, so that texts nest without regard to precedence.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from functools import cache
from typing import NamedTuple, assert_never

import numpy as np

from fuser.codegen.names import Names
from fuser.errors import InternalError
from fuser.ir.fusion.random_numbers import lanes_of
from fuser.ir.integers.integers import Cond, Int, Symbol, to_c
from fuser.ir.kernel.kernel import Buffer, Call, Cast, IndexValue, Literal, Load, RandomValue, ScalarArgument, Value
from fuser.ir.ops.approximate_ops import ROWS
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import CacheOp
from fuser.ir.ops.op_table import (
    argument_dtypes,
    cast_spelling,
    compute_dtype,
    cuda_literal,
    cuda_type,
    numpy_cast,
    result_dtype,
)

# Loads with a cache hint. They are plain loads with a modifier, so that they see what the kernel wrote before.
LOAD_FUNCTIONS = {
    CacheOp.all_levels: "__ldca",
    CacheOp.streaming: "__ldcs",
    CacheOp["global"]: "__ldcg",
}

# What carries the bits of a type through functions that know built-in types only.
_CARRIERS = {
    DataType.Half: "unsigned short",
    DataType.BFloat16: "unsigned short",
    DataType.Bool: "unsigned char",
    DataType.ComplexFloat: "float2",
    DataType.ComplexDouble: "double2",
}


class _Form(NamedTuple):
    """How an op is written for one compute dtype."""

    template: str
    functions: tuple[str, ...]
    arguments: tuple[DataType, ...]
    result: DataType


class ValueWriter:
    """Writes values and index expressions of one kernel; `functions` collects the device functions and types used."""

    def __init__(
        self,
        names: Names,
        index_bits: int,
        instead: Mapping[str, str] | None = None,
    ) -> None:
        self.functions: dict[str, None] = {}
        # Counters of the long unrolled loops around.
        self.unrolled: set[Symbol] = set()
        # Device functions that the kernel calls in the place of others.
        self._instead = instead or {}
        self._names = names
        self._symbol_name = names.symbols.__getitem__
        self._index_dtypes = (DataType.Int32,) if index_bits == 32 else (DataType.Int, DataType.Index)

    def integer(self, expression: Int | Cond) -> str:
        """An index expression or condition, not parenthesised."""
        return self._index(expression, self.unrolled)

    def _index(self, expression: Int | Cond, unrolled: Container[Symbol] = ()) -> str:
        return to_c(expression, self._symbol_name, unrolled=unrolled, divide=self._divide)

    def _divide(self, numerator: str, divisor: Int, is_quotient: bool) -> str | None:
        name = self._names.divisors.get(divisor)
        if name is None:
            return None
        function = "fuser_div" if is_quotient else "fuser_mod"
        self.functions[function] = None
        return f"{function}({numerator}, {name})"

    def type_name(self, dtype: DataType) -> str:
        """The C type that stores `dtype`."""
        name, functions = _type(dtype)
        for function in functions:
            self.functions[function] = None
        return name

    def element(self, buffer: Buffer, index: Int) -> str:
        """One element as an lvalue. A register array of one element is a plain variable."""
        name = self._names.buffers[buffer]
        return name if is_scalar(buffer) else f"{name}[{self._index(index)}]"

    def value(self, value: Value) -> str:
        """A value of its own dtype."""
        match value:
            case Load(buffer, index, cache_op):
                return self._load(buffer, index, cache_op)
            case Call():
                return self._call(value)
            case Cast(inner, dtype):
                return self.converted(inner, dtype)
            case Literal(number, dtype):
                return self._literal(number, dtype)
            case ScalarArgument(name, _):
                return self._names.scalars[name]
            case IndexValue(expression, dtype):
                text = f"({self._index(expression)})"
                # Narrowing is explicit, and so is widening: int arithmetic inside, the wider type outside.
                return text if dtype in self._index_dtypes else f"({self.type_name(dtype)}){text}"
            case RandomValue():
                return self._random(value)
            case _:
                assert_never(value)

    def converted(self, value: Value, dtype: DataType) -> str:
        """A value converted to `dtype`; literals are converted here and now."""
        if value.dtype is dtype:
            return self.value(value)
        if isinstance(value, Literal):
            number = _converted_number(repr(value.value), value.value, value.dtype, dtype)
            if number is not None:
                return self._literal(number, dtype)
        return self._cast(self.value(value), value.dtype, dtype)

    def _call(self, call: Call) -> str:
        if call.op == "cast":
            return self._cast(self.converted(call.args[0], call.compute), call.compute, call.dtype)
        form = self._call_form(call)
        if form.template.startswith("fuser_divide(") and _is_count(call.args[1]):
            self.functions["fuser_divide_by_count"] = None
            return f"fuser_divide_by_count({', '.join(self.converted(a, call.compute) for a in call.args)})"
        template = form.template
        for function in form.functions:
            used = self._instead.get(function, function)
            self.functions[used] = None
            if used is not function:
                template = template.replace(f"{function}(", f"{used}(")
        texts = [self.converted(a, dtype) for a, dtype in zip(call.args, form.arguments, strict=True)]
        text = template.format(*texts)
        return text if form.result is call.dtype else self._cast(text, form.result, call.dtype)

    def _random(self, value: RandomValue) -> str:
        # Elements of one call of Philox share its text, so that the compiler computes it once.
        lanes = lanes_of(value.dtype)
        compute = compute_dtype(value.dtype)
        seed, offset = (self.converted(v, DataType.Int) for v in (value.seed, value.offset))
        words = f"fuser_philox({seed}, {offset}, {self.integer(value.index // lanes)})"
        arguments = [words, self.integer(value.index % lanes)]
        kind = f"{value.distribution.value}_{value.dtype.name.lower()}"
        if [v.value if isinstance(v, Literal) else None for v in value.parameters] == [0, 1]:
            kind = f"standard_{kind}"
        else:
            arguments += [self.converted(v, compute) for v in value.parameters]
        self.functions.update(dict.fromkeys(("fuser_philox", f"fuser_{kind}")))
        return f"fuser_{kind}({', '.join(arguments)})"

    def _call_form(self, call: Call) -> _Form:
        last = call.args[-1]
        if isinstance(last, Literal) and len(call.args) == 2:
            number = _converted_number(repr(last.value), last.value, last.dtype, call.compute)
            if isinstance(number, float):
                return _form(call.op, call.compute, number)
        return _form(call.op, call.compute)

    def _cast(self, text: str, source: DataType, target: DataType) -> str:
        template, functions = _cast_form(source, target)
        for function in functions:
            self.functions[function] = None
        return template.format(text)

    def _literal(self, number: complex | float | int | bool, dtype: DataType) -> str:
        self.type_name(dtype)
        return _literal_text(repr(number), number, dtype)

    def _load(self, buffer: Buffer, index: Int, cache_op: CacheOp) -> str:
        element = self.element(buffer, index)
        function = LOAD_FUNCTIONS.get(cache_op)
        if function is None:
            return element
        carrier = _CARRIERS.get(buffer.dtype)
        if carrier is None:
            return f"{function}(&{element})"
        loaded = f"{function}(reinterpret_cast<const {carrier}*>(&{element}))"
        return f"__builtin_bit_cast({self.type_name(buffer.dtype)}, {loaded})"


def is_scalar(buffer: Buffer) -> bool:
    """Whether the buffer is one plain variable in the text."""
    return buffer.is_register and buffer.size.is_const and buffer.size.value == 1


# The key starts with repr: 0.0 and -0.0, and 1, 1.0 and True, are equal as dictionary keys.
@cache
def _literal_text(_: str, number: complex | float | int | bool, dtype: DataType) -> str:
    return cuda_literal(number, dtype)


@cache
def _converted_number(
    _: str, number: complex | float | int | bool, source: DataType, target: DataType
) -> complex | float | int | bool | None:
    """`number`, of `source`, as a value of `target`; None where C does not define the result (nan to integer)."""
    if isinstance(number, int) and not -(1 << 63) <= number < 1 << 64:
        raise InternalError(f"the literal {number} does not fit {source.name}", pass_name="generate_cuda")
    exact = np.asarray(numpy_cast(np.asarray(number), source))
    if target.is_integral and not source.is_integral and source is not DataType.Bool:
        real, limits = float(np.real(exact)), np.iinfo(target.numpy)
        if not math.isfinite(real) or not limits.min <= math.trunc(real) <= limits.max:
            return None
    result = numpy_cast(exact, target)
    if target.is_complex:
        return complex(result)
    if target.is_floating:
        return float(result)
    return int(result) if target.is_integral else bool(result)


@cache
def _type(dtype: DataType) -> tuple[str, tuple[str, ...]]:
    spelling = cuda_type(dtype)
    return spelling.template, spelling.functions


@cache
def _cast_form(source: DataType, target: DataType) -> tuple[str, tuple[str, ...]]:
    spelling = cast_spelling(source, target)
    return spelling.template, spelling.functions


def _is_count(divisor: Value) -> bool:
    """Whether a divisor is a number of elements, 1 or more, or another integer of 32 bits."""
    while isinstance(divisor, Cast):
        divisor = divisor.value
    if isinstance(divisor, Load):
        return divisor.buffer.dtype is DataType.Int32
    expression = divisor.expression if isinstance(divisor, IndexValue) else None
    return (
        expression is not None and expression.lo is not None and expression.lo >= 1 and (expression.hi or 2**31) < 2**62
    )


@cache
def _form(op: str, compute: DataType, constant: float | None = None) -> _Form:
    """How `op` is written; `constant`: its operand on the right, if that is a floating one."""
    row = ROWS.get(op)
    if row is None:
        raise InternalError(f"the op table has no row {op!r}", pass_name="generate_cuda")
    special = row.constant(compute, constant) if row.constant is not None and constant is not None else None
    spelling = row.cuda(compute) if special is None else special
    return _Form(spelling.template, spelling.functions, argument_dtypes(row, compute), result_dtype(row, compute))
