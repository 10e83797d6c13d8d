"""What is computed again at other indices, what reads fill there, and where that stops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.optimize.hoist_displaced_reads import hoist_displaced_reads
from tests.optimize.displaced_reads.hoisted_fusions import X, Y, hoisted, is_at_inputs, resizes

D = DataType


def test_a_reduction_is_read_where_it_is() -> None:
    """Its result is computed once: another kernel reads a part of it."""
    _, after = hoisted(lambda o, x, y: o.slice(o.exp(o.sum(o.cat([x, x], 1), [1])), [2], [4]))
    assert not is_at_inputs(after)


@pytest.mark.parametrize("op", ["sum", "max", "min", "prod"])
def test_a_reduction_of_few_elements_is_computed_again(op: str) -> None:
    _, after = hoisted(lambda o, x, y: o.slice(o.exp(getattr(o, op)(o.exp(x), [1])), [2], [4]))
    assert len(resizes(after)) == 8
    assert is_at_inputs(after)


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
