"""`Builds`: binaries of one program, made in threads while the next segments are lowered, and a line that says how far it is.

NVRTC lets go of the interpreter, and texts without headers compile side by side without holding each other up; Python stages
stay in the thread that compiles, one after another, so that stages and errors keep their order.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Generic, TextIO, TypeVar

from fuser import options

T = TypeVar("T")

MAX_THREADS = 16
TOLD_AFTER_S = 2.0
"""Compilations that take longer say so."""


def at_once(call: Callable[[], T]) -> Callable[[], T]:
    """Make the call now, in this thread; what is returned gives its result."""
    result = call()
    return lambda: result


class Builds:
    """Calls in threads. A context: when it ends, none of them runs any more, and those that were not begun are dropped.

    With one processor, or a single one of `count` binaries, the calls are made at once, in the thread that starts them.
    """

    def __init__(self, count: int) -> None:
        self._limit = min(count, MAX_THREADS, processors())
        self._count = count
        self._waiting: queue.SimpleQueue[_Build[object] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._is_over = False
        # From the first call on: where all kernels are there already nothing is begun.
        self._progress: Progress | None = None

    def __enter__(self) -> Builds:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        for _thread in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()
        if self._progress is not None:
            self._progress.end()

    def start(self, call: Callable[[], T]) -> Callable[[], T]:
        """Start a call; what is returned waits for it, and returns its result or raises its error."""
        build: _Build[T] = _Build(call)
        progress = self._progress
        if progress is None:
            progress = self._progress = Progress(self._count)
            progress.begin()
        if self._limit <= 1:
            build.run()
            progress.one_more()
        else:
            self._waiting.put(build)  # type: ignore[arg-type]
            if len(self._threads) < self._limit:
                worker = partial(self._work, progress)
                self._threads.append(threading.Thread(target=worker, name="fuser build", daemon=True))
                self._threads[-1].start()
        return build.result

    def _work(self, progress: Progress) -> None:
        while (build := self._waiting.get()) is not None:
            if not self._is_over:
                build.run()
                progress.one_more()


class _Build(Generic[T]):
    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._done = threading.Event()
        self._found: list[T] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._found.append(self._call())
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def result(self) -> T:
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._found[0]


def processors() -> int:
    """Those that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Progress:
    """A line on a terminal, from `TOLD_AFTER_S` seconds on, that is gone when the compilation is over."""

    def __init__(self, count: int, stream: TextIO | None = None, after_s: float = TOLD_AFTER_S) -> None:
        self._count = count
        self._stream = stream if stream is not None else sys.stderr
        self._after_s = after_s
        self._done = 0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._begun = 0.0

    def begin(self) -> None:
        """Watch, if anybody could see it."""
        if self._stream is None or not self._stream.isatty() or not options.PROGRESS.get():
            return
        self._begun = time.monotonic()
        self._thread = threading.Thread(target=self._tell, name="fuser progress", daemon=True)
        self._thread.start()

    def one_more(self) -> None:
        """A binary is there."""
        self._done += 1

    def end(self) -> None:
        """It is over."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _tell(self) -> None:
        wait, shown = self._after_s, 0
        while not self._over.wait(wait):
            took = time.monotonic() - self._begun
            hide = f"({options.PROGRESS.env}=off hides this)"
            line = f"fuser: {self._done} of {self._count} kernels compiled, {took:.0f} s {hide}"
            self._write(f"\r{line}")
            wait, shown = 0.5, len(line)
        if shown:
            self._write(f"\r{' ' * shown}\r")

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._over.set()  # the terminal is gone
