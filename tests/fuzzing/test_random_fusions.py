"""Random definitions on the simulator against the reference: segments, views, in-place updates, one tensor twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.simulator.device import SimulatorDevice
from tests.devices.small_simulator import small_simulator
from tests.fuzzing.exact_runs import check
from tests.fuzzing.random_fusions import CASES, PER_TEST, generate


@pytest.mark.in_turns
@pytest.mark.parametrize("start", range(0, CASES, PER_TEST))
def test_random_fusions(start: int) -> None:
    for seed in range(start, start + PER_TEST):
        made = generate(seed)
        counters = check(made, small_simulator())
        if made.only_views:
            assert counters["launches"] == 0, made.seed


def test_the_cases_reach_what_they_are_for() -> None:
    """Enough of them have several kernels, views alone, updates, an input among the outputs, one tensor twice."""
    seen: dict[str, int] = dict.fromkeys(("segments", "views", "updates", "inputs", "twice"), 0)
    from fuser.compiler.compile_fusion import plan_fusion
    from fuser.compiler.recorder import Recorder

    for seed in range(CASES):
        made = generate(seed)
        assert made.fd.fusion is not None
        ir = made.fd.fusion.ir_fusion
        outputs = [o.tensor for o in ir.outputs if o.alias_of is None]
        seen["segments"] += len(plan_fusion(ir, Recorder()).segments) > 1
        seen["views"] += made.only_views
        seen["updates"] += any(o.alias_of is not None for o in ir.outputs)
        seen["inputs"] += any(t in ir.input_tensors for t in outputs)
        seen["twice"] += len(set(outputs)) < len(outputs)
    assert all(n >= 5 for n in seen.values()), seen
    assert seen["segments"] >= 30, seen


# --- hazards, one by one ----------------------------------------------------------------------------------------------


def f(fd: FusionDefinition, rank: int = 2) -> Any:
    return fd.define_tensor([-1] * rank, True, DataType.Float)


def on_simulator(*arrays: np.ndarray[Any, Any]) -> list[DeviceTensor]:
    device = SimulatorDevice()
    return [DeviceTensor.from_numpy(a, device) for a in arrays]


X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_pure_views_launch_nothing() -> None:
    with FusionDefinition() as fd:
        x = f(fd)
        fd.add_output(fd.ops.permute(x, [1, 0]))
        fd.add_output(fd.ops.broadcast(x, [True, False, False]))
        fd.add_output(fd.ops.squeeze(fd.ops.broadcast(x, [False, True, False]), [1]))
        fd.add_output(x)
    (x,) = on_simulator(X)
    turned, raised, same, again = fd.execute([x])
    assert again is x
    assert turned.address == raised.address == same.address == x.address
    assert (turned.shape, turned.strides) == ((4, 3), (1, 4))
    assert raised.shape == (1, 3, 4)
    np.testing.assert_array_equal(turned.numpy(), X.T)
    counters = fd.program([x]).counters()
    assert (counters["launches"], counters["allocations"], counters["copies"]) == (0, 0, 0)
    assert fd.fec.kernels([x]) == ()


def test_a_view_beside_a_kernel_is_still_a_view() -> None:
    with FusionDefinition() as fd:
        x = f(fd)
        fd.add_output(fd.ops.permute(x, [1, 0]))
        fd.add_output(x * 2.0)
    (x,) = on_simulator(X)
    turned, doubled = fd.execute([x])
    assert turned.address == x.address
    np.testing.assert_array_equal(doubled.numpy(), X * 2)
    assert fd.program([x]).counters()["launches"] == 1


def test_one_tensor_twice_is_one_storage() -> None:
    with FusionDefinition() as fd:
        y = f(fd) + 1.0
        fd.add_output(y)
        fd.add_output(y)
    first, second = fd.execute(on_simulator(X))
    assert first.address == second.address
    np.testing.assert_array_equal(second.numpy(), X + 1)


def test_output_that_is_also_an_update_is_the_updated_input() -> None:
    with FusionDefinition() as fd:
        x = f(fd)
        y = x + 1.0
        fd.add_output(y, x)
        fd.add_output(y)
    (x,) = on_simulator(X)
    (out,) = fd.execute([x])
    assert out.address == x.address
    np.testing.assert_array_equal(x.numpy(), X + 1)


@pytest.mark.parametrize("boundary", [False, True])
def test_every_read_of_the_old_value_comes_first(boundary: bool) -> None:
    """An update of x, and outputs that read the old x before and after it, in one kernel or several."""
    with FusionDefinition() as fd:
        x = f(fd)
        y = fd.ops.segment_set(x * 2.0) if boundary else x * 2.0
        fd.add_output(x + 5.0)
        fd.add_output(y + 1.0, x)
        fd.add_output(fd.ops.sum(x, [0]))
        fd.add_output(fd.ops.permute(x, [1, 0]) + 3.0)
    (x,) = on_simulator(X)
    for turn in range(3):
        old = x.numpy().copy()
        plus, total, turned = fd.execute([x])
        np.testing.assert_array_equal(plus.numpy(), old + 5, err_msg=str(turn))
        np.testing.assert_array_equal(total.numpy(), old.sum(0))
        np.testing.assert_array_equal(turned.numpy(), old.T + 3)
        np.testing.assert_array_equal(x.numpy(), old * 2 + 1)


@pytest.mark.parametrize("boundary", [False, True])
def test_updates_that_read_one_another(boundary: bool) -> None:
    """x and y trade values; z takes the sum of the old ones."""
    with FusionDefinition() as fd:
        x, y, z = f(fd), f(fd), f(fd)
        fd.add_output(y, x)
        fd.add_output(x, y)
        total = x + y
        fd.add_output(fd.ops.segment_set(total) * 1.0 if boundary else total, z)
    x, y, z = on_simulator(X, X * 10, X * 0)
    assert fd.execute([x, y, z]) == []
    np.testing.assert_array_equal(x.numpy(), X * 10)
    np.testing.assert_array_equal(y.numpy(), X)
    np.testing.assert_array_equal(z.numpy(), X * 11)


def test_update_with_a_reduction_of_itself() -> None:
    with FusionDefinition() as fd:
        x = f(fd)
        fd.add_output(x - fd.ops.sum(x, [0], True), x)
    (x,) = on_simulator(X)
    fd.execute([x])
    np.testing.assert_array_equal(x.numpy(), X - X.sum(0, keepdims=True))


def test_update_through_a_permuted_read() -> None:
    """Element (i, j) is written from (j, i): the write must wait for all reads."""
    with FusionDefinition() as fd:
        x = f(fd)
        fd.add_output(x + fd.ops.permute(x, [1, 0]), x)
    square = np.arange(1600, dtype=np.float32).reshape(40, 40)
    (x,) = on_simulator(square)
    fd.execute([x])
    np.testing.assert_array_equal(x.numpy(), square + square.T)


def test_the_same_array_for_two_inputs() -> None:
    with FusionDefinition() as fd:
        x, y = f(fd), f(fd)
        fd.add_output(x * 2.0, x)
        fd.add_output(y + 1.0)
    (x,) = on_simulator(X)
    (out,) = fd.execute([x, x])
    np.testing.assert_array_equal(out.numpy(), X + 1)
    np.testing.assert_array_equal(x.numpy(), X * 2)


def test_empty_inputs_launch_nothing() -> None:
    with FusionDefinition() as fd:
        x = f(fd)
        fd.add_output(x * 2.0)
        fd.add_output(fd.ops.sum(x, [1]))
    (x,) = on_simulator(np.zeros((0, 4), np.float32))
    doubled, total = fd.execute([x])
    assert doubled.shape == (0, 4)
    assert total.shape == (0,)
    assert fd.program([x]).counters()["launches"] == 0
