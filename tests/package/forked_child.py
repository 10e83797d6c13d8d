"""Work done in a forked child."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable


def in_child(work: Callable[[], object]) -> str:
    """What `work` answers in a forked child, or what it raised; a child that waits is ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            answer = repr(work())
        except BaseException as error:  # handed to the parent
            answer = repr(error)
        os.write(writing, answer.encode()[:1000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        said = answers.read()
    _, status = os.waitpid(child, 0)
    return said or f"ended with status {status}"
