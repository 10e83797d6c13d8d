"""Block growth through a hand-built host program: one generated and one raw kernel, blocks of 128, 1024 and 128 threads."""

from __future__ import annotations

import numpy as np

from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.devices.cuda_device import CudaDevice
from fuser.runtime.kernels.variants import KernelVariants
from tests.compiler.growth_programs import BLOCKS, ROWS, generated_kernel, growth_program, mixed, raw_kernel


def test_growth_through_a_host_program() -> None:
    variants = KernelVariants()
    device = CudaDevice(0, variants)
    generated, raw = generated_kernel(device), raw_kernel(device)
    programs = {block: growth_program(generated, raw, block) for block in BLOCKS}
    rng = np.random.default_rng(0)
    seen: list[dict[str, int]] = []
    for turn in range(2):
        for block in BLOCKS:
            x = rng.standard_normal((ROWS, block)).astype(np.float32)
            program = programs[block]
            before = program.counters()
            (z,) = program.run([DeviceTensor.from_numpy(x, device)])
            after = program.counters()
            seen.append({name: after[name] - before[name] for name in after})
            want = mixed(x * np.float32(0.5))
            np.testing.assert_allclose(z.numpy(), want, rtol=2e-3, atol=2e-3, err_msg=f"block {block}, turn {turn}")
    # The first binaries came with the kernels; growth made one more of each; shrinking and growing again, none.
    assert [s["recompiles"] for s in seen] == [0, 2, 0, 0, 0, 0]
    assert [s["compiles"] for s in seen] == [0] * 6
    assert all(s["launches"] == 2 and s["allocations"] == 2 and s["deallocations"] == 1 for s in seen)
    assert variants.counters().compiles == 2
    assert variants.counters().failures == 0

    narrow, wide = variants.binaries_of(generated)
    assert (narrow.max_threads, wide.max_threads) == (256, 1024)
    free, capped = variants.binaries_of(raw)
    assert free.resources is not None
    assert capped.resources is not None
    assert free.resources.registers > 64 >= capped.resources.registers
    for binary in (narrow, wide, free, capped):
        assert binary.resources is not None
        assert binary.resources.registers * binary.max_threads <= 65536
        loaded = device._loaded[binary]  # pyright: ignore[reportPrivateUsage] - what the driver says of it
        assert loaded.registers == binary.resources.registers
        assert loaded.max_threads >= min(binary.max_threads, 1024) or binary is free
