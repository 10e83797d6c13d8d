"""Threads that start at once, and a fusion whose result depends on the order of its additions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser import DataType, FusionDefinition

Array = np.ndarray[Any, Any]


def together(count: int, work: Callable[[int], None]) -> None:
    """Run `work(number)` in `count` threads that start at once; the first error is raised here."""
    barrier = threading.Barrier(count)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            barrier.wait()
            work(number)
        except BaseException as error:  # handed to the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def grid_sum() -> FusionDefinition:
    """A full sum: blocks share one reduction, and the last of them finishes it."""
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.sum(fd.define_tensor([-1, -1], True, DataType.Float)))
    return fd


def uneven(rows: int, columns: int) -> Array:
    """Values whose sum depends on the order of the additions."""
    rng = np.random.default_rng(0)
    return (rng.standard_normal((rows, columns)) * 10.0 ** rng.integers(-3, 4, (rows, columns))).astype(np.float32)
