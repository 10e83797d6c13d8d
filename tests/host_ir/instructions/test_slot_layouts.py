"""A kernel is compiled for the layouts that its arguments will have: what compilation is told of intermediates is what the host
program makes of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.builds import at_once
from fuser.compiler.compile_fusion import compile_segments, concrete_fusion, inputs_of_segments, plan_fusion
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.compiler.recorder import Recorder
from fuser.errors import InternalError
from fuser.runtime.kernels.plan_evaluation import PlanEvaluation
from fuser.simulator.device import SimulatorDevice
from tests.devices.device_layouts import place

Shape = tuple[int, ...]
Define = Callable[[FusionDefinition, Any], None]


def returned_view(fd: FusionDefinition, x: Any) -> None:
    y = fd.ops.permute(x, list(range(x.ndim)))
    fd.add_output(y)
    fd.add_output(fd.ops.triu(y, -1), x)


def read_view(fd: FusionDefinition, x: Any) -> None:
    """The view is no output: nothing copies it."""
    y = fd.ops.segment_set(fd.ops.permute(x, list(range(x.ndim))[::-1]))
    fd.add_output(fd.ops.mul(y, 2.0))
    fd.add_output(fd.ops.neg(x), x)


def turned_view(fd: FusionDefinition, x: Any) -> None:
    dims = list(range(x.ndim))[::-1]
    y = fd.ops.permute(x, dims)
    fd.add_output(y)
    fd.add_output(fd.ops.permute(fd.ops.neg(y), dims), x)


def view_of_a_copied_view(fd: FusionDefinition, x: Any) -> None:
    y = fd.ops.permute(x, list(range(x.ndim))[::-1])
    z = fd.ops.broadcast(y, [True] + [False] * x.ndim)
    fd.add_output(y)
    fd.add_output(z)
    fd.add_output(fd.ops.mul(z, 3.0))
    fd.add_output(fd.ops.neg(x), x)


def update_by_a_segment_that_does_not_read(fd: FusionDefinition, x: Any) -> None:
    """It lies as kernels make it, and not as what it is copied to."""
    ones = fd.ops.full([fd.ops.size(x, d) for d in range(x.ndim)], 1.0, DataType.Float)
    y = fd.ops.segment_set(fd.ops.cumsum(ones, 0))
    fd.add_output(fd.ops.add(y, 1.0))
    fd.add_output(y, x)


def update_that_another_segment_reads(fd: FusionDefinition, x: Any) -> None:
    y = fd.ops.segment_set(fd.ops.add(x, 1.0))
    fd.add_output(fd.ops.mul(y, 3.0))
    fd.add_output(y, x)


def ordered_intermediate(fd: FusionDefinition, x: Any) -> None:
    y = fd.ops.stride_order(fd.ops.add(x, 1.0), list(range(x.ndim)))
    y = fd.ops.segment_set(y)
    fd.add_output(fd.ops.mul(y, 3.0))
    fd.add_output(y)


def flat_view(fd: FusionDefinition, x: Any) -> None:
    y = fd.ops.reshape(x, [-1])
    fd.add_output(y)
    fd.add_output(fd.ops.mul(y, 2.0))
    fd.add_output(fd.ops.neg(x), x)


PROGRAMS = (
    returned_view,
    read_view,
    turned_view,
    view_of_a_copied_view,
    update_by_a_segment_that_does_not_read,
    update_that_another_segment_reads,
    ordered_intermediate,
    flat_view,
)


def layouts_of(shape: Shape) -> list[Shape]:
    """Strides of every order of the dims, and of rows with gaps behind them."""
    found: dict[Shape, None] = {}
    for order, gap in itertools.product(itertools.permutations(range(len(shape))), (0, 3)):
        strides, step = [0] * len(shape), 1
        for k, d in enumerate(reversed(order)):
            strides[d] = step
            step = step * shape[d] + (gap if k == 0 else 0)
        found[tuple(strides)] = None
    return list(found)


@pytest.mark.in_turns
@pytest.mark.parametrize("shape", [(6, 8), (6, 12, 1), (6, 1, 12), (1, 6, 12), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("define", PROGRAMS, ids=lambda d: d.__name__)
def test_arguments_lie_as_their_kernels_were_told(
    define: Define, shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = SimulatorDevice()
    launched: list[tuple[tuple[str, ...], list[Shape], list[Shape]]] = []
    evaluate = PlanEvaluation.evaluate

    def watched(self: PlanEvaluation, sizes: Sequence[Shape], strides: Sequence[Shape], *rest: Any) -> Any:
        launched.append((self.plan.tensor_arguments, list(sizes), list(strides)))
        return evaluate(self, sizes, strides, *rest)

    monkeypatch.setattr(PlanEvaluation, "evaluate", watched)
    for strides in layouts_of(shape):
        with FusionDefinition() as fd:
            define(fd, fd.define_tensor([-1] * len(shape)))
        assert fd.fusion is not None
        x = place(device, np.arange(float(np.prod(shape)), dtype=np.float32).reshape(shape), strides)
        bound = bind_inputs(fd.fusion.ir_fusion, [x])
        segmented = plan_fusion(concrete_fusion(fd.fusion.ir_fusion, bound), Recorder())
        program, kernels = compile_segments(
            segmented,
            bound,
            lambda _, segment, inputs, start: at_once(
                lambda: KernelCompiler(device).compile_segment(segment, inputs)[0]
            ),
            Recorder(),
        )
        launched.clear()
        program.run([x])
        told = [i for i, k in zip(inputs_of_segments(segmented, bound), kernels, strict=True) if k is not None]
        assert len(told) == len(launched)
        for inputs, (names, sizes, steps) in zip(told, launched, strict=True):
            seen = {name: (tuple(n), tuple(s)) for name, n, s in zip(names, sizes, steps, strict=True)}
            for name, t in inputs.tensors.items():
                if name in seen:
                    assert (t.sizes, t.strides) == seen[name], (strides, name)


def test_a_reshape_that_is_no_view_is_no_alias(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the passes before makes sure of it: were one wrong, elements would be read from wrong places."""
    monkeypatch.setattr("fuser.optimize.assign_output_layouts.gives_order", lambda _: False)
    with FusionDefinition() as fd:
        y = fd.ops.stride_order(fd.define_tensor([-1, -1, -1]), [1, 0, 2])
        fd.add_output(fd.ops.pad(fd.ops.reshape(y, [2, -1]), [1, 1], 0.0))
        fd.add_output(fd.ops.cat([y, y], 2))
    with pytest.raises(InternalError, match=r"no strides make t\d+ a view of t1 of shape \(2, 3, 4\) and strides"):
        fd.execute([np.zeros((2, 3, 4), "f4")], device="simulator")
