"""Slices, pads and gathers move to inputs, and values stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.optimize.hoist_displaced_reads import hoist_displaced_reads
from tests.fuzzing.random_resizes import generate
from tests.optimize.displaced_reads.hoisted_fusions import hoisted, is_at_inputs

D = DataType


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
