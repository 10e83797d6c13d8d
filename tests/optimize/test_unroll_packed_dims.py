"""Values of a row that are packed into words: one kernel with the statistics of the row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.device_info import H200
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.optimize.pipeline import optimize_fusion
from fuser.optimize.unroll_packed_dims import unroll_packed_dims
from fuser.schedule.params import InnerPersistentParams
from fuser.schedule.segmentation.segmentation import segment_fusion
from tests.schedule.block_reductions import propose as propose_reduction

BFloat16, Float, Int32 = DataType.BFloat16, DataType.Float, DataType.Int32
ROWS, WORDS = 5, 12


def quantised(o: Any, x: Any, count: int, most: float) -> Any:
    """Whole numbers up to `most`, of the scale of their rows, and the scales."""
    wide = o.cast(x, Float)
    scale = o.div(o.maximum(o.max(wide.abs(), [1, 2]), 1e-5), most)
    scaled = o.div(wide, o.broadcast(scale, [False, True, True]))
    return o.cast(o.clamp(o.round(scaled), -most, most), Int32), scale


def packed(count: int) -> Callable[[Any, Any], Any]:
    """`count` numbers in each word."""

    def build(o: Any, x: Any) -> Any:
        bits = 32 // count
        whole, scale = quantised(o, x, count, 2.0 ** (bits - 1) - 1)
        shifts = o.broadcast(o.iota(count, 0, bits, Int32), [True, True, False])
        word = o.bitwise_left_shift(o.bitwise_and(whole, 2**bits - 1), shifts)
        return o.sum(word, [2], dtype=Int32), scale

    return build


def put_together(o: Any, x: Any) -> Any:
    """Four bytes in each word, taken one by one."""
    whole, scale = quantised(o, x, 4, 127.0)
    bytes_ = o.bitwise_and(whole, 255)
    word = bytes_[..., 0]
    for k in range(1, 4):
        word = o.bitwise_or(word, o.bitwise_left_shift(bytes_[..., k], 8 * k))
    return word, scale


def largest_of_pairs(o: Any, x: Any) -> Any:
    """Of what is left of the mean of a row."""
    wide = o.cast(x, Float)
    mean = o.div(o.sum(wide, [1, 2]), 24.0)
    return o.max(o.sub(wide, o.broadcast(mean, [False, True, True])), [2])


def fusion_of(build: Callable[[Any, Any], Any], count: int) -> tuple[FusionDefinition, Fusion]:
    with FusionDefinition() as fd:
        x = fd.define_tensor([ROWS, WORDS * count], True, BFloat16)
        results = build(fd.ops, fd.ops.reshape(x, [ROWS, WORDS, count]))
        for t in results if isinstance(results, tuple) else (results,):
            fd.add_output(t)
    assert fd.fusion is not None
    return fd, fd.fusion.ir_fusion


CASES = {
    "bytes": (packed(4), 4),
    "bytes one by one": (put_together, 4),
    "nibbles": (packed(8), 8),
    "pairs": (largest_of_pairs, 2),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_are_read_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    fd, fusion = fusion_of(*CASES[name])
    x = np.random.default_rng(1).standard_normal((ROWS, WORDS * CASES[name][1])).astype(BFloat16.numpy)
    optimized = optimize_fusion(fusion, lambda stage, text: None)
    (kernel,) = (s for s in segment_fusion(optimized).segments if s.has_kernel)
    assert kernel.scheduler.params is InnerPersistentParams
    for found, wanted in zip(fd.execute([x], device="simulator"), evaluate_fusion(fusion, [x]), strict=True):
        np.testing.assert_allclose(np.asarray(found, np.float64), np.asarray(wanted, np.float64), rtol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_the_values_are_the_same(name: str) -> None:
    _, fusion = fusion_of(*CASES[name])
    found = unroll_packed_dims(fusion)
    assert found is not fusion
    verify_fusion(found)
    assert unroll_packed_dims(found) is found
    assert [t.name for t in found.output_tensors] == [t.name for t in fusion.output_tensors]
    x = np.random.default_rng(1).standard_normal((ROWS, WORDS * CASES[name][1])).astype(BFloat16.numpy)
    for a, b in zip(evaluate_fusion(found, [x]), evaluate_fusion(fusion, [x]), strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=1e-6)


OTHERS: dict[str, Callable[[Any, Any], Any]] = {
    "no statistics": lambda o, x: o.sum(o.cast(x, Float), [2]),
    "all values are stored": lambda o, x: (packed(4)(o, x)[0], quantised(o, x, 4, 127.0)[0]),
    "statistics that are not needed": lambda o, x: (o.sum(o.cast(x, Float), [2]), o.max(o.cast(x, Float), [1, 2])),
    "a scan": lambda o, x: (packed(4)(o, x)[0], o.max(o.cumsum(o.cast(x, Float), 2), [1, 2])),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    _, fusion = fusion_of(OTHERS[name], 4)
    assert unroll_packed_dims(fusion) is fusion


def test_every_few_elements_are_read_by_neighbouring_threads() -> None:
    """Two of eight values of a sector are in other threads' accesses, were an access more than one."""
    with FusionDefinition() as fd:
        o, x = fd.ops, fd.define_tensor([4096, 2048], True, BFloat16)
        pairs = o.reshape(x, [4096, 1024, 2])
        left, right = (o.squeeze(o.slice(pairs, [0, 0, k], [4096, 1024, k + 1]), [2]) for k in range(2))
        fd.add_output(o.sum(o.mul(o.cast(left, Float), o.cast(right, Float)), [1]))
    assert fd.fusion is not None
    optimized = optimize_fusion(fd.fusion.ir_fusion, lambda stage, text: None)
    (kernel,) = (s for s in segment_fusion(optimized).segments if s.has_kernel)
    given = TensorDescriptor(BFloat16, (4096, 1024, 2), (2048, 2, 1), 256)
    assert propose_reduction(kernel.fusion, [given], H200).vector == 1
