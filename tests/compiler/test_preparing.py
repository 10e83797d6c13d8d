"""Programs compiled in the background: found by later calls, compiled once, side by side, with errors where they belong."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler import preparing
from fuser.compiler.program_cache import ProgramCache
from fuser.errors import CompilationError, InputError

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(autouse=True)
def simulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    yield
    # Threads of one test do not run into the next.
    pool = preparing._pool
    if pool is not None:
        pool.shutdown(wait=True)
        preparing._forget()


def doubled(factor: float = 2.0) -> FusionDefinition:
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1, -1], dtype=DataType.Float, contiguity=True) * factor)
    return fd


class Gate:
    """Compilations that wait until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()
        make = ProgramCache._make

        def gated(cache: Any, *arguments: Any) -> Any:
            self.entered.release()
            assert self.open.wait(30)
            if error is not None:
                raise error
            return make(cache, *arguments)

        monkeypatch.setattr(ProgramCache, "_make", gated)


def test_a_call_finds_what_was_prepared() -> None:
    fd = doubled()
    program = fd.prepare([X]).wait()
    assert program is fd.program([X])
    (y,) = fd.execute([X])
    np.testing.assert_array_equal(y, X * 2)
    # Values do not count.
    (y,) = fd.execute([X + 1])
    np.testing.assert_array_equal(y, (X + 1) * 2)
    assert fd.fec.counters()["kernels_compiled"] == 1


def test_a_call_that_comes_early_waits_for_its_own_program_only(monkeypatch: pytest.MonkeyPatch) -> None:
    other = doubled(3.0)
    other.execute([X])
    gate = Gate(monkeypatch)
    fd = doubled()
    prepared = fd.prepare([X])
    assert gate.entered.acquire(timeout=30)
    assert not prepared.is_done()
    assert repr(prepared) == "Prepared(compiling)"
    with pytest.raises(TimeoutError, match=r"still compiling after 0\.01 s"):
        prepared.wait(0.01)
    found: list[Any] = []
    caller = threading.Thread(target=lambda: found.extend(fd.execute([X])))
    caller.start()
    np.testing.assert_array_equal(other(X), X * 3)
    assert not found
    gate.open.set()
    caller.join(30)
    np.testing.assert_array_equal(found[0], X * 2)
    assert prepared.is_done()
    assert repr(prepared) == "Prepared(done)"
    assert not gate.entered.acquire(blocking=False), "it was compiled twice"


def test_programs_of_several_definitions_are_compiled_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "processors", lambda: 3)
    gate = Gate(monkeypatch)
    prepared = [doubled(k).prepare([X]) for k in (2.0, 3.0, 4.0)]
    for _ in prepared:
        assert gate.entered.acquire(timeout=30)
    gate.open.set()
    for p in prepared:
        p.wait(30)


def test_what_compiling_raises_is_raised_by_whoever_asks(monkeypatch: pytest.MonkeyPatch, unlowered: list[str]) -> None:
    with monkeypatch.context() as patch:
        gate = Gate(patch, CompilationError("no such instruction", log="line 3"))
        gate.open.set()
        fd = doubled()
        prepared = fd.prepare([X])
        for _ in range(2):
            with pytest.raises(CompilationError, match="no such instruction") as caught:
                prepared.wait(30)
            assert caught.value.log == "line 3"
        assert repr(prepared) == "Prepared(failed)"
        assert unlowered == ["prepared in vain: no such instruction"]
        unlowered.clear()
        with pytest.raises(CompilationError):
            fd.execute([X])
    # The next call tries again.
    np.testing.assert_array_equal(fd(X), X * 2)


def test_inputs_are_checked_at_once_and_not_kept() -> None:
    fd = doubled()
    with pytest.raises(InputError, match="rank"):
        fd.prepare([X[0]])
    with pytest.raises(InputError):
        fd.prepare([])
    given = X.copy()
    kept = weakref.ref(given)
    prepared = fd.prepare([given])
    prepared.wait(30)
    del given
    gc.collect()
    assert kept() is None


def test_updated_inputs() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], dtype=DataType.Float, contiguity=True)
        fd.add_output(x + 1.0, x)
    given = X.copy()
    fd.prepare([given]).wait(30)
    np.testing.assert_array_equal(given, X)
    fd.execute([given])
    np.testing.assert_array_equal(given, X + 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_prepares_with_threads_of_its_own() -> None:
    doubled().prepare([X]).wait(30)
    child = os.fork()
    if not child:
        code = 1
        try:
            doubled(5.0).prepare([X]).wait(30)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
