"""Element types: the `DataType` enumeration, its facts (bytes, C name, NumPy name) and promotion.

Grammar
    dtype    := floating | integral | Bool | complex | Null
    floating := Double | Float | Half | BFloat16 | Float8_* | Float4_*
    integral := Int | Int32 | UInt64 | Index
    complex  := ComplexFloat | ComplexDouble

`Index` is int64 in memory; the width of index *arithmetic* is chosen per kernel.
"""

from __future__ import annotations

import sys
from difflib import get_close_matches
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from fuser.errors import DefinitionRuntimeError, DefinitionTypeError
from fuser.ir.ops.named_enums import Named
from fuser.tracebacks import short_traceback

if TYPE_CHECKING:
    import numpy as np


def attach_entries(enum: type[Enum], docs: dict[str, str]) -> None:
    """Give an enumeration the `__entries` table (name -> (member, doc)) that binding users read."""
    setattr(enum, "__entries", {m.name: (m, docs.get(m.name, "")) for m in enum})


class DataType(Enum, metaclass=Named):
    """Element type of a tensor or scalar."""

    Double = 0
    Float = 1
    Half = 2
    Int = 3
    Int32 = 4
    UInt64 = 5
    Index = 6
    Bool = 7
    BFloat16 = 8
    Float8_e4m3fn = 9
    Float8_e5m2 = 10
    Float8_e8m0fnu = 11
    Float4_e2m1fn = 12
    Float4_e2m1fn_x2 = 13
    ComplexFloat = 14
    ComplexDouble = 15
    Null = 16

    # Identity hash: members are singletons, and Enum's own hash of the name is measurably slower.
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        """Whether another spelling means this dtype: `x.dtype == np.float32`, `x.dtype == "float32"`."""
        if self is other:
            return True
        found = None if isinstance(other, DataType) else as_dtype(other)
        return NotImplemented if found is None else found is self

    def __repr__(self) -> str:
        return f"DataType.{self.name}"

    if TYPE_CHECKING:

        def __call__(self) -> DataType:
            """Itself: `tensor.dtype()` is `tensor.dtype`."""
            ...
    else:

        @short_traceback
        def __call__(self, *given: object, **named: object) -> DataType:
            if given or named:
                wanted = (as_dtype(given[0]) if given else None) or self
                raise DefinitionTypeError(
                    f"{self!r} takes no arguments; x.dtype is the dtype of x, and fd.ops.cast(x, {wanted!r}) converts its "
                    "elements"
                )
            return self

    @staticmethod
    def spelled(value: object) -> DataType | None:
        """The dtype of a library's name or dtype, or of a short name of one (`bf16`); None for what is none."""
        return as_dtype(value) or (_SHORT_NAMES.get(value) if isinstance(value, str) else None)

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory."""
        return _INFO[self].itemsize

    @property
    def c_name(self) -> str:
        """Name of the type in generated text and in messages (`float`, `__half`, `int64_t`, ...)."""
        return _INFO[self].c_name

    @property
    def is_floating(self) -> bool:
        return _INFO[self].kind == "f"

    @property
    def is_integral(self) -> bool:
        """True for Int, Int32, UInt64 and Index; Bool is not integral here."""
        return _INFO[self].kind == "i"

    @property
    def integer_range(self) -> tuple[int, int]:
        """The smallest number of an integral type, and the largest plus one."""
        bits = 8 * self.itemsize
        return (0, 1 << bits) if self is DataType.UInt64 else (-(1 << (bits - 1)), 1 << (bits - 1))

    @property
    def is_complex(self) -> bool:
        return _INFO[self].kind == "c"

    @property
    def is_reduced_float(self) -> bool:
        """True for the floating types narrower than Float, which are computed in Float."""
        return _INFO[self].kind == "f" and _INFO[self].itemsize < 4

    @property
    def is_supported(self) -> bool:
        """True if tensors of the type can be defined today."""
        return _INFO[self].supported

    @property
    def numpy(self) -> np.dtype:
        """The NumPy dtype that stores this type (ml_dtypes for BFloat16)."""
        return numpy_dtype(self)

    @property
    def stored_name(self) -> str:
        """The name of the dtype that stores this type, in NumPy (with ml_dtypes) and torch alike; imports neither."""
        return _INFO[self].numpy_name


class _Info(NamedTuple):
    c_name: str
    itemsize: int
    kind: str  # f floating, i integral, b Bool, c complex, n none
    numpy_name: str
    supported: bool


_INFO: dict[DataType, _Info] = {
    DataType.Double: _Info("double", 8, "f", "float64", True),
    DataType.Float: _Info("float", 4, "f", "float32", True),
    DataType.Half: _Info("__half", 2, "f", "float16", True),
    DataType.BFloat16: _Info("__bfloat", 2, "f", "bfloat16", True),
    DataType.Int: _Info("int64_t", 8, "i", "int64", True),
    DataType.Int32: _Info("int", 4, "i", "int32", True),
    DataType.UInt64: _Info("uint64_t", 8, "i", "uint64", True),
    DataType.Index: _Info("int64_t", 8, "i", "int64", True),
    DataType.Bool: _Info("bool", 1, "b", "bool", True),
    DataType.ComplexFloat: _Info("complex<float>", 8, "c", "complex64", True),
    DataType.ComplexDouble: _Info("complex<double>", 16, "c", "complex128", True),
    DataType.Float8_e4m3fn: _Info("__e4m3", 1, "f", "float8_e4m3fn", False),
    DataType.Float8_e5m2: _Info("__e5m2", 1, "f", "float8_e5m2", False),
    DataType.Float8_e8m0fnu: _Info("__e8m0", 1, "f", "float8_e8m0fnu", False),
    DataType.Float4_e2m1fn: _Info("__e2m1", 1, "f", "float4_e2m1fn", False),
    DataType.Float4_e2m1fn_x2: _Info("__e2m1_x2", 1, "f", "uint8", False),
    DataType.Null: _Info("void", 0, "n", "", False),
}

attach_entries(DataType, {d.name: f"{i.c_name}, {i.itemsize} bytes" for d, i in _INFO.items()})

_ML_DTYPES = {"bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn"}
_numpy_cache: dict[DataType, np.dtype] = {}


def numpy_dtype(dtype: DataType) -> np.dtype:
    """The NumPy dtype that stores `dtype`; importing ml_dtypes only for the types NumPy lacks."""
    found = _numpy_cache.get(dtype)
    if found is None:
        import numpy as np

        name = _INFO[dtype].numpy_name
        if name in _ML_DTYPES:
            import ml_dtypes

            found = np.dtype(getattr(ml_dtypes, name))
        else:
            found = np.dtype(name)
        _numpy_cache[dtype] = found
    return found


_BY_NUMPY_NAME = {
    i.numpy_name: d for d, i in _INFO.items() if i.numpy_name and d not in (DataType.Index, DataType.Float4_e2m1fn_x2)
}


def from_numpy_name(name: str) -> DataType | None:
    """The DataType stored as the NumPy (or torch) dtype of that name, or None (int8, uint8, ...)."""
    return _BY_NUMPY_NAME.get(name)


def numpy_names() -> tuple[str, ...]:
    """Names of the dtypes that NumPy (with ml_dtypes) and torch share, one for each DataType that is stored."""
    return tuple(_BY_NUMPY_NAME)


_BY_SPELLING: dict[str, DataType] = {
    **_BY_NUMPY_NAME,
    "half": DataType.Half,
    "double": DataType.Double,
}

_SHORT_NAMES: dict[str, DataType] = {
    **dict.fromkeys(("f64", "fp64"), DataType.Double),
    **dict.fromkeys(("f32", "fp32"), DataType.Float),
    **dict.fromkeys(("f16", "fp16"), DataType.Half),
    "bf16": DataType.BFloat16,
    **dict.fromkeys(("i64", "long"), DataType.Int),
    "i32": DataType.Int32,
    "u64": DataType.UInt64,
}
"""Names that are used in speech and that no array library takes: they are answered, and not taken here either."""

AMBIGUOUS_SPELLINGS: dict[str, tuple[str, str]] = {
    "float": ("float64", "float32"),
    "int": ("int64", "int32"),
    "complex": ("complex128", "complex64"),
}
"""Names that NumPy and torch read differently: what each takes them for."""


def as_dtype(value: object) -> DataType | None:
    """The DataType that a user names: itself, NumPy's name of it (`"float32"`), a dtype of NumPy, torch or JAX (`np.float32`,
    `np.dtype("f4")`, `torch.float32`), or a Python type (`float` is Double, as Python's floats are).

    None for anything else: names that libraries read differently (`"float"`), dtypes without a DataType (int8), foreign byte
    order, None.
    """
    if isinstance(value, DataType):
        return value
    if isinstance(value, str):
        return _BY_SPELLING.get(value)
    kind = type(value)
    if kind.__name__ == "dtype" and kind.__module__ == "torch":
        return _BY_NUMPY_NAME.get(str(value).removeprefix("torch."))
    for python_type, dtype in _PYTHON_TYPES:
        if value is python_type:
            return dtype
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if isinstance(value, type) and issubclass(value, numpy.generic):
        return _BY_NUMPY_NAME.get(value.__name__.removesuffix("_"))
    # JAX's scalar types are classes that carry the dtype.
    stored: Any = getattr(value, "dtype", None) if isinstance(value, type) else value
    is_native = isinstance(stored, numpy.dtype) and stored.isnative
    return _BY_NUMPY_NAME.get(stored.name) if is_native else None


NARROW_INTEGERS = ("int8", "uint8", "int16", "uint16")

AS_WORDS = (
    "an array of it is handed over as words, a.view(np.int32), which >> and & take apart in the fusion (docs/ops.md, "
    "Dtypes)"
)
"""What to do with arrays of elements that are narrower than any dtype there is."""


def dtype_remedy(value: object) -> str:
    """What to write instead of a value that names no dtype."""
    if _named_type(value) in NARROW_INTEGERS:
        return f"integers are Int32, Int (of 64 bits) and UInt64; {AS_WORDS}"
    if isinstance(value, str) and value in AMBIGUOUS_SPELLINGS:
        numpy, torch = AMBIGUOUS_SPELLINGS[value]
        return f"it is {numpy} in NumPy and {torch} in torch, write {numpy!r} or {torch!r}"
    if isinstance(value, str) and value.partition(":")[0] in ("cpu", "cuda", "gpu"):
        return "a definition has no device, fd.execute(inputs, device=...) chooses one"
    if isinstance(value, str) and value in _SHORT_NAMES:
        return f"did you mean {_SHORT_NAMES[value]!r}?"
    if isinstance(value, str) and (like := get_close_matches(value, numpy_names(), n=1, cutoff=0.8)):
        return f"did you mean {like[0]!r}?"
    if isinstance(value, type) or hasattr(value, "itemsize"):
        names = [name for name, dtype in _BY_NUMPY_NAME.items() if dtype.is_supported]
        return f"there is none for that type; there are {', '.join(names)}"
    return "DataType.Float, 'float32', np.float32 and torch.float32 are accepted"


def _named_type(value: object) -> str:
    """What libraries call a type: `int8` for `"int8"`, `np.int8`, `np.dtype(np.int8)` and `torch.int8`; nothing for others."""
    if isinstance(value, str):
        return value
    if isinstance(value, type):
        return value.__name__
    return str(getattr(value, "name", value)).removeprefix("torch.") if hasattr(value, "itemsize") else ""


def scalar_type(value: object) -> DataType:
    """DataType of a Python number: bool->Bool, int->Int, float->Double, complex->ComplexDouble.

    Raises TypeError for anything else.
    """
    for python_type, dtype in _PYTHON_TYPES:
        if isinstance(value, python_type):
            return dtype
    raise TypeError(f"expected a bool, int, float or complex, got {type(value).__name__}")


_PYTHON_TYPES: tuple[tuple[type, DataType], ...] = (
    (bool, DataType.Bool),
    (int, DataType.Int),
    (float, DataType.Double),
    (complex, DataType.ComplexDouble),
)

_INTEGER_RANK = {DataType.Bool: 0, DataType.Int32: 1, DataType.Int: 2}


def promote(a: DataType, b: DataType) -> DataType:
    """The common type of two operands.

    Raises DefinitionRuntimeError where no common type exists (UInt64 with another integer, Null).
    """
    if a is b:
        return a
    if DataType.Null in (a, b):
        raise DefinitionRuntimeError(f"no common type of {a.name} and {b.name}")
    if a.is_complex or b.is_complex:
        doubles = (DataType.Double, DataType.ComplexDouble)
        return DataType.ComplexDouble if a in doubles or b in doubles else DataType.ComplexFloat
    if a.is_floating and b.is_floating:
        return DataType.Double if DataType.Double in (a, b) else DataType.Float
    if a.is_floating or b.is_floating:
        return a if a.is_floating else b
    if DataType.UInt64 in (a, b):
        other = b if a is DataType.UInt64 else a
        if other is DataType.Bool:
            return DataType.UInt64
        raise DefinitionRuntimeError(
            f"no common type of {a.name} and {b.name}: cast one of them first, UInt64 does not mix with signed integers"
        )
    if DataType.Index in (a, b):
        return DataType.Index
    return a if _INTEGER_RANK[a] > _INTEGER_RANK[b] else b


def widen(dtype: DataType) -> DataType:
    """Float for the reduced-precision floating types, else the type itself."""
    return DataType.Float if dtype.is_reduced_float else dtype


def complex_of(dtype: DataType) -> DataType:
    """The complex type whose parts hold a real floating `dtype`."""
    return DataType.ComplexDouble if dtype is DataType.Double else DataType.ComplexFloat


def real_of(dtype: DataType) -> DataType:
    """The type of the parts of a complex `dtype`; a real type is returned as it is."""
    if dtype is DataType.ComplexFloat:
        return DataType.Float
    return DataType.Double if dtype is DataType.ComplexDouble else dtype


def combine(high: DataType | None, low: DataType | None) -> DataType | None:
    """Promotion between operand classes (tensors over rank-0 tensors over scalars).

    The higher class decides the precision, the lower one can only raise the kind
    (Bool < integer < floating < complex).
    """
    if high is None or low is None:
        return high if high is not None else low
    if high.is_complex:
        return high
    if low.is_complex:
        return complex_of(high) if high.is_floating else low
    if high.is_floating:
        return high
    if high is DataType.Bool or low.is_floating:
        return promote(high, low)
    return high


def kind_of(dtype: DataType) -> str:
    """One letter: `f` floating, `c` complex, `b` Bool, `u` UInt64, `i` other integers, `n` Null."""
    if dtype.is_floating:
        return "f"
    if dtype.is_complex:
        return "c"
    if dtype is DataType.Bool:
        return "b"
    if dtype is DataType.Null:
        return "n"
    return "u" if dtype is DataType.UInt64 else "i"


def compute_dtype(dtype: DataType) -> DataType:
    """The dtype that arithmetic on `dtype` runs in: Float for narrower floats, Int for Index, else itself."""
    if dtype is DataType.Index:
        return DataType.Int
    return widen(dtype)


@cache
def check_cast(source: DataType, target: DataType) -> None:
    """Raise DefinitionRuntimeError unless a value of `source` can be cast to `target`."""
    for dtype in (source, target):
        if dtype is DataType.Null or not dtype.is_supported:
            small = "" if dtype is DataType.Null else f": {dtype.name} is not supported yet"
            raise DefinitionRuntimeError(
                f"Illegal Cast value from DataType: {source.name} to DataType: {target.name}{small}"
            )
