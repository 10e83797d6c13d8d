"""Random fusions under random schedules on the simulator: accepted ones are right, bit by bit, and replay from their text."""

from __future__ import annotations

import os
from collections import Counter
from functools import cache

import pytest

from fuser.codegen.generate import generate_cuda
from fuser.errors import SchedulingError
from fuser.lowering.pipeline import lower_fusion
from tests import oracle
from tests.harness import Lowered, assert_same, run
from tests.random_schedules import ACCEPTED, QUOTAS, RandomCase, features, generate, replay

CASES = int(os.environ.get("RANDOM_SCHEDULES", "300"))
CHUNK = 25


@cache
def outcome(seed: int) -> tuple[RandomCase, Lowered | None, str]:
    """The case of a seed, its kernel, and if there is none why the schedule is refused."""
    case = generate(seed)
    try:
        return case, Lowered.of(case.schedule, case.facts), ""
    except SchedulingError as error:
        return case, None, str(error)


@pytest.mark.parametrize("start", range(0, CASES, CHUNK))
def test_results_are_exact(start: int) -> None:
    for seed in range(start, min(start + CHUNK, CASES)):
        case, lowered, _ = outcome(seed)
        if lowered is None:
            continue
        expected = oracle.evaluate(case.fusion, case.inputs)
        for name, value in run(lowered, case.inputs, seed=seed).check().items():
            assert_same(value, expected[name], f"seed {seed}, {name}\n{case.schedule}\n")


def test_printed_schedules_replay_to_the_same_text() -> None:
    for seed in range(CASES):
        case, lowered, _ = outcome(seed)
        if lowered is None:
            continue
        again = replay(str(case.schedule), generate(seed).fusion)
        assert str(again) == str(case.schedule)
        kernel = lower_fusion(again, case.facts)
        assert generate_cuda(kernel).text == generate_cuda(lowered.kernel).text, f"seed {seed}"


def test_quotas_are_met() -> None:
    accepted = [(c, k) for c, k, _ in map(outcome, range(CASES)) if k is not None]
    counts = Counter(name for case, lowered in accepted for name in features(case, lowered.kernel))
    refusals = Counter(reason.split("\n")[0] for _, k, reason in map(outcome, range(CASES)) if k is None)
    shares = {name: counts[name] / len(accepted) for name in QUOTAS}
    print(f"\n{len(accepted)} of {CASES} schedules accepted")
    for name, least in QUOTAS.items():
        print(f"  {name:28} {shares[name]:6.1%}  (at least {least:.0%})")
    for reason, count in refusals.most_common(10):
        print(f"  refused {count:3}: {reason[:140]}")
    assert len(accepted) >= ACCEPTED * CASES
    assert all(shares[name] >= least for name, least in QUOTAS.items()), shares


def test_printed_schedule_is_deterministic() -> None:
    assert str(generate(7).schedule) == str(generate(7).schedule)
