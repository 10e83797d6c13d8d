"""What is said of how a library takes a call."""

from __future__ import annotations

import pytest

from fuser.ir.ops.dtypes import DataType
from fuser.runtime.kernels.library_calls import LibraryCall, Operand, notes_of


def call(library: str, dtype: DataType, sizes: tuple[int, ...], strides: tuple[int, ...]) -> LibraryCall:
    out = Operand("out", dtype, (2, 2), (2, 1))
    return LibraryCall("matmul", library, (Operand("arg1", dtype, sizes, strides),), (out,))


@pytest.mark.parametrize(
    ("sizes", "strides", "is_copied"),
    [
        ((4, 3), (3, 1), False),
        ((4, 3), (1, 4), False),
        ((4, 3), (8, 1), False),
        ((4, 3), (1, 9), False),
        ((4, 3), (6, 2), True),
        ((4, 3), (0, 1), True),
        ((1, 3), (9, 2), False),
        ((4, 1), (3, 5), False),
        ((2, 4, 3), (0, 3, 1), False),
        ((2, 0, 3), (9, 9, 9), False),
        ((3,), (2,), False),
    ],
)
def test_operands_that_a_product_copies_are_named(
    sizes: tuple[int, ...], strides: tuple[int, ...], is_copied: bool
) -> None:
    notes = notes_of(call("torch", DataType.Float, sizes, strides))
    assert bool(notes) is is_copied
    assert all("arg1 is copied to a dense tensor" in n for n in notes)


def test_conversions_are_told() -> None:
    assert "converted to Float" in notes_of(call("numpy", DataType.Half, (2, 2), (2, 1)))[0]
    assert "CuPy computes with no BFloat16" in notes_of(call("cupy", DataType.BFloat16, (2, 2), (2, 1)))[0]
    assert notes_of(call("torch", DataType.BFloat16, (2, 2), (2, 1))) == ()
    assert "it is no part of a graph" in notes_of(call("cupy", DataType.Half, (2, 2), (2, 1)))[0]
    drawn = LibraryCall("sdpfa_fwd", "torch", (), (), (("dropout_p", 0.5),))
    assert "each launch draws random numbers of its own" in notes_of(drawn)[0]
