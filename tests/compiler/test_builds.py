"""Binaries that are made side by side: order, errors, what is dropped, and what a terminal is told."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler import builds
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.builds import Builds, Progress
from fuser.compiler.compile_fusion import compile_fusion
from fuser.compiler.recorder import KeepingRecorder
from fuser.errors import CompilationError
from fuser.host_ir.program import HostProgram
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.runtime.kernels import nvrtc


@pytest.fixture(autouse=True)
def four_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "processors", lambda: 4)


def test_results_come_to_those_who_asked() -> None:
    with Builds(20) as some:
        results = [some.start(lambda k=k: k * k) for k in range(20)]  # type: ignore[misc]
        assert [result() for result in results] == [k * k for k in range(20)]


def test_calls_run_side_by_side() -> None:
    """Each waits for all others."""
    barrier = threading.Barrier(4)
    with Builds(4) as some:
        results = [some.start(lambda: barrier.wait(30)) for _ in range(4)]
        assert sorted(result() for result in results) == [0, 1, 2, 3]
    assert not [t for t in threading.enumerate() if t.name == "fuser build"]


@pytest.mark.parametrize("count", [0, 1])
def test_a_single_one_runs_where_it_is_started(count: int) -> None:
    with Builds(count) as some:
        assert some.start(threading.current_thread)() is threading.current_thread()


def test_one_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "processors", lambda: 1)
    with Builds(9) as some:
        assert {some.start(threading.current_thread)() for _ in range(9)} == {threading.current_thread()}


def test_an_error_is_raised_where_the_result_is_asked_for() -> None:
    def fail() -> None:
        raise ValueError("no")

    for count in (1, 3):
        with Builds(count) as some:
            result = some.start(fail)
            assert some.start(lambda: 7)() == 7
            with pytest.raises(ValueError, match=r"^no$"):
                result()


def test_what_was_not_begun_is_dropped() -> None:
    """As where a segment that is lowered meanwhile has to be cut: nobody wants the others any more."""
    held = threading.Event()
    ran: list[int] = []

    def use(some: Builds) -> None:
        for _ in range(4):
            some.start(held.wait)
        for k in range(100):
            some.start(lambda k=k: ran.append(k))  # type: ignore[misc]
        threading.Timer(0.05, held.set).start()
        raise KeyError("a segment is to be cut")

    with pytest.raises(KeyError), Builds(104) as some:
        use(some)
    assert ran == []


# --- whole programs -------------------------------------------------------------------------------------------------------


def several(fd: FusionDefinition) -> None:
    """Segments that share nothing."""
    x = fd.define_tensor([-1, -1], True, DataType.Float)
    fd.add_output(fd.ops.sum(fd.ops.exp(x), [0]))
    fd.add_output(fd.ops.cumsum(x, 1))
    fd.add_output(fd.ops.sum(fd.ops.neg(x), [1]))


def compiled(define: Callable[[FusionDefinition], None] = several) -> tuple[HostProgram, dict[str, str]]:
    """For a GPU."""
    with FusionDefinition() as fd:
        define(fd)
    assert fd.fusion is not None
    bound = bind_inputs(fd.fusion.ir_fusion, [TensorDescriptor(DataType.Float, (300, 500), (500, 1), 256)])
    recorder = KeepingRecorder()
    program = compile_fusion(fd.fusion.ir_fusion, bound, DeviceInfo.preset("H200"), recorder=recorder)
    return program, recorder.stages


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(found: tuple[HostProgram, dict[str, str]]) -> Any:
        program, stages = found
        return repr(program), [k.cubin for k in program.kernels.values()], {**stages}

    side_by_side = told(compiled())
    assert len(side_by_side[1]) >= 2
    monkeypatch.setattr(builds, "processors", lambda: 1)
    assert told(compiled()) == side_by_side


def test_binaries_are_made_in_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = nvrtc.compile_to_cubin
    threads: set[str] = set()

    def watched(*arguments: Any) -> Any:
        threads.add(threading.current_thread().name)
        return plain(*arguments)

    monkeypatch.setattr(nvrtc, "compile_to_cubin", watched)
    compiled()
    assert threads == {"fuser build"}


def test_refusals_of_all_segments_are_told_with_their_lines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, unlowered: list[str]
) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    monkeypatch.setenv("FUSER_DUMP_DIR", str(tmp_path))
    program, _ = compiled()
    refused = [k.source for k in list(program.kernels.values())[:2]]
    plain = nvrtc.compile_to_cubin

    def picky(source: str, *rest: Any) -> Any:
        if source in refused:
            raise CompilationError(f"planted {refused.index(source)}", log=f"log {refused.index(source)}")
        return plain(source, *rest)

    monkeypatch.setattr(nvrtc, "compile_to_cubin", picky)
    with pytest.raises(CompilationError) as caught:
        compiled()
    text = caught.value.message
    for k in range(2):
        part = text[text.index(f"segment {k}: planted {k}") :]
        assert f'at File "{__file__}", line ' in part
        assert "in several\n    fd.add_output(" in part
        assert f"\nlog {k}" in part
    assert "segment 2" not in text


# --- the line on a terminal -----------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def __init__(self, is_terminal: bool = True) -> None:
        super().__init__()
        self.is_terminal = is_terminal
        self.written = threading.Event()

    def isatty(self) -> bool:
        return self.is_terminal

    def write(self, text: str) -> int:
        self.written.set()
        return super().write(text)


def test_a_long_compilation_says_how_far_it_is() -> None:
    terminal = Terminal()
    progress = Progress(40, terminal, after_s=0.0)
    for _ in range(3):
        progress.one_more()
    progress.begin()
    assert terminal.written.wait(30)
    progress.end()
    first, *_, last = terminal.getvalue().split("\r")[1:]
    assert first == "fuser: 3 of 40 kernels compiled, 0 s (FUSER_PROGRESS=off hides this)"
    assert last == "", "the line is blank again, and the cursor at its begin"


def test_who_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal, after_s, option in ((Terminal(), 99.0, "on"), (Terminal(False), 0.0, "on"), (Terminal(), 0.0, "off")):
        monkeypatch.setenv("FUSER_PROGRESS", option)
        progress = Progress(1, terminal, after_s)
        progress.begin()
        progress.end()
        assert terminal.getvalue() == ""


def test_a_terminal_that_goes_away() -> None:
    class Gone(Terminal):
        def write(self, text: str) -> int:
            self.written.set()
            raise OSError(5, os.strerror(5))

    terminal = Gone()
    progress = Progress(1, terminal, after_s=0.0)
    progress.begin()
    assert terminal.written.wait(30)
    progress.end()
