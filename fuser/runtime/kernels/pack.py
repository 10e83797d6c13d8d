"""Argument packing: Python numbers into the cells that the driver reads, one cell per kernel parameter.

    layout := ArgumentLayout(kernel)   offsets and types of the cells, made once per kernel
    cells  := layout.make_cells()      the memory of one launch site in one thread: cells + array of their addresses

The driver copies the cells while a launch is enqueued, so the same ones are filled again by the next launch. All cells
are written by one `struct` call, which also checks every range.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, assert_never

from fuser.errors import InternalError, LaunchError, LaunchTypeError, LaunchValueError
from fuser.ir.kernel.kernel import (
    DivisorParameter,
    ExtentParameter,
    Parameter,
    ScalarParameter,
    SemaphoreParameter,
    TensorParameter,
    WorkspaceParameter,
)
from fuser.ir.ops.dtypes import DataType
from fuser.runtime.kernels.raw_signature import RawKind, RawParameter

if TYPE_CHECKING:
    from fuser.runtime.kernels.compiled_kernel import CompiledKernel

PackedValue = bool | int | float | complex | bytes

# NumPy name -> (struct codes, alignment in bytes). Complex numbers are two floats, bfloat16 goes in as its bits.
_FORMATS: dict[str, tuple[str, int]] = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "uint8": ("B", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "int64": ("q", 8),
    "uint64": ("Q", 8),
    "float16": ("e", 2),
    "bfloat16": ("H", 2),
    "float32": ("f", 4),
    "float64": ("d", 8),
    "complex64": ("ff", 8),
    "complex128": ("dd", 16),
}
_DTYPE_NAMES: dict[DataType, str] = {
    DataType.Double: "float64",
    DataType.Float: "float32",
    DataType.Half: "float16",
    DataType.BFloat16: "bfloat16",
    DataType.Int: "int64",
    DataType.Int32: "int32",
    DataType.UInt64: "uint64",
    DataType.Index: "int64",
    DataType.Bool: "bool",
    DataType.ComplexFloat: "complex64",
    DataType.ComplexDouble: "complex128",
}


class Cell(NamedTuple):
    """Where a parameter lies. `flatten` turns its value into what `struct` takes, None where it takes the value itself."""

    name: str
    type_name: str
    code: str
    offset: int
    nbytes: int
    flatten: Callable[[PackedValue], tuple[int | float | bytes, ...]] | None


class ArgumentLayout:
    """Cells of a kernel's parameters, in order, each aligned as its type."""

    def __init__(self, parameters: Sequence[Parameter] | Sequence[RawParameter], index_bits: int, entry: str) -> None:
        self.entry = entry
        cells: list[Cell] = []
        form, offset = "<", 0
        for position, parameter in enumerate(parameters):
            name, type_name, code, alignment, flatten = _cell_type(parameter, index_bits, position)
            padding = -offset % alignment
            form += f"{padding}x{code}" if padding else code
            nbytes = struct.calcsize("<" + code)
            cells.append(Cell(name, type_name, code, offset + padding, nbytes, flatten))
            offset += padding + nbytes
        self.cells = tuple(cells)
        self.nbytes = offset
        self._struct = struct.Struct(form)
        self._is_plain = all(cell.flatten is None for cell in cells)

    @staticmethod
    def of(kernel: CompiledKernel) -> ArgumentLayout:
        """The layout of a compiled kernel."""
        bits = 64 if kernel.kernel_ir is None else kernel.kernel_ir.index_bits
        return ArgumentLayout(kernel.parameters, bits, kernel.entry)

    def make_cells(self) -> ArgumentCells:
        """Fresh cells; each thread and launch site needs its own."""
        return ArgumentCells(self)

    def pack_into(self, buffer: ctypes.Array[ctypes.c_char], values: Sequence[PackedValue]) -> None:
        """Write one value per parameter.

        Raises LaunchTypeError for a wrong count or kind of value, LaunchValueError for one outside its type's range,
        both naming the parameter.
        """
        try:
            if self._is_plain:
                self._struct.pack_into(buffer, 0, *values)
                return
            if len(values) != len(self.cells):
                raise struct.error("count")
            flat: list[PackedValue] = []
            for cell, value in zip(self.cells, values, strict=True):
                if cell.flatten is None:
                    flat.append(value)
                else:
                    flat.extend(cell.flatten(value))
            self._struct.pack_into(buffer, 0, *flat)
        except (struct.error, OverflowError, TypeError, ValueError):
            raise self._explain(values) from None

    def _explain(self, values: Sequence[PackedValue]) -> LaunchError:
        """Which value could not be packed, and why."""
        if len(values) != len(self.cells):
            return LaunchTypeError(f"kernel {self.entry} takes {len(self.cells)} arguments, got {len(values)}")
        for position, (cell, value) in enumerate(zip(self.cells, values, strict=True)):
            try:
                struct.pack("<" + cell.code, *((value,) if cell.flatten is None else cell.flatten(value)))
            except (struct.error, OverflowError, TypeError, ValueError):
                where = f"argument {position} ({cell.name}) of kernel {self.entry}"
                if _fits_in_kind(value, cell.code):
                    return LaunchValueError(f"{where}: {value!r} is out of the range of {cell.type_name}")
                return LaunchTypeError(f"{where}: expected {cell.type_name}, got {type(value).__name__} {value!r}")
        return LaunchError(f"kernel {self.entry}: the arguments {tuple(values)!r} cannot be packed")


class ArgumentCells:
    """The cells of one launch site in one thread. `address` is what the driver takes as its array of parameters."""

    __slots__ = ("_buffer", "_layout", "_pointers", "_writers", "address", "words")

    def __init__(self, layout: ArgumentLayout) -> None:
        self._layout = layout
        self._buffer = ctypes.create_string_buffer(max(-(-layout.nbytes // 8), 1) * 8)
        # The cells as 8-byte words: what is written for a pointer at every launch.
        self.words = memoryview(self._buffer).cast("B").cast("Q")
        base = ctypes.addressof(self._buffer)
        count = len(layout.cells)
        self._pointers = (ctypes.c_uint64 * max(count, 1))(*(base + cell.offset for cell in layout.cells))
        self.address = ctypes.addressof(self._pointers)
        self._writers: dict[int, Callable[[PackedValue], None]] = {}

    def write(self, values: Sequence[PackedValue]) -> None:
        """Fill the cells; the errors of `ArgumentLayout.pack_into`."""
        self._layout.pack_into(self._buffer, values)

    def put(self, values: Iterable[tuple[int, PackedValue]]) -> None:
        """Fill the cells of some parameters, by position; the errors of `writer_of`'s writers."""
        writers = self._writers
        for position, value in values:
            write = writers.get(position)
            if write is None:
                write = writers[position] = self.writer_of(position)
            write(value)

    def word_of(self, position: int) -> int:
        """The word that is the cell of a pointer."""
        return self._layout.cells[position].offset // 8

    def writer_of(self, position: int) -> Callable[[PackedValue], None]:
        """What writes the cell of one parameter. Raises struct.error or OverflowError for a number outside its range."""
        cell = self._layout.cells[position]
        form, buffer, offset = struct.Struct("<" + cell.code), self._buffer, cell.offset
        flatten = cell.flatten
        if flatten is None:
            return functools.partial(form.pack_into, buffer, offset)
        return lambda value: form.pack_into(buffer, offset, *flatten(value))

    def contents(self) -> bytes:
        """What the cells hold."""
        return self._buffer.raw[: self._layout.nbytes]


def _cell_type(
    parameter: Parameter | RawParameter, index_bits: int, position: int
) -> tuple[str, str, str, int, Callable[[PackedValue], tuple[int | float | bytes, ...]] | None]:
    """(name, type for messages, struct code, alignment, flatten) of a parameter."""
    match parameter:
        case TensorParameter() | WorkspaceParameter() | SemaphoreParameter():
            return parameter.buffer.name, "pointer", "Q", 8, None
        case ExtentParameter():
            name = f"int{index_bits}"
            code, alignment = _FORMATS[name]
            return str(parameter.symbol), name, code, alignment, None
        case DivisorParameter():
            return str(parameter.divisor), "divisor", "iIi", 4, _divisor
        case ScalarParameter():
            return parameter.name, *_scalar_cell(_name_of(parameter.dtype))
        case RawParameter():
            name = parameter.name or str(position)
            match parameter.kind:
                case RawKind.pointer:
                    return name, "pointer", "Q", 8, None
                case RawKind.scalar:
                    return name, *_scalar_cell(parameter.dtype)
                case RawKind.struct:
                    size = parameter.nbytes
                    return name, f"{size} bytes", f"{size}s", parameter.alignment, lambda v: _exact_bytes(v, size)
                case _:
                    assert_never(parameter.kind)
        case _:
            assert_never(parameter)


def _scalar_cell(
    name: str,
) -> tuple[str, str, int, Callable[[PackedValue], tuple[int | float | bytes, ...]] | None]:
    code, alignment = _FORMATS[name]
    flatten = {"bfloat16": _bfloat16_bits, "complex64": _parts, "complex128": _parts}.get(name)
    return name, code, alignment, flatten


def _name_of(dtype: DataType) -> str:
    found = _DTYPE_NAMES.get(dtype)
    if found is None:
        raise InternalError(f"a scalar parameter of type {dtype.name} has no cell", pass_name="pack arguments")
    return found


def _fits_in_kind(value: object, code: str) -> bool:
    """Whether the value is a number of the kind that `code` holds, so that only its size can be wrong."""
    if isinstance(value, bytes) or code.endswith("s"):
        return isinstance(value, bytes) and code.endswith("s")
    if code in ("e", "f", "d", "H"):
        return isinstance(value, (int, float))
    return isinstance(value, int) if len(code) == 1 else isinstance(value, (int, float, complex))


def _parts(value: PackedValue) -> tuple[int | float | bytes, ...]:
    if isinstance(value, bytes):
        raise TypeError("bytes are no number")
    number = complex(value)
    return number.real, number.imag


def _divisor(value: PackedValue) -> tuple[int, int, int]:
    """A divisor of 31 bits as `fuser_divisor` (codegen/division_functions.py), which also says why this is exact."""
    if not isinstance(value, int):
        raise TypeError("expected an integer")
    if value <= 0:
        # An extent of an empty tensor: no block runs.
        return value, 0, 0
    shift = (value - 1).bit_length()
    return value, -(-(1 << 31 + shift) // value), shift


def _exact_bytes(value: PackedValue, size: int) -> tuple[int | float | bytes, ...]:
    if not isinstance(value, bytes):
        raise TypeError("expected bytes")
    if len(value) != size:
        raise ValueError(f"expected {size} bytes, got {len(value)}")
    return (value,)


def _bfloat16_bits(value: PackedValue) -> tuple[int | float | bytes, ...]:
    """The nearest bfloat16, ties to even; a NaN stays one. Raises OverflowError for a finite number that becomes infinite."""
    if isinstance(value, (bytes, complex)):
        raise TypeError("expected a real number")
    if value != value:
        return (0x7FC0,)
    nearest = struct.pack("<f", value)
    bits = int.from_bytes(nearest, "little")
    (back,) = struct.unpack("<f", nearest)
    if back != value:
        # Towards zero with an odd last bit, which keeps what lies on a tie of bfloat16 from what lies beside it.
        bits = bits - (abs(back) > abs(value)) | 1
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    if rounded & 0x7FFF == 0x7F80 and value not in (float("inf"), float("-inf")):
        raise OverflowError("too large for bfloat16")
    return (rounded,)
