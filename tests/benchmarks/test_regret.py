"""Regret of proposals: what was measured is found again, and limits are told apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import regret
from benchmarks.param_times import SegmentTimes, cases_of, read, text_of, times_of, write
from fuser.ir.device_info import DeviceInfo
from tests.compiler.tuning_records import RECORD

H200 = DeviceInfo.preset("H200")
CASE = "public/softmax_bf16_32768x1024"


def times(us: dict[str, float], case: str = CASE, outputs: tuple[str, ...] | None = None) -> SegmentTimes:
    (proposed,) = regret.proposals_of(cases_of("public")[CASE], H200)
    return SegmentTimes(case, outputs or proposed, "H200", "abc", us)


def proposal() -> str:
    (text,) = regret.proposals_of(cases_of("public")[CASE], H200).values()
    return text


def test_regret_is_what_the_proposal_takes_more_than_the_best() -> None:
    found = regret.regrets([times({proposal(): 15.0, "another": 10.0})], H200)
    assert [(r.case, r.value, r.best) for r in found] == [(CASE, 0.5, "another")]


def test_a_proposal_that_is_the_best_has_none() -> None:
    assert [r.value for r in regret.regrets([times({proposal(): 9.0, "another": 10.0})], H200)] == [0.0]


def test_later_lines_of_a_segment_are_added_to_earlier_ones() -> None:
    lines = [times({proposal(): 15.0, "another": 10.0}), times({proposal(): 12.0, "third": 6.0})]
    assert [r.value for r in regret.regrets(lines, H200)] == [1.0]


def test_a_proposal_that_was_not_measured_counts_as_that() -> None:
    lines = [times({"another": 10.0}), times({"another": 1.0}, outputs=("t99",))]
    found = regret.regrets(lines, H200)
    assert [r.value for r in found] == [None, None]
    text, is_missed = regret.text_of_regrets(found, 3)
    assert is_missed
    assert "2 segments" in text


def test_a_case_that_is_no_more_has_none() -> None:
    assert regret.regrets([times({"another": 1.0}, case="public/gone", outputs=("t1",))], H200) == []


def test_limits_are_met_or_missed() -> None:
    found = [regret.Regret("public/a", "f", value, "p", "b") for value in (0.0, 0.04, 0.02)]
    text, is_missed = regret.text_of_regrets(found, 3)
    assert not is_missed
    assert "mean 2.0%, limit 5%: met" in text
    text, is_missed = regret.text_of_regrets([*found, regret.Regret("public/a", "f", 0.9, "p", "b")], 3)
    assert is_missed
    assert "most 90.0%, limit 50%: MISSED" in text


def test_about_a_third_is_held_out_and_stays_so() -> None:
    names = [name for seed in (0, 1) for name in cases_of(f"sweep{seed}")]
    share = sum(map(regret.is_held_out, names)) / len(names)
    assert 0.25 < share < 0.42
    assert [regret.is_held_out(n) for n in names] == [regret.is_held_out(n) for n in names]


def test_files_keep_what_was_measured(tmp_path: Path) -> None:
    (segment,) = RECORD.segments
    lines = [times_of("public/x", segment, "H200", "abc"), times({proposal(): 1.5})]
    path = tmp_path / "times.jsonl"
    for line in lines:
        write(path, [line])
    assert read(path) == lines
    path.write_text(path.read_text() + "{}\n")
    with pytest.raises(ValueError, match="line 3"):
        read(path)


def test_reasons_are_no_part_of_what_is_compared() -> None:
    (segment,) = RECORD.segments
    params = segment.candidates[0].params
    assert text_of(params) == text_of(replace(params, reasons=("others",)))
    assert text_of(params) != text_of(segment.candidates[1].params)


def test_lists_of_cases_have_names() -> None:
    with pytest.raises(ValueError, match="public, everyday, sweep"):
        cases_of("private")


def test_without_times_it_says_how_to_measure_some(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "none.jsonl"
    empty.write_text("")
    with pytest.raises(SystemExit):
        regret.main([str(empty)])
    assert "benchmarks.tuned --wide --times" in capsys.readouterr().err


def check_regret(path: Path) -> None:
    """Of all segments of a file, and of the third that nothing may be fitted to.

    What was never measured has no regret: of a tenth of the segments that may be so.
    """
    found = regret.regrets(read(path), H200)
    values = [r.value for r in found if r.value is not None]
    assert len(values) >= (1 - regret.MOST_UNMEASURED) * len(found)
    for some in (found, [r for r in found if regret.is_held_out(r.case)]):
        text, is_missed = regret.text_of_regrets([r for r in some if r.value is not None], 10)
        assert not is_missed, text


def test_measured_proposals_lie_within_the_limits_of_the_best_that_was_measured() -> None:
    check_regret(regret.DATA / "h200.jsonl")


def test_proposals_for_fusions_added_after_the_fit_do_not_get_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    """They miss the limits, as `make regret` says: what was reached is kept."""
    reached = {"MOST_MEAN": 0.065, "MOST_95": 0.24, "MOST": 0.57, "MOST_UNMEASURED": 0.15}
    for name, value in reached.items():
        monkeypatch.setattr(regret, name, value)
    check_regret(regret.DATA / "h200_added.jsonl")
