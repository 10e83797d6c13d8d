"""Test set-up: golden files, marks that follow from where a test lives or what it needs, a clean environment.

Golden files lie beside the tests: `golden.check(text, ".cu")` in tests/codegen/test_loops.py compares with
tests/codegen/golden/loops/<test name>.cu. A missing or different file fails and names the command that rewrites it,
`pytest --update-golden`.
"""

from __future__ import annotations

import difflib
import gc
import importlib.util
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.project.turns import waiting_items

TESTS = Path(__file__).parent

# What tests compile they compile, at import as well, and leave nothing in the person's home.
os.environ["FUSER_CACHE"] = "off"
if importlib.util.find_spec("hypothesis") is not None:
    from hypothesis import settings

    # A loaded machine is no defect: how long an example takes is asked by benchmarks.
    settings.register_profile("untimed", deadline=None)
    settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files instead of comparing")
    parser.addoption("--seeds", metavar="FIRST:END", help="other seeds for tests/fuzzing/test_random_programs.py")
    parser.addoption(
        "--turn",
        metavar="NUMBER",
        help="of tests marked in_turns run the cases whose turn it is, one in six; `commit`: a turn by the commit checked out",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """The number of the turn is settled before the workers of pytest-xdist are told of it."""
    if config.getoption("--turn") == "commit":
        command = ["git", "-C", str(TESTS), "rev-parse", "--short=8", "HEAD"]
        try:
            asked = subprocess.run(command, capture_output=True, text=True, check=True)
            config.option.turn = str(int(asked.stdout, 16))
        except (OSError, subprocess.CalledProcessError):
            config.option.turn = "0"  # no git, or no checkout


def pytest_report_header(config: pytest.Config) -> str | None:
    turn = config.getoption("--turn")
    return None if turn is None else f"turn: {turn} (the same cases again: --turn {turn}; all of them: make test-long)"


class Golden:
    """The golden files of one test."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.folder = request.path.parent / "golden" / request.path.stem.removeprefix("test_")
        self.test_name = re.sub(r"[^\w.=-]+", "_", request.node.name.removeprefix("test_")).strip("_")
        self.updating = bool(request.config.getoption("--update-golden"))

    def path(self, suffix: str = ".txt", name: str | None = None) -> Path:
        """Where the golden text lives; `name` tells several texts of one test apart."""
        return self.folder / (self.test_name + (f".{name}" if name else "") + suffix)

    def check(self, text: str, suffix: str = ".txt", name: str | None = None) -> None:
        """Fail unless `text` is the golden text (a closing newline aside); with --update-golden, write it."""
        __tracebackhide__ = True
        text = text.rstrip("\n") + "\n"
        path = self.path(suffix, name)
        if self.updating:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        shown = path.relative_to(TESTS.parent)
        if not path.exists():
            pytest.fail(f"{shown} does not exist; `pytest --update-golden` writes it. It is:\n{text}", pytrace=False)
        expected = path.read_text(encoding="utf-8")
        if text != expected:
            difference = "\n".join(
                difflib.unified_diff(expected.splitlines(), text.splitlines(), str(shown), "this run", lineterm="")
            )
            pytest.fail(f"{difference}\nIf the new text is right: `pytest --update-golden`.", pytrace=False)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(request)


@cache
def _has_cuda_device() -> bool:
    try:
        from cuda.bindings import driver

        (status,) = driver.cuInit(0)
        return status == driver.CUresult.CUDA_SUCCESS
    except (ImportError, RuntimeError):  # RuntimeError: no libcuda on this machine
        return False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark everything under tests/gpu `gpu`; skip what needs a device or package that is not there; leave out whose turn it
    is not."""
    turn = config.getoption("--turn")
    if turn is not None:
        waiting = waiting_items(items, int(turn))
        config.hook.pytest_deselected(items=[item for item in items if item in waiting])
        items[:] = [item for item in items if item not in waiting]
    has_torch = importlib.util.find_spec("torch") is not None
    on_gpu = str(TESTS / "gpu") + os.sep
    for item in items:
        if str(item.path).startswith(on_gpu):
            item.add_marker(pytest.mark.gpu)
        if item.get_closest_marker("gpu") and not _has_cuda_device():
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
        if item.get_closest_marker("torch") and not has_torch:
            item.add_marker(pytest.mark.skip(reason="torch is not installed"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many cases of ops were judged, and how many wrong results the judge was shown to reject."""
    totals = [0, 0, 0]
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, numbers in report.user_properties:
            if name == "wrong results":
                totals = [a + b for a, b in zip(totals, numbers, strict=True)]
    if totals[0]:
        cases, asserted, skipped = totals
        terminalreporter.write_line(
            f"ops: {cases} cases; {asserted} wrong results rejected, {skipped} not judged (equal to the right ones)"
        )


def pytest_collection_finish() -> None:
    """Garbage is collected less often, and never looked for in what lives as long as the process: modules and tests.

    A compilation leaves far more objects than the 700 behind which Python collects, few of them in cycles: collections
    took a sixth of the tests' time. Now they come behind about one compilation each, which bounds what waits for them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 10, 10)


@pytest.fixture(autouse=True)
def _clean_environment(_process_as_it_was: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No FUSER_* setting of the person's shell reaches a test. What fails shows all of its frames."""
    for name in list(os.environ):
        if name.startswith("FUSER_") and name not in KEPT_OPTIONS:
            monkeypatch.delenv(name)
    monkeypatch.setenv("FUSER_TRACEBACK", "full")


@pytest.fixture(autouse=True)
def _process_as_it_was() -> Iterator[None]:
    """What belongs to the whole process is left as it was: which tests share a process, and in which order, is chance."""

    def state() -> tuple[object, ...]:
        variables = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        return (
            gc.isenabled(),
            gc.get_threshold(),
            Path.cwd(),
            variables,
            np.geterr(),
            sys.getrecursionlimit(),
            sys.path[:],
        )

    was = state()
    yield
    assert state() == was


@pytest.fixture(autouse=True)
def unlowered() -> Iterator[list[str]]:
    """Warnings of stages that failed on a segment, which users get by with and tests do not; a test that expects them clears
    them."""
    told: list[str] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    listening = Listening(logging.WARNING)
    logger = logging.getLogger("fuser")
    logger.addHandler(listening)
    yield told
    logger.removeHandler(listening)
    assert not told


KEPT_OPTIONS = {"FUSER_CACHE", "FUSER_EXPECT_NVRTC", "FUSER_NVRTC"}
"""The cache that is turned off above, and options that select the toolchain under test: they are meant for the whole run."""
