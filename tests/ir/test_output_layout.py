import itertools

import pytest

from fuser import DataType, FusionDefinition
from fuser.ir.output_layout import output_stride_order


def orders(body):
    with FusionDefinition() as fd:
        for out in body(fd):
            fd.add_output(*out) if isinstance(out, tuple) else fd.add_output(out)
    fusion = fd.fusion.ir_fusion
    return [output_stride_order(fusion, o.tensor) for o in fusion.outputs]


def tensor(fd, rank, order=(), shape=None):
    return fd.define_tensor(shape or [-1] * rank, True, stride_order=order)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_elementwise_keeps_the_order(order):
    assert orders(lambda fd: [fd.ops.sin(tensor(fd, 3, order))]) == [order]


def test_permute_keeps_the_memory_order():
    def body(fd):
        x = tensor(fd, 3)
        return [fd.ops.permute(x, [2, 0, 1]), fd.ops.permute(fd.ops.sin(tensor(fd, 2, [0, 1])), [1, 0])]

    assert orders(body) == [(0, 2, 1), (1, 0)]


def test_reduced_dims_fall_away():
    assert orders(lambda fd: [fd.ops.sum(tensor(fd, 3, [0, 2, 1]), [2])]) == [(0, 1)]


def test_new_dims_are_outside():
    def body(fd):
        x = tensor(fd, 2, [0, 1])
        return [fd.ops.broadcast(x, [False, True, False]), fd.ops.broadcast(x, [True, False, False, True])]

    assert orders(body) == [(0, 2, 1), (3, 0, 1, 2)]


def test_input_with_the_most_dims_wins():
    def body(fd):
        x, y = tensor(fd, 2, [0, 1]), tensor(fd, 1)
        return [fd.ops.add(x, y), fd.ops.add(y, x)]

    assert orders(body) == [(0, 1), (0, 1)]


def test_broadcast_and_expanded_dims_do_not_count():
    def body(fd):
        x = fd.define_tensor([-1, -1], [True, True], stride_order=[0, 1])
        one = fd.define_tensor([-1, 1], True)
        expanded = fd.define_tensor([-1, 8], [True, None])
        return [fd.ops.add(one, x), fd.ops.add(expanded, x)]

    assert orders(body) == [(0, 1), (0, 1)]


def test_ties_that_conflict_are_row_major():
    def body(fd):
        a, b, c = tensor(fd, 2, [0, 1]), tensor(fd, 2), tensor(fd, 2, [0, 1])
        return [fd.ops.add(a, b), fd.ops.add(a, c)]

    assert orders(body) == [(1, 0), (0, 1)]


def test_only_inputs_that_the_output_depends_on():
    def body(fd):
        a, b = tensor(fd, 2, [0, 1]), tensor(fd, 3)
        return [fd.ops.sin(a), fd.ops.sin(b)]

    assert orders(body) == [(0, 1), (2, 1, 0)]


def test_dims_that_an_expand_made_do_not_map():
    def body(fd):
        x = fd.define_tensor([1, -1, -1], True, stride_order=[0, 1, 2])
        return [fd.ops.expand(x, [4, -1, -1]), fd.ops.sin(x)]

    # The first dim of the expanded output is no dim of the input: it stays outside.
    assert orders(body) == [(2, 0, 1), (0, 1, 2)]


def test_aliases_inputs_and_factories():
    def body(fd):
        x, y = tensor(fd, 2, [0, 1]), tensor(fd, 2)
        return [(fd.ops.sin(y), x), x, fd.ops.full([2, 3], 1.0, DataType.Float)]

    assert orders(body) == [(0, 1), (0, 1), (1, 0)]


def test_rank_0():
    assert orders(lambda fd: [fd.ops.sum(tensor(fd, 2))]) == [()]
