"""What work on a device has to say is raised once, whoever asks first."""

from __future__ import annotations

import pytest

from fuser.errors import LaunchError
from fuser.runtime.reports import Reports, raise_complaints


class Words:
    """A source that was told something."""

    def __init__(self, *told: str) -> None:
        self.told = list(told)

    def take(self) -> list[str]:
        told, self.told = self.told, []
        return told


def complaints(reports: Reports) -> list[str]:
    with pytest.raises(LaunchError) as caught:
        reports.check()
    return [caught.value.message, *getattr(caught.value, "__notes__", [])]


def test_nothing_told_is_nothing_raised() -> None:
    reports = Reports()
    reports.check()
    reports.watch(Words())
    reports.check()


def test_all_that_was_told_is_raised_once() -> None:
    reports, words = Reports(), Words("b", "b")
    reports.watch(words)
    reports.tell("a")
    assert complaints(reports) == ["a", "b"]
    reports.check()
    words.told.append("c")
    assert complaints(reports) == ["c"]


def test_what_a_source_has_told_outlives_it() -> None:
    reports, first, second = Reports(), Words("a"), Words("b")
    reports.watch(first)
    reports.watch(second)
    reports.leave(first)
    first.told.append("too late")
    assert complaints(reports) == ["a", "b"]


def test_the_first_complaint_is_the_message() -> None:
    with pytest.raises(LaunchError) as caught:
        raise_complaints(["a", "b", "c"])
    assert caught.value.message == "a"
    assert caught.value.__notes__ == ["b", "c"]
