"""What the summary of the everyday cases says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.everyday.summary import against_compile, everyday_summary
from tests.benchmarks.result_rows import GOOD


@pytest.mark.parametrize(
    ("ours", "theirs", "ratio"),
    [(100.0, 150.0, 1.5), (4.7, 4.4, 1.0), (4.4, 4.7, 1.0), (5.0, 4.4, 0.88), (100.0, 99.8, 0.998)],
)
def test_tiny_kernels_may_be_as_good_as_equal(ours: float, theirs: float, ratio: float) -> None:
    row = replace(GOOD, ours=ours, peers=(("eager", 1.0), ("compile", theirs)))
    assert against_compile(row) == pytest.approx(ratio)
    assert against_compile(replace(row, peers=(("eager", 1.0),))) is None


def test_summary_names_means_and_the_worst() -> None:
    rows = [replace(GOOD, name=f"case{k}", copy=50.0, ours=100.0, peers=(("compile", 10.0 * k),)) for k in range(1, 15)]
    lines = everyday_summary([*rows, replace(GOOD, name="bad", status="wrong", ours=None)], 2.5).splitlines()
    assert lines[0] == "15 cases: 14 ok, 1 wrong"
    assert "geometric mean of 14: 0.500 of the copy" in lines
    assert "bad: wrong: 0.50 ulp" in lines
    begin = lines.index("the worst 10 against torch.compile:")
    assert lines[begin + 1] == "  0.100  case1  100.0 us"
    assert lines[begin + 11] == "the worst 10 against the copy:"
