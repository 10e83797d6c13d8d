"""What lies between library calls: parts in an order that respects data, each as long as it can be, rewritten by themselves."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.ir.fusion.fusion import Fusion, LibraryOp, Random, tensor_inputs, tensor_outputs
from fuser.ir.fusion.library_regions import has_calls, parts_of, rewrite_parts
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.optimize.pipeline import optimize_fusion
from tests.fuzzing.random_library_programs import generate


def defined(fd: FusionDefinition) -> Fusion:
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def shapes_of(fusion: Fusion) -> list[str]:
    """Of each part its op, or how many exprs it has."""
    return [p.op if isinstance(p, LibraryOp) else str(len(p)) for p in parts_of(fusion)]


def test_both_sides_of_a_call_are_one_part_each() -> None:
    with FusionDefinition() as fd:
        x, w = (fd.define_tensor([-1, -1], dtype=DataType.Float) for _ in range(2))
        y = fd.ops.matmul(fd.ops.tanh(fd.ops.relu(x)), w)
        fd.add_output(fd.ops.exp(fd.ops.neg(y)))
    assert shapes_of(defined(fd)) == ["2", "matmul", "2"]


def test_calls_that_do_not_wait_for_each_other_have_one_part_before_and_one_behind() -> None:
    """However the definition mixes them: what is done to each of three products is one part."""
    with FusionDefinition() as fd:
        x, *weights = (fd.define_tensor([-1, -1], dtype=DataType.Float) for _ in range(4))
        h = fd.ops.relu(x)
        products = [fd.ops.tanh(fd.ops.matmul(h, w)) for w in weights]
        fd.add_output(fd.ops.add(fd.ops.add(products[0], products[1]), products[2]))
    assert shapes_of(defined(fd)) == ["1", "matmul", "matmul", "matmul", "5"]


def test_what_only_a_later_part_reads_is_computed_there() -> None:
    """No memory is written for it: the mask is made where it is used. What is reduced is small, and stays."""
    with FusionDefinition() as fd:
        x, w = (fd.define_tensor([-1, -1], dtype=DataType.Float) for _ in range(2))
        mask = fd.ops.gt(x, 0.5)
        total = fd.ops.sum(x, dims=[1], keepdim=True)
        y = fd.ops.matmul(x, w)
        fd.add_output(fd.ops.add(fd.ops.where(mask, y, 0.0), total))
    parts = parts_of(defined(fd))
    ops = [[getattr(e, "op", type(e).__name__) for e in p] for p in parts if not isinstance(p, LibraryOp)]
    assert ops == [["sum"], ["gt", "Broadcast", "where", "add"]]


@pytest.mark.parametrize("seed", range(20))
def test_parts_respect_data_and_none_is_left_out(seed: int) -> None:
    fusion = defined(generate(random.Random(seed))[0])
    made = set(fusion.input_tensors)
    seen: list[Any] = []
    for part in parts_of(fusion):
        exprs = (part,) if isinstance(part, LibraryOp) else part
        for e in exprs:
            assert made.issuperset(tensor_inputs(e))
            made.update(tensor_outputs(e))
        seen += exprs
    assert sorted(map(id, seen)) == sorted(map(id, fusion.tensor_exprs))


@pytest.mark.parametrize("seed", range(20))
def test_a_rewrite_of_nothing_changes_nothing(seed: int) -> None:
    fusion = defined(generate(random.Random(seed))[0])
    assert rewrite_parts(fusion, lambda part: part) == fusion


@pytest.mark.parametrize("seed", range(20))
def test_what_passes_make_of_parts_is_a_fusion(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    fusion = defined(generate(random.Random(seed))[0])
    optimized = optimize_fusion(fusion, lambda name, text: None)
    verify_fusion(optimized, "all")
    names = [v.name for v in optimized.tensors]
    assert len(names) == len(set(names))
    assert has_calls(optimized) == has_calls(fusion)


def test_random_numbers_are_those_of_the_whole_fusion() -> None:
    """Each part would number its own from 0."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([4, 4], dtype=DataType.Float)
        y = fd.ops.matmul(fd.ops.add(x, fd.ops.rand_like(x)), x)
        fd.add_output(fd.ops.reshape(fd.ops.add(y, fd.ops.rand_like(y)), [2, 8]))
    optimized = optimize_fusion(defined(fd), lambda name, text: None)
    assert [e.ordinal for e in optimized.exprs if isinstance(e, Random)] == [0, 1]
    data = np.eye(4, dtype=np.float32)
    fd.validate([data])
