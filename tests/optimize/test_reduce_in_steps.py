"""Reductions in two steps: the same values, whatever the dims, the op and the type."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion.fusion import Fusion, Reducing, Reduction, Welford, tensor_outputs
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.optimize.reduce_in_steps import reduce_in_steps

D = DataType
SHAPE = (2, 3, 4, 5, 6)


def reduced(op: str, dims: list[int], dtype: DataType, sizes: list[int] | None = None) -> Fusion:
    with FusionDefinition() as fd:
        x = fd.define_tensor(sizes or [-1] * len(SHAPE), True, dtype)
        found = getattr(fd.ops, op)(x, dims)
        for t in found if isinstance(found, tuple) else (found,):
            fd.add_output(t)
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def stepped(fusion: Fusion, last: list[int]) -> Fusion:
    results = [tensor_outputs(e)[0].name for e in fusion.tensor_exprs if isinstance(e, Reducing)]
    made = reduce_in_steps(fusion, dict.fromkeys(results, last))
    verify_fusion(made, "reduce_in_steps")
    return made


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min", "var_mean", "welford"])
@pytest.mark.parametrize(("dims", "last"), [([1, 2, 4], [4]), ([0, 1, 3], [1, 3]), ([0, 2, 3, 4], [2])], ids=str)
@pytest.mark.parametrize("sizes", [None, list(SHAPE)], ids=["unknown", "known"])
@pytest.mark.parametrize("dtype", [D.Float, D.Double, D.BFloat16], ids=lambda d: d.name)
def test_two_steps_give_the_same(
    op: str, dims: list[int], last: list[int], sizes: list[int] | None, dtype: DataType
) -> None:
    x = (np.random.default_rng(0).random(SHAPE) + 0.5).astype(dtype.numpy)
    fusion = reduced(op, dims, dtype, sizes)
    made = stepped(fusion, last)
    assert [t.name for t in made.output_tensors] == [t.name for t in fusion.output_tensors]
    for now, before in zip(evaluate_fusion(made, [x]), evaluate_fusion(fusion, [x]), strict=True):
        assert now.dtype == before.dtype
        tolerance = 1e-2 if dtype is D.BFloat16 and op not in ("var_mean", "welford") else 1e-5
        np.testing.assert_allclose(np.asarray(now, "f8"), np.asarray(before, "f8"), rtol=tolerance)


def test_the_first_step_reduces_the_others() -> None:
    made = stepped(reduced("sum", [1, 2, 4], D.Float), [4])
    first, second = (e for e in made.tensor_exprs if isinstance(e, Reduction))
    assert [d.is_reduction for d in first.output.logical] == [False, True, True, False, False]
    assert [d.is_reduction for d in second.output.logical] == [False, False, True]


def test_sums_of_16_bits_are_wide_between_the_steps() -> None:
    made = stepped(reduced("sum", [1, 4], D.BFloat16), [4])
    sums = [e.output.dtype for e in made.tensor_exprs if isinstance(e, Reduction)]
    assert sums[0] is D.Float
    assert made.output_tensors[0].dtype is D.BFloat16


def test_a_large_mean_does_not_drown_the_deviations() -> None:
    x = np.random.default_rng(0).standard_normal(SHAPE).astype("f4") + np.float32(4096)
    variance, _ = evaluate_fusion(stepped(reduced("var_mean", [1, 2, 4], D.Float), [4]), [x])
    exact = x.astype("f8").var((1, 2, 4), ddof=1)
    np.testing.assert_allclose(np.asarray(variance), exact, rtol=1e-3)


def test_what_nobody_names_stays() -> None:
    fusion = reduced("var_mean", [1, 2, 4], D.Float)
    made = reduce_in_steps(fusion, {"t1000": [4]})
    assert sum(isinstance(e, Welford) for e in made.exprs) == 1
    assert len(made.exprs) == len(fusion.exprs)
