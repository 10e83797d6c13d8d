"""The verb that turns a Welford reduction or a sum of exponentials into simple reductions."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.errors import SchedulingError
from fuser.ir.fusion.fusion import ExpSum, Fusion, Pointwise, Reduction, Welford
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.optimize.fuse_exp_sums import fuse_exp_sums
from tests.judging.harness import Lowered, run


def moments(triple: bool = False) -> Fusion:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], dtype=DataType.Float, contiguity=True)
        if triple:
            for t in fd.ops.welford(x, [1]):
                fd.add_output(t)
        else:
            variance, mean = fd.ops.var_mean(x, [1], 0)
            fd.add_output(variance)
            fd.add_output(mean)
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def welford_mean(fusion: Fusion) -> str:
    return next(e.mean.name for e in fusion.tensor_exprs if isinstance(e, Welford))


@pytest.mark.parametrize("triple", [False, True])
def test_moments_of_rows_far_from_zero(triple: bool) -> None:
    fusion = moments(triple)
    builder = ScheduleBuilder(fusion)
    builder.two_pass(welford_mean(fusion))
    assert sum(isinstance(e, Reduction) for e in builder.exprs) == 3
    assert not any(isinstance(e, Welford) for e in builder.exprs)
    builder.inline_most()
    x = (np.random.default_rng(0).normal(size=(3, 37)) + 1e4).astype(np.float32)
    found = run(Lowered.of(builder), [x]).check()
    results = [found[t.name] for t in fusion.output_tensors]
    exact = x.astype(np.float64)
    mean, spread = exact.mean(1), exact.var(1)
    if triple:
        np.testing.assert_allclose(results[0], mean, rtol=1e-6)
        np.testing.assert_allclose(results[1], spread * 37, rtol=1e-5)
        np.testing.assert_array_equal(results[2], 37)
    else:
        np.testing.assert_allclose(results[0], spread, rtol=1e-5)
        np.testing.assert_allclose(results[1], mean, rtol=1e-6)


def centred(dtype: DataType, *, moments: bool = True) -> FusionDefinition:
    """x - mean of Float rows as `dtype`; with `moments` over the deviation."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], dtype=DataType.Float, contiguity=True)
        variance, mean = fd.ops.var_mean(x, [1], 0, True)
        difference = x - mean
        fd.add_output(fd.ops.cast(difference * fd.ops.rsqrt(variance) if moments else difference, dtype))
    return fd


def test_differences_of_a_row_with_infinities_are_those_from_its_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    x = np.ones((3, 40), np.float32)
    x[0, 3], x[1, 5] = np.inf, np.nan
    (found,) = centred(DataType.Float, moments=False).execute([x])
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(found, x - x.mean(1, keepdims=True))


@pytest.mark.parametrize("dtype", [DataType.BFloat16, DataType.Float])
def test_no_sum_of_squares_where_only_the_mean_is_read(dtype: DataType) -> None:
    """A result that nothing reads has no loop to be inlined into: it would be an array."""
    fusion = centred(dtype, moments=False).fusion
    assert fusion is not None
    builder = ScheduleBuilder(fusion.ir_fusion)
    builder.two_pass(welford_mean(fusion.ir_fusion))
    assert sum(isinstance(e, Reduction) for e in builder.exprs) == 2
    builder.inline_most()
    x = np.random.default_rng(0).normal(size=(3, 37)).astype(np.float32)
    (found,) = run(Lowered.of(builder), [x]).check().values()
    np.testing.assert_allclose(found.astype(float), x - x.mean(1, keepdims=True), rtol=1e-2, atol=1e-6)


def test_replays() -> None:
    fusion = moments()
    builder = ScheduleBuilder(fusion)
    builder.two_pass(welford_mean(fusion))
    again = ScheduleBuilder(fusion)
    again.replay(builder.records)
    assert str(again) == str(builder)
    assert [str(e) for e in again.exprs] == [str(e) for e in builder.exprs]


def test_refusals() -> None:
    fusion = moments()
    builder = ScheduleBuilder(fusion)
    with pytest.raises(SchedulingError, match="is not the result of a Welford reduction"):
        builder.two_pass(fusion.input_tensors[0].name)
    name = welford_mean(fusion)
    builder.split(name, 1, 4)
    with pytest.raises(SchedulingError, match="is already scheduled"):
        builder.two_pass(name)


def exponentials(*, keep: bool) -> Fusion:
    """Rows' sums of exponentials; `keep`: the exponentials are an output, too."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], dtype=DataType.Float, contiguity=True)
        powers = fd.ops.exp(fd.ops.sub(x, fd.ops.max(x, [1], keepdim=True)))
        fd.add_output(fd.ops.log(fd.ops.sum(powers, [1])))
        if keep:
            fd.add_output(powers)
    assert fd.fusion is not None
    return fuse_exp_sums(fd.fusion.ir_fusion)


@pytest.mark.parametrize("keep", [False, True])
def test_exponentials_are_computed_once(keep: bool) -> None:
    fusion = exponentials(keep=keep)
    (pair,) = (e for e in fusion.tensor_exprs if isinstance(e, ExpSum))
    builder = ScheduleBuilder(fusion)
    builder.two_pass(pair.total.name)
    assert sorted(e.op for e in builder.exprs if isinstance(e, Reduction)) == ["max", "sum"]
    assert sum(isinstance(e, Pointwise) and e.op == "exp" for e in builder.exprs) == 1
    again = ScheduleBuilder(fusion)
    again.replay(builder.records)
    assert [str(e) for e in again.exprs] == [str(e) for e in builder.exprs]
    builder.inline_most()
    x = np.random.default_rng(1).normal(size=(3, 37)).astype(np.float32) * 9
    found = run(Lowered.of(builder), [x]).check()
    below = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    results = [found[t.name] for t in fusion.output_tensors]
    np.testing.assert_allclose(results[0], np.log(below.sum(1)), rtol=1e-5, atol=1e-7)
    if keep:
        np.testing.assert_allclose(results[1], below, rtol=5e-6)
