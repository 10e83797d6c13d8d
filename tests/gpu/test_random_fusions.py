"""The random definitions of tests/fuzzing/random_fusions.py on a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuser.runtime.devices.cuda_device import CudaDevice
from tests.fuzzing.exact_runs import check
from tests.fuzzing.random_fusions import CASES, PER_TEST, generate


@pytest.fixture(scope="module")
def device() -> CudaDevice:
    """The GPU, planned for as if it had one SM."""
    made = CudaDevice(0)
    made.info = replace(made.info, sm_count=1)
    return made


@pytest.mark.parametrize("start", range(0, CASES, PER_TEST))
def test_random_fusions(start: int, device: CudaDevice) -> None:
    for seed in range(start, start + PER_TEST):
        made = generate(seed)
        counters = check(made, device)
        if made.only_views:
            assert counters["launches"] == 0, made.seed
