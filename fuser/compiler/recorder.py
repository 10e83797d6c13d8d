"""What watches a compilation: one object is handed every stage's result and alone does dumping and keeping.

Stage names are those of the architecture page: `fusion.py`, `fusion.<nn>-<pass>.py`, `segments.py`, and per segment
`params.py`, `schedule.py`, `kernel.<nn>-<pass>.py`, `proofs.txt` (FUSER_VERIFY=proofs), `kernel.cu`, `kernel.cubin`; last
`host.py`, and `tuning.txt` where parameters were measured. Segment k's stages carry `s<k>.` in front where there are several.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from fuser import locks, options
from fuser.ir.kernel.kernel import Stmt

_DUMP_COUNT = iter(range(1 << 62))
_lock = locks.lock()


class Recorder:
    """Ignores everything; the base of those that do not."""

    def stage(self, name: str, text: Callable[[], str]) -> None:
        """A stage's result; `text` makes its text if somebody wants it."""

    def finish(self) -> None:
        """The compilation is over, well or not."""


class KeepingRecorder(Recorder):
    """Keeps every stage's text, in order."""

    def __init__(self) -> None:
        self.stages: dict[str, str] = {}

    def stage(self, name: str, text: Callable[[], str]) -> None:
        """Keep it."""
        self.stages[name] = text()


class DeferringRecorder(Recorder):
    """Keeps stages whose texts are not made yet, for a recorder that may get them."""

    def __init__(self) -> None:
        self._stages: list[tuple[str, Callable[[], str]]] = []

    def stage(self, name: str, text: Callable[[], str]) -> None:
        """Keep it."""
        self._stages.append((name, text))

    def hand_to(self, recorder: Recorder) -> None:
        """All of them, in order."""
        for name, text in self._stages:
            recorder.stage(name, text)


class DumpingRecorder(KeepingRecorder):
    """Writes the stages that FUSER_DUMP names under FUSER_DUMP_DIR, a folder per compilation, when it is finished.

    A line on stderr says where.
    """

    def __init__(self, patterns: tuple[str, ...], folder: str) -> None:
        super().__init__()
        self.patterns = patterns
        with _lock:
            number = next(_DUMP_COUNT)
        self.folder = os.path.join(folder, f"{os.getpid()}-{number}")

    def finish(self) -> None:
        """Write what was asked for and came to be: a kernel that is there already has no stages."""
        selected = options.select_stages(self.patterns, tuple(self.stages))
        if not selected:
            return
        try:
            os.makedirs(self.folder, exist_ok=True)
            for name in sorted(selected):
                with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
                    file.write(self.stages[name])
        except OSError as error:
            # The compilation goes on, or fails for a reason of its own, without what was to be looked at.
            print(
                f"fuser: {options.DUMP.env} cannot write to {self.folder}: {error.strerror or error}; "
                f"set {options.DUMP_DIR.env} to a folder that can be written",
                file=sys.stderr,
            )
            return
        stages = "1 stage" if len(selected) == 1 else f"{len(selected)} stages"
        print(f"fuser: wrote {stages} to {self.folder}", file=sys.stderr)


def recorder_from_environment() -> Recorder:
    """The recorder that FUSER_DUMP asks for. Raises InputValueError for a name that no stage has."""
    patterns = options.DUMP.get()
    if not patterns:
        return Recorder()
    options.check_stages(patterns, all_stages())
    return DumpingRecorder(tuple(patterns), str(options.DUMP_DIR.get()))


def all_stages() -> tuple[str, ...]:
    """Names of the stages that a compilation of one segment can have, in order."""
    from fuser.lowering import pipeline as lowering
    from fuser.optimize import pipeline as optimize

    return (
        "fusion.py",
        *(f"fusion.{i:02d}-{run.__name__}.py" for i, run in enumerate(optimize.PASSES)),
        "segments.py",
        "params.py",
        "schedule.py",
        *(f"kernel.{i:02d}-{name}.py" for i, name in enumerate(lowering.PASSES)),
        "proofs.txt",
        "kernel.cu",
        "kernel.cubin",
        "host.py",
        "tuning.txt",
    )


class PassObserver:
    """Hands the passes of one lowering to a recorder, and plants the fault that FUSER_FAULT names."""

    def __init__(
        self, recorder: Recorder, prefix: str, plant: Callable[[str, tuple[Stmt, ...]], tuple[Stmt, ...]] | None = None
    ) -> None:
        self.recorder = recorder
        self.prefix = prefix
        self.plant = plant
        self._number = 0

    def passed(self, name: str, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """A pass's result."""
        from fuser.ir.kernel.print_kernel import print_body

        if self.plant is not None:
            body = self.plant(name, body)
        number = self._number
        self._number += 1
        self.recorder.stage(f"{self.prefix}kernel.{number:02d}-{name}.py", lambda: print_body(body))
        return body
