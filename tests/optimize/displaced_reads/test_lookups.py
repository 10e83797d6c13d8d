"""Lookups in what is computed or in parts of inputs become lookups in inputs, and parts of lookups one read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion.concretize import concretize
from fuser.ir.fusion.fusion import Cat, Fusion, Gather
from fuser.ir.fusion.print_fusion import definition_text
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.optimize.hoist_displaced_reads import hoist_displaced_reads
from fuser.optimize.join_pieces import join_pieces
from tests.optimize.displaced_reads.hoisted_fusions import X, Y, hoisted, is_at_inputs, resizes

D = DataType


def test_gathers_move_through_elementwise_ops() -> None:
    with FusionDefinition() as fd:
        x, i = fd.define_tensor([6, 8], True, D.Double), fd.define_tensor([6, 1], True, D.Int)
        fd.add_output(fd.ops.take_along_axis(fd.ops.exp(x) * 2.0, i, 1))
    assert fd.fusion is not None
    after = hoist_displaced_reads(fd.fusion.ir_fusion)
    (gather,) = [e for e in after.tensor_exprs if isinstance(e, Gather)]
    assert gather.input in after.inputs


def _log_softmax(o: Any, x: Any, dim: int) -> Any:
    shifted = x - o.max(x, [dim], keepdim=True)
    return shifted - o.log(o.sum(o.exp(shifted), [dim], keepdim=True))


@pytest.mark.parametrize("op", ["take_along_axis", "gather"])
@pytest.mark.parametrize("dim", [0, 1])
def test_what_is_the_same_for_a_row_is_not_looked_up(op: str, dim: int) -> None:
    """Log probabilities of labels: elements of the input, less what their rows have in common, which are stored as well."""

    def picked(o: Any, x: Any, y: Any) -> Any:
        index = o.cast(o.slice(o.abs(x), [0, 0], [6, 2] if dim else [2, 8]), D.Int)
        index = o.bitwise_and(index, 3)
        found = _log_softmax(o, x, dim)
        return found, getattr(o, op)(found, index, dim)

    _, after = hoisted(picked)
    assert is_at_inputs(after)
    assert [e.input.name for e in after.tensor_exprs if isinstance(e, Gather)] == ["t0"]


@pytest.mark.parametrize("dim", [0, 1])
def test_a_lookup_along_one_dim_of_what_is_the_same_along_the_other(dim: int) -> None:
    def picked(o: Any, x: Any, y: Any) -> Any:
        index = o.bitwise_and(o.cast(o.abs(x), D.Int), 3)
        return o.take_along_axis(o.exp(x) + o.neg(y), index, dim)

    _, after = hoisted(picked)
    assert is_at_inputs(after)


LOOKUPS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "columns": lambda o, x, i, j: o.slice(o.index_select(x, i, 0), [0, 3], [4, 7]),
    "columns and rows": lambda o, x, i, j: o.slice(o.index_select(x, i, 0), [1, 3], [3, 7]),
    "rows of looked up columns": lambda o, x, i, j: o.slice(o.exp(o.index_select(x, i, 1)), [2, 1], [6, 4]),
    "a part of a part": lambda o, x, i, j: o.slice(o.slice(o.index_select(x, i, 0), [0, 3], [4, 7]), [1, 1], [3, 3]),
    "halves": lambda o, x, i, j: o.mul(*(o.slice(o.index_select(x, i, 0), [0, k], [4, k + 4]) for k in (0, 4))),
    "one row": lambda o, x, i, j: o.slice(o.index_select(x, i, 0), [1, 3], [2, 7]),
    "a slice of a table": lambda o, x, i, j: o.index_select(o.slice(x, [0, 2], [6, 6]), i, 0) * 2.0,
    "rows and columns of a slice": lambda o, x, i, j: o.index_select(x[1:, 2:7], o.minimum(i, 4), 0) * 2.0,
    "elements": lambda o, x, i, j: o.slice(o.gather(x, j, 0), [1, 3], [3, 7]),
    "elements of a slice": lambda o, x, i, j: o.gather(o.slice(x, [0, 1], [6, 8]), o.slice(j, [0, 2], [4, 7]), 0),
    "elements of ops of a slice": lambda o, x, i, j: o.gather(o.exp(x[:, 1:]) * 2.0, o.slice(j, [0, 2], [4, 7]), 0),
    "rows of an op of a slice": lambda o, x, i, j: o.index_select(o.exp(x[1:, 2:7]), o.minimum(i, 4), 0),
    "along an axis": lambda o, x, i, j: o.slice(o.take_along_axis(x, o.slice(j, [0, 0], [4, 1]), 0), [1, 3], [3, 7]),
    "lookups of rank 2": lambda o, x, i, j: o.slice(o.embedding_fwd(j, x), [1, 2, 3], [3, 8, 7]),
    "columns among others": lambda o, x, i, j: o.pad(o.index_select(x, i, 0), [2, 3]),
    "columns among twos": lambda o, x, i, j: o.pad(o.exp(o.index_select(x, i, 0)), [2, 3], 2.0),
    "less on one side": lambda o, x, i, j: o.pad(o.index_select(x, i, 0), [-3, 2]),
    "a part of more": lambda o, x, i, j: o.pad(o.index_select(x, i, 0), [2, 2])[1:3, 1:11] * 2.0,
    "more of a part": lambda o, x, i, j: o.pad(o.index_select(x, i, 0)[1:, 3:7] * 2.0, [4, 1]),
    "more of more": lambda o, x, i, j: o.pad(o.pad(o.index_select(x, i, 0), [1, 1], 3.0) * 1.0, [-3, 1], 4.0),
    "side by side": lambda o, x, i, j: o.cat([o.index_select(x, i, 0), o.index_select(x, i, 0)[:, 2:5] * 2.0], 1),
    "of rank 2 side by side": lambda o, x, i, j: o.cat(
        [o.embedding_fwd(j, x)[..., 5:], o.embedding_fwd(j, x) * 2.0], 2
    ),
    "looked up columns below one another": lambda o, x, i, j: o.cat(
        [o.index_select(x, i, 1), -o.index_select(x, i, 1)], 0
    ),
    "a table with more columns": lambda o, x, i, j: o.index_select(o.pad(x, [1, 2], 5.0), i, 0) * 2.0,
    "more of a table with more columns": lambda o, x, i, j: o.pad(o.index_select(o.pad(x, [1, 2]), i, 0), [-3, 1]),
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_a_part_of_a_lookup_is_one_read(name: str) -> None:
    """Only elements that are wanted are read, of an input, in the kernel that wants them; it is printed as it is defined."""
    numbers = np.random.default_rng(3)
    arguments = [X, numbers.integers(0, 6, 4), numbers.integers(0, 6, (4, 8))]
    with FusionDefinition() as fd:
        x = fd.define_tensor([6, 8], True, D.Double)
        i, j = (fd.define_tensor(list(a.shape), True, D.Int) for a in arguments[1:])
        fd.add_output(LOOKUPS[name](fd.ops, x, i, j))
    assert fd.fusion is not None
    after = hoist_displaced_reads(fd.fusion.ir_fusion)
    verify_fusion(after)
    assert is_at_inputs(after)
    reads = [e for e in after.tensor_exprs if isinstance(e, Gather)]
    assert reads
    assert all(e.input in after.inputs and e.windows for e in reads)
    (expected,) = evaluate_fusion(fd.fusion.ir_fusion, arguments)
    np.testing.assert_array_equal(evaluate_fusion(after, arguments)[0], expected)
    np.testing.assert_array_equal(fd.execute(arguments, device="simulator")[0], expected)
    # A part of a concatenation is printed as a pad, which it need not be behind this pass.
    if not any(isinstance(e, Cat) for e in after.exprs):
        np.testing.assert_array_equal(rebuilt(after).execute(arguments)[0], expected)


@pytest.mark.parametrize(
    ("op", "shape"), [("gather", (4, 3)), ("gather", (4, 1)), ("take_along_axis", (4, 3)), ("index_select", (4,))]
)
def test_a_lookup_does_not_move_along_a_broadcast_dim(op: str, shape: tuple[int, ...]) -> None:
    """Copies of a column side by side are a read of three pieces of one element: it stays a read of its own."""
    arguments = [Y, np.random.default_rng(3).integers(0, 6, shape)]
    with FusionDefinition() as fd:
        y, j = fd.define_tensor([6, 1], True, D.Double), fd.define_tensor(list(shape), True, D.Int)
        fd.add_output(getattr(fd.ops, op)(fd.ops.cat([y, y, y], 1), j, 0))
    assert fd.fusion is not None
    fusion = join_pieces(fd.fusion.ir_fusion)
    assert any(w.pieces for e in resizes(fusion) for w in e.windows)
    after = hoist_displaced_reads(fusion)
    verify_fusion(after)
    (expected,) = evaluate_fusion(fd.fusion.ir_fusion, arguments)
    np.testing.assert_array_equal(evaluate_fusion(after, arguments)[0], expected)
    np.testing.assert_array_equal(fd.execute(arguments, device="simulator")[0], expected)


@pytest.mark.parametrize("shape", [(4, 3), (4, 1)])
def test_a_lookup_along_rows_of_one_column_of_a_table(shape: tuple[int, int]) -> None:
    """The column meets several of the index: what is read there is no window of the table; one is."""
    rows = np.random.default_rng(3).integers(0, 6, shape)
    arguments = [X, rows]
    with FusionDefinition() as fd:
        x, j = fd.define_tensor([6, 8], True, D.Double), fd.define_tensor([-1, -1], True, D.Int)
        fd.add_output(fd.ops.take_along_axis(fd.ops.slice(x, [0, 2], [6, 3]), j, 0))
    assert fd.fusion is not None
    after = hoist_displaced_reads(fd.fusion.ir_fusion)
    verify_fusion(after)
    expected = np.take_along_axis(X[:, 2:3], rows, 0)
    np.testing.assert_array_equal(evaluate_fusion(after, arguments)[0], expected)
    np.testing.assert_array_equal(fd.execute(arguments, device="simulator")[0], expected)


def rebuilt(fusion: Fusion) -> FusionDefinition:
    """The definition that a fusion is printed as."""
    names: dict[str, Any] = {"FusionDefinition": FusionDefinition, "DataType": D}
    exec(definition_text(fusion), names)
    with FusionDefinition() as fd:
        names["nvfuser_fusion"](fd)
    return fd


def test_a_flip_of_rows_of_a_slice_is_read_at_the_input() -> None:
    """Of extents known late the slice starts at a number of the call."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, D.Double)
        fd.add_output(fd.ops.index_select(x[2:5], fd.ops.iota(3, 2, -1), 0))
    assert fd.fusion is not None
    after = hoist_displaced_reads(fd.fusion.ir_fusion)
    verify_fusion(after)
    assert is_at_inputs(after)
    np.testing.assert_array_equal(evaluate_fusion(after, [X])[0], X[4:1:-1])
    np.testing.assert_array_equal(fd.execute([X], device="simulator")[0], X[4:1:-1])


@pytest.mark.parametrize("widths", [[0, 0, 1, 1], [1, 1, 2, 0]])
def test_more_than_an_index_has_is_computed_before(widths: list[int]) -> None:
    """Beside the rows that are looked up there is no index."""
    numbers = np.random.default_rng(3).integers(0, 6, 4)
    with FusionDefinition() as fd:
        x, i = fd.define_tensor([6, 8], True, D.Double), fd.define_tensor([4], True, D.Int)
        fd.add_output(fd.ops.pad(fd.ops.index_select(x, i, 0), widths, 3.0))
    assert fd.fusion is not None
    after = hoist_displaced_reads(fd.fusion.ir_fusion)
    assert not is_at_inputs(after)
    expected = np.pad(X[numbers], [widths[2:], widths[:2]], constant_values=3.0)
    np.testing.assert_array_equal(fd.execute([X, numbers], device="simulator")[0], expected)


def test_nothing_is_looked_up_in_a_table_without_columns() -> None:
    with FusionDefinition() as fd:
        x, i = fd.define_tensor([-1, -1], True, D.Double), fd.define_tensor([-1], True, D.Int)
        fd.add_output(fd.ops.pad(fd.ops.index_select(x, i, 0), [1, 1], 3.0))
    found = fd.execute([np.zeros((6, 0)), np.array([5, 0, 2])], device="simulator")[0]
    np.testing.assert_array_equal(found, np.full((3, 2), 3.0))


@pytest.mark.parametrize("offset", [0, 1])
def test_a_lookup_in_a_slice_whose_dim_has_parts(offset: int) -> None:
    """A reshape behind a slice makes parts of its dim; the windows of the slice are of the whole."""
    with FusionDefinition() as fd:
        x, index = fd.define_tensor([10, 3, 2]), fd.define_tensor([-1], [True], D.Int)
        rows = fd.ops.reshape(fd.ops.slice(x, [offset, 0, 0], [8 + offset, 3, 2]), [4, 2, 3, 2])
        fd.add_output(fd.ops.index_select(rows, index, 3))
    given, chosen = np.arange(60, dtype="f4").reshape(10, 3, 2), np.array([1, 0, 1])
    (found,) = fd.execute([given, chosen], device="simulator")
    np.testing.assert_array_equal(found, given[offset : 8 + offset].reshape(4, 2, 3, 2)[..., chosen])


def test_labels_of_a_shifted_cross_entropy_are_looked_up_in_the_input() -> None:
    """Of symbolic sizes, where the labels' are only equal to those of the logits."""
    with FusionDefinition() as fd:
        o = fd.ops
        x, y = fd.define_tensor([-1, -1, -1], True, D.Double), fd.define_tensor([-1, -1], True, D.Int)
        shifted = o.mul(x, 2.0)[:, :-1]
        total = o.log(o.sum(o.exp(shifted), 2))
        fd.add_output(total - o.take_along_axis(shifted, y[:, 1:].unsqueeze(2), 2).squeeze(2))
    assert fd.fusion is not None
    sizes = {"t0_size0": 2, "t0_size1": 5, "t0_size2": 7, "t1_size0": 2, "t1_size1": 5}
    before = concretize(fd.fusion.ir_fusion, sizes)
    after = hoist_displaced_reads(before)
    verify_fusion(after)
    assert is_at_inputs(after)
    (lookup,) = [e for e in after.tensor_exprs if isinstance(e, Gather)]
    assert lookup.input in after.inputs
    rng = np.random.default_rng(0)
    given: list[Any] = [rng.normal(size=(2, 5, 7)), rng.integers(0, 7, (2, 5))]
    for a, b in zip(evaluate_fusion(before, given), evaluate_fusion(after, given), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_part_of_elements_of_one_row() -> None:
    """Of a symbolic number of rows of an index, which is 1."""
    with FusionDefinition() as fd:
        x, i = fd.define_tensor([1, -1], True, D.Double), fd.define_tensor([-1, 2], True, D.Int)
        fd.add_output(fd.ops.gather(x, i, 1)[:, :1])
    assert fd.fusion is not None
    before = concretize(fd.fusion.ir_fusion, {"t0_size1": 3, "t1_size0": 1})
    after = hoist_displaced_reads(before)
    verify_fusion(after)
    given: list[Any] = [np.arange(3.0).reshape(1, 3), np.array([[2, 0]])]
    for a, b in zip(evaluate_fusion(before, given), evaluate_fusion(after, given), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dim", [0, 1])
def test_a_part_of_a_lookup_in_what_is_the_same_along_the_index(dim: int) -> None:
    """One element of each row is seen along all of a part, as it is along all of the lookup."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([6, 1] if dim == 0 else [1, 8], True, D.Double)
        i = fd.define_tensor([4, 5], True, D.Int)
        fd.add_output(fd.ops.exp(fd.ops.take_along_axis(x, i, dim))[1:3, 2:5])
    assert fd.fusion is not None
    before = fd.fusion.ir_fusion
    after = hoist_displaced_reads(before)
    verify_fusion(after)
    assert is_at_inputs(after)
    rng = np.random.default_rng(0)
    given: list[Any] = [rng.normal(size=(6, 1) if dim == 0 else (1, 8)), rng.integers(0, 6, (4, 5))]
    for a, b in zip(evaluate_fusion(before, given), evaluate_fusion(after, given), strict=True):
        np.testing.assert_array_equal(a, b)


def test_rows_of_an_op_whose_operands_are_only_asked_to_be_equally_long() -> None:
    """A running sum from the end: of inputs that are read in reverse, each with a size of its own."""
    with FusionDefinition() as fd:
        o = fd.ops
        x, y = (fd.define_tensor([-1, 5], True, D.Double) for _ in range(2))
        back = o.iota(4, 3, -1, D.Int)
        fd.add_output(o.cumsum(o.index_select(o.mul(o.add(x, y), 0.5), back, 0), 0))
    assert fd.fusion is not None
    before = fd.fusion.ir_fusion
    after = hoist_displaced_reads(before)
    verify_fusion(after)
    assert is_at_inputs(after)
    rng = np.random.default_rng(0)
    given: list[Any] = [rng.integers(-4, 5, (4, 5)).astype(np.float64) for _ in range(2)]
    for a, b in zip(evaluate_fusion(before, given), evaluate_fusion(after, given), strict=True):
        np.testing.assert_array_equal(a, b)
