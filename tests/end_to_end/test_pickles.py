"""Definitions, executors, programs and kernels as pickles and copies, before they were used and after."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition, ParallelType
from fuser.errors import FuserError

Array = np.ndarray[Any, Any]
Copy = Callable[[Any], Any]
COPIES: dict[str, Copy] = {"pickle": lambda it: pickle.loads(pickle.dumps(it)), "deepcopy": copy.deepcopy}
X = np.random.default_rng(0).standard_normal((6, 40)).astype("f4")


def softmax(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1, -1], True)
    e = fd.ops.exp(x - fd.ops.max(x, [1], True))
    fd.add_output(e / fd.ops.sum(e, [1], True))


def rows_of_two(fd: FusionDefinition) -> None:
    """With a reshape, which is resolved for each shape, and a result that a graph is asked for."""
    x = fd.define_tensor([-1, -1], True)
    v, m = fd.ops.var_mean(fd.ops.reshape(x, [-1, 2, fd.ops.size(x, 1)]), [1], 0, False)
    fd.add_output(v)
    fd.add_output(m)


def noise(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1, -1], True)
    fd.add_output(
        fd.ops.add(x, fd.ops.uniform(0.0, 1.0, fd.ops.shape(x), rng_seed=3, rng_offset=4, dtype=DataType.Float))
    )


def gradients(fd: FusionDefinition) -> None:
    """Several kernels."""
    x, y = (fd.define_tensor([-1, -1], True) for _ in range(2))
    fd.add_output(fd.ops.sum(x * y, [0]))
    fd.add_output(fd.ops.sum(x * y, [1]))
    fd.add_output(fd.ops.cumsum(x, 1))


DEFINITIONS = (softmax, rows_of_two, noise, gradients)


def made(define: Callable[[FusionDefinition], None]) -> FusionDefinition:
    with FusionDefinition() as fd:
        define(fd)
    return fd


def arguments(fd: FusionDefinition) -> list[Array]:
    assert fd.fusion is not None
    return [X.copy() for _ in fd.fusion.inputs()]


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("define", DEFINITIONS)
def test_a_definition_that_was_used(define: Callable[[FusionDefinition], None], how: str) -> None:
    fd = made(define)
    unused = COPIES[how](fd)
    wanted = fd.execute(arguments(fd), device="simulator")
    fd.explain(arguments(fd))
    used = COPIES[how](fd)
    for other in (unused, used, COPIES[how](used)):
        assert repr(other) == repr(fd)
        assert other.fusion == fd.fusion
        found = other.execute(arguments(fd), device="simulator")
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(a, b)
    assert used.fec.counters()["kernels_compiled"] == fd.fec.counters()["kernels_compiled"], "it compiles anew"


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("define", DEFINITIONS)
def test_programs_and_kernels(define: Callable[[FusionDefinition], None], how: str) -> None:
    fd = made(define)
    wanted = fd.execute(arguments(fd), device="simulator")
    program = fd.fec.program(arguments(fd), device="simulator")
    again = COPIES[how](program)
    assert repr(again) == repr(program)
    assert all(count == 0 for count in again.counters().values())
    for a, b in zip(again.run(arguments(fd), device="simulator"), wanted, strict=True):
        np.testing.assert_array_equal(a, b)
    for kernel in fd.fec.kernels(arguments(fd), device="simulator"):
        assert COPIES[how](kernel).content_hash == kernel.content_hash


ANOTHER_PROCESS = """
import pickle, sys
import numpy as np
from tests.end_to_end.test_pickles import X
program = pickle.loads(sys.stdin.buffer.read())
pickle.dump(program.run([X.copy() for _ in program.inputs], device="simulator"), sys.stdout.buffer)
"""


def test_programs_in_another_process() -> None:
    """Which has made none of the sizes that they mention."""
    for define in (rows_of_two, gradients):
        fd = made(define)
        wanted = fd.execute(arguments(fd), device="simulator")
        data = pickle.dumps(fd.fec.program(arguments(fd), device="simulator"))
        found = subprocess.run([sys.executable, "-c", ANOTHER_PROCESS], input=data, capture_output=True, check=True)
        for a, b in zip(pickle.loads(found.stdout), wanted, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("how", COPIES)
def test_a_schedule_of_its_own(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True)
        e = fd.ops.neg(x)
        total = fd.ops.sum(e, [1])
        fd.add_output(total)
        for tensor in (e, total):
            tensor.split(1, 16)
            tensor.axis(0).parallelize(ParallelType.grid_x)
            tensor.axis(2).parallelize(ParallelType.block_x)
        fd.sched.inline_most()
    assert fd.fusion is not None
    unused = COPIES[how](fd)
    (wanted,) = fd.manual_execute([X])
    for other in (unused, COPIES[how](fd)):
        (found,) = other.manual_execute([X])
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("how", COPIES)
def test_errors(how: str) -> None:
    with pytest.raises(FuserError) as caught:
        made(softmax).execute([X[0]], device="simulator")
    again = COPIES[how](caught.value)
    assert type(again) is type(caught.value)
    assert str(again) == str(caught.value)
