"""The pool behind benchmarks/accuracy.py takes what it can work on, and hands back what jobs return."""

from __future__ import annotations

from threading import Event, Thread

from benchmarks.accuracy import Waiting


def test_jobs_run_and_answer_in_order() -> None:
    with Waiting(3) as pool:
        assert list(pool.map(lambda k: k * k, range(20))) == [k * k for k in range(20)]


def test_a_job_that_fails_makes_room() -> None:
    with Waiting(1) as pool:
        jobs = [pool.submit(int, "no number") for _ in range(5)]
        assert all(isinstance(j.exception(), ValueError) for j in jobs)


def test_no_more_than_twice_its_threads_wait() -> None:
    go, taken = Event(), 0
    with Waiting(2) as pool:

        def submit() -> None:
            nonlocal taken
            for _ in range(6):
                pool.submit(go.wait)
                taken += 1

        submitter = Thread(target=submit)
        submitter.start()
        submitter.join(0.2)
        assert submitter.is_alive()
        assert taken == 4
        go.set()
        submitter.join()
    assert taken == 6
