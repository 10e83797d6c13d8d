"""Compiling ahead helps where it can, and never stands in the way of the measurement."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.compile_ahead import compile_ahead
from benchmarks.environment import missing

ROOT = Path(__file__).parent.parent.parent
NAMES = ["tiny_add_layernorm_bf16_37x129", "rmsnorm_bf16_10007x3072", "layernorm_bf16_3333x5120"]


@pytest.mark.skipif(not missing(), reason="there is a GPU")
def test_what_does_not_compile_is_told_and_costs_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    compile_ahead("everyday", NAMES, "none", 2, 60.0)
    told = capsys.readouterr().out.splitlines()
    assert sorted(line.split(":")[0] for line in told if "not compiled ahead" in line) == sorted(NAMES)


def test_no_cases_need_no_processes() -> None:
    compile_ahead("everyday", [], "none", 4, 60.0)
