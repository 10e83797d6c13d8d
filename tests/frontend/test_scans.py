from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.errors import DefinitionRuntimeError, DefinitionTypeError
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion.concretize import concretize
from fuser.ir.fusion.fusion import Pointwise, Scan
from fuser.ir.fusion.tolerances import folded_elements
from fuser.ir.fusion.verify_fusion import fusion_problems, verify_fusion
from fuser.ir.ops.dtypes import from_numpy_name
from tests.frontend.building import define, evaluate, lines, op_names, rebuild

D = DataType
Array = np.ndarray[Any, Any]
NAMES = ["cumsum", "cumprod", "cummin", "cummax"]
RUNNING = {
    "cumsum": np.add.accumulate,
    "cumprod": np.multiply.accumulate,
    "cummin": np.minimum.accumulate,
    "cummax": np.maximum.accumulate,
}


def scan(name: str, array: Array, *args: Any, **kwargs: Any) -> list[Array]:
    """The op on an input of the array's dtype, all dims symbolic."""
    dtype = from_numpy_name(array.dtype.name)
    fd = define(lambda fd: getattr(fd.ops, name)(fd.define_tensor([-1] * array.ndim, True, dtype), *args, **kwargs))
    return evaluate(fd, array)


A = np.random.default_rng(0).integers(-3, 4, (3, 4, 5)).astype(np.float32)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -3])
def test_values(name: str, dim: int):
    (out,) = scan(name, A, dim)
    np.testing.assert_array_equal(out, RUNNING[name](A, axis=dim))
    assert out.dtype == np.float32


@pytest.mark.parametrize("name", NAMES)
def test_init_is_folded_in_before_the_first_element(name: str):
    (out,) = scan(name, A, 1, init=2)
    first = np.full((3, 1, 5), 2, np.float32)
    np.testing.assert_array_equal(out, RUNNING[name](np.concatenate([first, A], 1), axis=1)[:, 1:])


@pytest.mark.parametrize(
    ("name", "dtype", "expected"),
    [
        ("cumsum", D.Bool, D.Bool),
        ("cumprod", D.Bool, D.Bool),
        ("cummax", D.Bool, D.Bool),
        ("cumsum", D.Int32, D.Int32),
        ("cumsum", D.Int, D.Int),
        ("cumsum", D.Index, D.Index),
        ("cumsum", D.Half, D.Half),
        ("cummin", D.BFloat16, D.BFloat16),
        ("cumprod", D.ComplexFloat, D.ComplexFloat),
        ("cumsum", D.ComplexDouble, D.ComplexDouble),
    ],
)
def test_dtype_is_kept(name: str, dtype: D, expected: D):
    with FusionDefinition() as fd:
        assert getattr(fd.ops, name)(fd.define_tensor([-1], True, dtype), 0).dtype() is expected


def test_int32_wraps():
    (out,) = scan("cumsum", np.array([2**31 - 1, 1, 1], np.int32), 0)
    assert out.tolist() == [2**31 - 1, -(2**31), -(2**31) + 1]


def test_16_bit_floats_accumulate_in_float_and_round_per_element():
    ones = np.full(4096, 1.0, ml_dtypes.bfloat16)
    (out,) = scan("cumsum", ones, 0)
    np.testing.assert_array_equal(out, np.arange(1, 4097, dtype=np.float32).astype(ml_dtypes.bfloat16))
    fd = define(lambda fd: fd.ops.cumsum(fd.define_tensor([-1], True, D.BFloat16), 0))
    assert op_names(fd) == ["cast", "cumsum", "cast"]


def test_one_element_is_a_copy_or_one_fold():
    assert op_names(define(lambda fd: fd.ops.cumsum(fd.define_tensor([-1, 1], True), 1))) == ["set"]
    assert op_names(define(lambda fd: fd.ops.cumprod(fd.define_tensor([1], True), 0, 3.0))) == ["mul"]
    fd = define(lambda fd: fd.ops.cummax(fd.define_tensor([1], True, D.Half), 0, 3))
    assert op_names(fd) == ["cast", "maximum", "cast"]
    assert evaluate(fd, np.array([1], np.float16))[0].tolist() == [3.0]


def test_print_and_equality():
    def body(fd: FusionDefinition, name: str = "cumsum", dim: int = 1, init: Any = None) -> Any:
        x = fd.define_tensor([-1, -1], True)
        return getattr(fd.ops, name)(x, dim, init)

    plain, started = define(body), define(lambda fd: body(fd, init=1.5))
    assert lines(plain)[1] == "tv1 = fd.ops.cumsum(tv0, dim=1)"
    assert lines(started)[1] == "tv2 = fd.ops.cumsum(tv0, dim=1, init=1.50000)"
    others = [
        plain,
        started,
        define(lambda fd: body(fd, dim=0)),
        define(lambda fd: body(fd, "cummax")),
        define(lambda fd: body(fd, init=0.0)),
        define(lambda fd: body(fd, init=-0.0)),
        define(lambda fd: body(fd, init=fd.define_scalar(D.Double))),
    ]
    for i, fd in enumerate(others):
        again = rebuild(fd)
        assert again.fusion == fd.fusion
        assert hash(again.fusion) == hash(fd.fusion)
        assert [other.fusion == fd.fusion for other in others] == [j == i for j in range(len(others))]


@pytest.mark.parametrize("dtype", [D.Float, D.BFloat16, D.Int])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_a_dim_that_one_element_is_seen_along(dtype: D, dim: int):
    """It is expanded before or after it is turned; what is scanned has all of its elements."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 1, 1], True, dtype)
        seen = fd.ops.permute(fd.ops.expand(x, [-1, 5, 3]), [1, 0, 2])
        fd.add_output(fd.ops.cumsum(seen, dim))
        fd.add_output(fd.ops.cummin(seen, dim, 2))
    array = np.arange(-2, 2).reshape(4, 1, 1).astype(dtype.numpy)
    whole = np.broadcast_to(array, (4, 5, 3)).transpose(1, 0, 2).astype(np.float64)
    total, least = (np.asarray(a).astype(np.float64) for a in fd.execute([array], device="simulator"))
    np.testing.assert_array_equal(total, whole.cumsum(dim))
    np.testing.assert_array_equal(least, np.minimum.accumulate(np.minimum(whole, 2), dim))
    assert rebuild(fd).fusion == fd.fusion


def test_init_may_be_a_scalar_input():
    with FusionDefinition() as fd:
        x, c = fd.define_tensor([-1], True), fd.define_scalar(D.Int)
        fd.add_output(fd.ops.cumsum(x, 0, init=c))
    assert "init=c" in repr(fd)
    (out,) = evaluate(fd, np.ones(3, np.float32), 10)
    assert out.tolist() == [11.0, 12.0, 13.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda fd, x: fd.ops.cumsum(x, 2), "Tried to access out of boundary index 2. total index: 2"),
        (lambda fd, x: fd.ops.cumsum(x, -3), "Tried to access out of boundary index -3. total index: 2"),
        (lambda fd, x: fd.ops.cummax(fd.define_tensor([], []), 0), "out of boundary index 0. total index: 0"),
        (
            lambda fd, x: fd.ops.cummin(fd.define_tensor([-1], True, D.ComplexFloat), 0),
            "cummin() does not support ComplexFloat operands",
        ),
        (
            lambda fd, x: fd.ops.cumsum(fd.define_tensor([-1], True, D.UInt64), 0),
            "cumsum() does not support UInt64 operands",
        ),
        (
            lambda fd, x: fd.ops.cumsum(fd.ops.cast(x, D.Int), 0, 0.5),
            "cumsum(): init is a Double scalar, which a Int tensor cannot hold; cast the tensor",
        ),
        (lambda fd, x: fd.ops.cumsum(x, 0, 1j), "init is a ComplexDouble scalar, which a Float tensor cannot hold"),
    ],
)
def test_refusals(call: Callable[[FusionDefinition, Any], Any], message: str):
    with pytest.raises(DefinitionRuntimeError) as caught, FusionDefinition() as fd:
        call(fd, fd.define_tensor([-1, -1], True))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda fd, x: fd.ops.cumsum(x),
        lambda fd, x: fd.ops.cumsum(x, 1.0),
        lambda fd, x: fd.ops.cumsum(x, True),
        lambda fd, x: fd.ops.cumsum(x, 0, x),
        lambda fd, x: fd.ops.cumsum(1.0, 0),
        lambda fd, x: fd.ops.cumsum(x, 0, "1"),
    ],
)
def test_arguments_that_do_not_bind(call: Callable[[FusionDefinition, Any], Any]):
    with (
        pytest.raises(DefinitionTypeError, match=r"cumsum\(\): incompatible function arguments"),
        FusionDefinition() as fd,
    ):
        call(fd, fd.define_tensor([-1, -1], True))


def test_a_dim_that_turns_out_to_have_one_element():
    def body(fd: FusionDefinition) -> list[Any]:
        n = fd.define_scalar(D.Int)
        f = fd.ops.full([n, 3], 2.0, D.Float)
        return [fd.ops.cumsum(f, 0), fd.ops.cumsum(f, 0, 1), fd.ops.cumsum(f, 1)]

    with FusionDefinition() as fd:
        for out in body(fd):
            fd.add_output(out)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    made = concretize(fusion, {"c0": 1})
    verify_fusion(made)
    assert [e.op for e in made.tensor_exprs if isinstance(e, (Pointwise, Scan))] == ["set", "add", "cumsum"]
    assert [t.name for t in made.output_tensors] == [t.name for t in fusion.output_tensors]
    results = evaluate_fusion(fusion, [1])
    assert [r.tolist() for r in results] == [[[2.0] * 3], [[3.0] * 3], [[2.0, 4.0, 6.0]]]


def test_tolerance_counts_the_scanned_extent():
    fd = define(lambda fd: fd.ops.cumsum(fd.define_tensor([-1, -1], True), 1))
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    assert folded_elements(fusion, {"t0_size0": 3, "t0_size1": 100})[fusion.output_tensors[0]] == 100


def test_malformed_scans_are_found():
    fd = define(lambda fd: fd.ops.cumsum(fd.define_tensor([-1, -1], True), 1))
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    (good,) = fusion.tensor_exprs
    assert isinstance(good, Scan)

    def problems(**changes: Any) -> str:
        made = type(fusion)(fusion.inputs, (replace(good, **changes),), fusion.outputs)
        return "; ".join(fusion_problems(made))

    assert problems() == ""
    assert "the op table has no scan 'cumxor'" in problems(op="cumxor")
    assert "dim 2 of t0 do not fit the ranks" in problems(dim=2)
