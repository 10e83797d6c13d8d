"""A child forked while other threads hold the project's locks: it runs and compiles on its own, and waits for nobody."""

from __future__ import annotations

import gc
import os
import re
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fuser
from fuser import DataType, FusionDefinition, locks
from fuser.compiler.gc_paused import gc_paused
from fuser.runtime.kernels.compiled_kernel import Resources
from fuser.runtime.kernels.nvrtc import CompileResult
from fuser.runtime.kernels.variants import KernelVariants
from tests.package.forked_child import in_child
from tests.runtime.variant_kernels import SMALL, kernel_of

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here"),
    # Newer Pythons say that it is dangerous to fork where there are several threads. That is what this is about.
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


@contextmanager
def in_thread(hold: Callable[[Callable[[], None]], None]) -> Generator[None]:
    """Another thread that is inside of `hold` while the block runs. `hold` calls what it is given there, and returns."""
    inside, leave = threading.Event(), threading.Event()

    def pause() -> None:
        inside.set()
        leave.wait()

    thread = threading.Thread(target=hold, args=(pause,))
    thread.start()
    assert inside.wait(20)
    try:
        yield
    finally:
        leave.set()
        thread.join()


def softmax() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Float)
        e = fd.ops.exp(x - fd.ops.max(x, [1], True))
        fd.add_output(e / fd.ops.sum(e, [1], True))
    return fd


def row_sums_are_one(fd: FusionDefinition, shape: tuple[int, int]) -> bool:
    (y,) = fd.execute([np.zeros(shape, np.float32)], device="simulator")
    return bool(np.allclose(y.sum(1), 1.0))


def test_no_lock_is_made_elsewhere() -> None:
    root = Path(fuser.__file__).parent
    made = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if re.search(r"\b(R?Lock|Condition|Semaphore)\(\)", path.read_text())
    }
    assert made == {"locks.py"}


def test_a_child_waits_for_no_thread_of_its_parent() -> None:
    used = softmax()
    assert row_sums_are_one(used, (3, 5))

    def hold(pause: Callable[[], None]) -> None:
        mine: list[Any] = [one for one in locks.every_lock() if one.acquire(blocking=False)]
        assert len(mine) > 10
        pause()
        for one in mine:
            one.release()

    with in_thread(hold):
        assert in_child(lambda: row_sums_are_one(used, (3, 5))) == "True", "a program that is there"
        assert in_child(lambda: row_sums_are_one(used, (4, 70))) == "True", "one that is compiled"
        assert in_child(lambda: row_sums_are_one(softmax(), (4, 6))) == "True", "a definition of its own"
    assert row_sums_are_one(used, (5, 71))


def test_a_lock_that_the_forking_thread_holds_stays_its_own() -> None:
    held = locks.reentrant_lock()

    def again() -> str:
        with held:
            return "again"

    with held:
        assert in_child(again) == "'again'"
    assert in_child(again) == "'again'"


def test_a_child_makes_a_binary_that_its_parent_was_making() -> None:
    pauses: list[Callable[[], None]] = []

    def compile_text(source: str, entries: tuple[str, ...], arch: str, options: tuple[str, ...]) -> CompileResult:
        if threading.current_thread() is not threading.main_thread():
            pauses.pop()()
        (entry,) = entries
        return CompileResult(b"", {entry: Resources(8, 0, 0, 0)}, {entry: entry}, "", (12, 9), arch)

    table, kernel = KernelVariants(compile_text), kernel_of(SMALL, "small")

    def build(pause: Callable[[], None]) -> None:
        pauses.append(pause)
        table.binary_for(kernel, 512)

    with in_thread(build):
        assert in_child(lambda: table.binary_for(kernel, 512).max_threads) == "512"
    assert table.counters().compiles == 1


def test_collections_go_on_in_a_child() -> None:
    def compile_something(pause: Callable[[], None]) -> None:
        with gc_paused():
            pause()

    with in_thread(compile_something):
        assert not gc.isenabled()
        assert in_child(gc.isenabled) == "True"
    assert gc.isenabled()
    with gc_paused():
        assert in_child(gc.isenabled) == "False", "it is the thread's own wish"
