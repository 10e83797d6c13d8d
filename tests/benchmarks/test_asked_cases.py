"""Programs that look at cases without a GPU take the same arguments, and say which are wrong."""

from __future__ import annotations

import pytest

from benchmarks.asked_cases import asked_cases
from benchmarks.cases import public_cases
from benchmarks.sweep_cases import sweep_cases

NOTABLE = ("--bad", "print only bad ones")


def test_all_public_cases_for_an_h200() -> None:
    asked = asked_cases("resources", "Doc.", NOTABLE, [])
    assert [c.name for c in asked.cases] == [c.name for c in public_cases()]
    assert (asked.info.sm_count, asked.only_notable) == (132, False)


def test_everyday_cases() -> None:
    asked = asked_cases("resources", "Doc.", NOTABLE, ["--set", "everyday", "--case", "rmsnorm"])
    assert {c.family for c in asked.cases} >= {"norms", "norm_gradients"}


def test_some_of_a_sweep() -> None:
    asked = asked_cases(
        "x", None, NOTABLE, ["--sweep", "--seed", "1", "--case", "sum_all", "--bad", "--device", "sm_80"]
    )
    assert [c.name for c in asked.cases] == [c.name for c in sweep_cases(1) if "sum_all" in c.name]
    assert (asked.info.arch, asked.only_notable) == ("sm_80", True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--case", "no such"], "error: no case has no such in its name"),
        (["--device", "toaster"], "no device preset 'toaster'; known: H200"),
        (["--over"], "error: unrecognized arguments: --over"),
    ],
)
def test_wrong_arguments(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        asked_cases("resources", "Doc.", NOTABLE, arguments)
    assert message in capsys.readouterr().err
