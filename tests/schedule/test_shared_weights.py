"""What all rows share, beside rows in shared memory: loaded for two accesses before the first result is stored."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.kernel import For, VectorMove, walk
from fuser.schedule.rows_in_shared import BESIDE_BYTES, loaded_together
from fuser.simulator.device import SimulatorDevice
from tests.harness import run_on
from tests.schedule.test_inner_persistent import described, fusion_of, layer_norm, reference
from tests.schedule.test_rows_in_shared import device_for, proposed

D = DataType


@pytest.mark.parametrize("dtype", [D.BFloat16, D.Float])
def test_weights_of_two_accesses_come_before_the_first_store(dtype: DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    device, shapes = device_for(4096, 3), [(5, 1024), (1024,)]
    params = proposed(layer_norm, device, *shapes, dtype=dtype)
    assert params.in_shared
    assert params.beside_at_once == 2
    fusion = fusion_of(layer_norm, dtype)
    kernel = KernelCompiler(SimulatorDevice(info=device)).compile(fusion, [described(dtype, *s) for s in shapes])
    assert kernel.kernel_ir is not None
    weight, result = fusion.input_tensors[1].name, fusion.output_tensors[0].name
    # Unrolled loops of their own load them, before the one that stores.
    loops = [s for s in walk(kernel.kernel_ir.body) if isinstance(s, For) and s.unroll]
    moved = [[m for m in walk(loop.body) if isinstance(m, VectorMove)] for loop in loops]
    loading = [k for k, found in enumerate(moved) if any(m.src.name == weight for m in found)]
    storing = [k for k, found in enumerate(moved) if any(m.dst.name == result for m in found)]
    assert loading
    assert storing
    assert not set(loading) & set(storing)
    assert max(loading) < min(storing)
    rng = np.random.default_rng(5)
    arrays = [rng.normal(size=s).astype(dtype.numpy) for s in shapes]
    found = run_on(SimulatorDevice(info=device), kernel, fusion, arrays)
    tolerance = 2e-5 if dtype is D.Float else 1.2e-2
    for t, expected in zip(fusion.output_tensors, reference(layer_norm, arrays), strict=True):
        scale = np.maximum(np.abs(expected), np.sqrt(np.mean(expected**2)))
        assert np.all(np.abs(found[t.name].astype(np.float64) - expected) <= tolerance * scale + 1e-6)


def test_how_many() -> None:
    assert loaded_together(8, 0) == 0, "nothing is shared"
    assert loaded_together(7, 16) == 0
    assert loaded_together(8, BESIDE_BYTES // 2) == 2
    assert loaded_together(8, BESIDE_BYTES) == 0, "too many registers"
