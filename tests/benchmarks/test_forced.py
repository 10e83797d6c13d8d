"""Alternatives to what is proposed: read, applied, compiled; and nothing else is measured in their place."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.cases import public_cases
from benchmarks.forced import PROPOSED, assignments_of, case_named, changed, trials_of
from benchmarks.sweep_cases import sweep_cases
from fuser.errors import InputValueError
from fuser.schedule.params import ChainedParams, ReductionParams

SUM = ReductionParams((0, 1), True, 128, 1, 4, (), 1)


def test_cases_are_found_by_name_and_seed():
    public, drawn = public_cases()[3], sweep_cases(2)[40]
    assert case_named(public.name).name == public.name
    assert case_named(f"{drawn.name} @2").name == drawn.name
    assert case_named(drawn.name).name == drawn.name
    with pytest.raises(InputValueError, match="no case is called"):
        case_named(f"{public.name} @2")


def test_fields_are_changed_also_those_of_fields():
    chained = ChainedParams(SUM, 4)
    found = changed(chained, assignments_of("rows.unroll=2 blocks=8 rows.vectorized=('t0','t1')"))
    assert found.rows.unroll == 2
    assert found.rows.vectorized == ("t0", "t1")
    assert found.blocks == 8
    assert chained.rows == SUM


@pytest.mark.parametrize("text", ["unrol=2", "rows.unroll=2"])
def test_a_field_that_is_not_there_is_refused(text: str):
    with pytest.raises(InputValueError, match="has no field"):
        changed(SUM, assignments_of(text))


@pytest.mark.parametrize("text", ["unroll", "unroll=", "unroll=two"])
def test_what_is_no_assignment_is_refused(text: str):
    with pytest.raises(InputValueError):
        assignments_of(text)


def test_each_case_is_proposed_once_and_first():
    name = "bias_gelu_bf16_512x1024"
    trials = trials_of([f"{name}: unroll=2", "# nothing", f"{name}:", f"{name}: unroll=4  # twice that"])
    assert [t.text for t in trials] == [PROPOSED, "unroll=2", "unroll=4"]


def test_alternatives_are_compiled_and_what_is_refused_is_told(tmp_path: Path):
    """In a process of its own: it changes the compiler."""
    (tmp_path / "asked.txt").write_text(
        "softmax_bf16_16384x4096: batch=2 threads=256\nsoftmax_bf16_16384x4096: extent_ranges=()\n", encoding="utf-8"
    )
    (tmp_path / "more.py").write_text(
        "from dataclasses import replace\n"
        "def alternatives(name, params):\n"
        "    yield 'two rows', replace(params, rows=2)\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "benchmarks.forced", str(tmp_path / "asked.txt"), "--dry"]
    command += ["--module", str(tmp_path / "more.py"), "--json", str(tmp_path / "found.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    found = {f["text"]: f for f in json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))}
    assert list(found) == [PROPOSED, "batch=2 threads=256", "extent_ranges=()", "two rows"]
    for text in (PROPOSED, "batch=2 threads=256", "two rows"):
        assert not found[text]["error"]
        assert found[text]["registers"] > 0
    assert "threads=256" in found["batch=2 threads=256"]["params"][0]
    # A row of any length does not fit registers: that is an error, and no other kernel stands for it.
    assert "cannot be lowered" in found["extent_ranges=()"]["error"]
    assert len(found["extent_ranges=()"]["params"]) == 1
