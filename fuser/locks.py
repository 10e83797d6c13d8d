"""The project's locks: made here, so that a child that a process forks off finds all of them free.

A forked child has one thread, the one that forked. A lock that another thread held stays held there for ever, and what that
thread was making is never finished: whoever waits for either waits for ever. So in a child every lock is as new, and whoever
has noted that something is under way forgets it (`in_child`). What locks guard must be whole between any two operations on
it, of which each is one of the interpreter's (an entry put into a dictionary, an item appended to a list): a thread may have
come no further.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

_L = TypeVar("_L", bound=Any)

_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_resets: list[Callable[[], None]] = []
_resets_of_objects: weakref.WeakKeyDictionary[object, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def lock() -> threading.Lock:
    """A new `threading.Lock`."""
    return _kept(threading.Lock())


def reentrant_lock() -> threading.RLock:
    """A new `threading.RLock`."""
    return _kept(threading.RLock())


def every_lock() -> list[Any]:
    """All that there are."""
    return list(_locks)


def in_child(reset: Callable[[], None]) -> Callable[[], None]:
    """Decorator: `reset` is called in every child that this process forks off, when all locks are free."""
    _resets.append(reset)
    return reset


def in_child_of(owner: _L, reset: Callable[[_L], None]) -> None:
    """`reset(owner)` is called in every child, as `in_child` says, as long as there is an `owner`."""
    _resets_of_objects[owner] = reset


def _kept(made: _L) -> _L:
    _locks.add(made)
    return made


def _free_in_child() -> None:
    for held in every_lock():
        # One that the thread that forked holds itself stays its own, if it may be taken twice.
        if held.acquire(blocking=False):
            held.release()
        else:
            held._at_fork_reinit()  # what `threading` and `concurrent.futures` do with theirs
    for reset in _resets:
        reset()
    for owner, reset_owner in list(_resets_of_objects.items()):
        reset_owner(owner)


# Not on Windows, which has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_in_child)
