"""What tuning gains over what schedulers propose: each case tuned on its own inputs, with the time of every segment.

    python3 -m benchmarks.tuned [PART OF A NAME ...] [--seed N] [--losers] [--json FILE]

Public cases, or with `--seed` those of the sweep. `--losers` prints all candidates of each segment. Times are those that tuning
takes: one run of a kernel with a cold second-level cache. Needs torch and a GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.case import Case, define_fusion
from benchmarks.cases import public_cases
from benchmarks.sweep_cases import sweep_cases
from fuser import Tuning
from fuser.compiler.tuning_record import TABLE, Fate, TuningRecord, record_text
from fuser.schedule.neighbours import difference


def tuned(case: Case, tuning: Tuning) -> TuningRecord | None:
    """The record of a case, on random inputs; None where nothing is measured."""
    import torch

    from benchmarks.inputs import torch_inputs

    torch.cuda.empty_cache()
    before = len(TABLE.made())
    define_fusion(case).execute(torch_inputs(case.inputs, 0), tune=tuning)
    torch.cuda.synchronize()
    return next(iter(TABLE.made()[before:]), None)


def lines_of(case: Case, record: TuningRecord, seconds: float) -> list[str]:
    """A line for each segment: proposed, best, their quotient, how the best differs."""
    lines: list[str] = []
    for segment in record.segments:
        proposal, best = segment.candidates[0], segment.best
        assert proposal.us is not None
        assert best.us is not None
        out = [c.fate.name for c in segment.candidates if c.fate not in (Fate.measured, Fate.same)]
        what = "as proposed" if segment.winner == 0 else difference(proposal.params, best.params)
        counts = f"{len(segment.candidates)} candidates" + (f", out: {' '.join(out)}" if out else "")
        times = f"{proposal.us:9.2f} {best.us:9.2f} {best.us / proposal.us:6.3f} {seconds:5.1f} s"
        lines.append(f"{case.name:44s} {times}  {what} ({counts})")
    return lines


def main(arguments: Sequence[str]) -> int:
    """Tune and print. Returns 1 if a case failed."""
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.tuned", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of the names of cases")
    parser.add_argument("--seed", type=int, help="the sweep's cases of this seed instead of the public ones")
    parser.add_argument("--losers", action="store_true", help="print all candidates")
    parser.add_argument("--json", type=Path, help="file for what was found")
    asked = parser.parse_args(arguments)
    cases = public_cases() if asked.seed is None else sweep_cases(asked.seed)
    chosen = [c for c in cases if not asked.names or any(n in c.name for n in asked.names)]
    quotients: list[float] = []
    found: list[dict[str, object]] = []
    failed = 0
    print(f"{'case':44s} {'us':>9} {'best us':>9} {'of it':>6}")
    for case in chosen:
        begin = time.monotonic()
        try:
            record = tuned(case, Tuning())
        except Exception as error:
            failed += 1
            print(f"{case.name:44s} {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
            continue
        if record is None:
            continue
        print("\n".join(lines_of(case, record, time.monotonic() - begin)), flush=True)
        if asked.losers:
            print(record_text(record), flush=True)
        for segment in record.segments:
            assert segment.candidates[0].us is not None
            assert segment.best.us is not None
            quotients.append(segment.best.us / segment.candidates[0].us)
        found.append({"case": case.name, "text": record_text(record)})
    if quotients:
        mean = math.exp(sum(map(math.log, quotients)) / len(quotients))
        print(f"{len(quotients)} segments: geometric mean of best over proposed {mean:.4f}")
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
