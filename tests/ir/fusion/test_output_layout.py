import itertools

import pytest

from fuser import DataType, FusionDefinition
from fuser.ir.fusion.output_layout import output_stride_order


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

    # The input has no dim of four elements, and so says nothing.
    assert orders(body) == [(2, 1, 0), (0, 1, 2)]


def test_aliases_inputs_and_factories():
    def body(fd):
        x, y = tensor(fd, 2, [0, 1]), tensor(fd, 2)
        return [(fd.ops.sin(y), x), x, fd.ops.full([2, 3], 1.0, DataType.Float)]

    assert orders(body) == [(0, 1), (0, 1), (1, 0)]


def test_rank_0():
    assert orders(lambda fd: [fd.ops.sum(tensor(fd, 2))]) == [()]


# --- channels last ------------------------------------------------------------------------------------------------------

LAST = (3, 0, 2, 1)  # [n, c, h, w] with c fastest
ROWS = (3, 2, 1, 0)


def image(fd, order=LAST):
    return tensor(fd, 4, order)


def test_channels_last_passes_through_norms_and_biases():
    def body(fd):
        x, weight = image(fd), tensor(fd, 1)
        bias = fd.ops.broadcast(weight, [True, False, True, True])
        variance, mean = fd.ops.var_mean(x, [0, 2, 3], 0, True)
        normal = (x - mean) * fd.ops.rsqrt(variance) * bias
        return [x + bias, bias * x, normal, x - fd.ops.max(x, [1], True), fd.ops.cumsum(x, 2)]

    assert orders(body) == [LAST] * 5


def test_an_image_beside_a_row_major_one_is_row_major():
    def body(fd):
        x, rows, mask = image(fd), tensor(fd, 4), fd.define_tensor([-1] * 4, True, DataType.Bool)
        return [x + rows, rows + x, fd.ops.where(mask, x, 0.0), (x + rows) * x, image(fd) + x]

    assert orders(body) == [ROWS, ROWS, ROWS, ROWS, LAST]


def test_reductions_keep_the_order_of_what_is_left():
    def body(fd):
        x = image(fd)
        kept = fd.ops.sum(x, [1], True)
        return [fd.ops.sum(x, [0]), fd.ops.sum(x, [1]), fd.ops.sum(x, [2, 3]), fd.ops.sum(x, [2]), kept, fd.ops.sum(x)]

    assert orders(body) == [(0, 2, 1), (2, 1, 0), (1, 0), (2, 0, 1), ROWS, ()]


def test_parts_keep_their_place():
    """Slices, pads and cats."""

    def body(fd):
        x, y = image(fd), image(fd)
        part = fd.ops.slice(x, [0, 0, 1, 0], [2, 3, 4, 2])
        return [part, fd.ops.pad(x, [1, 1, 2, 0]), fd.ops.cat([x, y], 1), fd.ops.cat([x, tensor(fd, 4)], 1), x[:, 0]]

    assert orders(body) == [LAST, LAST, LAST, ROWS, (2, 1, 0)]


def test_what_an_index_picks_is_no_dim_of_the_table():
    def body(fd):
        table, i = tensor(fd, 2, [0, 1]), fd.define_tensor([-1], True, DataType.Int)
        return [fd.ops.index_select(table, i, 0), fd.ops.index_select(table, i, 1)]

    assert orders(body) == [(1, 0), (1, 0)]


# --- reshapes -----------------------------------------------------------------------------------------------------------


def test_reshapes_keep_an_order_in_which_a_view_can_show_their_dims():
    def body(fd):
        n, c, h, w = 2, 6, 4, 5
        x = fd.define_tensor([n, c, h, w], True, stride_order=LAST)
        groups = fd.ops.reshape(x, [n, 3, 2, h, w])
        normal = groups - fd.ops.max(groups, [2, 3, 4], True)
        flat, pixels, lines = (fd.ops.reshape(x, s) for s in ([n, c * h * w], [n, c, h * w], [n, c * h, w]))
        return [fd.ops.neg(t) for t in (groups, fd.ops.reshape(normal, [n, c, h, w]), flat, pixels, lines)]

    assert orders(body) == [(4, 1, 0, 3, 2), LAST, (1, 0), (2, 0, 1), (2, 1, 0)]


def test_dims_split_and_merged_in_several_steps():
    def body(fd):
        x = fd.define_tensor([4, 6, 10], True, stride_order=[0, 2, 1])  # [b, c, d], b fastest
        split = fd.ops.reshape(x, [4, 2, 3, 10])
        across = fd.ops.reshape(split, [4, 6, 5, 2])
        back = fd.ops.reshape(across, [4, 3, 2, 10])
        return [
            fd.ops.neg(t) for t in (split, across, back, fd.ops.reshape(back, [4, 60]), fd.ops.reshape(back, [8, 30]))
        ]

    assert orders(body) == [(0, 3, 2, 1), (0, 3, 2, 1), (0, 3, 2, 1), (0, 1), (1, 0)]


def rotary(fd, order, interleaved):
    b, s, h, d = 2, 5, 3, 8
    x = fd.define_tensor([b, s, h, d], True, stride_order=order)
    cos, sin = (
        fd.ops.broadcast_in_dim(fd.define_tensor([s, d // 2], True), [b, s, h, d // 2], [1, 3]) for _ in range(2)
    )
    if interleaved:
        pairs = fd.ops.reshape(x, [b, s, h, d // 2, 2])
        even, odd = (fd.ops.squeeze(fd.ops.slice(pairs, [0] * 4 + [i], [b, s, h, d // 2, i + 1]), [4]) for i in (0, 1))
    else:
        even, odd = (fd.ops.slice(x, [0, 0, 0, i], [b, s, h, i + d // 2]) for i in (0, d // 2))
    turned = even * cos - odd * sin, even * sin + odd * cos
    if not interleaved:
        return fd.ops.cat(turned, 3)
    columns = [fd.ops.broadcast(t, [False] * 4 + [True]) for t in turned]
    return fd.ops.reshape(fd.ops.cat(columns, 4), [b, s, h, d])


def test_rotary_embeddings():
    """Of halves each dim is one of the input. Pairs are new: they say nothing, and neither do the dims beside them."""
    heads = (3, 1, 2, 0)  # stored as [b, h, s, d]
    assert orders(lambda fd: [rotary(fd, o, False) for o in (ROWS, heads)]) == [ROWS, heads]
    assert orders(lambda fd: [rotary(fd, o, True) for o in (ROWS, heads)]) == [ROWS, ROWS]


# --- dims that an input does not have -----------------------------------------------------------------------------------


def test_an_input_without_one_of_the_dims_says_nothing():
    def body(fd):
        a, b = tensor(fd, 1), tensor(fd, 1)
        t = tensor(fd, 2, [0, 1])
        outer = fd.ops.broadcast(a, [False, True]) * fd.ops.broadcast(b, [True, False])
        repeated = [
            fd.ops.broadcast_in_dim(a, [a.size(0), 8], [0]),
            fd.ops.broadcast_in_dim(t, [t.size(0), t.size(1), 8], [0, 1]),
        ]
        filled = fd.ops.full([2, 3], 1.0, DataType.Float) + 1.0
        return [outer, *repeated, filled]

    assert orders(body) == [(1, 0), (1, 0), (2, 1, 0), (1, 0)]


def test_a_matrix_and_its_transpose_are_row_major():
    def body(fd):
        x, y = (fd.define_tensor([4, 4], True, stride_order=o) for o in ([1, 0], [0, 1]))
        return [x + fd.ops.permute(x, [1, 0]), y + fd.ops.permute(y, [1, 0]), fd.ops.sin(y)]

    # What one output does with an input says nothing of others.
    assert orders(body) == [(1, 0), (1, 0), (0, 1)]


def test_dims_of_one_element_say_nothing():
    """An order that only they make differ from row major is row major."""

    def body(fd):
        x = fd.define_tensor([-1, 1, -1, -1], True, stride_order=LAST)
        last = fd.define_tensor([-1, -1, 1, -1], True, stride_order=LAST)
        return [
            fd.ops.sin(x),
            fd.ops.sin(last),
            last + fd.define_tensor([-1, -1, 1, -1], True, stride_order=[2, 0, 3, 1]),
        ]

    assert orders(body) == [ROWS, LAST, LAST]


def test_a_result_of_stride_order_is_a_source_of_its_own():
    def body(fd):
        x = tensor(fd, 4)
        last = fd.ops.stride_order(x, LAST)
        return [last, fd.ops.sin(last), last + x, fd.ops.stride_order(image(fd), ROWS) * 2.0]

    assert orders(body) == [LAST, LAST, ROWS, ROWS]


def test_a_permuted_result_lies_as_what_it_permutes():
    def body(fd):
        x, last = tensor(fd, 4), image(fd)
        to_last, to_first = [0, 2, 3, 1], [0, 3, 1, 2]
        return [
            fd.ops.permute(fd.ops.sin(x), to_first),
            fd.ops.permute(fd.ops.sin(last), to_last),
            fd.ops.permute(x, to_first) * 2.0 + last,
            fd.ops.permute(fd.ops.permute(x, to_first), to_last) * 2.0,
        ]

    assert orders(body) == [LAST, ROWS, LAST, ROWS]


def test_the_fastest_dims_of_an_updated_input():
    def body(fd):
        x, y = image(fd), tensor(fd, 4)
        return [(y * 2.0, x), (x * 2.0, y)]

    assert orders(body) == [LAST, ROWS]
