"""Lanes of a warp meet by shuffles alone."""

from __future__ import annotations

import pytest

from fuser.ir.kernel import Shuffle
from tests.kernel_corpus import BX, BY, GX, SERIAL
from tests.lowering.row_sums import count, row_sum


@pytest.mark.parametrize(("block", "shuffles"), [(2, 1), (8, 3), (32, 5)])
def test_group_inside_a_warp_is_a_butterfly(block: int, shuffles: int) -> None:
    kernel = row_sum(block, (GX, BY, SERIAL, BX), rows=32)
    assert count(kernel, Shuffle) == shuffles
    assert not kernel.shared_offsets
