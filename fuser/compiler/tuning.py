"""Tuning: the parameters of each segment by measuring what schedulers would rank by estimates.

    candidates   the proposal of the segment's scheduler, its neighbours (schedule/tuning_candidates.py), other schedulers'
    compiled     side by side; what is not lowered, spills more than the proposal, or leaves schedulers of an SM idle is out
    checked      run once on the real inputs of the call, outputs redirected (segment_trial.py); what fails, takes longer than
                 the limit or makes something else than the proposal is out
    measured     in rounds, one run of each after the other, so that whatever drifts drifts for all
    chosen       the least median, if it beat the proposal in more than three of four rounds; a near-tie is the proposal's

Who wins goes into a record with all others and their times (tuning_record.py), which later calls are compiled by.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Protocol
from weakref import WeakKeyDictionary

from fuser import locks, options
from fuser.compiler.bind_inputs import BoundInputs
from fuser.compiler.kernel_compiler import CompileOptions
from fuser.compiler.program_cache import Planned, ProgramCache
from fuser.compiler.segment_trial import Expected, RealValues, Trial
from fuser.compiler.trial_process import TrialProcess
from fuser.compiler.tuning_candidates import Candidate, Compilation
from fuser.compiler.tuning_progress import TuningLine, TuningStep
from fuser.compiler.tuning_record import (
    TABLE,
    Fate,
    Measured,
    SegmentTuning,
    TuningKey,
    TuningRecord,
    mark_of,
    outputs_of,
)
from fuser.errors import InputTypeError, InputValueError, LaunchMemoryError, NotSupportedError
from fuser.ir.fusion.fusion import Fusion
from fuser.records import record
from fuser.runtime.array_view import ArrayView
from fuser.runtime.arrays.frameworks import framework_for
from fuser.runtime.arrays.storage import Framework
from fuser.runtime.cache.file_lock import locked
from fuser.runtime.devices.device import Device
from fuser.runtime.devices.streams import own_stream
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.schedule.params import Params

SLOWER = 2.0
"""Times the best median: after the first rounds the slower ones are not measured on."""
FIRST_ROUNDS = 3


class Timer(Protocol):
    """What takes times. `benchmarks` and tests have others than the GPU's."""

    def times(self, trials: Sequence[Trial]) -> Sequence[float]:
        """Microseconds of one run of each trial, one after the other."""
        ...


@record
class Tuning:
    """How tuning goes about it: what `tune=` of an execution takes beside True and False.

    seconds  for all segments of a program; what is not measured by then cannot win
    rounds   runs of each candidate that takes part to the end
    most     candidates of a segment
    limit_s  a candidate whose first run takes longer is out
    apart    whether candidates run for the first time in a process of their own, so that one that faults or hangs takes nothing
             with it; None: on a GPU. It takes a second to start, and copies of what segments read
    wait     whether the first call waits for candidates to be compiled. If not, calls run what is proposed while they are, and
             the first one behind that measures and goes over to the winner
    timer    what takes the times; None: events of the GPU. The simulator has no times, so that it needs one
    lock     a file that is locked while a segment is measured, so that processes that tune on one GPU take turns; candidates
             are compiled before. None: nothing else uses the GPU

    Raises InputTypeError and InputValueError for other values.
    """

    seconds: float = 60.0
    rounds: int = 11
    most: int = 16
    limit_s: float = 5.0
    apart: bool | None = None
    wait: bool = True
    timer: Timer | None = None
    lock: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        for name in ("seconds", "limit_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise InputTypeError(f"Tuning: {name} is a number of seconds, got {type(value).__name__}")
            if not value > 0:
                raise InputValueError(f"Tuning: {name} is above 0, got {value}")
        for name in ("rounds", "most"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise InputTypeError(f"Tuning: {name} is a whole number, got {type(value).__name__}")
            if value < 1:
                raise InputValueError(f"Tuning: {name} is 1 or more, got {value}")
        if self.apart is not None and not isinstance(self.apart, bool):
            raise InputTypeError(f"Tuning: apart is True, False or None, got {type(self.apart).__name__}")
        if not isinstance(self.wait, bool):
            raise InputTypeError(f"Tuning: wait is True or False, got {type(self.wait).__name__}")
        if self.timer is not None and not callable(getattr(self.timer, "times", None)):
            raise InputTypeError(f"Tuning: timer has a method times(trials), and {type(self.timer).__name__} has none")
        if self.lock is not None and not isinstance(self.lock, (str, os.PathLike)):
            raise InputTypeError(f"Tuning: lock is the path of a file or None, got {type(self.lock).__name__}")


def tuning_asked(tune: object) -> Tuning | None:
    """What `tune=` of an execution asks for: None is what FUSER_TUNE says. Raises InputTypeError for what is none of these."""
    if tune is None:
        mode = options.TUNE.get()
        return Tuning(wait=mode == "on") if mode in ("on", "later") else None
    if isinstance(tune, bool):
        return Tuning() if tune else None
    if isinstance(tune, Tuning):
        return tune
    raise InputTypeError(f"tune is True, False or a fuser.Tuning, got {type(tune).__name__}")


MOST_BEGUN = 16
"""Sizes of a fusion whose candidates are kept until a call measures them: those that never come again should not be."""

_lock = locks.reentrant_lock()
"""One tuning at a time in a process: two would time each other."""


@record
class Tuned:
    """What came of it.

    is_new    something was measured: the next program for the inputs is another one
    is_later  nothing was, for a reason that passes: the next call is to ask again
    """

    is_new: bool
    is_later: bool


def tune_program(
    cache: ProgramCache, bound: BoundInputs, device: Device, compile_options: CompileOptions, tuning: Tuning
) -> Tuned:
    """Measure for these inputs, unless there is a record that holds; the next program for them is compiled by it.

    Where nothing is measured the log says why: while a stream is captured, for inputs without elements, without memory for it,
    and, with a Tuning that does not wait, while candidates are compiled.
    Raises NotSupportedError for the simulator without a timer, and what the proposal's own kernels raise.
    """
    with _lock:
        if cache.tuned(bound, device, compile_options) is not None:
            return Tuned(is_new=False, is_later=False)
        if any(0 in t.sizes for t in bound.tensors.values()):
            return _not_tuned("an input has no elements", again=False)
        framework, stream = _framework_and_stream(bound, device)
        if device.is_capturing(stream):
            return _not_tuned("nothing is measured while a stream is captured", again=True)
        key = cache.tuning_key(bound, device, compile_options)
        if key is None:
            return Tuned(is_new=False, is_later=False)
        fusion, parts = cache.planned(bound, device, compile_options)
        compilation = _compilation(cache, key, parts, device, tuning)
        if not tuning.wait and not compilation.is_done:
            return _not_tuned("candidates are being compiled", again=True)
        run = _Run(fusion, parts, bound, device, framework, stream, tuning, compilation.candidates_of)
        try:
            made = run.tuned(key)
        except LaunchMemoryError as error:
            # Beside the call's own memory there is none for what candidates write.
            options.logger().warning("not tuned: %s", error.message)
            return Tuned(is_new=False, is_later=False)
        finally:
            _compilations.get(cache, {}).pop(key, None)
        if made is None:
            return _not_tuned("no segment has a kernel", again=False)
        TABLE.add(made)
        cache.take_winners(bound, device, compile_options, run.winners)
        return Tuned(is_new=True, is_later=False)


_compilations: WeakKeyDictionary[ProgramCache, dict[TuningKey, Compilation]] = WeakKeyDictionary()
"""Those that calls which do not wait have begun, until their candidates are measured."""


def _compilation(
    cache: ProgramCache, key: TuningKey, parts: Sequence[Planned], device: Device, tuning: Tuning
) -> Compilation:
    """That of the candidates for a key, which goes on in the background if the call does not wait."""
    begun = _compilations.get(cache, {}).get(key)
    if begun is not None:
        return begun
    made = Compilation(parts, device, tuning.most)
    if not tuning.wait:
        made.start()
        begun_here = _compilations.setdefault(cache, {})
        begun_here[key] = made
        while len(begun_here) > MOST_BEGUN:
            begun_here.pop(next(iter(begun_here)))
    return made


def _not_tuned(why: str, *, again: bool) -> Tuned:
    options.logger().info("not tuned: %s", why)
    return Tuned(is_new=False, is_later=again)


def _framework_and_stream(bound: BoundInputs, device: Device) -> tuple[Framework, int]:
    """Whose memory is taken, and the stream that the call's work goes to."""
    views = [v for v in bound.values if isinstance(v, ArrayView) and v.array is not None]
    framework = framework_for(views[0] if views else None, device)
    if device.kind != "cuda":
        return framework, 0
    stream = framework.current_stream(device)
    if stream is None:
        others = (framework_for(v, device).current_stream(device) for v in views if not v.is_host)
        stream = next((s for s in others if s is not None), None)
    return framework, own_stream(device) if stream is None else stream


class _Run:
    """One tuning of one program."""

    def __init__(
        self,
        fusion: Fusion,
        parts: Sequence[Planned],
        bound: BoundInputs,
        device: Device,
        framework: Framework,
        stream: int,
        tuning: Tuning,
        candidates_of: Callable[[Planned], Sequence[Candidate]],
    ) -> None:
        self._fusion = fusion
        self._parts = parts
        self._bound = bound
        self._device = device
        self._framework = framework
        self._stream = stream
        self._tuning = tuning
        self._candidates_of = candidates_of
        self._deadline = time.monotonic() + tuning.seconds
        self.winners: list[tuple[Planned, Params, CompiledKernel]] = []

    def tuned(self, key: TuningKey) -> TuningRecord | None:
        """The record; None where no segment has a kernel."""
        segments: list[SegmentTuning] = []
        count = sum(p.kernel is not None for p in self._parts)
        with (
            self._timer() as timer,
            RealValues(self._fusion, self._bound, self._device, self._framework, self._stream) as real,
            TuningLine(count) as line,
            TrialProcess(self._device) as process,
        ):
            apart = self._device.kind == "cuda" if self._tuning.apart is None else self._tuning.apart
            if apart:
                process.start()
            for part in self._parts:
                call = part.segment.call
                if call is not None:
                    real.call(part.segment, call)
                elif part.kernel is None:
                    real.view(part.segment)
                else:
                    segments.append(self._segment(part, real, timer, line, process if apart else None, len(segments)))
        return TuningRecord.of(key, segments) if segments else None

    @contextmanager
    def _timer(self) -> Generator[Timer]:
        if self._tuning.timer is not None:
            yield self._tuning.timer
            return
        if self._device.kind != "cuda":
            raise NotSupportedError(
                f"tuning measures times, and the {self._device.kind} has none: run it on a GPU, or give "
                "tune=fuser.Tuning(timer=...) something that has"
            )
        from fuser.runtime.arrays.cuda_timer import CudaTimer

        own = CudaTimer(self._device, self._framework, self._stream)
        try:
            yield own
        finally:
            own.close()

    def _segment(
        self,
        part: Planned,
        real: RealValues,
        timer: Timer,
        line: TuningLine,
        process: TrialProcess | None,
        number: int,
    ) -> SegmentTuning:
        kernel = part.kernel
        assert kernel is not None
        candidates = list(self._candidates_of(part))
        begin = time.monotonic()
        with locked(self._tuning.lock):
            self._deadline += time.monotonic() - begin
            made = real.outputs_for(part.segment, kernel)
            proposal = real.trial(part.segment, candidates[0].params, kernel, made)
            real.poison(proposal)
            proposal.run()
            self._device.synchronize(self._stream)
            expected = Expected(part.segment, self._bound, proposal)
            others = real.outputs_for(part.segment, kernel)
            try:
                # All of them write the same memory: where it lies is no difference between them.
                again = real.trial(part.segment, candidates[0].params, kernel, others)
                trials = {
                    n: real.trial(part.segment, c.params, c.kernel, others)
                    for n, c in enumerate(candidates)
                    if n and c.fate is None and c.kernel is not None
                }
                if process is not None and trials:
                    self._tried_apart(candidates, trials, process)
                found = self._measured(candidates, {0: again, **trials}, expected, real, timer, line, number)
            finally:
                self._device.synchronize(self._stream)
                real.release(others)
        real.keep(made)
        winner = chosen(found)
        best = candidates[winner]
        assert best.kernel is not None
        if winner:
            self.winners.append((part, best.params, best.kernel))
        candidates_made = tuple(_measured_of(c, times) for c, times in zip(candidates, found, strict=True))
        _log(number, candidates_made, winner)
        return SegmentTuning(outputs_of(part.segment), candidates_made, winner)

    # --- measuring ----------------------------------------------------------------------------------------------------

    def _tried_apart(self, candidates: list[Candidate], trials: dict[int, Trial], process: TrialProcess) -> None:
        """Run all trials in the child first; those that fail there are out, which `candidates` are told."""
        slots = {name: t for trial in trials.values() for name, t in trial.slots.items()}
        written = {name for trial in trials.values() for name in trial.outputs}
        programs = {n: trial.program for n, trial in trials.items()}
        for n, outcome in process.run(programs, slots, written, self._tuning.limit_s).items():
            candidates[n] = _out(candidates[n], Fate.slow if outcome.is_slow else Fate.failed, outcome.why)
            del trials[n]

    def _measured(
        self,
        candidates: list[Candidate],
        trials: dict[int, Trial],
        expected: Expected,
        real: RealValues,
        timer: Timer,
        line: TuningLine,
        number: int,
    ) -> list[list[float]]:
        """The times of each candidate, none of those that are out; says in `candidates` why they are."""
        times: list[list[float]] = [[] for _ in candidates]
        for n, trial in list(trials.items()):
            if n == 0:
                continue
            out = (
                _out(candidates[n], Fate.unmeasured, "")
                if self._is_over()
                else self._checked(candidates[n], trial, expected, real)
            )
            if out is not None:
                candidates[n] = out
                del trials[n]
            line.tell(self._step(number, n, candidates, times))
        for turn in range(self._tuning.rounds):
            if turn and self._is_over():
                break
            if turn == FIRST_ROUNDS:
                best = min(statistics.median(times[n]) for n in trials)
                trials = {n: t for n, t in trials.items() if n == 0 or statistics.median(times[n]) <= SLOWER * best}
            # What runs behind nothing takes longer: in each round another one begins.
            first = turn % len(trials)
            order = [*islice(trials, first, None), *islice(trials, first)]
            for n, us in zip(order, timer.times([trials[n] for n in order]), strict=True):
                times[n].append(us)
            line.tell(self._step(number, len(candidates) - 1, candidates, times))
        return times

    def _checked(self, candidate: Candidate, trial: Trial, expected: Expected, real: RealValues) -> Candidate | None:
        """The candidate with why it is out, after a run on poisoned outputs; None if nothing speaks against it."""
        try:
            real.poison(trial)
            self._device.synchronize(self._stream)
            begin = time.monotonic()
            trial.run()
            self._device.synchronize(self._stream)
            took = time.monotonic() - begin
            if took > self._tuning.limit_s and self._device.kind == "cuda":
                return _out(candidate, Fate.slow, f"{took:.1f} s")
            text = expected.difference(trial)
        except Exception as error:
            # Whatever a candidate does, the proposal is there.
            return _out(candidate, Fate.failed, f"{type(error).__name__}: {str(error).splitlines()[0]}")
        return None if text is None else _out(candidate, Fate.wrong, text)

    def _is_over(self) -> bool:
        return time.monotonic() > self._deadline

    def _step(
        self, segment: int, candidate: int, candidates: Sequence[Candidate], times: Sequence[Sequence[float]]
    ) -> TuningStep:
        medians = [statistics.median(t) for t in times if t]
        left = max(0.0, self._deadline - time.monotonic())
        return TuningStep(segment, candidate, len(candidates), min(medians, default=None), left)


def _out(candidate: Candidate, fate: Fate, why: str) -> Candidate:
    return Candidate(candidate.params, candidate.kernel, fate, why)


def _measured_of(candidate: Candidate, times: Sequence[float]) -> Measured:
    fate = candidate.fate or Fate.measured
    us = float(statistics.median(times)) if times and fate is Fate.measured else None
    text = "" if candidate.kernel is None else mark_of(candidate.kernel)
    return Measured(candidate.params, fate, text, us, len(times), candidate.why)


def chosen(times: Sequence[Sequence[float]]) -> int:
    """Number of the winner, of runs that were taken in rounds; the proposal is number 0.

    It is that of least median, if it was faster than the proposal in more than three of four rounds.
    """
    best = min((n for n, t in enumerate(times) if t), key=lambda n: statistics.median(times[n]))
    pairs = list(zip(times[best], times[0], strict=False))
    return best if 4 * sum(mine < other for mine, other in pairs) > 3 * len(pairs) else 0


def _log(number: int, candidates: Sequence[Measured], winner: int) -> None:
    was, best = candidates[0].us, candidates[winner].us
    options.logger().info(
        "segment %d tuned: %d candidates, the proposal takes %.2f us, number %d is best with %.2f us",
        number,
        len(candidates),
        was,
        winner,
        best,
    )
