"""Fusions of the corpus run and compared with the reference."""

from __future__ import annotations

import numpy as np

from fuser.compiler.executor_cache import FusionExecutorCache
from fuser.runtime.devices.device import Device
from tests.devices.device_layouts import place_all
from tests.fusions.fusion_corpus import SIZES, FusionCase, Sizes, assert_close, expected


def check(fusion_case: FusionCase, sizes: Sizes, device: Device, runs: int = 2) -> FusionExecutorCache:
    """Run the case `runs` times on one cache with different values and compare with the reference."""
    fusion = fusion_case.define().fusion
    assert fusion is not None
    cache = FusionExecutorCache(fusion)
    where = None if fusion.ir_fusion.input_tensors else device.kind
    for seed in range(runs):
        plain = fusion_case.inputs(sizes, seed)
        want = expected(fusion.ir_fusion, plain)
        placed = place_all(device, plain)
        results = cache.execute(placed, device=where)
        for i, (out, ref, n) in enumerate(zip(results, want.outputs, want.folded, strict=True)):
            assert_close(out, ref, n, f"output {i}")
        for position, ref in want.updates.items():
            assert_close(placed[position], ref, want.folded_updates[position], f"update of input {position}")
        for position, value in enumerate(plain):
            if isinstance(value, np.ndarray) and position not in want.updates:
                np.testing.assert_array_equal(placed[position].numpy(), value, err_msg=f"input {position} was written")
    return cache


def sizes_of(fusion_case: FusionCase) -> list[str]:
    """Names of the sizes at which the case has a value."""
    return [n for n in SIZES if n != "empty" or fusion_case.empty_is_defined]
