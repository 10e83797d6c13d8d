"""Lanes of a warp meet by shuffles alone."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.compile_case import compile_case
from benchmarks.sweep_cases import sweep_cases
from fuser.codegen.generate import generate_cuda
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.kernel.kernel import Shuffle
from fuser.ir.ops.dtypes import DataType
from fuser.ir.schedule.schedule import ScheduleBuilder
from tests.fusions.kernel_corpus import BX, BY, GX, SERIAL
from tests.judging.harness import Lowered, run
from tests.lowering.collectives.row_sums import count, row_sum


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


def moments_of_rows(threads: int) -> ScheduleBuilder:
    """Mean and sum of squared differences of Float rows, as Half: statistics that need no more than a Float."""
    b = FusionBuilder()
    x = b.input_tensor(DataType.Float, [-1, -1])
    mean, m2, _ = b.welford(x, [1])
    for r in (mean, m2):
        b.add_output(b.pointwise("cast", [r], DataType.Half))
    s = ScheduleBuilder(b.freeze())
    s.split(mean.name, 1, threads)
    s.transform_like(mean.name)
    s.parallelize(mean.name, 0, GX)
    s.parallelize(mean.name, 2, BX)
    s.parallelize_like(mean.name)
    s.inline_most()
    return s


@pytest.mark.parametrize("threads", [8, 32, 64])
@pytest.mark.parametrize("length", [1, 5, 31, 64, 1000])
@pytest.mark.parametrize("offset", [0.0, 3000.0])
def test_statistics_of_lanes(threads: int, length: int, offset: float) -> None:
    """Also of rows that leave lanes without a value, and of rows far from zero."""
    x = (np.random.default_rng(length).normal(size=(3, length)) + offset).astype(np.float32)
    x[1, 0] += 50.0
    found = run(Lowered.of(moments_of_rows(threads)), [x], seed=1).check()
    exact = x.astype(np.float64)
    expected = [exact.mean(1), exact.var(1) * length]
    for value, right in zip(found.values(), expected, strict=True):
        np.testing.assert_allclose(value.astype(np.float64).ravel(), right, rtol=6e-4, atol=1e-6)


def test_statistics_of_lanes_are_divided_once() -> None:
    kernel = Lowered.of(moments_of_rows(32)).kernel
    assert count(kernel, Shuffle) == 1 + 5 * 3, "the first lane's mean, and three sums in each of five steps"
    body = generate_cuda(kernel).text.split("fuser_kernel(")[1]
    assert body.count("divide") == 2, "one for what a thread has, one for what its warp has"
