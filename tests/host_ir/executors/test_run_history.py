"""What runs leave behind: sums over counters and tallies, and calls of libraries, each once."""

from __future__ import annotations

import threading

import pytest

from fuser.host_ir.executors.run_history import COUNTERS, RunHistory
from fuser.ir.ops.dtypes import DataType
from fuser.runtime.kernels.library_calls import LibraryCall, Operand


def test_counters_are_what_was_counted_and_what_tallies_repeat() -> None:
    history = RunHistory()
    assert history.counters() == dict.fromkeys(COUNTERS, 0)
    history.count({"runs": 1, "launches": 3})
    tally, other = history.new_tally({"runs": 1, "launches": 3}), history.new_tally({"runs": 1, "fills": 2})
    tally.replays, other.replays = 4, 5
    expected = {"runs": 1 + 4 + 5, "launches": 3 + 4 * 3, "fills": 5 * 2, "replays": 4 + 5}
    assert {name: n for name, n in history.counters().items() if n} == expected


def test_a_counter_that_does_not_exist_is_no_counter() -> None:
    with pytest.raises(KeyError):
        RunHistory().count({"lunches": 1})


def test_threads_lose_no_count() -> None:
    history = RunHistory()

    def work() -> None:
        for _ in range(200):
            history.count({"launches": 1})
            history.note_interpreted("inputs of JAX")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert history.counters()["launches"] == 1600
    assert history.interpreted() == {"inputs of JAX": 1600}


def test_calls_are_kept_once_and_not_without_bound() -> None:
    history = RunHistory()
    calls = [LibraryCall("matmul", "numpy", (Operand("a", DataType.Float, (n,), (1,)),), ()) for n in range(1000)]
    for call in (*calls, *calls):
        history.note_call(call)
    kept = history.library_calls()
    assert kept == calls[: len(kept)]
    assert 0 < len(kept) < 1000


def test_what_is_given_out_is_a_copy() -> None:
    history = RunHistory()
    history.note_interpreted("no input is an array")
    for given in (history.counters(), history.interpreted()):
        given.clear()
    assert history.interpreted() == {"no input is an array": 1}
    assert set(history.counters()) == set(COUNTERS)
