import math

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from tests.frontend.building import define


def scalar_of(*args, **kwargs):
    with FusionDefinition() as fd:
        value = fd.define_scalar(*args, **kwargs)
    return value.node, fd


@pytest.mark.parametrize(
    ("args", "kwargs", "dtype"),
    [
        ((), {}, DataType.Double),
        ((DataType.Int,), {}, DataType.Int),
        ((), {"dtype": DataType.Half}, DataType.Half),
        ((None, DataType.Bool), {}, DataType.Bool),
        ((None,), {"dtype": DataType.Float}, DataType.Float),
        ((), {"value": None, "dtype": DataType.ComplexFloat}, DataType.ComplexFloat),
        ((None,), {}, DataType.Double),
    ],
)
def test_symbolic_scalars_are_inputs(args, kwargs, dtype):
    scalar, fd = scalar_of(*args, **kwargs)
    assert scalar.dtype is dtype
    assert not scalar.is_constant
    assert fd.fusion.ir_fusion.inputs == (scalar,)


@pytest.mark.parametrize(
    ("args", "dtype", "value"),
    [
        ((True,), DataType.Bool, True),
        ((3,), DataType.Int, 3),
        ((3.5,), DataType.Double, 3.5),
        ((2j,), DataType.ComplexDouble, 2j),
        ((3, DataType.Double), DataType.Double, 3.0),
        ((3, DataType.Int32), DataType.Int32, 3),
        ((0.1, DataType.Float), DataType.Float, float(np.float32(0.1))),
        ((0.1, DataType.Half), DataType.Half, float(np.float16(0.1))),
        ((3.0, DataType.Int), DataType.Int, 3),
        ((2, DataType.Bool), DataType.Bool, True),
        ((np.float32(0.5),), DataType.Double, 0.5),
        ((np.int32(7),), DataType.Int, 7),
        ((np.float64(0.25),), DataType.Double, 0.25),
        ((-(2**63),), DataType.Int, -(2**63)),
        ((1, DataType.ComplexFloat), DataType.ComplexFloat, 1 + 0j),
    ],
)
def test_constants(args, dtype, value):
    scalar, fd = scalar_of(*args)
    assert scalar.dtype is dtype
    assert scalar.value == value
    assert type(scalar.value) is type(value)
    assert fd.fusion.ir_fusion.inputs == ()


def test_constants_keep_sign_of_zero_nan_and_inf():
    assert math.copysign(1, scalar_of(-0.0)[0].value) == -1
    assert math.isnan(scalar_of(float("nan"))[0].value)
    assert scalar_of(float("-inf"), DataType.Half)[0].value == float("-inf")


def test_define_vector():
    fd = define(lambda fd: None if len(fd.define_vector(3)) == 3 else 1 / 0)
    assert [v.dtype for v in fd.fusion.ir_fusion.inputs] == [DataType.Int] * 3


def test_is_symbolic():
    with FusionDefinition() as fd:
        assert fd.define_scalar().is_symbolic()
        assert not fd.define_scalar(2).is_symbolic()
        assert fd.define_tensor([2]).is_symbolic()


@pytest.mark.parametrize(
    ("args", "kwargs", "kind", "text"),
    [
        (("3",), {}, TypeError, r"define_scalar\(\): incompatible function arguments"),
        ((2**63,), {}, TypeError, r"at most 64 bits"),
        ((1, 2), {}, TypeError, r"dtype must be a DataType"),
        ((1, DataType.Int, 3), {}, TypeError, r"at most 2 arguments"),
        ((), {"val": 1}, TypeError, r"no argument 'val'"),
        ((DataType.Int, DataType.Int), {}, TypeError, r"at most 1 arguments"),
        ((1j, DataType.Float), {}, RuntimeError, r"has no value of dtype Float"),
        ((1.5, DataType.Int), {}, RuntimeError, r"has no value of dtype Int"),
        ((DataType.Null,), {}, RuntimeError, r"needs a dtype"),
        ((None, DataType.Float4_e2m1fn), {}, NotImplementedError, r"not supported yet"),
    ],
)
def test_errors(args, kwargs, kind, text):
    with FusionDefinition() as fd, pytest.raises(kind, match=text):
        fd.define_scalar(*args, **kwargs)


@pytest.mark.parametrize(("size", "kind"), [(-1, RuntimeError), (1.0, TypeError), ("2", TypeError)])
def test_define_vector_errors(size, kind):
    with FusionDefinition() as fd, pytest.raises(kind):
        fd.define_vector(size)
