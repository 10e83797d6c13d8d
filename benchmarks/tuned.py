"""What tuning gains over what schedulers propose: each case tuned on its own inputs, with the time of every segment.

    python3 -m benchmarks.tuned [PART OF A NAME ...] [--seed N] [--losers] [--json FILE]

Public cases, or with `--seed` those of the sweep. `--losers` prints all candidates of each segment. Times are those that tuning
takes: one run of a kernel with a cold second-level cache. `--times` keeps them for `benchmarks.regret`; `--wide` measures 20
mappings of each segment, a third of them the likeliest and the others drawn by the case's name from all that there are.

Several processes take turns at the GPU by `--lock`, and compile meanwhile; nothing else may use it.

    for k in 1 2 3 4; do
        python3 -m benchmarks.tuned --set everyday --wide --part $k/4 --lock /tmp/gpu --times times.$k.jsonl &
    done; wait; cat times.*.jsonl > benchmarks/data/h200.jsonl
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
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from benchmarks.case import Case, define_fusion
from benchmarks.environment import describe
from benchmarks.param_times import cases_of, times_of, write
from fuser import Tuning
from fuser.compiler import tuning as tuning_module
from fuser.compiler.bind_inputs import BoundInputs
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.compiler.segment_trial import Trial
from fuser.compiler.tuning_record import TABLE, Fate, TuningRecord, record_text
from fuser.runtime.cache.file_lock import locked
from fuser.schedule.params import Params
from fuser.schedule.print_params import difference
from fuser.schedule.segmentation.segment import Segment
from fuser.schedule.tuning_candidates import neighbours


def tuned(case: Case, tuning: Tuning, lock: Path | None = None) -> TuningRecord | None:
    """The record of a case, on random inputs; None where nothing is measured."""
    import torch

    from benchmarks.inputs import torch_inputs

    torch.cuda.empty_cache()
    before = len(TABLE.made())
    with locked(lock):
        inputs = torch_inputs(case.inputs, 0)
        torch.cuda.synchronize()
    define_fusion(case).execute(inputs, tune=tuning)
    torch.cuda.synchronize()
    return next(iter(TABLE.made()[before:]), None)


WIDE = 20
"""Candidates of a segment with --wide."""
WIDE_ROUNDS = 25
WIDE_FIRST_ROUNDS = 9
"""Runs of each candidate, and of those far behind, too: a model is fitted to them, and a median of three is often wrong."""


def wide_candidates() -> AbstractContextManager[object]:
    """While it is in place tuning measures candidates from all over the space of mappings, too."""
    plain = KernelCompiler.candidates

    def wide(compiler: KernelCompiler, segment: Segment, bound: BoundInputs) -> tuple[Params, ...]:
        found = plain(compiler, segment, bound)
        info = compiler.target().info
        near = found[: WIDE // 3]
        far = list(dict.fromkeys([*found[WIDE // 3 :], *(p for n in near for p in neighbours(n, info))]))
        chance = random.Random(repr(near[0]))
        # Those that should be fast are more of them.
        drawn = [far[int(chance.random() ** 2 * len(far))] for _ in range(4 * WIDE)] if far else []
        return tuple(dict.fromkeys((*near, *drawn)))[:WIDE]

    return patch.object(KernelCompiler, "candidates", wide)


class _OfSmall(tuning_module.Expected):
    """Outputs that are compared on the host in no time: others would wait for that."""

    def __init__(self, segment: Segment, bound: BoundInputs, trial: Trial) -> None:
        super().__init__(segment, bound, _with_small_outputs(trial))

    def difference(self, trial: Trial) -> str | None:
        return super().difference(_with_small_outputs(trial))


def _with_small_outputs(trial: Trial) -> Trial:
    small = {n: t for n, t in trial.outputs.items() if math.prod(t.shape) * t.dtype.itemsize <= 1 << 20}
    return replace(trial, outputs=small)


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
    parser.add_argument(
        "--lock", type=Path, help="file that processes lock while they measure, so that several may run"
    )
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no case after so long")
    asked = parser.parse_args(arguments)
    group = asked.set or ("public" if asked.seed is None else f"sweep{asked.seed}")
    cases = cases_of(group).items()
    chosen = {label: c for label, c in cases if not asked.names or any(n in c.name for n in asked.names)}
    first, of = map(int, asked.part.split("/"))
    labels = list(chosen)
    if asked.wide:
        random.Random(0).shuffle(labels)
    chosen = {label: chosen[label] for label in labels[first - 1 :: of]}
    with (
        wide_candidates() if asked.wide else nullcontext(),
        patch.object(tuning_module, "Expected", _OfSmall) if asked.wide else nullcontext(),
        patch.object(tuning_module, "FIRST_ROUNDS", WIDE_FIRST_ROUNDS) if asked.wide else nullcontext(),
    ):
        return tune_all(chosen, asked)


def tune_all(chosen: Mapping[str, Case], asked: argparse.Namespace) -> int:
    """Tune, print, and write what is asked for."""
    quotients: list[float] = []
    found: list[dict[str, object]] = []
    failed = 0
    print(f"{'case':44s} {'us':>9} {'best us':>9} {'of it':>6}")
    # Many programs are tuned in a row: a process for each would take most of the time.
    tuning = Tuning(lock=asked.lock)
    if asked.wide:
        tuning = replace(tuning, most=WIDE, apart=False, rounds=WIDE_ROUNDS)
    about = describe() if asked.times else {}
    started = time.monotonic()
    for label, case in chosen.items():
        begin = time.monotonic()
        if begin - started > asked.seconds:
            break
        try:
            record = tuned(case, tuning, asked.lock)
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
