"""One kernel, many shapes: every kernel of the corpus runs on whatever satisfies its facts, and on nothing else.

For each fusion a program is compiled for one set of arguments. Ten further sets are drawn that satisfy its kernels' facts
and no more: other extents, strides that are free are padded, and a base is aligned to what is asked and not beyond. They
run on the same program, and through the program cache without a compilation. Then each fact is broken in turn: the program
refuses and says what it was compiled for, the cache takes another kernel, and the results stay right.
"""

from __future__ import annotations

import pytest

from fuser.ir.facts import (
    Aligned,
    DenseStride,
    Disjoint,
    ExtentDivisible,
    IndexBound,
    LoopBound,
    StrideDivisible,
    UnitStride,
)
from tests.devices.small_simulator import small_simulator
from tests.end_to_end.fact_checks import NAMES, PADDED, breaks, check_many_shapes, check_refusals, subject
from tests.fusions.fusion_corpus import case


@pytest.mark.in_turns
@pytest.mark.parametrize("name", NAMES)
def test_one_kernel_many_shapes(name: str) -> None:
    check_many_shapes(subject(case(name), small_simulator()))


@pytest.mark.in_turns
@pytest.mark.parametrize("name", PADDED)
def test_one_kernel_many_strides(name: str) -> None:
    check_many_shapes(subject(case(name), small_simulator(), padding=16), 3)


@pytest.mark.in_turns
@pytest.mark.parametrize("name", NAMES)
def test_each_fact_is_checked(name: str) -> None:
    made = subject(case(name), small_simulator())
    broken = check_refusals(made)
    inputs = [t for t in made.fusion.input_tensors if t.visible]
    if any(k is not None for k in made.kernels) and inputs:
        assert broken, "a kernel that assumes nothing about its inputs"


def test_facts_of_every_kind_are_broken_somewhere() -> None:
    seen: set[type] = set()
    for name in ("layer_norm", "momentum_step", "channel_scale"):
        for padding in (0, 16):
            seen |= {type(b.fact) for b in breaks(subject(case(name), small_simulator(), padding=padding))}
    assert seen >= {UnitStride, DenseStride, StrideDivisible, Aligned, ExtentDivisible, IndexBound, LoopBound, Disjoint}
