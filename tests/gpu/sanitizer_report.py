"""What compute-sanitizer said: its logs read, and one table for all tools.

    python3 tests/gpu/sanitizer_report.py FOLDER [--no-planted]     FOLDER has <tool>.log and <tool>.status for each tool

Grammar of a log
    log      := line*
    line     := "== " name                      the corpus says what runs now
              | "========= " header             a finding, or one of the tool's own announcements
              | "=========     " detail         belongs to the header above
              | anything else                   output of the program

A finding belongs to the planted kernel whose name its header or details have, else to the fusion that ran. Exit status 0: every
tool ran to the end, found its planted defect and nothing else, and all results agreed.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")

# What a tool says about itself.
_ANNOUNCEMENTS = re.compile(
    r"COMPUTE-SANITIZER|ERROR SUMMARY|RACECHECK SUMMARY|LEAK SUMMARY|Target application (returned|terminated)|"
    r"This tool is deprecated|Using legacy|No error was found"
)
_SUMMARY = re.compile(r"^========= (?:ERROR|RACECHECK) SUMMARY: (.*)$", re.MULTILINE)
_CORPUS = re.compile(
    r"^== corpus: (\d+) programs, (\d+) kernels, (\d+) wrong, (\d+) compiled here, ([\d.]+) s$", re.MULTILINE
)


@dataclass(slots=True)
class Finding:
    """One report of a tool. `where`: the program that ran last before it was printed."""

    header: str
    where: str
    details: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join([self.header, *self.details])

    def is_planted(self, tool: str) -> bool:
        """Whether it is about the kernel planted for `tool`."""
        return f"planted_{tool}" in self.text


@dataclass(slots=True)
class Log:
    """A tool's log. `problems` are reasons to fail that are no finding of the tool."""

    tool: str
    programs: int = 0
    kernels: int = 0
    seconds: float = 0.0
    summary: str = ""
    planted: list[Finding] = field(default_factory=list)
    others: list[Finding] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.others and not self.problems


def read_findings(text: str) -> list[Finding]:
    """Findings in the order they were printed."""
    findings: list[Finding] = []
    where = "start"
    for line in text.replace("\0", "").splitlines():
        if line.startswith("== "):
            where = line[3:]
        elif re.match(r"^=========\s{2,}\S", line):
            if findings:
                findings[-1].details.append(line[9:].strip())
        elif line.startswith("========= ") and line[10:].strip() and not _ANNOUNCEMENTS.search(line):
            findings.append(Finding(line[10:].strip(), where))
    return findings


def read_log(tool: str, text: str, status: int | None, *, planted: bool = True) -> Log:
    """A log with its verdict. `status` is the exit status of the run, None if it is not known."""
    log = Log(tool)
    corpus = _CORPUS.search(text)
    if corpus is None:
        log.problems.append("the corpus did not run to its end")
    else:
        log.programs, log.kernels, log.seconds = int(corpus[1]), int(corpus[2]), float(corpus[5])
        if int(corpus[3]):
            log.problems.append(f"{corpus[3]} results are wrong")
    log.problems += [line for line in text.splitlines() if line.startswith("!! ")]
    summary = _SUMMARY.findall(text)
    if summary:
        log.summary = summary[-1]
    else:
        log.problems.append("the tool printed no summary")
    if status in (124, 137):
        log.problems.append("it ran out of time")
    for finding in read_findings(text):
        (log.planted if finding.is_planted(tool) else log.others).append(finding)
    if planted and not log.planted:
        log.problems.append(f"planted_{tool} was not reported")
    if not planted and log.planted:
        log.problems.append(f"planted_{tool} was reported, but not asked for")
    return log


def table(logs: Sequence[Log]) -> str:
    """The logs side by side, then what failed."""
    rows = [("tool", "verdict", "programs", "kernels", "planted", "other", "problems", "seconds", "its summary")]
    for log in logs:
        rows.append(
            (
                log.tool,
                "ok" if log.passed else "FAILED",
                str(log.programs),
                str(log.kernels),
                str(len(log.planted)),
                str(len(log.others)),
                str(len(log.problems)),
                f"{log.seconds:.0f}",
                log.summary,
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    for log in logs:
        lines += [f"{log.tool}: {problem}" for problem in log.problems]
        for finding in log.others:
            lines.append(f"{log.tool}: while {finding.where} ran: {finding.header}")
            lines += [f"    {detail}" for detail in finding.details[:6]]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 0 if every log passed."""
    parser = argparse.ArgumentParser(description="Summarize the logs of a sanitizer run.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--no-planted", action="store_true", help="the run had no planted defects")
    options = parser.parse_args(arguments)
    logs: list[Log] = []
    for tool in TOOLS:
        path, status_path = options.folder / f"{tool}.log", options.folder / f"{tool}.status"
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        status_text = status_path.read_text().strip() if status_path.exists() else ""
        status = int(status_text) if status_text.isdecimal() else None
        logs.append(read_log(tool, text, status, planted=not options.no_planted))
    print(table(logs))
    return 0 if all(log.passed for log in logs) else 1


if __name__ == "__main__":
    sys.exit(main())
