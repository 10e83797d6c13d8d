"""Rows are normalised where they are read, and reduced once where they are read in many places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion.concretize import concretize
from fuser.ir.fusion.fusion import Reduction, Scan
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.optimize.hoist_displaced_reads import hoist_displaced_reads
from fuser.optimize.hoist_reads_of_reshapes import hoist_reads_of_reshapes
from fuser.optimize.join_pieces import join_pieces
from fuser.optimize.split_reshaped_dims import split_reshaped_dims
from tests.optimize.displaced_reads.hoisted_fusions import hoisted, is_at_inputs

D = DataType


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


def _before(o: Any, scanned: Any, dim: int, fill: float) -> Any:
    """What each element has before its own."""
    inside = [slice(None, -1) if d == dim else slice(None) for d in range(2)]
    widths = [0, 0, 1, 0] if dim == 0 else [1, 0]
    return o.pad(scanned[tuple(inside)], widths, fill)


def _ones(o: Any, x: Any) -> Any:
    return o.full([x.size(0), 1], 1.0, D.Double)


SCANNED: dict[str, Callable[[Any, Any], Any]] = {
    "before each": lambda o, x: _before(o, o.cumprod(x, 1), 1, 1.0),
    "before each row": lambda o, x: _before(o, o.cumsum(x * 2.0, 0), 0, 0.0),
    "before each, another number in front": lambda o, x: _before(o, o.cummax(x, 1), 1, 7.0),
    "behind a concatenation": lambda o, x: o.cat([_ones(o, x), o.cumprod(x + 1.0, 1)[:, :-1]], 1),
    "both": lambda o, x: (lambda y: y - _before(o, y, 1, 0.0))(o.cumsum(x, 1)),
    "the first": lambda o, x: o.cumsum(x, 1)[:, :3] * 2.0,
    "other rows": lambda o, x: o.cummin(x, 1)[2:],
    "of what is before": lambda o, x: _before(o, o.cumsum(_before(o, o.cumsum(x, 1), 1, 0.0), 1), 1, 0.0),
}


@pytest.mark.parametrize("name", SCANNED)
def test_the_first_elements_of_a_scan_are_scanned_where_they_are_read(name: str) -> None:
    before, after = hoisted(lambda o, x, _: SCANNED[name](o, x))
    assert not is_at_inputs(before)
    assert is_at_inputs(after)


LATER: dict[str, Callable[[Any, Any], Any]] = {
    "the last": lambda o, x: o.cumsum(x, 1)[:, 3:],
    "a window of both": lambda o, x: (lambda y: y[:, 3:] - y[:, :-3])(o.cumsum(x, 1)),
    "every other": lambda o, x: o.cumsum(x, 1)[:, ::2],
    "in three places": lambda o, x: (lambda y: y + y[:1] + y[1:2])(o.cummax(x, 1)),
}


@pytest.mark.parametrize("name", LATER)
def test_other_elements_of_a_scan_are_read_from_a_stored_one(name: str) -> None:
    _, after = hoisted(lambda o, x, _: LATER[name](o, x))
    assert sum(isinstance(e, Scan) for e in after.tensor_exprs) == 1
    assert not is_at_inputs(after)
