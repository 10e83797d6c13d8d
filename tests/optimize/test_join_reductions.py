"""Reductions of reductions with nothing between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion.fusion import Fusion, Reduction
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.optimize.join_reductions import join_reductions

BFloat16, Float, Int = DataType.BFloat16, DataType.Float, DataType.Int
X = np.random.default_rng(0).integers(-9, 9, (5, 3, 4)).astype("f4")


def fusion_of(build: Callable[[Any, Any], Any]) -> tuple[FusionDefinition, Fusion]:
    with FusionDefinition() as fd:
        results = build(fd.ops, fd.define_tensor([-1, 3, -1], True, Float))
        for t in results if isinstance(results, tuple) else (results,):
            fd.add_output(t)
    assert fd.fusion is not None
    return fd, fd.fusion.ir_fusion


def _at(o: Any, x: Any) -> Any:
    return o.eq(
        o.broadcast(x, [False, False, False, True]), o.cast(o.broadcast(o.iota(6), [True] * 3 + [False]), Float)
    )


JOINED: dict[str, Callable[[Any, Any], Any]] = {
    "inner dims": lambda o, x: o.sum(o.sum(x, [2]), [1]),
    "around what is kept": lambda o, x: o.sum(o.sum(x, [0]), [1]),
    "three": lambda o, x: o.sum(o.sum(o.sum(x, [1]), [0]), [0]),
    "largest": lambda o, x: o.max(o.max(o.abs(x), [2]), [0]),
    "integers": lambda o, x: o.sum(o.sum(o.cast(x, Int), [1]), [0]),
    "means": lambda o, x: (x + 1.0).mean(2).mean(0),
    "a mean and a sum": lambda o, x: o.sum(0.5 * o.sum(x, [1]), [0]),
    "counts of positions": lambda o, x: o.sum(o.sum(o.cast(_at(o, x), Float), [1]), [0]),
}


@pytest.mark.parametrize("name", JOINED)
def test_steps_are_one(name: str) -> None:
    fd, fusion = fusion_of(JOINED[name])
    found = join_reductions(fusion)
    verify_fusion(found)
    assert [t.name for t in found.output_tensors] == [t.name for t in fusion.output_tensors]
    before, after = (sum(isinstance(e, Reduction) for e in f.exprs) for f in (fusion, found))
    assert after == before - (2 if name == "three" else 1)
    assert join_reductions(found) is found
    (y,) = evaluate_fusion(fusion, [X])
    for result in (evaluate_fusion(found, [X])[0], fd.execute([X], device="simulator")[0]):
        # A mean of means rounds elsewhere.
        np.testing.assert_allclose(np.asarray(result), y, rtol=3e-7 if name == "means" else 0)


OTHERS: dict[str, Callable[[Any, Any], Any]] = {
    "another reader": lambda o, x: (lambda t: o.add(o.sum(t, [0]), o.max(t, [0])))(o.sum(x, [2])),
    "an output": lambda o, x: (lambda t: (t, o.sum(t, [0])))(o.sum(x, [2])),
    "other kinds": lambda o, x: o.max(o.sum(x, [2]), [0]),
    "a quotient of a sum": lambda o, x: o.sum(1.0 / o.sum(x + 9.0, [2]), [0]),
    "largest of scaled": lambda o, x: o.max(o.max(x, [2]) * -1.0, [0]),
    "something between": lambda o, x: o.sum(o.sqrt(o.sum(x * x, [2])), [0]),
    "rounded between": lambda o, x: o.sum(o.sum(o.cast(x, BFloat16), [2], dtype=BFloat16), [0], dtype=BFloat16),
    "steps that another needs": lambda o, x: (o.sum(o.exp(x), [1, 2]), o.sum(o.sum(x, [1, 2]), [0])),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    _, fusion = fusion_of(OTHERS[name])
    assert join_reductions(fusion) is fusion
