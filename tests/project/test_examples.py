"""The examples and the tour run on the simulator, whole, and end well. They check their own results."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from fuser.compiler.tuning_record import TABLE

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = [*sorted((ROOT / "examples").glob("*.py")), ROOT / "docs" / "tour.py"]

# What shows that a program came to its end and said what it is about.
LAST_WORDS = {
    "01_first_fusion": "__global__ void FUSER_BOUNDS fuser_kernel",
    "02_reductions_and_dtypes": "transposed:    (300, 6)",
    "03_hand_written_schedule": "refused for 999 columns: t0_cache_after_0 cannot be vectorized by 4",
    "04_host_program_with_raw_kernel": "not run, a raw kernel needs a GPU: add_scaled is raw CUDA source",
    "05_saved_program": "none of the compiler's modules was imported",
    "06_streams_and_loops": "a graph of 11 commands: {'launched': 1, 'instantiated': 2}",
    "07_switch_on_the_device": "told: the selector of instruction 7, Switch('case', ...), of the host program (x, used)",
    "08_tuning": "fuser.import_tuning took over 1",
    "tour": "fd.explain(inputs) has all of it",
}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_program_runs(program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    runpy.run_path(str(program), run_name="__main__")
    assert LAST_WORDS[program.stem] in capsys.readouterr().out
    TABLE.forget()


def test_tour_shows_every_stage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from fuser.lowering.pipeline import PASSES
    from fuser.optimize.pipeline import PASSES as REWRITES

    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    runpy.run_path(str(ROOT / "docs" / "tour.py"), run_name="__main__")
    text = capsys.readouterr().out
    names = [*PASSES, *(run.__name__ for run in REWRITES)]
    assert [name for name in names if f"-{name}.py: after a pass" not in text] == []
