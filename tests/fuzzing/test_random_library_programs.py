"""Random definitions with library calls: equal to the reference evaluator, however they are run."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import fuser
from fuser.frontend.reference import evaluate_fusion
from fuser.host_ir.parse_program import parse_program
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.simulator.device import SimulatorDevice
from tests.fuzzing.random_library_programs import generate


@pytest.mark.in_turns
@pytest.mark.parametrize("seed", range(60))
def test_random_programs_are_right_however_they_are_run(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 4 == 0:
        monkeypatch.setenv("FUSER_VERIFY", "passes")
    fd, arrays = generate(random.Random(seed), steps=3 + seed % 10)
    assert fd.fusion is not None
    wanted = evaluate_fusion(fd.fusion.ir_fusion, arrays)
    first = fd.execute(arrays)
    for out, want in zip(first, wanted, strict=True):
        np.testing.assert_allclose(out, want, rtol=2e-4, atol=2e-5)
    program = fd.program(arrays)
    path = tmp_path / "program"
    fuser.save(program, path)
    for again in (fd.execute(arrays), program.run(arrays), program.interpret(arrays), fuser.load(path).run(arrays)):
        for out, want in zip(again, first, strict=True):
            assert np.array_equal(out, want)
    device = SimulatorDevice()
    placed = [DeviceTensor.from_numpy(a, device) for a in arrays]  # dense
    captured = fd.program(placed).capture(placed, device=device)
    recorded = [np.asarray(out).copy() for out in captured.outputs]
    for out, want in zip(recorded, first, strict=True):
        np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-6)  # BLAS adds up other layouts in other orders
    for _ in range(2):
        assert all(map(np.array_equal, map(np.asarray, captured.replay()), recorded))
    # The text rebuilds the program.
    assert parse_program(repr(program), program.kernels) == program
