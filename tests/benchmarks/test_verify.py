"""What the benchmark accepts as right, on tensors of the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.case import Case, Either
from benchmarks.inputs import F16, Input
from benchmarks.verify import largest_error, verify

pytestmark = pytest.mark.torch


def case(eager: Callable[..., Any], reference: Callable[..., Any]) -> Case:
    return Case("x", "x", (Input((2,), F16),), 4, lambda fd, x: [x], lambda torch: eager, reference)


def test_what_eager_gets_infinitely_wrong_excuses_nothing() -> None:
    import torch

    x = torch.tensor([300.0, 1.0], dtype=torch.float16)
    # The square overflows in Half: infinity, where the root of it is 300.
    squared = case(lambda x: (x * x).sqrt(), lambda m, x: [x.double()])
    assert verify(squared, x.clone, [x]).is_right
    assert not verify(squared, lambda: torch.zeros_like(x), [x]).is_right


def test_integers_are_right_or_not() -> None:
    import torch

    values = torch.tensor([1, 2, 300])
    assert largest_error(values.int(), values) == 0.0
    assert largest_error(values.int() + 1, values) == float("inf")
    assert largest_error(values > 1, torch.tensor([False, True, True])) == 0.0


def test_numbers_in_one_integer_may_each_be_rounded_either_way() -> None:
    import torch

    either = Either(torch.tensor([0x0102]), torch.tensor([0x0203]))
    for right in (0x0102, 0x0203, 0x0103, 0x0202):
        assert largest_error(torch.tensor([right]), either) == 0.0
    assert largest_error(torch.tensor([0x0502]), either) == float("inf")
