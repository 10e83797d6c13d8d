"""No kernel of a public case keeps values in local memory. Compiled for sm_90a; no GPU, no data."""

from __future__ import annotations

import pytest

from benchmarks.case import Case
from benchmarks.cases import public_cases
from fuser.runtime import nvrtc
from tests.benchmarks.public_programs import as_parameters, program

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")

# Each entry has to fail; an entry that holds has to go.
NOT_YET: dict[str, str] = {}


@pytest.mark.parametrize("case", as_parameters(public_cases(), NOT_YET))
def test_no_spills_and_no_stack(case: Case) -> None:
    for kernel in program(case.name, True).kernels.values():
        assert kernel.resources is not None
        assert kernel.resources.spill_bytes == 0
        assert kernel.resources.stack_bytes == 0
