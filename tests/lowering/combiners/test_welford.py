"""Statistics: of complex values, whose squares are real, and of partials that pieces of a row have."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.schedule.schedule import ScheduleBuilder
from tests.fusions.kernel_corpus import BX, GX, SERIAL, schedule_axes
from tests.judging.harness import check, integers
from tests.lowering.combiners.variances import exact, typical_error, variance_of


@pytest.mark.parametrize("shape", [(3, 700), (700, 3)])
def test_complex_values(shape: tuple[int, int]) -> None:
    random = np.random.default_rng(0)
    x = (1e3 + random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(np.complex64)
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1], True, DataType.ComplexFloat)
        for result in fd.ops.var_mean(t, [1]):
            fd.add_output(result)
    variance, mean = (np.asarray(o) for o in fd.execute([x], device="simulator"))
    wide = x.astype(np.complex128)
    np.testing.assert_allclose(variance, wide.var(1, ddof=1), rtol=1e-4)
    np.testing.assert_allclose(mean, wide.mean(1), rtol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 31, 33, 100, 1000, 40000])
def test_error_grows_with_the_mean_and_not_with_its_square(count: int) -> None:
    """An ulp for each standard deviation that the mean lies from zero, at most; a difference of sums of squares has 1e6."""
    x = (1e3 + np.random.default_rng(0).standard_normal((3, count))).astype(np.float32)
    found = variance_of(lambda _, t: t, DataType.Float, x, 1)
    if count == 1:
        assert np.isnan(found).all()
    else:
        right = exact(x, 1)
        assert typical_error(found, right) <= float(np.max(1e3 / np.sqrt(right)))


@pytest.mark.parametrize("count", [1, 5, 13, 16, 100])
@pytest.mark.parametrize("threads", [1, 8])
def test_a_thread_joins_partials_that_saw_differently_many_values(count: int, threads: int) -> None:
    """Every fourth value of a row belongs to one partial: a count for each."""
    b = FusionBuilder()
    x = b.input_tensor(DataType.Float, [-1, -1])
    results = b.welford(x, [1])
    for t in results:
        b.add_output(t)
    s = ScheduleBuilder(b.freeze())
    name = results[0].name
    s.split(name, 1, 4)
    s.split(name, 1, threads)
    (first, *_) = s.rfactor(name, [1])
    schedule_axes(s, str(first), (GX, SERIAL, BX, SERIAL))
    schedule_axes(s, name, (GX, BX, SERIAL))
    s.inline_most()
    kernel = check(s, [integers((3, count), low=1000, high=1008)], tolerance=1e-5)
    assert f"{first}_seen" in str(kernel)
