"""Ops that libraries compute: shapes, dtypes, errors, values against NumPy in double precision, for any layout."""

from __future__ import annotations

import itertools
import re
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.errors import DefinitionRuntimeError, DefinitionTypeError, InputRuntimeError
from tests.frontend.library_operands import Array, bounded, laid_out

FLOATS = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)


def run(op: str, *arrays: Array) -> Array:
    with FusionDefinition() as fd:
        fd.add_output(getattr(fd.ops, op)(*(fd.from_array(a) for a in arrays)))
    (out,) = fd.execute(list(arrays))
    return np.asarray(out)


_LEFT = ((3,), (5, 3), (1, 3), (2, 5, 3), (2, 1, 5, 3))
_RIGHT = ((3,), (3, 4), (3, 1), (2, 3, 4), (1, 3, 4))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: np.dtype(d).name)
def test_matmul_is_that_of_numpy_for_all_ranks_and_layouts(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    layouts = itertools.cycle(itertools.product(range(4), range(4)))
    for left, right in itertools.product(_LEFT, _RIGHT):
        first, second = next(layouts)
        a, b = laid_out(rng, left, dtype, first), laid_out(rng, right, dtype, second)
        out = run("matmul", a, b)
        wide = a.astype(np.float64), b.astype(np.float64)
        exact = np.matmul(*wide)
        assert out.shape == exact.shape
        assert out.dtype == np.dtype(dtype)
        assert bounded(out, exact, np.matmul(*map(np.abs, wide)))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("has_bias", [False, True])
def test_linear_is_that_of_numpy_for_all_ranks_and_layouts(dtype: Any, has_bias: bool) -> None:
    rng = np.random.default_rng(1)
    layouts = itertools.cycle(itertools.product(range(4), range(4), (0, 2)))
    for left, rows in itertools.product(_LEFT, (4, 1)):
        first, second, third = next(layouts)
        a, w = laid_out(rng, left, dtype, first), laid_out(rng, (rows, 3), dtype, second)
        bias = (laid_out(rng, (rows,), dtype, third),) if has_bias else ()
        out = run("linear", a, w, *bias)
        wide = [x.astype(np.float64) for x in (a, w, *bias)]
        exact = wide[0] @ wide[1].T + (wide[2] if has_bias else 0)
        magnitude = np.abs(wide[0]) @ np.abs(wide[1].T) + (np.abs(wide[2]) if has_bias else 0)
        assert out.shape == exact.shape
        assert out.dtype == np.dtype(dtype)
        assert bounded(out, exact, magnitude)


def test_sums_of_16_bit_products_are_rounded_once() -> None:
    # 257 ones: a sum that is rounded at each step stays at 256.
    ones = np.ones((1, 257), ml_dtypes.bfloat16)
    small = np.full((257, 1), 1, ml_dtypes.bfloat16)
    assert float(run("matmul", ones, small)[0, 0]) == 256.0  # 257 is halfway: to even
    assert (
        float(run("matmul", np.ones((1, 259), ml_dtypes.bfloat16), np.ones((259, 1), ml_dtypes.bfloat16))[0, 0]) == 260
    )


def test_an_empty_sum_is_zero() -> None:
    assert np.array_equal(run("matmul", np.ones((2, 0), np.float32), np.ones((0, 3), np.float32)), np.zeros((2, 3)))
    assert run("matmul", np.ones((0, 2), np.float32), np.ones((2, 3), np.float32)).shape == (0, 3)


def test_the_operator_is_matmul() -> None:
    a, b = np.arange(6.0, dtype=np.float32).reshape(2, 3), np.arange(6.0, dtype=np.float32).reshape(3, 2)
    with FusionDefinition() as fd:
        fd.add_output(fd.from_array(a) @ fd.from_array(b))
    assert np.array_equal(fd.execute([a, b])[0], a @ b)


def test_one_program_serves_all_sizes_that_come() -> None:
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1, -1], dtype=DataType.Float) for _ in range(2))
        z = fd.ops.matmul(x, y)
        fd.add_output(fd.ops.mul(z, fd.ops.cast(z.size(1), DataType.Float)))
    rng = np.random.default_rng(2)
    for m, k, n in ((2, 3, 4), (1, 1, 1), (5, 0, 2), (7, 1, 1), (1, 4, 6)):
        a, b = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
        np.testing.assert_allclose(fd.execute([a, b])[0], n * (a @ b), rtol=1e-5, atol=1e-6)


def test_dims_of_one_element_that_are_computed_broadcast() -> None:
    """A slice that turns out to have one element is one that broadcasts, in a batch too."""
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1, -1, -1], dtype=DataType.Float) for _ in range(2))
        count = fd.define_scalar(None, DataType.Int)
        part = fd.ops.slice(x, [0, 0, 0], [count, x.size(1), x.size(2)])
        fd.add_output(fd.ops.matmul(part, y))
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((4, 2, 3), (4, 3, 5)))
    np.testing.assert_allclose(fd.execute([a, b, 4])[0], a @ b, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(fd.execute([a, b, 1])[0], a[:1] @ b, rtol=1e-5, atol=1e-6)
    with pytest.raises(InputRuntimeError, match="a conflict was found with 2 different sizes"):
        fd.execute([a, b, 2])


def test_a_dim_of_an_input_that_happens_to_be_one_does_not_broadcast() -> None:
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1, -1, -1], dtype=DataType.Float) for _ in range(2))
        fd.add_output(fd.ops.matmul(x, y))
    with pytest.raises(InputRuntimeError, match="a conflict was found with 2 different sizes, 1 and 4"):
        fd.execute([np.ones((1, 2, 3), np.float32), np.ones((4, 3, 5), np.float32)])


def test_validate_knows_what_a_product_sums() -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((16, 300), (300, 8)))
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.matmul(fd.from_array(a), fd.from_array(b)))
    fd.validate([a, b])
    wrong = np.asarray(a.astype(np.float32) @ b.astype(np.float32) + 30).astype(ml_dtypes.bfloat16)
    with pytest.raises(AssertionError, match="output 0 differs"):
        fd.validate([a, b], [wrong])


def test_a_definition_prints_and_rebuilds() -> None:
    with FusionDefinition() as fd:
        x, w, b = (fd.define_tensor([-1] * rank, dtype=DataType.BFloat16) for rank in (3, 2, 1))
        fd.add_output(fd.ops.linear(x, w, b))
        fd.add_output(fd.ops.linear(x, w))
        fd.add_output(fd.ops.matmul(x, w))
    text = repr(fd)
    assert "fd.ops.linear(tv0, tv1, bias=tv2)" in text
    assert "fd.ops.linear(tv0, tv1)\n" in text
    assert "fd.ops.matmul(tv0, tv1)" in text
    space: dict[str, Any] = {"FusionDefinition": FusionDefinition, "DataType": DataType}
    exec(text, space)
    with FusionDefinition() as again:
        space["nvfuser_fusion"](again)
    assert repr(again) == text.replace("tv3", "tv3")
    assert again.fusion == fd.fusion
    with FusionDefinition() as other:
        x, w, b = (other.define_tensor([-1] * rank, dtype=DataType.BFloat16) for rank in (3, 2, 1))
        other.add_output(other.ops.linear(x, w))
    assert other.fusion != fd.fusion


@pytest.mark.parametrize(
    ("op", "shapes", "dtypes", "message"),
    [
        ("matmul", ([], [3]), None, "operands must have at least one dim, got ranks 0 and 1"),
        ("matmul", ([2, 3], [4, 5]), None, "the dims that are summed over: they have extents 3 and 4"),
        ("matmul", ([2, 1], [3, 5]), None, "where one is known to be 1 the other must be"),
        ("matmul", ([2, 1], [-1, 5]), None, "where one is known to be 1 the other must be"),
        ("matmul", ([2, 4, 3], [5, 3, 4]), None, "Expected sizes to match in matmul: dim 0"),
        ("matmul", ([2, 3], [3, 4]), ("Float", "Half"), "must have one dtype, got arg1 Float, arg2 Half: cast them"),
        ("matmul", ([2, 3], [3, 4]), ("Int", "Int"), "must be Half, BFloat16, Float or Double, got Int: cast them"),
        ("linear", ([], [3, 3]), None, "arg1 must have at least one dim, got rank 0"),
        ("linear", ([3], [3]), None, "arg2 must have at least 2 dims, [N, K], got rank 1"),
        ("linear", ([2, 3], [4, 3], []), None, "bias must have at least one dim, [N], got rank 0"),
        ("linear", ([2, 3], [2, 4, 3]), None, "more dims are those of several devices"),
        ("linear", ([2, 3], [4, 5]), None, "the dims that are summed over: they have extents 3 and 5"),
        ("linear", ([2, 3], [4, 3], [4]), ("Float", "Float", "Double"), "must have one dtype"),
    ],
)
def test_operands_that_do_not_fit(
    op: str, shapes: tuple[list[int], ...], dtypes: tuple[str, ...] | None, message: str
) -> None:
    names = dtypes or ("Float",) * len(shapes)
    with FusionDefinition() as fd:
        tensors = [fd.define_tensor(s, dtype=getattr(DataType, n)) for s, n in zip(shapes, names, strict=True)]
        with pytest.raises(DefinitionRuntimeError, match=re.escape(message)) as caught:
            getattr(fd.ops, op)(*tensors)
        assert f"{op}" in caught.value.message
        fd.add_output(fd.ops.set(tensors[0]))


def test_arguments_that_are_no_tensors() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([2, 2], dtype=DataType.Float)
        with pytest.raises(DefinitionTypeError, match=r"matmul\(\): incompatible function arguments"):
            fd.ops.matmul(x, cast(Any, 2.0))
        fd.add_output(x)


def test_sums_of_other_lengths_are_told_at_execution() -> None:
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1, -1], dtype=DataType.Float) for _ in range(2))
        fd.add_output(fd.ops.matmul(x, y))
    with pytest.raises(InputRuntimeError, match="matmul, the dims that are summed over: a conflict was found"):
        fd.execute([np.ones((2, 3), np.float32), np.ones((4, 2), np.float32)])


def test_a_bias_of_another_length_is_told_at_execution() -> None:
    with FusionDefinition() as fd:
        x, w, b = (fd.define_tensor(s, dtype=DataType.Float) for s in ([-1, -1], [1, -1], [-1]))
        fd.add_output(fd.ops.linear(x, w, b))
    message = (
        "The expanded size of the tensor (1) must match the existing size (4) at non-singleton dimension 1.  "
        "Target sizes: [5, 1].  Tensor sizes: [4]"
    )
    with pytest.raises(InputRuntimeError, match=re.escape(message)):
        fd.execute([np.ones((5, 3), np.float32), np.ones((1, 3), np.float32), np.ones(4, np.float32)])
