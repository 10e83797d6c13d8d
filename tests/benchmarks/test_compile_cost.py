"""The benchmark of compile cost runs, and fails when a number is over its limit. Its limits are not judged here."""

from __future__ import annotations

import os

import pytest

from benchmarks import bench_integers, compile_cost
from benchmarks.compile_cost import Line


@pytest.fixture(autouse=True)
def on_any_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: None, raising=False)


@pytest.mark.parametrize("name", compile_cost.DEFINITIONS)
def test_first_definition_times_every_stage(name: str) -> None:
    found = compile_cost.run_part(f"first:{name}")
    assert list(found)[:2] == ["import fuser.compiler", "definition"]
    assert "kernel.cu" in found
    stages = sum(value for stage, value in found.items() if stage not in ("total", "host.py", "import fuser.compiler"))
    assert stages == pytest.approx(found["total"])


def test_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_integers, "REPEATS", 3)
    assert compile_cost.run_part("integers")["total"] > 0


@pytest.mark.parametrize("name", compile_cost.DEFINITIONS)
def test_simulator(name: str) -> None:
    assert compile_cost.run_part(f"simulate:{name}")["total"] > 0


def test_public_cases_have_text_and_proposals(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import cases

    few = cases.public_cases()[:2]
    monkeypatch.setattr(cases, "public_cases", lambda: few)
    found = compile_cost.run_part("public")
    assert 0 < found["propose, median"] <= found["propose, most"] < found["text, most"]


def test_report(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    slow: set[str] = set()

    def part(name: str, environ: object) -> dict[str, float]:
        seconds = 1e3 if name in slow else 1e-3
        if name.startswith("first:"):
            return {"import fuser.compiler": 1.0, "definition": 1.0, "kernel.cu": 1.0, "total": seconds}
        if name == "public":
            return dict.fromkeys(("text, median", "text, most", "propose, median", "propose, most"), seconds)
        return {"total": seconds}

    monkeypatch.setattr(compile_cost, "in_fresh_process", part)
    monkeypatch.setattr(compile_cost, "whole_process", lambda statement, environ: 1.0)
    assert compile_cost.main(["--processes", "2"]) == 0
    assert capsys.readouterr().out.endswith("\n0 over the limit\n")
    slow.add("first:softmax")
    assert compile_cost.main(["--processes", "2"]) == 1
    assert capsys.readouterr().out.count("OVER  definition to CUDA text") == 2


def test_fresh_processes_see_no_options_and_write_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DUMP", "all")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    environ = compile_cost.environment("/tmp/nowhere")
    assert [name for name in environ if name.startswith("FUSER_")] == ["FUSER_CACHE"]
    assert "PYTHONDONTWRITEBYTECODE" not in environ
    assert compile_cost.whole_process("pass", environ) > 0


def test_line() -> None:
    assert str(Line("what", 1.5, "ms", 2.0)) == "     1.50 ms  limit 2     what"
    assert str(Line("what", 2.5, "ms", 2.0)) == "     2.50 ms  limit 2     OVER  what"
    assert not Line("what", 1e9, "ms").is_over


def test_unknown_part() -> None:
    with pytest.raises(ValueError, match="no part is called 'x'"):
        compile_cost.run_part("x")
