"""Small programs with dims of one element, factories, indices and unread inputs beside reductions: what schedulers propose for
them can be lowered, and is right. Each was found by chance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.errors import InputRuntimeError
from tests.device_layouts import place
from tests.test_facts import small_simulator

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
TABLE, CHOICE = RNG.random((32, 129)).astype("f4"), RNG.integers(0, 129, 65).astype("i4")


def run(
    define: Callable[[FusionDefinition], None], arrays: Sequence[Array], monkeypatch: pytest.MonkeyPatch
) -> list[Array]:
    """Results on the simulator; what a scheduler proposes and lowering refuses is an error."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    with FusionDefinition() as fd:
        define(fd)
    return [np.asarray(a) for a in fd.execute(arrays, device="simulator")]


def normalised(fd: FusionDefinition, x: Any, dims: list[int]) -> Any:
    o = fd.ops
    variance, mean = o.var_mean(x, dims, 0, True)
    return o.mul(o.sub(x, mean), o.rsqrt(o.add(variance, 1.0)))


@pytest.mark.parametrize("shape", [[8], [129, 8, 8]])
def test_statistics_of_a_factory(shape: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is computed for them and again for what needs them: nothing else said that the dims are the same."""

    def define(fd: FusionDefinition) -> None:
        fd.add_output(normalised(fd, fd.ops.full(shape, 2.5, DataType.Float), list(range(len(shape)))))

    (found,) = run(define, [], monkeypatch)
    np.testing.assert_array_equal(found, np.zeros(shape, "f4"))


def test_dims_of_one_element_of_a_transpose(monkeypatch: pytest.MonkeyPatch) -> None:
    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor([1, 129, -1, 1], True)
        fd.add_output(fd.ops.stride_order(x, [2, 0, 3, 1]))

    array = RNG.random((1, 516, 129, 1)).astype("f4")[:, :129]
    (found,) = run(define, [array], monkeypatch)
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("op", ["max", "sum", "var"])
def test_reductions_of_chosen_columns(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The indices have one of the dims that are reduced as one, and are read before the elements."""

    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor([32, -1], True)
        i = fd.define_tensor([-1], True, DataType.Int32)
        fd.add_output(getattr(fd.ops, op)(fd.ops.index_select(x, i, 1), [0, 1]))

    (found,) = run(define, [TABLE, CHOICE], monkeypatch)
    chosen = TABLE[:, CHOICE].astype("f8")
    expected = {"max": chosen.max(), "sum": chosen.sum(), "var": chosen.var(ddof=1)}[op]
    np.testing.assert_allclose(found, expected, rtol=2e-7)


@pytest.mark.parametrize("shape", [(4, 7, 9), (4, 1, 9), (4, 9, 1), (20, 32, 64)])
def test_weights_along_some_of_the_dims_of_a_row(shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """An element of theirs is for several threads: none has it by itself."""

    def define(fd: FusionDefinition) -> None:
        x, w = fd.define_tensor([-1, -1, -1], True), fd.define_tensor([-1], True)
        fd.add_output(fd.ops.mul(normalised(fd, x, [1, 2]), fd.ops.broadcast(w, [True, True, False])))

    array = RNG.random(shape).astype("f4")
    (found,) = run(define, [array, array[0, 0].copy()], monkeypatch)
    wide = array.astype("f8")
    expected = (wide - wide.mean((1, 2), keepdims=True)) / np.sqrt(wide.var((1, 2), keepdims=True) + 1) * wide[0, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


def test_rows_that_dims_of_one_element_lie_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors go along the dim before it, whose elements are neighbours for one element of the last only."""

    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1, -1, -1], False)
        e = fd.ops.exp(fd.ops.sub(x, fd.ops.max(x, [0, 1], True)))
        fd.add_output(fd.ops.div(e, fd.ops.sum(e, [0, 1], True)))

    with FusionDefinition() as fd:
        define(fd)
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    for shape in ((8, 32, 1), (8, 32, 3), (8, 32, 1)):
        array = RNG.random(shape).astype("f4")
        (found,) = fd.execute([array], device="simulator")
        e = np.exp(array.astype("f8"))
        np.testing.assert_allclose(found, e / e.sum((0, 1), keepdims=True), rtol=1e-6)


def test_gradients_of_few_rows_in_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result of columns that two nests need, one of which makes what the other reads."""

    def define(fd: FusionDefinition) -> None:
        x, b = fd.define_tensor([-1, 8], False), fd.define_tensor([1, -1], True)
        o = fd.ops
        variance, mean = o.var_mean(x, [0], 0, True)
        scale = o.rsqrt(o.add(variance, 1.0))
        unit = o.mul(o.sub(x, mean), scale)
        g = o.sigmoid(x)
        rest = o.sub(
            o.sub(g, o.mul(o.sum(g, [0], True), 0.5)), o.mul(unit, o.mul(o.sum(o.mul(g, unit), [0], True), 0.5))
        )
        fd.add_output(o.add(o.mul(rest, scale), b))

    x, b = RNG.random((2, 8)).astype("f4")[::-1], RNG.random((1, 8)).astype("f4")
    (found,) = run(define, [x, b], monkeypatch)
    wide = x.astype("f8")
    scale = 1 / np.sqrt(wide.var(0) + 1)
    unit, g = (wide - wide.mean(0)) * scale, 1 / (1 + np.exp(-wide))
    expected = (g - g.mean(0) - unit * (g * unit).mean(0)) * scale + b
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [[2, 16, 100], [3, 5, 64]])
def test_statistics_of_lanes_of_a_factory(shape: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of a thread's lanes, which are joined to one result, took a shift for each lane from that."""

    def define(fd: FusionDefinition) -> None:
        x = fd.ops.full(shape, 2.5, DataType.BFloat16)
        fd.add_output(fd.ops.squeeze(fd.ops.var_mean(x, [0, 2], 0, True)[0], [0, 2]))

    (found,) = run(define, [], monkeypatch)
    np.testing.assert_array_equal(found, np.zeros(shape[1], "f4"))


def test_a_vector_beside_several_kept_dims(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept dims are one run of loops, and the vector has the last of them only: no thread holds the element of its column."""

    def define(fd: FusionDefinition) -> None:
        x, w = fd.define_tensor([-1, 1, 5, -1], False), fd.define_tensor([-1], False)
        wide = fd.ops.broadcast(fd.ops.cast(w, DataType.Double), [True, True, True, False])
        fd.add_output(fd.ops.sum(fd.ops.atan2(fd.ops.cast(x, DataType.Double), wide), [2], True))

    x, w = RNG.random((17, 1, 5, 5)).astype("f4"), RNG.random(5).astype("f4")
    (found,) = run(define, [x, w], monkeypatch)
    np.testing.assert_allclose(found, np.arctan2(x.astype("f8"), w.astype("f8")).sum(2, keepdims=True), rtol=1e-14)


def test_variances_whose_means_nothing_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside sums of columns: the mean would be kept for every row of a thread."""

    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1, -1], False, DataType.Half)
        wide = fd.ops.cast(x, DataType.Float)
        fd.add_output(fd.ops.sum(fd.ops.cast(x, DataType.Double), [0], True))
        fd.add_output(normalised(fd, fd.ops.var(wide, [1], 0), [0]))

    x = RNG.random((2, 1)).astype("f2")
    total, zeros = run(define, [x], monkeypatch)
    np.testing.assert_allclose(total, x.astype("f8").sum(0, keepdims=True), rtol=1e-14)
    np.testing.assert_array_equal(zeros, np.zeros(2, "f4"))


@pytest.mark.parametrize("op", ["norm", "gradient"])
def test_rows_of_two_parts(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them is read at other indices, and the length is that of the other twice."""

    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1, -1], False, DataType.Double)
        o = fd.ops
        both = o.cat([x, x], 1)
        unit = normalised(fd, both, [1])
        fd.add_output(both)
        fd.add_output(unit if op == "norm" else o.sum(o.mul(o.sigmoid(both), unit), [0]))

    x = RNG.random((13, 129))
    both, found = run(define, [x], monkeypatch)
    wide = np.concatenate([x, x], 1)
    np.testing.assert_array_equal(both, wide)
    unit = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1)
    expected = unit if op == "norm" else (unit / (1 + np.exp(-wide))).sum(0)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


def test_rows_whose_length_is_a_quotient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of a softmax over all elements, of which a reshape is softmaxed again."""

    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor([1, -1], False)
        o = fd.ops
        total = o.sum(x, [0, 1], True)
        parts = o.reshape(o.sub(x, total), [2, 2, -1, 1])
        fd.add_output(o.sub(x, total))
        fd.add_output(normalised(fd, o.squeeze(parts, [3]), [0, 1, 2]))

    x = RNG.random((1, 8)).astype("f4")
    _, found = run(define, [x], monkeypatch)
    wide = (x.astype("f8") - x.astype("f8").sum()).reshape(2, 2, 2)
    np.testing.assert_allclose(found, (wide - wide.mean()) / np.sqrt(wide.var() + 1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("begin", [0, 14])
def test_norms_of_slices_that_others_need(begin: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they leave of extents that are not known: at most so many, or a difference, whose bounds nothing follows."""

    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1, -1, 31], False, DataType.Float)
        o = fd.ops
        piece = o.slice(o.pad(x, [0, 0, 0, 0, 1, 5]) if begin else x, [begin, 0, 4], [begin + 6, 3, 20])
        fd.add_output(piece)
        fd.add_output(o.sum(o.pad(x, [2, 5, 1, 0, 0, 5]), [0, 1], True))
        fd.add_output(normalised(fd, piece, [0, 1, 2]))

    x = RNG.random((13, 3, 31)).astype("f4")
    piece, _, found = run(define, [x], monkeypatch)
    wide = np.pad(x.astype("f8"), ((1, 5), (0, 0), (0, 0)) if begin else ((0, 0),) * 3)[begin : begin + 6, :3, 4:20]
    np.testing.assert_array_equal(piece, wide)
    np.testing.assert_allclose(found, (wide - wide.mean()) / np.sqrt(wide.var() + 1), rtol=1e-5, atol=1e-6)


def test_sums_of_all_rows_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be asked of their number, and no block would write the sum."""

    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1, -1, 33, 65], False, DataType.Double)
        o = fd.ops
        y = o.silu(x)
        fd.add_output(y)
        fd.add_output(o.sum(y, [0, 1, 2, 3]))
        fd.add_output(o.var_mean(x, [0, 2], 0, False)[1])

    y, total, mean = run(define, [np.zeros((33, 0, 33, 65))], monkeypatch)
    assert y.shape == (33, 0, 33, 65)
    assert total == 0
    assert mean.shape == (0, 65)


def test_a_dim_that_a_squeeze_needs_to_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its extent is not known, and no loop of what it lies beside has it."""

    def define(fd: FusionDefinition) -> None:
        one, x = fd.define_tensor([-1], False, DataType.Int32), fd.define_tensor([-1], False)
        o = fd.ops
        first = o.slice(one, [0], [1])
        for y in (o.squeeze(first, [0]), o.cast(first, DataType.BFloat16), o.var_mean(x, [0], 0, True)[1]):
            fd.add_output(y)
        fd.add_output(o.reshape(one, [1]), one)

    one, x = np.array([7, 0], "i4")[::2], RNG.random(129).astype("f4")
    scalar, rounded, mean = run(define, [one, x], monkeypatch)
    assert (scalar, rounded) == (7, 7)
    np.testing.assert_allclose(mean, x.astype("f8").mean(keepdims=True), rtol=1e-6)


@pytest.mark.parametrize("shape", [(3, 8, 13), (2, 7, 6)])
def test_copies_that_are_read_by_one_linear_index(shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the dims that have one index the input has some, which are one run of its memory."""

    monkeypatch.setenv("FUSER_VERIFY", "passes")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1, -1], True)
        fd.add_output(fd.ops.broadcast_in_dim(x, [3, *shape], [1, 2, 3]))
    array = RNG.random(shape).astype("f4")
    (found,) = fd.execute([place(small_simulator(), array)])
    np.testing.assert_array_equal(np.asarray(found), np.broadcast_to(array, (3, *shape)))


def test_an_empty_slice_of_reshaped_dims(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dims that are kept whole go by another expression than those of the input that they are."""

    def define(fd: FusionDefinition) -> None:
        x = fd.ops.reshape(fd.define_tensor([-1, -1], True), [121, 1, 1, -1])
        fd.add_output(fd.ops.slice(x, [0, 1, 0, 0], [121, 1, 1, 1]))

    (found,) = run(define, [np.zeros((11, 11), "f4")], monkeypatch)
    assert found.shape == (121, 0, 1, 1)


@pytest.mark.parametrize("shape", [(0, 20, 20, 20), (20, 0, 20, 20), (20, 20, 20, 0)])
def test_joins_of_tensors_without_elements(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1, -1, -1, 20 if shape[3] else 0])
        fd.add_output(fd.ops.cat([x, x, x], 1))

    (found,) = run(define, [np.zeros(shape, "f4")], monkeypatch)
    assert found.shape == (shape[0], 3 * shape[1], *shape[2:])


def test_an_empty_window_of_several_dims(monkeypatch: pytest.MonkeyPatch) -> None:
    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor([1, -1, -1, -1], True)
        fd.add_output(fd.ops.slice(x, [1, 0, 0, 0], [1, 100, 2, 2]))

    (found,) = run(define, [np.zeros((1, 100, 2, 2), "f4")], monkeypatch)
    assert found.shape == (0, 100, 2, 2)


def test_an_empty_window_of_a_length_known_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows were taken for whole vectors, which those of the input are not."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 1, -1], [True, None, True])
        ends = [fd.ops.minimum(65, x.size(0)), 1, fd.ops.minimum(65, x.size(2))]
        fd.add_output(fd.ops.slice(x, [0, 1, 0], ends, manual_normalization=True))
    (found,) = fd.execute([place(small_simulator(), np.zeros((65, 1, 65), "f4"))])
    assert found.shape == (65, 0, 65)


def test_a_window_of_a_dim_whose_extent_is_one_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The triangle's rows are counted by the extent of the input, which is 1; the input's own dim goes by its symbol."""

    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1, 1, -1, 3], True)
        sizes = [x.size(0), 1, x.size(2), 1]
        part = fd.ops.slice(x, [0, 0, 0, 0], sizes, manual_normalization=True)
        fd.add_output(fd.ops.triu(fd.ops.squeeze(part, [3]), -2))

    array = RNG.random((129, 1, 1, 3)).astype("f4")
    (found,) = run(define, [array], monkeypatch)
    np.testing.assert_array_equal(found, array[:, :, :, 0])


@pytest.mark.parametrize("shape", [(16, 16, 16, 1), (32, 16, 1, 1), (16, 1, 16, 1)])
def test_dims_of_one_element_behind_those_of_vectors(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """All dims are one run; the last ones are found to have one element when inputs are bound."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1] * 4, True, DataType.Half)
        fd.add_output(fd.ops.cast(fd.ops.mul(x, 2.0), DataType.Half))
    array = RNG.integers(-8, 9, shape).astype("f2")
    (found,) = fd.execute([place(small_simulator(), array)])
    np.testing.assert_array_equal(np.asarray(found), array * 2)


def test_rows_that_are_held_and_written_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers may be filled past a row's end, memory may not."""

    def define(fd: FusionDefinition) -> None:
        x = fd.ops.stride_order(fd.define_tensor([-1, -1]), [0, 1])
        e = fd.ops.exp(fd.ops.sub(x, fd.ops.max(x, [0], True)))
        fd.add_output(fd.ops.pad(fd.ops.div(e, fd.ops.sum(e, [0], True)), [0, 2, 0, 0], 0.0))
        fd.add_output(fd.ops.triu(x, 0))

    array = np.lib.stride_tricks.as_strided(RNG.random(700).astype("f4"), (100, 7), (28, 0))
    padded, upper = run(define, [array], monkeypatch)
    e = np.exp(array - array.max(0))
    np.testing.assert_allclose(padded, np.pad(e / e.sum(0), [(0, 0), (0, 2)]), rtol=1e-6)
    np.testing.assert_array_equal(upper, np.triu(array))


@pytest.mark.parametrize(("shape", "wide"), [((1, 31), [8, 31]), ((32, 1), [32, 32]), ((3, 1, 20), [3, 8, 20])])
def test_norms_of_what_is_expanded(shape: tuple[int, ...], wide: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """An element of the input is for several threads of a row: none may hold it for itself."""

    def define(fd: FusionDefinition) -> None:
        x = fd.ops.set(fd.ops.expand(fd.define_tensor([1 if n == 1 else -1 for n in shape], True), wide))
        fd.add_output(normalised(fd, x, [0, 1] if len(shape) == 2 else [1, 2]))

    x = RNG.random(shape).astype("f4")
    (found,) = run(define, [x], monkeypatch)
    rows = np.broadcast_to(x.astype("f8"), wide).reshape(3 if len(shape) == 3 else 1, -1)
    expected = (rows - rows.mean(1, keepdims=True)) / np.sqrt(rows.var(1, keepdims=True) + 1)
    np.testing.assert_allclose(found, expected.reshape(wide), rtol=1e-5, atol=1e-6)


def test_a_row_of_one_element_that_is_reshaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of one thread holds the element, also for what reads it at the index 0 in place of that thread's."""

    def define(fd: FusionDefinition) -> None:
        x, o = fd.define_tensor([-1], True), fd.ops
        e = o.exp(o.sub(x, o.max(x, [0], True)))
        fd.add_output(o.div(e, o.sum(e, [0], True)))
        fd.add_output(o.reshape(x, [1, 1]))

    x = np.full(1, 2.5, "f4")
    one, reshaped = run(define, [x], monkeypatch)
    np.testing.assert_array_equal(one, np.ones(1, "f4"))
    np.testing.assert_array_equal(reshaped, x[None])


def test_columns_whose_rows_are_known_to_be_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is to be asked of their number, and no loop over turns is left that could keep any."""

    def define(fd: FusionDefinition) -> None:
        o = fd.ops
        x = o.cast(fd.define_tensor([100, -1], True, DataType.Half), DataType.Float)
        e = o.exp(o.sub(x, o.max(x, [0], True)))
        fd.add_output(o.div(e, o.sum(e, [0], True)))

    x = RNG.random((100, 100)).astype("f2")
    (found,) = run(define, [x], monkeypatch)
    e = np.exp(x.astype("f8"))
    np.testing.assert_allclose(found, e / e.sum(0), rtol=1e-6)


def test_norms_and_sums_without_dims_of_one_element(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reductions of the same row, some of which lack dims of one element: the order of dims is that of the first."""

    def define(fd: FusionDefinition) -> None:
        x, o = fd.define_tensor([-1, 1, 1], True), fd.ops
        flat = o.squeeze(x, [1])
        variance, mean = o.var_mean(flat, [0], 0, True)
        fd.add_output(o.mul(o.sub(flat, mean), o.rsqrt(o.add(variance, 1.0))))
        fd.add_output(o.sum(o.squeeze(o.mul(x, 2.0), [1, 2]), [0]))

    x = RNG.random((5, 1, 1)).astype("f4")
    found, total = run(define, [x], monkeypatch)
    wide = x[:, :, 0].astype("f8")
    np.testing.assert_allclose(found, (wide - wide.mean()) / np.sqrt(wide.var() + 1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(total, 2 * wide.sum(), rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "strides", "dims", "dtype"),
    [
        ((33, 33, 2), (1, 33, 1089), [0, 1], DataType.Int),
        ((4, 4, 1, 1), (1, 4, 16, 16), [0, 3], DataType.Int),
        ((65, 65, 1, 1), (1, 65, 4225, 65), [0, 3], DataType.Int32),
    ],
)
def test_runs_of_dims_in_another_order(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dims: list[int],
    dtype: DataType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Dims that are reduced together are neighbours in memory, in another order than was declared, or with dims between
    them that are found to have one element."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1] * len(shape), [False] * len(shape), dtype)
        fd.add_output(fd.ops.sum(fd.ops.cast(x, DataType.Int), dims))
    array = RNG.integers(-1000, 1000, shape).astype(dtype.numpy)
    (total,) = fd.execute([place(small_simulator(), array, strides)])
    np.testing.assert_array_equal(total.numpy(), array.sum(tuple(dims)))


def test_rows_apart_behind_a_dim_of_one_element() -> None:
    """A program compiled for rows side by side refuses rows that lie apart, whatever the stride of the dim of one element."""
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.sum(fd.define_tensor([-1] * 3, [False] * 3), [2]))
    device = small_simulator()
    array = RNG.random((8, 1, 9)).astype("f4")
    storage = place(device, array)
    program = fd.program([storage.view((5, 1, 5), (5, 5, 1))])
    rows = array.ravel()
    apart = storage.view((5, 1, 5), (9, 9, 1))
    with pytest.raises(InputRuntimeError, match=r"dimension 0 of .* stored densely outside dimension 1"):
        program.run([apart])
    (found,) = fd.execute([apart])
    np.testing.assert_allclose(
        found.numpy(), np.stack([rows[9 * i : 9 * i + 5].sum(keepdims=True) for i in range(5)]), rtol=1e-6
    )
    for stride in (5, 77):
        (found,) = program.run([storage.view((5, 1, 5), (5, stride, 1))])
        np.testing.assert_allclose(found.numpy(), rows[:25].reshape(5, 1, 5).sum(2), rtol=1e-6)


@pytest.mark.parametrize("dtype", [DataType.Half, DataType.Float])
@pytest.mark.parametrize(
    ("shape", "stride"), [((33, 1, 33), 33), ((33, 1, 33), 1), ((33, 1, 33), 77), ((8, 1, 129), 129)]
)
@pytest.mark.parametrize("keeps_rows", [True, False])
def test_a_kept_dim_of_one_element_between_those_of_a_row(
    dtype: DataType, shape: tuple[int, ...], stride: int, keeps_rows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accesses go from one part of a row to the next in the input; the output's are apart by a number that is one now."""

    def define(fd: FusionDefinition) -> None:
        o = fd.ops
        x = o.cast(fd.define_tensor([-1] * 3, [False] * 3, dtype), DataType.Float)
        fd.add_output(normalised(fd, x, [0, 2]) if keeps_rows else o.sum(o.mul(x, x), [0, 2]))

    monkeypatch.setenv("FUSER_VERIFY", "passes")
    array = RNG.normal(size=(shape[0], shape[2])).astype(dtype.numpy)
    with FusionDefinition() as fd:
        define(fd)
    placed = place(small_simulator(), array.reshape(shape), (shape[2], stride, 1))
    found = fd.execute([placed])[0].numpy()
    wide = array.astype("f8")
    expected = ((wide - wide.mean()) / np.sqrt(wide.var() + 1)).reshape(shape) if keeps_rows else (wide * wide).sum()
    np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), rtol=1e-4, atol=1e-6)


def test_the_only_row_in_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows share it, and the registers of a stage are filled from its copy."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    with FusionDefinition() as fd:
        o = fd.ops
        x = fd.define_tensor([-1, -1], True, DataType.Half)
        f, g = (o.cast(x, DataType.Float) for _ in range(2))
        same = o.maximum(f, g)
        mean = o.mul(o.broadcast(o.sum(o.mul(g, g), [0, 1]), [True, True]), 1 / 129**2)
        scaled = o.cast(o.mul(g, o.rsqrt(o.add(mean, 1.0))), DataType.Half)
        fd.add_output(o.reshape(same, [43, 1, 9, 1, 43]))
        fd.add_output(o.mul(o.cast(scaled, DataType.Double), o.cast(o.frac(same), DataType.Double)))
    array = RNG.normal(size=(129, 129)).astype("f2")
    again, found = fd.execute([place(small_simulator(), array)])
    wide = array.astype("f8")
    np.testing.assert_array_equal(again.numpy().ravel(), array.ravel())
    expected = wide / np.sqrt((wide * wide).mean() + 1) * (wide - np.trunc(wide))
    np.testing.assert_allclose(found.numpy(), expected, rtol=2e-3, atol=1e-6)


def test_rows_beside_a_dim_of_one_element_with_their_stride(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last dim, of one element, has a stride of 1 like the rows' own: no vector begins at its index."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    with FusionDefinition() as fd:
        fd.add_output(normalised(fd, fd.ops.cast(fd.define_tensor([-1] * 3, True, DataType.Half), DataType.Float), [1]))
    x = RNG.random((16, 16, 1)).astype("f2")
    (found,) = fd.execute([place(small_simulator(), x, (16, 1, 0))])
    wide = x.astype("f8")
    expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)
