"""Cross entropy and its gradient: in how many kernels, whatever the vocabulary, and right. `tests/gpu` runs all of them."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import compile_fusion
from fuser.ir.device_info import DeviceInfo
from tests.fusions.cross_entropy import ALL, DTYPES, VOCABULARIES, CrossEntropy

H200 = DeviceInfo.preset("H200")
# Each case with some vocabulary, type and number of rows, and each of those with some case.
LARGE = [(case, VOCABULARIES[k % 7], DTYPES[k % 3], (4096, 512, 128)[k // 3 % 3]) for k, case in enumerate(ALL)]
SMALL = [(case, (2051, 1000)[k % 2], DTYPES[(k + k // 16) % 3]) for k, case in enumerate(ALL * 2)]


@pytest.mark.in_turns
@pytest.mark.parametrize(("case", "vocabulary", "dtype", "rows"), LARGE, ids=str)
def test_kernels(
    case: CrossEntropy, vocabulary: int, dtype: DataType, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One, and another to count the targets that are not ignored before their gradients are divided by that."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    fusion = case.define(dtype, rows, vocabulary).fusion
    assert fusion is not None
    bound = bind_inputs(fusion.ir_fusion, case.described(dtype, rows, vocabulary))
    program = compile_fusion(fusion.ir_fusion, bound, H200)
    assert len(program.launches()) <= (2 if case.backward and case.is_mean and case.ignores else 1)


@pytest.mark.in_turns
@pytest.mark.parametrize(("case", "vocabulary", "dtype"), SMALL, ids=str)
def test_results(case: CrossEntropy, vocabulary: int, dtype: DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    arrays = case.arrays(dtype, 3, vocabulary)
    (found,) = case.define(dtype, 3, vocabulary).execute(arrays, device="simulator")
    case.check(np.asarray(found), arrays)
