"""What operands become: dtypes of results, casts in the IR, broadcasts, constants."""

import ml_dtypes
import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.ir.ops.op_table import POINTWISE
from tests.frontend.building import NUMPY_DTYPES, define, evaluate, lines, op_names

D = DataType


def result_dtype(make):
    with FusionDefinition() as fd:
        return make(fd).dtype()


def tensor(fd, dtype, rank=1):
    return fd.define_tensor([-1] * rank, True, dtype)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ((D.BFloat16, 1), 1.0, D.Float),
        ((D.Float, 1), 1.0, D.Float),
        ((D.Int32, 1), 7, D.Int32),
        ((D.Bool, 1), 1, D.Int),
        ((D.Int, 1), 0.5, D.Double),
        ((D.Float, 1), 1j, D.ComplexFloat),
        ((D.Int, 1), 1j, D.ComplexDouble),
        ((D.Half, 1), (D.Double, 0), D.Float),
        ((D.Half, 1), (D.Double, 1), D.Double),
        ((D.Half, 1), (D.Float, 1), D.Float),
        ((D.Half, 1), (D.BFloat16, 1), D.Float),
        ((D.Half, 1), (D.Half, 1), D.Float),
        ((D.Double, 1), (D.Float, 2), D.Double),
        ((D.Int32, 1), (D.Int, 1), D.Int),
        ((D.Int32, 1), (D.Int, 0), D.Int32),
        ((D.Index, 1), (D.Int, 1), D.Index),
        ((D.ComplexFloat, 1), (D.Double, 1), D.ComplexDouble),
        ((D.ComplexFloat, 1), 2.0, D.ComplexFloat),
        ((D.Float, 1), (D.ComplexDouble, 0), D.ComplexFloat),
        ((D.Bool, 1), (D.Bool, 1), D.Bool),
        ((D.Bool, 1), 1.5, D.Double),
        ((D.Float, 1), True, D.Float),
    ],
)
def test_add(left, right, expected):
    def make(fd):
        first = tensor(fd, *left)
        second = tensor(fd, *right) if isinstance(right, tuple) else right
        assert fd.ops.add(second, first).dtype() is expected
        return fd.ops.add(first, second)

    assert result_dtype(make) is expected


def test_float_constant_of_dtype_float_with_int_tensor():
    assert result_dtype(lambda fd: fd.ops.mul(tensor(fd, D.Int), fd.define_scalar(0.5, D.Float))) is D.Float


def test_full_reduction_is_rank_0_in_promotion():
    def make(fd):
        total = fd.ops.sum(tensor(fd, D.Double))
        return fd.ops.add(tensor(fd, D.Float), total)

    assert result_dtype(make) is D.Float


RULES = {
    # rule: dtype of the result for a tensor of each dtype
    "KEEP": lambda d: d,
    "PROM": lambda d: D.Float if d in (D.Half, D.BFloat16) else d,
    "FLT": lambda d: D.Float if d in (D.Half, D.BFloat16, D.Int, D.Int32, D.Bool) else d,
    "BOOL": lambda d: D.Bool,
    "LOGICAL": lambda d: D.Bool,
    "MAGNITUDE": lambda d: {D.ComplexFloat: D.Float, D.ComplexDouble: D.Double}.get(d, d),
}


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize(
    ("op", "rule"),
    [(row.name, row.rule.name) for row in POINTWISE.values() if row.arity == 1 and row.rule.name in RULES],
)
def test_unary_dtypes(op, rule, dtype):
    with FusionDefinition() as fd:
        x = tensor(fd, dtype)
        kind = {"f": "f", "c": "c", "b": "b", "i": "i"}[
            "c" if dtype.is_complex else "f" if dtype.is_floating else "b" if dtype is D.Bool else "i"
        ]
        if kind not in POINTWISE[op].kinds:
            with pytest.raises(RuntimeError):
                getattr(fd.ops, op)(x)
        else:
            assert getattr(fd.ops, op)(x).dtype() is RULES[rule](dtype)


def test_casts_are_exprs():
    fd = define(lambda fd: fd.ops.add(tensor(fd, D.Half), tensor(fd, D.Double)))
    assert op_names(fd) == ["cast", "add"]
    fd = define(lambda fd: fd.ops.abs(tensor(fd, D.Half)))
    assert op_names(fd) == ["abs"]


def test_logical_ops_cast_to_bool_first():
    fd = define(lambda fd: fd.ops.logical_and(tensor(fd, D.Float), tensor(fd, D.Bool)))
    assert op_names(fd) == ["cast", "logical_and"]
    (out,) = evaluate(fd, np.array([0.0, np.nan, 2.0], np.float32), np.array([True, True, False]))
    assert out.tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("dtype", "constant", "line"),
    [
        (D.Float, 2.0, "tv1 = fd.ops.mul(tv0, 2.00000)"),
        (D.Float, 2, "tv1 = fd.ops.mul(tv0, 2.00000)"),
        (D.Int32, 2, "tv1 = fd.ops.mul(tv0, 2)"),
        (D.Int32, True, "tv1 = fd.ops.mul(tv0, 1)"),
        (D.Float, True, "tv1 = fd.ops.mul(tv0, 1.00000)"),
        (D.ComplexFloat, 2, "tv1 = fd.ops.mul(tv0, 2.00000+0.00000j)"),
        (D.ComplexFloat, 1 + 2j, "tv1 = fd.ops.mul(tv0, 1.00000+2.00000j)"),
        (D.Bool, True, "tv1 = fd.ops.mul(tv0, True)"),
    ],
)
def test_constants_beside_a_tensor_are_literals(dtype, constant, line):
    fd = define(lambda fd: fd.ops.mul(tensor(fd, dtype), constant))
    import re

    assert re.sub(r"tv[1-9]\d*", "tv1", lines(fd)[1]) == line


def test_symbolic_scalars_of_another_kind_are_cast():
    fd = define(lambda fd: fd.ops.mul(tensor(fd, D.Float), fd.define_scalar(D.Int)))
    assert op_names(fd) == ["cast", "mul"]
    fd = define(lambda fd: fd.ops.mul(tensor(fd, D.Float), fd.define_scalar(D.Double)))
    assert op_names(fd) == ["mul"]


def test_integer_constants_convert_exactly_once():
    # 2**53 + 1 has no double: going through one would give 2**53, then the wrong float.
    value = 2**24 + 1 + 2**53
    fd = define(lambda fd: fd.ops.add(tensor(fd, D.Float), value))
    (out,) = evaluate(fd, np.zeros(1, np.float32))
    assert out[0] == np.asarray(np.longdouble(value)).astype(np.float32)


def test_lower_rank_gets_dims_on_the_left():
    fd = define(lambda fd: fd.ops.add(tensor(fd, D.Float, 3), tensor(fd, D.Float, 1)))
    assert lines(fd)[2].endswith("fd.ops.broadcast(tv1, is_broadcast_dim=[True, True, False])")
    a, b = np.ones((2, 3, 4), np.float32), np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(evaluate(fd, a, b)[0], a + b)


def test_static_size_1_dims_broadcast():
    fd = define(lambda fd: fd.ops.add(fd.define_tensor([3, 1]), fd.define_tensor([1, 4])))
    assert [d.extent.value for d in fd.fusion.outputs()[0].node.visible] == [3, 4]


def test_symbolic_input_dims_of_size_1_do_not_broadcast():
    fd = define(lambda fd: fd.ops.add(tensor(fd, D.Float), tensor(fd, D.Float)))
    with pytest.raises(RuntimeError, match="a conflict was found with 2 different sizes"):
        evaluate(fd, np.ones(1, np.float32), np.ones(4, np.float32))


def test_size_1_of_a_factory_broadcasts_when_it_turns_out():
    def body(fd):
        n = fd.define_scalar(D.Int)
        return fd.ops.add(tensor(fd, D.Float), fd.ops.full([n], 2.0, D.Float))

    fd = define(body)
    assert evaluate(fd, 1, np.ones(3, np.float32))[0].tolist() == [3, 3, 3]
    assert evaluate(fd, 3, np.ones(3, np.float32))[0].tolist() == [3, 3, 3]
    with pytest.raises(RuntimeError, match="a conflict was found"):
        evaluate(fd, 2, np.ones(3, np.float32))


# --- scalars alone ---


def scalar_result(make):
    with FusionDefinition() as fd:
        return make(fd).node


@pytest.mark.parametrize(
    ("op", "operands", "value"),
    [
        ("add", (1, 2), 3),
        ("add", (1, 2.5), 3.5),
        ("add", (True, True), True),
        ("div", (-7, 2), -3),
        ("truediv", (7, 2), 3.5),
        ("remainder", (-7, 3), 2),
        ("fmod", (-7, 3), -1),
        ("pow", (2, 10), 1024),
        ("pow", (2, -1), 0),
        ("add", (2**63 - 1, 1), -(2**63)),
        ("mul", (2**62, 4), 0),
        ("eq", (1, 1.0), True),
        ("sqrt", (4.0,), 2.0),
        ("neg", (3,), -3),
        ("logical_not", (2.5,), False),
        ("where", (True, 1, 2.5), 1.0),
        ("where", (False, 1, 2), 2),
        ("maximum", (1, 2), 2),
        ("clamp", (5, None, 3), 3),
        ("clamp", (-5, -2, None), -2),
        ("threshold", (1.0, 2.0, 7.0), 7.0),
        ("sign", (-2.5,), -1.0),
        ("abs", (3 + 4j,), 5.0),
        ("cast", (2.9, D.Int), 2),
        ("cast", (2, D.Bool), True),
        ("bitwise_not", (5,), -6),
        ("logical_right_shift", (-1, 1), 2**63 - 1),
        ("logical_right_shift", (-1, 64), 0),
        ("logical_right_shift", (-1, 0), -1),
        ("addcmul", (1.0, 2.0, 3.0, 4.0), 25.0),
        ("lerp", (0.0, 10.0, 0.25), 2.5),
        ("complex", (1.0, 2.0), 1 + 2j),
        ("real", (1 + 2j,), 1.0),
        ("imag", (1 + 2j,), 2.0),
        ("bitwise_left_shift", (1, 70), 0),
        ("set", (4,), 4),
        ("segment_set", (4,), 4),
    ],
)
def test_constants_are_folded(op, operands, value):
    folded = scalar_result(lambda fd: getattr(fd.ops, op)(*operands))
    assert folded.value == value
    assert type(folded.value) is type(value)


def test_scalar_ops_are_host_arithmetic():
    def body(fd):
        c = fd.define_scalar(D.Int)
        x = tensor(fd, D.Float)
        return fd.ops.mul(x, fd.ops.add(fd.ops.sin(c), 1))

    fd = define(body)
    assert op_names(fd) == ["cast", "sin", "add", "mul"]
    (out,) = evaluate(fd, 2, np.ones(2, np.float32))
    np.testing.assert_allclose(out, np.float32(np.sin(2.0)) + 1, rtol=1e-6)


def test_extent_arithmetic_stays_an_expression():
    def body(fd):
        x = fd.define_tensor([-1, 6], True)
        n, m = fd.ops.shape(x)
        assert str((n * 4 + m).node.expression) == "4*t0_size0 + 6"
        assert m.node.value == 6
        assert str((n // 4).node.expression) == str((n.node.expression) // 4)
        assert (n % 3).node.expression is n.node.expression % 3
        assert (n - 7).node.expression is n.node.expression - 7
        assert fd.ops.maximum(n, 3).node.expression is not None
        return x

    define(body)


def test_low_precision_scalars_count_as_float():
    assert scalar_result(lambda fd: fd.ops.add(fd.define_scalar(D.Half), 1)).dtype is D.Float
    assert scalar_result(lambda fd: fd.ops.add(fd.define_scalar(D.Half), fd.define_scalar(D.BFloat16))).dtype is D.Float
    assert result_dtype(lambda fd: fd.ops.add(tensor(fd, D.Half), fd.define_scalar(D.Half))) is D.Float


# --- ops made of parts ---


def both(op, *arrays, **kwargs):
    """The op through the front end on tensors of the arrays' dtypes."""
    from fuser.ir.ops.dtypes import from_numpy_name

    def body(fd):
        tensors = [
            fd.define_tensor([-1] * a.ndim, True, from_numpy_name(a.dtype.name)) if isinstance(a, np.ndarray) else a
            for a in arrays
        ]
        return getattr(fd.ops, op)(*tensors, **kwargs)

    return evaluate(define(body), *(a for a in arrays if isinstance(a, np.ndarray)))[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.int32, np.int64])
def test_sign(dtype):
    x = np.array([-3, 0, 5], dtype)
    assert both("sign", x).tolist() == [-1, 0, 1]
    assert both("sign", x).dtype == dtype
    if np.dtype(dtype).kind == "f":
        out = both("sign", np.array([np.nan, -0.0, np.inf, -np.inf], dtype))
        assert out.tolist() == [0, 0, 1, -1]
        assert not np.signbit(out[1])


def test_sign_of_bool_is_a_copy():
    assert both("sign", np.array([True, False])).tolist() == [True, False]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_logical_right_shift(dtype):
    bits = np.dtype(dtype).itemsize * 8
    x = np.array([-1, -1, -1, 12, -8, -(2 ** (bits - 1))], dtype)
    n = np.array([0, 1, bits, 2, 3, bits - 1], dtype)
    expected = [-1, 2 ** (bits - 1) - 1, 0, 3, (2**bits - 8) >> 3, 1]
    assert both("logical_right_shift", x, n).tolist() == expected
    assert both("logical_right_shift", x, 1).tolist() == [(int(v) % 2**bits) >> 1 for v in x]
    assert both("logical_right_shift", x, bits + 5).tolist() == [0] * 6


def test_logical_right_shift_uses_the_width_of_lhs():
    x = np.array([-1], np.int32)
    assert both("logical_right_shift", x, np.array([1])).tolist() == [2**31 - 1]


def test_addcmul():
    a, b, c = (np.arange(3, dtype=np.float32) + i for i in range(3))
    np.testing.assert_array_equal(both("addcmul", a, b, c, 0.5), a + b * (c * np.float32(0.5)))


def test_where():
    condition = np.array([True, False])
    x = np.array([1, 2], np.float16)
    assert both("where", condition, x, x).dtype == np.float16
    assert both("where", condition, 1.0, 2.5).tolist() == [1.0, 2.5]
    assert both("where", condition, 1.0, 2.5).dtype == np.float64
    assert both("where", condition, 1, 2.5).tolist() == [1.0, 2.5]
    assert both("where", condition, 1, 2).dtype == np.int64


def test_where_promotes_without_widening():
    def body(fd):
        c, h, b = (tensor(fd, d) for d in (D.Bool, D.Half, D.BFloat16))
        assert fd.ops.where(c, h, b).dtype() is D.Float
        assert fd.ops.where(c, h, h).dtype() is D.Half
        assert fd.ops.where(c, h, 1.0).dtype() is D.Half
        assert fd.ops.where(c, fd.define_scalar(D.Half), fd.define_scalar(D.Half)).dtype() is D.Half
        assert fd.ops.where(fd.define_scalar(D.Bool), h, 0).dtype() is D.Half

    define(body)


def test_clamp():
    x = np.array([-5, 0, 5, np.nan], np.float32)
    np.testing.assert_array_equal(both("clamp", x, -1.0, 1.0), [-1, 0, 1, np.nan])
    np.testing.assert_array_equal(both("clamp", x, None, 1.0), [-5, 0, 1, np.nan])
    np.testing.assert_array_equal(both("clamp", x, -1, None), [-1, 0, 5, np.nan])
    np.testing.assert_array_equal(both("clamp", x, 2.0, 1.0), [1, 1, 1, np.nan])
    assert both("clamp", np.array([1, 9], np.int32), None, 3).tolist() == [1, 3]


def test_lerp_is_exact_at_both_ends():
    start, end = np.float32([0.1, 1e8]), np.float32([0.7, 3.0])
    np.testing.assert_array_equal(both("lerp", start, end, 0.0), start)
    np.testing.assert_array_equal(both("lerp", start, end, 1.0), end)


def test_cast():
    x = np.array([1.9, -1.9, 0.0], np.float32)
    for dtype, expected in ((D.Int, [1, -1, 0]), (D.Bool, [True, True, False]), (D.Half, np.float16(x).tolist())):
        fd = define(lambda fd, dtype=dtype: fd.ops.cast(tensor(fd, D.Float), dtype))
        assert evaluate(fd, x)[0].tolist() == expected
    assert op_names(define(lambda fd: fd.ops.cast(tensor(fd, D.Float), dtype=D.Float))) == ["set"]


def test_casting_complex_to_real_warns():
    with FusionDefinition() as fd, pytest.warns(UserWarning, match="drops the imaginary part") as caught:
        fd.ops.cast(tensor(fd, D.ComplexFloat), D.Float)
    assert caught[0].filename == __file__


def test_uint64():
    fd = define(
        lambda fd: [
            fd.ops.eq(x := tensor(fd, D.UInt64), 5),
            fd.ops.set(x),
            fd.ops.cast(x, D.Int),
            fd.ops.where(fd.ops.gt(x, x), x, x),
        ]
    )
    out = evaluate(fd, np.array([5, 2**63 + 1], np.uint64))
    assert out[0].tolist() == [True, False]
    assert out[1].tolist() == [5, 2**63 + 1]


@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (lambda fd, x: x.int() * 0.5, D.Double),
        (lambda fd, x: (x > 0) * 0.5, D.Double),
        (lambda fd, x: x.int().float() * 0.5, D.Float),
        (lambda fd, x: fd.ops.iota(4) * 0.5, D.Double),
        (lambda fd, x: fd.ops.iota(4, dtype=D.Float) * 0.5, D.Float),
        (lambda fd, x: fd.ops.where(x > 0, 1.0, 0.0), D.Double),
        (lambda fd, x: x.size(0) / 3, D.Float),
        (lambda fd, x: fd.ops.sqrt(x.size(0)), D.Float),
        (lambda fd, x: x.size(0) / 3.0, D.Double),
        (lambda fd, x: x.size(0) ** 0.5, D.Double),
        (lambda fd, x: fd.ops.sqrt(fd.ops.cast(x.size(0), D.Double)), D.Double),
    ],
)
def test_dtypes_that_the_ops_page_tells(make, dtype):
    with FusionDefinition() as fd:
        assert make(fd, tensor(fd, D.Double)).dtype is dtype


def test_bytes_in_words_as_the_ops_page_says():
    m, n = 3, 2
    stored = np.random.default_rng(0).integers(0, 256, (m, 4 * n), np.uint8)

    def make(fd):
        q = fd.define_tensor([m, n], dtype=D.Int32)
        table = fd.define_tensor([256])
        shift = fd.ops.iota(4, 0, 8, D.Int32)
        byte = (q.unsqueeze(-1) >> shift) & 255
        signed = ((q.unsqueeze(-1) << (24 - shift)) >> 24).float().reshape(m, 4 * n)
        looked_up = table.index_select(byte.reshape(-1), 0)
        packed = ((byte & 255) << shift).sum(-1, dtype=D.Int32)
        return byte.float().reshape(m, 4 * n), signed, looked_up, packed

    values = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e5m2).astype(np.float32)
    unsigned, signed, looked_up, packed = evaluate(define(make), stored.view(np.int32), values)
    np.testing.assert_array_equal(unsigned, stored)
    np.testing.assert_array_equal(signed, stored.view(np.int8))
    np.testing.assert_array_equal(looked_up, stored.view(ml_dtypes.float8_e5m2).astype(np.float32).reshape(-1))
    np.testing.assert_array_equal(packed, stored.view(np.int32))


@pytest.mark.parametrize(("dtype", "over_zero"), [(D.Int32, [-1, -1, -1]), (D.Int, [-1, 2**32 - 1, -1])])
def test_integers_over_0_as_the_ops_page_says(dtype, over_zero):
    def make(fd):
        x = tensor(fd, dtype)
        zero = x - x
        return fd.ops.div(x, zero), fd.ops.mod(x, zero), fd.ops.fmod(x, zero), x % zero, x // zero

    big = 2**31 - 1 if dtype is D.Int32 else 2**32
    *others, floored = evaluate(define(make), np.array([-3, 7, big], dtype.numpy))
    assert [x.tolist() for x in others] == [over_zero] * 4
    assert floored.tolist() == [q - (q < 0) for q in over_zero]
