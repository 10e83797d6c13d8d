"""Tracebacks as users see them: their own frames, the message, and the line it is about; of the package, nothing."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
from fuser import (
    Allocate,
    DataType,
    Fill,
    FusionDefinition,
    FusionExecutorCache,
    HostProgram,
    InternalError,
    KernelExecutor,
    LaunchParams,
    LRUCache,
    ParallelType,
    RtcKernel,
    options,
)
from fuser.errors import ElementTypeError, FuserError, InputRuntimeError, LaunchLimitError
from fuser.tracebacks import short_traceback

X = np.ones((3, 4), np.float32)
AXPY = 'extern "C" __global__ void axpy(float a, const float* x, float* y, int n) { if (n) y[0] += a * x[0]; }'


@pytest.fixture(autouse=True)
def _as_users_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    monkeypatch.delenv("FUSER_TRACEBACK")


def defined() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True)
        fd.add_output(x * 2.0)
    return fd


def fusion() -> Any:
    return defined().fusion


def while_defining(use: Callable[[Any, Any], object]) -> None:
    with FusionDefinition() as fd:
        use(fd, fd.define_tensor([-1, -1], True))


def scheduled(use: Callable[[Any, Any], object], run: bool = True) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True)
        y = x * 2.0
        fd.add_output(y)
        use(fd, y)
    if run:
        fd.manual_execute([X])


def split_and_vectorize(fd: FusionDefinition, y: Any) -> None:
    y.split(1, 4)
    y.axis(2).parallelize(ParallelType.vectorize)


# One mistake at each kind of door.
MISTAKES: dict[str, Callable[[], object]] = {
    "op": lambda: while_defining(lambda fd, x: fd.ops.sum(x, [2])),
    "arguments of an op": lambda: while_defining(lambda fd, x: fd.ops.sum(x, axis=1)),
    "operator": lambda: while_defining(lambda fd, x: x + "1"),
    "reflected operator": lambda: while_defining(lambda fd, x: X + x),
    "unsupported op": lambda: while_defining(lambda fd, x: fd.ops.scaled_mm(x, x)),
    "method": lambda: while_defining(lambda fd, x: x.size(2)),
    "truth": lambda: while_defining(lambda fd, x: bool(x)),
    "define": lambda: while_defining(lambda fd, x: fd.define_tensor([3.0])),
    "define outside": lambda: FusionDefinition().define_tensor([3]),
    "define in a module": lambda: fuser.define_tensor([3]),
    "output": lambda: while_defining(lambda fd, x: fd.add_output(x.size(0))),
    "execute": lambda: defined().execute([X[0]]),
    "execute nothing": lambda: FusionDefinition().execute([]),
    "explain": lambda: defined().explain([X[0]]),
    "program": lambda: defined().program([]),
    "validate": lambda: defined().validate([X], [X]),
    "manual execute": lambda: scheduled(split_and_vectorize),
    "verb": lambda: scheduled(lambda fd, y: y.split(3, 4)),
    "axis": lambda: scheduled(lambda fd, y: y.axis(2)),
    "parallelize": lambda: scheduled(lambda fd, y: y.axis(0).parallelize("block_x")),
    "scheduling function": lambda: scheduled(lambda fd, y: fd.sched.inline_at(y, 7)),
    "executor": lambda: KernelExecutor().run([X]),
    "executor cache": lambda: FusionExecutorCache(fusion()).execute([]),
    "cache": lambda: LRUCache(0),
    "host program": lambda: HostProgram(["x"], ["y"], []),
    "instruction": lambda: Allocate("y", [3, "n"], DataType.Float),  # type: ignore[arg-type]
    "run": lambda: HostProgram(["x"], ["x"], [Fill("x", 1.0)]).run([]),
    "launch parameters": lambda: LaunchParams(1, 2),
    "raw kernel": lambda: RtcKernel(AXPY, ""),
    "raw launch": lambda: RtcKernel(AXPY, "axpy").run([1.0], LaunchParams()),
    "seed": lambda: fuser.manual_seed("x"),  # type: ignore[arg-type]
    "descriptor": lambda: fuser.compute_tensor_descriptor([1], [1, 2]),
}


def raised(mistake: Callable[[], object]) -> FuserError:
    with pytest.raises(FuserError) as caught:
        mistake()
    return caught.value


def frames(error: BaseException) -> list[str]:
    return [frame.filename for frame in traceback.extract_tb(error.__traceback__)]


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_only_frames_of_the_user(mistake: Callable[[], object]) -> None:
    error = raised(mistake)
    assert set(frames(error)) == {__file__}
    assert error.location is not None
    assert error.location.filename == __file__
    # From the user's innermost frame on.
    *_, innermost = traceback.extract_tb(error.__traceback__)
    shown = "".join(["Traceback:\n", *traceback.format_list([innermost]), *traceback.format_exception_only(error)])
    assert shown.count("\n") <= 12, shown


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_all_frames_on_request(mistake: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    short = raised(mistake)
    monkeypatch.setenv("FUSER_TRACEBACK", "full")
    full = raised(mistake)
    assert len(frames(full)) > len(frames(short))
    assert any("/fuser/" in name for name in frames(full))
    assert str(full) == str(short)
    assert type(full) is type(short)


def test_a_wrong_traceback_option_hides_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    short = raised(lambda: defined().execute([]))
    monkeypatch.setenv("FUSER_TRACEBACK", "yes")
    error = raised(lambda: defined().execute([]))
    assert (type(error), error.message) == (type(short), short.message)
    assert set(frames(error)) == {__file__}
    assert error.__notes__ == ["FUSER_TRACEBACK='yes' is not valid: expected one of short, full"]


def test_an_unknown_option_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fd = defined()
    monkeypatch.setattr(options, "_names_checked", False)
    monkeypatch.setenv("FUSER_DUMPS", "kernel.cu")
    # An error of the definition is that error; what reads an option names the wrong one.
    assert raised(lambda: fd.ops.sofmax(1)).message.startswith("there is no op 'sofmax'")
    error = raised(lambda: fd.execute([np.ones((3, 4), np.float32)]))
    assert error.message.startswith("Unknown option in the environment: FUSER_DUMPS; did you mean FUSER_DUMP?")
    assert set(frames(error)) == {__file__}
    assert error.__context__ is None


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_what_the_user_was_handling_is_told(mistake: Callable[[], object]) -> None:
    handled = KeyError("the user's")
    try:
        raise handled
    except KeyError:
        error = raised(mistake)
    assert error.__context__ is handled
    assert not error.__suppress_context__


def test_what_the_package_caught_is_not_told() -> None:
    error = raised(lambda: defined().execute(["no array"]))
    assert error.__context__ is None
    assert error.__suppress_context__


def test_a_call_that_does_not_bind() -> None:
    with pytest.raises(TypeError) as caught:
        defined().validate()  # type: ignore[call-arg]
    assert set(frames(caught.value)) == {__file__}


def test_a_bug_keeps_its_frames() -> None:
    @short_traceback
    def broken() -> None:
        raise InternalError("a bug")

    error = raised(broken)
    assert len(frames(error)) == 3
    assert error.location is not None


def test_a_foreign_error_keeps_its_frames() -> None:
    class Given:
        def __index__(self) -> int:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        while_defining(lambda fd, x: fd.ops.sum(x, [Given()]))
    assert any("/fuser/" in name for name in frames(caught.value))


def test_the_same_error_raised_again_does_not_grow() -> None:
    error = FuserError("once")

    @short_traceback
    def again() -> None:
        raise error

    for _ in range(3):
        assert raised(again) is error
        assert len(frames(error)) == 1


def test_public_methods_keep_their_names_and_pickles() -> None:
    assert FusionDefinition.validate.__name__ == "validate"
    assert (FusionDefinition.define_tensor.__doc__ or "").startswith("A tensor, registered as the next fusion input")
    assert pickle.loads(pickle.dumps(LaunchParams.launch)) is LaunchParams.launch


@pytest.mark.parametrize("kind", [LaunchLimitError, ElementTypeError, InputRuntimeError])
def test_errors_go_to_other_processes(kind: type[FuserError]) -> None:
    copy = pickle.loads(pickle.dumps(kind("too much")))
    assert type(copy) is kind
    assert copy.message == "too much"
