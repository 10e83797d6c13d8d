"""Every mistake in an op call: its class, its own words, and the user's line."""

from __future__ import annotations

import math

import pytest

from fuser import DataType, FusionDefinition
from fuser.errors import DefinitionError
from fuser.frontend.ops import OPS, UNSUPPORTED
from fuser.ir.ops.op_table import POINTWISE

D = DataType
R, T, N = RuntimeError, TypeError, NotImplementedError


class Values:
    """Tensors and scalars that the rows below use."""

    def __init__(self, fd: FusionDefinition) -> None:
        self.f = fd.define_tensor([-1, -1], True, D.Float)
        self.h = fd.define_tensor([-1, -1], True, D.Half)
        self.i = fd.define_tensor([-1, -1], True, D.Int)
        self.i32 = fd.define_tensor([-1, -1], True, D.Int32)
        self.b = fd.define_tensor([-1, -1], True, D.Bool)
        self.c = fd.define_tensor([-1, -1], True, D.ComplexFloat)
        self.u = fd.define_tensor([-1, -1], True, D.UInt64)
        self.z = fd.define_tensor([], True, D.Float)
        self.s34 = fd.define_tensor([3, 4], True, D.Float)
        self.s54 = fd.define_tensor([5, 4], True, D.Float)
        self.s14 = fd.define_tensor([1, 4], True, D.Float)
        self.e = fd.define_tensor([-1, 6], [True, None], D.Float)
        self.n = fd.define_scalar(D.Int)
        self.d = fd.define_scalar(D.Double)


# (op, arguments from Values, class, fragment of the message)
ERRORS = [
    # overloads
    ("add", lambda v: (v.f,), T, r"add\(\): incompatible function arguments"),
    ("add", lambda v: (v.f, v.f, v.f), T, r"It takes 2 operands, got 3"),
    ("add", lambda v: (v.f, "x"), T, r"rhs must be a TensorView, a Val or a number, got str"),
    ("add", lambda v: (v.f, None), T, r"add\(\): incompatible function arguments"),
    ("add", lambda v: (v.f, 2**63), T, r"does not fit 64 bits"),
    ("sin", lambda v: ([v.f],), T, r"sin\(\): incompatible function arguments"),
    ("where", lambda v: (v.b, v.f), T, r"where\(\): incompatible function arguments"),
    ("clamp", lambda v: (v.f, v.f, 1.0), T, r"min must be a scalar, got a TensorView"),
    ("clamp", lambda v: (v.f, 0.0, v.f), T, r"max must be a scalar, got a TensorView"),
    ("clamp", lambda v: (v.f,), T, r"clamp\(\): incompatible function arguments"),
    ("threshold", lambda v: (v.f, v.f, 1.0), T, r"thr must be a scalar"),
    ("threshold", lambda v: (v.f, 1.0, v.f), T, r"value must be a scalar"),
    ("addcmul", lambda v: (v.f, v.f, v.f, v.f), T, r"alpha must be a scalar"),
    ("cast", lambda v: (v.f, "Half"), T, r"dtype must be a DataType, got str"),
    ("cast", lambda v: (v.f,), T, r"cast\(\): incompatible function arguments"),
    # kinds
    ("silu", lambda v: (v.i,), R, r"silu\(\): floating input is required, got Int"),
    ("silu", lambda v: (v.c,), R, r"silu\(\): floating input is required"),
    ("imag", lambda v: (v.f,), R, r"imag not supported for non-complex tensors"),
    ("bitwise_not", lambda v: (v.f,), R, r"Integer or boolean input is required"),
    ("bitwise_and", lambda v: (v.f, v.i), R, r"Integer or boolean input is required"),
    ("bitwise_or", lambda v: (v.i, 1.5), R, r"Integer or boolean input is required"),
    ("bitwise_xor", lambda v: (v.f, v.f), R, r"Integer or boolean input is required"),
    ("bitwise_left_shift", lambda v: (v.b, v.b), R, r"input must have integral type"),
    ("bitwise_right_shift", lambda v: (v.f, 1), R, r"input must have integral type"),
    ("logical_right_shift", lambda v: (v.b, v.b), R, r"input must have integral type"),
    ("gcd", lambda v: (v.f, v.f), R, r"input must have integral type"),
    ("mod", lambda v: (v.f, v.f), R, r"input must have integral type"),
    ("nextafter", lambda v: (v.i, v.i), R, r"needs operands that promote to Float or Double, got Int, Int"),
    ("nextafter", lambda v: (v.h, v.h), R, r"promote to Float or Double"),
    ("complex", lambda v: (v.f, 1.0), R, r"two operands of one dtype"),
    ("complex", lambda v: (v.h, v.h), R, r"Float or Double"),
    ("complex", lambda v: (v.z, v.d), R, r"two operands of one dtype"),
    ("where", lambda v: (v.f, v.f, v.f), R, r"Condition should be of DataType Bool, not Float"),
    ("where", lambda v: (v.i, 1, 2), R, r"Condition should be of DataType Bool, not Int"),
    ("lt", lambda v: (v.c, v.f), R, r"complex operands are not supported"),
    ("erf", lambda v: (v.c,), R, r"erf\(\): complex operands are not supported"),
    ("floor", lambda v: (v.c,), R, r"complex operands are not supported"),
    ("sign", lambda v: (v.c,), R, r"complex operands are not supported"),
    ("logical_not", lambda v: (v.c,), R, r"complex operands are not supported"),
    ("atan2", lambda v: (v.f, v.c), R, r"complex operands are not supported"),
    # UInt64
    ("add", lambda v: (v.u, v.u), R, r"UInt64 operands are not supported"),
    ("bitwise_and", lambda v: (v.u, v.u), R, r"Integer or boolean input is required"),
    ("add", lambda v: (v.u, v.i), R, r"no common type of UInt64 and Int"),
    ("sum", lambda v: (v.u,), R, r"sum\(\) does not support UInt64 operands"),
    ("max", lambda v: (v.u, [0]), R, r"max\(\) does not support UInt64 operands"),
    # casts
    ("cast", lambda v: (v.f, D.Null), R, r"Illegal Cast value from DataType: Float to DataType: Null"),
    ("cast", lambda v: (v.f, D.Float4_e2m1fn), R, r"Illegal Cast value"),
    # extents
    ("add", lambda v: (v.s34, v.s54), R, r"Expected sizes to match in add: dim 0 of the operands has extents 3, 5"),
    ("where", lambda v: (v.b, v.s34, v.s54), R, r"Expected sizes to match in where"),
    # random
    ("rand_like", lambda v: (v.i,), R, r"Random distributions only create floating point types"),
    ("randn_like", lambda v: (v.c,), R, r"Random distributions only create floating point types"),
    ("rand_like", lambda v: (1.0,), T, r"x must be a TensorView"),
    ("uniform", lambda v: (0.0, 1.0), T, r"uniform\(\): incompatible function arguments"),
    ("uniform", lambda v: (v.z, 1.0, [4]), T, r"minval must be a scalar, got a TensorView"),
    ("uniform", lambda v: (0.0, 1.0, 4), T, r"shape must be a sequence"),
    ("uniform", lambda v: (0.0, 1.0, [-1]), R, r"uniform\(\) needs to know its shape, the entry at index 0 is -1"),
    ("uniform", lambda v: (0.0, 1.0, [-2]), R, r"was neither symbolic\(-1\)"),
    ("uniform", lambda v: (0.0, 1j, [4]), R, r"uniform\(\) does not support complex operands"),
    ("normal", lambda v: (0.0, 1.0, [v.d]), R, r"shape\[0\] must be an integer"),
    # reductions
    ("sum", lambda v: (1.0,), T, r"sum\(\): incompatible function arguments"),
    ("sum", lambda v: (v.f, []), R, r"No reduction axis specified"),
    ("max", lambda v: (v.f, ()), R, r"No reduction axis specified"),
    ("sum", lambda v: (v.f, [0, 0]), R, r"Reduction axes are not unique"),
    ("sum", lambda v: (v.f, [1, -1]), R, r"Reduction axes are not unique"),
    ("sum", lambda v: (v.f, [2]), R, r"Tried to access out of boundary index 2. total index: 2"),
    ("sum", lambda v: (v.f, -3), R, r"Tried to access out of boundary index -3. total index: 2"),
    ("sum", lambda v: (v.z, 1), R, r"Tried to access out of boundary index 1. total index: 1"),
    ("sum", lambda v: (v.f, 0.5), T, r"incompatible function arguments"),
    ("sum", lambda v: (v.f, [0.5]), T, r"must be an int"),
    ("sum", lambda v: (v.f, 0, 2), T, r"keepdim must be a bool"),
    ("sum", lambda v: (v.f, 0, True, "Float"), T, r"dtype must be a DataType"),
    ("sum", lambda v: (v.f, 0, True, D.Float, 1), T, r"at most 4 positional arguments"),
    ("max", lambda v: (v.f, 0, False, D.Float), R, r"max\(\): dtype cannot be given"),
    ("min", lambda v: (v.f, D.Half), R, r"min\(\): dtype cannot be given"),
    ("max", lambda v: (v.c, 0), R, r"max\(\) does not support ComplexFloat operands"),
    ("min", lambda v: (v.c,), R, r"min\(\) does not support ComplexFloat operands"),
    ("sum", lambda v: (v.f, 0, False, D.UInt64), R, r"does not support UInt64"),
    ("var", lambda v: (v.f, 1.0), T, r"var\(\): incompatible function arguments"),
    ("var", lambda v: (v.f, 1), T, r"dims must be a sequence"),
    ("var", lambda v: (v.f, [0], -1), R, r"correction must not be negative"),
    ("var", lambda v: (v.f, [0], 1.5), T, r"correction must be an int"),
    ("var", lambda v: (v.i, [0]), R, r"var\(\) needs a floating operand, got Int"),
    ("var", lambda v: (v.f, []), R, r"No reduction axis specified"),
    ("var", lambda v: (v.f, [0, 0]), R, r"Reduction axes are not unique"),
    ("var", lambda v: (v.f, [5]), R, r"Tried to access out of boundary index 5"),
    ("var_mean", lambda v: (v.b, [0]), R, r"var_mean\(\) needs a floating operand, got Bool"),
    ("var_mean", lambda v: (v.f, [0], -2), R, r"correction must not be negative"),
    ("var_mean", lambda v: (v.f, [0], 1, 0.0), T, r"keepdim must be a bool"),
    ("welford", lambda v: (v.z, [0]), R, r"welford\(\) needs a tensor of rank 1 or more"),
    ("welford", lambda v: (v.i, [0]), R, r"welford\(\) needs a floating operand"),
    ("welford", lambda v: (v.c, [0]), R, r"welford\(\) needs a floating operand"),
    ("welford", lambda v: (v.f, []), R, r"No reduction axis specified"),
    ("welford", lambda v: (v.f,), T, r"welford\(\): incompatible function arguments"),
    # shapes
    (
        "broadcast",
        lambda v: (v.f, [True, False]),
        R,
        r"Invalid broadcast, number of false entries in is_broadcast_dim expected to be 2",
    ),
    ("broadcast", lambda v: (v.f, [1.0, 0, 0]), T, r"broadcast\(\): incompatible function arguments"),
    ("broadcast", lambda v: (v.n, [True]), T, r"arg must be a TensorView"),
    ("expand", lambda v: (v.s34, [3, 5]), R, r"Invalid expand size: dim 1 has extent 4, it cannot become 5"),
    ("expand", lambda v: (v.f, [3]), R, r"Invalid expand size: shape has 1 entries, the tensor has 2 dims"),
    ("expand", lambda v: (v.f, [3, -2]), R, r"The value -2 at index 1 was neither symbolic"),
    ("expand", lambda v: (v.f, [3, 1.5]), T, r"expand\(\): incompatible function arguments"),
    ("expand", lambda v: (v.f, 3), T, r"shape must be a sequence"),
    ("expand", lambda v: (v.f, [3, v.d]), R, r"shape\[1\] must be an integer, got a scalar of dtype Double"),
    ("expand", lambda v: (v.f, [3, v.z]), T, r"must be a scalar, got a TensorView"),
    (
        "broadcast_in_dim",
        lambda v: (v.f, [3, 4], [0]),
        R,
        r"broadcast_dims must name one output dim for each of the 2 dims",
    ),
    ("broadcast_in_dim", lambda v: (v.f, [3], [0, 1]), R, r"shape must have at least as many entries"),
    ("broadcast_in_dim", lambda v: (v.f, [3, 4, 5], [1, 1]), R, r"broadcast_dims must not repeat a dim"),
    ("broadcast_in_dim", lambda v: (v.f, [3, 4, 5], [1, 0]), R, r"broadcast_dims must be increasing"),
    (
        "broadcast_in_dim",
        lambda v: (v.f, [3, 4, 5], [0, 3]),
        R,
        r"Tried to access out of boundary index 3. total index: 3",
    ),
    ("broadcast_in_dim", lambda v: (v.s34, [3, 5], [0, 1]), R, r"Invalid expand size"),
    ("squeeze", lambda v: (v.s14, [1]), R, r"Can not squeeze dim 1: its size is 4, not 1"),
    ("squeeze", lambda v: (v.s14, [2]), R, r"Squeeze dim is outside of Tensor size!"),
    ("squeeze", lambda v: (v.s14, [-3]), R, r"Squeeze dim is outside of Tensor size!"),
    (
        "squeeze",
        lambda v: (v.s14, [0, 0, 0]),
        R,
        r"The dims to squeeze must be <= the number of dims of the input tensor",
    ),
    ("squeeze", lambda v: (v.e, [1]), R, r"Can not squeeze dim 1: it is expanded to 6"),
    ("squeeze", lambda v: (v.s14, 0), T, r"dims must be a sequence"),
    ("squeeze", lambda v: (v.s14, [0], 1.0), T, r"squeeze_expanded must be a bool"),
    ("permute", lambda v: (v.f, [0]), R, r"argument to have the same length as input"),
    ("permute", lambda v: (v.f, [0, 2]), R, r"dims argument is out of range, expects values between -2 and 1, got 2"),
    ("permute", lambda v: (v.f, [0, 0]), R, r"duplicated dimension entries"),
    ("permute", lambda v: (v.f, [0, -2]), R, r"duplicated dimension entries"),
    ("permute", lambda v: (v.f, [0.0, 1]), T, r"permute\(\): incompatible function arguments"),
    ("permute", lambda v: (v.f,), T, r"permute\(\): incompatible function arguments"),
    ("size", lambda v: (v.f, 2), R, r"Tried to access out of boundary index 2. total index: 2"),
    ("size", lambda v: (v.f, 0.0), T, r"size\(\): incompatible function arguments"),
    ("size", lambda v: (v.n, 0), T, r"arg must be a TensorView"),
    ("shape", lambda v: (v.n,), T, r"shape\(\): incompatible function arguments"),
    # factories
    ("full", lambda v: ([2, -1], 0.0, D.Float), R, r"full\(\) needs to know its shape, the entry at index 1 is -1"),
    ("full", lambda v: ([2, -2], 0.0, D.Float), R, r"The value -2 at index 1 was neither symbolic"),
    ("full", lambda v: ([2.0], 0.0, D.Float), T, r"full\(\): incompatible function arguments"),
    ("full", lambda v: ([2], v.f, D.Float), T, r"fill_value must be a scalar"),
    ("full", lambda v: ([2], 0.0), T, r"full\(\): incompatible function arguments"),
    ("full", lambda v: ([2], 0.0, D.Null), R, r"full\(\) needs a dtype"),
    ("full", lambda v: ([2], 0.0, D.Float8_e8m0fnu), N, r"not supported yet"),
    ("full", lambda v: ([v.d], 0.0, D.Float), R, r"shape\[0\] must be an integer"),
    ("iota", lambda v: (2.0,), R, r"iota: length must be integer"),
    ("iota", lambda v: (v.d,), R, r"iota: length must be integer"),
    ("iota", lambda v: (4, 0.5), R, r"iota: start dtype does not match specified dtype argument"),
    ("iota", lambda v: (4, 0, 0.5), R, r"iota: step dtype does not match specified dtype argument"),
    ("iota", lambda v: (4, 0, 1, D.Float), R, r"iota: start dtype does not match specified dtype argument"),
    ("iota", lambda v: (4, 1j, None, D.Float), R, r"iota: start dtype does not match specified dtype argument"),
    ("iota", lambda v: (4, v.d), R, r"iota: start dtype does not match specified dtype argument"),
    ("iota", lambda v: (4, True), R, r"iota: start dtype does not match specified dtype argument"),
    ("iota", lambda v: (4, math.inf, None, D.Float), R, r"iota: length, start, step must be finite numbers."),
    ("iota", lambda v: (4, 0.0, math.nan, D.Float), R, r"iota: length, start, step must be finite numbers."),
    ("iota", lambda v: (4, 0, 0), R, r"iota: step value must not equal zero."),
    ("iota", lambda v: (-1,), R, r"iota: length must not be negative"),
    ("iota", lambda v: (4, None, None, D.Bool), R, r"iota: dtype must be floating or integer"),
    ("iota", lambda v: (v.f,), T, r"length must be a scalar"),
    ("iota", lambda v: (4, None, None, 3), T, r"dtype must be a DataType"),
]


@pytest.mark.parametrize(("op", "arguments", "kind", "text"), ERRORS, ids=[f"{i}-{e[0]}" for i, e in enumerate(ERRORS)])
def test_op_error(op, arguments, kind, text):
    with FusionDefinition() as fd:
        values = arguments(Values(fd))
        before = len(fd.fusion.all_exprs)
        with pytest.raises(kind, match=text) as caught:
            getattr(fd.ops, op)(*values)
        assert isinstance(caught.value, DefinitionError)
        # The user's file and line, and the line itself in the text.
        assert caught.value.location is not None
        assert caught.value.location.filename == __file__
        assert "getattr(fd.ops, op)(*values)" in str(caught.value)
        assert len(fd.fusion.outputs()) == 0
        assert before <= len(fd.fusion.all_exprs)


@pytest.mark.parametrize("op", sorted(set(POINTWISE) - {"cast"}))
def test_pointwise_ops_take_no_keywords(op):
    with FusionDefinition() as fd:
        x = fd.define_tensor([2])
        with pytest.raises(TypeError, match=rf"{op}\(\): incompatible function arguments") as caught:
            getattr(fd.ops, op)(not_an_argument=x)
    assert "<locals>" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [("sum", {"axis": 0}), ("sum", {"keepdim": True}), ("sum", {"dim": 0, "dims": [0]}), ("max", {"dims": 0})],
)
def test_reduction_keywords(name, kwargs):
    with FusionDefinition() as fd:
        x = fd.define_tensor([2])
        with pytest.raises(TypeError, match=rf"{name}\(\): incompatible function arguments"):
            getattr(fd.ops, name)(x, **kwargs)


@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
def test_names_of_later_ops_exist(name):
    with FusionDefinition() as fd:
        x = fd.define_tensor([2, 2])
        with pytest.raises(NotImplementedError, match=rf"{name}\(\) is not supported yet: \w+"):
            getattr(fd.ops, name)(x, x)


def test_no_active_fusion():
    from fuser import ops

    with pytest.raises(RuntimeError, match="there is no active fusion"):
        ops.add(1, 2)
    with pytest.raises(RuntimeError, match="there is no active fusion"):
        ops.full([2], 1.0, D.Float)


def test_operands_of_two_fusions():
    with FusionDefinition() as first:
        x = first.define_tensor([2])
        with FusionDefinition() as second:
            y = second.define_tensor([2])
            with pytest.raises(RuntimeError, match="two different fusions"):
                second.ops.add(x, y)
            n = first.define_scalar(D.Int)
            with pytest.raises(RuntimeError, match="another fusion"):
                second.ops.expand(y, [n, 2])


def test_ops_after_the_definition():
    with FusionDefinition() as fd:
        x = fd.define_tensor([2])
        fd.add_output(x)
    with pytest.raises(RuntimeError, match="nothing can be added to this fusion: its definition is complete"):
        fd.ops.neg(x)
    with pytest.raises(RuntimeError, match="its definition is complete"):
        fd.define_tensor([2])
    with pytest.raises(RuntimeError, match="its definition is complete"):
        fd.add_output(x)


def test_every_op_has_a_docstring_and_its_name():
    for name, op in OPS.items():
        assert op.__doc__, name
        assert op.__name__ == name


def test_all_names_of_the_contract_exist():
    names = [
        "abs",
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atanh",
        "bitwise_not",
        "ceil",
        "cos",
        "cosh",
        "erf",
        "erfc",
        "erfcinv",
        "erfinv",
        "exp",
        "exp2",
        "expm1",
        "floor",
        "frac",
        "imag",
        "isfinite",
        "isinf",
        "isnan",
        "isneginf",
        "isposinf",
        "isreal",
        "lgamma",
        "log",
        "log10",
        "log1p",
        "log2",
        "logical_not",
        "neg",
        "randn_like",
        "rand_like",
        "real",
        "reciprocal",
        "relu",
        "round",
        "rsqrt",
        "segment_set",
        "set",
        "sigmoid",
        "sign",
        "signbit",
        "silu",
        "sin",
        "sinh",
        "sqrt",
        "tan",
        "tanh",
        "trunc",
        "add",
        "sub",
        "mul",
        "div",
        "truediv",
        "pow",
        "fmod",
        "mod",
        "remainder",
        "minimum",
        "maximum",
        "atan2",
        "nextafter",
        "eq",
        "ne",
        "ge",
        "gt",
        "le",
        "lt",
        "logical_and",
        "logical_or",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "bitwise_left_shift",
        "bitwise_right_shift",
        "logical_right_shift",
        "gcd",
        "complex",
        "where",
        "lerp",
        "clamp",
        "threshold",
        "addcmul",
        "cast",
        "sum",
        "prod",
        "max",
        "min",
        "var",
        "var_mean",
        "welford",
        "cumsum",
        "cumprod",
        "cummin",
        "cummax",
        "matmul",
        "linear",
        "grouped_mm",
        "scaled_mm",
        "cutlass_nvfp4_grouped_mm",
        "sdpfa_fwd",
        "sdpfa_bwd",
        "broadcast",
        "broadcast_in_dim",
        "expand",
        "reshape",
        "permute",
        "squeeze",
        "slice",
        "pad",
        "cat",
        "stride_order",
        "size",
        "shape",
        "triu",
        "index_select",
        "select",
        "gather",
        "take_along_axis",
        "scatter",
        "embedding_fwd",
        "preprocess_grouped_matmul_input_sf",
        "full",
        "iota",
        "topk",
        "argsort",
        "nv_block_quantize",
        "nv_grouped_block_quantize",
        "uniform",
        "normal",
    ]
    assert set(names) == set(OPS)
