"""Buffers and values of kernels: what a thread computes. Grammar and semantics: `fuser/ir/kernel/kernel.py`."""

from __future__ import annotations

from fuser.ir.fusion.fusion import Distribution
from fuser.ir.integers.integers import Int
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import CacheOp, MemoryType
from fuser.records import record


@record(eq=False)
class Buffer:
    """An array of `size` elements in registers, shared memory or device memory; compares by identity.

    `tensor` is the id of the tensor it holds, if it holds one. `size` may be symbolic except in registers.
    """

    name: str
    dtype: DataType
    memory: MemoryType
    size: Int
    tensor: str | None = None

    @property
    def is_register(self) -> bool:
        return self.memory is MemoryType.local

    @property
    def is_shared(self) -> bool:
        return self.memory is MemoryType.shared

    @property
    def is_global(self) -> bool:
        return not (self.is_register or self.is_shared)

    def __repr__(self) -> str:
        return self.name


@record
class Literal:
    value: bool | int | float | complex
    dtype: DataType


@record
class Load:
    """One element. `cache` is a hint for device memory."""

    buffer: Buffer
    index: Int
    cache: CacheOp = CacheOp.unspecified

    @property
    def dtype(self) -> DataType:
        return self.buffer.dtype


@record
class IndexValue:
    """An index expression as a value of an integral type (Int, Int32, Index)."""

    expression: Int
    dtype: DataType


@record
class ScalarArgument:
    name: str
    dtype: DataType


@record
class Call:
    """A pointwise row of the op table. Arguments may have any dtype: each is converted to `compute` first,
    except the condition of `where`, which is Bool."""

    op: str
    args: tuple[Value, ...]
    compute: DataType
    dtype: DataType


@record
class Cast:
    value: Value
    dtype: DataType


@record
class RandomValue:
    """The random number of the element with logical row-major linear index `index`. `seed` and `offset` are Int; parameters
    of any real dtype are converted to the compute dtype of `dtype`."""

    distribution: Distribution
    index: Int
    seed: Value
    offset: Value
    parameters: tuple[Value, Value]
    dtype: DataType


Value = Literal | Load | IndexValue | ScalarArgument | Call | Cast | RandomValue


def value_operands(value: Value) -> tuple[Value, ...]:
    """The values that a value is computed from, left to right."""
    match value:
        case Load() | Literal() | IndexValue() | ScalarArgument():
            return ()
        case Call():
            return value.args
        case Cast():
            return (value.value,)
        case RandomValue():
            return (value.seed, value.offset, *value.parameters)
