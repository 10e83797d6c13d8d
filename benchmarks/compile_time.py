"""How long a user waits for the first result: definition to loaded kernels, cold, one new process per case.

    python3 -m benchmarks.compile_time                    with a GPU: compiled, loaded, launched once
    python3 -m benchmarks.compile_time --no-gpu           compiled for an H200, not loaded
    python3 -m benchmarks.compile_time --warm             a process before has filled the disk cache (needs a GPU)
    python3 -m benchmarks.compile_time --jobs 8           several processes at a time, each bound to a core of its own

Counted from the first line of the definition: defining, scheduling, lowering, the first NVRTC program of the process, the
load. Not counted: importing, the CUDA context, making the inputs, and the garbage collection that importing has made due
(with torch 80 to 120 ms, in whatever code makes the next few thousand objects). No cache of ours is there, but with --warm a
folder of the case's own, from which the whole program comes: nothing may be proposed or compiled then. The time in our own
Python is the total without NVRTC; of it the longest proposal of a scheduler is shown by itself (`benchmarks.proposals` asks
again, as for other sizes). The exit code is 1 if a median is over its limit.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import pkgutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.case import Case, define_fusion
from benchmarks.cases import select_cases
from benchmarks.compile_case import compile_case
from benchmarks.environment import missing
from benchmarks.inputs import torch_inputs
from benchmarks.proposals import ProposalClock
from benchmarks.results_table import Status
from fuser.errors import NotSupportedError

ROOT = Path(__file__).resolve().parent.parent
MOST_MS = 300.0
MOST_PROPOSAL_MS = 1.0
MOST_PYTHON_MS = 100.0
MOST_WARM_MS = 30.0
_COMMANDS = ("__main__", "doctor", "demo", "cache")


@dataclass(frozen=True, slots=True)
class FirstResult:
    """Milliseconds of one case. `proposal`: the longest call of a scheduler's `propose`. `kernels` compiled by NVRTC."""

    name: str
    status: Status
    text: str = ""
    total: float = 0.0
    nvrtc: float = 0.0
    kernels: int = 0
    proposal: float = 0.0

    @property
    def python(self) -> float:
        return self.total - self.nvrtc


# --- in a new process -------------------------------------------------------------------------------------------------


def import_everything() -> None:
    """All modules, so that none is imported while the clock runs."""
    import fuser

    for module in pkgutil.walk_packages(fuser.__path__, "fuser."):
        if module.name.rpartition(".")[2] not in _COMMANDS:
            importlib.import_module(module.name)


class NvrtcClock:
    """Adds up the time in NVRTC while it is in place."""

    def __init__(self) -> None:
        from fuser.runtime.kernels import nvrtc

        self.seconds = 0.0
        self.programs = 0
        compile_to_cubin = nvrtc.compile_to_cubin

        def timed(*args: Any, **kwargs: Any) -> Any:
            begin = time.perf_counter()
            try:
                return compile_to_cubin(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - begin
                self.programs += 1

        nvrtc.compile_to_cubin = timed


def first_result(case: Case, on_gpu: bool) -> FirstResult:
    """Of a case that is the first in this process."""
    import_everything()
    inputs: list[Any] = []
    if on_gpu:
        import torch

        from fuser.runtime.devices.device import get_device

        get_device("cuda", torch.cuda.current_device())
        inputs = torch_inputs(case.inputs, 0)
        torch.cuda.synchronize()
    clock, proposals = NvrtcClock(), ProposalClock()
    # Else the objects that importing torch has made are looked through at any of our allocations.
    gc.collect()
    with proposals:
        begin = time.perf_counter()
        try:
            if on_gpu:
                define_fusion(case).execute(inputs)
            else:
                compile_case(case)
        except NotSupportedError as error:
            return FirstResult(case.name, "unsupported", str(error).splitlines()[0])
        total = time.perf_counter() - begin
    longest = max((p.first for p in proposals.found), default=0.0)
    return FirstResult(case.name, "ok", "", total * 1e3, clock.seconds * 1e3, clock.programs, longest)


# --- the parent -------------------------------------------------------------------------------------------------------


def environment_of(cache: str | None) -> dict[str, str]:
    """That of a process that measures: our options are the usual ones, and its disk cache is in a folder, or off."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FUSER_")}
    path = os.pathsep.join(p for p in (str(ROOT), environment.get("PYTHONPATH", "")) if p)
    disk = {"FUSER_CACHE": "off"} if cache is None else {"FUSER_CACHE": "on", "FUSER_CACHE_DIR": cache}
    return {**environment, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **disk}


def error_of(stderr: str) -> str:
    """The line of a traceback that says what was raised: some errors add lines that say where."""
    lines = stderr.strip().splitlines()
    begun = [n for n, line in enumerate(lines) if line.startswith("Traceback ")]
    raised = (line for line in lines[begun[-1] + 1 :] if not line.startswith(" ")) if begun else iter(())
    return next(raised, lines[-1] if lines else "")


def in_new_process(name: str, on_gpu: bool, core: int | None, cache: str | None = None) -> FirstResult:
    """`first_result` of the case by that name, by an interpreter of its own. `cache`: a folder, or none."""
    command = [sys.executable, "-m", "benchmarks.compile_time", "--only", name, *([] if on_gpu else ["--no-gpu"])]
    if core is not None:
        command += ["--core", str(core)]
    done = subprocess.run(command, env=environment_of(cache), capture_output=True, text=True, check=False)
    if done.returncode:
        return FirstResult(name, "failed", error_of(done.stderr) or f"exit code {done.returncode}")
    return FirstResult(**json.loads(done.stdout.splitlines()[-1]))


def in_warm_process(name: str, core: int | None) -> FirstResult:
    """The second process of two that share a disk cache; one that schedules or compiles has failed."""
    with tempfile.TemporaryDirectory() as folder:
        in_new_process(name, True, core, folder)
        found = in_new_process(name, True, core, folder)
    if found.status == "ok" and (found.kernels or found.proposal):
        return FirstResult(name, "failed", f"{found.kernels} programs compiled, {found.proposal:.2f} ms of proposing")
    return found


def measure_all(names: Sequence[str], on_gpu: bool, jobs: int, repeat: int, is_warm: bool) -> list[FirstResult]:
    """The middle one of `repeat` processes for each case."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    free = list(cores[:jobs])

    def one(name: str) -> FirstResult:
        # Each job keeps a core to itself, so that neighbours do not share its caches.
        core = free.pop() if free else None
        try:
            runs = [
                in_warm_process(name, core) if is_warm else in_new_process(name, on_gpu, core) for _ in range(repeat)
            ]
        finally:
            if core is not None:
                free.append(core)
        bad = next((r for r in runs if r.status != "ok"), None)
        return bad or sorted(runs, key=lambda r: r.total)[len(runs) // 2]

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(one, names))


def text_of(results: Sequence[FirstResult], where: str, is_warm: bool = False) -> tuple[str, bool]:
    """The table, and whether a median is over its limit."""
    lines = [
        f"{where}; milliseconds",
        f"{'case':40s} {'total':>8s} {'NVRTC':>8s} {'Python':>8s} {'proposal':>8s}  programs",
    ]
    for r in results:
        if r.status == "ok":
            lines.append(f"{r.name:40s} {r.total:8.1f} {r.nvrtc:8.1f} {r.python:8.1f} {r.proposal:8.2f}  {r.kernels}")
        else:
            lines.append(f"{r.name:40s} {r.status}: {r.text}")
    done = [r for r in results if r.status == "ok"]
    if not done:
        return "\n".join(lines), True
    is_over = False
    for what, values, limit in (
        ("definition to loaded kernel", [r.total for r in done], MOST_WARM_MS if is_warm else MOST_MS),
        ("of it in our own Python", [r.python for r in done], MOST_PYTHON_MS),
        ("of that in the longest proposal", [r.proposal for r in done], MOST_PROPOSAL_MS),
    ):
        middle = statistics.median(values)
        is_over |= middle > limit
        verdict = "OVER" if middle > limit else "met"
        lines.append(
            f"median of {len(values)}: {middle:.4g} ms {what}, limit {limit:g}: {verdict}; most {max(values):.4g}"
        )
    return "\n".join(lines), is_over


def main(arguments: Sequence[str]) -> int:
    """Measure, print, write. Returns 1 if a median is over its limit or a case failed."""
    parser = argparse.ArgumentParser(
        prog="python3 -m benchmarks.compile_time", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--case", action="append", default=[], help="only cases with this in their name; repeatable")
    parser.add_argument("--no-gpu", action="store_true", help="compile for an H200 without loading")
    parser.add_argument("--warm", action="store_true", help="where another process has filled the disk cache")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--repeat", type=int, default=1, help="processes per case; the middle one counts")
    parser.add_argument(
        "--out", type=Path, help="folder for compile_time.txt and .json; with --warm compile_time_warm.*"
    )
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--core", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    on_gpu = not asked.no_gpu
    if asked.only is not None:
        if asked.core is not None and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {asked.core})
        (case,) = (c for c in select_cases([asked.only]) if c.name == asked.only)
        found = first_result(case, on_gpu)
        print(json.dumps({name: getattr(found, name) for name in FirstResult.__dataclass_fields__}))
        return 0
    if on_gpu and (lacking := missing()):
        print(f"benchmarks.compile_time {lacking}; --no-gpu compiles without one", file=sys.stderr)
        return 2
    if asked.warm and not on_gpu:
        parser.error("--warm needs a GPU: what is kept on disk are programs of a device")
    names = [c.name for c in select_cases(asked.case)]
    results = measure_all(names, on_gpu, asked.jobs, asked.repeat, asked.warm)
    where = "compiled, loaded and launched" if on_gpu else "compiled for an H200, not loaded"
    text, is_over = text_of(results, "from disk, loaded and launched" if asked.warm else where, asked.warm)
    print(text)
    if asked.out is not None:
        asked.out.mkdir(parents=True, exist_ok=True)
        rows = [{n: getattr(r, n) for n in FirstResult.__dataclass_fields__} for r in results]
        name = "compile_time_warm" if asked.warm else "compile_time"
        (asked.out / f"{name}.txt").write_text(text + "\n", encoding="utf-8")
        (asked.out / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return int(is_over or any(r.status == "failed" for r in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
