"""Measured times of parameters: what `benchmarks.tuned --times` writes and `benchmarks.regret` reads.

A file of JSON lines in `benchmarks/data`. A line is one segment of one case: the case as `<list>/<name>` (`public/...`,
`sweep11/...`), the outputs of the segment, the GPU, the commit, and the microseconds of all parameters that were measured, by
their text. Parameters are compared by text, without their reasons.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from benchmarks.case import Case
from benchmarks.case_sets import SETS
from benchmarks.sweep_cases import sweep_cases
from fuser.compiler.tuning_record import Fate, SegmentTuning
from fuser.schedule.params import Params

DATA = Path(__file__).resolve().parent / "data"


@dataclass(frozen=True, slots=True)
class SegmentTimes:
    """Times of the parameters of one segment: microseconds by `text_of`."""

    case: str
    outputs: tuple[str, ...]
    gpu: str
    commit: str
    us: Mapping[str, float]

    @property
    def place(self) -> tuple[str, tuple[str, ...]]:
        """Which segment of which case."""
        return self.case, self.outputs


def text_of(params: Params) -> str:
    """What parameters are compared by: all but reasons and what is as ever, in parameters within them as well."""
    return _text(params)


def _text(value: Any) -> str:
    if not is_dataclass(value):
        return repr(value)
    said = ((f.name, getattr(value, f.name)) for f in fields(value) if f.name != "reasons")
    defaults = {f.name: f.default for f in fields(value)}
    inner = ", ".join(f"{name}={_text(v)}" for name, v in said if v != defaults[name])
    return f"{type(value).__name__}({inner})"


def cases_of(name: str) -> dict[str, Case]:
    """The cases of a list (`public`, `everyday`, `sweep<seed>`) by their names in files. Raises ValueError for another."""
    if name in SETS:
        found = SETS[name]()
    elif name.startswith("sweep") and name.removeprefix("sweep").isdigit():
        found = sweep_cases(int(name.removeprefix("sweep")))
    else:
        raise ValueError(f"no list of cases {name!r}; there are: {', '.join(SETS)}, sweep<seed>")
    return {f"{name}/{c.name}": c for c in found}


def times_of(case: str, segment: SegmentTuning, gpu: str, commit: str) -> SegmentTimes:
    """What tuning has measured of a segment."""
    us = {text_of(c.params): c.us for c in segment.candidates if c.fate is Fate.measured and c.us is not None}
    # Other parameters, but the same kernel: they take what it takes.
    first = segment.candidates[0].us
    for c in segment.candidates:
        if c.fate is Fate.same:
            same = segment.candidates[int(c.why.removeprefix("candidate "))].us if c.why != "the proposal" else first
            us.update({} if same is None else {text_of(c.params): same})
    return SegmentTimes(case, segment.outputs, gpu, commit, us)


def write(path: Path, found: Iterable[SegmentTimes]) -> None:
    """Add lines to a file, which may be there already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for times in found:
            file.write(json.dumps(asdict(times)) + "\n")


def read(path: Path) -> list[SegmentTimes]:
    """All lines of a file. Raises ValueError, with the line's number, for one that is none of these."""
    found: list[SegmentTimes] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            found.append(SegmentTimes(row["case"], tuple(row["outputs"]), row["gpu"], row["commit"], dict(row["us"])))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path.name}, line {number}: {type(error).__name__}: {error}") from error
    return found
