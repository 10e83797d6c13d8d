"""Random definitions with reshapes on the simulator, against the reference."""

from __future__ import annotations

import pytest

from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import concrete_fusion, plan_fusion
from fuser.compiler.recorder import Recorder
from fuser.ir.fusion.fusion import Reshape
from tests.devices.small_simulator import small_simulator
from tests.frontend.building import rebuild
from tests.fuzzing.exact_runs import check
from tests.fuzzing.random_reshapes import generate

CASES = 80
ODD_CASES = 60
PER_TEST = 10


@pytest.mark.parametrize("start", range(0, CASES, PER_TEST))
def test_random_reshapes(start: int) -> None:
    for seed in range(start, start + PER_TEST):
        check(generate(seed), small_simulator())


@pytest.mark.parametrize("start", range(0, ODD_CASES, PER_TEST))
def test_random_reshapes_of_repeated_extents(start: int) -> None:
    """Extents that occur several times, dims of one element of any stride, gaps."""
    for seed in range(start, start + PER_TEST):
        check(generate(seed, odd=True), small_simulator())


def test_printed_programs_are_the_same() -> None:
    for seed in range(CASES):
        again = rebuild(generate(seed).fd)
        assert rebuild(again).fusion == again.fusion, seed


def test_the_cases_reach_what_they_are_for() -> None:
    """Reshapes that vanish, that are views at the ends, and that cut kernels; resolved from the start and not."""
    seen = dict.fromkeys(("static", "symbolic", "vanish", "cut", "one", "several", "update"), 0)
    for seed in range(CASES):
        made = generate(seed)
        assert made.fd.fusion is not None
        fusion = made.fd.fusion.ir_fusion
        reshapes = [e for e in fusion.exprs if isinstance(e, Reshape)]
        concrete = concrete_fusion(fusion, bind_inputs(fusion, made.inputs, check_extents=False))
        segments = plan_fusion(concrete, Recorder()).segments
        kernels = [s for s in segments if s.scheduler.type.name != "no_op"]
        inner = [e for s in segments[1:-1] for e in s.fusion.tensor_exprs if isinstance(e, Reshape)]
        seen["static"] += any(e.is_resolved for e in reshapes)
        seen["symbolic"] += any(not e.is_resolved for e in reshapes)
        seen["vanish"] += len(kernels) == 1 and len(reshapes) > 1
        seen["cut"] += bool(inner) and len(kernels) > 1
        seen["one"] += len(kernels) == 1
        seen["several"] += len(kernels) > 1
        seen["update"] += any(o.hidden for o in fusion.outputs)
    assert all(n >= 4 for n in seen.values()), seen


@pytest.mark.parametrize("seed", [165, 378, 423, 447, 474, 499, 696])
def test_what_cannot_be_computed_in_parts_is_left_dense(seed: int) -> None:
    """Reshapes of views of outputs, whose memory order is another one; views after the last kernel."""
    check(generate(seed), small_simulator())
