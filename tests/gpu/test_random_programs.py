"""The random programs of tests/fuzzing/test_random_programs.py on a GPU; `--seeds 1000:1400` takes other seeds."""

from __future__ import annotations

import pytest

from fuser.runtime.devices.cuda_device import CudaDevice
from tests.fuzzing.random_programs import failure, generate

SEEDS = range(180)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    asked = metafunc.config.getoption("--seeds")
    metafunc.parametrize("seed", SEEDS if asked is None else range(*map(int, asked.split(":"))))


@pytest.fixture(scope="module")
def device() -> CudaDevice:
    return CudaDevice(0)


def test_random_program(seed: int, device: CudaDevice) -> None:
    problem = failure(generate(seed), device)
    assert problem is None, (
        f"`python -m tests.fuzzing.shrink_program {seed}` makes it small, if a simulator shows it:\n{problem}"
    )
