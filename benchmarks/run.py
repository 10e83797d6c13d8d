"""The public cases: are they right, how fast, against a plain copy of the same bytes and against other systems.

    make bench                      all cases, peers as they were recorded
    make bench CASE=softmax         those with `softmax` in their name
    python3 -m benchmarks.run --peers eager|all     torch eager, torch.compile measured here, too
    python3 -m benchmarks.run --explain             parameters and launches of every kernel

Needs a GPU and torch. Cases run in a worker process, so that one that faults or hangs costs nothing but itself. The exit
code is 1 if a case is not right, or not supported. Tables, JSON and a chart are written to --out; by default, for all
cases, to benchmarks/results.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.case import Case, define_fusion
from benchmarks.cases import select_cases
from benchmarks.chart import bar_chart
from benchmarks.environment import one_line
from benchmarks.recorded_peers import RecordedPeers
from benchmarks.results_table import Row, summary, table
from benchmarks.supervise import SPOILED, is_spoiled, report, supervise

RESULTS = Path(__file__).resolve().parent / "results"
ENVIRONMENT = "environment"
COMPILE_MODES = {"compile": "default", "compile max": "max-autotune-no-cudagraphs"}
EXPLAINED = ("params.py", "launches", "kernel.cubin")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.run", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--case", action="append", default=[], help="only cases with this in their name; repeatable")
    parser.add_argument("--peers", choices=("none", "eager", "all"), default="none", help="what else to measure here")
    parser.add_argument("--out", type=Path, help="folder for public.txt, public.json, public.svg")
    parser.add_argument("--explain", action="store_true", help="print parameters and launches of every case")
    parser.add_argument("--seed", type=int, help="of the inputs; new ones each time without")
    parser.add_argument("--rep-ms", type=float, default=60.0, help="GPU milliseconds of timed runs per system")
    parser.add_argument("--timeout", type=float, help="seconds for one case; 120, and 900 with --peers all")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


# --- the worker -------------------------------------------------------------------------------------------------------


def work(asked: argparse.Namespace, names: Sequence[str]) -> int:
    """Measure cases and report each."""
    import torch

    from benchmarks.copy_kernels import Copies
    from benchmarks.environment import describe
    from benchmarks.timing import Stopwatch

    stopwatch = Stopwatch()
    copies = Copies(stopwatch)
    report(ENVIRONMENT, environment=describe(), empty=asdict(copies.empty_kernel()))
    by_name = {c.name: c for c in select_cases(())}
    for name in names:
        row = measure(by_name[name], asked, stopwatch, copies)
        report(name, row=asdict(row))
        if row.status == "failed" and is_spoiled():
            return SPOILED
        torch.cuda.empty_cache()
    return 0


def measure(case: Case, asked: argparse.Namespace, stopwatch: Any, copies: Any) -> Row:
    """One case, everything caught."""
    from benchmarks.inputs import torch_inputs
    from benchmarks.verify import verify
    from fuser.errors import NotSupportedError

    seed = asked.seed if asked.seed is not None else int.from_bytes(os.urandom(4), "little")
    found: dict[str, Any] = {"name": case.name, "nbytes": case.nbytes, "status": "failed", "text": ""}
    try:
        fd = define_fusion(case)
        inputs = torch_inputs(case.inputs, seed)
        run = lambda: fd.execute(inputs)  # noqa: E731
        verdict = verify(case, run, inputs)
        found |= {"status": "ok" if verdict.is_right else "wrong", "text": verdict.text}
        found["is_poisoned"] = verdict.is_poisoned
        program = fd.program(inputs)
        found["kernels"] = len(program.launches())
        if asked.explain:
            print(f"--- {case.name}\n{_explained(fd, inputs)}", flush=True)
        found["copy"] = copies.best(case.nbytes).time.median
        ours = stopwatch.measure(run, milliseconds=asked.rep_ms)
        found |= {"ours": ours.median, "spread": (ours.p10, ours.p90)}
        found["host"] = stopwatch.host_time(run)
        found["peers"] = tuple(_peers(case, inputs, asked, stopwatch))
        if not verdict.is_right:
            found["text"] += f", seed {seed}"
    except NotSupportedError as error:
        found |= {"status": "unsupported", "text": _first_line(error)}
    except Exception as error:
        traceback.print_exc()
        found |= {"status": "failed", "text": f"{type(error).__name__}: {_first_line(error)}, seed {seed}"}
    return Row(**found)


def _explained(fd: Any, inputs: Sequence[Any]) -> str:
    stages = fd.explain(inputs, file=False).stages
    return "\n".join(f"{name}: {text.strip()}" for name, text in stages.items() if name.endswith(EXPLAINED))


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or repr(error)).splitlines()[0][:200]


def _peers(case: Case, inputs: Sequence[Any], asked: argparse.Namespace, stopwatch: Any) -> list[tuple[str, float]]:
    """Peers measured here. One that fails is left out, with a line that says so."""
    import torch

    found: list[tuple[str, float]] = []
    modes: dict[str, str | None] = {}
    if asked.peers in ("eager", "all"):
        modes["eager"] = None
    if asked.peers == "all":
        modes |= COMPILE_MODES
    for name, mode in modes.items():
        function: Callable[..., Any] = case.eager(torch)
        try:
            if mode is not None:
                torch._dynamo.reset()  # noqa: SLF001
                function = torch.compile(function, mode=mode, dynamic=False)
            call = lambda f=function: f(*inputs)  # noqa: E731
            found.append((name, stopwatch.measure(call, milliseconds=asked.rep_ms).median))
        except Exception as error:
            print(f"{case.name}: {name} failed: {_first_line(error)}", flush=True)
    return found


# --- the parent -------------------------------------------------------------------------------------------------------


def with_recorded(row: Row, recorded: RecordedPeers) -> Row:
    """The row with scaled figures of the peers that were not measured here."""
    if row.copy is None:
        return row
    measured = {name for name, _ in row.peers}
    scaled = recorded.scaled(row.name, row.nbytes, row.copy)
    more = tuple((f"{peer}*", us) for peer, us in scaled.items() if peer not in measured)
    return replace(row, peers=(*row.peers, *more))


def _row(found: dict[str, Any], case: Case) -> Row:
    """Of what a worker said of a case."""
    if "lost" in found:
        return Row(case.name, case.nbytes, "failed", found["lost"])
    fields = dict(found["row"])
    fields["peers"] = tuple((name, us) for name, us in fields["peers"])
    fields["spread"] = tuple(fields["spread"]) if fields["spread"] is not None else None
    return Row(**fields)


def main(arguments: Sequence[str]) -> int:
    """Run, print, write. Returns 1 if a case is not right."""
    asked = parse(arguments)
    if asked.worker:
        return work(asked, sys.stdin.read().split())
    cases = {c.name: c for c in select_cases(asked.case)}
    recorded = RecordedPeers.load()
    rows: dict[str, Row] = {}
    environment: dict[str, str] = {}
    empty: float | None = None
    timeout = asked.timeout or (900.0 if asked.peers == "all" else 120.0)
    # Compiled peers are made anew: nothing that an earlier version tuned.
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{folder}/inductor")
        os.environ.setdefault("TRITON_CACHE_DIR", f"{folder}/triton")
        for found in supervise("benchmarks.run", arguments, list(cases), timeout):
            name = found["name"]
            if name == ENVIRONMENT:
                environment, empty = found["environment"], found["empty"]["median"]
                continue
            rows[name] = with_recorded(_row(found, cases[name]), recorded)
            print(table([rows[name]]).splitlines()[-1], flush=True)
    ordered = [rows[name] for name in cases]
    title = one_line(environment)
    text = f"{title}\n\n{table(ordered)}\n\n{summary(ordered, empty)}\n"
    print(f"\n{text}")
    out = asked.out if asked.out is not None else None if asked.case else RESULTS
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        data = {"environment": environment, "empty_us": empty, "rows": [asdict(r) for r in ordered]}
        (out / "public.txt").write_text(text, encoding="utf-8")
        (out / "public.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        (out / "public.svg").write_text(bar_chart(ordered, "Public cases", title), encoding="utf-8")
        print(f"written to {out}")
    return 0 if all(r.status == "ok" for r in ordered) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
