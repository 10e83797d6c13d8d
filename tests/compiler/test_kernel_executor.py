"""Fusions compiled as they are scheduled."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import CompileParams, FusionDefinition, KernelExecutor
from fuser.errors import DefinitionRuntimeError


@pytest.fixture(autouse=True)
def simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")


@pytest.mark.parametrize("shape", [(5, 7), (1, 3), (3, 1), (0, 4)])
def test_unscheduled_reductions_over_any_dims(shape: tuple[int, int]) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        e = fd.ops.exp(x)
        for dims in ([0], [1], [0, 1]):
            fd.add_output(fd.ops.sum(e, dims))
        fd.add_output(e / fd.ops.sum(e, [0], keepdim=True))
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    e64 = np.exp(values.astype(np.float64))
    expected = [e64.sum(0), e64.sum(1), e64.sum(), e64 / e64.sum(0)]
    for result, reference in zip(fd.manual_execute([values]), expected, strict=True):
        np.testing.assert_allclose(result, reference, rtol=1e-5)
    assert [n.value for n in fd.ke.kernel.launch_plan.block] == [1, 1, 1]


@pytest.mark.parametrize(
    ("params", "text"),
    [
        (CompileParams(maxrregcount=256), r"maxrregcount must be an int in 1\.\.255, got 256"),
        (CompileParams(maxrregcount="x"), r"maxrregcount must be an int in 1\.\.255, got 'x'"),
        (CompileParams(include_paths=["."]), "include_paths must be empty"),
    ],
)
def test_compile_params_without_meaning(params: CompileParams, text: str) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        fd.add_output(fd.ops.neg(x))
    with pytest.raises(DefinitionRuntimeError, match=text):
        KernelExecutor().compile(fd.fusion, [np.ones(3, np.float32)], None, params)
