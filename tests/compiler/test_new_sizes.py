"""What is chosen for sizes that were not seen before: by functions of families the same as by schedulers."""

from __future__ import annotations

import contextlib
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fuser import FusionDefinition
from fuser.compiler import tuning
from fuser.compiler.bind_inputs import BoundInputs, bind_inputs
from fuser.compiler.executor_cache import FusionExecutorCache
from fuser.compiler.kernel_compiler import CompileOptions, KernelCompiler
from fuser.compiler.tuning import Tuned
from fuser.errors import InputRuntimeError
from fuser.host_ir.executors import families
from fuser.host_ir.executors.steps import BoundProgram, memory_of
from fuser.ir.integers.number_trace import Find, NumberTrace, UntraceableError
from fuser.runtime.array_view import ArrayView
from fuser.simulator.device import SimulatorDevice
from tests.devices.device_layouts import place, place_all
from tests.fusions.fusion_corpus import CORPUS, Arg, FusionCase, Num, Sizes, case
from tests.judging.structure import same_structure

DEVICE = SimulatorDevice()
BASES: tuple[Sizes, ...] = (
    {"A": 3, "B": 8, "R": 6, "C": 48, "H": 16, "W": 24},
    {"A": 6, "B": 32, "R": 3000, "C": 4096, "H": 128, "W": 96},
)


def cache_of(name: str) -> FusionExecutorCache:
    fusion = case(name).define().fusion
    assert fusion is not None
    return FusionExecutorCache(fusion)


def views_of(made: FusionCase, sizes: Sizes, rng: random.Random | None = None) -> list[Any]:
    """Inputs without memory: device arrays one behind another, and numbers. Addresses are odd now and then where `rng` says."""
    values: list[Any] = []
    place = 1 << 20
    for argument in made.arguments:
        if isinstance(argument, Num):
            values.append(argument.value)
            continue
        if not isinstance(argument, Arg):
            values.append(sizes[argument.letter])
            continue
        shape = argument.shape(sizes)
        strides, step = [0] * len(shape), 1
        for d in reversed(argument.order or range(len(shape))):
            strides[d] = step
            step *= max(shape[d], 1)
        owner = SimpleNamespace(device=DEVICE, owner=None, stream=0)
        address = place + (0 if rng is None else rng.choice((0, 0, 0, 16, 8)))
        place += -(-16 * step // 256) * 256 + 256
        view = ArrayView("fuser", argument.dtype, shape, tuple(strides), address, ("simulator", 0), owner, owner)
        values.append(view)
    return values


def numbers_of(values: list[Any]) -> list[int]:
    return [n for v in values if isinstance(v, ArrayView) for n in (*v.sizes, *v.strides, v.address)]


def others(sizes: Sizes, rng: random.Random) -> Sizes:
    """Sizes near by, and others."""
    changed = dict(sizes)
    for letter in rng.sample(sorted(sizes), rng.choice((1, 1, 2, 6))):
        n = changed[letter]
        changed[letter] = max(0, n + rng.choice((-1, 1, 2, 4, 8, 16, n, 7 * n, 1 - n, -n, rng.randrange(200))))
    return changed


def parts(bound: BoundProgram) -> tuple[Any, ...]:
    return bound.steps, bound.outputs, bound.spans, memory_of(bound.steps)


def function_for(fec: FusionExecutorCache, values: list[Any]) -> Find:
    """The function that is traced for some inputs, once their program is there."""
    bound = bind_inputs(fec._ir, values, check_extents=False)  # noqa: SLF001
    fec._cache_for(bound).program(bound, DEVICE, CompileOptions())  # noqa: SLF001
    trace = NumberTrace()
    leaves = [trace.leaf(n) for n in numbers_of(values)]
    return trace.function(parts(fec._derive(families.with_numbers(values, leaves), None, None).bound))  # noqa: SLF001


@pytest.mark.in_turns
@pytest.mark.parametrize("made", CORPUS, ids=lambda c: c.name)
def test_functions_choose_what_schedulers_choose(made: FusionCase) -> None:
    """Whatever sizes a function takes, it leads to the program and the steps that these sizes have by themselves."""
    rng = random.Random(made.name)
    fec = cache_of(made.name)
    for base in BASES:
        values = views_of(made, base, rng)
        try:
            find = function_for(fec, values)
        except (InputRuntimeError, UntraceableError):
            continue  # inputs that overlap where they are updated; what cannot be traced is another test's
        derived = fec._derive(values, None, None).bound  # noqa: SLF001
        assert same_structure(find(numbers_of(values)), parts(derived))
        for _ in range(12):
            other = views_of(made, others(base, rng), rng)
            if any(a != b for a, b in zip(values, other, strict=True) if not isinstance(a, ArrayView)):
                continue  # another family
            found = find(numbers_of(other))
            if found is not None:
                plain = fec._derive(other, None, None).bound  # noqa: SLF001
                assert plain.program is derived.program
                assert same_structure(found, parts(plain))


def test_what_a_fresh_definition_would_choose() -> None:
    """Parameters for the sizes at hand, of rows that fit a block in other ways."""
    proposed: list[Any] = []
    propose = KernelCompiler.propose
    made = case("softmax")
    fec = cache_of("softmax")
    hits = 0
    for base in ({"R": 4096, "C": 1024}, {"R": 64, "C": 1024}, {"R": 4096, "C": 777}):
        sizes = {**BASES[0], **base}
        find = function_for(fec, views_of(made, sizes))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(KernelCompiler, "propose", lambda *a: (proposed.append(p := propose(*a)), p)[1])
            for rows in (sizes["R"], sizes["R"] + 1, 4 * sizes["R"], sizes["R"] // 2, 3, 100_000):
                other = views_of(made, {**sizes, "R": rows})
                if find(numbers_of(other)) is None:
                    continue
                hits += 1
                proposed.clear()
                fresh = cache_of("softmax")
                looks = bind_inputs(fresh._ir, other, check_extents=False)  # noqa: SLF001
                fresh._cache_for(looks).program(looks, DEVICE, CompileOptions())  # noqa: SLF001
                fec._derive(other, None, None)  # noqa: SLF001
                assert len(proposed) == 2
                assert proposed[0] == proposed[1]
    assert hits > 5


def test_most_fusions_can_be_traced() -> None:
    """Dynamic rows of everyday fusions are what this is for."""
    for name in (
        "add_two",
        "bias_gelu",
        "rms_norm",
        "layer_norm",
        "softmax",
        "swiglu",
        "adam_step",
        "cross_entropy",
        "dropout",
    ):
        made = case(name)
        sizes = {**BASES[1], "C": 1024}
        find = function_for(cache_of(name), views_of(made, sizes))
        # One of them may fill a wave of blocks that others do not, of a mapping that was weighed.
        near = (views_of(made, {**sizes, "R": rows}) for rows in (3008, 3080, 2992, 3020))
        assert sum(find(numbers_of(other)) is not None for other in near) >= 3, name


@pytest.mark.parametrize("name", ["add_two", "bias_gelu", "softmax", "layer_norm", "cross_entropy"])
def test_all_rows_that_a_program_is_chosen_for_are_bound(name: str) -> None:
    """Neither rounded sizes nor how mappings compare are guarded, but which mapping is found."""
    made, fec = case(name), cache_of(name)
    for base in ({"R": 100, "C": 24}, {"R": 3000, "C": 1000}):
        sizes = {**BASES[1], **base}
        find = function_for(fec, views_of(made, sizes))
        program = fec._derive(views_of(made, sizes), None, None).bound.program  # noqa: SLF001
        hits = 0
        for rows in range(sizes["R"] * 3 // 5, sizes["R"] * 2, sizes["R"] // 7):
            other = views_of(made, {**sizes, "R": rows})
            found = find(numbers_of(other))
            hits += found is not None
            if found is None:
                # They have another program, or one that is not there.
                with contextlib.suppress(UntraceableError):
                    assert fec._derive(other, None, None).bound.program is not program  # noqa: SLF001
        assert hits > 2


@pytest.fixture
def whole_ways(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Calls for which schedulers were asked."""
    monkeypatch.setattr(families, "CALLS_PER_TRACE", 2)
    found: list[object] = []
    bind = FusionExecutorCache._bind  # noqa: SLF001
    monkeypatch.setattr(FusionExecutorCache, "_bind", lambda self, *a: (found.append(a), bind(self, *a))[1])
    return found


def test_results_counters_and_questions(whole_ways: list[object]) -> None:
    with FusionDefinition() as fd:
        x, s = fd.define_tensor([-1, -1]), fd.define_scalar()
        fd.add_output(fd.ops.sum(x * s, 1))
    for rows in (40, 41, 42, 43, 70, 41):
        x = place(DEVICE, np.ones((rows, 24), np.float32))
        (y,) = fd.execute([x, float(rows)])
        np.testing.assert_array_equal(y.numpy(), np.full(rows, 24.0 * rows, np.float32))
    assert len(whole_ways) < 5
    counters = fd.fec.counters()
    assert counters["exact_hits"] == 1
    assert counters["kernels_compiled"] + counters["kernel_hits"] == 5
    assert counters["kernel_hits"] == counters["program_hits"]
    assert fd.fec.is_compiled([place(DEVICE, np.ones((70, 24), np.float32)), 1.0])
    assert "70" not in fd.fec.get_most_recent_scheduled_ir()
    assert "so far: runs 6" in fd.explain([place(DEVICE, np.ones((70, 24), np.float32)), 1.0]).stages["launches"]


def test_mistakes_are_told_as_ever(whole_ways: list[object]) -> None:
    with FusionDefinition() as fd:
        a, b = fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1])
        fd.add_output(a + b)
    for rows in (101, 103, 105, 107):
        fd.execute([place(DEVICE, np.ones((rows, 24), np.float32)) for _ in range(2)])
    with pytest.raises(InputRuntimeError, match="2 different sizes"):
        fd.execute([place(DEVICE, np.ones((n, 24), np.float32)) for n in (7, 8)])
    assert len(whole_ways) == 3


def test_updates_and_what_shares_memory(whole_ways: list[object]) -> None:
    with FusionDefinition() as fd:
        a, b = fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1])
        fd.add_output(a + b, a)
    for rows in (8, 16, 32, 64, 128):
        x, y = (np.arange(rows * 24, dtype=np.float32).reshape(rows, 24) for _ in range(2))
        a, b = place_all(DEVICE, [x, y])
        fd.execute([a, b])
        np.testing.assert_array_equal(a.numpy(), x + y)
    assert len(whole_ways) < 5
    (a,) = place_all(DEVICE, [x])
    fd.execute([a, a])
    np.testing.assert_array_equal(a.numpy(), 2 * x)


def test_random_numbers_are_drawn_for_each_call(whole_ways: list[object]) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        fd.add_output(x + fd.ops.uniform(0.0, 1.0, x.shape()))
    seen: set[float] = set()
    for rows in (3, 4, 5, 6, 7, 8):
        (y,) = fd.execute([place(DEVICE, np.zeros((rows, 24), np.float32))])
        seen.update(y.numpy()[:3].ravel().tolist())
    assert len(whole_ways) < 6
    assert len(seen) > 6 * 70


def test_sizes_that_are_to_be_measured_are_not_bound_by_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    """FUSER_TUNE=later measures for all sizes, however many were measured before."""
    asked: list[tuple[int, ...]] = []

    def measured(_: object, bound: BoundInputs, *__: object) -> Tuned:
        asked.extend(t.sizes for t in bound.tensors.values())
        return Tuned(is_new=False, is_later=False)

    monkeypatch.setattr(families, "CALLS_PER_TRACE", 2)
    monkeypatch.setattr(tuning, "tune_program", measured)
    monkeypatch.setenv("FUSER_TUNE", "later")
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.relu(fd.define_tensor([-1, -1])))
    for rows in (101, 103, 105, 107):
        fd.execute([place(DEVICE, np.ones((rows, 24), np.float32))])
    assert asked == [(rows, 24) for rows in (101, 103, 105, 107)]


def test_numbers_that_no_float_holds_are_told_as_ever(whole_ways: list[object]) -> None:
    """2**1024 - 1 has as many bits as the largest Double, and rounds to what is none."""
    with FusionDefinition() as fd:
        x, s = fd.define_tensor([-1, -1]), fd.define_scalar()
        fd.add_output(x * s)
    for rows in (101, 103, 105, 107):
        fd.execute([place(DEVICE, np.ones((rows, 24), np.float32)), 2**1023])
    assert len(whole_ways) == 2
    with pytest.raises(InputRuntimeError, match="Scalar value of 1024 bits"):
        fd.execute([place(DEVICE, np.ones((109, 24), np.float32)), 2**1024 - 1])
