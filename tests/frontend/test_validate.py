import ml_dtypes
import numpy as np
import pytest

from fuser import DataType, get_val_tolerances, validate_with_auto_inferred_outputs
from fuser.errors import InputAssertionError, InputRuntimeError
from fuser.frontend.validate import compare_arrays, validate_outputs
from fuser.ir.fusion.tolerances import tolerance_of
from tests.frontend.building import define, evaluate

D = DataType


@pytest.mark.parametrize(
    ("dtype", "n", "expected"),
    [
        (D.Float, 1, (1.7e-6, 2.2e-6)),
        (D.ComplexFloat, 0, (1.7e-6, 2.2e-6)),
        (D.Double, 1, (4e-15, 4e-15)),
        (D.Half, 1, (2**-8, 2**-7)),
        (D.BFloat16, 1, (2**-8, 2**-7)),
        (D.Int, 1000, (0, 0)),
        (D.Bool, 1, (0, 0)),
        (D.Float, 2, (7.5e-7 * 8**0.58, 7.5e-9 * 8**0.58)),
        (D.Float, 1024, (7.5e-7 * 2048**0.58, 7.5e-9 * 2048**0.58)),
        (D.Float, 1025, (7.5e-7 * 4096**0.58, 7.5e-9 * 4096**0.58)),
        (D.Double, 4, (7.5e-7 * 8**0.58 * 2**-29, 7.5e-9 * 8**0.58 * 2**-29)),
        (D.Half, 4, (2**-7, 2**-7 / 100)),
        (D.Half, 1024, (2**-3, 2**-3 / 100)),
        (D.BFloat16, 1024, (10 * 2**-3, 2**-3 / 10)),
    ],
)
def test_tolerances(dtype, n, expected):
    assert tolerance_of(dtype, n) == pytest.approx(expected, rel=1e-12)


def body(fd):
    x = fd.define_tensor([-1, -1], True)
    c = fd.define_scalar()
    y = fd.ops.sum(fd.ops.mul(x, c), [1], keepdim=True)
    fd.add_output(fd.ops.exp(x))
    fd.add_output(y)
    fd.add_output(fd.ops.sum(fd.ops.div(x, y), [0]))
    fd.add_output(fd.ops.gt(x, 0))
    fd.add_output(fd.ops.neg(x), x)


def test_get_val_tolerances():
    fd = define(body)
    x = np.ones((8, 16), np.float32)
    tolerances = get_val_tolerances(fd.fusion, [x, 2.0])
    assert tolerances == [tolerance_of(D.Float, 1), tolerance_of(D.Float, 16), tolerance_of(D.Float, 128), (0, 0)]
    assert get_val_tolerances(fd.fusion, [[x, 2.0]]) == tolerances
    with pytest.raises(RuntimeError, match="expected 2 inputs, got 1"):
        get_val_tolerances(fd.fusion, [x])
    with pytest.raises(TypeError, match="get_val_tolerances"):
        get_val_tolerances(fd, [x, 2.0])


def test_expanded_and_size_1_dims_in_tolerances():
    def expanded(fd):
        x = fd.define_tensor([-1, 1], True)
        return [fd.ops.sum(x, [1]), fd.ops.sum(fd.ops.expand(x, [-1, 32]), [1])]

    fd = define(expanded)
    assert get_val_tolerances(fd.fusion, [np.ones((2, 1), np.float32)]) == [
        tolerance_of(D.Float, 1),
        tolerance_of(D.Float, 32),
    ]


def test_validation_against_the_reference():
    fd = define(body)
    x = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
    good = evaluate(fd, x, 2.0)
    validate_with_auto_inferred_outputs(fd.fusion, good, [x, 2.0])
    bad = [good[0] + np.float32(1e-3), *good[1:]]
    with pytest.raises(
        RuntimeError,
        match=r"output 0 differs from the reference in \d+ of 128 elements: largest error 0\.00\d+ at \(\d+, \d+\)",
    ):
        validate_with_auto_inferred_outputs(fd.fusion, bad, [x, 2.0])
    with pytest.raises(RuntimeError, match="returned 3 outputs, there are 4 references"):
        validate_with_auto_inferred_outputs(fd.fusion, good[:3], [x, 2.0])


def test_zeros_and_the_next_lower_dtype_fail():
    fd = define(lambda fd: fd.ops.sin(fd.define_tensor([-1], True)))
    x = np.linspace(1, 2, 100, dtype=np.float32)
    for wrong in (np.zeros(100, np.float32), np.sin(x).astype(np.float16).astype(np.float32)):
        with pytest.raises(RuntimeError, match="differs from the reference"):
            validate_outputs(fd.fusion.ir_fusion, [wrong], [x], None)


def test_one_unit_of_what_is_rounded_on_the_way_is_close():
    """Tolerances are for data of unit variance; what is larger is rounded all the same."""
    single = define(lambda fd: fd.ops.sum(fd.define_tensor([-1, -1], True), [1]))
    x = np.full((3, 5), 30.3, np.float32)
    exact = evaluate(single, x)[0]
    one = np.nextafter(exact, np.float32(np.inf))
    validate_outputs(single.fusion.ir_fusion, [one], [x], None)
    # Ten of their units are what rounding each sum on its way may make.
    with pytest.raises(RuntimeError, match="differs from the reference in 3 of 3"):
        validate_outputs(single.fusion.ir_fusion, [exact + 64 * (one - exact)], [x], None)
    # One large value among small ones is rounded as well.
    copy = define(lambda fd: fd.ops.neg(fd.define_tensor([-1], True)))
    values = np.array([1e6, *[1e-3] * 10000], np.float32)
    validate_outputs(copy.fusion.ir_fusion, [np.nextafter(-values, np.float32(0))], [values], None)

    def through_bfloat16(fd):
        x = fd.define_tensor([-1, -1], True)
        return fd.ops.cast(fd.ops.cast(fd.ops.sum(x, [1]), D.BFloat16), D.Float) + 1.0

    def of_bfloat16(fd):
        x = fd.define_tensor([-1, -1], True, D.BFloat16)
        return fd.ops.sum(fd.ops.cast(x, D.Float), [1])

    # 150 has a unit of 1 in BFloat16.
    for body, dtype, is_close in ((through_bfloat16, np.float32, True), (of_bfloat16, ml_dtypes.bfloat16, False)):
        fd = define(body)
        given = x.astype(dtype)
        (exact,) = evaluate(fd, given)
        off = exact + np.float32(1.0)
        if is_close:
            validate_outputs(fd.fusion.ir_fusion, [off], [given], None)
            off = exact * np.float32(1.05)
        with pytest.raises(RuntimeError, match="differs from the reference in 3 of 3"):
            validate_outputs(fd.fusion.ir_fusion, [off], [given], None)


def test_references():
    fd = define(lambda fd: fd.ops.neg(fd.define_tensor([-1], True)))
    x = np.array([1, np.nan, np.inf], np.float32)
    validate_outputs(fd.fusion.ir_fusion, [-x], [x], [-x])
    with pytest.raises(AssertionError, match=r"output 0 has shape \(3,\), the reference has shape \(2,\)"):
        validate_outputs(fd.fusion.ir_fusion, [-x], [x], [-x[:2]])
    with pytest.raises(AssertionError, match="1 outputs, there are 2 references"):
        validate_outputs(fd.fusion.ir_fusion, [-x], [x], [x, x])
    with pytest.raises(AssertionError, match="differs from the reference in 2 of 3"):
        validate_outputs(fd.fusion.ir_fusion, [-x], [x], [np.array([-1, 0, np.inf], np.float32)])


@pytest.mark.parametrize(
    ("actual", "expected", "fails"),
    [
        ([1, 2], [1, 2], False),
        ([1, 2], [1, 3], True),
        ([np.inf, 1.0], [np.inf, 1.0], False),
        ([1e30, 1.0], [np.inf, 1.0], True),
        ([np.inf, 1.0], [1e30, 1.0], True),
        ([np.nan, 1.0], [1.0, 1.0], True),
        ([1 + 1j], [1 + 1j], False),
        ([1 + 1j], [1 - 1j], True),
        ([True], [False], True),
    ],
)
def test_comparison(actual, expected, fails):
    arguments = (0, np.array(actual), np.array(expected), (1e-6, 1e-6), InputRuntimeError)
    if fails:
        with pytest.raises(InputRuntimeError):
            compare_arrays(*arguments)
    else:
        compare_arrays(*arguments)


def test_large_integers_compare_exactly():
    a = np.array([2**62 + 1])
    with pytest.raises(InputAssertionError):
        compare_arrays(0, a, a - 1, (0.0, 0.0), InputAssertionError)


def test_bfloat16_outputs():
    fd = define(lambda fd: fd.ops.cast(fd.define_tensor([-1], True), D.BFloat16))
    x = np.float32([1.001, -2.5])
    validate_outputs(fd.fusion.ir_fusion, [x.astype(ml_dtypes.bfloat16)], [x], None)


def test_fd_validate_uses_inputs_as_they_were():
    fd = define(body)
    x = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)

    class Cache:
        def __init__(self, fusion):
            self._fusion = fusion

        def fusion(self):
            return self._fusion

        def execute(self, inputs, **kwargs):
            out = evaluate(fd, *inputs)
            inputs[0][...] = -inputs[0]
            return out

    fd.fec = Cache(fd.fusion)
    before = x.copy()
    outputs = fd.validate([x, 2.0])
    np.testing.assert_array_equal(x, -before)
    with pytest.raises(AssertionError, match="output 0"):
        fd.validate([before, 2.0], reference_outputs=[o + 1 for o in outputs[:3]] + outputs[3:])


@pytest.mark.parametrize("update_first", [False, True])
def test_output_that_is_an_updated_input_has_the_new_values(update_first):
    """It is that input itself; what only reads it, views too, has the old ones."""

    def updated(fd):
        x = fd.define_tensor([-1, -1], True)
        y = fd.ops.sum(x, [1], keepdim=True)
        new = fd.ops.add(x, y)
        if update_first:
            fd.add_output(new, x)
        fd.add_output(x)
        fd.add_output(fd.ops.permute(x, [1, 0]))
        if not update_first:
            fd.add_output(new, x)

    fd = define(updated)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    old, new = x.copy(), x + x.sum(1, keepdims=True)
    for found, expected in zip(evaluate(fd, x), (new, old.T), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert get_val_tolerances(fd.fusion, [x]) == [tolerance_of(D.Float, 3), tolerance_of(D.Float, 1)]
    outputs = fd.validate([x], device="simulator")
    assert outputs[0] is x
    np.testing.assert_array_equal(x, new)
    np.testing.assert_array_equal(outputs[1], old.T)
