"""Every op, dtype and layout on the simulator: right results pass the judge, wrong ones fail it.

One test is a family of ops (tests/fusions/op_cases.py) and a dtype. Failures are collected: one line each, with op, dtype,
layout, index, got, want and the error in ulp.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuser import DataType
from tests.fusions.op_cases import SUITE_IDS, SUITES, check_suite


@pytest.mark.in_turns
@pytest.mark.parametrize(("family", "dtype"), SUITES, ids=SUITE_IDS)
def test_ops(
    family: str,
    dtype: DataType,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    check_suite(family, dtype, "simulator", monkeypatch, record_property)
