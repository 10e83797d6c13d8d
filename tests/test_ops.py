"""Every op, dtype and layout on the simulator: right results pass the judge, wrong ones fail it.

One test is a family of ops (tests/op_cases.py) and a dtype. Failures are collected: one line each, with op, dtype, layout,
index, got, want and the error in ulp. `SKIPPED` is how many wrong results per test could not be told from right ones,
because they are equal or the op table says so; a change of it means that the cases prove more or less than before.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuser import DataType
from fuser.runtime.device import get_device
from tests.op_cases import FAMILIES, SUITES, Result, run_suite

SKIPPED: dict[str, dict[str, int]] = {}


def report(family: str, dtype: DataType, result: Result, record_property: pytest.RecordProperty) -> None:
    """Fail with every failure; print and compare the numbers of wrong results."""
    asserted, skipped = result.counts
    print(f"{family}[{dtype.name}]: {result.cases} cases, {asserted} wrong results rejected, {skipped} skipped")
    record_property("wrong results", [result.cases, asserted, skipped])
    if result.failures:
        shown = "\n".join(result.failures[:40])
        pytest.fail(f"{len(result.failures)} failures\n{shown}", pytrace=False)
    assert skipped == SKIPPED[family][dtype.name], f"skipped {skipped} of {asserted + skipped}: see SKIPPED in tests/test_ops.py"


@pytest.mark.parametrize(("family", "dtype"), SUITES, ids=[f"{f}-{d.name}" for f, d in SUITES])
def test_ops(
    family: str, dtype: DataType, monkeypatch: pytest.MonkeyPatch, record_property: pytest.RecordProperty
) -> None:
    device = get_device("simulator")
    if FAMILIES[family].few_processors:
        monkeypatch.setattr(device, "info", replace(device.info, sm_count=1))
    report(family, dtype, run_suite(family, dtype, "simulator"), record_property)
