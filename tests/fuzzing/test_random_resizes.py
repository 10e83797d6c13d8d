"""Random definitions with slices, pads, concatenations and gathers on the simulator, against the reference."""

from __future__ import annotations

import pytest

from fuser.compiler.compile_fusion import plan_fusion
from fuser.compiler.recorder import Recorder
from fuser.ir.fusion.fusion import Cat, Gather, Resize
from tests.devices.small_simulator import small_simulator
from tests.fuzzing.exact_runs import check
from tests.fuzzing.random_resizes import CASES, PER_TEST, generate

ODD_CASES = 60


@pytest.mark.parametrize("start", range(0, CASES, PER_TEST))
def test_random_resizes(start: int) -> None:
    for seed in range(start, start + PER_TEST):
        check(generate(seed), small_simulator())


@pytest.mark.parametrize("start", range(0, ODD_CASES, PER_TEST))
def test_random_slices_of_odd_layouts(start: int) -> None:
    """Slices clamped to their dims, or that end at other dims' sizes; dims of one element of any stride, gaps."""
    for seed in range(start, start + PER_TEST):
        check(generate(seed, odd=True), small_simulator())


def test_the_cases_reach_what_they_are_for() -> None:
    """Enough of them resize, join and gather, in one kernel and in several."""
    seen: dict[str, int] = dict.fromkeys(("slice", "pad", "cat", "gather", "one", "several"), 0)
    for seed in range(CASES):
        fusion = generate(seed).fd.fusion
        assert fusion is not None
        exprs = fusion.ir_fusion.exprs
        segments = plan_fusion(fusion.ir_fusion, Recorder()).segments
        seen["slice"] += any(isinstance(e, Resize) and e.fill is None for e in exprs)
        seen["pad"] += any(isinstance(e, Resize) and e.fill is not None for e in exprs)
        seen["cat"] += any(isinstance(e, Cat) for e in exprs)
        seen["gather"] += any(isinstance(e, Gather) for e in exprs)
        seen["one"] += len(segments) == 1
        seen["several"] += len(segments) > 1
    assert all(n >= 10 for n in seen.values()), seen
