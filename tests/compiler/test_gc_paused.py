"""The garbage collector is off in the Python stages of a compilation, on for the rest, and left as the user had it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import compile_fusion
from fuser.compiler.gc_paused import gc_paused
from fuser.compiler.recorder import Recorder
from fuser.ir.device_info import H200
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import Fusion
from fuser.runtime.kernels import nvrtc
from fuser.runtime.kernels.compiled_kernel import Resources


@pytest.fixture(autouse=True)
def collector_as_it_was() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if was_on else gc.disable)()


@pytest.fixture
def row_sums() -> Fusion:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Float)
        fd.add_output(fd.ops.sum(x, [1]))
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def test_collections_go_on_afterwards() -> None:
    with gc_paused():
        assert not gc.isenabled()
        with gc_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_collections_go_on_after_an_error() -> None:
    with pytest.raises(KeyError), gc_paused():
        raise KeyError
    assert gc.isenabled()


def test_a_user_who_switched_them_off_keeps_them_off() -> None:
    gc.disable()
    with gc_paused():
        pass
    assert not gc.isenabled()


@pytest.mark.parametrize("first_out", [0, 1])
def test_threads_that_overlap_leave_them_on(first_out: int) -> None:
    inside, leave, out = ([threading.Event(), threading.Event()] for _ in range(3))

    def hold(k: int) -> None:
        with gc_paused():
            inside[k].set()
            leave[k].wait()
        out[k].set()

    threads = [threading.Thread(target=hold, args=(k,)) for k in range(2)]
    for k, thread in enumerate(threads):
        thread.start()
        assert inside[k].wait(10)
    for k in (first_out, 1 - first_out):
        leave[k].set()
        assert out[k].wait(10)
    for thread in threads:
        thread.join()
    assert gc.isenabled()


class _Watch(Recorder):
    """Whether collections are on when a stage is handed over."""

    def __init__(self) -> None:
        self.is_on: dict[str, bool] = {}

    def stage(self, name: str, text: Callable[[], str]) -> None:
        self.is_on[name] = gc.isenabled()


def test_python_stages_are_not_interrupted_and_nvrtc_holds_nothing_up(
    row_sums: Fusion, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_in_nvrtc: list[bool] = []

    def compiled(source: str, names: list[str], *rest: Any) -> nvrtc.CompileResult:
        on_in_nvrtc.append(gc.isenabled())
        resources = {name: Resources(32, 0, 0, 0) for name in names}
        return nvrtc.CompileResult(b"", resources, {name: name for name in names}, "", (12, 8), "sm_90a")

    monkeypatch.setattr(nvrtc, "compile_to_cubin", compiled)
    watch = _Watch()
    inputs = [TensorDescriptor(DataType.Float, (64, 512), (512, 1), 256)]
    compile_fusion(row_sums, bind_inputs(row_sums, inputs), H200, recorder=watch)
    on = [name for name, is_on in watch.is_on.items() if is_on]
    # These two are handed over between Python stages.
    assert on == ["kernel.cubin", "host.py"]
    assert {"segments.py", "params.py", "schedule.py", "kernel.cu"} <= watch.is_on.keys()
    assert on_in_nvrtc == [True]
    assert gc.isenabled()
