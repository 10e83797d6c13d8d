"""The printed text rebuilds the definition: same outputs, same constants, same text from the second round on."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuser import DataType, FusionDefinition, translate_fusion
from fuser.ir.fusion.print_fusion import HEADER, literal
from fuser.ir.ops.op_table import POINTWISE
from tests.frontend.building import NUMPY_DTYPES, define, evaluate, lines, rebuild

D = DataType


def assert_round_trip(fd):
    second = rebuild(fd)
    third = rebuild(second)
    assert second.fusion == fd.fusion
    assert hash(second.fusion) == hash(fd.fusion)
    assert repr(third) == repr(second)
    assert third.fusion == second.fusion
    return second


def test_exact_text():
    def body(fd):
        x = fd.define_tensor(shape=[-1, 16], contiguity=[True, True], dtype=D.Half)
        c = fd.define_scalar()
        y = fd.ops.mul(x, c)
        fd.ops.exp(y)  # dead
        return fd.ops.sum(y, [-1])

    assert repr(define(body)) == (
        "def nvfuser_fusion(fd : FusionDefinition) -> None :\n"
        "    tv0 = fd.define_tensor(shape=[-1, 16], contiguity=[True, True], dtype=DataType.Half, is_cpu=False)\n"
        "    c1 = fd.define_scalar(None, dtype=DataType.Double)\n"
        "    tv2 = fd.ops.cast(tv0, dtype=DataType.Float)\n"
        "    tv3 = fd.ops.mul(tv2, c1)\n"
        "    tv5 = fd.ops.sum(tv3, dims=[1], dtype=DataType.Float)\n"
        "    fd.add_output(tv5)\n"
    )


def test_header():
    assert HEADER == "def nvfuser_fusion(fd : FusionDefinition) -> None :"


def test_translate_fusion_is_repr():
    fd = define(lambda fd: fd.define_tensor([2]))
    assert translate_fusion(fd.fusion) == repr(fd)
    with pytest.raises(TypeError, match="translate_fusion"):
        translate_fusion(fd)


def test_text_before_within_and_after():
    with FusionDefinition() as fd:
        assert "pass" in repr(fd)
        x = fd.define_tensor([2])
        assert "tv0 = fd.define_tensor" in repr(fd)
        fd.add_output(fd.ops.neg(x))
        inside = repr(fd)
    assert repr(fd) == inside


INPUTS = [
    ([-1, 4], {"contiguity": [True, False]}),
    ([1, -1], {"contiguity": True}),
    ([2, 3, 4, 5], {"contiguity": True, "stride_order": [3, 0, 2, 1]}),
    ([-1, 7, -1], {"contiguity": [True, None, None]}),
    ([-1, 7, 1], {"contiguity": [None, True, None], "stride_order": [0, 1, 2]}),
    ([], {"dtype": D.Double, "is_cpu": True}),
    ([0, 3], {"contiguity": True, "dtype": D.Bool}),
]


@pytest.mark.parametrize(("shape", "kwargs"), INPUTS)
def test_inputs(shape, kwargs):
    fd = define(lambda fd: fd.define_tensor(shape, **kwargs))
    again = assert_round_trip(fd)
    a, b = fd.fusion.inputs()[0].node, again.fusion.inputs()[0].node
    assert (a.dtype, a.stride_order, a.contiguity, a.is_cpu) == (b.dtype, b.stride_order, b.contiguity, b.is_cpu)
    assert ("stride_order" in repr(fd)) == ("stride_order" in kwargs)
    assert [(d.kind, d.expanded) for d in a.logical] == [(d.kind, d.expanded) for d in b.logical]


@pytest.mark.parametrize("dtype", [d for d in DataType if d.is_supported])
def test_symbolic_scalars(dtype):
    def body(fd):
        c = fd.define_scalar(dtype)
        fd.add_output(fd.ops.full([2], c, dtype))

    fd = define(body)
    assert lines(fd)[0] == f"c0 = fd.define_scalar(None, dtype=DataType.{dtype.name})"
    assert_round_trip(fd)


CONSTANTS = [
    0.0, -0.0, 3.0, 0.1, 1 / 3, 1e-300, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan,
    0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1, True, False,
    1 + 2j, -0.0 + 1j, complex(1, -0.0), complex(math.inf, math.nan), complex(-0.0, -0.0), complex(0.1, -1e-9),
]  # fmt: skip


def same_number(a, b):
    if isinstance(a, complex):
        return same_number(a.real, b.real) and same_number(a.imag, b.imag)
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return a == b


@pytest.mark.parametrize("value", CONSTANTS, ids=repr)
def test_literals_are_exact(value):
    back = eval(literal(value))
    assert type(back) is type(value)
    assert same_number(back, value)


@given(st.one_of(st.floats(), st.integers(-(2**63), 2**63 - 1), st.complex_numbers(), st.booleans()))
@settings(max_examples=300, deadline=None)
def test_any_literal_is_exact(value):
    back = eval(literal(value))
    assert type(back) is type(value)
    assert same_number(back, value)


@pytest.mark.parametrize(
    ("value", "text"),
    [(3.0, "3.00000"), (0.1, "0.100000"), (1 / 3, "0.3333333333333333"), (1e20, "1.00000e+20"), (math.inf, 'float("inf")'),
     (-math.inf, 'float("-inf")'), (math.nan, 'float("nan")'), (-0.0, "-0.00000"), (2, "2"), (True, "True"),
     (1 + 2j, "1.00000+2.00000j"), (1 - 2j, "1.00000-2.00000j"), (1e-05, "1.00000e-05")],
)  # fmt: skip
def test_literal_text(value, text):
    assert literal(value) == text


@pytest.mark.parametrize("dtype", [d for d in DataType if d.is_supported])
@pytest.mark.parametrize("value", [v for v in CONSTANTS if not isinstance(v, complex)], ids=repr)
def test_constants_of_every_dtype(value, dtype):
    if (
        isinstance(value, float)
        and not (dtype.is_floating or dtype.is_complex or dtype is D.Bool)
        and not float(value).is_integer()
    ):
        pytest.skip("no value of that dtype")
    if isinstance(value, float) and dtype.is_integral and abs(value) > 2**60:
        pytest.skip("out of range")

    def body(fd):
        c = fd.define_scalar(value, dtype)
        x = fd.define_tensor([-1], True, dtype)
        fd.add_output(fd.ops.where(fd.define_tensor([-1], True, D.Bool), c, x))

    fd = define(body)
    second = assert_round_trip(fd)

    def constant_of(definition):
        (expr,) = definition.fusion.ir_fusion.exprs
        return expr.inputs[1]

    first, again = constant_of(fd), constant_of(second)
    assert same_number(first.value, again.value)
    inline = dtype in (D.Bool, D.Int, D.Index, D.Double, D.ComplexDouble)
    assert ("define_scalar(" in repr(fd)) == (not inline)


@pytest.mark.parametrize("op", [n for n, r in POINTWISE.items() if n not in ("cast",)])
def test_every_pointwise_op(op):
    row = POINTWISE[op]
    dtype = D.Float if "f" in row.kinds else D.Int if "i" in row.kinds else D.ComplexFloat

    def body(fd):
        first = fd.define_tensor([-1], True, D.Bool if op == "where" else dtype)
        others = [fd.define_tensor([-1], True, dtype) for _ in range(row.arity - 1)]
        if op in ("clamp", "threshold"):
            others = [0.0, 1.5]
        if op == "addcmul":
            others[-1] = 2.0
        return getattr(fd.ops, op)(first, *others)

    assert_round_trip(define(body))


@pytest.mark.parametrize("left", NUMPY_DTYPES)
@pytest.mark.parametrize("right", NUMPY_DTYPES)
def test_every_promotion(left, right):
    def body(fd):
        x, y, z = (
            fd.define_tensor([-1], True, left),
            fd.define_tensor([-1], True, right),
            fd.define_tensor([], True, right),
        )
        c = fd.define_scalar(right)
        return [fd.ops.mul(x, y), fd.ops.mul(x, z), fd.ops.mul(c, x), fd.ops.eq(z, c), fd.ops.mul(fd.ops.mul(c, c), x)]

    assert_round_trip(define(body))


def body_norm(fd):
    x = fd.define_tensor([-1, -1], True, D.BFloat16)
    w = fd.define_tensor([-1], True, D.BFloat16)
    variance, mean = fd.ops.var_mean(x, [1], correction=0, keepdim=True)
    y = (x - mean) * fd.ops.rsqrt(variance + 1e-5) * w
    fd.add_output(fd.ops.cast(y, D.BFloat16))
    fd.add_output(fd.ops.cast(variance, D.BFloat16))


def body_softmax(fd):
    x = fd.define_tensor([-1, 32], True, D.Half)
    m = fd.ops.max(x, [1], keepdim=True)
    e = fd.ops.exp(x - fd.ops.expand(m, [-1, 32]))
    return fd.ops.cast(e / fd.ops.sum(e, [1], keepdim=True), D.Half)


def body_factories(fd):
    n = fd.define_scalar(D.Int)
    x = fd.define_tensor([-1, -1], True)
    return [
        fd.ops.full([n, x.size(1) * 2], fd.define_scalar(D.Double), D.Half),
        fd.ops.full([2, n], 0.1, D.Float),
        fd.ops.full([], True, D.Bool),
        fd.ops.iota(n), fd.ops.iota(5, 2, 3), fd.ops.iota(n, 0.5, None, D.Float), fd.ops.iota(n, n, dtype=D.Int32),
        fd.ops.iota(3, -0.0, 1.0, D.Double),
        fd.ops.broadcast_in_dim(x, [3, n, x.size(1)], [1, 2]),
    ]  # fmt: skip


def body_shapes(fd):
    x = fd.define_tensor([-1, 1, 6, -1], [True, None, None, True])
    return [
        fd.ops.permute(fd.ops.squeeze(x, [1]), [2, 0, 1]),
        fd.ops.squeeze(x, [1, 2], squeeze_expanded=True),
        fd.ops.broadcast(x, [True, False, False, True, False, False]),
        fd.ops.sum(x, [1, 2]),
        fd.ops.min(x, [0], keepdim=True),
        *fd.ops.welford(x, [0, 3]),
        fd.ops.segment_set(x),
        fd.ops.cast(x, D.Float),
    ]


def body_scalars(fd):
    a, b = fd.define_vector(2)
    x = fd.define_tensor([-1, -1], True, D.Int32)
    s = fd.ops.where(fd.ops.gt(a, b), fd.ops.add(a, 2.5), fd.ops.sqrt(b))
    return [fd.ops.mul(x, s), x + (a // b) % x.size(0), fd.ops.mul(x, fd.ops.cast(a, D.Half))]


def body_aliases(fd):
    x, y = fd.define_tensor([-1], True), fd.define_tensor([-1], True)
    z = fd.ops.add(x, y)
    fd.add_output(z, x)
    fd.add_output(z)
    fd.add_output(x, y)
    fd.add_output(y)


BODIES = [body_norm, body_softmax, body_factories, body_shapes, body_scalars, body_aliases]


@pytest.mark.parametrize("body", BODIES)
def test_programs(body):
    fd = define(body)
    again = assert_round_trip(fd)
    assert [(o.tensor.dtype, len(o.tensor.visible)) for o in fd.fusion.ir_fusion.outputs] == [
        (o.tensor.dtype, len(o.tensor.visible)) for o in again.fusion.ir_fusion.outputs
    ]


def test_programs_compute_the_same_bits():
    x = np.random.default_rng(0).standard_normal((4, 32)).astype(np.float16)
    fd = define(body_softmax)
    np.testing.assert_array_equal(evaluate(fd, x)[0], evaluate(rebuild(fd), x)[0])


def test_defaults_of_iota_are_omitted():
    def body(fd):
        n = fd.define_scalar(D.Int)
        return [fd.ops.iota(n), fd.ops.iota(n, 1), fd.ops.iota(n, 0, 2, D.Int32), fd.ops.iota(4, 0.0, 1.0, D.Double)]

    text = lines(define(body))
    assert [line.partition(" = ")[2] for line in text[1:5]] == [
        "fd.ops.iota(c0)",
        "fd.ops.iota(c0, start=1)",
        "fd.ops.iota(c0, step=2, dtype=DataType.Int32)",
        "fd.ops.iota(4, dtype=DataType.Double)",
    ]


def test_order_is_depth_first_from_the_outputs():
    def body(fd):
        x, y = fd.define_tensor([2]), fd.define_tensor([2])
        late = fd.ops.sin(y)
        early = fd.ops.cos(x)
        return [fd.ops.add(early, late), early]

    assert [line.partition("(")[0].rpartition(".")[2] for line in lines(define(body))[2:5]] == ["cos", "sin", "add"]


def test_long_chains():
    def body(fd):
        x = fd.define_tensor([-1])
        for _ in range(3000):
            x = fd.ops.neg(x)
        return x

    assert len(lines(define(body))) == 3002


@st.composite
def random_program(draw):
    """A list of steps: (op name, operand indices)."""
    ops = ["add", "mul", "sub", "maximum", "sin", "neg", "abs", "sum", "broadcast", "cast", "where", "constant", "sign"]
    return draw(
        st.lists(st.tuples(st.sampled_from(ops), st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=12)
    )


@given(random_program(), st.sampled_from([D.Float, D.Half, D.Int32, D.Bool]))
@settings(max_examples=60, deadline=None)
def test_random_programs(steps, dtype):
    def body(fd):
        values = [fd.define_tensor([-1, -1], True, dtype), fd.define_tensor([-1], True, D.Float)]
        for op, i, j in steps:
            a, b = values[i % len(values)], values[j % len(values)]
            match op:
                case "sum":
                    made = fd.ops.sum(a, [0], keepdim=True) if a.ndim else a
                case "broadcast":
                    made = fd.ops.broadcast(a, [True] + [False] * a.ndim) if a.ndim < 3 else a
                case "cast":
                    made = fd.ops.cast(a, b.dtype())
                case "where":
                    made = fd.ops.where(fd.ops.ne(a, 0), b, 1)
                case "constant":
                    made = fd.ops.mul(a, 0.3 * i)
                case "sin" | "neg" | "abs" | "sign":
                    made = getattr(fd.ops, op)(a)
                case _:
                    made = getattr(fd.ops, op)(a, b)
            values.append(made)
        return values[-3:]

    fd = define(body)
    again = assert_round_trip(fd)
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((3, 4)) * 3).astype(dtype.numpy)
    y = rng.standard_normal(4).astype(np.float32)
    for a, b in zip(evaluate(fd, x, y), evaluate(again, x, y), strict=True):
        np.testing.assert_array_equal(a, b)
