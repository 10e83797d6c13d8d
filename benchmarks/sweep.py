"""More than two hundred shapes that nobody tuned for: odd lengths, few and many rows, all dtypes, strided inputs.

    python3 -m benchmarks.sweep                  all of them
    python3 -m benchmarks.sweep --case softmax --seconds 60
    python3 -m benchmarks.sweep --list           the names, without a GPU

Each is verified against float64 and timed against a plain copy of the same bytes. Needs a GPU and torch. The exit code is
1 if one is not right. `--seed` draws another list and other inputs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.environment import missing, one_line
from benchmarks.results_table import Row, geomean, row_of, table
from benchmarks.run import ENVIRONMENT
from benchmarks.supervise import SPOILED, is_spoiled, report, supervise
from benchmarks.sweep_cases import sweep_cases

LARGE = 16 * 10**6
"""Bytes above which memory, and not the launch, decides."""
BINS = 12
_TIMEOUT = 120.0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.sweep", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--case", action="append", default=[], help="only cases with this in their name; repeatable")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no case after so long")
    parser.add_argument("--seed", type=int, default=0, help="of the list and of the inputs")
    parser.add_argument("--rep-ms", type=float, default=10.0, help="GPU milliseconds of timed runs per case")
    parser.add_argument("--out", type=Path, help="folder for sweep.txt and sweep.json")
    parser.add_argument("--list", action="store_true", help="print the names and bytes, run nothing")
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def work(asked: argparse.Namespace, names: Sequence[str]) -> int:
    """Measure cases and report each, until the time is over."""
    import torch

    from benchmarks.copy_kernels import Copies, CopyTimes
    from benchmarks.environment import describe
    from benchmarks.measure import Request, measure
    from benchmarks.timing import Stopwatch

    stopwatch = Stopwatch()
    times = CopyTimes(Copies(stopwatch))
    report(ENVIRONMENT, environment=describe())
    by_name = {c.name: c for c in sweep_cases(asked.seed)}
    for name in names:
        if asked.until is not None and time.time() > asked.until:
            report(name, skipped=True)
            continue
        row = measure(by_name[name], Request(asked.seed, asked.rep_ms), stopwatch, times.at)
        report(name, row=asdict(row))
        if row.status == "failed" and is_spoiled():
            return SPOILED
        torch.cuda.empty_cache()
    return 0


def histogram(fractions: Sequence[float]) -> str:
    """Counts by tenths of the copy's speed, a bar each; the last bin is open."""
    counts = [0] * BINS
    for fraction in fractions:
        counts[min(int(fraction * 10), BINS - 1)] += 1
    scale = max(1.0, max(counts) / 60)
    return "\n".join(
        f"{k / 10:.1f}{'+' if k == BINS - 1 else ' '} {n:4d} {'#' * round(n / scale)}".rstrip()
        for k, n in enumerate(counts)
    )


def summary(rows: Sequence[Row], skipped: int) -> str:
    """Counts, means, histogram, the ten slowest, and all that is not right."""
    fractions = {r.name: f for r in rows if (f := r.fraction) is not None}
    large = [fractions[r.name] for r in rows if r.name in fractions and r.nbytes >= LARGE]
    counts = ", ".join(
        f"{n} {status}"
        for status in ("ok", "wrong", "failed", "unsupported")
        if (n := sum(r.status == status for r in rows))
    )
    lines = [f"{len(rows)} cases: {counts or 'none'}" + (f"; {skipped} not begun in time" if skipped else "")]
    for what, values in (("all", list(fractions.values())), (f"those of {LARGE // 10**6} MB and more", large)):
        mean = geomean(values)
        if mean is not None:
            lines.append(f"geometric mean of {len(values)}, {what}: {mean:.3f} of a copy; least {min(values):.3f}")
    if large:
        lines += ["", f"fraction of a copy, {LARGE // 10**6} MB and more", histogram(large)]
    worst = sorted((r for r in rows if r.name in fractions and r.nbytes >= LARGE), key=lambda r: fractions[r.name])
    if worst:
        lines += ["", "the slowest ten", table(worst[:10])]
    not_right = [r for r in rows if r.status != "ok"]
    if not_right:
        lines += ["", "not right", table(not_right)]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Run, print, write. Returns 1 if a case is not right."""
    asked = parse(arguments)
    if asked.worker:
        return work(asked, sys.stdin.read().split())
    cases = {c.name: c for c in sweep_cases(asked.seed) if not asked.case or any(p in c.name for p in asked.case)}
    if asked.list:
        for case in cases.values():
            print(f"{case.nbytes / 1e6:10.2f} MB  {case.name}")
        print(f"{len(cases)} cases, {sum(c.nbytes for c in cases.values()) / 1e9:.1f} GB")
        return 0
    if lacking := missing():
        print(f"benchmarks.sweep {lacking}", file=sys.stderr)
        return 2
    rows: dict[str, Row] = {}
    skipped = 0
    environment: dict[str, str] = {}
    limit = [] if asked.seconds == float("inf") else ["--until", str(time.time() + asked.seconds)]
    for found in supervise("benchmarks.sweep", [*arguments, *limit], list(cases), _TIMEOUT):
        name = found["name"]
        if name == ENVIRONMENT:
            environment = found["environment"]
        elif "skipped" in found:
            skipped += 1
        else:
            rows[name] = row_of(found, cases[name])
            print(table([rows[name]]).splitlines()[-1], flush=True)
    ordered = [rows[name] for name in cases if name in rows]
    title = f"{one_line(environment)}, seed {asked.seed}"
    text = f"{title}\n\n{table(ordered)}\n\n{summary(ordered, skipped)}\n"
    print(f"\n{title}\n\n{summary(ordered, skipped)}")
    if asked.out is not None:
        asked.out.mkdir(parents=True, exist_ok=True)
        data = {"environment": environment, "seed": asked.seed, "rows": [asdict(r) for r in ordered]}
        (asked.out / "sweep.txt").write_text(text, encoding="utf-8")
        (asked.out / "sweep.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        print(f"written to {asked.out}")
    return 0 if ordered and all(r.status == "ok" for r in ordered) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
