"""Programs compiled in the background, ahead of the calls that need them: `fd.prepare(inputs)`.

Python stages of several programs take turns, as the interpreter has one thread at a time; NVRTC, which is most of the time,
works for all of them at once. A call that needs a program that is being made waits for that one only.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError

from fuser import locks
from fuser import options as environment
from fuser.compiler.builds import MAX_THREADS, processors
from fuser.errors import FuserError
from fuser.host_ir.program import HostProgram
from fuser.tracebacks import short_tracebacks

THREAD_NAME = "fuser prepare"

_lock = locks.lock()
_pool: ThreadPoolExecutor | None = None


@short_tracebacks
class Prepared:
    """A program on its way. Forgetting it changes nothing: calls find the program all the same."""

    def __init__(self, future: Future[HostProgram]) -> None:
        self._future = future

    def is_done(self) -> bool:
        """Whether the compilation has ended, in whatever way."""
        return self._future.done()

    def wait(self, timeout: float | None = None) -> HostProgram:
        """The program, when it is there.

        timeout  seconds to wait at most; None: as long as it takes

        Raises what compiling raised, and TimeoutError when the time is over; the compilation goes on.
        """
        try:
            return self._future.result(timeout)
        except FutureTimeoutError:
            # Before Python 3.11 it is another class.
            raise TimeoutError(f"still compiling after {timeout:g} s") from None

    def __repr__(self) -> str:
        if not self.is_done():
            return "Prepared(compiling)"
        return "Prepared(done)" if self._future.exception() is None else "Prepared(failed)"


def prepare(compile_program: Callable[[], HostProgram]) -> Prepared:
    """Begin a compilation in the background. What it raises is logged, and `wait` and the call that tries again raise it."""

    def compiled() -> HostProgram:
        try:
            return compile_program()
        except FuserError as error:
            environment.logger().warning("prepared in vain: %s", error.message.splitlines()[0])
            raise

    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(min(MAX_THREADS, processors()), THREAD_NAME)
        return Prepared(_pool.submit(compiled))


@locks.in_child
def _forget() -> None:
    """A forked child has none of the threads."""
    global _pool
    _pool = None
