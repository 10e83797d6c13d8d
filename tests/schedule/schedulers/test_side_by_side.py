"""Gradients of rows and of columns as two kernels that run side by side: where that is faster, and that nothing is shared."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import compile_fusion
from fuser.host_ir.instructions.instructions import LaunchKernel
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.schedule.cost.estimate import total_time
from fuser.schedule.cost.inner_outer_work import two_kernel_work
from fuser.schedule.params import InnerOuterParams
from fuser.schedule.scheduler import Refused, SegmentInputs
from fuser.schedule.schedulers.inner_outer_persistent import InnerOuterPersistentScheduler
from tests.fusions.inner_outer import (
    Definition,
    arrays_for,
    described,
    expected_of,
    fusion_of,
    layer_norm_backward,
    softmax_and_sums,
)
from tests.schedule.random_gradient_space import random_gradient_space

H200 = DeviceInfo.preset("H200")
Float, BFloat16 = DataType.Float, DataType.BFloat16


def answer_for(define: Definition, shape: tuple[int, int], device: DeviceInfo = H200) -> InnerOuterParams | Refused:
    length = TensorDescriptor(BFloat16, (shape[1],), (1,))
    descriptors = [TensorDescriptor(BFloat16, shape, (shape[1], 1))] * 2 + [length]
    descriptors += [TensorDescriptor(Float, (shape[0], 1), (1, 1))] * 2
    fusion = fusion_of(define)
    bound = bind_inputs(fusion, descriptors[: len(fusion.input_tensors)])
    answer = InnerOuterPersistentScheduler().propose(fusion, SegmentInputs(bound.tensors, bound.evaluate), device)
    assert isinstance(answer, (InnerOuterParams, Refused))
    return answer


@pytest.mark.parametrize("shape", [(256, 1000), (500, 257), (128, 8192), (700, 2048)])
def test_rows_and_columns_side_by_side(shape: tuple[int, int]) -> None:
    """Where waiting for the whole grid costs more than reading twice."""
    answer = answer_for(layer_norm_backward, shape)
    assert isinstance(answer, Refused)
    assert "two kernels should take" in answer.reason
    # They would run one after the other.
    assert isinstance(answer_for(layer_norm_backward, shape, replace(H200, arch="sm_80")), InnerOuterParams)


@pytest.mark.parametrize("shape", [(16384, 4096), (32768, 1024), (100003, 64), (4, 7168), (480, 64)])
def test_one_kernel_is_faster(shape: tuple[int, int]) -> None:
    assert isinstance(answer_for(layer_norm_backward, shape), InnerOuterParams)


def test_what_rows_and_columns_share_is_one_kernel() -> None:
    """The sums of columns need the statistics of rows."""
    assert isinstance(answer_for(softmax_and_sums, (256, 1000)), InnerOuterParams)


def test_two_kernels_and_their_roles() -> None:
    fusion = fusion_of(layer_norm_backward)
    bound = bind_inputs(fusion, [described(a) for a in arrays_for(layer_norm_backward, 256, 1000, BFloat16)])
    for device, roles in (
        (H200, [(True, False), (False, True)]),
        (replace(H200, max_threads_per_block=512, arch="sm_80", max_cluster=1), [(False, False)]),
    ):
        program = compile_fusion(fusion, bound, device)
        kernels = [i.kernel for i in program.instructions if isinstance(i, LaunchKernel)]
        plans = [k.plan for k in kernels]
        assert [(p.starts_next, p.co_resident) for p in plans if p is not None] == roles
        texts = [("launch_dependents" in k.source, "griddepcontrol.wait" in k.source) for k in kernels]
        assert texts == roles
        for k in kernels:
            body = k.source[k.source.index('extern "C"') :]
            assert "return;" not in body, "no thread ends before it has waited"


def test_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second kernel overtakes nothing that it needs: they give the same whichever is first."""
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    arrays = arrays_for(layer_norm_backward, 256, 1000, Float)
    with FusionDefinition() as fd:
        layer_norm_backward(fd, Float)
    for _ in range(2):
        for result, expected in zip(fd.execute(arrays), expected_of(layer_norm_backward, arrays), strict=True):
            scale = np.maximum(np.abs(expected), np.sqrt(np.mean(expected**2)))
            assert np.all(np.abs(result - expected) <= 3e-5 * scale)


def test_rows_that_begin_anywhere_take_two_kernels_longer() -> None:
    """Elements read one by one: 16 bits take longer than wider ones."""
    ratios: list[float] = []
    for itemsize in (2, 4, 8):
        space = random_gradient_space(random.Random(0), 100_000, 257, itemsize=itemsize, vector=16 // itemsize)
        by_element, whole = (
            total_time(two_kernel_work(replace(space, vector=vector), H200), H200) for vector in (1, space.vector)
        )
        ratios.append(by_element / whole)
    assert ratios == sorted(ratios, reverse=True)
    assert min(ratios) > 1.05
