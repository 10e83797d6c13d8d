"""Positions that stand along several dims are made for each of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion.fusion import Fusion, Iota
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.optimize.pipeline import optimize_fusion
from fuser.optimize.separate_positions import separate_positions
from fuser.schedule.segmentation.segmentation import segment_fusion

Float = DataType.Float


def fusion_of(fd: FusionDefinition) -> Fusion:
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def causal(fd: FusionDefinition, along: Any) -> None:
    """A square whose upper half is zero; `along`: what is computed of the positions."""
    o, x = fd.ops, fd.define_tensor([7, 7], True, Float)
    at = along(o, o.iota(7))
    below = o.ge(o.broadcast(at, [False, True]), o.broadcast(at, [True, False]))
    fd.add_output(o.where(below, x, 0.0))


CHAINS: dict[str, Any] = {
    "positions": lambda o, at: at,
    "computed positions": lambda o, at: o.mul(o.cast(at, Float), 0.5),
    "of constants": lambda o, at: o.add(at, o.full([7], 3, DataType.Int)),
}


@pytest.mark.parametrize("name", CHAINS)
def test_rows_and_columns_of_a_square_are_one_kernel(name: str) -> None:
    with FusionDefinition() as fd:
        causal(fd, CHAINS[name])
    found = separate_positions(fusion_of(fd))
    verify_fusion(found)
    assert sum(isinstance(e, Iota) for e in found.exprs) == 2
    assert separate_positions(found) is found
    segments = segment_fusion(optimize_fusion(fusion_of(fd), lambda name, text: None)).segments
    assert sum(s.has_kernel for s in segments) == 1
    x = np.random.default_rng(0).standard_normal((7, 7)).astype(np.float32)
    (y,) = fd.execute([x], device="simulator")
    np.testing.assert_array_equal(y, evaluate_fusion(fusion_of(fd), [x])[0])


def test_a_table_of_positions_is_not_stored_at_the_size_of_the_result() -> None:
    """Sines and cosines of rows beside those of columns: what is handed on is at most a row's offset."""
    with FusionDefinition() as fd:
        o, offset = fd.ops, fd.define_tensor([1], True, Float)
        at, scales = o.add(o.cast(o.iota(5), Float), offset), o.cast(o.iota(4), Float)
        angles = o.mul(o.broadcast(at, [False, True]), o.broadcast(scales, [True, False]))
        table = o.cat([o.sin(angles), o.cos(angles)], 1)
        parts = [o.expand(o.broadcast(table, [k == 0, k == 1, False]), [5, 5, 8]) for k in range(2)]
        fd.add_output(o.reshape(o.cat(parts, 2), [25, 16]))
    segments = segment_fusion(optimize_fusion(fusion_of(fd), lambda name, text: None)).segments
    stored = [t for s in segments[:-1] for t in s.fusion.output_tensors if len(t.visible) < 3]
    assert all(math.prod(d.extent.value for d in t.visible) <= 5 for t in stored)
    assert sum(s.has_kernel for s in segments) == len(stored) + 1
    x = np.array([0.5], np.float32)
    (y,) = fd.execute([x], device="simulator")
    np.testing.assert_allclose(y, evaluate_fusion(fusion_of(fd), [x])[0], atol=1e-5)


def test_what_is_broadcast_one_way_is_made_once() -> None:
    with FusionDefinition() as fd:
        o, x = fd.ops, fd.define_tensor([-1, 7], True, Float)
        at = o.cast(o.iota(7), Float)
        a, b = (o.broadcast(at, [True, False]) for _ in range(2))
        fd.add_output(o.add(o.mul(x, a), b))
    assert separate_positions(fusion_of(fd)) is fusion_of(fd)


def test_values_of_tensors_are_made_once() -> None:
    with FusionDefinition() as fd:
        o, x = fd.ops, fd.define_tensor([7], True, Float)
        at = o.add(x, o.cast(o.iota(7), Float))
        fd.add_output(o.sub(o.broadcast(at, [False, True]), o.broadcast(at, [True, False])))
    assert separate_positions(fusion_of(fd)) is fusion_of(fd)


def test_windows_of_square_images_are_one_kernel() -> None:
    """Rows and columns are compared with bounds of each image before they meet."""
    with FusionDefinition() as fd:
        o, x = fd.ops, fd.define_tensor([3, 7, 7], True, Float)
        begin = [fd.define_tensor([3], True, DataType.Int) for _ in range(2)]
        at = o.broadcast(o.iota(7), [True, False])
        row, column = (
            o.logical_and(o.ge(at, o.broadcast(b, [False, True])), o.lt(at, o.broadcast(b + 3, [False, True])))
            for b in begin
        )
        inside = o.logical_and(o.broadcast(row, [False, False, True]), o.broadcast(column, [False, True, False]))
        fd.add_output(o.where(inside, 0.0, x))
    found = separate_positions(fusion_of(fd))
    verify_fusion(found)
    assert separate_positions(found) is found
    segments = segment_fusion(optimize_fusion(fusion_of(fd), lambda name, text: None)).segments
    assert sum(s.has_kernel for s in segments) == 1
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((3, 7, 7)).astype(np.float32), np.array([0, 2, 4]), np.array([1, 4, 0])]
    (y,) = fd.execute(inputs, device="simulator")
    np.testing.assert_array_equal(y, evaluate_fusion(fusion_of(fd), inputs)[0])
