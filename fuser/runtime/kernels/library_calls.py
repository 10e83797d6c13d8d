"""Calls of libraries: what is handed over, and what is said of how it is taken.

A call has its shapes, layouts and numbers; addresses come with each run.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.ir.ops.dtypes import DataType
from fuser.records import record
from fuser.runtime.scalars import Scalar


@record
class Operand:
    """A tensor that is handed over. Strides in elements."""

    name: str
    dtype: DataType
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


@record
class LibraryCall:
    """A call without addresses. `inputs` and `outputs` are tensors, `numbers` all other parameters that were given."""

    op: str
    library: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    numbers: tuple[tuple[str, Scalar | None], ...] = ()


def notes_of(call: LibraryCall) -> tuple[str, ...]:
    """What a library does beside the op itself, for people: operands that it copies, types that it converts."""
    notes: list[str] = []
    if call.op in ("matmul", "linear", "grouped_mm"):
        notes += [f"{o.name} is copied to a dense tensor: {why}" for o in call.inputs if (why := _why_copied(o))]
    if call.library == "cupy" and any(o.dtype is DataType.BFloat16 for o in (*call.inputs, *call.outputs)):
        notes.append("operands of BFloat16 are converted to Float, and results back: CuPy computes with no BFloat16")
    elif call.library == "numpy" and any(o.dtype.is_reduced_float for o in (*call.inputs, *call.outputs)):
        notes.append("operands of 16 bits are converted to Float, and results are rounded once")
    if call.library == "cupy":
        notes.append(
            "it is no part of a graph: CuPy computes nothing on a captured stream, and is called at each launch"
        )
    elif dict(call.numbers).get("dropout_p"):
        notes.append("it is no part of a graph: each launch draws random numbers of its own")
    return tuple(notes)


def _why_copied(operand: Operand) -> str:
    """Why a product cannot take a matrix as it lies: BLAS takes those whose rows or whose columns are dense."""
    sizes, strides = operand.sizes[-2:], operand.strides[-2:]
    if 0 in operand.sizes or len(sizes) < 2:
        return ""
    (rows, columns), (down, along) = sizes, strides
    if (columns == 1 or along == 1) and (rows == 1 or down >= columns):
        return ""
    if (rows == 1 or down == 1) and (columns == 1 or along >= rows):
        return ""
    return f"neither rows nor columns are dense in strides {list(operand.strides)}"


def operands_text(operands: Sequence[Operand]) -> str:
    """`arg1 BFloat16[64, 128]`, for messages."""
    return ", ".join(f"{o.name} {o.dtype.name}{list(o.sizes)}" for o in operands)
