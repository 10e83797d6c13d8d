"""The public cases: are they right, how fast, against a plain copy of the same bytes and against other systems.

    make bench                      all cases, torch eager and both modes of torch.compile measured beside them
    make bench CASE=softmax         those with `softmax` in their name
    python3 -m benchmarks.run --peers none|eager    without torch.compile: its times as they were recorded, scaled
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
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.cases import select_cases
from benchmarks.chart import bar_chart
from benchmarks.environment import missing, one_line
from benchmarks.recorded_peers import RecordedPeers
from benchmarks.results_table import Row, row_of, summary, table
from benchmarks.supervise import SPOILED, is_spoiled, report, supervise

RESULTS = Path(__file__).resolve().parent / "results"
ENVIRONMENT = "environment"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.run", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--case", action="append", default=[], help="only cases with this in their name; repeatable")
    parser.add_argument("--peers", choices=("none", "eager", "all"), default="all", help="what else to measure here")
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
    from benchmarks.measure import COMPILE_MODES, Request, measure
    from benchmarks.timing import Stopwatch

    stopwatch = Stopwatch()
    copies = Copies(stopwatch)
    peers = {"none": (), "eager": ("eager",), "all": ("eager", *COMPILE_MODES)}[asked.peers]
    request = Request(asked.seed, asked.rep_ms, peers, asked.explain)
    report(ENVIRONMENT, environment=describe(), empty=asdict(copies.empty_kernel()))
    by_name = {c.name: c for c in select_cases(())}
    for name in names:
        row = measure(by_name[name], request, stopwatch, lambda nbytes: copies.best(nbytes).time.median)
        report(name, row=asdict(row))
        if row.status == "failed" and is_spoiled():
            return SPOILED
        torch.cuda.empty_cache()
    return 0


# --- the parent -------------------------------------------------------------------------------------------------------


def with_recorded(row: Row, recorded: RecordedPeers) -> Row:
    """The row with scaled figures of the peers that were not measured here."""
    if row.copy is None:
        return row
    measured = {name for name, _ in row.peers}
    scaled = recorded.scaled(row.name, row.nbytes, row.copy)
    more = tuple((f"{peer}*", us) for peer, us in scaled.items() if peer not in measured)
    return replace(row, peers=(*row.peers, *more))


def main(arguments: Sequence[str]) -> int:
    """Run, print, write. Returns 1 if a case is not right."""
    asked = parse(arguments)
    if asked.worker:
        return work(asked, sys.stdin.read().split())
    cases = {c.name: c for c in select_cases(asked.case)}
    if lacking := missing():
        print(f"benchmarks.run {lacking}", file=sys.stderr)
        return 2
    recorded = RecordedPeers.load()
    rows: dict[str, Row] = {}
    environment: dict[str, str] = {}
    empty: float | None = None
    timeout = asked.timeout or (900.0 if asked.peers == "all" else 120.0)
    begin = time.perf_counter()
    # Compiled peers are made anew: nothing that an earlier version tuned.
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{folder}/inductor")
        os.environ.setdefault("TRITON_CACHE_DIR", f"{folder}/triton")
        for found in supervise("benchmarks.run", arguments, list(cases), timeout):
            name = found["name"]
            if name == ENVIRONMENT:
                environment, empty = found["environment"], found["empty"]["median"]
                continue
            rows[name] = with_recorded(row_of(found, cases[name]), recorded)
            print(table([rows[name]]).splitlines()[-1], flush=True)
    ordered = [rows[name] for name in cases]
    title = one_line(environment)
    text = f"{title}\n\n{table(ordered)}\n\n{summary(ordered, empty)}\n{time.perf_counter() - begin:.0f} s\n"
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
