from typing import Any

import pytest

from fuser import DataType, FusionDefinition
from fuser.ir.fusion.fusion import IterKind
from tests.frontend.building import define, lines


def tensor_of(*args: Any, **kwargs: Any) -> Any:
    with FusionDefinition() as fd:
        tv = fd.define_tensor(*args, **kwargs)
    return tv.node


def test_defaults():
    t = tensor_of([-1, 4])
    assert t.dtype is DataType.Float
    assert t.contiguity == (False, False)
    assert t.stride_order == (1, 0)
    assert not t.is_cpu


@pytest.mark.parametrize(
    ("kwargs", "contiguity"),
    [
        ({"contiguity": True}, (True, None, True)),
        ({"contiguity": False}, (False, None, False)),
        ({"contiguity": [True, None, False]}, (True, None, False)),
        ({"contiguity": [True, True, True]}, (True, None, True)),
        ({"contiguity": (False, False, True)}, (False, None, True)),
    ],
)
def test_contiguity_of_a_size_1_dim_is_none(kwargs: dict[str, Any], contiguity: tuple[bool | None, ...]) -> None:
    assert tensor_of([-1, 1, 8], **kwargs).contiguity == contiguity


def test_contiguity_is_in_memory_order():
    t = tensor_of(shape=[2, 1, 5], contiguity=True, stride_order=[0, 2, 1])
    assert t.contiguity == (None, True, True)
    assert t.stride_order == (0, 2, 1)


def test_contiguity_list_entry_of_a_permuted_size_1_dim_is_ignored():
    # Slowest dim is dim 1 (size 1): the first entry is its.
    t = tensor_of([2, 1, 5], [True, True, False], stride_order=[0, 2, 1])
    assert t.contiguity == (None, True, False)


def test_negative_stride_order_wraps():
    assert tensor_of([2, 3], True, stride_order=[-2, -1]).stride_order == (0, 1)


def test_expanded_dims():
    t = tensor_of([-1, 7, -1], [True, None, None])
    assert [d.expanded for d in t.visible] == [False, True, True]
    assert [d.kind for d in t.visible] == [IterKind.iteration] * 3
    assert t.visible[1].extent.value == 7


def test_kinds_of_dims():
    t = tensor_of([-1, 0, 1, 6], True)
    assert [d.is_broadcast for d in t.visible] == [False, False, True, False]
    assert [d.extent.is_const for d in t.visible] == [False, True, True, True]


def test_overload_by_strides_is_symbolic():
    t = tensor_of([4, 1, 5], [5, 5, 1], DataType.Half)
    assert t.dtype is DataType.Half
    assert [d.extent.is_const for d in t.visible] == [False, True, False]
    assert t.contiguity == (True, None, True)


def test_overload_by_strides_with_static_sizes():
    t = tensor_of(sizes=[4, 1, 5], strides=[5, 5, 1], dtype=DataType.Int, static_sizes=True)
    assert [d.extent.value for d in t.visible] == [4, 1, 5]


def test_overload_by_strides_of_expanded_dims():
    t = tensor_of(sizes=(4, 6), strides=(1, 0))
    assert [d.expanded for d in t.visible] == [False, True]
    assert t.contiguity == (True, None)


def test_overload_by_strides_of_channels_last():
    t = tensor_of(sizes=(2, 3, 4, 5), strides=(60, 1, 15, 3))
    assert t.stride_order == (3, 0, 2, 1)
    assert t.contiguity == (True,) * 4


def test_rank_0():
    assert tensor_of([], True).ndim == 0
    assert tensor_of(shape=[], contiguity=[], dtype=DataType.Double, is_cpu=True).is_cpu
    assert tensor_of([], []).ndim == 0
    assert tensor_of(sizes=[], strides=[]).ndim == 0


def test_all_positional():
    t = tensor_of([-1, -1], [True, False], DataType.Int32, False, [0, 1])
    assert (t.dtype, t.contiguity, t.stride_order) == (DataType.Int32, (True, False), (0, 1))


def test_no_stride_order_is_row_major():
    assert tensor_of([2, 3], True, stride_order=None).stride_order == (1, 0)


def test_inputs_are_registered_in_order():
    fd = define(lambda fd: [fd.define_tensor([2]), fd.define_tensor([3], True, DataType.Int)])
    assert fd.fusion is not None
    assert [str(v) for v in fd.fusion.inputs()] == ["tv0: Float[2]", "tv1: Int[3]"]
    assert lines(fd)[0] == ("tv0 = fd.define_tensor(shape=[2], contiguity=[False], dtype=DataType.Float, is_cpu=False)")


R = RuntimeError
T = TypeError
N = NotImplementedError


@pytest.mark.parametrize(
    ("args", "kwargs", "kind", "text"),
    [
        (
            ([-2],),
            {},
            R,
            r"The value -2 at index 0 was neither symbolic\(-1\), zero_element\(0\), broadcast\(1\), or static\(>1\)\.",
        ),
        (([2.0],), {}, T, r"define_tensor\(\): incompatible function arguments"),
        (([2**63],), {}, T, r"define_tensor\(\): incompatible function arguments"),
        (("ab",), {}, T, r"incompatible function arguments"),
        ((4,), {}, T, r"incompatible function arguments"),
        ((), {}, T, r"shape is missing"),
        (([2], [True], DataType.Float, False, [], 1), {}, T, r"at most 5 arguments"),
        (([2],), {"contigous": True}, T, r"no argument 'contigous'"),
        (([2],), {"shape": [2]}, T, r"shape is given twice"),
        (([2], [True], "float"), {}, T, r"dtype must be a DataType, got str"),
        (([2], True, DataType.Float, 2), {}, T, r"is_cpu must be a bool"),
        (([2], ["x"]), {}, T, r"incompatible function arguments"),
        (([2, 3], [True]), {}, R, r"Length of contiguity argument \(1\) must match that of shape argument \(2\)"),
        (([2, 3], True), {"stride_order": [2, 0]}, R, r"stride_order argument is out of range"),
        (([2, 3], True), {"stride_order": [-3, 0]}, R, r"stride_order argument is out of range"),
        (([2, 3], True), {"stride_order": [0, 0]}, R, r"duplicated stride_order entries"),
        (([2, 3], True), {"stride_order": [0, -2]}, R, r"duplicated stride_order entries"),
        (([2, 3], True), {"stride_order": [0]}, R, r"Length of stride_order argument"),
        (([2],), {"is_cpu": True}, R, r"CPU non-scalar tensor is not supported!"),
        (([2], [1, 1]), {}, R, r"sizes and strides must have the same number of entries"),
        (([-1], [1]), {}, R, r"sizes must not be negative"),
        (([2], [-1]), {}, R, r"strides must not be negative"),
        (([2], True, DataType.Null), {}, R, r"needs a dtype"),
        (([2], True, DataType.Float8_e8m0fnu), {}, N, r"Float8_e8m0fnu is not supported yet"),
        (([2], True, DataType.Float4_e2m1fn_x2), {}, N, r"not supported yet"),
    ],
)
def test_errors(args: Any, kwargs: dict[str, Any], kind: Any, text: str) -> None:
    with FusionDefinition() as fd, pytest.raises(kind, match=text) as caught:
        fd.define_tensor(*args, **kwargs)
    assert caught.value.location is not None
    assert caught.value.location.filename == __file__
