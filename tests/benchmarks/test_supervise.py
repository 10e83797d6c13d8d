"""Every item is reported once, whatever becomes of its worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.supervise import supervise

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def outcome(names: list[str], timeout: float = 30.0, worker: str = "dying_worker") -> list[tuple[str, str]]:
    found = supervise(f"tests.benchmarks.{worker}", [], names, timeout)
    return [(item["name"], item.get("lost", "done")) for item in found]


def test_all_in_one_worker() -> None:
    assert outcome(["a", "b"]) == [("a", "done"), ("b", "done")]


def test_a_worker_that_dies_costs_its_item() -> None:
    assert outcome(["a", "dies", "b"]) == [("a", "done"), ("dies", "its process ended with code 9"), ("b", "done")]


def test_a_worker_that_spoiled_its_gpu_costs_nothing_more() -> None:
    assert outcome(["spoils", "b"]) == [("spoils", "done"), ("b", "done")]


def test_a_worker_that_hangs_is_ended() -> None:
    assert outcome(["hangs"], timeout=2.0) == [("hangs", "nothing for 2 s")]


def test_workers_that_do_not_start_are_given_up() -> None:
    found = dict(outcome(["a", "b", "c", "d"], worker="no_such_worker"))
    assert found["a"] == found["b"] == "its process ended with code 1"
    assert found["c"] == found["d"] == "workers end with code 1 before they begin"
