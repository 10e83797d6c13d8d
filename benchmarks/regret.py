"""How far what schedulers propose lies behind the best parameters that were measured. Needs no GPU.

    python3 -m benchmarks.regret                    all files in benchmarks/data, for an H200
    python3 -m benchmarks.regret --held-out         only the third of the cases that nothing may be fitted to
    python3 -m benchmarks.regret --worst 30         more of the worst

Of each segment whose parameters were measured (`benchmarks.tuned --times`) the schedulers are asked again, and

    regret = microseconds of what is proposed / microseconds of the best - 1

A proposal that was never measured has none: it is counted, and is to be measured. Kernels change as well: times of an old
commit still rank parameters, and say nothing of today's microseconds. The exit code is 1 if a limit is missed, or if of more
than a tenth of the segments the proposal was never measured.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.case import Case
from benchmarks.compile_case import proposed
from benchmarks.param_times import DATA, SegmentTimes, cases_of, read, text_of
from fuser.errors import FuserError
from fuser.ir.device_info import DeviceInfo

MOST_MEAN = 0.05
MOST_95 = 0.20
MOST = 0.50
MOST_UNMEASURED = 0.1
PARTS = 3


@dataclass(frozen=True, slots=True)
class Regret:
    """Of one segment. `value` is None where the proposal was not measured."""

    case: str
    family: str
    value: float | None
    proposed: str
    best: str


def is_held_out(case: str) -> bool:
    """Whether a case is of the third that no model may be fitted to: by its name, so that no new data changes its side."""
    return hashlib.sha256(case.encode()).digest()[0] % PARTS == 0


def proposals_of(case: Case, info: DeviceInfo) -> dict[tuple[str, ...], str]:
    """What is proposed for each segment of a case, by the segment's outputs."""
    return {
        tuple(t.name for t in s.fusion.output_tensors): text_of(params)
        for s, params in proposed(case, info)
        if s.has_kernel
    }


def regrets(measured: Iterable[SegmentTimes], info: DeviceInfo) -> list[Regret]:
    """Of every segment that was measured and is still planned: several measurements of one count as one, the newest first."""
    by_case: dict[str, dict[tuple[str, ...], dict[str, float]]] = defaultdict(dict)
    for times in measured:
        by_case[times.case][times.outputs] = {**by_case[times.case].get(times.outputs, {}), **times.us}
    lists = {name: cases_of(name) for name in {case.partition("/")[0] for case in by_case}}
    found: list[Regret] = []
    for name, segments in by_case.items():
        case = lists[name.partition("/")[0]].get(name)
        if case is None:
            continue
        try:
            planned = proposals_of(case, info)
        except FuserError as error:
            print(f"{name}: {type(error).__name__}: {error.message.splitlines()[0]}", file=sys.stderr)
            continue
        for outputs, us in segments.items():
            text, best = planned.get(outputs), min(us, key=us.__getitem__)
            value = None if text is None or text not in us else us[text] / us[best] - 1
            found.append(Regret(name, case.family, value, text or "cut otherwise", best))
    return found


def text_of_regrets(found: Sequence[Regret], worst: int) -> tuple[str, bool]:
    """The table, and whether a limit is missed."""
    values = sorted(r.value for r in found if r.value is not None)
    if not values:
        return f"{len(found)} segments, of none of them is the proposal measured", True
    lines: list[str] = []
    families: dict[str, list[float]] = defaultdict(list)
    for r in found:
        if r.value is not None:
            families[r.family].append(r.value)
    for family, own in sorted(families.items(), key=lambda f: -statistics.mean(f[1])):
        lines.append(f"{family:28s} {len(own):4d} segments, mean {statistics.mean(own):6.1%}, most {max(own):6.1%}")
    lines.append("")
    for r in sorted((r for r in found if r.value), key=lambda r: -(r.value or 0.0))[:worst]:
        lines += [f"{r.value:6.1%} {r.case}", f"       proposed {r.proposed}", f"       best     {r.best}"]
    lines.append("")
    is_missed = False
    at_95 = values[min(len(values) - 1, int(0.95 * len(values)))]
    for what, value, limit in (
        ("mean", statistics.mean(values), MOST_MEAN),
        ("95th percentile", at_95, MOST_95),
        ("most", values[-1], MOST),
    ):
        is_missed |= value > limit
        lines.append(f"{what} {value:.1%}, limit {limit:.0%}: {'MISSED' if value > limit else 'met'}")
    unmeasured = len(found) - len(values)
    is_missed |= unmeasured > MOST_UNMEASURED * len(found)
    lines.append(f"{len(values)} segments; of {unmeasured} more the proposal was never measured")
    return "\n".join(lines), is_missed


def main(arguments: Sequence[str]) -> int:
    """Ask and print. Returns 1 if a limit is missed."""
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.regret", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, help="of times; all in benchmarks/data")
    parser.add_argument("--held-out", action="store_true", help="only the cases that nothing may be fitted to")
    parser.add_argument("--worst", type=int, default=10, help="how many of the worst to print")
    parser.add_argument("--device", default="H200", help="a preset of DeviceInfo")
    asked = parser.parse_args(arguments)
    measured = [t for path in asked.files or sorted(DATA.glob("*.jsonl")) for t in read(path)]
    measured = [t for t in measured if not asked.held_out or is_held_out(t.case)]
    if not measured:
        parser.error(
            "no times were measured: on a GPU, python3 -m benchmarks.tuned --wide --times benchmarks/data/NAME.jsonl"
        )
    text, is_missed = text_of_regrets(regrets(measured, DeviceInfo.preset(asked.device)), asked.worst)
    print(text)
    return int(is_missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
