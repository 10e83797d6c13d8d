import itertools

import numpy as np
import pytest

from fuser import compute_tensor_descriptor


@pytest.mark.parametrize(
    ("sizes", "strides", "contiguity", "stride_order"),
    [
        ([4, 3, 1, 5], [15, 5, 5, 1], (True, True, None, True), (3, 2, 1, 0)),
        ([2, 3, 4, 5], [60, 1, 15, 3], (True, True, True, True), (3, 0, 2, 1)),
        ([4, 6, 5], [5, 0, 1], (True, None, True), (2, 1, 0)),
        ([3, 7], [8, 1], (False, True), (1, 0)),
        ([], [], (), ()),
        ([1], [1], (None,), (0,)),
        ([5], [2], (False,), (0,)),
        ([2, 3], [1, 2], (True, True), (0, 1)),
        ([4, 5], [0, 0], (None, None), (1, 0)),
        ([3, 4], [0, 1], (None, True), (1, 0)),
        ([0, 4], [4, 1], (True, True), (1, 0)),
        ([2, 3], [3, 3], (False, False), (1, 0)),
    ],
)
def test_table(sizes, strides, contiguity, stride_order):
    assert compute_tensor_descriptor(sizes, strides) == (contiguity, stride_order)


def test_results_are_plain_and_hashable():
    contiguity, order = compute_tensor_descriptor((2, 1, 3), (3, 3, 1))
    assert hash((contiguity, order)) == hash((contiguity, order))
    assert [type(c) for c in contiguity] == [bool, type(None), bool]


@pytest.mark.parametrize(
    ("sizes", "strides", "text"), [([2], [1, 1], "1 sizes but 2 strides"), ([2], [-1], "negative")]
)
def test_errors(sizes, strides, text):
    with pytest.raises(RuntimeError, match=text):
        compute_tensor_descriptor(sizes, strides)


def test_every_permutation_of_a_dense_array_is_contiguous():
    for axes in itertools.permutations(range(4)):
        array = np.empty((2, 3, 4, 5), np.float32).transpose(axes)
        contiguity, order = compute_tensor_descriptor(array.shape, [s // 4 for s in array.strides])
        assert all(contiguity)
        assert [array.strides[d] for d in sorted(range(4), key=order.__getitem__)] == sorted(array.strides)
