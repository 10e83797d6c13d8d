"""What other parameters would make of a case: each compiled, verified and timed in one run, beside what is proposed.

    python3 -m benchmarks.forced FILE ...              lines `case: field=value field=value`
    python3 -m benchmarks.forced FILE --module alternatives.py
    python3 -m benchmarks.forced FILE --dry            registers and spills alone, without a GPU

A case is a public one or one of the sweep, `name @seed` one of that seed's list; without a seed lists 0 to 9 are looked
through. Fields are those of the parameters that the scheduler proposes, as `fd.explain` prints them; `rows.batch=4` is a
field of a field, values are Python's. Of several kernels each is asked for the fields. A line without fields times the
proposal, which is timed once for each case in any event. What follows from a field (the extents for which a row still
fits, say) has to be given with it: `extent_ranges=()`.

`--module`: a Python file with `alternatives(name, params) -> Iterable[(text, params)]`, asked for every case.

Everything is compiled on all cores first. Only then is the GPU used, under a lock that all such processes on a machine
share, so that several may run side by side. Exit code 1 if something is wrong or does not compile. Needs torch, but for --dry.
"""

from __future__ import annotations

import argparse
import ast
import fcntl
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, partial
from pathlib import Path
from runpy import run_path
from typing import Any

from benchmarks.case import Case
from benchmarks.cases import public_cases
from benchmarks.compile_case import compile_case
from benchmarks.sweep_cases import sweep_cases
from fuser.compiler import kernel_compiler
from fuser.errors import FuserError, InputValueError
from fuser.runtime.kernels import nvrtc
from fuser.schedule.params import Params
from fuser.schedule.print_params import params_line

SEEDS = range(10)
LOCK = Path(tempfile.gettempdir()) / "gpu.lock"
PROPOSED = "proposed"

Alternatives = Callable[[str, Params], Iterable[tuple[str, Params]]]


@dataclass(slots=True)
class Trial:
    """A case with some parameters, and what was found of it.

    change    None: as proposed
    us        median time of a run; None where it was not timed
    """

    case: Case
    text: str
    change: Callable[[Params], Params] | None
    params: list[str] = field(default_factory=list)
    registers: int = 0
    spill_bytes: int = 0
    us: float | None = None
    error: str = ""


# --- what is asked for ------------------------------------------------------------------------------------------------


@cache
def _cases_of(seed: int | None) -> Mapping[str, Case]:
    return {c.name: c for c in (public_cases() if seed is None else sweep_cases(seed))}


def case_named(text: str) -> Case:
    """The case of `name` or `name @seed`. Raises InputValueError where there is none."""
    name, _, seed = (part.strip() for part in text.partition("@"))
    for lists in (int(seed),) if seed else (None, *SEEDS):
        if name in _cases_of(lists):
            return _cases_of(lists)[name]
    raise InputValueError(f"no case is called {text!r}")


def changed(params: Params, assignments: Sequence[tuple[str, Any]]) -> Params:
    """Parameters with some fields as given. Raises InputValueError for a field that is not there."""
    for path, value in assignments:
        outer, _, inner = path.partition(".")
        if outer not in {f.name for f in fields(params)}:
            raise InputValueError(f"{type(params).__name__} has no field {outer!r}")
        value = changed(getattr(params, outer), [(inner, value)]) if inner else value
        params = replace(params, **{outer: value})
    return params


def assignments_of(text: str) -> list[tuple[str, Any]]:
    """Of `field=value field=value`; a value holds no blanks. Raises InputValueError for anything else."""
    found: list[tuple[str, Any]] = []
    for word in text.split():
        path, equals, value = word.partition("=")
        try:
            found.append((path, ast.literal_eval(value)))
        except (SyntaxError, ValueError) as error:
            raise InputValueError(f"{word!r} is no field=value" if not equals else f"{value!r} is no value") from error
    return found


def trials_of(lines: Iterable[str], alternatives: Alternatives | None = None) -> list[Trial]:
    """Of lines `case: field=value ...`: for each case the proposal first, then what is asked for."""
    asked: dict[str, tuple[Case, list[str]]] = {}
    for line in lines:
        line = line.split("#")[0].strip()
        if line:
            name, _, text = line.partition(":")
            asked.setdefault(name.strip(), (case_named(name), []))[1].append(text.strip())
    trials: list[Trial] = []
    for case, texts in asked.values():
        trials.append(Trial(case, PROPOSED, None))
        for text in texts:
            if text:
                chosen = assignments_of(text)
                trials.append(Trial(case, text, lambda params, chosen=chosen: changed(params, chosen)))
        for text, old, new in _alternatives(case, alternatives):
            trials.append(Trial(case, text, lambda params, old=old, new=new: new if params == old else params))
    return trials


def _alternatives(case: Case, alternatives: Alternatives | None) -> Iterator[tuple[str, Params, Params]]:
    """(text, what is proposed, what to take instead), for each kernel of the case."""
    if alternatives is None:
        return
    proposed: list[Params] = []

    def note(params: Params) -> Params:
        proposed.append(params)
        return params

    with _forcing(note):
        compile_case(case, with_cubin=False)
    for old in proposed:
        for text, new in alternatives(case.name, old):
            yield text, old, new


# --- forcing ----------------------------------------------------------------------------------------------------------

_here = threading.local()


@contextmanager
def _forcing(change: Callable[[Params], Params] | None) -> Iterator[None]:
    """Within, what schedulers propose in this thread is changed."""
    _here.change = change
    try:
        yield
    finally:
        _here.change = None


def install() -> None:
    """Let proposals be changed, and each text be compiled once in this process.

    Nothing is read from the cache of programs on disk: it has the first one that was made of a definition, whatever is asked.
    """
    os.environ["FUSER_CACHE"] = "off"
    propose = kernel_compiler.KernelCompiler.propose
    start_segment = kernel_compiler.KernelCompiler.start_segment
    start_proposal = kernel_compiler.KernelCompiler.start_proposal
    compiled: dict[tuple[Any, ...], nvrtc.CompileResult] = {}
    to_cubin = nvrtc.compile_to_cubin

    def changed_proposal(self: Any, *arguments: Any) -> Params:
        params = propose(self, *arguments)
        change = getattr(_here, "change", None)
        return params if change is None else change(params)

    def asked(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except kernel_compiler.SizesRefusedError as error:
            if getattr(_here, "change", None) is None:
                raise
            raise InputValueError(error.message) from error  # no other scheduler is asked then

    def without_others(self: Any, *arguments: Any) -> Any:
        finish = asked(lambda: start_segment(self, *arguments))
        return lambda: asked(finish)

    def not_replaced(self: Any, segment: Any, bound: Any, params: Params, *more: Any) -> Any:
        if getattr(_here, "change", None) is None:
            return start_proposal(self, segment, bound, params, *more)
        finish = self.start_segment(segment, bound, params, *more)
        return lambda: (finish(), params)

    def compiled_once(source: str, entries: Sequence[str], arch: str, options: Sequence[str] = (), **more: Any) -> Any:
        key = (source, tuple(entries), arch, tuple(options))
        if key not in compiled:
            compiled[key] = to_cubin(source, entries, arch, options, **more)
        return compiled[key]

    kernel_compiler.KernelCompiler.propose = changed_proposal
    kernel_compiler.KernelCompiler.start_segment = without_others
    kernel_compiler.KernelCompiler.start_proposal = not_replaced
    nvrtc.compile_to_cubin = compiled_once


def compile_trial(trial: Trial) -> None:
    """Compile it for an H200, and note its resources or why it does not."""

    def change(params: Params) -> Params:
        params = params if trial.change is None else trial.change(params)
        trial.params.append(params_line(params))
        return params

    try:
        with _forcing(change):
            launches = compile_case(trial.case).launches()
    except Exception as error:
        trial.error = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        return
    found = [launch.kernel.resources for launch in launches]
    trial.registers = max((r.registers for r in found if r), default=0)
    trial.spill_bytes = sum(r.spill_bytes for r in found if r)


# --- measuring --------------------------------------------------------------------------------------------------------


def time_trials(trials: Sequence[Trial], rep_ms: float, seconds: float, done: Callable[[Trial, float], None]) -> None:
    """Verify and time, one after the other, for at most so long; `done` is handed each and the copy's time."""
    import torch

    from benchmarks.case import define_fusion
    from benchmarks.copy_kernels import Copies, CopyTimes
    from benchmarks.inputs import torch_inputs
    from benchmarks.timing import Stopwatch
    from benchmarks.verify import verify

    stopwatch = Stopwatch()
    copies = CopyTimes(Copies(stopwatch))
    end = time.monotonic() + seconds
    before, inputs = "", []
    for trial in trials:
        if time.monotonic() > end:
            trial.error = trial.error or "no time left"
        if not trial.error:
            if trial.case.name != before:
                inputs = []
                torch.cuda.empty_cache()
                before, inputs = (
                    trial.case.name,
                    torch_inputs(trial.case.inputs, int.from_bytes(os.urandom(4), "little")),
                )
            run = partial(define_fusion(trial.case).execute, inputs)
            taken: list[str] = []

            def change(params: Params, trial: Trial = trial, taken: list[str] = taken) -> Params:
                params = params if trial.change is None else trial.change(params)
                taken.append(params_line(params))
                return params

            try:
                with _forcing(change):
                    verdict = verify(trial.case, run, inputs)
                    if not taken:
                        raise RuntimeError("no scheduler was asked: a kernel of earlier parameters ran")
                    trial.error = "" if verdict.is_right else f"WRONG: {verdict.text}"
                    trial.us = stopwatch.measure(run, milliseconds=rep_ms).median
            except Exception as error:
                trial.error = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        done(trial, copies.at(trial.case.nbytes))


# --- the program ------------------------------------------------------------------------------------------------------


def line_of(trial: Trial, proposed: float | None, copy: float | None) -> str:
    """A line of the table: times of the copy and of this, this over what is proposed."""
    times = f"{copy:8.2f} {trial.us:8.2f}" if trial.us is not None and copy is not None else f"{'-':>8} {'-':>8}"
    against = f"{trial.us / proposed:6.3f}" if trial.us is not None and proposed else f"{'-':>6}"
    spills = f" spills {trial.spill_bytes}" if trial.spill_bytes else ""
    return f"{trial.case.name:48s} {times} {against} {trial.registers:4d} {trial.text}{spills} {trial.error}".rstrip()


def main(arguments: Sequence[str]) -> int:
    """Compile, measure, print."""
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.forced", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="lines `case: field=value field=value`")
    parser.add_argument("--module", type=Path, help="a Python file with alternatives(name, params)")
    parser.add_argument("--dry", action="store_true", help="compile only")
    parser.add_argument("--rep-ms", type=float, default=3.0, help="GPU milliseconds of timed runs")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of the GPU in all")
    parser.add_argument("--json", type=Path, help="file for what was found")
    asked = parser.parse_args(arguments)
    install()
    try:
        alternatives = run_path(str(asked.module))["alternatives"] if asked.module else None
        trials = trials_of((line for f in asked.files for line in f.read_text("utf-8").splitlines()), alternatives)
    except FuserError as error:
        parser.error(str(error).splitlines()[0])
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(compile_trial, trials))
    proposed: dict[str, float | None] = {}
    times: list[tuple[Trial, float | None]] = []

    def done(trial: Trial, copy: float | None) -> None:
        if trial.text == PROPOSED:
            proposed[trial.case.name] = trial.us
        times.append((trial, copy))
        print(line_of(trial, proposed.get(trial.case.name), copy), flush=True)

    print(f"{'case':48s} {'copy us':>8} {'us':>8} {'of it':>6} regs parameters")
    if asked.dry:
        for trial in trials:
            done(trial, None)
    else:
        with LOCK.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            time_trials(trials, asked.rep_ms, asked.seconds, done)
    if asked.json:
        found = [asdict(replace(t, case=None, change=None)) | {"case": t.case.name, "copy": copy} for t, copy in times]
        asked.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return int(any(t.error for t in trials))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
