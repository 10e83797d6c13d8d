"""Every op, dtype and layout on a GPU, through NVRTC and the driver, without any framework.

The cases are those of tests/end_to_end/test_ops.py.

Most of the time is compilation, so use many processes: `pytest -n 16 tests/gpu/test_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuser import DataType
from tests.fusions.op_cases import SUITE_IDS, SUITES, check_suite


@pytest.mark.parametrize(("family", "dtype"), SUITES, ids=SUITE_IDS)
def test_ops(
    family: str,
    dtype: DataType,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    check_suite(family, dtype, "cuda", monkeypatch, record_property)
