"""Lines of what all rows share, asked for by the first threads of a launch."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.errors import SchedulingError
from fuser.ir.device_info import DeviceInfo
from fuser.ir.kernel import AsyncCopy, For, If, Prefetch, VectorMove, walk
from fuser.ir.print_kernel import print_kernel
from fuser.ir.schedule import ScheduleBuilder
from fuser.runtime import nvrtc
from fuser.simulator.device import SimulatorDevice
from tests.schedule.schedulers.test_inner_persistent import described, fusion_of, layer_norm, reference

D = DataType
H200 = DeviceInfo.preset("H200")


@pytest.mark.parametrize(
    ("dtype", "rows", "columns"), [(D.BFloat16, 5, 5000), (D.Float, 3, 4097), (D.BFloat16, 2, 50257)]
)
def test_values(dtype: DataType, rows: int, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a block, of odd length, and over groups of the grid."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    rng = np.random.default_rng(columns)
    arrays = [rng.normal(size=s).astype(dtype.numpy) for s in ((rows, columns), (columns,))]
    with FusionDefinition() as fd:
        layer_norm(fd, dtype)
    found = fd.execute(arrays, device="simulator")
    tolerance = 2e-5 if dtype is D.Float else 1.2e-2
    for got, expected in zip(found, reference(layer_norm, arrays), strict=True):
        scale = np.maximum(np.abs(expected), np.sqrt(np.mean(expected**2)))
        assert np.all(np.abs(np.asarray(got).astype(np.float64) - expected) <= tolerance * scale + 1e-6)


def test_each_thread_asks_for_a_line_before_anything_else() -> None:
    fusion = fusion_of(layer_norm, D.BFloat16)
    kernel = KernelCompiler(SimulatorDevice(info=H200)).compile(
        fusion, [described(D.BFloat16, 64, 131072), described(D.BFloat16, 131072)]
    )
    assert kernel.kernel_ir is not None
    weight = fusion.input_tensors[1].name
    (asked,) = (s for s in walk(kernel.kernel_ir.body) if isinstance(s, Prefetch))
    assert asked.buffer.name == weight
    assert asked.index.multiple == 64, "elements of a line"
    place = next(k for k, s in enumerate(kernel.kernel_ir.body) if isinstance(s, If) and asked in s.then)
    assert not any(isinstance(s, For | AsyncCopy | VectorMove) for s in walk(kernel.kernel_ir.body[:place]))
    assert f"prefetch {weight}[" in print_kernel(kernel.kernel_ir)
    bounds = [f"-DFUSER_MAX_THREADS={kernel.max_block_size}"]
    result = nvrtc.compile_to_cubin(kernel.source, ["fuser_kernel"], "sm_90a", bounds)
    assert result.resources["fuser_kernel"].spill_bytes == 0


@pytest.mark.parametrize(("rows", "columns", "asks"), [(4096, 8192, True), (32768, 1024, True), (4096, 256, False)])
def test_which_rows_ask(rows: int, columns: int, asks: bool) -> None:
    """However many there are: later blocks only test that they need not. Not short ones."""
    kernel = KernelCompiler(SimulatorDevice(info=H200)).compile(
        fusion_of(layer_norm, D.BFloat16), [described(D.BFloat16, rows, columns), described(D.BFloat16, columns)]
    )
    assert kernel.kernel_ir is not None
    assert any(isinstance(s, Prefetch) for s in walk(kernel.kernel_ir.body)) is asks


def test_only_inputs_of_one_dim_can_be_asked_for() -> None:
    fusion = fusion_of(layer_norm, D.BFloat16)
    builder = ScheduleBuilder(fusion)
    with pytest.raises(SchedulingError, match="no input of one dim"):
        builder.prefetch([fusion.input_tensors[0].name])
    with pytest.raises(SchedulingError, match="no input of one dim"):
        builder.prefetch([fusion.output_tensors[0].name])
