"""Rows in shared memory, filled by asynchronous copies, on a GPU: schedules of
tests/lowering/memory/test_pipeline_copies.py."""

from __future__ import annotations

import numpy as np
import pytest

from fuser.codegen.generate import generate_cuda
from fuser.ir.ops.dtypes import DataType
from fuser.runtime.devices.device import get_device
from fuser.runtime.kernels.compiled_kernel import CompiledKernel, content_hash
from fuser.runtime.kernels.nvrtc import compile_to_cubin
from tests.judging.harness import Lowered, collect_facts, run_on
from tests.lowering.memory.copied_rows import rows_in_shared_memory

OPTIONS = ("-DFUSER_MAX_THREADS=1024",)


@pytest.mark.parametrize("blocks", [0, 64, 300])
@pytest.mark.parametrize(("threads", "batch"), [(32, 4), (128, 7), (1024, 12)])
@pytest.mark.parametrize(("dtype", "vector"), [(DataType.Float, 4), (DataType.BFloat16, 8)])
def test_rows(blocks: int, threads: int, batch: int, dtype: DataType, vector: int) -> None:
    length = threads * batch * vector
    s = rows_in_shared_memory(length, threads, blocks=blocks, dtype=dtype, vector=vector)
    # Few ones among zeros: sums stay exact in 16 bits.
    x = (np.random.default_rng(0).random((2000, length)) < 20 / length).astype(dtype.numpy)
    facts = collect_facts(s.fusion, [x])
    kernel = Lowered.of(s, facts).kernel
    text = generate_cuda(kernel).text
    device = get_device("cuda", 0)
    result = compile_to_cubin(text, [kernel.name], device.info.arch, OPTIONS)
    resources = result.resources[kernel.name]
    assert resources.spill_bytes == resources.stack_bytes == 0
    compiled = CompiledKernel(
        source=text,
        entry=result.lowered.get(kernel.name, kernel.name),
        arch=result.arch,
        cubin=result.cubin,
        kernel_ir=kernel,
        parameters=kernel.parameters,
        plan=kernel.plan,
        facts=facts,
        resources=resources,
        max_block_size=1024,
        register_limit=64,
        options=(),
        nvrtc_version=result.version,
        content_hash=content_hash(text, OPTIONS, result.arch, result.version, kernel.name),
    )
    wide = x.astype(np.float64)
    below = wide - wide.max(1, keepdims=True)
    expected = below + below.sum(1, keepdims=True)
    for _ in range(3):
        found = run_on(device, compiled, s.fusion, [x])[s.fusion.output_tensors[0].name].astype(np.float64)
        # The sum is rounded to the dtype, and so is what is added to it.
        assert np.max(np.abs(found - expected) / np.abs(expected)) <= (1e-6 if dtype is DataType.Float else 2**-7)
