"""The benchmark of proposals times every scheduler that is asked on the way to a kernel, and leaves them as they were."""

from __future__ import annotations

import pytest

from benchmarks.cases import select_cases
from benchmarks.proposals import ProposalClock, main, proposals_of, verdict_of
from fuser.ir.device_info import H200
from fuser.schedule.registry import SCHEDULERS


def test_every_scheduler_that_is_asked_is_timed() -> None:
    (case,) = select_cases(["batchnorm_cl"])
    plain = [type(s).propose for s in SCHEDULERS]
    found = proposals_of(case, H200)
    # Whose sizes are refused first, then who takes them; not the reduction scheduler, which that one asks.
    assert [p.scheduler for p in found] == ["inner_persistent", "outer_persistent"]
    assert all(p.first > 0 and p.again() > 0 for p in found)
    assert [type(s).propose for s in SCHEDULERS] == plain


def test_a_clock_takes_itself_away_after_a_failure() -> None:
    plain = [type(s).propose for s in SCHEDULERS]
    with pytest.raises(RuntimeError), ProposalClock():
        raise RuntimeError
    assert [type(s).propose for s in SCHEDULERS] == plain


def test_verdict() -> None:
    lines, is_over = verdict_of([0.5, 2.0, 3.0], [0.25, 0.5, 1.5])
    assert lines == [
        "median of 3 proposals, asked first: 2.00 ms, most 3.00; 2 over 1",
        "median of 3 proposals, asked again: 0.50 ms, most 1.50; 1 over 1",
    ]
    assert not is_over
    assert verdict_of([1.0], [1.01])[1]


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--case", "add_relu"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:2] == ["add_relu_f32_8192x8192", "pointwise"]
    assert lines[2].startswith("median of 1 proposals, asked first")
