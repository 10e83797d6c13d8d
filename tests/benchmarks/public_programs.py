"""The public cases as test parameters, with what is known not to work yet, and their programs compiled once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from benchmarks.case import Case
from benchmarks.cases import public_cases
from benchmarks.compile_case import compile_case
from fuser.errors import NotSupportedError
from fuser.frontend import ops
from fuser.host_ir.program import HostProgram

# The ops of a family that may not be there yet.
NEEDS: dict[str, tuple[str, ...]] = {
    "rope": ("slice", "cat"),
    "swiglu": ("slice",),
    "cross_entropy": ("take_along_axis",),
    "embedding": ("index_select",),
    "cumsum": ("cumsum",),
    "dropout": ("uniform",),
}


def missing_ops(case: Case) -> list[str]:
    """Ops that the case uses and that raise NotSupportedError."""
    return [op for op in NEEDS.get(case.family, ()) if op in ops.UNSUPPORTED]


def as_parameters(cases: Sequence[Case], expected_failures: dict[str, str] | None = None) -> list[Any]:
    """Cases by name. One that uses a missing op has to raise NotSupportedError; one that `expected_failures` names
    (name -> why) has to fail an assertion: both lists only shrink."""
    parameters: list[Any] = []
    for case in cases:
        marks: list[pytest.MarkDecorator] = []
        missing = missing_ops(case)
        if missing:
            reason = f"{missing[0]}() is not there yet"
            marks.append(pytest.mark.xfail(raises=NotSupportedError, strict=True, reason=reason))
        elif expected_failures is not None and case.name in expected_failures:
            marks.append(pytest.mark.xfail(raises=AssertionError, strict=True, reason=expected_failures[case.name]))
        parameters.append(pytest.param(case, id=case.name, marks=marks))
    return parameters


@cache
def program(name: str, with_cubin: bool) -> HostProgram:
    """The program of a public case on an H200."""
    return compile_case(next(c for c in public_cases() if c.name == name), with_cubin=with_cubin)
