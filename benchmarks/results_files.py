"""Results of a run as files: a table, JSON and a chart; and parts of a set, measured in several runs, as one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.chart import bar_chart
from benchmarks.environment import one_line
from benchmarks.everyday.summary import everyday_summary
from benchmarks.results_table import Row, row_from, summary, table

TITLES = {"public": "Public cases", "everyday": "Everyday fusions"}


@dataclass(frozen=True, slots=True)
class Results:
    """What was measured of a set.

    environment  what the results depend on besides the code, by name
    empty        microseconds of an empty kernel, None if no worker got that far
    seconds      what the run took
    """

    set: str
    environment: dict[str, str]
    empty: float | None
    rows: Sequence[Row]
    seconds: float

    def text(self) -> str:
        """Environment, table and summary."""
        summarize = everyday_summary if self.set == "everyday" else summary
        found = summarize(self.rows, self.empty)
        return f"{one_line(self.environment)}\n\n{table(self.rows)}\n\n{found}\n{self.seconds:.0f} s\n"


def write(results: Results, folder: Path, stem: str) -> None:
    """`stem`.txt, .json and .svg."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {
        "environment": results.environment,
        "empty_us": results.empty,
        "seconds": round(results.seconds, 1),
        "rows": [asdict(r) for r in results.rows],
    }
    chart = bar_chart(results.rows, TITLES[results.set], one_line(results.environment))
    (folder / f"{stem}.txt").write_text(results.text(), encoding="utf-8")
    (folder / f"{stem}.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    (folder / f"{stem}.svg").write_text(chart, encoding="utf-8")


def merged(name: str, files: Sequence[Path], order: Sequence[str]) -> Results:
    """Parts of a set as one result: rows in `order`, the environment and the empty kernel of the first part.

    Raises ValueError where parts were measured on different machines or versions, or have a case twice or not at all.
    """
    parts = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    first = parts[0]
    for file, part in zip(files, parts, strict=True):
        if part["environment"] != first["environment"]:
            raise ValueError(f"{file} was measured in another environment than {files[0]}: {part['environment']}")
    rows = [row_from(fields) for part in parts for fields in part["rows"]]
    names = [r.name for r in rows]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise ValueError(f"in more than one part: {', '.join(twice)}")
    if unknown := sorted(set(names) - set(order)):
        raise ValueError(f"no cases of the set: {', '.join(unknown)}")
    if missing := [n for n in order if n not in set(names)]:
        raise ValueError(f"in no part: {', '.join(missing)}")
    rows.sort(key=lambda r: order.index(r.name))
    return Results(name, first["environment"], first["empty_us"], rows, sum(p["seconds"] for p in parts))
