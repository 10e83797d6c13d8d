"""What rounding loses behind statistics: results of chains of ops are rounded once or twice, and special values stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import FusionDefinition
from fuser.ir.dtypes import DataType
from fuser.ir.fusion_builder import FusionBuilder
from fuser.ir.schedule import ScheduleBuilder
from fuser.lowering.loop_nests.carried_rests import carried_rests
from tests.accuracy import ulp
from tests.oracle import Array

BF16, Float, Double = DataType.BFloat16, DataType.Float, DataType.Double

Chain = Callable[[Any, Any, Any, Any, Any], Any]
"""(ops, x, row statistic, weight, bias) -> result; also of arrays, with the functions below."""


class Exact:
    """The ops in longdouble."""

    add, sub, mul, div, sqrt = np.add, np.subtract, np.multiply, np.divide, np.sqrt

    @staticmethod
    def rsqrt(v: Array) -> Array:
        return np.asarray(1 / np.sqrt(v))


CHAINS: dict[str, Chain] = {
    "difference": lambda o, x, s, w, b: o.mul(o.sub(x, s), w),
    "difference from": lambda o, x, s, w, b: o.mul(w, o.sub(s, x)),
    "sum": lambda o, x, s, w, b: o.mul(o.add(x, s), w),
    "affine": lambda o, x, s, w, b: o.add(o.mul(o.mul(o.sub(x, s), s), w), b),
    "affine, bias first": lambda o, x, s, w, b: o.add(b, o.mul(o.mul(o.sub(x, s), s), w)),
    "less a product": lambda o, x, s, w, b: o.sub(b, o.mul(o.mul(x, s), w)),
    "difference in between": lambda o, x, s, w, b: o.mul(o.sub(w, o.mul(x, s)), s),
    "quotient": lambda o, x, s, w, b: o.sub(o.div(o.add(x, s), s), b),
    "quotient last": lambda o, x, s, w, b: o.div(o.mul(o.sub(x, s), s), w),
    "of a quotient": lambda o, x, s, w, b: o.div(o.div(s, w), x),
    "root": lambda o, x, s, w, b: o.mul(o.mul(x, o.sqrt(o.add(s, 3.0))), w),
    "root last": lambda o, x, s, w, b: o.sqrt(o.mul(o.mul(s, s), s)),
    "reciprocal root": lambda o, x, s, w, b: o.mul(o.mul(x, o.rsqrt(o.div(s, 7.0))), w),
    "reciprocal root last": lambda o, x, s, w, b: o.rsqrt(o.mul(o.mul(s, s), s)),
}


def run(
    chain: Chain, dtype: DataType, x: Array, w: Array, b: Array, monkeypatch: pytest.MonkeyPatch, op: str = "min"
) -> Array:
    """The chain with the smallest, or largest, of each row as statistic, which is exact."""
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    with FusionDefinition() as fd:
        tx, tw, tb = (fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=dtype) for _ in range(3))
        s = fd.ops.broadcast(getattr(fd.ops, op)(tx, [1]), [False, True])
        fd.add_output(chain(fd.ops, tx, s, tw, tb))
    (result,) = fd.execute([x, w, b])
    return np.asarray(result)


def inputs(dtype: DataType, seed: int = 0) -> tuple[Array, Array, Array]:
    generator = np.random.default_rng(seed)
    x, w, b = (generator.uniform(0.5, 4, (3, 333)).astype(dtype.numpy) for _ in range(3))
    return x, w, b


@pytest.mark.parametrize("dtype", [Float, Double], ids=lambda d: d.name)
@pytest.mark.parametrize("name", CHAINS)
def test_results_are_rounded_twice_at_most(name: str, dtype: DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, b = inputs(dtype)
    wide = [v.astype(np.longdouble) for v in (x, w, b)]
    s = wide[0].min(1, keepdims=True)
    exact = CHAINS[name](Exact, wide[0], s, wide[1], wide[2])
    found = run(CHAINS[name], dtype, x, w, b, monkeypatch)
    exact = np.broadcast_to(exact, found.shape)
    errors = np.abs(found.astype(np.longdouble) - exact) / ulp(exact, dtype)
    # Longdouble has eleven bits more than a Double: what the reference is off by shows where it cancels.
    assert errors.max() <= (1.05 if dtype is Float else 1.6)


@pytest.mark.parametrize("dtype", [Float, Double], ids=lambda d: d.name)
def test_a_difference_from_something_larger_is_as_good_as_rounded(
    dtype: DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither larger than half of it, so that they nearly cancel, nor the larger of the two."""
    x, w, b = inputs(dtype)
    s = x.max(1, keepdims=True).astype(np.longdouble)
    exact = (x - s) * w
    found = run(CHAINS["difference"], dtype, x, w, b, monkeypatch, "max")
    lost = np.where(x < s / 2, ulp(s, dtype) / 2 * w, 0)
    assert (np.abs(found - exact) <= 1.05 * ulp(exact, dtype) + lost).all()


@pytest.mark.parametrize("dtype", [Float, Double], ids=lambda d: d.name)
def test_what_cancels_keeps_its_digits(dtype: DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bias is the rounded product less an ulp of it: what is left is what roundings lost."""
    x, w, _ = inputs(dtype)
    s = x.min(1, keepdims=True)
    b = -np.asarray((x - s) * s * w * dtype.numpy.type(1 + 2 ** (1 - 23)))
    found = run(CHAINS["affine"], dtype, x, w, b, monkeypatch)
    wide = [v.astype(np.longdouble) for v in (x, w, b, s)]
    exact = (wide[0] - wide[3]) * wide[3] * wide[1] + wide[2]
    scale = np.abs(wide[2]) * 2.0 ** (-24 if dtype is Float else -53)
    # A chain that rounds at every step is off by about one of these.
    assert (np.abs(found - exact) / np.where(scale == 0, 1, scale)).max() <= 2.0 ** (-10 if dtype is Float else -9)


@pytest.mark.parametrize("name", CHAINS)
def test_special_values_are_those_of_plain_arithmetic(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, b = inputs(Float)
    special = np.array([np.inf, -np.inf, np.nan, 0.0, 3e38, -3e38, 1e-40], np.float32)
    x[0, : len(special)] = special
    x[1, 0] = np.inf
    w[2, : len(special)] = special
    b[2, 7 : 7 + len(special)] = special
    with np.errstate(all="ignore"):
        s = x.min(1, keepdims=True)

        class Plain(Exact):
            @staticmethod
            def rsqrt(v: Array) -> Array:
                return np.asarray(np.float32(1) / np.sqrt(v))

        found = run(CHAINS[name], Float, x, w, b, monkeypatch)
        expected = CHAINS[name](Plain, x, s, w, b)
    rounded = np.where(np.isfinite(expected), np.float32(0), expected)
    np.testing.assert_array_equal(np.where(np.isfinite(found), np.float32(0), found), rounded)


def norm(out: DataType) -> tuple[ScheduleBuilder, dict[str, str]]:
    """out = (x - s) * r + b with s = max(x), r = rsqrt(sum(x - s)); names of the tensors."""
    b = FusionBuilder()
    x, bias = b.input_tensor(Float, [-1, -1]), b.input_tensor(Float, [-1, -1])
    s = b.broadcast(b.reduction("max", x, [1], Float), [False, True])
    below = b.pointwise("sub", [x, s], Float)
    total = b.reduction("sum", below, [1], Float)
    r = b.pointwise("rsqrt", [total], Float)
    wide = b.broadcast(r, [False, True])
    again = b.pointwise("sub", [x, s], Float)
    scaled = b.pointwise("mul", [again, wide], Float)
    result = b.pointwise("add", [scaled, bias], Float)
    b.add_output(result if out is Float else b.pointwise("cast", [result], out))
    names = {"below": below, "total": total, "r": r, "wide": wide, "again": again, "scaled": scaled}
    return ScheduleBuilder(b.freeze()), {k: t.name for k, t in names.items()}


def test_what_lies_between_the_last_reduction_and_a_result_carries_a_rest() -> None:
    builder, names = norm(Float)
    assert carried_rests(builder) == {names[k] for k in ("total", "r", "wide", "again", "scaled")}


def test_an_output_of_16_bits_needs_none() -> None:
    assert carried_rests(norm(BF16)[0]) == frozenset()


def test_without_a_reduction_nothing_is_carried() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    b.add_output(b.pointwise("mul", [b.pointwise("sub", [x, x], Float), x], Float))
    assert carried_rests(ScheduleBuilder(b.freeze())) == frozenset()


@pytest.mark.parametrize("divides", [True, False])
def test_what_is_divided_by_carries_none(divides: bool) -> None:
    """As in softmax: a quotient with a rest takes six instructions, and half a unit is all that it would gain."""
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    wide = b.broadcast(b.reduction("sum", x, [1], Float), [False, True])
    b.add_output(b.pointwise("div" if divides else "mul", [x, wide], Float))
    assert (wide.name in carried_rests(ScheduleBuilder(b.freeze()))) is not divides


def test_an_fma_takes_rests_of_elements_and_has_none() -> None:
    """As in gradients of norms: what it loses would take eight instructions, and is small beside what it is subtracted from."""
    b = FusionBuilder()
    x, y = b.input_tensor(Float, [-1, -1]), b.input_tensor(Float, [-1, -1])
    s = b.broadcast(b.reduction("sum", x, [1], Float), [False, True])
    product = b.pointwise("mul", [x, s], Float)
    first = b.pointwise("fma", [product, y, x], Float)
    second = b.pointwise("fma", [x, s, y], Float)
    b.add_output(b.pointwise("mul", [first, second], Float))
    carried = carried_rests(ScheduleBuilder(b.freeze()))
    assert product.name in carried
    assert first.name not in carried
    assert second.name not in carried


def test_products_in_a_sum_that_is_subtracted_carry_a_rest() -> None:
    b = FusionBuilder()
    x, y = b.input_tensor(Float, [-1, -1]), b.input_tensor(Float, [-1, -1])
    product = b.pointwise("mul", [x, y], Float)
    total = b.reduction("sum", product, [1], Float)
    wide = b.broadcast(total, [False, True])
    b.add_output(b.pointwise("sub", [x, wide], Float))
    assert carried_rests(ScheduleBuilder(b.freeze())) == {product.name, total.name, wide.name}
