"""Products that only a sum reads, behind a reduction: one op."""

from __future__ import annotations

from fuser.ir.dtypes import DataType
from fuser.ir.fusion import Fusion, Pointwise
from fuser.ir.fusion_builder import FusionBuilder
from fuser.ir.verify_fusion import verify_fusion
from fuser.optimize.contract_products import contract_products

BF16, Float, Double = DataType.BFloat16, DataType.Float, DataType.Double


def ops(fusion: Fusion) -> list[str]:
    """The pointwise ops left, of a valid fusion."""
    made = contract_products(fusion)
    verify_fusion(made, "contract_products")
    return [e.op for e in made.exprs if isinstance(e, Pointwise)]


def scaled(dtype: DataType, *, reduces: bool = True, shows: bool = False, followed: bool = False) -> Fusion:
    """x * largest + x, or a part of that."""
    b = FusionBuilder()
    x = b.input_tensor(dtype if dtype is not BF16 else Float, [-1, -1])
    s = b.broadcast(b.reduction("max", x, [1], x.dtype), [False, True]) if reduces else x
    product = b.pointwise("mul", [x, s], x.dtype)
    total = b.pointwise("add", [x, product], x.dtype)
    if followed:
        total = b.reduction("sum", total, [1], x.dtype)
    b.add_output(b.pointwise("cast", [total], BF16) if dtype is BF16 else total)
    if shows:
        b.add_output(product)
    return b.freeze()


def test_a_product_for_a_sum_alone_is_part_of_it() -> None:
    assert ops(scaled(Float)) == ["fma"]
    assert ops(scaled(Double)) == ["fma"]


def test_what_else_reads_the_product_keeps_it() -> None:
    assert ops(scaled(Float, shows=True)) == ["mul", "add"]


def test_16_bit_results_and_what_stands_before_a_reduction_stay() -> None:
    assert ops(scaled(BF16)) == ["mul", "add", "cast"]
    assert ops(scaled(Float, reduces=False)) == ["mul", "add"]
    assert ops(scaled(Float, followed=True)) == ["mul", "add"]


def test_a_square_is_no_product_for_a_sum_with_itself() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1])
    s = b.broadcast(b.reduction("max", x, [0], Float), [True])
    square = b.pointwise("mul", [s, s], Float)
    b.add_output(b.pointwise("add", [square, square], Float))
    assert ops(b.freeze()) == ["mul", "add"]
