"""`gc_paused`: garbage collection is paused during stages of a compilation.

A compilation makes and drops some thousand small objects, few of them in cycles: young collections run dozens of times, find
next to nothing, and every so often one of them is a collection of everything that the process has loaded. In a process that has
just imported its packages that one took as long as the rest of the compilation. What was made in the meantime is young still
when collections go on, so that one of the cheap kind finds all of it.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager

from fuser import locks

# The thread that has switched collections off.
_switched_off: int | None = None


@contextmanager
def gc_paused() -> Generator[None]:
    """For Python stages only: the collector belongs to the whole process, and NVRTC may take long.

    Does nothing where collections are off, be it by the user or by another thread in here. Threads may come and go in any
    order: the last thing that one that switched them off does is to switch them on.
    Who switches them off from another thread meanwhile finds them on afterwards: nothing tells whose wish that is.
    """
    global _switched_off
    if not gc.isenabled():
        yield
        return
    gc.disable()
    _switched_off = threading.get_ident()
    try:
        yield
    finally:
        _switched_off = None
        gc.enable()


@locks.in_child
def _switch_on() -> None:
    """In a forked child: a thread that is not there would not do it."""
    global _switched_off
    if _switched_off not in (None, threading.get_ident()):
        _switched_off = None
        gc.enable()


__all__ = ["gc_paused"]
