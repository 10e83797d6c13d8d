"""The compile-time benchmark measures in a process of its own, and says what is over its limit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.compile_time import FirstResult, environment_of, error_of, in_new_process, text_of
from fuser.runtime.kernels import nvrtc


@pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")
def test_a_case_without_a_gpu() -> None:
    found = in_new_process("add_relu_f32_8192x8192", on_gpu=False, core=None)
    assert found.status == "ok", found.text
    assert found.kernels == 1
    assert 0 < found.nvrtc < found.total
    assert 0 < found.proposal < found.total


def test_a_process_that_fails_says_why() -> None:
    assert in_new_process("no_such_case", on_gpu=False, core=None).text.startswith("ValueError: no case has")


def test_processes_share_the_disk_cache_of_a_folder_or_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSER_LOG", "debug")
    code = "from fuser import options; print(options.CACHE.get(), options.CACHE_DIR.get(), options.LOG.get())"
    for folder, want in ((None, "False None warning"), (str(tmp_path), f"True {tmp_path} warning")):
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment_of(folder), capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == want


def test_what_was_raised_is_told_apart_from_where() -> None:
    trace = "Traceback (most recent call last):\n  File ...\n    f()\n"
    assert error_of(f"a warning\n{trace}fuser.errors.InputValueError: bad\n  at File\n    f()\n").endswith("Error: bad")
    assert error_of(f"{trace}KeyError: 1\n\nDuring ...\n\n{trace}ValueError: 2\n") == "ValueError: 2"
    assert error_of("Killed\n") == "Killed"
    assert error_of("") == ""


def test_limits() -> None:
    text, is_over = text_of([FirstResult("a", "ok", "", 250.0, 180.0, 1), FirstResult("b", "unsupported", "x")], "here")
    assert not is_over
    assert "250 ms definition to loaded kernel, limit 300: met" in text
    assert "b                                        unsupported: x" in text
    assert text_of([FirstResult("a", "ok", "", 301.0, 290.0, 1)], "here")[1]
    assert text_of([FirstResult("a", "ok", "", 250.0, 149.0, 1)], "here")[1]
    text, is_over = text_of([FirstResult("a", "ok", "", 250.0, 180.0, 1, 1.25)], "here")
    assert is_over
    assert "1.25 ms of that in the longest proposal, limit 1: OVER" in text
