"""The disk cache under many processes that are killed, a short time.

`python -m tests.end_to_end.cache_torture` does it for long.
"""

from __future__ import annotations

from pathlib import Path

from tests.end_to_end.cache_torture import torture


def test_processes_that_are_killed_among_damaged_files(tmp_path: Path) -> None:
    done = torture(tmp_path, processes=4, kernels=100, seconds=3, seed=0)
    assert done["hits"] + done["misses"] > 0
    assert done["killed"] > 0
