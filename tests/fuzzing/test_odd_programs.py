"""Small programs with dims of one element, factories, indices and unread inputs beside reductions: what schedulers propose for
them can be lowered, and is right. Each was found by chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.errors import InputRuntimeError
from fuser.ir.facts import TensorDescriptor
from tests.devices.device_layouts import place
from tests.devices.small_simulator import small_simulator

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
TABLE, CHOICE = RNG.random((32, 129)).astype("f4"), RNG.integers(0, 129, 65).astype("i4")


def run(
    define: Callable[[FusionDefinition], None], arrays: Sequence[Any], monkeypatch: pytest.MonkeyPatch
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
        fd.add_output(unit if op == "norm" else o.sum(o.sigmoid(both) * unit, [0]))

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


@pytest.mark.parametrize("declared", [[3, 4, 2], [-1, -1, -1]])
def test_sums_and_pads_of_an_empty_slice(declared: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops over nothing are seen to be such: what stands in them is not told to lie below its buffer."""

    def define(fd: FusionDefinition) -> None:
        o = fd.ops
        y = o.slice(fd.define_tensor(declared, True), [0, 0, 0], [3, 0, 1])
        fd.add_output(o.neg(o.sum(y, [1])))
        fd.add_output(o.neg(y))
        fd.add_output(o.neg(o.pad(y, [1, -1, 0, 0, 0, 0])))

    for shape in ((3, 4, 2),) if declared[0] == 3 else ((3, 4, 2), (1, 1, 2)):
        found = run(define, [np.ones(shape, "f4")], monkeypatch)
        rows = min(3, shape[0])
        assert [a.shape for a in found] == [(rows, 1), (rows, 0, 1), (rows, 0, 1)]
        np.testing.assert_array_equal(found[0], np.zeros((rows, 1), "f4"))


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


@pytest.mark.parametrize("rows", [3, 9], ids=["empty", "full"])
def test_an_empty_part_of_a_reshape_that_is_reshaped(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is empty becomes a factory of a constant; passes after that give no value of theirs the constant's name."""

    def define(fd: FusionDefinition) -> None:
        o, x = fd.ops, fd.define_tensor([-1, 3, -1, -1], True)
        t = o.reshape(x, [o.size(x, 2), 3, -1])
        t = o.slice(t, [3, 0, 1], [o.sub(o.size(t, 0), 5), 2, o.sub(o.size(t, 2), 1)])
        fd.add_output(o.reshape(t, [o.size(t, 0), 2, 1, o.size(t, 2)]))

    array = RNG.random((3, 3, rows, 3)).astype("f4")
    (found,) = run(define, [array], monkeypatch)
    part = array.reshape(rows, 3, 9)[3 : max(3, rows - 5), :2, 1:-1]
    np.testing.assert_array_equal(found, part[:, :, None])


@pytest.mark.parametrize("dtype", [DataType.BFloat16, DataType.Float, DataType.Double])
@pytest.mark.parametrize(("shape", "dim"), [((40, 300), 1), ((40, 300), 0), ((3, 70000), 1), ((7, 33), 0), ((1, 5), 1)])
def test_a_result_and_an_input_of_one_element_a_row(
    shape: tuple[int, int], dim: int, dtype: DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The input's dim of one element is the row's where it meets full-size values; the output has none: one kernel."""
    small = (shape[0], 1) if dim == 1 else (1, shape[1])

    def define(fd: FusionDefinition) -> None:
        o = fd.ops
        x = o.cast(fd.define_tensor([-1, -1], True, dtype), wide)
        r = fd.define_tensor([-1 if n > 1 else 1 for n in small], True, wide)
        total = o.sum(x, [dim], keepdim=True)
        fd.add_output(o.mul(total, r))
        fd.add_output(o.mul(o.sub(x, r), total))

    wide = DataType.Double if dtype is DataType.Double else DataType.Float
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    with FusionDefinition() as fd:
        define(fd)
    x, r = RNG.random(shape).astype(dtype.numpy), RNG.random(small).astype(wide.numpy)
    first, second = (np.asarray(a) for a in fd.execute([x, r]))
    assert len(fd.program([x, r]).launches()) == 1
    total = x.astype("f8").sum(dim, keepdims=True)
    np.testing.assert_allclose(first, total * r, rtol=1e-6)
    np.testing.assert_allclose(second, (x.astype("f8") - r) * total, rtol=1e-5, atol=1e-5 * np.abs(total).max())


@pytest.mark.parametrize("shape", [(2, 15, 32), (8, 40, 257), (1, 1, 7)])
def test_sums_of_both_dims_and_a_statistic_made_of_an_input(
    shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As gradients of normalisations with saved statistics: rows and columns are summed, and a value of a row is given back."""

    def define(fd: FusionDefinition) -> None:
        o = fd.ops
        x, dy = fd.define_tensor([-1] * 3, True), fd.define_tensor([-1] * 3, True)
        r = fd.define_tensor([-1, -1, 1], [None, True, True], stride_order=[1, 0, 2])
        k = o.mul(o.broadcast(o.sum(o.mul(dy, x), [2]), [False, False, True]), o.pow(r, 3.0))
        fd.add_output(o.sum(o.mul(o.mul(x, r), dy), [0, 1]))
        fd.add_output(o.sub(o.mul(dy, r), o.mul(x, k)))
        fd.add_output(k)

    x, dy, r = RNG.normal(size=shape), RNG.normal(size=shape), 0.5 + RNG.random((*shape[:2], 1))
    arrays = [a.astype("f4") for a in (x, dy, r)]
    x, dy, r = (a.astype("f8") for a in arrays)
    weight, found, factor = run(define, arrays, monkeypatch)
    k = (dy * x).sum(2, keepdims=True) * r**3
    np.testing.assert_allclose(factor, k, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found, dy * r - x * k, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(weight, (x * r * dy).sum((0, 1)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("move", ["pad", "slice"])
@pytest.mark.parametrize("shape", [(2, 112, 1, 1), (2, 16, 2, 3), (300, 5, 1, 1), (3, 8, 20, 1)])
def test_statistics_of_pads_and_slices_that_move_nothing(
    move: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They read each element where it lies, such as in the registers of a thread."""

    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor(list(shape), True)
        y = fd.ops.pad(x, [0] * 8) if move == "pad" else fd.ops.slice(x, [0] * 4, list(shape))
        fd.add_output(fd.ops.sum(y, [0, 2, 3]))
        fd.add_output(normalised(fd, y, [0, 2, 3]))

    array = RNG.random(shape).astype("f4")
    total, found = run(define, [array], monkeypatch)
    wide = array.astype("f8")
    expected = (wide - wide.mean((0, 2, 3), keepdims=True)) / np.sqrt(wide.var((0, 2, 3), keepdims=True) + 1)
    np.testing.assert_allclose(total, wide.sum((0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("is_scalar", [False, True])
@pytest.mark.parametrize(("elements", "wanted"), [(2, 5), (2, 1), (10, 5), (6, 5)])
def test_expanding_what_a_reshape_makes_one(
    elements: int, wanted: int, is_scalar: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dim whose extent follows from the number of elements is expanded where it is 1; else it has the extent asked for."""

    def define(fd: FusionDefinition) -> None:
        o, x = fd.ops, fd.define_tensor([-1], True)
        n = fd.define_scalar(dtype=DataType.Int) if is_scalar else o.size(fd.define_tensor([-1], True), 0)
        fd.add_output(o.neg(o.expand(o.reshape(x, [2, -1]), [2, n])))

    array = RNG.random(elements).astype("f4")
    inputs = [array, wanted if is_scalar else np.zeros(wanted, "f4")]
    if elements // 2 not in (1, wanted):
        with pytest.raises(
            InputRuntimeError, match="expand, dim 1: a conflict was found with 2 different sizes, 3 and 5"
        ):
            run(define, inputs, monkeypatch)
        return
    (found,) = run(define, inputs, monkeypatch)
    np.testing.assert_array_equal(found, -np.broadcast_to(array.reshape(2, -1), (2, wanted)))


@pytest.mark.parametrize("begin", [0, 1])
@pytest.mark.parametrize("shape", [(1, 1024, 4), (1, 1024, 3), (1024, 1, 4), (512, 8, 1), (1, 1, 4099)])
def test_rows_that_dims_of_one_element_are_merged_into(
    shape: tuple[int, ...], begin: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The elements of a row are neighbours in memory, whatever the strides of such dims are, and vectors begin anywhere."""

    def define(fd: FusionDefinition) -> None:
        fd.add_output(fd.ops.min(fd.define_tensor([-1] * 3, True, DataType.Int32), [0, 1, 2], True))

    size = int(np.prod(shape))
    room = np.zeros(size + 8, "i4")
    first = (-room.ctypes.data // room.itemsize) % 4 + begin
    room[first : first + size] = RNG.integers(1, 1000, size)
    array = room[first : first + size].reshape(shape)
    (found,) = run(define, [array], monkeypatch)
    assert found == array.min()


@pytest.mark.parametrize("columns", [1, 100])
@pytest.mark.parametrize("dtype", [DataType.BFloat16, DataType.Int])
def test_rows_of_one_element_in_several_dims(dtype: DataType, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such rows have parts, along which no input lies: there is nothing to copy vectors of."""

    def define(fd: FusionDefinition) -> None:
        o, x = fd.ops, fd.define_tensor([-1] * 4, True, dtype)
        fd.add_output(o.max(o.sub(x, o.min(x, [0, 1, 3], True)), [0, 1, 3]))

    (found,) = run(define, [np.arange(columns).astype(dtype.numpy).reshape(1, 1, -1, 1)], monkeypatch)
    np.testing.assert_array_equal(found.astype("f8"), np.zeros(columns))


def turned_pairs(fd: FusionDefinition, x: Any, cos: Any, sin: Any) -> Any:
    """A rotary embedding of neighbouring elements of the last dim."""
    o, (b, s, h, d) = fd.ops, [x.size(i) for i in range(4)]
    half = [b, s, h, 4]
    pairs = o.reshape(x, [*half, 2])
    even, odd = (o.squeeze(o.slice(pairs, [0, 0, 0, 0, i], [*half, i + 1]), [4]) for i in (0, 1))
    c, z = (o.broadcast_in_dim(t, half, [1, 3]) for t in (cos, sin))
    columns = [o.broadcast_in_dim(t, [*half, 1], [0, 1, 2, 3]) for t in (even * c - odd * z, even * z + odd * c)]
    return o.reshape(o.cat(columns, 4), [b, s, h, d])


def test_turned_pairs_are_row_major(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what an interleaved rotary embedding returns, the dims before the last are inputs', and said that it lay innermost."""
    x, cos, sin = (
        RNG.random((2, 5, 3, 8)).astype("f4"),
        RNG.random((5, 4)).astype("f4"),
        RNG.random((5, 4)).astype("f4"),
    )

    def define(fd: FusionDefinition) -> None:
        fd.add_output(
            turned_pairs(fd, fd.define_tensor([-1, -1, -1, 8], True), *(fd.define_tensor([-1, 4], True) for _ in "ab"))
        )

    (found,) = run(define, [x, cos, sin], monkeypatch)
    even, odd, c, z = x[..., ::2], x[..., 1::2], cos[None, :, None], sin[None, :, None]
    expected = np.stack([even * c - odd * z, even * z + odd * c], -1).reshape(x.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert found.flags.c_contiguous


@pytest.mark.parametrize("declared", [True, False])
def test_images_come_back_as_they_are_declared(declared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an array lies like decides which kernel runs, not how its results lie."""
    x = np.asarray(RNG.random((2, 5, 6, 7)), "f4").transpose(0, 3, 1, 2)
    bias = RNG.random(7).astype("f4")

    def define(fd: FusionDefinition) -> None:
        o = fd.ops
        image = fd.define_tensor([-1] * 4, True, stride_order=[3, 0, 2, 1] if declared else [])
        shift = o.broadcast(fd.define_tensor([-1], True), [True, False, True, True])
        fd.add_output(o.relu(image + shift))
        fd.add_output(normalised(fd, image, [0, 2, 3]) + shift)

    biased, normal = run(define, [x, bias], monkeypatch)
    np.testing.assert_array_equal(biased, np.maximum(x + bias[:, None, None], 0))
    wanted = (x.strides, x.strides) if declared else ((840, 120, 24, 4),) * 2
    assert (biased.strides, normal.strides) == wanted


# --- slices that end behind their dims, or where another tensor ends --------------------------------------------------

BEHIND = 2**31 - 1
"""An end that is past any extent."""


@pytest.mark.parametrize("dtype", [DataType.Float, DataType.BFloat16])
@pytest.mark.parametrize("shape", [(255, 512), (255, 510), (64, 64), (1, 8)])
@pytest.mark.parametrize("starts", [(1, 0), (0, 0), (0, 4)])
def test_slices_clamped_to_their_dims(
    starts: tuple[int, int], shape: tuple[int, int], dtype: DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a dim that is taken whole the result has the very dim, so that runs of dims and vectors are what they seem."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    array = RNG.integers(-99, 99, shape).astype(dtype.numpy)
    for ends in ((BEHIND, BEHIND), (-5, BEHIND), (100, 512), (-1, None)):
        with FusionDefinition() as fd:
            x = fd.define_tensor([-1, -1], True, dtype)
            given = [x.size(d) if e is None else fd.ops.add(x.size(d), e) if e < 0 else e for d, e in enumerate(ends)]
            fd.add_output(fd.ops.slice(x, starts, given))
        stops = [n if e is None else n + e if e < 0 else e for e, n in zip(ends, shape, strict=True)]
        # An end that is negative for these extents counts from the end, and none lies before its start.
        stops = [max(a, e + n if e < 0 else e) for a, e, n in zip(starts, stops, shape, strict=True)]
        (found,) = fd.execute([place(small_simulator(), array)])
        np.testing.assert_array_equal(found.numpy(), array[starts[0] : stops[0], starts[1] : stops[1]])


@pytest.mark.parametrize("shape", [(40,), (8, 12)])
@pytest.mark.parametrize("starts", [(0, 0), (0, 1), (1, 0), (2, 3)])
def test_slices_that_end_by_sizes_of_slices(
    starts: tuple[int, int], shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slices are one read, and the size of the first one, which no kernel makes, is still asked for."""
    first, second = starts

    def define(fd: FusionDefinition) -> None:
        o, rank = fd.ops, len(shape)
        x = fd.define_tensor([-1] * rank, True)
        y = o.slice(x, [first] * rank, [o.sub(x.size(d), 2) for d in range(rank)])
        z = o.slice(y, [second] * rank, [o.sub(y.size(d), 1) for d in range(rank)])
        fd.add_output(z)
        fd.add_output(o.sum(o.slice(o.neg(z), [0] * rank, [o.sub(z.size(d), 1) for d in range(rank)])))

    x = RNG.integers(-99, 99, shape).astype("f4")
    y = x[(slice(first, -2),) * len(shape)]
    z = y[(slice(second, -1),) * len(shape)]
    found = run(define, [x], monkeypatch)
    np.testing.assert_array_equal(found[0], z)
    np.testing.assert_array_equal(found[1], -z[(slice(0, -1),) * len(shape)].sum())


# --- dims of one element, whose strides may be any numbers ------------------------------------------------------------


def scaled(fd: FusionDefinition, x: Any) -> Any:
    return fd.ops.mul(x, 2.0)


def halves(fd: FusionDefinition, x: Any) -> Any:
    return fd.ops.cat([x, x], 0)


def totals(fd: FusionDefinition, x: Any) -> Any:
    return fd.ops.sum(x, [x.ndim - 1])


def shares_of_columns(fd: FusionDefinition, x: Any) -> Any:
    return fd.ops.sub(x, fd.ops.max(x, [0], True))


ONES = [
    (scaled, lambda x: x * 2),
    (halves, lambda x: np.concatenate([x, x])),
    (totals, lambda x: x.astype("f8").sum(-1).astype(x.dtype)),
    (shares_of_columns, lambda x: x - x.max(0, keepdims=True)),
]
# Shapes of arrays that lie transposed, with gaps or not.
PLACED = [
    ((4, 4, 64, 1), (64, 256, 1, 64)),
    ((4, 4, 64, 1), (66, 264, 1, 7)),
    ((512, 1, 1), (1, 512, 512)),
    ((64, 128, 1), (128, 1, 128)),
    ((1, 64, 1, 128), (8192, 1, 1, 64)),
    ((4, 96, 6, 1), (6, 72, 1, 24)),
    ((1, 1, 64, 1, 128), (66, 1, 1, 1, 66)),
    ((6, 64, 4, 1, 6), (18, 540, 108, 1, 3)),
    ((64, 64, 1, 1), (66, 1, 66, 66)),
    ((1, 64, 96, 4), (1, 1176, 12, 3)),
    ((1, 32, 32, 1), (1, 1024, 32, 999)),
]


@pytest.mark.parametrize("dtype", [DataType.Float, DataType.BFloat16, DataType.Double])
@pytest.mark.parametrize(("shape", "strides"), PLACED)
def test_transposed_arrays_with_dims_of_one_element(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever stride a dim of one element has: what schedulers leave out of account, kernels know to be one element."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    array = RNG.integers(-9, 9, shape).astype(dtype.numpy)
    for define, expected in ONES:
        with FusionDefinition() as fd:
            fd.add_output(define(fd, fd.define_tensor([-1] * len(shape), [False] * len(shape), dtype)))
        for ones in (None, 0, 1000):
            placed = [s if ones is None or n != 1 else ones for n, s in zip(shape, strides, strict=True)]
            (found,) = fd.execute([place(small_simulator(), array, placed)])
            np.testing.assert_array_equal(found.numpy(), expected(array))
        assert fd.fec.counters()["kernels_compiled"] == 1


def test_a_kernel_of_one_row_is_not_that_of_many() -> None:
    """A dim of one element is a fact; the kernel made for it is not asked to take more, and the other one serves both."""
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.mul(fd.define_tensor([-1, -1], True), 2.0))
    for rows in (1, 8, 1, 9):
        x = RNG.random((rows, 12)).astype("f4")
        np.testing.assert_array_equal(fd.execute([x], device="simulator")[0], x * 2)
    assert fd.fec.counters()["kernels_compiled"] == 2


@pytest.mark.parametrize(("rows", "columns"), [(8, 250_003), (512, 50_257), (4, 1003)])
def test_rows_of_which_a_sum_needs_factories_alone(rows: int, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pass over a row reads nothing along it: only what is computed again says that it is the row of the second."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    shape = [rows, columns]
    with FusionDefinition() as fd:
        o = fd.ops
        x = o.cast(fd.define_tensor([-1, -1], True, DataType.BFloat16), DataType.Float)
        labels = fd.define_tensor([-1], True, DataType.Int)
        scale = fd.define_tensor([], True, DataType.Float)
        places = o.broadcast_in_dim(o.iota(columns, 0, 1, DataType.Int), shape, [1])
        hit = o.eq(places, o.broadcast_in_dim(labels, shape, [0]))
        d = o.mul(o.where(hit, -0.5, 0.0), scale)
        fd.add_output(o.cast(o.sub(d, o.mul(o.exp(x), o.sum(d, [1], keepdim=True))), DataType.BFloat16))
    described = [
        TensorDescriptor(DataType.BFloat16, (rows, columns), (columns, 1)),
        TensorDescriptor(DataType.Int, (rows,), (1,)),
        TensorDescriptor(DataType.Float, (), ()),
    ]
    assert len(fd.program(described).launches()) == 1
    if columns > 1003:
        return
    array = RNG.normal(size=shape).astype(DataType.BFloat16.numpy)
    given = RNG.integers(0, columns, rows)
    (found,) = fd.execute([array, given, np.full((), 2, np.float32)])
    expected = np.exp(array.astype("f8"))
    expected[np.arange(rows), given] -= 1
    np.testing.assert_allclose(np.asarray(found).astype("f8"), expected, rtol=2.0**-8, atol=1e-6)


def test_rows_that_groups_of_blocks_go_over_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many rows as there are groups, which the definition says: there is no next row to copy ahead."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    rows, columns = 32, 25_088
    with FusionDefinition() as fd:
        o = fd.ops
        x, y, w = (fd.define_tensor([rows, -1], True, DataType.Double) for _ in range(3))
        mean, root = (fd.define_tensor([rows, 1], True, DataType.Double) for _ in range(2))
        hat, g = o.mul(o.sub(x, mean), root), o.mul(y, w)
        fd.add_output(hat)
        both = o.add(o.sum(g, [1], keepdim=True), o.mul(hat, o.sum(o.mul(g, hat), [1], keepdim=True)))
        fd.add_output(o.mul(o.sub(g, o.div(both, 25_088.0)), root))
    described = [TensorDescriptor(DataType.Double, (rows, columns), (columns, 1))] * 3
    described += [TensorDescriptor(DataType.Double, (rows, 1), (1, 1))] * 2
    assert len(fd.program(described).launches()) == 1


@pytest.mark.parametrize("follow", ["neg", "sum", "cumsum"])
@pytest.mark.parametrize("dtype", [DataType.Int32, DataType.BFloat16])
@pytest.mark.parametrize(
    ("shape", "new"),
    [((1,), [1]), ((1,), []), ((1, 1), [1, -1]), ((1, 1), [-1]), ((1, 1, 300), [1, 1, -1]), ((300, 1), [-1, 1])],
)
def test_a_reshape_of_dims_of_one_element_meets_the_tensor(
    shape: tuple[int, ...], new: list[int], dtype: DataType, follow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one element is read at index 0 by every thread, also where a loop over the dim is spread over threads."""

    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1] * len(shape), True, dtype)
        both = fd.ops.add(x, fd.ops.reshape(x, new))
        made = {"neg": fd.ops.neg, "sum": lambda t: fd.ops.sum(t, [0], True), "cumsum": lambda t: fd.ops.cumsum(t, 0)}
        fd.add_output(fd.ops.add(x, made[follow](both)))

    array = RNG.integers(0, 2, shape)
    (found,) = run(define, [array.astype(dtype.numpy)], monkeypatch)
    both = 2 * array
    expected = {"neg": -both, "sum": both.sum(0, keepdims=True), "cumsum": both.cumsum(0)}[follow] + array
    # BFloat16 has 8 bits: sums along 300 rows are rounded, and added to rounded.
    np.testing.assert_allclose(found.astype("f8"), expected, rtol=2**-7 if dtype is DataType.BFloat16 else 0)


@pytest.mark.parametrize("order", [[0, 3, 4, 2, 1], [4, 0, 1, 2, 3], [0, 2, 3, 4, 1]])
@pytest.mark.parametrize("size", [1, 3, 8])
def test_dims_that_are_equal_by_way_of_others(size: int, order: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor meets a permutation of itself: dims are equal one by one, their extents all together."""

    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1] * 5, False)
        y = fd.ops.permute(x, order)
        fd.add_output(fd.ops.sub(x, y))
        fd.add_output(y)

    array = RNG.random((size,) * 5).astype("f4")
    difference, permuted = run(define, [array], monkeypatch)
    np.testing.assert_array_equal(permuted, array.transpose(order))
    np.testing.assert_array_equal(difference, array - array.transpose(order))


REGROUPED = {"flat": [-1], "others": [9, -1], "all": [9, 2, 4]}


@pytest.mark.parametrize("dtype", [DataType.BFloat16, DataType.Int], ids=str)
@pytest.mark.parametrize("order", [[0, 1, 2], [1, 2, 0]], ids=str)
@pytest.mark.parametrize("regrouped", REGROUPED.values(), ids=REGROUPED)
def test_regrouped_dims_in_another_order(
    regrouped: list[int], order: list[int], dtype: DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between kernels they lie row major, whatever order was asked for, and in that order where they are returned."""
    numbers = np.arange(72).reshape(6, 4, 3)
    for is_returned, declared in ((False, [-1, -1, -1]), (True, [6, 4, -1])):

        def define(fd: FusionDefinition, is_returned: bool = is_returned, declared: list[int] = declared) -> None:
            o = fd.ops
            y = o.stride_order(o.neg(fd.define_tensor(declared, True, dtype)), order)
            z = o.reshape(y, regrouped)
            fd.add_output(o.pad(z, [2, 3], o.cast(fd.define_scalar(1), dtype)))  # its dims cannot be taken in parts
            fd.add_output(o.cat([y, y], 0))  # nor can those that lie in memory
            fd.add_output(o.squeeze(o.broadcast(z, [True] + [False] * z.ndim), [0]))
            if is_returned:
                fd.add_output(y)

        x = numbers.astype("i8" if dtype is DataType.Int else ml_dtypes.bfloat16)
        found = run(define, [x], monkeypatch)
        z = -x.reshape(regrouped)
        one = np.ones((*z.shape[:-1], 1), x.dtype)
        expected = [np.concatenate([one, one, z, one, one, one], -1), -np.concatenate([x, x]), z]
        for a, b in zip(found, [*expected, -x], strict=False):
            np.testing.assert_array_equal(a, b)
        if is_returned:
            assert sorted(range(3), key=lambda d: found[3].strides[d]) == sorted(range(3), key=order.__getitem__)


Late = Callable[[FusionDefinition, Any, Array], tuple[Any, Array]]


def late_slice(fd: FusionDefinition, x: Any, a: Array) -> tuple[Any, Array]:
    return fd.ops.slice(x, [0], [10**6]), a


def late_cut(fd: FusionDefinition, x: Any, a: Array) -> tuple[Any, Array]:
    return fd.ops.pad(fd.ops.cat([x, x], 0), [0, fd.ops.neg(fd.ops.size(x, 0))], 0.0), a


def late_factory(fd: FusionDefinition, x: Any, a: Array) -> tuple[Any, Array]:
    return fd.ops.iota(fd.ops.size(x, 0), 0.0, 1.0, DataType.Float), np.arange(len(a), dtype="f4")


def late_reshape(fd: FusionDefinition, x: Any, a: Array) -> tuple[Any, Array]:
    return fd.ops.sum(fd.ops.reshape(x, [1, -1]), [0]), a


def late_expansion(fd: FusionDefinition, x: Any, a: Array) -> tuple[Any, Array]:
    one = fd.ops.slice(x, [0], [1])
    return fd.ops.expand(fd.ops.reshape(one, [-1]), [fd.ops.size(x, 0)]), np.repeat(a[:1], len(a))


def input_dim(_: FusionDefinition, x: Any, a: Array) -> tuple[Any, Array]:
    return x, a


LATE = (late_slice, late_cut, late_factory, late_reshape, late_expansion)


@pytest.mark.parametrize(("first", "second"), [*((f, late_slice) for f in LATE), (late_reshape, input_dim)])
def test_sizes_of_dims_that_meet_one_that_turns_out_to_be_one(
    first: Late, second: Late, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is made of their size is made of that of the dim that is not one, whichever it is."""
    for sizes in ((1, 5), (5, 1)):
        if second is input_dim and sizes == (5, 1):
            continue  # an input's dim never broadcasts
        x, y = (RNG.random(n).astype("f4") for n in sizes)
        expected: list[Array] = []

        def define(fd: FusionDefinition, x: Array = x, y: Array = y, expected: list[Array] = expected) -> None:
            o = fd.ops
            handles = [fd.define_tensor([-1]) for _ in range(2)]
            (a, b), (c, d) = first(fd, handles[0], x), second(fd, handles[1], y)
            joined: list[tuple[Any, Array]] = [(o.add(a, c), b + d), (o.maximum(c, a), np.maximum(b, d))]
            for t, z in joined:
                n = len(z)
                size = o.size(t, 0)
                results = [
                    (o.full([size], 2.0, DataType.Float), np.full(n, 2, "f4")),
                    (o.mul(t, size), z * n),
                    (o.pad(t, [2, 1], 3.0), np.pad(z, (2, 1), constant_values=3)),
                    (o.slice(t, [0], [o.sub(size, 0)]), z),
                    (o.cat([t, t], 0), np.concatenate([z, z])),
                    (o.reshape(t, [-1, 1]), z[:, None]),
                    (o.broadcast_in_dim(t, [2, size], [1]), np.stack([z, z])),
                    (o.neg(t), -z),
                ]
                for result, value in results:
                    fd.add_output(result)
                    expected.append(value)

        for found, value in zip(run(define, [x, y], monkeypatch), expected, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-6)
            assert found.shape == value.shape


@pytest.mark.parametrize("dtype", [DataType.Float, DataType.BFloat16, DataType.Double], ids=str)
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_softmax_of_nothing(dim: int, dtype: DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    """No loop over elements, and no values of them that a thread could hold."""

    def define(fd: FusionDefinition, declared: list[int]) -> None:
        o = fd.ops
        x = fd.define_tensor(declared, dtype=dtype)
        part = o.slice(x, [2 if d == dim else 0 for d in range(3)], [2 if d == dim else o.size(x, d) for d in range(3)])
        powers = o.exp(o.sub(part, o.max(part, [dim], True)))
        total = o.sum(powers, [dim], True)
        fd.add_output(o.div(powers, total))
        fd.add_output(total)

    shape = (3, 4, 5)
    x = np.ones(shape, {DataType.Float: "f4", DataType.Double: "f8"}.get(dtype, ml_dtypes.bfloat16))
    every: list[list[int]] = [[-1, -1, -1], list(shape)]
    for declared in every:
        found = run(lambda fd, declared=declared: define(fd, declared), [x], monkeypatch)
        assert [a.shape for a in found] == [tuple(n if d == dim else m for d, m in enumerate(shape)) for n in (0, 1)]
        np.testing.assert_array_equal(found[1].astype("f4"), np.zeros(found[1].shape, "f4"))


@pytest.mark.parametrize("shape", [(4,), (7,), (3, 4), (300,)], ids=str)
@pytest.mark.parametrize("dtype", [DataType.Double, DataType.Half], ids=str)
def test_what_is_only_measured_is_not_computed(
    dtype: DataType, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind ops that move in front of it, a broadcast says along which loops it would be to nobody."""

    def define(fd: FusionDefinition) -> None:
        o, x = fd.ops, fd.define_tensor([-1] * len(shape), dtype=DataType.Int32)
        y = o.cast(o.broadcast(x, [False] * len(shape) + [True]), dtype)
        fd.add_output(o.expand(o.isfinite(y), [-1] * len(shape) + [o.size(y, 0)]))

    (found,) = run(define, [np.ones(shape, "i4")], monkeypatch)
    np.testing.assert_array_equal(found, np.ones((*shape, shape[0]), bool))


@pytest.mark.parametrize("dtype", ["f4", "f2", "i8"])
@pytest.mark.parametrize("dims", [(0,), (-1,), (0, 1), (0, 1, 2)], ids=str)
def test_updates_by_a_transpose_beside_a_sum(
    dims: tuple[int, ...], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stored as the input lies, whose neighbours are those of another dim of the result."""
    for rank in (2, 3):
        order = list(range(rank))[::-1]
        summed = dims[:rank]
        x = np.arange(8**rank).reshape((8,) * rank).astype(dtype)

        def define(
            fd: FusionDefinition, x: Array = x, order: list[int] = order, summed: tuple[int, ...] = summed
        ) -> None:
            y = fd.define_tensor([-1] * x.ndim, True, x.dtype)
            fd.add_output(fd.ops.sum(y, list(summed), dtype=DataType.Double))
            fd.add_output(fd.ops.cast(fd.ops.permute(fd.ops.neg(y), order), x.dtype), y)

        updated = x.copy()
        found = run(define, [updated], monkeypatch)
        np.testing.assert_array_equal(updated, -x.transpose(order))
        np.testing.assert_array_equal(found[0], x.sum(summed, dtype="f8"))


Made = Callable[[FusionDefinition, Any], Any]
MADE_ROWS: dict[str, Made] = {
    "full": lambda fd, x: fd.ops.full([fd.ops.size(x, 0), 16], 2.5, DataType.Float),
    "iota": lambda fd, x: fd.ops.broadcast_in_dim(
        fd.ops.cast(fd.ops.iota(fd.ops.size(x, 0)), DataType.Float), [fd.ops.size(x, 0), 16], [0]
    ),
    "expanded": lambda fd, x: fd.ops.expand(fd.ops.slice(x, [0, 0], [1, 16]), [fd.ops.size(x, 0), -1]),
}


def scaled_rows(fd: FusionDefinition, x: Any) -> Any:
    o = fd.ops
    squares: Any = o.mul(x, x)
    return o.mul(x, o.rsqrt(o.add(o.mul(o.sum(squares, [0], keepdim=True), 0.125), 1.0)))


def scaled_array(x: Array) -> Array:
    return x / np.sqrt((x.astype("f8") ** 2).sum(0, keepdims=True) / 8 + 1)


@pytest.mark.parametrize("kind", MADE_ROWS)
def test_stages_of_rows_that_no_input_has(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stage makes them anew, element by element: a thread holds none of a row, whatever its length."""

    def define(fd: FusionDefinition) -> None:
        y = scaled_rows(fd, MADE_ROWS[kind](fd, fd.define_tensor([-1, -1], True)))
        fd.add_output(fd.ops.sub(y, fd.ops.sum(y, [0], keepdim=True)))

    array = RNG.random((64, 16)).astype("f4")
    (found,) = run(define, [array], monkeypatch)
    made = {
        "full": np.full((64, 16), 2.5),
        "iota": np.repeat(np.arange(64)[:, None], 16, 1),
        "expanded": np.repeat(array[:1], 64, 0),
    }
    y = scaled_array(made[kind])
    np.testing.assert_allclose(found, y - y.sum(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("gathers", [False, True])
@pytest.mark.parametrize("rows", [2, 64])
def test_stages_of_rows_whose_columns_are_chosen(rows: int, gathers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index belongs to the columns, and is read where both stages are: they stand in its loops."""
    chosen = RNG.integers(0, 2, 13).astype("i4")

    def define(fd: FusionDefinition) -> None:
        x, i = fd.define_tensor([-1, -1, -1], True), fd.define_tensor([-1], True, DataType.Int32)
        spread = fd.ops.broadcast_in_dim(i, [rows, 13, 2], [1])
        made = fd.ops.take_along_axis(x, spread, 1) if gathers else fd.ops.index_select(x, i, 1)
        fd.add_output(scaled_rows(fd, made))

    array = RNG.random((rows, 2, 2)).astype("f4")
    (found,) = run(define, [array, chosen], monkeypatch)
    np.testing.assert_allclose(found, scaled_array(array[:, chosen]), rtol=1e-5)


@pytest.mark.parametrize(
    ("declared", "dims"),
    [([-1, -1, 1], [0, 2]), ([-1, 1, -1], [0, 1]), ([-1, 1, 1], [0, 1]), ([-1, 1, 1], [0, 1, 2])],
    ids=str,
)
def test_the_element_of_a_dim_that_others_reduce(
    declared: list[int], dims: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its operand is spread over the threads of the dims that are reduced with it, which are not those that need it."""
    y = RNG.random((1, 5, 300)).astype("f4")
    x = np.ascontiguousarray(y[tuple(slice(None, 1 if n == 1 else None) for n in declared)])
    kept = [d for d in (1, 2) if declared[d] == -1]
    for is_held in (False, True):

        def define(fd: FusionDefinition, is_held: bool = is_held) -> None:
            o = fd.ops
            a, b = fd.define_tensor(declared), fd.define_tensor([-1, -1, -1])
            c = o.mul(a, b)
            fd.add_output(o.sub(c, o.max(c, dims, True)) if is_held else o.max(c, dims))
            fd.add_output(o.neg(o.reshape(o.permute(a, [0, 2, 1]), [o.size(a, d) for d in kept])))

        found = run(define, [x, y], monkeypatch)
        largest = (x * y).max(tuple(dims), keepdims=is_held)
        np.testing.assert_array_equal(found[0], x * y - largest if is_held else largest)
        np.testing.assert_array_equal(found[1], -x.reshape(found[1].shape))
        assert found[1].shape == tuple(x.shape[d] for d in kept)


def turned_cubes(fd: FusionDefinition, x: Any) -> Any:
    turned = fd.ops.permute(x, [1, 2, 0])
    return fd.ops.cat([x, turned, turned, x], 2)


def lines_beside_pairs(fd: FusionDefinition, x: Any) -> Any:
    lines = fd.ops.broadcast(x, [False, True, False, True])
    pairs = fd.ops.cat([lines, lines], 2)
    return fd.ops.eq(fd.ops.broadcast(lines, [False, False, False, False, True]), pairs)


@pytest.mark.parametrize("dtype", ["f4", "f2"])
@pytest.mark.parametrize("is_aligned", [False, True])
@pytest.mark.parametrize(("define", "shape"), [(turned_cubes, (16, 16, 16)), (lines_beside_pairs, (1, 96))])
def test_vectors_along_what_is_put_side_by_side(
    define: Made, shape: tuple[int, ...], is_aligned: bool, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its length is known to be divisible by what follows from what a kernel asks of its inputs."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    with FusionDefinition() as fd:
        fd.add_output(define(fd, fd.define_tensor([-1] * len(shape), dtype=np.dtype(dtype))))
    x = RNG.permutation(math.prod(shape)).reshape(shape).astype(dtype)
    (found,) = fd.execute([place(small_simulator(), x, shift=0 if is_aligned else x.itemsize)])
    if define is turned_cubes:
        turned = x.transpose(1, 2, 0)
        expected = np.concatenate([x, turned, turned, x], 2)
    else:
        expected = x[:, None, :, None, None] == np.concatenate([x, x], 1)[None, :, None, :, None]
    np.testing.assert_array_equal(np.asarray(found), expected)


@pytest.mark.parametrize("columns", [2, 5, 29])
@pytest.mark.parametrize("dtype", ["i4", "f8"])
def test_indices_into_a_pad(columns: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their sizes are those of the padded dims, by an expression that a kernel does not know to be them."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    x = np.arange(128 * 3 * columns).reshape(128, 3, columns).astype(dtype)
    i = RNG.integers(0, 5, (128, 7, columns + 3)).astype("i4")
    with FusionDefinition() as fd:
        o = fd.ops
        a = fd.define_tensor([128, -1, -1], dtype=np.dtype(dtype))
        index = fd.define_tensor([128, -1, -1], dtype=DataType.Int32)
        fd.add_output(o.take_along_axis(o.cummax(o.pad(a, [1, 2, 2, 0]), 0), index, 1))
    device = small_simulator()
    (found,) = fd.execute([place(device, x), place(device, i)])
    padded = np.maximum.accumulate(np.pad(x, ((0, 0), (2, 0), (1, 2))), 0)
    np.testing.assert_array_equal(np.asarray(found), np.take_along_axis(padded, i, 1))


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize(("op", "fold"), [("cumsum", np.cumsum), ("cummax", np.maximum.accumulate)])
def test_scans_of_reshapes_of_expansions(
    op: str, fold: Callable[..., Array], dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dim that a reshape keeps is still one stored element, which is known when inputs are bound."""

    def define(fd: FusionDefinition) -> None:
        o, x, y = fd.ops, fd.define_tensor([1]), fd.define_tensor([-1, -1])
        wide = o.expand(o.broadcast(x, [True, False]), [o.size(y, 0), o.size(y, 1)])
        fd.add_output(getattr(o, op)(o.reshape(wide, [o.size(y, 0), -1]), dim))

    (found,) = run(define, [np.full(1, 1.5, "f4"), np.ones((3, 40), "f4")], monkeypatch)
    np.testing.assert_array_equal(found, fold(np.full((3, 40), 1.5, "f4"), axis=dim))


@pytest.mark.parametrize("reduces", [False, True])
@pytest.mark.parametrize("empty", [(1, 2, 3), (2,), (3,), (0,)], ids=str)
def test_no_worker_for_nothing_beside_one_element(
    empty: tuple[int, ...], reduces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loops of the one element ask for a block each, but nobody is there to use it; indices would be divided by 0."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    shape = tuple(0 if d in empty else n for d, n in enumerate((31, 3, 2, 5)))
    with FusionDefinition() as fd:
        o, x, one = fd.ops, fd.define_tensor([-1] * 4), fd.define_tensor([1] * 4)
        y = o.cat([x, x, x, x], 2)
        fd.add_output(o.add(o.sub(y, o.sum(y, [0], True)) if reduces else y, one))
    device = small_simulator()
    x, one = np.ones(shape, "f4"), np.ones([1] * 4, "f4")
    (found,) = fd.execute([place(device, x), place(device, one)])
    assert np.asarray(found).shape == (*shape[:2], 4 * shape[2], shape[3])


@pytest.mark.parametrize("columns", [15, 16])
@pytest.mark.parametrize("stored", ["f2", "i4"])
def test_vectors_of_a_result_whose_sizes_are_those_of_unread_inputs(
    stored: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a kernel asks of the input that has its dims says that they are divisible."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    dtype, wide = np.dtype(stored), np.dtype("c16")
    with FusionDefinition() as fd:
        o = fd.ops
        x, a, b = fd.define_tensor([-1, 1], dtype=dtype), fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1])
        y, z = fd.define_tensor([-1, 1, -1, -1], dtype=wide), fd.define_tensor([-1, 1, -1, -1], dtype=dtype)
        spread = o.broadcast_in_dim(x, [o.size(y, 0), 1, o.size(b, 1), o.size(a, 1)], [0, 1])
        fd.add_output(o.mul(spread, y))
        fd.add_output(o.pad(y, [0, 1], 1 + 2j))
        fd.add_output(o.permute(o.mul(spread, z), [2, 3, 1, 0]))
    device = small_simulator()
    shapes = ((15, 1), (15, columns), (15, 4), (15, 1, 4, columns), (15, 1, 4, columns))
    dtypes = (dtype, np.dtype("f4"), np.dtype("f4"), wide, dtype)
    arrays = [RNG.integers(0, 9, n).astype(d) for n, d in zip(shapes, dtypes, strict=True)]
    found = fd.execute([place(device, array, shift=4 if array.dtype == dtype else 0) for array in arrays])
    column, whole, other = arrays[0][:, :, None, None], arrays[3], arrays[4]
    np.testing.assert_array_equal(np.asarray(found[0]), column * whole)
    np.testing.assert_array_equal(np.asarray(found[2]), (column * other).transpose(2, 3, 1, 0))


def test_a_concrete_dim_of_one_element_behind_a_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    """An expand gives a dim the extent that a size happens to be; the loop over it stands behind the vectors of a row."""

    def define(fd: FusionDefinition) -> None:
        o = fd.ops
        x = fd.define_tensor([-1, -1], True)
        y = o.neg(o.expand(x, [o.size(x, 1), -1]))
        z = o.segment_set(o.cat([y, y], 1))
        fd.add_output(o.sub(z, o.max(z, dims=[1], keepdim=True)))
        fd.add_output(o.triu(y))

    array = np.full((1, 1), 3.0, "f4")
    found = run(define, [array], monkeypatch)
    np.testing.assert_array_equal(found[0], np.zeros((1, 2), "f4"))
    np.testing.assert_array_equal(found[1], -array)


def test_a_size_that_is_one_elsewhere_behind_a_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dim of the input has a size, that of what is expanded is known to be one: they are the same dim."""

    def define(fd: FusionDefinition) -> None:
        o = fd.ops
        x = fd.define_tensor([-1, 4, -1], True)
        y = o.neg(x)
        low = o.min(y, dims=[1], keepdim=True)
        size = o.size(o.slice(low, [0, 0, 0], [10**6, 1, 10**6]), 0)
        fd.add_output(low)
        fd.add_output(o.expand(y, [-1, 4, size]))

    array = RNG.random((1, 4, 1)).astype("f4")
    found = run(define, [array], monkeypatch)
    np.testing.assert_array_equal(found[0], -array.max(1, keepdims=True))
    np.testing.assert_array_equal(found[1], -array)


@pytest.mark.parametrize("strides", [None, (1, 1, 256)], ids=["row major", "any strides"])
@pytest.mark.parametrize("shape", [(0, 129, 129), (129, 0, 129), (129, 256, 0)], ids=str)
@pytest.mark.parametrize("dims", [[0, 2], [1]], ids=str)
def test_reductions_of_nothing(
    dims: list[int], shape: tuple[int, ...], strides: tuple[int, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Facts hold for whatever strides a tensor without elements has: schedules follow what they say, not those strides. Dims
    on both sides of a kept one are two loops, though one of them has no element."""

    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1, -1, -1], dtype=DataType.BFloat16)
        fd.add_output(fd.ops.prod(x, dims))

    x = np.zeros(shape, ml_dtypes.bfloat16)
    if strides is not None:
        x = np.lib.stride_tricks.as_strided(x, shape, tuple(2 * s for s in strides))
    (found,) = run(define, [x], monkeypatch)
    np.testing.assert_array_equal(found.astype("f4"), np.ones(x.shape).prod(tuple(dims)))


def test_vectors_of_indices_whose_sizes_are_those_of_an_intermediate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of a dim is the index's own for one argument and computed for the other: loops and strides take the same."""

    def define(fd: FusionDefinition) -> None:
        o = fd.ops
        x, index = fd.define_tensor([-1, -1, -1, 5], True), fd.define_tensor([-1, -1, -1, 5], True, DataType.Int)
        fd.add_output(o.sum(o.take_along_axis(o.cat([x, x], 1), index, 2)))

    x = RNG.integers(0, 99, (3, 3, 3, 5)).astype("f4")
    index = RNG.integers(0, 3, (3, 6, 3, 5))
    (found,) = run(define, [x, index], monkeypatch)
    np.testing.assert_array_equal(found, np.take_along_axis(np.concatenate([x, x], 1), index, 2).sum())


@pytest.mark.parametrize(
    ("sizes", "lacking"),
    [*(((3, 128, 16), d) for d in ((0, 1), (0, 2), (1,), (2,))), ((300, 32, 16), (0, 1))],
    ids=lambda v: "x".join(map(str, v)),
)
def test_factors_of_rows_of_several_dims(
    sizes: tuple[int, ...], lacking: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread holds a weight of its columns; one that lacks a dim of the row is read where it is used."""

    def define(fd: FusionDefinition) -> None:
        o = fd.ops
        x, w = (
            fd.define_tensor([-1, -1, -1], True),
            fd.define_tensor([1 if d in lacking else -1 for d in range(3)], True),
        )
        y = o.mul(x, w)
        for result in (y, o.sum(y, [1, 2]), o.sum(y, [0])):
            fd.add_output(result)

    x = RNG.integers(-9, 10, sizes).astype("f4")
    w = RNG.integers(-9, 10, [1 if d in lacking else n for d, n in enumerate(sizes)]).astype("f4")
    found = run(define, [x, w], monkeypatch)
    for a, b in zip(found, (x * w, (x * w).sum((1, 2)), (x * w).sum(0)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_reshape_of_what_an_output_shows_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it merges are no neighbours in that output's memory, whatever dims of one element are dropped and added between."""

    def define(fd: FusionDefinition) -> None:
        o = fd.ops
        x = fd.define_tensor([-1, -1])
        y = o.add(o.permute(o.sum(o.broadcast(x, [False, False, True]), [2], keepdim=True), [1, 0, 2]), 1.0)
        fd.add_output(y)
        fd.add_output(o.reshape(y, [-1, 1]))

    x = RNG.random((4, 6)).astype("f4")
    found = run(define, [x], monkeypatch)
    np.testing.assert_array_equal(found[0], x.T[:, :, None] + 1)
    np.testing.assert_array_equal(found[1], x.T.reshape(-1, 1) + 1)


@pytest.mark.parametrize("pads", [[3, 0, 1, 3, 2, 1], [0, 3, 2, 1, -5, 1], [-1, 0, 0, 0, -3, 0]], ids=str)
@pytest.mark.parametrize("is_indexed", [False, True], ids=["padded", "indexed"])
def test_rows_of_what_another_kernel_pads(pads: list[int], is_indexed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extents of a row are computed from sizes: that it fits in a block follows from what its length is in those."""

    def define(fd: FusionDefinition) -> None:
        o = fd.ops
        x = fd.define_tensor([-1, -1, -1], True)
        y = o.segment_set(o.pad(x, pads))
        if is_indexed:
            y = o.take_along_axis(y, fd.define_tensor([-1, -1, -1], True, DataType.Int), 0)
        e = o.exp(o.sub(y, o.max(y, [0, 1, 2], keepdim=True)))
        fd.add_output(o.div(e, o.sum(e, [0, 1, 2], keepdim=True)))

    x = RNG.random((16, 4, 5)).astype("f4")
    (before, after) = zip(*[(pads[2 * d], pads[2 * d + 1]) for d in (2, 1, 0)], strict=True)
    y = np.pad(x, [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)])
    y = y[tuple(slice(max(-b, 0), None) for b in before)].astype("f8")
    inputs = [x]
    if is_indexed:
        inputs.append(RNG.integers(0, y.shape[0], y.shape))
        y = np.take_along_axis(y, inputs[1], 0)
    (found,) = run(define, inputs, monkeypatch)
    np.testing.assert_allclose(found, np.exp(y) / np.exp(y).sum(), rtol=1e-6)


def test_rows_of_tensors_without_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strides of such are any numbers: which of their dims would be the fastest one is not known."""

    def define(fd: FusionDefinition) -> None:
        o = fd.ops
        x = fd.define_tensor([-1, -1, -1], True, DataType.Int)
        y = o.segment_set(o.permute(x, [1, 2, 0]))
        weights = o.iota(o.size(x, 1), 0, 1, DataType.Int)
        z = o.mul(weights, o.permute(o.mul(o.broadcast(y, [False] * 3 + [True]), weights), [3, 2, 1, 0]))
        fd.add_output(o.min(z, [3]))
        fd.add_output(o.cumsum(z, 2))

    least, sums = run(define, [np.ones((0, 300, 0), "i8")], monkeypatch)
    assert (least.shape, sums.shape) == ((300, 0, 0), (300, 0, 0, 300))


@pytest.mark.parametrize("shape", [(17, 1, 6, 6, 3), (40, 1, 5, 7, 3)], ids=str)
def test_results_of_columns_that_are_stored_by_element(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written last leaves the second-level cache first, which only whole vectors are told."""

    def define(fd: FusionDefinition) -> None:
        o = fd.ops
        x = fd.define_tensor([-1, 1, -1, -1, -1], True, DataType.BFloat16)
        y = o.cast(x, DataType.Float)
        _, mean = o.var_mean(y, [0], 1, True)
        fd.add_output(o.reshape(o.sub(y, mean), [o.size(x, 0), -1, o.size(y, 2), o.size(y, 4)]))

    x = RNG.integers(-8, 9, shape).astype(DataType.BFloat16.numpy)
    (found,) = run(define, [x], monkeypatch)
    wide = x.astype("f8")
    np.testing.assert_allclose(found, (wide - wide.mean(0)).reshape(found.shape), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(33, 4, 2049), (5, 8, 64)], ids=str)
def test_one_element_of_a_row_is_read_for_all_of_another(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is sliced has a single element along the dim that it is expanded along: there are no neighbours to read with it."""

    def define(fd: FusionDefinition) -> None:
        o = fd.ops
        x = fd.define_tensor([-1, -1, -1], True)
        chosen = fd.define_tensor([-1, 1, -1], True, DataType.Bool)
        wide = o.broadcast_in_dim(o.select(x, 0, 2), [o.size(x, d) for d in range(3)], [0, 1])
        fd.add_output(o.where(chosen, wide, -3.0))

    x = RNG.random(shape).astype("f4")
    chosen = RNG.random((shape[0], 1, shape[2])) < 0.5
    (found,) = run(define, [x, chosen], monkeypatch)
    np.testing.assert_array_equal(found, np.where(chosen, x[..., :1], np.float32(-3)))


def test_the_only_element_of_a_row_is_read_without_its_dim(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a normalisation have one element here, which a reshape reads as a tensor of other dims."""

    def define(fd: FusionDefinition) -> None:
        o = fd.ops
        x = fd.define_tensor([1, -1], True)
        variance, mean = o.var_mean(x, [1], 0, True)
        fd.add_output(o.reshape(o.sub(x, mean), [1, o.size(x, 1), 1]))
        fd.add_output(mean)
        y = o.div(x, o.add(variance, 2.0))
        fd.add_output(o.reshape(y, [o.size(x, 1)]))
        fd.add_output(o.exp(y))

    x = np.full((1, 1), 3.0, "f4")
    found = run(define, [x], monkeypatch)
    for one, expected in zip(found, (np.zeros((1, 1, 1)), x, [1.5], np.exp([[1.5]])), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-6)


def test_sums_of_exponentials_of_columns_beside_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows from the sum alone comes behind the columns as well as what follows from the maximum."""

    def define(fd: FusionDefinition) -> None:
        o = fd.ops
        x = fd.define_tensor([-1, -1], True)
        y = o.truediv(x, x)
        largest = o.max(y, [0], True)
        total = o.sum(o.exp(o.sub(y, largest)), [0], True)
        fd.add_output(o.add(total, largest))
        fd.add_output(o.reshape(o.min(x, [1]), [1, o.size(x, 0)]))

    x = RNG.random((2, 6)).astype("f4") + 1
    found = run(define, [x], monkeypatch)
    np.testing.assert_array_equal(found[0], np.full((1, 6), 3.0))
    np.testing.assert_array_equal(found[1], x.min(1)[None])


def test_rows_of_a_reshaped_pad_beside_a_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop over all elements is the dim that the pad has; the mask is computed there, though it has only a part of it."""

    def define(fd: FusionDefinition) -> None:
        o = fd.ops
        x = fd.define_tensor([1], [None], DataType.Bool)
        mask = o.ge(o.broadcast(o.iota(2), [True, False]), 1)
        fd.add_output(o.where(mask, o.reshape(o.pad(x, [5, 2], True), [4, 2]), False))

    (found,) = run(define, [np.zeros(1, np.bool_)], monkeypatch)
    np.testing.assert_array_equal(found, [[False, True], [False, True], [False, False], [False, True]])


def test_a_tensor_of_which_only_the_size_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The softmax has columns as another output's tensor has rows: its kernel does not compute that tensor."""

    def define(fd: FusionDefinition) -> None:
        o = fd.ops
        x = fd.define_tensor([-1, 1], [False, None], DataType.Float)
        rows = o.floor(x)
        count = o.size(rows, 0)
        table = o.set(o.expand(x, [-1, count]))
        exps = o.exp(o.sub(table, o.max(table, [0, 1], True)))
        fd.add_output(o.div(exps, o.sum(exps, [0, 1], True)))
        fd.add_output(o.slice(rows, [0, 0], [o.minimum(9, count), 1], [1, 1], True))

    array = 4 * RNG.random((2, 1)).astype("f4")
    softmax, first = run(define, [array], monkeypatch)
    exps = np.exp(np.broadcast_to(array, (2, 2)).astype("f8"))
    np.testing.assert_allclose(softmax, exps / exps.sum(), rtol=1e-5)
    np.testing.assert_array_equal(first, np.floor(array)[:9])


def test_no_elements_along_a_dim_of_two_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strides of what has no elements are 0: they say nothing of which dim is the fastest."""

    def define(fd: FusionDefinition) -> None:
        o, x = fd.ops, fd.define_tensor([-1, -1], False, DataType.Half)
        wide = o.expand(o.broadcast(x, [True, True, False, False]), [o.size(x, 0), 100, -1, -1])
        fd.add_output(o.rsqrt(o.cast(o.permute(wide, [3, 1, 0, 2]), DataType.Float)))
        fd.add_output(o.logical_not(o.cast(wide, DataType.Bool)))

    first, second = run(define, [np.zeros((0, 100), "f2")], monkeypatch)
    assert (first.shape, second.shape) == ((100, 100, 0, 0), (0, 100, 0, 100))
