"""Reductions in steps, where one kernel does others with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion.fusion import Fusion, Reducing, tensor_outputs
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.optimize.nest_reductions import nest_reductions
from fuser.optimize.pipeline import optimize_fusion
from fuser.schedule.segmentation.segmentation import segment_fusion

BFloat16, Float, Bool = DataType.BFloat16, DataType.Float, DataType.Bool


def rows_and_all(fd: FusionDefinition) -> None:
    """Means of rows, and the mean over all of them of what counts."""
    o = fd.ops
    x, counted = fd.define_tensor([-1, -1], True, BFloat16), fd.define_tensor([-1, -1], True, Bool)
    wide = o.exp(o.cast(x, Float))
    fd.add_output(o.div(o.sum(o.where(counted, wide, 0.0), [0, 1]), o.sum(o.cast(counted, Float), [0, 1])))
    fd.add_output(o.sum(wide, [1]))


def rows_that_count(fd: FusionDefinition) -> None:
    """The mean over rows that count of what they sum up to."""
    o = fd.ops
    x, counted = fd.define_tensor([-1, 4], True, Float), fd.define_tensor([-1], True, Bool)
    loss = o.where(o.broadcast(counted, [False, True]), o.abs(x), 0.0)
    fd.add_output(o.div(o.sum(loss, [0, 1]), o.sum(o.cast(counted, Float), [0])))


def largest_of_all(fd: FusionDefinition) -> None:
    """Beside log sums of rows."""
    o, x = fd.ops, fd.define_tensor([-1, -1], True, Float)
    most = o.max(x, [1], keepdim=True)
    fd.add_output(o.log(o.sum(o.exp(o.sub(x, most)), [1])))
    fd.add_output(o.max(o.abs(x), [0, 1]))


def moments(fd: FusionDefinition) -> None:
    """The variance of all elements, and sums of rows."""
    o, x = fd.ops, fd.define_tensor([-1, -1], True, Float)
    fd.add_output(x.var([0, 1]))
    fd.add_output(o.sum(x, [1]))


NESTED: dict[str, Callable[[FusionDefinition], None]] = {
    f.__name__: f for f in (rows_and_all, rows_that_count, largest_of_all)
}


def fusion_of(define: Callable[[FusionDefinition], None]) -> tuple[FusionDefinition, Fusion]:
    with FusionDefinition() as fd:
        define(fd)
    assert fd.fusion is not None
    return fd, fd.fusion.ir_fusion


@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("rows", [1, 3, 70])
def test_one_kernel_does_all(name: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    fd, fusion = fusion_of(NESTED[name])
    found = nest_reductions(fusion)
    assert found is not fusion
    verify_fusion(found)
    assert [t.name for t in found.output_tensors] == [t.name for t in fusion.output_tensors]
    assert nest_reductions(found) is found
    segments = segment_fusion(optimize_fusion(fusion, lambda stage, text: None)).segments
    assert sum(s.has_kernel for s in segments) == 1
    random = np.random.default_rng(rows)
    arrays: list[Any] = []
    for t in fusion.input_tensors:
        x = random.standard_normal((rows, 4 if name == "rows_that_count" else 37)[: t.ndim])
        arrays.append(x > -0.5 if t.dtype is Bool else x.astype(t.dtype.numpy))
    if name == "rows_that_count":
        arrays[1][0] = True
    for a, b in zip(fd.execute(arrays, device="simulator"), evaluate_fusion(fusion, arrays), strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=2e-6)


def read_again(fd: FusionDefinition) -> None:
    """What all elements are divided by ends a kernel."""
    o, x = fd.ops, fd.define_tensor([-1, -1], True, Float)
    fd.add_output(o.sum(x, [1]))
    fd.add_output(o.div(x, o.sum(o.exp(x), [0, 1])))


def same(fd: FusionDefinition) -> None:
    """Both over everything."""
    o, x = fd.ops, fd.define_tensor([-1, -1], True, Float)
    fd.add_output(o.add(o.sum(x, [0, 1]), o.sum(o.exp(x), [0, 1])))


def in_steps(fd: FusionDefinition) -> None:
    """What is in steps already."""
    o, x, y = fd.ops, fd.define_tensor([-1, -1, -1], True, Float), fd.define_tensor([-1], True, Float)
    fd.add_output(o.sum(x, [2]))
    fd.add_output(o.sum(o.sum(o.add(x, o.broadcast(y, [False, True, True])), [2]), [0, 1]))
    fd.add_output(o.sum(y, [0]))


def extents_alone(fd: FusionDefinition) -> None:
    """Of sums of columns only the number is needed."""
    o, x = fd.ops, fd.define_tensor([-1, -1], True, Float)
    fd.add_output(o.div(o.sum(o.exp(x), [0, 1]), o.size(o.sum(x, [0]), 0)))


@pytest.mark.parametrize("define", [in_steps, read_again, same, moments, extents_alone])
def test_others_stay(define: Callable[[FusionDefinition], None]) -> None:
    _, fusion = fusion_of(define)
    assert nest_reductions(fusion) is fusion


def test_steps_are_over_the_rows_of_the_others() -> None:
    _, fusion = fusion_of(rows_and_all)
    found = nest_reductions(fusion)
    reduced = [
        [i for i, d in enumerate(tensor_outputs(e)[0].logical) if d.is_reduction]
        for e in found.tensor_exprs
        if isinstance(e, Reducing)
    ]
    assert sorted(reduced) == [[0], [0], [1], [1], [1]]


def columns_and_all(fd: FusionDefinition) -> None:
    """The gradient of a scale of everything beside those of columns, and of the data."""
    o = fd.ops
    x, scale = fd.define_tensor([-1, 3, 4], True, Float), fd.define_tensor([1], True, Float)
    t = o.tanh(o.mul(x, scale))
    fd.add_output(o.mul(t, scale))
    fd.add_output(o.sum(t, [0]))
    fd.add_output(o.sum(o.mul(t, x), [0, 1, 2]))


def groups_and_rows(fd: FusionDefinition) -> None:
    """Errors of rows whose groups have a scale each, and the scales."""
    o, x, _ = fd.ops, fd.define_tensor([-1, 3, 4], True, Float), fd.define_tensor([1], True, Float)
    scale = o.max(o.abs(x), [2], keepdim=True)
    error = o.frac(o.div(x, scale))
    fd.add_output(o.squeeze(scale, [2]))
    fd.add_output(o.sum(o.mul(error, error), [1, 2]))


def pairs_of_a_row(fd: FusionDefinition) -> None:
    """What elements of a row are to one another: summed over both, and over one of them."""
    o, x, _ = fd.ops, fd.define_tensor([-1, 12], True, Float), fd.define_tensor([1], True, Float)
    apart = o.sub(o.broadcast(x, [False, False, True]), o.broadcast(x, [False, True, False]))
    fd.add_output(o.sum(o.exp(o.neg(o.abs(apart))), [1, 2]))
    fd.add_output(o.sum(o.tanh(apart), [2]))


KERNELS = {"columns_and_all": 1, "groups_and_rows": 2, "pairs_of_a_row": 2}


@pytest.mark.parametrize("define", [columns_and_all, groups_and_rows, pairs_of_a_row])
def test_the_first_step_is_in_the_kernel_that_has_the_data(
    define: Callable[[FusionDefinition], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    fd, fusion = fusion_of(define)
    found = nest_reductions(fusion)
    assert nest_reductions(found) is found
    kernels = [s for s in segment_fusion(optimize_fusion(fusion, lambda stage, text: None)).segments if s.has_kernel]
    assert len(kernels) == KERNELS[define.__name__]
    # A second one has partial results alone: nothing of all dims passes between them, and the data is read once.
    assert all(len(s.fusion.input_tensors) == 1 for s in kernels[1:])
    random = np.random.default_rng(0)
    x = random.standard_normal((37, 12) if define is pairs_of_a_row else (37, 3, 4)).astype(np.float32)
    arrays: list[Any] = [x, np.full(1, 0.5, np.float32)]
    for a, b in zip(fd.execute(arrays, device="simulator"), evaluate_fusion(fusion, arrays), strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=2e-5, atol=1e-6)
