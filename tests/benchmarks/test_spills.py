"""No kernel of a public case keeps values in local memory, and none of an everyday case spills. No GPU, no data."""

from __future__ import annotations

import pytest

from benchmarks.case import Case
from benchmarks.cases import public_cases
from benchmarks.compile_case import compile_case
from benchmarks.everyday import everyday_cases
from fuser.ir.device_info import DeviceInfo
from fuser.runtime.kernels import nvrtc
from tests.benchmarks.public_programs import as_parameters, program

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")

# Each entry has to fail; an entry that holds has to go.
NOT_YET: dict[str, str] = {}


@pytest.mark.in_turns
@pytest.mark.parametrize("case", as_parameters(public_cases(), NOT_YET))
def test_no_spills_and_no_stack(case: Case) -> None:
    for kernel in program(case.name, True).kernels.values():
        assert kernel.resources is not None
        assert kernel.resources.spill_bytes == 0
        assert kernel.resources.stack_bytes == 0


SAMPLED = 6
"""One in so many of the everyday cases, and another one, is compiled for each of the devices."""
WITH_ROW_VALUES = "distillation_kl"
"""Its last kernel reads four values of each row beside the data."""

EVERYDAY = [
    pytest.param(case, name, id=f"{case.name}-{name}")
    for first, name in enumerate(("H200", "sm_80", "sm_120"))
    for k, case in enumerate(everyday_cases())
    if k % SAMPLED == first or case.name.startswith(WITH_ROW_VALUES)
]


@pytest.mark.in_turns
@pytest.mark.parametrize(("case", "name"), EVERYDAY)
def test_no_everyday_case_spills(case: Case, name: str) -> None:
    for launch in compile_case(case, DeviceInfo.preset(name)).launches():
        assert launch.kernel.resources is not None
        assert launch.kernel.resources.spill_bytes == 0
