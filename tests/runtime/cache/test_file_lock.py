"""Processes that lock one file take turns."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fuser.runtime.cache.file_lock import locked

CHILD = """
import sys, time
from fuser.runtime.cache.file_lock import locked
with locked(sys.argv[1]):
    with open(sys.argv[2], "a") as log:
        log.write("in\\n"); log.flush()
        time.sleep(0.05)
        log.write("out\\n")
"""


def test_processes_take_turns(tmp_path: Path) -> None:
    lock, log = tmp_path / "lock", tmp_path / "log"
    command = [sys.executable, "-c", CHILD, str(lock), str(log)]
    with locked(lock):
        children = [subprocess.Popen(command) for _ in range(3)]
        with pytest.raises(subprocess.TimeoutExpired):
            children[0].wait(1.0)
        assert not log.exists()
    assert [child.wait(30) for child in children] == [0, 0, 0]
    assert log.read_text().split() == ["in", "out"] * 3


def test_without_a_path_nothing_is_locked() -> None:
    with locked(None), locked(None):
        pass


def test_an_error_gives_the_lock_back(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="within"), locked(tmp_path / "lock"):
        raise ValueError("within")
    with locked(tmp_path / "lock"):
        pass


def test_a_path_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"), locked(tmp_path / "nowhere" / "lock"):
        pass
