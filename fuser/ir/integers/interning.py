"""Tables of interned values: equal values are one object for as long as anyone has it, and no longer.

A table maps what a value is made of to the one object. Who finds nothing there makes the object and puts it in under `lock`;
who finds it takes no lock. A table that has grown drops what it alone refers to. Weak references would do so at once, and cost
every lookup; counting references costs a pass over the table, once it has doubled.

While a table drops entries, other threads may look up what it is about to drop. So an entry is taken out first, and its
references are counted again: whoever found it before then has a reference, and the entry is put back. Who looks meanwhile finds
nothing, and waits for the lock.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from fuser import locks

Table: TypeAlias = "dict[Any, Any]"
Cycle: TypeAlias = "Callable[[Any], Iterable[object]]"

lock: Final = locks.reentrant_lock()
"""Held by whoever puts a new value into a table."""

_leaving: list[tuple[Table, Table]] = []
"""Tables that drop entries now, each with those that are taken out and not yet known to be without references."""


def drop_unused(tables: Sequence[Table], cycle: Cycle) -> None:
    """Drop entries whose values nobody but the tables refers to, directly or through other values of the tables.

    `cycle(value)` are the objects through which a value refers to itself, none for most; if anyone shares one of them, the
    value stays. So do values that refer to themselves in other ways. Does nothing in a Python without the global interpreter
    lock, whose counts are not exact.
    """
    if not _HAS_GLOBAL_LOCK:
        return
    with lock:
        # What is dropped refers to more: as long as a pass drops much, another one may.
        before = sum(map(len, tables))
        while True:
            for table in tables:
                _drop(table, cycle)
            left = sum(map(len, tables))
            if before - left <= left // 64:
                return
            before = left


def _drop(table: Table, cycle: Cycle) -> None:
    taken: Table = {}
    _leaving.append((table, taken))
    try:
        for key in [key for key in list(table) if _is_unused(table, key, cycle)]:
            # In this order, so that it is always in one of both: an interrupt or a fork may come anywhere.
            taken[key] = table[key]
            del table[key]
    finally:
        for key in list(taken):
            if not _is_unused(taken, key, cycle):
                table[key] = taken[key]
        _leaving.pop()


@locks.in_child
def _put_back() -> None:
    """In a forked child: the thread that was dropping entries is not there."""
    for table, taken in _leaving:
        table.update(taken)
    _leaving.clear()


def _is_unused(table: Table, key: object, cycle: Cycle) -> bool:
    value, *around = _references(table, key, cycle)
    alone, *within = _REFERENCES[len(around) > 0]
    return value == alone and all(count == within[0] for count in around)


def _references(table: Table, key: object, cycle: Cycle) -> list[int]:
    """How many references there are to a value, among them the table's and this function's, and to the objects of its cycle."""
    value = table[key]
    return [sys.getrefcount(value), *map(sys.getrefcount, cycle(value))]


class _Sample:
    """A value that nobody else has."""

    around: tuple[object, ...] = ()


def _sample_in_cycle() -> _Sample:
    made = _Sample()
    made.around = (made,)
    return made


_HAS_GLOBAL_LOCK: Final[bool] = getattr(sys, "_is_gil_enabled", lambda: True)()
# Of a value without a cycle and of one with one, of which only the table knows. Versions of Python count differently.
_REFERENCES: Final = (
    _references({0: _Sample()}, 0, lambda _: ()),
    _references({0: _sample_in_cycle()}, 0, lambda value: (value.around,)),
)


__all__ = ["Table", "drop_unused", "lock"]
