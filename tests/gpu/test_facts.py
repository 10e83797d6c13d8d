"""One kernel, many shapes, on a GPU: the checks of tests/end_to_end/test_facts.py with real launches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuser.runtime.devices.cuda_device import CudaDevice
from tests.end_to_end.fact_checks import NAMES, PADDED, check_many_shapes, check_refusals, subject
from tests.fusions.fusion_corpus import case


@pytest.fixture(scope="module")
def device() -> CudaDevice:
    """The GPU, planned for as if it had one SM: small tensors get the kernels of large ones."""
    made = CudaDevice(0)
    made.info = replace(made.info, sm_count=1)
    return made


@pytest.mark.parametrize("name", NAMES)
def test_one_kernel_many_shapes(name: str, device: CudaDevice) -> None:
    check_many_shapes(subject(case(name), device))


@pytest.mark.parametrize("name", PADDED)
def test_one_kernel_many_strides(name: str, device: CudaDevice) -> None:
    check_many_shapes(subject(case(name), device, padding=16), 3)


@pytest.mark.parametrize("name", NAMES)
def test_each_fact_is_checked(name: str, device: CudaDevice) -> None:
    check_refusals(subject(case(name), device))
