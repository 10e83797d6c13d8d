"""Syntax trees in many threads at once."""

from __future__ import annotations

import ast
import contextlib
import gc
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuser.syntax_trees import syntax_tree

TEXT = Path(__file__).read_text()


@pytest.fixture
def switches() -> Iterator[None]:
    """Threads take turns within the building of a tree: the garbage collector runs Python code there."""

    def callback(phase: str, info: dict[str, int]) -> None:
        sum(range(500))

    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    gc.callbacks.append(callback)
    sys.setswitchinterval(1e-6)
    gc.set_threshold(50)
    yield
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)
    gc.callbacks.remove(callback)


def parse_in_threads(parse: object, count: int = 6) -> list[Exception]:
    assert callable(parse)
    errors: list[Exception] = []

    def work() -> None:
        for _ in range(5):
            try:
                parse(TEXT)
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


@pytest.mark.usefixtures("switches")
def test_threads_do_not_disturb_each_other() -> None:
    assert parse_in_threads(syntax_tree) == []


@pytest.mark.usefixtures("switches")
def test_a_thread_of_others_does_not_disturb() -> None:
    done = threading.Event()

    def parse_on() -> None:
        while not done.is_set():
            with contextlib.suppress(SystemError):
                ast.parse(TEXT)

    other = threading.Thread(target=parse_on)
    other.start()
    try:
        assert parse_in_threads(syntax_tree, 2) == []
    finally:
        done.set()
        other.join()


def test_errors_are_those_of_the_parser() -> None:
    with pytest.raises(SyntaxError):
        syntax_tree("x = = 1")
    assert ast.dump(syntax_tree("a + 1", "eval")) == ast.dump(ast.parse("a + 1", mode="eval"))
