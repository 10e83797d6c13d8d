"""The reading of sanitizer logs, and the corpus program on the simulator."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from fuser.runtime.devices.cuda_device import CudaDevice
from tests.gpu import corpus, sanitizer_report
from tests.gpu.planted import SOURCES, planted_kernel
from tests.gpu.planted import TOOLS as PLANTED
from tests.gpu.sanitizer_report import TOOLS, read_log, table

CORPUS_LINES = "== add_two-aligned\n== corpus: 192 programs, 208 kernels, 0 wrong, 3 compiled here, 41.5 s\n"

FINDINGS = {
    "memcheck": """\
========= Invalid __global__ write of size 4 bytes
=========     at planted_memcheck+0x70 in kernel.cu:3
=========     by thread (63,0,0) in block (0,0,0)
=========     Access at 0x7fb1e4a00100 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7fb1e4a00000 of size 256 bytes
=========
========= ERROR SUMMARY: 1 error
""",
    "racecheck": """\
========= Error: Race reported between Write access at planted_racecheck+0x90 in kernel.cu:4
=========     and Read access at planted_racecheck+0xb0 in kernel.cu:5 [64 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
""",
    "synccheck": """\
========= Barrier error detected. Divergent thread(s) in block.
=========     at planted_synccheck+0x50 in kernel.cu:3
=========     by thread (32,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 1 error
""",
    "initcheck": """\
========= Uninitialized __global__ memory read of size 4 bytes
=========     at planted_initcheck+0x60 in kernel.cu:3
=========     by thread (0,0,0) in block (0,0,0)
=========     Access to 0x7fb1e4a00000
=========
========= ERROR SUMMARY: 64 errors
""",
}


def log_of(tool: str, before: str = "") -> str:
    return f"========= COMPUTE-SANITIZER\n{before}{CORPUS_LINES}== planted_{tool}\n{FINDINGS[tool]}"


@pytest.mark.parametrize("tool", TOOLS)
def test_planted_defect_alone_passes(tool: str) -> None:
    log = read_log(tool, log_of(tool), 0)
    assert log.passed, log
    assert (log.programs, log.kernels, len(log.planted)) == (192, 208, 1)


@pytest.mark.parametrize("tool", TOOLS)
def test_missed_defect_fails(tool: str) -> None:
    log = read_log(tool, f"========= COMPUTE-SANITIZER\n{CORPUS_LINES}========= ERROR SUMMARY: 0 errors\n", 0)
    assert log.problems == [f"planted_{tool} was not reported"]


@pytest.mark.parametrize("tool", TOOLS)
def test_anything_else_fails(tool: str) -> None:
    other = FINDINGS[tool].replace(f"planted_{tool}", "fuser_kernel")
    log = read_log(tool, log_of(tool, f"== softmax-ragged\n{other}"), 0)
    assert not log.passed
    assert [f.where for f in log.others] == ["softmax-ragged"]
    assert "while softmax-ragged ran" in table([log])
    wrong_tool = next(t for t in TOOLS if t != tool)
    assert not read_log(tool, log_of(tool) + FINDINGS[wrong_tool], 0).passed, "another tool's planted kernel"


def test_unfinished_and_wrong_runs_fail() -> None:
    whole = log_of("memcheck")
    assert not read_log("memcheck", whole.replace("0 wrong", "2 wrong"), 0).passed
    assert not read_log("memcheck", whole.replace("== corpus", "== korpus"), 0).passed
    assert not read_log("memcheck", whole.replace("ERROR SUMMARY", "SUMMARY"), 0).passed
    assert not read_log("memcheck", whole, 124).passed
    assert not read_log("memcheck", f"!! softmax-ragged: AssertionError: output 0\n{whole}", 0).passed
    assert not read_log("memcheck", "", None).passed


def test_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for tool in TOOLS:
        (tmp_path / f"{tool}.log").write_text(log_of(tool))
        (tmp_path / f"{tool}.status").write_text("0\n")
    assert sanitizer_report.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.count(" ok ") == 4
    (tmp_path / "racecheck.log").unlink()
    assert sanitizer_report.main([str(tmp_path)]) == 1
    assert "racecheck  FAILED" in capsys.readouterr().out


def test_planted_kernels_compile() -> None:
    assert sorted(PLANTED) == sorted(TOOLS) == sorted(SOURCES)
    for tool in TOOLS:
        kernel = planted_kernel(tool, "sm_90a")
        assert kernel.cubin
        assert kernel.resources is not None
        assert kernel.resources.spill_bytes == 0


def test_corpus_on_the_simulator(capsys: pytest.CaptureFixture[str]) -> None:
    assert 60 <= len({i.name.removesuffix("-aligned").removesuffix("-ragged") for i in corpus.items()}) <= 200
    assert corpus.main(["--simulator"]) == 0
    assert " 0 wrong, 0 compiled here" in capsys.readouterr().out


def test_corpus_builds_and_reads_its_binaries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "binaries"
    assert corpus.main(["--build", str(path), "--only", "add_two", "forced_boundary", "--workers", "2"]) == 0
    assert "built" in capsys.readouterr().out
    assert path.stat().st_size > 4000


@pytest.mark.parametrize("method", ["allocate", "release", "semaphores"])
def test_the_exact_device_is_asked_as_any_other(method: str) -> None:
    assert inspect.signature(getattr(corpus.ExactDevice, method)) == inspect.signature(getattr(CudaDevice, method))
