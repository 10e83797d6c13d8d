"""Host steps for extents that are expressions give the value of the expression."""

from __future__ import annotations

import pytest

from fuser.ir.fusion.scalar_evaluation import Number, evaluate_op
from fuser.ir.integers.integers import Int, const, less, maximum, minimum, select, symbol
from fuser.ir.kernel.extent_steps import extent_steps

N, M = symbol("n", 0), symbol("m", 0)
EIGHTS = symbol("e", 0, multiple=8)
EXPRESSIONS: list[Int] = [
    const(7),
    N,
    N + M * 3 - 5,
    N * M,
    minimum(N, M + 2),
    maximum(minimum(N - M, const(4)), const(0)),
    (N + 5) // 3,
    (N + 1) % 4,
    EIGHTS // 8 + N,
    minimum(EIGHTS, N) * 2,
]


@pytest.mark.parametrize("extent", EXPRESSIONS, ids=str)
def test_steps_compute_the_extent(extent: Int) -> None:
    made = extent_steps("x", extent, lambda s: s.name)
    assert made is not None
    assert made[-1].name == "x"
    for n, m, e in ((0, 0, 0), (3, 9, 8), (17, 2, 64)):
        named: dict[str, Number] = {"n": n, "m": m, "e": e}
        for step in made:
            operands = [named[o] if isinstance(o, str) else o for o in step.operands]
            named[step.name] = evaluate_op(step.op, operands, [step.dtype] * len(operands), step.dtype)
        assert named["x"] == extent.evaluate({"n": n, "m": m, "e": e})


def test_a_selection_has_no_steps() -> None:
    assert extent_steps("x", select(less(N, M), N, M * 2), lambda s: s.name) is None
