"""Lanes of a warp meet by shuffles alone."""

from __future__ import annotations

import pytest

from benchmarks.compile_case import compile_case
from benchmarks.sweep_cases import sweep_cases
from fuser.ir.kernel import Shuffle
from tests.kernel_corpus import BX, BY, GX, SERIAL
from tests.lowering.row_sums import count, row_sum


@pytest.mark.parametrize(("block", "shuffles"), [(2, 1), (8, 3), (32, 5)])
def test_group_inside_a_warp_is_a_butterfly(block: int, shuffles: int) -> None:
    kernel = row_sum(block, (GX, BY, SERIAL, BX), rows=32)
    assert count(kernel, Shuffle) == shuffles
    assert not kernel.shared_offsets


@pytest.mark.parametrize("shape", ["3x250003", "534x5120"])
def test_sums_of_lanes_have_names_of_their_own(shape: str) -> None:
    """Loop nests number names, too, and finish such sums as well: a kernel whose names meet is refused."""
    (case,) = [c for c in sweep_cases() if c.name == f"cross_entropy_f64_{shape}"]
    compile_case(case, with_cubin=False)
