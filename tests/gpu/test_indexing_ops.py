"""Slices, pads, concatenations and gathers on a GPU: random programs bit by bit, and the four kernels they are there for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_fusion
from fuser.runtime.devices.cuda_device import CudaDevice
from tests.fusions.fusion_corpus import assert_close
from tests.fuzzing.exact_runs import check
from tests.fuzzing.random_resizes import CASES, PER_TEST, generate

D = DataType
BFloat16 = D.BFloat16


@pytest.fixture(scope="module")
def device() -> CudaDevice:
    """The GPU, planned for as if it had one SM: small tensors get the wide accesses of large ones."""
    made = CudaDevice(0)
    made.info = replace(made.info, sm_count=1)
    return made


@pytest.mark.parametrize("start", range(0, CASES, PER_TEST))
def test_random_resizes(start: int, device: CudaDevice) -> None:
    for seed in range(start, start + PER_TEST):
        check(generate(seed), device)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(BFloat16.numpy)


def rope(heads: int, length: int, width: int) -> tuple[FusionDefinition, list[Any]]:
    half = width // 2
    with FusionDefinition() as fd:
        q = fd.define_tensor([2, heads, length, width], True, BFloat16)
        cos, sin = (fd.define_tensor([length, width], True, BFloat16) for _ in range(2))
        first = fd.ops.slice(q, [0, 0, 0, 0], [2, heads, length, half])
        second = fd.ops.slice(q, [0, 0, 0, half], [2, heads, length, width])
        turned = fd.ops.cat([fd.ops.cast(fd.ops.neg(second), BFloat16), first], -1)
        shape = [2, heads, length, width]
        wide_cos, wide_sin = (fd.ops.broadcast_in_dim(t, shape, [2, 3]) for t in (cos, sin))
        fd.add_output(fd.ops.cast(fd.ops.add(fd.ops.mul(q, wide_cos), fd.ops.mul(turned, wide_sin)), BFloat16))
    return fd, [normal(2, heads, length, width), normal(length, width), normal(length, width)]


def swiglu(rows: int, columns: int) -> tuple[FusionDefinition, list[Any]]:
    with FusionDefinition() as fd:
        x = fd.define_tensor([rows, 2 * columns], True, BFloat16)
        gate, up = fd.ops.slice(x, [0, 0], [rows, columns]), fd.ops.slice(x, [0, columns], [rows, 2 * columns])
        fd.add_output(fd.ops.cast(fd.ops.mul(fd.ops.silu(gate), up), BFloat16))
    return fd, [normal(rows, 2 * columns)]


def losses(rows: int, columns: int) -> tuple[FusionDefinition, list[Any]]:
    with FusionDefinition() as fd:
        x, target = fd.define_tensor([rows, columns], True, BFloat16), fd.define_tensor([rows], True, D.Int)
        wide = fd.ops.cast(x, D.Float)
        high = fd.ops.max(wide, [1], True)
        total = fd.ops.sum(fd.ops.exp(fd.ops.sub(wide, high)), [1], True)
        picked = fd.ops.take_along_axis(wide, fd.ops.broadcast(target, [False, True]), 1)
        loss = fd.ops.sub(fd.ops.add(fd.ops.log(total), high), picked)
        fd.add_output(fd.ops.squeeze(loss, [1]))
    return fd, [normal(rows, columns), np.random.default_rng(0).integers(0, columns, rows)]


def embedding(vocabulary: int, width: int, tokens: int) -> tuple[FusionDefinition, list[Any]]:
    with FusionDefinition() as fd:
        table, index = fd.define_tensor([vocabulary, width], True, BFloat16), fd.define_tensor([tokens], True, D.Int)
        fd.add_output(fd.ops.cast(fd.ops.mul(fd.ops.index_select(table, index, 0), 64.0), BFloat16))
    return fd, [normal(vocabulary, width), np.random.default_rng(0).integers(0, vocabulary, tokens)]


# Sizes whose vectors are whole, and sizes whose are not.
PROGRAMS: list[tuple[Callable[..., tuple[FusionDefinition, list[Any]]], tuple[int, ...]]] = [
    (rope, (4, 512, 128)),
    (rope, (3, 37, 64)),
    (rope, (3, 37, 22)),
    (swiglu, (512, 11008)),
    (swiglu, (37, 1001)),
    (losses, (256, 32000)),
    (losses, (37, 1001)),
    (embedding, (5000, 4096, 1024)),
    (embedding, (501, 77, 333)),
]


@pytest.mark.parametrize(
    ("build", "sizes"), PROGRAMS, ids=[f"{b.__name__}-{'x'.join(map(str, s))}" for b, s in PROGRAMS]
)
def test_one_kernel(build: Callable[..., Any], sizes: tuple[int, ...]) -> None:
    fd, inputs = build(*sizes)
    assert fd.fusion is not None
    (expected,) = evaluate_fusion(fd.fusion.ir_fusion, inputs)
    (found,) = fd.execute(inputs, device=0)
    assert_close(found, expected, sizes[-1], build.__name__)
    (kernel,) = fd.fec.kernels(inputs, 0)
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == 0
