"""First runs of candidates in a process of their own (`trial_child.py`): one that faults or hangs is out, and nothing is lost.

A kernel that reads where it must not ends the context of its process, and one that never ends cannot be stopped from within it.
The values that it reads are copied to files, and from there to the device by the child.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import numpy as np

from fuser.compiler.trial_child import VALUES
from fuser.host_ir.program import HostProgram
from fuser.host_ir.saved_programs import PROGRAM_FILE, SavedProgram
from fuser.records import record
from fuser.runtime.array_view import MAX_ALIGNMENT
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.cache.user_files import save_to
from fuser.runtime.devices.device import Device
from fuser.runtime.layouts import element_span

_PACKAGE = Path(__file__).resolve().parent.parent.parent
START_S = 60.0
"""A child that says nothing for so long before its first run will say nothing any more."""


@record
class Outcome:
    """What became of a program in the child: `is_slow` if it was still running when its time was over."""

    why: str
    is_slow: bool


class TrialProcess:
    """A child for one device. A context: at its end the child is gone. It is started anew after each program that ends it.

    command  what the child is, before its two arguments, kind and index of the device
    """

    def __init__(
        self, device: Device, command: Sequence[str] = (sys.executable, "-m", "fuser.compiler.trial_child")
    ) -> None:
        self._device = device
        self._command = (*command, device.kind, str(device.index))
        self._child: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def start(self) -> None:
        """Let the child begin: until it is asked for the first time it has its device."""
        if self._child is None:
            self._lines = queue.SimpleQueue()
            # This very package, wherever it was imported from.
            path = os.pathsep.join([str(_PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])])
            self._child = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
                env={**os.environ, "PYTHONPATH": path},
            )
            assert self._child.stdout is not None
            threading.Thread(
                target=_read, args=(self._child.stdout, self._lines), name="fuser trials", daemon=True
            ).start()

    def run(
        self,
        programs: Mapping[int, HostProgram],
        slots: Mapping[str, DeviceTensor],
        written: Collection[str],
        limit_s: float,
    ) -> dict[int, Outcome]:
        """Run programs on copies of the slots that are their inputs; what failed, and why.

        written  slots that have no values yet
        limit_s  seconds that a program may take
        """
        found: dict[int, Outcome] = {}
        with tempfile.TemporaryDirectory(prefix="fuser-tuning-") as name:
            folder = Path(name)
            _write(folder, slots, written)
            for number, program in programs.items():
                save_to(folder / f"{number}.program", PROGRAM_FILE, SavedProgram(program, ()))
            left = list(programs)
            while left:
                number, outcome = self._request(folder, left, limit_s)
                if number is None:
                    if outcome is not None:
                        found.update(dict.fromkeys(left, outcome))
                    break
                assert outcome is not None
                found[number] = outcome
                left = left[left.index(number) + 1 :]
        return found

    def _request(self, folder: Path, numbers: Sequence[int], limit_s: float) -> tuple[int | None, Outcome | None]:
        """Ask for some programs: the first that failed, if any did; an outcome without a number is that of all."""
        self.start()
        child = self._child
        assert child is not None
        assert child.stdin is not None
        with suppress(OSError):  # where it is gone the next line says so
            child.stdin.write(json.dumps({"folder": str(folder), "programs": list(numbers)}) + "\n")
            child.stdin.flush()
        running: int | None = None
        limit = START_S
        while True:
            try:
                line = self._lines.get(timeout=limit)
            except queue.Empty:
                self._end()
                return running, Outcome(f"still running after {limit:g} s", is_slow=True)
            if line is None:
                code = child.wait()
                self._end()
                return running, Outcome(f"its process ended with {code}", is_slow=False)
            word, _, rest = line.strip().partition(" ")
            if word == "end":
                return None, None
            if word == "broken":
                return None, Outcome(f"the trial process has no values: {rest}", is_slow=False)
            if word == "begin":
                running, limit = int(rest), limit_s
            elif word == "done":
                running, limit = None, START_S
            elif word == "failed":
                number, _, why = rest.partition(" ")
                # Whatever the error was, the device may have gone with it.
                self._end()
                return int(number), Outcome(why, is_slow=False)

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with suppress(OSError):  # what was not written yet is for nobody
                    pipe.close()


def _read(pipe: IO[str], lines: queue.SimpleQueue[str | None]) -> None:
    with suppress(OSError, ValueError):  # it was closed
        for line in pipe:
            lines.put(line)
    lines.put(None)


def _write(folder: Path, slots: Mapping[str, DeviceTensor], written: Collection[str]) -> None:
    """What the child needs of the slots."""
    told: dict[str, dict[str, object]] = {}
    for k, (name, t) in enumerate(slots.items()):
        nbytes = element_span(t.shape, t.strides) * t.dtype.itemsize
        file = f"{k}.bytes" if name not in written and nbytes else None
        if file is not None:
            _span(t, nbytes).tofile(folder / file)
        told[name] = {
            "dtype": t.dtype.name,
            "sizes": t.shape,
            "strides": t.strides,
            "shift": t.address % MAX_ALIGNMENT,
            "file": file,
        }
    (folder / VALUES).write_text(json.dumps(told), "utf-8")


def _span(t: DeviceTensor, nbytes: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """The bytes from the first to the last element; what lies between elements is nobody's, and may never have been written."""
    from fuser.runtime.devices.host_bytes import read_elements

    found = np.zeros(nbytes, np.uint8)
    read_elements(t.device, t.dtype, t.shape, t.strides, t.address, found, 0, t.stream)
    return found
