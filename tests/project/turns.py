"""Which cases of the tests marked in_turns a run leaves to other runs."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import pytest

TURNS = 6
"""Turns in a row that run every case."""


def waiting_items(items: Sequence[pytest.Item], turn: int) -> set[pytest.Item]:
    """The cases of tests marked in_turns whose turn it is not.

    The cases of a test are mixed, by their names, and dealt out to as many hands as there are turns: a turn plays one hand.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("in_turns"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    waiting: set[pytest.Item] = set()
    for test, of_test in cases.items():
        mixed = sorted(of_test, key=lambda item: zlib.crc32(item.nodeid.encode()))
        played = (zlib.crc32(test.encode()) + turn) % TURNS
        waiting.update(item for k, item in enumerate(mixed) if k % TURNS != played)
    return waiting
