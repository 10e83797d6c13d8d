"""`fuser demo` on a GPU: right results, and times beside those of a plain copy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fuser import demo


def test_demo_is_right_and_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FUSER_DUMP_DIR", str(tmp_path))
    monkeypatch.setattr(demo, "GPU_SHAPE", (1024, 4096))
    assert demo.main([]) == 0
    text = capsys.readouterr().out
    assert text.endswith("3 of 3 results are right\n")
    assert len(re.findall(r"^  time        \d+\.\d us, median of \d+ with a cold L2", text, re.MULTILINE)) == 3
    assert len(re.findall(r"^  plain copy  \d+\.\d us for as many bytes; \d+ GB/s", text, re.MULTILINE)) == 3
