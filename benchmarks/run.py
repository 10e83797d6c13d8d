"""Sets of cases: are they right, how fast, against a plain copy of the same bytes and against other systems.

    make bench                      the public cases, torch eager and both modes of torch.compile measured beside them
    make bench SET=everyday         344 fusions of real models, beside eager and torch.compile's default mode
    make bench CASE=softmax         those with `softmax` in their name
    python3 -m benchmarks.run --peers none|eager    without torch.compile: its times as they were recorded, scaled
    python3 -m benchmarks.run --explain             parameters and launches of every kernel
    python3 -m benchmarks.run --set everyday --part 1/2 --out FOLDER        half of them; then the other half
    python3 -m benchmarks.run --set everyday --merge FOLDER/*.json          both as one result

Needs a GPU and torch. Cases run in a worker process, so that one that faults or hangs costs nothing but itself. With --jobs
other processes first compile what the worker will run, many cases at a time; nothing is timed then. The exit code is 1 if a
case is not right, or not supported. Tables, JSON and a chart are written to --out; by default, for all cases, to
benchmarks/results.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.case_sets import PEERS, SETS, chosen_cases, part_text
from benchmarks.compile_ahead import compile_ahead
from benchmarks.environment import missing
from benchmarks.recorded_peers import RecordedPeers
from benchmarks.results_files import Results, merged, write
from benchmarks.results_table import Row, row_of, table
from benchmarks.supervise import SPOILED, is_spoiled, report, supervise

RESULTS = Path(__file__).resolve().parent / "results"
ENVIRONMENT = "environment"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.run", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--set", choices=SETS, default="public", help="which cases")
    parser.add_argument("--case", action="append", default=[], help="only cases with this in their name; repeatable")
    parser.add_argument("--part", type=part_text, help="K/N: every N-th case from the K-th on; needs --out")
    parser.add_argument("--merge", type=Path, nargs="+", metavar="JSON", help="measure nothing: parts as one result")
    parser.add_argument("--peers", choices=PEERS, help="what else to measure; all, and for everyday compile")
    parser.add_argument("--jobs", type=int, help="processes that compile ahead; 0, and for everyday one a core")
    parser.add_argument("--out", type=Path, help="folder for table, JSON and chart")
    parser.add_argument("--explain", action="store_true", help="print parameters and launches of every case")
    parser.add_argument("--seed", type=int, help="of the inputs; new ones each time without")
    parser.add_argument("--rep-ms", type=float, default=60.0, help="GPU milliseconds of timed runs per system")
    parser.add_argument("--timeout", type=float, help="seconds for one case; 120, and 900 with --peers all")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.part is not None and asked.out is None:
        parser.error("--part needs --out: the folder where the parts lie until they are merged")
    everyday = asked.set == "everyday"
    asked.peers = asked.peers or ("compile" if everyday else "all")
    asked.jobs = asked.jobs if asked.jobs is not None else (os.cpu_count() or 1) if everyday else 0
    asked.timeout = asked.timeout or (900.0 if asked.peers == "all" else 120.0)
    return asked


# --- the worker -------------------------------------------------------------------------------------------------------


def work(asked: argparse.Namespace, names: Sequence[str]) -> int:
    """Measure cases and report each."""
    import torch

    from benchmarks.copy_kernels import Copies
    from benchmarks.environment import describe
    from benchmarks.measure import Request, measure
    from benchmarks.timing import Stopwatch

    stopwatch = Stopwatch()
    copies = Copies(stopwatch)
    request = Request(asked.seed, asked.rep_ms, PEERS[asked.peers], asked.explain)
    report(ENVIRONMENT, environment=describe(), empty=asdict(copies.empty_kernel()))
    by_name = {c.name: c for c in SETS[asked.set]()}
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
    if asked.merge:
        results = merged(asked.set, asked.merge, [c.name for c in SETS[asked.set]()])
    elif lacking := missing():
        print(f"benchmarks.run {lacking}", file=sys.stderr)
        return 2
    else:
        results = measured(asked, arguments)
    print(f"\n{results.text()}")
    out = asked.out if asked.out is not None else None if asked.case else RESULTS
    if out is not None:
        suffix = "" if asked.part is None else ".{}of{}".format(*asked.part)
        write(results, out, asked.set + suffix)
        print(f"written to {out}")
    return 0 if all(r.status == "ok" for r in results.rows) else 1


def measured(asked: argparse.Namespace, arguments: Sequence[str]) -> Results:
    """All cases that are asked for, as workers measured them; each is printed as it comes."""
    cases = {c.name: c for c in chosen_cases(asked.set, asked.case, asked.part)}
    recorded = RecordedPeers.load()
    rows: dict[str, Row] = {}
    environment: dict[str, str] = {}
    empty: float | None = None
    begin = time.perf_counter()
    # Compiled peers are made anew: nothing that an earlier version tuned.
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{folder}/inductor")
        os.environ.setdefault("TRITON_CACHE_DIR", f"{folder}/triton")
        if asked.jobs > 0:
            os.environ.setdefault("FUSER_CACHE_DIR", f"{folder}/fuser")
            compile_ahead(asked.set, list(cases), asked.peers, asked.jobs, asked.timeout)
            print(f"compiled ahead: {time.perf_counter() - begin:.0f} s", flush=True)
        for found in supervise("benchmarks.run", arguments, list(cases), asked.timeout):
            name = found["name"]
            if name == ENVIRONMENT:
                environment, empty = found["environment"], found["empty"]["median"]
                continue
            rows[name] = with_recorded(row_of(found, cases[name]), recorded)
            print(table([rows[name]]).splitlines()[-1], flush=True)
    ordered = [rows[name] for name in cases]
    return Results(asked.set, environment, empty, ordered, time.perf_counter() - begin)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
