"""Random programs of the whole surface on the simulator, against NumPy; `pytest --seeds 1000:1400` takes other seeds."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest

from fuser import DataType
from tests.devices.small_simulator import small_simulator
from tests.frontend.building import rebuild
from tests.fuzzing.random_programs import Program, arguments_of, build, failure, generate
from tests.fuzzing.random_steps import input_step
from tests.fuzzing.shrink_program import describe, shrink, without_unread

SEEDS = range(25)
"""A few for every day; all that was found by others is a test of its own now (tests/fuzzing/test_odd_programs.py)."""


made = cache(generate)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        asked = metafunc.config.getoption("--seeds")
        metafunc.parametrize("seed", SEEDS if asked is None else range(*map(int, asked.split(":"))))


def test_random_program(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right, on a device of one processor or from NumPy; passes are checked, a proposal that cannot be lowered fails."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    program = made(seed)
    problem = failure(program, small_simulator() if seed % 2 else None)
    flags = "--verify" if seed % 2 else "--verify --host"
    assert problem is None, f"`python -m tests.fuzzing.shrink_program {seed} {flags}` makes this small:\n{problem}"


def test_a_printed_definition_is_the_same_definition() -> None:
    for seed in SEEDS:
        fd = build(made(seed))
        assert rebuild(fd).fusion == fd.fusion, seed


def test_a_seed_is_one_program() -> None:
    for seed in SEEDS:
        first, second = made(seed), generate(seed)
        assert repr(build(first)) == repr(build(second))
        for steps, others in zip(first.runs, second.runs, strict=True):
            pairs = zip(arguments_of(steps), arguments_of(others), strict=True)
            assert all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.in_turns
def test_the_programs_reach_what_they_are_for() -> None:
    """Each kind of op, dtype, layout and run is there, most values are exact, and extents are known early and late."""
    ops: Counter[str] = Counter()
    dtypes: Counter[DataType] = Counter()
    seen: Counter[str] = Counter()
    for seed in range(200):
        program = made(seed)
        text = repr(build(program))
        ops.update({line.split("fd.ops.")[1].split("(")[0] for line in text.splitlines() if "fd.ops." in line})
        dtypes.update({s.dtype for s in program.steps})
        shown = [program.steps[i] for i in program.outputs]
        seen["exact"] += all(s.error == 0 for s in shown)
        seen["rounded"] += any(s.error > 0 for s in shown)
        seen["late"] += "-1" in text.split("tv1")[0]
        seen["updated"] += program.update is not None
        seen["statistics in place"] += program.update is not None and program.steps[program.update[1]].error > 0
        runs = [[a for a in arguments_of(steps) if isinstance(a, np.ndarray)] for steps in program.runs]
        layouts = [[(a.strides, a.ctypes.data % 16) for a in arrays] for arrays in runs]
        shapes = [[a.shape for a in arrays] for arrays in runs]
        seen["other layouts"] += any(s == shapes[0] and o != layouts[0] for s, o in zip(shapes, layouts, strict=True))
        seen["other extents"] += any(s != shapes[0] for s in shapes)
        seen["shared"] += any(len({id(a) for a in arrays}) < len(arrays) for arrays in runs)
        seen["ones known late"] += any(
            n == 1 for s in program.steps for n, one in zip(s.shape, s.ones, strict=True) if not one
        )
        seen["odd strides of ones"] += any(
            n == 1 and s not in (a.itemsize, a.size * a.itemsize)
            for a in runs[0]
            for n, s in zip(a.shape, a.strides, strict=True)
        )
        seen["equal extents"] += any(len(set(a.shape)) < a.ndim for a in runs[0])
        arrays = [a for a in runs[0] if a.size > 1]
        seen["dense"] += all(a.flags.c_contiguous for a in arrays)
        seen["expanded"] += any(0 in a.strides for a in arrays)
        seen["reversed"] += any(min((0, *a.strides)) < 0 for a in arrays)
        seen["scalars"] += any(not isinstance(a, np.ndarray) for a in program.arguments)
        seen["empty"] += any(s.wide.size == 0 for s in shown)
    frequent = """add mul maximum minimum where cast sum max cumsum rsqrt exp full iota broadcast expand permute reshape squeeze
        stride_order slice pad cat index_select gather take_along_axis segment_set lt"""
    assert min((ops[name], name) for name in frequent.split())[0] >= 5, ops
    assert len(dtypes) == 7, dtypes
    assert min(dtypes.values()) >= 20, dtypes
    assert min(seen[k] for k in seen) >= 5, seen
    assert seen["exact"] >= 60, seen


# --- the shrinker -----------------------------------------------------------------------------------------------------


def reads_a_sum(program: Program) -> bool:
    return "fd.ops.sum(" in repr(build(program))


def test_a_failing_program_becomes_small() -> None:
    """Whatever fails stays; what is around it goes."""
    large = next(p for p in map(generate, range(100)) if reads_a_sum(p) and len(p.steps) > 10)
    assert failure(large, small_simulator()) is None
    small = shrink(large, reads_a_sum)
    assert reads_a_sum(small)
    assert len(small.outputs) == 1
    assert len(small.steps) == 2
    assert failure(small, small_simulator()) is None
    assert "fd.ops.sum(" in describe(small, "a reason")


def test_what_nothing_reads_goes() -> None:
    program = generate(next(seed for seed in range(100) if len(generate(seed).steps) > 8))
    last = len(program.steps) - 1
    small = without_unread(Program(0, program.runs[:1], (last,)))
    assert small.steps[small.outputs[0]].wide is program.steps[last].wide
    assert len(small.steps) <= len(program.steps)
    assert failure(small, small_simulator()) is None


@pytest.mark.parametrize("wrong", [0.25, float("nan")])
def test_a_wrong_result_is_told(wrong: float) -> None:
    """One element that is off by a quarter, or is not a number."""
    array = np.zeros((3, 4), np.float32)
    right = input_step(array, DataType.Float, [-1, -1])
    passed = array.copy()
    passed[1, 2] = wrong
    step = input_step(array, DataType.Float, [-1, -1])
    off = type(step)((), step.define, step.wide, step.dtype, step.ones, argument=passed)
    assert failure(Program(0, ((right,),), (0,))) is None
    told = failure(Program(0, ((off,),), (0,)))
    assert told is not None
    assert "at [1, 2], expected 0.0 within 0" in told
