"""Bad input never reaches the device: it is refused before anything is compiled, allocated, copied or launched.

A misaligned pointer or stride is no mistake: `execute` takes another kernel, and `manual_execute`, whose kernel is the
user's own, raises with the tensor, what it is and what is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.errors import FuserError, InputError, InputRuntimeError
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.simulator.device import SimulatorDevice
from tests.devices.device_layouts import place
from tests.devices.small_simulator import small_simulator
from tests.end_to_end import bad_input
from tests.end_to_end.bad_input import (
    CASES,
    GOOD,
    A,
    R,
    T,
    check_another_kernel,
    check_manual,
    check_overlapping_rank_zero,
    check_overlapping_read,
    define,
    ones,
    refused,
    updating,
    vectorized,
)


@dataclass(slots=True)
class Touched:
    """Calls that reached a device."""

    calls: list[str] = field(default_factory=list)


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> Touched:
    """Everything that a device is asked to do is noted instead of done."""
    touched = Touched()

    def note(name: str) -> Callable[..., Any]:
        return lambda *_args, **_kwargs: touched.calls.append(name)

    for name in ("allocate", "copy_from_host", "copy_to_host", "copy", "fill", "semaphores", "launch"):
        monkeypatch.setattr(SimulatorDevice, name, note(name))
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    return touched


@pytest.mark.parametrize(("what", "position", "value", "kind", "text"), CASES, ids=[c[0] for c in CASES])
def test_one_bad_input(
    what: str, position: int, value: Any, kind: type[Exception], text: str, untouched: Touched
) -> None:
    inputs = list(GOOD)
    inputs[position] = value
    fd = define()
    error = refused(fd, inputs, kind, text)
    assert isinstance(error, InputError)
    if kind is R:
        assert error.location is not None, what
        assert error.location.filename == bad_input.__file__
        assert "fd.define_" in str(error)
    with pytest.raises(kind):
        define().manual_execute(inputs)
    assert untouched.calls == []


@pytest.mark.parametrize("count", [0, 4, 6])
def test_count(count: int, untouched: Touched) -> None:
    inputs = [*GOOD, 1.0][:count]
    error = refused(define(), inputs, R, f"Expected 5 inputs (x, b, s, w, n), got {count}")
    assert "fd.execute(inputs, **options)" in str(error), "the line of the call is shown"
    assert untouched.calls == []


class OnDevice:
    """An array of a library without one of its own here."""

    shape = (3, 8)

    def __dlpack__(self) -> object:
        raise AssertionError("the array is not looked at")


SINGLE = "the inputs must be a list of arrays and numbers, got "


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (ones(5, 8), SINGLE + "a single ndarray of shape [5, 8]: put it in a list, [x]"),
        (OnDevice(), SINGLE + "a single OnDevice of shape [3, 8]: put it in a list, [x]"),
        (3.0, SINGLE + "float: put it in a list, [x]"),
        (None, SINGLE + "NoneType: put it in a list, [x]"),
        ("x", SINGLE + "str: put it in a list, [x]"),
        (
            dict(enumerate(GOOD)),
            "the inputs must be a list in the order of their definition, got dict: pass its values, in that order",
        ),
        ({1, 2, 3, 4, 5}, "the inputs must be a list in the order of their definition, got set, which has no order"),
    ],
)
def test_what_is_no_list_of_inputs(given: Any, text: str, untouched: Touched) -> None:
    """A single array above all: it would be taken apart into rows, five of them as good as five inputs."""
    error = refused(define(), given, T, text)
    assert "fd.execute(inputs, **options)" in str(error)
    for call in ("manual_execute", "explain", "program", "validate"):
        with pytest.raises(T) as other:
            getattr(define(), call)(given)
        assert text in str(other.value), call
    assert untouched.calls == []


def test_a_host_program_and_a_single_array() -> None:
    program = define().program(list(GOOD))
    with pytest.raises(InputError, match="got a single ndarray of shape"):
        program.run(ones(5, 8))  # type: ignore[arg-type]


def test_inputs_one_by_one(untouched: Touched) -> None:
    with pytest.raises(T) as caught:
        define().execute(*GOOD)
    assert "execute() takes one list of inputs, got 5 arguments: fd.execute([x, y])" in str(caught.value)
    assert untouched.calls == []


def test_python_lists_for_arrays(untouched: Touched) -> None:
    inputs = [[[1.0, 2.0], [3.0, 4.0]], *GOOD[1:]]
    text = "input 0 is a Python list of lists, which is no array: pass np.array(values, np.float32)"
    refused(define(), inputs, T, text)
    refused(
        define(),
        [[1.0, 2.0], *GOOD[1:]],
        R,
        "Expected 5 inputs (x, b, s, w, n), got 6; a list within the list counts as its items: pass "
        "np.array(values, np.float32) for a tensor",
    )
    assert untouched.calls == []


def test_conflicting_extents(untouched: Touched) -> None:
    inputs = [ones(3, 8), ones(7), *GOOD[2:]]
    error = refused(
        define(),
        inputs,
        R,
        "add, dim 1: a conflict was found with 2 different sizes, 8 and 7 (x.size(1) and b.size(0))",
    )
    assert error.location is not None
    assert "fd.add_output(x + fd.ops.broadcast(b" in str(error), "the line of the op that needs them equal"
    assert untouched.calls == []


@pytest.mark.parametrize(
    ("shapes", "reduced", "text"),
    [
        (
            [(4, 6)],
            [1],
            "sub, dim 1: a conflict was found with 2 different sizes, 6 and 4 (x.size(1) and x.size(0)): the shapes are "
            "[4, 6] and [4], and dims are lined up from the last one; keepdim=True keeps the dim of a reduction, "
            "unsqueeze(dim) makes one",
        ),
        (
            [(2, 6, 4, 5)],
            [0, 2, 3],
            "sub, dim 3: a conflict was found with 2 different sizes, 5 and 6 (x.size(3) and x.size(1)): the shapes are "
            "[2, 6, 4, 5] and [6], and dims are lined up from the last one; keepdim=True keeps the dim of a reduction, "
            "unsqueeze(dim) makes one",
        ),
    ],
)
def test_a_reduction_that_keeps_no_dim(shapes: list[tuple[int, ...]], reduced: list[int], text: str) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1] * len(shapes[0]))
        fd.add_output(x - fd.ops.sum(x, reduced))
    with pytest.raises(R) as caught:
        fd.execute([ones(*shape) for shape in shapes], device="simulator")
    assert isinstance(caught.value, FuserError)
    assert caught.value.message == text
    fd.execute([ones(4, 4) if len(shapes[0]) == 2 else ones(2, 5, 4, 5)], device="simulator")


def test_arrays_by_name() -> None:
    calls: tuple[Callable[[], object], ...] = (
        lambda: define().execute(x=GOOD[0], b=GOOD[1]),  # type: ignore[call-arg]
        lambda: define()(x=GOOD[0]),  # type: ignore[call-arg]
        lambda: define().program(x=GOOD[0]),  # type: ignore[call-arg]
        lambda: define().program(GOOD).run(x=GOOD[0]),  # type: ignore[call-arg]
    )
    for call in calls:
        with pytest.raises(TypeError) as caught:
            call()
        assert isinstance(caught.value, FuserError)
        assert (
            "got an unexpected keyword argument 'x': arrays are given in the order in which they are defined, without a name. "
            "Called as "
        ) in caught.value.message


def test_calls_without_inputs() -> None:
    for call, name in ((define().execute, "execute"), (define().program(GOOD).run, "run")):
        with pytest.raises(TypeError) as caught:
            call()  # type: ignore[call-arg]
        assert isinstance(caught.value, FuserError)
        assert caught.value.location is not None
        assert caught.value.message.startswith(
            f"{name}(): incompatible function arguments. missing a required argument: 'inputs'. Called as {name}(); "
            f"supported:\n    {name}(inputs: "
        )
        assert "= <" not in caught.value.message


def test_a_symbolic_extent_of_one_does_not_broadcast(untouched: Touched) -> None:
    text = (
        "add, dim 1: a conflict was found with 2 different sizes, 8 and 1 (x.size(1) and b.size(0)): a dim that is "
        "defined as -1 "
        "is not broadcast where it happens to be 1; define that dim as 1, or make it with fd.ops.broadcast_in_dim or "
        "fd.ops.expand"
    )
    refused(define(), [ones(3, 8), ones(1), *GOOD[2:]], R, text)
    assert untouched.calls == []


def test_two_devices() -> None:
    first, second = SimulatorDevice(), SimulatorDevice()
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], True, DataType.Float)
        fd.add_output(x + fd.define_tensor([-1], True, DataType.Float))
    a, b = (DeviceTensor.from_numpy(ones(8), d) for d in (first, second))
    refused(fd, [a, b], R, "Expected all inputs on one device, got several called simulator:0")


@pytest.mark.parametrize(
    ("device", "kind", "text"),
    [
        ("cpu", A, "device 'cpu' cannot be used; give an index, 'cuda:<index>' or 'simulator'"),
        ("cuda:x", A, "'cuda:x' is not a device; give an index, 'cuda:<index>' or 'simulator'"),
        (256, R, "device index 256 is outside [0, 255]"),
        (-1, R, "device index -1 is outside [0, 255]"),
        (True, A, "True is not a device"),
        (1.5, A, "1.5 is not a device"),
    ],
)
def test_devices_that_are_none(device: Any, kind: type[Exception], text: str, untouched: Touched) -> None:
    refused(define(), list(GOOD), kind, text, device=device)
    assert untouched.calls == []


def test_input_on_another_device_than_requested() -> None:
    x = DeviceTensor.from_numpy(ones(8), SimulatorDevice())
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1], True, DataType.Float) * 2.0)
    refused(fd, [x], R, "Expected inputs on device cuda:0, got one on simulator:0", device=0)


# --- in place ---------------------------------------------------------------------------------------------------------


def test_in_place_input_that_overlaps_itself(untouched: Touched) -> None:
    row = np.lib.stride_tricks.as_strided(ones(8), (3, 8), (0, 4))
    text = (
        "input 0, x, is updated in place, but its elements overlap in memory (shape [3, 8], strides [0, 1]); "
        "pass a contiguous copy"
    )
    error = refused(updating(), [row, ones(3, 8)], R, text)
    assert "fd.define_tensor([-1, -1]" in str(error)
    window = np.lib.stride_tricks.as_strided(ones(40), (3, 8), (8, 4))
    refused(updating(), [window, ones(3, 8)], R, "its elements overlap in memory")
    backwards = np.lib.stride_tricks.as_strided(ones(40)[20:], (3, 8), (-8, 4))
    refused(updating(), [backwards, ones(3, 8)], R, "overlap in memory (shape [3, 8], strides [-2, 1])")
    assert untouched.calls == []


def test_two_in_place_inputs_that_overlap(untouched: Touched) -> None:
    storage = ones(7, 8)
    text = (
        "input 0, x, and input 1, y, are both updated in place, but they overlap in memory; pass a copy of one of them"
    )
    refused(updating(), [storage[:4], storage[3:]], R, text)
    refused(updating(), [storage, storage], R, text)
    # Read backwards it is copied in another order, from where it is all the same.
    refused(updating(), [storage[:4][::-1], storage[:4]], R, text)
    refused(updating(), [storage[:4, ::-1], storage[3:][::-1]], R, text)
    assert untouched.calls == []


def test_in_place_inputs_that_are_read_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    storage = np.arange(48, dtype=np.float32).reshape(6, 8)
    was = storage.copy()
    x, y = storage[:3][::-1], storage[3:][:, ::-1]
    wanted_x, wanted_y = (np.asarray(a) for a in _updated(x.copy(), y.copy()))
    updating().execute([x, y])
    np.testing.assert_array_equal(storage[:3], wanted_x[::-1])
    np.testing.assert_array_equal(storage[3:], wanted_y[:, ::-1])
    assert not np.array_equal(storage, was)


def _updated(x: Any, y: Any) -> tuple[Any, Any]:
    updating().execute([x, y])
    return x, y


def test_in_place_inputs_that_interleave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte ranges that meet are no overlap."""
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    storage = np.arange(48, dtype=np.float32).reshape(3, 16)
    x, y = storage[:, :8], storage[:, 8:]
    want = (x + y, y * 2)
    updating().execute([x, y])
    np.testing.assert_array_equal(x, want[0])
    np.testing.assert_array_equal(y, want[1])


def test_read_only_array_is_not_updated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    x = ones(3, 8)
    x.flags.writeable = False
    with pytest.raises(InputRuntimeError, match="it is read-only"):
        updating().execute([x, ones(3, 8)])


def test_input_that_overlaps_an_updated_one() -> None:
    check_overlapping_read(SimulatorDevice())
    check_overlapping_rank_zero(SimulatorDevice())


# --- alignment --------------------------------------------------------------------------------------------------------


def test_misaligned_input_takes_another_kernel() -> None:
    check_another_kernel(small_simulator())


def test_misaligned_input_of_a_manual_schedule() -> None:
    check_manual(SimulatorDevice())


def test_indivisible_extent_of_a_manual_schedule() -> None:
    from fuser.errors import SchedulingError

    fd = vectorized()
    with pytest.raises(SchedulingError, match="cannot be vectorized"):
        fd.manual_execute([place(SimulatorDevice(), ones(12, 18))])
