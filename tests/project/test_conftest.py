"""The golden fixture and the clean environment that every test relies on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest


def test_golden_location(golden: Any) -> None:
    assert golden.path(".cu") == Path(__file__).parent / "golden" / "conftest" / "golden_location.cu"
    assert golden.path(name="log").name == "golden_location.log.txt"


def test_golden_missing(golden: Any) -> None:
    golden.updating = False
    with pytest.raises(pytest.fail.Exception, match=r"does not exist; `pytest --update-golden` writes it"):
        golden.check("a\n")


def test_golden_equal_and_different(golden: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    golden.updating = False
    monkeypatch.setattr(golden, "path", lambda suffix, name: Path(__file__))
    golden.check(Path(__file__).read_text(encoding="utf-8"))
    with pytest.raises(pytest.fail.Exception, match=r"\+b\nIf the new text is right: `pytest --update-golden`\."):
        golden.check("b")


def test_golden_update_writes(golden: Any, tmp_path: Path) -> None:
    golden.folder = tmp_path / "golden"
    golden.updating = True
    golden.check("one\ntwo", ".cu", "first")
    assert golden.path(".cu", "first").read_text(encoding="utf-8") == "one\ntwo\n"


def test_no_option_of_the_shell_reaches_a_test() -> None:
    assert {name for name in os.environ if name.startswith("FUSER_")} <= {
        "FUSER_CACHE",
        "FUSER_EXPECT_NVRTC",
        "FUSER_NVRTC",
        "FUSER_TRACEBACK",
    }
    assert os.environ["FUSER_CACHE"] == "off"
