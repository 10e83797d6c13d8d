"""Casts to 16 bits on a GPU round once: every tie of the 16-bit type, and the numbers next to it. Integer division."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.ir.ops.op_table import POINTWISE
from tests.judging.single_rounding import NARROW, WIDE, around_ties


@pytest.mark.filterwarnings("ignore:casting Complex:UserWarning")  # of the real part, as meant
@pytest.mark.parametrize("target", NARROW, ids=lambda d: d.name)
@pytest.mark.parametrize("source", WIDE, ids=lambda d: d.name)
def test_casts_to_16_bits_round_once(source: DataType, target: DataType) -> None:
    values, bits = around_ties(source, target)
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.cast(fd.define_tensor([-1], True, source), target))
    (got,) = fd.execute([values], device="cuda")
    np.testing.assert_array_equal(np.asarray(got).view(np.uint16), bits)


@pytest.mark.parametrize("op", ["div", "mod", "fmod", "remainder"])
@pytest.mark.parametrize("dtype", [DataType.Int, DataType.Int32], ids=lambda d: d.name)
def test_integers_over_zero(dtype: DataType, op: str) -> None:
    """As the reference says, and as torch's own kernels have it where they leave division to the machine."""
    limits = np.iinfo(dtype.numpy)
    x = np.array([0, 1, 7, limits.max, -1, -7, limits.min, *([2**32 - 1, 2**32] if dtype is DataType.Int else [])])
    with FusionDefinition() as fd:
        operands = [fd.define_tensor([-1], True, dtype) for _ in range(2)]
        fd.add_output(getattr(fd.ops, op)(*operands))
    x = x.astype(dtype.numpy)
    (got,) = fd.execute([x, np.zeros_like(x)], device="cuda")
    np.testing.assert_array_equal(np.asarray(got), POINTWISE[op].numpy(x, np.zeros_like(x)))


def test_integer_division_is_that_of_torch() -> None:
    torch: Any = pytest.importorskip("torch")
    a, b = (torch.randint(-9, 10, (1024,), device="cuda") for _ in range(2))
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1], True, DataType.Int) for _ in range(2))
        fd.add_output(fd.ops.div(x, y))
        fd.add_output(fd.ops.truediv(x, y))
    whole, quotient = fd.execute([a, b])
    assert torch.equal(whole, torch.div(a, b, rounding_mode="trunc"))
    torch.testing.assert_close(quotient, torch.true_divide(a, b), equal_nan=True)
