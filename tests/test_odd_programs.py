"""Small programs with dims of one element, factories, indices and unread inputs beside reductions: what schedulers propose for
them can be lowered, and is right. Each was found by chance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
TABLE, CHOICE = RNG.random((32, 129)).astype("f4"), RNG.integers(0, 129, 65).astype("i4")


def run(
    define: Callable[[FusionDefinition], None], arrays: Sequence[Array], monkeypatch: pytest.MonkeyPatch
) -> list[Array]:
    """Results on the simulator; what a scheduler proposes and lowering refuses is an error."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    with FusionDefinition() as fd:
        define(fd)
    return [np.asarray(a) for a in fd.execute(arrays, device="simulator")]


def normalised(fd: FusionDefinition, x: Any, dims: list[int]) -> Any:
    o = fd.ops
    variance, mean = o.var_mean(x, dims, 0, True)
    return o.mul(o.sub(x, mean), o.rsqrt(o.add(variance, 1.0)))


@pytest.mark.parametrize("shape", [[8], [129, 8, 8]])
def test_statistics_of_a_factory(shape: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is computed for them and again for what needs them: nothing else said that the dims are the same."""

    def define(fd: FusionDefinition) -> None:
        fd.add_output(normalised(fd, fd.ops.full(shape, 2.5, DataType.Float), list(range(len(shape)))))

    (found,) = run(define, [], monkeypatch)
    np.testing.assert_array_equal(found, np.zeros(shape, "f4"))


def test_dims_of_one_element_of_a_transpose(monkeypatch: pytest.MonkeyPatch) -> None:
    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor([1, 129, -1, 1], True)
        fd.add_output(fd.ops.stride_order(x, [2, 0, 3, 1]))

    array = RNG.random((1, 516, 129, 1)).astype("f4")[:, :129]
    (found,) = run(define, [array], monkeypatch)
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("op", ["max", "sum", "var"])
def test_reductions_of_chosen_columns(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The indices have one of the dims that are reduced as one, and are read before the elements."""

    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor([32, -1], True)
        i = fd.define_tensor([-1], True, DataType.Int32)
        fd.add_output(getattr(fd.ops, op)(fd.ops.index_select(x, i, 1), [0, 1]))

    (found,) = run(define, [TABLE, CHOICE], monkeypatch)
    chosen = TABLE[:, CHOICE].astype("f8")
    expected = {"max": chosen.max(), "sum": chosen.sum(), "var": chosen.var(ddof=1)}[op]
    np.testing.assert_allclose(found, expected, rtol=2e-7)
