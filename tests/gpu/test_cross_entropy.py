"""Cross entropy and its gradient on a GPU, for vocabularies of every remainder: right, and in at most two kernels."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType
from tests.fusions.cross_entropy import ALL, DTYPES, VOCABULARIES, CrossEntropy

# Of few rows blocks share each; of more each has a block, or several rows have one.
ROWS = {
    vocabulary: (2, 600 if vocabulary <= 1000 else 150 if vocabulary <= 50304 else 17) for vocabulary in VOCABULARIES
}


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("case", ALL, ids=str)
def test_results_and_kernels(case: CrossEntropy, vocabulary: int, dtype: DataType) -> None:
    for rows in ROWS[vocabulary]:
        arrays = case.arrays(dtype, rows, vocabulary)
        fd = case.define(dtype, rows, vocabulary)
        for _ in range(2):
            (found,) = fd.execute(arrays)
            case.check(np.asarray(found), arrays)
        assert len(fd.program(arrays).launches()) <= 2
