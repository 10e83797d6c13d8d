"""What the tables say: fractions, best peers, limits that are missed."""

from __future__ import annotations

from dataclasses import asdict
from xml.etree import ElementTree

import pytest

from benchmarks.cases import TINY_CASE, select_cases
from benchmarks.chart import bar_chart
from benchmarks.recorded_peers import RecordedPeers
from benchmarks.results_table import Row, geomean, missed_limits, row_of, summary, table
from benchmarks.sweep import histogram
from benchmarks.sweep_cases import LENGTHS, MOST_BYTES, sweep_cases
from tests.benchmarks.result_rows import GOOD


def row(**changes: object) -> Row:
    return Row(**{**asdict(GOOD), **changes})  # type: ignore[arg-type]


def test_ratios() -> None:
    assert GOOD.fraction == pytest.approx(68.4 / 70)
    assert GOOD.best_peer == ("quack*", 70.9)
    assert GOOD.against_peer == pytest.approx(70.9 / 70)
    assert GOOD.peer("quack") == 70.9
    assert GOOD.peer("compile") is None
    assert geomean([2.0, 8.0]) == pytest.approx(4.0)
    assert geomean([]) is None


def test_no_limit_is_missed() -> None:
    assert missed_limits([GOOD], 2.0) == []
    assert "0 limits missed" in summary([GOOD], 2.0)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (row(ours=90.0, peers=()), "0.760 of the copy, at least 0.85"),
        (row(name="softmax_bf16_64x1048576", ours=95.0, peers=()), "0.720 of the copy, at least 0.75"),
        (row(peers=(("quack*", 60.0),)), "0.86 times as fast as quack*, at least 0.98"),
        (row(status="wrong"), "softmax_bf16_16384x4096: wrong"),
        (row(status="unsupported", ours=None, copy=None), "unsupported"),
        (row(name=TINY_CASE, ours=3.5, peers=()), "3.50 us, at most 3.00"),
    ],
)
def test_each_limit_is_said(changed: Row, text: str) -> None:
    assert any(text in miss for miss in missed_limits([changed], 2.0))


def test_the_mean_has_a_limit_of_its_own() -> None:
    assert missed_limits([row(ours=76.0, peers=())], 2.0) == ["geometric mean 0.900 of the copy, at least 0.95"]


def test_table_is_aligned_and_hides_nothing() -> None:
    missing = row(name="rope", status="unsupported", text="slice()", copy=None, ours=None, spread=None, host=None)
    lines = table([GOOD, missing]).splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("case")
    assert lines[0].index("check") == lines[1].index("ok: 0.50 ulp") == lines[2].index("unsupported: slice()")


def test_rows_survive_the_way_from_the_worker() -> None:
    import json

    (case,) = select_cases([GOOD.name])
    assert row_of(json.loads(json.dumps({"row": asdict(GOOD)})), case) == GOOD
    lost = row_of({"lost": "its process ended with code -11"}, case)
    assert (lost.status, lost.text, lost.nbytes) == ("failed", "its process ended with code -11", case.nbytes)


def test_chart_is_xml_with_a_bar_for_every_time() -> None:
    chart = ElementTree.fromstring(bar_chart([GOOD, row(name="a<b", ours=None)], "R&D", "note"))
    rects = [e for e in chart if e.tag.endswith("rect")]
    assert len(rects) == 2  # the background, one bar
    assert any(e.text == "a<b" for e in chart)


def test_recorded_peers_scale_with_the_copy() -> None:
    recorded = RecordedPeers("X", ((1e6, 3.0), (4e6, 9.0), (8e6, 13.0)), {"softmax": {"jax": 10.0}})
    assert recorded.copy_time(2_000_000) == pytest.approx(5.0)
    assert recorded.copy_time(0) == pytest.approx(1.0)
    assert recorded.copy_time(10_000_000) == pytest.approx(15.0)
    assert recorded.scaled("softmax", 2_000_000, 2.5) == {"jax": pytest.approx(5.0)}
    assert recorded.scaled("rope", 2_000_000, 2.0) == {}


def test_histogram_counts_by_tenths() -> None:
    lines = histogram([0.05, 0.95, 0.99, 1.05, 3.0]).splitlines()
    assert lines[0] == "0.0     1 #"
    assert lines[9] == "0.9     2 ##"
    assert lines[-1] == "1.1+    1 #"


def test_sweep_is_wide_and_repeats_itself() -> None:
    cases = sweep_cases(0)
    assert len(cases) >= 200
    assert [c.name for c in cases] == [c.name for c in sweep_cases(0)]
    assert {c.name for c in cases} != {c.name for c in sweep_cases(1)}
    assert max(c.nbytes for c in cases) <= 1.1 * MOST_BYTES
    softmaxes = {c.inputs[0].shape[-1] for c in cases if c.family == "softmax"}
    assert softmaxes == set(LENGTHS)
    layouts = {(bool(c.inputs[0].pad), bool(c.inputs[0].offset)) for c in cases}
    assert layouts == {(False, False), (True, False), (False, True), (True, True)}
    assert {c.inputs[0].dtype.name for c in cases} >= {"BFloat16", "Half", "Float", "Double"}
