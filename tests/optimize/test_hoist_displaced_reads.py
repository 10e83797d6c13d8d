"""Slices, pads and gathers move to inputs: what is left, that values stay, and where they have to stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion.concretize import concretize
from fuser.ir.fusion.fusion import Cat, Fusion, Gather, Pointwise, Reduction, Reshape, Resize
from fuser.ir.fusion.print_fusion import definition_text
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.optimize.hoist_displaced_reads import hoist_displaced_reads, hoist_reads_of_reshapes
from fuser.optimize.join_pieces import join_pieces
from fuser.optimize.split_reshaped_dims import split_reshaped_dims
from fuser.schedule.analysis.input_reads import displaced_intermediate
from tests.fuzzing.random_resizes import generate

D = DataType
X = np.arange(48, dtype=np.float64).reshape(6, 8) - 20
Y = X[:, :1] * 3


def hoisted(build: Callable[[Any, Any, Any], Any]) -> tuple[Fusion, Fusion]:
    """(fusion, after the pass), of outputs over x [6, 8] and y [6, 1]; values are compared."""
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([6, 8], True, D.Double), fd.define_tensor([6, 1], True, D.Double)
        results = build(fd.ops, x, y)
        for result in results if isinstance(results, tuple) else (results,):
            fd.add_output(result)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    after = hoist_displaced_reads(fusion)
    verify_fusion(after)
    assert hoist_displaced_reads(after) is after, "nothing is left to do"
    assert [o.tensor.name for o in after.outputs] == [o.tensor.name for o in fusion.outputs]
    assert len({o.tensor for o in after.outputs}) == len({o.tensor for o in fusion.outputs})
    for a, b in zip(evaluate_fusion(fusion, [X, Y]), evaluate_fusion(after, [X, Y]), strict=True):
        np.testing.assert_array_equal(a, b)
    return fusion, after


def resizes(fusion: Fusion) -> list[Resize]:
    return [e for e in fusion.tensor_exprs if isinstance(e, Resize)]


def is_at_inputs(fusion: Fusion) -> bool:
    return displaced_intermediate(fusion) is None


ELEMENTWISE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "slice": lambda o, x, y: o.slice(o.exp(x), [1, 2], [4, 8]),
    "slice of a broadcast": lambda o, x, y: o.slice(x + y, [1, 2], [4, 8]),
    "slice of a slice": lambda o, x, y: o.slice(o.slice(x, [1, 2], [6, 8]) * 2.0, [1, 1], [3, 4]),
    "slice with steps": lambda o, x, y: o.slice(o.exp(x), [1, 2], [6, 8], [2, 3]),
    "slice with steps of a slice with steps": lambda o, x, y: o.slice(
        o.slice(x, [1, 0], [6, 8], [2, 3]) * 2.0, [1, 0], [3, 3], [1, 2]
    ),
    "slice with steps of a pad": lambda o, x, y: o.slice(o.pad(o.exp(x), [1, 2, 2, 3], 7.0), [0, 2], [11, 11], [3, 2]),
    "pad": lambda o, x, y: o.pad(o.exp(x), [1, 2, -1, 3], 7.0),
    "pad of a pad": lambda o, x, y: o.pad(o.pad(x, [2, 1], 5.0), [1, -2, 1, 0], 7.0),
    "pad of a pad of a value": lambda o, x, y: o.pad(o.pad(o.neg(x), [2, 1], 5.0) * 2.0, [1, -2, 1, 0], 7.0),
    "slice of a pad": lambda o, x, y: o.slice(o.pad(x, [3, 3], 5.0), [0, 1], [6, 13]),
    "pad of a slice": lambda o, x, y: o.pad(o.slice(x, [0, 2], [6, 7]), [2, 2], 5.0),
    "cat": lambda o, x, y: o.cat([x * 2.0, o.neg(x)], 1),
    "cat of slices": lambda o, x, y: o.cat([o.neg(o.slice(x, [0, 4], [6, 8])), o.slice(x, [0, 0], [6, 4])], 1) * x,
    "cat of columns": lambda o, x, y: o.cat([y * 2.0, y + 1.0, x], 1),
    "slice of a cat": lambda o, x, y: o.slice(o.cat([x * 2.0, x + 1.0], 1), [0, 6], [6, 11]),
    "pad of a cat": lambda o, x, y: o.pad(o.cat([x * 2.0, x + 1.0], 0), [1, 1, 2, -3], 4.0),
    "cat of cats": lambda o, x, y: o.cat([o.cat([x * 2.0, x], 1), o.neg(y)], 1),
    "permute": lambda o, x, y: o.slice(o.permute(x, [1, 0]), [2, 1], [7, 4]),
    "broadcast": lambda o, x, y: o.slice(o.broadcast(x + 1.0, [False, True, False]), [1, 0, 2], [3, 1, 6]),
    "squeeze": lambda o, x, y: o.slice(o.squeeze(y * 2.0, [1]), [2], [5]),
    "expand": lambda o, x, y: o.pad(o.expand(y * 2.0, [6, 5]), [1, 1, 1, -2], 3.0),
    "expanded new dim": lambda o, x, y: o.slice(o.expand(x + 1.0, [4, 6, 8]), [1, 2, 3], [3, 5, 8]),
    "padded broadcast dim": lambda o, x, y: o.pad(y * 2.0, [1, 2], 3.0),
    "full": lambda o, x, y: o.pad(o.full([4, 8], 2.0, D.Double), [0, 0, 1, 1], 1.0) + x,
    "positions": lambda o, x, y: o.slice(o.iota(9, 3, 2, D.Int), [1], [9]),
    "padded positions": lambda o, x, y: o.pad(o.cast(o.iota(5, 3, -2, D.Int), D.Double), [2, 1], 7.0),
    "cat of positions": lambda o, x, y: o.cat([o.iota(4), o.neg(o.iota(4))], 0),
    "several": lambda o, x, y: (o.slice(x * 2.0, [0, 0], [6, 4]), o.slice(x * 2.0, [0, 0], [6, 4]), x * 2.0),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_everything_elementwise_moves(name: str) -> None:
    _, after = hoisted(ELEMENTWISE[name])
    assert is_at_inputs(after)


def test_composition_is_one_read() -> None:
    """A pad of a slice of a pad of an input reads the input once."""
    _, after = hoisted(lambda o, x, y: o.pad(o.slice(o.pad(x, [3, 3], 5.0), [0, 1], [6, 13]), [1, 1], 5.0))
    (read,) = resizes(after)
    assert read.input in after.inputs
    # With another number, what the inner pad fills lies inside of what the outer one does.
    _, after = hoisted(lambda o, x, y: o.pad(o.slice(o.pad(x, [3, 3], 5.0), [0, 1], [6, 13]), [1, 1], 6.0))
    (read, filled) = resizes(after)
    assert read.input in after.inputs
    assert filled.input is read.output
    assert [w.offset.value for w in filled.windows] == [0, 0]
    _, after = hoisted(lambda o, x, y: o.slice(o.slice(x, [1, 2], [6, 8]), [1, 1], [3, 4]))
    (read,) = resizes(after)
    assert [w.offset.value for w in read.windows] == [2, 3]


def test_parts_of_a_cat_are_not_filled() -> None:
    _, after = hoisted(lambda o, x, y: o.cat([x * 2.0, o.neg(x)], 1))
    assert sum(isinstance(e, Cat) for e in after.tensor_exprs) == 1
    assert all(r.input in after.inputs for r in resizes(after))


def test_parts_of_a_cat_keep_kinds_of_dims() -> None:
    """A dim that is expanded to an extent which turns out to be 1 is concrete; a part read with one element is broadcast."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, D.Double)
        y = fd.ops.neg(fd.ops.expand(x, [x.size(1), -1]))
        fd.add_output(fd.ops.cat([y, y], 1))
        fd.add_output(fd.ops.triu(y))
    assert fd.fusion is not None
    one = concretize(fd.fusion.ir_fusion, {"t0_size0": 1, "t0_size1": 1})
    (cat,) = [e for e in one.exprs if isinstance(e, Cat)]
    assert not cat.output.visible[0].is_broadcast
    after = hoist_displaced_reads(one)
    verify_fusion(after)
    for a, b in zip(evaluate_fusion(one, [X[:1, :1]]), evaluate_fusion(after, [X[:1, :1]]), strict=True):
        np.testing.assert_array_equal(a, b)


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


def test_a_reduction_is_read_where_it_is() -> None:
    """Its result is computed once: another kernel reads a part of it."""
    _, after = hoisted(lambda o, x, y: o.slice(o.exp(o.sum(o.cat([x, x], 1), [1])), [2], [4]))
    assert not is_at_inputs(after)


@pytest.mark.parametrize("op", ["sum", "max", "min", "prod"])
def test_a_reduction_of_few_elements_is_computed_again(op: str) -> None:
    _, after = hoisted(lambda o, x, y: o.slice(o.exp(getattr(o, op)(o.exp(x), [1])), [2], [4]))
    assert len(resizes(after)) == 8
    assert is_at_inputs(after)


def _normalised(o: Any, x: Any) -> Any:
    return x / o.sum(x * x, [-1], keepdim=True)


def _standardised(o: Any, x: Any) -> Any:
    variance, mean = o.var_mean(x, [-1], 0, True)
    return (x - mean) * o.rsqrt(variance + 1.0)


def _softmax(o: Any, x: Any) -> Any:
    e = o.exp(x - o.max(x, -1, keepdim=True))
    return e / o.sum(e, -1, keepdim=True)


NORMALISED: dict[str, Callable[[Any, Any], Any]] = {
    "slice": lambda o, x: _normalised(o, x)[:, 2:],
    "pad": lambda o, x: o.pad(_standardised(o, x), [0, 0, 1, 2]),
    "shift": lambda o, x: o.pad(_softmax(o, x)[:, :-1], [0, 0, 1, 0], 3.0),
    "roll": lambda o, x: (lambda y: o.cat([y[:, 2:], y[:, :2]], 1))(_standardised(o, x)),
    "difference": lambda o, x: (lambda y: y[:, 1:] - y[:, :-1])(_softmax(o, x)),
    "every other one": lambda o, x: _normalised(o, x)[:, ::2],
    "columns": lambda o, x: _softmax(o, x.permute(0, 2, 1)).permute(0, 2, 1)[..., 1:9],
    "windows of a roll": lambda o, x: o.cat([_standardised(o, x)[:, k] for k in (slice(2, None), slice(2))], 1).reshape(
        2, 3, 2, 12
    ),
}


@pytest.mark.parametrize("name", NORMALISED)
def test_a_row_is_normalised_where_it_is_read(name: str) -> None:
    """In one kernel, that computes each row where it is wanted."""
    given: Any = np.random.default_rng(1).standard_normal((2, 6, 12)).astype(np.float32)
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1, -1], True, D.Float)
        fd.add_output(NORMALISED[name](fd.ops, x))
    assert fd.fusion is not None
    fusion = join_pieces(concretize(fd.fusion.ir_fusion, {f"t0_size{d}": n for d, n in enumerate(given.shape)}))
    after = hoist_displaced_reads(split_reshaped_dims(hoist_reads_of_reshapes(fusion)))
    verify_fusion(after)
    assert is_at_inputs(after)
    (expected,) = evaluate_fusion(fd.fusion.ir_fusion, [given])
    np.testing.assert_array_equal(evaluate_fusion(after, [given])[0], expected)
    program = fd.program([given])
    assert len(program.launches()) == 1
    np.testing.assert_allclose(fd.execute([given], device="simulator")[0], expected, rtol=1e-4, atol=1e-6)


STORED_ROWS: dict[str, Callable[[Any, Any], Any]] = {
    # Each of the places would read and reduce the row.
    "a filter of three taps": lambda o, x: (lambda y: y[:, 2:] + y[:, 1:-1] + y[:, :-2])(_normalised(o, x)),
    # Few numbers, which every row is read for.
    "the statistics by themselves": lambda o, x: (lambda m: m[:, 1:] + m[:, :-1])(o.sum(x, [2])),
    # A part of a row does not have what the row is divided by.
    "parts of rows": lambda o, x: _normalised(o, x)[..., 2:] * 2.0,
}


@pytest.mark.parametrize("name", STORED_ROWS)
def test_rows_are_reduced_once(name: str) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1, -1], True, D.Double)
        fd.add_output(STORED_ROWS[name](fd.ops, x))
    assert fd.fusion is not None
    after = hoist_displaced_reads(fd.fusion.ir_fusion)
    verify_fusion(after)
    assert sum(isinstance(e, Reduction) for e in after.tensor_exprs) == 1


def test_one_of_the_parts_of_a_dim_is_read_in_steps() -> None:
    """Every other column of a read that is split into pairs; a result of all pairs stays one."""

    def pairs(fd: FusionDefinition) -> None:
        x = fd.define_tensor([6, 7], True, D.Double)
        split = fd.ops.reshape(fd.ops.pad(x, [1, 2]), [6, 5, 2])
        fd.add_output(split[:, 1:4, 1] * 2.0)
        fd.add_output(split[:, 1:] * 2.0)

    with FusionDefinition() as fd:
        pairs(fd)
    assert fd.fusion is not None
    split = split_reshaped_dims(fd.fusion.ir_fusion)
    after = hoist_displaced_reads(split)
    verify_fusion(after)
    assert is_at_inputs(after)
    assert {tuple(w.step for w in e.windows) for e in resizes(after)} == {(1, 2), (1, 1)}
    x = X[:, :7]
    for a, b in zip(evaluate_fusion(fd.fusion.ir_fusion, [x]), evaluate_fusion(after, [x]), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_last_of_three_parts_of_a_dim_is_read_in_steps() -> None:
    """An element of each of the innermost parts, of all groups of a slice."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([6, 28], True, D.Double)
        split = fd.ops.reshape(x[:, 4:], [6, 2, 3, 4])
        fd.add_output(split[..., 1] * split[..., 3])
    assert fd.fusion is not None
    after = hoist_displaced_reads(split_reshaped_dims(fd.fusion.ir_fusion))
    verify_fusion(after)
    assert is_at_inputs(after)
    assert [(e.windows[1].offset.value, e.windows[1].step) for e in resizes(after)] == [(5, 4), (7, 4)]
    given = np.arange(168, dtype=np.float64).reshape(6, 28)
    (expected,) = evaluate_fusion(fd.fusion.ir_fusion, [given])
    np.testing.assert_array_equal(evaluate_fusion(after, [given])[0], expected)
    np.testing.assert_array_equal(fd.execute([given], device="simulator")[0], expected)


FILLS: dict[str, tuple[Callable[[Any, Any, Any], Any], bool]] = {
    "cast": (lambda o, x, y: o.pad(o.cast(x, D.BFloat16), [1, 2], 1.5), True),
    "product": (lambda o, x, y: o.pad(x * x * 0.5, [1, 2, -1, 3], 0.0), True),
    "pad of a pad": (lambda o, x, y: o.pad(o.abs(o.pad(x, [2, 1], 5.0)), [1, -2, 1, 0], 5.0), True),
    "slice of a pad": (lambda o, x, y: o.pad(o.abs(o.pad(x, [-1, 1], 5.0)), [1, -1, 1, 0], 5.0), True),
    "another number": (lambda o, x, y: o.pad(o.exp(x), [1, 2], 0.0), False),
    "a number that is rounded": (lambda o, x, y: o.pad(o.cast(o.cast(x, D.Half), D.Double), [1, 2], 0.1), False),
    "minus zero": (lambda o, x, y: o.pad(o.neg(x), [1, 2], 0.0), False),
    "two fills": (lambda o, x, y: o.pad(o.abs(o.pad(x, [2, 1], 5.0)), [1, -2, 1, 0], 6.0), False),
    "a column beside it": (lambda o, x, y: o.pad(x * y, [1, 2], 0.0), False),
}


@pytest.mark.parametrize("name", FILLS)
def test_reads_fill_where_ops_keep_what_fills(name: str) -> None:
    """Nothing is filled behind the ops then; a fill that these change stays there. Signs of zeros are seen."""
    build, is_kept = FILLS[name]
    fusion, after = hoisted(build)
    assert all(e.input in after.inputs for e in resizes(after)) == is_kept
    for a, b in zip(evaluate_fusion(fusion, [X, Y]), evaluate_fusion(after, [X, Y]), strict=True):
        np.testing.assert_array_equal(np.signbit(a), np.signbit(b))


BEFORE_RESHAPES: dict[str, Callable[[Any, Any], Any]] = {
    "pad": lambda o, x: o.reshape(o.pad(o.cast(x, D.Double), [1, 1]), [6, 5, 2]),
    "slice": lambda o, x: o.reshape(o.slice(o.exp(o.cast(x, D.Double)), [0, 2], [6, 8]), [6, 3, 2]),
    "slice of a pad": lambda o, x: o.reshape(o.pad(o.cast(x, D.Double), [1, 2])[1:, 1:], [5, 5, 2]),
    "roll": lambda o, x: o.reshape((lambda h: o.cat([h[:, 3:], h[:, :3]], 1))(o.cast(x, D.Double)), [6, 4, 2]),
}


@pytest.mark.parametrize("name", BEFORE_RESHAPES)
def test_a_reshape_of_a_read_of_a_computed_tensor_is_none(name: str) -> None:
    """What is read becomes parts of its dims: one kernel, without a reshape."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([6, 8], True, D.Float)
        result = BEFORE_RESHAPES[name](fd.ops, x)
        fd.add_output(fd.ops.sum(result, [result.ndim - 1]))
    assert fd.fusion is not None
    fusion = join_pieces(fd.fusion.ir_fusion)
    after = split_reshaped_dims(hoist_reads_of_reshapes(fusion))
    verify_fusion(after)
    assert is_at_inputs(after)
    assert not any(isinstance(e, Reshape) for e in after.tensor_exprs)
    assert all(e.input in after.inputs for e in resizes(after))
    given: Any = X.astype(np.float32)
    (expected,) = evaluate_fusion(fd.fusion.ir_fusion, [given])
    np.testing.assert_array_equal(evaluate_fusion(after, [given])[0], expected)
    np.testing.assert_allclose(fd.execute([given], device="simulator")[0], expected, rtol=1e-14)


def test_a_forced_boundary_stays() -> None:
    _, after = hoisted(lambda o, x, y: o.slice(o.segment_set(x * 2.0), [2, 0], [4, 8]))
    (read,) = resizes(after)
    made = after.definitions[read.input]
    assert isinstance(made, Pointwise)
    assert made.op == "segment_set"


def test_nothing_is_computed_for_its_extent() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, D.Double)
        y = fd.ops.exp(x)
        fd.add_output(fd.ops.slice(y, [0, 1], [y.size(0), y.size(1)]))
    assert fd.fusion is not None
    after = hoist_displaced_reads(fd.fusion.ir_fusion)
    assert sum(isinstance(e, Pointwise) for e in after.tensor_exprs) == 1


def test_edges_of_a_mixture_are_read_at_the_input() -> None:
    """Eight places of what some ops make of an input of known sizes: several times as many exprs, but no explosion."""

    def edges(o: Any, x: Any, y: Any) -> Any:
        h = o.sin(x)
        for k in range(3):
            h = h * 0.5 + o.cos(x * float(k))
        wide = h[:-2] + h[1:-1] * 2.0 + h[2:]
        tall = h[:, :-2] + h[:, 1:-1] * 2.0 + h[:, 2:]
        right, down = wide[:, 2:] - wide[:, :-2], tall[2:] - tall[:-2]
        return o.sqrt(right * right + down * down)

    _, after = hoisted(edges)
    assert is_at_inputs(after)


def test_chains_of_neighbours_do_not_explode() -> None:
    """Twelve steps of a stencil: what grows too far stays, and is computed by a kernel before."""

    def smooth(o: Any, x: Any, y: Any) -> Any:
        for _ in range(12):
            x = o.pad(x, [1, -1]) + o.pad(x, [-1, 1])
        return x

    fusion, after = hoisted_values_only(smooth)
    assert len(after.exprs) < 12 * len(fusion.exprs)


def hoisted_values_only(build: Callable[[Any, Any, Any], Any]) -> tuple[Fusion, Fusion]:
    with FusionDefinition() as fd:
        x = fd.define_tensor([6, 8], True, D.Double)
        fd.add_output(build(fd.ops, x, x))
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    after = hoist_displaced_reads(fusion)
    verify_fusion(after)
    np.testing.assert_array_equal(evaluate_fusion(fusion, [X])[0], evaluate_fusion(after, [X])[0])
    return fusion, after


def test_errors_keep_the_users_line() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([6, 8], True, D.Double)
        fd.add_output(fd.ops.slice(fd.ops.exp(x), [0, 1], [6, 8]))
    assert fd.fusion is not None
    for t in hoist_displaced_reads(fd.fusion.ir_fusion).tensors:
        assert t.location is not None
        assert t.location.filename == __file__


@pytest.mark.parametrize("start", range(0, 200, 50))
def test_random_fusions_keep_their_values(start: int) -> None:
    for seed in range(start, start + 50):
        made = generate(seed)
        assert made.fd.fusion is not None
        fusion = made.fd.fusion.ir_fusion
        after = hoist_displaced_reads(fusion)
        verify_fusion(after)
        for a, b in zip(evaluate_fusion(fusion, made.inputs), evaluate_fusion(after, made.inputs), strict=True):
            np.testing.assert_array_equal(a, b, err_msg=str(seed))


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
