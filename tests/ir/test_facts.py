"""What facts say together: a stride that rests on a dim of one element rests on what the kernel computes for it."""

from __future__ import annotations

import itertools

import pytest

from fuser.ir.facts import (
    DenseStride,
    Fact,
    StrideDivisible,
    TensorDescriptor,
    ToldStride,
    UnitStride,
    ZeroStride,
    first_broken,
    layout_facts,
    stride_facts,
    those_that_hold,
    told_stride,
)
from fuser.ir.ops.dtypes import DataType


def described(sizes: tuple[int, ...], strides: tuple[int, ...]) -> dict[str, TensorDescriptor]:
    return {"x": TensorDescriptor(DataType.Float, sizes, strides)}


def never(_: object) -> int:
    raise AssertionError("no fact here asks for an expression")


ROWS: tuple[Fact, ...] = (DenseStride("x", 0, 1), DenseStride("x", 1, 2), UnitStride("x", 2))


def test_told_strides() -> None:
    told = stride_facts([*ROWS, DenseStride("y", 0, 1), ZeroStride("z", 1), StrideDivisible("x", 0, 16)])
    assert told_stride(told, "x", 0) == ToldStride((1, 2), None)
    assert told_stride(told, "x", 2) == ToldStride((), None)
    assert told_stride(told, "y", 0) == ToldStride((1,), 1)
    assert told_stride(told, "z", 1) == ToldStride((), None, 0)
    assert told_stride(told, "z", 0) == ToldStride((), 0)


def test_a_dim_of_one_element_hides_no_gap_between_rows() -> None:
    """Its own stride may be any number; the kernel takes rows of five elements, five apart."""
    assert first_broken(ROWS, described((5, 1, 5), (5, 5, 1)), never) is None
    assert first_broken(ROWS, described((5, 1, 5), (5, 77, 1)), never) is None
    assert first_broken(ROWS, described((5, 1, 5), (9, 9, 1)), never) == DenseStride("x", 0, 1)
    assert first_broken(ROWS, described((1, 1, 5), (9, 9, 1)), never) is None


@pytest.mark.in_turns
@pytest.mark.parametrize("sizes", list(itertools.product((1, 2, 3), repeat=3)))
def test_facts_that_hold_tell_every_address(sizes: tuple[int, ...]) -> None:
    """Facts of one layout, held against every other one: where all hold, strides as kernels compute them are the real ones."""
    accepted = 0
    layouts = [described(sizes, s) for s in itertools.product((0, 1, 2, 3, 6), repeat=3)]
    for mine in layouts:
        facts = layout_facts("x", mine["x"])
        told = stride_facts(facts)
        for other in layouts:
            if first_broken(facts, other, never) is not None:
                continue
            accepted += 1
            x = other["x"]
            for dim, n in enumerate(x.sizes):
                assert n == 1 or told_stride(told, "x", dim).of(x) == x.strides[dim], (facts, x)
    assert accepted >= len(layouts)


def test_what_rests_on_a_fact_that_does_not_hold_goes_with_it() -> None:
    x = described((4, 3, 5), (21, 7, 1))
    assert those_that_hold(ROWS, x, never) == {UnitStride("x", 2), DenseStride("x", 0, 1)}
    # Around a dim of one element: without the middle fact, its own number is what the outer one rests on.
    x = described((4, 1, 5), (9, 9, 1))
    assert those_that_hold(ROWS, x, never) == {UnitStride("x", 2), DenseStride("x", 1, 2)}
