"""The benchmark of proposals times every scheduler that is asked on the way to a kernel, and leaves them as they were."""

from __future__ import annotations

import pytest

from benchmarks.case_sets import SETS
from benchmarks.cases import select_cases
from benchmarks.compile_case import proposed, with_more_rows
from benchmarks.proposals import TIMES, ProposalClock, main, percentile, proposals_of, verdict_of
from fuser.ir.device_info import H200
from fuser.schedule.segmentation.registry import SCHEDULERS


def test_every_scheduler_that_is_asked_is_timed() -> None:
    (case,) = select_cases(["batchnorm_cl"])
    plain = [type(s).propose for s in SCHEDULERS]
    found = proposals_of(case, H200)
    # Whose sizes are refused first, then who takes them; not the reduction scheduler, which that one asks.
    assert [p.scheduler for p in found] == ["inner_persistent", "outer_persistent"]
    assert all(p.first > 0 and p.again() > 0 for p in found)
    assert [type(s).propose for s in SCHEDULERS] == plain


def test_what_is_planned_beside_a_clock_is_what_is_planned() -> None:
    """A scheduler that asks another one does so by name, too: a clock that takes no such argument is a failed proposal."""
    case = next(c for c in SETS["everyday"]() if c.name.startswith("distillation_kl_bf16"))
    plain = [type(params) for _, params in proposed(case, H200)]
    with ProposalClock():
        assert [type(params) for _, params in proposed(case, H200)] == plain
    assert "chained_reduction" in {p.scheduler for p in proposals_of(case, H200)}


def test_a_clock_takes_itself_away_after_a_failure() -> None:
    plain = [type(s).propose for s in SCHEDULERS]
    with pytest.raises(RuntimeError), ProposalClock():
        raise RuntimeError
    assert [type(s).propose for s in SCHEDULERS] == plain


def test_verdict() -> None:
    lines, is_over = verdict_of({"first of a segment": [0.5, 1.5, 3.0], "the same again": [0.025, 0.05, 1.5]})
    assert lines == [
        "first of a segment          3 proposals: median 1.500 ms of 2, 95 % up to 3.000, most 3.000",
        "the same again              3 proposals: median 0.050 ms of 0.1, 95 % up to 1.500, most 1.500",
    ]
    assert not is_over
    assert verdict_of({"other numbers of rows": [0.2]})[1]
    assert verdict_of({}) == ([], False)


def test_percentile() -> None:
    assert percentile([float(n) for n in range(100, 0, -1)], 0.95) == 95
    assert percentile([3.0], 0.95) == 3


def test_other_numbers_of_rows_are_asked_for_the_same_segment() -> None:
    (case,) = select_cases(["softmax_bf16_32768x1024"])
    (found,) = proposals_of(case, H200)
    assert len(found.grown) == TIMES
    rows = found.rows()
    assert rows is not None
    assert rows == min(found.grown) > 0


def test_inputs_grow_together_or_not_at_all() -> None:
    (norm,) = select_cases(["layernorm_bf16_16384x4096"])
    grown = with_more_rows(norm, 3)
    assert grown is not None
    assert [t.sizes for t in grown.tensors.values()] == [(3 * 16384, 4096), (4096,), (4096,)]
    # Rows and columns are as many: a column more is none of the other input, whose rows they are.
    (transposed,) = select_cases(["transpose_add_f32_8192x8192"])
    assert with_more_rows(transposed, 2) is None


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--case", "add_relu"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:2] == ["add_relu_f32_8192x8192", "pointwise"]
    assert lines[2].startswith("first of a segment          1 proposals: median")
    assert lines[4].startswith("the same again              1 proposals: median")
