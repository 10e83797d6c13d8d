"""Tuning on the simulator, with times that tests make up: what is measured, what is out, who wins, and that no call notices."""

from __future__ import annotations

import fcntl
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fuser
from fuser import DataType, FusionDefinition, FusionExecutorCache, Tuning
from fuser.compiler import tuning as module
from fuser.compiler import tuning_candidates
from fuser.compiler.kernel_compiler import CompileOptions, KernelCompiler
from fuser.compiler.segment_trial import Trial
from fuser.compiler.tuning import chosen, tuning_asked
from fuser.compiler.tuning_candidates import THREAD_NAME
from fuser.compiler.tuning_record import TABLE, Fate, TuningRecord, mark_of
from fuser.errors import InputTypeError, InputValueError, LaunchMemoryError, NotSupportedError, SchedulingError
from fuser.host_ir.executors import families
from fuser.schedule.params import InnerPersistentParams, Params, ReductionParams
from fuser.simulator.device import SimulatorDevice
from tests.compiler.given_times import Clock, first_is_slow, is_neighbour, rows, softmax
from tests.devices.device_layouts import place, place_all
from tests.devices.small_simulator import small_simulator
from tests.fusions.fusion_corpus import ALIGNED, CORPUS, RAGGED, assert_close, case, expected


def by_threads(trial: Trial) -> float:
    """Fewer threads for a row are better: a few rows have many by themselves."""
    params = trial.params
    return float(params.threads) if isinstance(params, InnerPersistentParams) else 1e4


@pytest.fixture(autouse=True)
def simulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    TABLE.forget()
    yield
    wait_for_candidates()
    module._compilations.clear()  # pyright: ignore[reportPrivateUsage]
    TABLE.forget()


def wait_for_candidates() -> None:
    """Until nothing is compiled in the background any more, whose call it may have been."""
    for thread in threading.enumerate():
        if thread.name == THREAD_NAME:
            thread.join()


def record_of(made: Sequence[TuningRecord] | None = None) -> TuningRecord:
    (found,) = TABLE.made() if made is None else made
    return found


# --- the winner -------------------------------------------------------------------------------------------------------


def test_the_least_median_wins_and_runs_from_then_on() -> None:
    fd, x, clock = softmax(), rows(), Clock(by_threads)
    (before,) = fd.execute([x])
    (during,) = fd.execute([x], tune=Tuning(timer=clock))
    (after,) = fd.execute([x])
    np.testing.assert_array_equal(during, after)
    np.testing.assert_allclose(before, after, rtol=1e-6)
    (segment,) = record_of().segments
    best = segment.best.params
    assert isinstance(best, InnerPersistentParams)
    measured = [c.params for c in segment.candidates if c.fate is Fate.measured]
    assert best.threads == min(p.threads for p in measured if isinstance(p, InnerPersistentParams))
    (kernel,) = fd.fec.kernels([x])
    assert mark_of(kernel) == segment.best.kernel != segment.candidates[0].kernel
    launched = fd.explain([x], file=False)
    assert f"threads={best.threads}" in launched.stage("params.py")


def test_a_second_tuning_measures_nothing() -> None:
    fd, x, clock = softmax(), rows(), Clock(by_threads)
    fd.execute([x], tune=Tuning(timer=clock))
    rounds = len(clock.seen)
    for _ in range(3):
        fd.execute([x], tune=Tuning(timer=clock))
        softmax().execute([x], tune=Tuning(timer=clock))
    assert len(clock.seen) == rounds > 0
    fd.execute([rows(512)], tune=Tuning(timer=clock))
    assert len(clock.seen) > rounds


def test_a_near_tie_is_the_proposals() -> None:
    ten = [10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0]
    assert chosen([ten, [9.0] * 8]) == 1
    assert chosen([ten, [9.0] * 7 + [11.0]]) == 1
    assert chosen([ten, [9.0] * 6 + [11.0] * 2]) == 0
    assert chosen([ten, [], [9.5] * 8, [9.0] * 8]) == 3
    assert chosen([ten, []]) == 0
    # Only the rounds in which both ran are compared.
    assert chosen([ten, [9.0] * 3]) == 1


def test_slow_candidates_are_not_measured_to_the_end() -> None:
    slow: list[Params] = []

    def cost(trial: Trial) -> float:
        """Of the first neighbour more."""
        if is_neighbour(trial.params) and not slow:
            slow.append(trial.params)
        return 100.0 if trial.params in slow else 10.0

    clock = Clock(cost)
    softmax().execute([rows()], tune=Tuning(timer=clock, rounds=9))
    assert len(clock.seen) == 9
    assert len(clock.seen[-1]) == len(clock.seen[0]) - 1
    (segment,) = record_of().segments
    assert [c.params for c in segment.candidates if c.us == 100.0] == slow
    assert [c.runs for c in segment.candidates if c.params in slow] == [module.FIRST_ROUNDS]


def test_losers_and_their_times_are_kept_and_explained() -> None:
    fd, x = softmax(), rows()
    fd.execute([x], tune=Tuning(timer=Clock(by_threads)))
    (segment,) = record_of().segments
    assert segment.winner > 0
    assert sum(c.us is not None for c in segment.candidates) > 4
    text = fd.explain([x], file=False).stage("tuning.txt")
    assert text.count(" us  ") == sum(c.us is not None for c in segment.candidates)
    assert text.count("->") == 1
    assert "proposed" in text


# --- the call that is tuned -------------------------------------------------------------------------------------------


@pytest.mark.in_turns
@pytest.mark.parametrize("name", [c.name for c in CORPUS])
@pytest.mark.parametrize("sizes", [ALIGNED, RAGGED], ids=["aligned", "ragged"])
def test_every_candidate_of_the_corpus_is_right_and_no_input_is_touched(name: str, sizes: Any) -> None:
    """Updates included: a tuned call updates once, from inputs as they were."""
    device = small_simulator()
    fusion = case(name).define().fusion
    assert fusion is not None
    cache = FusionExecutorCache(fusion)
    where = None if fusion.ir_fusion.input_tensors else device.kind
    want = expected(fusion.ir_fusion, case(name).inputs(sizes))
    for tune in (Tuning(timer=Clock(first_is_slow), rounds=1), None):
        placed = place_all(device, case(name).inputs(sizes))
        results = cache.execute(placed, device=where, tune=tune)
        for i, (out, ref, n) in enumerate(zip(results, want.outputs, want.folded, strict=True)):
            assert_close(out, ref, n, f"output {i}")
        for position, ref in want.updates.items():
            assert_close(placed[position], ref, want.folded_updates[position], f"update of input {position}")
        for position, value in enumerate(case(name).inputs(sizes)):
            if isinstance(value, np.ndarray) and position not in want.updates:
                np.testing.assert_array_equal(placed[position].numpy(), value, err_msg=f"input {position} was written")
    for made in TABLE.made():
        for segment in made.segments:
            out = [c for c in segment.candidates if c.fate in (Fate.wrong, Fate.failed, Fate.slow, Fate.unmeasured)]
            # Blocks that wait for one another may be more than a small device holds, which a launch refuses.
            assert [c for c in out if "more waiting blocks" not in c.why] == []


def test_in_place_and_grid_sums_are_bit_equal_to_an_untuned_call() -> None:
    """Sums of whole numbers are exact, whatever the order: one update too many would show."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], dtype=DataType.Float)
        total = fd.define_tensor([-1], dtype=DataType.Float)
        fd.add_output(fd.ops.sum(x, dims=[0]) + total, total)
        fd.add_output(fd.ops.sum(x, dims=[0, 1]))
    x = np.random.default_rng(0).integers(-8, 8, (300, 40)).astype(np.float32)
    plain, tuned = np.ones(40, np.float32), np.ones(40, np.float32)
    (want,) = fd.execute([x, plain])
    (got,) = fd.execute([x, tuned], tune=Tuning(timer=Clock(first_is_slow)))
    np.testing.assert_array_equal(plain, tuned)
    np.testing.assert_array_equal(want, got)
    fd.execute([x, tuned])
    np.testing.assert_array_equal(tuned, 1 + 2 * x.sum(0))
    assert any(s.winner for s in record_of().segments)


def test_random_numbers_go_on_as_without_tuning() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], dtype=DataType.Float)
        fd.add_output(x + fd.ops.uniform(0.0, 1.0, shape=[x.size(0)], dtype=DataType.Float))
    x = np.zeros(512, np.float32)
    fuser.manual_seed(3)
    want = [fd.execute([x])[0], fd.execute([x])[0]]
    fuser.manual_seed(3)
    got = [fd.execute([x], tune=Tuning(timer=Clock(first_is_slow)))[0], fd.execute([x])[0]]
    np.testing.assert_array_equal(want, got)


def test_all_memory_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimulatorDevice()
    taken: set[int] = set()
    allocate, release = device.memory.allocate, device.memory.release

    def counted(nbytes: int, name: str = "memory") -> int:
        address = allocate(nbytes, name)
        taken.add(address)
        return address

    def released(address: int) -> None:
        release(address)
        taken.remove(address)

    monkeypatch.setattr(device.memory, "allocate", counted)
    monkeypatch.setattr(device.memory, "release", released)
    fd = softmax()
    placed = place_all(device, [rows()])
    kept = fd.execute(placed)
    before = set(taken)
    fd.execute(placed, tune=Tuning(timer=Clock(first_is_slow)))
    assert len(TABLE.made()) == len(kept) == 1
    assert taken == before


def test_a_graph_is_tuned_before_it_is_recorded() -> None:
    device = SimulatorDevice()
    fd = softmax()
    (got,) = fd.execute(place_all(device, [rows()]), graph=True, tune=Tuning(timer=Clock(by_threads)))
    (again,) = fd.execute(place_all(device, [rows()]), graph=True)
    np.testing.assert_array_equal(np.asarray(got), np.asarray(again))
    assert record_of().segments[0].winner > 0


def test_never_during_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    fd, x, clock = softmax(), rows(), Clock(by_threads)
    with monkeypatch.context() as captured:
        captured.setattr(SimulatorDevice, "capture_of", lambda *_: 1)
        fd.execute([x], tune=Tuning(timer=clock))
        fd.execute([x], tune=Tuning(timer=clock))
    assert clock.seen == []
    assert TABLE.made() == ()
    fd.execute([x], tune=Tuning(timer=clock))
    assert record_of().segments[0].winner > 0


@pytest.mark.parametrize("asked", [{}, {"wait": False}])
def test_a_graph_is_made_where_nothing_can_be_measured_yet(monkeypatch: pytest.MonkeyPatch, asked: Any) -> None:
    device, fd = SimulatorDevice(), softmax()
    given, tuning = place_all(device, [rows()]), Tuning(timer=Clock(by_threads), **asked)
    (want,) = softmax().execute(given)
    with monkeypatch.context() as still:
        if asked:
            still.setattr(module.Compilation, "is_done", False)
        else:
            still.setattr(module, "_framework_and_stream", lambda *_: (None, 1))
            still.setattr(SimulatorDevice, "is_capturing", lambda _, stream: stream == 1)
        for _ in range(2):
            (got,) = fd.execute(given, graph=True, tune=tuning)
            np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
        assert TABLE.made() == ()
    wait_for_candidates()
    (got,) = fd.execute(given, graph=True, tune=tuning)
    assert record_of().segments[0].winner > 0
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-6)


def test_without_memory_for_it_nothing_is_measured(monkeypatch: pytest.MonkeyPatch, unlowered: list[str]) -> None:
    def full(*_: object) -> Any:
        raise LaunchMemoryError("the simulator has no room for 8 bytes")

    fd, x = softmax(), rows()
    (want,) = fd.execute([x])
    monkeypatch.setattr(module.RealValues, "outputs_for", full)
    asked = Tuning(timer=Clock(by_threads))
    for _ in range(2):
        np.testing.assert_array_equal(fd.execute([x], tune=asked)[0], want)
    assert TABLE.made() == ()
    assert unlowered == ["not tuned: the simulator has no room for 8 bytes"]
    unlowered.clear()


def test_inputs_without_elements_are_not_tuned(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(by_threads)
    with caplog.at_level(logging.INFO, "fuser"):
        softmax().execute([np.zeros((0, 8), np.float32)], tune=Tuning(timer=clock))
    assert "not tuned: an input has no elements" in caplog.messages
    assert clock.seen == []


def test_calls_run_the_proposal_until_candidates_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    start, gate = KernelCompiler.start_segment, threading.Event()

    def slow(self: Any, segment: Any, bound: Any, params: Params, *more: Any) -> Any:
        if is_neighbour(params):
            assert gate.wait(60)
        return start(self, segment, bound, params, *more)

    monkeypatch.setattr(KernelCompiler, "start_segment", slow)
    fd, x, clock = softmax(), rows(), Clock(by_threads)
    asked = Tuning(timer=clock, wait=False)
    (plain,) = softmax().execute([x], tune=False)
    for _ in range(3):
        np.testing.assert_array_equal(fd.execute([x], tune=asked)[0], plain)
    assert clock.seen == []
    gate.set()
    wait_for_candidates()
    (tuned,) = fd.execute([x], tune=asked)
    assert record_of().segments[0].winner > 0
    rounds = len(clock.seen)
    for _ in range(2):
        np.testing.assert_array_equal(fd.execute([x], tune=asked)[0], tuned)
    np.testing.assert_array_equal(fd.execute([x])[0], tuned)
    assert len(clock.seen) == rounds > 0
    assert not any(module._compilations.values())  # pyright: ignore[reportPrivateUsage]


def test_the_environment_asks_for_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_TUNE", "later")
    assert tuning_asked(None) == Tuning(wait=False)
    fd, x = softmax(), rows()
    (plain,) = softmax().execute([x], tune=False)
    (first,) = fd.execute([x])
    np.testing.assert_array_equal(first, plain)
    wait_for_candidates()
    with pytest.raises(NotSupportedError):
        fd.execute([x])


def test_what_compiling_in_the_background_fails_with_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> None:
        raise MemoryError("no room")

    fd, x = softmax(), rows()
    fd.execute([x])
    monkeypatch.setattr(tuning_candidates, "compiled_candidates", lost)
    asked = Tuning(timer=Clock(by_threads), wait=False)

    def call_until_it_is_told() -> None:
        while True:  # as soon as it has failed, which may be at once
            fd.execute([x], tune=asked)

    with pytest.raises(MemoryError, match="no room"):
        call_until_it_is_told()


# --- what is out ------------------------------------------------------------------------------------------------------


def planted(monkeypatch: pytest.MonkeyPatch, what: Callable[[Trial], None]) -> None:
    """Each run of a candidate, but for the proposal, is followed by something."""
    make = module.RealValues.trial

    def trial(self: Any, *arguments: Any) -> Trial:
        made = make(self, *arguments)
        if not is_neighbour(made.params):
            return made

        def run() -> None:
            made.run()
            what(made)

        return replace(made, run=run)

    monkeypatch.setattr(module.RealValues, "trial", trial)


def fates() -> set[Fate]:
    (segment,) = record_of().segments
    return {c.fate for c in segment.candidates if is_neighbour(c.params)} - {Fate.same}


def test_a_wrong_candidate_is_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(trial: Trial) -> None:
        (out,) = trial.outputs.values()
        out.device.fill(out.address + 40, np.float32(0.5).tobytes(), 1, 0)

    planted(monkeypatch, spoil)
    fd, x = softmax(), rows()
    (want,) = fd.execute([x])
    (got,) = fd.execute([x], tune=Tuning(timer=Clock(first_is_slow)))
    np.testing.assert_array_equal(want, got)
    assert fates() == {Fate.wrong}
    (segment,) = record_of().segments
    assert segment.winner == 0
    assert "1 of 8192 elements differ" in next(c.why for c in segment.candidates if c.fate is Fate.wrong)


def test_a_failing_candidate_is_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(trial: Trial) -> None:
        raise RuntimeError("an illegal address")

    planted(monkeypatch, fail)
    fd, x = softmax(), rows()
    (want,) = fd.execute([x])
    (got,) = fd.execute([x], tune=Tuning(timer=Clock(first_is_slow)))
    np.testing.assert_array_equal(want, got)
    assert fates() == {Fate.failed}
    assert "RuntimeError: an illegal address" in fd.explain([x], file=False).stage("tuning.txt")


def test_what_cannot_be_lowered_is_out(monkeypatch: pytest.MonkeyPatch) -> None:
    start = KernelCompiler.start_segment

    def refusing(self: Any, segment: Any, bound: Any, params: Params, *more: Any) -> Any:
        if is_neighbour(params):
            raise SchedulingError("no such loops")
        return start(self, segment, bound, params, *more)

    monkeypatch.setattr(KernelCompiler, "start_segment", refusing)
    softmax().execute([rows()], tune=Tuning(timer=Clock(first_is_slow)))
    (segment,) = record_of().segments
    assert {c.why for c in segment.candidates if c.fate is Fate.refused} == {"no such loops"}


def test_the_same_kernel_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    find = KernelCompiler.candidates

    def with_twin(self: Any, segment: Any, bound: Any) -> Any:
        """No row is in shared memory: none passes through registers on its way there."""
        first, *rest = find(self, segment, bound)
        return first, replace(first, funnel_shifted=("t0",)), *rest

    monkeypatch.setattr(KernelCompiler, "candidates", with_twin)
    fd, clock = softmax(), Clock(first_is_slow)
    fd.execute([rows()], tune=Tuning(timer=clock))
    (segment,) = record_of().segments
    twin = segment.candidates[1]
    assert (twin.fate, twin.why, twin.us) == (Fate.same, "the proposal", None)
    assert twin.params not in clock.seen[0]
    assert "funnel_shifted ('t0',) instead of ()  the same kernel as another: the proposal" in (
        fd.explain([rows()], file=False).stage("tuning.txt")
    )


def test_spills_and_idle_schedulers_are_out_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    from fuser.runtime.kernels.compiled_kernel import Resources

    start = KernelCompiler.start_segment
    begun: list[Params] = []

    def reported(self: Any, segment: Any, bound: Any, params: Params, *more: Any) -> Any:
        """The first neighbour spills, the second takes what the proposal does, others take all registers."""
        finish = start(self, segment, bound, params, *more)
        begun.extend([params] if is_neighbour(params) else [])
        spilled = 16 if begun[:1] == [params] else 0
        many = is_neighbour(params) and begun[1:2] != [params]
        found = Resources(255 if many else 32, spilled, 0, 0)
        return lambda: replace(finish(), resources=found, max_block_size=256)

    monkeypatch.setattr(KernelCompiler, "start_segment", reported)
    monkeypatch.setattr(tuning_candidates, "SCHEDULERS_OF_SM", 9)
    clock = Clock(first_is_slow)
    softmax().execute([rows()], tune=Tuning(timer=clock))
    (segment,) = record_of().segments
    out = {c.fate for c in segment.candidates}
    assert {Fate.spills, Fate.occupancy, Fate.measured} <= out
    ran = {p for params in clock.seen for p in params}
    assert {c.params for c in segment.candidates if c.fate is Fate.measured} == ran
    assert "8 warps on an SM, of the proposal 64" in {c.why for c in segment.candidates}


def test_no_time_left_is_no_failure() -> None:
    softmax().execute([rows()], tune=Tuning(timer=Clock(first_is_slow), seconds=1e-9))
    (segment,) = record_of().segments
    assert segment.winner == 0
    assert {c.fate for c in segment.candidates} <= {Fate.measured, Fate.same, Fate.unmeasured}
    assert segment.best.us == 10.0


def test_a_failing_proposal_fails_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    make = module.RealValues.trial

    def trial(self: Any, *arguments: Any) -> Trial:
        made = make(self, *arguments)

        def run() -> None:
            raise RuntimeError("lost")

        return replace(made, run=run)

    monkeypatch.setattr(module.RealValues, "trial", trial)
    with pytest.raises(RuntimeError, match="lost"):
        softmax().execute([rows()], tune=Tuning(timer=Clock(first_is_slow)))


# --- how it is asked for ----------------------------------------------------------------------------------------------


def test_the_simulator_has_no_times() -> None:
    with pytest.raises(NotSupportedError) as error:
        softmax().execute([rows()], tune=True)
    assert error.value.message == (
        "tuning measures times, and the simulator has none: run it on a GPU, or give tune=fuser.Tuning(timer=...) something "
        "that has"
    )


def test_the_environment_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    fd, x = softmax(), rows()
    monkeypatch.setenv("FUSER_TUNE", "on")
    with pytest.raises(NotSupportedError):
        fd.execute([x])
    fd.execute([x], tune=False)
    assert tuning_asked(None) == Tuning()
    monkeypatch.setenv("FUSER_TUNE", "use")
    assert tuning_asked(None) is None
    fd.execute([x], tune=Tuning(timer=Clock(by_threads)))
    assert record_of().segments[0].winner > 0
    (tuned,) = fd.fec.kernels([x])
    monkeypatch.setenv("FUSER_TUNE", "off")
    (plain,) = kernels(softmax(), x)
    assert plain.content_hash != tuned.content_hash


def kernels(fd: FusionDefinition, x: Any) -> Sequence[Any]:
    fd.program([x])
    return fd.fec.kernels([x])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"wait": 1}, "Tuning: wait is True or False, got int"),
        ({"apart": "no"}, "Tuning: apart is True, False or None, got str"),
        ({"seconds": "1"}, "Tuning: seconds is a number of seconds, got str"),
        ({"limit_s": True}, "Tuning: limit_s is a number of seconds, got bool"),
        ({"rounds": 1.5}, "Tuning: rounds is a whole number, got float"),
        ({"timer": 3}, "Tuning: timer has a method times(trials), and int has none"),
        ({"lock": 3}, "Tuning: lock is the path of a file or None, got int"),
    ],
)
def test_wrong_types(arguments: Any, message: str) -> None:
    with pytest.raises(InputTypeError) as error:
        Tuning(**arguments)
    assert error.value.message == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seconds": 0}, "Tuning: seconds is above 0, got 0"),
        ({"rounds": 0}, "Tuning: rounds is 1 or more, got 0"),
        ({"most": -1}, "Tuning: most is 1 or more, got -1"),
    ],
)
def test_wrong_values(arguments: Any, message: str) -> None:
    with pytest.raises(InputValueError) as error:
        Tuning(**arguments)
    assert error.value.message == message


def test_what_tune_takes() -> None:
    with pytest.raises(InputTypeError) as error:
        softmax().execute([rows()], tune="yes")  # type: ignore[arg-type]
    assert error.value.message == "tune is True, False or a fuser.Tuning, got str"


def test_most_limits_the_candidates() -> None:
    softmax().execute([rows()], tune=Tuning(timer=Clock(first_is_slow), most=3))
    (segment,) = record_of().segments
    assert len(segment.candidates) == 3


# --- other processes --------------------------------------------------------------------------------------------------


def test_a_later_process_takes_the_winner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FUSER_CACHE", "on")
    monkeypatch.setenv("FUSER_CACHE_DIR", str(tmp_path))
    x = rows()
    softmax().execute([x])
    softmax().execute([x], tune=Tuning(timer=Clock(by_threads)))
    best = record_of().segments[0].best
    for _ in range(2):
        TABLE.forget()
        (kernel,) = kernels(softmax(), x)
        assert mark_of(kernel) == best.kernel
    # The second of them found the whole program, as that of the record.
    fd = softmax()
    fd.execute([x])
    assert fd.fec.counters()["programs_from_disk"] == 1


def test_reductions_are_candidates_of_rows() -> None:
    """Other schedulers that take the structure have a say."""
    softmax().execute(
        [rows()], tune=Tuning(timer=Clock(lambda t: 1.0 if isinstance(t.params, ReductionParams) else 2.0))
    )
    (segment,) = record_of().segments
    assert isinstance(segment.best.params, ReductionParams)


def test_what_a_library_computes_is_there_for_the_segments_behind() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], dtype=DataType.Float)
        w = fd.define_tensor([-1, -1], dtype=DataType.Float)
        product = fd.ops.matmul(x * 2.0, w)
        fd.add_output(product + fd.ops.broadcast(fd.ops.sum(product, dims=[1]), [False, True]))
    rng = np.random.default_rng(2)
    x, w = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((96, 40), (40, 64)))
    (want,) = fd.execute([x, w])
    (got,) = fd.execute([x, w], tune=Tuning(timer=Clock(first_is_slow)))
    np.testing.assert_array_equal(want, got)
    assert len(record_of().segments) == 2


def test_several_segments_are_tuned_on_what_the_ones_before_make() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], dtype=DataType.Float)
        rowwise = fd.ops.sum(x, dims=[1])
        columns = fd.ops.sum(x * fd.ops.broadcast(rowwise, [False, True]), dims=[0])
        fd.add_output(x * fd.ops.broadcast(columns, [True, False]))
    x = np.random.default_rng(1).integers(-3, 4, (96, 64)).astype(np.float32)
    (want,) = fd.execute([x])
    (got,) = fd.execute([x], tune=Tuning(timer=Clock(first_is_slow)))
    np.testing.assert_array_equal(want, got)
    made = record_of()
    assert len(made.segments) > 1
    assert all(s.winner for s in made.segments)
    assert {c.fate for s in made.segments for c in s.candidates} <= {Fate.measured, Fate.same, Fate.refused}
    assert CompileOptions() == made.key.options


def test_sizes_of_a_record_are_not_bound_like_others_of_their_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured counts for its very sizes, though a trace of other sizes would do."""
    monkeypatch.setattr(families, "CALLS_PER_TRACE", 2)
    device = SimulatorDevice()
    asked: list[int] = []
    bind = FusionExecutorCache._bind  # noqa: SLF001

    def watched(self: FusionExecutorCache, inputs: Any, *rest: Any) -> Any:
        asked.append(inputs[0].shape[0])
        return bind(self, inputs, *rest)

    monkeypatch.setattr(FusionExecutorCache, "_bind", watched)
    fd, tuned = softmax(), place(device, rows(count=107))
    for count in (101, 102, 103, 104, 105):
        fd.execute([place(device, rows(count=count))])
    assert asked == [101, 102]
    softmax().execute([tuned], tune=Tuning(timer=Clock(by_threads)))
    asked.clear()
    fd.execute([tuned])
    fd.execute([place(device, rows(count=106))])
    assert asked == [107]
    (kernel,) = fd.fec.kernels([tuned])
    assert mark_of(kernel) == record_of().segments[0].best.kernel


def test_each_round_begins_with_another_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of a round runs behind nothing, which takes longer."""
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    firsts: list[object] = []

    class Ordered:
        def times(self, trials: Sequence[Any]) -> list[float]:
            firsts.append(trials[0].params)
            return [1.0 for _ in trials]

    fd = softmax()
    fd.execute([np.ones((8, 64), np.float32)], tune=Tuning(timer=Ordered(), most=3, rounds=6))
    (record,) = TABLE.made()[-1:]
    measured = [c for c in record.segments[0].candidates if c.fate is Fate.measured]
    assert len(measured) > 1
    assert len(set(firsts)) == len(measured)
    assert max(firsts.count(p) for p in firsts) - min(firsts.count(p) for p in firsts) <= 1


def test_a_segment_is_measured_under_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    lock = tmp_path / "lock"

    class Locked:
        def times(self, trials: Sequence[Any]) -> list[float]:
            with lock.open("w") as file, pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return [1.0 for _ in trials]

    softmax().execute([np.ones((8, 64), np.float32)], tune=Tuning(timer=Locked(), most=2, lock=lock))
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
