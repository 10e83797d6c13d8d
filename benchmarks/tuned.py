"""What tuning gains over what schedulers propose: each case tuned on its own inputs, with the time of every segment.

    python3 -m benchmarks.tuned [PART OF A NAME ...] [--seed N] [--losers] [--json FILE]

Public cases, or with `--seed` those of the sweep. `--losers` prints all candidates of each segment. Times are those that tuning
takes: one run of a kernel with a cold second-level cache. `--times` keeps them for `benchmarks.regret`; `--wide` measures 24
mappings of each segment, half of them the likeliest and half drawn by the case's name from all that there are.

Nothing else may use the GPU meanwhile. `--prepare` only compiles, into the disk cache, and may run in parts at once; the one
process that measures finds all there.

    for k in 1 2 3 4; do python3 -m benchmarks.tuned --set everyday --wide --prepare --part $k/4 & done; wait
    python3 -m benchmarks.tuned --set everyday --wide --times benchmarks/data/h200.jsonl
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from unittest.mock import patch

from benchmarks.case import Case, define_fusion
from benchmarks.compile_case import compile_candidates
from benchmarks.environment import describe
from benchmarks.param_times import cases_of, times_of, write
from fuser import Tuning
from fuser.compiler.bind_inputs import BoundInputs
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.compiler.tuning_record import TABLE, Fate, TuningRecord, record_text
from fuser.ir.device_info import DeviceInfo
from fuser.schedule.neighbours import difference, neighbours
from fuser.schedule.params import Params
from fuser.schedule.segment import Segment


def tuned(case: Case, tuning: Tuning) -> TuningRecord | None:
    """The record of a case, on random inputs; None where nothing is measured."""
    import torch

    from benchmarks.inputs import torch_inputs

    torch.cuda.empty_cache()
    before = len(TABLE.made())
    define_fusion(case).execute(torch_inputs(case.inputs, 0), tune=tuning)
    torch.cuda.synchronize()
    return next(iter(TABLE.made()[before:]), None)


WIDE = 24
"""Candidates of a segment with --wide."""


def wide_candidates() -> AbstractContextManager[object]:
    """While it is in place tuning measures candidates from all over the space of mappings, too."""
    plain = KernelCompiler.candidates

    def wide(compiler: KernelCompiler, segment: Segment, bound: BoundInputs) -> tuple[Params, ...]:
        found = plain(compiler, segment, bound)
        info = compiler.target().info
        near = found[: WIDE // 2]
        far = [*found[WIDE // 2 :], *(p for n in near[1:] for p in neighbours(n, info))]
        random.Random(repr(near[0])).shuffle(far)
        return tuple(dict.fromkeys((*near, *far)))[:WIDE]

    return patch.object(KernelCompiler, "candidates", wide)


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
    parser.add_argument("--set", default="", help="a list of cases (public, everyday) instead of --seed")
    parser.add_argument("--losers", action="store_true", help="print all candidates")
    parser.add_argument("--json", type=Path, help="file for what was found")
    parser.add_argument("--times", type=Path, help="file that times are added to, for benchmarks.regret")
    parser.add_argument("--wide", action="store_true", help=f"{WIDE} candidates of each segment, not only the nearest")
    parser.add_argument("--part", default="1/1", help="K/N: every Nth case, from the Kth on")
    parser.add_argument("--prepare", action="store_true", help="compile all candidates, measure nothing")
    parser.add_argument("--device", default="H200", help="with --prepare: a preset of DeviceInfo")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no case after so long")
    asked = parser.parse_args(arguments)
    group = asked.set or ("public" if asked.seed is None else f"sweep{asked.seed}")
    cases = cases_of(group).items()
    chosen = {label: c for label, c in cases if not asked.names or any(n in c.name for n in asked.names)}
    first, of = map(int, asked.part.split("/"))
    chosen = dict(list(chosen.items())[first - 1 :: of])
    with wide_candidates() if asked.wide else nullcontext():
        if asked.prepare:
            made = [compile_candidates(case, DeviceInfo.preset(asked.device)) for case in chosen.values()]
            print(f"{sum(made)} kernels of {len(made)} cases")
            return 0
        return tune_all(chosen, asked)


def tune_all(chosen: Mapping[str, Case], asked: argparse.Namespace) -> int:
    """Tune, print, and write what is asked for."""
    quotients: list[float] = []
    found: list[dict[str, object]] = []
    failed = 0
    print(f"{'case':44s} {'us':>9} {'best us':>9} {'of it':>6}")
    # Many programs are tuned in a row: a process for each would take most of the time.
    tuning = Tuning(most=WIDE, apart=False) if asked.wide else Tuning()
    about = describe() if asked.times else {}
    started = time.monotonic()
    for label, case in chosen.items():
        begin = time.monotonic()
        if begin - started > asked.seconds:
            break
        try:
            record = tuned(case, tuning)
        except Exception as error:
            failed += 1
            print(f"{case.name:44s} {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
            continue
        if record is None:
            continue
        print("\n".join(lines_of(case, record, time.monotonic() - begin)), flush=True)
        if asked.losers:
            print(record_text(record), flush=True)
        if asked.times:
            write(asked.times, (times_of(label, s, about["gpu"], about["commit"]) for s in record.segments))
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
