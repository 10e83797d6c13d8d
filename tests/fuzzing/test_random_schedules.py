"""Random fusions under random schedules on the simulator: accepted ones are right, bit by bit, and replay from their text."""

from __future__ import annotations

import os
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from fuser.codegen.generate import generate_cuda
from fuser.errors import SchedulingError
from fuser.lowering.pipeline import lower_fusion
from fuser.runtime.kernels.nvrtc import compile_to_cubin, is_available
from fuser.simulator.device import SimulatorDevice
from tests.fuzzing import random_schedules
from tests.fuzzing.random_schedules import (
    RandomCase,
    check_shares,
    features,
    generate,
    one_program,
    replay,
    share_report,
)
from tests.judging import oracle
from tests.judging.harness import Lowered, assert_same, run, run_on, uncompiled

CASES = int(os.environ.get("RANDOM_SCHEDULES", "600"))
CHUNK = 25


@cache
def outcome(seed: int) -> tuple[RandomCase, Lowered | None, str]:
    """The case of a seed, its kernel, and if there is none why the schedule is refused."""
    case = generate(seed)
    try:
        return case, Lowered.of(case.schedule, case.facts), ""
    except SchedulingError as error:
        return case, None, str(error)


@pytest.mark.in_turns
@pytest.mark.parametrize("start", range(0, CASES, CHUNK))
def test_results_are_exact_and_printed_schedules_replay_to_the_same_text(start: int) -> None:
    """Both of each case: in the process that has lowered it."""
    for seed in range(start, min(start + CHUNK, CASES)):
        case, lowered, _ = outcome(seed)
        if lowered is None:
            continue
        expected = oracle.evaluate(case.fusion, case.inputs)
        for name, value in run(lowered, case.inputs, seed=seed).check().items():
            assert_same(value, expected[name], f"seed {seed}, {name}\n{case.schedule}\n")
        again = replay(str(case.schedule), generate(seed).fusion)
        assert str(again) == str(case.schedule)
        kernel = lower_fusion(again, case.facts)
        assert generate_cuda(kernel).text == generate_cuda(lowered.kernel).text, f"seed {seed}"


@pytest.mark.in_turns
def test_quotas_are_met() -> None:
    outcomes = [outcome(seed) for seed in range(CASES)]
    accepted = [(case, lowered) for case, lowered, _ in outcomes if lowered is not None]
    counts = Counter(name for case, lowered in accepted for name in features(case, lowered.kernel))
    refusals = Counter(reason.split("\n")[0] for _, lowered, reason in outcomes if lowered is None)
    print(share_report(counts, len(accepted), CASES, refusals))
    check_shares(counts, len(accepted), CASES)


def test_a_device_runs_them_too() -> None:
    """The way of the GPU run, on the simulated device."""
    device = SimulatorDevice()
    for seed in range(12):
        case, lowered, _ = outcome(seed)
        if lowered is not None:
            found = run_on(device, uncompiled(lowered.kernel, case.facts), case.fusion, case.inputs)
            expected = oracle.evaluate(case.fusion, case.inputs)
            for name, value in found.items():
                assert_same(value, expected[name], f"seed {seed}, {name}")


@pytest.mark.skipif(not is_available(), reason="no NVRTC")
def test_many_kernels_compile_as_one_program() -> None:
    texts: dict[str, str] = {}
    for seed in range(8):
        case, lowered, _ = outcome(seed)
        if lowered is not None:
            kernel = lower_fusion(case.schedule, case.facts, name=f"case_{seed}")
            texts[kernel.name] = generate_cuda(kernel).text
    text, entries = one_program(texts)
    result = compile_to_cubin(text, list(entries.values()), "sm_90a", ["-DFUSER_MAX_THREADS=1024"])
    assert [result.lowered[name] for name in entries.values()] == list(texts)


def test_printed_schedule_is_deterministic() -> None:
    assert str(generate(7).schedule) == str(generate(7).schedule)


def test_cases_do_not_depend_on_where_the_checkout_is(monkeypatch: pytest.MonkeyPatch) -> None:
    there = ModuleType("elsewhere")
    monkeypatch.setitem(sys.modules, there.__name__, there)
    text = Path(random_schedules.__file__).read_text(encoding="utf-8")
    exec(compile(text, "/elsewhere/random_schedules.py", "exec"), there.__dict__)
    for seed in range(12):
        case, _, _ = outcome(seed)
        assert str(there.generate(seed).schedule) == str(case.schedule)
