"""A Llama block, forward and backward, as one definition and one host program, on the simulator with NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fuser import DataType
from fuser.host_ir.instructions.instructions import CallLibrary, LaunchKernel
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.simulator.device import SimulatorDevice
from tests.fusions.llama_block import WEIGHTS, Sizes, define, forward, inputs

SIZES = Sizes()


def gradients(arrays: list[Any]) -> list[Any]:
    """y and the gradients of x and of the weights, of the sum of y * dy, by differences in double precision."""
    exact = [a.astype(np.float64) for a in arrays]
    y = forward(np, SIZES, exact)
    found = [y]
    step = 1e-5
    for k in (0, *range(5, len(exact))):
        gradient = np.zeros(exact[k].shape)
        for i in np.ndindex(gradient.shape):
            old = exact[k][i]
            sides: list[float] = []
            for sign in (1, -1):
                exact[k][i] = old + sign * step
                sides.append(float((forward(np, SIZES, exact) * exact[1]).sum()))
            exact[k][i] = old
            gradient[i] = (sides[0] - sides[1]) / (2 * step)
        found.append(gradient)
    return found


@pytest.fixture(scope="module")
def exact() -> list[Any]:
    return gradients(inputs(SIZES, np.float32))


def test_the_block_and_its_gradients_in_float(exact: list[Any]) -> None:
    arrays = inputs(SIZES, np.float32)
    fd = define(SIZES, DataType.Float)
    outputs = fd.execute(arrays)
    for name, out, want in zip(("y", "x", *WEIGHTS), outputs, exact, strict=True):
        np.testing.assert_allclose(out, want, rtol=2e-4, atol=2e-4, err_msg=name)


def test_in_bfloat16_it_is_off_by_roundings_of_that(exact: list[Any]) -> None:
    arrays = inputs(SIZES, ml_dtypes.bfloat16)
    outputs = define(SIZES, DataType.BFloat16).execute(arrays)
    for name, out, want in zip(("y", "x", *WEIGHTS), outputs, exact, strict=True):
        size = float(np.sqrt((want**2).mean()))
        error = float(np.sqrt(((out.astype(np.float64) - want) ** 2).mean()))
        assert error < 2.0**-8 * 6 * size, f"{name}: {error / size}"


def test_it_is_one_program_with_few_kernels() -> None:
    arrays = inputs(SIZES, np.float32)
    program = define(SIZES, DataType.Float).program(arrays)
    calls = sum(isinstance(i, CallLibrary) for i in program.instructions)
    launches = sum(isinstance(i, LaunchKernel) for i in program.instructions)
    assert calls == 4 + 2 + 3 + 2 * 7 + 4
    assert launches == 13


def test_it_runs_as_one_graph() -> None:
    device = SimulatorDevice()
    arrays = inputs(SIZES, np.float32)
    placed = [DeviceTensor.from_numpy(a, device) for a in arrays]
    fd = define(SIZES, DataType.Float)
    wanted = [np.asarray(out) for out in fd.execute(arrays)]
    captured = fd.program(placed).capture(placed, device=device)
    for out, want in zip(captured.replay(), wanted, strict=True):
        assert np.array_equal(np.asarray(out), want)
    assert captured.counters()["instantiated"] == 1
