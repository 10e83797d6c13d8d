"""The shim over the driver bindings, with bindings made up where there is no driver."""

import os
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

from fuser.errors import LaunchError, NoDeviceError
from fuser.runtime import driver


class Bindings(ModuleType):
    """What the bindings module looks like: functions return (status, values...)."""

    def __init__(self, **functions: Any) -> None:
        super().__init__("driver")
        from cuda.bindings.driver import CUresult

        self.CUresult = CUresult
        self.calls: list[tuple[Any, ...]] = []
        self.functions = {"cuGetErrorString": lambda code: (0, f"words of {int(code)}".encode()), **functions}

    def __getattr__(self, name: str) -> Any:
        if name not in self.functions:
            raise AttributeError(name)

        def function(*arguments: Any) -> Any:
            if name != "cuGetErrorString":
                self.calls.append((name, *arguments))
            return self.functions[name](*arguments)

        return function


def install(monkeypatch: pytest.MonkeyPatch, **functions: Any) -> Bindings:
    bindings = Bindings(**functions)
    monkeypatch.setattr(driver, "_bindings", bindings)
    monkeypatch.setattr(driver, "_process", os.getpid())
    monkeypatch.setattr(driver, "_functions", {})
    monkeypatch.setattr(driver, "_contexts", {})
    return bindings


def test_results(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, none=lambda: (0,), one=lambda: (0, 7), two=lambda a: (0, a, 8))
    assert driver.call("none") is None
    assert driver.call("one") == 7
    assert driver.call("two", 5) == (5, 8)


def test_failure_names_the_call_and_the_drivers_words(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, cuMemAlloc=lambda n: (2,), cuOdd=lambda: (123456,))
    with pytest.raises(LaunchError) as caught:
        driver.call("cuMemAlloc", 8)
    assert str(caught.value) == "cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY (2): words of 2"
    assert isinstance(caught.value, driver.DriverError)
    assert (caught.value.call, caught.value.status) == ("cuMemAlloc", 2)
    with pytest.raises(LaunchError, match="cuOdd failed: error 123456"):
        driver.call("cuOdd")


def test_function_that_the_driver_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise RuntimeError('Function "cuNew" not found')

    install(monkeypatch, cuNew=missing)
    with pytest.raises(LaunchError, match='cuNew cannot be called: Function "cuNew" not found'):
        driver.call("cuNew")


def test_names_follow_the_major_version(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = {"cuGraphAddNode": lambda: (0, "new"), "cuGraphAddNode_v2": lambda: (0, "suffixed")}
    for major, expected in ((12, "suffixed"), (13, "new")):
        install(monkeypatch, **functions)
        monkeypatch.setattr(driver, "bindings_major", lambda major=major: major)
        assert driver.call("cuGraphAddNode") == expected


def test_every_name_of_the_shim_exists() -> None:
    from cuda.bindings import driver as bindings

    for name, suffixed in driver._NAMES_OF_12.items():
        assert hasattr(bindings, name if driver.bindings_major() >= 13 else suffixed)


def test_forked_child(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, one=lambda: (0, 7))
    monkeypatch.setattr(driver, "_process", os.getpid() + 1)
    with pytest.raises(
        LaunchError, match=r"CUDA was used in process \d+ and cannot be used in the child \d+ forked from it"
    ):
        driver.call("one")


def test_forked_child_is_not_told_that_there_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_version", (13, 0))
    install(monkeypatch, cuDeviceGetCount=lambda: (0, 3))
    assert driver.device_count() == 3
    monkeypatch.setattr(driver, "_process", os.getpid() + 1)
    assert driver.device_count() == 3


def test_contexts_are_left_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = [0]

    def push(context: int) -> tuple[int]:
        stack.append(context)
        return (0,)

    def pop() -> tuple[int, int]:
        return 0, stack.pop()

    def set_current(context: int) -> tuple[int]:
        stack[-1] = context
        return (0,)

    install(
        monkeypatch,
        cuCtxGetCurrent=lambda: (0, stack[-1]),
        cuCtxPushCurrent=push,
        cuCtxPopCurrent=pop,
        cuCtxSetCurrent=set_current,
    )
    assert not driver.enter_context(11)  # a thread without a context keeps it
    assert stack == [11]
    assert not driver.enter_context(11)
    assert driver.enter_context(22)
    assert stack == [11, 22]
    driver.leave_context()
    assert stack == [11]


def test_primary_context_is_retained_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bindings = install(
        monkeypatch,
        cuDeviceGetCount=lambda: (0, 2),
        cuDeviceGet=lambda index: (0, index),
        cuDevicePrimaryCtxRetain=lambda device: (0, 100 + device),
    )
    assert driver.primary_context(1) == 101
    assert driver.primary_context(1) == 101
    assert bindings.calls.count(("cuDevicePrimaryCtxRetain", 1)) == 1
    with pytest.raises(NoDeviceError, match="there is no CUDA device 2; 2 found"):
        driver.primary_context(2)


def test_device_count_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_version", (0, 0))
    assert driver.device_count() == 0
    monkeypatch.setattr(driver, "_version", (13, 0))
    install(monkeypatch, cuDeviceGetCount=lambda: (100,))
    assert driver.device_count() == 0
    install(monkeypatch, cuDeviceGetCount=lambda: (0, 3))
    assert driver.device_count() == 3


@pytest.mark.skipif(driver.driver_version() != (0, 0), reason="there is a driver")
def test_without_a_driver() -> None:
    assert driver.device_count() == 0
    with pytest.raises(NoDeviceError, match="there is no CUDA driver"):
        driver.bindings()


def test_bindings_are_imported_late() -> None:
    program = (
        "import sys\n"
        "from fuser.runtime import driver\nfrom fuser.runtime.devices import cuda_device\n"
        "driver.driver_version()\n"
        "assert not any(name.startswith('cuda') for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
