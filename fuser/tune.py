"""`fuser tune SCRIPT`: run a script, and measure parameters for every program that it runs."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from fuser import options
from fuser.compiler.tuning_record import TABLE, Fate, TuningRecord
from fuser.runtime.cache.disk_cache import disk_cache
from fuser.schedule.print_params import difference

USAGE = """usage: fuser tune SCRIPT [arguments]
  runs a Python script as `python SCRIPT arguments` does, with FUSER_TUNE=on: the first call for each size and layout measures
  candidates for each of its kernels on the GPU. What is best is kept in the disk cache, from which later processes take it
  without any option; `fuser cache export FILE` writes it to a file for machines with the same GPU."""


def main(arguments: list[str]) -> int:
    """Run the command. Returns 0, 1 where nothing was measured, 2 for misuse, or what the script exits with."""
    if arguments in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    if not arguments or arguments[0].startswith("-"):
        what = "say which script to run" if not arguments else f"there is no option {arguments[0]!r}"
        print(f"fuser tune: {what}\n{USAGE}", file=sys.stderr)
        return 2
    script = Path(arguments[0])
    if not script.is_file():
        print(f"fuser tune: there is no file {script}\n{USAGE}", file=sys.stderr)
        return 2
    before = len(TABLE.made())
    code = _run(script, arguments)
    made = TABLE.made()[before:]
    for record in made:
        print(summary(record), file=sys.stderr)
    if not made:
        print("fuser tune: nothing was measured: no program ran, or there are records for all of them", file=sys.stderr)
        return code or 1
    cache = disk_cache()
    kept = (
        f"kept in {cache.folder}" if cache is not None else f"not kept, as {options.CACHE.env} turns the disk cache off"
    )
    print(f"fuser tune: {len(made)} tuning {'record' if len(made) == 1 else 'records'}, {kept}", file=sys.stderr)
    return code


def summary(record: TuningRecord) -> str:
    """A line for each segment: what it took as proposed, what the best takes, and how that differs."""
    lines: list[str] = []
    for segment in record.segments:
        proposal, best = segment.candidates[0], segment.best
        measured = sum(c.fate is Fate.measured for c in segment.candidates)
        what = "as proposed" if best is proposal else difference(proposal.params, best.params)
        lines.append(
            f"fuser tune: {', '.join(segment.outputs)}: {proposal.us:.2f} us proposed, {best.us:.2f} us best of {measured} "
            f"({what})"
        )
    return "\n".join(lines)


def _run(script: Path, arguments: list[str]) -> int:
    """Run the script as the main program; what it exits with."""
    argv, path, mode = sys.argv, sys.path[:], options.TUNE.text()
    os.environ[options.TUNE.env] = "on"
    sys.argv = list(arguments)
    sys.path[:0] = [str(script.resolve().parent)]
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        print(error.code, file=sys.stderr)
        return 1
    finally:
        sys.argv, sys.path[:] = argv, path
        os.environ[options.TUNE.env] = mode
    return 0
