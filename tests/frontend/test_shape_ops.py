import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.errors import InputRuntimeError
from tests.frontend.building import define, evaluate, lines, op_names

D = DataType
A = np.arange(6, dtype=np.float32).reshape(2, 3)


def apply(op, array, *args, **kwargs):
    fd = define(lambda fd: getattr(fd.ops, op)(fd.define_tensor([-1] * array.ndim, True), *args, **kwargs))
    return evaluate(fd, array)[0]


def test_broadcast():
    assert apply("broadcast", A, [True, False, True, False]).shape == (1, 2, 1, 3)
    assert op_names(define(lambda fd: fd.ops.broadcast(fd.define_tensor([2]), [False]))) == ["set"]
    assert apply("broadcast", np.float32(1).reshape(()), (True, True)).shape == (1, 1)


def test_expand_with_ints():
    def body(fd):
        x = fd.define_tensor([1, 3], True)
        return [
            fd.ops.expand(x, [4, 3]),
            fd.ops.expand(x, (5, -1, -1)),
            fd.ops.expand(x, [-1, -1]),
            fd.ops.expand(x, [1, 3]),
        ]

    outs = evaluate(define(body), A[:1])
    assert [o.shape for o in outs] == [(4, 3), (5, 1, 3), (1, 3), (1, 3)]
    assert (outs[0] == A[0]).all()


def test_expand_marks_dims():
    with FusionDefinition() as fd:
        y = fd.ops.expand(fd.define_tensor([1, 3]), [2, 4, 3])
        assert [d.expanded for d in y.node.visible] == [True, True, False]
        assert y.node.contiguity == (None, None, True)


def test_expand_with_run_time_extents():
    def body(fd):
        x = fd.define_tensor([1, -1], True)
        n = fd.define_scalar(D.Int)
        return fd.ops.expand(x, [n, x.size(1)])

    fd = define(body)
    assert lines(fd)[2] == "tv3 = fd.ops.expand(tv0, shape=[c1, -1])"
    assert evaluate(fd, A[:1], 4)[0].shape == (4, 3)
    assert evaluate(fd, A[:1], 1)[0].shape == (1, 3)


def test_a_dim_expanded_to_one_is_one():
    """It is asserted to have one element, of which there may then be many."""

    def wide(fd):
        one = fd.ops.expand(fd.ops.reshape(fd.define_tensor([-1, -1], True), [2, -1, 3]), [-1, 1, -1])
        return [one, fd.ops.expand(one, [-1, 5, -1]), fd.ops.add(one, fd.define_tensor([2, -1, 3], True))]

    other = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    narrow, expanded, added = evaluate(define(wide), A, other)
    np.testing.assert_array_equal(narrow, A[:, None])
    np.testing.assert_array_equal(expanded, np.broadcast_to(A[:, None], (2, 5, 3)))
    np.testing.assert_array_equal(added, A[:, None] + other)
    with pytest.raises(
        InputRuntimeError, match=r"dim 1: a conflict was found with 2 different sizes, 2 and 1"
    ) as caught:
        evaluate(define(wide), np.ones((4, 3), np.float32), other)
    assert "one = fd.ops.expand(" in str(caught.value)


def test_expand_asserts_symbolic_extents():
    fd = define(lambda fd: fd.ops.expand(fd.define_tensor([-1, -1], True), [2, 3]))
    assert evaluate(fd, A)[0].shape == (2, 3)
    with pytest.raises(RuntimeError, match="expand, dim 0"):
        evaluate(fd, np.zeros((1, 3), np.float32))


def test_broadcast_in_dim():
    def body(fd):
        x = fd.define_tensor([-1], True)
        s = fd.define_tensor([1, 3], True)
        return [
            fd.ops.broadcast_in_dim(x, [2, x.size(0)], [1]),
            fd.ops.broadcast_in_dim(x, shape=[x.size(0), 4], broadcast_dims=[0]),
            fd.ops.broadcast_in_dim(s, [4, 5, 3], [0, 2]),
            fd.ops.broadcast_in_dim(x, [3], [0]),
            fd.ops.broadcast_in_dim(x, [1, 3], [-1]),
        ]

    x, s = np.arange(3, dtype=np.float32), A[:1]
    outs = evaluate(define(body), x, s)
    np.testing.assert_array_equal(outs[0], np.broadcast_to(x, (2, 3)))
    np.testing.assert_array_equal(outs[1], np.broadcast_to(x[:, None], (3, 4)))
    np.testing.assert_array_equal(outs[2], np.broadcast_to(s[:, None], (4, 5, 3)))
    np.testing.assert_array_equal(outs[3], x)
    assert outs[4].shape == (1, 3)


def test_broadcast_in_dim_of_rank_0():
    fd = define(lambda fd: fd.ops.broadcast_in_dim(fd.define_tensor([], True), [2, 3], []))
    assert evaluate(fd, np.float32(7).reshape(()))[0].tolist() == [[7] * 3] * 2


def test_squeeze():
    def body(fd):
        x = fd.define_tensor([1, -1, 1], True)
        return [fd.ops.squeeze(x, [0]), fd.ops.squeeze(x, [-1, 0]), fd.ops.squeeze(x, []), fd.ops.squeeze(x, [0, 0])]

    outs = evaluate(define(body), np.zeros((1, 4, 1), np.float32))
    assert [o.shape for o in outs] == [(4, 1), (4,), (1, 4, 1), (4, 1)]


def test_squeeze_of_symbolic_dims_is_checked():
    fd = define(lambda fd: fd.ops.squeeze(fd.define_tensor([-1, -1], True), [0]))
    assert evaluate(fd, A[:1])[0].shape == (3,)
    with pytest.raises(RuntimeError, match="squeeze of dim 0"):
        evaluate(fd, A)


def test_squeeze_of_expanded_dims_keeps_one_copy():
    fd = define(lambda fd: fd.ops.squeeze(fd.define_tensor([-1, 4], [True, None]), [1], squeeze_expanded=True))
    assert lines(fd)[1] == "tv1 = fd.ops.squeeze(tv0, dims=[1], squeeze_expanded=True)"
    assert evaluate(fd, np.broadcast_to(A[:, :1], (2, 4)))[0].tolist() == [0, 3]


@pytest.mark.parametrize("dims", [[1, 0], [-1, -2], (1, 0)])
def test_permute(dims):
    np.testing.assert_array_equal(apply("permute", A, dims), A.T)


def test_permute_with_no_dims_is_a_copy():
    np.testing.assert_array_equal(apply("permute", A, []), A)
    assert op_names(define(lambda fd: fd.ops.permute(fd.define_tensor([2, 3]), []))) == ["set"]


def test_permute_three_dims():
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    np.testing.assert_array_equal(apply("permute", x, [2, 0, 1]), x.transpose(2, 0, 1))


def test_size_and_shape():
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 6, 1], [True, None, True])
        assert [str(v) for v in fd.ops.shape(x)] == ["c1: Int", "6", "1"]
        assert fd.ops.size(x, -2).node.value == 6
        assert fd.ops.size(x, dim=0) is x.size(0)
        assert x.shape()[0] is x.size(0)
        assert len(fd.ops.shape(fd.define_tensor([]))) == 0


def test_extents_of_results_are_those_of_inputs():
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True)
        y = fd.ops.permute(fd.ops.sum(fd.ops.broadcast(x, [False, True, False]), [1]), [1, 0])
        assert [str(d.extent) for d in y.node.visible] == ["t0_size1", "t0_size0"]


# --- factories ---


@pytest.mark.parametrize(
    ("fill", "dtype", "expected"),
    [
        (2.5, D.Float, 2.5),
        (2, D.Float, 2.0),
        (2.9, D.Int, 2),
        (3, D.Bool, True),
        (1 + 2j, D.ComplexFloat, 1 + 2j),
        (1, D.ComplexDouble, 1 + 0j),
        (0.1, D.Half, float(np.float16(0.1))),
        (float("inf"), D.BFloat16, float("inf")),
        (True, D.Int32, 1),
    ],
)
def test_full(fill, dtype, expected):
    (out,) = evaluate(define(lambda fd: fd.ops.full([2, 3], fill, dtype)))
    assert out.shape == (2, 3)
    assert out.dtype == dtype.numpy
    assert (out == np.asarray(expected, out.dtype)).all()


def test_full_with_run_time_values():
    def body(fd):
        n, v = fd.define_scalar(D.Int), fd.define_scalar(D.Double)
        return [
            fd.ops.full([n, 2], v, D.Float),
            fd.ops.full(shape=(n * 2,), fill_value=n, dtype=D.Double),
            fd.ops.full([], v, D.Half),
        ]

    fd = define(body)
    a, b, c = evaluate(fd, 3, 0.5)
    assert a.tolist() == [[0.5] * 2] * 3
    assert b.tolist() == [3.0] * 6
    assert c.shape == ()
    with pytest.raises(RuntimeError, match="used as an extent and is -1"):
        evaluate(fd, -1, 0.5)


def test_empty_tensors():
    assert evaluate(define(lambda fd: fd.ops.full([0, 3], 1.0, D.Float)))[0].shape == (0, 3)
    assert evaluate(define(lambda fd: fd.ops.iota(0)))[0].shape == (0,)


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((4,), {}, [0, 1, 2, 3]),
        ((3, 5), {}, [5, 6, 7]),
        ((3, 5, -2), {}, [5, 3, 1]),
        ((3, None, 10), {}, [0, 10, 20]),
        ((3,), {"dtype": D.Float}, [0.0, 1.0, 2.0]),
        ((3, 0.5, 0.25), {"dtype": D.Double}, [0.5, 0.75, 1.0]),
        ((3, 1.0, 2.0, D.Half), {}, [1.0, 3.0, 5.0]),
        ((), {"length": 2, "start": 7, "dtype": D.Int32}, [7, 8]),
        ((2,), {"dtype": D.Index}, [0, 1]),
    ],
)
def test_iota(args, kwargs, expected):
    (out,) = evaluate(define(lambda fd: fd.ops.iota(*args, **kwargs)))
    assert out.tolist() == expected
    dtype = kwargs.get("dtype", args[3] if len(args) > 3 else D.Int)
    assert out.dtype == dtype.numpy


def test_iota_with_run_time_values():
    def body(fd):
        x = fd.define_tensor([-1], True)
        s = fd.define_scalar(D.Int)
        return fd.ops.iota(x.size(0), s, s)

    assert evaluate(define(body), np.zeros(3, np.float32), 2)[0].tolist() == [2, 4, 6]


def test_static_factories_of_size_1_broadcast():
    fd = define(lambda fd: fd.ops.add(fd.define_tensor([-1, 3], True), fd.ops.full([1, 3], 1.0, D.Float)))
    np.testing.assert_array_equal(evaluate(fd, A)[0], A + 1)
